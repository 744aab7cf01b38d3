//! The processing of one request, in the same order as ingress-nginx. Each phase has its own file.
//!
//! `phases` below defines the order. The guard has already accepted the head. A phase either continues or responds.
//! Only `locate` sees a table; what later phases need travels with the [`Exchange`].
//!
//! **Invariant:** every response passes through `respond`, whether it is our own page or a backend's response.

use std::ops::ControlFlow;

use tracing::error;

use super::reply::Reply;
use crate::codec::body::RequestBody;
use crate::local::isolated::isolated;

use errors::Replaced;
use exchange::HeaderScope;
pub(crate) use exchange::{Call, Exchange};
use internal::Way;
use page_body::{PageBody, Source};
pub(crate) use respond::{refusal, unread, unrouted};

mod access;
mod affinity;
mod basic;
mod certificates;
mod claims;
mod compress;
mod cors;
mod digest;
mod elsewhere;
mod errors;
mod exchange;
mod external;
mod failures;
mod forwarded;
mod hash;
mod internal;
mod limit;
mod locate;
pub(crate) mod log;
mod loops;
mod media;
mod mirror;
mod page_body;
mod pick;
mod read_ahead;
mod redirect;
mod respond;
mod response_rewrite;
mod rewrite;
mod send;
mod shortcuts;
mod size;
mod snippet_variables;
mod substitute;
mod trace;
mod variables;

/// The result of a phase: continue with its result, or respond.
type Step<T = ()> = ControlFlow<Reply, T>;

/// Answers a request.
pub(crate) async fn serve<B: RequestBody>(exchange: &mut Exchange<'_>, body: &mut B) -> Reply {
    let reply = match isolated(answer(exchange, body)).await {
        Ok(reply) => reply,
        // A panic ends only this request. How far its body was read is unknown, so its connection is not reused.
        Err(panic) => {
            let local = &exchange.call.server.local;
            local.metrics.panics.add(1);
            error!(%panic, "a request panicked; it is answered 500");
            Reply::refusal(local, 500)
        }
    };
    respond::respond(exchange, reply)
}

async fn answer<B: RequestBody>(exchange: &mut Exchange<'_>, body: &mut B) -> Reply {
    let (ControlFlow::Break(reply) | ControlFlow::Continue(reply)) = phases(exchange, body).await;
    let way = match errors::replace(exchange, body, reply).await {
        Replaced::By(reply) if !internal::is_asked(&reply) => return reply,
        Replaced::By(reply) => Way::Asked(reply),
        Replaced::Elsewhere(place, error) => Way::InPlace(place, error),
    };
    // Boxed: few requests are redirected, and all would have to reserve room for it.
    Box::pin(internal::follow(exchange, body, way)).await
}

async fn phases<B: RequestBody>(exchange: &mut Exchange<'_>, body: &mut B) -> Step<Reply> {
    locate::locate(exchange)?;
    size::size(exchange)?;
    cors::preflight(exchange)?;
    shortcuts::of_location(exchange)?;
    redirect::elsewhere(exchange)?;
    rewrite::rewrite(exchange)?;
    redirect::to_tls(exchange)?;
    certificates::over_tls(exchange)?;
    claims::of_location(exchange);
    let cell = pick::pick(exchange)?;
    limit::limit(exchange, body).await?;
    access::access(exchange).await?;
    // Not earlier: what protects a location also protects its default backend.
    let Some(cell) = cell else {
        exchange.info.attempts.defaulted(404);
        return ControlFlow::Break(Reply::page(&exchange.call.server.local, 404));
    };
    // Not earlier: the canary is chosen by what the client sent.
    forwarded::forwarded(exchange)?;
    if exchange.stands_in {
        errors::tell(exchange, 503);
    }
    ControlFlow::Continue(match exchange.head.is_for_page() {
        false => send::send(exchange, body, &cell).await,
        // Boxed, so that other requests need no room for it. The body was sent to what the client had requested.
        true => {
            let mut nothing = PageBody { client: body, source: Source::Nothing };
            Box::pin(send::send(exchange, &mut nothing, &cell)).await
        }
    })
}

#[cfg(test)]
mod tests;
