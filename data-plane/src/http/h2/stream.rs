//! One request over HTTP/2.

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;

use super::body::StreamBody;
use super::pace::Pace;
use crate::codec::body::RequestBody;
use crate::codec::error::{Kind, ProxyError};
use crate::codec::head::{Framing, Known, Method, RequestHead, ResponseHead};
use crate::http::peer::Peer;
use crate::http::pipeline::log::Account;
use crate::http::pipeline::{self, Call, Exchange};
use crate::http::reply::{Reply, ReplyBody};
use crate::http::server::Server;

/// Counts the streams of a connection.
#[derive(Clone, Default)]
pub(super) struct Busy {
    streams: Rc<Cell<usize>>,
}

/// One stream, while it lives.
pub(super) struct Counted {
    streams: Rc<Cell<usize>>,
}

impl Busy {
    /// One more.
    pub(super) fn stream(&self) -> Counted {
        self.streams.set(self.streams.get() + 1);
        Counted { streams: Rc::clone(&self.streams) }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.streams.get()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.streams.set(self.streams.get() - 1);
    }
}

/// Answers a stream's request.
///
/// # Errors
/// When the client is to get no answer: the stream is reset.
pub(super) async fn answer(
    server: Rc<Server>,
    peer: Rc<Peer>,
    request: http::Request<Incoming>,
    pace: Pace,
    counted: Counted,
) -> Result<Response<StreamBody>, ProxyError> {
    let timer = server.local.timers.timer();
    let (parts, incoming) = request.into_parts();
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let authority = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
    let fields = parts.headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
    let head = RequestHead::from_h2(
        parts.method.as_str(),
        target.as_bytes(),
        authority,
        fields,
        incoming.is_end_stream(),
    );
    let head = match head {
        Ok(head) => Box::new(head),
        Err(error) => {
            let account = Account::new(&server.local, &peer, None);
            let reply = pipeline::refusal(&server.local, error.status());
            return Ok(response(server, account, reply, false, pace, counted));
        }
    };
    // The fields stand in the head now.
    drop(parts);
    let to_head = head.method == Method::Head;
    let mut account = Account::new(&server.local, &peer, Some(head));
    let mut body = Received { incoming, received: 0 };
    let call = Call { server: &server, timer: &timer, peer: &peer };
    let reply = match Exchange::new(call, &mut account) {
        Some(exchange) => pipeline::serve(exchange, &mut body).await,
        None => pipeline::refusal(&server.local, 500),
    };
    account.tally.received = body.received;
    if let Some(why) = reply.untold {
        account.tally.untold(why);
        return Err(why.into());
    }
    Ok(response(server, account, reply, to_head, pace, counted))
}

/// The answer as hyper knows it.
fn response(
    server: Rc<Server>,
    mut account: Account,
    reply: Reply,
    to_head: bool,
    pace: Pace,
    counted: Counted,
) -> Response<StreamBody> {
    let Reply { head, mut body, timeouts, .. } = reply;
    account.tally.replied(head.status);
    let bodiless = to_head || matches!(head.status, 204 | 304) || head.framing.is_empty();
    if bodiless {
        // What a backend sends behind such a head goes nowhere; its connection is used again if there is nothing.
        let _ = body.buffered();
        body = ReplyBody::Empty;
    }
    let mut response = Response::new(StreamBody::new(
        Rc::clone(&server.local),
        account,
        (body, timeouts.read),
        pace,
        counted,
    ));
    // The codec passes 100 to 999, as this type does.
    *response.status_mut() = StatusCode::from_u16(head.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let headers = response.headers_mut();
    for (name, value) in head.fields.iter() {
        // Framing is ours to say; and names that HTTP/2 cannot spell stay behind.
        if Known::of(name) == Known::ContentLength {
            continue;
        }
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    if let Some(length) = length(&head) {
        headers.insert(http::header::CONTENT_LENGTH, length.into());
    }
    response
}

/// The length that the client is told.
fn length(head: &ResponseHead) -> Option<u64> {
    match (head.status, head.framing) {
        (204, _) => None,
        (_, Framing::Length(length)) => Some(length),
        _ => head.declared_length,
    }
}

/// The body of a request as hyper gives it.
struct Received {
    incoming: Incoming,
    received: u64,
}

impl RequestBody for Received {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ProxyError>> {
        loop {
            let frame = match ready!(std::pin::Pin::new(&mut self.incoming).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Err(ProxyError::of(Kind::ClientGone, error))),
                None => return Poll::Ready(Ok(None)),
            };
            // Trailers of a request end here, as in nginx.
            if let Ok(piece) = frame.into_data()
                && !piece.is_empty()
            {
                self.received += piece.len() as u64;
                return Poll::Ready(Ok(Some(piece)));
            }
        }
    }

    fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<()> {
        // A stream that is reset is dropped by hyper, and everything of it with it.
        Poll::Pending
    }
}
