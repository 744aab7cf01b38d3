//! The values of nginx variables for a request (as in ingress-nginx).

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::OnceLock;

use shared::clock;
use shared::template::{OfConnection, Overlong, Template, Variable};

use super::{Exchange, forwarded, snippet_variables};
use crate::access_log::Time;
use crate::codec::error::Kind;
use crate::codec::head::{Known, OfVariable, RequestHead};
use crate::codec::path;
use crate::http::facts;
use crate::http::reply::Reply;
use crate::table::PathEntry;

/// The maximum total length of templates that are expanded together. A template may contain text from a client many
/// times, and neither its author nor the client pays for the result.
pub(super) struct Allowance(usize);

impl Allowance {
    /// For what becomes part of a head or a page.
    pub(super) const USUAL: usize = 64 << 10;

    /// For host names.
    pub(super) fn of_host() -> Self {
        Self(8 << 10)
    }
}

impl Default for Allowance {
    fn default() -> Self {
        Self(Self::USUAL)
    }
}

/// Expands a template for a request. `capture` returns the groups of the location's pattern.
///
/// # Errors
/// The result is too long.
pub(super) fn filled<'c>(
    template: &Template,
    exchange: &Exchange<'_>,
    allowance: &mut Allowance,
    capture: impl Fn(usize) -> &'c [u8],
) -> Result<Vec<u8>, Overlong> {
    filled_by(template, exchange, allowance, |variable| match variable {
        Variable::Capture(group) => Some(capture(usize::from(*group)).into()),
        _ => None,
    })
}

/// The same, where some variables have values of their own.
///
/// # Errors
/// The result is too long.
pub(super) fn filled_by<'v>(
    template: &Template,
    exchange: &Exchange<'_>,
    allowance: &mut Allowance,
    own: impl Fn(&Variable) -> Option<Cow<'v, [u8]>>,
) -> Result<Vec<u8>, Overlong> {
    let mut out = Vec::new();
    template.fill(&mut out, allowance.0, |variable, out| match own(variable) {
        Some(value) => out.extend_from_slice(&value),
        None => append(exchange, variable, out),
    })?;
    allowance.0 -= out.len();
    Ok(out)
}

/// The response to a request whose template expands to too much.
pub(super) fn refused(exchange: &Exchange<'_>, overlong: Overlong) -> Reply {
    let location = exchange.location().map_or("", |it| it.declared());
    tracing::debug!(%overlong, location, "the variables of a location cannot be expanded");
    Reply::failure(&exchange.call.server.local, &Kind::Overlong.into())
}

/// Appends the value of a variable, if it has one for this request.
pub(super) fn append(exchange: &Exchange<'_>, variable: &Variable, out: &mut Vec<u8>) {
    let Exchange { call, head, info, .. } = exchange;
    let peer = call.peer;
    let location = exchange.location();
    let owner = || location.and_then(|it| it.owner().split_once('/')).unwrap_or_default();
    // As it was sent: what backends are told in its place is no value of these.
    let field = |name| head.fields.asked(name).unwrap_or_default();
    match variable {
        Variable::Named(name) => {
            let is_set = snippet_variables::append(exchange, name, out);
            // A snippet may set the one that the host has.
            if !is_set && **name == *"subdomain" {
                let label = location.map_or("", |it| label(it.place.host(), head.host.name()));
                out.extend_from_slice(label.as_bytes());
            }
        }
        Variable::Capture(_) => {}
        // Only an authenticated user: backends would take an unverified name for a verified one.
        Variable::User if exchange.has_password => {
            out.extend_from_slice(info.user.as_deref().unwrap_or_default())
        }
        Variable::User => {}
        Variable::Header(name) => {
            out.extend_from_slice(&head.fields.asked(OfVariable(name)).unwrap_or_default());
        }
        Variable::Argument(name) => out.extend_from_slice(argument(head, name).unwrap_or_default()),
        Variable::Cookie(name) => out.extend_from_slice(&super::pick::cookie(head, name).unwrap_or_default()),
        Variable::Host => out.extend_from_slice(head.host.name().as_bytes()),
        Variable::ServerName => out.extend_from_slice(server_name(location).as_bytes()),
        Variable::BestHost => out.extend_from_slice(exchange.host().raw()),
        Variable::RequestUri => out.extend_from_slice(head.target()),
        Variable::EscapedRequestUri => path::escape(head.target(), out),
        Variable::Uri => out.extend_from_slice(&exchange.uri()),
        Variable::Args => out.extend_from_slice(head.query().unwrap_or_default()),
        Variable::IsArgs => out.extend_from_slice(if head.query().is_some() { b"?" } else { b"" }),
        Variable::OfConnection(what) => {
            let host = location.map_or_else(|| head.host.name(), |it| it.place.host());
            facts::append_for(peer, host, *what, out);
        }
        Variable::ConnectionRequests => out.extend_from_slice(info.place.to_string().as_bytes()),
        Variable::AccessScheme => out.extend_from_slice(&exchange.scheme()),
        Variable::AccessPort => out.extend_from_slice(&exchange.port()),
        Variable::Protocol => out.extend_from_slice(head.version.as_str().as_bytes()),
        Variable::Request => first_line(head, out),
        Variable::Method => out.extend_from_slice(head.method_bytes()),
        Variable::ClientAddress => out.extend_from_slice(&exchange.client_text()),
        Variable::ClientBytes => match exchange.client().to_canonical() {
            IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
        },
        Variable::PeerAddress => out.extend_from_slice(peer.address_text()),
        Variable::ForwardedFor => {
            let list = field(Known::XForwardedFor);
            if !list.is_empty() {
                out.extend_from_slice(&list);
                out.extend_from_slice(b", ");
            }
            out.extend_from_slice(&exchange.client_text());
        }
        Variable::FullForwardedFor => {
            let list = field(Known::XForwardedFor);
            if !list.is_empty() {
                out.extend_from_slice(&list);
                out.extend_from_slice(b", ");
            }
            if !facts::append(peer, OfConnection::ToldAddr, out) {
                out.extend_from_slice(peer.address_text());
            }
        }
        Variable::RequestId => {
            forwarded::identify(exchange, location.is_none_or(|it| it.policy.forwarding.makes_id));
            out.extend_from_slice(info.id());
        }
        Variable::OwnId => out.extend_from_slice(info.own_id(&call.server.local.ids)),
        Variable::ContentType => out.extend_from_slice(&field(Known::ContentType)),
        Variable::ContentLength => out.extend_from_slice(&field(Known::ContentLength)),
        Variable::Namespace => out.extend_from_slice(owner().0.as_bytes()),
        Variable::Ingress => out.extend_from_slice(owner().1.as_bytes()),
        Variable::Service => out.extend_from_slice(location.map_or("", |it| it.service()).as_bytes()),
        Variable::ServicePort => out.extend_from_slice(location.map_or("", |it| it.port()).as_bytes()),
        Variable::LocationPath => out.extend_from_slice(location.map_or("", |it| it.declared()).as_bytes()),
        Variable::UpstreamName => {
            location.iter().for_each(|it| it.upstream_name().write(out));
        }
        Variable::Hostname => out.extend_from_slice(hostname().as_bytes()),
        Variable::TimeLocal => Time::Local.write(clock::wall(), out),
        Variable::TimeIso8601 => Time::Iso8601.write(clock::wall(), out),
        Variable::Msec => Time::Msec.write(clock::wall(), out),
    }
}

