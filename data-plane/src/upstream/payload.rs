//! The body of a request as it is sent to endpoints: read to its end first, as nginx does, or streamed.
//!
//! A body that was read has a length and can be sent again. So much of it is kept in memory, the rest in a file.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::codec::body::{Joining, Pieces, RequestBody};
use crate::codec::error::{Kind, ProxyError};
use crate::codec::head::Framing;
use crate::local::Local;
use crate::local::quota::Share;
use crate::local::spill::SpillFile;
use crate::local::timer::Timer;
use crate::table::Sizes;

/// Bytes of memory that a body has before it says anything.
const AT_FIRST: usize = 16 * 1024;

/// Bytes that are written to a file at a time, at least.
const BATCH: usize = 32 * 1024;

/// The body of a request as it is sent on.
pub(crate) enum Payload<'b, B> {
    /// All of it is in memory.
    Whole {
        /// The body.
        pieces: Pieces,
        /// Who waits for the answer.
        client: &'b mut B,
        /// What the memory was taken from.
        _share: Option<Share>,
    },
    /// All of it is in a file.
    Spilled {
        /// The body.
        file: SpillFile,
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
            return Ok((Self::Whole { pieces: Pieces::new(), client: body, _share: None }, framing));
        }
        if !sizes.buffering {
            return Ok((Self::Streamed { client: body, read: 0, sizes }, framing));
        }
        let share = local.quota.open(sizes.buffer.min(AT_FIRST)).ok_or(Kind::NoRoom)?;
        let mut memory = Memory { share, most: sizes.buffer };
        let mut pieces = Pieces::new();
        let mut joining = Joining::default();
        let mut reading = Reading { sizes, pause, read: 0, since: local.timers.now() };
        while memory.holds(reading.read) {
            let Some(piece) = reading.next(body, local, timer).await? else {
                pieces.extend(joining.rest());
                let framing = Framing::Length(reading.read);
                return Ok((Self::Whole { pieces, client: body, _share: Some(memory.share) }, framing));
            };
            pieces.extend(joining.push(piece));
        }
        // No copies from here on: what is written together needs not lie together.
        pieces.extend(joining.rest());
        let no_room = |error| ProxyError::of(Kind::NoRoom, error);
        let mut file = local.spill.file().await.map_err(no_room)?;
        let mut held = usize::MAX;
        loop {
            if held >= BATCH {
                file.append(std::mem::take(&mut pieces)).await.map_err(no_room)?;
                held = 0;
            }
            let Some(piece) = reading.next(body, local, timer).await? else { break };
            held += piece.len();
            pieces.extend(joining.push(piece));
        }
        pieces.extend(joining.rest());
        file.append(pieces).await.map_err(no_room)?;
        let framing = Framing::Length(file.length());
        Ok((Self::Spilled { file, client: body }, framing))
    }

    /// A body that was read, apart from its client; `None` for one that is streamed.
    pub(crate) fn detach(self) -> Option<Box<dyn RequestBody>> {
        let source = match self {
            Self::Whole { pieces, _share: share, .. } => Source::Memory(pieces, share),
            Self::Spilled { file, .. } => Source::File(file),
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
        match self {
            Self::Whole { client, .. } | Self::Spilled { client, .. } | Self::Streamed { client, .. } => {
                client.poll_gone(cx)
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
                Poll::Ready(file.part(place).map_err(|error| ProxyError::of(Kind::NoRoom, error)))
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
struct Memory {
    share: Share,
    most: usize,
}

impl Memory {
    /// Whether so many bytes may be kept here. If not, they go to a file.
    fn holds(&mut self, bytes: u64) -> bool {
        while bytes > self.share.amount() as u64 {
            let more = self.share.amount().max(AT_FIRST).min(self.most - self.share.amount());
            if more == 0 || !self.share.grow(more) {
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
    /// With what the memory was taken from.
    Memory(Pieces, #[expect(dead_code, reason = "held until the body is sent")] Option<Share>),
    File(SpillFile),
}

impl RequestBody for Kept {
    fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ProxyError>> {
        let piece = match &self.source {
            Source::Memory(pieces, _) => Ok(pieces.get(self.place).cloned()),
            Source::File(file) => file.part(self.place).map_err(|error| ProxyError::of(Kind::NoRoom, error)),
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
mod tests {
    use std::rc::Rc;
    use std::time::Duration;

    use super::*;
    use crate::codec::body::JOINED;

    /// Gives its pieces, then the end or an error; so much time passes before each.
    struct Script {
        pieces: Vec<Vec<u8>>,
        end: Option<Kind>,
        pause: Duration,
        local: Rc<Local>,
    }

    impl Script {
        fn new(pieces: &[&[u8]], end: Option<Kind>) -> Self {
            let pieces = pieces.iter().map(|piece| piece.to_vec()).collect();
            Self { pieces, end, pause: Duration::ZERO, local: Rc::new(Local::for_tests()) }
        }
    }

    impl RequestBody for Script {
        fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ProxyError>> {
            if !self.pieces.is_empty() {
                let timers = &self.local.timers;
                timers.tick(timers.now() + self.pause);
                return Poll::Ready(Ok(Some(self.pieces.remove(0).into())));
            }
            Poll::Ready(self.end.map_or(Ok(None), |kind| Err(kind.into())))
        }

        fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }
    }

    async fn prepare(
        script: &mut Script,
        framing: Framing,
        sizes: Sizes,
    ) -> Result<(Payload<'_, Script>, Framing), ProxyError> {
        let local = Rc::clone(&script.local);
        let timer = local.timers.timer();
        Payload::prepare(script, framing, sizes, Duration::from_secs(60), &local, &timer).await
    }

    fn all(payload: &mut Payload<'_, Script>) -> Vec<u8> {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut seen = Vec::new();
        for place in 0.. {
            match payload.poll_piece(place, &mut cx) {
                Poll::Ready(Ok(Some(piece))) => seen.extend_from_slice(&piece),
                Poll::Ready(Ok(None)) => break,
                Poll::Ready(Err(error)) => panic!("{error}"),
                Poll::Pending => panic!("it waits"),
            }
        }
        seen
    }

    #[tokio::test]
    async fn what_is_read_to_its_end_has_a_length_and_can_be_sent_again() {
        for buffer in [6, 5, 0] {
            for framing in [Framing::Length(6), Framing::Chunked] {
                let mut script = Script::new(&[b"abc", b"def"], None);
                let sizes = Sizes { buffer, ..Sizes::default() };
                let (mut payload, framing) = prepare(&mut script, framing, sizes).await.unwrap();
                assert_eq!(framing, Framing::Length(6));
                assert_eq!(matches!(payload, Payload::Spilled { .. }), buffer < 6);
                for _ in 0..2 {
                    assert_eq!(all(&mut payload), b"abcdef");
                    assert!(payload.is_replayable() && payload.is_kept());
                }
            }
        }
    }

    #[tokio::test]
    async fn a_large_one_stands_in_a_file_and_not_in_memory() {
        let body: Vec<u8> = (0..700_001_u32).map(|n| (n % 251) as u8).collect();
        let pieces: Vec<&[u8]> = body.chunks(9_973).collect();
        let mut script = Script::new(&pieces, None);
        let local = Rc::clone(&script.local);
        let (mut payload, framing) = prepare(&mut script, Framing::Chunked, Sizes::default()).await.unwrap();
        assert_eq!((framing, local.spill.used()), (Framing::Length(700_001), 700_001));
        assert!(all(&mut payload) == body && all(&mut payload) == body);
        drop(payload);
        assert_eq!(local.spill.used(), 0);
    }

    #[tokio::test]
    async fn a_streamed_one_cannot_be_sent_again_once_begun() {
        let mut script = Script::new(&[b"abcd", b"efgh"], None);
        let sizes = Sizes { buffering: false, ..Sizes::default() };
        let (mut payload, framing) = prepare(&mut script, Framing::Chunked, sizes).await.unwrap();
        assert_eq!((framing, payload.is_replayable(), payload.is_kept()), (Framing::Chunked, true, false));
        assert_eq!(all(&mut payload), b"abcdefgh");
        assert!(!payload.is_replayable());
    }

    #[tokio::test]
    async fn what_is_too_long_is_not_read_on() {
        for (body, buffering, refused) in
            [(7, true, true), (8, true, false), (0, true, false), (7, false, true)]
        {
            let mut script = Script::new(&[b"abcd", b"efgh"], None);
            let sizes = Sizes { body, buffer: 5, buffering, ..Sizes::default() };
            let outcome = match prepare(&mut script, Framing::Chunked, sizes).await {
                Ok((mut payload, _)) => {
                    let mut cx = Context::from_waker(std::task::Waker::noop());
                    let mut pieces = (0..3).map(|place| payload.poll_piece(place, &mut cx));
                    pieces.find_map(|piece| match piece {
                        Poll::Ready(Err(error)) => Some(error.kind),
                        _ => None,
                    })
                }
                Err(error) => Some(error.kind),
            };
            assert_eq!(outcome, refused.then_some(Kind::BodyTooLarge), "{body} {buffering}");
        }
    }

    #[tokio::test]
    async fn one_byte_each_25_seconds_is_too_slow_and_240_a_second_are_not() {
        for (size, pause, cut) in
            [(1, 25, true), (240 * 25, 25, false), (240 * 25 - 25, 25, true), (1, 1, true)]
        {
            let pieces = vec![vec![b'x'; size]; 40];
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let mut script = Script::new(&pieces, None);
            script.pause = Duration::from_secs(pause);
            let outcome = prepare(&mut script, Framing::Chunked, Sizes::default()).await;
            let kind = outcome.err().map(|error| error.kind);
            assert_eq!(kind, cut.then_some(Kind::ClientTimeout), "{size} bytes each {pause} s");
        }
    }

    #[tokio::test]
    async fn tiny_pieces_are_kept_together() {
        let pieces = vec![&b"ab"[..]; 5_000];
        let mut script = Script::new(&pieces, None);
        let (payload, _) = prepare(&mut script, Framing::Chunked, Sizes::default()).await.unwrap();
        let Payload::Whole { pieces, .. } = &payload else { panic!("it fits") };
        assert!(pieces.len() <= 2 * 10_000 / JOINED + 1, "{}", pieces.len());
    }

    #[tokio::test]
    async fn a_client_that_goes_is_an_error() {
        let mut script = Script::new(&[b"a"], Some(Kind::ClientGone));
        let outcome = prepare(&mut script, Framing::Chunked, Sizes::default()).await;
        assert_eq!(outcome.err().unwrap().kind, Kind::ClientGone);
    }
}
