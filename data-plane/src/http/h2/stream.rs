//! One request over HTTP/2.

use std::future::{Future, poll_fn};
use std::io::Write as _;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, header};

use super::FIELD;
use super::line::Turn;
use super::send::{Out, reason, send, written};
use super::streams::{Counted, HEAD};
use super::wire::Wire;
use crate::codec::body::{Outlet, RequestBody};
use crate::codec::error::{Kind, ProxyError};
use crate::codec::guard::{HeadError, Limits as HeadLimits};
use crate::codec::head::{Framing, Known, Method, RequestHead, ResponseHead};
use crate::codec::hpack::{Fault, Target};
use crate::http::peer::Peer;
use crate::http::pipeline::log::RequestRecord;
use crate::http::pipeline::{self, Call, Exchange};
use crate::http::reply::{Reply, Untold};
use crate::http::server::Server;
use crate::local::timer::Timer;
use crate::upstream::incoming::Incoming;

/// The status of a request that should have come on another connection (RFC 9110 section 15.5.20).
const MISDIRECTED: u16 = 421;

/// Serves a request to its end. If the client is to get no response, or an incomplete one, its stream is reset.
pub(super) async fn serve(
    (server, peer, wire): (&Rc<Server>, &Peer, &Rc<Wire>),
    counted: &Rc<Counted>,
    request: Request<Option<Incoming>>,
    mut respond: SendResponse<Bytes>,
) {
    let local = &server.local;
    let timer = local.timers.timer();
    timer.bound(local.limits.request);
    let (parts, incoming) = request.into_parts();
    let limits = server.clients().head.unwrap_or(HeadLimits::REQUEST);
    let stream = u32::from(respond.stream_id());
    let fault = wire.fault(stream);
    let head = match fault {
        Some(Fault::Malformed) => Err(HeadError::Field),
        Some(Fault::Trailers) | None => head(&parts, incoming.is_none(), limits),
    };
    // The fields are in the head now.
    drop(parts);
    let (head, error) = match head {
        Ok(head) => (Some(head), None),
        Err(error) => (None, Some(error)),
    };
    let to_head = head.as_ref().is_some_and(|head| head.method == Method::Head);
    let mut record = RequestRecord::new(local, peer, head);
    if error.is_some() {
        record.info.unrouted(server);
    }
    // Clients number their streams 1, 3, 5.
    record.info.place = stream.div_ceil(2);
    let reply = match error {
        Some(error) => {
            wire.forget(stream);
            let mut reply = pipeline::unread(local, error);
            // As h2 does where it notices, and nginx (RFC 9113 section 8.1.1).
            reply.untold =
                fault.filter(|fault| *fault == Fault::Malformed).map(|_| Untold::Failed(Kind::ClientBody));
            reply
        }
        None => {
            let call = Call { server, timer: &timer, peer };
            let received = Received {
                stream,
                incoming,
                is_detached: false,
                counted: Rc::clone(counted),
                wire: Rc::clone(wire),
                turn: Some(Turn::new(counted.streams(), local)),
            };
            // Pinned in place: moving such a large future leaves a copy of it behind.
            let mut answering = pin!(answer(call, &mut record, received));
            let answered = poll_fn(|cx| match answering.as_mut().poll(cx) {
                Poll::Ready(reply) => Poll::Ready(Some(reply)),
                // The client reset the stream: its processing is dropped.
                Poll::Pending => respond.poll_reset(cx).map(|_| None),
            });
            answered.await.unwrap_or_else(|| {
                let gone = ProxyError::from(Kind::ClientGone);
                Reply::failure(local, &gone)
            })
        }
    };
    if let Some(why) = reply.untold {
        record.info.untold(why);
        return respond.send_reset(match why {
            Untold::Failed(Kind::ClientGone) => reason(Kind::ClientGone),
            Untold::Failed(kind) => {
                wire.reset();
                reason(kind)
            }
            // As nginx does.
            Untold::Said(_) => Reason::PROTOCOL_ERROR,
        });
    }
    if reply.head.status == MISDIRECTED && reply.close {
        wire.misdirected();
    }
    // The head was sent and answered.
    if let Some(head) = record.head.as_deref_mut() {
        head.let_go();
    }
    counted.forget_head();
    if let Err(error) = reply_to((server, &timer), counted, &mut record, respond, reply, to_head).await {
        local.metrics.failed(error.within(timer.is_over()).kind);
    }
}

