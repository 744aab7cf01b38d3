//! Sends a response body over a stream, at the client's pace.
//!
//! The connection gets no more than fits in the stream's window, so that each byte sent is visible progress and a client
//! that reads nothing makes us hold only one piece: a small one, if others are held on its connection. Small pieces that
//! are available together are sent together: a backend may send a byte at a time, and each frame has a header.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::yield_now;

use crate::codec::body::{Joining, Outlet as _};
use crate::codec::error::{Kind, ProxyError};
use crate::codec::h2::Reason;
use crate::http::pipeline::log::RequestInfo;
use crate::http::reply::ReplyBody;
use crate::local::Local;
use crate::local::quota::Share;
use crate::local::timer::Timer;
use crate::upstream::call::Call;

use super::line::Turn;
use super::link::Response;
use super::streams::{Streams, Untaken};

/// A piece up to this size in bytes is copied out of its larger buffer if it has to wait.
const COPIED: usize = 4 * 1024;

/// The destination of a response.
pub(super) struct Out {
    pub(super) stream: Response,
    pub(super) turn: Turn,
    /// The round in which what the connection was given last is written.
    round: u64,
    /// Whether what is in hand was read when it was this response's turn, which comprises that the connection is given it.
    has_turn: bool,
}

impl Out {
    /// For a response of which nothing was sent.
    pub(super) fn new(stream: Response, turn: Turn) -> Self {
        Self { stream, turn, round: 0, has_turn: false }
    }

    /// Ready with the number of bytes that may be read of the body. If much is in hand on this connection, that is what
    /// its window takes now.
    fn poll_wanted(&mut self, body: &mut ReplyBody, cx: &mut Context<'_>) -> Poll<usize> {
        let most = self.turn.most();
        // The windows to an HTTP/2 endpoint are another matter. Whose endpoint is silent keeps no other out.
        if most == usize::MAX || body.call().is_some() || body.poll_arrived(cx).is_pending() {
            self.turn.leave();
            return Poll::Ready(most);
        }
        // Its window may take more as soon as that is written.
        ready!(self.turn.streams().poll_written(self.round, cx));
        ready!(self.turn.poll_room(cx));
        self.has_turn = true;
        Poll::Ready(self.stream.capacity().max(most))
    }
}

/// What is reckoned for a piece that waits, and for the buffer that it is in.
type Reckoned = (Share, Untaken);

/// Sends a whole body.
///
/// # Errors
/// The client disconnects or reads nothing for too long, or the backend's body breaks off.
pub(super) async fn send(
    (local, timer): (&Local, &Timer),
    read: Duration,
    out: &mut Out,
    body: &mut ReplyBody,
    info: &mut RequestInfo,
) -> Result<(), ProxyError> {
    let mut joining = Joining::default();
    let mut found = body.buffered();
    loop {
        match found {
            Ok(Some(Some(piece))) => {
                info.relayed(piece.len(), body.made_of(piece.len()));
                // What follows determines whether this is the end, if that is already known.
                found = body.buffered();
                // Only a gRPC call may have trailers after its last piece.
                let last = matches!(found, Ok(Some(None))) && body.call().is_none();
                let before = joining.push(piece);
                let whole = if last || joining.is_large() { joining.rest() } else { None };
                for (piece, last) in
                    before.map(|it| (it, false)).into_iter().chain(whole.map(|it| (it, last)))
                {
                    pass((local, timer), out, body, piece, last).await?;
                }
                if last {
                    info.relayed(0, body.made_of(0));
                    return Ok(());
                }
            }
            Ok(Some(None)) => {
                info.relayed(0, body.made_of(0));
                break;
            }
            Ok(None) if joining.is_empty() || out.turn.most() < usize::MAX => {
                flush((local, timer), out, body, &mut joining).await?;
                more((local, timer), read, out, body).await?;
                found = body.buffered();
            }
            Ok(None) => {
                body.wants(usize::MAX);
                let came = body.more_at_once().await;
                if !matches!(came, Some(Ok(()))) {
                    // Sent now: the rest may take long to arrive.
                    flush((local, timer), out, body, &mut joining).await?;
                }
                came.transpose()?;
                found = body.buffered();
            }
            Err(error) => {
                flush((local, timer), out, body, &mut joining).await?;
                return Err(error);
            }
        }
    }
    flush((local, timer), out, body, &mut joining).await?;
    match body.call().and_then(Call::take_trailers) {
        Some(trailers) => out.stream.trailers(&trailers),
        None => out.stream.data(Bytes::new(), true),
    }
}

/// Lets the connection write what it was given, before its stream is reset: curl 7.88 loses a response whose reset comes
/// in its last TLS record.
pub(super) async fn written((local, timer): (&Local, &Timer), stream: &Response, streams: &Streams) {
    // The connection's task was woken by what it was given.
    yield_now().await;
    timer.arm(local.limits.client_send);
    poll_fn(|cx| match streams.poll_flowing(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending if stream.poll_cut(cx).is_ready() => Poll::Ready(()),
        Poll::Pending => timer.poll_elapsed(cx).map(|_| ()),
    })
    .await;
    timer.disarm();
}

/// Sends the joined pieces.
async fn flush(
    worker: (&Local, &Timer),
    out: &mut Out,
    body: &mut ReplyBody,
    joining: &mut Joining,
) -> Result<(), ProxyError> {
    match joining.rest() {
        Some(piece) => pass(worker, out, body, piece, false).await,
        None => Ok(()),
    }
}

