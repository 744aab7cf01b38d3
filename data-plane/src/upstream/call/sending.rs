//! Sends the body of a call to its endpoint.
//!
//! What the connection is given cannot be taken back. So no more is read while it is blocked, and what is available
//! together goes in one piece: each frame has a header.

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::codec::body::{Joining, RequestBody};
use crate::codec::error::{Kind, ProxyError};
use crate::local::quota::{Quota, Share};
use crate::table::Sizes;
use crate::upstream::multiplexed::CallSlot;

/// Bytes of a body that the endpoint may have taken and that are kept until there is a response, if it is not buffered: it may
/// report that it has not processed them. Of a call that it never looks at it takes no more than the window that it offers,
/// usually one byte less than this.
const KEPT: usize = 64 * 1024;

/// Bytes of a body that are included in the price of a request.
const LITTLE: usize = 4 * 1024;

/// A request body: what was read and has to be sent again, and the rest.
pub(crate) struct Body {
    again: VecDeque<Bytes>,
    rest: Box<dyn RequestBody>,
    /// The budget for what is kept of it.
    kept: Option<Share>,
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
    body: Body,
    /// What was read of the body so far, until there is a response or it is too much. Nothing of one that is buffered.
    kept: Option<VecDeque<Bytes>>,
    quota: Rc<Quota>,
    /// The budget for what the endpoint does not accept.
    untaken: Option<Share>,
    sizes: Sizes,
    /// Read, and to be joined with what is already available.
    joining: Joining,
    /// Joined, and not accepted by the endpoint yet.
    held: Bytes,
    read: u64,
    sent: u64,
    /// Bytes that the connection was given since the connection was last seen to accept data.
    given: usize,
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
        Self { again: VecDeque::new(), rest, kept: None }
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
    pub(super) fn new(mut body: Body, (sizes, quota): (Sizes, &Rc<Quota>), ended: bool) -> Self {
        let is_buffered = body.again.is_empty() && body.rest.rewind();
        Self {
            body,
            kept: (!is_buffered).then(VecDeque::new),
            quota: Rc::clone(quota),
            untaken: None,
            sizes,
            joining: Joining::default(),
            held: Bytes::new(),
            read: 0,
            sent: 0,
            given: 0,
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
        self.keep_nothing();
    }

    /// The complete body from the beginning, if it is buffered or all of it was kept.
    pub(super) fn whole(mut self) -> Option<Body> {
        let Body { again, mut rest, kept: share } = self.body;
        let Some(mut kept) = self.kept else {
            return rest.rewind().then(|| Body::new(rest));
        };
        kept.extend(self.joining.rest());
        kept.extend(again);
        Some(Body { again: kept, rest, kept: share })
    }

    /// Sends as much as possible.
    pub(super) fn poll(&mut self, place: &CallSlot, cx: &mut Context<'_>) {
        if self.done {
            return;
        }
        if place.poll_flow(cx).is_ready() {
            self.given = 0;
        }
        while !self.done {
            match self.step(place, cx) {
                Ok(Poll::Ready(())) => {}
                Ok(Poll::Pending) => return,
                Err(error) => {
                    self.done = true;
                    place.cancel();
                    self.broken = Some(error);
                }
            }
        }
    }

    fn step(&mut self, place: &CallSlot, cx: &mut Context<'_>) -> Result<Poll<()>, ProxyError> {
        self.blocked = place.poll_flow(cx).is_pending();
        if self.blocked {
            self.waits()?;
            return Ok(Poll::Pending);
        }
        if self.held.is_empty() {
            self.read(cx)?;
        }
        if self.held.is_empty() && !self.ended {
            return Ok(Poll::Pending);
        }
        // An end without data needs no window.
        let room = match self.held.len() {
            0 => 0,
            _ => match place.poll_capacity(cx) {
                Poll::Ready(Ok(room)) => room,
                // An endpoint that accepts no more may still have responded.
                Poll::Ready(Err(_)) => {
                    self.done = true;
                    return Ok(Poll::Ready(()));
                }
                Poll::Pending => {
                    self.blocked = true;
                    self.waits()?;
                    return Ok(Poll::Pending);
                }
            },
        };
        self.untaken = None;
        let part = self.held.split_to(room.min(self.held.len()));
        self.sent += part.len() as u64;
        self.given += part.len();
        let is_end = self.ended && self.held.is_empty() && self.joining.is_empty();
        self.done = place.data(part, is_end).is_err() || is_end;
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

    /// Keeps a piece for sending it again, while memory is plentiful.
    fn keep(&mut self, piece: &Bytes) {
        if !self.has_room() {
            self.keep_nothing();
        }
        if let Some(kept) = &mut self.kept {
            kept.push_back(piece.clone());
        }
    }

    /// Whether everything that was read may be kept.
    fn has_room(&mut self) -> bool {
        let read = usize::try_from(self.read).unwrap_or(usize::MAX);
        if self.kept.is_none() || self.sent >= KEPT as u64 {
            return false;
        }
        if read <= LITTLE {
            return true;
        }
        let share = self.body.kept.get_or_insert_with(|| self.quota.nothing());
        share.amount() >= read || share.grow(read - share.amount())
    }

    fn keep_nothing(&mut self) {
        (self.kept, self.body.kept) = (None, None);
    }

    /// The endpoint accepts no data: what it was to get is charged.
    ///
    /// # Errors
    /// There is no room for it. What the connection was given is not taken back.
    fn waits(&mut self) -> Result<(), ProxyError> {
        // What is kept was charged.
        let here = if self.kept.is_some() { 0 } else { self.held.len() };
        let bytes = here + self.given;
        let fits = bytes <= LITTLE || self.quota.cover(&mut self.untaken, bytes);
        if fits || here == 0 { Ok(()) } else { Err(Kind::NoRoom.into()) }
    }
}
