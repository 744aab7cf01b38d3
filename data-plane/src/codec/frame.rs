//! What all who read or write HTTP/2 frames know of them, and a finder of their headers in a byte stream.
//!
//! **Invariant:** however the bytes are split, the same frames are seen.

/// Length of a frame's header.
pub(crate) const HEADER: usize = 9;

/// How every client begins (RFC 9113 section 3.4).
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The longest payload where nothing else was agreed on, which nobody may refuse (RFC 9113 section 4.2).
pub(crate) const LONGEST: usize = 16_384;

/// Maximum number of bytes that are held of fields split over several frames, as a multiple of the maximum header list
/// size, and the minimum that is assumed for that size: about as much as h2 accepts. Huffman's code may be longer than the
/// text, and what is beyond the limit has to be read before it can be answered.
const LISTS: usize = 2;
const LIST: u32 = 64 * 1024;

// Flags (RFC 9113 section 6).
pub(crate) const ACK: u8 = 0x01;
pub(crate) const END_STREAM: u8 = 0x01;
pub(crate) const END_HEADERS: u8 = 0x04;
pub(crate) const PADDED: u8 = 0x08;
pub(crate) const PRIORITY: u8 = 0x20;

/// Whether the bytes are the preface; `None` while they may still become it.
pub(crate) fn preface(bytes: &[u8]) -> Option<bool> {
    let some = bytes.len().min(PREFACE.len());
    if bytes[..some] != PREFACE[..some] {
        return Some(false);
    }
    (some == PREFACE.len()).then_some(true)
}

/// A number of 31 bits, as those of streams and of windows are: the first bit is reserved.
pub(crate) fn number(octets: [u8; 4]) -> u32 {
    u32::from_be_bytes(octets) & 0x7fff_ffff
}

/// Maximum number of bytes that are held of split fields, with header lists of this size.
pub(crate) fn most_split(list: u32) -> usize {
    LISTS * list.max(LIST) as usize
}

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
        Self { length: u32::from_be_bytes([0, a, b, c]), kind, flags, stream: number([d, e, f, g]) }
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
        Self { skip: PREFACE.len() as u64, ..Self::default() }
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
