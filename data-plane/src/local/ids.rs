//! Ids for requests that came without one: 32 lower-case hex digits, like nginx' `$request_id`.

use std::cell::RefCell;
use std::fmt;

use bytes::{Bytes, BytesMut};

/// Number of digits of an id.
const LENGTH: usize = 32;

/// This many ids share a block of memory, which is reused once none of them is needed: an id costs no allocation of
/// its own.
const A_BLOCK: usize = 64;

/// Generates the ids of one worker.
#[derive(Default)]
pub(crate) struct Ids(RefCell<BytesMut>);

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ids")
    }
}

impl Ids {
    /// A new id.
    pub(crate) fn next(&self) -> Bytes {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [0; LENGTH];
        let random = fastrand::u128(..).to_ne_bytes();
        for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(random) {
            *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
        }
        let mut block = self.0.borrow_mut();
        if block.capacity() < LENGTH {
            block.reserve(A_BLOCK * LENGTH);
        }
        block.extend_from_slice(&digits);
        block.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn none_is_like_another_whoever_keeps_them() {
        let ids = Ids::default();
        let all: HashSet<Bytes> = (0..10 * A_BLOCK).map(|_| ids.next()).collect();
        assert_eq!(all.len(), 10 * A_BLOCK);
        let is_digit = |b: &u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        assert!(all.iter().all(|id| id.len() == LENGTH && id.iter().all(is_digit)));
    }

    #[test]
    fn memory_that_nobody_needs_any_more_is_used_again() {
        let ids = Ids::default();
        let first = ids.next().as_ptr();
        let again = (0..A_BLOCK).any(|_| ids.next().as_ptr() == first);
        assert!(again);
    }
}
