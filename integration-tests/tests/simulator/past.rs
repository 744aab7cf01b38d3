//! Never back in time: of which events each state is that a proxy gets, compared with those of its previous state.
//!
//! Bytes do not tell: states recur. So each frame carries what its replica had heard when it offered that.

use control_plane::objects::ObjectKind;
use control_plane::sim::WATCHED_WITH_PINS;
use shared::kind::Lane;

const KINDS: usize = WATCHED_WITH_PINS.len();
const LANES: usize = Lane::ALL.len();

/// One number for each kind: the first so many of everything that ever happened.
type Moment = [u64; KINDS];

/// When something happened to objects of each kind. A backup that is restored is an event of all kinds.
#[derive(Clone, Debug, Default)]
pub(super) struct Past {
    now: u64,
    events: [Vec<u64>; KINDS],
    /// Pins that came into force.
    pub(super) pins: usize,
}

impl Past {
    /// Everything up to here has happened.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Something happens to an object. Returns its number.
    pub(super) fn happens(&mut self, kind: ObjectKind) -> u64 {
        self.now += 1;
        self.events[place(kind)].push(self.now);
        self.now
    }

    /// A backup is restored.
    pub(super) fn restores(&mut self) {
        self.now += 1;
        self.events.iter_mut().for_each(|events| events.push(self.now));
    }

    /// The last event of a kind that is not after this.
    fn last(&self, kind: usize, until: u64) -> u64 {
        let events = &self.events[kind];
        let count = events.partition_point(|event| *event <= until);
        count.checked_sub(1).map_or(0, |at| events[at])
    }

    /// Whether no event of a kind is after the first and not after the second.
    fn is_same(&self, kind: usize, after: u64, until: u64) -> bool {
        self.last(kind, until) <= after
    }
}

/// What a replica knows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// The last that it has heard of each kind.
    heard: Moment,
    /// The last that it had heard of each kind when that changed what it offers on a lane.
    since: [Moment; LANES],
}

impl Seen {
    /// It has heard of everything of a kind up to this; on these lanes it offers something else because of that.
    pub(super) fn hears(&mut self, kind: ObjectKind, until: u64, changed: [bool; LANES]) {
        let kind = place(kind);
        self.heard[kind] = self.heard[kind].max(until);
        for (since, _) in self.since.iter_mut().zip(changed).filter(|(_, changed)| *changed) {
            since[kind] = self.heard[kind];
        }
    }
}

/// Up to where a proxy's state on each lane has come at least.
pub(super) type Reached = [Moment; LANES];

/// What happened to a proxy since it was last compared.
#[derive(Debug)]
enum Visit {
    /// Its state on a lane changed to one of a replica that knew this.
    Changed(usize, Seen),
    /// Its state was handed to the journal.
    Kept,
}

/// A proxy's way through the past.
#[derive(Debug, Default)]
pub(super) struct Way {
    visits: Vec<Visit>,
    reached: Reached,
    /// How far it had come with the state that was handed to the journal last.
    kept: Reached,
}

impl Way {
    /// Of a process that starts with what the journal has.
    pub(super) fn from(reached: Reached) -> Self {
        Self { visits: Vec::new(), reached, kept: reached }
    }

    /// Its state on a lane, by its place in [`Lane::ALL`], is another one.
    pub(super) fn changes(&mut self, lane: usize, seen: Seen) {
        self.visits.push(Visit::Changed(lane, seen));
    }

    /// Its state was handed to the journal.
    pub(super) fn keeps(&mut self) {
        self.visits.push(Visit::Kept);
    }

    /// Compares it with what was.
    pub(super) fn check(&mut self, past: &Past, who: &str) {
        for visit in self.visits.drain(..) {
            match visit {
                Visit::Kept => self.kept = self.reached,
                Visit::Changed(lane, Seen { heard, since }) => {
                    for (kind, reached) in self.reached[lane].iter_mut().enumerate() {
                        assert!(
                            past.is_same(kind, heard[kind], *reached),
                            "{who} goes back in time: {:?} is of {:?} up to event {}, and was of event {reached}",
                            Lane::ALL[lane],
                            WATCHED_WITH_PINS[kind],
                            heard[kind]
                        );
                        *reached = (*reached).max(past.last(kind, since[lane][kind]));
                    }
                }
            }
        }
    }

    pub(super) fn kept(&self) -> Reached {
        self.kept
    }
}

fn place(kind: ObjectKind) -> usize {
    WATCHED_WITH_PINS.iter().position(|it| *it == kind).expect("a kind that is watched")
}
