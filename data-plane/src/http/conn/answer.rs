//! Writes a response to an HTTP/1.1 client: the head and the first body piece together, then piece by piece at the
//! client's pace.

use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::client_body::{Unread, Unsent};
use crate::codec::body::{Joining, RequestBody};
use crate::codec::error::{Kind, ProxyError};
use crate::codec::h1::{BodyWriter, Client, write_response};
use crate::codec::outgoing::Outgoing;
use crate::codec::stream::{Last, Stream};
use crate::http::pipeline::log::RequestInfo;
use crate::http::reply::{Reply, ReplyBody};
use crate::local::Local;
use crate::local::buffers::Buffers;
use crate::local::pipes::{Filled, Pipe};
use crate::local::quota::Share;
use crate::local::stall::Stall;
use crate::local::stint::{STINT, poll_others};
use crate::local::timer::Timer;
use crate::upstream::link::Link;

/// rustls' limit of what it has encrypted ahead, in bytes.
const TLS: usize = 64 * 1024;

/// What happens to the connection after a response.
pub(super) enum After {
    /// It may serve another request.
    Keep,
    /// It has to be closed.
    Close,
    /// It becomes a tunnel to this endpoint.
    Tunnel(Box<Link>),
}

/// A response that was not written to its end. The connection must end without anything that could be taken for that.
pub(super) struct Cut {
    pub(super) error: ProxyError,
    /// Whether nothing but the end of the connection is the end of its body.
    pub(super) ends_with_connection: bool,
}

/// Writes a response.
///
/// # Errors
/// The client disconnects or stops reading, or the backend's body breaks off.
pub(super) async fn write<S: Stream>(
    local: &Local,
    timer: &Timer,
    (stream, input, unread): (&mut S, &mut BytesMut, &mut Unread),
    reply: Reply,
    client: Client,
    info: &mut RequestInfo,
) -> Result<After, Cut> {
    let Reply { head, mut body, read, .. } = reply;
    let mut text = local.buffers.text();
    let (writer, keep) = write_response(&mut text, &head, client);
    info.replied(head.status, text.len());
    // It is in a buffer of the endpoint's connection.
    drop(head);
    let mut answer = Answer {
        is_last: !keep && !matches!(body, ReplyBody::Tunnel(_)),
        out: Outgoing::new(&text),
        writer,
        ended: false,
        read,
        untaken: None,
        stall: Stall::new(),
        gathered: text.len(),
        pipe: None,
        piped: 0,
    };
    timer.arm(read);
    let outcome = poll_fn(|cx| {
        answer.poll(local, timer, (&mut *stream, &mut *input, &mut *unread), &mut body, info, cx)
    })
    .await;
    timer.disarm();
    if let Some(pipe) = answer.pipe.take() {
        local.pipes.give(pipe);
    }
    let ends_with_connection = answer.writer.ends_with_connection();
    drop(answer);
    local.buffers.give_text(text);
    outcome.map_err(|error| Cut { error, ends_with_connection })?;
    info.completed();
    Ok(match body {
        ReplyBody::Tunnel(link) => After::Tunnel(link),
        _ if keep => After::Keep,
        _ => After::Close,
    })
}

struct Answer<'a> {
    /// The connection is closed after this response.
    is_last: bool,
    out: Outgoing<'a>,
    writer: BodyWriter,
    ended: bool,
    /// Read timeout for the backend's next piece.
    read: Duration,
    /// The quota share of data that the client has not taken yet.
    untaken: Option<Share>,
    /// Whether the client takes some of it.
    stall: Stall,
    /// Bytes of the head and of pieces since the body was last read: a buffer is not free before the last piece in it.
    gathered: usize,
    /// The pipe of a long body. Its contents come after `out`, and before anything that is still to be gathered.
    pipe: Option<Pipe>,
    /// Bytes that went through the pipe.
    piped: u64,
}

