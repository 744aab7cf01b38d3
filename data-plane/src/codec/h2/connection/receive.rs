//! What a client sends.

use std::time::Instant;

use bytes::{Buf as _, BytesMut};

use super::{Connection, FORGOTTEN, GOODBYE, Leaving, Opened, Table};
use crate::codec::frame::{
    ACK, END_HEADERS, END_STREAM, Frame, HEADER, Kind, LONGEST, PADDED, PREFACE, PRIORITY, most_split,
    number, preface,
};
use crate::codec::h2::stream::Stream;
use crate::codec::h2::{Reason, settings};
use crate::codec::hpack::block::FieldBlock;
use crate::codec::hpack::encode;

/// The status of a request with too many fields, or too long ones.
const TOO_LARGE: u16 = 431;

/// Where in what comes we are.
#[derive(Debug, Default)]
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    #[default]
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
struct Head {
    stream: u32,
    is_end: bool,
    /// It depends on itself.
    is_malformed: bool,
}

impl Incoming {
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

impl Connection {
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
    ) -> Result<Option<Opened>, Reason> {
        loop {
            if self.is_over || self.is_full() || self.abuse().is_some() {
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
                    self.frames.read(frame, now);
                    self.begin_data(frame, input)?;
                }
                Kind::Other => {
                    self.frames.read(frame, now);
                    input.advance(HEADER);
                    self.incoming.skip = length;
                }
                _ if input.len() < HEADER + length => return Ok(None),
                _ => {
                    self.frames.read(frame, now);
                    let opened = self.frame(frame, &input[HEADER..HEADER + length], fields)?;
                    input.advance(HEADER + length);
                    if opened.is_some() {
                        return Ok(opened);
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
            Some(place) => self.streams[place].1.begin_data(length, left),
            None if self.is_forgotten(stream) => Ok(None),
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

    /// All of a request has come.
    fn complete(&mut self, stream: u32) {
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
    ) -> Result<Option<Opened>, Reason> {
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
            Kind::Reset if payload.len() != 4 => return Err(Reason::FRAME_SIZE_ERROR),
            Kind::Reset if stream == 0 || self.is_idle(stream) => return Err(Reason::PROTOCOL_ERROR),
            Kind::Reset => {
                if let Some(it) = self.stream(stream) {
                    it.is_left = true;
                }
                self.cut(stream);
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
            }
            Kind::Ping if stream != 0 => return Err(Reason::PROTOCOL_ERROR),
            Kind::Ping if payload.len() != 8 => return Err(Reason::FRAME_SIZE_ERROR),
            Kind::Ping if frame.flags & ACK == 0 => self.pong(payload),
            Kind::Ping if payload == GOODBYE => self.tell(),
            Kind::Goaway if stream != 0 => return Err(Reason::PROTOCOL_ERROR),
            Kind::Goaway if payload.len() < 8 => return Err(Reason::FRAME_SIZE_ERROR),
            Kind::WindowUpdate => {
                let Ok(by) = payload.try_into().map(number) else {
                    return Err(Reason::FRAME_SIZE_ERROR);
                };
                if self.is_idle(stream) || stream == 0 && by == 0 {
                    return Err(Reason::PROTOCOL_ERROR);
                }
                self.enlarge(stream, by)?;
            }
            // No client may push.
            Kind::Promise => return Err(Reason::PROTOCOL_ERROR),
            Kind::Ping | Kind::Goaway | Kind::Data | Kind::Other => {}
        }
        Ok(None)
    }

    fn headers(
        &mut self,
        frame: Frame,
        payload: &[u8],
        fields: &mut FieldBlock,
    ) -> Result<Option<Opened>, Reason> {
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
    ) -> Result<Option<Opened>, Reason> {
        let most = most_split(self.limits.list);
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
    fn block(&mut self, head: Head, bytes: &[u8], fields: &mut FieldBlock) -> Result<Option<Opened>, Reason> {
        let stream = head.stream;
        fields.clear();
        let most = self.limits.list as usize;
        self.decoder.decode(bytes, most, fields).map_err(|_| Reason::COMPRESSION_ERROR)?;
        if stream > self.newest {
            return self.request(head, fields);
        }
        let Some(it) = self.stream(stream) else {
            if self.is_forgotten(stream) {
                return Ok(None);
            }
            // If all before it were opened, so was this one, and it has ended (RFC 9113 sections 5.1 and 5.1.1).
            let were_all = self.opened == self.newest.div_ceil(2);
            return Err(if were_all { Reason::STREAM_CLOSED } else { Reason::PROTOCOL_ERROR });
        };
        if it.is_left || it.has_come && !it.is_cut {
            return Err(Reason::STREAM_CLOSED);
        }
        if it.is_cut {
            return Ok(None);
        }
        if !head.is_end {
            self.reset_stream(stream, Reason::PROTOCOL_ERROR);
            return Ok(None);
        }
        // RFC 9113 section 8.1.
        it.is_malformed =
            head.is_malformed || fields.is_malformed() || fields.has_pseudo() || fields.is_over();
        self.complete(stream);
        Ok(None)
    }

    fn request(&mut self, head: Head, fields: &FieldBlock) -> Result<Option<Opened>, Reason> {
        let Head { stream, is_end: ended, is_malformed } = head;
        (self.newest, self.opened) = (stream, self.opened + 1);
        if matches!(self.leaving, Leaving::Told(_)) {
            // It will be sent again on another connection.
            return Ok(None);
        }
        if self.open >= self.limits.streams as usize {
            self.refuse(stream, ended, Reason::REFUSED_STREAM);
            return Ok(None);
        }
        if fields.is_over() && !is_malformed {
            self.put_block(stream, true, |out| encode::status(out, TOO_LARGE));
            if !ended {
                self.refuse(stream, ended, Reason::PROTOCOL_ERROR);
            }
            return Ok(None);
        }
        let it = Stream::new(self.initial, self.limits.stream, ended);
        self.streams.push((stream, Box::new(it)));
        self.open += 1;
        let is_malformed = is_malformed || fields.is_no_request();
        Ok(Some(Opened { stream, ended, is_malformed }))
    }

    /// Resets a stream that was not begun.
    fn refuse(&mut self, stream: u32, ended: bool, reason: Reason) {
        self.out.reset(stream, reason);
        self.frames.sent_reset(reason);
        if !ended {
            self.forget(stream);
        }
    }

    /// Expects more of a stream that there is not any more.
    pub(super) fn forget(&mut self, stream: u32) {
        if self.forgotten.len() == FORGOTTEN {
            self.forgotten.pop_front();
        }
        self.forgotten.push_back(stream);
    }

    /// Whether more may come for a stream that there is not, and is no error.
    fn is_forgotten(&self, stream: u32) -> bool {
        matches!(self.leaving, Leaving::Told(last) if stream > last) || self.forgotten.contains(&stream)
    }

    fn is_idle(&self, stream: u32) -> bool {
        stream > self.newest || stream != 0 && stream.is_multiple_of(2)
    }
}
