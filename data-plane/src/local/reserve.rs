//! Descriptors that are held open for nothing: when the process has no others left, a request that was taken is sent with one
//! of them.
//!
//! The budget of descriptors is reckoned from the limit at the start; a limit that is lowered under a running process, or
//! files that nobody reckoned with, are met as an error of the kernel. Whatever is free then would go to whoever asks first:
//! to clients that come, who are many, and not to the requests of those who are there. So nobody new is taken while one of
//! these is lent, and what becomes free fills the reserve first.
//!
//! **Invariant:** one that is lent is missing before it is closed, so that no other worker takes a client with it.

use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Descriptors in reserve, for all workers together.
const SPARE: usize = 16;
/// And no more than one of so many that connections may have.
const PART: usize = 16;

/// The reserve of a process. A clone is the same one.
#[derive(Clone, Debug, Default)]
pub struct Reserve(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    spare: Mutex<Vec<File>>,
    full: usize,
    missing: AtomicUsize,
    /// Who waits for a descriptor, and found none in reserve.
    waiting: AtomicUsize,
}

/// Somebody waits, until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting(Reserve);

impl Reserve {
    /// Of a process whose connections may have so many: as many as there are to be had now.
    pub(crate) fn of(descriptors: usize) -> Self {
        let spare: Vec<_> = (0..SPARE.min(descriptors / PART)).map_while(|_| spare()).collect();
        Self(Arc::new(Inner { full: spare.len(), spare: Mutex::new(spare), ..Inner::default() }))
    }

    /// Whether some are lent.
    pub(crate) fn is_short(&self) -> bool {
        self.0.missing.load(Ordering::Acquire) > 0
    }

    /// Whether somebody waits, whom others can help by closing what they do not need.
    pub(crate) fn is_awaited(&self) -> bool {
        self.0.waiting.load(Ordering::Relaxed) > 0
    }

    /// Gives one up, for the caller to open something else. False: there is none.
    pub(crate) fn lend(&self) -> bool {
        let mut spare = self.0.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let lent = spare.pop();
        self.0.missing.store(self.0.full - spare.len(), Ordering::Release);
        lent.is_some()
    }

    /// Takes back what is free.
    pub(crate) fn fill(&self) {
        let mut held = self.0.spare.lock().unwrap_or_else(PoisonError::into_inner);
        while held.len() < self.0.full
            && let Some(one) = spare()
        {
            held.push(one);
        }
        self.0.missing.store(self.0.full - held.len(), Ordering::Release);
    }

    /// The caller waits.
    pub(crate) fn wait(&self) -> Waiting {
        self.0.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(self.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A file that nobody reads.
fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lent_is_missing_until_it_is_filled() {
        let reserve = Reserve::of(1_000_000);
        assert!(!reserve.is_short());
        assert_eq!((0..).take_while(|_| reserve.lend()).count(), SPARE);
        assert!(reserve.is_short() && !reserve.lend());
        reserve.fill();
        assert!(!reserve.is_short() && reserve.lend() && reserve.is_short());
    }

    #[test]
    fn few_descriptors_have_a_small_reserve_and_a_process_without_one_is_never_short() {
        for (descriptors, spare) in [(40, 2), (15, 0), (0, 0)] {
            let reserve = Reserve::of(descriptors);
            assert_eq!((0..).take_while(|_| reserve.lend()).count(), spare);
            assert_eq!(reserve.is_short(), spare > 0);
        }
    }

    #[test]
    fn who_waits_is_seen() {
        let reserve = Reserve::default();
        let waiting = (reserve.wait(), reserve.wait());
        drop(waiting.0);
        assert!(reserve.is_awaited());
        drop(waiting.1);
        assert!(!reserve.is_awaited());
    }
}
