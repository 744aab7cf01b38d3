//! Kinds of password hashes in htpasswd files: those that nginx and its libc support (as in ingress-nginx). The control plane
//! tells who has none of them, the proxies check passwords.
//!
//! **Invariant:** a hash of no kind matches no password.

/// The base-64 digits of crypt(3).
pub const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Length in bytes of the original hash of crypt(3).
pub const DES_LENGTH: usize = 13;

/// Highest bcrypt cost that is computed: 2^14 rounds take about a second. The libc has no limit.
const BCRYPT_COST: u32 = 14;

/// Maximum rounds of a SHA-crypt hash that are computed; the default is 5,000.
const SHA_ROUNDS: u32 = 500_000;

/// The hash function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "names of hash functions")]
pub enum Kind {
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
    pub fn of(hash: &str) -> Option<Self> {
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
            _ if hash.len() == DES_LENGTH && hash.bytes().all(|byte| DIGITS.contains(&byte)) => Self::Des,
            _ => return None,
        })
    }

    fn within_rounds(self, rest: &str) -> Option<Self> {
        let Some(rounds) = rest.strip_prefix("rounds=") else { return Some(self) };
        let rounds: u32 = rounds.split('$').next()?.parse().ok()?;
        (rounds <= SHA_ROUNDS).then_some(self)
    }
}

/// Whether a text is a digest as htdigest writes it.
pub fn is_digest(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_password_can_match_has_no_kind() {
        for (hash, kind) in [
            ("$apr1$x$y", Some(Kind::Apr1)),
            ("$2y$10$abc", Some(Kind::Bcrypt)),
            ("$2y$15$abc", None),
            ("$6$rounds=500001$x$y", None),
            ("{SHA}x", Some(Kind::Sha1)),
            ("ab01FAX.bQRSU", Some(Kind::Des)),
            ("secret", None),
            ("", None),
        ] {
            assert_eq!(Kind::of(hash), kind, "{hash}");
        }
        assert!(is_digest(&"0f".repeat(16)) && !is_digest("secret") && !is_digest(&"xy".repeat(16)));
    }
}
