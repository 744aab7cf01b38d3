//! The body of a request as it is sent to endpoints: read ahead as far as it is kept, then streamed.

use std::future::poll_fn;
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::codec::body::{Joining, Pieces, RequestBody};
use crate::codec::error::{Kind, ProxyError};
use crate::codec::head::Framing;
use crate::local::limits::Limits;
use crate::local::timer::Timer;

/// The body of a request as it is sent on.
pub(crate) enum Payload<'b, B> {
    /// All of it is here, so it can be sent again.
    Whole {
        /// The body.
        pieces: Pieces,
        /// Who waits for the answer.
        client: &'b mut B,
    },
    /// It is larger, or of unknown length: the rest is read while it is sent.
    Streamed {
        /// What was read already.
        first: Pieces,
        /// Where the rest comes from.
        rest: &'b mut B,
        /// Whether something of it is gone, so that it cannot be sent again.
        begun: bool,
    },
}

impl<'b, B: RequestBody> Payload<'b, B> {
    /// Reads a body as far as it is kept for being sent again, and says how it is to be framed: with its length where
    /// that is known by then.
    ///
    /// # Errors
    /// When the client goes, stops sending, or breaks the framing.
    pub(crate) async fn prepare(
        body: &'b mut B,
        framing: Framing,
        limits: &Limits,
        timer: &Timer,
    ) -> Result<(Self, Framing), ProxyError> {
        let mut first = Pieces::new();
        match framing {
            framing if framing.is_empty() => return Ok((Self::whole(first, body), framing)),
            Framing::Length(length) if length > limits.replayable_body as u64 => {
                return Ok((Self::streamed(first, body), framing));
            }
            _ => {}
        }
        let mut read = 0;
        let mut joining = Joining::default();
        while read <= limits.replayable_body {
            let piece = timer
                .limit(limits.client_body, poll_fn(|cx| body.poll_piece(cx)))
                .await
                .map_err(|_| Kind::ClientTimeout)??;
            let Some(piece) = piece else {
                first.extend(joining.rest());
                return Ok((Self::whole(first, body), Framing::Length(read as u64)));
            };
            read += piece.len();
            first.extend(joining.push(piece));
        }
        first.extend(joining.rest());
        Ok((Self::streamed(first, body), framing))
    }

    fn whole(pieces: Pieces, client: &'b mut B) -> Self {
        Self::Whole { pieces, client }
    }

    fn streamed(first: Pieces, rest: &'b mut B) -> Self {
        Self::Streamed { first, rest, begun: false }
    }

    /// Whether the body can be sent from its beginning.
    pub(crate) fn is_replayable(&self) -> bool {
        match self {
            Self::Whole { .. } => true,
            Self::Streamed { begun, .. } => !begun,
        }
    }

