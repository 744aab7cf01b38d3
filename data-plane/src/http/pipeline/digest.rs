//! Digest authentication (RFC 7616, with MD5 and `qop=auth`, like the module built into ingress-nginx): parses and
//! checks the digest of a request.

use std::sync::Arc;

use bytes::Bytes;
use md5::{Digest as _, Md5};
use shared::htpasswd::is_digest;
use subtle::ConstantTimeEq as _;

use crate::codec::head::{Known, RequestHead};
use crate::local::Local;
use crate::table::users::Users;

/// The digest credentials of a request.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) user: String,
    realm: String,
    nonce: String,
    uri: String,
    /// Unparsed, because it is part of the digest.
    count: String,
    client_nonce: String,
    response: String,
}

/// The result of checking a digest.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Correct; with the `Authentication-Info` value that authenticates the server to the client (RFC 7616 section
    /// 3.5).
    Right(Bytes),
    /// Correct, but the nonce has expired: the client gets a new one, and need not ask its user.
    Stale,
    /// Wrong, which counts as a failed attempt.
    Wrong,
    /// Missing or unreadable.
    Unsaid,
    /// Not checked: there were too many failed attempts.
    Unheard,
}

impl Answer {
    /// The digest credentials of a request; `None`: missing or unreadable.
    pub(super) fn of(head: &RequestHead) -> Option<Self> {
        let value = str::from_utf8(head.fields.get(Known::Authorization)?).ok()?;
        let (scheme, parameters) = value.split_at_checked("Digest ".len())?;
        scheme.eq_ignore_ascii_case("Digest ").then(|| Self::read(parameters)).flatten()
    }

    fn read(mut rest: &str) -> Option<Self> {
        let mut answer = Self::default();
        let (mut qop, mut algorithm) = (String::new(), String::from("MD5"));
        while let Some((name, value, after)) = parameter(rest)? {
            rest = after;
            let place = match &*name.to_ascii_lowercase() {
                "username" => &mut answer.user,
                "realm" => &mut answer.realm,
                "nonce" => &mut answer.nonce,
                "uri" => &mut answer.uri,
                "nc" => &mut answer.count,
                "cnonce" => &mut answer.client_nonce,
                "response" => &mut answer.response,
                "qop" => &mut qop,
                "algorithm" => &mut algorithm,
                _ => continue,
            };
            *place = value;
        }
        (qop == "auth" && algorithm.eq_ignore_ascii_case("MD5")).then_some(answer)
    }

    /// Whether it was computed for this target.
    ///
    /// As in ingress-nginx' module, of an absolute URI only the part after the authority is compared, and clients on
    /// .NET omit the query. RFC 7616 section 3.4 requires the absolute URI itself.
    fn is_of(&self, head: &RequestHead) -> bool {
        // The original target, whatever is served for it.
        let asked = head.asked_target();
        let path = asked.split(|byte| *byte == b'?').next().unwrap_or_default();
        [asked, path, head.raw_target()].contains(&self.uri.as_bytes())
    }

    /// Checks it for a request; `list` identifies the list of users.
    pub(super) fn check(
        &self,
        local: &Local,
        (list, users): (&Arc<str>, &Users),
        realm: &str,
        head: &RequestHead,
    ) -> Verdict {
        let hash = users.hash(&format!("{}:{realm}", self.user)).filter(|hash| is_digest(hash));
        // The digest must be for this very request: one for another request proves nothing.
        let (Some(hash), true) = (hash, self.realm == realm && self.is_of(head)) else {
            return Verdict::Wrong;
        };
        let hash = hash.to_ascii_lowercase();
        let expected = self.digest(&hash, head.method_name().as_bytes());
        if !bool::from(expected.as_bytes().ct_eq(self.response.to_ascii_lowercase().as_bytes())) {
            return Verdict::Wrong;
        }
        let count = (self.count.len() == 8).then(|| u32::from_str_radix(&self.count, 16).ok()).flatten();
        if !count.is_some_and(|count| local.nonces.take(list, &self.nonce, count, shared::clock::now())) {
            return Verdict::Stale;
        }
        let Self { count, client_nonce, .. } = self;
        let ours = self.digest(&hash, b"");
        Verdict::Right(format!("qop=auth, rspauth=\"{ours}\", cnonce=\"{client_nonce}\", nc={count}").into())
    }

