//! Fields of HTTP/2 (RFC 7541).

mod huffman;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod model;
mod octets;

/// Letters of names, which may stand in values of pseudo-fields, too.
const NAME_LETTERS: huffman::Letters = b"abx*!+#~^`";
const VALUE_LETTERS: huffman::Letters = b"abx*!+#~^`\\\x80\x99\x81\x87\x8e\xc7\xc0\xcb\xf9";
