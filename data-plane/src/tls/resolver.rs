//! The certificate of a handshake, by server name.

use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::table::Tables;

/// Looks a server name up in the tables: the host's certificate, else the default one, else the proxy's own
/// (ingress-nginx behaviour, balancing.md 8).
#[derive(Debug)]
pub struct Resolver {
    tables: Arc<Tables>,
    own: Arc<CertifiedKey>,
}

impl Resolver {
    /// Over the tables, with the certificate for when they have none.
    pub fn new(tables: Arc<Tables>, own: Arc<CertifiedKey>) -> Self {
        Self { tables, own }
    }

    /// The certificate for a server name as the client sent it.
    pub fn certificate(&self, name: Option<&str>) -> Arc<CertifiedKey> {
        // Clients send the dot at the end of a name that has one, though RFC 6066 section 3 says not to.
        let name = name.map(|name| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase());
        // Handshakes run on workers, whose own reader holds back this table until this call is over: the worker never
        // drops it as the last owner.
        let found = self.tables.current().certificate(name.as_deref());
        found.map_or_else(|| Arc::clone(&self.own), |found| Arc::clone(found.key()))
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.certificate(hello.server_name()))
    }
}
