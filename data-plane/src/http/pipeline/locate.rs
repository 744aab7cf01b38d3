//! Finds the location for a request, from one table and the request's head.

use std::borrow::Cow;
use std::net::IpAddr;
use std::ops::ControlFlow::{Break, Continue};
use std::sync::Arc;

use bytes::Bytes;
use shared::pattern::Steps;

use super::certificates::{self, Judged, Passes, Refusal};
use super::claims::{self, Claims};
use super::{Call, Exchange, Step, Voice, forwarded, log, redirect, shortcuts};
use crate::codec::head::{Known, RequestHead};
use crate::codec::path::{self, Normalised, Verdict};
use crate::http::reply::Reply;
use crate::table::policy::forwarding::Names;
use crate::table::{Action, HostEntry, HostTable, Match, PathEntry, Policy};

use self::kept_out::{Shown, keep_out};
use self::place::place;

mod kept_out;
mod place;

/// A health check of the proxy itself, on the catch-all host. A prefix location in ingress-nginx.
const HEALTH: &str = "/healthz";

/// The connection status page, likewise.
const STATUS: &str = "/nginx_status";

/// The result of looking up a path.
enum Found {
    /// A location.
    Location {
        entry: Arc<PathEntry>,
        /// The path for the backend instead of the request's own, already encoded.
        target: Option<Vec<u8>>,
        has_tls: bool,
        issues_cookie: bool,
    },
    /// The name is another host's with or without `www.`: that host, and how its location redirects.
    Www(Arc<HostEntry>, Arc<Policy>),
    /// Nothing: its User-Agent or Referer is blocked.
    Blocked(Shown),
    /// Requests for "/" of the host are redirected to this path. With the location that they would reach otherwise.
    AppRoot(Box<str>, Option<Arc<PathEntry>>),
    /// A location whose path has an additional trailing slash, and its URL.
    AddSlash(Arc<PathEntry>, Vec<u8>),
    /// None: the default backend. The catch-all's is not logged (as in ingress-nginx).
    DefaultBackend {
        silent: bool,
        entry: Option<Arc<PathEntry>>,
        target: Option<Vec<u8>>,
        /// There is none, and the client's address is blocked.
        blocked: bool,
    },
    /// Two different locations, depending on how the path is read.
    Ambiguous,
    /// Exceeded the matching budget: refused, so that nobody gets past a rule that way.
    Unknown,
    /// Nothing for this client.
    Refused(Refusal, Shown),
    /// A health check of the proxy itself; the media type of the response, if configured.
    HealthCheck(Option<Bytes>),
    /// The connection status page; whether the client may see it.
    Status(bool),
    /// No table was received yet.
    NoTable,
}

