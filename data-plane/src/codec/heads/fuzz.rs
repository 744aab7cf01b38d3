//! Compares the inspection of HTTP/2 input, split anywhere, with a slow reader.

use super::*;
use crate::codec::hpack::model::{Model, is_valid};

const LIST: u32 = 32 * 1024;

/// Encodes a frame.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
    [&[a, b, c, kind, flags][..], &stream.to_be_bytes(), payload].concat()
}

/// What is passed on of bytes that arrive in parts, and what is reported.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct Passed {
    pub(super) bytes: Vec<u8>,
    pub(super) frames: Vec<(Kind, u32)>,
    pub(super) blocks: Vec<Block>,
    pub(super) broken: bool,
}

/// Passes them in the way a connection reads them.
pub(super) fn pass(bytes: &[u8], mut widths: impl Iterator<Item = usize>) -> Passed {
    let (mut heads, mut passed, mut rest) = (Heads::new(false, LIST), Passed::default(), bytes);
    while !rest.is_empty() && !heads.is_broken() {
        let width = widths.next().unwrap_or(usize::MAX).clamp(1, rest.len()).min(heads.room());
        let (now, behind) = rest.split_at(width);
        let mut now = now.to_vec();
        rest = behind;
        let on = heads.pass(&mut now, |seen| match seen {
            Seen::Frame(frame) => passed.frames.push((frame.kind, frame.length)),
            Seen::Block(block) => passed.blocks.push(block),
        });
        passed.bytes.extend_from_slice(&now[..on]);
        while !heads.ready().is_empty() {
            let some = heads.ready().len().min(1 + width / 2);
            passed.bytes.extend_from_slice(&heads.ready()[..some]);
            heads.went(some);
        }
    }
    passed.broken = heads.is_broken();
    passed
}

/// The field blocks in frames.
fn blocks(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut blocks, mut open) = (Vec::new(), Vec::new());
    while let Some((header, rest)) = bytes.split_first_chunk() {
        let frame = Frame::read(*header);
        let (payload, behind) = rest.split_at((frame.length as usize).min(rest.len()));
        bytes = behind;
        match frame.kind {
            Kind::Headers => {
                let mut payload = payload.to_vec();
                let Ok((part, _)) = fields(frame, &mut payload) else { break };
                open = payload[part].to_vec();
            }
            Kind::Continuation => open.extend_from_slice(payload),
            _ => continue,
        }
        if frame.flags & END_HEADERS != 0 {
            blocks.push(std::mem::take(&mut open));
        }
    }
    blocks
}

/// Frames, each encoded as two octets for type and length, and a payload.
pub fn frames(data: &[u8]) {
    let (mut bytes, mut stream, mut rest) = (Vec::new(), 1, data);
    while let [what, length, behind @ ..] = rest {
        let (payload, behind) = behind.split_at(usize::from(*length).min(behind.len()));
        let kind = [1, 9, 0, 1][usize::from(what & 3)];
        stream += if kind == 1 { 2 } else { 0 };
        let flags = [END_HEADERS, PADDED, PRIORITY].into_iter().zip([4, 8, 16]);
        let flags = flags.filter(|(_, bit)| what & bit != 0).fold(0, |flags, (flag, _)| flags | flag);
        bytes.extend(frame(kind, flags, stream, payload));
        rest = behind;
    }
    let whole = pass(&bytes, std::iter::repeat(usize::MAX));
    for width in [1, 7] {
        assert_eq!(pass(&bytes, std::iter::repeat(width)), whole, "in pieces of {width}");
    }
    let (mut sent, mut got) = (Model::default(), Model::default());
    let both = blocks(&bytes).into_iter().zip(blocks(&whole.bytes));
    for ((was, is), told) in both.zip(&whole.blocks) {
        let is_valid = |fields: Option<Vec<_>>| fields.is_some_and(|fields| fields.iter().all(is_valid));
        let was_valid = sent.read(&was).map(|fields| is_valid(Some(fields)));
        assert!(was_valid.is_some(), "{was:?} is no block");
        assert!(
            told.fault.is_some() || told.target.is_some() || was == is && was_valid == Some(true),
            "{was:?}"
        );
        assert!(is_valid(got.read(&is)), "{is:?} of {was:?}");
        assert_eq!(got.sizes(), sent.sizes());
    }
}
