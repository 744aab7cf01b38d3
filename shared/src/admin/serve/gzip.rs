//! Compression of pages for clients that accept it, as Prometheus does: repeated labels make up most of a page of
//! metrics.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, header};

/// Pages below this length, in bytes, are sent as they are.
const WORTHWHILE: usize = 1024;

/// Whether a request accepts gzip (RFC 9110 section 12.5.3); without `Accept-Encoding` it does not.
pub(super) fn is_accepted(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).into_iter().filter_map(|value| value.to_str().ok());
    let mut any = false;
    for item in values.flat_map(|value| value.split(',')) {
        let mut parts = item.split(';').map(str::trim);
        let coding = parts.next().unwrap_or_default();
        let is_wanted = parts.filter_map(weight).all(|weight| weight > 0.0);
        if coding.eq_ignore_ascii_case("gzip") || coding.eq_ignore_ascii_case("x-gzip") {
            return is_wanted;
        }
        any |= coding == "*" && is_wanted;
    }
    any
}

/// The value of a parameter `q`; one that is no number is 0.
fn weight(parameter: &str) -> Option<f32> {
    let (name, value) = parameter.split_once('=')?;
    name.trim().eq_ignore_ascii_case("q").then(|| value.trim().parse().unwrap_or_default())
}

/// A body in gzip, if it is long enough.
pub(super) fn compress(body: &[u8]) -> Option<Vec<u8>> {
    (body.len() >= WORTHWHILE).then(|| {
        let mut encoder = Encoder::new();
        encoder.push(body);
        encoder.end();
        encoder.take()
    })
}

/// Compresses a body that comes in pieces.
pub(super) struct Encoder(GzEncoder<Vec<u8>>);

impl Encoder {
    pub(super) fn new() -> Self {
        Self(GzEncoder::new(Vec::new(), Compression::fast()))
    }

    /// Adds a piece.
    pub(super) fn push(&mut self, piece: &[u8]) {
        // Writing to memory cannot fail.
        let _ = self.0.write_all(piece);
    }

    /// Adds the end of the stream: that was the last piece.
    pub(super) fn end(&mut self) {
        let _ = self.0.try_finish();
    }

    /// Bytes that are ready.
    pub(super) fn len(&self) -> usize {
        self.0.get_ref().len()
    }

    /// What is ready.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(self.0.get_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_request_accepts() {
        let accepted = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::ACCEPT_ENCODING, header::HeaderValue::from_static(value));
            }
            is_accepted(&headers)
        };
        for yes in ["gzip", "deflate, GZIP;q=0.5", "x-gzip", "*", "br;q=1, *;q=0.1", "gzip ; Q=1"] {
            assert!(accepted(&[yes]), "{yes}");
        }
        for no in ["", "identity", "gzip;q=0", "gzip; q=0.000", "*, gzip;q=0", "gzip;q=x", "gzipped"] {
            assert!(!accepted(&[no]), "{no}");
        }
        assert!(!accepted(&[]));
        assert!(accepted(&["br", "gzip"]));
    }
}
