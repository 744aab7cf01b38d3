//! Sends a request to an endpoint, and to the next one if that fails (nginx' `proxy_next_upstream`).

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;

use super::affinity::Session;
use super::{Call, Exchange, HeaderScope, errors, failures, forwarded, log, mirror};
use crate::codec::body::RequestBody;
use crate::codec::error::{Kind, ProxyError};
use crate::codec::h1::{BodyWriter, write_request};
use crate::codec::head::{Framing, Known, Method, RequestHead};
use crate::http::reply::{Complaint, Relay, Reply, ReplyBody};
use crate::http::server::Server;
use crate::local::upstream_shares::LinkPermit;
use crate::table::policy::forwarding::Connection;
use crate::table::policy::retries::Retries;
use crate::table::{BackendCell, Endpoint, PathEntry, Protocol};
use crate::tls::backends::Over;
use crate::upstream;
use crate::upstream::dial::dial;
use crate::upstream::link::Link;
use crate::upstream::observation::Observation;
use crate::upstream::payload::Payload;
use crate::upstream::send::{Answered, Failed, Request};
use crate::upstream::transport::{Transport, TransportKey};
use crate::upstream::{Tried, Turn};
use trying::Trying;

mod fcgi;
mod grpc;
mod trying;

/// Minimum number of attempts if they are unlimited. ingress-nginx would go on without end or pause; here every
/// endpoint has been tried by then.
const UNCOUNTED: usize = 3;

/// Sends a request and returns the response, or an error page.
pub(super) async fn send<B: RequestBody>(
    exchange: &mut Exchange<'_>,
    body: &mut B,
    cell: &Arc<BackendCell>,
) -> Reply {
    let local = &exchange.call.server.local;
    let Some(transport) = transport(exchange) else {
        // Neither in plain text nor to another endpoint.
        return Reply::page(local, 503);
    };
    exchange.is_body_read = true;
    if matches!(transport.protocol, Protocol::Grpc | Protocol::Grpcs) {
        // Boxed, so that requests that are not gRPC calls need no room for one.
        return Box::pin(grpc::send(exchange, body, cell, transport)).await;
    }
    let mut text = local.buffers.text();
    let outcome = attempt(exchange, body, cell, &transport, &mut text).await;
    local.buffers.give_text(text);
    match outcome {
        Ok((reached, answered)) => reply(exchange, cell, reached, answered),
        Err(error) => {
            failures::of_backend(exchange, cell, &error);
            Reply::failure(local, &error)
        }
    }
}

/// A connection that its endpoint was told to close is not reused, even if the endpoint leaves it open.
const CLOSE: &str = Connection::Close.as_str();

/// Number of unroutable endpoints that a request skips without counting an attempt: those of one address family, if a
/// Service has both and this machine only one.
const PASSED_BY: usize = 16;

/// The endpoint and the connection of a response.
struct Reached {
    endpoint: Arc<Endpoint>,
    transport_key: TransportKey,
    link: Box<Link>,
    complaint: Option<Box<Complaint>>,
}

/// Writes the head, and asks endpoints until one has responded.
async fn attempt<B: RequestBody>(
    exchange: &mut Exchange<'_>,
    body: &mut B,
    cell: &Arc<BackendCell>,
    transport: &Transport,
    text: &mut Vec<u8>,
) -> Result<(Reached, Answered), ProxyError> {
    let target = target(exchange);
    let host = forwarded::host(exchange)?;
    let location = exchange.location().filter(|_| exchange.header_scope != HeaderScope::Errors);
    exchange.head.as_http10 = location.is_some_and(|location| location.policy.is_http10);
    let (mut payload, framing) = prepare(exchange, body).await?;
    log::capture::of_body(exchange, &payload);
    if mirror::of(exchange).is_some() {
        mirror::copy(exchange, &payload, framing);
    }
    let writer = match transport.protocol {
        Protocol::Fcgi => fcgi::write(exchange, &host, framing, text)?,
        _ => {
            let target = target.as_deref().unwrap_or_else(|| exchange.head.target());
            write_request(text, exchange.head, target, &host, framing)
        }
    };
    let mut outcome = ask(exchange, &mut payload, cell, transport, (&text[..], writer)).await;
    let status = outcome.as_ref().ok().map(|(_, answered)| answered.head.status);
    let kept = if errors::may_need_body(exchange, status) { payload.detach() } else { None };
    exchange.kept_body = kept.map(|body| Box::new((body, framing)));
    if let Ok((_, Answered { rest: Some(rest), .. })) = &mut outcome {
        rest.comes_from(body.detach());
    }
    outcome
}

