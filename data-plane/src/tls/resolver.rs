//! Selects the certificate of a handshake, by server name.

use std::sync::{Arc, Weak};

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::mpsc;

use super::own::Own;
use crate::table::Tables;
use crate::table::certified::Certified;

/// Receives certificates that are used for the first time.
pub type Shown = mpsc::Sender<Weak<Certified>>;

/// Looks up the certificate for a server name in the tables: the host's certificate, else the default one, else the
/// proxy's own (as in ingress-nginx).
#[derive(Debug)]
pub struct Resolver {
    tables: Arc<Tables>,
    own: Arc<Own>,
    shown: Option<Shown>,
}

impl Resolver {
    /// Uses the tables, with the proxy's own certificate as a fallback.
    pub fn new(tables: Arc<Tables>, own: Arc<Own>, shown: Option<Shown>) -> Self {
        Self { tables, own, shown }
    }

    /// The certificate for a server name as the client sent it, and for most clients.
    pub fn certificate(&self, name: Option<&str>) -> Arc<CertifiedKey> {
        self.configured(name).unwrap_or_else(|| Arc::clone(self.own.usual()))
    }

    /// The same; `None`: the proxy's own.
    fn configured(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        // Clients send a trailing dot if the name has one, though RFC 6066 section 3 forbids that.
        let name = name.map(|name| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase());
        // Handshakes run on workers, whose own reader holds back this table until this call ends, so the worker is
        // never the last owner that drops it.
        let table = self.tables.current();
        let found = table.certificate(name.as_deref())?;
        if !table.client_tls().staples {
            return Some(found.unstapled());
        }
        if let Some(shown) = &self.shown
            && found.is_first_shown()
            && shown.try_send(Arc::downgrade(&found)).is_err()
        {
            // The queue is full; the next handshake reports it.
            found.unstaple();
        }
        Some(found.shown())
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let own = || self.own.for_client(hello.signature_schemes());
        Some(self.configured(hello.server_name()).unwrap_or_else(own))
    }
}
