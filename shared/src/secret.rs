//! Secret bytes: wiped from memory when the last reference to them is dropped.

use bytes::Bytes;
use zeroize::Zeroizing;

/// Takes bytes in. What is sliced off them, a field of a decoded message for one, is a part of the same bytes.
///
/// Where somebody else holds the bytes they are copied, and what the other holds is the other's to wipe.
pub fn kept(bytes: impl Into<Vec<u8>>) -> Bytes {
    Bytes::from_owner(Zeroizing::new(bytes.into()))
}
