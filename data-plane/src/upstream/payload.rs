//! The body of a request as it is sent to endpoints: buffered completely first, as nginx does, or streamed.
//!
//! A buffered body has a known length and can be sent again. It is kept in memory if it fits its buffer, or if memory
//! is plentiful and the body has an ordinary size; otherwise in a file.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use shared::budget::Held;

use crate::codec::body::{Joining, Outlet, Pieces, RequestBody};
use crate::codec::error::{Kind, ProxyError};
use crate::codec::head::Framing;
use crate::local::Local;
use crate::local::pipes::bodies::BodyPipe;
use crate::local::quota::Share;
use crate::local::spill::{Spill, SpillFile};
use crate::local::timer::Timer;
use crate::table::Sizes;

mod piped;

/// Bytes of memory that a body has initially.
const AT_FIRST: usize = 16 * 1024;

/// Maximum bytes of a body in memory beyond its buffer: the default size limit of a request.
const ORDINARY: usize = 1024 * 1024;

/// Minimum bytes written to a file at a time.
const BATCH: usize = 64 * 1024;

/// The body of a request as it is sent on.
pub(crate) enum Payload<'b, B: ?Sized> {
    /// It is completely in memory, or its end is in a pipe.
    Whole {
        /// What is in memory.
        pieces: Pieces,
        /// What follows.
        rest: Option<Box<BodyPipe>>,
        /// The waiting client.
        client: &'b mut B,
        /// The memory budget that it holds.
        _memory: Option<Memory>,
    },
    /// It is completely in a file.
    Spilled {
        /// The body.
        file: Rc<SpillFile>,
        /// The waiting client.
        client: &'b mut B,
        /// The budget share of what its endpoint does not take.
        untaken: Option<Share>,
    },
    /// It is read while it is sent.
    Streamed {
        /// The source.
        client: &'b mut B,
        /// Bytes read so far.
        read: u64,
        sizes: Sizes,
        /// The budget share of what its endpoint does not take.
        untaken: Option<Share>,
    },
}

impl<'b, B: RequestBody> Payload<'b, B> {
    /// Reads a whole body, unless it is streamed, and returns its framing: a buffered body has a length. `may_pass`: it
    /// may be kept in a pipe, and not be separated from its client then.
    ///
    /// # Errors
    /// The client disconnects, stops sending, sends too much or too slowly, or breaks the framing; or there is no
    /// room.
    pub(crate) async fn prepare(
        body: &'b mut B,
        framing: Framing,
        sizes: Sizes,
        (pause, may_pass): (Duration, bool),
        local: &Local,
        timer: &Timer,
    ) -> Result<(Self, Framing), ProxyError> {
        if framing.is_empty() {
            return Ok((
                Self::Whole { pieces: Pieces::new(), rest: None, client: body, _memory: None },
                framing,
            ));
        }
        // As in nginx, a body that came together with its head is buffered in any case, and can be sent again.
        if !sizes.buffering && !body.has_arrived() {
            return Ok((Self::Streamed { client: body, read: 0, sizes, untaken: None }, framing));
        }
        // Boxed, so that requests without a body need no room for it.
        Box::pin(Self::read(body, framing, sizes, (pause, may_pass), local, timer)).await
    }

    /// Reads a whole body, into memory first.
    async fn read(
        body: &'b mut B,
        framing: Framing,
        sizes: Sizes,
        (pause, mut may_pass): (Duration, bool),
        local: &Local,
        timer: &Timer,
    ) -> Result<(Self, Framing), ProxyError> {
        let share = local.quota.open(sizes.buffer.min(AT_FIRST)).ok_or(Kind::NoRoom)?;
        let mut memory = Memory::of(share, framing, sizes.buffer);
        let mut pieces = Pieces::new();
        let mut joining = Joining::default();
        let mut reading =
            Reading { sizes, pause, waited: Duration::ZERO, read: 0, since: local.timers.now() };
        while memory.holds(reading.read, &local.spill) {
            if may_pass && piped::is_worth(body) {
                may_pass = false;
                if let Some(mut pipe) = piped::begin(&mut memory, reading.read, local) {
                    pieces.extend(joining.rest());
                    if piped::fill(&mut pipe, body, &mut reading, local, timer).await? {
                        let framing = Framing::Length(reading.read);
                        let rest = Some(pipe);
                        return Ok((
                            Self::Whole { pieces, rest, client: body, _memory: Some(memory) },
                            framing,
                        ));
                    }
                    piped::empty(*pipe, &mut pieces)?;
                    memory.shrink(reading.read);
                }
            }
            body.wants(memory.room(reading.read));
            let Some(piece) = reading.next(body, local, timer).await? else {
                pieces.extend(joining.rest());
                let framing = Framing::Length(reading.read);
                return Ok((
                    Self::Whole { pieces, rest: None, client: body, _memory: Some(memory) },
                    framing,
                ));
            };
            pieces.extend(joining.push(piece));
        }
        // Not joined from here on: pieces are written together without being contiguous.
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
        Ok((Self::Spilled { file: Rc::new(file), client: body, untaken: None }, framing))
    }

