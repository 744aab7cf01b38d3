//! The placement of objects: what the newest version of each was compiled to, and from which position of each lane's
//! log that is offered.
//!
//! Written by the pipeline with each commit, for the objects of that commit; read to tell how many proxies serve an
//! object. A number of objects that are gone are remembered, so that one that was deleted, or is not ours any more, is told from one that
//! never was.
//!
//! **Invariant:** a proxy that has acknowledged both positions of an object has received everything that its newest
//! version was compiled to, except for what a pin holds back. A position may be later than necessary, never earlier.

use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use shared::name::ObjectName;
use shared::version::{Root, Seq};

use crate::objects::{ObjectKind, ObjectRef};

/// Limit of the objects that are gone and remembered. A command that waits for a deletion asks soon after it.
const GONE_MAX: usize = 10_000;

/// What the newest version of an object was compiled to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Compiled {
    /// The resource version. Empty in a folder, and if the object cannot be read.
    pub resource_version: Arc<str>,
    /// The object's uid. Empty in a folder.
    pub uid: Arc<str>,
    /// That version is rejected.
    pub is_rejected: bool,
    /// It is served, or an older version is served instead.
    pub is_served: bool,
    /// It cannot be read again: there may be a newer version.
    pub is_stale: bool,
    /// Of an Ingress: the hosts that it names.
    pub hosts: Arc<[Arc<str>]>,
    /// Of an Ingress: keys of the Backends that it refers to, sorted, each once.
    pub backends: Arc<[Arc<str>]>,
    /// Of an Ingress: keys of the Materials that its annotations name.
    pub materials: Arc<[Arc<str>]>,
}

/// What a commit reports about an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// Its newest version was compiled, to this.
    Compiled(Compiled),
    /// Its endpoints changed, and nothing else.
    EndpointsChanged,
    /// It was deleted.
    Deleted,
    /// It may exist, and is not ours: an Ingress of another class, a Secret that nothing refers to.
    Foreign,
}

/// What an object was compiled to, and the positions from which on that is offered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// What it was compiled to.
    pub compiled: Compiled,
    /// Position of CONFIG from which on that is offered.
    pub config: Seq,
    /// Position of LIVE from which on that is offered.
    pub live: Seq,
    /// The CONFIG root there; if a pin holds the object back, the root once it is released.
    pub version: Root,
    /// A pin was in force: it may be offered only when the pin ends.
    is_pinned: bool,
}

/// The position of both lanes after a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogPositions {
    /// CONFIG's position.
    pub config: Seq,
    /// LIVE's position.
    pub live: Seq,
    /// The root of the compiled CONFIG.
    pub version: Root,
    /// A pin is in force.
    pub is_pinned: bool,
}

/// All Ingresses that are ours, all Services and Secrets. A clone is cheap.
#[derive(Clone, Debug, Default)]
pub struct Placements {
    objects: OrdMap<ObjectRef, Arc<Placement>>,
    /// Some objects may have been placed under a pin.
    has_pinned: bool,
    gone: Gone,
}

/// Objects that were placed and are not any more: the last of them.
#[derive(Clone, Debug, Default)]
struct Gone {
    by_object: OrdMap<ObjectRef, Departure>,
    by_time: OrdMap<u64, ObjectRef>,
    next: u64,
}

/// How an object went.
#[derive(Clone, Copy, Debug)]
struct Departure {
    time: u64,
    /// It was not deleted: it is not ours any more.
    is_foreign: bool,
}

impl Gone {
    fn insert(&mut self, object: ObjectRef, is_foreign: bool) {
        self.remove(&object);
        self.by_object.insert(object.clone(), Departure { time: self.next, is_foreign });
        self.by_time.insert(self.next, object);
        self.next += 1;
        if self.by_time.len() > GONE_MAX
            && let (Some((_, oldest)), others) = self.by_time.without_min_with_key()
        {
            self.by_object.remove(&oldest);
            self.by_time = others;
        }
    }

