//! Frames of HTTP/2 as they pass: their headers, found in bytes that are cut anyhow.
//!
//! **Invariant:** however the bytes are cut, the same frames are seen.

/// Length of a frame's header.
pub(crate) const HEADER: usize = 9;

/// What a frame is, as far as anybody here asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Data,
    Headers,
    Continuation,
    /// PUSH_PROMISE.
    Promise,
    Reset,
    Other,
}

/// The header of a frame (RFC 9113 section 4.1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) length: u32,
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl Frame {
    /// Whether it carries nothing, and does not end its stream either.
    pub(crate) fn is_empty(&self) -> bool {
        const END_STREAM: u8 = 1;
        self.length == 0 && !(self.flags & END_STREAM != 0 && matches!(self.kind, Kind::Data))
    }

    /// Whether it is a part of a body, and takes more to keep than it carries.
    pub(crate) fn is_small(&self) -> bool {
        const SMALL: u32 = 256;
        self.kind == Kind::Data && self.length < SMALL
    }

    pub(crate) fn read([a, b, c, kind, flags, d, e, f, g]: [u8; HEADER]) -> Self {
        let kind = match kind {
            0 => Kind::Data,
            1 => Kind::Headers,
            3 => Kind::Reset,
            5 => Kind::Promise,
            9 => Kind::Continuation,
            _ => Kind::Other,
        };
        let stream = u32::from_be_bytes([d, e, f, g]) & 0x7fff_ffff;
        Self { length: u32::from_be_bytes([0, a, b, c]), kind, flags, stream }
    }
}

/// A place in a stream of frames.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    /// Bytes until the next header.
    skip: u64,
    header: [u8; HEADER],
    /// Bytes of the header that are here.
    have: usize,
}

impl Cursor {
    /// Goes past some bytes, and tells of each frame whose header is whole.
    pub(crate) fn pass(&mut self, mut bytes: &[u8], mut seen: impl FnMut(Frame)) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let some = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
                self.skip -= some as u64;
                bytes = &bytes[some..];
                continue;
            }
            let some = (HEADER - self.have).min(bytes.len());
            self.header[self.have..self.have + some].copy_from_slice(&bytes[..some]);
            self.have += some;
            bytes = &bytes[some..];
            if self.have < HEADER {
                continue;
            }
            self.have = 0;
            let frame = Frame::read(self.header);
            self.skip = u64::from(frame.length);
            seen(frame);
        }
    }
}
