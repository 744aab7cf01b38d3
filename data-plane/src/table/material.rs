//! A compiled Material, shared by everything that refers to it, for as long as the proxy has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;

/// One Material, compiled for one use.
#[derive(Debug)]
pub struct MaterialCell<T> {
    /// Key of the Material.
    pub key: Arc<str>,
    made: ArcSwapOption<T>,
}

impl<T> MaterialCell<T> {
    /// A cell whose Material has not arrived yet.
    pub fn new(key: Arc<str>) -> Self {
        Self { key, made: ArcSwapOption::empty() }
    }

    /// The current value; `None` if it is unknown or unusable.
    pub fn get(&self) -> Option<Arc<T>> {
        self.made.load_full()
    }

    /// Replaces the value. For the control thread, and for tests without one.
    pub fn store(&self, made: Option<Arc<T>>) {
        self.made.store(made);
    }
}

/// A number that is unique in this process, for connections made under one policy. 0 is never returned.
pub(crate) fn next_id() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}
