//! Which other replicas offer something else than this one, for longer than a change takes to reach both.
//!
//! What replicas offer is a function of the objects and decisions, so it is the same on all of them but for moments.
//! Where it stays different they have other flags or rights, or one of them sees nothing new. What clients get then
//! depends on the replica that their proxy is connected to, and no replica is wrong by itself: each says so.
//!
//! **Invariant:** no I/O. Two that compile differently by their revisions, and one that is not ready, are not compared.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use shared::kind::Lane;
use shared::proto::inspect;
use shared::schema::COMPILE_REVISION;
use shared::version::Root;
use tracing::{info, warn};

use super::fleet::Other;
use crate::store::Head;

/// For how long they must differ: the replacement of a replica by one with other flags takes less.
const LASTS: Duration = Duration::from_secs(60);
/// For how long this replica must have stood still meanwhile to doubt itself: a change takes less to reach both.
const DOUBTS: Duration = Duration::from_secs(10);

/// The replicas that differ.
#[derive(Debug, Default)]
pub(super) struct Apart(HashMap<SocketAddr, Difference>);

/// One that differs.
#[derive(Debug)]
struct Difference {
    since: Instant,
    /// Since when this replica has offered the same meanwhile.
    still: Instant,
    /// Whether that one can read its source.
    is_current: bool,
    /// What this replica and that one offered at the previous look.
    states: [Bytes; 2],
    /// What is said about it, once it has lasted.
    said: Option<String>,
}

/// Whether this replica may be behind others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Doubts {
    /// Whether others offer something else.
    pub differ: bool,
    /// Those that can read their source, and offered something else for as long as this one has offered the same; and what
    /// they offer.
    pub ahead: BTreeMap<SocketAddr, Bytes>,
}

impl Doubts {
    /// Whether one offers something that is not among this.
    pub fn has_more(&self, seen: &BTreeMap<SocketAddr, Bytes>) -> bool {
        self.ahead.iter().any(|(address, state)| seen.get(address) != Some(state))
    }
}

/// What is new.
#[derive(Clone, PartialEq, Eq, Debug)]
enum News {
    /// It differs, in these words.
    Differs(String),
    /// It does not differ any more.
    Agrees,
}

/// What a replica offers: the roots of its lanes.
pub(crate) fn state(head: &Head) -> Bytes {
    Lane::ALL.iter().flat_map(|lane| head.lane(*lane).root.0).collect::<Vec<_>>().into()
}

impl Apart {
    /// Looks at all that have answered, and says what is new.
    pub(super) fn compare(&mut self, own: &Bytes, others: &[Other], now: Instant) {
        for other in others {
            let (Some(address), Some(share)) = (other.address(), other.share()) else { continue };
            match self.look(address, own, share, now) {
                Some(News::Differs(how)) => {
                    warn!(replica = other.who(), "another replica has differed for a minute: it {how}");
                }
                Some(News::Agrees) => {
                    info!(replica = other.who(), "the other replica does not differ any more")
                }
                None => {}
            }
        }
    }

    /// Compares what this replica offers with what another one said. Both change at any time, so only what neither
    /// changed since the previous look is a difference; equality at any look ends it.
    fn look(
        &mut self,
        address: SocketAddr,
        own: &Bytes,
        share: &inspect::ShareResponse,
        now: Instant,
    ) -> Option<News> {
        let is_comparable = share.ready && share.compile_revision == COMPILE_REVISION;
        if !is_comparable || share.state == own {
            return self.0.remove(&address).and_then(|it| it.said).map(|_| News::Agrees);
        }
        let states = [own.clone(), share.state.clone()];
        let fresh =
            || Difference { since: now, still: now, is_current: false, states: states.clone(), said: None };
        let it = self.0.entry(address).or_insert_with(fresh);
        if it.states[0] != states[0] {
            it.still = now;
        }
        it.is_current = !share.stale;
        let is_still = it.states == states;
        it.states.clone_from(&states);
        let lasted = now.saturating_duration_since(it.since);
        if !is_still || lasted < LASTS {
            return None;
        }
        let text = words(&states, share);
        let is_new = it.said.replace(text.clone()).is_none();
        is_new.then_some(News::Differs(text))
    }

    /// Forgets replicas that are not there any more.
    pub(super) fn keep(&mut self, is_known: impl Fn(&SocketAddr) -> bool) {
        self.0.retain(|address, _| is_known(address));
    }

    /// Whether this replica may be the one that is behind.
    pub(super) fn doubts(&self, now: Instant) -> Doubts {
        let doubts = |it: &Difference| it.is_current && now.saturating_duration_since(it.still) >= DOUBTS;
        let ahead = self.0.iter().filter(|(_, it)| doubts(it));
        let ahead = ahead.map(|(address, it)| (*address, it.states[1].clone())).collect();
        Doubts { differ: !self.0.is_empty(), ahead }
    }

    /// How a replica differs.
    pub(super) fn of(&self, address: &SocketAddr) -> Option<&str> {
        self.0.get(address)?.said.as_deref()
    }

    /// How many differ.
    pub(super) fn count(&self) -> usize {
        self.0.values().filter(|it| it.said.is_some()).count()
    }
}

