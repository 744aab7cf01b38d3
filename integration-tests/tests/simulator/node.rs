//! One replica of the control plane with its connections to the API server, each with delays and faults of its own.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use control_plane::objects::ObjectKind;
use control_plane::sim::{Came, Next, Replica, Revisions, WATCHED, WATCHED_WITH_PINS};
use fastrand::Rng;
use serde_json::Value;
use shared::kind::Lane;

use super::cluster::{Cluster, is_same};
use super::past::Seen;
use super::pins::{Told, Writer};

/// Full syncs at once: few, so that streams wait.
const SLOTS: usize = 1;
/// Within which time proxies are to go elsewhere.
pub(super) const HAND_OVER: Duration = Duration::from_secs(2);

/// What is on its way from the API server for one kind.
#[derive(Default)]
struct Feed {
    /// Each with the number of the last event of the kind that it tells of; 0: of none.
    coming: VecDeque<(u64, Came)>,
    /// Lines up to here were put on their way.
    position: u64,
    /// The watch receives nothing and does not notice.
    stalled: bool,
    probe: Option<u64>,
}

pub(super) struct Node {
    pub(super) replica: Replica,
    /// Counts the processes: a stream belongs to one of them.
    pub(super) life: u64,
    watched: &'static [ObjectKind],
    feeds: BTreeMap<ObjectKind, Feed>,
    decisions: VecDeque<(String, Option<String>)>,
    /// Pins that it was told to store.
    pins: Writer,
    /// What it knows.
    pub(super) seen: Seen,
    pub(super) slots: usize,
    /// It is about to end: proxies go elsewhere, and no more come.
    pub(super) moving: bool,
    /// Another one knows more of what it may not list: its proxies go there, and no more come.
    pub(super) behind: bool,
    /// How often it listed everything anew.
    pub(super) rounds: usize,
}

impl Node {
    pub(super) fn new(life: u64, now: Instant) -> Self {
        Self::of_revision(life, Revisions::default().here, now)
    }

    /// Of a build of this compile revision.
    pub(super) fn of_revision(life: u64, revision: u32, now: Instant) -> Self {
        Self::around(Replica::of_revision(lineage(life), revision, now), &WATCHED, life)
    }

    /// Where versions are pinned.
    pub(super) fn with_pins(life: u64, now: Instant) -> Self {
        Self::around(Replica::with_pins(lineage(life), now), &WATCHED_WITH_PINS, life)
    }

    fn around(replica: Replica, watched: &'static [ObjectKind], life: u64) -> Self {
        Self {
            replica,
            life,
            watched,
            feeds: watched.iter().map(|kind| (*kind, Feed::default())).collect(),
            decisions: VecDeque::new(),
            pins: Writer::default(),
            seen: Seen::default(),
            slots: SLOTS,
            moving: false,
            behind: false,
            rounds: 0,
        }
    }

    /// An operator's decision.
    pub(super) fn tell(&mut self, told: Told) {
        self.pins.tell(told);
    }

    /// Whether it takes streams.
    pub(super) fn takes(&self) -> bool {
        self.replica.is_ready() && !self.moving && !self.behind
    }

    /// Lists everything again, if a proxy waits for that. What was in flight began earlier.
    pub(super) fn refresh(&mut self, now: Instant) {
        if self.replica.refresh(now) {
            self.rounds += 1;
            self.feeds.values_mut().for_each(|feed| *feed = Feed::default());
        }
    }

    /// One thing happens on one connection, good or bad.
    pub(super) fn stir(&mut self, cluster: &Cluster, rng: &mut Rng, now: Instant) {
        self.refresh(now);
        let kind = self.watched[rng.usize(..self.watched.len())];
        match rng.u8(..60) {
            0 => self.breaks(kind, rng, now),
            1 => self.feed(kind).stalled = true,
            2 => {
                // The same line comes a second time.
                let feed = self.feed(kind);
                if let Some(line @ (_, Came::Line(_))) = feed.coming.front().cloned() {
                    feed.coming.push_front(line);
                }
            }
            _ => _ = self.advance(kind, cluster, rng, now),
        }
    }

    fn feed(&mut self, kind: ObjectKind) -> &mut Feed {
        self.feeds.entry(kind).or_default()
    }

    fn breaks(&mut self, kind: ObjectKind, rng: &mut Rng, now: Instant) {
        let came = match rng.u8(..4) {
            0 => Came::Refused(500),
            1 => Came::Refused(410),
            2 => Came::Failed,
            _ => Came::Ended,
        };
        *self.feed(kind) = Feed::default();
        self.hear(kind, 0, &came, now);
    }

    /// All connections break at once.
    pub(super) fn cut(&mut self, now: Instant) {
        for kind in self.watched.iter().copied() {
            *self.feed(kind) = Feed::default();
            self.hear(kind, 0, &Came::Failed, now);
        }
    }