    fn remove(&mut self, object: &ObjectRef) {
        if let Some(Departure { time, .. }) = self.by_object.remove(object) {
            self.by_time.remove(&time);
        }
    }
}

impl Placements {
    /// Takes in the reports of commits that led to these positions. Returns false if nothing changed.
    pub fn settle(&mut self, reports: Vec<(ObjectRef, Report)>, positions: LogPositions) -> bool {
        let LogPositions { config, live, version, is_pinned } = positions;
        let is_released = self.has_pinned && !is_pinned;
        if is_released {
            self.release(positions);
        }
        let is_any = is_released || !reports.is_empty();
        self.has_pinned |= is_pinned;
        for (object, report) in reports {
            match report {
                Report::Compiled(compiled) => {
                    self.gone.remove(&object);
                    self.objects
                        .insert(object, Arc::new(Placement { compiled, config, live, version, is_pinned }));
                }
                Report::EndpointsChanged => {
                    if let Some(placed) = self.objects.get_mut(&object) {
                        Arc::make_mut(placed).live = live;
                    }
                }
                Report::Deleted | Report::Foreign => {
                    // One that went in one way may go in the other one later.
                    if self.objects.remove(&object).is_some() || self.gone.by_object.contains_key(&object) {
                        self.gone.insert(object, report == Report::Foreign);
                    }
                }
            }
        }
        is_any
    }

    /// A pin has ended: what was compiled meanwhile is offered from here on.
    fn release(&mut self, positions: LogPositions) {
        let LogPositions { config, live, version, is_pinned } = positions;
        let mut objects = self.objects.clone();
        for (object, placed) in self.objects.iter().filter(|(_, placed)| placed.is_pinned) {
            let compiled = placed.compiled.clone();
            objects
                .insert(object.clone(), Arc::new(Placement { compiled, config, live, version, is_pinned }));
        }
        self.objects = objects;
        self.has_pinned = false;
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectRef, &Arc<Placement>)> {
        self.objects.iter()
    }

    /// Names of the objects of a kind that differ between the two, or exist in only one.
    pub fn differs(&self, other: &Self, kind: ObjectKind) -> Vec<ObjectName> {
        let changed = self.objects.diff(&other.objects).map(|item| match item {
            DiffItem::Add(object, _) | DiffItem::Remove(object, _) => object,
            DiffItem::Update { new: (object, _), .. } => object,
        });
        changed.filter(|object| object.kind == kind).map(|object| object.name.clone()).collect()
    }

    /// The placement of an object, if it exists.
    pub fn get(&self, object: &ObjectRef) -> Option<&Arc<Placement>> {
        self.objects.get(object)
    }

    /// Whether an object is placed, or was not long ago. Resources alone do not tell: the Backend of a Service is
    /// there as long as an Ingress names it, whether the Service exists or not.
    pub fn has_known(&self, object: &ObjectRef) -> bool {
        self.objects.contains_key(object) || self.gone.by_object.contains_key(object)
    }