    /// RFC 7616 section 3.4.1.
    fn digest(&self, hash: &str, method: &[u8]) -> String {
        let Self { nonce, count, client_nonce, uri, .. } = self;
        let of_request = hex(Md5::new().chain_update(method).chain_update(":").chain_update(uri));
        let text = format!("{hash}:{nonce}:{count}:{client_nonce}:auth:{of_request}");
        hex(Md5::new_with_prefix(text))
    }
}

/// The challenge, with a new nonce inserted.
pub(super) fn challenge(local: &Local, beginning: &Bytes, stale: bool) -> Option<Bytes> {
    let nonce = local.nonces.issue(shared::clock::now())?;
    let stale = if stale { ", stale=true" } else { "" };
    Some([&beginning[..], nonce.as_bytes(), b"\"", stale.as_bytes()].concat().into())
}

/// The first parameter of a list (RFC 9110 section 11.2) and the rest; `Some(None)` at the end.
fn parameter(list: &str) -> Option<Option<(&str, String, &str)>> {
    let list = list.trim_start_matches([' ', '\t', ',']);
    if list.is_empty() {
        return Some(None);
    }
    let (name, rest) = list.split_once('=')?;
    let rest = rest.trim_start();
    let (value, rest) = match rest.strip_prefix('"') {
        None => {
            let (value, rest) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
            (value.trim_end().to_owned(), rest)
        }
        Some(quoted) => {
            let (mut value, mut chars) = (String::new(), quoted.chars());
            loop {
                match chars.next()? {
                    '"' => break,
                    '\\' => value.push(chars.next()?),
                    it => value.push(it),
                }
            }
            (value, chars.as_str())
        }
    };
    let rest = rest.trim_start();
    (rest.is_empty() || rest.starts_with(',')).then_some(Some((name.trim_end(), value, rest)))
}

fn hex(hasher: Md5) -> String {
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 2617 section 3.5.
    const EXAMPLE: &str = "username=\"Mufasa\", realm=\"testrealm@host.com\", uri=\"/dir/index.html\", \
         nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c093\", nc=00000001, cnonce=\"0a4f113b\", qop=auth, \
         response=\"6629fae49393a05397450978507c4ef1\", opaque=\"5ccc069c403ebaf9f0171e9517f40e41\"";

    #[test]
    fn the_example_of_the_rfc() {
        let answer = Answer::read(EXAMPLE).unwrap();
        let hash = hex(Md5::new_with_prefix("Mufasa:testrealm@host.com:Circle Of Life"));
        assert_eq!(answer.digest(&hash, b"GET"), answer.response);
        assert_ne!(answer.digest(&hash, b"POST"), answer.response);
    }

    #[test]
    fn unreadable_digest_credentials_are_ignored() {
        let read = |text: &str| Answer::read(text).map(|answer| (answer.user, answer.realm));
        let both = |user: &str, realm: &str| Some((user.to_owned(), realm.to_owned()));
        assert_eq!(read("username=\"a\\\"b, c\" ,realm = x,qop=\"auth\""), both("a\"b, c", "x"));
        assert_eq!(read(",, QOP=auth, USERNAME=a, algorithm=md5"), both("a", ""));
        for text in [
            "",
            "qop=auth-int",
            "qop=auth, algorithm=SHA-256",
            "username=\"a, qop=auth",
            "qop=auth, x",
            "username=\"a\"b, qop=auth",
            "username=\"a\\",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
