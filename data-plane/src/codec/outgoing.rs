//! The output queue of a connection: a head, body pieces and the framing between them, written with as few system
//! calls as possible.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use smallvec::SmallVec;
use tokio::io::AsyncWrite;

use super::h1::Frame;

/// Maximum number of slices per system call.
const SLICES: usize = 16;

/// Bytes that may be queued before no more are added.
const FULL: u64 = 64 * 1024;

#[derive(Debug)]
enum Piece {
    Data(Bytes),
    Before(Frame),
    Static(&'static [u8]),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Data(data) => data,
            Self::Before(frame) => frame.before(),
            Self::Static(text) => text,
        }
    }
}

/// A queue of bytes to be written, in order.
#[derive(Debug)]
pub(crate) struct Outgoing<'a> {
    /// Written first.
    head: &'a [u8],
    pieces: SmallVec<[Piece; 8]>,
    /// Number of pieces that were written.
    done: usize,
    /// Bytes of the next piece that were written.
    offset: usize,
    /// Bytes that the transport no longer buffers.
    flushed: u64,
    /// Total bytes queued so far, including the head.
    pushed: u64,
    written: u64,
}

impl<'a> Outgoing<'a> {
    /// Starts with a head, which may be empty.
    pub(crate) fn new(head: &'a [u8]) -> Self {
        Self {
            head,
            pieces: SmallVec::new(),
            done: 0,
            offset: 0,
            flushed: 0,
            pushed: head.len() as u64,
            written: 0,
        }
    }

