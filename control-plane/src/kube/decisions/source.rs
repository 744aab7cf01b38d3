//! The source of a held object in the data of its record.
//!
//! A ConfigMap and a Secret have room for 1 MiB, and an Ingress may be larger than that: a large source is packed. One
//! that is not is text that people can read.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::zlib;

/// The key of a source.
pub(super) const KEY: &str = "object";
/// The key of a packed one: zlib, in base64.
pub(super) const PACKED: &str = "object.zlib";

/// Sources up to this size are not packed.
const PLAIN: usize = 512 * 1024;
/// Limit of what is unpacked. No object of an API server has that size.
const MOST: usize = 16 << 20;

/// The key and the value for a source.
pub(super) fn pack(source: String) -> (&'static str, String) {
    match source.len() {
        ..=PLAIN => (KEY, source),
        _ => (PACKED, STANDARD.encode(zlib::pack(source.as_bytes()))),
    }
}

/// The source in the data of a record, whose values `text` decodes.
pub(super) fn unpack(
    data: &BTreeMap<String, String>,
    text: impl Fn(&str) -> Result<String, String>,
) -> Result<String, String> {
    if let Some(source) = data.get(KEY) {
        return text(source);
    }
    let packed = data.get(PACKED).ok_or_else(|| format!("expected a key {KEY} or {PACKED}"))?;
    let packed = STANDARD.decode(text(packed)?).map_err(|error| format!("{PACKED}: {error}"))?;
    let source = zlib::unpack(&packed, MOST);
    let source = source.map_err(|error| format!("{PACKED}: expected zlib: {error}"))?;
    String::from_utf8(source).map_err(|_| format!("{PACKED}: expected text"))
}
