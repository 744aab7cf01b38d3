//! The last processing of a response before it is written: removes the backend's headers that are meant for a proxy
//! (`X-Accel-*`), adds `Date`, and adds the configured headers.

use std::borrow::Cow;

use shared::clock;
use shared::pattern::Groups;
use shared::template::{Overlong, Template, Variable};

use super::variables::{self, Allowance};
use super::{
    Exchange, HeaderScope, affinity, compress, cors, external, forwarded, log, read_ahead, response_rewrite,
    rewrite, substitute,
};
use crate::codec::guard::HeadError;
use crate::codec::head::Known;
use crate::http::reply::{Bad, Paced, Reply, ReplyBody};
use crate::listen::Scheme;
use crate::local::Local;
use crate::table::PathEntry;
use crate::table::policy::pace::Pace;
use crate::table::policy::response_headers::{
    Added, Appended, ConfiguredBy, ResponseHeaders, Server, is_good,
};

/// Our `Server` name.
const OURS: &str = "firth";

/// Headers of backends that are not meant for clients (as in ingress-nginx), and one that old servers used to pad
/// heads with.
const FOR_PROXIES: u128 = Known::bits(&[
    Known::XAccelRedirect,
    Known::XAccelExpires,
    Known::XAccelLimitRate,
    Known::XAccelBuffering,
    Known::XAccelCharset,
    Known::XPad,
]);

/// Headers of backends that nginx passes on once: the first line counts.
const ONCE: u128 = Known::bits(&[
    Known::ContentType,
    Known::Location,
    Known::LastModified,
    Known::ETag,
    Known::Expires,
    Known::Server,
]);

/// Turns a response into the one that the client gets.
pub(super) fn respond(exchange: &mut Exchange<'_>, mut reply: Reply) -> Reply {
    let server = exchange.call.server;
    log::capture::of_backend(exchange, &reply);
    let asked = read_ahead::asked(&reply);
    let rate = pace_asked(&reply);
    // Hardly any request has one.
    let redirecting = exchange.redirecting.clone();
    match exchange.location().or(redirecting.as_deref()) {
        Some(location) => {
            finish(&server.local, &location.policy.response_headers, &mut reply);
            if !exchange.is_rewritten {
                response_rewrite::apply(exchange, location, &mut reply);
            }
            affinity::say(exchange, &mut reply);
            reply.head.unchunked = location.policy.is_unchunked;
            put(exchange, &location.policy.response_headers, &mut reply);
        }
        None => server.with_table(|table| {
            let headers = &table.policy().response_headers;
            finish(&server.local, headers, &mut reply);
            put(exchange, headers, &mut reply);
        }),
    }
    cors::say(exchange, &mut reply);
    if let Some(proof) = exchange.proof.take() {
        // The proxy's own value (RFC 7616 section 3.5), whatever a backend sends.
        reply.head.fields.replace("Authentication-Info", proof);
    }
    external::tell_client(exchange, &mut reply);
    // In the order of nginx' filters: text is replaced in what is not compressed yet, compression depends on the
    // headers, and the rate limit applies to what is actually sent.
    substitute::substitute(exchange, &mut reply);
    compress::compress(exchange, &mut reply);
    log::capture::of_answer(exchange, &reply);
    read_ahead::read_ahead(exchange, asked, &mut reply);
    let configured = exchange.location().and_then(|location| location.policy.pace);
    let pace = match rate {
        None => configured,
        Some(rate) => Pace::asked(rate, exchange.location().map_or(0, |it| it.policy.pace_after)),
    };
    if let Some(it) = pace {
        self::pace(&server.local, it, &mut reply.body);
    }
    reply
}

/// The location whose headers a response gets.
fn speaker<'e>(exchange: &'e Exchange<'_>) -> Option<&'e PathEntry> {
    exchange.location().or(exchange.redirecting.as_deref())
}

/// The rate that a backend says, in bytes per second: `X-Accel-Limit-Rate`. It counts more than what is configured (nginx).
fn pace_asked(reply: &Reply) -> Option<u64> {
    let text = reply.head.fields.get(Known::XAccelLimitRate)?;
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let relayed = matches!(reply.body, ReplyBody::Relay(_));
    str::from_utf8(text).ok().filter(|_| is_number && relayed)?.parse().ok()
}

/// Limits the rate of a body as its location is configured.
fn pace(local: &Local, pace: Pace, body: &mut ReplyBody) {
    if !matches!(body, ReplyBody::Empty | ReplyBody::Tunnel(_)) {
        let whole = std::mem::replace(body, ReplyBody::Empty);
        *body = ReplyBody::Paced(Box::new(Paced::new(local, whole, pace)));
    }
}

/// The response to something that is not a request. Nothing more is read from its connection.
pub(crate) fn refusal(local: &Local, status: u16) -> Reply {
    unrouted(local, Reply::refusal(local, status))
}

/// The response to an unacceptable head.
pub(crate) fn unread(local: &Local, error: HeadError) -> Reply {
    match error {
        HeadError::HeadTooLong => unrouted(local, Reply::bad(local, Bad::TooLarge)),
        error => refusal(local, error.status()),
    }
}

/// The response to a request that is not routed.
pub(crate) fn unrouted(local: &Local, mut reply: Reply) -> Reply {
    local.metrics.refusals.add(1);
    finish(local, &ResponseHeaders::default(), &mut reply);
    reply
}

