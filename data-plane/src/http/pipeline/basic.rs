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

/// As in nginx, padding is optional.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

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
        let pair = BASE64.decode(credentials.trim_ascii()).ok()?;
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
