//! SETTINGS (RFC 9113 section 6.5).

use bytes::{BufMut as _, BytesMut};

use super::Reason;

const HEADER_TABLE_SIZE: u16 = 1;
pub(super) const ENABLE_PUSH: u16 = 2;
pub(super) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
pub(super) const MAX_HEADER_LIST_SIZE: u16 = 6;

/// The length of one setting.
const SETTING: usize = 6;

/// The largest window that may be set.
const LARGEST_WINDOW: u32 = (1 << 31) - 1;

/// The size of the table of fields of which nobody has to be told.
const TABLE: u32 = 4_096;

/// What a peer sets that matters. The rest says nothing to us: we push nothing, and send no frame longer than every peer
/// accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Set {
    /// The window of its streams.
    pub(super) window: Option<u32>,
    /// How many streams of ours it allows at a time.
    pub(super) streams: Option<u32>,
    /// Whether it has a smaller table of fields than others.
    pub(super) has_small_table: bool,
}

/// Reads the peer's settings, and checks them.
pub(super) fn read(payload: &[u8]) -> Result<Set, Reason> {
    let (settings, rest) = payload.as_chunks::<SETTING>();
    if !rest.is_empty() {
        return Err(Reason::FRAME_SIZE_ERROR);
    }
    let mut set = Set::default();
    for [a, b, value @ ..] in settings {
        let value = u32::from_be_bytes(*value);
        match u16::from_be_bytes([*a, *b]) {
            ENABLE_PUSH if value > 1 => return Err(Reason::PROTOCOL_ERROR),
            INITIAL_WINDOW_SIZE if value > LARGEST_WINDOW => return Err(Reason::FLOW_CONTROL_ERROR),
            INITIAL_WINDOW_SIZE => set.window = Some(value),
            MAX_CONCURRENT_STREAMS => set.streams = Some(value),
            HEADER_TABLE_SIZE => set.has_small_table |= value < TABLE,
            MAX_FRAME_SIZE if !(1 << 14..1 << 24).contains(&value) => return Err(Reason::PROTOCOL_ERROR),
            _ => {}
        }
    }
    Ok(set)
}

/// Writes settings.
pub(super) fn put(out: &mut BytesMut, settings: &[(u16, u32)]) {
    for (id, value) in settings {
        out.put_u16(*id);
        out.put_u32(*value);
    }
}

/// The length of so many.
pub(super) const fn length(settings: usize) -> usize {
    settings * SETTING
}
