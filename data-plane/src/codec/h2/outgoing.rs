//! What a connection has to write, in order: frames in one buffer, and large pieces of data beside it, which are not
//! copied.
//!
//! **Invariant:** when all is written, nothing is held but the capacity of the buffer, until that is let go.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use super::{Reason, settings};
use crate::codec::frame::{END_HEADERS, END_STREAM, HEADER, LONGEST, PREFACE};

/// Maximum number of slices at a time.
pub(crate) const SLICES: usize = 16;

/// Pieces up to this size in bytes are copied into the buffer.
const COPIED: usize = 1024;

/// Bytes of frames about nothing but the connection that may wait, beyond which nothing more is read: the peer does not
/// read the answers to what it sends.
const CONTROL: usize = 4 * 1024;

/// Bytes of all frames but large pieces of data that a client may leave unread: heads, of which it may have asked for many
/// with few bytes.
const TEXT: usize = 64 * 1024;

// Types of frames.
pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

/// The frames to be written.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    text: BytesMut,
    /// Pieces, and how much of the text is between each and the one before it.
    pieces: VecDeque<(usize, Bytes)>,
    /// How much of the text is before the last piece.
    placed: usize,
    /// Bytes of control frames since all was written.
    control: usize,
}

impl Outgoing {
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.pieces.is_empty()
    }

    /// Whether nothing more should be read before this is written.
    pub(super) fn is_full(&self) -> bool {
        self.control > CONTROL
    }

    /// Whether there is much but large pieces of data.
    pub(super) fn is_long(&self) -> bool {
        self.text.len() > TEXT
    }

    /// Frees the buffer, if nothing is in it.
    pub(super) fn let_go(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }

    fn header(&mut self, length: usize, kind: u8, flags: u8, stream: u32) {
        put_header(&mut self.text, length, kind, flags, stream);
    }

    /// A frame about the connection, or what else its peer has caused.
    pub(super) fn control(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.header(payload.len(), kind, flags, stream);
        self.text.put_slice(payload);
        self.control += HEADER + payload.len();
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.text.capacity() + self.pieces.capacity()
    }

    /// How a client begins.
    pub(super) fn preface(&mut self) {
        self.text.put_slice(PREFACE);
    }

    /// What we say about ourselves.
    pub(super) fn settings(&mut self, settings: &[(u16, u32)]) {
        self.header(settings::length(settings.len()), SETTINGS, 0, 0);
        settings::put(&mut self.text, settings);
    }

    pub(super) fn reset(&mut self, stream: u32, reason: Reason) {
        self.control(RST_STREAM, 0, stream, &reason.0.to_be_bytes());
    }

    pub(super) fn window_update(&mut self, stream: u32, by: u32) {
        self.control(WINDOW_UPDATE, 0, stream, &by.to_be_bytes());
    }

    pub(super) fn goaway(&mut self, last: u32, reason: Reason) {
        let mut payload = [0; 8];
        payload[..4].copy_from_slice(&last.to_be_bytes());
        payload[4..].copy_from_slice(&reason.0.to_be_bytes());
        self.control(GOAWAY, 0, 0, &payload);
    }

    /// A field block, written in place: in several frames, if it is long.
    pub(super) fn block(&mut self, stream: u32, is_end: bool, write: impl FnOnce(&mut BytesMut)) {
        let end = if is_end { END_STREAM } else { 0 };
        let begin = self.text.len();
        self.header(0, HEADERS, end | END_HEADERS, stream);
        write(&mut self.text);
        let length = self.text.len() - begin - HEADER;
        if length <= LONGEST {
            self.text[begin..begin + 3].copy_from_slice(&(length as u32).to_be_bytes()[1..]);
            return;
        }
        let block = self.text.split_off(begin + HEADER);
        self.text.truncate(begin);
        let mut parts = block.chunks(LONGEST).peekable();
        let mut kind = (HEADERS, end);
        while let Some(part) = parts.next() {
            let last = if parts.peek().is_none() { END_HEADERS } else { 0 };
            self.header(part.len(), kind.0, kind.1 | last, stream);
            self.text.put_slice(part);
            kind = (CONTINUATION, 0);
        }
    }

    /// Data; the last frame of it ends its stream, if that is its end.
    pub(super) fn data(&mut self, stream: u32, mut piece: Bytes, is_end: bool) {
        loop {
            let part = piece.split_to(piece.len().min(LONGEST));
            let flags = if is_end && piece.is_empty() { END_STREAM } else { 0 };
            self.header(part.len(), DATA, flags, stream);
            if part.len() <= COPIED {
                self.text.put_slice(&part);
            } else {
                self.pieces.push_back((self.text.len() - self.placed, part));
                self.placed = self.text.len();
            }
            if piece.is_empty() {
                return;
            }
        }
    }

    /// What comes next, as far as there is room.
    pub(super) fn slices<'a>(&'a self, into: &mut [IoSlice<'a>; SLICES]) -> usize {
        let (mut text, mut count) = (&self.text[..], 0);
        for (before, piece) in &self.pieces {
            if count + 2 > SLICES {
                return count;
            }
            let (these, rest) = text.split_at(*before);
            for slice in [these, piece] {
                if !slice.is_empty() {
                    into[count] = IoSlice::new(slice);
                    count += 1;
                }
            }
            text = rest;
        }
        if !text.is_empty() && count < SLICES {
            into[count] = IoSlice::new(text);
            count += 1;
        }
        count
    }

    /// So much of it is written.
    pub(super) fn advance(&mut self, mut bytes: usize) {
        while let Some((before, piece)) = self.pieces.front_mut() {
            let some = bytes.min(*before);
            self.text.advance(some);
            (*before, self.placed, bytes) = (*before - some, self.placed - some, bytes - some);
            let some = bytes.min(piece.len());
            piece.advance(some);
            bytes -= some;
            if !piece.is_empty() {
                return;
            }
            self.pieces.pop_front();
        }
        self.text.advance(bytes);
        if self.text.is_empty() {
            // Its capacity begins at its start again.
            self.text.clear();
            self.control = 0;
        }
    }
}

fn put_header(out: &mut BytesMut, length: usize, kind: u8, flags: u8, stream: u32) {
    let [_, a, b, c] = (length as u32).to_be_bytes();
    let [d, e, f, g] = stream.to_be_bytes();
    out.put_slice(&[a, b, c, kind, flags, d, e, f, g]);
}
