//! Passwords, compared with hashes that are slow by design: on a few threads of their own, once for each.
//!
//! One of all workers. What fits is remembered, so that a client that is logged in costs a digest. What is asked waits in
//! a queue for each list of users, and the queues take turns: whoever floods one of them with wrong passwords waits
//! behind himself, and is refused when his is full.
//!
//! **Invariant:** neither a password nor a hash is kept; what is remembered is a digest under a key that this process
//! made up.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use rustls::crypto::aws_lc_rs::default_provider;
use tokio::sync::oneshot;

use crate::password;

/// Threads that hash: the workers need the cores, too.
const THREADS: usize = 2;
/// Passwords of one list that wait.
const QUEUE: usize = 64;
/// Passwords of all lists that wait.
const QUEUES: usize = 1024;
/// Requests that wait for one and the same password.
const WAITING: usize = 256;
/// A thread that has nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(10);
/// Independent parts of what is remembered, each with its own lock.
const SHARDS: usize = 16;
/// Digests of one half of a part: 32,768 in all, 1 MiB.
const REMEMBERED: usize = 1024;

type Digest = [u8; 32];

/// What is known of a password.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// It is the user's.
    Fits,
    /// It is not.
    Wrong,
    /// Too many are asked about at this time.
    Busy,
}

/// Compares passwords with hashes. A clone is the same one.
#[derive(Clone, Default)]
pub struct Passwords(Arc<Shared>);

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passwords").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Shared {
    /// Made up at the first use; `None`: there is no randomness, and nothing is remembered.
    key: OnceLock<Option<Digest>>,
    remembered: [Mutex<Halves>; SHARDS],
    work: Mutex<Work>,
    more: Condvar,
}

/// Digests of what fitted. When the newer half is full it becomes the older one; what is asked for comes back.
#[derive(Default)]
struct Halves {
    newer: HashSet<Digest>,
    older: HashSet<Digest>,
}

#[derive(Default)]
struct Work {
    /// By list of users.
    queues: HashMap<Arc<str>, VecDeque<Job>>,
    /// The lists that have a queue, the next one first.
    turns: VecDeque<Arc<str>>,
    /// In all queues.
    queued: usize,
    /// Who waits for what is queued or under way.
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
    /// Whether a password is that of a user. `list` is whose turn it counts for.
    pub(crate) async fn ask(&self, list: &Arc<str>, user: &str, hash: &Arc<str>, password: &[u8]) -> Verdict {
        let verdict = |fits| if fits { Verdict::Fits } else { Verdict::Wrong };
        if !password::is_known(hash) {
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

    /// Hashes until there has been nothing to do for a while.
    fn run(&self) {
        while let Some(job) = self.next() {
            // A panic costs this answer alone.
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

    /// The next that somebody still waits for; `None`: the thread ends.
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
            if timeout.timed_out() && work.queued == 0 {
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
    /// Takes the next of the list whose turn it is.
    fn pop(&mut self) -> Option<Job> {
        while let Some(list) = self.turns.pop_front() {
            let Some(queue) = self.queues.get_mut(&list) else { continue };
            let job = queue.pop_front();
            if queue.is_empty() {
                self.queues.remove(&list);
            } else {
                self.turns.push_back(list);
            }
            let Some(job) = job else { continue };
            self.queued -= 1;
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

/// Puts a password into its list's queue; `None` where there is no room.
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
    let queued = work.queues.get(list).map_or(0, VecDeque::len);
    if queued >= QUEUE || work.queued >= QUEUES {
        return None;
    }
    if work.idle == 0 && work.threads < THREADS {
        let shared = Arc::clone(shared);
        let started = thread::Builder::new().name("passwords".into()).spawn(move || shared.run());
        work.threads += usize::from(started.is_ok());
    }
    if work.threads == 0 {
        return None;
    }
    if queued == 0 {
        work.turns.push_back(Arc::clone(list));
    }
    work.waiting.insert(job.digest, vec![sender]);
    work.queues.entry(Arc::clone(list)).or_default().push_back(job);
    work.queued += 1;
    drop(work);
    shared.more.notify_one();
    Some(receiver)
}

/// What is behind it is whole after each change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
