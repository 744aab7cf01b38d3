//! Reads a response from its endpoint, and puts it where there is room for it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;

use super::store::Store;
use crate::codec::body::Joining;
use crate::codec::error::{Kind, ProxyError};
use crate::http::reply::ReplyBody;
use crate::local::Local;
use crate::local::spill::{Spill, SpillFile};
use crate::local::timer::Timer;

/// Bytes that are written to a file at a time, unless the backend pauses before.
pub(super) const BATCH: usize = 64 * 1024;

/// The end of a response, once it is known.
type End = Option<Result<(), ProxyError>>;

/// Reads one response.
pub(super) struct Reader {
    body: ReplyBody,
    store: Rc<Store>,
    timer: Timer,
    /// Between two reads.
    timeout: Duration,
    spill: Spill,
    /// Maximum size of the file.
    most: u64,
    file: Option<SpillFile>,
    joining: Joining,
    /// What memory has no room for, and the file does not have yet.
    batch: VecDeque<Bytes>,
    /// The body may have more without reading: it was left there because the batch was full.
    has_more: bool,
}

impl Reader {
    /// A reader of this body, with a limit for its file, and for the time between two reads.
    pub(super) fn new(
        local: &Local,
        body: ReplyBody,
        store: Rc<Store>,
        (most, timeout): (u64, Duration),
    ) -> Self {
        Self {
            body,
            store,
            timer: local.timers.timer(),
            timeout,
            spill: local.spill.clone(),
            most,
            file: None,
            joining: Joining::default(),
            batch: VecDeque::new(),
            has_more: false,
        }
    }

    /// Reads what is there without waiting. Returns what reads the rest, if there is any.
    pub(super) fn begin(mut self) -> Option<impl Future<Output = ()>> {
        let mut end = self.take();
        if self.batch.is_empty()
            && let Some(end) = end.take()
        {
            self.store.finish(end, None);
            return None;
        }
        Some(self.run(end))
    }

    async fn run(mut self, mut end: End) {
        loop {
            if let Some(end) = end {
                self.flush().await;
                return self.store.finish(end, self.file);
            }
            end = match self.more().await {
                Ok(()) => self.take(),
                Err(error) => Some(Err(error)),
            };
        }
    }

    /// Takes what is there without waiting, up to a batch.
    fn take(&mut self) -> End {
        self.has_more = false;
        let end = loop {
            if self.batched() >= BATCH {
                self.has_more = true;
                break None;
            }
            match self.body.buffered() {
                Ok(Some(Some(piece))) => {
                    self.store.add(self.body.made_of(piece.len()));
                    let before = self.joining.push(piece);
                    self.keep(before);
                }
                Ok(Some(None)) => {
                    self.store.add(self.body.made_of(0));
                    break Some(Ok(()));
                }
                Ok(None) => break None,
                Err(error) => break Some(Err(error)),
            }
        };
        if end.is_some() {
            self.store.has_arrived();
        }
        let rest = self.joining.rest();
        self.keep(rest);
        end
    }

    fn keep(&mut self, piece: Option<Bytes>) {
        self.batch.extend(piece);
        self.settle();
    }

    /// Moves what was batched into memory, as far as that comes next and has room.
    fn settle(&mut self) {
        if !self.store.leave_file() {
            return;
        }
        self.file = None;
        while self.batch.pop_front_if(|piece| self.store.keep(piece)).is_some() {}
    }

    /// Reads more. What was batched is kept before anybody waits for the backend, which may have sent all of it.
    async fn more(&mut self) -> Result<(), ProxyError> {
        if self.has_more || self.batched() >= BATCH {
            self.flush().await;
        }
        if self.has_more {
            return Ok(());
        }
        self.body.wants(BATCH);
        if let Some(outcome) = self.body.more_at_once().await {
            return outcome;
        }
        self.flush().await;
        let Self { body, timer, timeout, .. } = self;
        let more = timer.limit(*timeout, poll_fn(|cx| body.poll_more(cx))).await;
        more.unwrap_or_else(|_| Err(Kind::ReadTimeout.into()))
    }

    /// Keeps what was batched: in the file, or in memory once the client has made room there.
    async fn flush(&mut self) {
        loop {
            let taken = self.store.taken();
            self.settle();
            if self.batch.is_empty() {
                return;
            }
            if !self.write().await {
                self.store.wait(taken).await;
            }
        }
    }

    /// Writes the batch to the file, if it may have a file of that size.
    async fn write(&mut self) -> bool {
        let batched = self.batched();
        let written = self.file.as_ref().map_or(0, SpillFile::length);
        if !self.spill.takes_responses() || written.saturating_add(batched as u64) > self.most {
            return false;
        }
        let Err(error) = self.append().await else {
            self.batch.clear();
            self.store.wrote(batched);
            return true;
        };
        self.spill.waits(&error);
        self.most = 0;
        false
    }

    async fn append(&mut self) -> std::io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let file = self.spill.file().await?;
                self.store.continue_in(file.reader());
                none.insert(file)
            }
        };
        file.append(self.batch.iter().cloned()).await
    }

    fn batched(&self) -> usize {
        self.batch.iter().map(Bytes::len).sum()
    }
}
