//! One request over HTTP/2.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::line::Turn;
use super::link::{Link, Response, Upload};
use super::send::{Out, reason, send, written};
use super::streams::{Counted, HEAD};
use crate::codec::body::{Outlet, RequestBody};
use crate::codec::error::{Kind, ProxyError};
use crate::codec::guard::{HeadError, Limits as HeadLimits};
use crate::codec::h2::Reason;
use crate::codec::head::{Method, RequestHead};
use crate::codec::hpack::block::{FieldBlock, Pseudo};
use crate::http::peer::Peer;
use crate::http::pipeline::log::RequestRecord;
use crate::http::pipeline::{self, Call, Exchange};
use crate::http::reply::{Reply, Untold};
use crate::http::server::Server;
use crate::local::timer::Timer;

/// The status of a request that should have come on another connection (RFC 9110 section 15.5.20).
const MISDIRECTED: u16 = 421;

/// A request, and what it is answered with.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) head: Result<Box<RequestHead>, Refused>,
    /// `None` if there is no body.
    pub(super) upload: Option<Upload>,
    pub(super) response: Response,
}

/// Why a request is not served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// It is malformed: its stream is reset (RFC 9113 section 8.1.1), as nginx does.
    Malformed,
    /// The guard's reason, which is answered.
    Head(HeadError),
}

impl From<HeadError> for Refused {
    fn from(error: HeadError) -> Self {
        match error {
            HeadError::ContentLength => Self::Malformed,
            error => Self::Head(error),
        }
    }
}

/// Serves a request to its end. If the client is to get no response, or an incomplete one, its stream is reset.
pub(super) async fn serve(
    (server, peer, link): (&Rc<Server>, &Peer, &Rc<Link>),
    counted: &Rc<Counted>,
    Request { head, upload, response }: Request,
) {
    let local = &server.local;
    let timer = local.timers.timer();
    timer.bound(local.limits.request);
    let is_malformed = matches!(head, Err(Refused::Malformed));
    let (head, error) = match head {
        Ok(head) => (Some(head), None),
        Err(Refused::Malformed) => (None, Some(HeadError::Field)),
        Err(Refused::Head(error)) => (None, Some(error)),
    };
    let to_head = head.as_ref().is_some_and(|head| head.method == Method::Head);
    let mut record = RequestRecord::new(local, peer, head);
    if error.is_some() {
        record.info.unrouted(server);
    }
    // Clients number their streams 1, 3, 5.
    record.info.place = response.stream().div_ceil(2);
    let reply = match error {
        Some(error) => {
            let mut reply = pipeline::unread(local, error);
            reply.untold = is_malformed.then_some(Untold::Failed(Kind::ClientBody));
            reply
        }
        None => {
            let call = Call { server, timer: &timer, peer };
            let received = Received {
                upload,
                is_detached: false,
                counted: Rc::clone(counted),
                turn: Some(Turn::new(counted.streams(), local)),
            };
            // Pinned in place: moving such a large future leaves a copy of it behind.
            let mut answering = pin!(answer(call, &mut record, received));
            let answered = poll_fn(|cx| {
                // The client reset the stream: its processing is dropped, or does not begin.
                if response.poll_cut(cx).is_ready() {
                    return Poll::Ready(None);
                }
                answering.as_mut().poll(cx).map(Some)
            });
            answered.await.unwrap_or_else(|| {
                let gone = ProxyError::from(Kind::ClientGone);
                Reply::failure(local, &gone)
            })
        }
    };
    if let Some(why) = reply.untold {
        record.info.untold(why);
        return match why {
            Untold::Failed(Kind::ClientGone) => response.reset(reason(Kind::ClientGone)),
            Untold::Failed(kind) => {
                link.count_reset();
                response.reset(reason(kind));
            }
            // As nginx does.
            Untold::Said(444) => response.close(Reason::PROTOCOL_ERROR),
            Untold::Said(_) => response.close(Reason::INTERNAL_ERROR),
        };
    }
    if reply.head.status == MISDIRECTED && reply.close && is_for_this_name(&record, peer) {
        link.outdated();
    }
    // The head was sent and answered.
    if let Some(head) = record.head.as_deref_mut() {
        head.let_go();
    }
    counted.forget_head();
    if let Err(error) = reply_to((server, &timer), counted, &mut record, response, reply, to_head).await {
        local.metrics.failed(error.within(timer.is_over()).kind);
    }
}

