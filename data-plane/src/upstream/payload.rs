//! The body of a request as it is sent to endpoints: read to its end first, as nginx does, or streamed.
//!
//! A body that was read has a length and can be sent again. What fits in its buffer is kept in memory; what does not, is kept
//! there too while there is plenty of it and the body has an ordinary size, else in a file.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use shared::budget::Held;

use crate::codec::body::{Joining, Pieces, RequestBody};
use crate::codec::error::{Kind, ProxyError};
use crate::codec::head::Framing;
use crate::local::Local;
use crate::local::quota::Share;
use crate::local::spill::{Spill, SpillFile};
use crate::local::timer::Timer;
use crate::table::Sizes;

/// Bytes of memory that a body has before it says anything.
const AT_FIRST: usize = 16 * 1024;

/// Bytes of a body that may stand in memory beyond its buffer: as many as a request may have where nobody says more.
const ORDINARY: usize = 1024 * 1024;

/// Bytes that are written to a file at a time, at least.
const BATCH: usize = 64 * 1024;

/// The body of a request as it is sent on.
pub(crate) enum Payload<'b, B> {
    /// All of it is in memory.
    Whole {
        /// The body.
        pieces: Pieces,
        /// Who waits for the answer.
        client: &'b mut B,
        /// What it stands in.
        _memory: Option<Memory>,
    },
    /// All of it is in a file.
    Spilled {
        /// The body.
        file: Rc<SpillFile>,
        /// Who waits for the answer.
        client: &'b mut B,
    },
    /// It is read while it is sent.
    Streamed {
        /// Where it comes from.
        client: &'b mut B,
        /// Bytes so far.
        read: u64,
        sizes: Sizes,
    },
}

impl<'b, B: RequestBody> Payload<'b, B> {
    /// Reads a body to its end, unless it is streamed, and says how it is to be framed: what was read has a length.
    ///
    /// # Errors
    /// When the client goes, stops sending, sends too much or too slowly, or breaks the framing; when there is no room.
    pub(crate) async fn prepare(
        body: &'b mut B,
        framing: Framing,
        sizes: Sizes,
        pause: Duration,
        local: &Local,
        timer: &Timer,
    ) -> Result<(Self, Framing), ProxyError> {
        if framing.is_empty() {
            return Ok((Self::Whole { pieces: Pieces::new(), client: body, _memory: None }, framing));
        }
        if !sizes.buffering {
            return Ok((Self::Streamed { client: body, read: 0, sizes }, framing));
        }
        // Boxed, so that a request without a body has no room for one.
        Box::pin(Self::read(body, framing, sizes, pause, local, timer)).await
    }

    /// Reads a body to its end, into memory first.
    async fn read(
        body: &'b mut B,
        framing: Framing,
        sizes: Sizes,
        pause: Duration,
        local: &Local,
        timer: &Timer,
    ) -> Result<(Self, Framing), ProxyError> {
        let share = local.quota.open(sizes.buffer.min(AT_FIRST)).ok_or(Kind::NoRoom)?;
        let mut memory = Memory::of(share, framing, sizes.buffer);
        let mut pieces = Pieces::new();
        let mut joining = Joining::default();
        let mut reading = Reading { sizes, pause, read: 0, since: local.timers.now() };
        while memory.holds(reading.read, &local.spill) {
            body.wants(memory.room(reading.read));
            let Some(piece) = reading.next(body, local, timer).await? else {
                pieces.extend(joining.rest());
                let framing = Framing::Length(reading.read);
                return Ok((Self::Whole { pieces, client: body, _memory: Some(memory) }, framing));
            };
            pieces.extend(joining.push(piece));
        }
        // No copies from here on: what is written together needs not lie together.
        pieces.extend(joining.rest());
        let no_disk = |error| local.spill.failed(error);
        let mut file = local.spill.file().await.map_err(no_disk)?;
        let mut held = usize::MAX;
        loop {
            if held >= BATCH {
                pieces.extend(joining.rest());
                file.append(std::mem::take(&mut pieces)).await.map_err(no_disk)?;
                memory.is_in_file();
                held = 0;
            }
            body.wants(BATCH - held);
            let Some(piece) = reading.next(body, local, timer).await? else { break };
            held += piece.len();
            pieces.extend(joining.push(piece));
        }
        pieces.extend(joining.rest());
        file.append(pieces).await.map_err(no_disk)?;
        let framing = Framing::Length(file.length());
        Ok((Self::Spilled { file: Rc::new(file), client: body }, framing))
    }

    /// A body that was read, apart from its client; `None` for one that is streamed.
    pub(crate) fn detach(self) -> Option<Box<dyn RequestBody>> {
        let source = match self {
            Self::Whole { pieces, _memory: memory, .. } => Source::Memory(pieces, memory),
            Self::Spilled { file, .. } => Source::File(file),
            Self::Streamed { .. } => return None,
        };
        Some(Box::new(Kept { source, place: 0 }))
    }

    /// Bytes that are held of it in memory and on disk; `None` for one that is streamed.
    pub(crate) fn held(&self) -> Option<(usize, usize)> {
        match self {
            Self::Whole { pieces, .. } => Some((pieces.iter().map(Bytes::len).sum(), 0)),
            Self::Spilled { file, .. } => Some((0, usize::try_from(file.length()).unwrap_or(usize::MAX))),
            Self::Streamed { .. } => None,
        }
    }

    /// The same body for somebody else, who may take longer; nothing of it is copied, and `share` is held for it.
    /// `None` for one that is streamed.
    pub(crate) fn again(&self, share: Share) -> Option<Box<dyn RequestBody>> {
        let source = match self {
            Self::Whole { pieces, .. } => Source::Memory(pieces.clone(), Some(Memory::of_copy(share))),
            Self::Spilled { file, .. } => Source::File(Rc::clone(file)),
            Self::Streamed { .. } => return None,
        };
        Some(Box::new(Kept { source, place: 0 }))
    }

