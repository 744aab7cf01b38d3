//! A connection that may make calls: its handshake is complete, or not needed.
//!
//! **Invariant:** until then it is a guest like any other, with the same timeout, and may be closed if its slot is
//! needed. A connection for calls has a certificate of our authority, for our group.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::server::Acceptor;
use shared::clock;
use shared::identity::{Identity, validity};
use shared::tls::ENROLMENT;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::guest::{Caller, Guest};
use crate::enrol::keeper::Current;

/// An open connection, and the identity of its peer.
#[derive(Debug)]
pub struct Line {
    carrier: Carrier,
    caller: Caller,
}

#[derive(Debug)]
enum Carrier {
    Plain(Guest),
    Tls(Box<TlsStream<Guest>>),
}

/// What an admitted peer asks for.
#[derive(Debug)]
pub(crate) enum Wants {
    /// Calls.
    Calls(Line),
    /// Enrolment.
    Enrolment(Line),
}

impl Line {
    /// Without encryption: everything is permitted.
    pub(crate) fn plain(guest: Guest) -> Self {
        let caller = guest.caller(None);
        Self { carrier: Carrier::Plain(guest), caller }
    }
}

/// Performs the handshake, within the guest's timeout for its first call.
pub(crate) async fn secure(guest: Guest, current: &Current, group: &str) -> io::Result<Wants> {
    let start = LazyConfigAcceptor::new(Acceptor::default(), guest).await?;
    let enrols = start.client_hello().alpn().is_some_and(|mut wanted| wanted.any(|it| it == ENROLMENT));
    let config = if enrols { &current.enrolment } else { &current.calls };
    let stream = start.into_stream(Arc::clone(config)).await?;
    let (guest, session) = stream.get_ref();
    if enrols {
        let caller = guest.caller(None);
        return Ok(Wants::Enrolment(Line { carrier: Carrier::Tls(Box::new(stream)), caller }));
    }
    // The handshake fails without a certificate.
    let leaf = session.peer_certificates().and_then(<[_]>::first).ok_or(io::ErrorKind::PermissionDenied)?;
    let identity = Identity::of_certificate(leaf).map_err(io::Error::other)?;
    if *identity.group != *group {
        return Err(io::Error::other(format!("{identity} is of another group than {group:?}")));
    }
    let (_, until) = validity(leaf).ok_or(io::ErrorKind::InvalidData)?;
    let caller = guest.caller(Some(Arc::new(identity)));
    // It was just verified: if the library's clock differs from ours, it may be expired.
    caller.lasts(until.duration_since(clock::wall()).unwrap_or_default());
    Ok(Wants::Calls(Line { carrier: Carrier::Tls(Box::new(stream)), caller }))
}

impl Connected for Line {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.caller.clone()
    }
}

impl AsyncRead for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.carrier {
            Carrier::Plain(it) => Pin::new(it).poll_read(cx, buffer),
            Carrier::Tls(it) => Pin::new(it).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.carrier {
            Carrier::Plain(it) => Pin::new(it).poll_write(cx, bytes),
            Carrier::Tls(it) => Pin::new(it).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.carrier {
            Carrier::Plain(it) => Pin::new(it).poll_write_vectored(cx, slices),
            Carrier::Tls(it) => Pin::new(it).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.carrier {
            Carrier::Plain(it) => it.is_write_vectored(),
            Carrier::Tls(it) => it.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.carrier {
            Carrier::Plain(it) => Pin::new(it).poll_flush(cx),
            Carrier::Tls(it) => Pin::new(it).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.carrier {
            Carrier::Plain(it) => Pin::new(it).poll_shutdown(cx),
            Carrier::Tls(it) => Pin::new(it).poll_shutdown(cx),
        }
    }
}