/// Whether a request is for the host that its connection was made for. Browsers also send what is for other names of a
/// certificate: then others go on.
fn is_for_this_name(record: &RequestRecord, peer: &Peer) -> bool {
    let name = peer.negotiated().and_then(|it| it.name.as_deref());
    let host = record.head.as_deref().map(|head| head.host.name());
    name.zip(host).is_some_and(|(name, host)| name.eq_ignore_ascii_case(host))
}

/// Makes a request's head of its fields.
///
/// # Errors
/// Why there is none.
pub(super) fn head(
    fields: &FieldBlock,
    ended: bool,
    limits: HeadLimits,
) -> Result<Box<RequestHead>, Refused> {
    let method = fields.pseudo(Pseudo::Method).ok_or(Refused::Malformed)?;
    let (scheme, path) = (fields.pseudo(Pseudo::Scheme), fields.pseudo(Pseudo::Path));
    let is_connect = method == b"CONNECT";
    // RFC 9113 sections 8.3.1 and 8.5. `:protocol` was not offered (RFC 8441).
    if fields.pseudo(Pseudo::Protocol).is_some()
        || is_connect == scheme.is_some()
        || is_connect == path.is_some()
        || path == Some(b"")
    {
        return Err(Refused::Malformed);
    }
    let method = std::str::from_utf8(method).map_err(|_| Refused::Malformed)?;
    let target = target(path.unwrap_or(b"/"));
    // As over HTTP/1.1 (docs/adr/004-strict-and-odd.md).
    if scheme == Some(b"") || std::str::from_utf8(target).is_err() {
        return Err(Refused::Head(HeadError::Target));
    }
    let authority = fields.pseudo(Pseudo::Authority);
    Ok(RequestHead::from_h2(method, target, authority, fields.fields(), ended, limits)?)
}

/// A `:path` up to its fragment, where HTTP/1.1 responds with 400. The same target is routed and sent on, so no backend
/// sees the rest.
fn target(path: &[u8]) -> &[u8] {
    match memchr::memchr(b'#', path) {
        Some(0) => b"/",
        Some(end) => &path[..end],
        None => path,
    }
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
    response: Response,
    reply: Reply,
    to_head: bool,
) -> Result<(), ProxyError> {
    let Reply { head: replied, mut body, read, .. } = reply;
    // As they are before they are compressed, each with two bytes of its own.
    let size = replied.fields.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    record.info.replied(replied.status, size);
    let bodiless = to_head || matches!(replied.status, 204 | 304) || replied.framing.is_empty();
    response.head(&replied, bodiless)?;
    // It is in the buffer that the body is read into.
    drop(replied);
    counted.streams().gave(HEAD);
    if bodiless {
        // What a backend sends after such a head is dropped; its connection is reused if there is nothing.
        let _ = body.buffered();
        record.info.completed();
        drop(body);
        if counted.has_left() {
            written((&server.local, timer), &response, counted.streams()).await;
        }
        return Ok(());
    }
    let mut out = Out::new(response, Turn::new(counted.streams(), &server.local));
    let sent = send((&server.local, timer), read, &mut out, &mut body, &mut record.info).await;
    drop(body);
    record.info.received = counted.received();
    if sent.is_ok() {
        record.info.completed();
    }
    let reset = sent.as_ref().err().map(|error| reason(error.kind));
    // A stream whose request has not ended is reset when it is dropped.
    if reset == Some(Reason::INTERNAL_ERROR) || (reset.is_none() && counted.has_left()) {
        written((&server.local, timer), &out.stream, out.turn.streams()).await;
    }
    if let Some(reason) = reset {
        out.stream.reset(reason);
    }
    sent
}

/// The body of a request.
struct Received {
    /// `None` if there is none, or another task reads it.
    upload: Option<Upload>,
    /// Whether another task reads it.
    is_detached: bool,
    counted: Rc<Counted>,
    /// The response's; none where another task reads the body.
    turn: Option<Turn>,
}

impl Drop for Received {
    fn drop(&mut self) {
        if let Some(upload) = &self.upload {
            self.counted.leave(!upload.has_ended());
        }
    }
}

impl RequestBody for Received {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ProxyError>> {
        let Some(upload) = &mut self.upload else {
            return Poll::Ready(Ok(None));
        };
        let piece = upload.poll_piece(cx);
        if let Poll::Ready(Ok(Some(piece))) = &piece {
            self.counted.receive(piece.len());
        }
        piece
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
            upload: self.upload.take(),
            is_detached: false,
            counted: Rc::clone(&self.counted),
            turn: None,
        }))
    }
}