    /// Whether an object was placed not long ago, and is not because it is not ours any more: it may exist.
    pub fn is_foreign(&self, object: &ObjectRef) -> bool {
        self.gone.by_object.get(object).is_some_and(|departure| departure.is_foreign)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was edited under a pin is offered from the end of the pin, not from the edit.
    #[test]
    fn the_end_of_a_pin_is_the_place_of_what_it_held_back() {
        let object = |name: &str| ObjectRef { kind: ObjectKind::Ingress, name: ObjectName::new("n", name) };
        let made = |name: &str| (object(name), Report::Compiled(Compiled::default()));
        let behind = |at: u64, is_pinned| LogPositions {
            config: Seq(at),
            live: Seq(at),
            version: Root([u8::try_from(at).unwrap(); 16]),
            is_pinned,
        };
        let mut places = Placements::default();
        let at =
            |places: &Placements, name: &str| places.get(&object(name)).map(|it| (it.config, it.version));
        assert!(places.settle(vec![made("before")], behind(1, false)));
        assert!(places.settle(vec![made("under")], behind(2, true)));
        assert_eq!(at(&places, "under"), Some((Seq(2), Root([2; 16]))));
        assert!(places.settle(Vec::new(), behind(3, false)), "that is news");
        assert_eq!(at(&places, "under"), Some((Seq(3), Root([3; 16]))));
        assert_eq!(at(&places, "before"), Some((Seq(1), Root([1; 16]))), "it was offered all the time");
        assert!(!places.settle(Vec::new(), behind(4, false)));
    }

    #[test]
    fn endpoints_that_change_move_the_place_of_their_service_in_live_alone() {
        let object = |name: &str| ObjectRef { kind: ObjectKind::Service, name: ObjectName::new("n", name) };
        let at = |seq: u64| LogPositions { config: Seq(seq), live: Seq(seq), ..LogPositions::default() };
        let mut places = Placements::default();
        let made = ["a", "b"].map(|name| (object(name), Report::Compiled(Compiled::default())));
        places.settle(made.into(), at(1));
        assert!(places.settle(vec![(object("a"), Report::EndpointsChanged)], at(2)));
        assert!(places.settle(vec![(object("unknown"), Report::EndpointsChanged)], at(3)));
        let of = |name: &str| places.get(&object(name)).map(|it| (it.config, it.live));
        assert_eq!((of("a"), of("b")), (Some((Seq(1), Seq(2))), Some((Seq(1), Seq(1)))));
        assert_eq!(of("unknown"), None);
    }

    #[test]
    fn the_last_deleted_objects_are_remembered() {
        let object = |number: usize| ObjectRef {
            kind: ObjectKind::Service,
            name: ObjectName::new("n", number.to_string()),
        };
        let (made, gone) = (
            |number| (object(number), Report::Compiled(Compiled::default())),
            |number| (object(number), Report::Deleted),
        );
        let mut places = Placements::default();
        let mut settle = |reports| {
            places.settle(reports, LogPositions::default());
            places.clone()
        };
        assert!(!settle(vec![gone(0)]).has_known(&object(0)), "it never was there");
        assert!(settle(vec![made(0), made(1)]).has_known(&object(0)));
        let places = settle(vec![gone(0), gone(1)]);
        assert!(places.has_known(&object(0)) && places.get(&object(0)).is_none());

        // One that comes back and is deleted again is the newest.
        settle(vec![made(0)]);
        settle(vec![gone(0)]);
        let others = || 2..=GONE_MAX;
        settle(others().map(made).collect());
        let places = settle(others().map(gone).collect());
        assert!(places.has_known(&object(0)) && places.has_known(&object(GONE_MAX)));
        assert!(!places.has_known(&object(1)), "the oldest is forgotten");
        let Gone { by_object, by_time, .. } = &places.gone;
        assert_eq!((by_object.len(), by_time.len()), (GONE_MAX, GONE_MAX));
    }

    /// One that exists must not be called deleted, nor one that was deleted since be said to exist.
    #[test]
    fn one_that_is_not_ours_any_more_is_told_from_one_that_was_deleted() {
        let object = ObjectRef { kind: ObjectKind::Ingress, name: ObjectName::new("n", "web") };
        let mut places = Placements::default();
        let mut after = |report| {
            places.settle(vec![(object.clone(), report)], LogPositions::default());
            (places.has_known(&object), places.is_foreign(&object))
        };
        assert_eq!(after(Report::Foreign), (false, false), "it never was ours");
        assert_eq!(after(Report::Compiled(Compiled::default())), (true, false));
        assert_eq!(after(Report::Foreign), (true, true));
        assert_eq!(after(Report::Deleted), (true, false));
        assert_eq!(after(Report::Foreign), (true, true), "it was created again");
        assert_eq!(after(Report::Compiled(Compiled::default())), (true, false));
        let Gone { by_object, by_time, .. } = &places.gone;
        assert_eq!((by_object.len(), by_time.len()), (0, 0));
    }
}
