//! The request ledger: records each request that was sent, each that an origin saw, and each response.
//!
//! A request carries its number; every [`Origin`](crate::Origin) of this process notes what it sees, even after it was
//! dropped. A request is lost if it has no response, cut if the response is not what was sent, misrouted if an origin
//! answers that may not, and repeated if more than one attempt reached an origin.
//!
//! **Which origins may answer** is defined by versions ([`Ledger::routes`], [`Ledger::endpoints`]), not by a set that
//! is valid at any time: a response of one version proves that it is in force, and a request that is sent afterwards
//! may not be answered by an older one. The clock is logical: requests, changes and responses are ordered under one
//! lock.
//!
//! **Invariant:** a request is removed when it is judged, so a ledger of millions is as small as one of ten.

mod version;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use test_kit::{Answer, Seen};

use version::Targets;

/// The field that carries a request's number.
pub const FIELD: &str = "X-Ledger";

/// Stands for the proxy itself, on a host without a route.
const NOBODY: &str = "(nobody)";

/// Limit of the problems that are listed; the others are counted.
const KEPT: usize = 100;

/// A ledger. Clones share state.
#[derive(Clone)]
pub struct Ledger {
    id: u64,
    book: Arc<Mutex<Book>>,
}

/// Statistics of a ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Handed out to clients.
    pub sent: u64,
    /// How often an origin saw one.
    pub seen: u64,
    /// Answered correctly.
    pub answered: u64,
    /// Of these, by the proxy itself, for hosts without a route.
    pub by_nobody: u64,
    /// Additional attempts that reached an origin.
    pub repeated: u64,
    /// What went wrong, in order; the first hundred.
    pub problems: Vec<String>,
    /// Their total number.
    pub problems_total: u64,
}

#[derive(Default)]
struct Book {
    open: HashMap<u64, Entry>,
    targets: Targets,
    /// Times from a change to the first response that proves it.
    effects: Vec<Duration>,
    repeats_allowed: bool,
    summary: Summary,
}

/// A request without an answer.
struct Entry {
    what: String,
    host: String,
    body: Vec<u8>,
    /// The origins that may answer, if that is not defined by versions.
    answers: Vec<String>,
    floors: version::Floors,
    seen_by: Vec<String>,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

impl Ledger {
    /// An empty one.
    pub fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let it = Self { id: LAST.fetch_add(1, Ordering::Relaxed), book: Arc::default() };
        let mut all = ledgers();
        all.retain(|_, book| book.strong_count() > 0);
        all.insert(it.id, Arc::downgrade(&it.book));
        it
    }

    /// From now on this Service may answer requests for a host, and the previous one no longer, once the first response
    /// shows that the change has arrived.
    pub fn routes(&self, host: &str, service: &str) {
        self.book().targets.route(host, service);
    }

    /// From now on a host has no route: the proxy itself answers 404.
    pub fn nobody(&self, host: &str) {
        let mut book = self.book();
        if !book.targets.has(NOBODY) {
            book.targets.endpoints(NOBODY, &[NOBODY]);
        }
        book.targets.route(host, NOBODY);
    }

    /// From now on these origins are the endpoints of a Service.
    pub fn endpoints(&self, service: &str, origins: &[&str]) {
        self.book().targets.endpoints(service, origins);
    }

    /// Whether the newest version of a host's route and endpoints has answered.
    ///
    /// # Errors
    /// The versions that were last proved and last set.
    pub fn is_newest(&self, host: &str) -> Result<(), String> {
        self.book().targets.is_newest(host)
    }

    /// Additional attempts are counted, but are no problems: for tests in which endpoints fail.
    pub fn allow_repeats(&self) {
        self.book().repeats_allowed = true;
    }

    /// The statistics so far.
    pub fn summary(&self) -> Summary {
        self.book().summary.clone()
    }

    /// How long changes took until a response proved them, the shortest first.
    pub fn effects(&self) -> Vec<Duration> {
        let mut effects = self.book().effects.clone();
        effects.sort_unstable();
        effects
    }

    /// Closes it: requests without a response are problems.
    pub fn close(self) -> Summary {
        let mut book = self.book();
        let open: Vec<String> = book.open.drain().map(|(_, entry)| entry.what).collect();
        for what in open {
            book.problem(format!("{what}: never answered"));
        }
        book.summary.clone()
    }

    /// Records a request that is about to be written; returns its number for [`FIELD`].
    pub(crate) fn send(&self, what: String, host: &str, body: &[u8], answers: &[String]) -> Number {
        let mut book = self.book();
        let number = book.summary.sent;
        book.summary.sent += 1;
        let entry = Entry {
            what: format!("#{number} {what}"),
            host: host.to_owned(),
            body: body.to_vec(),
            answers: answers.to_vec(),
            floors: book.targets.floors(host),
            seen_by: Vec::new(),
        };
        book.open.insert(number, entry);
        Number { ledger: self.id, number }
    }

