//! One proxy with its stream, and its invariants.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use control_plane::sim::{Happens, Sent, Stream};
use data_plane::sim::{Kept, Proxy};
use fastrand::Rng;
use shared::entry::Entry;
use shared::kind::{Kind, Lane, ResourceKey};
use shared::proto::config::control_message::Message as Control;
use shared::proto::config::{ControlMessage, ProxyMessage};
use shared::snapshot::Snapshot;
use shared::version::{Root, Version};
use tonic_prost::prost::Message as _;

use super::node::Node;
use super::past::{Past, Reached, Seen, Way};

/// Limit of the frames in flight on one stream: two lanes, two batches, sixteen chunks, and other messages.
const FRAMES: usize = 2 * 2 * 16 + 8;

/// One connection.
struct Link {
    node: usize,
    life: u64,
    stream: Stream,
    /// What its replica knew when the stream was last told of a head.
    seen: Seen,
    /// Each frame with what was known of when it was sent.
    down: VecDeque<(Bytes, Seen)>,
    up: VecDeque<ProxyMessage>,
    /// Messages were lost, repeated or reordered: this may end the stream.
    tampered: bool,
    /// The control plane has ended it; what is under way still arrives.
    over: bool,
    /// Not before this the proxy goes on at another replica, and stays until that takes it.
    moves: Option<Instant>,
}

/// What a proxy's journal has.
struct Disk {
    kept: Kept,
    reached: Reached,
    lacks: bool,
}

/// One proxy.
pub(super) struct Member {
    id: String,
    proxy: Proxy,
    link: Option<Link>,
    /// Not before this it connects again.
    back: Instant,
    /// All that it was sent since it started.
    sent: HashSet<(ResourceKey, Version)>,
    /// Messages were lost, which no stream does: it may lack endpoints until the next CONFIG of an intact stream.
    lacks: bool,
    /// Its state differs from what it was sent, and this was not detected yet.
    differs: bool,
    /// How it comes from one state to the next.
    way: Way,
    /// The state that its journal was handed last: the disk may be slow.
    to_keep: Option<(Kept, bool)>,
    /// The state on its disk.
    disk: Option<Disk>,
    /// How often it started from that.
    pub(super) starts_from_disk: usize,
    /// Streams that it opened.
    pub(super) streams: usize,
    /// How often it went to another replica because it was asked to.
    pub(super) moved: usize,
    /// How often a replica did not serve it, as one of a newer compile revision does.
    pub(super) turned_away: usize,
    /// What it was sent, in order: keys of each chunk, and its bytes.
    pub(super) chunks: Vec<(Vec<ResourceKey>, usize)>,
}

/// States that were offered by any replica.
pub(super) type Offered = BTreeSet<(Lane, [u8; 16])>;

impl Member {
    pub(super) fn new(number: usize, now: Instant) -> Self {
        let id = format!("proxy-{number}");
        Self {
            proxy: Proxy::new(&id),
            id,
            link: None,
            back: now,
            sent: HashSet::new(),
            lacks: false,
            differs: false,
            way: Way::default(),
            to_keep: None,
            disk: None,
            starts_from_disk: 0,
            streams: 0,
            moved: 0,
            turned_away: 0,
            chunks: Vec::new(),
        }
    }

    pub(super) fn root(&self, lane: Lane) -> Root {
        self.proxy.has(lane).root()
    }

    pub(super) fn has(&self, lane: Lane) -> &Snapshot {
        self.proxy.has(lane)
    }

    /// What its stream is about, for people.
    pub(super) fn link(&self) -> String {
        let Some(link) = &self.link else { return format!("\n{} has no stream", self.id) };
        let (slot, wants, due) = (link.stream.has_slot(), link.stream.wants_slot(), link.stream.due());
        let (down, up) = (link.down.len(), link.up.len());
        format!(
            "\n{} at {}: slot {slot}, wants one {wants}, {down} down, {up} up, due {due:?}",
            self.id, link.node
        )
    }

