//! Pages that are made while they are sent.
//!
//! **Invariant:** of a page there is one piece in memory, the one that is on its way, however long the page is. The next
//! one is made when the client has taken it.

use bytes::Bytes;

use super::gzip::{self, Encoder};
use crate::admin::{Body, Pieces};

/// Length of a piece in bytes, compressed or not, up to what is appended at once.
const LENGTH: usize = 64 * 1024;

/// The beginning of a body with what makes the rest, and whether it is compressed.
pub(super) fn begin(body: Body, may_compress: bool) -> ((Bytes, Option<Maker>), bool) {
    match body {
        Body::Whole(whole) => {
            let coded = if may_compress { gzip::compress(&whole) } else { None };
            let is_coded = coded.is_some();
            ((coded.map_or(whole, Bytes::from), None), is_coded)
        }
        Body::Pieces(pieces) => (Maker::new(pieces, may_compress).piece(), may_compress),
    }
}

/// The part of a page that is not made yet.
pub(super) struct Maker {
    pieces: Box<dyn Pieces>,
    gzip: Option<Box<Encoder>>,
}

impl Maker {
    pub(super) fn new(pieces: Box<dyn Pieces>, gzip: bool) -> Self {
        Self { pieces, gzip: gzip.then(|| Box::new(Encoder::new())) }
    }

    /// The next piece, and what makes those after it.
    pub(super) fn piece(mut self) -> (Bytes, Option<Self>) {
        let mut text = String::with_capacity(LENGTH);
        loop {
            let mut has_more = true;
            while has_more && text.len() < LENGTH {
                has_more = self.pieces.append(&mut text);
            }
            let Some(encoder) = &mut self.gzip else { return (text.into(), has_more.then_some(self)) };
            encoder.push(text.as_bytes());
            text.clear();
            if !has_more {
                encoder.end();
            }
            if !has_more || encoder.len() >= LENGTH {
                return (encoder.take().into(), has_more.then_some(self));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// Lines with their numbers, up to this one.
    struct Lines(u32, u32);

    impl Pieces for Lines {
        fn append(&mut self, out: &mut String) -> bool {
            out.push_str(&format!("line {}\n", self.0.wrapping_mul(2_654_435_761)));
            self.0 += 1;
            self.0 < self.1
        }
    }

    fn pieces(lines: u32, gzip: bool) -> Vec<Bytes> {
        let (mut made, mut rest) = (Vec::new(), Some(Maker::new(Box::new(Lines(0, lines)), gzip)));
        while let Some(maker) = rest {
            let (piece, behind) = maker.piece();
            made.push(piece);
            rest = behind;
        }
        made
    }

    #[test]
    fn a_page_is_made_in_pieces_of_bounded_length() {
        let whole: String = pieces(200_000, false).iter().map(|it| str::from_utf8(it).unwrap()).collect();
        assert_eq!(whole.lines().count(), 200_000);
        assert!(whole.lines().last().unwrap().starts_with("line "));
        for gzip in [false, true] {
            let pieces = pieces(200_000, gzip);
            assert!(pieces.len() > 10, "{}", pieces.len());
            assert!(pieces.iter().all(|piece| piece.len() < 2 * LENGTH && !piece.is_empty()));
            let mut unpacked = String::new();
            let all = pieces.concat();
            if gzip {
                flate2::read::GzDecoder::new(&*all).read_to_string(&mut unpacked).unwrap();
                assert_eq!(unpacked, whole);
            }
        }
        assert_eq!(pieces(3, false).len(), 1);
    }
}
