//! The body of a call on its way to its endpoint.
//!
//! What is read of it and is handed to h2 is kept there until it is sent, piece by piece and at some hundred bytes for each,
//! however small it is. So no more is read while the connection takes nothing, and what is there together goes in one piece.

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::{Reason, SendStream};

use crate::codec::body::{Joining, RequestBody};
use crate::codec::error::{Kind, ProxyError};
use crate::table::Sizes;
use crate::upstream::flow::Flow;

/// Bytes of a body that are kept until there is an answer: an endpoint may say that it has done nothing with them.
const KEPT: usize = 64 * 1024;

/// A request's body: what was read of it and is to be sent again, and the rest.
pub(crate) struct Body {
    again: VecDeque<Bytes>,
    rest: Box<dyn RequestBody>,
}

/// How far a body is, and who is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// For its client, which has sent so much.
    Read(u64),
    /// For its endpoint, which has taken so much.
    Sent(u64),
    /// For nobody.
    Done,
}

/// The way of the request's body.
pub(super) struct Sending {
    out: SendStream<Bytes>,
    /// Whether the connection takes bytes.
    flow: Rc<Flow>,
    body: Body,
    /// What was read of the body so far, while there is no answer and as long as it is not too much.
    kept: Option<VecDeque<Bytes>>,
    sizes: Sizes,
    /// Read, and put together with what comes next where that is there already.
    joining: Joining,
    /// Put together, and not taken by the endpoint yet.
    held: Bytes,
    read: u64,
    sent: u64,
    /// All of it was read.
    ended: bool,
    /// The endpoint takes nothing.
    blocked: bool,
    done: bool,
    /// Why it broke off.
    broken: Option<ProxyError>,
}

impl Body {
    /// Of which nothing was read.
    pub(crate) fn new(rest: Box<dyn RequestBody>) -> Self {
        Self { again: VecDeque::new(), rest }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ProxyError>> {
        match self.again.pop_front() {
            Some(piece) => Poll::Ready(Ok(Some(piece))),
            None => self.rest.poll_piece(cx),
        }
    }
}

impl Sending {
    /// The way of a body, of which there is none if it has `ended`.
    pub(super) fn new(
        out: SendStream<Bytes>,
        flow: &Rc<Flow>,
        body: Body,
        sizes: Sizes,
        ended: bool,
    ) -> Self {
        Self {
            out,
            flow: Rc::clone(flow),
            body,
            kept: Some(VecDeque::new()),
            sizes,
            joining: Joining::default(),
            held: Bytes::new(),
            read: 0,
            sent: 0,
            ended,
            blocked: false,
            done: ended,
            broken: None,
        }
    }

    /// How far it is.
    pub(super) fn progress(&self) -> Progress {
        match (self.done, self.blocked) {
            (true, _) => Progress::Done,
            (_, true) => Progress::Sent(self.sent),
            (_, false) => Progress::Read(self.read),
        }
    }

    /// Why it broke off, once.
    pub(super) fn broken(&mut self) -> Option<ProxyError> {
        self.broken.take()
    }

    /// It is not sent again.
    pub(super) fn is_answered(&mut self) {
        self.kept = None;
    }

    /// The body as it was before anything of it was read, if all of that is kept.
    pub(super) fn whole(mut self) -> Option<Body> {
        let mut kept = self.kept?;
        kept.extend(self.joining.rest());
        let Body { again, rest } = self.body;
        kept.extend(again);
        Some(Body { again: kept, rest })
    }

    /// Moves it on as far as it goes.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) {
        while !self.done {
            match self.step(cx) {
                Ok(Poll::Ready(())) => {}
                Ok(Poll::Pending) => return,
                Err(error) => {
                    self.done = true;
                    self.out.send_reset(Reason::CANCEL);
                    self.broken = Some(error);
                }
            }
        }
    }

    fn step(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, ProxyError> {
        self.blocked = self.flow.poll(cx).is_pending();
        if self.blocked {
            return Ok(Poll::Pending);
        }
        if self.held.is_empty() {
            self.read(cx)?;
        }
        if self.held.is_empty() {
            if !self.ended {
                return Ok(Poll::Pending);
            }
            self.done = true;
            // An endpoint that takes no more may have answered all the same.
            let _ = self.out.send_data(Bytes::new(), true);
            return Ok(Poll::Ready(()));
        }
        self.out.reserve_capacity(self.held.len());
        let room = match self.out.capacity() {
            0 => match self.out.poll_capacity(cx) {
                Poll::Ready(Some(Ok(room))) => room,
                Poll::Ready(Some(Err(_)) | None) => {
                    self.done = true;
                    return Ok(Poll::Ready(()));
                }
                Poll::Pending => {
                    self.blocked = true;
                    return Ok(Poll::Pending);
                }
            },
            room => room,
        };
        let part = self.held.split_to(room.min(self.held.len()));
        self.sent += part.len() as u64;
        if self.out.send_data(part, false).is_err() {
            self.done = true;
        }
        Ok(Poll::Ready(()))
    }

    /// Takes the next piece in hand: what is there, as far as it fits in one.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<(), ProxyError> {
        let mut next = None;
        while next.is_none() && !self.ended && !self.joining.is_large() {
            match self.body.poll_piece(cx)? {
                Poll::Ready(Some(piece)) => {
                    self.read += piece.len() as u64;
                    if self.sizes.exceeded(self.read) {
                        return Err(Kind::BodyTooLarge.into());
                    }
                    next = self.joining.push(piece);
                }
                Poll::Ready(None) => self.ended = true,
                Poll::Pending => break,
            }
        }
        if let Some(piece) = next.or_else(|| self.joining.rest()) {
            self.keep(&piece);
            self.held = piece;
        }
        Ok(())
    }

    /// Keeps a piece to send it again.
    fn keep(&mut self, piece: &Bytes) {
        if self.read > KEPT as u64 {
            self.kept = None;
        }
        if let Some(kept) = &mut self.kept {
            kept.push_back(piece.clone());
        }
    }
}
