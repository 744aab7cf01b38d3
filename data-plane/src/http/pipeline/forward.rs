//! Sending a request to an endpoint, and to the next one when that fails (balancing.md 7).

use std::rc::Rc;
use std::sync::Arc;

use super::Call;
use super::decide::Chosen;
use crate::codec::body::RequestBody;
use crate::codec::error::{Kind, ProxyError, Retry};
use crate::codec::h1::write_request;
use crate::codec::head::{Known, Method, RequestHead};
use crate::http::account::Tally;
use crate::http::reply::{Relay, Reply, ReplyBody};
use crate::table::{BackendCell, Endpoint};
use crate::upstream::Tried;
use crate::upstream::link::Link;
use crate::upstream::payload::Payload;
use crate::upstream::send::{self, Answered, Failed, Request};

/// Sends a request and gives the answer, or the page that stands for none.
pub(super) async fn forward<B: RequestBody>(
    call: Call<'_>,
    head: &RequestHead,
    body: &mut B,
    tally: &mut Tally,
    chosen: Chosen,
) -> Reply {
    let server = call.server;
    let mut text = server.local.buffers.text();
    let outcome = attempt(call, head, body, tally, &chosen, &mut text).await;
    server.local.buffers.give_text(text);
    let (reached, answered) = match outcome {
        Ok(outcome) => outcome,
        Err(error) => {
            tracing::debug!(kind = error.kind.as_str(), source = ?error.source, "request failed");
            return Reply::failure(&server.local, &error);
        }
    };
    reply(call, &chosen.cell, reached, answered)
}

/// An endpoint and the connection that an answer came over.
struct Reached {
    endpoint: Arc<Endpoint>,
    link: Link,
}

async fn attempt<B: RequestBody>(
    call: Call<'_>,
    head: &RequestHead,
    body: &mut B,
    tally: &mut Tally,
    chosen: &Chosen,
    text: &mut Vec<u8>,
) -> Result<(Reached, Answered), ProxyError> {
    let Call { server, timer, timeouts, .. } = call;
    let (mut payload, framing) = Payload::prepare(body, head.framing, &server.local.limits, timer).await?;
    let target = target(head, chosen);
    let writer = write_request(
        text,
        head,
        target.as_deref().unwrap_or_else(|| head.target()),
        head.host.raw(),
        framing,
    );
    let request = Request {
        head: text,
        writer,
        to_head: head.method == Method::Head,
        upgrade: head.upgrade.is_some(),
        timeouts,
    };
    let idempotent = head.method.is_retriable();
    // A request that cannot be sent twice asks the kernel first whether a kept connection is still open.
    let once = !idempotent || !matches!(payload, Payload::Whole { .. });
    let mut tries = timeouts.tries;
    let mut tried = Tried::default();
    // Set after a kept connection turned out dead: its endpoint has probably restarted, the others are dead too.
    let mut fresh = false;
    loop {
        let picked = server.upstreams.borrow_mut().pick(&chosen.cell, &mut tried);
        let endpoint = picked.ok_or(Kind::NoEndpoints)?;
        tally.asked(&endpoint);
        let (failed, reused) = match link(call, &chosen.cell, &endpoint, fresh, once).await {
            Ok(mut link) => match send::send(&server.local, timer, &mut link, &request, &mut payload).await {
                Ok(answered) => {
                    tally.answered(answered.head.status, false);
                    return Ok((Reached { endpoint, link }, answered));
                }
                Err(failed) => {
                    link.rest(&server.local.buffers);
                    (failed, link.reused)
                }
            },
            Err(error) => (Failed { error, sent: false, answered: false }, false),
        };
        let kind = failed.error.kind;
        server.local.metrics.failed(kind);
        tally.answered(kind.status(), true);
        // nginx does not count a kept connection that was closed under it as a try, once: a fresh one follows. Nor does
        // it speak against the endpoint.
        let dead = reused && kind == Kind::Closed && !failed.answered;
        if !dead || fresh {
            tries = tries.saturating_sub(1);
            tried.add(&endpoint);
        }
        if tries == 0 || !may_retry(&failed, idempotent) || !payload.is_replayable() {
            return Err(failed.error);
        }
        fresh |= dead;
        server.local.metrics.retries.add(1);
    }
}

/// Whether another endpoint may be asked.
///
/// POST, LOCK and PATCH go to a second endpoint only if the kernel took no byte of the request for the first one: then
/// nobody has acted on it. Once a byte was taken, a connection that ends without an answer says nothing about whether the
/// request was read, be it a kept connection or a new one.
fn may_retry(failed: &Failed, idempotent: bool) -> bool {
    match failed.error.kind.retry() {
        Retry::Always => true,
        Retry::IfIdempotent => idempotent || !failed.sent,
        Retry::Never => false,
    }
}

/// A connection to an endpoint: a kept one, else a new one.
///
/// `once` says that the request cannot be sent twice.
async fn link(
    call: Call<'_>,
    cell: &BackendCell,
    endpoint: &Endpoint,
    fresh: bool,
    once: bool,
) -> Result<Link, ProxyError> {
    let Call { server, timer, timeouts, .. } = call;
    let kept = if fresh { None } else { server.upstreams.borrow_mut().take(cell, endpoint, once) };
    if let Some(link) = kept {
        server.local.metrics.reused.add(1);
        return Ok(link);
    }
    let connecting = timer.limit(timeouts.connect, Link::connect(endpoint.address));
    match connecting.await {
        Ok(Ok(link)) => {
            server.local.metrics.connected.add(1);
            Ok(link)
        }
        Ok(Err(error)) => Err(ProxyError::of(Kind::ConnectFailed, error)),
        Err(_) => Err(Kind::ConnectTimeout.into()),
    }
}

/// The target to send where it is not the client's own.
fn target(head: &RequestHead, chosen: &Chosen) -> Option<Vec<u8>> {
    let mut target = chosen.path.clone()?;
    if let Some(query) = head.query() {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    Some(target)
}

/// Turns a backend's answer into ours: what it says to a proxy stays here (controller.md 9).
fn reply(call: Call<'_>, cell: &BackendCell, reached: Reached, answered: Answered) -> Reply {
    let Call { server, timeouts, .. } = call;
    let Reached { endpoint, link } = reached;
    let Answered { mut head, whole } = answered;
    head.fields.retain(|known, _| {
        !matches!(
            known,
            Known::Server
                | Known::XAccelRedirect
                | Known::XAccelExpires
                | Known::XAccelLimitRate
                | Known::XAccelBuffering
                | Known::XAccelCharset
        )
    });
    let body = if head.status == 101 {
        ReplyBody::Tunnel(Box::new(link))
    } else {
        let reusable = whole && head.keep_alive;
        let relay = Relay::new(Rc::clone(server), head.framing, link, cell.id, endpoint, reusable);
        ReplyBody::Relay(relay)
    };
    // nginx dates what the backend has not.
    if !head.fields.has(Known::Date) {
        let date = server.local.date.borrow().as_str().to_owned();
        head.fields.add(Known::Date, date);
    }
    Reply { head, body, close: false, untold: None, timeouts }
}
