//! Sends the body of a call to its endpoint.
//!
//! h2 keeps each piece that it is given until it is sent, at some hundred bytes of overhead, however small it is. So
//! no more is read while the connection is blocked, and what is available together goes in one piece.

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::{Reason, SendStream};

use crate::codec::body::{Joining, RequestBody};
use crate::codec::error::{Kind, ProxyError};
use crate::table::Sizes;
use crate::upstream::flow::Flow;

/// Bytes of a body that are kept until there is a response: an endpoint may report that it has not processed them.
const KEPT: usize = 64 * 1024;

/// A request body: what was read and has to be sent again, and the rest.
pub(crate) struct Body {
    again: VecDeque<Bytes>,
    rest: Box<dyn RequestBody>,
}

/// The progress of a body, and what is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// The client, which has sent this much.
    Read(u64),
    /// The endpoint, which has accepted this much.
    Sent(u64),
    /// Nothing.
    Done,
}

/// The transfer of a request body.
pub(super) struct Sending {
    out: SendStream<Bytes>,
    /// Whether the connection accepts data.
    flow: Rc<Flow>,
    body: Body,
    /// What was read of the body so far, until there is a response or it is too much.
    kept: Option<VecDeque<Bytes>>,
    sizes: Sizes,
    /// Read, and to be joined with what is already available.
    joining: Joining,
    /// Joined, and not accepted by the endpoint yet.
    held: Bytes,
    read: u64,
    sent: u64,
    /// The body was read completely.
    ended: bool,
    /// The endpoint accepts no data.
    blocked: bool,
    done: bool,
    /// Why it broke off.
    broken: Option<ProxyError>,
}

impl Body {
    /// A body of which nothing was read.
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
    /// The transfer of a body, which is empty if it has `ended`.
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

    /// The progress.
    pub(super) fn progress(&self) -> Progress {
        match (self.done, self.blocked) {
            (true, _) => Progress::Done,
            (_, true) => Progress::Sent(self.sent),
            (_, false) => Progress::Read(self.read),
        }
    }

    /// Why it broke off; returned once.
    pub(super) fn broken(&mut self) -> Option<ProxyError> {
        self.broken.take()
    }

    /// A response has arrived: the body will not be sent again.
    pub(super) fn is_answered(&mut self) {
        self.kept = None;
    }

    /// The complete body from the beginning, if all of it was kept.
    pub(super) fn whole(mut self) -> Option<Body> {
        let mut kept = self.kept?;
        kept.extend(self.joining.rest());
        let Body { again, rest } = self.body;
        kept.extend(again);
        Some(Body { again: kept, rest })
    }

    /// Sends as much as possible.
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
            // An endpoint that accepts no more may still have responded.
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

    /// Reads the next pieces that are available, as far as they fit into one.
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

    /// Keeps a piece for sending it again.
    fn keep(&mut self, piece: &Bytes) {
        if self.read > KEPT as u64 {
            self.kept = None;
        }
        if let Some(kept) = &mut self.kept {
            kept.push_back(piece.clone());
        }
    }
}