/// `$server_name`: the host of the Ingress, and not an alias that the client asked for; `_` where no host is declared.
pub(super) fn server_name(location: Option<&PathEntry>) -> &str {
    location.map_or("_", |location| location.place.host())
}

/// The original request line.
pub(super) fn first_line(head: &RequestHead, out: &mut Vec<u8>) {
    let version = head.version.as_str();
    for part in [head.asked_method(), b" ", head.raw_target(), b" ", version.as_bytes()] {
        out.extend_from_slice(part);
    }
}

/// The part of a name that the wildcard of a host stands for: a capture group of ingress-nginx' pattern for such a
/// host.
fn label<'n>(host: &str, name: &'n str) -> &'n str {
    let label = host.strip_prefix('*').and_then(|rest| name.strip_suffix(rest));
    label.filter(|label| !label.contains('.')).unwrap_or_default()
}

/// The first query parameter of that name, undecoded. As nginx' `$arg_`: case-insensitive.
pub(super) fn argument<'h>(head: &'h RequestHead, name: &str) -> Option<&'h [u8]> {
    let mut pairs = head.query().unwrap_or_default().split(|byte| *byte == b'&');
    pairs.find_map(|pair| {
        let (found, value) = pair.split_at_checked(name.len())?;
        found.eq_ignore_ascii_case(name.as_bytes()).then(|| value.strip_prefix(b"=")).flatten()
    })
}

/// The machine's name, assumed not to change.
pub(super) fn hostname() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        name.trim().to_owned()
    })
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::codec::guard::Limits;
    use crate::codec::h1::RequestReader;

    #[test]
    fn a_star_stands_for_one_label() {
        assert_eq!(label("*.a.test", "b.a.test"), "b");
        for (host, name) in
            [("*.a.test", "c.b.a.test"), ("*.a.test", "a.test"), ("a.test", "a.test"), ("_", "x")]
        {
            assert_eq!(label(host, name), "", "{host} {name}");
        }
    }

    #[test]
    fn arguments_are_found_as_nginx_finds_them() {
        let text = "GET /a?x=1&ID=first&id=second&idx=3&id HTTP/1.1\r\nHost: a.test\r\n\r\n";
        let mut buffer = BytesMut::from(text.as_bytes());
        let head = RequestReader::new(Limits::REQUEST).feed(&mut buffer).unwrap().unwrap();
        assert_eq!(argument(&head, "id"), Some(&b"first"[..]));
        assert_eq!(argument(&head, "idx"), Some(&b"3"[..]));
        assert_eq!(argument(&head, "y"), None);
    }
}
