//! Checks passwords against deliberately slow hashes, on a few dedicated threads, once for each password.
//!
//! Shared by all workers. A success is remembered, so that a client that is logged in costs only a digest. Checks wait
//! in one queue per list of users, and namespaces and their queues take turns: someone who floods lists with wrong
//! passwords delays only his namespace, and is refused when it has its share of the places.
//!
//! **Invariant:** neither a password nor a hash is stored; what is remembered is a digest under a random key of this
//! process.

mod queues;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use rustls::crypto::aws_lc_rs::default_provider;
use tokio::sync::oneshot;

use crate::password;
use queues::Queues;

/// Number of hashing threads: the workers need the cores, too.
const THREADS: usize = 2;
/// Queue length per list.
const QUEUE: usize = 64;
/// Total length of all queues.
const QUEUES: usize = 1024;
/// Maximum number of requests that wait for the same password.
const WAITING: usize = 256;
/// A thread that is idle for this long ends.
const IDLE: Duration = Duration::from_secs(10);
/// Independent parts of the memory, each with its own lock.
const SHARDS: usize = 16;
/// Digests in one half of a part: 32,768 in all, 1 MiB.
const REMEMBERED: usize = 1024;

type Digest = [u8; 32];

/// The result of a password check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// It is correct.
    Fits,
    /// It is wrong.
    Wrong,
    /// Too many checks are in progress.
    Busy,
}

/// Checks passwords against hashes. Clones share the state.
#[derive(Clone, Default)]
pub struct Passwords(Arc<Shared>);

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passwords").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Shared {
    /// Initialised on first use; `None`: no randomness is available, and nothing is remembered.
    key: OnceLock<Option<Digest>>,
    remembered: [Mutex<Halves>; SHARDS],
    work: Mutex<Work>,
    more: Condvar,
}

/// Digests of correct passwords. When the newer half is full it becomes the older one; digests that are looked up are
/// added to it again.
#[derive(Default)]
struct Halves {
    newer: HashSet<Digest>,
    older: HashSet<Digest>,
}

#[derive(Default)]
struct Work {
    queues: Queues<Job>,
    /// Requests that wait for each check that is queued or running.
    waiting: HashMap<Digest, Vec<oneshot::Sender<bool>>>,
    threads: usize,
    idle: usize,
}

struct Job {
    digest: Digest,
    hash: Arc<str>,
    password: Box<[u8]>,
}

impl Passwords {
    /// Whether a password is correct for a user. `list` determines the queue.
    pub(crate) async fn ask(&self, list: &Arc<str>, user: &str, hash: &Arc<str>, password: &[u8]) -> Verdict {
        let verdict = |fits| if fits { Verdict::Fits } else { Verdict::Wrong };
        if !password::could_fit(password, hash) {
            return Verdict::Wrong;
        }
        if password::is_quick(hash) {
            return verdict(password::fits(password, hash));
        }
        let Some(digest) = self.0.digest(user, hash, password) else {
            return Verdict::Busy;
        };
        if self.0.remembers(&digest) {
            return Verdict::Fits;
        }
        let job = Job { digest, hash: Arc::clone(hash), password: password.into() };
        match submit(&self.0, list, job) {
            Some(answer) => answer.await.map_or(Verdict::Busy, verdict),
            None => Verdict::Busy,
        }
    }
}

impl Shared {
    fn digest(&self, user: &str, hash: &str, password: &[u8]) -> Option<Digest> {
        let key = self.key.get_or_init(|| {
            let mut key = Digest::default();
            default_provider().secure_random.fill(&mut key).is_ok().then_some(key)
        });
        let mut hasher = blake3::Hasher::new_keyed(key.as_ref()?);
        for part in [user.as_bytes(), hash.as_bytes(), password] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Some(*hasher.finalize().as_bytes())
    }

    fn shard(&self, digest: &Digest) -> MutexGuard<'_, Halves> {
        lock(&self.remembered[usize::from(digest[0]) % SHARDS])
    }

    fn remembers(&self, digest: &Digest) -> bool {
        let mut halves = self.shard(digest);
        if halves.newer.contains(digest) {
            return true;
        }
        let is_known = halves.older.contains(digest);
        if is_known {
            halves.add(*digest);
        }
        is_known
    }

    /// Runs checks until there was nothing to do for a while.
    fn run(&self) {
        while let Some(job) = self.next() {
            // A panic affects only this check.
            let fits = catch_unwind(AssertUnwindSafe(|| password::fits(&job.password, &job.hash)));
            let fits = fits.unwrap_or(false);
            if fits {
                self.shard(&job.digest).add(job.digest);
            }
            for waiting in lock(&self.work).waiting.remove(&job.digest).unwrap_or_default() {
                let _ = waiting.send(fits);
            }
        }
    }

    /// The next check that is still wanted; `None`: the thread ends.
    fn next(&self) -> Option<Job> {
        let mut work = lock(&self.work);
        loop {
            if let Some(job) = work.pop() {
                return Some(job);
            }
            work.idle += 1;
            let (woken, timeout) = self.more.wait_timeout(work, IDLE).unwrap_or_else(PoisonError::into_inner);
            work = woken;
            work.idle -= 1;
            if timeout.timed_out() && work.queues.is_empty() {
                work.threads -= 1;
                return None;
            }
        }
    }
}

impl Halves {
    fn add(&mut self, digest: Digest) {
        if self.newer.len() >= REMEMBERED {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(digest);
    }
}

impl Work {
    /// Takes the next check of the list whose turn it is.
    fn pop(&mut self) -> Option<Job> {
        while let Some(job) = self.queues.pop() {
            let waiting = self.waiting.entry(job.digest).or_default();
            waiting.retain(|waiting| !waiting.is_closed());
            if !waiting.is_empty() {
                return Some(job);
            }
            self.waiting.remove(&job.digest);
        }
        None
    }
}

/// Queues a check; `None` if there is no room.
fn submit(shared: &Arc<Shared>, list: &Arc<str>, job: Job) -> Option<oneshot::Receiver<bool>> {
    let (sender, receiver) = oneshot::channel();
    let mut work = lock(&shared.work);
    if let Some(waiting) = work.waiting.get_mut(&job.digest) {
        waiting.retain(|waiting| !waiting.is_closed());
        let has_room = waiting.len() < WAITING;
        return has_room.then(|| {
            waiting.push(sender);
            receiver
        });
    }
    if work.idle == 0 && work.threads < THREADS {
        let shared = Arc::clone(shared);
        let started = thread::Builder::new().name("passwords".into()).spawn(move || shared.run());
        work.threads += usize::from(started.is_ok());
    }
    let digest = job.digest;
    if work.threads == 0 || !work.queues.push(list, job) {
        return None;
    }
    work.waiting.insert(digest, vec![sender]);
    drop(work);
    shared.more.notify_one();
    Some(receiver)
}

/// The protected state is consistent after each change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