/// Sends a request to endpoints, one after another, until one has responded.
async fn ask<B: RequestBody>(
    exchange: &mut Exchange<'_>,
    payload: &mut Payload<'_, B>,
    cell: &Arc<BackendCell>,
    transport: &Transport,
    (text, writer): (&[u8], BodyWriter),
) -> Result<(Reached, Answered), ProxyError> {
    let mut trying = Trying::new(exchange, cell, payload.is_kept());
    let is_fcgi = transport.protocol == Protocol::Fcgi;
    let complaint =
        is_fcgi.then(|| Box::new(Complaint::new(exchange.call.server, &cell.key, exchange.owner())));
    let Call { server, timer, .. } = exchange.call;
    let Exchange { head, info, sizes, session, turn, .. } = exchange;
    let request = Request {
        head: text,
        writer,
        to_head: head.method == Method::Head,
        upgrade: head.upgrade.as_deref(),
        timeouts: exchange.timeouts,
        answer_head: sizes.head,
        said: complaint.as_ref().map(|complaint| complaint.said()),
    };
    loop {
        if payload.is_kept() && payload.is_gone().await {
            return Err(Kind::ClientGone.into());
        }
        let endpoint = trying.pick(session.as_mut(), *turn)?;
        info.attempts.asked(&endpoint);
        let mut observed = Observation::begin(*turn, &endpoint);
        let (fresh, once) = (trying.fresh, trying.once());
        let linking =
            link(exchange.call, request.timeouts.connect, cell, (&endpoint, transport), fresh, once);
        let (failed, reused) = match linking.await {
            Ok(mut link) => {
                info.attempts.connected(link.reused);
                info.attempts.counted(link.count());
                if let Some(observed) = observed.as_mut().filter(|_| !link.reused) {
                    observed.connected();
                }
                link.observed = observed.take();
                match upstream::send::send(&server.local, timer, &mut link, &request, payload).await {
                    Ok(Answered { head, was_held, .. }) if trying.passes_over(&endpoint, head.status) => {
                        Observation::forget(&mut link.observed);
                        // What follows this head is not read: the connection is closed.
                        link.rest(&server.local.buffers);
                        info.attempts.passed_over(head.status);
                        if was_held {
                            info.attempts.waited();
                        }
                        payload.watch();
                        continue;
                    }
                    Ok(answered) => {
                        info.attempts.answered(answered.head.status);
                        if answered.was_held {
                            info.attempts.waited();
                        }
                        let transport_key = transport.key();
                        return Ok((Reached { endpoint, transport_key, link, complaint }, answered));
                    }
                    Err(failed) => {
                        link.rest(&server.local.buffers);
                        observed = link.observed.take();
                        (failed, link.reused)
                    }
                }
            }
            Err(error) => (Failed { error, sent: false, answered: false }, false),
        };
        trying.after(&endpoint, (failed, reused), observed, info, payload.is_replayable())?;
        payload.watch();
    }
}

/// The body as it is sent, and its framing.
async fn prepare<'b, B: RequestBody>(
    exchange: &Exchange<'_>,
    body: &'b mut B,
) -> Result<(Payload<'b, B>, Framing), ProxyError> {
    let Exchange { call: Call { server, timer, .. }, head, timeouts, .. } = exchange;
    let mut sizes = exchange.sizes;
    // A mirrored body is buffered first, so that the copy has it.
    let is_mirrored = mirror::of(exchange).is_some_and(|mirror| mirror.with_body);
    sizes.buffering |= is_mirrored;
    // HTTP/1.0 has no chunked coding, and FastCGI applications expect a length.
    let has_length = matches!(head.framing, Framing::Length(_));
    sizes.buffering |= head.as_http10 && !has_length || protocol(exchange) == Protocol::Fcgi;
    // One in a pipe could not be sent again.
    let may_pass =
        protocol(exchange) == Protocol::Http && !is_mirrored && !errors::may_need_body(exchange, None);
    let way = (timeouts.client_body, may_pass);
    let prepared = Payload::prepare(body, head.framing, sizes, way, &server.local, timer).await;
    prepared.inspect_err(|error| server.local.metrics.failed(error.kind))
}

/// Whether one more request of a backend may be retried after an endpoint received it.
fn may_again(server: &Server, cell: &Arc<BackendCell>) -> bool {
    let may = server.upstreams.borrow_mut().may_ask_again(cell, server.local.timers.now());
    if !may {
        server.local.metrics.retries_denied.add(1);
    }
    may
}

/// The endpoint for the next attempt: the client's own if it has affinity, else the balancer's choice.
fn pick(
    server: &Server,
    cell: &Arc<BackendCell>,
    (session, turn): (Option<&mut Session>, Turn),
    tried: &mut Tried,
) -> Option<Arc<Endpoint>> {
    let mut upstreams = server.upstreams.borrow_mut();
    match session {
        Some(session) => upstreams.pick_by(cell, tried, |set, tried| session.endpoint(set, tried)),
        None => upstreams.pick(cell, turn, tried),
    }
}

/// Whether this is a gRPC request, by its content type.
pub(super) fn is_grpc(head: &RequestHead) -> bool {
    let kind = head.fields.get(Known::ContentType);
    kind.is_some_and(|kind| {
        kind.get(..16).is_some_and(|start| start.eq_ignore_ascii_case(b"application/grpc"))
    })
}

