//! Handshakes with clients of hosts that ask for certificates.
//!
//! As in nginx a handshake takes any certificate whose key the client has; whether it is good is found out after it, for
//! each connection, a resumed one too, and told in HTTP.
//!
//! **Invariant:** a session of one way to judge clients is never another's: each has a part of the cache of its own.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::server::StoresServerSessions;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::table::ClientAuth;
use crate::table::trust::Trust;

/// The settings of handshakes by what their host asks for. Each worker has its own.
#[derive(Debug)]
pub struct Handshakes {
    /// Of hosts that ask for nothing.
    usual: Arc<ServerConfig>,
    /// By the number of their way to judge, while a host judges so.
    judging: RefCell<HashMap<u64, Judging>>,
}

/// Settings of one way to judge, as long as there is that way.
type Judging = (Weak<ClientAuth>, Arc<ServerConfig>);

impl Handshakes {
    /// Like these, but for certificates of clients.
    pub fn new(usual: Arc<ServerConfig>) -> Self {
        Self { usual, judging: RefCell::default() }
    }

    /// Those with clients of a host.
    ///
    /// # Errors
    /// Where the provider lacks a protocol version.
    pub fn config(&self, auth: Option<&Arc<ClientAuth>>) -> Result<Arc<ServerConfig>, Error> {
        let Some(auth) = auth.filter(|auth| auth.asks) else {
            return Ok(Arc::clone(&self.usual));
        };
        if let Some((_, config)) = self.judging.borrow().get(&auth.id) {
            return Ok(Arc::clone(config));
        }
        let made = Arc::new(judging(&self.usual, auth)?);
        self.judging.borrow_mut().insert(auth.id, (Arc::downgrade(auth), Arc::clone(&made)));
        Ok(made)
    }

    /// Forgets those of hosts that judge otherwise now. Called on ticks.
    pub fn sweep(&self) {
        self.judging.borrow_mut().retain(|_, (auth, _)| auth.strong_count() > 0);
    }
}

fn judging(usual: &ServerConfig, auth: &ClientAuth) -> Result<ServerConfig, Error> {
    let provider = Arc::clone(usual.crypto_provider());
    let algorithms = provider.signature_verification_algorithms;
    let asking = Asking { trust: Arc::clone(&auth.trust), algorithms };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&super::VERSIONS)?
        .with_client_cert_verifier(Arc::new(asking))
        .with_cert_resolver(Arc::clone(&usual.cert_resolver));
    config.alpn_protocols.clone_from(&usual.alpn_protocols);
    config.session_storage = Arc::new(Part { id: auth.id, all: Arc::clone(&usual.session_storage) });
    Ok(config)
}

/// Asks for a certificate, and takes any whose key the client has.
#[derive(Debug)]
struct Asking {
    trust: Arc<Trust>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for Asking {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.trust.subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The sessions of one way to judge clients, in the cache of all.
#[derive(Debug)]
struct Part {
    id: u64,
    all: Arc<dyn StoresServerSessions>,
}

impl Part {
    fn key(&self, key: &[u8]) -> Vec<u8> {
        // The random end of a key spreads it over the cache.
        [&self.id.to_be_bytes(), key].concat()
    }
}

impl StoresServerSessions for Part {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.all.put(self.key(&key), value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.all.get(&self.key(key))
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.all.take(&self.key(key))
    }

    fn can_cache(&self) -> bool {
        self.all.can_cache()
    }
}
