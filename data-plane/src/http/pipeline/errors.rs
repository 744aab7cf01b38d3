//! Error pages from another backend: for the statuses that a location lists, and when its own backend has no endpoints
//! (as in ingress-nginx); and what snippets put in place of errors.
//!
//! **Invariant:** the response to a request for an error page is passed on whatever its status is, so there is no loop.
//! (What an error backend says in place of a backend without endpoints is replaced as that one's would be.) The request
//! body is sent again, unless it was streamed, broken or too long. The access rules of the location also protect the error
//! page: a client that was not admitted gets no page from the guarded Service, and its request carries no headers that only
//! admitted clients may send.

use std::ops::ControlFlow::Break;
use std::sync::Arc;

use bytes::Bytes;

use super::log::InPlace;
use super::page_body::{PageBody, Source};
use super::{Exchange, HeaderScope, access, forwarded, pick, send, shortcuts};
use crate::codec::body::RequestBody;
use crate::codec::head::{Framing, Known};
use crate::http::reply::{Reply, ReplyBody};
use crate::table::policy::errors::{Errors, Instead, Place};
use crate::table::{Action, PathEntry, Timeouts, Upstream};
use crate::upstream::Turn;

/// What a client gets.
pub(super) enum Replaced<'t> {
    /// This response.
    By(Reply),
    /// What is served at a place, in place of this error.
    Elsewhere(&'t Place, Reply),
}

/// Replaces a response by an error page, if one is configured for it.
pub(super) async fn replace<'a, B: RequestBody>(
    exchange: &mut Exchange<'a>,
    body: &mut B,
    reply: Reply,
) -> Replaced<'a> {
    let Some(location) = exchange.location() else {
        return Replaced::By(reply);
    };
    if reply.untold.is_some() || reply.is_said {
        return Replaced::By(reply);
    }
    let (close, status) = (reply.close, reply.head.status);
    let mut reply = match page(exchange, location, &reply) {
        None => return Replaced::By(reply),
        Some(Page::SignIn) => {
            exchange.info.attempts.redirected();
            access::signin(exchange, location, reply)
        }
        Some(Page::Instead(it @ (Instead::Answer(answer) | Instead::Redirect(answer)))) => {
            if matches!(it, Instead::Answer(_)) {
                (exchange.header_scope, exchange.own_headers) = (HeaderScope::Host, None);
            }
            let first = Challenges::of(reply);
            let mut reply = shortcuts::in_place(exchange, answer);
            first.put(&mut reply);
            reply
        }
        Some(Page::Instead(Instead::Place(place))) => return Replaced::Elsewhere(place, reply),
        Some(Page::Backends(fleets)) => {
            let errors = fleets.as_ref().unwrap_or(&location.policy.errors);
            let first = Challenges::of(reply);
            let mut reply = in_place(exchange, body, (location, errors), status).await;
            first.put(&mut reply);
            reply
        }
    };
    reply.close |= close;
    Replaced::By(reply)
}

/// What takes the place of a response.
enum Page<'t> {
    /// The redirect to the sign-in page.
    SignIn,
    /// What a snippet says.
    Instead(&'t Instead),
    /// What an error backend says: by these rules of the fleet, or by those of the location.
    Backends(Option<Errors>),
}

fn page<'t>(exchange: &Exchange<'_>, location: &'t PathEntry, reply: &Reply) -> Option<Page<'t>> {
    if signs_in(location, reply) {
        return Some(Page::SignIn);
    }
    let errors = &location.policy.errors;
    let is_hosts = exchange.header_scope == HeaderScope::Host;
    if !location.is_denied() {
        if let Some(instead) = instead(exchange, location, reply) {
            return Some(Page::Instead(instead));
        }
        // In nginx' configuration they hide the fleet's pages.
        if errors.are_fleets && errors.has_answers(has_pages(location), is_hosts) {
            return None;
        }
    }
    // In nginx' configuration a denied location has no `error_page` of its own and inherits the fleet's. So does one
    // that lists none, unless its server has some: the one for clients without a certificate is enough for that. What the
    // host answers is outside of the location.
    let is_outside = location.is_denied() || is_hosts;
    if !exchange.has_pages_of_fleet && (is_outside || errors.are_fleets) {
        return None;
    }
    let fleets = is_outside.then(|| exchange.call.server.with_table(|it| it.policy().errors.clone()));
    let errors = fleets.as_ref().or_else(|| location.pages())?;
    is_replaced(exchange, location, errors, reply).then_some(Page::Backends(fleets))
}

