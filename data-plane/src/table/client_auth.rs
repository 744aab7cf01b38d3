//! By whom the certificates of a host's clients are judged: what is said, with one version of the Material.

use std::sync::Arc;

use rustls_pki_types::{CertificateDer, UnixTime};

use super::material::next_id;
use super::policy::certificates::Said;
use super::trust::{Purpose, Trust, Untrusted};

/// One way to judge clients. Immutable; what changes is another one.
#[derive(Debug)]
pub struct ClientAuth {
    /// Of this one alone, ever: neither a connection nor a session of one is another's.
    pub id: u64,
    /// The authorities, whose names clients are told.
    pub trust: Arc<Trust>,
    /// Whether clients are asked for certificates.
    pub asks: bool,
    depth: usize,
}

impl ClientAuth {
    /// With this version of the Material.
    pub fn new(said: &Said, trust: &Arc<Trust>) -> Self {
        Self { id: next_id(), trust: Arc::clone(trust), asks: said.asks, depth: said.depth }
    }

    /// Whether a client's certificate is good now.
    ///
    /// # Errors
    /// Why not.
    pub fn verify(&self, leaf: &CertificateDer<'_>, rest: &[CertificateDer<'_>]) -> Result<(), Untrusted> {
        self.trust.verify(leaf, rest, self.depth, Purpose::Client, UnixTime::now())
    }
}
