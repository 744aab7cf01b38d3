//! What the workers of a process may hold together (docs/adr/003-budgets.md).

use std::path::PathBuf;
use std::sync::Arc;

use shared::budget::{Budget, memory};

use super::copies::Copies;
use super::nonces::Nonces;
use super::passwords::Passwords;
use super::reserve::Reserve;
use super::spill::Spill;
use super::verdicts::Verdicts;
use crate::rate::TryTable;

/// The budgets that all workers draw from.
#[derive(Clone, Debug)]
pub struct Budgets {
    /// Bytes held for clients: heads, bodies in hand, answers that were not taken yet.
    pub bytes: Budget,
    /// Connections of clients.
    pub connections: Budget,
    /// Descriptors of connections, to clients and to endpoints.
    pub descriptors: Budget,
    /// Those that nobody has.
    pub reserve: Reserve,
    /// Sessions of UDP services.
    pub sessions: Budget,
    /// Bodies of requests on disk.
    pub spill: Spill,
    /// Passwords that are compared with slow hashes.
    pub passwords: Passwords,
    /// Nonces of digest authentication.
    pub nonces: Nonces,
    /// Who was wrong there.
    pub tries: Arc<TryTable>,
    /// Answers of external authentication.
    pub verdicts: Verdicts,
    /// Copies of requests.
    pub copies: Copies,
}

/// The part of the bytes held for clients that bodies may use instead of files.
const SPARE: usize = 4;

/// Sessions of UDP services, of all ports and workers: anybody begins one by a datagram, under any address.
const SESSIONS: usize = 16_384;

/// The part of the descriptors that they may have.
const OF_SESSIONS: usize = 8;

/// Connections of clients where nobody says how many.
const CONNECTIONS: usize = 65_536;

impl Budgets {
    /// Bodies in files go elsewhere.
    #[must_use]
    pub fn with_spill(self, dir: PathBuf, bytes: usize) -> Self {
        let spare = self.bytes.limit() / SPARE;
        Self { spill: Spill::new(dir, bytes).with_spare(spare), ..self }
    }

    /// Those of a process that may use so much memory. The rest of it is for tables, connections and the allocator.
    pub fn of_memory(bytes: u64) -> Self {
        let held = usize::try_from(bytes / 2).unwrap_or(usize::MAX);
        Self {
            bytes: Budget::new(held),
            connections: Budget::new(CONNECTIONS),
            descriptors: Budget::new(4 * CONNECTIONS),
            reserve: Reserve::default(),
            sessions: Budget::new(SESSIONS),
            spill: Spill::into_dir(std::env::temp_dir()).with_spare(held / SPARE),
            passwords: Passwords::default(),
            nonces: Nonces::default(),
            tries: Arc::new(TryTable::new(shared::clock::now())),
            verdicts: Verdicts::default(),
            copies: Copies::of_memory(held).with_descriptors(4 * CONNECTIONS),
        }
    }
}

impl Budgets {
    /// So many connections of clients, below so many descriptors: a quarter of those is kept for connections to
    /// endpoints, so that a request that was taken can be sent.
    #[must_use]
    pub fn with_connections(self, connections: usize, descriptors: usize) -> Self {
        let clients = connections.min(descriptors / 4 * 3).max(1);
        Self {
            connections: Budget::new(clients),
            descriptors: Budget::new(descriptors),
            reserve: Reserve::of(descriptors),
            sessions: Budget::new(SESSIONS.min(descriptors / OF_SESSIONS)),
            copies: self.copies.with_descriptors(descriptors),
            ..self
        }
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