/// Finds the location. Responds if there is none, or if it must not be served.
pub(super) fn locate(exchange: &mut Exchange<'_>) -> Step {
    let server = exchange.call.server;
    let local = &server.local;
    // Normalised once, before routing: all later phases use this path.
    let Ok(Normalised { path, suspicious }) = path::normalise(exchange.head.path()) else {
        exchange.info.unrouted(server);
        local.metrics.refusals.add(1);
        return Break(Reply::refusal(local, 400));
    };
    exchange.normal = match path {
        Cow::Borrowed(_) => None,
        Cow::Owned(path) => Some(path),
    };
    let peer = exchange.call.peer;
    let normal = Normalised { path: Cow::Borrowed(exchange.path()), suspicious };
    let mut names = Names::Plain;
    let (mut passes, mut page, mut has_pages) = (None, None, true);
    let (mut format, mut place, mut answers) = (None, None, None);
    let (mut silent, mut by_alias) = (false, false);
    let (claims, found, fallback) = server.with_table(|table| {
        let forwarding = &table.policy().forwarding;
        let claims = Claims::of(exchange.head, peer, forwarding);
        let is_plain = claims::is_plain(claims.as_deref(), peer);
        names = forwarding.names;
        let head = &*exchange.head;
        let client = claims.as_ref().map_or_else(|| peer.address().ip(), |claims| claims.address);
        let (call, name) = (exchange.call, head.host.name());
        let www = table.www(name);
        let host = if www.is_none() { table.host(name) } else { None };
        let (raw, query, steps) = (head.path(), head.query(), &exchange.steps);
        let ask = Ask { call, client, name, www, host, is_plain, head, raw, query, steps };
        has_pages = self::has_pages(host);
        let found;
        (found, passes, page) = admit(table, &ask, &normal);
        format = log::follow(local, table.policy());
        by_alias =
            host.is_some_and(|it| it.names().is_some_and(|names| it.name() != name && names.has(name)));
        if matches!(
            found,
            Found::Location { .. } | Found::AddSlash(..) | Found::DefaultBackend { .. } | Found::AppRoot(..)
        ) {
            // No redirect to another host: these are the snippets of the host that was found.
            answers = ask.host.and_then(|host| host.shortcuts().cloned());
        }
        if !matches!(found, Found::Location { .. } | Found::HealthCheck(_) | Found::Status(_)) {
            place = table.host(exchange.head.host.name()).map(|host| Arc::clone(host.place()));
            silent = !table.policy().log.takes(exchange.head.asked_target());
        }
        (claims, found, table.default_backend().cloned())
    });
    exchange.has_pages_of_fleet = has_pages;
    exchange.certificate = passes;
    if let Some(page) = page {
        show(exchange, page);
    }
    if names != Names::Plain {
        let location = match &found {
            Found::Location { entry, .. } | Found::DefaultBackend { entry: Some(entry), .. } => {
                Some(&**entry)
            }
            _ => None,
        };
        forwarded::take_back(exchange.head, names, location);
    }
    exchange.info.client = claims.as_ref().map(|claims| claims.address);
    exchange.claims = claims;
    exchange.fallback = fallback;
    (exchange.info.unclaimed, exchange.info.silent, exchange.info.by_alias) = (place, silent, by_alias);
    log::asked::of_head(exchange, format);
    match found {
        Found::Location { entry, target, has_tls, issues_cookie } => {
            (exchange.has_tls, exchange.issues_cookie) = (has_tls, issues_cookie);
            exchange.info.silent = !entry.policy.log.takes(exchange.head.asked_target());
            let denied = entry.is_denied();
            enter(exchange, entry, target);
            if let Some(answers) = answers {
                shortcuts::of_host(exchange, &answers)?;
            }
            // Before any redirect.
            if denied {
                return Break(Reply::page(local, 503));
            }
            Continue(())
        }
        Found::Www(host, policy) => {
            exchange.voice = Voice::Host;
            Break(redirect::to_www(exchange, host.name(), &policy.redirect))
        }
        Found::Blocked(shown) => Break(keep_out(exchange, shown, Reply::page(local, 403))),
        Found::AppRoot(path, entry) => {
            (exchange.redirecting, exchange.voice) = (entry, Voice::Host);
            // In nginx' configuration the test for it follows the snippet, and precedes the lookup of a location.
            if let Some(answers) = answers {
                shortcuts::before_blocks(exchange, &answers)?;
            }
            Break(redirect::to_app_root(exchange, &path))
        }
        Found::AddSlash(entry, location) => {
            if let Some(answers) = answers {
                shortcuts::of_host(exchange, &answers)?;
            }
            // The log shows no location, and none of its rules is evaluated.
            exchange.redirecting = Some(entry);
            exchange.voice = Voice::Apart;
            Break(Reply::redirect(local, 301, location))
        }
        Found::DefaultBackend { silent, entry, target, blocked } => {
            exchange.info.silent = silent;
            exchange.info.default_backend = true;
            if let Some(answers) = answers {
                shortcuts::of_host(exchange, &answers)?;
            }
            let Some(entry) = entry else {
                return Break(Reply::page(local, if blocked { 403 } else { 404 }));
            };
            enter(exchange, entry, target);
            Continue(())
        }
        Found::Ambiguous => {
            local.metrics.refusals.add(1);
            Break(Reply::refusal(local, 400))
        }
        Found::Refused(why, shown) => {
            local.metrics.refusals.add(1);
            // The server for such a host in nginx' configuration contains nothing but the refusal: no error page for
            // clients without a certificate either.
            exchange.has_pages_of_fleet |= why.is_hosts();
            Break(keep_out(exchange, shown, certificates::answer(&why, local)))
        }
        Found::Unknown => Break(Reply::page(local, 500)),
        Found::HealthCheck(media_type) => {
            (exchange.info.silent, exchange.voice) = (true, Voice::Host);
            let mut reply = Reply::healthy(local);
            if let Some(media_type) = media_type {
                reply.head.fields.set(Known::ContentType, media_type);
            }
            Break(reply)
        }
        Found::Status(may_know) => {
            (exchange.info.silent, exchange.voice) = (true, Voice::Host);
            let page = local.metrics.all().filter(|_| may_know).map(|all| all.stub());
            Break(page.map_or_else(|| Reply::page(local, 403), |page| Reply::text(local, page)))
        }
        Found::NoTable => Break(Reply::page(local, 404)),
    }
}

