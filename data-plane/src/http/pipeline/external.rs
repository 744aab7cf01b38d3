//! External authentication (as in ingress-nginx): an auth service is asked about each request first.
//!
//! **Invariant:** a request is admitted only by a 2xx of the auth service, fresh or cached. Error pages play no part
//! in it (CVE-2026-24513).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use shared::pattern::Exhausted;
use shared::template::Overlong;

use super::access::AccessDecision;
use super::elsewhere::{Room, Url, Word};
use super::variables::{self, Allowance};
use super::{Exchange, HeaderScope, failures, forwarded, shortcuts};
use crate::codec::error::Kind;
use crate::codec::head::{Known, ResponseHead};
use crate::http::reply::Reply;
use crate::local::auth_cache::{AuthResponse, Key};
use crate::local::upstream_shares::RequestPermit;
use crate::table::policy::external::{Cache, External, Told};
use crate::table::policy::response_headers;
use crate::table::{Action, PathEntry};

use self::lifetime::Lifetime;

mod lifetime;
mod question;

/// nginx' default timeouts apply here, not the location's.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks the auth service about a request. The parts of its response for the backend and the client are stored in the
/// exchange.
pub(super) async fn ask(exchange: &mut Exchange<'_>, external: &External) -> AccessDecision {
    let local = &exchange.call.server.local;
    name(exchange);
    match external.answers.as_ref().map_or(Ok(None), |it| shortcuts::of_auth(exchange, it)) {
        Ok(None) => {}
        Ok(Some(status)) => {
            // Of an answer without headers the backend gets none.
            let fields = external.told.iter().map(|it| (it.name.clone(), it.value(None))).collect();
            let response = Arc::new(AuthResponse { status, fields, ..AuthResponse::default() });
            return decide(exchange, response);
        }
        Err(Exhausted) => return AccessDecision::Fail(Reply::page(local, 500)),
    }
    let key = external.cache.as_ref().map(|cache| key(exchange, external, cache)).transpose();
    let cached = match key {
        Ok(key) => external.cache.as_ref().zip(key.flatten()),
        Err(overlong) => return AccessDecision::Fail(variables::refused(exchange, overlong)),
    };
    let known = cached.as_ref().and_then(|(_, key)| known(exchange, key));
    let response = match known {
        Some(response) => response,
        None => {
            let _permit = match permit(exchange) {
                Ok(permit) => permit,
                Err(reply) => return AccessDecision::Fail(reply),
            };
            match fetch(exchange, external).await {
                Ok((response, lifetime)) => {
                    let response = Arc::new(response);
                    if let Some((cache, key)) = cached
                        && let Some(time) = lifetime.or(|| cache.keeps(response.status))
                    {
                        let now = shared::clock::now();
                        keep(exchange, key, now.checked_add(time).unwrap_or(now), &response);
                    }
                    response
                }
                Err(error) => {
                    failures::of_auth(exchange, external.source, &error);
                    return AccessDecision::Fail(Reply::page(local, 500));
                }
            }
        }
    };
    decide(exchange, response)
}

fn decide(exchange: &mut Exchange<'_>, response: Arc<AuthResponse>) -> AccessDecision {
    let local = &exchange.call.server.local;
    let decision = match response.status {
        200..=299 => AccessDecision::Pass,
        status @ (401 | 403) => {
            let mut reply = Reply::page(local, status);
            for challenge in response.challenges.iter().filter(|_| status == 401) {
                reply.head.fields.append(Known::WwwAuthenticate, challenge);
            }
            AccessDecision::Refuse(reply)
        }
        _ => AccessDecision::Fail(Reply::page(local, 500)),
    };
    exchange.auth_response = Some(response);
    decision
}

/// Removes client headers that only the auth service may set. If it was not asked, because something else admitted or
/// refused the request, they are not replaced.
pub(super) fn take_away(exchange: &mut Exchange<'_>, location: &PathEntry) {
    let Some(external) = location.external() else { return };
    let fields = &mut exchange.head.fields;
    for it in &external.told {
        forwarded::drop_alikes(fields, &it.name);
        fields.remove(&*it.name);
    }
}

/// Adds the headers of the auth response for the backend.
pub(super) fn tell_backend(exchange: &mut Exchange<'_>) {
    let Some(response) = &exchange.auth_response else { return };
    let fields = &mut exchange.head.fields;
    for (name, value) in &response.fields {
        fields.remove(&**name);
        // nginx sends no field whose value is empty.
        if !value.is_empty() {
            fields.append(&**name, value);
        }
    }
}

