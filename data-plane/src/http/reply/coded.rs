//! An answer's body that is compressed on its way to its client.
//!
//! **Invariant:** one piece of the backend's is in work at a time, and what comes of it goes before the next one is asked
//! for; the backend is not read on while the client takes nothing. What has come goes out when nothing more is there, so
//! that an answer which comes in parts arrives in parts.

use std::fmt;
use std::io::{self, Write};

use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;
use bytes::Bytes;
use flate2::write::GzEncoder;

use super::ReplyBody;
use crate::codec::error::{Kind, ProxyError};
use crate::local::quota::Share;
use crate::table::policy::compression::Coding;

/// What a body that is being compressed with gzip holds, in bytes: the state of deflate with a window of 32 KiB, and a
/// buffer.
const GZIP: usize = 448 * 1024;

/// The same of brotli, with its window and its tables.
const BROTLI: usize = 2 * 1024 * 1024;

/// The same above [`USUAL`].
const HARD: usize = 7 * 1024 * 1024;

/// Windows of brotli, as a power of two. The tables of the levels above [`USUAL`] are 32 MiB with the small one.
const WINDOW: i32 = 16;
const HARD_WINDOW: i32 = 18;

/// The level of brotli that ingress-nginx has.
const USUAL: u32 = 4;

/// The highest level of brotli that is used: above it tables grow to tens of megabytes, and a worker stands still for
/// tens of milliseconds for each piece.
const HIGHEST: u32 = 6;

/// Room for what one piece comes to, in bytes.
const ROOM: usize = 4 * 1024;

/// A body that is compressed.
pub(crate) struct Coded {
    body: ReplyBody,
    /// `None` once all is said.
    encoder: Option<Encoder>,
    /// Whether it has taken something that may not have gone yet.
    holds: bool,
    /// Bytes of the body that it has taken and nobody was told of.
    came: usize,
    _share: Share,
}

enum Encoder {
    Gzip(Box<GzEncoder<Vec<u8>>>),
    Brotli(Box<CompressorWriter<Vec<u8>>>),
}

impl fmt::Debug for Coded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coded").field("body", &self.body).finish_non_exhaustive()
    }
}

impl Coded {
    /// Bytes that it holds beside its body's.
    pub(crate) fn cost(coding: Coding, level: u32) -> usize {
        match coding {
            Coding::Gzip => GZIP,
            Coding::Brotli if level <= USUAL => BROTLI,
            Coding::Brotli => HARD,
        }
    }

    /// For as long as its share is there.
    pub(crate) fn new(body: ReplyBody, coding: Coding, level: u32, share: Share) -> Self {
        Self { body, encoder: Some(Encoder::new(coding, level)), holds: false, came: 0, _share: share }
    }

    /// The body itself.
    pub(super) fn body(&mut self) -> &mut ReplyBody {
        &mut self.body
    }

    /// Likewise.
    pub(super) fn inner(&self) -> &ReplyBody {
        &self.body
    }

    /// Bytes of the body that were taken since this was asked last.
    pub(super) fn came(&mut self) -> usize {
        std::mem::take(&mut self.came)
    }

    /// What is ready: a piece, or `Some(None)` at the end.
    pub(super) fn buffered(&mut self) -> Result<Option<Option<Bytes>>, ProxyError> {
        let failed = |error| ProxyError::of(Kind::InvalidBody, error);
        loop {
            let Some(encoder) = &mut self.encoder else {
                return Ok(Some(None));
            };
            let ready = match self.body.buffered()? {
                Some(Some(piece)) => {
                    self.holds = true;
                    self.came += piece.len();
                    encoder.push(&piece).map_err(failed)?
                }
                Some(None) => {
                    let rest = self.encoder.take().map_or_else(|| Ok(Vec::new()), Encoder::finish);
                    rest.map_err(failed)?
                }
                None if std::mem::take(&mut self.holds) => encoder.flush().map_err(failed)?,
                None => return Ok(None),
            };
            if !ready.is_empty() {
                return Ok(Some(Some(ready.into())));
            }
        }
    }
}

impl Encoder {
    fn new(coding: Coding, level: u32) -> Self {
        let out = Vec::with_capacity(ROOM);
        match coding {
            Coding::Gzip => Self::Gzip(Box::new(GzEncoder::new(out, flate2::Compression::new(level)))),
            Coding::Brotli => {
                let quality = level.min(HIGHEST) as i32;
                let lgwin = if level <= USUAL { WINDOW } else { HARD_WINDOW };
                let params = BrotliEncoderParams { quality, lgwin, ..BrotliEncoderParams::default() };
                Self::Brotli(Box::new(CompressorWriter::with_params(out, ROOM, &params)))
            }
        }
    }

    /// Takes a piece; what comes out.
    fn push(&mut self, piece: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(encoder) => encoder.write_all(piece)?,
            Self::Brotli(encoder) => encoder.write_all(piece)?,
        }
        Ok(self.taken())
    }

    /// What lets the client read all that was taken.
    fn flush(&mut self) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(encoder) => encoder.flush()?,
            Self::Brotli(encoder) => encoder.flush()?,
        }
        Ok(self.taken())
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(encoder) => encoder.finish(),
            Self::Brotli(encoder) => Ok(encoder.into_inner()),
        }
    }

    fn taken(&mut self) -> Vec<u8> {
        let out = match self {
            Self::Gzip(encoder) => encoder.get_mut(),
            Self::Brotli(encoder) => encoder.get_mut(),
        };
        std::mem::take(out)
    }
}
