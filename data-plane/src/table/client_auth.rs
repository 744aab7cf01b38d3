//! How the client certificates of a host are verified: the policy, bound to one version of the Material.

use std::sync::Arc;

use rustls_pki_types::{CertificateDer, UnixTime};
use shared::resource::Authorities;

use super::material::next_id;
use super::policy::certificates::ClientAuthConfig;
use super::trust::{Purpose, Trust, Untrusted};

/// One client verification policy. Immutable; a change creates a new one.
#[derive(Debug)]
pub struct ClientAuth {
    /// Unique and never reused: connections and sessions of one policy are not valid for another.
    pub id: u64,
    /// The same on every proxy with the same policy, and different for any other: sessions that clients keep are bound
    /// to it.
    pub digest: [u8; 16],
    /// The authorities, whose names are sent to clients.
    pub trust: Arc<Trust>,
    /// Whether clients are asked for certificates.
    pub asks: bool,
    depth: usize,
}

impl ClientAuth {
    /// Binds the policy to this version of the Material.
    pub fn new(config: &ClientAuthConfig, trust: &Arc<Trust>, source: &Authorities) -> Self {
        let digest = digest(config, source);
        Self { id: next_id(), digest, trust: Arc::clone(trust), asks: config.asks, depth: config.depth }
    }

    /// Whether a client's certificate is currently valid.
    ///
    /// # Errors
    /// Why it is not.
    pub fn verify(&self, leaf: &CertificateDer<'_>, rest: &[CertificateDer<'_>]) -> Result<(), Untrusted> {
        self.trust.verify(leaf, rest, self.depth, Purpose::Client, UnixTime::now())
    }
}

/// Digest of everything that determines the verification.
fn digest(
    ClientAuthConfig { authorities: _, asks, depth }: &ClientAuthConfig,
    source: &Authorities,
) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new_derive_key("firth 2026 session of a way to judge clients");
    hasher.update(&[u8::from(*asks)]).update(&(*depth as u64).to_be_bytes());
    let Authorities { certificates, revocations } = source;
    for list in [certificates, revocations] {
        hasher.update(&(list.len() as u64).to_be_bytes());
        for der in list {
            hasher.update(&(der.len() as u64).to_be_bytes()).update(der);
        }
    }
    let mut digest = [0; 16];
    hasher.finalize_xof().fill(&mut digest);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ways_that_judge_alike_have_one_digest() {
        let configured = |asks, depth| ClientAuthConfig { authorities: "ns/ca/auth-tls".into(), asks, depth };
        let source = |certificates: &[&'static [u8]], revocations: &[&'static [u8]]| Authorities {
            certificates: certificates.iter().map(|it| (*it).into()).collect(),
            revocations: revocations.iter().map(|it| (*it).into()).collect(),
        };
        let all = [
            digest(&configured(true, 1), &source(&[b"ab"], &[])),
            digest(&configured(true, 2), &source(&[b"ab"], &[])),
            digest(&configured(false, 1), &source(&[b"ab"], &[])),
            digest(&configured(true, 1), &source(&[b"a", b"b"], &[])),
            digest(&configured(true, 1), &source(&[], &[b"ab"])),
            digest(&configured(true, 1), &source(&[b"ab"], &[b"c"])),
        ];
        for (place, digest) in all.iter().enumerate() {
            assert_eq!(all.iter().position(|other| other == digest), Some(place));
        }
        let other_name = ClientAuthConfig { authorities: "ns/other/auth-tls".into(), ..configured(true, 1) };
        assert_eq!(digest(&other_name, &source(&[b"ab"], &[])), all[0], "a name judges nobody");
    }
}
