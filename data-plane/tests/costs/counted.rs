//! A counting allocator: counts allocations and frees of all threads except those that opt out, and the bytes that all
//! of them hold.

#![allow(unsafe_code, reason = "an allocator is; it is of tests alone")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

static BLOCKS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static FREES: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicI64 = AtomicI64::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Counting;

thread_local! {
    // Without a destructor, and const-initialised: accessing it allocates nothing.
    static ASIDE: Cell<bool> = const { Cell::new(false) };
}

fn count(bytes: usize) {
    LIVE.fetch_add(bytes as i64, SeqCst);
    if !ASIDE.get() {
        BLOCKS.fetch_add(1, SeqCst);
        BYTES.fetch_add(bytes as u64, SeqCst);
    }
}

fn count_free(bytes: usize) {
    LIVE.fetch_sub(bytes as i64, SeqCst);
    if !ASIDE.get() {
        FREES.fetch_add(1, SeqCst);
    }
}

// SAFETY: memory is the system's, given and taken back as the system's allocator wants it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        count_free(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count_free(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Allocations and frees of this thread are not counted from here on.
pub(crate) fn stand_aside() {
    ASIDE.set(true);
}

/// Total allocations and frees so far, and the bytes currently held by all threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Allocated {
    pub(crate) blocks: u64,
    pub(crate) bytes: u64,
    pub(crate) frees: u64,
    pub(crate) live: i64,
}

/// The current counts.
pub(crate) fn so_far() -> Allocated {
    let [blocks, bytes, frees] = [&BLOCKS, &BYTES, &FREES].map(|count| count.load(SeqCst));
    Allocated { blocks, bytes, frees, live: LIVE.load(SeqCst) }
}

impl Allocated {
    pub(crate) fn to_bytes(self) -> [[u8; 8]; 4] {
        let Self { blocks, bytes, frees, live } = self;
        [blocks.to_ne_bytes(), bytes.to_ne_bytes(), frees.to_ne_bytes(), live.to_ne_bytes()]
    }

    pub(crate) fn from_bytes([blocks, bytes, frees, live]: [[u8; 8]; 4]) -> Self {
        let [blocks, bytes, frees] = [blocks, bytes, frees].map(u64::from_ne_bytes);
        Self { blocks, bytes, frees, live: i64::from_ne_bytes(live) }
    }
}
