//! Requests in progress per client (nginx' `limit_conn`; each HTTP/2 stream counts).

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::slots::{GROUP, Slots};

/// Number of clients that are tracked; as many as fit in nginx' 5 MB.
const CLIENTS: usize = 81_920;
/// Bits of a slot for the count; the others are the client's mark.
const COUNT_BITS: u32 = 20;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// Requests in progress of the clients of one Ingress.
#[derive(Debug)]
pub struct ConnectionTable {
    slots: Slots<Slot>,
}

/// A client's mark and its count in one atomic number. A count of 0: free.
#[derive(Debug, Default)]
struct Slot(AtomicU64);

impl Default for ConnectionTable {
    fn default() -> Self {
        Self { slots: Slots::new(CLIENTS) }
    }
}

/// A request in progress: counted until this is dropped.
#[derive(Debug)]
pub struct Permit {
    table: Arc<ConnectionTable>,
    client: IpAddr,
    slot: usize,
}

impl ConnectionTable {
    /// Counts a request of `client` as in progress; `None` if `limit` are already, or the table has no room.
    pub fn begin(self: &Arc<Self>, client: IpAddr, limit: u32) -> Option<Permit> {
        let (group, mark) = self.slots.group(client);
        let mark = mark & !COUNT | 1 << COUNT_BITS;
        let limit = u64::from(limit).min(COUNT);
        loop {
            let held: [u64; GROUP] = std::array::from_fn(|i| group[i].0.load(Ordering::Acquire));
            let own = held.iter().position(|held| held & COUNT > 0 && held & !COUNT == mark);
            let slot = own.or_else(|| held.iter().position(|held| held & COUNT == 0))?;
            let count = if own.is_some() { held[slot] & COUNT } else { 0 };
            if count >= limit {
                return None;
            }
            let taken = group[slot].0.compare_exchange(
                held[slot],
                mark | (count + 1),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if taken.is_ok() {
                return Some(Permit { table: Arc::clone(self), client, slot });
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let (group, _) = self.table.slots.group(self.client);
        group[self.slot].0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[test]
    fn as_many_as_the_limit_are_in_progress() {
        let table = Arc::new(ConnectionTable::default());
        let first = table.begin(CLIENT, 2).unwrap();
        let second = table.begin(CLIENT, 2).unwrap();
        assert!(table.begin(CLIENT, 2).is_none());
        assert!(table.begin("192.0.2.2".parse().unwrap(), 2).is_some());
        drop(first);
        let third = table.begin(CLIENT, 2);
        assert!(third.is_some());
        assert!(table.begin(CLIENT, 2).is_none());
        drop((second, third));
        assert!(table.begin(CLIENT, 1).is_some());
    }

    #[test]
    fn a_changed_limit_holds_for_the_next_request() {
        let table = Arc::new(ConnectionTable::default());
        let held: Vec<_> = (0..5).map(|_| table.begin(CLIENT, 5).unwrap()).collect();
        assert!(table.begin(CLIENT, 3).is_none());
        assert!(table.begin(CLIENT, 6).is_some());
        drop(held);
    }

    #[test]
    fn many_threads_never_pass_the_limit_together() {
        let table = Arc::new(ConnectionTable::default());
        let inside = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let Some(permit) = table.begin(CLIENT, 3) else { continue };
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < 3);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(permit);
                    }
                });
            }
        });
        let again: [_; 4] = std::array::from_fn(|_| table.begin(CLIENT, 3));
        assert!(again[2].is_some() && again[3].is_none(), "whoever left is not counted any longer");
    }

    #[test]
    fn a_table_without_room_refuses() {
        let table = Arc::new(ConnectionTable { slots: Slots::new(1) });
        let clients = (0..5_000u32).map(|i| IpAddr::from(i.to_be_bytes()));
        let held: Vec<_> = clients.filter_map(|client| table.begin(client, 1)).collect();
        assert_eq!(held.len(), 512);
        drop(held);
        assert!(table.begin(CLIENT, 1).is_some());
    }
}
