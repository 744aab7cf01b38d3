//! Inspects what a peer sends over HTTP/2 before h2 gets it: field blocks are read, and repaired where h2 would close
//! the whole connection for a single field (see [`hpack`](super::hpack)). A HEADERS or CONTINUATION frame is held
//! until it is complete (h2 would wait for that anyway), and the frames that a single field is split over until the
//! field is complete.
//!
//! **Invariant:** however the bytes are split, the same bytes are passed on and the same defects reported.

use std::ops::Range;

use super::frame::{
    END_HEADERS, Frame, HEADER, Kind, LONGEST, PADDED, PREFACE, PRIORITY, most_split, number,
};
use super::hpack::{BlockFindings, Fault, Fields, Outcome, Target};

/// The position of a frame's type, and an unknown type, which every peer ignores (RFC 9113 section 4.1).
const KIND: usize = 3;
const UNKNOWN: u8 = 0xf0;

/// What is reported before it is passed on.
#[derive(Debug)]
pub(crate) enum Seen {
    Frame(Frame),
    Block(Block),
}

/// A complete field block: a head, or trailers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    pub(crate) stream: u32,
    /// Why it is malformed.
    pub(crate) fault: Option<Fault>,
    /// Its target, if h2 was given another one.
    pub(crate) target: Option<Target>,
}

/// The received bytes of a peer.
#[derive(Debug)]
pub(crate) struct Heads {
    looking: Looking,
    /// Bytes that wait for more.
    held: Vec<u8>,
    /// Bytes at its start that can be passed on, and those that have been.
    ready: usize,
    gone: usize,
    /// The maximum number of bytes that may be held.
    most: usize,
}

/// The state of the inspection.
#[derive(Debug)]
struct Looking {
    fields: Fields,
    /// Bytes until the next frame.
    skip: u64,
    /// The position of that frame; all positions here are relative to the inspected bytes.
    at: usize,
    /// Whether the frame there was reported.
    is_told: bool,
    open: Option<Open>,
    is_broken: bool,
}

/// An incomplete block.
#[derive(Debug, Default)]
struct Open {
    stream: u32,
    found: BlockFindings,
    /// The parts of a split field, if there is one.
    cut: Vec<Range<usize>>,
    /// The frame in which it begins.
    from: usize,
    /// The minimum number of bytes that it lacks.
    lacks: usize,
}

/// Input that cannot be parsed.
struct Broken;

impl Heads {
    /// For bytes of a client, which begin with a preface, or of an endpoint. `list` is the maximum header list size
    /// that h2 was given.
    pub(crate) fn new(is_client: bool, list: u32) -> Self {
        let looking = Looking {
            fields: Fields::default(),
            skip: if is_client { PREFACE.len() as u64 } else { 0 },
            at: 0,
            is_told: false,
            open: None,
            is_broken: false,
        };
        let most = most_split(list);
        Self { looking, held: Vec::new(), ready: 0, gone: 0, most }
    }

    /// Processes received bytes. Returns how many can be passed on now; the rest is held, or nothing is passed on any
    /// more.
    pub(crate) fn pass(&mut self, bytes: &mut [u8], seen: impl FnMut(Seen)) -> usize {
        if self.is_broken() {
            return 0;
        }
        let on = if self.held.is_empty() {
            let on = self.looking.look(bytes, seen);
            self.held.extend_from_slice(&bytes[on..]);
            on
        } else {
            self.held.extend_from_slice(bytes);
            self.ready = self.looking.look(&mut self.held, seen);
            0
        };
        self.looking.is_broken |= self.held.len() > self.most;
        on
    }

    /// How many bytes may be read before [`Self::pass`]: what is held gets no more than it lacks.
    pub(crate) fn room(&self) -> usize {
        let Some(rest) = self.held.get(self.looking.at..).filter(|_| !self.held.is_empty()) else {
            return usize::MAX;
        };
        match rest.first_chunk() {
            Some(header) => HEADER + Frame::read(*header).length as usize - rest.len(),
            None => HEADER - rest.len(),
        }
    }

    /// Held bytes that can be passed on now, before anything else is read.
    pub(crate) fn ready(&self) -> &[u8] {
        &self.held[self.gone..self.ready]
    }

    /// Records that this many of them were passed on.
    pub(crate) fn went(&mut self, bytes: usize) {
        self.gone += bytes;
        if self.gone < self.ready {
            return;
        }
        self.held.drain(..self.ready);
        (self.ready, self.gone) = (0, 0);
        if self.held.is_empty() {
            self.held = Vec::new();
        }
    }

    /// Whether there was something that h2 closes a connection for, or that cannot be parsed. Nothing after it is
    /// passed on.
    pub(crate) fn is_broken(&self) -> bool {
        self.looking.is_broken
    }
}

