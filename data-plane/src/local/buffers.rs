//! A worker's free lists of buffers: a buffer is taken when there is something to read or write, and returned as soon
//! as nothing is unread or unwritten. An idle connection holds none.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::AsyncRead;

use crate::codec::h2::wanted;
use crate::codec::stream::{ROOM, make_room, poll_fill};

/// Number of buffers and texts kept for reuse; more than that are freed.
const KEPT: usize = 64;

/// A buffer that grew beyond this size in bytes is freed instead of kept.
const KEPT_ROOM: usize = 64 * 1024;

/// Up to this much unread data in bytes is moved into a buffer of [`LITTLE_ROOM`] while more is waited for. A read
/// into it is still worth its system call ([`make_room`](crate::codec::stream::make_room)).
pub(super) const LITTLE: usize = 1024;

/// Capacity of a small buffer, in bytes.
const LITTLE_ROOM: usize = 4 * 1024;

/// The free lists.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// The one that was returned last is at the end.
    inputs: RefCell<VecDeque<BytesMut>>,
    texts: RefCell<Vec<Vec<u8>>>,
}

impl Buffers {
    /// Without buffers.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// An empty buffer with [`ROOM`]: the one that was returned last, whose memory is in the processor's cache. If
    /// something still refers to that, as does a piece of a response that HTTP/2 has yet to write, it is the one that was
    /// returned first: what was in that has probably been written meanwhile.
    pub(crate) fn input(&self) -> BytesMut {
        let mut free = self.inputs.borrow_mut();
        let Some(mut last) = free.pop_back() else { return BytesMut::with_capacity(ROOM) };
        if last.try_reclaim(ROOM) {
            return last;
        }
        let mut first = free.pop_front().unwrap_or_default();
        let buffer = match first.try_reclaim(ROOM) {
            true => std::mem::take(&mut first),
            false => BytesMut::with_capacity(ROOM),
        };
        // Both may be in use for long, so others are tried next. Small ones are not enlarged.
        free.extend([first, last].into_iter().filter(|it| it.capacity() > LITTLE_ROOM));
        buffer
    }

    /// Number of buffers that nobody uses now.
    #[cfg(test)]
    pub(crate) fn unused(&self) -> usize {
        self.inputs.borrow().len()
    }

    /// Returns a buffer from [`Self::input`]. Unread data in it is lost.
    pub(crate) fn give_input(&self, mut buffer: BytesMut) {
        buffer.clear();
        let mut free = self.inputs.borrow_mut();
        if free.len() < KEPT && buffer.capacity() > 0 && buffer.capacity() <= KEPT_ROOM {
            free.push_back(buffer);
        }
    }

