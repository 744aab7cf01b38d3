//! Schedules the writing of records.
//!
//! Sans-I/O. Each object has a schedule of its own: a failing write delays no other object, and the records of an
//! object about which two replicas disagree (one writes what the other deletes) are written at growing intervals.
//!
//! **Invariant:** at most one request per object, the newest; whatever fails, each is tried at its time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use shared::backoff::Backoff;

use crate::event::HoldRequest;
use crate::objects::ObjectRef;

/// Minimum interval between two writes for one object; doubled with each that follows.
const MIN_PAUSE: Duration = Duration::from_millis(100);
/// Limit of that interval.
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// Interval at which a request is tried again that cannot succeed as it is: the API server's limits may be changed.
const HOPELESS: Duration = Duration::from_secs(600);
/// Quiet time after which an object's interval is reset.
const CALM: Duration = Duration::from_secs(60);

/// Waiting requests.
#[derive(Debug, Default)]
pub(super) struct Queue {
    jobs: BTreeMap<ObjectRef, Job>,
    /// The same requests, by time.
    order: BTreeSet<(Instant, ObjectRef)>,
    /// When the last record of an object was written, and the interval after that.
    written: HashMap<ObjectRef, (Instant, Duration)>,
}

/// A request, and its time.
#[derive(Debug)]
pub(super) struct Job {
    request: HoldRequest,
    at: Instant,
    backoff: Backoff,
    /// It waits for [`HOPELESS`]; another request of the object need not.
    hopeless: bool,
}

impl Job {
    /// The request.
    pub(super) fn request(&self) -> &HoldRequest {
        &self.request
    }
}

/// What to do next.
#[derive(Debug)]
pub(super) enum Next {
    /// Execute this now. It was removed from the queue.
    Ready(ObjectRef, Job),
    /// Wait until then, or until something is added.
    Wait(Option<Instant>),
}

impl Queue {
    /// Adds a request, replacing an older one of the same object.
    pub(super) fn add(&mut self, request: HoldRequest, now: Instant) {
        let object = match &request {
            HoldRequest::Write(hold) => hold.object.reference(),
            HoldRequest::Erase(object) => object.clone(),
        };
        if let Some(job) = self.jobs.get_mut(&object)
            && (!job.hopeless || job.request == request)
        {
            job.request = request;
            return;
        }
        if let Some(overtaken) = self.jobs.remove(&object) {
            self.order.remove(&(overtaken.at, object.clone()));
        }
        let earliest = match self.written.get(&object) {
            Some((at, pause)) if now < *at + CALM => *at + *pause,
            _ => now,
        };
        let job = Job {
            request,
            at: earliest.max(now),
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(10)),
            hopeless: false,
        };
        self.put(object, job);
    }

    /// The request that is due for the longest time.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        let at = match self.order.first() {
            Some((at, _)) if *at <= now => *at,
            first => return Next::Wait(first.map(|(at, _)| *at)),
        };
        let first = self.order.pop_first().map(|(_, object)| object);
        let job = first.and_then(|object| self.jobs.remove_entry(&object));
        match job {
            Some((object, job)) => Next::Ready(object, job),
            // Both collections have the same objects.
            None => Next::Wait(Some(at)),
        }
    }

    /// A request succeeded.
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

    /// A request failed: it is retried, unless there is a newer one.
    pub(super) fn failed(&mut self, object: ObjectRef, mut job: Job, now: Instant) {
        if !self.jobs.contains_key(&object) {
            job.at = now + job.backoff.next_delay();
            self.put(object, job);
        }
    }

    /// A request failed, and will again.
    pub(super) fn hopeless(&mut self, object: ObjectRef, mut job: Job, now: Instant) {
        if !self.jobs.contains_key(&object) {
            (job.at, job.hopeless) = (now + HOPELESS, true);
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

    /// Another process takes its own decision for the newest one.
    #[test]
    fn the_newest_request_of_an_object_takes_the_place_of_the_one_before() {
        let (mut queue, now) = (Queue::default(), clock::now());
        queue.add(HoldRequest::Erase(object("a")), now);
        queue.add(write("a"), now);
        let (failing, job) = ready(&mut queue, now).unwrap();
        assert_eq!(*job.request(), write("a"));
        // A new decision during the attempt.
        queue.add(HoldRequest::Erase(object("a")), now);
        queue.failed(failing, job, now);
        let (_, job) = ready(&mut queue, now).unwrap();
        assert_eq!(*job.request(), HoldRequest::Erase(object("a")));
        assert!(matches!(queue.next(now), Next::Wait(None)));
    }

    /// It would be packed and sent every few seconds for as long as the object is rejected.
    #[test]
    fn what_cannot_succeed_is_tried_seldom_and_what_replaces_it_at_once() {
        let (mut queue, now) = (Queue::default(), clock::now());
        queue.add(write("a"), now);
        let (large, job) = ready(&mut queue, now).unwrap();
        queue.hopeless(large, job, now);
        queue.add(write("a"), now);
        let Next::Wait(Some(at)) = queue.next(now) else { panic!("the same again waits") };
        assert_eq!(at, now + HOPELESS);
        let (large, job) = ready(&mut queue, at).unwrap();
        queue.hopeless(large, job, at);
        queue.add(HoldRequest::Erase(object("a")), at);
        let (_, job) = ready(&mut queue, at).expect("another request is tried at once");
        assert_eq!(*job.request(), HoldRequest::Erase(object("a")));
        assert!(matches!(queue.next(at), Next::Wait(None)), "the large one is not tried again");
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
        let (other, _) = ready(&mut queue, now).expect("others are not slowed down");
        queue.done(other, now);
        now += CALM;
        queue.add(HoldRequest::Erase(object("a")), now);
        let (object, _) = ready(&mut queue, now).unwrap();
        queue.done(object, now);
        assert_eq!(queue.written.len(), 1, "what is calm is forgotten");
    }
}
