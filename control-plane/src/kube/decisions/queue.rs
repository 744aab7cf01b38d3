//! Which record is written next.
//!
//! Sans-I/O. Each object has its own time: one that cannot be written waits alone, and one about which two replicas
//! disagree (one writes what the other erases) is written less and less often.
//!
//! **Invariant:** at most one request an object, the newest; whatever fails, each is tried when its time has come.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use shared::backoff::Backoff;

use crate::event::HoldRequest;
use crate::objects::ObjectRef;

/// The least time between two records of one object; doubled with each that follows.
const MIN_PAUSE: Duration = Duration::from_millis(100);
/// The most that grows to.
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// An object that was left alone for so long begins anew.
const CALM: Duration = Duration::from_secs(60);

/// Requests that wait.
#[derive(Debug, Default)]
pub(super) struct Queue {
    jobs: BTreeMap<ObjectRef, Job>,
    /// The same, by time.
    order: BTreeSet<(Instant, ObjectRef)>,
    /// When the last record of an object was written, and how long the next one waits after that.
    written: HashMap<ObjectRef, (Instant, Duration)>,
}

/// A request, and when it is tried.
#[derive(Debug)]
pub(super) struct Job {
    request: HoldRequest,
    at: Instant,
    backoff: Backoff,
}

impl Job {
    /// What to do.
    pub(super) fn request(&self) -> &HoldRequest {
        &self.request
    }
}

/// What to do next.
#[derive(Debug)]
pub(super) enum Next {
    /// This, now. It is in the queue no longer.
    Ready(ObjectRef, Job),
    /// Nothing until then, or until something is added.
    Wait(Option<Instant>),
}

impl Queue {
    /// Takes a request in, in place of an older one of the same object.
    pub(super) fn add(&mut self, request: HoldRequest, now: Instant) {
        let object = match &request {
            HoldRequest::Write(hold) => hold.object.reference(),
            HoldRequest::Erase(object) => object.clone(),
        };
        if let Some(job) = self.jobs.get_mut(&object) {
            job.request = request;
            return;
        }
        let earliest = match self.written.get(&object) {
            Some((at, pause)) if now < *at + CALM => *at + *pause,
            _ => now,
        };
        let job = Job {
            request,
            at: earliest.max(now),
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(10)),
        };
        self.put(object, job);
    }

    /// The request that has waited longest for its turn.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        let at = match self.order.first() {
            Some((at, _)) if *at <= now => *at,
            first => return Next::Wait(first.map(|(at, _)| *at)),
        };
        let first = self.order.pop_first().map(|(_, object)| object);
        let job = first.and_then(|object| self.jobs.remove_entry(&object));
        match job {
            Some((object, job)) => Next::Ready(object, job),
            // Both sets have the same objects.
            None => Next::Wait(Some(at)),
        }
    }

    /// A request was fulfilled.
    pub(super) fn done(&mut self, object: ObjectRef, now: Instant) {
        if self.jobs.is_empty() {
            self.written.retain(|_, (at, _)| now < *at + CALM);
        }
        let pause = match self.written.get(&object) {
            Some((at, pause)) if now < *at + CALM => (*pause * 2).min(MAX_PAUSE),
            _ => MIN_PAUSE,
        };
        self.written.insert(object, (now, pause));
    }

    /// A request was not: it is tried again, unless a newer one came.
    pub(super) fn failed(&mut self, object: ObjectRef, mut job: Job, now: Instant) {
        if !self.jobs.contains_key(&object) {
            job.at = now + job.backoff.next_delay();
            self.put(object, job);
        }
    }

    fn put(&mut self, object: ObjectRef, job: Job) {
        self.order.insert((job.at, object.clone()));
        self.jobs.insert(object, job);
    }
}

#[cfg(test)]
mod tests {
    use shared::clock;
    use shared::name::ObjectName;

    use super::*;
    use crate::event::Hold;
    use crate::objects::{Ingress, Object, ObjectKind};

    fn write(name: &str) -> HoldRequest {
        let mut ingress = Ingress::default();
        (ingress.metadata.namespace, ingress.metadata.name) = ("n".into(), name.into());
        HoldRequest::Write(Hold { object: Object::Ingress(ingress.into()) })
    }

    fn object(name: &str) -> ObjectRef {
        ObjectRef { kind: ObjectKind::Ingress, name: ObjectName::new("n", name) }
    }

    fn ready(queue: &mut Queue, now: Instant) -> Option<(ObjectRef, Job)> {
        match queue.next(now) {
            Next::Ready(object, job) => Some((object, job)),
            Next::Wait(_) => None,
        }
    }

    #[test]
    fn one_that_fails_lets_the_others_pass() {
        let (mut queue, now) = (Queue::default(), clock::now());
        queue.add(HoldRequest::Erase(object("a")), now);
        queue.add(HoldRequest::Erase(object("b")), now);
        let (failing, job) = ready(&mut queue, now).unwrap();
        assert_eq!(failing, object("a"));
        queue.failed(failing, job, now + Duration::from_millis(1));
        let (other, _) = ready(&mut queue, now).unwrap();
        assert_eq!(other, object("b"));
        queue.done(other, now);
        queue.add(HoldRequest::Erase(object("c")), now);
        assert_eq!(ready(&mut queue, now).unwrap().0, object("c"));
        let Next::Wait(Some(at)) = queue.next(now) else { panic!("the failed one waits") };
        assert!(at <= now + Duration::from_millis(201));
        assert_eq!(ready(&mut queue, at).unwrap().0, object("a"));
        assert!(matches!(queue.next(at), Next::Wait(None)));
    }

    /// Another process takes what is on record for the newest decision.
    #[test]
    fn the_newest_request_of_an_object_takes_the_place_of_the_one_before() {
        let (mut queue, now) = (Queue::default(), clock::now());
        queue.add(HoldRequest::Erase(object("a")), now);
        queue.add(write("a"), now);
        let (failing, job) = ready(&mut queue, now).unwrap();
        assert_eq!(*job.request(), write("a"));
        // Decided anew while that is tried.
        queue.add(HoldRequest::Erase(object("a")), now);
        queue.failed(failing, job, now);
        let (_, job) = ready(&mut queue, now).unwrap();
        assert_eq!(*job.request(), HoldRequest::Erase(object("a")));
        assert!(matches!(queue.next(now), Next::Wait(None)));
    }

    #[test]
    fn who_disagrees_slows_down_and_forgets() {
        let (mut queue, mut now) = (Queue::default(), clock::now());
        let mut pauses = Vec::new();
        for _ in 0..10 {
            queue.add(HoldRequest::Erase(object("a")), now);
            let began = now;
            let object = match queue.next(now) {
                Next::Ready(object, _) => object,
                Next::Wait(until) => {
                    now = until.unwrap();
                    ready(&mut queue, now).unwrap().0
                }
            };
            queue.done(object, now);
            pauses.push((now - began).as_millis());
        }
        assert_eq!(pauses, [0, 100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        queue.add(HoldRequest::Erase(object("b")), now);
        assert!(ready(&mut queue, now).is_some(), "others are not slowed down");
        now += CALM;
        queue.add(HoldRequest::Erase(object("a")), now);
        let (object, _) = ready(&mut queue, now).unwrap();
        queue.done(object, now);
        assert_eq!(queue.written.len(), 1, "what is calm is forgotten");
    }
}
