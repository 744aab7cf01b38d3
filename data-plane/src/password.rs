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
use shared::htpasswd::Kind;
use subtle::ConstantTimeEq as _;

mod des_crypt;
mod md5_crypt;

/// Bytes of a SHA-1 digest.
const SHA1_LENGTH: usize = 20;

/// Maximum length in bytes of a password that is compared with a SHA-crypt hash, which takes the square of it: that of
/// musl's crypt, which ingress-nginx uses.
const LONGEST_SHA: usize = 256;

/// The same for MD5-crypt. nginx' own variant (`$apr1$`) has none, and takes no longer.
const LONGEST_MD5: usize = 30_000;

/// Whether a password is worth a comparison: an unknown kind of hash locks its user out. Of the other kinds, bcrypt and crypt(3) look at its beginning alone.
pub fn could_fit(password: &[u8], hash: &str) -> bool {
    match Kind::of(hash) {
        Some(Kind::Sha256Crypt | Kind::Sha512Crypt) => password.len() <= LONGEST_SHA,
        Some(Kind::Md5Crypt) => password.len() <= LONGEST_MD5,
        Some(_) => true,
        None => false,
    }
}

/// Whether the comparison takes next to no time.
pub fn is_quick(hash: &str) -> bool {
    matches!(Kind::of(hash), Some(Kind::Sha1 | Kind::SaltedSha1 | Kind::Plain))
}

/// Whether `password` matches `hash`.
pub fn fits(password: &[u8], hash: &str) -> bool {
    let Some(kind) = Kind::of(hash).filter(|_| could_fit(password, hash)) else { return false };
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
