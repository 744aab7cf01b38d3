//! The original hash of crypt(3): two characters of salt and eleven of DES output, for files that are decades old.
//!
//! Only the first eight bytes of a password are used, seven bits of each. Implemented bit by bit, as FIPS 46-3
//! describes it: occasional logins do not need tables.

use shared::htpasswd::{DES_LENGTH as LENGTH, DIGITS};

/// Number of encryptions of a block of zeros.
const ITERATIONS: usize = 25;

/// The hash of `password` with the salt at the beginning of `like`, which has at least two bytes.
pub(super) fn hash(password: &[u8], like: &[u8]) -> [u8; LENGTH] {
    let mut key = [0u8; 64];
    for (byte, bits) in password.iter().take_while(|byte| **byte != 0).zip(key.chunks_mut(8)) {
        // The eighth bit of a key byte is parity; the password's seven bits come first.
        for (i, bit) in bits.iter_mut().take(7).enumerate() {
            *bit = byte >> (6 - i) & 1;
        }
    }
    let keys = schedule(&key);
    let expansion = salted(&like[..2]);
    let mut block = [0u8; 64];
    for _ in 0..ITERATIONS {
        block = encrypt(&block, &keys, &expansion);
    }
    let mut text = [0u8; LENGTH];
    text[..2].copy_from_slice(&like[..2]);
    for (digit, bits) in text[2..].iter_mut().zip(block.chunks(6)) {
        let value = (0..6).fold(0, |value, i| value << 1 | bits.get(i).copied().unwrap_or(0));
        *digit = DIGITS[usize::from(value)];
    }
    text
}

/// The expansion table with the pairs swapped that are selected by the salt's bits.
fn salted(salt: &[u8]) -> [u8; 48] {
    let mut table = E;
    for (digit, byte) in salt.iter().enumerate() {
        let value = DIGITS.iter().position(|known| known == byte).unwrap_or(0);
        for bit in 0..6 {
            if value >> bit & 1 == 1 {
                let place = 6 * digit + bit;
                table.swap(place, place + 24);
            }
        }
    }
    table
}

fn schedule(key: &[u8; 64]) -> [[u8; 48]; 16] {
    let mut halves: [u8; 56] = permuted(key, &PC1);
    SHIFTS.map(|shift| {
        halves[..28].rotate_left(shift);
        halves[28..].rotate_left(shift);
        permuted(&halves, &PC2)
    })
}

fn encrypt(block: &[u8; 64], keys: &[[u8; 48]; 16], expansion: &[u8; 48]) -> [u8; 64] {
    let start: [u8; 64] = permuted(block, &IP);
    let mut left = [0u8; 32];
    let mut right = [0u8; 32];
    left.copy_from_slice(&start[..32]);
    right.copy_from_slice(&start[32..]);
    for key in keys {
        let mixed = feistel(&right, key, expansion);
        let next = std::array::from_fn(|i| left[i] ^ mixed[i]);
        left = right;
        right = next;
    }
    let mut end = [0u8; 64];
    end[..32].copy_from_slice(&right);
    end[32..].copy_from_slice(&left);
    permuted(&end, &FP)
}

fn feistel(right: &[u8; 32], key: &[u8; 48], expansion: &[u8; 48]) -> [u8; 32] {
    let expanded: [u8; 48] = permuted(right, expansion);
    let mut out = [0u8; 32];
    for (i, sbox) in SBOXES.iter().enumerate() {
        let bit = |n: usize| usize::from(expanded[6 * i + n] ^ key[6 * i + n]);
        let row = bit(0) << 1 | bit(5);
        let column = bit(1) << 3 | bit(2) << 2 | bit(3) << 1 | bit(4);
        let value = sbox[row * 16 + column];
        for n in 0..4 {
            out[4 * i + n] = value >> (3 - n) & 1;
        }
    }
    permuted(&out, &P)
}

/// Bits of `from` in the order of a table with indexes starting at one.
fn permuted<const N: usize>(from: &[u8], table: &[u8; N]) -> [u8; N] {
    std::array::from_fn(|i| from[usize::from(table[i]) - 1])
}

const SHIFTS: [usize; 16] = [1, 1, 2, 2, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 1];

#[rustfmt::skip]
const IP: [u8; 64] = [
    58, 50, 42, 34, 26, 18, 10, 2, 60, 52, 44, 36, 28, 20, 12, 4,
    62, 54, 46, 38, 30, 22, 14, 6, 64, 56, 48, 40, 32, 24, 16, 8,
    57, 49, 41, 33, 25, 17,  9, 1, 59, 51, 43, 35, 27, 19, 11, 3,
    61, 53, 45, 37, 29, 21, 13, 5, 63, 55, 47, 39, 31, 23, 15, 7,
];

#[rustfmt::skip]
const FP: [u8; 64] = [
    40, 8, 48, 16, 56, 24, 64, 32, 39, 7, 47, 15, 55, 23, 63, 31,
    38, 6, 46, 14, 54, 22, 62, 30, 37, 5, 45, 13, 53, 21, 61, 29,
    36, 4, 44, 12, 52, 20, 60, 28, 35, 3, 43, 11, 51, 19, 59, 27,
    34, 2, 42, 10, 50, 18, 58, 26, 33, 1, 41,  9, 49, 17, 57, 25,
];

#[rustfmt::skip]
const E: [u8; 48] = [
    32,  1,  2,  3,  4,  5,  4,  5,  6,  7,  8,  9,  8,  9, 10, 11, 12, 13, 12, 13, 14, 15, 16, 17,
    16, 17, 18, 19, 20, 21, 20, 21, 22, 23, 24, 25, 24, 25, 26, 27, 28, 29, 28, 29, 30, 31, 32,  1,
];