/// From here on the request is for this path of its host: later phases do not see the original one.
fn show(exchange: &mut Exchange<'_>, page: Box<str>) {
    exchange.head.show(page.into_boxed_bytes());
    exchange.normal = match path::normalise(exchange.head.path()) {
        Ok(Normalised { path: Cow::Owned(path), .. }) => Some(path),
        _ => None,
    };
}

/// From here on the location's settings apply to the request.
fn enter(exchange: &mut Exchange<'_>, entry: Arc<PathEntry>, target: Option<Vec<u8>>) {
    if let Some(target) = target {
        // It was routed by the normal form, which may differ from the original spelling.
        if exchange.normal.is_none() {
            exchange.normal = Some(exchange.head.path().to_vec());
        }
        exchange.head.cure(&target);
    }
    exchange.timeouts = entry.policy.timeouts.over(exchange.timeouts);
    exchange.sizes = entry.policy.bodies.over(exchange.sizes);
    let is_first = exchange.entered.set(entry).is_ok();
    debug_assert!(is_first, "a request enters one location");
}

/// The parts of a request that its routing depends on.
struct Ask<'a> {
    call: Call<'a>,
    client: IpAddr,
    /// The requested host name.
    name: &'a str,
    /// The host that the name redirects to, if there is one.
    www: Option<&'a Arc<HostEntry>>,
    /// Otherwise the host itself.
    host: Option<&'a Arc<HostEntry>>,
    is_plain: bool,
    head: &'a RequestHead,
    /// The original path, or that of the page shown instead.
    raw: &'a [u8],
    /// The query, likewise.
    query: Option<&'a [u8]>,
    /// The budget for pattern matching.
    steps: &'a Steps,
}

/// Finds the location for a client that may use it. Also returns what is known about the client, and the page that it
/// gets instead.
fn admit(
    table: &HostTable,
    ask: &Ask<'_>,
    normal: &Normalised<'_>,
) -> (Found, Option<Box<Passes>>, Option<Box<str>>) {
    match ask.host.map_or(Judged::NotAsked, |host| certificates::judge(host, ask.head, ask.call.peer)) {
        Judged::NotAsked => (find(table, ask, normal), None, None),
        Judged::Passes(passes) => (find(table, ask, normal), Some(passes), None),
        Judged::Page(page) => {
            let found = match path::normalise(page.as_bytes()) {
                Ok(normal) => find(table, &Ask { raw: page.as_bytes(), query: None, ..*ask }, &normal),
                Err(_) => Found::Ambiguous,
            };
            (found, None, Some(page))
        }
        Judged::Refused(why) => {
            let shown = if why.is_hosts() { Shown::by(table, ask.client) } else { Shown::Itself };
            (Found::Refused(why, shown), None, None)
        }
    }
}