    /// Records a response.
    pub(crate) fn answered(&self, number: &Number, answer: &Answer) {
        let mut book = self.book();
        let Some(entry) = book.open.remove(&number.number) else {
            return;
        };
        if let Err(problem) = book.judge(&entry, answer) {
            book.problem(format!("{}: {problem}", entry.what));
        } else {
            book.summary.answered += 1;
        }
    }

    /// Records that there is no response.
    pub(crate) fn lost(&self, number: &Number, why: &dyn fmt::Display) {
        let mut book = self.book();
        if let Some(entry) = book.open.remove(&number.number) {
            book.problem(format!("{}: {why}; seen by {:?}", entry.what, entry.seen_by));
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ledger {}: {:?}", self.id, self.summary())
    }
}

impl Summary {
    /// Each request was seen once and answered by a permitted origin.
    ///
    /// # Panics
    /// With what went wrong.
    pub fn assert_clean(&self) {
        assert!(
            self.problems_total == 0,
            "{} of {} requests lost, misrouted, cut or repeated: {:#?}",
            self.problems_total,
            self.sent,
            &self.problems[..self.problems.len().min(10)]
        );
        let by_origins = self.answered - self.by_nobody;
        assert_eq!((self.sent, self.seen - self.repeated), (self.answered, by_origins), "{self:?}");
    }
}

/// Number of a request, as it stands in [`FIELD`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number {
    ledger: u64,
    number: u64,
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.ledger, self.number)
    }
}

impl Book {
    fn judge(&mut self, entry: &Entry, answer: &Answer) -> Result<(), String> {
        let is_nobody = answer.origin().is_none() && answer.status == 404 && entry.seen_by.is_empty();
        if is_nobody && entry.answers.is_empty() {
            self.summary.by_nobody += 1;
            return self.prove(entry, NOBODY);
        }
        let Some(by) = answer.origin() else {
            return Err(format!("{} by the proxy itself; seen by {:?}", answer.status, entry.seen_by));
        };
        if answer.status != 200 {
            return Err(format!("{} by {by}", answer.status));
        }
        if entry.seen_by.last().is_none_or(|last| last != by) {
            return Err(format!("answered by {by}, seen by {:?}", entry.seen_by));
        }
        if entry.seen_by.len() > 1 && !self.repeats_allowed {
            return Err(format!("seen {} times: {:?}", entry.seen_by.len(), entry.seen_by));
        }
        let echoed = answer.json();
        if !entry.body.is_empty() && echoed["body"] != String::from_utf8_lossy(&entry.body).as_ref() {
            return Err(format!("{} bytes were sent, others came to {by}", entry.body.len()));
        }
        if entry.answers.is_empty() {
            return self.prove(entry, by);
        }
        if entry.answers.iter().any(|name| name == by) {
            Ok(())
        } else {
            Err(format!("answered by {by}, expected one of {:?}", entry.answers))
        }
    }

    fn prove(&mut self, entry: &Entry, by: &str) -> Result<(), String> {
        let proved = self.targets.judge(&entry.host, &entry.floors, by)?;
        let now = Instant::now();
        self.effects.extend(proved.into_iter().map(|said| now.saturating_duration_since(said)));
        Ok(())
    }

    fn saw(&mut self, number: u64, by: &str) {
        self.summary.seen += 1;
        let Some(entry) = self.open.get_mut(&number) else {
            return self.problem(format!("#{number}: seen by {by} after it was answered or given up"));
        };
        entry.seen_by.push(by.to_owned());
        if entry.seen_by.len() > 1 {
            self.summary.repeated += 1;
        }
    }

    fn problem(&mut self, problem: String) {
        self.summary.problems_total += 1;
        if self.summary.problems.len() < KEPT {
            self.summary.problems.push(problem);
        }
    }
}

/// All ledgers of this process: origins find theirs by the number of a request.
fn ledgers() -> MutexGuard<'static, BTreeMap<u64, Weak<Mutex<Book>>>> {
    static ALL: OnceLock<Mutex<BTreeMap<u64, Weak<Mutex<Book>>>>> = OnceLock::new();
    ALL.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records that an origin saw a request. Returns whether it belongs to a ledger.
pub(crate) fn saw(seen: &Seen, by: &str) -> bool {
    seen.header(FIELD).is_some_and(|number| heard(number, by))
}

/// The same for a message of a WebSocket, whose text is the number.
pub(crate) fn heard(number: &str, by: &str) -> bool {
    let number = number.split_once('.');
    let number = number.and_then(|(ledger, number)| Some((ledger.parse().ok()?, number.parse().ok()?)));
    let Some((ledger, number)) = number else {
        return false;
    };
    let book = ledgers().get(&ledger).and_then(Weak::upgrade);
    if let Some(book) = book {
        book.lock().unwrap_or_else(PoisonError::into_inner).saw(number, by);
    }
    true
}

#[cfg(test)]
mod tests;