/// Adds the cookies of the auth response to the client's response.
pub(super) fn tell_client(exchange: &Exchange<'_>, reply: &mut Reply) {
    let (Some(response), Some(location)) = (&exchange.auth_response, exchange.location()) else {
        return;
    };
    if exchange.header_scope == HeaderScope::Errors {
        return;
    }
    let always = location.policy.external.as_ref().is_some_and(|external| external.always_set_cookie);
    // nginx' `add_header` without `always`.
    if always || response_headers::is_good(reply.head.status) {
        for cookie in &response.cookies {
            reply.head.fields.append(Known::SetCookie, cookie);
        }
    }
}

/// From here on the request has an id, if one is to be generated, so that the auth service and the backend get the
/// same one.
fn name(exchange: &mut Exchange<'_>) {
    let makes = exchange.location().is_some_and(|location| location.policy.forwarding.makes_id);
    if makes && exchange.head.fields.get(Known::XRequestId).is_none_or(<[u8]>::is_empty) {
        forwarded::identify(exchange, true);
        exchange.head.fields.set(Known::XRequestId, exchange.info.id());
    }
}

/// The cache key, covering everything that makes a difference: the host, the location, the auth settings, and the
/// location's own key. `None` if that contains variables about what the client presents, and this client presents
/// nothing: it cannot be distinguished from others like it, and the response for one must not be used for the next.
///
/// # Errors
/// The key is too long.
fn key(exchange: &Exchange<'_>, external: &External, cache: &Cache) -> Result<Option<Key>, Overlong> {
    let (mut own, mut ends, mut shows, mut is_shown) = (Vec::new(), Vec::new(), false, false);
    cache.key.fill(&mut own, Allowance::USUAL, |variable, out| {
        let before = out.len();
        variables::append(exchange, variable, out);
        // Lengths are included, or the end of one value could pass for the beginning of the next.
        ends.extend_from_slice(&(out.len() as u64).to_le_bytes());
        if variable.is_of_client() {
            shows = true;
            is_shown |= out.len() > before;
        }
    })?;
    if shows && !is_shown {
        return Ok(None);
    }
    let url = variables::filled(&external.url, exchange, &mut Allowance::default(), |_| &[])?;
    let location = exchange.location();
    let (owner, path) = location.map_or(("", ""), |location| (location.owner(), location.declared()));
    let host = exchange.head.host.name();
    let mut hasher = blake3::Hasher::new();
    for part in [host.as_bytes(), owner.as_bytes(), path.as_bytes(), &external.digest, &url, &own, &ends] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    Ok(Some(*hasher.finalize().as_bytes()))
}

/// The cached response for a request. If it depends on header fields, the one for their values.
fn known(exchange: &Exchange<'_>, key: &Key) -> Option<Arc<AuthResponse>> {
    let (cache, now) = (&exchange.call.server.local.auth_cache, shared::clock::now());
    let found = cache.find(key, now)?;
    match &found.varies {
        Some(names) => cache.find(&alike(exchange, key, names), now),
        None => Some(found),
    }
}

/// Caches a response. If it depends on header fields, their names are cached under the key, and the response under
/// their values.
fn keep(exchange: &Exchange<'_>, key: Key, until: Instant, response: &Arc<AuthResponse>) {
    let cache = &exchange.call.server.local.auth_cache;
    let Some(names) = &response.varies else { return cache.keep(key, until, response) };
    let place = AuthResponse { varies: Some(names.clone()), ..AuthResponse::default() };
    cache.keep(key, until, &Arc::new(place));
    cache.keep(alike(exchange, &key, names), until, response);
}

/// The key of requests with equal values of these fields.
fn alike(exchange: &Exchange<'_>, key: &Key, names: &[u8]) -> Key {
    let mut hasher = blake3::Hasher::new_keyed(key);
    let mut part = |text: &[u8]| {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text);
    };
    part(names);
    for name in names.split(|byte| *byte == b',') {
        part(&exchange.head.fields.joined(name.trim_ascii()).unwrap_or_default());
    }
    *hasher.finalize().as_bytes()
}

