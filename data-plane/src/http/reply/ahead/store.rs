//! What was read of a response and not yet passed on.
//!
//! **Invariant:** nothing is put into memory while something in the file is unread, so that memory comes first.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;

use crate::codec::error::{Kind, ProxyError};
use crate::local::quota::{Quota, Share};
use crate::local::spill::{SpillFile, SpillReader};

/// Pieces between who reads them from the backend and who sends them to the client.
pub(super) struct Store {
    kept: RefCell<Kept>,
    /// When the last byte came.
    arrived: Rc<Cell<Option<Instant>>>,
}

struct Kept {
    memory: VecDeque<Bytes>,
    /// The bytes of these.
    held: usize,
    /// Of which this is charged to the budget.
    share: Share,
    /// Maximum number of bytes in memory.
    most: usize,
    file: Option<InFile>,
    /// Bytes from the endpoint that were not reported yet.
    came: usize,
    end: Option<Result<(), ProxyError>>,
    /// How often something was taken.
    taken: u64,
    /// Waits for something to take.
    taker: Option<Waker>,
    /// Waits until something was taken.
    giver: Option<Waker>,
}

/// A file, and how far it was read and written.
struct InFile {
    reader: SpillReader,
    read: u64,
    written: u64,
    /// The file itself, once nobody writes to it.
    whole: Option<SpillFile>,
}

impl Store {
    /// An empty one that keeps at most this much in memory.
    pub(super) fn new(quota: &Rc<Quota>, most: usize) -> Self {
        let kept = Kept {
            memory: VecDeque::new(),
            held: 0,
            share: quota.nothing(),
            most,
            file: None,
            came: 0,
            end: None,
            taken: 0,
            taker: None,
            giver: None,
        };
        Self { kept: RefCell::new(kept), arrived: Rc::default() }
    }

    /// Where the time is written at which the whole response was read.
    pub(super) fn arrived(&self) -> Rc<Cell<Option<Instant>>> {
        Rc::clone(&self.arrived)
    }

    /// Keeps a piece in memory; `false`: there is no room for it. An only one always has room: somebody has to have it.
    pub(super) fn keep(&self, piece: &Bytes) -> bool {
        let kept = &mut *self.kept.borrow_mut();
        let is_only = kept.memory.is_empty();
        let fits = kept.held + piece.len() <= kept.most && kept.share.grow(piece.len());
        if !fits && !is_only {
            return false;
        }
        kept.held += piece.len();
        kept.memory.push_back(piece.clone());
        kept.wake_taker();
        true
    }

    /// From here on what comes is in this file.
    pub(super) fn continue_in(&self, reader: SpillReader) {
        self.kept.borrow_mut().file = Some(InFile { reader, read: 0, written: 0, whole: None });
    }

    /// So many more bytes were written to it.
    pub(super) fn wrote(&self, bytes: usize) {
        let kept = &mut *self.kept.borrow_mut();
        if let Some(file) = &mut kept.file {
            file.written += bytes as u64;
        }
        kept.wake_taker();
    }

    /// Gives the file back, if there is nothing in it that is unread. Returns whether there is none.
    pub(super) fn leave_file(&self) -> bool {
        let file = &mut self.kept.borrow_mut().file;
        if file.as_ref().is_some_and(|file| file.read == file.written) {
            *file = None;
        }
        file.is_none()
    }

    /// Counts bytes that came from the endpoint.
    pub(super) fn add(&self, came: usize) {
        self.kept.borrow_mut().came += came;
    }

    /// Nothing more comes from the endpoint.
    pub(super) fn has_arrived(&self) {
        self.arrived.set(Some(shared::clock::now()));
    }

    /// Nothing more comes behind what is kept, of which this file has some.
    pub(super) fn finish(&self, end: Result<(), ProxyError>, whole: Option<SpillFile>) {
        let kept = &mut *self.kept.borrow_mut();
        kept.end = Some(end);
        if let Some(file) = &mut kept.file {
            file.whole = whole;
        }
        kept.wake_taker();
    }

    /// How often something was taken.
    pub(super) fn taken(&self) -> u64 {
        self.kept.borrow().taken
    }

    /// Waits until something was taken since then.
    pub(super) async fn wait(&self, taken: u64) {
        poll_fn(|cx| {
            let kept = &mut *self.kept.borrow_mut();
            if kept.taken != taken {
                return Poll::Ready(());
            }
            kept.giver = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// The next piece, or `Some(None)` at the end.
    ///
    /// # Errors
    /// The endpoint's response broke off behind what was taken, or the file cannot be read.
    pub(super) fn take(&self) -> Result<Option<Option<Bytes>>, ProxyError> {
        let kept = &mut *self.kept.borrow_mut();
        let Some(piece) = kept.next().map_err(|error| ProxyError::of(Kind::NoDisk, error))? else {
            return match kept.end.take_if(|end| end.is_err()) {
                Some(Err(error)) => Err(error),
                _ => Ok(kept.end.is_some().then_some(None)),
            };
        };
        kept.taken += 1;
        if let Some(giver) = kept.giver.take() {
            giver.wake();
        }
        Ok(Some(Some(piece)))
    }

    /// Ready when there is something to take, if only the end.
    pub(super) fn poll_arrived(&self, cx: &mut Context<'_>) -> Poll<()> {
        let kept = &mut *self.kept.borrow_mut();
        let is_in_file = kept.file.as_ref().is_some_and(|file| file.read < file.written);
        if !kept.memory.is_empty() || is_in_file || kept.end.is_some() {
            return Poll::Ready(());
        }
        kept.taker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Bytes from the endpoint since the last call.
    pub(super) fn came(&self) -> usize {
        std::mem::take(&mut self.kept.borrow_mut().came)
    }

    /// Bytes in memory that are not charged to the budget.
    pub(super) fn uncharged(&self) -> usize {
        let kept = self.kept.borrow();
        kept.held - kept.share.amount()
    }
}

impl Kept {
    fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        if let Some(piece) = self.memory.pop_front() {
            self.held -= piece.len();
            self.share.shrink(self.held);
            return Ok(Some(piece));
        }
        let Some(file) = &mut self.file else { return Ok(None) };
        let part = file.reader.part(file.read, file.written)?;
        file.read += part.as_ref().map_or(0, |part| part.len() as u64);
        if file.read == file.written {
            file.whole = None;
        }
        Ok(part)
    }

    fn wake_taker(&mut self) {
        if let Some(taker) = self.taker.take() {
            taker.wake();
        }
    }
}
