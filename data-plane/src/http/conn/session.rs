//! An HTTP/1.1 connection: one request after another, answered in order.

use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncWriteExt;
use tracing::debug;

use super::answer::{self, After, Cut};
use super::client_body::{ClientBody, Unread};
use super::discard::discard;
use super::silent::Silent;
use crate::codec::frame::preface;
use crate::codec::guard::{HeadError, Limits as HeadLimits};
use crate::codec::h1::{Client, RequestReader};
use crate::codec::head::{RequestHead, Version};
use crate::codec::stream::{Stream, make_room, poll_fill};
use crate::http::patience::hear_out;
use crate::http::peer::Peer;
use crate::http::pipeline::log::{REQUEST, RequestRecord};
use crate::http::pipeline::{self, Call, Exchange};
use crate::http::reply::{Bad, Reply, ReplyBody, Untold};
use crate::http::server::Server;
use crate::http::upgrade;
use crate::local::boxed::boxed;
use crate::local::buffers::Buffers;
use crate::local::quota::{Quota, Share};
use crate::local::timer::{SILENCE, Timer};
use crate::table::policy::clients::Clients;

/// Capacity in bytes up to which the buffer of a head that is still arriving may use the rest of the memory: nearly
/// every head is complete with the next packet.
const SMALL: usize = 4 * 1024;

/// Why a head did not arrive whole, as a status in the log: its client has disconnected, or was too slow, or there is no
/// memory for more of it.
const GONE: u16 = 400;
const TOO_SLOW: u16 = 408;
const NO_ROOM: u16 = 503;

/// More bytes than a kernel sends before the client's has acknowledged any (RFC 6928).
const LONG: u64 = 14 * 1024;

/// A connection between two requests.
pub(super) struct Session<S> {
    server: Rc<Server>,
    peer: Peer,
    timer: Timer,
    stream: S,
    /// Received bytes that were not parsed yet. Holds no memory while the connection is idle.
    input: BytesMut,
    /// Whether the first bytes may be HTTP/2.
    sniff: bool,
    /// Requests so far. Before the first one the connection is new, not idle.
    served: u32,
    /// Whether plain HTTP is spoken on a TLS port: every request gets nginx' error page for that.
    misplaced: bool,
    /// Whether it was parked, and nothing is known to have arrived since: its timeouts keep running.
    was_silent: bool,
    /// Whether its client had closed its half when it was woken.
    saw_end: bool,
    /// Whether its client may not have received all responses although they are sent: it has sent a request before it
    /// had the response to the one before, or one was [`LONG`].
    may_lag: bool,
}

/// What remains of a connection when its task ends.
pub(super) enum Left<S> {
    Nothing,
    /// The client speaks HTTP/2.
    Http2(Session<S>),
    /// The connection is idle and can be parked.
    Silent(Session<S>),
}

/// Who ends a connection after a response.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closing {
    /// The client: it has said that the request is its last.
    Client,
    /// The proxy: the client may already be sending the next request.
    Proxy,
}

/// What happens to the connection after a request.
enum Then {
    /// It may serve another one.
    Stay,
    /// It ends at once.
    Break,
    /// It is [closed](Session::close): whether the request was read to its end, and who ends it.
    Close(bool, Closing),
}

/// The next event of a connection.
enum Next {
    Request(Box<RequestHead>),
    Refused(HeadError),
    /// A head that did not arrive whole, with the status that nginx logs of it.
    Unfinished(u16),
    Http2,
    Silence,
    /// The client disconnected, was too slow, or was idle for too long.
    End,
}

impl<S: Stream> Session<S> {
    /// A new connection. `sniff`: HTTP/2 with prior knowledge is allowed.
    pub(super) fn new(server: Rc<Server>, stream: S, peer: Peer, sniff: bool) -> Self {
        let timer = server.local.timers.timer();
        Self::again(server, Silent { stream, timer, peer, served: 0, sniff, misplaced: false })
    }