    /// Whether all of it is here, so that it can be sent again whatever became of it before.
    pub(crate) fn is_kept(&self) -> bool {
        !matches!(self, Self::Streamed { .. })
    }

    /// Whether the body can be sent from its beginning.
    pub(crate) fn is_replayable(&self) -> bool {
        match self {
            Self::Whole { .. } | Self::Spilled { .. } => true,
            Self::Streamed { read, .. } => *read == 0,
        }
    }

    /// Ready when the client has gone; asked after the end of the body.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.client().poll_gone(cx)
    }

    /// Whether the client is known to have gone; asked after the end of the body.
    pub(crate) async fn is_gone(&mut self) -> bool {
        poll_fn(|cx| Poll::Ready(self.poll_gone(cx).is_ready())).await
    }

    /// Ready when the client takes answers.
    pub(crate) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.client().poll_room(cx)
    }

    fn client(&mut self) -> &mut B {
        match self {
            Self::Whole { client, .. } | Self::Spilled { client, .. } | Self::Streamed { client, .. } => {
                client
            }
        }
    }

    /// The piece at a place; `None` at the end.
    pub(crate) fn poll_piece(
        &mut self,
        place: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, ProxyError>> {
        match self {
            Self::Whole { pieces, .. } => Poll::Ready(Ok(pieces.get(place).cloned())),
            Self::Spilled { file, .. } => {
                Poll::Ready(file.part(place).map_err(|error| ProxyError::of(Kind::NoDisk, error)))
            }
            Self::Streamed { client, read, sizes } => {
                let next = client.poll_piece(cx);
                if let Poll::Ready(Ok(Some(piece))) = &next {
                    *read += piece.len() as u64;
                    if sizes.exceeded(*read) {
                        return Poll::Ready(Err(Kind::BodyTooLarge.into()));
                    }
                }
                next
            }
        }
    }
}

/// The memory of a body. It is claimed while the body comes: who says that it may have much has none of it before, and
/// takes it from nobody.
pub(crate) struct Memory {
    share: Share,
    /// Bytes that are its own by `client-body-buffer-size`.
    own: usize,
    /// Bytes that it may have where there is plenty.
    most: usize,
    /// What stands in for a file.
    spare: Option<Held>,
}

impl Memory {
    /// Of a body that begins. One that is said to be long goes to its file as soon as it leaves its buffer.
    fn of(share: Share, framing: Framing, own: usize) -> Self {
        let long = matches!(framing, Framing::Length(length) if length > ORDINARY as u64);
        Self { share, own, most: if long { own } else { own.max(ORDINARY) }, spare: None }
    }

    /// Of a body that is here already.
    fn of_copy(share: Share) -> Self {
        Self { share, own: 0, most: 0, spare: None }
    }

    /// What stood here stands in a file now, and what comes is on its way there: however slow its client is, it holds no
    /// more than that.
    fn is_in_file(&mut self) {
        self.share.shrink(BATCH);
        self.spare = None;
    }

    /// How much may come before that is asked again. One byte more than there is room for says whether there is more.
    fn room(&self, bytes: u64) -> usize {
        let room = (self.share.amount() as u64).saturating_sub(bytes);
        usize::try_from(room).map_or(usize::MAX, |room| room.max(1))
    }

    /// Whether so many bytes may be kept here. If not, they go to a file.
    fn holds(&mut self, bytes: u64, spill: &Spill) -> bool {
        while bytes > self.share.amount() as u64 {
            let has = self.share.amount();
            let end = if has < self.own { self.own } else { self.most };
            let more = has.max(AT_FIRST).min(end.saturating_sub(has));
            // Ahead of its use nothing is held where little is left.
            if more == 0
                || (has >= self.own && !spill.stretch(&mut self.spare, more))
                || !self.share.grow(more)
            {
                return false;
            }
        }
        true
    }
}

/// A body that was read to its end, apart from its client.
struct Kept {
    source: Source,
    place: usize,
}

enum Source {
    /// With what it stands in.
    Memory(Pieces, #[expect(dead_code, reason = "held until the body is sent")] Option<Memory>),
    File(Rc<SpillFile>),
}

impl RequestBody for Kept {
    fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ProxyError>> {
        let piece = match &self.source {
            Source::Memory(pieces, _) => Ok(pieces.get(self.place).cloned()),
            Source::File(file) => file.part(self.place).map_err(|error| ProxyError::of(Kind::NoDisk, error)),
        };
        self.place += 1;
        Poll::Ready(piece)
    }

    fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

/// A body that is read to its end.
struct Reading {
    sizes: Sizes,
    /// The longest wait for the next piece.
    pause: Duration,
    read: u64,
    since: Instant,
}

impl Reading {
    /// The next piece, if the client has kept to the limits so far.
    async fn next<B: RequestBody>(
        &mut self,
        body: &mut B,
        local: &Local,
        timer: &Timer,
    ) -> Result<Option<Bytes>, ProxyError> {
        let limits = &local.limits;
        let piece = timer.limit(self.pause, poll_fn(|cx| body.poll_piece(cx))).await;
        let Some(piece) = piece.map_err(|_| Kind::ClientTimeout)?? else {
            return Ok(None);
        };
        self.read += piece.len() as u64;
        if self.sizes.exceeded(self.read) {
            return Err(Kind::BodyTooLarge.into());
        }
        let took = local.timers.now().duration_since(self.since);
        if took >= limits.body_grace && self.read < limits.body_rate * took.as_secs() {
            return Err(Kind::ClientTimeout.into());
        }
        Ok(Some(piece))
    }
}

#[cfg(test)]
mod tests;