/// By what two states differ, the own one first, and why that may be, where the other replica does not say why.
fn words([own, other]: &[Bytes; 2], share: &inspect::ShareResponse) -> String {
    let version = |state: &Bytes| {
        // LIVE and CONFIG, as `Lane::ALL`.
        let config = state.get(state.len() / 2..).and_then(|half| <[u8; 16]>::try_from(half).ok());
        config.map(|root| Root(root).short()).unwrap_or_default()
    };
    let offers = match (version(other), version(own)) {
        (other, own) if other == own => format!("offers version {own} with other endpoints or certificates"),
        (other, own) => format!("offers version {other}, and this one {own}"),
    };
    match share.stale {
        true if !share.unread.is_empty() => format!("may not list everything, and {offers}"),
        true => format!("cannot list the objects, and {offers}"),
        false => format!("{offers}, for more than a minute: do both have the same flags and rights?"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

    fn state(live: u8, config: u8) -> Bytes {
        [[live; 16], [config; 16]].concat().into()
    }

    fn share(state: Bytes) -> inspect::ShareResponse {
        inspect::ShareResponse {
            state,
            ready: true,
            compile_revision: COMPILE_REVISION,
            ..Default::default()
        }
    }

    /// What is said of looks that are five seconds apart, each with the own state and the other's.
    fn looks(all: impl IntoIterator<Item = (Bytes, inspect::ShareResponse)>) -> Vec<(u64, News)> {
        let (mut apart, begin) = (Apart::default(), shared::clock::now());
        let mut look = |at: usize, (own, share): (Bytes, inspect::ShareResponse)| {
            let after = 5 * at as u64;
            Some((after, apart.look(AT, &own, &share, begin + Duration::from_secs(after))?))
        };
        all.into_iter().enumerate().filter_map(|(at, it)| look(at, it)).collect()
    }

    #[test]
    fn what_lasts_is_said_once_and_so_is_its_end() {
        let apart = std::iter::repeat_n((state(1, 0xaa), share(state(1, 0xbb))), 20);
        let again = std::iter::repeat_n((state(1, 0xaa), share(state(1, 0xaa))), 3);
        let asks = "for more than a minute: do both have the same flags and rights?";
        let text = format!("offers version bbbbbbbbbbbb, and this one aaaaaaaaaaaa, {asks}");
        assert_eq!(looks(apart.chain(again)), [(60, News::Differs(text)), (100, News::Agrees)]);
        let live = std::iter::repeat_n((state(1, 0xaa), share(state(2, 0xaa))), 13);
        let text = format!("offers version aaaaaaaaaaaa with other endpoints or certificates, {asks}");
        assert_eq!(looks(live), [(60, News::Differs(text))]);
        let cut_off = inspect::ShareResponse { stale: true, ..share(state(1, 0xbb)) };
        let text =
            "cannot list the objects, and offers version bbbbbbbbbbbb, and this one aaaaaaaaaaaa".to_owned();
        assert_eq!(
            looks(std::iter::repeat_n((state(1, 0xaa), cut_off), 13)),
            [(60, News::Differs(text))],
            "it is known why"
        );
    }

    #[test]
    fn who_lags_is_not_apart() {
        // Each change is seen by the other one at the next look; nothing is ever still.
        assert!(looks((0..100).map(|at| (state(1, at + 1), share(state(1, at))))).is_empty());
        // Equal once a minute.
        let now_and_then =
            (0..100).map(|at| (state(1, 1), share(state(1, if at % 12 == 0 { 1 } else { 2 }))));
        assert!(looks(now_and_then).is_empty());
    }

    #[test]
    fn a_difference_is_seen_between_changes() {
        let changes = (0..30).map(|at| (state(at / 3, 1), share(state(at / 3, 2))));
        assert_eq!(looks(changes).len(), 1);
    }

    #[test]
    fn who_is_not_ready_or_of_another_release_is_not_compared() {
        let starts = inspect::ShareResponse { ready: false, ..share(state(1, 2)) };
        let newer = inspect::ShareResponse { compile_revision: COMPILE_REVISION + 1, ..share(state(1, 2)) };
        for other in [starts, newer] {
            assert!(looks(std::iter::repeat_n((state(1, 1), other), 30)).is_empty());
        }
    }

    #[test]
    fn who_stands_still_while_another_goes_on_doubts_itself() {
        let doubts = |own: fn(u8) -> u8, other: fn(u8) -> inspect::ShareResponse| {
            let (mut apart, begin) = (Apart::default(), shared::clock::now());
            let mut look = |at: u8| {
                let now = begin + Duration::from_secs(5 * u64::from(at));
                apart.look(AT, &state(1, own(at)), &other(at), now);
                !apart.doubts(now).ahead.is_empty()
            };
            (0..6).map(&mut look).collect::<Vec<_>>()
        };
        let goes_on = |at: u8| share(state(1, 100 + at));
        assert_eq!(doubts(|_| 1, goes_on), [false, false, true, true, true, true]);
        assert_eq!(doubts(|_| 1, |_| share(state(1, 100))), [false, false, true, true, true, true]);
        assert_eq!(doubts(|at| at, goes_on), [false; 6], "it follows");
        assert_eq!(doubts(|_| 1, |_| share(state(1, 1))), [false; 6]);
        let cut_off = |at: u8| inspect::ShareResponse { stale: true, ..share(state(1, 100 + at)) };
        assert_eq!(doubts(|_| 1, cut_off), [false; 6], "nobody is known to be ahead");
    }

    #[test]
    fn who_is_gone_is_forgotten() {
        let (mut apart, begin) = (Apart::default(), shared::clock::now());
        for at in 0..13 {
            apart.look(AT, &state(1, 1), &share(state(1, 2)), begin + Duration::from_secs(5 * at));
        }
        assert_eq!((apart.count(), apart.of(&AT).is_some()), (1, true));
        apart.keep(|_| false);
        assert_eq!((apart.count(), apart.of(&AT)), (0, None));
    }
}
