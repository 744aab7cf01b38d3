//! What a peer sends.

use std::time::Instant;

use bytes::{Buf as _, BytesMut};

use super::{Connection, Role, Table};
use crate::codec::frame::{
    ACK, END_HEADERS, END_STREAM, Frame, HEADER, Kind, LONGEST, PADDED, PREFACE, PRIORITY, number, preface,
};
use crate::codec::h2::{Reason, settings};
use crate::codec::hpack::block::FieldBlock;

/// Where in what comes we are.
#[derive(Debug)]
pub(super) struct Incoming {
    stage: Stage,
    /// A DATA frame of which the header has come.
    data: Option<Data>,
    /// Bytes of a frame that nobody wants.
    skip: usize,
    /// A field block of which not all frames have come.
    block: Option<Box<Block>>,
}

/// What has to come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Preface,
    Settings,
    Frames,
}

/// The rest of a DATA frame.
#[derive(Clone, Copy, Debug)]
struct Data {
    stream: u32,
    /// Bytes of data, and of padding behind it.
    left: usize,
    padding: usize,
    is_end: bool,
}

/// An incomplete field block.
#[derive(Debug)]
struct Block {
    head: Head,
    bytes: Vec<u8>,
}

/// What the frame says that a field block begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(super) stream: u32,
    pub(super) is_end: bool,
    /// It depends on itself.
    pub(super) is_malformed: bool,
}

impl Incoming {
    /// What a client sends: its preface comes first.
    pub(super) fn of_client() -> Self {
        Self { stage: Stage::Preface, data: None, skip: 0, block: None }
    }

    /// What a server sends: its settings come first.
    pub(super) fn of_server() -> Self {
        Self { stage: Stage::Settings, ..Self::of_client() }
    }

    /// Bytes that are held of an incomplete field block.
    pub(super) fn unfinished(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.bytes.capacity())
    }

    pub(super) fn is_greeted(&self) -> bool {
        self.stage != Stage::Preface
    }
}

/// How many bytes the buffer has to have before there is more in it than that: a frame is read whole, except DATA.
pub(crate) fn wanted(input: &[u8]) -> usize {
    match input.first_chunk::<HEADER>() {
        Some(header) => HEADER + (Frame::read(*header).length as usize).min(LONGEST),
        None => HEADER,
    }
}

impl<R: Role> Connection<R> {
    /// Takes what has come out of `input`, up to the next event. What stays there is no complete frame, or is not to be
    /// read now.
    ///
    /// # Errors
    /// What the connection has to be [ended](Self::end) for.
    pub(crate) fn receive(
        &mut self,
        input: &mut BytesMut,
        fields: &mut FieldBlock,
        now: Instant,
    ) -> Result<Option<R::Event>, Reason> {
        loop {
            if self.is_over || self.is_full() || self.role.has_enough() {
                return Ok(None);
            }
            if self.incoming.skip > 0 {
                let some = self.incoming.skip.min(input.len());
                input.advance(some);
                self.incoming.skip -= some;
                if self.incoming.skip > 0 {
                    return Ok(None);
                }
            }
            if let Some(data) = self.incoming.data {
                if !self.more_data(data, input) {
                    return Ok(None);
                }
                continue;
            }
            if self.incoming.stage == Stage::Preface {
                match preface(input) {
                    Some(true) => input.advance(PREFACE.len()),
                    Some(false) => return Err(Reason::PROTOCOL_ERROR),
                    None => return Ok(None),
                }
                self.incoming.stage = Stage::Settings;
            }
            let Some(header) = input.first_chunk::<HEADER>() else { return Ok(None) };
            let frame = Frame::read(*header);
            let length = frame.length as usize;
            if length > LONGEST {
                return Err(Reason::FRAME_SIZE_ERROR);
            }
            if let Some(block) = &self.incoming.block
                && (frame.kind != Kind::Continuation || frame.stream != block.head.stream)
            {
                return Err(Reason::PROTOCOL_ERROR);
            }
            if self.incoming.stage == Stage::Settings {
                if frame.kind != Kind::Settings || frame.flags & ACK != 0 {
                    return Err(Reason::PROTOCOL_ERROR);
                }
                self.incoming.stage = Stage::Frames;
            }
            match frame.kind {
                Kind::Data => {
                    // With the length of its padding.
                    let fixed = HEADER + usize::from(frame.flags & PADDED != 0);
                    if input.len() < fixed && length >= fixed - HEADER {
                        return Ok(None);
                    }
                    R::count(self, frame, now);
                    self.begin_data(frame, input)?;
                }
                Kind::Other => {
                    R::count(self, frame, now);
                    input.advance(HEADER);
                    self.incoming.skip = length;
                }
                _ if input.len() < HEADER + length => return Ok(None),
                _ => {
                    R::count(self, frame, now);
                    let event = self.frame(frame, &input[HEADER..HEADER + length], fields)?;
                    input.advance(HEADER + length);
                    if event.is_some() {
                        return Ok(event);
                    }
                }
            }
        }
    }

