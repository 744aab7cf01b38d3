//! Answers that another backend makes: for the statuses that a location lists, and while its own has no endpoints
//! (annotations.md 6.14).
//!
//! **Invariant:** what answers for an error is passed on whatever it says, so there is no circle; the body of the request
//! is not sent a second time, and what guards the location guards the way there: who was not let in gets no page of the
//! Service that is guarded, and carries nothing that only who is let in may say.

use std::ops::ControlFlow::Break;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::log::InPlace;
use super::{Exchange, access, forwarded, send};
use crate::codec::body::RequestBody;
use crate::codec::error::ProxyError;
use crate::codec::head::{Framing, Known};
use crate::http::reply::{Reply, ReplyBody};
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
    let (errors, status) = (&location.policy.errors, reply.head.status);
    if !errors.takes(status) || exchange.stands_in || location.is_denied() || reply.untold.is_some() {
        return reply;
    }
    let is_backends = matches!(reply.body, ReplyBody::Relay(_) | ReplyBody::Tunnel(_));
    // FastCGI applications answer for themselves, as gRPC's do (annotations.md 6.14).
    let passes = errors.passes_backends || !location.policy.spoken.is_http();
    let stays = if is_backends { passes } else { status < 400 };
    if stays || send::is_grpc(exchange.head) {
        return reply;
    }
    let close = reply.close;
    drop(reply);
    // Of the two, who is said where the statuses are. One without endpoints counts for nothing in the original: the fleet's
    // answers then, and without one its 404.
    let own = location.errors.clone().filter(|_| !errors.are_fleets);
    let guarded = |it: &Upstream| !exchange.is_let_in && serves(&location, &it.cell.key);
    let answers = |it: &Arc<Upstream>| !it.cell.endpoints().list.is_empty() && !guarded(it);
    let errors = own.filter(answers);
    let fallback = exchange.fallback.clone().filter(answers);
    exchange.info.in_place = match &errors {
        Some(_) => InPlace::Errors,
        None => InPlace::DefaultBackend,
    };
    let local = &exchange.call.server.local;
    let mut reply = match errors.or(fallback) {
        None => Reply::page(local, 404),
        Some(upstream) => {
            if !exchange.is_let_in {
                access::take_away(exchange, &location);
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
    };
    reply.close |= close;
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
        fields.replace(name, value);
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
