//! What all who read or write HTTP/2 frames know of them.

/// Length of a frame's header.
pub(crate) const HEADER: usize = 9;

/// How every client begins (RFC 9113 section 3.4).
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The longest payload where nothing else was agreed on, which nobody may refuse (RFC 9113 section 4.2).
pub(crate) const LONGEST: usize = 16_384;

/// Maximum number of bytes that are held of fields split over several frames, as a multiple of the maximum header list
/// size, and the minimum that is assumed for that size. Huffman's code may be longer than the
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