    /// Ready when the client has gone; asked after the end of the body.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Whole { client, .. } => client.poll_gone(cx),
            Self::Streamed { rest, .. } => rest.poll_gone(cx),
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
            Self::Streamed { first, .. } if place < first.len() => {
                Poll::Ready(Ok(Some(first[place].clone())))
            }
            Self::Streamed { first, rest, begun } => {
                let next = rest.poll_piece(cx);
                if matches!(next, Poll::Ready(Ok(Some(_)))) {
                    // What was kept is of no use without this piece. Places behind it stay behind it.
                    if !std::mem::replace(begun, true) {
                        *first = Pieces::new();
                    }
                }
                next
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::codec::body::JOINED;
    use crate::local::timer::Timers;

    /// Gives its pieces, then the end or an error.
    struct Script(Vec<&'static [u8]>, Option<Kind>);

    impl RequestBody for Script {
        fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ProxyError>> {
            if !self.0.is_empty() {
                return Poll::Ready(Ok(Some(Bytes::from_static(self.0.remove(0)))));
            }
            Poll::Ready(self.1.map_or(Ok(None), |kind| Err(kind.into())))
        }

        fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }
    }

    fn limits() -> Limits {
        Limits { replayable_body: 6, client_body: Duration::from_secs(1), ..Limits::default() }
    }

    async fn prepare(
        script: &mut Script,
        framing: Framing,
    ) -> Result<(Payload<'_, Script>, Framing), ProxyError> {
        let timers = Timers::new(shared::clock::now());
        Payload::prepare(script, framing, &limits(), &timers.timer()).await
    }

    #[tokio::test]
    async fn a_small_body_is_read_whole_and_gets_a_length() {
        for framing in [Framing::Length(6), Framing::Chunked] {
            let mut script = Script(vec![b"abc", b"def"], None);
            let (mut payload, framing) = prepare(&mut script, framing).await.unwrap();
            assert_eq!(framing, Framing::Length(6));
            let mut cx = Context::from_waker(std::task::Waker::noop());
            for _ in 0..2 {
                let mut seen = Vec::new();
                while let Poll::Ready(Ok(Some(piece))) = payload.poll_piece(seen.len(), &mut cx) {
                    seen.push(piece);
                }
                assert_eq!(seen.concat(), b"abcdef");
                assert!(payload.is_replayable());
            }
        }
    }

    #[tokio::test]
    async fn a_larger_one_is_streamed_and_not_replayable_once_begun() {
        let mut script = Script(vec![b"abcd", b"efgh", b"ijkl"], None);
        let (mut payload, framing) = prepare(&mut script, Framing::Chunked).await.unwrap();
        assert_eq!(framing, Framing::Chunked);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        for (place, expected, replayable) in [(0, "abcdefgh", true), (1, "ijkl", false)] {
            let Poll::Ready(Ok(Some(piece))) = payload.poll_piece(place, &mut cx) else {
                panic!("expected {expected}")
            };
            assert_eq!(piece, expected);
            assert_eq!(payload.is_replayable(), replayable);
        }
        assert!(matches!(payload.poll_piece(2, &mut cx), Poll::Ready(Ok(None))));
    }

    #[tokio::test]
    async fn tiny_pieces_are_kept_together() {
        let limits = Limits { replayable_body: 10_000, ..Limits::default() };
        let timers = Timers::new(shared::clock::now());
        let tiny = Script(vec![b"x"; limits.replayable_body + 2], None);
        for (mut script, whole) in [(tiny, false), (Script(vec![b"ab"; 5_000], None), true)] {
            let size = script.0.concat().len();
            let timer = timers.timer();
            let prepared = Payload::prepare(&mut script, Framing::Chunked, &limits, &timer);
            let (mut payload, _) = prepared.await.unwrap();
            let kept = match &payload {
                Payload::Whole { pieces, .. } => pieces,
                Payload::Streamed { first, .. } => first,
            };
            assert!(kept.len() <= 2 * size / JOINED + 1, "{}", kept.len());
            let mut cx = Context::from_waker(std::task::Waker::noop());
            let (mut place, mut seen) = (0, 0);
            while let Poll::Ready(Ok(Some(piece))) = payload.poll_piece(place, &mut cx) {
                place += 1;
                seen += piece.len();
            }
            assert_eq!((seen, payload.is_replayable()), (size, whole));
            if let Payload::Streamed { first, .. } = &payload {
                assert!(first.is_empty());
            }
        }
    }

    #[tokio::test]
    async fn a_long_one_is_not_waited_for() {
        let mut script = Script(vec![], Some(Kind::ClientGone));
        let (payload, framing) = prepare(&mut script, Framing::Length(7)).await.unwrap();
        assert_eq!(framing, Framing::Length(7));
        assert!(payload.is_replayable());
    }

    #[tokio::test]
    async fn a_client_that_goes_is_an_error() {
        let mut script = Script(vec![b"a"], Some(Kind::ClientGone));
        let error = prepare(&mut script, Framing::Chunked).await.err().unwrap();
        assert_eq!(error.kind, Kind::ClientGone);
    }
}
