//! The headers that tell backends about the client (as in ingress-nginx), and removal of the client's own versions of
//! them.

use std::borrow::Cow;
use std::ops::ControlFlow::{Break, Continue};

use bytes::Bytes;
use shared::template::{Overlong, Template};

use super::claims::Claims;
use super::variables::{self, Allowance};
use super::{Call, Exchange, HeaderScope, Step, access, certificates, claims, rewrite, trace};
use crate::codec::error::{Kind, ProxyError};
use crate::codec::head::{Fields, Known, RequestHead};
use crate::http::peer::{Peer, arrival};
use crate::table::PathEntry;
use crate::table::policy::forwarding::{Connection, Forwarding, Names};

/// Sets the headers that tell the backend about the client.
///
/// A client's own `X-Forwarded-For` and `-Host` are kept as `X-Original-Forwarded-*`, which it cannot forge. Headers
/// that only a proxy may set (`X-Original-*`, `X-Forwarded-Prefix`, `ssl-client-*`) are removed; `Forwarded` and `Via`
/// pass, as in ingress-nginx.
pub(super) fn forwarded(exchange: &mut Exchange<'_>) -> Step {
    let Some(location) = exchange.location() else {
        return Continue(());
    };
    exchange.is_forwarded = true;
    let forwarding = &location.policy.forwarding;
    // Expanded from the original request.
    identify(exchange, forwarding.makes_id);
    let allowance = &mut Allowance::default();
    let groups = if forwarding.has_groups { rewrite::groups(exchange) } else { None };
    let group = |group: usize| groups.as_ref().map_or(&b""[..], |groups| groups.get(group, exchange.path()));
    let set = forwarding.fields.iter().map(|it| {
        let value = variables::filled(&it.value, exchange, allowance, group)?;
        Ok((it.name.clone(), Bytes::from(value)))
    });
    let mut set = match set.collect::<Result<Vec<_>, Overlong>>() {
        Ok(set) => set,
        Err(overlong) => return Break(variables::refused(exchange, overlong)),
    };
    let list = forwarding.list.as_ref().map(|it| filled(it, exchange, allowance)).transpose();
    let list = match list {
        Ok(list) => list,
        Err(overlong) => return Break(variables::refused(exchange, overlong)),
    };
    let prefix = rewrite::prefix(exchange, allowance)?;
    // nginx leaves out headers without a value one by one, so that what its template sets of that name stays.
    set.retain(|(name, value): &(Bytes, Bytes)| !value.is_empty() || !is_ours(Known::of(name), name));
    for (name, _) in &set {
        drop_alikes(&mut exchange.head.fields, name);
    }
    for name in forwarding.told.iter().filter(|_| location.external().is_none()) {
        drop_alikes(&mut exchange.head.fields, name);
        exchange.head.fields.remove(&name[..]);
    }
    tell(exchange, forwarding);
    let fields = &mut exchange.head.fields;
    certificates::set_headers(exchange.certificate.as_deref(), fields);
    // nginx sends no header with an empty value.
    if let Some(prefix) = prefix.filter(|prefix| !prefix.is_empty()) {
        fields.remove(Known::XForwardedPrefix);
        fields.add(Known::XForwardedPrefix, prefix);
    }
    exchange.info.trace = location.policy.tracing.as_ref().map(|tracing| trace::tell(fields, tracing));
    fields.replace_each(&set);
    if let Some(list) = list {
        fields.add(Known::XForwardedFor, list);
    }
    if let Some(connection) = forwarding.connection {
        exchange.head.connection = Some(connection.as_str());
    } else if location.policy.upstream_keepalive.closes_each() && exchange.head.upgrade.is_none() {
        exchange.head.connection = Some(Connection::Close.as_str());
    }
    Continue(())
}

fn filled(
    template: &Template,
    exchange: &Exchange<'_>,
    allowance: &mut Allowance,
) -> Result<Bytes, Overlong> {
    variables::filled(template, exchange, allowance, |_| b"").map(Bytes::from)
}

/// Records the request's id: the client's, else a new one, if one is to be generated.
pub(super) fn identify(exchange: &Exchange<'_>, makes: bool) {
    let ids = &exchange.call.server.local.ids;
    exchange.info.identify(Some(&*exchange.head), makes.then_some(ids));
}