#[rustfmt::skip]
const P: [u8; 32] = [
    16,  7, 20, 21, 29, 12, 28, 17,  1, 15, 23, 26,  5, 18, 31, 10,
     2,  8, 24, 14, 32, 27,  3,  9, 19, 13, 30,  6, 22, 11,  4, 25,
];

#[rustfmt::skip]
const PC1: [u8; 56] = [
    57, 49, 41, 33, 25, 17,  9,  1, 58, 50, 42, 34, 26, 18, 10,  2, 59, 51, 43, 35, 27, 19, 11,  3, 60, 52, 44, 36,
    63, 55, 47, 39, 31, 23, 15,  7, 62, 54, 46, 38, 30, 22, 14,  6, 61, 53, 45, 37, 29, 21, 13,  5, 28, 20, 12,  4,
];

#[rustfmt::skip]
const PC2: [u8; 48] = [
    14, 17, 11, 24,  1,  5,  3, 28, 15,  6, 21, 10, 23, 19, 12,  4, 26,  8, 16,  7, 27, 20, 13,  2,
    41, 52, 31, 37, 47, 55, 30, 40, 51, 45, 33, 48, 44, 49, 39, 56, 34, 53, 46, 42, 50, 36, 29, 32,
];

#[rustfmt::skip]
const SBOXES: [[u8; 64]; 8] = [
    [
        14,  4, 13,  1,  2, 15, 11,  8,  3, 10,  6, 12,  5,  9,  0,  7,  0, 15,  7,  4, 14,  2, 13,  1, 10,  6, 12, 11,  9,  5,  3,  8,
         4,  1, 14,  8, 13,  6,  2, 11, 15, 12,  9,  7,  3, 10,  5,  0, 15, 12,  8,  2,  4,  9,  1,  7,  5, 11,  3, 14, 10,  0,  6, 13,
    ],
    [
        15,  1,  8, 14,  6, 11,  3,  4,  9,  7,  2, 13, 12,  0,  5, 10,  3, 13,  4,  7, 15,  2,  8, 14, 12,  0,  1, 10,  6,  9, 11,  5,
         0, 14,  7, 11, 10,  4, 13,  1,  5,  8, 12,  6,  9,  3,  2, 15, 13,  8, 10,  1,  3, 15,  4,  2, 11,  6,  7, 12,  0,  5, 14,  9,
    ],
    [
        10,  0,  9, 14,  6,  3, 15,  5,  1, 13, 12,  7, 11,  4,  2,  8, 13,  7,  0,  9,  3,  4,  6, 10,  2,  8,  5, 14, 12, 11, 15,  1,
        13,  6,  4,  9,  8, 15,  3,  0, 11,  1,  2, 12,  5, 10, 14,  7,  1, 10, 13,  0,  6,  9,  8,  7,  4, 15, 14,  3, 11,  5,  2, 12,
    ],
    [
         7, 13, 14,  3,  0,  6,  9, 10,  1,  2,  8,  5, 11, 12,  4, 15, 13,  8, 11,  5,  6, 15,  0,  3,  4,  7,  2, 12,  1, 10, 14,  9,
        10,  6,  9,  0, 12, 11,  7, 13, 15,  1,  3, 14,  5,  2,  8,  4,  3, 15,  0,  6, 10,  1, 13,  8,  9,  4,  5, 11, 12,  7,  2, 14,
    ],
    [
         2, 12,  4,  1,  7, 10, 11,  6,  8,  5,  3, 15, 13,  0, 14,  9, 14, 11,  2, 12,  4,  7, 13,  1,  5,  0, 15, 10,  3,  9,  8,  6,
         4,  2,  1, 11, 10, 13,  7,  8, 15,  9, 12,  5,  6,  3,  0, 14, 11,  8, 12,  7,  1, 14,  2, 13,  6, 15,  0,  9, 10,  4,  5,  3,
    ],
    [
        12,  1, 10, 15,  9,  2,  6,  8,  0, 13,  3,  4, 14,  7,  5, 11, 10, 15,  4,  2,  7, 12,  9,  5,  6,  1, 13, 14,  0, 11,  3,  8,
         9, 14, 15,  5,  2,  8, 12,  3,  7,  0,  4, 10,  1, 13, 11,  6,  4,  3,  2, 12,  9,  5, 15, 10, 11, 14,  1,  7,  6,  0,  8, 13,
    ],
    [
         4, 11,  2, 14, 15,  0,  8, 13,  3, 12,  9,  7,  5, 10,  6,  1, 13,  0, 11,  7,  4,  9,  1, 10, 14,  3,  5, 12,  2, 15,  8,  6,
         1,  4, 11, 13, 12,  3,  7, 14, 10, 15,  6,  8,  0,  5,  9,  2,  6, 11, 13,  8,  1,  4, 10,  7,  9,  5,  0, 15, 14,  2,  3, 12,
    ],
    [
        13,  2,  8,  4,  6, 15, 11,  1, 10,  9,  3, 14,  5,  0, 12,  7,  1, 15, 13,  8, 10,  3,  7,  4, 12,  5,  6, 11,  0, 14,  9,  2,
         7, 11,  4,  1,  9, 12, 14,  2,  0,  6, 10, 13, 15,  3,  5,  8,  2,  1, 14,  7,  4, 10,  8, 13, 15, 12,  9,  0,  3,  5,  6, 11,
    ],
];
