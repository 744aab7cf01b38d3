//! The task of a shared connection to an endpoint: it reads and writes for all calls.

use std::cell::RefMut;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::AsyncWrite as _;
use tracing::debug;

use super::Multiplexed;
use crate::codec::h2::{Client, Connection, Reason};
use crate::codec::hpack::block::FieldBlock;
use crate::codec::stream::FrameWriter;
use crate::local::Local;
use crate::local::timer::Timer;
use crate::upstream::wire::Wire;

/// Why a connection has ended before its time.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The endpoint has broken the protocol, and was told so.
    #[error("{0}")]
    Protocol(Reason),
}

/// What the task holds.
pub(super) struct Driver {
    shared: Rc<Multiplexed>,
    local: Rc<Local>,
    wire: Wire,
    /// What has come, as far as it is no complete frame yet. None while there is nothing.
    input: BytesMut,
    /// The fields of the last response.
    fields: FieldBlock,
    writer: FrameWriter,
    /// How the endpoint has broken the protocol.
    broken: Option<Reason>,
    timer: Timer,
}

impl Driver {
    pub(super) fn new(shared: &Rc<Multiplexed>, wire: Wire, local: &Rc<Local>) -> Self {
        Self {
            shared: Rc::clone(shared),
            local: Rc::clone(local),
            wire,
            input: BytesMut::new(),
            fields: FieldBlock::default(),
            writer: FrameWriter::default(),
            broken: None,
            timer: shared.timers.timer(),
        }
    }

    fn connection(&self) -> RefMut<'_, Connection<Client>> {
        self.shared.connection.borrow_mut()
    }

    /// Reads and writes until the connection has ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        self.connection().wakes();
        loop {
            self.take();
            let was_full = self.connection().is_full();
            self.shared.look();
            if self.shared.is_unused() {
                self.connection().end(Reason::NO_ERROR);
            }
            let is_written = match self.poll_write(cx) {
                Poll::Ready(Err(error)) => {
                    self.take_rest(cx);
                    return Poll::Ready(Err(error.into()));
                }
                written => written.is_ready(),
            };
            if self.connection().is_over() {
                if is_written {
                    ready!(Pin::new(&mut self.wire).poll_shutdown(cx))?;
                    return Poll::Ready(self.broken.map_or(Ok(()), |reason| Err(Broken::Protocol(reason))));
                }
                return Poll::Pending;
            }
            // What is answered to the endpoint has to leave before more of it is taken, and there may be more that has come.
            if was_full && is_written {
                continue;
            }
            if !was_full {
                match self.poll_read(cx)? {
                    Poll::Ready(0) => return Poll::Ready(Ok(())),
                    Poll::Ready(_) => continue,
                    Poll::Pending => {}
                }
            }
            if self.shared.is_dead(&self.timer, cx) {
                debug!("an endpoint does not answer on its HTTP/2 connection");
                return Poll::Ready(Ok(()));
            }
            if is_written && !self.connection().is_written() {
                continue;
            }
            self.rest();
            self.connection().wait(cx);
            return Poll::Pending;
        }
    }

    /// Frees the memory that is not in use, if there are no calls. Between calls that follow each other the task does not
    /// wake: that the last one has ended is seen when it next asks whether the endpoint is still there.
    fn rest(&mut self) {
        if self.shared.is_idle() && self.input.is_empty() && self.connection().is_written() {
            self.connection().let_go();
            self.fields = FieldBlock::default();
        }
    }

    /// Takes what has come.
    fn take(&mut self) {
        let now = self.shared.timers.now();
        let Self { shared, input, fields, broken, .. } = self;
        let mut connection = shared.connection.borrow_mut();
        match connection.receive(input, fields, now) {
            Ok(_) => connection.widen(),
            Err(reason) => {
                *broken = Some(reason);
                connection.end(reason);
            }
        }
    }

    /// Takes what the endpoint has sent before it went away: there may be complete responses in it, and a goodbye that says
    /// which calls it has not heeded.
    fn take_rest(&mut self, cx: &mut Context<'_>) {
        loop {
            self.take();
            let (is_over, was_full) = {
                let mut connection = self.connection();
                let state = (connection.is_over(), connection.is_full());
                connection.discard();
                state
            };
            if is_over || !was_full && !matches!(self.poll_read(cx), Poll::Ready(Ok(1..))) {
                return;
            }
        }
    }

    /// Writes what there is.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { shared, wire, writer, .. } = self;
        let written = writer.poll(&mut shared.connection.borrow_mut(), wire, cx)?;
        shared.flow.wrote(written.is_pending());
        written.map(Ok)
    }

    /// Reads more; 0 at the end. While nothing comes, the buffer is lent to others.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Self { input, wire, local, shared, .. } = self;
        let read = match wire.poll_readable(cx)? {
            Poll::Ready(()) => local.buffers.poll_frames(wire, input, cx),
            Poll::Pending => {
                local.buffers.lend(input);
                Poll::Pending
            }
        };
        if let Poll::Ready(Ok(bytes)) = &read {
            shared.received.set(shared.received.get() + *bytes as u64);
        }
        read
    }
}

#[cfg(test)]
mod tests;
