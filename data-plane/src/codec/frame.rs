//! Finds HTTP/2 frame headers in a byte stream.
//!
//! **Invariant:** however the bytes are split, the same frames are seen.

/// Length of a frame's header.
pub(crate) const HEADER: usize = 9;

/// Length of the client's connection preface (RFC 9113 section 3.4).
pub(crate) const PREFACE: u64 = 24;

/// The type of a frame, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Data,
    Headers,
    Continuation,
    /// PUSH_PROMISE.
    Promise,
    Priority,
    Reset,
    Settings,
    Ping,
    Goaway,
    WindowUpdate,
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
    /// Whether it carries no data and does not end its stream.
    pub(crate) fn is_empty(&self) -> bool {
        const END_STREAM: u8 = 1;
        self.length == 0 && !(self.flags & END_STREAM != 0 && matches!(self.kind, Kind::Data))
    }

    /// Whether it is DATA that takes more memory to store than it carries.
    pub(crate) fn is_small(&self) -> bool {
        const SMALL: u32 = 256;
        self.kind == Kind::Data && self.length < SMALL
    }

    pub(crate) fn read([a, b, c, kind, flags, d, e, f, g]: [u8; HEADER]) -> Self {
        let kind = match kind {
            0 => Kind::Data,
            1 => Kind::Headers,
            2 => Kind::Priority,
            3 => Kind::Reset,
            4 => Kind::Settings,
            5 => Kind::Promise,
            6 => Kind::Ping,
            7 => Kind::Goaway,
            8 => Kind::WindowUpdate,
            9 => Kind::Continuation,
            _ => Kind::Other,
        };
        let stream = u32::from_be_bytes([d, e, f, g]) & 0x7fff_ffff;
        Self { length: u32::from_be_bytes([0, a, b, c]), kind, flags, stream }
    }
}

/// A position in a stream of frames. Of each payload the first `FIRST` bytes are reported, too.
#[derive(Debug)]
pub(crate) struct Cursor<const FIRST: usize> {
    /// Bytes until the next header.
    skip: u64,
    header: [u8; HEADER],
    first: [u8; FIRST],
    /// How many of these bytes have been received.
    have: usize,
}

impl<const FIRST: usize> Default for Cursor<FIRST> {
    fn default() -> Self {
        Self { skip: 0, header: [0; HEADER], first: [0; FIRST], have: 0 }
    }
}

impl<const FIRST: usize> Cursor<FIRST> {
    /// At the beginning of a client's stream.
    pub(crate) fn of_client() -> Self {
        Self { skip: PREFACE, ..Self::default() }
    }

    /// Consumes bytes, and reports each frame whose header is complete, with the first bytes of its payload (zeros if
    /// it is shorter).
    pub(crate) fn pass(&mut self, mut bytes: &[u8], mut seen: impl FnMut(Frame, [u8; FIRST])) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let some = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
                self.skip -= some as u64;
                bytes = &bytes[some..];
                continue;
            }
            let rest = match self.have.checked_sub(HEADER) {
                None => &mut self.header[self.have..],
                Some(have) => &mut self.first[have..FIRST.min(Frame::read(self.header).length as usize)],
            };
            let some = rest.len().min(bytes.len());
            rest[..some].copy_from_slice(&bytes[..some]);
            self.have += some;
            bytes = &bytes[some..];
            if self.have < HEADER {
                continue;
            }
            let frame = Frame::read(self.header);
            let whole = FIRST.min(frame.length as usize);
            if self.have < HEADER + whole {
                continue;
            }
            self.skip = u64::from(frame.length) - whole as u64;
            self.have = 0;
            seen(frame, std::mem::replace(&mut self.first, [0; FIRST]));
        }
    }
}
