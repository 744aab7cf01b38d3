//! The open connections of the webhook, and which of them makes room for a new one.
//!
//! **Invariant:** whoever connects gets in, and no client keeps API servers out: of the address with most connections one
//! is closed first, and nobody is spared for a request of which a part is missing.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

/// Limit of connections.
pub(super) const CONNECTIONS: usize = 64;
/// Connections of one address beyond which one of these is closed first. API servers have a few.
const OF_ADDRESS: usize = CONNECTIONS / 4;
/// Time within which a connection is spared if others are older: its handshake and its request are on their way.
const YOUNG: Duration = Duration::from_secs(1);

/// What is known of the requests on a connection.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Whether a request has begun.
    pub(super) has_begun: AtomicBool,
    /// Whether a request has arrived as a whole and is not answered yet.
    pub(super) is_judged: AtomicBool,
}

/// The open connections, oldest first.
#[derive(Debug, Default)]
pub(super) struct Room(Vec<Open>);

#[derive(Debug)]
struct Open {
    task: AbortHandle,
    asked: Arc<Asked>,
    from: IpAddr,
    since: Instant,
}

impl Room {
    /// Closes a connection if there are too many for another one.
    pub(super) fn make(&mut self, now: Instant) {
        self.0.retain(|open| !open.task.is_finished());
        if self.0.len() >= CONNECTIONS
            && let Some(place) = self.next_to_go(now)
        {
            self.0.remove(place).task.abort();
        }
    }

    /// Adds the newest connection.
    pub(super) fn add(&mut self, task: AbortHandle, asked: Arc<Asked>, from: IpAddr, since: Instant) {
        self.0.push(Open { task, asked, from: from.to_canonical(), since });
    }

    /// The oldest connection without a whole request, if possible one that is not young; else the oldest. Only those of
    /// one address count if it has many.
    fn next_to_go(&self, now: Instant) -> Option<usize> {
        let mut numbers: HashMap<IpAddr, usize> = HashMap::new();
        for open in &self.0 {
            *numbers.entry(open.from).or_default() += 1;
        }
        let crowd = numbers.into_iter().filter(|(_, number)| *number > OF_ADDRESS);
        let crowd = crowd.max_by_key(|(_, number)| *number).map(|(address, _)| address);
        let candidates = self.0.iter().enumerate().filter(|(_, open)| crowd.is_none_or(|it| it == open.from));
        let rank = |open: &Open| {
            (open.asked.is_judged.load(Ordering::Relaxed), now.duration_since(open.since) < YOUNG)
        };
        candidates.min_by_key(|(_, open)| rank(open)).map(|(place, _)| place)
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;

    fn task(tasks: &mut JoinSet<()>) -> AbortHandle {
        tasks.spawn(std::future::pending())
    }

    /// Connections of these addresses and ages in seconds, of which some have a whole request.
    fn room(tasks: &mut JoinSet<()>, open: &[(u8, u64, bool)], now: Instant) -> Room {
        let mut room = Room::default();
        for (address, age, is_judged) in open {
            let asked = Arc::new(Asked { is_judged: AtomicBool::new(*is_judged), ..Asked::default() });
            room.add(task(tasks), asked, [10, 0, 0, *address].into(), now - Duration::from_secs(*age));
        }
        room
    }

    #[tokio::test]
    async fn one_of_a_crowd_goes_first_then_the_oldest_that_is_idle_and_not_young() {
        let now = shared::clock::now() + Duration::from_secs(1_000);
        let mut tasks = JoinSet::new();
        let mut next = |open: &[(u8, u64, bool)]| room(&mut tasks, open, now).next_to_go(now);
        assert_eq!(next(&[(1, 9, true), (2, 8, false), (3, 7, false)]), Some(1));
        assert_eq!(next(&[(1, 9, true), (2, 8, true), (3, 7, true)]), Some(0));
        assert_eq!(next(&[(1, 9, true), (2, 0, false), (3, 0, false)]), Some(1), "all that is idle is young");
        assert_eq!(
            next(&[(1, 0, false), (2, 8, false)]),
            Some(1),
            "one that is not young, whichever came first"
        );
        let crowd = (0..=OF_ADDRESS).map(|_| (9, 0, false));
        let others = [(1, 90, false), (2, 80, false)];
        assert_eq!(next(&others.into_iter().chain(crowd).collect::<Vec<_>>()), Some(2));
    }

    #[tokio::test]
    async fn an_address_is_one_however_it_is_written() {
        let now = shared::clock::now();
        let (mut tasks, mut room) = (JoinSet::new(), Room::default());
        for text in ["10.0.0.9", "::ffff:10.0.0.9"] {
            room.add(task(&mut tasks), Arc::default(), text.parse().unwrap(), now);
        }
        assert_eq!(room.0[0].from, room.0[1].from);
    }

    #[tokio::test]
    async fn there_are_so_many_connections() {
        let now = shared::clock::now();
        let mut tasks = JoinSet::new();
        let mut room = room(&mut tasks, &[(1, 0, false); CONNECTIONS - 1], now);
        room.make(now);
        assert_eq!(room.0.len(), CONNECTIONS - 1);
        let (asked, from) = (Arc::default(), room.0[0].from);
        room.add(task(&mut tasks), asked, from, now);
        room.make(now);
        assert_eq!(room.0.len(), CONNECTIONS - 1);
    }
}