/// A permit to wait for the auth service, as one of the location's backend: a service that does not respond takes no more
/// from others than such endpoints do.
fn permit(exchange: &Exchange<'_>) -> Result<Option<RequestPermit>, Reply> {
    let Some(Action::Backend(upstream)) = exchange.location().map(|it| &it.action) else { return Ok(None) };
    let server = exchange.call.server;
    server.request_permit(&upstream.cell).map(Some).ok_or_else(|| {
        let error = Kind::NoRoom.into();
        failures::of_backend(exchange, &upstream.cell, &error);
        server.local.metrics.failed(error.kind);
        Reply::failure(&server.local, &error)
    })
}

async fn fetch(exchange: &Exchange<'_>, external: &External) -> std::io::Result<(AuthResponse, Lifetime)> {
    if exchange.came.is_over() {
        return Err(std::io::Error::other(
            "it leads back here: this request is one to an auth service itself",
        ));
    }
    let filled = variables::filled(&external.url, exchange, &mut Allowance::default(), |_| &[]);
    let filled = filled.map_err(std::io::Error::other)?;
    let url = Url::parse(&filled).ok_or_else(|| std::io::Error::other("expected a URL of http or https"))?;
    let text = question::text(exchange, external, &url).map_err(std::io::Error::other)?;
    let is_head = external.method.as_deref() == Some("HEAD");
    let owner = exchange.owner();
    let word = Word { owner, field: external.source, room: Room::Made };
    let asking = question::ask(exchange.call, (word, &url), &text, is_head);
    let answer = exchange.call.timer.limit(PATIENCE, asking).await;
    let answer = answer.map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))??;
    let may_differ = |name: &[u8]| question::may_differ(external, name);
    let lifetime = Lifetime::of(&answer.fields, shared::clock::wall(), may_differ);
    Ok((auth_response(&answer, external), lifetime))
}

/// The relevant parts of a response. Copied, because a slice of its head would keep all of it in memory.
fn auth_response(answer: &ResponseHead, external: &External) -> AuthResponse {
    let fields = &answer.fields;
    let copied = |value: Option<Bytes>| value.map(|value| Bytes::copy_from_slice(&value));
    let lines = |name| fields.all(name).map(Bytes::copy_from_slice).collect();
    let told = |it: &Told| (it.name.clone(), it.value(fields.joined(&*it.of).as_deref()));
    AuthResponse {
        status: answer.status,
        fields: external.told.iter().map(told).collect(),
        challenges: lines(Known::WwwAuthenticate),
        cookies: lines(Known::SetCookie),
        varies: copied(fields.joined(Known::Vary).filter(|names| !names.is_empty())),
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use shared::template::Template;

    use super::*;
    use crate::codec::guard::Limits;
    use crate::codec::h1::ResponseReader;

    #[test]
    fn a_verdict_keeps_nothing_of_the_head() {
        let text =
            b"HTTP/1.1 401 No\r\nX-User: alice\r\nX-User: bob\r\nX-Long: yes\r\nWWW-Authenticate: Basic\r\n\
            Set-Cookie: a=b\r\nContent-Length: 0\r\n\r\n";
        let mut reader = ResponseReader::new(Limits::RESPONSE);
        let answer = reader.feed(&mut BytesMut::from(&text[..]), false).unwrap().unwrap();
        let told =
            [("x-user", ""), ("x-long", ""), ("x-none", ""), ("x-user", "Bearer ")].map(|(name, before)| {
                Told { name: name.into(), of: name.into(), around: [before.into(), "".into()] }
            });
        let external = External {
            url: Template::default(),
            source: "auth-url",
            digest: [0; 32],
            method: None,
            signin: None,
            told: told.into(),
            request_redirect: Template::default(),
            always_set_cookie: false,
            cache: None,
            set_headers: [].into(),
            answers: None,
        };
        let response = auth_response(&answer, &external);
        let values: Vec<_> = response.fields.iter().map(|(_, value)| &**value).collect();
        assert_eq!(values, [&b"alice, bob"[..], b"yes", b"", b"Bearer alice, bob"]);
        let values = response.fields.iter().map(|(_, value)| value);
        for kept in values.chain(&response.challenges).chain(&response.cookies) {
            assert!(kept.is_empty() || kept.is_unique(), "{kept:?} is a part of something else");
        }
        assert_eq!(response.challenges, [&b"Basic"[..]]);
    }
}
