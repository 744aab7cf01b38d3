//! Secret bytes: wiped from memory when the last reference to them is dropped.

use bytes::Bytes;
use zeroize::Zeroizing;

/// Takes ownership of secret bytes. Slices, such as fields of a decoded message, share the same bytes.
///
/// If the bytes are shared they are copied, and wiping the original is up to its other owners.
pub fn kept(bytes: impl Into<Vec<u8>>) -> Bytes {
    Bytes::from_owner(Zeroizing::new(bytes.into()))
}
