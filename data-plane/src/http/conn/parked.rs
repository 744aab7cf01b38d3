//! An idle connection in the form in which it is kept while it has no task.

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

/// An idle connection that is not registered with the runtime. Its timeouts keep running, and all events are left to a
/// task: when it becomes readable or a timeout is due, it is served again.
pub(crate) struct Parked(Kept);

enum Kept {
    Plain(Silent<std::net::TcpStream>),
    Tls(Silent<Tls>),
    Http2(Box<h2::Serving<Socket>>),
    Http2Tls(Box<h2::Serving<Tls>>),
}

/// The socket below TLS.
fn below(tls: &mut Tls) -> &mut Socket {
    tls.get_mut().0.get_mut().get_mut()
}

impl Parked {
    /// What remains of a connection without TLS: it continues as HTTP/2, or may be parked.
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
        let mut silent = silent?;
        let forgotten = silent.with_stream(|socket| socket.forget().map(drop));
        Self::lost_or(forgotten.map(|()| Kept::Http2(silent)))
    }

    /// What remains of an HTTP/2 connection over TLS.
    pub(super) fn http2_tls(silent: Option<Box<h2::Serving<Tls>>>) -> Option<Self> {
        let mut silent = silent?;
        let forgotten = silent.with_stream(|tls| below(tls).forget().map(drop));
        Self::lost_or(forgotten.map(|()| Kept::Http2Tls(silent)))
    }

    /// The same over TLS, where HTTP/2 never begins as HTTP/1.1.
    pub(super) fn tls(left: Left<Tls>) -> Option<Self> {
        let Left::Silent(session) = left else { return None };
        let mut silent = session.into_silent();
        // Sends the session tickets, if there was no request yet.
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

    /// Parks it without a task. Returns the number by which the timers report that it is due.
    pub(crate) fn park(&self) -> usize {
        self.timer().park()
    }

    /// Runs `act` on its socket, for the poller that reports readiness.
    ///
    /// # Errors
    /// The error of `act`, or that there is no socket any more.
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

    /// Continues to serve it, as [`super::serve`] does. `saw_end`: its client has closed its half by now, perhaps after a
    /// request.
    pub(crate) fn serve(self, server: Rc<Server>, saw_end: bool) -> impl Future<Output = Option<Self>> {
        self.timer().unpark();
        async move {
            match self.0 {
                Kept::Plain(silent) => {
                    let (silent, socket) = silent.apart();
                    let session = Session::of_silent(server, silent.with(Socket::from(socket)), saw_end);
                    Self::or_http2(session.run().await).await
                }
                Kept::Tls(silent) => Self::tls(Session::of_silent(server, silent, saw_end).run().await),
                Kept::Http2(serving) => Self::http2(serving.again().await),
                Kept::Http2Tls(serving) => Self::http2_tls(serving.again().await),
            }
        }
    }
}
