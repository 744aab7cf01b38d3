//! Finds the location for a request, from one table and the request's head.

use std::borrow::Cow;
use std::net::IpAddr;
use std::ops::ControlFlow::{Break, Continue};
use std::sync::Arc;

use shared::pattern::Steps;

use super::certificates::{self, Judged, Passes};
use super::claims::{self, Claims};
use super::{Call, Exchange, HeaderScope, Step, forwarded, log, redirect, shortcuts, size};
use crate::access_log::Format;
use crate::codec::head::{Known, RequestHead};
use crate::codec::host::Host;
use crate::codec::path::{self, Normalised, Verdict};
use crate::http::reply::Reply;
use crate::metrics::RequestLabels;
use crate::table::policy::forwarding::Names;
use crate::table::policy::shortcuts::Shortcuts;
use crate::table::{Action, HostEntry, HostTable, Match, PathEntry, Upstream};

use self::destination::{Destination, destination, is_spelled};
use self::kept_out::{Shown, keep_out};
use self::route_outcome::{Own, RouteOutcome};

mod destination;
mod kept_out;
mod rewrites;
mod route_outcome;

/// A health check of the proxy itself, on the catch-all host. A prefix location in ingress-nginx.
const HEALTH: &str = "/healthz";

/// The connection status page, likewise.
const STATUS: &str = "/nginx_status";

/// Finds the location. Responds if there is none, or if it must not be served.
pub(super) fn locate(exchange: &mut Exchange<'_>) -> Step {
    let suspicious = normalise(exchange)?;
    let server = exchange.call.server;
    let looked = server.with_table(|table| look(table, exchange, suspicious));
    let (found, answers) = note(exchange, looked);
    follow(exchange, found, answers)
}

/// Normalises the path, once: routing and all later phases use this one. Returns whether somebody might read the
/// original one differently.
fn normalise(exchange: &mut Exchange<'_>) -> Step<bool> {
    if exchange.head.is_redirected() {
        return Continue(false);
    }
    let Ok(Normalised { path, suspicious }) = path::normalise(exchange.head.path()) else {
        let server = exchange.call.server;
        exchange.info.unrouted(server);
        server.local.metrics.refusals.add(1);
        return Break(Reply::refusal(&server.local, 400));
    };
    exchange.normal = match path {
        Cow::Borrowed(_) => None,
        Cow::Owned(path) => Some(path),
    };
    Continue(suspicious)
}

/// What the table says about a request.
struct Look {
    found: RouteOutcome,
    /// What is known about the client's certificate.
    passes: Option<Box<Passes>>,
    /// The fleet's default backend.
    fallback: Option<Arc<Upstream>>,
    /// Snippet directives of the host.
    answers: Option<Arc<Shortcuts>>,
    /// Which unusual field names pass.
    names: Names,
    has_pages: bool,
    /// See [`log::follow`].
    format: Option<Arc<Format>>,
    /// The metric labels, and whether it is not logged, if no location takes it.
    place: Option<Arc<RequestLabels>>,
    silent: bool,
    by_alias: bool,
}

/// Looks everything up that a request needs of the table.
fn look(table: &HostTable, exchange: &mut Exchange<'_>, suspicious: bool) -> Look {
    let policy = table.policy();
    exchange.claims = Claims::of(exchange.head, exchange.call.peer, &policy.forwarding);
    let ask = Ask::of(table, exchange);
    let host = ask.host;
    let in_patterns = host.is_some_and(|host| host.is_in_patterns());
    let normal = Normalised { path: Cow::Borrowed(exchange.path()), suspicious };
    let (found, passes, page) = admit(table, &ask, &normal);
    claims::of_host(exchange, found.location());
    exchange.in_patterns = in_patterns;
    let of_host = host.filter(|_| found.has_snippets()).and_then(|host| host.shortcuts());
    if let Some(page) = page {
        show(exchange, page);
    }
    let found = rewrites::follow(table, exchange, found, of_host.map(|it| &**it));
    let (call, head) = (exchange.call, &*exchange.head);
    let is_unclaimed = found.is_unclaimed();
    Look {
        passes,
        fallback: table.default_backend().cloned(),
        answers: of_host.cloned(),
        names: policy.forwarding.names,
        has_pages: has_pages(host),
        format: log::follow(&call.server.local, policy),
        place: if is_unclaimed {
            table.host(head.host.name()).map(|host| Arc::clone(host.place()))
        } else {
            None
        },
        silent: is_unclaimed && !policy.log.takes(head.asked_target()),
        by_alias: host.is_some_and(|it| is_alias(it, &head.host)),
        found,
    }
}

