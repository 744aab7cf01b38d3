//! The Events that wait to be written, and their rate limit.
//!
//! **Invariant:** pure and bounded. The newest comes first: someone who edits an object now does not wait behind faults
//! of thousands of others. Per object and subject only the latest Event is kept: a fault that was fixed in time is not
//! reported.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Announcement, EventReason};

/// Minimum interval of requests, after the burst.
const GAP: Duration = Duration::from_millis(200);
/// Requests that may follow each other without delay.
const BURST: u32 = 25;
/// Limit of waiting announcements; the oldest is dropped for a new one.
const WAITING: usize = 4_096;
/// Limit of the announcements that are remembered. The API server drops Events after an hour.
const RECORDED: usize = 8_192;
/// Minimum interval of the same announcement.
const AGAIN: Duration = Duration::from_secs(60);
/// Delay of a retry, and the number of retries.
const RETRY: Duration = Duration::from_secs(10);
const TRIES: u8 = 3;
/// How long a namespace in which writing is forbidden is skipped.
const SHUT: Duration = Duration::from_secs(600);
/// Limit of the skipped namespaces that are remembered.
const SHUT_MAX: usize = 1_024;

/// One announcement to write now.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) announcement: Announcement,
    /// How often it was announced so far.
    pub(super) count: u32,
    tries: u8,
}

/// What to do next.
#[derive(Debug)]
pub(super) enum Next {
    Say(Box<Task>),
    Wait(Duration),
    Nothing,
}

/// The result of writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Recorded,
    /// Writing is forbidden there.
    Forbidden,
    Failed,
}

#[derive(Debug)]
struct Waiting {
    announcement: Announcement,
    digest: String,
    not_before: Instant,
    tries: u8,
}

#[derive(Debug)]
struct Known {
    count: u32,
    written: Instant,
}

/// The backlog.
#[derive(Debug)]
pub(super) struct Backlog {
    /// The newest last.
    waiting: Vec<Waiting>,
    recorded: HashMap<String, Known>,
    /// In the order in which they were first announced.
    order: VecDeque<String>,
    shut: HashMap<Arc<str>, Instant>,
    /// When all requests so far would be done at one per [`GAP`].
    even: Instant,
}

impl Backlog {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            waiting: Vec::new(),
            recorded: HashMap::new(),
            order: VecDeque::new(),
            shut: HashMap::new(),
            even: now,
        }
    }

    /// Adds an announcement; returns the one that is dropped for it.
    pub(super) fn push(&mut self, announcement: Announcement, now: Instant) -> Option<Announcement> {
        let is_matter = |it: &Waiting| {
            it.announcement.object == announcement.object
                && matter(it.announcement.reason) == matter(announcement.reason)
        };
        let before = self.waiting.iter().position(is_matter).map(|at| self.waiting.remove(at));
        let is_untold =
            |it: Waiting| !it.announcement.reason.is_good() && !self.recorded.contains_key(&it.digest);
        if announcement.reason.is_good() && before.is_some_and(is_untold) {
            return None;
        }
        let digest = announcement.digest();
        let not_before = self.recorded.get(&digest).map_or(now, |known| known.written + AGAIN);
        self.waiting.push(Waiting { announcement, digest, not_before, tries: 0 });
        (self.waiting.len() > WAITING).then(|| self.waiting.remove(0).announcement)
    }

    /// The newest that may be written now, or how long to wait.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        let is_shut = |namespace: &Arc<str>| self.shut.get(namespace).is_some_and(|until| *until > now);
        self.waiting.retain(|it| !is_shut(&it.announcement.object.name.namespace));
        let Some(soonest) = self.waiting.iter().map(|it| it.not_before).min() else {
            return Next::Nothing;
        };
        let paced = self.even.checked_sub(GAP * (BURST - 1)).unwrap_or(now);
        let at = soonest.max(paced);
        if at > now {
            return Next::Wait(at - now);
        }
        let newest = self.waiting.iter().rposition(|it| it.not_before <= now);
        let Some(Waiting { announcement, digest, tries, .. }) = newest.map(|at| self.waiting.remove(at))
        else {
            return Next::Nothing;
        };
        self.even = self.even.max(now) + GAP;
        let count = self.recorded.get(&digest).map_or(0, |known| known.count) + 1;
        Next::Say(Box::new(Task { announcement, count, tries }))
    }

    /// Records the result of a task.
    pub(super) fn done(&mut self, task: Task, outcome: Outcome, now: Instant) {
        let Task { announcement, count, tries } = task;
        match outcome {
            Outcome::Recorded => self.remember(announcement.digest(), Known { count, written: now }),
            Outcome::Forbidden => {
                if self.shut.len() >= SHUT_MAX {
                    self.shut.clear();
                }
                self.shut.insert(Arc::clone(&announcement.object.name.namespace), now + SHUT);
            }
            Outcome::Failed => {
                // The API server is overloaded: send it nothing meanwhile.
                self.even = self.even.max(now + RETRY + GAP * (BURST - 1));
                if tries + 1 < TRIES {
                    let digest = announcement.digest();
                    self.waiting.push(Waiting {
                        announcement,
                        digest,
                        not_before: now + RETRY,
                        tries: tries + 1,
                    });
                }
            }
        }
    }

    fn remember(&mut self, digest: String, known: Known) {
        if self.recorded.insert(digest.clone(), known).is_none() {
            self.order.push_back(digest);
        }
        if self.order.len() > RECORDED
            && let Some(oldest) = self.order.pop_front()
        {
            self.recorded.remove(&oldest);
        }
    }
}

