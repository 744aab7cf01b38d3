//! Error pages from another backend: for the statuses that a location lists, and when its own backend has no endpoints (annotations.md
//! 6.14).
//!
//! **Invariant:** the error backend's answer is passed on whatever its status is, so there is no loop. The request body is not sent a second
//! time. The access rules of the location also protect the error page: a client that was not admitted gets no page from the guarded Service,
//! and its request carries no headers that only admitted clients may send.

use std::ops::ControlFlow::Break;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::log::InPlace;
use super::{Exchange, Voice, access, forwarded, send};
use crate::codec::body::RequestBody;
use crate::codec::error::ProxyError;
use crate::codec::head::{Framing, Known};
use crate::http::reply::{Reply, ReplyBody};
use crate::table::policy::errors::Errors;
use crate::table::{Action, PathEntry, Upstream};
use crate::upstream::Turn;

/// The answer that the client gets in place of this one, where another one is asked for.
pub(super) async fn replace<B: RequestBody>(
    exchange: &mut Exchange<'_>,
    body: &mut B,
    reply: Reply,
) -> Reply {
    let Some(location) = exchange.location.clone() else {
        return reply;
    };
    if exchange.stands_in || reply.untold.is_some() {
        return reply;
    }
    let close = reply.close;
    if signs_in(exchange, &location, &reply) {
        let mut reply = access::signin(exchange, &location, reply);
        reply.close |= close;
        return reply;
    }
    let status = reply.head.status;
    // In nginx' file a location that is denied has no pages of its own, and inherits the fleet's. So does one that lists none,
    // unless its server has some: that for clients without a certificate is enough.
    if !exchange.has_pages_of_fleet && (location.is_denied() || location.policy.errors.are_fleets) {
        return reply;
    }
    let fleets =
        location.is_denied().then(|| exchange.call.server.with_table(|it| it.policy().errors.clone()));
    let errors = fleets.as_ref().unwrap_or(&location.policy.errors);
    if !is_replaced(exchange, &location, errors, &reply) {
        return reply;
    }
    // As nginx: who is to show a password is told which.
    let challenges = reply.head.fields.all(Known::WwwAuthenticate).filter(|_| status == 401);
    let challenges: Vec<_> = challenges.map(Bytes::copy_from_slice).collect();
    drop(reply);
    let mut reply = in_place(exchange, body, (&location, errors), status).await;
    reply.close |= close;
    for challenge in challenges {
        reply.head.fields.append(Known::WwwAuthenticate, challenge);
    }
    reply
}

fn is_backends(reply: &Reply) -> bool {
    matches!(reply.body, ReplyBody::Relay(_) | ReplyBody::Tunnel(_))
}

/// Whether clients that a backend answers so are sent to sign in. In nginx' file that stands before all pages.
fn signs_in(exchange: &Exchange<'_>, location: &PathEntry, reply: &Reply) -> bool {
    reply.head.status == 401
        && location.policy.errors.intercepts
        && is_backends(reply)
        && location.external().is_some_and(|external| external.signin.is_some())
        && location.policy.spoken.is_http()
        && !send::is_grpc(exchange.head)
}

/// Whether another answer takes the place of this one.
fn is_replaced(exchange: &Exchange<'_>, location: &PathEntry, errors: &Errors, reply: &Reply) -> bool {
    let status = reply.head.status;
    if !errors.takes(status) {
        return false;
    }
    // FastCGI applications answer for themselves, as gRPC's do (annotations.md 6.14).
    let passes = errors.passes_backends || !location.policy.spoken.is_http();
    let stays = if is_backends(reply) { passes } else { status < 400 };
    !stays && !send::is_grpc(exchange.head)
}

async fn in_place<B: RequestBody>(
    exchange: &mut Exchange<'_>,
    body: &mut B,
    (location, errors): (&Arc<PathEntry>, &Errors),
    status: u16,
) -> Reply {
    exchange.voice = Voice::Errors;
    let (server, client) = (exchange.call.server, exchange.client());
    // In nginx' file the place of a page has what the fleet says of addresses, whatever the location says of them.
    if server.with_table(|table| table.policy().addresses.blocks(client, true)) {
        return Reply::page(&server.local, 403);
    }
    // Of the two, who is said where the statuses are. One without endpoints counts for nothing in the original: the fleet's
    // answers then, and without one its 404.
    let own = location.errors.clone().filter(|_| !errors.are_fleets);
    let guarded = |it: &Upstream| !exchange.is_let_in && serves(location, &it.cell.key);
    let answers = |it: &Arc<Upstream>| !it.cell.endpoints().list.is_empty() && !guarded(it);
    let errors = own.filter(answers);
    let fallback = exchange.fallback.clone().filter(answers);
    exchange.info.in_place = match &errors {
        Some(_) => InPlace::Errors,
        None => InPlace::DefaultBackend,
    };
    let Some(upstream) = errors.or(fallback) else {
        return Reply::page(&server.local, 404);
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
    exchange.stands_in = true;
    exchange.info.attempts.redirected();
    exchange.target = Some(b"/".to_vec());
    exchange.head.framing = Framing::None;
    // Its place is among the endpoints of the location's own; its cookie is issued all the same.
    let session = exchange.session.take();
    exchange.turn = Turn::default();
    // Boxed: few requests get here, and all of them have room for what they wait for.
    let reply = Box::pin(send::send(exchange, &mut Nothing(body), &upstream.cell)).await;
    exchange.session = session;
    reply
}

/// Whether a Backend is one of the Service whose requests a location guards, whichever its port.
fn serves(location: &PathEntry, key: &str) -> bool {
    let service = |key: &str| key.rsplit_once('/').map(|(service, _)| service.to_owned());
    let Action::Backend(upstream) = &location.action else { return false };
    let canary = upstream.alternative.as_ref().map(|canary| &canary.cell.key);
    std::iter::once(&upstream.cell.key).chain(canary).any(|own| service(own) == service(key))
}

/// Tells who answers for an error what happened, in place of what the client says of that.
pub(super) fn tell(exchange: &mut Exchange<'_>, status: u16) {
    let Some(location) = exchange.location.clone() else {
        return;
    };
    let text = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let (namespace, ingress) = location.owner.split_once('/').unwrap_or_default();
    let format = exchange.head.fields.joined(Known::Accept).unwrap_or_default();
    let target = Bytes::copy_from_slice(exchange.head.target());
    // Of who stands in for endpoints the path is the request's own.
    let is_page = exchange.voice == Voice::Errors;
    let fields = &mut exchange.head.fields;
    for (name, value) in [
        (Known::XCode, status.to_string().into()),
        (Known::XFormat, format),
        (Known::XOriginalUri, target),
        (Known::XNamespace, text(namespace)),
        (Known::XIngressName, text(ingress)),
        (Known::XServiceName, text(&location.service)),
        (Known::XServicePort, text(&location.port)),
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

/// The body of a request that has been sent already, or was refused: none. Its client is still waited for.
struct Nothing<'b, B>(&'b mut B);

impl<B: RequestBody> RequestBody for Nothing<'_, B> {
    fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ProxyError>> {
        Poll::Ready(Ok(None))
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_gone(cx)
    }
}