    /// One step of what a watch does. False if there is nothing to do.
    pub(super) fn advance(
        &mut self,
        kind: ObjectKind,
        cluster: &Cluster,
        rng: &mut Rng,
        now: Instant,
    ) -> bool {
        if self.replica.due(kind).is_some_and(|due| due <= now) {
            self.hear(kind, 0, &Came::Tick, now);
        }
        let next = self.replica.next(kind, now);
        let feed = self.feed(kind);
        if next != Next::Read {
            feed.stalled = false;
        }
        match next {
            Next::Wait(_) => return false,
            Next::List { .. } | Next::Open { .. }
                if feed.coming.is_empty() && cluster.forbidden.contains(&kind) =>
            {
                feed.coming.push_back((0, Came::Refused(403)));
            }
            // Taken down now, heard later.
            Next::List { .. } if feed.coming.is_empty() => {
                feed.coming.push_back((cluster.past().now(), Came::Page(cluster.list(kind))))
            }
            Next::Open { from } if feed.coming.is_empty() => open(feed, from, kind, cluster, rng),
            Next::Read if feed.stalled => return false,
            Next::Read => {
                for (revision, number, line) in cluster.since(kind, feed.position) {
                    feed.position = revision;
                    feed.coming.push_back((number, Came::Line(line)));
                }
                if rng.u8(..40) == 0 && feed.position <= cluster.revision() {
                    feed.position = cluster.revision();
                    feed.coming.push_back((0, Came::Line(cluster.bookmark(kind, false))));
                }
            }
            _ => {}
        }
        if let Some(revision) = feed.probe.take() {
            self.hear(kind, 0, &Came::Newest(revision), now);
            return true;
        }
        let Some((number, came)) = self.feed(kind).coming.pop_front() else { return false };
        self.hear(kind, number, &came, now);
        true
    }

    fn hear(&mut self, kind: ObjectKind, number: u64, came: &Came, now: Instant) {
        let before = Lane::ALL.map(|lane| self.replica.offers(lane).0);
        let asks = self.replica.on(kind, came, now);
        let after = Lane::ALL.map(|lane| self.replica.offers(lane).0);
        self.seen.hears(kind, number, std::array::from_fn(|lane| before[lane] != after[lane]));
        if asks.probe {
            // Answered with what is newest when it is heard: see `probed`.
            self.feed(kind).probe = Some(0);
        }
        let next = self.replica.next(kind, now);
        if next != Next::Read && !matches!(came, Came::Opened) {
            // A stream that is given up brings nothing more.
            self.feed(kind)
                .coming
                .retain(|(_, came)| matches!(came, Came::Page(_)) && matches!(next, Next::List { .. }));
        }
        self.decisions.extend(self.replica.decisions());
        assert_eq!(self.replica.asked_of_pin(), None, "nothing damages the record of the pin");
    }

    /// Probes are answered with the newest revision.
    pub(super) fn probed(&mut self, cluster: &Cluster) {
        for feed in self.feeds.values_mut() {
            if let Some(probe) = &mut feed.probe {
                *probe = cluster.revision();
            }
        }
    }

    /// The oldest decision is stored, or a step of what an operator decided.
    pub(super) fn decide(&mut self, cluster: &mut Cluster) -> bool {
        let Some((name, text)) = self.decisions.pop_front() else { return self.store_pin(cluster) };
        match text.and_then(|text| serde_json::from_str::<Value>(&text).ok()) {
            Some(record) => {
                if !cluster.get(ObjectKind::ConfigMap, &name).is_some_and(|there| is_same(there, &record)) {
                    cluster.put(ObjectKind::ConfigMap, &name, record);
                }
            }
            None => cluster.delete(ObjectKind::ConfigMap, &name),
        }
        true
    }

    /// A step of what an operator decided.
    pub(super) fn store_pin(&mut self, cluster: &mut Cluster) -> bool {
        self.pins.step(cluster)
    }

    /// Everything that can be received now is received.
    pub(super) fn catch_up(&mut self, cluster: &mut Cluster, rng: &mut Rng, now: Instant) {
        loop {
            let mut busy = false;
            self.refresh(now);
            for kind in self.watched.iter().copied() {
                self.probed(cluster);
                while self.advance(kind, cluster, rng, now) {
                    busy = true;
                }
            }
            while self.decide(cluster) {
                busy = true;
            }
            if !busy {
                return;
            }
        }
    }
}

fn open(feed: &mut Feed, from: Option<u64>, kind: ObjectKind, cluster: &Cluster, rng: &mut Rng) {
    let came = match from {
        Some(from) if !cluster.remembers(from) => Came::Refused(410),
        // A revision that the server does not have yet: rejected, or waited for silently.
        Some(from) if from > cluster.revision() && rng.bool() => Came::Refused(504),
        _ => Came::Opened,
    };
    let is_open = came == Came::Opened;
    feed.coming.push_back((0, came));
    if !is_open {
        return;
    }
    match from {
        Some(from) => feed.position = from,
        None => {
            feed.position = cluster.revision();
            feed.coming.extend(cluster.streamed(kind).into_iter().map(|line| (0, Came::Line(line))));
            // It counts once the last of it is there.
            feed.coming.back_mut().into_iter().for_each(|(number, _)| *number = cluster.past().now());
        }
    }
}

fn lineage(life: u64) -> [u8; 16] {
    let mut lineage = [0; 16];
    lineage[..8].copy_from_slice(&life.to_le_bytes());
    lineage[8] = 1;
    lineage
}

/// Time that may pass at once.
pub(super) fn pause(rng: &mut Rng) -> Duration {
    match rng.u8(..200) {
        0 => Duration::from_secs(rng.u64(10..400)),
        1..=5 => Duration::from_secs(rng.u64(1..10)),
        _ => Duration::from_millis(rng.u64(..20)),
    }
}
