//! An allocator that checks freed memory for a secret.

#![allow(unsafe_code, reason = "an allocator is; it is of tests alone")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::SeqCst};

/// Bytes of a secret that are searched for.
const MARK: usize = 32;

static WATCHED: [AtomicU8; MARK] = [const { AtomicU8::new(0) }; MARK];
static WATCHING: AtomicBool = AtomicBool::new(false);
static FOUND: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Watching = Watching;

struct Watching;

// SAFETY: memory is the system's, given and taken back as the system's allocator wants it.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are passed on. Zeroed, so that all of it may be read when it is freed.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if WATCHING.load(SeqCst) {
            // SAFETY: the block is whole and the caller's until now, and nobody else has it.
            let bytes = unsafe { slice::from_raw_parts(block, layout.size()) };
            let is_mark = |at: &[u8]| at.iter().zip(&WATCHED).all(|(byte, mark)| *byte == mark.load(SeqCst));
            if bytes.windows(MARK).any(is_mark) {
                FOUND.fetch_add(1, SeqCst);
            }
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Number of blocks freed by `what` with a part of a secret in them. One test at a time: the allocator is global.
pub(crate) fn with_secret(secret: &[u8], what: impl FnOnce()) -> usize {
    // Neither its beginning, which all keys of a kind have, nor its end.
    let part = &secret[secret.len() / 4..][..MARK];
    for (mark, byte) in WATCHED.iter().zip(part) {
        mark.store(*byte, SeqCst);
    }
    FOUND.store(0, SeqCst);
    WATCHING.store(true, SeqCst);
    what();
    WATCHING.store(false, SeqCst);
    FOUND.load(SeqCst)
}
