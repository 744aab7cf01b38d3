//! The memory and descriptor budgets that the workers of a process share (docs/adr/003-budgets.md).

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use shared::budget::{Budget, memory};

use super::auth_cache::AuthCache;
use super::mirror_budget::MirrorBudget;
use super::nonces::Nonces;
use super::passwords::Passwords;
use super::reserve::Reserve;
use super::spill::Spill;
use super::upstream_shares::UpstreamShares;
use crate::rate::TryTable;

/// The budgets that all workers share.
#[derive(Clone, Debug)]
pub struct Budgets {
    /// Bytes held for clients: heads, body pieces, and responses that were not sent yet.
    pub bytes: Budget,
    /// Client connections.
    pub connections: Budget,
    /// Descriptors of connections, to clients and to endpoints.
    pub descriptors: Budget,
    /// Connections to endpoints, by backend.
    pub upstream_shares: UpstreamShares,
    /// Reserved descriptors.
    pub reserve: Reserve,
    /// Pipes that keep request bodies.
    pub body_pipes: Budget,
    /// Sessions of UDP services.
    pub sessions: Budget,
    /// Bodies on disk.
    pub spill: Spill,
    /// Password checks with slow hashes.
    pub passwords: Passwords,
    /// Nonces of digest authentication.
    pub nonces: Nonces,
    /// Failed attempts of digest authentication.
    pub tries: Arc<TryTable>,
    /// Responses of external authentication.
    pub auth_cache: AuthCache,
    /// Mirrored requests.
    pub mirror_budget: MirrorBudget,
}

/// The divisor for the part of the byte budget that bodies may use instead of files.
const SPARE: usize = 4;

/// Maximum number of UDP sessions, for all ports and workers: anybody can start one with a datagram from any source
/// address.
const SESSIONS: usize = 16_384;

/// The divisor for the part of the descriptors that they may use.
const OF_SESSIONS: usize = 8;

/// Maximum number of pipes that keep request bodies, for all workers: half of what the kernel grants an unprivileged
/// user by default (pipe-user-pages-soft). Beyond that, pipes for responses would be too small.
const BODY_PIPES: usize = 32;

/// Default maximum number of client connections.
const CONNECTIONS: usize = 65_536;

impl Budgets {
    /// Puts body files into another folder.
    #[must_use]
    pub fn with_spill(self, dir: PathBuf, bytes: usize) -> Self {
        let spare = self.bytes.limit() / SPARE;
        Self { spill: Spill::new(dir, bytes).with_spare(spare), ..self }
    }

    /// Budgets for a process that may use this much memory. The rest of it is for tables, connections and the
    /// allocator.
    pub fn of_memory(bytes: u64) -> Self {
        let held = usize::try_from(bytes / 2).unwrap_or(usize::MAX);
        Self {
            bytes: Budget::new(held),
            connections: Budget::new(CONNECTIONS),
            descriptors: Budget::new(4 * CONNECTIONS),
            upstream_shares: UpstreamShares::of(CONNECTIONS, held),
            reserve: Reserve::default(),
            body_pipes: Budget::new(BODY_PIPES),
            sessions: Budget::new(SESSIONS),
            spill: Spill::into_dir(std::env::temp_dir()).with_spare(held / SPARE),
            passwords: Passwords::default(),
            nonces: Nonces::default(),
            tries: Arc::new(TryTable::new(shared::clock::now())),
            auth_cache: AuthCache::default(),
            mirror_budget: MirrorBudget::of_memory(held).with_descriptors(4 * CONNECTIONS),
        }
    }
}

impl Budgets {
    /// Limits the number of client connections and descriptors: a quarter of the latter is reserved for connections to
    /// endpoints, so that an accepted request can be sent.
    #[must_use]
    pub fn with_connections(self, connections: usize, descriptors: usize) -> Self {
        let clients = connections.min(descriptors / 4 * 3).max(1);
        Self {
            connections: Budget::new(clients),
            descriptors: Budget::new(descriptors),
            upstream_shares: UpstreamShares::of(clients, self.bytes.limit()),
            reserve: Reserve::of(descriptors),
            sessions: Budget::new(SESSIONS.min(descriptors / OF_SESSIONS)),
            mirror_budget: self.mirror_budget.with_descriptors(descriptors),
            ..self
        }
    }
}

impl Collector for Budgets {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, help, bytes) in [
            (
                "firth_held_bytes",
                "Bytes held for clients: heads, bodies in hand, answers not taken yet",
                self.bytes.used(),
            ),
            ("firth_held_bytes_limit", "Limit of the bytes held for clients", self.bytes.limit()),
        ] {
            let gauge = ConstGauge::new(i64::try_from(bytes).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        Ok(())
    }
}

impl Default for Budgets {
    fn default() -> Self {
        Self::of_memory(memory())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_held_and_their_limit_are_in_the_metrics() {
        let budgets = Budgets::of_memory(2_000);
        let _held = budgets.bytes.take(30).unwrap();
        let mut registry = prometheus_client::registry::Registry::default();
        registry.register_collector(Box::new(budgets));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in ["firth_held_bytes 30", "firth_held_bytes_limit 1000"] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn clients_leave_descriptors_for_endpoints() {
        for (wanted, descriptors, clients) in [(65_536, 1_000_000, 65_536), (65_536, 1_744, 1_308), (1, 3, 1)]
        {
            let budgets = Budgets::of_memory(1 << 30).with_connections(wanted, descriptors);
            assert_eq!((budgets.connections.limit(), budgets.descriptors.limit()), (clients, descriptors));
            assert_eq!(
                budgets.sessions.limit(),
                (descriptors / 8).min(16_384),
                "datagrams leave the most of them"
            );
        }
        assert_eq!(Budgets::of_memory(2 << 30).bytes.limit(), 1 << 30, "half of it");
        assert_eq!(Budgets::default().connections.limit(), CONNECTIONS);
    }
}