/// Whether another endpoint may be tried.
///
/// Unless configured otherwise, POST, LOCK and PATCH go to a second endpoint only if the kernel accepted no byte of
/// the request for the first one: then it was certainly not processed. Once a byte was accepted, a connection that
/// ends without a response says nothing about whether the request was read, whether the connection was new or reused.
fn may_retry(retries: &Retries, failed: &Failed, idempotent: bool) -> bool {
    let condition = failed.error.kind.condition();
    condition.is_some_and(|condition| retries.after(condition, failed.sent && !idempotent))
}

/// A connection to an endpoint: an idle one, else a new one.
///
/// `once`: the request cannot be sent twice.
async fn link(
    call: Call<'_>,
    limit: Duration,
    cell: &BackendCell,
    (endpoint, transport): (&Endpoint, &Transport),
    fresh: bool,
    once: bool,
) -> Result<Box<Link>, ProxyError> {
    let Call { server, timer, .. } = call;
    let kept =
        if fresh { None } else { server.upstreams.borrow_mut().take(cell, endpoint, transport.key(), once) };
    if let Some(link) = kept {
        server.local.metrics.reused.add(1);
        return Ok(link);
    }
    let permit = match transport.protocol {
        // Each call on it has a permit of its own.
        Protocol::Grpc | Protocol::Grpcs => server.descriptor().map(|it| LinkPermit::new(it, None)),
        Protocol::Http | Protocol::Https | Protocol::Fcgi => server.permit(cell),
    };
    let permit = permit.ok_or(Kind::NoRoom)?;
    server.upstreams.borrow_mut().tls_settings.note(transport);
    let tls = match transport.protocol {
        Protocol::Http | Protocol::Grpc | Protocol::Fcgi => None,
        Protocol::Https => Some((server.backends(), Over::Http1, transport.tls.as_ref())),
        Protocol::Grpcs => Some((server.backends(), Over::Http2, transport.tls.as_ref())),
    };
    // As in nginx, the handshake gets what remains of the connect timeout, and a failed handshake is a failed
    // connection.
    let (address, is_out) = (endpoint.address, Cell::new(false));
    let make_room = || server.upstreams.borrow_mut().shed();
    let dialing = dial(&server.local.reserve, &is_out, || TcpStream::connect(address), make_room);
    // Boxed, so that requests that get an idle connection need no room for it.
    let connecting = Box::pin(Link::connect((address, dialing), permit, transport.reuse, tls));
    match timer.limit(limit, connecting).await {
        Ok(Ok(link)) => {
            server.local.metrics.connected.add(1);
            Ok(Box::new(link))
        }
        Ok(Err(error)) => Err(ProxyError::of(Kind::ConnectFailed, error)),
        // No endpoint was contacted.
        Err(_) if is_out.get() => Err(Kind::NoRoom.into()),
        Err(_) => Err(Kind::ConnectTimeout.into()),
    }
}

/// The protocol of the location's endpoints.
fn protocol(exchange: &Exchange<'_>) -> Protocol {
    // Error pages are always fetched in plain HTTP. An error backend in place of one without endpoints is spoken to as
    // that (as in ingress-nginx).
    let location = exchange.location().filter(|_| exchange.header_scope != HeaderScope::Errors);
    let spoken = location.map(PathEntry::spoken).unwrap_or_default();
    spoken.with(exchange.call.peer.scheme())
}

/// How the location's endpoints are spoken to; `None`: over TLS whose settings are not available yet.
fn transport(exchange: &Exchange<'_>) -> Option<Transport> {
    let protocol = protocol(exchange);
    let location = exchange.location().filter(|_| protocol.is_secure());
    let tls = match location.and_then(|location| location.backend_tls()) {
        Some(cell) => Some(cell.get()?),
        None => None,
    };
    let reuse = exchange.location().map(|location| location.policy.upstream_keepalive.reuse);
    Some(Transport { protocol, tls, reuse: reuse.unwrap_or_default() })
}

/// The target to send, if it is not the client's own.
fn target(exchange: &mut Exchange<'_>) -> Option<Vec<u8>> {
    let mut target = exchange.target.clone()?;
    if let Some(query) = exchange.head.query() {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    Some(target)
}

/// Converts a backend's response.
fn reply(exchange: &Exchange<'_>, cell: &BackendCell, reached: Reached, answered: Answered) -> Reply {
    let Reached { endpoint, transport_key, link, complaint } = reached;
    let Answered { head, body, whole, rest, .. } = answered;
    let body = if head.status == 101 {
        ReplyBody::Tunnel(link)
    } else {
        let server = Rc::clone(exchange.call.server);
        let asked = &exchange.head;
        let reusable = (whole || rest.is_some())
            && head.keep_alive
            && asked.connection != Some(CLOSE)
            && !asked.as_http10
            && transport_key.protocol != Protocol::Fcgi;
        let relay = Relay::new(server, body, link, cell.id, (endpoint, transport_key), reusable);
        ReplyBody::Relay(Box::new(relay.behind(rest).with(complaint)))
    };
    Reply { head, body, close: false, untold: None, is_said: false, read: exchange.timeouts.read }
}
