//! Which requests are sent elsewhere, and where to.

use std::ops::ControlFlow::{Break, Continue};

use super::{Exchange, Step};
use crate::codec::host::Host;
use crate::http::peer::Peer;
use crate::http::reply::Reply;
use crate::listen::Scheme;
use crate::table::policy::redirect::{Elsewhere, Redirect};

/// What ingress-nginx calls the host of a request that names none.
const NO_HOST: &[u8] = b"_";

/// The port of https, where redirects carry it (flag `--https-port` of ingress-nginx, its default).
const HTTPS_PORT: &[u8] = b":443";

/// Sends all requests of a location elsewhere, where it asks for that (annotations.md 4, 5.1).
pub(super) fn elsewhere(exchange: &mut Exchange<'_>) -> Step {
    let Some(location) = exchange.location.as_deref() else {
        return Continue(());
    };
    let redirect = &location.policy.redirect;
    let Some(Elsewhere { status, url }) = &redirect.elsewhere else {
        return Continue(());
    };
    let url = match url.strip_prefix('/') {
        Some(_) => on_this_host(exchange.call.peer, redirect, &exchange.head.host, url.as_bytes()),
        None => url.as_bytes().to_vec(),
    };
    Break(Reply::redirect(&exchange.call.server.local, *status, url))
}

/// Sends plain requests to TLS where their location asks for it (ingress-nginx behaviour, annotations.md 6.3).
pub(super) fn to_tls(exchange: &mut Exchange<'_>) -> Step {
    let Some(location) = exchange.location.as_deref() else {
        return Continue(());
    };
    let redirect = &location.policy.redirect;
    let wanted = !location.stays_plain && (redirect.force_ssl || (redirect.ssl && exchange.has_tls));
    if wanted && exchange.is_plain() {
        let url = https(redirect, exchange.host(), exchange.head.target());
        return Break(Reply::redirect(&exchange.call.server.local, redirect.to_tls, url));
    }
    Continue(())
}

/// The answer to a request for "/" of a host with an app root: the connection's scheme and the host as it came, its port
/// too; the query is dropped (annotations.md 5.1).
pub(super) fn to_app_root(exchange: &Exchange<'_>, app_root: &str) -> Reply {
    let mut url = exchange.call.peer.scheme().as_str().as_bytes().to_vec();
    url.extend_from_slice(b"://");
    url.extend_from_slice(exchange.head.host.raw());
    url.extend_from_slice(app_root.as_bytes());
    Reply::redirect(&exchange.call.server.local, 302, url)
}

/// The answer to a request for the name of a host with or without `www.`: the scheme, always the port, and the target as it
/// came, of which one slash at the very end is cut (annotations.md 6.4).
pub(super) fn to_www(exchange: &Exchange<'_>, host: &str, redirect: &Redirect) -> Reply {
    let mut url = exchange.scheme().to_vec();
    url.extend_from_slice(b"://");
    url.extend_from_slice(host.as_bytes());
    url.push(b':');
    url.extend_from_slice(&exchange.port());
    let target = exchange.head.target();
    let cut = target.strip_suffix(b"/").filter(|_| !redirect.preserves_slash);
    url.extend_from_slice(cut.unwrap_or(target));
    Reply::redirect(&exchange.call.server.local, redirect.to_tls, url)
}

/// `Location` of the redirect to TLS (ingress-nginx behaviour, annotations.md 6.3): the host without its port, and the
/// target as it came, of which one slash at the very end is cut, be it the query's.
fn https(redirect: &Redirect, host: &Host, target: &[u8]) -> Vec<u8> {
    let mut location = b"https://".to_vec();
    location.extend_from_slice(without_port(host.raw()));
    if redirect.with_port {
        location.extend_from_slice(HTTPS_PORT);
    }
    let cut = target.strip_suffix(b"/").filter(|_| !redirect.preserves_slash);
    location.extend_from_slice(cut.unwrap_or(target));
    location
}

/// `Location` of the redirect to a path with the slash that it lacks (annotations.md 3.2), the query kept. `path` is
/// encoded.
pub(super) fn with_slash(
    peer: &Peer,
    redirect: &Redirect,
    host: &Host,
    path: &[u8],
    query: Option<&[u8]>,
) -> Vec<u8> {
    let mut location = on_this_host(peer, redirect, host, path);
    location.push(b'/');
    if let Some(query) = query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    location
}

/// nginx' `Location` for a path of its own: the connection's scheme and the host in lower case, without a port unless one
/// is asked for; the bare path where redirects are relative.
pub(super) fn on_this_host(peer: &Peer, redirect: &Redirect, host: &Host, path: &[u8]) -> Vec<u8> {
    if redirect.relative {
        return path.to_vec();
    }
    let mut location = peer.scheme().as_str().as_bytes().to_vec();
    location.extend_from_slice(b"://");
    location.extend_from_slice(match host.name() {
        "" => NO_HOST,
        name => name.as_bytes(),
    });
    let usual: &[u8] = if peer.scheme() == Scheme::Https { b"443" } else { b"80" };
    let port = peer.port_text();
    if redirect.with_port && port != usual {
        location.push(b':');
        location.extend_from_slice(&port);
    }
    location.extend_from_slice(path);
    location
}

/// A host as it came, without its port. The brackets of an IPv6 address hold colons that are none of a port.
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
        String::from_utf8(https(&Redirect::default(), &host(raw), target.as_bytes())).unwrap()
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
        assert_eq!(https(&Redirect::default(), &Host::none(), b"/x"), b"https://_/x");
    }

    #[test]
    fn the_last_slash_and_the_port_are_kept_where_that_is_said() {
        let redirect = Redirect { preserves_slash: true, with_port: true, ..Redirect::default() };
        assert_eq!(https(&redirect, &host("a.test:8080"), b"/a/"), b"https://a.test:443/a/");
    }

    #[test]
    fn relative_redirects_name_no_host() {
        let redirect = Redirect { relative: true, ..Redirect::default() };
        let peer = peer(Scheme::Http, 80);
        assert_eq!(with_slash(&peer, &redirect, &host("a.test"), b"/foo", Some(b"x=1")), b"/foo/?x=1");
    }

    #[test]
    fn a_slash_is_added_before_the_query() {
        let location = |scheme, raw, query| {
            let peer = peer(scheme, if scheme == Scheme::Http { 8080 } else { 443 });
            String::from_utf8(with_slash(&peer, &Redirect::default(), &host(raw), b"/foo", query)).unwrap()
        };
        assert_eq!(location(Scheme::Http, "A.TEST:8080", None), "http://a.test/foo/");
        assert_eq!(location(Scheme::Https, "a.test", Some(b"x=1")), "https://a.test/foo/?x=1");
        assert_eq!(location(Scheme::Http, "a.test", Some(b"")), "http://a.test/foo/?");
        let ported = Redirect { with_port: true, ..Redirect::default() };
        assert_eq!(
            with_slash(&peer(Scheme::Http, 8080), &ported, &host("a.test"), b"/foo", None),
            b"http://a.test:8080/foo/"
        );
    }
}