    /// The same without its head, which it must not refer to any more; `None` while that is not written.
    pub(crate) fn headless(self) -> Option<Outgoing<'static>> {
        let Self { head, pieces, done, offset, flushed, pushed, written } = self;
        head.is_empty().then_some(Outgoing { head: &[], pieces, done, offset, flushed, pushed, written })
    }

    /// Adds a body piece with its framing.
    pub(crate) fn push(&mut self, frame: Frame, data: Bytes) {
        if !frame.before().is_empty() {
            self.pieces.push(Piece::Before(frame));
        }
        self.pushed += (frame.before().len() + data.len()) as u64;
        // An empty one alone would look as if the transport accepted nothing.
        if !data.is_empty() {
            self.pieces.push(Piece::Data(data));
        }
        self.push_static(frame.after());
    }

    /// Adds a constant text.
    pub(crate) fn push_static(&mut self, text: &'static [u8]) {
        if !text.is_empty() {
            self.pushed += text.len() as u64;
            self.pieces.push(Piece::Static(text));
        }
    }

    /// Whether everything was written.
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_empty() && self.done == self.pieces.len() && self.unflushed() == 0
    }

    /// Whether so much is queued that it should be written before more is added.
    pub(crate) fn is_full(&self) -> bool {
        self.pieces.len() - self.done + 3 > SLICES || self.pushed - self.written >= FULL
    }

    /// Bytes of the pieces that were not written completely: each is held to its end.
    pub(crate) fn held(&self) -> usize {
        self.pieces[self.done..].iter().map(|piece| piece.bytes().len()).sum()
    }

    /// Bytes that the transport has accepted.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Bytes that the transport has accepted and may still buffer.
    pub(crate) fn unflushed(&self) -> u64 {
        self.written - self.flushed
    }

    /// Writes until nothing is left.
    pub(crate) fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.head.is_empty() || self.done < self.pieces.len() {
            let count = {
                let mut slices = [IoSlice::new(&[]); SLICES];
                let used = self.fill(&mut slices);
                let stream = Pin::new(&mut *stream);
                ready!(match &slices[..used] {
                    [one] => stream.poll_write(cx, one),
                    several => stream.poll_write_vectored(cx, several),
                })?
            };
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(count);
        }
        if self.unflushed() > 0 {
            // TLS buffers records that the socket did not accept.
            ready!(Pin::new(stream).poll_flush(cx))?;
            self.flushed = self.written;
        }
        Poll::Ready(Ok(()))
    }

    fn fill<'s>(&'s self, slices: &mut [IoSlice<'s>; SLICES]) -> usize {
        let mut used = 0;
        if !self.head.is_empty() {
            slices[0] = IoSlice::new(self.head);
            used = 1;
        }
        let mut offset = self.offset;
        for (slice, piece) in slices[used..].iter_mut().zip(&self.pieces[self.done..]) {
            *slice = IoSlice::new(&piece.bytes()[offset..]);
            offset = 0;
            used += 1;
        }
        used
    }

    fn advance(&mut self, mut count: usize) {
        self.written += count as u64;
        let of_head = count.min(self.head.len());
        self.head = &self.head[of_head..];
        count -= of_head;
        while let Some(piece) = self.pieces.get(self.done) {
            let left = piece.bytes().len() - self.offset;
            if count < left {
                self.offset += count;
                // A slow receiver must not make the list grow.
                if self.done >= SLICES {
                    self.pieces.drain(..self.done);
                    self.done = 0;
                }
                return;
            }
            count -= left;
            self.offset = 0;
            // Frees the piece's memory, so that its buffer can be reused.
            self.pieces[self.done] = Piece::Static(b"");
            self.done += 1;
        }
        self.pieces.clear();
        self.done = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use proptest::prelude::*;

    use super::*;
    use crate::codec::h1::{BodyWriter, Client, write_response};
    use crate::codec::head::{Framing, ResponseHead, Version};

    /// Accepts this many bytes per call, as often as it is told to.
    struct Narrow {
        width: usize,
        calls: usize,
        got: Vec<u8>,
    }

    impl Narrow {
        fn take(&mut self, bytes: &[u8]) -> Poll<io::Result<usize>> {
            if self.calls == 0 {
                return Poll::Pending;
            }
            self.calls -= 1;
            let some = bytes.len().min(self.width);
            self.got.extend_from_slice(&bytes[..some]);
            Poll::Ready(Ok(some))
        }
    }

    impl AsyncWrite for Narrow {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.get_mut().take(bytes)
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            self.get_mut().take(&all)
        }
    }

    fn chunked() -> BodyWriter {
        let mut head = ResponseHead::new(200);
        head.framing = Framing::Chunked;
        let client = Client { version: Version::Http11, to_head: false, keep_alive: true };
        write_response(&mut Vec::new(), &head, client).0
    }

    /// If a transport accepts less than it is given, only what was not written stays in memory.
    #[test]
    fn written_bytes_are_freed() {
        const PIECE: usize = 4 * 1024;
        let mut narrow = Narrow { width: 1024, calls: 0, got: Vec::new() };
        let mut outgoing = Outgoing::new(b"");
        let mut writer = chunked();
        let mut cx = Context::from_waker(Waker::noop());
        let pieces: Vec<Bytes> = (0..512).map(|_| Bytes::from(vec![b'x'; PIECE])).collect();
        for piece in &pieces {
            while outgoing.is_full() {
                narrow.calls = 1;
                assert!(outgoing.poll_write(&mut narrow, &mut cx).is_pending());
            }
            outgoing.push(writer.frame(PIECE).unwrap(), piece.clone());
            assert!(outgoing.pieces.len() <= 2 * SLICES + 3, "{}", outgoing.pieces.len());
        }
        let held = pieces.iter().filter(|piece| !piece.is_unique()).count();
        assert!(held <= SLICES, "{held}");
        narrow.calls = usize::MAX;
        assert!(outgoing.poll_write(&mut narrow, &mut cx).is_ready());
        assert!(pieces.iter().all(Bytes::is_unique));
        assert!(narrow.got.len() > PIECE * pieces.len());
    }

    #[test]
    fn an_empty_piece_is_nothing() {
        let mut narrow = Narrow { width: 1, calls: usize::MAX, got: Vec::new() };
        let (mut outgoing, mut writer) = (Outgoing::new(b""), chunked());
        outgoing.push(writer.frame(0).unwrap(), Bytes::new());
        assert!(outgoing.is_empty());
        let written = outgoing.poll_write(&mut narrow, &mut Context::from_waker(Waker::noop()));
        assert!(matches!(written, Poll::Ready(Ok(()))));
    }

    proptest! {
        /// However much the transport accepts at a time, it gets the same bytes.
        #[test]
        fn in_order_and_whole(
            head in prop::collection::vec(any::<u8>(), 0..40),
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..12),
            width in 1_usize..50,
        ) {
            let mut outgoing = Outgoing::new(&head);
            let mut expected = head.clone();
            let mut writer = chunked();
            for chunk in &chunks {
                outgoing.push(writer.frame(chunk.len()).unwrap(), Bytes::copy_from_slice(chunk));
                if !chunk.is_empty() {
                    expected.extend(format!("{:X}\r\n", chunk.len()).bytes());
                    expected.extend(chunk);
                    expected.extend(b"\r\n");
                }
            }
            outgoing.push_static(writer.end().unwrap());
            expected.extend(b"0\r\n\r\n");
            let mut narrow = Narrow { width, calls: usize::MAX, got: Vec::new() };
            let mut cx = Context::from_waker(Waker::noop());
            prop_assert!(outgoing.poll_write(&mut narrow, &mut cx).is_ready());
            prop_assert!(outgoing.is_empty());
            prop_assert_eq!(outgoing.written(), expected.len() as u64);
            prop_assert_eq!(narrow.got, expected);
        }
    }
}