/// The ways in that a client is told of. As in nginx, it gets those of a 401 before those of its page.
pub(super) struct Challenges(Vec<Bytes>);

impl Challenges {
    pub(super) fn of(error: Reply) -> Self {
        Self(if error.head.status == 401 { Self::all(&error) } else { Vec::new() })
    }

    fn all(reply: &Reply) -> Vec<Bytes> {
        reply.head.fields.all(Known::WwwAuthenticate).map(Bytes::copy_from_slice).collect()
    }

    pub(super) fn put(self, reply: &mut Reply) {
        if self.0.is_empty() {
            return;
        }
        let own = Self::all(reply);
        reply.head.fields.remove(Known::WwwAuthenticate);
        for challenge in self.0.into_iter().chain(own) {
            reply.head.fields.append(Known::WwwAuthenticate, challenge);
        }
    }
}

/// What a snippet puts in place of a response.
fn instead<'t>(exchange: &Exchange<'_>, location: &'t PathEntry, reply: &Reply) -> Option<&'t Instead> {
    let errors = &location.policy.errors;
    let may_be = match is_backends(reply) {
        true => errors.intercepts && location.spoken().is_http(),
        false => reply.is_usual() && !is_for_want(exchange, location),
    };
    let is_hosts = exchange.header_scope == HeaderScope::Host;
    errors.answer(reply.head.status, has_pages(location), is_hosts).filter(|_| may_be)
}

/// Whether a backend's response in place of an error is one that has a page of its own. nginx shows no second one, but its
/// default.
pub(super) fn is_second(exchange: &Exchange<'_>, reply: &Reply) -> bool {
    let location = exchange.location().filter(|_| is_backends(reply));
    location.is_some_and(|location| page(exchange, location, reply).is_some())
}

/// Whether a location has error pages itself, in nginx' configuration.
fn has_pages(location: &PathEntry) -> bool {
    location.signs_in() || location.policy.errors.are_own()
}

/// Whether it is the page for want of a default backend, which is a backend's: in ingress-nginx a server of its own sends it.
fn is_for_want(exchange: &Exchange<'_>, location: &PathEntry) -> bool {
    matches!(location.action, Action::DefaultBackend) && exchange.is_let_in && exchange.fallback.is_none()
}

fn is_backends(reply: &Reply) -> bool {
    matches!(reply.body, ReplyBody::Relay(_) | ReplyBody::Call(_) | ReplyBody::Tunnel(_))
}

/// Whether this response of a backend redirects clients to the sign-in page. In nginx' configuration that precedes all
/// error pages.
fn signs_in(location: &PathEntry, reply: &Reply) -> bool {
    reply.head.status == 401
        && location.policy.errors.intercepts
        && is_backends(reply)
        && location.signs_in()
        && location.spoken().is_http()
}

/// Whether another response replaces this one.
fn is_replaced(exchange: &Exchange<'_>, location: &PathEntry, errors: &Errors, reply: &Reply) -> bool {
    let status = reply.head.status;
    if !errors.takes(status) {
        return false;
    }
    let is_wanting = is_for_want(exchange, location);
    let is_http = location.spoken().is_http();
    // Responses of FastCGI and gRPC backends are not replaced (as in ingress-nginx), whatever was requested.
    let passes = !location.policy.errors.intercepts || !is_http;
    // Nor is a page of ours in a gRPC call.
    let is_call = || !is_http && send::is_grpc(exchange.head);
    let stays = if is_backends(reply) || is_wanting { passes } else { status < 400 || is_call() };
    !stays
}

