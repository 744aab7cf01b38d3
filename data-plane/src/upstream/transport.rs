//! The transport to endpoints: the protocol, and the TLS settings.
//!
//! **Invariant:** a connection of one transport is never used for another. Each set of TLS settings has a number that
//! is never reused: another name, another authority or another certificate is another transport.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::table::policy::upstream_keepalive::ReuseLimits;
use crate::table::{BackendTls, Protocol};

/// The key by which connections are kept apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct TransportKey {
    pub(crate) protocol: Protocol,
    /// Number of the TLS settings; 0: no TLS, or no verification.
    tls: u64,
}

/// The transport to the endpoints of one request.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    pub(crate) protocol: Protocol,
    /// The TLS settings, if TLS is used and any are configured.
    pub(crate) tls: Option<Arc<BackendTls>>,
    /// The limits on the use of a new connection.
    pub(crate) reuse: ReuseLimits,
}

impl Transport {
    /// The key by which its connections are kept apart.
    pub(crate) fn key(&self) -> TransportKey {
        TransportKey { protocol: self.protocol, tls: self.tls.as_ref().map_or(0, |tls| tls.id) }
    }
}

#[cfg(test)]
impl TransportKey {
    /// Without TLS settings.
    pub(crate) const fn of(protocol: Protocol) -> Self {
        Self { protocol, tls: 0 }
    }
}

/// The TLS settings of connections that may be kept.
#[derive(Debug, Default)]
pub(crate) struct TlsSettings(HashMap<u64, Weak<BackendTls>>);

impl TlsSettings {
    /// Records that a connection is made with these settings.
    pub(crate) fn note(&mut self, transport: &Transport) {
        if let Some(tls) = &transport.tls {
            self.0.entry(tls.id).or_insert_with(|| Arc::downgrade(tls));
        }
    }

    /// Whether the settings are still in use.
    pub(crate) fn has(&self, transport_key: TransportKey) -> bool {
        transport_key.tls == 0
            || self.0.get(&transport_key.tls).is_some_and(|settings| settings.strong_count() > 0)
    }

    /// Forgets settings that are no longer in use.
    pub(super) fn sweep(&mut self) {
        self.0.retain(|_, settings| settings.strong_count() > 0);
    }
}
