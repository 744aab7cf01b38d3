//! Sends one request over one connection, until the head of its response.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use thiserror::Error;

use super::link::Link;
use crate::codec::body::{Joining, RequestBody};
use crate::codec::error::{Kind, ProxyError};
use crate::codec::fcgi::Said;
use crate::codec::guard::{HeadError, Limits as HeadLimits};
use crate::codec::h1::{BodyReader, BodyWriter, CgiReader, ResponseReader};
use crate::codec::head::{ResponseHead, hop};
use crate::codec::outgoing::Outgoing;
use crate::local::Local;
use crate::local::pipes::bodies::BodyPipe;
use crate::local::stall::Stall;
use crate::local::timer::Timer;
use crate::table::Timeouts;
use crate::upstream::payload::Payload;
use crate::upstream::wire::Wire;
use hold::Hold;
pub(crate) use rest::Rest;

mod hold;
mod rest;

/// Maximum number of interim responses before the final one; more are an attack or a fault.
const INTERIM: usize = 32;

/// A request as it is written to any endpoint.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    /// Its head.
    pub(crate) head: &'a [u8],
    /// Writes the framing of its body.
    pub(crate) writer: BodyWriter,
    /// Whether it is a HEAD request.
    pub(crate) to_head: bool,
    /// The protocols that it requests with Upgrade.
    pub(crate) upgrade: Option<&'a [u8]>,
    /// Its timeouts.
    pub(crate) timeouts: Timeouts,
    /// Maximum size of the response head in bytes.
    pub(crate) answer_head: usize,
    /// What applications write to their standard error, if FastCGI is used.
    pub(crate) said: Option<&'a Rc<Said>>,
}

/// The head of a response.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) head: Box<ResponseHead>,
    /// Reads the response body.
    pub(crate) body: BodyReader,
    /// Whether the request was sent completely; if not, the connection cannot be reused.
    pub(crate) whole: bool,
    /// What is still to be sent of a body that is streamed.
    pub(crate) rest: Option<Box<Rest>>,
    /// Whether it waited for its client, so that the time until its head is not its endpoint's.
    pub(crate) was_held: bool,
}

/// A failed attempt.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: ProxyError,
    /// Whether the kernel accepted any byte of the request.
    pub(crate) sent: bool,
    /// Whether any byte of a response was received.
    pub(crate) answered: bool,
}

/// The rest of the body would be taken for what the tunnel carries, or the reverse (RFC 9110 section 7.8).
#[derive(Debug, Error)]
#[error("it switched protocols before it had the whole request")]
struct TooSoon;

/// Sends a request and waits for the head of its final response. An early response stops the sending of a buffered body,
/// as in nginx; what remains of a streamed one can be sent while the response is relayed.
///
/// # Errors
/// What went wrong, and how far it had got.
pub(crate) async fn send<B: RequestBody>(
    local: &Local,
    timer: &Timer,
    link: &mut Link,
    request: &Request<'_>,
    payload: &mut Payload<'_, B>,
) -> Result<Answered, Failed> {
    let rest = payload.rest(local, link.stream.socket().is_some());
    let rest = rest.map_err(|error| Failed { error, sent: false, answered: false })?;
    let mut sending = Sending::new(request, rest);
    let mut answer = Answer::new(request);
    let mut hold = Hold::new(local.limits.client_send);
    sending.stall.begin(timer, request.timeouts.send, None);
    let outcome = poll_fn(|cx| {
        let sent = sending.poll(local, timer, link, payload, cx);
        // Here, because a client that gives up ends this at any time.
        link.has_sent(sending.written());
        if let Err(error) = sent {
            return Poll::Ready(Err(error));
        }
        let answered = match hold.poll((&mut sending, timer), link, payload, cx) {
            Poll::Ready(()) => {
                let most = payload.outlet().map_or(usize::MAX, |outlet| outlet.most());
                answer.poll(local, timer, (link, most), request, cx)
            }
            Poll::Pending => Poll::Pending,
        };
        match answered {
            Poll::Ready(Ok(head)) => return Poll::Ready(Ok(head)),
            Poll::Ready(Err(error)) => {
                // The error of the sending is more informative than the end of the connection that followed.
                return Poll::Ready(Err(match sending.broken.take() {
                    Some(cause) => ProxyError::of(error.kind, cause),
                    None => error,
                }));
            }
            Poll::Pending => {}
        }
        if sending.state == State::Sent && payload.poll_gone(cx).is_ready() {
            return Poll::Ready(Err(Kind::ClientGone.into()));
        }
        hold.poll_late((&mut sending, timer), link, payload, cx).map(|late| Err(late.into()))
    })
    .await;
    timer.disarm();
    let sent = sending.written() > 0;
    let was_held = hold.end(link, payload);
    let whole = sending.state == State::Sent;
    match outcome {
        Ok((head, _)) if head.status == 101 && !whole => {
            Err(Failed { error: ProxyError::of(Kind::InvalidHead, TooSoon), sent, answered: true })
        }
        Ok((head, body)) => {
            let rest = Rest::of(sending, payload, head.status, local).map(Box::new);
            Ok(Answered { head, body, whole, rest, was_held })
        }
        Err(error) => Err(Failed { error, sent, answered: answer.begun }),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// More pieces are to come.
    Sending,
    /// The last piece is being written.
    Ending,
    /// The kernel has accepted everything.
    Sent,
    /// The endpoint accepts no more data; it may still have responded.
    Broken,
}

struct Sending<'r> {
    out: Outgoing<'r>,
    /// What follows the pieces of a body.
    rest: Option<Box<BodyPipe>>,
    writer: BodyWriter,
    place: usize,
    state: State,
    /// Whether there is nothing to send until the client sends more.
    starved: bool,
    broken: Option<io::Error>,
    timeouts: Timeouts,
    /// Whether the endpoint takes some of what was sent.
    stall: Stall,
}

