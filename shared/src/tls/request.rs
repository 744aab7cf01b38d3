//! A request for a certificate (PKCS#10): a new key, and the proof that whoever asks has it. All else that a certificate says is
//! the authority's to say.

use bytes::Bytes;
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use zeroize::Zeroize as _;

use crate::secret;

/// Why there is none.
pub use rcgen::Error as KeyError;

/// A new key, PKCS#8 and wiped when nobody holds it any more, and the request, DER.
///
/// # Errors
/// Where no key can be made.
pub fn request() -> Result<(Bytes, Bytes), KeyError> {
    let mut key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).map(|request| Bytes::copy_from_slice(request.der()));
    let der = secret::kept(key.serialized_der());
    key.zeroize();
    Ok((der, request?))
}
