//! Flow control: how much a peer takes, and how much it may send (RFC 9113 section 6.9).

use super::{FIRST_WINDOW, Reason};

/// The largest window.
const MOST: i64 = (1 << 31) - 1;

/// The smallest step by which the window of a connection is opened, in bytes.
const STEP: i64 = 1024;

/// How much the peer takes. It may be negative, after the peer has made its windows smaller.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendWindow(i64);

impl SendWindow {
    pub(super) fn new(size: u32) -> Self {
        Self(i64::from(size))
    }

    /// What may be sent now.
    pub(super) fn size(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    /// Changes it by what the peer has said.
    pub(super) fn change(&mut self, by: i64) -> Result<(), Reason> {
        self.0 += by;
        if self.0 > MOST { Err(Reason::FLOW_CONTROL_ERROR) } else { Ok(()) }
    }

    /// Sends so much.
    pub(super) fn take(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.size(), "nobody sends more than that");
        self.0 -= bytes as i64;
    }
}

/// How much the peer may send.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecvWindow {
    /// What it may be ahead.
    size: i64,
    /// What it may still send.
    left: i64,
    /// What came and is not released.
    held: i64,
    /// The peer learns of no less than this at a time.
    step: i64,
    /// Whether others may need what is left when most of it is held for long: then it is less.
    is_shared: bool,
}

impl RecvWindow {
    /// That of a stream: whoever reads it reads what is held, too.
    pub(super) fn of_stream(size: u32) -> Self {
        // A client that has not read our settings yet sends no more than it may without.
        Self::new(size.max(FIRST_WINDOW), size, false)
    }

    /// That of a connection, of which the peer knows the size of every first one.
    pub(super) fn of_connection(size: u32) -> Self {
        Self::new(FIRST_WINDOW, size, true)
    }

    fn new(known: u32, size: u32, is_shared: bool) -> Self {
        let (left, size) = (i64::from(known), i64::from(size));
        Self { size, left, held: 0, step: size / 2, is_shared }
    }

    /// Takes in what came.
    pub(super) fn receive(&mut self, bytes: usize) -> Result<(), Reason> {
        if bytes as i64 > self.left {
            return Err(Reason::FLOW_CONTROL_ERROR);
        }
        self.left -= bytes as i64;
        self.held += bytes as i64;
        Ok(())
    }

    /// That much is not held any more.
    pub(super) fn release(&mut self, bytes: usize) {
        debug_assert!(bytes as i64 <= self.held, "only what came");
        self.held -= bytes as i64;
    }

    /// What came and is not released.
    pub(super) fn held(&self) -> usize {
        usize::try_from(self.held).unwrap_or(0)
    }

    /// Has another size from now on. What the peer was told stays.
    pub(super) fn resize(&mut self, size: u32) {
        self.size = i64::from(size);
    }

    /// Whether the peer is to be told that the window is larger: not for every byte.
    pub(super) fn is_due(&self) -> bool {
        let ahead = self.size - self.held;
        let least = if self.is_shared { self.step.min(ahead / 2).max(STEP) } else { self.step };
        ahead - self.left >= least
    }

    /// By how much it is larger, if the peer is to be told.
    pub(super) fn growth(&mut self) -> Option<u32> {
        if !self.is_due() {
            return None;
        }
        let by = self.size - self.held - self.left;
        self.left += by;
        u32::try_from(by).ok()
    }
}