impl<'r> Sending<'r> {
    fn new(request: &Request<'r>, rest: Option<Box<BodyPipe>>) -> Self {
        Self {
            out: Outgoing::new(request.head),
            rest,
            writer: request.writer.clone(),
            place: 0,
            state: State::Sending,
            starved: false,
            broken: None,
            timeouts: request.timeouts,
            stall: Stall::new(),
        }
    }

    /// Sends what can be sent now. Errors are the client's; the endpoint's are kept until its side has been read.
    fn poll<B: RequestBody + ?Sized>(
        &mut self,
        local: &Local,
        timer: &Timer,
        link: &mut Link,
        payload: &mut Payload<'_, B>,
        cx: &mut Context<'_>,
    ) -> Result<(), ProxyError> {
        while matches!(self.state, State::Sending | State::Ending) {
            let more = self.gather(local, payload, cx)?;
            if self.out.is_empty() && self.state == State::Sending {
                self.starve(timer);
                return Ok(());
            }
            if std::mem::take(&mut self.starved) {
                self.stall.begin(timer, self.timeouts.send, None);
            }
            let before = self.written();
            let written = self.poll_write(&mut link.stream, cx);
            if matches!(written, Poll::Ready(Ok(()))) {
                payload.moves();
            }
            match written {
                Poll::Ready(Ok(())) if self.state == State::Ending => {
                    self.state = State::Sent;
                    self.stall.begin(timer, self.timeouts.read, None);
                }
                Poll::Ready(Ok(())) if more => self.stall.begin(timer, self.timeouts.send, None),
                Poll::Ready(Ok(())) => self.starve(timer),
                Poll::Ready(Err(error)) => {
                    self.broken = Some(error);
                    self.state = State::Broken;
                }
                Poll::Pending => {
                    payload.waits(local, self.out.held())?;
                    if self.written() > before {
                        self.stall.begin(timer, self.timeouts.send, None);
                    }
                    return Ok(());
                }
            }
            if !more {
                // The client has nothing more right now, and will wake the task.
                return Ok(());
            }
        }
        Ok(())
    }

    /// Bytes that the transport has accepted.
    fn written(&self) -> u64 {
        self.out.written() + self.rest.as_ref().map_or(0, |rest| rest.taken()) as u64
    }

