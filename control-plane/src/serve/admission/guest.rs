//! One admitted connection: reads and writes as usual, but ends when its time without a call has passed, or its slot is
//! needed.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::task::AtomicWaker;
use shared::budget::{Held, PeerPermit};
use shared::identity::Identity;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::Admission;

/// An open connection.
#[derive(Debug)]
pub struct Guest {
    stream: TcpStream,
    state: Arc<GuestState>,
    timer: Pin<Box<Sleep>>,
    _at_peer: PeerPermit,
}

/// The caller: what a handler knows about the connection.
#[derive(Clone, Debug)]
pub struct Caller {
    state: Arc<GuestState>,
    identity: Option<Arc<Identity>>,
}

/// A call under way. While there is one, its connection is not idle.
#[derive(Debug)]
pub struct Call {
    state: Arc<GuestState>,
}

/// State shared by a connection and its calls.
#[derive(Debug)]
pub(super) struct GuestState {
    admission: Admission,
    number: u64,
    peer: SocketAddr,
    closed: AtomicBool,
    /// The peer closed the connection.
    hung_up: AtomicBool,
    reader: AtomicWaker,
    calls: Mutex<Calls>,
    /// Its slot, until another connection gets that.
    place: Mutex<Option<Held>>,
}

#[derive(Debug)]
struct Calls {
    open: usize,
    /// Since when there is no call.
    since: Instant,
    /// How long there may be none.
    patience: Duration,
    /// The connection has ended; handlers of its calls may run a moment longer.
    gone: bool,
    /// When the caller's certificate expires, which ends the connection.
    ends: Option<Instant>,
    /// When the peer last sent anything.
    heard: Instant,
}

impl GuestState {
    pub(super) fn new(admission: Admission, number: u64, peer: SocketAddr, place: Held) -> Arc<Self> {
        let calls = Calls {
            open: 0,
            since: Instant::now(),
            patience: admission.0.limits.first_call,
            gone: false,
            ends: None,
            heard: Instant::now(),
        };
        let since = calls.since;
        let state = Arc::new(Self {
            number,
            peer,
            closed: AtomicBool::new(false),
            hung_up: AtomicBool::new(false),
            reader: AtomicWaker::new(),
            calls: Mutex::new(calls),
            place: Mutex::new(Some(place)),
            admission,
        });
        state.admission.waiting().insert((since, number), Arc::clone(&state));
        state
    }

    /// Makes the connection end at its next read, which is woken. Returns its slot; `None` if it was closed already.
    pub(super) fn close(&self) -> Option<Held> {
        self.closed.store(true, Ordering::Release);
        self.reader.wake();
        self.leave()
    }

    fn leave(&self) -> Option<Held> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Until when a call must begin; `None`: there is one.
    fn deadline(&self) -> Option<Instant> {
        let calls = self.calls();
        (calls.open == 0).then_some(calls.since + calls.patience)
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guest {
    pub(super) fn new(stream: TcpStream, state: Arc<GuestState>, at_peer: PeerPermit) -> Self {
        let timer = Box::pin(tokio::time::sleep(state.admission.0.limits.first_call));
        Self { stream, state, timer, _at_peer: at_peer }
    }

    /// Returns an error if the connection must end.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.state.closed.load(Ordering::Acquire) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let deadline = self.state.deadline();
            let ends = self.state.calls().ends;
            if deadline.into_iter().chain(ends).any(|end| end <= now) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let next = deadline.unwrap_or_else(|| now + self.state.admission.0.limits.idle);
            self.timer.as_mut().reset(ends.map_or(next, |ends| next.min(ends)));
        }
        Ok(())
    }

    /// The caller on this connection; without an identity if there is no authentication.
    pub(crate) fn caller(&self, identity: Option<Arc<Identity>>) -> Caller {
        Caller { state: Arc::clone(&self.state), identity }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let state = &self.state;
        let mut calls = state.calls();
        calls.gone = true;
        state.admission.waiting().remove(&(calls.since, state.number));
        drop(calls);
        state.leave();
    }
}

impl Caller {
    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.state.peer
    }

    /// Its identity; `None` without authentication: then everything is permitted.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_deref()
    }

    /// Sets how long its certificate, and with it the connection, remains valid.
    pub fn lasts(&self, time: Duration) {
        self.state.calls().ends = Some(Instant::now() + time);
    }

    /// Whether the peer closed the connection: its process has ended, or it will reconnect.
    pub fn has_hung_up(&self) -> bool {
        self.state.hung_up.load(Ordering::Acquire)
    }

    /// How long the peer has been silent.
    pub fn silence(&self) -> Duration {
        self.state.calls().heard.elapsed()
    }

    /// Whether the connection has ended.
    pub fn is_gone(&self) -> bool {
        self.state.calls().gone
    }

    /// Begins a call.
    pub fn call(&self) -> Call {
        let state = Arc::clone(&self.state);
        let mut calls = state.calls();
        calls.open += 1;
        if calls.open == 1 {
            state.admission.waiting().remove(&(calls.since, state.number));
        }
        drop(calls);
        Call { state }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let state = &self.state;
        let mut calls = state.calls();
        calls.open -= 1;
        if calls.open == 0 && !calls.gone {
            calls.since = Instant::now();
            calls.patience = state.admission.0.limits.idle;
            state.admission.waiting().insert((calls.since, state.number), Arc::clone(state));
        }
    }
}

impl AsyncRead for Guest {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Before the check of the state, so that no wake-up is lost.
        self.state.reader.register(cx.waker());
        self.check(cx)?;
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        match &read {
            Poll::Ready(Ok(())) if buffer.filled().len() > before => {
                self.state.calls().heard = Instant::now()
            }
            Poll::Ready(_) => self.state.hung_up.store(true, Ordering::Release),
            Poll::Pending => {}
        }
        read
    }
}

impl AsyncWrite for Guest {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