/// Sends a piece at the client's pace; the `last` one ends the stream.
async fn pass(
    (local, timer): (&Local, &Timer),
    out: &mut Out,
    body: &mut ReplyBody,
    mut piece: Bytes,
    last: bool,
) -> Result<(), ProxyError> {
    // Until all of it is gone: in between it is still in hand.
    let mut reckoned = None;
    while !piece.is_empty() {
        let room = room(local, timer, (&mut *out, &mut *body), (&mut piece, &mut reckoned)).await?;
        let part = piece.split_to(room.min(piece.len()));
        let is_end = last && piece.is_empty();
        out.round = out.turn.streams().gave(part.len());
        out.stream.data(part, is_end)?;
    }
    Ok(())
}

/// Waits for more of the body. The time in which it may not be read is its client's.
async fn more(
    (local, timer): (&Local, &Timer),
    read: Duration,
    out: &mut Out,
    body: &mut ReplyBody,
) -> Result<(), ProxyError> {
    let (mut may_read, mut taken) = (true, out.turn.taken());
    timer.arm(read);
    let outcome = poll_fn(|cx| {
        out.has_turn = false;
        let wanted = out.poll_wanted(body, cx);
        if let Poll::Ready(most) = wanted {
            body.wants(most);
            if let Poll::Ready(outcome) = body.poll_more(cx) {
                return Poll::Ready(outcome);
            }
        } else {
            // This may take any time.
            body.rest();
        }
        send_on(body, cx)?;
        if std::mem::replace(&mut may_read, wanted.is_ready()) != wanted.is_ready() {
            timer.arm(if wanted.is_ready() { read } else { local.limits.client_send });
        }
        if out.stream.poll_cut(cx).is_ready() {
            return Poll::Ready(Err(Kind::ClientGone.into()));
        }
        if wanted.is_ready() {
            return body.poll_silent((local, timer), read, cx).map(|()| Err(Kind::ReadTimeout.into()));
        }
        poll_late((local, timer), (&out.turn, true), &mut taken, cx).map(|()| Err(Kind::ClientTimeout.into()))
    })
    .await;
    out.turn.leave();
    timer.disarm();
    outcome
}

/// Sends more of the request, if its endpoint has responded before it had all of it.
fn send_on(body: &mut ReplyBody, cx: &mut Context<'_>) -> Result<(), ProxyError> {
    body.sending().map_or(Ok(()), |relay| relay.send_on(None, cx))
}

/// Ready when the client has taken nothing for too long: if this response only waits until it may be sent, `of_others`
/// either.
fn poll_late(
    (local, timer): (&Local, &Timer),
    (turn, of_others): (&Turn, bool),
    taken: &mut u64,
    cx: &mut Context<'_>,
) -> Poll<()> {
    ready!(timer.poll_elapsed(cx));
    if of_others && std::mem::replace(taken, turn.taken()) < turn.taken() {
        timer.arm(local.limits.client_send);
        ready!(timer.poll_elapsed(cx));
    }
    Poll::Ready(())
}

/// Waits until the client accepts part of the piece; returns how much.
async fn room(
    local: &Local,
    timer: &Timer,
    (out, body): (&mut Out, &mut ReplyBody),
    (piece, reckoned): (&mut Bytes, &mut Option<Reckoned>),
) -> Result<usize, ProxyError> {
    let Out { stream: out, turn, has_turn, .. } = out;
    // Whoever waited again would hold what he read until then.
    let may_give = if *has_turn { turn.streams().has_room() } else { turn.has_room() };
    if may_give && out.capacity() > 0 {
        return Ok(out.capacity());
    }
    if piece.len() <= COPIED {
        *piece = Bytes::copy_from_slice(piece);
        body.rest();
    }
    // The piece is in a buffer of the endpoint's connection.
    let held = piece.len() + body.held();
    match reckoned {
        Some((share, untaken)) => {
            share.shrink(held);
            untaken.shrink(held);
        }
        none => *none = Some((local.quota.take(held).ok_or(Kind::NoRoom)?, turn.streams().untaken(held))),
    }
    // What the endpoint of a call sends meanwhile.
    let mut unread = local.quota.take(0);
    let mut taken = turn.taken();
    timer.arm(local.limits.client_send);
    let room = poll_fn(|cx| {
        if let Some(call) = body.call() {
            // A client that waits for its own data to be read does not wait forever.
            call.drive(cx);
            let bytes = call.poll_unread(cx);
            if unread.as_ref().is_none_or(|share| share.amount() != bytes) {
                drop(unread.take());
                unread = local.quota.take(bytes);
            }
            if unread.is_none() {
                return Poll::Ready(Err(Kind::NoRoom.into()));
            }
        }
        send_on(body, cx)?;
        match out.poll_capacity(cx)? {
            Poll::Ready(room) if turn.poll_room(cx).is_ready() => return Poll::Ready(Ok(room)),
            // What is given while the connection is blocked would be held there.
            Poll::Ready(_) if out.poll_cut(cx).is_pending() => {}
            Poll::Ready(_) => return Poll::Ready(Err(Kind::ClientGone.into())),
            // It keeps nobody waiting who has a window.
            Poll::Pending => turn.leave(),
        }
        let of_others = turn.is_waiting();
        poll_late((local, timer), (&*turn, of_others), &mut taken, cx)
            .map(|()| Err(Kind::ClientTimeout.into()))
    })
    .await;
    turn.leave();
    out.rest();
    timer.disarm();
    room
}

/// The error code for resetting a stream, so that its client can tell a broken response from a complete one.
pub(super) fn reason(kind: Kind) -> Reason {
    match kind {
        Kind::ClientGone | Kind::ClientTimeout => Reason::CANCEL,
        Kind::ClientBody => Reason::PROTOCOL_ERROR,
        _ => Reason::INTERNAL_ERROR,
    }
}

#[cfg(test)]
mod tests;