/// Whether a host was requested by another name than its own.
fn is_alias(host: &HostEntry, asked: &Host) -> bool {
    host.names().is_some_and(|names| {
        let name = asked.name();
        host.name() != name && names.has(name)
    })
}

/// Stores what was looked up. Returns what decides how the request continues.
fn note(exchange: &mut Exchange<'_>, looked: Look) -> (RouteOutcome, Option<Arc<Shortcuts>>) {
    let Look { found, passes, fallback, answers, names, .. } = looked;
    exchange.has_pages_of_fleet = looked.has_pages;
    exchange.certificate = passes;
    if names != Names::Plain {
        forwarded::take_back(exchange.head, names, found.location());
    }
    exchange.info.client = exchange.claims.as_ref().map(|claims| claims.address);
    exchange.fallback = fallback;
    let info = &mut *exchange.info;
    (info.unclaimed, info.silent, info.by_alias) = (looked.place, looked.silent, looked.by_alias);
    log::capture::of_head(exchange, looked.format);
    (found, answers)
}

/// Continues with what was found.
fn follow(exchange: &mut Exchange<'_>, found: RouteOutcome, answers: Option<Arc<Shortcuts>>) -> Step {
    let local = &exchange.call.server.local;
    let of_host = |exchange: &mut Exchange<'_>| match answers.as_deref() {
        Some(answers) => shortcuts::of_host(exchange, answers),
        None => Continue(()),
    };
    match found {
        RouteOutcome::Location { entry, target, has_tls, issues_cookie } => {
            (exchange.has_tls, exchange.issues_cookie) = (has_tls, issues_cookie);
            exchange.info.silent = !entry.policy.log.takes(exchange.head.asked_target());
            let denied = entry.is_denied();
            enter(exchange, entry, target);
            of_host(exchange)?;
            if is_shut(exchange) {
                exchange.header_scope = HeaderScope::WithoutCors;
                return Break(Reply::page(local, 404));
            }
            // Before any redirect.
            if denied { Break(Reply::page(local, 503)) } else { Continue(()) }
        }
        RouteOutcome::Www(host, policy) => {
            exchange.header_scope = HeaderScope::Host;
            Break(redirect::to_www(exchange, host.name(), &policy.redirect))
        }
        RouteOutcome::AppRoot(path, entry) => {
            (exchange.redirecting, exchange.header_scope) = (entry, HeaderScope::Host);
            // In nginx' configuration the test for it follows the snippet, and precedes the lookup of a location.
            if let Some(answers) = answers.as_deref() {
                shortcuts::before_blocks(exchange, answers)?;
            }
            Break(redirect::to_app_root(exchange, &path))
        }
        RouteOutcome::AddSlash(entry, location) => {
            of_host(exchange)?;
            // nginx has found the location by then: it decides about the log, and the size is its first question.
            exchange.info.silent = !entry.policy.log.takes(exchange.head.asked_target());
            if size::answers(exchange, &entry) {
                enter(exchange, entry, None);
                return Continue(());
            }
            // The log shows no location, and none of its rules is evaluated.
            (exchange.redirecting, exchange.header_scope) = (Some(entry), HeaderScope::WithoutCors);
            Break(Reply::redirect(local, 301, location))
        }
        RouteOutcome::DefaultBackend { silent, entry, target, blocked, bodies } => {
            (exchange.info.silent, exchange.info.default_backend) = (silent, true);
            of_host(exchange)?;
            let Some(entry) = entry else {
                exchange.sizes = bodies.over(exchange.sizes);
                size::size(exchange)?;
                if blocked {
                    return Break(Reply::page(local, 403));
                }
                exchange.info.attempts.defaulted(404);
                return Break(Reply::page(local, 404));
            };
            enter(exchange, entry, target);
            Continue(())
        }
        RouteOutcome::Own(own) => Break(answer(exchange, own)),
    }
}

/// Whether a client asked for a location that only this proxy itself leads to (nginx' `internal`).
fn is_shut(exchange: &Exchange<'_>) -> bool {
    let is_led = exchange.head.is_redirected() || exchange.rewritten.is_some();
    !is_led && exchange.location().is_some_and(|location| location.policy.is_internal)
}

