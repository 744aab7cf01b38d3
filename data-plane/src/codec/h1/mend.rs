//! Repairs response heads with harmless defects: nginx accepts them, and there are backends in production that send
//! them.
//!
//! These are a line that ends in LF alone, a line without a colon, a field with a name that is none (`X@A`), and a control
//! octet in a value. They are never passed on: the head is rewritten line by line and then parsed as strictly as any
//! other. What could be read in two ways is still refused (docs/adr gives the reason for each): a bare CR, a NUL, a
//! folded line, a blank in a name or before the colon, and any defect in the framing.

use bytes::{BufMut, BytesMut};

use crate::codec::guard;

/// Fields that determine where a response ends, and so where the next one begins.
const FRAMING: [&[u8]; 2] = [b"content-length", b"transfer-encoding"];

/// The same head without its defects; `None` if that would require guessing.
pub(super) fn mend(head: &[u8]) -> Option<BytesMut> {
    let mut mended = BytesMut::with_capacity(head.len() + 64);
    for (number, line) in head.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.iter().any(|byte| matches!(byte, b'\r' | 0))
            || line.first().is_some_and(u8::is_ascii_whitespace)
        {
            return None;
        }
        if line.is_empty() {
            mended.put_slice(b"\r\n");
            return Some(mended);
        }
        if number == 0 {
            mended.put_slice(line);
        } else {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else {
                if is_about_framing(line) {
                    return None;
                }
                continue;
            };
            let (name, value) = line.split_at(colon);
            let is_odd = !guard::is_name(name);
            if is_odd && !name.is_empty() && name.iter().all(is_visible) && !is_about_framing(name) {
                continue;
            }
            if is_odd || (is_about_framing(name) && !value.iter().all(is_plain)) {
                return None;
            }
            mended.put_slice(name);
            mended.extend(value.iter().map(|byte| if is_plain(byte) { *byte } else { b' ' }));
        }
        mended.put_slice(b"\r\n");
    }
    None
}

fn is_plain(byte: &u8) -> bool {
    guard::is_value_octet(*byte)
}

/// No reader takes it for the end of a name.
fn is_visible(byte: &u8) -> bool {
    byte.is_ascii_graphic() || !byte.is_ascii()
}

fn is_about_framing(text: &[u8]) -> bool {
    FRAMING.iter().any(|name| text.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_but_unambiguous_head_is_normalised() {
        for (head, mended) in [
            ("HTTP/1.1 200 OK\nA: b\nC: d\n\n", "HTTP/1.1 200 OK\r\nA: b\r\nC: d\r\n\r\n"),
            ("HTTP/1.1 200 OK\r\nA: b\nC: d\r\n\n", "HTTP/1.1 200 OK\r\nA: b\r\nC: d\r\n\r\n"),
            ("HTTP/1.1 200 OK\r\nno colon\r\nC: d\r\n\r\n", "HTTP/1.1 200 OK\r\nC: d\r\n\r\n"),
            (
                "HTTP/1.1 200 OK\r\nX[0]: 1\r\nX@A: 2\r\nÉ: 3\r\nC: d\r\n\r\n",
                "HTTP/1.1 200 OK\r\nC: d\r\n\r\n",
            ),
            ("HTTP/1.1 200 OK\r\nA: b\u{1}\u{2}\u{7f}c\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b   c\r\n\r\n"),
            ("HTTP/1.1 200 OK\nContent-Length: 3\n\n", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"),
        ] {
            assert_eq!(mend(head.as_bytes()).unwrap(), mended.as_bytes(), "{head:?}");
        }
    }

    #[test]
    fn ambiguous_head_is_not_normalised() {
        for head in [
            "HTTP/1.1 200 OK\r\nA: b\rC: d\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA B: c\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA\u{1}: b\r\n\r\n",
            "HTTP/1.1 200 OK\r\n: b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length@: 3\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length 3\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\u{1}\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\u{1}\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\0c\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b",
        ] {
            assert!(mend(head.as_bytes()).is_none(), "{head:?}");
        }
    }
}
