//! Sends a response body over a stream, at the client's pace.
//!
//! h2 gets no more than fits in the stream's window, so that each byte sent is visible progress and a client that
//! reads nothing makes us hold only one piece. Small pieces that are available together are sent together: h2 keeps a
//! few hundred bytes of state for each piece, however small, and a backend may send a byte at a time.

use std::future::poll_fn;
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::{Reason, SendStream};
use http::HeaderMap;
use tokio::task::yield_now;

use crate::codec::body::{Joining, Outlet as _};
use crate::codec::error::{Kind, ProxyError};
use crate::http::pipeline::log::RequestInfo;
use crate::http::reply::ReplyBody;
use crate::local::Local;
use crate::local::quota::Share;
use crate::local::timer::Timer;

use super::line::Turn;
use super::streams::{Streams, Untaken};

/// A piece up to this size in bytes is copied out of its larger buffer if it has to wait.
const COPIED: usize = 4 * 1024;

/// A response gives way to others until its client has taken nothing for this long, although it could.
const QUIET: Duration = Duration::from_secs(1);

/// The destination of a response.
pub(super) struct Out {
    pub(super) stream: SendStream<Bytes>,
    pub(super) turn: Turn,
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
            Ok(None) if joining.is_empty() || gives_way(out, body) => {
                flush((local, timer), out, body, &mut joining).await?;
                if gives_way(out, body) {
                    give_way(timer, out).await?;
                }
                more(timer, read, &mut out.stream, body).await?;
                found = body.buffered();
            }
            Ok(None) => {
                let came = at_once(body).await;
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
    let gone = |error: h2::Error| ProxyError::of(Kind::ClientGone, error);
    match trailers(timer, read, body).await? {
        Some(trailers) => out.stream.send_trailers(trailers).map_err(gone),
        None => out.stream.send_data(Bytes::new(), true).map_err(gone),
    }
}

/// Lets the connection write what it was given, before its stream is reset: h2 discards what it has not written, which
/// is the end of what a failing backend sent. curl 7.88 also loses a response whose reset comes in its last TLS record.
pub(super) async fn written(
    (local, timer): (&Local, &Timer),
    stream: &mut SendStream<Bytes>,
    streams: &Streams,
) {
    // The connection's task was woken by what it was given.
    yield_now().await;
    timer.arm(local.limits.client_send);
    poll_fn(|cx| match streams.poll_flowing(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending if stream.poll_reset(cx).is_ready() => Poll::Ready(()),
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
        out.stream.send_data(part, is_end).map_err(|error| ProxyError::of(Kind::ClientGone, error))?;
    }
    Ok(())
}

/// Whether others wait that may have room once this response has nothing in hand. A call goes on: its client may wait
/// for an answer to what it is sending.
fn gives_way(out: &Out, body: &mut ReplyBody) -> bool {
    out.turn.is_contended() && body.call().is_none()
}

/// Lets those that wait for room go first. If the client leaves it to others than those that give way, nothing comes of
/// that, and they go on.
async fn give_way(timer: &Timer, out: &mut Out) -> Result<(), ProxyError> {
    let Out { stream, turn } = out;
    let mut taken = turn.taken();
    timer.arm(QUIET);
    let outcome = poll_fn(|cx| {
        if !turn.is_contended() || turn.poll_room(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        if stream.poll_reset(cx).is_ready() {
            return Poll::Ready(Err(Kind::ClientGone.into()));
        }
        ready!(timer.poll_elapsed(cx));
        if std::mem::replace(&mut taken, turn.taken()) < turn.taken() || turn.streams().is_stuck() {
            timer.arm(QUIET);
            ready!(timer.poll_elapsed(cx));
        }
        turn.gave_way_in_vain();
        Poll::Ready(Ok(()))
    })
    .await;
    turn.leave();
    timer.disarm();
    outcome
}

/// The backend's trailers.
async fn trailers(
    timer: &Timer,
    read: Duration,
    body: &mut ReplyBody,
) -> Result<Option<HeaderMap>, ProxyError> {
    let Some(call) = body.call() else { return Ok(None) };
    timer.arm(read);
    let outcome = poll_fn(|cx| match call.poll_trailers(cx) {
        Poll::Ready(trailers) => Poll::Ready(trailers),
        Poll::Pending => timer.poll_elapsed(cx).map(|_| Err(Kind::ReadTimeout.into())),
    })
    .await;
    timer.disarm();
    outcome
}

/// Reads more of the body if it is available.
async fn at_once(body: &mut ReplyBody) -> Option<Result<(), ProxyError>> {
    poll_fn(|cx| match body.poll_more(cx) {
        Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Waits for more of the body.
async fn more(
    timer: &Timer,
    read: Duration,
    out: &mut SendStream<Bytes>,
    body: &mut ReplyBody,
) -> Result<(), ProxyError> {
    timer.arm(read);
    let outcome = poll_fn(|cx| {
        if let Poll::Ready(outcome) = body.poll_more(cx) {
            return Poll::Ready(outcome);
        }
        if out.poll_reset(cx).is_ready() {
            return Poll::Ready(Err(Kind::ClientGone.into()));
        }
        timer.poll_elapsed(cx).map(|_| Err(Kind::ReadTimeout.into()))
    })
    .await;
    timer.disarm();
    outcome
}

/// Waits until the client accepts part of the piece; returns how much.
async fn room(
    local: &Local,
    timer: &Timer,
    (out, body): (&mut Out, &mut ReplyBody),
    (piece, reckoned): (&mut Bytes, &mut Option<Reckoned>),
) -> Result<usize, ProxyError> {
    let Out { stream: out, turn } = out;
    let streams = turn.streams();
    out.reserve_capacity(piece.len());
    let flows = poll_fn(|cx| Poll::Ready(streams.poll_flowing(cx).is_ready())).await;
    if flows && out.capacity() > 0 {
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
        none => *none = Some((local.quota.take(held).ok_or(Kind::NoRoom)?, streams.untaken(held))),
    }
    // What the endpoint of a call sends meanwhile.
    let mut unread = local.quota.take(0);
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
        // Data given to h2 while the connection is blocked would be held there.
        let room = match streams.poll_flowing(cx) {
            Poll::Ready(()) if out.capacity() > 0 => Poll::Ready(Some(Ok(out.capacity()))),
            Poll::Ready(()) => out.poll_capacity(cx),
            Poll::Pending => out.poll_reset(cx).map(|_| None),
        };
        match room {
            Poll::Ready(Some(Ok(room))) => return Poll::Ready(Ok(room)),
            Poll::Ready(Some(Err(error))) => {
                return Poll::Ready(Err(ProxyError::of(Kind::ClientGone, error)));
            }
            Poll::Ready(None) => return Poll::Ready(Err(Kind::ClientGone.into())),
            Poll::Pending => {}
        }
        timer.poll_elapsed(cx).map(|_| Err(Kind::ClientTimeout.into()))
    })
    .await;
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
