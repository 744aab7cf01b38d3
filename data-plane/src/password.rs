//! Checks a password against a hash from an htpasswd file: the hash types that nginx and its libc support (as in
//! ingress-nginx).
//!
//! Pure, and slow by design of the hashes: a worker must leave it to a thread that may block.
//!
//! **Invariant:** a hash that is not understood, or that would take longer than this build allows, matches no
//! password.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha_crypt::{PasswordVerifier as _, ShaCrypt};
use sha1::{Digest as _, Sha1};
use subtle::ConstantTimeEq as _;

mod des_crypt;
mod md5_crypt;

/// The base-64 digits of crypt(3).
const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Highest bcrypt cost that is computed: 2^14 rounds take about a second. The libc has no limit.
const BCRYPT_COST: u32 = 14;
/// Bytes of a SHA-1 digest.
const SHA1_LENGTH: usize = 20;
/// Maximum rounds of a SHA-crypt hash that are computed; the default is 5,000.
const SHA_ROUNDS: u32 = 500_000;

/// The hash function.
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
    /// The kind of a hash; `None` if no password can match it.
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

/// Whether any password can match a hash: an unknown kind locks its user out.
pub fn is_known(hash: &str) -> bool {
    Kind::parse(hash).is_some()
}

/// Whether the comparison takes next to no time.
pub fn is_quick(hash: &str) -> bool {
    matches!(Kind::parse(hash), Some(Kind::Sha1 | Kind::SaltedSha1 | Kind::Plain))
}

/// Whether `password` matches `hash`.
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

/// Constant-time comparison.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

#[cfg(test)]
mod tests;