/// Replaces the client's headers by ours.
fn tell(exchange: &mut Exchange<'_>, forwarding: &Forwarding) {
    let is_known = is_known(exchange);
    let Exchange { call: Call { peer, .. }, claims, head, info, .. } = exchange;
    let (peer, claims) = (*peer, claims.as_deref());
    // All values first, before anything is removed: they may refer to the client's headers.
    let client = match claims.filter(|claims| claims.address != peer.address().ip()) {
        Some(claims) => Cow::Owned(claims.address.to_string().into_bytes()),
        None => Cow::Borrowed(peer.address_text()),
    };
    let list = addresses(head, claims, peer, &client, forwarding.whole_list);
    let original_list = claims::list(head, forwarding);
    let original_host = match &forwarding.host_field {
        None => head.fields.joined(Known::XForwardedHost),
        Some(name) => head.fields.joined(&**name),
    };
    let target = if forwarding.original_uri { head.target().to_vec() } else { Vec::new() };
    let scheme = claims.and_then(|claims| claims.scheme.as_deref());
    let port = claims.and_then(|claims| claims.port.as_deref());
    let RequestHead { fields, host, .. } = &mut **head;
    let host = claims.and_then(|claims| claims.host.as_ref()).unwrap_or(host);
    let stays = |known, name: &[u8]| {
        is_known && (known != Known::XOriginalUri || target.is_empty()) && is_told(known, name)
    };
    fields.retain(|known, name| !is_ours(known, name) || stays(known, name));
    add(
        fields,
        &[
            (Known::XRequestId, info.id()),
            (Known::XRealIp, &client),
            (Known::XForwardedFor, &list),
            (Known::XForwardedHost, host.raw()),
        ],
    );
    match (port, scheme) {
        (None, None) => fields.put(peer.arrival()),
        _ => {
            let port = port.unwrap_or_else(|| peer.public_port_bytes());
            add(fields, &arrival(port, scheme.unwrap_or_else(|| peer.client_scheme().as_str().as_bytes())));
        }
    }
    add(
        fields,
        &[
            (Known::XOriginalForwardedFor, original_list.as_deref().unwrap_or_default()),
            (Known::XOriginalForwardedHost, original_host.as_deref().unwrap_or_default()),
            (Known::XOriginalUri, &target),
        ],
    );
}

/// Puts the client's own headers in place of those for the backend, which are returned. In nginx a mirror is not told of
/// the client: it gets what that has sent. What only a proxy or an auth service may say is left out, as is a password for
/// this proxy: the mirror may be the same service as the backend, and takes it for ours.
pub(super) fn be_client(exchange: &mut Exchange<'_>, location: &PathEntry) -> Fields {
    let came = exchange.head.fields_that_came();
    let told = std::mem::replace(&mut exchange.head.fields, came);
    if location.policy.forwarding.names != Names::Plain {
        take_back(exchange.head, location.policy.forwarding.names, Some(location));
    }
    access::take_away(exchange, location);
    let is_known = is_known(exchange);
    exchange
        .head
        .fields
        .retain(|known, name| is_known || known == Known::XRequestId || !is_ours(known, name));
    told
}

/// Whether the headers of earlier proxies are those of one that is believed, or of this one: an auth service may be
/// behind it.
fn is_known(exchange: &Exchange<'_>) -> bool {
    exchange.claims.as_ref().is_some_and(|claims| claims.is_believed) || exchange.came.is_asked()
}

/// Adds fields. nginx sends none whose value is empty.
fn add(fields: &mut Fields, lines: &[(Known, &[u8])]) {
    for (name, value) in lines {
        if !value.is_empty() {
            fields.add(*name, value);
        }
    }
}

/// The X-Forwarded-For value for backends: the client's address, or, if the `whole` list is configured, the received
/// list plus the connection's address.
pub(super) fn addresses<'a>(
    head: &RequestHead,
    claims: Option<&Claims>,
    peer: &'a Peer,
    client: &'a [u8],
    whole: bool,
) -> Cow<'a, [u8]> {
    if !whole {
        return Cow::Borrowed(client);
    }
    // The list of an untrusted peer is not continued but replaced.
    let is_believed = claims.is_some_and(|claims| claims.is_believed);
    let came = head.fields.joined(Known::XForwardedFor).filter(|list| is_believed && !list.is_empty());
    match came {
        Some(list) => Cow::Owned([&list[..], b", ", peer.address_text()].concat()),
        None => Cow::Borrowed(peer.address_text()),
    }
}

