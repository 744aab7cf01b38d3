//! An HTTP/1.1 connection: one request after another, answered in order.

use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncWriteExt;
use tracing::debug;

use super::answer::{self, After};
use super::client_body::{ClientBody, Unread};
use super::discard::discard;
use super::silent::Silent;
use crate::codec::guard::{HeadError, Limits as HeadLimits};
use crate::codec::h1::{Client, RequestReader};
use crate::codec::head::{RequestHead, Version};
use crate::codec::stream::{Stream, make_room, poll_fill};
use crate::http::patience::hear_out;
use crate::http::peer::Peer;
use crate::http::pipeline::log::{REQUEST, RequestRecord};
use crate::http::pipeline::{self, Call, Exchange};
use crate::http::reply::{Bad, Reply, ReplyBody};
use crate::http::server::Server;
use crate::http::upgrade;
use crate::local::timer::{SILENCE, Timer};
use crate::table::policy::clients::Clients;

/// What a client that knows that we speak HTTP/2 begins with (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The connection between two requests.
pub(super) struct Session<S> {
    server: Rc<Server>,
    peer: Peer,
    timer: Timer,
    stream: S,
    /// What came and is not read yet. Without memory while the connection is idle.
    input: BytesMut,
    /// Whether the first bytes may be HTTP/2's.
    sniff: bool,
    /// Requests so far. Before the first one the connection is new, and not idle.
    served: u32,
    /// Whether plain HTTP is spoken where TLS was expected: every request is answered with nginx' page about it.
    misplaced: bool,
    /// Whether it was silent, and nothing is known to have come since: its times run on.
    was_silent: bool,
}

/// What is left of a connection when its task is over.
pub(super) enum Left<S> {
    Nothing,
    /// Its client speaks HTTP/2.
    Http2(Session<S>),
    /// Its client says nothing, and nobody has to wait for that here.
    Silent(Session<S>),
}

/// What came next.
enum Next {
    Request(Box<RequestHead>),
    Refused(HeadError),
    Http2,
    Silence,
    /// The client is gone, too slow, or idle for too long.
    End,
}

impl<S: Stream> Session<S> {
    /// A connection that nothing was read from. `sniff`: HTTP/2 may be spoken by prior knowledge.
    pub(super) fn new(server: Rc<Server>, stream: S, peer: Peer, sniff: bool) -> Self {
        let timer = server.local.timers.timer();
        Self::again(server, Silent { stream, timer, peer, served: 0, sniff, misplaced: false }, false)
    }

    /// One that was silent.
    pub(super) fn of_silent(server: Rc<Server>, silent: Silent<S>) -> Self {
        Self::again(server, silent, true)
    }

    fn again(server: Rc<Server>, silent: Silent<S>, was_silent: bool) -> Self {
        let Silent { stream, timer, peer, served, sniff, misplaced } = silent;
        Self { server, peer, timer, stream, input: BytesMut::new(), sniff, served, misplaced, was_silent }
    }

    /// One of which this was read.
    pub(super) fn begun(self, input: BytesMut) -> Self {
        Self { input, ..self }
    }

    /// The same for a client that speaks plain HTTP to a port of TLS.
    pub(super) fn misplaced(self) -> Self {
        Self { misplaced: true, ..self }
    }