    /// A connection that was parked. `saw_end`: its client has closed its half by now.
    pub(super) fn of_silent(server: Rc<Server>, silent: Silent<S>, saw_end: bool) -> Self {
        Self { was_silent: true, saw_end, ..Self::again(server, silent) }
    }

    fn again(server: Rc<Server>, silent: Silent<S>) -> Self {
        let Silent { stream, timer, peer, served, sniff, misplaced } = silent;
        let (was_silent, saw_end, may_lag) = (false, false, false);
        let input = BytesMut::new();
        Self { server, peer, timer, stream, input, sniff, served, misplaced, was_silent, saw_end, may_lag }
    }

    /// A connection of which these bytes were already read.
    pub(super) fn begun(self, input: BytesMut) -> Self {
        Self { input, ..self }
    }

    /// The same for a client that speaks plain HTTP on a TLS port.
    pub(super) fn misplaced(self) -> Self {
        Self { misplaced: true, ..self }
    }

    /// Serves until the end, or until the client switches to HTTP/2 or goes idle.
    ///
    /// An idle connection holds this future and what [`Self::begin`] needs; everything else is boxed when it starts.
    #[expect(
        clippy::manual_async_fn,
        reason = "it would hold the session twice: as its argument and as what it works on"
    )]
    pub(super) fn run(mut self) -> impl Future<Output = Left<S>> {
        async move {
            loop {
                let then = match self.next().await {
                    Next::Request(head) => {
                        self.served = self.served.saturating_add(1);
                        boxed(|| self.exchange(head)).await
                    }
                    Next::Refused(error) => Box::pin(self.refuse(error)).await,
                    Next::Unfinished(status) => {
                        self.give_up(status);
                        Then::Break
                    }
                    Next::Http2 => return Left::Http2(self),
                    Next::Silence => return Left::Silent(self),
                    Next::End => Then::Break,
                };
                match then {
                    Then::Stay => {}
                    Then::Break => break,
                    Then::Close(is_read, by) => {
                        // Nothing of the request is held any more: its client may take long.
                        Box::pin(self.close(is_read, by)).await;
                        break;
                    }
                }
            }
            self.server.local.buffers.give_input(std::mem::take(&mut self.input));
            Left::Nothing
        }
    }

    /// The parts needed to continue as HTTP/2: the stream, the bytes read from it, and its peer.
    pub(super) fn into_parts(self) -> (Rc<Server>, Peer, S, BytesMut) {
        (self.server, self.peer, self.stream, self.input)
    }

    /// The state that is kept of an idle connection. It has no unread input.
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

    /// Parses the bytes received so far, or returns the reader to continue with: nearly every head arrives in one
    /// piece.
    fn first_look(&mut self) -> Result<Next, RequestReader> {
        let Clients { head, lacks_http2, .. } = self.server.clients();
        self.sniff &= !lacks_http2;
        let mut reader = RequestReader::new(head.unwrap_or(HeadLimits::REQUEST));
        self.look(&mut reader).ok_or(reader)
    }

    /// Parses the bytes received so far, if they are enough.
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

    /// Waits for the rest of a partial head. The timeout is for the whole head from its first byte, however slowly it
    /// arrives. Until the head is complete there is no request, but what there is of it is counted while it waits.
    async fn rest_of_head(&mut self, mut reader: RequestReader) -> Next {
        let time = self.server.clients().head_time;
        self.timer.arm(time.unwrap_or(self.server.local.limits.head));
        let mut share = None;
        loop {
            let Self { server, peer, stream, input, timer, .. } = self;
            let mut is_small = false;
            let more = poll_fn(|cx| {
                make_room(input);
                match poll_fill(stream, input, cx) {
                    Poll::Ready(Ok(count)) if count > 0 => Poll::Ready(Ok(())),
                    Poll::Ready(_) => Poll::Ready(Err(GONE)),
                    Poll::Pending => {
                        // This may take any time, so the buffer is shrunk.
                        if !std::mem::replace(&mut is_small, true) {
                            server.local.buffers.shrink(input);
                            let is_counted =
                                counted(&server.local.quota, &mut share, Buffers::room_of(input));
                            if !(is_counted && peer.charge(stream.incomplete())) {
                                return Poll::Ready(Err(NO_ROOM));
                            }
                        }
                        timer.poll_elapsed(cx).map(|_| Err(TOO_SLOW))
                    }
                }
            });
            if let Err(status) = more.await {
                return Next::Unfinished(status);
            }
            if let Some(next) = self.look(&mut reader) {
                return next;
            }
        }
    }

    /// Waits for the first bytes of a request, without a buffer. `None`: they have arrived.
    async fn begin(&mut self) -> Option<Next> {
        let Self { server, peer, timer, stream, input, served, was_silent, .. } = self;
        let limits = &server.local.limits;
        server.local.buffers.give_input(std::mem::take(input));
        let was_silent = std::mem::take(was_silent);
        if was_silent {
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
            if !peer.charge(stream.incomplete()) {
                return Poll::Ready(Some(Next::End));
            }
            if server.local.closing() {
                if *served > 0 && was_silent {
                    return Poll::Ready(Some(Next::End));
                }
                // A request is probably about to arrive: the first one, or, before the connection is silent, the next
                // one of a busy client, which would lose it.
                if !std::mem::replace(&mut last_chance, true) && *served == 0 {
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

    /// Serves one request.
    async fn exchange(&mut self, head: Box<RequestHead>) -> Then {
        let Self { server, peer, timer, stream, input, may_lag, saw_end, .. } = self;
        timer.bound(server.local.limits.request);
        // For the head as it is stored and as it is sent on.
        let share = server.local.quota.open(REQUEST + 2 * head.size());
        let mut record = RequestRecord::new(&server.local, peer, Some(head));
        record.info.place = self.served;
        if self.misplaced || share.is_none() {
            record.info.unrouted(server);
        }
        let Some(head) = &record.head else {
            return Then::Break;
        };
        let mut client = Client::of(head);
        let by = if client.keep_alive { Closing::Proxy } else { Closing::Client };
        let mut body = ClientBody::new((stream, input), timer, head);
        // While a worker is behind, most clients that it finds have given up.
        if std::mem::take(saw_end) || server.local.is_behind.get() {
            body.doubt();
        }
        let call = Call { server, timer, peer };
        let Some(mut exchange) = Exchange::new(call, &mut record) else {
            return Then::Break;
        };
        let mut reply = match share {
            Some(_) if self.misplaced => {
                pipeline::unrouted(&server.local, Reply::bad(&server.local, Bad::Plain))
            }
            Some(_) => pipeline::serve(&mut exchange, &mut body).await,
            None => pipeline::unrouted(&server.local, Reply::overloaded(&server.local)),
        };
        drop(exchange);
        let info = &mut record.info;
        let mut unread = body.into_unread(reply.body.sending().is_some(), info.attempts.are_defaulted());
        info.received = unread.received();

        if let Some(why) = reply.untold {
            info.untold(why);
            return Then::Break;
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
        *may_lag |= info.taken() > LONG || unread.is_over() && !input.is_empty();
        let after = match written {
            Ok(After::Close) if tunnel => return Then::Break,
            Ok(after) => after,
            Err(Cut { error, ends_with_connection }) => {
                let error = error.within(is_over);
                debug!(client = %peer.address(), %error, "answer was cut");
                server.local.metrics.failed(error.kind);
                if ends_with_connection {
                    stream.resets();
                } else if !error.kind.is_of_client() {
                    // The responses before this one are complete, and so is its head: they must not be lost.
                    return Then::Close(unread.is_over(), Closing::Proxy);
                }
                return Then::Break;
            }
        };
        match after {
            After::Keep if unread.is_over() => Then::Stay,
            After::Keep => {
                let ended = discard(&server.local, timer, (stream, input), &mut unread).await;
                info.received = unread.received();
                if ended { Then::Stay } else { Then::Break }
            }
            After::Close => Then::Close(unread.is_over(), by),
            // What an endpoint switches after it was sent all of, was read to its end.
            After::Tunnel(_) if !unread.is_over() => Then::Break,
            After::Tunnel(link) => {
                let rest = std::mem::take(input);
                upgrade::tunnel((&server.local, timer), stream, rest, *link, read, info).await;
                Then::Break
            }
        }
    }

    /// Notes a head that did not arrive whole: as in nginx, the connection is closed without a response.
    fn give_up(&self, status: u16) {
        let Self { server, peer, input, .. } = self;
        let mut record = RequestRecord::refused(&server.local, peer, input);
        record.info.unrouted(server);
        record.info.untold(Untold::Said(status));
        server.local.metrics.refusals.add(1);
    }

    /// Responds to a request that cannot be parsed.
    async fn refuse(&mut self, error: HeadError) -> Then {
        let Self { server, peer, timer, stream, input, .. } = self;
        debug!(client = %peer.address(), %error, "request refused");
        let mut record = RequestRecord::refused(&server.local, peer, input);
        record.info.unrouted(server);
        let client = Client { version: Version::Http11, to_head: false, keep_alive: false };
        let reply = pipeline::unread(&server.local, error);
        let mut unread = Unread::nothing();
        let connection = (stream, input, &mut unread);
        let written = answer::write(&server.local, timer, connection, reply, client, &mut record.info).await;
        if written.is_ok() { Then::Close(false, Closing::Proxy) } else { Then::Break }
    }

    /// Closes after a response. `is_read`: the request was read to its end. Closing a socket with unread bytes resets
    /// the connection, and the response is lost. A client that did not ask for the end may send its next request at any
    /// moment, so the sending side is shut down first, which sends the response; then what has come is read for a while,
    /// and what is still to come of a client that may lag.
    async fn close(&mut self, is_read: bool, by: Closing) {
        let Self { server, peer, timer, stream, input, may_lag, .. } = self;
        let is_clean = is_read && input.is_empty();
        server.local.buffers.give_input(std::mem::take(input));
        let is_last = is_clean && by == Closing::Client && !S::has_unread(stream);
        if is_last && S::is_socket(stream) {
            // The end of the stream is signalled by closing.
            return;
        }
        let limits = &server.local.limits;
        let mut time = limits.linger;
        // TLS has its own end of stream (close_notify).
        if let Some(below) = stream.below_tls() {
            if is_last {
                below.closes();
            }
            if below.is_holding() {
                time = limits.client_send;
            }
        }
        let shut = timer.limit(time, stream.shutdown()).await;
        if !matches!(shut, Ok(Ok(()))) || is_last {
            return;
        }
        if is_clean && !*may_lag && !S::has_unread(stream) {
            return;
        }
        hear_out(&server.local, (timer, peer), stream).await;
    }
}

/// Counts the buffer of a head that waits for the rest; `false`: too much is held for clients.
fn counted(quota: &Rc<Quota>, share: &mut Option<Share>, bytes: usize) -> bool {
    if bytes > SMALL && share.as_ref().is_none_or(|share| share.amount() <= SMALL) {
        // A head that begins is new, and refused before what has begun.
        *share = None;
        *share = quota.open(bytes);
        return share.is_some();
    }
    quota.cover(share, bytes)
}

/// Whether the fleet's limits allow a connection to continue after this many requests.
fn goes_on(server: &Server, served: u32) -> bool {
    let settings = server.clients();
    let most = settings.requests.unwrap_or(server.local.limits.requests);
    settings.keeps() && usize::try_from(served).is_ok_and(|served| served < most)
}

#[cfg(test)]
mod tests;