    /// Writes what can be written.
    fn poll_write(&mut self, wire: &mut Wire, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.out.poll_write(wire, cx))?;
        match (&mut self.rest, wire.socket()) {
            (Some(rest), Some(socket)) if self.state == State::Ending => rest.poll_drain(socket, cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Ready when the side that is waited for was silent for too long. An endpoint is not, which takes some of what the
    /// kernel has.
    fn poll_over(&mut self, timer: &Timer, link: &Link, cx: &mut Context<'_>) -> Poll<()> {
        match self.starved {
            true => timer.poll_elapsed(cx).map(|_| ()),
            false => self.stall.poll_over(timer, cx, || link.stream.unacknowledged()),
        }
    }

    /// Waits for the client: its timeout starts when it goes silent.
    fn starve(&mut self, timer: &Timer) {
        if !std::mem::replace(&mut self.starved, true) {
            timer.arm(self.timeouts.client_body);
        }
    }

    /// Takes pieces while there is room for them; returns whether there may be more at once.
    fn gather<B: RequestBody + ?Sized>(
        &mut self,
        local: &Local,
        payload: &mut Payload<'_, B>,
        cx: &mut Context<'_>,
    ) -> Result<bool, ProxyError> {
        let mut joining = Joining::default();
        while self.state == State::Sending && !self.out.is_full() {
            match payload.poll_piece(self.place, cx)? {
                Poll::Ready(Some(piece)) => {
                    self.place += 1;
                    local.metrics.received.add(piece.len() as u64);
                    self.push(joining.push(piece))?;
                }
                Poll::Ready(None) => {
                    self.push(joining.rest())?;
                    if let Some(rest) = &self.rest {
                        local.metrics.received.add(rest.held() as u64);
                        // It has a length, so there is nothing around it.
                        let framed = self.writer.frame(rest.held());
                        framed.map_err(|error| ProxyError::of(Kind::ClientBody, error))?;
                    }
                    let end = self.writer.end();
                    self.out.push_static(end.map_err(|error| ProxyError::of(Kind::ClientBody, error))?);
                    self.state = State::Ending;
                }
                Poll::Pending => {
                    // Sent now: the rest may take long to arrive.
                    self.push(joining.rest())?;
                    return Ok(false);
                }
            }
        }
        self.push(joining.rest())?;
        Ok(true)
    }

    fn push(&mut self, piece: Option<Bytes>) -> Result<(), ProxyError> {
        let Some(mut piece) = piece else { return Ok(()) };
        while !piece.is_empty() {
            let part = piece.split_to(piece.len().min(self.writer.most()));
            let frame = self.writer.frame(part.len());
            let frame = frame.map_err(|error| ProxyError::of(Kind::ClientBody, error))?;
            self.out.push(frame, part);
        }
        Ok(())
    }

    /// The error for the side that has been silent for too long.
    fn waits_for(&self) -> Kind {
        match self.state {
            State::Sending if self.out.is_empty() => Kind::ClientTimeout,
            State::Sending | State::Ending => Kind::SendTimeout,
            State::Sent | State::Broken => Kind::ReadTimeout,
        }
    }
}

struct Answer {
    reader: Reader,
    interim: usize,
    begun: bool,
}

/// The parser of the response head.
enum Reader {
    Http(ResponseReader),
    Fcgi(Box<CgiReader>),
}

impl Reader {
    /// The head, and the reader for the body.
    fn feed(
        &mut self,
        input: &mut BytesMut,
        to_head: bool,
    ) -> Result<Option<(Box<ResponseHead>, BodyReader)>, HeadError> {
        match self {
            Self::Http(reader) => {
                let head = reader.feed(input, to_head)?;
                Ok(head.map(|head| {
                    let body = BodyReader::of_answer(head.framing);
                    (head, body)
                }))
            }
            Self::Fcgi(reader) => reader.feed(input, to_head),
        }
    }
}

impl Answer {
    fn new(request: &Request<'_>) -> Self {
        let limits = HeadLimits::response(request.answer_head);
        let reader = match request.said {
            None => Reader::Http(ResponseReader::new(limits)),
            Some(said) => Reader::Fcgi(Box::new(CgiReader::new(limits, Rc::clone(said)))),
        };
        Self { reader, interim: 0, begun: false }
    }

    /// Reads until the head of the final response is complete, at most `most` bytes at a time.
    fn poll(
        &mut self,
        local: &Local,
        timer: &Timer,
        (link, most): (&mut Link, usize),
        request: &Request<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(Box<ResponseHead>, BodyReader), ProxyError>> {
        loop {
            while !link.input.is_empty() {
                let (head, body) = match self.reader.feed(&mut link.input, request.to_head) {
                    Ok(Some(found)) => found,
                    Ok(None) => break,
                    Err(error) => return Poll::Ready(Err(ProxyError::of(Kind::InvalidHead, error))),
                };
                if !head.is_interim() {
                    let given = head.upgrade.as_deref().unwrap_or_default();
                    let asked = |asked| hop::was_asked(asked, given);
                    let unasked = head.status == 101 && !request.upgrade.is_some_and(asked);
                    return Poll::Ready(if unasked {
                        Err(Kind::InvalidHead.into())
                    } else {
                        Ok((head, body))
                    });
                }
                self.interim += 1;
                if self.interim > INTERIM {
                    return Poll::Ready(Err(Kind::InvalidHead.into()));
                }
            }
            match link.poll_fill(&local.buffers, most, cx) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(Kind::Closed.into())),
                Poll::Ready(Ok(_)) => {
                    self.begun = true;
                    timer.arm(request.timeouts.read);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(ProxyError::of(Kind::Closed, error))),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

#[cfg(test)]
mod tests;
