//! A connection that says nothing, as it is kept while it has no task.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::rc::Rc;

use tracing::debug;

use super::session::{Left, Session};
use super::silent::Silent;
use super::{h2, http2};
use crate::codec::stream::{Socket, Tls};
use crate::http::server::Server;
use crate::local::timer::Timer;

/// A connection that says nothing, of which the runtime knows nothing. Its times run on, and whatever happens to it is for
/// a task to see: when there is something to read, or it is due, it is served again.
pub(crate) struct Parked(Kept);

enum Kept {
    Plain(Silent<std::net::TcpStream>),
    Tls(Silent<Tls>),
    Http2(Box<h2::Serving<Socket>>),
    Http2Tls(Box<h2::Serving<Tls>>),
}

/// Where the bytes of TLS go.
fn below(tls: &mut Tls) -> &mut Socket {
    tls.get_mut().0.get_mut().get_mut()
}

impl Parked {
    /// What is left of a connection without TLS: it is served on as HTTP/2, or may be parked.
    pub(super) async fn or_http2(left: Left<Socket>) -> Option<Self> {
        match left {
            Left::Nothing => None,
            Left::Silent(session) => {
                let (silent, socket) = session.into_silent().apart();
                Self::lost_or(socket.into_std().map(|socket| Kept::Plain(silent.with(socket))))
            }
            Left::Http2(session) => Self::http2(Box::pin(http2(session)).await),
        }
    }

    fn http2(silent: Option<Box<h2::Serving<Socket>>>) -> Option<Self> {
        let silent = silent?;
        let forgotten = silent.with_stream(|socket| socket.forget().map(drop));
        Self::lost_or(forgotten.map(|()| Kept::Http2(silent)))
    }

    /// What is left of a connection of HTTP/2 over TLS.
    pub(super) fn http2_tls(silent: Option<Box<h2::Serving<Tls>>>) -> Option<Self> {
        let silent = silent?;
        let forgotten = silent.with_stream(|tls| below(tls).forget().map(drop));
        Self::lost_or(forgotten.map(|()| Kept::Http2Tls(silent)))
    }

    /// The same with TLS, where HTTP/2 is not begun as something else.
    pub(super) fn tls(left: Left<Tls>) -> Option<Self> {
        let Left::Silent(session) = left else { return None };
        let mut silent = session.into_silent();
        // Sessions that it may resume, where it has asked nothing yet.
        silent.stream.get_mut().0.let_go();
        let forgotten = below(&mut silent.stream).forget().map(drop);
        Self::lost_or(forgotten.map(|()| Kept::Tls(silent)))
    }

    fn lost_or(kept: io::Result<Kept>) -> Option<Self> {
        kept.map(Self).inspect_err(|error| debug!(%error, "a silent connection is lost")).ok()
    }

    fn timer(&self) -> &Timer {
        match &self.0 {
            Kept::Plain(silent) => &silent.timer,
            Kept::Tls(silent) => &silent.timer,
            Kept::Http2(serving) => serving.timer(),
            Kept::Http2Tls(serving) => serving.timer(),
        }
    }

    /// It is without a task from now on. Gives the number by which the timers tell that it is due.
    pub(crate) fn park(&self) -> usize {
        self.timer().park()
    }

    /// Does something with its socket, for whoever says when there is something to read.
    ///
    /// # Errors
    /// What that comes to; when it has none any more.
    pub(crate) fn with_socket(
        &mut self,
        act: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        match &mut self.0 {
            Kept::Plain(silent) => act(silent.stream.as_fd()),
            Kept::Tls(silent) => act(below(&mut silent.stream).forget()?),
            Kept::Http2(serving) => serving.with_stream(|socket| act(socket.forget()?)),
            Kept::Http2Tls(serving) => serving.with_stream(|tls| act(below(tls).forget()?)),
        }
    }

    /// Serves it on, as [`super::serve`] does.
    pub(crate) fn serve(self, server: Rc<Server>) -> impl Future<Output = Option<Self>> {
        self.timer().unpark();
        async move {
            match self.0 {
                Kept::Plain(silent) => {
                    let (silent, socket) = silent.apart();
                    let session = Session::of_silent(server, silent.with(Socket::from(socket)));
                    Self::or_http2(session.run().await).await
                }
                Kept::Tls(silent) => Self::tls(Session::of_silent(server, silent).run().await),
                Kept::Http2(serving) => Self::http2(serving.again().await),
                Kept::Http2Tls(serving) => Self::http2_tls(serving.again().await),
            }
        }
    }
}
