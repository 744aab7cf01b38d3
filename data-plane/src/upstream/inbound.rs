//! Inspects what a peer sends over HTTP/2 on its way to h2 ([`heads`](crate::codec::heads)), and notes malformed
//! messages that h2 would accept.
//!
//! **Invariant:** a malformed message is recognised here before h2 sees any byte of it.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use super::incoming::Inflow;
use crate::codec::frame::Frame;
use crate::codec::heads::{Block, Heads, Seen};
use crate::codec::hpack::{Fault, Target};

/// Maximum number of malformed messages that are remembered without being asked for; more end the connection. Each is
/// on a stream that was refused or cancelled meanwhile.
const MOST: usize = 256;

/// Maximum bytes of original targets kept until their requests are handed over: more than concurrent requests may
/// have.
const TARGETS: usize = 2 << 20;

/// The received data of a connection.
#[derive(Debug)]
pub(crate) struct Inbound {
    heads: RefCell<Heads>,
    is_client: bool,
    /// The newest stream that a client has opened; a head on it, or on an older one, is trailers.
    newest: Cell<u32>,
    faults: RefCell<Vec<(u32, Fault)>>,
    /// Original targets for which h2 was given others.
    targets: RefCell<Vec<(u32, Target)>>,
}

impl Inbound {
    /// From a client, with header lists of this size.
    pub(crate) fn from_client(list: u32) -> Self {
        Self::new(true, list)
    }

    /// From an endpoint.
    pub(crate) fn from_endpoint(list: u32) -> Self {
        Self::new(false, list)
    }

    fn new(is_client: bool, list: u32) -> Self {
        let heads = RefCell::new(Heads::new(is_client, list));
        Self {
            heads,
            is_client,
            newest: Cell::default(),
            faults: RefCell::default(),
            targets: RefCell::default(),
        }
    }

    /// Why the message on a stream is malformed, although h2 accepts it.
    pub(crate) fn fault(&self, stream: u32) -> Option<Fault> {
        let faults = self.faults.borrow();
        faults.iter().filter(|(of, _)| *of == stream).map(|(_, fault)| *fault).max()
    }

    /// Drops what is known about a stream.
    pub(crate) fn forget(&self, stream: u32) {
        self.faults.borrow_mut().retain(|(of, _)| *of != stream);
        self.targets.borrow_mut().retain(|(of, _)| *of != stream);
    }

    /// The original target of a request that is handed over, if h2 was given another one. They are in order: earlier
    /// ones were refused.
    pub(crate) fn take_target(&self, stream: u32) -> Option<Target> {
        let mut targets = self.targets.borrow_mut();
        let mut found = None;
        targets.retain(|(of, target)| {
            if *of == stream {
                found = Some(Arc::clone(target));
            }
            *of > stream
        });
        found
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

    /// Keeps the original target of a request. Returns a fault if that is not possible.
    fn keep(&self, block: &Block) -> Option<Fault> {
        let target = block.target.as_ref()?;
        let mut targets = self.targets.borrow_mut();
        let bytes: usize = targets.iter().map(|(_, target)| target.len()).sum();
        if !self.is_client || targets.len() >= MOST || bytes + target.len() > TARGETS {
            return Some(Fault::Malformed);
        }
        targets.push((block.stream, Arc::clone(target)));
        None
    }

    fn note(&self, block: Block) {
        // Trailers must not have one (RFC 9113 section 8.1), and h2 drops it silently (ADR 001).
        let is_trailers = self.is_client && block.stream <= self.newest.get();
        self.newest.set(self.newest.get().max(block.stream));
        let fault = match is_trailers {
            true => (block.pseudo || block.fault.is_some()).then_some(Fault::Trailers),
            false => block.fault.max(self.keep(&block)),
        };
        let mut faults = self.faults.borrow_mut();
        if let Some(fault) = fault
            && faults.len() < MOST
        {
            faults.push((block.stream, fault));
        }
    }
}

#[cfg(test)]
mod tests;
