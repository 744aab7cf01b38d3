//! Handshake settings for clients, according to their host and the fleet.
//!
//! As in nginx, a handshake accepts any certificate whose key the client has. Whether it is valid is checked after the
//! handshake, for each connection including resumed ones, and reported in HTTP.
//!
//! Sessions are stored by the proxy, as in ingress-nginx (`ssl-session-cache` on, `ssl-session-tickets` off), or by
//! clients if the fleet is configured so: then any proxy resumes them.
//!
//! **Invariant:** a session created under one client verification policy is never resumed under another: each policy
//! has its own part of the cache, and a ticket names its policy.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, StoresServerSessions};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
};
use rustls_pki_types::{CertificateDer, UnixTime};
use shared::clock;

use crate::table::client_tls::ClientTls;
use crate::table::trust::Trust;
use crate::table::version1::readable;
use crate::table::{ClientAuth, HostEntry, HostTable};
use crate::tls::tickets::{Bound, aged, stamped};

/// Ticks after which unused settings are dropped, to be rebuilt for the next handshake: a minute.
pub(super) const UNUSED: u16 = 600;

/// The terms of a handshake.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terms {
    fleet: Arc<ClientTls>,
    /// The host's TLS 1.2 cipher suites, instead of the fleet's.
    ciphers: Option<Arc<[u16]>>,
    /// Whether the client's order of cipher suites is used.
    client_order: bool,
    /// The client verification policy.
    auth: Option<Arc<ClientAuth>>,
}

/// The key of cached settings.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Key {
    fleet: Arc<ClientTls>,
    ciphers: Option<Arc<[u16]>>,
    client_order: bool,
    /// Number of the client verification policy; 0: none.
    judged_by: u64,
}

impl Terms {
    /// For a host, or for clients without SNI.
    pub(crate) fn new(table: &HostTable, host: Option<&HostEntry>, auth: Option<Arc<ClientAuth>>) -> Self {
        Self {
            fleet: Arc::clone(table.client_tls()),
            ciphers: host.and_then(HostEntry::ciphers).cloned(),
            client_order: host.is_some_and(HostEntry::has_client_order),
            auth,
        }
    }

    /// The client verification policy.
    pub(crate) fn auth(&self) -> Option<&Arc<ClientAuth>> {
        self.auth.as_ref()
    }

    /// The client verification policy, if it requests certificates.
    fn asking(&self) -> Option<&Arc<ClientAuth>> {
        self.auth.as_ref().filter(|auth| auth.asks)
    }

    fn key(&self) -> Key {
        Key {
            fleet: Arc::clone(&self.fleet),
            ciphers: self.ciphers.clone(),
            client_order: self.client_order,
            judged_by: self.asking().map_or(0, |auth| auth.id),
        }
    }
}

/// The handshake settings. Each worker has its own.
#[derive(Debug)]
pub struct Handshakes {
    /// Provides certificates and sessions for all of them.
    usual: Arc<ServerConfig>,
    made: RefCell<HashMap<Key, Made>>,
}

#[derive(Debug)]
struct Made {
    config: Arc<ServerConfig>,
    /// Valid as long as this policy exists.
    auth: Option<Weak<ClientAuth>>,
    /// Ticks since the last handshake that used it.
    unused: Cell<u16>,
}

impl Handshakes {
    /// With the certificates and sessions of these settings.
    pub fn new(usual: Arc<ServerConfig>) -> Self {
        Self { usual, made: RefCell::default() }
    }

    /// The settings of a handshake.
    ///
    /// # Errors
    /// The provider supports none of what is configured.
    pub(crate) fn config(&self, terms: &Terms) -> Result<Arc<ServerConfig>, Error> {
        let key = terms.key();
        if let Some(made) = self.made.borrow().get(&key) {
            made.unused.set(0);
            return Ok(Arc::clone(&made.config));
        }
        let config = Arc::new(make(&self.usual, terms)?);
        let auth = terms.asking().map(Arc::downgrade);
        let made = Made { config: Arc::clone(&config), auth, unused: Cell::new(0) };
        self.made.borrow_mut().insert(key, made);
        Ok(config)
    }

    /// Drops settings that are no longer used. Called on ticks.
    pub fn sweep(&self) {
        self.made.borrow_mut().retain(|_, made| {
            made.unused.set(made.unused.get().saturating_add(1));
            made.unused.get() < UNUSED && made.auth.as_ref().is_none_or(|auth| auth.strong_count() > 0)
        });
    }
}

