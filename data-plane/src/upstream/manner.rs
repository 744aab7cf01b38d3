//! How endpoints are spoken to: the protocol, and the TLS settings.
//!
//! **Invariant:** a connection of one manner is never used for another. Each set of TLS settings has a number that is
//! never reused: another name, another authority or another certificate is another manner.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::table::policy::kept::Wear;
use crate::table::{BackendTls, Protocol};

/// The key by which connections are kept apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Manner {
    pub(crate) protocol: Protocol,
    /// Number of the TLS settings; 0: no TLS, or no verification.
    tls: u64,
}

/// How the endpoints of one request are spoken to.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) protocol: Protocol,
    /// The TLS settings, if TLS is used and any are configured.
    pub(crate) tls: Option<Arc<BackendTls>>,
    /// The limits on the use of a new connection.
    pub(crate) wear: Wear,
}

impl Way {
    /// The key by which its connections are kept apart.
    pub(crate) fn manner(&self) -> Manner {
        Manner { protocol: self.protocol, tls: self.tls.as_ref().map_or(0, |tls| tls.id) }
    }
}

#[cfg(test)]
impl Manner {
    /// Without TLS settings.
    pub(crate) const fn of(protocol: Protocol) -> Self {
        Self { protocol, tls: 0 }
    }
}

/// The TLS settings of connections that may be kept.
#[derive(Debug, Default)]
pub(crate) struct Ways(HashMap<u64, Weak<BackendTls>>);

impl Ways {
    /// Records that a connection is made with these settings.
    pub(crate) fn note(&mut self, way: &Way) {
        if let Some(tls) = &way.tls {
            self.0.entry(tls.id).or_insert_with(|| Arc::downgrade(tls));
        }
    }

    /// Whether the settings are still in use.
    pub(crate) fn has(&self, manner: Manner) -> bool {
        manner.tls == 0 || self.0.get(&manner.tls).is_some_and(|way| way.strong_count() > 0)
    }

    /// Forgets settings that are no longer in use.
    pub(super) fn sweep(&mut self) {
        self.0.retain(|_, way| way.strong_count() > 0);
    }
}