    /// A buffered body, separated from its client; `None` if it is streamed or in a pipe.
    pub(crate) fn detach(self) -> Option<Box<dyn RequestBody>> {
        let source = match self {
            Self::Whole { pieces, rest: None, _memory: memory, .. } => Source::Memory(pieces, memory),
            Self::Spilled { file, .. } => Source::File(file),
            Self::Whole { rest: Some(_), .. } | Self::Streamed { .. } => return None,
        };
        Some(Box::new(Kept { source, place: 0 }))
    }

    /// Appends at most so many bytes of a body that is completely in memory and no `longer`; `false`: it is not, or there is
    /// none.
    pub(crate) fn append_to(&self, out: &mut Vec<u8>, (most, longer): (usize, usize)) -> bool {
        let Self::Whole { pieces, rest: None, .. } = self else { return false };
        let length: usize = pieces.iter().map(Bytes::len).sum();
        if !(1..=longer).contains(&length) {
            return false;
        }
        let mut room = most.min(length);
        out.reserve_exact(room);
        for piece in pieces {
            let part = &piece[..room.min(piece.len())];
            out.extend_from_slice(part);
            room -= part.len();
        }
        true
    }

    /// Bytes that it holds in memory and on disk; `None` if it is streamed or in a pipe.
    pub(crate) fn held(&self) -> Option<(usize, usize)> {
        match self {
            Self::Whole { pieces, rest: None, .. } => Some((pieces.iter().map(Bytes::len).sum(), 0)),
            Self::Spilled { file, .. } => Some((0, usize::try_from(file.length()).unwrap_or(usize::MAX))),
            Self::Whole { rest: Some(_), .. } | Self::Streamed { .. } => None,
        }
    }

    /// The same body for another, possibly slower use; nothing is copied, and `share` is held for it. `None` if it is
    /// streamed or in a pipe.
    pub(crate) fn again(&self, share: Share) -> Option<Box<dyn RequestBody>> {
        let source = match self {
            Self::Whole { pieces, rest: None, .. } => {
                Source::Memory(pieces.clone(), Some(Memory::of_copy(share)))
            }
            Self::Spilled { file, .. } => Source::File(Rc::clone(file)),
            Self::Whole { rest: Some(_), .. } | Self::Streamed { .. } => return None,
        };
        Some(Box::new(Kept { source, place: 0 }))
    }

    /// Whether it is completely buffered, so that it can be sent again at any time.
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

    /// Ready when the client has disconnected; called after the end of the body.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.client().poll_gone(cx)
    }

    /// Whether the client is known to have disconnected; called after the end of the body.
    pub(crate) async fn is_gone(&mut self) -> bool {
        poll_fn(|cx| Poll::Ready(self.poll_gone(cx).is_ready())).await
    }

    /// From here on its client is watched without delay.
    pub(crate) fn watch(&mut self) {
        self.client().watch();
    }

    /// Where the response goes, if there may be no room for it.
    pub(crate) fn outlet(&mut self) -> Option<&mut dyn Outlet> {
        self.client().outlet()
    }

    fn client(&mut self) -> &mut B {
        match self {
            Self::Whole { client, .. } | Self::Spilled { client, .. } | Self::Streamed { client, .. } => {
                client
            }
        }
    }
}

