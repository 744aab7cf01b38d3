//! Leaf certificates.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rcgen::{
    CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData as _, SanType,
};
use rustls_pki_types::CertificateSigningRequestDer;
use shared::identity::{Identity, Role, valid_from};
use shared::secret;
use shared::tls::{Credentials, SERVER_NAME};

use super::{Authority, IssueError, Key, REQUEST_MAX};

/// Additional names of a control plane's certificate, for foreign clients.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Names {
    /// Host names.
    pub hosts: Vec<String>,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
}

impl Authority {
    /// Issues a certificate for the key of a request, with the chain to the root; DER. Only the request's key is used:
    /// the holder's identity was verified otherwise.
    ///
    /// # Errors
    /// If the request is invalid, or signing fails.
    pub fn issue(
        &self,
        request: &[u8],
        identity: &Identity,
        now: SystemTime,
        life: Duration,
    ) -> Result<Vec<Bytes>, IssueError> {
        let mut request = read(request)?;
        request.params = params(identity, now, life, &Names::default())?;
        let root = self.signer(now);
        let leaf = root.sign(|issuer| request.signed_by(issuer))?;
        Ok(vec![Bytes::copy_from_slice(leaf.der()), root.certificate.clone()])
    }

    /// The digest of a request's key. The request proves that its holder has the key.
    ///
    /// # Errors
    /// If the request is invalid.
    pub fn holder(request: &[u8]) -> Result<[u8; 32], IssueError> {
        Ok(*blake3::hash(read(request)?.public_key.der_bytes()).as_bytes())
    }

    /// A new key and its certificate, for this process.
    ///
    /// # Errors
    /// If the key cannot be created or signing fails.
    pub fn credentials(
        &self,
        identity: &Identity,
        now: SystemTime,
        life: Duration,
        names: &Names,
    ) -> Result<Credentials, IssueError> {
        let key = Key(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?);
        let params = params(identity, now, life, names)?;
        let root = self.signer(now);
        let leaf = root.sign(|issuer| params.signed_by(&key.0, issuer))?;
        let chain = vec![Bytes::copy_from_slice(leaf.der()), root.certificate.clone()];
        Ok(Credentials { chain, key: secret::kept(key.0.serialized_der()) })
    }
}

fn read(request: &[u8]) -> Result<CertificateSigningRequestParams, IssueError> {
    if request.len() > REQUEST_MAX {
        return Err(IssueError::Request);
    }
    let request = CertificateSigningRequestDer::from(request);
    CertificateSigningRequestParams::from_der(&request).map_err(|_| IssueError::Request)
}

fn params(
    identity: &Identity,
    now: SystemTime,
    life: Duration,
    names: &Names,
) -> Result<CertificateParams, IssueError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, &*identity.name);
    params.subject_alt_names = vec![SanType::URI(identity.to_string().try_into()?)];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = valid_from(now).into();
    params.not_after = (now + life).into();
    params.use_authority_key_identifier_extension = true;
    if identity.role == Role::ControlPlane {
        // Only control planes may act as a server.
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        for name in std::iter::once(SERVER_NAME).chain(names.hosts.iter().map(String::as_str)) {
            params.subject_alt_names.push(SanType::DnsName(name.try_into()?));
        }
        params.subject_alt_names.extend(names.addresses.iter().copied().map(SanType::IpAddress));
    }
    Ok(params)
}
