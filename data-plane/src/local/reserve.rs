//! Reserved descriptors: when the process has none left, a request that was accepted is sent with one of them.
//!
//! The descriptor budget is computed from the limit at the start. If the limit is lowered under a running process, or
//! files are opened that were not budgeted for, the kernel reports an error. Whatever becomes free then would go to
//! whoever asks first: to the many new clients rather than to the requests of existing ones. So no new connection is
//! accepted while a reserved descriptor is in use, and what becomes free refills the reserve first.
//!
//! **Invariant:** a reserved descriptor is marked as missing before it is closed, so that no other worker accepts a
//! client with it.

use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Number of reserved descriptors, for all workers together.
const SPARE: usize = 16;
/// The divisor for their number: at most this part of the descriptors that connections may use.
const PART: usize = 16;

/// The reserve of a process. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Reserve(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    spare: Mutex<Vec<File>>,
    full: usize,
    missing: AtomicUsize,
    /// Number of callers that wait for a descriptor and found none in reserve.
    waiting: AtomicUsize,
}

/// A registered waiting caller, until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting(Reserve);

impl Reserve {
    /// For a process whose connections may use `descriptors`: as many as are available now.
    pub(crate) fn of(descriptors: usize) -> Self {
        let spare: Vec<_> = (0..SPARE.min(descriptors / PART)).map_while(|_| spare()).collect();
        Self(Arc::new(Inner { full: spare.len(), spare: Mutex::new(spare), ..Inner::default() }))
    }

    /// Whether some are in use.
    pub(crate) fn is_short(&self) -> bool {
        self.0.missing.load(Ordering::Acquire) > 0
    }

    /// Whether a caller waits for a descriptor, so that others should close what they do not need.
    pub(crate) fn is_awaited(&self) -> bool {
        self.0.waiting.load(Ordering::Relaxed) > 0
    }

    /// Closes one, so that the caller can open something else. False: there is none.
    pub(crate) fn lend(&self) -> bool {
        let mut spare = self.0.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let lent = spare.pop();
        self.0.missing.store(self.0.full - spare.len(), Ordering::Release);
        lent.is_some()
    }

    /// Refills the reserve with free descriptors.
    pub(crate) fn fill(&self) {
        let mut held = self.0.spare.lock().unwrap_or_else(PoisonError::into_inner);
        while held.len() < self.0.full
            && let Some(one) = spare()
        {
            held.push(one);
        }
        self.0.missing.store(self.0.full - held.len(), Ordering::Release);
    }

    /// Registers the caller as waiting.
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

/// A file that only occupies a descriptor.
fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_is_short_until_lent_units_return() {
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
    fn waiters_of_the_reserve_are_visible() {
        let reserve = Reserve::default();
        let waiting = (reserve.wait(), reserve.wait());
        drop(waiting.0);
        assert!(reserve.is_awaited());
        drop(waiting.1);
        assert!(!reserve.is_awaited());
    }
}