fn finish(local: &Local, headers: &ResponseHeaders, reply: &mut Reply) {
    let fields = &mut reply.head.fields;
    let relayed = matches!(reply.body, ReplyBody::Relay(_) | ReplyBody::Call(_) | ReplyBody::Tunnel(_));
    if relayed {
        let is_hidden = headers.server != Server::Backends;
        fields.remove_any(FOR_PROXIES | if is_hidden { Known::Server.bit() } else { 0 });
        fields.keep_first(ONCE);
        for name in &headers.hidden {
            fields.remove(&**name);
        }
    }
    if headers.server != Server::Omitted && !fields.has(Known::Server) {
        fields.add(Known::Server, OURS);
    }
    // As in nginx: the date is ours, whatever the backend sends.
    if relayed || !fields.has(Known::Date) {
        fields.remove(Known::Date);
        fields.put(local.date.borrow().line());
    }
}

/// Adds the configured headers; if they are too long, the response is replaced by an error.
fn put(exchange: &mut Exchange<'_>, headers: &ResponseHeaders, reply: &mut Reply) {
    if let Err(overlong) = say(exchange, headers, reply) {
        *reply = variables::refused(exchange, overlong);
        finish(&exchange.call.server.local, headers, reply);
    }
}

/// Adds the configured headers, replacing the backend's (as in ingress-nginx).
fn say(exchange: &mut Exchange<'_>, headers: &ResponseHeaders, reply: &mut Reply) -> Result<(), Overlong> {
    let fields = &mut reply.head.fields;
    // The connection decides, regardless of forwarded headers.
    if exchange.call.peer.scheme() == Scheme::Https
        && matches!(exchange.header_scope, HeaderScope::Location | HeaderScope::WithoutCors)
        && let Some(hsts) = &headers.hsts
    {
        fields.set(Known::StrictTransportSecurity, hsts);
    }
    let is_place =
        exchange.header_scope != HeaderScope::Errors && exchange.header_scope != HeaderScope::SignIn;
    let own = exchange.own_headers.take().filter(|_| is_place);
    let said = own.as_deref().map(|it| &*it.headers);
    if headers.uses_request_id || said.is_some_and(|it| it.uses_request_id) {
        forwarded::identify(exchange, true);
    }
    let found = own.as_deref().and_then(|it| it.found.as_ref());
    let of_rewrite = if found.is_none() && headers.has_groups { rewrite::groups(exchange) } else { None };
    let groups = match (found, &of_rewrite) {
        (Some((groups, text)), _) => Some((groups, &**text)),
        (None, Some(groups)) => Some((groups, exchange.path())),
        (None, None) => None,
    };
    let allowance = &mut Allowance::default();
    // In nginx' configuration these headers are inside the location, and a denied location contains nothing else.
    let is_denied = speaker(exchange).is_some_and(|it| it.is_denied());
    let has_own =
        matches!(exchange.header_scope, HeaderScope::Location | HeaderScope::WithoutCors) && !is_denied;
    let status = reply.head.status;
    let is_set = |it: &&Added| (has_own || it.by == ConfiguredBy::All) && it.is_on(status);
    let set = headers.added.iter().filter(is_set);
    let set = set.chain(said.into_iter().flat_map(|it| &it.added).filter(|it| it.is_on(status)));
    for Added { header, .. } in set {
        let value = filled(&header.value, exchange, allowance, status, groups)?;
        fields.replace(&header.name, value);
    }
    let expires = if has_own { headers.expires } else { headers.host_expires };
    let expires = said.and_then(|it| it.expires).unwrap_or(expires);
    if let Some(expires) = expires.filter(|_| is_good(status)) {
        let (expires, control) = expires.headers(clock::wall());
        fields.set(Known::Expires, expires);
        fields.set(Known::CacheControl, control);
    }
    // nginx takes added headers from one level: the location if it has any, else the levels around it. The cookies of
    // an auth service are such headers of the location. A sign-in redirect has its own, which are the same cookies.
    let asks = || speaker(exchange).is_some_and(|it| it.external().is_some());
    let by = if has_own && (headers.location_appends || asks()) {
        ConfiguredBy::Location
    } else {
        ConfiguredBy::All
    };
    let around = headers.appended.iter().filter(|it| it.by == by);
    let own = said.map(|it| it.appended.iter()).filter(|own| own.len() > 0);
    let is_said = |it: &&Appended| exchange.header_scope != HeaderScope::SignIn && it.is_on(status);
    let appended: &mut dyn Iterator<Item = &Appended> = match own {
        Some(own) => &mut own.filter(is_said),
        None => &mut around.filter(is_said),
    };
    for Appended { header, .. } in appended {
        let value = filled(&header.value, exchange, allowance, status, groups)?;
        // As in nginx: no header with an empty value.
        if !value.is_empty() {
            fields.append(&header.name, value);
        }
    }
    Ok(())
}

/// The value of a header, which may contain what is known of the response itself.
fn filled<'v>(
    value: &Template,
    exchange: &Exchange<'_>,
    allowance: &mut Allowance,
    status: u16,
    groups: Option<(&'v Groups, &'v [u8])>,
) -> Result<Vec<u8>, Overlong> {
    variables::filled_by(value, exchange, allowance, |variable| match variable {
        Variable::Capture(number) => {
            let group = groups.map_or(&b""[..], |(groups, text)| groups.get(usize::from(*number), text));
            Some(Cow::Borrowed(group))
        }
        Variable::Named(name) => log::so_far::value(exchange.info, status, name).map(Cow::Owned),
        _ => None,
    })
}