fn make(usual: &ServerConfig, terms: &Terms) -> Result<ServerConfig, Error> {
    let ClientTls {
        http2,
        tls12,
        tls13,
        ciphers,
        groups,
        rejects_unknown: _,
        remembers,
        tickets,
        session_time,
        staples: _,
    } = &*terms.fleet;
    let ciphers = terms.ciphers.as_deref().unwrap_or(ciphers);
    let provider = Arc::new(with_groups(with_ciphers(usual.crypto_provider(), ciphers), groups));
    let algorithms = provider.signature_verification_algorithms;
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&super::versions(*tls12, *tls13))?;
    let builder = match terms.asking() {
        None => builder.with_no_client_auth(),
        Some(auth) => {
            builder.with_client_cert_verifier(Arc::new(Asking { trust: Arc::clone(&auth.trust), algorithms }))
        }
    };
    let mut config = builder.with_cert_resolver(Arc::clone(&usual.cert_resolver));
    let offered = super::PROTOCOLS.iter().filter(|it| *http2 || **it != super::HTTP2);
    config.alpn_protocols = offered.map(|it| it.to_vec()).collect();
    // As in ingress-nginx, unless the host is configured otherwise (`ssl_prefer_server_ciphers` on).
    config.ignore_client_order = !terms.client_order;
    let (id, digest) = terms.asking().map_or((0, [0; 16]), |auth| (auth.id, auth.digest));
    let life = *session_time;
    config.session_storage = match remembers {
        true => Arc::new(Part { id, life, all: Arc::clone(&usual.session_storage) }),
        false => Arc::new(NoServerSessionStorage {}),
    };
    if *tickets {
        config.ticketer = Arc::new(Bound::new(digest, life, Arc::clone(&usual.ticketer)));
    }
    Ok(config)
}

/// The same with these TLS 1.2 cipher suites, in this order; all if none of them is known. OpenSSL's lists do not
/// affect TLS 1.3.
fn with_ciphers(provider: &CryptoProvider, ciphers: &[u16]) -> CryptoProvider {
    let (new, old): (Vec<_>, Vec<_>) =
        provider.cipher_suites.iter().copied().partition(|suite| suite.tls13().is_some());
    let known = |number: &u16| old.iter().find(|suite| u16::from(suite.suite()) == *number).copied();
    let chosen: Vec<_> = ciphers.iter().filter_map(known).collect();
    let chosen = if chosen.is_empty() { old } else { chosen };
    CryptoProvider { cipher_suites: new.into_iter().chain(chosen).collect(), ..provider.clone() }
}

/// The same with these key exchange groups, in this order; all if none of them is known.
fn with_groups(provider: CryptoProvider, groups: &[u16]) -> CryptoProvider {
    let all = &provider.kx_groups;
    let known = |number: &u16| all.iter().find(|group| u16::from(group.name()) == *number).copied();
    let chosen: Vec<_> = groups.iter().filter_map(known).collect();
    if chosen.is_empty() { provider } else { CryptoProvider { kx_groups: chosen, ..provider } }
}

/// Requests a certificate, and accepts any whose key the client has.
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
        verify_tls12_signature(message, &readable(certificate), signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, &readable(certificate), signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Longer sessions are not cached: they contain the client's certificate, and there are many.
const LONGEST: usize = 4 * 1024;

/// The sessions of one client verification policy, in the common cache.
#[derive(Debug)]
struct Part {
    id: u64,
    /// In seconds.
    life: u32,
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
        value.len() <= LONGEST && self.all.put(self.key(&key), stamped(&value, clock::wall()))
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        aged(&self.all.get(&self.key(key))?, self.life, clock::wall()).map(<[u8]>::to_vec)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        aged(&self.all.take(&self.key(key))?, self.life, clock::wall()).map(<[u8]>::to_vec)
    }

    fn can_cache(&self) -> bool {
        self.all.can_cache()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::sessions::Sessions;

    #[test]
    fn a_session_that_is_too_long_is_not_remembered() {
        let part = Part { id: 1, life: 600, all: Arc::new(Sessions::default()) };
        assert!(!part.put(vec![1], vec![0; LONGEST + 1]));
        assert_eq!(part.get(&[1]), None);
        assert!(part.put(vec![1], vec![7; LONGEST]));
        assert_eq!(part.get(&[1]), Some(vec![7; LONGEST]));
        assert_eq!(Part { id: 2, ..part }.get(&[1]), None, "another way to judge clients");
    }

    /// Rather the usual ones than none.
    #[test]
    fn what_nobody_knows_chooses_nothing() {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let numbers = |provider: &CryptoProvider| {
            provider.cipher_suites.iter().map(|suite| u16::from(suite.suite())).collect::<Vec<_>>()
        };
        let usual = numbers(&provider);
        assert_eq!(numbers(&with_ciphers(&provider, &[0xfafa])), usual);
        let one = provider.cipher_suites.iter().find(|suite| suite.tls13().is_none()).unwrap();
        let one = u16::from(one.suite());
        let old = |chosen: Vec<u16>| chosen.into_iter().filter(|it| it >> 8 != 0x13).collect::<Vec<_>>();
        assert_eq!(old(numbers(&with_ciphers(&provider, &[0xfafa, one]))), [one]);
        let groups = provider.kx_groups.len();
        assert_eq!(with_groups(provider, &[0xfafa]).kx_groups.len(), groups);
    }
}