/// The response that the proxy gives by itself.
fn answer(exchange: &mut Exchange<'_>, own: Own) -> Reply {
    let local = &exchange.call.server.local;
    match own {
        Own::Blocked(shown) => keep_out(exchange, shown, Reply::page(local, 403)),
        Own::Ambiguous => {
            local.metrics.refusals.add(1);
            Reply::refusal(local, 400)
        }
        Own::Refused(why, shown) => {
            local.metrics.refusals.add(1);
            // The server for such a host in nginx' configuration contains nothing but the refusal: no error page for
            // clients without a certificate either.
            exchange.has_pages_of_fleet |= why.is_hosts();
            keep_out(exchange, shown, certificates::answer(&why, local))
        }
        Own::Unknown => Reply::page(local, 500),
        Own::HealthCheck(media_type) => {
            (exchange.info.silent, exchange.header_scope) = (true, HeaderScope::Host);
            let mut reply = Reply::healthy(local);
            if let Some(media_type) = media_type {
                reply.head.fields.set(Known::ContentType, media_type);
            }
            reply
        }
        Own::Status(may_know) => {
            (exchange.info.silent, exchange.header_scope) = (true, HeaderScope::Host);
            let page = local.metrics.all().filter(|_| may_know).map(|all| all.stub());
            page.map_or_else(|| Reply::page(local, 403), |page| Reply::text(local, page))
        }
        Own::NoTable => Reply::page(local, 404),
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
        exchange.cure(&target);
    }
    exchange.timeouts = entry.policy.timeouts.over(exchange.timeouts);
    exchange.sizes = entry.policy.bodies.over(exchange.sizes);
    let is_first = exchange.entered.set(entry);
    debug_assert!(is_first, "a request enters one location");
}

/// The parts of a request that its routing depends on.
struct Ask<'t, 'a> {
    call: Call<'a>,
    client: IpAddr,
    /// The requested host name.
    name: &'a str,
    /// The host that the name redirects to, if there is one.
    www: Option<&'t Arc<HostEntry>>,
    /// Otherwise the host itself.
    host: Option<&'t Arc<HostEntry>>,
    is_plain: bool,
    head: &'a RequestHead,
    /// The original path, or that of the page shown instead.
    raw: &'a [u8],
    /// The query, likewise.
    query: Option<&'a [u8]>,
    /// The budget for pattern matching.
    steps: &'a Steps,
    /// Whether a rewrite has ended what its host says, to which the `app-root` belongs.
    is_past_host: bool,
}

impl<'t, 'a> Ask<'t, 'a> {
    fn of(table: &'t HostTable, exchange: &'a Exchange<'_>) -> Self {
        let (call, head) = (exchange.call, &*exchange.head);
        let name = head.host.name();
        let www = table.www(name);
        Self {
            call,
            client: exchange.client(),
            name,
            www,
            host: if www.is_none() { table.host(name) } else { None },
            is_plain: exchange.is_plain(),
            head,
            raw: exchange.target.as_deref().unwrap_or_else(|| head.path()),
            query: head.query(),
            steps: &exchange.steps,
            is_past_host: exchange.rewritten.as_ref().is_some_and(|it| it.of_host.is_none()),
        }
    }
}

/// Finds the location for a client that may use it. Also returns what is known about the client, and the page that it
/// gets instead.
fn admit(
    table: &HostTable,
    ask: &Ask<'_, '_>,
    normal: &Normalised<'_>,
) -> (RouteOutcome, Option<Box<Passes>>, Option<Box<str>>) {
    match ask.host.map_or(Judged::NotAsked, |host| certificates::judge(host, ask.call.peer)) {
        Judged::NotAsked => (find(table, ask, normal), None, None),
        Judged::Passes(passes) => (find(table, ask, normal), Some(passes), None),
        Judged::Page(page, passes) => {
            let found = match path::normalise(page.as_bytes()) {
                Ok(normal) => find(table, &Ask { raw: page.as_bytes(), query: None, ..*ask }, &normal),
                Err(_) => RouteOutcome::Own(Own::Ambiguous),
            };
            (found, Some(passes), Some(page))
        }
        Judged::Refused(why) => {
            let shown = if why.is_hosts() { Shown::by(table, ask.client) } else { Shown::Itself };
            (RouteOutcome::Own(Own::Refused(why, shown)), None, None)
        }
    }
}

