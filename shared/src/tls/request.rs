//! Certificate signing requests (PKCS#10): a new key, and the proof of possessing it. Everything else in a certificate
//! is determined by the authority.

use bytes::Bytes;
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use zeroize::Zeroize as _;

use crate::secret;

/// Why no request can be made.
pub use rcgen::Error as KeyError;

/// A new key, PKCS#8 and wiped when the last reference is dropped, and the request, DER.
///
/// # Errors
/// If no key can be created.
pub fn request() -> Result<(Bytes, Bytes), KeyError> {
    let mut key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).map(|request| Bytes::copy_from_slice(request.der()));
    let der = secret::kept(key.serialized_der());
    key.zeroize();
    Ok((der, request?))
}