/// The Host header of the request to the backend: as configured for the location, else the requested host.
///
/// # Errors
/// The configured value is too long for a name.
pub(super) fn host(exchange: &Exchange<'_>) -> Result<Bytes, ProxyError> {
    let location = exchange.location().filter(|_| exchange.header_scope != HeaderScope::Errors);
    let configured = location.and_then(|location| location.policy.forwarding.host.as_ref());
    let configured =
        configured.map(|template| filled(template, exchange, &mut Allowance::of_host())).transpose();
    let configured = configured.map_err(|overlong| ProxyError::of(Kind::Overlong, overlong))?;
    // A variable may have any value.
    let configured = configured.filter(|host| !host.is_empty() && host.iter().all(u8::is_ascii_graphic));
    Ok(configured.unwrap_or_else(|| exchange.host().raw_bytes()))
}

/// Restores headers that nginx would drop for their names, except those that a backend could confuse with a relevant
/// one: many servers map each character that is not a letter or digit to `_`. Headers that the location sets are
/// relevant, too.
pub(super) fn take_back(head: &mut RequestHead, names: Names, location: Option<&PathEntry>) {
    head.fields.restore(|name| {
        let plain = plain(name);
        let known = Known::of(&plain);
        names.takes(name)
            && known == Known::Other
            && !is_ours(known, &plain)
            && !location.is_some_and(|location| says(location, &plain))
    });
}

/// A name as servers see it that map all other characters to one.
fn plain(name: &[u8]) -> Vec<u8> {
    name.iter().map(|b| if b.is_ascii_alphanumeric() { b.to_ascii_lowercase() } else { b'-' }).collect()
}

/// Drops a client's headers that could be confused with this name, which is about to be added.
///
/// Of headers with unusual names only those got here that resemble no other ([`take_back`]), so there is something to
/// drop only if the name itself is unusual.
pub(super) fn drop_alikes(fields: &mut Fields, name: &[u8]) {
    if name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-') {
        return;
    }
    let own = plain(name);
    if Known::of(&own) == Known::Other {
        fields.retain(|_, other| plain(other) != own);
    }
}

/// Whether a location sets a header that could be confused with this one, for its backend or for the auth service.
fn says(location: &PathEntry, name: &[u8]) -> bool {
    let external = location.external();
    let told = external.into_iter().flat_map(|it| it.told.iter().map(|it| &it.name));
    let asked = external.into_iter().flat_map(|it| it.set_headers.iter().map(|(name, _)| name));
    let own = location.policy.forwarding.fields.iter().map(|field| &field.name);
    own.chain(told).chain(asked).chain(&location.policy.forwarding.told).any(|own| plain(own) == name)
}

/// Whether a client's header of this name is never passed on.
fn is_ours(known: Known, name: &[u8]) -> bool {
    match known {
        Known::XRequestId
        | Known::XRealIp
        | Known::XForwardedFor
        | Known::XForwardedHost
        | Known::XForwardedPort
        | Known::XForwardedProto
        | Known::XForwardedScheme
        | Known::XScheme
        | Known::XOriginalForwardedFor
        | Known::XOriginalForwardedHost => true,
        // The result must not depend on whether the name is a [`Known`] one.
        _ => is_told(known, name) || begins(name, b"x-original-") || begins(name, b"ssl-client-"),
    }
}

/// Whether a header of ours says something of an earlier proxy that only that one knows, and that is passed on if it is
/// believed: nginx passes it on from anybody.
pub(super) fn is_told(known: Known, name: &[u8]) -> bool {
    match known {
        Known::XForwardedPrefix | Known::XOriginalUri | Known::XOriginalUrl | Known::XOriginalMethod => true,
        // Frameworks route by the latter as by `X-Original-URL`.
        Known::Other => begins(name, b"x-original-") || name.eq_ignore_ascii_case(b"x-rewrite-url"),
        _ => false,
    }
}

/// Whether a name begins so, in any case.
pub(super) fn begins(name: &[u8], prefix: &[u8]) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

#[cfg(test)]
mod tests;