fn find(table: &HostTable, ask: &Ask<'_, '_>, normal: &Normalised<'_>) -> RouteOutcome {
    let Ask { call, client, name, www, host, is_plain, head, raw, query, steps, is_past_host } = *ask;
    if let Some(blocks) = &table.policy().blocks {
        let (agent, referer) = (head.fields.joined(Known::UserAgent), head.fields.joined(Known::Referer));
        if blocks.block(agent.as_deref(), referer.as_deref()) {
            // In nginx' configuration, the server that redirects a name with or without `www.` has no error pages.
            let has_none = www.is_some() || !has_pages(host);
            return RouteOutcome::Own(Own::Blocked(if has_none {
                Shown::Itself
            } else {
                Shown::by(table, client)
            }));
        }
    }
    if let Some(host) = www {
        let policy = match host.route(&normal.path, steps) {
            Match::Path(entry) | Match::AddSlash(entry) => Arc::clone(&entry.policy),
            Match::None | Match::Unknown => Arc::default(),
        };
        return RouteOutcome::Www(Arc::clone(host), policy);
    }
    // A catch-all host is always in the table.
    let Some(host) = host else {
        return RouteOutcome::Own(Own::NoTable);
    };
    let climbs = normal.suspicious && path::climbs(raw);
    let destination = |path: &[u8]| destination(host, path, query, climbs, steps);
    let is_spelled = normal.suspicious && *normal.path == *raw && is_spelled(host.route(raw, steps), raw);
    let differs = |chosen: &Destination, read: &Destination, is_of_end| {
        chosen != read && (!(is_of_end || is_spelled) || chosen.evades(read))
    };
    let target = match path::forward(raw, normal, destination, differs) {
        Verdict::Raw => None,
        Verdict::Normal(path) => Some(path),
        Verdict::Refuse => return RouteOutcome::Own(Own::Ambiguous),
    };
    let catch_all = host.name() == shared::resource::CATCH_ALL;
    let answers = &table.policy().response_headers;
    let health = answers.health.as_deref().unwrap_or(HEALTH);
    // Prefixes in ingress-nginx, of which the longer one wins.
    let own = [health, STATUS].into_iter().filter(|own| catch_all && normal.path.starts_with(own.as_bytes()));
    let own = own.max_by_key(|own| own.len());
    if let Some(app_root) = host.app_root().filter(|_| !is_past_host && *normal.path == *b"/") {
        let entry = match host.route(&normal.path, steps) {
            Match::Path(entry) => Some(Arc::clone(entry)),
            _ => None,
        };
        return RouteOutcome::AppRoot(Arc::clone(app_root), entry);
    }
    match host.route(&normal.path, steps) {
        Match::AddSlash(entry) => {
            let path = path::re_encode(&normal.path);
            let redirect = &entry.policy.redirect;
            let location = redirect::with_slash(call, redirect, &head.host, &path, query);
            RouteOutcome::AddSlash(Arc::clone(entry), location)
        }
        Match::Path(entry) if own.is_none_or(|own| takes(host, entry, own)) => RouteOutcome::Location {
            entry: Arc::clone(entry),
            target,
            has_tls: is_plain && redirects(entry) && table.redirects_to_tls(name),
            issues_cookie: entry.issues_cookie() && host.knows_as(name),
        },
        Match::Unknown => RouteOutcome::Own(Own::Unknown),
        _ if own == Some(health) => RouteOutcome::Own(Own::HealthCheck(answers.media_type.clone())),
        _ if own == Some(STATUS) => RouteOutcome::Own(Own::Status(match &table.policy().status {
            Some(shown) => shown.contains(client),
            None => client.is_loopback(),
        })),
        _ => {
            let (log, asked) = (&table.policy().log, head.asked_target());
            let logged = if catch_all { log.takes_unclaimed(asked) } else { log.takes(asked) };
            let entry = table.unclaimed().cloned();
            // If there is a location, it checks the list itself.
            let blocked = entry.is_none() && table.policy().addresses.blocks(client, catch_all);
            let bodies = table.policy().bodies;
            RouteOutcome::DefaultBackend { silent: !logged, entry, target, blocked, bodies }
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

/// Whether an Ingress has assigned one of the proxy's own paths to a backend. nginx prefers any pattern to a prefix.
fn takes(host: &HostEntry, entry: &PathEntry, own: &str) -> bool {
    let is_preferred = host.is_in_patterns() || entry.declared().starts_with(own);
    is_preferred && !matches!(entry.action, Action::DefaultBackend)
}