    /// Reads more of an HTTP/2 connection, behind what has come of its next frame; 0 at the end. While nothing comes, the
    /// buffer is [lent](Self::lend) to others.
    pub(crate) fn poll_frames(
        &self,
        stream: &mut (impl AsyncRead + Unpin + 'static),
        input: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if input.is_empty() && input.capacity() < ROOM / 2 {
            // What came before may still be referred to.
            self.give_input(std::mem::replace(input, self.input()));
        }
        make_room(input);
        let wanted = wanted(input).saturating_sub(input.len());
        input.reserve(wanted);
        self.poll_or_lend(stream, input, cx)
    }

    /// Reads more behind what a buffer holds; 0 at the end. While nothing comes, it is [lent](Self::lend) to others.
    pub(crate) fn poll_more(
        &self,
        stream: &mut (impl AsyncRead + Unpin + 'static),
        input: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if input.capacity() == 0 {
            *input = self.input();
        }
        make_room(input);
        self.poll_or_lend(stream, input, cx)
    }

    fn poll_or_lend(
        &self,
        stream: &mut (impl AsyncRead + Unpin + 'static),
        input: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let read = poll_fill(stream, input, cx);
        if read.is_pending() {
            self.lend(input);
        }
        read
    }

    /// Reads what nobody needs, into a buffer that is borrowed for this read; 0 at the end. So nothing is held while it is
    /// waited for.
    pub(crate) fn poll_unwanted(
        &self,
        stream: &mut (impl AsyncRead + Unpin + 'static),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut borrowed = self.input();
        let read = poll_fill(stream, &mut borrowed, cx);
        self.give_input(borrowed);
        read
    }

    /// Gives up what a buffer does not need while more is waited for, which may take long.
    pub(crate) fn lend(&self, input: &mut BytesMut) {
        if input.is_empty() { self.give_input(std::mem::take(input)) } else { self.shrink(input) }
    }

    /// Reduces the capacity of a buffer that holds little data, possibly for long.
    pub(crate) fn shrink(&self, buffer: &mut BytesMut) {
        // What was read from it before is not counted as its capacity.
        let is_large =
            |buffer: &mut BytesMut| buffer.capacity() > LITTLE_ROOM || buffer.try_reclaim(LITTLE_ROOM);
        if buffer.len() <= LITTLE && is_large(buffer) {
            let mut small = BytesMut::with_capacity(LITTLE_ROOM);
            small.extend_from_slice(buffer);
            self.give_input(std::mem::replace(buffer, small));
        }
    }

    /// The memory of a buffer, with that of what was read from it before, if nobody else uses that.
    pub(crate) fn room_of(buffer: &mut BytesMut) -> usize {
        _ = buffer.try_reclaim(ROOM.saturating_sub(buffer.len()));
        buffer.capacity()
    }

    /// An empty text buffer for a head to be written.
    pub(crate) fn text(&self) -> Vec<u8> {
        let kept = self.texts.borrow_mut().pop();
        kept.unwrap_or_else(|| Vec::with_capacity(1024))
    }

    /// Returns a text buffer from [`Self::text`].
    pub(crate) fn give_text(&self, mut text: Vec<u8>) {
        text.clear();
        let mut free = self.texts.borrow_mut();
        if free.len() < KEPT && text.capacity() > 0 && text.capacity() <= KEPT_ROOM {
            free.push(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bytes::Buf as _;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[test]
    fn memory_goes_round() {
        let buffers = Buffers::new();
        let mut first = buffers.input();
        first.extend_from_slice(b"unread");
        let at = first.as_ptr();
        buffers.give_input(first);
        let second = buffers.input();
        assert!(second.is_empty());
        assert!(second.capacity() >= ROOM);
        assert_eq!(second.as_ptr(), at);
    }

    #[tokio::test]
    async fn what_is_unwanted_is_read_into_one_buffer_for_all() {
        let buffers = Buffers::new();
        let (mut client, mut near) = tokio::io::duplex(1 << 20);
        client.write_all(&[7; 100_000]).await.unwrap();
        let mut read = 0;
        let mut more =
            async || std::future::poll_fn(|cx| Poll::Ready(buffers.poll_unwanted(&mut near, cx))).await;
        while let Poll::Ready(count) = more().await {
            read += count.unwrap();
            assert_eq!(buffers.unused(), 1);
        }
        assert_eq!((read, buffers.unused()), (100_000, 1));
    }

    #[tokio::test]
    async fn a_buffer_in_which_nothing_waits_is_lent() {
        let buffers = Buffers::new();
        let (mut client, mut near) = tokio::io::duplex(1 << 20);
        let mut input = BytesMut::new();
        let mut more = async |input: &mut BytesMut| {
            std::future::poll_fn(|cx| Poll::Ready(buffers.poll_more(&mut near, input, cx))).await
        };
        assert!(more(&mut input).await.is_pending());
        assert_eq!((input.capacity(), buffers.unused()), (0, 1));
        client.write_all(b"some").await.unwrap();
        assert!(more(&mut input).await.is_ready());
        assert_eq!((&input[..], buffers.unused()), (&b"some"[..], 0));
        assert!(more(&mut input).await.is_pending());
        assert_eq!((&input[..], input.capacity(), buffers.unused()), (&b"some"[..], LITTLE_ROOM, 1));
    }

    #[test]
    fn a_little_has_little_room() {
        let buffers = Buffers::new();
        let mut input = buffers.input();
        input.extend_from_slice(&[7; LITTLE]);
        buffers.shrink(&mut input);
        assert_eq!((&input[..], input.capacity()), (&[7; LITTLE][..], LITTLE_ROOM));
        assert_eq!(buffers.inputs.borrow().len(), 1, "the large one is for the next");
        let mut much = buffers.input();
        much.extend_from_slice(&[7; LITTLE + 1]);
        buffers.shrink(&mut much);
        assert!(much.capacity() >= ROOM);
    }

    /// `BytesMut` counts what is left of its capacity, not what it holds.
    #[test]
    fn what_was_read_before_is_room_all_the_same() {
        let read = || {
            let mut input = BytesMut::with_capacity(ROOM);
            input.resize(ROOM - 3000, b'a');
            input
        };
        let buffers = Buffers::new();
        let mut little = read();
        little.advance(little.len() - 1);
        assert!(little.capacity() < LITTLE_ROOM);
        buffers.lend(&mut little);
        assert_eq!((&little[..], little.capacity(), buffers.unused()), (&b"a"[..], LITTLE_ROOM, 1));
        buffers.lend(&mut little);
        assert_eq!(buffers.unused(), 1, "it has little room");
        let mut more = read();
        more.advance(more.len() - 2 * LITTLE);
        assert!(Buffers::room_of(&mut more) >= ROOM && more.len() == 2 * LITTLE);
    }

    #[test]
    fn referenced_buffer_is_not_reused() {
        let buffers = Buffers::new();
        let mut first = buffers.input();
        first.extend_from_slice(b"kept by somebody");
        let kept = first.split_to(4).freeze();
        buffers.give_input(first);
        let mut second = buffers.input();
        second.extend_from_slice(&[0; ROOM]);
        assert_eq!(&kept[..], b"kept");
    }

    /// Streams of HTTP/2 give their buffers back before what was read into them is written.
    #[test]
    fn buffers_that_are_referenced_for_a_while_go_round() {
        let buffers = Buffers::new();
        let round = || -> BTreeSet<_> {
            let used = [(); 40].map(|()| {
                let mut buffer = buffers.input();
                let at = buffer.as_ptr();
                buffer.extend_from_slice(b"a response");
                let piece = buffer.split().freeze();
                buffers.give_input(buffer);
                (at, piece)
            });
            assert!(used.iter().all(|(_, piece)| piece == "a response"));
            used.into_iter().map(|(at, _)| at).collect()
        };
        let first = round();
        assert_eq!((first.len(), buffers.inputs.borrow().len()), (40, 40));
        assert_eq!([round(), round()], [first.clone(), first]);
        // One that somebody keeps for long is in nobody's way.
        let mut kept = buffers.input();
        kept.extend_from_slice(b"kept");
        let _kept = kept.split();
        buffers.give_input(kept);
        let again = [(); 4].map(|()| round());
        let all = again.into_iter().flatten().collect::<BTreeSet<_>>();
        assert!(all.len() < 45, "{} for 160", all.len());
    }
}
