//! What backends are told about the client (controller.md 9), and what they are not to hear from it.

use std::borrow::Cow;
use std::ops::ControlFlow::{Break, Continue};

use bytes::Bytes;
use shared::template::{Overlong, Template};

use super::claims::Claims;
use super::variables::{self, Allowance};
use super::{Call, Exchange, Step, Voice, certificates, claims, rewrite, trace};
use crate::codec::error::{Kind, ProxyError};
use crate::codec::head::{Fields, Known, RequestHead};
use crate::http::peer::{Peer, arrival};
use crate::table::PathEntry;
use crate::table::policy::forwarding::{Connection, Forwarding, Names};

/// Tells the backend who asks.
///
/// A client's own `X-Forwarded-For` and `-Host` are kept aside as `X-Original-Forwarded-*`, which it cannot forge. What
/// only a proxy may say (`X-Original-*`, `X-Forwarded-Prefix`, `ssl-client-*`) is removed; `Forwarded` and `Via` pass, as
/// in ingress-nginx.
pub(super) fn forwarded(exchange: &mut Exchange<'_>) -> Step {
    let Some(location) = exchange.location.clone() else {
        return Continue(());
    };
    exchange.is_forwarded = true;
    let forwarding = &location.policy.forwarding;
    // Filled in from what came.
    identify(exchange, forwarding.makes_id);
    let allowance = &mut Allowance::default();
    let set =
        forwarding.fields.iter().map(|it| Ok((it.name.clone(), filled(&it.value, exchange, allowance)?)));
    let set = match set.collect::<Result<Vec<_>, Overlong>>() {
        Ok(set) => set,
        Err(overlong) => return Break(variables::refused(exchange, overlong)),
    };
    let prefix = rewrite::prefix(exchange, allowance)?;
    for (name, _) in &set {
        drop_alikes(&mut exchange.head.fields, name);
    }
    tell(exchange, forwarding);
    let fields = &mut exchange.head.fields;
    certificates::tell(exchange.certificate.as_deref(), fields);
    // nginx sends no field whose value is empty.
    if let Some(prefix) = prefix.filter(|prefix| !prefix.is_empty()) {
        fields.add(Known::XForwardedPrefix, prefix);
    }
    if let Some(tracing) = &location.policy.tracing {
        trace::tell(fields, tracing);
    }
    for (name, value) in set {
        fields.replace(name, value);
    }
    if let Some(connection) = forwarding.connection {
        exchange.head.connection = Some(connection.as_str());
        exchange.head.upgrade = None;
    } else if location.policy.kept.says_close() && exchange.head.upgrade.is_none() {
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

/// Notes the request's id: the client's, else, where one is to be made, a new one.
pub(super) fn identify(exchange: &mut Exchange<'_>, makes: bool) {
    if exchange.info.id.is_empty() {
        let said = exchange.head.fields.joined(Known::XRequestId).filter(|id| !id.is_empty());
        exchange.info.id =
            said.or_else(|| makes.then(|| exchange.call.server.local.ids.next())).unwrap_or_default();
    }
}

/// Puts what the backend is told in place of what the client said of it.
fn tell(exchange: &mut Exchange<'_>, forwarding: &Forwarding) {
    let Exchange { call: Call { peer, .. }, claims, head, info, .. } = exchange;
    let (peer, claims) = (*peer, claims.as_deref());
    // All of it before anything is removed: it may be what the client said.
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
    fields.retain(|known, name| !is_ours(known, name));
    add(
        fields,
        &[
            (Known::XRequestId, &info.id[..]),
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

/// Adds fields. nginx sends none whose value is empty.
fn add(fields: &mut Fields, said: &[(Known, &[u8])]) {
    for (name, value) in said {
        if !value.is_empty() {
            fields.add(*name, value);
        }
    }
}

/// The addresses by which a request came, as those behind us are told: the client's, or, where the `whole` list is asked
/// for, what came with that of the connection.
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
    // Of a peer that is not believed the list is not continued, but begun.
    let is_believed = claims.is_some_and(|claims| claims.is_believed);
    let came = head.fields.joined(Known::XForwardedFor).filter(|list| is_believed && !list.is_empty());
    match came {
        Some(list) => Cow::Owned([&list[..], b", ", peer.address_text()].concat()),
        None => Cow::Borrowed(peer.address_text()),
    }
}

/// Host of the request to the backend: what its location says, else the host that is asked for.
///
/// # Errors
/// What is said comes to more than a name may.
pub(super) fn host(exchange: &Exchange<'_>) -> Result<Bytes, ProxyError> {
    let location = exchange.location.as_deref().filter(|_| exchange.voice != Voice::Errors);
    let said = location.and_then(|location| location.policy.forwarding.host.as_ref());
    let said = said.map(|template| filled(template, exchange, &mut Allowance::of_host())).transpose();
    let said = said.map_err(|overlong| ProxyError::of(Kind::Overlong, overlong))?;
    // A variable may stand for anything.
    let said = said.filter(|host| !host.is_empty() && host.iter().all(u8::is_ascii_graphic));
    Ok(said.unwrap_or_else(|| exchange.host().raw_bytes()))
}

/// Takes back fields that nginx drops for their names, but none that a backend could take for one that counts: many make
/// `_` of each character that is no letter or digit. Those that the location says count, too.
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

/// A name as those write it who have one character for all that are no letters or digits.
fn plain(name: &[u8]) -> Vec<u8> {
    name.iter().map(|b| if b.is_ascii_alphanumeric() { b.to_ascii_lowercase() } else { b'-' }).collect()
}

/// Drops a client's fields that can be taken for one of this name which is about to be put in.
///
/// Of fields whose own names are odd only those got here that are like no other ([`take_back`]): there is something to drop
/// only for a name that is odd itself.
pub(super) fn drop_alikes(fields: &mut Fields, name: &[u8]) {
    if name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-') {
        return;
    }
    let own = plain(name);
    if Known::of(&own) == Known::Other {
        fields.retain(|_, other| plain(other) != own);
    }
}

/// Whether a location says what stands in a field that can be taken for this one: for its backend, or for who is asked
/// whether the request gets there.
fn says(location: &PathEntry, name: &[u8]) -> bool {
    let external = location.external();
    let told = external.into_iter().flat_map(|it| it.told.iter().map(|(name, _)| name));
    let asked = external.into_iter().flat_map(|it| it.set_headers.iter().map(|(name, _)| name));
    let own = location.policy.forwarding.fields.iter().map(|field| &field.name);
    own.chain(told).chain(asked).any(|own| plain(own) == name)
}

/// Whether a client's field of this name is never passed on.
fn is_ours(known: Known, name: &[u8]) -> bool {
    match known {
        Known::XRequestId
        | Known::XRealIp
        | Known::XForwardedFor
        | Known::XForwardedHost
        | Known::XForwardedPort
        | Known::XForwardedProto
        | Known::XForwardedScheme
        | Known::XForwardedPrefix
        | Known::XScheme
        | Known::XOriginalUri
        | Known::XOriginalUrl
        | Known::XOriginalMethod
        | Known::XOriginalForwardedFor
        | Known::XOriginalForwardedHost => true,
        // Whether the name is one of those that have a number must make no difference.
        _ => begins(name, b"x-original-") || begins(name, b"ssl-client-"),
    }
}

fn begins(name: &[u8], prefix: &[u8]) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

#[cfg(test)]
mod tests;
