//! An allocator that counts what it is asked for, on all threads but those that stand aside.

#![allow(unsafe_code, reason = "an allocator is; it is of tests alone")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

static BLOCKS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Counting;

thread_local! {
    // Without a destructor, and known at compile time: asking for it allocates nothing.
    static ASIDE: Cell<bool> = const { Cell::new(false) };
}

fn count(bytes: usize) {
    if !ASIDE.get() {
        BLOCKS.fetch_add(1, SeqCst);
        BYTES.fetch_add(bytes as u64, SeqCst);
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
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

/// What this thread asks for is not counted from here on.
pub(crate) fn stand_aside() {
    ASIDE.set(true);
}

/// Blocks and bytes so far.
pub(crate) fn so_far() -> (u64, u64) {
    (BLOCKS.load(SeqCst), BYTES.load(SeqCst))
}