async fn in_place<B: RequestBody>(
    exchange: &mut Exchange<'_>,
    body: &mut B,
    (location, errors): (&PathEntry, &Errors),
    status: u16,
) -> Reply {
    exchange.header_scope = HeaderScope::Errors;
    let (server, client) = (exchange.call.server, exchange.client());
    // In nginx' configuration the error page's location has the fleet's address rules, whatever the original location
    // has.
    if server.with_table(|table| table.policy().addresses.blocks(client, true)) {
        return Reply::page(&server.local, 403);
    }
    // The error backend is configured at the same level as the status list. One without endpoints is ignored in
    // ingress-nginx: then the fleet's is used, and without one a 404.
    let own = location.errors().cloned().filter(|_| !errors.are_fleets);
    let guarded = |it: &Upstream| !exchange.is_let_in && serves(location, &it.cell.key);
    let answers = |it: &Arc<Upstream>| !it.cell.endpoints().list.is_empty() && !guarded(it);
    let errors = own.filter(answers);
    let fallback = exchange.fallback.clone().filter(answers);
    // It is the Service that the location protects.
    let is_open = |_: &&Arc<Upstream>| exchange.is_let_in;
    let canary = errors.as_ref().filter(is_open).and_then(|it| pick::canary_of_page(exchange, location, it));
    exchange.info.in_place = match &errors {
        Some(_) => InPlace::Errors,
        None => InPlace::DefaultBackend,
    };
    let Some(upstream) = errors.or(fallback) else {
        exchange.info.attempts.redirected();
        exchange.info.attempts.defaulted(404);
        return Reply::page(&server.local, 404);
    };
    let cell = match canary {
        Some(canary) => {
            exchange.info.alternative = Some(Arc::clone(&canary.name));
            &canary.cell
        }
        None => &upstream.cell,
    };
    if !exchange.is_let_in {
        access::take_away(exchange, location);
    }
    if !exchange.is_forwarded
        && let Break(reply) = forwarded::forwarded(exchange)
    {
        return reply;
    }
    tell(exchange, status);
    // The limits of the location are those of its own backend: nginx' configuration has them there.
    exchange.timeouts = Timeouts { client_body: exchange.timeouts.client_body, ..Timeouts::default() };
    exchange.info.attempts.redirected();
    exchange.target = Some(b"/".to_vec());
    // As in nginx, whose location for error pages has no `proxy_request_buffering`.
    exchange.sizes.buffering = true;
    let source = source(exchange, status);
    // Its endpoint counts among those of the location's backend, whose cookie is issued all the same.
    let session = exchange.session.take();
    exchange.turn = Turn::default();
    // Boxed: few requests get here, and all would have to reserve room for its state.
    let mut body = PageBody { client: body, source };
    let reply = Box::pin(send::send(exchange, &mut body, cell)).await;
    exchange.session = session;
    reply
}

/// The request's body for an error page with this status, as in nginx. Sets its framing.
fn source(exchange: &mut Exchange<'_>, status: u16) -> Source {
    match exchange.kept_body.take() {
        Some(kept) => {
            let (body, framing) = *kept;
            exchange.head.framing = framing;
            Source::Kept(body)
        }
        None if exchange.is_body_read || status == 413 => {
            exchange.head.framing = Framing::None;
            Source::Nothing
        }
        None => Source::Client,
    }
}

/// Whether an error page may be sent the body of a request again: `status` is what its backend responded, `None` without a
/// response.
pub(super) fn may_need_body(exchange: &Exchange<'_>, status: Option<u16>) -> bool {
    let location = exchange.location().filter(|_| exchange.header_scope != HeaderScope::Errors);
    location.is_some_and(|location| {
        let takes = |errors: &Errors| status.is_none_or(|status| errors.takes(status));
        location.pages().is_some_and(takes)
    })
}

/// Whether a Backend belongs to the Service that a location protects, on any port.
fn serves(location: &PathEntry, key: &str) -> bool {
    let service = |key: &str| key.rsplit_once('/').map(|(service, _)| service.to_owned());
    // The fleet's own, of requests that no Ingress takes, guards nothing.
    let Action::Backend(upstream) = &location.action else { return false };
    if location.owner().is_empty() {
        return false;
    }
    let canary = upstream.alternative.as_ref().map(|canary| &canary.cell.key);
    std::iter::once(&upstream.cell.key).chain(canary).any(|own| service(own) == service(key))
}

/// Tells the error backend what happened, replacing the client's own headers of these names.
pub(super) fn tell(exchange: &mut Exchange<'_>, status: u16) {
    let Some(location) = exchange.location() else {
        return;
    };
    let text = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let (namespace, ingress) = location.owner().split_once('/').unwrap_or_default();
    let format = exchange.head.fields.joined(Known::Accept).unwrap_or_default();
    let target = Bytes::copy_from_slice(exchange.head.target());
    // `X-Original-URI` is only set for error pages: a request whose backend has no endpoints keeps its own path.
    let is_page = exchange.header_scope == HeaderScope::Errors;
    let fields = &mut exchange.head.fields;
    for (name, value) in [
        (Known::XCode, status.to_string().into()),
        (Known::XFormat, format),
        (Known::XOriginalUri, target),
        (Known::XNamespace, text(namespace)),
        (Known::XIngressName, text(ingress)),
        (Known::XServiceName, text(location.service())),
        (Known::XServicePort, text(location.port())),
    ] {
        if name == Known::XOriginalUri && !is_page {
            continue;
        }
        // nginx sends no field whose value is empty.
        if value.is_empty() {
            fields.remove(name);
        } else {
            fields.replace(name, value);
        }
    }
    exchange.head.upgrade = None;
}
