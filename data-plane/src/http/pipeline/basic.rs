//! Basic authentication: the user and password of a request (RFC 7617), and whether they are correct.

use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

use crate::codec::head::{Known, RequestHead};
use crate::local::Local;
use crate::local::passwords::Verdict;
use crate::table::users::UsersCell;

/// Takes no padding: [`decode`] has cut it off.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

/// As in nginx, the text ends where padding begins, whatever follows.
fn decode(credentials: &[u8]) -> Option<Vec<u8>> {
    let end = credentials.iter().position(|byte| *byte == b'=').unwrap_or(credentials.len());
    BASE64.decode(&credentials[..end]).ok()
}

/// The credentials of a request.
pub(super) struct Credentials {
    /// User and password, separated by a colon.
    pair: Vec<u8>,
    colon: usize,
}

impl Credentials {
    /// The credentials of a request; `None`: missing or unreadable.
    pub(super) fn of(head: &RequestHead) -> Option<Self> {
        let value = head.fields.get(Known::Authorization)?;
        let (scheme, credentials) = value.split_at_checked(b"Basic ".len())?;
        if !scheme.eq_ignore_ascii_case(b"Basic ") {
            return None;
        }
        let pair = decode(credentials.trim_ascii())?;
        let colon = pair.iter().position(|byte| *byte == b':').filter(|colon| *colon > 0)?;
        Some(Self { pair, colon })
    }

    pub(super) fn user(&self) -> &[u8] {
        &self.pair[..self.colon]
    }

    fn password(&self) -> &[u8] {
        &self.pair[self.colon + 1..]
    }
}

/// The user that a request names, possibly unverified.
pub(super) fn user(head: &RequestHead) -> Option<Vec<u8>> {
    let Credentials { mut pair, colon } = Credentials::of(head)?;
    pair.truncate(colon);
    Some(pair)
}

/// Whether credentials are those of one of the users; `None` if the users are not available.
pub(super) async fn check(
    local: &Local,
    cell: &UsersCell,
    credentials: Option<&Credentials>,
) -> Option<Verdict> {
    let users = cell.get()?;
    let Some(credentials) = credentials else { return Some(Verdict::Wrong) };
    let user = str::from_utf8(credentials.user()).ok();
    let Some((user, hash)) = user.and_then(|user| Some((user, Arc::clone(users.hash(user)?)))) else {
        return Some(Verdict::Wrong);
    };
    Some(local.passwords.ask(&cell.key, user, &hash, credentials.password()).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_may_be_missing_or_surplus() {
        for text in ["YWxpY2U6eA", "YWxpY2U6eA=", "YWxpY2U6eA==", "YWxpY2U6eA===", "YWxpY2U6eA==z"] {
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(&b"alice:x"[..]), "{text}");
        }
        for text in ["YWxpY2U6e", "YWxpY2U6 eA", "YWxpY2U6e!"] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }
}
