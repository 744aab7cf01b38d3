//! Checks a password against a hash from an htpasswd file: the kinds that nginx and the libc below it know
//! (annotations.md 6.7).
//!
//! Pure, and slow by design of the hashes: a caller on a worker asks a thread that may block.
//!
//! **Invariant:** a hash that is not understood, or that would take longer than this build allows, fits no password.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha_crypt::{PasswordVerifier as _, ShaCrypt};
use sha1::{Digest as _, Sha1};
use subtle::ConstantTimeEq as _;

mod des_crypt;
mod md5_crypt;

/// Digits of crypt(3), six bits each.
const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Highest cost of a bcrypt hash that is computed: 2^14 rounds take about a second. The libc would take any.
const BCRYPT_COST: u32 = 14;
/// Bytes of a SHA-1 digest.
const SHA1_LENGTH: usize = 20;
/// Most rounds of a SHA-crypt hash that are computed; 5,000 where the hash says nothing.
const SHA_ROUNDS: u32 = 500_000;

/// What a hash is made by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Bcrypt,
    Apr1,
    Md5Crypt,
    Sha256Crypt,
    Sha512Crypt,
    Sha1,
    SaltedSha1,
    Plain,
    Des,
}

impl Kind {
    /// Of a hash; `None` where nothing can fit it.
    fn parse(hash: &str) -> Option<Self> {
        let is = |prefix| hash.starts_with(prefix);
        Some(match hash {
            _ if is("$2a$") || is("$2b$") || is("$2y$") || is("$2x$") => {
                let cost: u32 = hash.get(4..6)?.parse().ok()?;
                (cost <= BCRYPT_COST).then_some(Self::Bcrypt)?
            }
            _ if is("$apr1$") => Self::Apr1,
            _ if is("$1$") => Self::Md5Crypt,
            _ if is("$5$") => Self::Sha256Crypt.within_rounds(&hash[3..])?,
            _ if is("$6$") => Self::Sha512Crypt.within_rounds(&hash[3..])?,
            _ if is("{SHA}") => Self::Sha1,
            _ if is("{SSHA}") => Self::SaltedSha1,
            _ if is("{PLAIN}") => Self::Plain,
            _ if hash.len() == des_crypt::LENGTH && hash.bytes().all(des_crypt::is_digit) => Self::Des,
            _ => return None,
        })
    }

    fn within_rounds(self, rest: &str) -> Option<Self> {
        let Some(rounds) = rest.strip_prefix("rounds=") else { return Some(self) };
        let rounds: u32 = rounds.split('$').next()?.parse().ok()?;
        (rounds <= SHA_ROUNDS).then_some(self)
    }
}

/// Whether anything can fit a hash: what a file holds beyond that locks its user out.
pub fn is_known(hash: &str) -> bool {
    Kind::parse(hash).is_some()
}

/// Whether comparing takes next to no time.
pub fn is_quick(hash: &str) -> bool {
    matches!(Kind::parse(hash), Some(Kind::Sha1 | Kind::SaltedSha1 | Kind::Plain))
}

/// Whether `password` is the one that `hash` was made of.
pub fn fits(password: &[u8], hash: &str) -> bool {
    let Some(kind) = Kind::parse(hash) else { return false };
    match kind {
        Kind::Bcrypt => bcrypt::verify(password, hash).unwrap_or(false),
        Kind::Apr1 | Kind::Md5Crypt => same(md5_crypt::hash(password, hash).as_bytes(), hash.as_bytes()),
        Kind::Sha256Crypt | Kind::Sha512Crypt => sha_crypt(password, hash),
        Kind::Sha1 => {
            STANDARD.decode(&hash["{SHA}".len()..]).is_ok_and(|digest| sha1(password, b"", &digest))
        }
        Kind::SaltedSha1 => salted_sha1(password, &hash["{SSHA}".len()..]),
        Kind::Plain => same(password, &hash.as_bytes()["{PLAIN}".len()..]),
        Kind::Des => same(&des_crypt::hash(password, hash.as_bytes()), hash.as_bytes()),
    }
}

fn sha_crypt(password: &[u8], hash: &str) -> bool {
    ShaCrypt::default().verify_password(password, hash).is_ok()
}

/// `{SHA}`: the digest of the password, in base64.
fn sha1(password: &[u8], salt: &[u8], expected: &[u8]) -> bool {
    let mut digest = Sha1::new();
    digest.update(password);
    digest.update(salt);
    same(&digest.finalize(), expected)
}

/// `{SSHA}`: the digest of password and salt, then the salt.
fn salted_sha1(password: &[u8], encoded: &str) -> bool {
    let Ok(decoded) = STANDARD.decode(encoded) else { return false };
    match decoded.split_at_checked(SHA1_LENGTH) {
        Some((digest, salt)) => sha1(password, salt, digest),
        None => false,
    }
}

/// In a time that says nothing of where two texts differ.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

#[cfg(test)]
mod tests;