/// The original target of a request, if h2 does not accept it.
#[derive(Clone)]
struct Asked(Target);

/// Attaches the original target to a request, if there is one.
pub(super) fn ask<B>(request: &mut Request<B>, target: Option<Target>) {
    if let Some(target) = target {
        request.extensions_mut().insert(Asked(target));
    }
}

/// The size of a head in bytes.
pub(super) fn size(request: &Request<RecvStream>) -> u64 {
    let uri = request.uri();
    let target = uri.path_and_query().map_or(0, |target| target.as_str().len());
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
    let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD);
    (target + authority + fields.sum::<usize>() + 4 * FIELD) as u64
}

/// Converts a request head into the pipeline's type.
fn head(parts: &Parts, ended: bool, limits: HeadLimits) -> Result<Box<RequestHead>, HeadError> {
    // h2 accepts an empty scheme, which is meaningless.
    if parts.uri.scheme_str() == Some("") {
        return Err(HeadError::Target);
    }
    // If a `:path` contains `#`, this is the part before it, where HTTP/1.1 responds with 400: h2 parses it into a
    // `Uri`, which silently drops the fragment. The same target is routed and sent on, so no backend sees the rest.
    let target = match parts.extensions.get() {
        // As over HTTP/1.1 (docs/adr/004-strict-and-odd.md).
        Some(Asked(target)) if std::str::from_utf8(target).is_err() => return Err(HeadError::Target),
        Some(Asked(target)) => &target[..],
        None => parts.uri.path_and_query().map_or("/", |target| target.as_str()).as_bytes(),
    };
    let authority = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
    let fields = parts.headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
    RequestHead::from_h2(parts.method.as_str(), target, authority, fields, ended, limits)
}

async fn answer(call: Call<'_>, record: &mut RequestRecord, mut body: Received) -> Reply {
    let reply = match Exchange::new(call, record) {
        Some(mut exchange) => pipeline::serve(&mut exchange, &mut body).await,
        None => pipeline::refusal(&call.server.local, 500),
    };
    record.info.received = body.counted.received();
    reply
}

/// Sends a response.
async fn reply_to(
    (server, timer): (&Rc<Server>, &Timer),
    counted: &Counted,
    record: &mut RequestRecord,
    mut respond: SendResponse<Bytes>,
    reply: Reply,
    to_head: bool,
) -> Result<(), ProxyError> {
    let Reply { head: replied, mut body, read, .. } = reply;
    // As they are before they are compressed, each with two bytes of its own.
    let size = replied.fields.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    record.info.replied(replied.status, size);
    let bodiless = to_head || matches!(replied.status, 204 | 304) || replied.framing.is_empty();
    let head = response(&replied);
    // It is in the buffer that the body is read into.
    drop(replied);
    let gone = |error: h2::Error| ProxyError::of(Kind::ClientGone, error);
    if bodiless {
        // What a backend sends after such a head is dropped; its connection is reused if there is nothing.
        let _ = body.buffered();
        let mut stream = respond.send_response(head, true).map_err(gone)?;
        record.info.completed();
        drop(body);
        if counted.has_left() {
            written((&server.local, timer), &mut stream, counted.streams()).await;
        }
        return Ok(());
    }
    let stream = respond.send_response(head, false).map_err(gone)?;
    counted.streams().gave(HEAD);
    let mut out = Out::new(stream, Turn::new(counted.streams(), &server.local));
    let sent = send((&server.local, timer), read, &mut out, &mut body, &mut record.info).await;
    drop(body);
    record.info.received = counted.received();
    if sent.is_ok() {
        record.info.completed();
    }
    let reset = sent.as_ref().err().map(|error| reason(error.kind));
    // h2 resets a stream whose request has not ended when it is dropped.
    if reset == Some(Reason::INTERNAL_ERROR) || (reset.is_none() && counted.has_left()) {
        written((&server.local, timer), &mut out.stream, out.turn.streams()).await;
    }
    if let Some(reason) = reset {
        out.stream.send_reset(reason);
    }
    sent
}

