//! What the tasks of one connection share: the connection, for that which reads and writes; a response and the body of a
//! request, for each stream's own.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};

use crate::codec::error::{Kind, ProxyError};
use crate::codec::h2::{Connection, Cut, Reason, Server};
use crate::codec::head::{Fields, Framing, Known, ResponseHead};
use crate::codec::hpack::encode;

/// A connection that is shared.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) connection: RefCell<Connection<Server>>,
    outdated: Cell<bool>,
}

impl Link {
    pub(super) fn new(connection: Connection<Server>) -> Rc<Self> {
        Rc::new(Self { connection: RefCell::new(connection), outdated: Cell::new(false) })
    }

    /// Counts a stream that we reset because of the client's behaviour.
    pub(super) fn count_reset(&self) {
        self.connection.borrow_mut().count_reset();
    }

    /// Notes that its host asks for another handshake by now: the client should open a new connection.
    pub(super) fn outdated(&self) {
        self.outdated.set(true);
    }

    /// Whether that is so.
    pub(super) fn is_outdated(&self) -> bool {
        self.outdated.get()
    }
}

/// The link of the task that reads and writes: without it nothing comes or goes any more, and the streams end.
#[derive(Debug)]
pub(super) struct Lease(pub(super) Rc<Link>);

impl Deref for Lease {
    type Target = Rc<Link>;

    fn deref(&self) -> &Rc<Link> {
        &self.0
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // It is borrowed only where a panic has come from.
        if let Ok(mut connection) = self.connection.try_borrow_mut() {
            connection.lose();
        }
    }
}

fn gone(_: Cut) -> ProxyError {
    Kind::ClientGone.into()
}

/// A response to be given. Its stream is reset if it is dropped before its end.
#[derive(Debug)]
pub(super) struct Response {
    link: Rc<Link>,
    stream: u32,
}

impl Response {
    pub(super) fn new(link: &Rc<Link>, stream: u32) -> Self {
        Self { link: Rc::clone(link), stream }
    }

    /// The id of its stream.
    pub(super) fn stream(&self) -> u32 {
        self.stream
    }

    /// Whether its stream was reset, or its connection has ended.
    pub(super) fn is_cut(&self) -> bool {
        self.link.connection.borrow().is_cut(self.stream)
    }

    /// Ready when it is.
    pub(super) fn poll_cut(&self, cx: &Context<'_>) -> Poll<()> {
        self.link.connection.borrow_mut().poll_cut(self.stream, cx)
    }

    /// Sends its head.
    ///
    /// # Errors
    /// The client is gone.
    pub(super) fn head(&self, head: &ResponseHead, is_end: bool) -> Result<(), ProxyError> {
        let write = |out: &mut BytesMut| put_head(out, head);
        self.link.connection.borrow_mut().fields(self.stream, is_end, write).map_err(gone)
    }

    /// How much of its body may be sent now.
    pub(super) fn capacity(&self) -> usize {
        self.link.connection.borrow().capacity(self.stream)
    }

    /// Ready when some of its body may be sent: how much.
    pub(super) fn poll_capacity(&self, cx: &Context<'_>) -> Poll<Result<usize, ProxyError>> {
        self.link.connection.borrow_mut().poll_capacity(self.stream, cx).map_err(gone)
    }

    /// Keeps no other waiting for the window of the connection.
    pub(super) fn rest(&self) {
        self.link.connection.borrow_mut().rest(self.stream);
    }

    /// Sends a part of its body that there is capacity for.
    ///
    /// # Errors
    /// The client is gone.
    pub(super) fn data(&self, piece: Bytes, is_end: bool) -> Result<(), ProxyError> {
        self.link.connection.borrow_mut().data(self.stream, piece, is_end).map_err(gone)
    }

    /// Ends it with trailers.
    ///
    /// # Errors
    /// The client is gone.
    pub(super) fn trailers(&self, trailers: &Fields) -> Result<(), ProxyError> {
        let write = |out: &mut BytesMut| {
            for (known, name, value) in trailers.entries() {
                encode::field(out, known, name, value);
            }
        };
        self.link.connection.borrow_mut().fields(self.stream, true, write).map_err(gone)
    }

    /// Resets its stream, if that has not ended, because the configuration asks for that.
    pub(super) fn close(&self, reason: Reason) {
        self.link.connection.borrow_mut().close(self.stream, reason);
    }

    /// Resets its stream, if that has not ended.
    pub(super) fn reset(&self, reason: Reason) {
        self.link.connection.borrow_mut().reset(self.stream, reason);
    }
}

impl Drop for Response {
    fn drop(&mut self) {
        // It is borrowed only where a panic has come from.
        if let Ok(mut connection) = self.link.connection.try_borrow_mut() {
            connection.drop_response(self.stream);
        }
    }
}

/// Encodes a response's head.
fn put_head(out: &mut BytesMut, head: &ResponseHead) {
    encode::status(out, head.status);
    for (known, name, value) in head.fields.entries() {
        // The framing is ours.
        if known != Known::ContentLength {
            encode::field(out, known, name, value);
        }
    }
    if let Some(length) = length(head) {
        encode::number(out, Known::ContentLength, length);
    }
}

/// The Content-Length for the client.
fn length(head: &ResponseHead) -> Option<u64> {
    match (head.status, head.framing) {
        (204, _) => None,
        (_, Framing::Length(length)) => Some(length),
        _ => head.declared_length,
    }
}

/// The body of a request.
#[derive(Debug)]
pub(super) struct Upload {
    link: Rc<Link>,
    stream: u32,
}

impl Upload {
    pub(super) fn new(link: &Rc<Link>, stream: u32) -> Self {
        Self { link: Rc::clone(link), stream }
    }

    /// The next piece, `None` at the end. The client may send as much more: it is wanted.
    pub(super) fn poll_piece(&mut self, cx: &Context<'_>) -> Poll<Result<Option<Bytes>, ProxyError>> {
        let mut connection = self.link.connection.borrow_mut();
        connection.poll_data(self.stream, cx).map(|piece| match piece {
            Some(Ok(piece)) => {
                connection.release(self.stream, piece.len());
                Ok(Some(piece))
            }
            Some(Err(Cut::Malformed)) => Err(Kind::ClientBody.into()),
            Some(Err(_)) => Err(Kind::ClientGone.into()),
            // Request trailers are dropped here, as in nginx.
            None => Ok(None),
        })
    }

    /// Whether nothing is left of it.
    pub(super) fn has_ended(&self) -> bool {
        self.link.connection.borrow().has_ended(self.stream)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // It is borrowed only where a panic has come from.
        if let Ok(mut connection) = self.link.connection.try_borrow_mut() {
            connection.drop_body(self.stream);
        }
    }
}
