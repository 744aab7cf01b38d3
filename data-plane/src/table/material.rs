//! A Material in compiled form, shared by all that name it, while the proxy has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;

/// One Material as it is used in one way.
#[derive(Debug)]
pub struct MaterialCell<T> {
    /// Key of the Material.
    pub key: Arc<str>,
    made: ArcSwapOption<T>,
}

impl<T> MaterialCell<T> {
    /// Of a Material that is awaited.
    pub fn new(key: Arc<str>) -> Self {
        Self { key, made: ArcSwapOption::empty() }
    }

    /// What it is now; `None` where that is not known, or of no use.
    pub fn get(&self) -> Option<Arc<T>> {
        self.made.load_full()
    }

    /// Puts this in place of what it was. For the control thread, and for tests without one.
    pub fn store(&self, made: Option<Arc<T>>) {
        self.made.store(made);
    }
}

/// A number that nothing of this process had before: of connections made under one policy, and of no other. 0 is none.
pub(crate) fn next_id() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}