    /// The header of a DATA frame.
    fn begin_data(&mut self, frame: Frame, input: &mut BytesMut) -> Result<(), Reason> {
        let (stream, length) = (frame.stream, frame.length as usize);
        if stream == 0 || self.is_idle(stream) {
            return Err(Reason::PROTOCOL_ERROR);
        }
        input.advance(HEADER);
        let (mut left, mut padding) = (length, 0);
        if frame.flags & PADDED != 0 {
            if length == 0 {
                return Err(Reason::FRAME_SIZE_ERROR);
            }
            padding = usize::from(input.get_u8());
            left = (length - 1).checked_sub(padding).ok_or(Reason::PROTOCOL_ERROR)?;
        }
        self.recv.receive(length)?;
        let held = match self.place(stream) {
            Some(place) => {
                let it = &mut self.streams[place].1;
                let may_have = it.is_cut || R::may_have_data(&it.message);
                if may_have { it.begin_data(length, left) } else { Err(Reason::PROTOCOL_ERROR) }
            }
            None if self.role.is_late(stream) => Ok(None),
            None => Err(Reason::STREAM_CLOSED),
        };
        match held {
            Ok(Some(held)) => {
                let is_end = frame.flags & END_STREAM != 0;
                self.incoming.data = Some(Data { stream, left, padding, is_end });
                self.recv.release(length - held);
            }
            Ok(None) | Err(_) => {
                self.incoming.skip = left + padding;
                self.recv.release(length);
            }
        }
        if let Err(reason) = held {
            if self.place(stream).is_some() {
                // No peer may send this.
                self.role.waste();
            }
            self.reset_stream(stream, reason);
        }
        self.widen_stream(stream);
        Ok(())
    }

    /// The payload of a DATA frame, as far as it is here; false: nothing of it is.
    fn more_data(&mut self, mut data: Data, input: &mut BytesMut) -> bool {
        let some = data.left.min(input.len());
        if some == 0 && data.left > 0 {
            return false;
        }
        data.left -= some;
        let is_last = data.left == 0;
        self.incoming.data = Some(data).filter(|_| !is_last);
        if is_last {
            self.incoming.skip = data.padding;
        }
        // Meanwhile it may have been reset or left: then its windows are settled.
        let Some(it) = self.stream(data.stream).filter(|it| !it.is_cut) else {
            input.advance(some);
            return true;
        };
        if it.is_unwanted || some == 0 {
            input.advance(some);
        } else {
            it.body.take_from(input, some);
            it.wake_reader();
        }
        if is_last && data.is_end {
            self.complete(data.stream);
        }
        true
    }

    /// All of a message has come.
    pub(super) fn complete(&mut self, stream: u32) {
        let Some(it) = self.stream(stream) else { return };
        match it.complete() {
            Ok(()) if it.is_given => self.open -= 1,
            Ok(()) => {}
            Err(reason) => self.reset_stream(stream, reason),
        }
    }