fn find(table: &HostTable, ask: &Ask<'_>, normal: &Normalised<'_>) -> Found {
    let Ask { call, client, name, www, host, is_plain, head, raw, query, steps } = *ask;
    if let Some(blocks) = &table.policy().blocks {
        let (agent, referer) = (head.fields.joined(Known::UserAgent), head.fields.joined(Known::Referer));
        if blocks.block(agent.as_deref(), referer.as_deref()) {
            // In nginx' configuration, the server that redirects a name with or without `www.` has no error pages.
            let has_none = www.is_some() || !has_pages(host);
            return Found::Blocked(if has_none { Shown::Itself } else { Shown::by(table, client) });
        }
    }
    if let Some(host) = www {
        let policy = match host.route(&normal.path, steps) {
            Match::Path(entry) | Match::AddSlash(entry) => Arc::clone(&entry.policy),
            Match::None | Match::Unknown => Arc::default(),
        };
        return Found::Www(Arc::clone(host), policy);
    }
    // A catch-all host is always in the table.
    let Some(host) = host else {
        return Found::NoTable;
    };
    let climbs = normal.suspicious && path::climbs(raw);
    let target = match path::forward(raw, normal, |path| place(host, path, query, climbs, steps)) {
        Verdict::Raw => None,
        Verdict::Normal(path) => Some(path),
        Verdict::Refuse => return Found::Ambiguous,
    };
    let catch_all = host.name() == shared::resource::CATCH_ALL;
    let answers = &table.policy().answers;
    let health = answers.health.as_deref().unwrap_or(HEALTH);
    // Prefixes in ingress-nginx, of which the longer one wins.
    let own = [health, STATUS].into_iter().filter(|own| catch_all && normal.path.starts_with(own.as_bytes()));
    let own = own.max_by_key(|own| own.len());
    if let Some(app_root) = host.app_root().filter(|_| *normal.path == *b"/") {
        let entry = match host.route(&normal.path, steps) {
            Match::Path(entry) => Some(Arc::clone(entry)),
            _ => None,
        };
        return Found::AppRoot(app_root.into(), entry);
    }
    match host.route(&normal.path, steps) {
        Match::AddSlash(entry) => {
            let path = path::re_encode(&normal.path);
            let redirect = &entry.policy.redirect;
            let location = redirect::with_slash(call, redirect, &head.host, &path, query);
            Found::AddSlash(Arc::clone(entry), location)
        }
        Match::Path(entry) if own.is_none_or(|own| takes(entry, own)) => Found::Location {
            entry: Arc::clone(entry),
            target,
            has_tls: is_plain && redirects(entry) && table.redirects_to_tls(name),
            issues_cookie: entry.issues_cookie() && host.knows_as(name),
        },
        Match::Unknown => Found::Unknown,
        _ if own == Some(health) => Found::HealthCheck(answers.media_type.clone()),
        _ if own == Some(STATUS) => Found::Status(match &table.policy().status {
            Some(shown) => shown.contains(client),
            None => client.is_loopback(),
        }),
        _ => {
            let (log, asked) = (&table.policy().log, head.asked_target());
            let logged = if catch_all { log.takes_unclaimed(asked) } else { log.takes(asked) };
            let entry = table.unclaimed().cloned();
            // If there is a location, it checks the list itself.
            let blocked = entry.is_none() && table.policy().addresses.blocks(client, catch_all);
            Found::DefaultBackend { silent: !logged, entry, target, blocked }
        }
    }
}

/// Whether the fleet's error pages apply to a host: not if it has one for clients without a certificate.
fn has_pages(host: Option<&Arc<HostEntry>>) -> bool {
    host.and_then(|host| host.certificates()).is_none_or(|it| !it.policy.has_page())
}

/// Whether plain requests for a location are redirected to TLS if its host has TLS.
fn redirects(entry: &PathEntry) -> bool {
    entry.policy.redirect.ssl && !entry.stays_plain
}

/// Whether an Ingress has assigned one of the proxy's own paths to a backend.
fn takes(entry: &PathEntry, own: &str) -> bool {
    entry.declared.starts_with(own) && !matches!(entry.action, Action::DefaultBackend)
}