/// Converts a response head into h2's type.
fn response(head: &ResponseHead) -> Response<()> {
    let mut response = Response::new(());
    // The codec allows 100 to 999, as this type does.
    *response.status_mut() = StatusCode::from_u16(head.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let headers = response.headers_mut();
    // Reserved once: the map reallocates beyond six fields, moving everything each time.
    headers.reserve(head.fields.entries().count());
    for (known, name, value) in head.fields.entries() {
        // The framing is ours; names that HTTP/2 cannot express are dropped.
        if known == Known::ContentLength {
            continue;
        }
        // Each value is allocated separately, because the HPACK table of the connection keeps some long after this
        // head.
        if let (Some(name), Ok(value)) = (named(known, name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    if let Some(length) = length(head) {
        headers.insert(header::CONTENT_LENGTH, digits(length));
    }
    response
}

/// A field name in h2's type. What most responses have needs no parsing.
fn named(known: Known, name: &[u8]) -> Option<HeaderName> {
    Some(match known {
        Known::Date => header::DATE,
        Known::Server => header::SERVER,
        Known::ContentType => header::CONTENT_TYPE,
        Known::CacheControl => header::CACHE_CONTROL,
        Known::Vary => header::VARY,
        Known::SetCookie => header::SET_COOKIE,
        Known::Location => header::LOCATION,
        Known::StrictTransportSecurity => header::STRICT_TRANSPORT_SECURITY,
        _ => return HeaderName::from_bytes(name).ok(),
    })
}

/// A number as a header value: allocated once at its exact length, where the type's own conversion allocates twice.
fn digits(number: u64) -> HeaderValue {
    let mut text = [0; 20];
    let mut rest = &mut text[..];
    let _ = write!(rest, "{number}");
    let unused = rest.len();
    HeaderValue::from_bytes(&text[..text.len() - unused]).unwrap_or_else(|_| number.into())
}

/// The Content-Length for the client.
fn length(head: &ResponseHead) -> Option<u64> {
    match (head.status, head.framing) {
        (204, _) => None,
        (_, Framing::Length(length)) => Some(length),
        _ => head.declared_length,
    }
}

/// The body of a request from h2, with what is known of its trailers.
struct Received {
    stream: u32,
    /// `None` if there is none, or another task reads it.
    incoming: Option<Incoming>,
    /// Whether another task reads it.
    is_detached: bool,
    counted: Rc<Counted>,
    wire: Rc<Wire>,
    /// The response's; none where another task reads the body.
    turn: Option<Turn>,
}

impl Drop for Received {
    fn drop(&mut self) {
        if let Some(incoming) = &self.incoming {
            self.wire.forget(self.stream);
            self.counted.leave(!incoming.is_end_stream());
        }
    }
}

impl RequestBody for Received {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ProxyError>> {
        let Some(incoming) = &mut self.incoming else {
            return Poll::Ready(Ok(None));
        };
        loop {
            let piece = match ready!(incoming.poll_data(cx)) {
                Some(Ok(piece)) => piece,
                Some(Err(error)) => return Poll::Ready(Err(ProxyError::of(Kind::ClientGone, error))),
                None if self.wire.fault(self.stream).is_some() => {
                    return Poll::Ready(Err(Kind::ClientBody.into()));
                }
                // Request trailers are dropped here, as in nginx.
                None => return Poll::Ready(Ok(None)),
            };
            // The window opens only now: the data is wanted.
            incoming.release(piece.len());
            if !piece.is_empty() {
                self.counted.receive(piece.len());
                return Poll::Ready(Ok(Some(piece)));
            }
        }
    }

    fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<()> {
        // A reset stream is dropped by its serving task, together with this.
        Poll::Pending
    }

    fn outlet(&mut self) -> Option<&mut dyn Outlet> {
        self.turn.as_mut().map(|turn| turn as _)
    }

    fn detach(&mut self) -> Option<Box<dyn RequestBody>> {
        if std::mem::replace(&mut self.is_detached, true) {
            return None;
        }
        // The receiver of the body has its own copy of the head.
        self.counted.forget_head();
        Some(Box::new(Self {
            stream: self.stream,
            incoming: self.incoming.take(),
            is_detached: false,
            counted: Rc::clone(&self.counted),
            wire: Rc::clone(&self.wire),
            turn: None,
        }))
    }
}