    /// Any other frame, complete.
    fn frame(
        &mut self,
        frame: Frame,
        payload: &[u8],
        fields: &mut FieldBlock,
    ) -> Result<Option<R::Event>, Reason> {
        let stream = frame.stream;
        match frame.kind {
            Kind::Headers => return self.headers(frame, payload, fields),
            Kind::Continuation => return self.continuation(frame, payload, fields),
            Kind::Priority if stream == 0 => return Err(Reason::PROTOCOL_ERROR),
            Kind::Priority => {
                let reason = match payload.first_chunk::<4>() {
                    Some(on) if payload.len() == 5 => {
                        (number(*on) == stream).then_some(Reason::PROTOCOL_ERROR)
                    }
                    _ => Some(Reason::FRAME_SIZE_ERROR),
                };
                if let Some(reason) = reason {
                    // An idle stream cannot be reset.
                    if self.is_idle(stream) {
                        return Err(reason);
                    }
                    self.reset_stream(stream, reason);
                }
            }
            Kind::Reset if stream == 0 || self.is_idle(stream) => return Err(Reason::PROTOCOL_ERROR),
            Kind::Reset => {
                let code = payload.try_into().map_err(|_| Reason::FRAME_SIZE_ERROR)?;
                R::was_reset(self, stream, Reason(u32::from_be_bytes(code)));
            }
            Kind::Settings if stream != 0 => return Err(Reason::PROTOCOL_ERROR),
            Kind::Settings if frame.flags & ACK != 0 => {
                return if payload.is_empty() { Ok(None) } else { Err(Reason::FRAME_SIZE_ERROR) };
            }
            Kind::Settings => {
                let set = settings::read(payload)?;
                if let Some(window) = set.window {
                    self.set_initial(window)?;
                }
                if set.has_small_table && self.table == Table::AsUsual {
                    self.table = Table::ToBeTold;
                }
                self.acknowledge();
                R::set(self, set);
            }
            Kind::Ping if stream != 0 => return Err(Reason::PROTOCOL_ERROR),
            Kind::Ping if payload.len() != 8 => return Err(Reason::FRAME_SIZE_ERROR),
            Kind::Ping if frame.flags & ACK == 0 => self.pong(payload),
            Kind::Ping => R::answered(self, payload),
            Kind::Goaway if stream != 0 => return Err(Reason::PROTOCOL_ERROR),
            Kind::Goaway => match payload.first_chunk::<4>() {
                Some(last) if payload.len() >= 8 => R::goodbye(self, number(*last))?,
                _ => return Err(Reason::FRAME_SIZE_ERROR),
            },
            Kind::WindowUpdate => {
                let Ok(by) = payload.try_into().map(number) else {
                    return Err(Reason::FRAME_SIZE_ERROR);
                };
                if self.is_idle(stream) || stream == 0 && by == 0 {
                    return Err(Reason::PROTOCOL_ERROR);
                }
                self.enlarge(stream, by)?;
            }
            // No client may push, and no server was allowed to.
            Kind::Promise => return Err(Reason::PROTOCOL_ERROR),
            Kind::Data | Kind::Other => {}
        }
        Ok(None)
    }

    fn headers(
        &mut self,
        frame: Frame,
        payload: &[u8],
        fields: &mut FieldBlock,
    ) -> Result<Option<R::Event>, Reason> {
        let stream = frame.stream;
        if stream.is_multiple_of(2) {
            return Err(Reason::PROTOCOL_ERROR);
        }
        let (mut rest, mut padding) = (payload, 0);
        if frame.flags & PADDED != 0 {
            let (first, behind) = rest.split_first().ok_or(Reason::FRAME_SIZE_ERROR)?;
            (padding, rest) = (usize::from(*first), behind);
        }
        let mut is_malformed = false;
        if frame.flags & PRIORITY != 0 {
            let (on, behind) = rest.split_at_checked(5).ok_or(Reason::FRAME_SIZE_ERROR)?;
            is_malformed = number([on[0], on[1], on[2], on[3]]) == stream;
            rest = behind;
        }
        let length = rest.len().checked_sub(padding).ok_or(Reason::PROTOCOL_ERROR)?;
        let head = Head { stream, is_end: frame.flags & END_STREAM != 0, is_malformed };
        if frame.flags & END_HEADERS != 0 {
            return self.block(head, &rest[..length], fields);
        }
        self.incoming.block = Some(Box::new(Block { head, bytes: rest[..length].to_vec() }));
        Ok(None)
    }

    fn continuation(
        &mut self,
        frame: Frame,
        payload: &[u8],
        fields: &mut FieldBlock,
    ) -> Result<Option<R::Event>, Reason> {
        let most = self.limits.block;
        let Some(block) = &mut self.incoming.block else { return Err(Reason::PROTOCOL_ERROR) };
        if block.bytes.len() + payload.len() > most {
            return Err(Reason::ENHANCE_YOUR_CALM);
        }
        block.bytes.extend_from_slice(payload);
        if frame.flags & END_HEADERS == 0 {
            return Ok(None);
        }
        match self.incoming.block.take() {
            Some(block) => self.block(block.head, &block.bytes, fields),
            None => Ok(None),
        }
    }

    /// A complete field block: it is decoded whatever becomes of its message, since later ones refer to it.
    fn block(
        &mut self,
        head: Head,
        bytes: &[u8],
        fields: &mut FieldBlock,
    ) -> Result<Option<R::Event>, Reason> {
        fields.clear();
        let most = self.limits.list as usize;
        self.decoder.decode(bytes, most, fields).map_err(|_| Reason::COMPRESSION_ERROR)?;
        R::block(self, head, fields)
    }

    /// Whether nobody has begun a stream.
    pub(super) fn is_idle(&self, stream: u32) -> bool {
        stream > self.newest || stream != 0 && stream.is_multiple_of(2)
    }
}
