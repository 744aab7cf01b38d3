//! Decides which requests are redirected, and where to.

use std::io::Write as _;
use std::ops::ControlFlow::{Break, Continue};

use shared::template::Template;

use super::variables::Allowance;
use super::{Call, Exchange, Step, media, variables};
use crate::codec::host::Host;
use crate::codec::path;
use crate::http::peer::Peer;
use crate::http::reply::Reply;
use crate::listen::{PublicPorts, Scheme};
use crate::table::policy::redirect::{Elsewhere, Redirect};

/// The host name that ingress-nginx uses for a request without one.
const NO_HOST: &[u8] = b"_";

/// Redirects all requests of a location, if configured (as in ingress-nginx).
pub(super) fn elsewhere(exchange: &mut Exchange<'_>) -> Step {
    let Some(location) = exchange.location().filter(|_| !exchange.has_broken_off()) else {
        return Continue(());
    };
    let redirect = &location.policy.redirect;
    let Some(Elsewhere { status, url }) = &redirect.elsewhere else {
        return Continue(());
    };
    if !is_redirect(*status) {
        let text = url.as_bytes().to_vec();
        let media_type = media::of(exchange, None);
        return Break(Reply::configured_page(&exchange.call.server.local, *status, media_type, text));
    }
    let url = match url.strip_prefix('/') {
        Some(_) => on_this_host(exchange.call, redirect, &exchange.head.host, url.as_bytes()),
        None => url.as_bytes().to_vec(),
    };
    Break(Reply::redirect(&exchange.call.server.local, *status, url))
}

/// Whether nginx sends a redirect with this status. With any other one the URL becomes the body of the response, even
/// if the status is a 3xx.
pub(super) fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// Redirects plain requests to TLS, if their location is configured so (as in ingress-nginx).
pub(super) fn to_tls(exchange: &mut Exchange<'_>) -> Step {
    let Some(location) = exchange.location() else {
        return Continue(());
    };
    let redirect = &location.policy.redirect;
    let wanted = !location.stays_plain && (redirect.force_ssl || (redirect.ssl && exchange.has_tls));
    if wanted && exchange.is_plain() {
        let server = exchange.call.server;
        let ports = (server.ports.https, server.https);
        let url = https(redirect, ports, exchange.host(), exchange.head.target());
        return Break(Reply::redirect(&exchange.call.server.local, redirect.to_tls, url));
    }
    Continue(())
}

/// The response to a request for "/" of a host with an `app-root`: the connection's scheme and the host as received,
/// including its port; the query is dropped (as in ingress-nginx). The path may hold variables; nothing was matched, so
/// captures are empty.
pub(super) fn to_app_root(exchange: &Exchange<'_>, app_root: &Template) -> Reply {
    let path = match variables::filled(app_root, exchange, &mut Allowance::default(), |_| b"") {
        Ok(path) => unbroken(&path),
        Err(overlong) => return variables::refused(exchange, overlong),
    };
    let mut url = exchange.call.peer.scheme().as_str().as_bytes().to_vec();
    url.extend_from_slice(b"://");
    url.extend_from_slice(exchange.head.host.raw());
    url.extend_from_slice(&path);
    Reply::redirect(&exchange.call.server.local, 302, url)
}

/// Text from a client, without anything that ends a line or a field.
pub(super) fn unbroken(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for &byte in text {
        if (b'!'..=b'~').contains(&byte) {
            out.push(byte);
        } else {
            path::escape_one(byte, &mut out);
        }
    }
    out
}

/// The redirect between a name with and without `www.`: the scheme, always the port, and the target as received,
/// without one trailing slash, whatever is configured for the redirect to https (as in ingress-nginx).
pub(super) fn to_www(exchange: &Exchange<'_>, host: &str, redirect: &Redirect) -> Reply {
    let mut url = exchange.scheme().to_vec();
    url.extend_from_slice(b"://");
    url.extend_from_slice(host.as_bytes());
    url.push(b':');
    url.extend_from_slice(&exchange.port());
    let target = exchange.head.target();
    url.extend_from_slice(target.strip_suffix(b"/").unwrap_or(target));
    Reply::redirect(&exchange.call.server.local, redirect.to_tls, url)
}

