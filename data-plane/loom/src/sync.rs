//! loom's replacement for `table/sync.rs`.

pub(crate) use loom::sync::{Arc, Mutex};
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};

/// A pointer that is swapped atomically. loom has no reference-counted pointers: a lock around one is equivalent.
#[derive(Debug, Default)]
pub(crate) struct ArcSwap<T> {
    current: Mutex<Arc<T>>,
}

impl<T> ArcSwap<T> {
    pub(crate) fn load_full(&self) -> Arc<T> {
        Arc::clone(&self.current.lock().unwrap())
    }

    pub(crate) fn swap(&self, new: Arc<T>) -> Arc<T> {
        std::mem::replace(&mut *self.current.lock().unwrap(), new)
    }
}

/// Caches what it loaded last, and drops it when there is something newer.
#[derive(Debug)]
pub(crate) struct Cache<A, T> {
    shared: A,
    cached: T,
}

impl<T> Cache<Arc<ArcSwap<T>>, Arc<T>> {
    pub(crate) fn new(shared: Arc<ArcSwap<T>>) -> Self {
        let cached = shared.load_full();
        Self { shared, cached }
    }

    pub(crate) fn load(&mut self) -> &Arc<T> {
        self.cached = self.shared.load_full();
        &self.cached
    }
}
