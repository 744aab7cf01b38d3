//! Inspects what an endpoint sends over HTTP/2 on its way to h2 ([`heads`](crate::codec::heads)), and notes malformed
//! messages that h2 would accept.
//!
//! **Invariant:** a malformed message is recognised here before h2 sees any byte of it.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use super::incoming::Inflow;
use crate::codec::frame::Frame;
use crate::codec::heads::{Block, Heads, Seen};
use crate::codec::hpack::Fault;

/// Maximum number of malformed messages that are remembered without being asked for; more end the connection. Each is
/// on a stream that was refused or cancelled meanwhile.
const MOST: usize = 256;

/// The received data of a connection.
#[derive(Debug)]
pub(crate) struct Inbound {
    heads: RefCell<Heads>,
    faults: RefCell<Vec<(u32, Fault)>>,
}

impl Inbound {
    /// With header lists of this size.
    pub(crate) fn new(list: u32) -> Self {
        Self { heads: RefCell::new(Heads::new(false, list)), faults: RefCell::default() }
    }

    /// From a client: h2 as a server shows which fields it is given.
    #[cfg(test)]
    fn from_client(list: u32) -> Self {
        Self { heads: RefCell::new(Heads::new(true, list)), faults: RefCell::default() }
    }

    /// Why the message on a stream is malformed, although h2 accepts it.
    pub(crate) fn fault(&self, stream: u32) -> Option<Fault> {
        let faults = self.faults.borrow();
        faults.iter().filter(|(of, _)| *of == stream).map(|(_, fault)| *fault).max()
    }

    /// Drops what is known about a stream.
    pub(crate) fn forget(&self, stream: u32) {
        self.faults.borrow_mut().retain(|(of, _)| *of != stream);
    }

    /// Whether nothing more is passed on: it cannot be parsed, or too much of it is malformed.
    pub(crate) fn is_over(&self) -> bool {
        let heads = self.heads.borrow();
        heads.is_broken() && heads.ready().is_empty() || self.faults.borrow().len() >= MOST
    }

    /// Reads and reports frames.
    pub(crate) fn poll_read(
        &self,
        (mut stream, inflow): (Pin<&mut impl AsyncRead>, &Inflow),
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
        mut seen: impl FnMut(Frame),
    ) -> Poll<io::Result<()>> {
        loop {
            if self.is_over() {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "expected HTTP/2")));
            }
            let mut heads = self.heads.borrow_mut();
            let ready = heads.ready();
            if !ready.is_empty() {
                let some = ready.len().min(into.remaining());
                into.put_slice(&ready[..some]);
                heads.went(some);
                return Poll::Ready(Ok(()));
            }
            let before = into.filled().len();
            ready!(inflow.poll_read(stream.as_mut(), cx, into, heads.room()))?;
            let came = &mut into.filled_mut()[before..];
            if came.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let mut small = 0;
            let on = heads.pass(came, |it| match it {
                Seen::Frame(frame) => {
                    small += u64::from(frame.is_small());
                    seen(frame);
                }
                Seen::Block(block) => self.note(block),
            });
            inflow.read(came.len(), small);
            into.set_filled(before + on);
            if on > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn note(&self, Block { stream, fault, target }: Block) {
        // No answer has a target.
        let fault = fault.max(target.map(|_| Fault::Malformed));
        let mut faults = self.faults.borrow_mut();
        if let Some(fault) = fault
            && faults.len() < MOST
        {
            faults.push((stream, fault));
        }
    }
}

#[cfg(test)]
mod tests;