/// `Location` of the redirect to TLS (as in ingress-nginx): the host without its port, and the target as received,
/// without one trailing slash, even if that is part of the query. `public` is the port by which clients reach TLS, and
/// `own` the one that listens: ingress-nginx includes its own (flag `--https-port`) if redirects carry ports, and none
/// otherwise. Here a public port that is not the usual one is always included: without it the redirect would lead to a port
/// where possibly nothing listens.
fn https(redirect: &Redirect, (public, own): (u16, Option<u16>), host: &Host, target: &[u8]) -> Vec<u8> {
    let mut location = b"https://".to_vec();
    location.extend_from_slice(without_port(host.raw()));
    let usual = Scheme::Https.usual_port();
    if public != usual {
        push_port(&mut location, public);
    } else if redirect.with_port {
        push_port(&mut location, own.unwrap_or(usual));
    }
    let cut = target.strip_suffix(b"/").filter(|_| !redirect.preserves_slash);
    location.extend_from_slice(cut.unwrap_or(target));
    location
}

/// `Location` of the redirect to a path with a trailing slash, keeping the query. `path` is encoded.
pub(super) fn with_slash(
    call: Call<'_>,
    redirect: &Redirect,
    host: &Host,
    path: &[u8],
    query: Option<&[u8]>,
) -> Vec<u8> {
    add_slash(on_this_host(call, redirect, host, path), query)
}

fn add_slash(mut location: Vec<u8>, query: Option<&[u8]>) -> Vec<u8> {
    location.push(b'/');
    if let Some(query) = query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    location
}

/// nginx' `Location` for a path on the same host.
pub(super) fn on_this_host(call: Call<'_>, redirect: &Redirect, host: &Host, path: &[u8]) -> Vec<u8> {
    by_ports(call.peer, call.server.ports, redirect, host, path)
}

/// The same in a location of nginx' own, such as that of the sign-in redirect: only what is configured for the fleet
/// applies there, and it has no ports.
pub(super) fn from_elsewhere(exchange: &Exchange<'_>, path: &[u8]) -> Vec<u8> {
    let relative = exchange.call.server.with_table(|table| table.policy().redirect.relative);
    on_this_host(exchange.call, &Redirect { relative, ..Redirect::default() }, &exchange.head.host, path)
}

/// The connection's scheme and the host in lower case, without a port unless the port is configured to be included or
/// is not the scheme's default; only the path if redirects are relative.
fn by_ports(peer: &Peer, ports: PublicPorts, redirect: &Redirect, host: &Host, path: &[u8]) -> Vec<u8> {
    if redirect.relative {
        return path.to_vec();
    }
    let scheme = peer.scheme();
    let mut location = scheme.as_str().as_bytes().to_vec();
    location.extend_from_slice(b"://");
    location.extend_from_slice(match host.name() {
        "" => NO_HOST,
        name => name.as_bytes(),
    });
    let port = match ports.of(scheme) {
        usual if usual == scheme.usual_port() && redirect.with_port => peer.port(),
        public => public,
    };
    if port != scheme.usual_port() {
        push_port(&mut location, port);
    }
    location.extend_from_slice(path);
    location
}

fn push_port(location: &mut Vec<u8>, port: u16) {
    // Writing to memory never fails.
    let _ = write!(location, ":{port}");
}

