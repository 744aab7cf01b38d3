//! Session affinity cookies: formats and arithmetic, identical to ingress-nginx bit for bit, so that sessions survive
//! the switch from one controller to the other.
//!
//! Pure functions: which endpoints are healthy, which were already tried and who needs a cookie is decided elsewhere.

use std::fmt::Write as _;

use md5::{Digest as _, Md5};

mod set_cookie;

pub use self::set_cookie::{Attributes, SameSite};

/// The contents of an affinity cookie: the endpoint, and the backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token<'a> {
    /// Identifies an endpoint. Never empty.
    pub key: &'a [u8],
    /// The [`backend_key`] of the backend that issued it; `None` in cookies of old controllers.
    pub backend: Option<&'a [u8]>,
}

impl<'a> Token<'a> {
    /// Parses a cookie's value; `None`: it is empty or invalid.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let mut parts = value.split(|byte| *byte == b'|');
        let key = parts.next().filter(|key| !key.is_empty())?;
        Some(Self { key, backend: parts.next() })
    }

    /// Whether the backend with this key issued it: then the client stays there, whatever a canary would take.
    pub fn is_of(&self, backend_key: &str) -> bool {
        self.backend == Some(backend_key.as_bytes())
    }
}

/// The key of a backend in cookies, computed from its name (`namespace-service-port`).
pub fn backend_key(name: &str) -> String {
    md5_hex(&[md5_hex(&[name.as_bytes()]).as_bytes(), name.as_bytes()])
}

/// The key of an endpoint in cookies of persistent affinity, computed from the backend's name and `address:port`.
pub fn endpoint_key(backend: &str, endpoint: &str) -> String {
    md5_hex(&[backend.as_bytes(), endpoint.as_bytes()])
}

/// A unique key for a new client of balanced affinity. `seconds` since the epoch, `attempt` from 1.
pub fn fresh_key(seconds: f64, attempt: u32, process: u32, random: u32) -> String {
    let seconds = seconds + f64::from(attempt);
    // At most three decimals without trailing zeros, as Lua formats a number.
    let mut key = format!("{seconds:.3}");
    key.truncate(key.trim_end_matches('0').trim_end_matches('.').len());
    let _ = write!(key, ".{process}.{}", random % 1_000_000);
    key
}

fn md5_hex(parts: &[&[u8]]) -> String {
    let mut digest = Md5::new();
    for part in parts {
        digest.update(part);
    }
    digest.finalize().iter().fold(String::with_capacity(32), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ingress_nginx_own() {
        let name = "access-router-production-web-80";
        assert_eq!(backend_key(name), "3ec0ac2d8dd2cda20a93dee13e737231");
        assert_eq!(endpoint_key(name, "10.184.7.40:8080"), "ce8f959dcbe10d546cb8a4cc705e10f0");
    }

    #[test]
    fn tokens_are_read() {
        let key = backend_key("a-b-80");
        let value = format!("abc|{key}");
        let token = Token::parse(value.as_bytes()).unwrap();
        assert_eq!(token.key, b"abc");
        assert!(token.is_of(&key) && !token.is_of(&backend_key("a-c-80")));
        let old = Token::parse(b"abc").unwrap();
        assert_eq!((old.key, old.backend), (&b"abc"[..], None));
        assert!(!Token::parse(b"abc|0000").unwrap().is_of(&key));
        assert_eq!((Token::parse(b""), Token::parse(b"|0000")), (None, None));
    }

    #[test]
    fn a_fresh_key_looks_like_lua_s() {
        assert_eq!(fresh_key(1_700_000_000.123, 1, 42, 77_777), "1700000001.123.42.77777");
        assert_eq!(fresh_key(1_700_000_000.5, 2, 42, 1_000_007), "1700000002.5.42.7");
        assert_eq!(fresh_key(1_700_000_000.0, 20, 1, 0), "1700000020.1.0");
    }
}