/// Whether it is about compiling, or about proxies.
fn matter(reason: EventReason) -> bool {
    matches!(reason, EventReason::Refused | EventReason::Served)
}

#[cfg(test)]
mod tests {
    use shared::name::ObjectName;

    use super::*;
    use crate::objects::{ObjectKind, ObjectRef};

    fn of(namespace: &str, name: &str, reason: EventReason) -> Announcement {
        Announcement {
            object: ObjectRef { kind: ObjectKind::Ingress, name: ObjectName::new(namespace, name) },
            uid: "u".into(),
            resource_version: "7".into(),
            reason,
            note: "a fault".to_owned(),
            same: "a fault".to_owned(),
        }
    }

    fn say(backlog: &mut Backlog, now: Instant) -> Option<Task> {
        match backlog.next(now) {
            Next::Say(task) => Some(*task),
            _ => None,
        }
    }

    fn settle(backlog: &mut Backlog, outcome: Outcome, now: Instant) -> Vec<(String, u32)> {
        let mut recorded = Vec::new();
        while let Some(task) = say(backlog, now) {
            recorded.push((task.announcement.object.name.name.to_string(), task.count));
            backlog.done(task, outcome, now);
        }
        recorded
    }

    #[test]
    fn thousands_of_faults_are_said_at_a_pace_and_the_newest_does_not_wait() {
        let start = shared::clock::now();
        let mut backlog = Backlog::new(start);
        for at in 0..5_000 {
            let lost = backlog.push(of("a", &at.to_string(), EventReason::Rejected), start);
            assert_eq!(lost.is_some(), at >= WAITING, "{at}");
        }
        assert_eq!(settle(&mut backlog, Outcome::Recorded, start).len(), BURST as usize);
        let Next::Wait(wait) = backlog.next(start) else { panic!("it has to wait") };
        assert_eq!(wait, GAP);
        let mut requests = 0;
        for second in 1..=10 {
            requests += settle(&mut backlog, Outcome::Recorded, start + Duration::from_secs(second)).len();
        }
        assert_eq!(requests, 50, "five a second");
        backlog.push(of("a", "newest", EventReason::Rejected), start);
        let recorded = settle(&mut backlog, Outcome::Recorded, start + Duration::from_secs(11));
        assert_eq!(recorded[0], ("newest".to_owned(), 1));
    }