/// A host as received, without its port. The colons inside the brackets of an IPv6 address do not start a port.
fn without_port(raw: &[u8]) -> &[u8] {
    if raw.is_empty() {
        return NO_HOST;
    }
    let name = raw.iter().rposition(|byte| *byte == b']').map_or(0, |end| end + 1);
    let colon = raw[name..].iter().position(|byte| *byte == b':');
    colon.map_or(raw, |colon| &raw[..name + colon])
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn host(raw: &'static str) -> Host {
        Host::parse(Bytes::from_static(raw.as_bytes())).unwrap()
    }

    fn tls(raw: &'static str, target: &str) -> String {
        String::from_utf8(https(&Redirect::default(), (443, Some(8443)), &host(raw), target.as_bytes()))
            .unwrap()
    }

    fn peer(scheme: Scheme, port: u16) -> Peer {
        Peer::new("10.0.0.9:5555".parse().unwrap(), scheme, port)
    }

    #[test]
    fn the_very_last_slash_is_cut_and_the_port() {
        for (target, location) in [
            ("/", "https://a.test"),
            ("/a/b", "https://a.test/a/b"),
            ("/a/", "https://a.test/a"),
            ("/a//", "https://a.test/a/"),
            ("/a/?x=1&y=2", "https://a.test/a/?x=1&y=2"),
            ("/?x=/", "https://a.test/?x="),
        ] {
            assert_eq!(tls("a.test:8080", target), location);
            assert_eq!(tls("a.test", target), location);
        }
        assert_eq!(tls("A.Test.:80", "/x"), "https://A.Test./x");
        assert_eq!(tls("[::1]:8080", "/x"), "https://[::1]/x");
        assert_eq!(https(&Redirect::default(), (443, None), &Host::none(), b"/x"), b"https://_/x");
    }

    #[test]
    fn the_last_slash_and_the_port_are_kept_where_that_is_said() {
        let redirect = Redirect { preserves_slash: true, with_port: true, ..Redirect::default() };
        for (ports, location) in [
            ((443, None), "https://a.test:443/a/"),
            // As in ingress-nginx: the port that listens, whatever maps to it.
            ((443, Some(8443)), "https://a.test:8443/a/"),
            ((8443, Some(1443)), "https://a.test:8443/a/"),
        ] {
            let made = https(&redirect, ports, &host("a.test:8080"), b"/a/");
            assert_eq!(String::from_utf8(made).unwrap(), location);
        }
    }

    #[test]
    fn a_port_of_https_that_is_not_the_usual_one_is_named() {
        for (raw, target, location) in [
            ("a.test:8080", "/", "https://a.test:8443"),
            ("A.test", "/a/?x=1", "https://A.test:8443/a/?x=1"),
            ("[::1]:8080", "/a/", "https://[::1]:8443/a"),
        ] {
            let made = https(&Redirect::default(), (8443, Some(1443)), &host(raw), target.as_bytes());
            assert_eq!(String::from_utf8(made).unwrap(), location);
        }
    }

    #[test]
    fn relative_redirects_name_no_host() {
        let redirect = Redirect { relative: true, ..Redirect::default() };
        let ports = PublicPorts { http: 8080, https: 8443 };
        assert_eq!(by_ports(&peer(Scheme::Http, 80), ports, &redirect, &host("a.test"), b"/foo"), b"/foo");
    }

    #[test]
    fn a_slash_is_added_before_the_query() {
        for (query, location) in [(None, "/foo/"), (Some("x=1"), "/foo/?x=1")] {
            assert_eq!(add_slash(b"/foo".to_vec(), query.map(str::as_bytes)), location.as_bytes());
        }
    }

    #[test]
    fn this_host_has_the_port_that_clients_use() {
        let usual = PublicPorts::default();
        let other = PublicPorts { http: 8080, https: 8443 };
        for (scheme, port, ports, with_port, location) in [
            (Scheme::Http, 9999, usual, false, "http://a.test/foo"),
            (Scheme::Https, 9999, usual, false, "https://a.test/foo"),
            // As in nginx: the port that was connected to.
            (Scheme::Http, 9999, usual, true, "http://a.test:9999/foo"),
            (Scheme::Https, 443, usual, true, "https://a.test/foo"),
            (Scheme::Http, 9999, other, false, "http://a.test:8080/foo"),
            (Scheme::Https, 9999, other, false, "https://a.test:8443/foo"),
            (Scheme::Https, 9999, other, true, "https://a.test:8443/foo"),
        ] {
            let redirect = Redirect { with_port, ..Redirect::default() };
            let made = by_ports(&peer(scheme, port), ports, &redirect, &host("A.TEST:7"), b"/foo");
            assert_eq!(String::from_utf8(made).unwrap(), location);
        }
        // As in nginx, which has to name one.
        let made = by_ports(&peer(Scheme::Http, 80), usual, &Redirect::default(), &Host::none(), b"/foo");
        assert_eq!(made, b"http://_/foo");
    }
}