impl Looking {
    /// Inspects what is new after the held bytes. Returns how much can be passed on; positions are relative to that.
    fn look(&mut self, bytes: &mut [u8], mut seen: impl FnMut(Seen)) -> usize {
        loop {
            let some = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len() - self.at);
            self.skip -= some as u64;
            self.at += some;
            let Some(header) = bytes[self.at..].first_chunk() else { break };
            let frame = Frame::read(*header);
            if !std::mem::replace(&mut self.is_told, true) {
                seen(Seen::Frame(frame));
            }
            let whole = HEADER + frame.length as usize;
            let is_block = matches!(frame.kind, Kind::Headers | Kind::Continuation | Kind::Promise);
            if !is_block && self.open.is_none() {
                if frame.kind == Kind::Data
                    && frame.is_empty()
                    && frame.flags & PADDED == 0
                    && frame.stream > 0
                {
                    // An empty frame, of which h2 tolerates only a hundred per connection. Floods are detected
                    // elsewhere.
                    bytes[self.at + KIND] = UNKNOWN;
                }
                self.skip = whole as u64;
                self.is_told = false;
                continue;
            }
            let end = self.at + whole;
            // Of an oversized frame h2 reads only the header.
            if frame.length as usize <= LONGEST {
                if end > bytes.len() {
                    break;
                }
                if let Ok(block) = self.part(frame, bytes) {
                    (self.at, self.is_told) = (end, false);
                    block.into_iter().for_each(|block| seen(Seen::Block(block)));
                    continue;
                }
            }
            self.is_broken = true;
            return end.min(bytes.len());
        }
        let on = match &mut self.open {
            Some(open) if !open.cut.is_empty() => {
                let on = std::mem::take(&mut open.from);
                open.cut.iter_mut().for_each(|part| *part = part.start - on..part.end - on);
                on
            }
            _ => self.at,
        };
        self.at -= on;
        on
    }

    /// Processes a complete frame of a block. Returns the block with its last frame.
    fn part(&mut self, frame: Frame, bytes: &mut [u8]) -> Result<Option<Block>, Broken> {
        let begin = self.at + HEADER;
        let mut part = begin..begin + frame.length as usize;
        let mut open = match (frame.kind, self.open.take()) {
            (Kind::Headers, None) if frame.stream > 0 => Open { stream: frame.stream, ..Open::default() },
            (Kind::Continuation, Some(open)) if open.stream == frame.stream => open,
            _ => return Err(Broken),
        };
        if frame.kind == Kind::Headers {
            let (within, fault) = fields(frame, &mut bytes[part.clone()])?;
            part = begin + within.start..begin + within.end;
            open.found.fault = fault;
        }
        let is_last = frame.flags & END_HEADERS != 0;
        self.read(&mut open, bytes, part)?;
        match is_last {
            true if open.cut.is_empty() => {
                let BlockFindings { fault, target, .. } = open.found;
                Ok(Some(Block { stream: open.stream, fault, target }))
            }
            true => Err(Broken),
            false => {
                self.open = Some(open);
                Ok(None)
            }
        }
    }

    /// Reads a frame's part of its block, after what was split before.
    fn read(&mut self, open: &mut Open, bytes: &mut [u8], part: Range<usize>) -> Result<(), Broken> {
        if open.cut.is_empty() {
            match self.fields.read(&mut bytes[part.clone()], &mut open.found) {
                Outcome::Whole => {}
                Outcome::Cut(at, lacks) => open.cut(self.at, part.start + at..part.end, lacks),
                Outcome::Broken => return Err(Broken),
            }
            return Ok(());
        }
        open.cut.push(part.clone());
        if part.len() < open.lacks {
            open.lacks -= part.len();
            return Ok(());
        }
        let mut joined: Vec<u8> = open.cut.iter().flat_map(|part| &bytes[part.clone()]).copied().collect();
        let outcome = self.fields.read(&mut joined, &mut open.found);
        let mut rest = &joined[..];
        for part in &open.cut {
            let (this, behind) = rest.split_at(part.len());
            bytes[part.clone()].copy_from_slice(this);
            rest = behind;
        }
        match outcome {
            Outcome::Whole => open.cut.clear(),
            // Still the same field.
            Outcome::Cut(0, lacks) => open.lacks = lacks,
            Outcome::Cut(at, lacks) => open.cut(self.at, part.end - (joined.len() - at)..part.end, lacks),
            Outcome::Broken => return Err(Broken),
        }
        Ok(())
    }
}

impl Open {
    /// A field is split; it begins with this part, in the frame at `from`.
    fn cut(&mut self, from: usize, part: Range<usize>, lacks: usize) {
        self.cut.clear();
        self.cut.push(part);
        (self.from, self.lacks) = (from, lacks);
    }
}

/// The range of the fields in a HEADERS payload (RFC 9113 section 6.2), and whether what precedes them makes the
/// message malformed: a stream that depends on itself. h2 would reset that one, too, but without reading its fields,
/// and would then misinterpret later references to them.
fn fields(frame: Frame, payload: &mut [u8]) -> Result<(Range<usize>, Option<Fault>), Broken> {
    let (mut begin, mut end, mut fault) = (0, payload.len(), None);
    if frame.flags & PADDED != 0 {
        begin += 1;
        end = end.checked_sub(usize::from(*payload.first().ok_or(Broken)?)).ok_or(Broken)?;
    }
    if frame.flags & PRIORITY != 0 {
        let on = payload.get_mut(begin..).and_then(|rest| rest.first_chunk_mut()).ok_or(Broken)?;
        if number(*on) == frame.stream {
            *on = [0; 4];
            fault = Some(Fault::Malformed);
        }
        begin += 5;
    }
    if begin > end { Err(Broken) } else { Ok((begin..end, fault)) }
}

#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