    #[test]
    fn the_same_again_is_counted_and_said_a_minute_later() {
        let start = shared::clock::now();
        let mut backlog = Backlog::new(start);
        for _ in 0..3 {
            backlog.push(of("a", "web", EventReason::Rejected), start);
        }
        assert_eq!(settle(&mut backlog, Outcome::Recorded, start), [("web".to_owned(), 1)]);
        for _ in 0..3 {
            backlog.push(of("a", "web", EventReason::Rejected), start);
        }
        assert!(settle(&mut backlog, Outcome::Recorded, start + AGAIN - GAP).is_empty());
        assert_eq!(settle(&mut backlog, Outcome::Recorded, start + AGAIN), [("web".to_owned(), 2)]);
        backlog.push(of("a", "web", EventReason::Refused), start + AGAIN);
        assert_eq!(
            settle(&mut backlog, Outcome::Recorded, start + AGAIN),
            [("web".to_owned(), 1)],
            "another matter"
        );
    }

    #[test]
    fn what_was_mended_before_it_was_told_is_not_told() {
        let start = shared::clock::now();
        let mut backlog = Backlog::new(start);
        backlog.push(of("a", "web", EventReason::Rejected), start);
        backlog.push(of("a", "web", EventReason::Accepted), start);
        assert!(matches!(backlog.next(start), Next::Nothing));
        backlog.push(of("a", "web", EventReason::Rejected), start);
        settle(&mut backlog, Outcome::Recorded, start);
        backlog.push(of("a", "web", EventReason::Accepted), start);
        let task = say(&mut backlog, start).unwrap();
        assert_eq!(task.announcement.reason, EventReason::Accepted);
    }

    #[test]
    fn where_nothing_may_be_written_nobody_asks_for_a_while() {
        let start = shared::clock::now();
        let mut backlog = Backlog::new(start);
        for at in 0..10 {
            backlog.push(of("shut", &at.to_string(), EventReason::Rejected), start);
        }
        assert_eq!(settle(&mut backlog, Outcome::Forbidden, start).len(), 1);
        backlog.push(of("shut", "other", EventReason::Rejected), start);
        backlog.push(of("open", "web", EventReason::Rejected), start);
        assert_eq!(settle(&mut backlog, Outcome::Recorded, start), [("web".to_owned(), 1)]);
        backlog.push(of("shut", "other", EventReason::Rejected), start + SHUT);
        assert_eq!(settle(&mut backlog, Outcome::Recorded, start + SHUT).len(), 1, "rights may have changed");
        for at in 0..2 * SHUT_MAX {
            backlog.push(of(&at.to_string(), "web", EventReason::Rejected), start);
            backlog.done(
                Task { announcement: of(&at.to_string(), "web", EventReason::Rejected), count: 1, tries: 0 },
                Outcome::Forbidden,
                start,
            );
            backlog.waiting.clear();
        }
        assert!(backlog.shut.len() <= SHUT_MAX);
    }

    #[test]
    fn what_fails_is_tried_so_often_and_nobody_hurries() {
        let start = shared::clock::now();
        let mut backlog = Backlog::new(start);
        backlog.push(of("a", "one", EventReason::Rejected), start);
        backlog.push(of("a", "two", EventReason::Rejected), start);
        let mut now = start;
        let mut asked = 0;
        while let next @ (Next::Say(_) | Next::Wait(_)) = backlog.next(now) {
            match next {
                Next::Say(task) => {
                    asked += 1;
                    backlog.done(*task, Outcome::Failed, now);
                }
                Next::Wait(wait) => now += wait,
                Next::Nothing => unreachable!(),
            }
        }
        assert_eq!(asked, 2 * TRIES);
        assert!(now - start >= RETRY * 4, "{:?}", now - start);
    }

    #[test]
    fn what_was_said_is_remembered_within_bounds() {
        let start = shared::clock::now();
        let mut backlog = Backlog::new(start);
        for at in 0..RECORDED + 10 {
            backlog.remember(at.to_string(), Known { count: 1, written: start });
        }
        assert_eq!((backlog.recorded.len(), backlog.order.len()), (RECORDED, RECORDED));
    }
}