impl Answer<'_> {
    fn poll<S: Stream>(
        &mut self,
        local: &Local,
        timer: &Timer,
        (stream, input, unread): (&mut S, &mut BytesMut, &mut Unread),
        body: &mut ReplyBody,
        info: &mut RequestInfo,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), ProxyError>> {
        let begun = self.written();
        loop {
            // Everything that is available without waiting goes out with one call.
            let (hungry, broken) = match self.gather(body, info) {
                Ok(hungry) => (hungry, None),
                Err(error) => (false, Some(error)),
            };
            if !(self.out.is_empty() && self.in_pipe() == 0) {
                let before = self.written();
                // The response is complete, so the TLS close_notify is sent together with it.
                if self.is_last
                    && self.ended
                    && before == 0
                    && let Some(below) = stream.below_tls()
                {
                    below.ends();
                }
                match self.poll_write(stream, cx) {
                    Poll::Ready(Ok(())) => {
                        self.untaken = None;
                        timer.arm(self.read);
                    }
                    Poll::Ready(Err(error)) => {
                        return Poll::Ready(Err(ProxyError::of(Kind::ClientGone, error)));
                    }
                    // The client got what came before the break, or never will.
                    Poll::Pending if broken.is_some() => {}
                    Poll::Pending => {
                        let took = self.written() > before;
                        return self.poll_untaken(local, timer, (stream, input, unread), body, took, cx);
                    }
                }
            }
            if let Some(error) = broken {
                return Poll::Ready(Err(error));
            }
            if self.ended {
                return Poll::Ready(Ok(()));
            }
            if self.written() - begun >= STINT {
                if body.sending().is_some()
                    && let Poll::Ready(error) = poll_client(&local.buffers, body, (stream, input, unread), cx)
                {
                    return Poll::Ready(Err(error));
                }
                return poll_others(cx);
            }
            if !hungry {
                continue;
            }
            match self.poll_more(local, stream, body, info, cx) {
                Poll::Ready(Ok(())) => {
                    self.gathered = 0;
                    timer.arm(self.read);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    if let Poll::Ready(error) = poll_client(&local.buffers, body, (stream, input, unread), cx)
                    {
                        return Poll::Ready(Err(error));
                    }
                    let silent = body.poll_silent((local, timer), self.read, cx);
                    return silent.map(|()| Err(Kind::ReadTimeout.into()));
                }
            }
        }
    }

    /// Waits for a client that does not read what there is. `took`: it has just read some of it.
    fn poll_untaken<S: Stream>(
        &mut self,
        local: &Local,
        timer: &Timer,
        (stream, input, unread): (&mut S, &mut BytesMut, &mut Unread),
        body: &mut ReplyBody,
        took: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), ProxyError>> {
        let begins = self.untaken.is_none();
        // What the endpoint of a call sends meanwhile.
        let sent = body.call().map_or(0, |call| call.poll_unread(cx));
        let held = self.gathered + body.held() + self.in_pipe() + self.in_tls(stream) + sent;
        if !local.quota.cover(&mut self.untaken, held) {
            return Poll::Ready(Err(Kind::NoRoom.into()));
        }
        // Until now the timer ran for the backend.
        if begins || took {
            self.stall.begin(timer, local.limits.client_send, stream.unacknowledged());
        }
        // The client may read nothing before it has sent its whole request.
        let says_more = body.sending().is_some() || !unread.is_over();
        if says_more
            && let Poll::Ready(error) = poll_client(&local.buffers, body, (stream, input, unread), cx)
        {
            return Poll::Ready(Err(error));
        }
        let over = self.stall.poll_over(timer, cx, || stream.unacknowledged());
        over.map(|()| Err(Kind::ClientTimeout.into()))
    }

    fn in_pipe(&self) -> usize {
        self.pipe.as_ref().map_or(0, Pipe::held)
    }

    /// Bytes that TLS has encrypted at most, and the socket has not accepted.
    fn in_tls<S: Stream>(&self, stream: &S) -> usize {
        if stream.is_socket() { 0 } else { TLS.min(usize::try_from(self.out.unflushed()).unwrap_or(TLS)) }
    }

    /// Bytes that the transport has accepted.
    fn written(&self) -> u64 {
        self.out.written() + self.piped - self.in_pipe() as u64
    }

    /// Writes until nothing is left.
    fn poll_write<S: Stream>(&mut self, stream: &mut S, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The end of the connection follows.
        ready!(match self.is_last && self.ended {
            true => self.out.poll_write(&mut Last(stream), cx),
            false => self.out.poll_write(stream, cx),
        })?;
        if let Some(pipe) = &mut self.pipe
            && let Some(socket) = S::socket(stream)
        {
            return pipe.poll_drain(socket, cx);
        }
        Poll::Ready(Ok(()))
    }

    /// Reads more of the body: into the pipe if it can be passed on unchanged, else into the buffer for
    /// [`Self::gather`]. Called when everything is written.
    fn poll_more<S: Stream>(
        &mut self,
        local: &Local,
        stream: &mut S,
        body: &mut ReplyBody,
        info: &mut RequestInfo,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), ProxyError>> {
        if let ReplyBody::Relay(relay) = body
            && self.writer.is_plain()
            && relay.may_pass(self.pipe.is_some())
            && stream.socket().is_some()
        {
            if self.pipe.is_none() {
                self.pipe = local.pipes.take();
            }
            if let Some(pipe) = &mut self.pipe {
                match ready!(relay.poll_pass(pipe, cx))? {
                    Filled::With(count) => {
                        self.piped += count as u64;
                        info.relayed(count, count);
                        let frame = self.writer.frame(count);
                        return Poll::Ready(frame.map(drop).map_err(invalid));
                    }
                    Filled::Unsure => {}
                    Filled::Unable => {
                        self.pipe = None;
                        local.pipes.give_up();
                    }
                }
            }
        }
        body.poll_more(cx)
    }

    /// Takes available pieces while there is room for them; returns whether more has to be read first. Small ones are
    /// joined: a backend may send an octet at a time, and a frame for each costs much more than the octet.
    fn gather(&mut self, body: &mut ReplyBody, info: &mut RequestInfo) -> Result<bool, ProxyError> {
        if self.ended {
            return Ok(false);
        }
        let mut joining = Joining::default();
        let found = loop {
            if self.out.is_full() {
                break None;
            }
            match body.buffered() {
                // What a backend sends after the head of a response without a body is dropped.
                Ok(Some(Some(_))) if self.writer.is_bodiless() => {}
                Ok(Some(Some(piece))) => {
                    info.relayed(piece.len(), body.made_of(piece.len()));
                    self.gathered += piece.len();
                    if let Some(before) = joining.push(piece) {
                        self.push(before, info)?;
                    }
                }
                other => break Some(other),
            }
        };
        if let Some(rest) = joining.rest() {
            self.push(rest, info)?;
        }
        let Some(found) = found else { return Ok(false) };
        if found?.is_none() {
            return Ok(true);
        }
        let end = self.writer.end().map_err(invalid)?;
        info.framed(end.len());
        info.relayed(0, body.made_of(0));
        self.out.push_static(end);
        self.ended = true;
        Ok(false)
    }

    /// Frames a piece.
    fn push(&mut self, piece: Bytes, info: &mut RequestInfo) -> Result<(), ProxyError> {
        let frame = self.writer.frame(piece.len()).map_err(invalid)?;
        info.framed(frame.before().len() + frame.after().len());
        self.out.push(frame, piece);
        Ok(())
    }
}

fn invalid(error: impl Error + Send + Sync + 'static) -> ProxyError {
    ProxyError::of(Kind::InvalidBody, error)
}

/// Reads what the client sends meanwhile: the rest of its request goes to an endpoint that has responded before it had
/// all of it. Ready when the client has disconnected, or that fails.
fn poll_client<S: Stream>(
    buffers: &Buffers,
    body: &mut ReplyBody,
    (stream, input, unread): (&mut S, &mut BytesMut, &mut Unread),
    cx: &mut Context<'_>,
) -> Poll<ProxyError> {
    if let Some(relay) = body.sending() {
        // A client that waits for a `100 Continue` does not get one any more.
        let may_go_on = unread.may_end();
        let mut client = Unsent { stream: &mut *stream, input: &mut *input, unread: &mut *unread };
        let client: Option<&mut dyn RequestBody> = if may_go_on { Some(&mut client) } else { None };
        if let Err(error) = relay.send_on(client, cx) {
            return Poll::Ready(error);
        }
        if relay.is_sending() {
            return Poll::Pending;
        }
    }
    unread.poll_gone(buffers, (stream, input), cx).map(|()| Kind::ClientGone.into())
}

#[cfg(test)]
mod tests;
