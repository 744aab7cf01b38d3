//! The certificate of a handshake, by server name.

use std::sync::{Arc, Weak};

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::mpsc;

use crate::table::Tables;
use crate::table::certified::Certified;

/// Who is told of a certificate that is shown for the first time.
pub type Shown = mpsc::Sender<Weak<Certified>>;

/// Looks a server name up in the tables: the host's certificate, else the default one, else the proxy's own
/// (ingress-nginx behaviour, balancing.md 8).
#[derive(Debug)]
pub struct Resolver {
    tables: Arc<Tables>,
    own: Arc<CertifiedKey>,
    shown: Option<Shown>,
}

impl Resolver {
    /// Over the tables, with the certificate for when they have none.
    pub fn new(tables: Arc<Tables>, own: Arc<CertifiedKey>, shown: Option<Shown>) -> Self {
        Self { tables, own, shown }
    }

    /// The certificate for a server name as the client sent it.
    pub fn certificate(&self, name: Option<&str>) -> Arc<CertifiedKey> {
        // Clients send the dot at the end of a name that has one, though RFC 6066 section 3 says not to.
        let name = name.map(|name| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase());
        // Handshakes run on workers, whose own reader holds back this table until this call is over: the worker never
        // drops it as the last owner.
        let table = self.tables.current();
        let Some(found) = table.certificate(name.as_deref()) else { return Arc::clone(&self.own) };
        if !table.client_tls().staples {
            return Arc::clone(found.key());
        }
        if let Some(shown) = &self.shown
            && found.is_first_shown()
            && shown.try_send(Arc::downgrade(&found)).is_err()
        {
            // There are many at once; the next handshake tells.
            found.unstaple();
        }
        found.shown()
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.certificate(hello.server_name()))
    }
}