impl<B: RequestBody + ?Sized> Payload<'_, B> {
    /// The piece at this index; `None` at the end.
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
            Self::Streamed { client, read, sizes, .. } => {
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

    /// A copy of what follows its pieces, to be sent to a socket. `None`: nothing does, or not any more, as there is no
    /// second pipe.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn rest(
        &mut self,
        local: &Local,
        is_socket: bool,
    ) -> Result<Option<Box<BodyPipe>>, ProxyError> {
        let Self::Whole { pieces, rest, .. } = self else { return Ok(None) };
        let Some(kept) = rest else { return Ok(None) };
        let copy = if is_socket { local.body_pipes.copy(kept) } else { None };
        if copy.is_none()
            && let Some(kept) = rest.take()
        {
            piped::empty(*kept, pieces)?;
        }
        Ok(copy)
    }

    /// Its endpoint does not take these bytes of it, which are charged, unless it is in memory as a whole: then it was
    /// charged when it arrived.
    ///
    /// # Errors
    /// There is no room for them.
    pub(super) fn waits(&mut self, local: &Local, bytes: usize) -> Result<(), ProxyError> {
        let (untaken, held) = match self {
            Self::Whole { .. } => return Ok(()),
            Self::Spilled { untaken, .. } => (untaken, bytes),
            Self::Streamed { client, untaken, .. } => (untaken, bytes + client.held()),
        };
        if local.quota.cover(untaken, held) { Ok(()) } else { Err(Kind::NoRoom.into()) }
    }

    /// Its endpoint has taken what was to be sent.
    pub(super) fn moves(&mut self) {
        if let Self::Spilled { untaken, .. } | Self::Streamed { untaken, .. } = self {
            *untaken = None;
        }
    }

    /// The state of one that is read while it is sent: what was read, how large it may be, and the budget share of what
    /// its endpoint does not take.
    pub(super) fn streamed(&mut self) -> Option<(u64, Sizes, Option<Share>)> {
        match self {
            Self::Streamed { read, sizes, untaken, .. } => Some((*read, *sizes, untaken.take())),
            _ => None,
        }
    }
}

/// The memory of a body. It is reserved while the body arrives: a large limit alone reserves nothing, and takes
/// nothing from others.
pub(crate) struct Memory {
    share: Share,
    /// Bytes that it is entitled to by `client-body-buffer-size`.
    own: usize,
    /// Bytes that it may use when memory is plentiful.
    most: usize,
    /// The budget for what would otherwise be in a file.
    spare: Option<Held>,
}

impl Memory {
    /// For a new body. One with a large declared length goes to a file as soon as it exceeds its buffer.
    fn of(share: Share, framing: Framing, own: usize) -> Self {
        let long = matches!(framing, Framing::Length(length) if length > ORDINARY as u64);
        Self { share, own, most: if long { own } else { own.max(ORDINARY) }, spare: None }
    }

    /// For a body that was already received.
    fn of_copy(share: Share) -> Self {
        Self { share, own: 0, most: 0, spare: None }
    }

    /// Its contents were moved to a file, and the rest follows: however slow its client is, it holds no more than one
    /// batch.
    fn is_in_file(&mut self) {
        self.share.shrink(BATCH);
        self.spare = None;
    }

    /// Returns what was reserved for more than this many bytes.
    fn shrink(&mut self, bytes: u64) {
        self.share.shrink(usize::try_from(bytes).map_or(usize::MAX, |bytes| bytes.max(AT_FIRST)));
        if let Some(spare) = &mut self.spare {
            // Less is always possible.
            let _ = spare.resize(spare.amount().min(self.share.amount().saturating_sub(self.own)));
        }
    }

    /// Bytes that may arrive before this is checked again. One byte more than there is room for shows whether there is
    /// more.
    fn room(&self, bytes: u64) -> usize {
        let room = (self.share.amount() as u64).saturating_sub(bytes);
        usize::try_from(room).map_or(usize::MAX, |room| room.max(1))
    }

    /// Whether this many bytes may be kept in memory. If not, they go to a file.
    fn holds(&mut self, bytes: u64, spill: &Spill) -> bool {
        while bytes > self.share.amount() as u64 {
            let has = self.share.amount();
            let end = if has < self.own { self.own } else { self.most };
            let more = has.max(AT_FIRST).min(end.saturating_sub(has));
            // Nothing is reserved ahead when little is left.
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

/// A buffered body, separated from its client.
struct Kept {
    source: Source,
    place: usize,
}

enum Source {
    /// With the memory budget that it holds.
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

    fn rewind(&mut self) -> bool {
        self.place = 0;
        true
    }
}

/// A body that is being buffered.
struct Reading {
    sizes: Sizes,
    /// Timeout for the next piece.
    pause: Duration,
    /// How much of that has passed.
    waited: Duration,
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
        let pause = self.pause.saturating_sub(std::mem::take(&mut self.waited));
        let piece = timer.limit(pause, poll_fn(|cx| body.poll_piece(cx))).await;
        let Some(piece) = piece.map_err(|_| Kind::ClientTimeout)?? else {
            return Ok(None);
        };
        self.arrived(piece.len(), local)?;
        Ok(Some(piece))
    }

    /// So many bytes were received.
    fn arrived(&mut self, bytes: usize, local: &Local) -> Result<(), ProxyError> {
        let limits = &local.limits;
        self.read += bytes as u64;
        if self.sizes.exceeded(self.read) {
            return Err(Kind::BodyTooLarge.into());
        }
        let took = local.timers.now().duration_since(self.since);
        if took >= limits.body_grace && self.read < limits.body_rate * took.as_secs() {
            return Err(Kind::ClientTimeout.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
