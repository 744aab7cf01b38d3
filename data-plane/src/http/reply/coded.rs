//! A response body that is compressed on its way to its client, or in which texts are replaced.
//!
//! **Invariant:** one piece of the backend's body is compressed at a time, and its output is sent before the next
//! piece is read; the backend is not read while the client does not read. Output is flushed when no more input is
//! available, so that a response that arrives in parts is delivered in parts.

use std::fmt;
use std::io::{self, Write};

use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;
use bytes::Bytes;
use flate2::write::GzEncoder;

use super::{Replacer, ReplyBody};
use crate::codec::error::{Kind, ProxyError};
use crate::local::quota::Share;
use crate::table::policy::compression::Coding;

/// Memory of a gzip-compressed body in bytes: the deflate state with a 32 KiB window, and a buffer.
const GZIP: usize = 448 * 1024;

/// The same for brotli, with its window and tables.
const BROTLI: usize = 2 * 1024 * 1024;

/// The same above level [`USUAL`].
const HARD: usize = 7 * 1024 * 1024;

/// Brotli windows, as powers of two. With the small one, the tables of the levels above [`USUAL`] would take 32 MiB.
const WINDOW: i32 = 16;
const HARD_WINDOW: i32 = 18;

/// ingress-nginx' default brotli level.
const USUAL: u32 = 4;

/// The highest brotli level that is used: above it tables grow to tens of megabytes, and a worker is blocked for tens
/// of milliseconds per piece.
const HIGHEST: u32 = 6;

/// Size of the output buffer for one piece, in bytes.
const ROOM: usize = 4 * 1024;

/// A compressed body.
pub(crate) struct Coded {
    body: ReplyBody,
    /// `None` once all output was produced.
    encoder: Option<Encoder>,
    /// Whether it may contain input that was not flushed yet.
    holds: bool,
    /// Input bytes that were not reported yet.
    came: usize,
    share: Option<Share>,
}

enum Encoder {
    Gzip(Box<GzEncoder<Vec<u8>>>),
    Brotli(Box<CompressorWriter<Vec<u8>>>),
    Replacer(Box<Replacer>),
}

impl fmt::Debug for Coded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coded").field("body", &self.body).finish_non_exhaustive()
    }
}

impl Coded {
    /// Memory that it holds in addition to its body's.
    pub(crate) fn cost(coding: Coding, level: u32) -> usize {
        match coding {
            Coding::Gzip => GZIP,
            Coding::Brotli if level <= USUAL => BROTLI,
            Coding::Brotli => HARD,
        }
    }

    /// It holds its share of the budget as long as it exists.
    pub(crate) fn new(body: ReplyBody, coding: Coding, level: u32, share: Share) -> Self {
        Self { body, encoder: Some(Encoder::new(coding, level)), holds: false, came: 0, share: Some(share) }
    }

    /// One in which texts are replaced.
    pub(crate) fn replacing(body: ReplyBody, replacer: Replacer) -> Self {
        let encoder = Some(Encoder::Replacer(Box::new(replacer)));
        Self { body, encoder, holds: false, came: 0, share: None }
    }

    /// Whether it is compressed.
    pub(crate) fn is_compressed(&self) -> bool {
        self.share.is_some()
    }

    /// The uncompressed body.
    pub(super) fn body(&mut self) -> &mut ReplyBody {
        &mut self.body
    }

    /// The uncompressed body.
    pub(super) fn inner(&self) -> &ReplyBody {
        &self.body
    }

    /// Input bytes since the last call.
    pub(super) fn came(&mut self) -> usize {
        std::mem::take(&mut self.came)
    }

    /// What is available: a piece, or `Some(None)` at the end.
    pub(super) fn buffered(&mut self) -> Result<Option<Option<Bytes>>, ProxyError> {
        let failed = |error| ProxyError::of(Kind::InvalidBody, error);
        loop {
            let Some(encoder) = &mut self.encoder else {
                return Ok(Some(None));
            };
            match encoder {
                Encoder::Replacer(it) if it.has_more() => return Ok(Some(Some(it.next(ROOM).into()))),
                Encoder::Replacer(it) if it.is_over() => {
                    self.encoder = None;
                    continue;
                }
                _ => {}
            }
            let ready = match self.body.buffered()? {
                Some(Some(piece)) => {
                    self.holds = true;
                    self.came += piece.len();
                    encoder.push(&piece).map_err(failed)?
                }
                Some(None) if let Encoder::Replacer(it) = encoder => {
                    it.end();
                    continue;
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

    /// Compresses a piece; returns the output.
    fn push(&mut self, piece: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(encoder) => encoder.write_all(piece)?,
            Self::Brotli(encoder) => encoder.write_all(piece)?,
            // Its output comes in parts.
            Self::Replacer(replacer) => replacer.push(piece),
        }
        Ok(self.taken())
    }

    /// Flushes, so that the client can decode all input so far.
    fn flush(&mut self) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(encoder) => encoder.flush()?,
            Self::Brotli(encoder) => encoder.flush()?,
            // What it holds may be the beginning of a text.
            Self::Replacer(_) => {}
        }
        Ok(self.taken())
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(encoder) => encoder.finish(),
            Self::Brotli(encoder) => Ok(encoder.into_inner()),
            // All of it came before.
            Self::Replacer(_) => Ok(Vec::new()),
        }
    }

    fn taken(&mut self) -> Vec<u8> {
        let out = match self {
            Self::Gzip(encoder) => encoder.get_mut(),
            Self::Brotli(encoder) => encoder.get_mut(),
            Self::Replacer(_) => return Vec::new(),
        };
        std::mem::take(out)
    }
}