    /// Serves until the end, or until the client speaks HTTP/2 or nothing.
    ///
    /// What an idle connection holds is this and what [`Self::begin`] needs; all else is boxed when it begins.
    #[expect(
        clippy::manual_async_fn,
        reason = "it would hold the session twice: as its argument and as what it works on"
    )]
    pub(super) fn run(mut self) -> impl Future<Output = Left<S>> {
        async move {
            loop {
                match self.next().await {
                    Next::Request(head) => {
                        self.served = self.served.saturating_add(1);
                        if !Box::pin(self.exchange(head)).await {
                            break;
                        }
                    }
                    Next::Refused(error) => {
                        Box::pin(self.refuse(error)).await;
                        break;
                    }
                    Next::Http2 => return Left::Http2(self),
                    Next::Silence => return Left::Silent(self),
                    Next::End => break,
                }
            }
            self.server.local.buffers.give_input(std::mem::take(&mut self.input));
            Left::Nothing
        }
    }

    /// What HTTP/2 is spoken with: the stream, what was read of it, and whose it is.
    pub(super) fn into_parts(self) -> (Rc<Server>, Peer, S, BytesMut) {
        (self.server, self.peer, self.stream, self.input)
    }

    /// What is kept of a silent one. It is without input.
    pub(super) fn into_silent(self) -> Silent<S> {
        let Self { stream, timer, peer, served, sniff, misplaced, .. } = self;
        Silent { stream, timer, peer, served, sniff, misplaced }
    }

    /// Waits for the next head.
    async fn next(&mut self) -> Next {
        if self.input.is_empty()
            && let Some(next) = self.begin().await
        {
            return next;
        }
        let next = match self.first_look() {
            Ok(next) => next,
            Err(reader) => Box::pin(self.rest_of_head(reader)).await,
        };
        self.timer.disarm();
        self.timer.idle(false);
        next
    }

    /// What the bytes so far are, or who reads on: nearly every head comes in one piece.
    fn first_look(&mut self) -> Result<Next, RequestReader> {
        let Clients { head, lacks_http2, .. } = self.server.clients();
        self.sniff &= !lacks_http2;
        let mut reader = RequestReader::new(head.unwrap_or(HeadLimits::REQUEST));
        self.look(&mut reader).ok_or(reader)
    }

    /// What the bytes so far are, if they are enough.
    fn look(&mut self, reader: &mut RequestReader) -> Option<Next> {
        if self.sniff {
            match preface(&self.input) {
                Some(true) => return Some(Next::Http2),
                Some(false) => self.sniff = false,
                None => return None,
            }
        }
        match reader.feed(&mut self.input) {
            Ok(head) => head.map(Next::Request),
            Err(error) => Some(Next::Refused(error)),
        }
    }

    /// Waits for the rest of a head of which something came. From its first byte on it has so long in all, however it
    /// dribbles in. Until it is whole there is no request.
    async fn rest_of_head(&mut self, mut reader: RequestReader) -> Next {
        let time = self.server.clients().head_time;
        self.timer.arm(time.unwrap_or(self.server.local.limits.head));
        loop {
            let Self { server, stream, input, timer, .. } = self;
            let mut is_small = false;
            let more = poll_fn(|cx| {
                make_room(input);
                match poll_fill(stream, input, cx) {
                    Poll::Ready(Ok(count)) => Poll::Ready(count > 0),
                    Poll::Ready(Err(_)) => Poll::Ready(false),
                    Poll::Pending => {
                        // Nobody knows for how long.
                        if !std::mem::replace(&mut is_small, true) {
                            server.local.buffers.shrink(input);
                        }
                        timer.poll_elapsed(cx).map(|_| false)
                    }
                }
            });
            if !more.await {
                // As nginx: closed without an answer.
                return Next::End;
            }
            if let Some(next) = self.look(&mut reader) {
                return next;
            }
        }
    }

    /// Waits for the first bytes of a request, without a buffer. `None`: they are there.
    async fn begin(&mut self) -> Option<Next> {
        let Self { server, timer, stream, input, served, was_silent, .. } = self;
        let limits = &server.local.limits;
        server.local.buffers.give_input(std::mem::take(input));
        if std::mem::take(was_silent) {
            timer.arm(SILENCE);
        } else {
            let Clients { head_time, idle, .. } = server.clients();
            let limit = match served {
                0 => head_time.unwrap_or(limits.head),
                _ => idle.unwrap_or(limits.idle),
            };
            timer.arm_within(SILENCE, limit);
            match served {
                0 => timer.idle(true),
                _ => timer.rests(),
            }
        }
        let mut last_chance = false;
        let instead = poll_fn(|cx| {
            *input = server.local.buffers.input();
            match poll_fill(stream, input, cx) {
                Poll::Ready(Ok(count)) if count > 0 => return Poll::Ready(None),
                Poll::Ready(_) => return Poll::Ready(Some(Next::End)),
                Poll::Pending => server.local.buffers.give_input(std::mem::take(input)),
            }
            if server.local.closing() {
                if *served > 0 {
                    return Poll::Ready(Some(Next::End));
                }
                // A new connection has a request on its way, most likely.
                if !std::mem::replace(&mut last_chance, true) {
                    timer.arm(limits.linger);
                }
            }
            let is_over = last_chance || timer.has_to_end();
            timer.poll_elapsed(cx).map(|_| Some(if is_over { Next::End } else { Next::Silence }))
        })
        .await;
        if instead.is_none() {
            timer.free();
        }
        instead
    }

    /// Serves one request; says whether the connection goes on.
    async fn exchange(&mut self, head: Box<RequestHead>) -> bool {
        let Self { server, peer, timer, stream, input, .. } = self;
        timer.bound(server.local.limits.request);
        // The head as it is kept and as it is sent on.
        let share = server.local.quota.open(REQUEST + 2 * head.size());
        let mut record = RequestRecord::new(&server.local, peer, Some(head));
        record.info.place = self.served;
        if self.misplaced || share.is_none() {
            record.info.unrouted(server);
        }
        let Some(head) = &record.head else {
            return false;
        };
        let mut client = Client::of(head);
        let mut body = ClientBody::new(stream, input, head);
        let call = Call { server, timer, peer };
        let Some(exchange) = Exchange::new(call, &mut record) else {
            return false;
        };
        let mut reply = match share {
            Some(_) if self.misplaced => {
                pipeline::unrouted(&server.local, Reply::bad(&server.local, Bad::Plain))
            }
            Some(_) => pipeline::serve(exchange, &mut body).await,
            None => pipeline::unrouted(&server.local, Reply::overloaded(&server.local)),
        };
        let mut unread = body.into_unread();
        let info = &mut record.info;
        info.received = unread.received();

        if let Some(why) = reply.untold {
            info.untold(why);
            return false;
        }
        let tunnel = matches!(reply.body, ReplyBody::Tunnel(_));
        client.keep_alive &= unread.may_end() && !reply.close && !server.local.closing();
        client.keep_alive &= goes_on(server, self.served);
        reply.close = !client.keep_alive;
        let read = reply.read;
        let connection = (&mut *stream, &mut *input, &mut unread);
        let written = answer::write(&server.local, timer, connection, reply, client, info).await;
        info.received = unread.received();
        let is_over = timer.is_over();
        timer.bound(Duration::ZERO);
        let after = match written {
            Ok(After::Close) if tunnel => return false,
            Ok(after) => after,
            Err(error) => {
                let error = error.within(is_over);
                debug!(client = %peer.address(), %error, "answer was cut");
                server.local.metrics.failed(error.kind);
                return false;
            }
        };
        match after {
            After::Keep if unread.is_over() => true,
            After::Keep => {
                let ended = discard(&server.local, timer, (stream, input), &mut unread).await;
                info.received = unread.received();
                ended
            }
            After::Close => {
                drop(record);
                self.close(unread.is_over()).await;
                false
            }
            After::Tunnel(link) => {
                let rest = std::mem::take(input);
                upgrade::tunnel((&server.local, timer), stream, rest, *link, read, info).await;
                false
            }
        }
    }

    /// Answers a request that cannot be read, and closes.
    async fn refuse(&mut self, error: HeadError) {
        let Self { server, peer, timer, stream, input, .. } = self;
        debug!(client = %peer.address(), %error, "request refused");
        let mut record = RequestRecord::refused(&server.local, peer, input);
        record.info.unrouted(server);
        let client = Client { version: Version::Http11, to_head: false, keep_alive: false };
        let reply = pipeline::unread(&server.local, error);
        let mut unread = Unread::nothing();
        let connection = (stream, input, &mut unread);
        let written = answer::write(&server.local, timer, connection, reply, client, &mut record.info).await;
        drop(record);
        if written.is_ok() {
            self.close(false).await;
        }
    }

    /// Closes after an answer. `clean`: the client has nothing more to say that we know of; else what it still says is
    /// read for a while, for a closed socket with unread bytes resets the connection, and the answer with it.
    async fn close(&mut self, clean: bool) {
        let Self { server, timer, stream, input, .. } = self;
        let is_clean = clean && input.is_empty();
        if is_clean && S::socket(stream).is_some() {
            // Its end says it.
            return;
        }
        let limits = &server.local.limits;
        let mut time = limits.linger;
        // TLS has a word of its own for it.
        if let Some(below) = stream.below_tls() {
            if is_clean {
                below.closes();
            }
            if below.is_holding() {
                time = limits.client_send;
            }
        }
        let shut = timer.limit(time, stream.shutdown()).await;
        if !matches!(shut, Ok(Ok(()))) || is_clean {
            return;
        }
        hear_out(&server.local, timer, (stream, input)).await;
    }
}

/// Whether the fleet lets a connection live on that has served so many requests.
fn goes_on(server: &Server, served: u32) -> bool {
    let said = server.clients();
    let most = said.requests.unwrap_or(server.local.limits.requests);
    said.keeps() && usize::try_from(served).is_ok_and(|served| served < most)
}

/// Whether the bytes are HTTP/2's first; `None` while they may become it.
fn preface(bytes: &[u8]) -> Option<bool> {
    let some = bytes.len().min(PREFACE.len());
    if bytes[..some] != PREFACE[..some] {
        return Some(false);
    }
    (some == PREFACE.len()).then_some(true)
}

#[cfg(test)]
mod tests;
