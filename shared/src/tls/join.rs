//! One-time join tokens, for proxies outside of Kubernetes.
//!
//! A token is all that a proxy needs: it authorises the proxy, and has the digest of the authority, so that the proxy
//! verifies the control plane before it sends the token.

use std::fmt;

use thiserror::Error;
use zeroize::Zeroizing;

use super::random;

/// The prefix of every token, so that secret scanners find one in a log or a repository.
const PREFIX: &str = "firth-join";

/// A token.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// Identifies the token at the control plane. Not secret.
    pub id: [u8; 8],
    /// Digest of the authority ([`super::pin`]).
    pub pin: [u8; 32],
    secret: Zeroizing<[u8; 32]>,
}

/// Not a token. Does not quote the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("expected {PREFIX}.ID.SECRET.PIN, as `firth token` prints it")]
pub struct NoToken;

impl JoinToken {
    /// A new token, for the authority with this digest.
    pub fn new(pin: [u8; 32]) -> Self {
        Self { id: *random(), pin, secret: random() }
    }

    /// Parses a token.
    ///
    /// # Errors
    /// If it is invalid.
    pub fn parse(text: &str) -> Result<Self, NoToken> {
        let mut parts = text.trim().split('.');
        let mut part = || parts.next().ok_or(NoToken);
        if part()? != PREFIX {
            return Err(NoToken);
        }
        let mut it = Self { id: [0; 8], pin: [0; 32], secret: Zeroizing::new([0; 32]) };
        unhex(part()?, &mut it.id)?;
        unhex(part()?, it.secret.as_mut())?;
        unhex(part()?, &mut it.pin)?;
        if parts.next().is_none() { Ok(it) } else { Err(NoToken) }
    }

    /// The text that is given to the proxy.
    pub fn text(&self) -> Zeroizing<String> {
        let (id, secret, pin) = (hex(&self.id), hex(self.secret.as_ref()), hex(&self.pin));
        Zeroizing::new(format!("{PREFIX}.{}.{}.{}", *id, *secret, *pin))
    }

    /// The digest that the control plane stores.
    pub fn digest(&self) -> [u8; 32] {
        *blake3::hash(self.secret.as_ref()).as_bytes()
    }
}

/// Does not show the secret.
impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinToken").field("id", &hex(&self.id)).finish_non_exhaustive()
    }
}

/// Bytes in hex.
pub fn hex(bytes: &[u8]) -> Zeroizing<String> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    // With full capacity: buffers left behind by a growing string are not wiped.
    let mut text = Zeroizing::new(String::with_capacity(bytes.len() * 2));
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

fn unhex(text: &str, into: &mut [u8]) -> Result<(), NoToken> {
    if text.len() != into.len() * 2 || !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return Err(NoToken);
    }
    for (byte, at) in into.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| NoToken)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_written_and_keeps_its_secret() {
        let token = JoinToken::new([7; 32]);
        let text = token.text();
        assert_eq!(JoinToken::parse(&format!(" {}\n", *text)), Ok(token.clone()));
        let secret = text.split('.').nth(2).unwrap();
        assert!(!format!("{token:?}").contains(secret));
        assert_ne!(token.digest(), JoinToken::new([7; 32]).digest());
    }

    #[test]
    fn what_is_no_token_is_refused_without_being_repeated() {
        let text = JoinToken::new([7; 32]).text();
        for bad in [
            "",
            "firth-join",
            &text[..text.len() - 1],
            &format!("{}.x", *text),
            &text.to_uppercase(),
            &text.replace("firth-join", "join"),
            &text.replacen('.', "..", 1),
        ] {
            assert_eq!(JoinToken::parse(bad), Err(NoToken), "{bad}");
        }
    }
}
