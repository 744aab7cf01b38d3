//! What is done with a request: pure, from one table and the request's head.

use std::sync::Arc;

use bytes::Bytes;

use crate::codec::head::{Known, RequestHead};
use crate::codec::path::{self, Normalised, Verdict};
use crate::http::account::Tally;
use crate::http::peer::Peer;
use crate::http::redirect;
use crate::listen::Scheme;
use crate::local::Local;
use crate::table::{Action, Alternative, BackendCell, HostEntry, HostTable, Match, PathEntry, Upstream};

/// ingress-nginx' default `http-redirect-code`.
const TO_TLS: u16 = 308;

/// A health check of the proxy itself, on the catch-all host (balancing.md 12). A prefix location in the original.
const HEALTH: &[u8] = b"/healthz";

/// What ingress-nginx calls the default backend (balancing.md 1).
const DEFAULT_UPSTREAM: &str = "upstream-default-backend";

/// What is done.
pub(super) enum Decision {
    /// It is sent to a backend.
    Proxy(Chosen),
    /// It is answered with nginx' page of a status.
    Answer(u16),
    /// 400: its path can be read in two ways.
    Refuse,
    /// It is sent elsewhere.
    Redirect(u16, Vec<u8>),
    /// 200 to a health check.
    Healthy,
}

/// Where a request is sent.
pub(super) struct Chosen {
    pub(super) cell: Arc<BackendCell>,
    /// Path that takes the place of the request's own, already encoded.
    pub(super) path: Option<Vec<u8>>,
}

/// Which location a path leads to, to be compared.
#[derive(PartialEq)]
enum Location {
    Path(*const PathEntry),
    AddSlash,
    None,
}

/// Decides, and tells the tally what was found.
pub(super) fn decide(
    table: &HostTable,
    local: &Local,
    peer: &Peer,
    head: &RequestHead,
    normal: &Normalised<'_>,
    tally: &mut Tally,
) -> Decision {
    let name = head.host.name();
    // The catch-all stands in the table; without any table nothing is known of anything.
    let Some(host) = table.host(name) else {
        return Decision::Answer(404);
    };

    let verdict = path::forward(head.path(), normal, |path| location(host, path));
    let rewritten = match verdict {
        Verdict::Raw => None,
        Verdict::Normal(path) => Some(path),
        Verdict::Refuse => return Decision::Refuse,
    };
    let entry = match host.route(&normal.path) {
        Match::Path(entry) => entry,
        Match::AddSlash => {
            let path = path::re_encode(&normal.path);
            let location = redirect::with_slash(peer.scheme(), &head.host, &path, head.query());
            return Decision::Redirect(301, location);
        }
        Match::None => return nobody(host, normal, tally),
    };
    if is_health_check(host, normal) && !entry.declared.as_bytes().starts_with(HEALTH) {
        return healthy(tally);
    }
    // From here on there is a location, whatever it answers.
    tally.upstream = Some(upstream_name(entry));
    // A denied Ingress answers before the redirect to TLS; one without endpoints after it.
    if let Action::Denied(_) = &entry.action {
        return Decision::Answer(503);
    }
    if to_tls(table, peer, name, entry) {
        return Decision::Redirect(TO_TLS, redirect::to_tls(&head.host, head.target()));
    }
    match &entry.action {
        Action::Backend(upstream) => proxy(local, head, upstream, rewritten, tally),
        Action::DefaultBackend => nobody(host, normal, tally),
        Action::Denied(_) | Action::Unavailable => Decision::Answer(503),
    }
}

/// The default backend: 404, but for health checks. The log is spared the catch-all's (controller.md 8).
fn nobody(host: &HostEntry, normal: &Normalised<'_>, tally: &mut Tally) -> Decision {
    if is_health_check(host, normal) {
        return healthy(tally);
    }
    tally.silent = host.name() == shared::resource::CATCH_ALL;
    tally.upstream = Some(DEFAULT_UPSTREAM.into());
    Decision::Answer(404)
}

fn is_health_check(host: &HostEntry, normal: &Normalised<'_>) -> bool {
    normal.path.starts_with(HEALTH) && host.name() == shared::resource::CATCH_ALL
}

fn healthy(tally: &mut Tally) -> Decision {
    tally.silent = true;
    Decision::Healthy
}

/// `namespace-service-port` of a path, as the log has it even where nothing is proxied (controller.md 8).
fn upstream_name(entry: &PathEntry) -> Arc<str> {
    match &entry.action {
        Action::Backend(upstream) => Arc::clone(&upstream.name),
        Action::Denied(_) | Action::Unavailable if !entry.service.is_empty() => {
            let namespace = entry.owner.split('/').next().unwrap_or_default();
            format!("{namespace}-{}-{}", entry.service, entry.port).into()
        }
        Action::Denied(_) | Action::Unavailable | Action::DefaultBackend => DEFAULT_UPSTREAM.into(),
    }
}

fn location(host: &HostEntry, path: &[u8]) -> Location {
    match host.route(path) {
        Match::Path(entry) => Location::Path(entry),
        Match::AddSlash => Location::AddSlash,
        Match::None => Location::None,
    }
}

/// ingress-nginx behaviour, annotations.md 6.3; the table has cleared both flags where the path is exempt.
fn to_tls(table: &HostTable, peer: &Peer, name: &str, entry: &PathEntry) -> bool {
    peer.scheme() == Scheme::Http
        && (entry.force_ssl_redirect || (entry.ssl_redirect && table.redirects_to_tls(name)))
}

/// Chooses between a backend and its canary, once for the request (balancing.md 7 and 9).
fn proxy(
    local: &Local,
    head: &RequestHead,
    upstream: &Upstream,
    path: Option<Vec<u8>>,
    tally: &mut Tally,
) -> Decision {
    // First of all: without endpoints it is 503 also for those that the canary would take.
    if upstream.cell.endpoints().list.is_empty() {
        return Decision::Answer(503);
    }
    let canary = upstream.alternative.as_ref().filter(|alternative| takes(alternative, head));
    let cell = match canary {
        Some(alternative) => {
            tally.alternative = Some(Arc::clone(&alternative.name));
            &alternative.cell
        }
        None => &upstream.cell,
    };
    local.metrics.routed.add(1);
    Decision::Proxy(Chosen { cell: Arc::clone(cell), path })
}

/// Whether a canary takes a request. One without endpoints is passed over.
fn takes(alternative: &Alternative, head: &RequestHead) -> bool {
    let Some(canary) = &alternative.canary else {
        return false;
    };
    !alternative.cell.endpoints().list.is_empty()
        && canary.decide(|name| head.fields.joined(name), |name| cookie(head, name), fastrand::u64(..))
}

/// The value of a cookie. As nginx' `$cookie_`: the name in any case, the first one that fits.
fn cookie(head: &RequestHead, name: &str) -> Option<Bytes> {
    let lines = head.fields.all(Known::Cookie);
    let mut crumbs = lines.flat_map(|line| line.split(|byte| *byte == b';'));
    crumbs.find_map(|crumb| {
        let crumb = crumb.trim_ascii_start();
        let equals = crumb.iter().position(|byte| *byte == b'=')?;
        let (found, value) = (&crumb[..equals], &crumb[equals + 1..]);
        found.eq_ignore_ascii_case(name.as_bytes()).then(|| Bytes::copy_from_slice(value.trim_ascii_end()))
    })
}
