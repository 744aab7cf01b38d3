//! How endpoints are spoken to: in which protocol, and over which TLS.
//!
//! **Invariant:** connections of two manners never stand in for each other. What is asked of TLS has a number that nothing
//! else ever has: another name, another authority, another certificate is another manner.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::table::policy::kept::Wear;
use crate::table::{BackendTls, Protocol};

/// By which connections are kept apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Manner {
    pub(crate) protocol: Protocol,
    /// Number of the way to speak TLS; 0: none, or with anybody.
    tls: u64,
}

/// How the endpoints of one request are spoken to.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) protocol: Protocol,
    /// What is asked of TLS, where that is spoken and something is asked.
    pub(crate) tls: Option<Arc<BackendTls>>,
    /// How much a new connection will be used.
    pub(crate) wear: Wear,
}

impl Way {
    /// By which its connections are kept apart.
    pub(crate) fn manner(&self) -> Manner {
        Manner { protocol: self.protocol, tls: self.tls.as_ref().map_or(0, |tls| tls.id) }
    }
}

#[cfg(test)]
impl Manner {
    /// With nothing asked of TLS.
    pub(crate) const fn of(protocol: Protocol) -> Self {
        Self { protocol, tls: 0 }
    }
}

/// The ways to speak TLS in which connections were made that may be kept.
#[derive(Debug, Default)]
pub(crate) struct Ways(HashMap<u64, Weak<BackendTls>>);

impl Ways {
    /// A connection is made in this way.
    pub(crate) fn note(&mut self, way: &Way) {
        if let Some(tls) = &way.tls {
            self.0.entry(tls.id).or_insert_with(|| Arc::downgrade(tls));
        }
    }

    /// Whether somebody may speak in this manner again.
    pub(crate) fn has(&self, manner: Manner) -> bool {
        manner.tls == 0 || self.0.get(&manner.tls).is_some_and(|way| way.strong_count() > 0)
    }

    /// Forgets those in which nobody will.
    pub(super) fn sweep(&mut self) {
        self.0.retain(|_, way| way.strong_count() > 0);
    }
}