    /// Whether its replica must find out first that it is not behind.
    pub(super) fn is_held(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.stream.is_held())
    }

    /// Whether it has a stream.
    pub(super) fn has_stream(&self) -> bool {
        self.link.is_some()
    }

    pub(super) fn is_at(&self, node: usize) -> bool {
        self.link.as_ref().is_some_and(|link| link.node == node)
    }

    /// The process starts again, with nothing.
    pub(super) fn restart(&mut self, nodes: &mut [Node], now: Instant) {
        self.part(now, Duration::ZERO, Some(nodes));
        self.proxy = Proxy::new(&self.id);
        self.sent.clear();
        (self.lacks, self.differs) = (false, false);
        (self.way, self.to_keep, self.disk) = (Way::default(), None, None);
    }

    /// The process starts again, with what is on its disk if there is something: maybe not the last that it had.
    pub(super) fn restart_from_disk(&mut self, nodes: &mut [Node], now: Instant) {
        let Some(Disk { kept, reached, lacks }) = &self.disk else { return };
        self.proxy = Proxy::from_kept(&self.id, kept);
        (self.way, self.lacks, self.differs) = (Way::from(*reached), *lacks, false);
        (self.starts_from_disk, self.to_keep) = (self.starts_from_disk + 1, None);
        self.part(now, Duration::ZERO, Some(nodes));
        assert!(self.proxy.is_complete(), "{}: it serves before it has a stream", self.id);
    }

    /// What its journal was handed is on its disk.
    pub(super) fn store(&mut self) {
        if let Some((kept, lacks)) = self.to_keep.take() {
            self.disk = Some(Disk { kept, lacks, reached: self.way.kept() });
        }
    }

    /// Whether it went back in time since the last call.
    pub(super) fn check_way(&mut self, past: &Past) {
        self.way.check(past, &self.id);
    }

    /// The stream breaks.
    pub(super) fn part(&mut self, now: Instant, pause: Duration, nodes: Option<&mut [Node]>) {
        self.back = now + pause;
        let Some(link) = self.link.take() else { return };
        if let Some(node) =
            nodes.and_then(|nodes| nodes.get_mut(link.node)).filter(|node| node.life == link.life)
        {
            node.slots += usize::from(link.stream.has_slot());
        }
    }

    pub(super) fn connect(&mut self, at: usize, nodes: &mut [Node], now: Instant) -> bool {
        let node = &mut nodes[at];
        if !node.takes() {
            return false;
        }
        if self.link.as_ref().is_some_and(|link| link.moves.is_some_and(|at| at <= now)) {
            self.part(now, Duration::ZERO, Some(nodes));
            self.moved += 1;
        }
        if self.link.is_some() || self.back > now {
            return false;
        }
        let node = &mut nodes[at];
        let mut link = Link {
            node: at,
            life: node.life,
            stream: node.replica.connect(now),
            seen: node.seen,
            down: VecDeque::new(),
            up: VecDeque::new(),
            tampered: false,
            over: false,
            moves: None,
        };
        self.streams += 1;
        link.up.push_back(self.proxy.hello());
        self.link = Some(link);
        true
    }

    /// One message arrives at the control plane.
    pub(super) fn up(&mut self, nodes: &mut [Node], now: Instant) -> bool {
        let Some(message) = self.link.as_mut().and_then(|link| link.up.pop_front()) else { return false };
        self.happens(Happens::Message(Box::new(message)), nodes, now);
        true
    }

    /// The control plane's end of the stream handles another event.
    pub(super) fn happens(&mut self, happens: Happens, nodes: &mut [Node], now: Instant) {
        let Some(link) = &mut self.link else { return };
        let had = link.stream.has_slot();
        let sent = link.stream.on(happens, now);
        self.sent_on(sent, had, nodes, now);
    }

    /// What is due by the clock, a free slot, and a newer head.
    pub(super) fn serve(&mut self, nodes: &mut [Node], now: Instant) {
        let Some(link) = &mut self.link else { return };
        let had = link.stream.has_slot();
        let node = &mut nodes[link.node];
        if node.life != link.life {
            return self.part(now, Duration::ZERO, None);
        }
        let mut sent = node.replica.tell(&mut link.stream, now);
        link.seen = node.seen;
        if link.stream.wants_slot() && node.slots > 0 {
            node.slots -= 1;
            let more = link.stream.give_slot(now);
            sent.frames.extend(more.frames);
            sent.end = sent.end.or(more.end);
            return self.sent_on(sent, true, nodes, now);
        }
        self.sent_on(sent, had, nodes, now);
        if self.link.as_ref().is_some_and(|link| link.stream.due() <= now) {
            self.happens(Happens::Tick, nodes, now);
        }
    }

    fn sent_on(&mut self, sent: Sent, had_slot: bool, nodes: &mut [Node], now: Instant) {
        let Some(link) = &mut self.link else { return };
        let node = &mut nodes[link.node];
        if had_slot && !link.stream.has_slot() {
            node.slots += 1;
        }
        assert!(
            link.tampered || self.differs || sent.diverged == 0,
            "{}: it acknowledged what it was not sent",
            self.id
        );
        link.down.extend(sent.frames.into_iter().map(|frame| (frame, link.seen)));
        assert!(link.down.len() <= FRAMES, "{}: {} frames wait", self.id, link.down.len());
        if let Some(end) = sent.end {
            self.turned_away += usize::from(end.starts_with("Older"));
            let expected = ["Stalled", "Redirected", "Silent", "Older"].iter().any(|it| end.starts_with(it));
            assert!(link.tampered || expected, "{}: the control plane ends the stream: {end}", self.id);
            if end == "Redirected" {
                link.over = true;
                return;
            }
            self.part(now, Duration::from_millis(50), Some(nodes));
        }
    }

    /// One message arrives at the proxy.
    pub(super) fn down(&mut self, nodes: &mut [Node], offered: &Offered, now: Instant) -> bool {
        let Some(link) = &mut self.link else { return false };
        let Some((frame, seen)) = link.down.pop_front() else {
            if link.over {
                self.part(now, Duration::ZERO, Some(nodes));
            }
            return false;
        };
        let bytes = frame.len();
        let Ok(message) = ControlMessage::decode(frame) else { panic!("a frame is no message") };
        if let Some(Control::Batch(batch)) = &message.message {
            let mut keys = Vec::new();
            for up in &batch.up {
                let kind = Kind::from_wire(up.kind).expect("a kind that is known");
                let version = Version::from_slice(&up.version).expect("16 bytes");
                keys.push(ResourceKey::new(kind, up.key.as_str()));
                self.sent.extend(keys.last().map(|key| (key.clone(), version)));
            }
            self.chunks.push((keys, bytes));
            self.lacks &= link.tampered || batch.lane == Lane::Live.to_wire();
        }
        let before = Lane::ALL.map(|lane| self.root(lane));
        let said = self.proxy.on(message);
        self.differs &= !offered.contains(&(Lane::Config, self.root(Lane::Config).0))
            || !offered.contains(&(Lane::Live, self.root(Lane::Live).0));
        self.check(offered);
        for (lane, before) in before.into_iter().enumerate() {
            if self.root(Lane::ALL[lane]) != before {
                self.way.changes(lane, seen);
            }
        }
        if let Some(kept) = self.proxy.kept() {
            self.to_keep = Some((kept, self.lacks));
            self.way.keeps();
        }
        let Some(link) = &mut self.link else { return true };
        link.up.extend(said.answers);
        link.moves = link.moves.or_else(|| said.moves.map(|after| now + after));
        if let Some(fault) = said.fault {
            assert!(link.tampered, "{}: the proxy ends the stream: {fault}", self.id);
            self.part(now, Duration::from_secs(1), Some(nodes));
        }
        true
    }

    fn check(&self, offered: &Offered) {
        for lane in Lane::ALL {
            for entry in self.proxy.has(lane).iter() {
                let version = (entry.key.clone(), entry.version);
                assert!(self.sent.contains(&version), "{}: {} was not sent", self.id, entry.key);
            }
            assert_eq!(self.proxy.refused(lane), 0);
        }
        let root = self.root(Lane::Config);
        let has_none = self.proxy.has(Lane::Config).is_empty();
        assert!(
            has_none || self.differs || offered.contains(&(Lane::Config, root.0)),
            "{}: a CONFIG that never was",
            self.id
        );
    }

    /// Every route to a Service that always has endpoints finds them.
    pub(super) fn check_served(&self, hosts: &[String], always: &[&str]) {
        if !self.proxy.is_complete() || self.lacks {
            return;
        }
        for (service, endpoints) in hosts.iter().filter_map(|host| self.proxy.endpoints_at(host)) {
            let found = !endpoints.is_empty() || !always.contains(&service.as_str());
            assert!(found, "{}: {service} has lost its endpoints", self.id);
        }
    }

    /// Where a request to a host goes, and to how many endpoints.
    pub(super) fn served(&self, host: &str) -> Option<(String, usize)> {
        self.proxy.endpoints_at(host).map(|(service, endpoints)| (service, endpoints.len()))
    }

    /// Removes or replaces a resource of it, as a fault of its own would. Returns its lane and key.
    pub(super) fn differ(&mut self, rng: &mut Rng) -> Option<(Lane, ResourceKey)> {
        let lane = if rng.bool() { Lane::Config } else { Lane::Live };
        let has: Vec<_> = self.has(lane).iter().cloned().collect();
        let one = has.get(rng.usize(..has.len().max(1)))?;
        let mut others =
            has.iter().filter(|other| other.kind() == one.kind() && other.version != one.version);
        let other = others.next_back().filter(|_| rng.bool());
        let other =
            other.map(|it| Arc::new(Entry::from_body(one.key.clone(), it.min_schema, it.body.clone())));
        self.sent.extend(other.iter().map(|entry| (entry.key.clone(), entry.version)));
        let removed = other.is_none().then(|| one.key.clone());
        (self.differs, self.lacks) = (true, true);
        self.proxy.differ(lane, other.into_iter().collect(), removed);
        Some((lane, one.key.clone()))
    }

    /// Workers look at what it has.
    pub(super) fn check_live(&mut self, hosts: &[String]) {
        assert_eq!(self.proxy.audit(), Vec::<String>::new(), "{}", self.id);
        let other = self.proxy.rebuilt();
        for host in hosts {
            let [here, expected] = [&self.proxy, &other].map(|proxy| proxy.endpoints_at(host));
            assert_eq!(here, expected, "{}: {host} is served from what it has", self.id);
        }
    }

    /// The network loses, repeats or reorders messages, which never happens under a byte stream.
    pub(super) fn tamper(&mut self, rng: &mut Rng) {
        let Some(link) = &mut self.link else { return };
        link.tampered = true;
        self.lacks = true;
        fn spoil<T: Clone>(queue: &mut VecDeque<T>, rng: &mut Rng) {
            if queue.is_empty() {
                return;
            }
            let at = rng.usize(..queue.len());
            match rng.u8(..3) {
                0 => _ = queue.remove(at),
                1 => {
                    let again = queue[at].clone();
                    queue.insert(at, again);
                }
                _ => {
                    let other = rng.usize(..queue.len());
                    queue.swap(at, other);
                }
            }
        }
        if rng.bool() { spoil(&mut link.down, rng) } else { spoil(&mut link.up, rng) }
    }
}
