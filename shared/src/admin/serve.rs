//! The server behind an admin or health address.
//!
//! **Invariant:** a probe always gets in, and waits for no other page. Whatever others hold open is bounded in number and in time,
//! and the connection that has been open for longest goes when a new one comes; in a burst not before it had time to ask. Of pages that are not probes so many are made
//! or sent at once, each on a thread of its own: however many are asked for, and however slowly they are taken, the rest waits.

mod sent;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet, spawn_blocking, yield_now};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

use self::sent::{Sending, Sent};
use super::{PROBES, Page, Pages, respond};
use crate::clock;
use crate::telemetry::Seldom;

/// What clients of an admin address may hold (docs/adr/003-budgets.md).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections at once; one more takes the place of the oldest.
    pub connections: usize,
    /// The oldest is not closed within so long of its coming: what it asks is on its way,
    pub young: Duration,
    /// unless new ones have waited for that so long together since there was room for all.
    pub patience: Duration,
    /// A request's head, from the end of the one before, or from the beginning: so long does an idle connection stay, too.
    pub head: Duration,
    /// Bytes of a request's head.
    pub head_bytes: usize,
    /// Pages that are made or sent at once, probes' not counted.
    pub pages: usize,
    /// One of those, from when it is made until it is taken.
    pub page: Duration,
    /// A connection, whatever it does.
    pub life: Duration,
    /// The answer under way when its connection's life ends.
    pub farewell: Duration,
    /// Warnings are at least so far apart.
    pub warnings: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            young: Duration::from_millis(25),
            patience: Duration::from_millis(250),
            head: Duration::from_secs(5),
            head_bytes: 8 * 1024,
            pages: 2,
            page: Duration::from_secs(10),
            life: Duration::from_secs(60),
            farewell: Duration::from_secs(5),
            warnings: Duration::from_secs(1),
        }
    }
}

/// An address that is bound, before the runtime that serves it is there.
#[derive(Debug)]
pub enum Bound {
    /// A port.
    Tcp(std::net::TcpListener),
    /// A path, for who may enter its folder.
    Unix(std::os::unix::net::UnixListener),
}

impl Bound {
    /// On a port.
    ///
    /// # Errors
    /// The system's.
    pub fn tcp(address: SocketAddr) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self::Tcp(listener))
    }

    /// On a socket of the file system, for its owner alone. What a process before left there is replaced; what is no
    /// socket, or answers, is not.
    ///
    /// # Errors
    /// The system's.
    pub fn unix(path: &Path) -> io::Result<Self> {
        match fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => {
                if UnixStream::connect(path).is_ok() {
                    return Err(io::ErrorKind::AddrInUse.into());
                }
                fs::remove_file(path)?;
            }
            Ok(_) => {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "there is a file that is no socket",
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = std::os::unix::net::UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Self::Unix(listener))
    }

    /// The port.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// Hands it to the runtime of the calling thread.
    ///
    /// # Errors
    /// The system's.
    pub fn listen(self) -> io::Result<Listener> {
        Ok(match self {
            Self::Tcp(listener) => Listener::Tcp(TcpListener::from_std(listener)?),
            Self::Unix(listener) => Listener::Unix(UnixListener::from_std(listener)?),
        })
    }
}

/// Where pages are asked for.
#[derive(Debug)]
pub enum Listener {
    /// A port.
    Tcp(TcpListener),
    /// A path.
    Unix(UnixListener),
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl Listener {
    async fn accept(&self) -> io::Result<Box<dyn Connection>> {
        Ok(match self {
            Self::Tcp(listener) => Box::new(listener.accept().await?.0),
            Self::Unix(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

/// What is read from and written to.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Serves pages on a listener until dropped, and its connections with it. Errors of single connections are logged and harm
/// nobody else.
///
/// # Errors
/// Never; the signature fits [`crate::tasks::Supervisor`].
pub async fn serve(listener: impl Into<Listener>, pages: Arc<dyn Pages>) -> Result<(), Infallible> {
    serve_within(Limits::default(), listener.into(), pages).await
}

/// The same with other limits.
///
/// # Errors
/// Never.
pub async fn serve_within(
    limits: Limits,
    listener: Listener,
    pages: Arc<dyn Pages>,
) -> Result<(), Infallible> {
    let mut open = JoinSet::new();
    let mut oldest_first: VecDeque<Open> = VecDeque::new();
    let mut patience = limits.patience;
    let mut warning = Seldom::new(limits.warnings);
    let desk = Desk { pages, places: Arc::new(Semaphore::new(limits.pages)) };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = open.join_next() => continue,
        };
        oldest_first.retain(|connection| !connection.task.is_finished());
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                if let Some(before) = warning.now(clock::now()) {
                    warn!(%error, before, "accept failed on the admin address");
                }
                // Out of descriptors: one of ours is better than none for a probe.
                if let Some(oldest) = oldest_first.pop_front() {
                    oldest.task.abort();
                }
                sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        match oldest_first.front() {
            Some(oldest) if oldest_first.len() >= limits.connections => {
                let early = limits.young.saturating_sub(oldest.since.elapsed()).min(patience);
                if !early.is_zero() {
                    patience -= early;
                    sleep(early).await;
                    oldest_first.retain(|connection| !connection.task.is_finished());
                }
            }
            _ => patience = limits.patience,
        }
        if oldest_first.len() >= limits.connections
            && let Some(oldest) = oldest_first.pop_front()
        {
            oldest.task.abort();
            if let Some(before) = warning.now(clock::now()) {
                let limit = limits.connections;
                warn!(limit, before, "too many connections to the admin address; the oldest is closed");
            }
        }
        let task = open.spawn(connection(limits, stream, desk.clone()));
        oldest_first.push_back(Open { since: Instant::now(), task });
        // Whoever has asked already is answered before the next one takes its place.
        yield_now().await;
    }
}

/// A connection that is served.
struct Open {
    since: Instant,
    task: AbortHandle,
}

/// Where pages are made.
#[derive(Clone)]
struct Desk {
    pages: Arc<dyn Pages>,
    /// For those that are not probes'.
    places: Arc<Semaphore>,
}

impl Desk {
    async fn answer(&self, request: &Request<Incoming>, sending: &Sending) -> Response<Sent> {
        let uri = request.uri();
        if PROBES.contains(&uri.path()) {
            return into_response(
                respond(&*self.pages, request.method(), uri.path(), uri.query()),
                Sent::all,
            );
        }
        // Never closed.
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        let (pages, method, uri) = (Arc::clone(&self.pages), request.method().clone(), uri.clone());
        let made = spawn_blocking(move || respond(&*pages, &method, uri.path(), uri.query())).await;
        let page =
            made.unwrap_or_else(|_| Page::text(StatusCode::INTERNAL_SERVER_ERROR, "it cannot be made\n"));
        into_response(page, |body| Sent::in_pieces(body, place, sending))
    }
}

async fn connection(limits: Limits, stream: Box<dyn Connection>, desk: Desk) {
    let sending = Sending::default();
    let noted = sending.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (desk, sending) = (desk.clone(), noted.clone());
        async move { Ok::<_, Infallible>(desk.answer(&request, &sending).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(limits.head_bytes)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        // What it holds is others' to have.
        () = sending.longer_than(limits.page) => return debug!("a page is not taken: its connection is closed"),
        () = sleep(limits.life) => {
            connection.as_mut().graceful_shutdown();
            // Who does not read its answer is not waited for.
            timeout(limits.farewell, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = outcome {
        debug!(%error, "admin connection ended");
    }
}

fn into_response(page: Page, sent: impl FnOnce(Bytes) -> Sent) -> Response<Sent> {
    let mut response = Response::new(sent(page.body));
    *response.status_mut() = page.status;
    let content_type = header::HeaderValue::from_static(page.content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// Where a process may be administered: from its own machine alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Local {
    /// A port of loopback.
    Tcp(SocketAddr),
    /// A socket of the file system.
    Unix(PathBuf),
}

impl Local {
    /// Binds it.
    ///
    /// # Errors
    /// The system's.
    pub fn bind(&self) -> io::Result<Bound> {
        match self {
            Self::Tcp(address) => Bound::tcp(*address),
            Self::Unix(path) => Bound::unix(path),
        }
    }
}

impl fmt::Display for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// `127.0.0.1:10255`, `[::1]:10255`, `unix:/run/firth/admin.sock`.
impl std::str::FromStr for Local {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return match path.is_absolute() {
                true => Ok(Self::Unix(path)),
                false => Err(format!("expected an absolute path after unix:, got {text:?}")),
            };
        }
        let address: SocketAddr = text
            .parse()
            .map_err(|_| format!("expected 127.0.0.1:PORT, [::1]:PORT or unix:/PATH, got {text:?}"))?;
        if !address.ip().to_canonical().is_loopback() {
            return Err(format!(
                "expected an address of loopback or unix:/PATH, got {text}: these pages show what others should not see; \
                 --health has those for probes and scrapes, on any address"
            ));
        }
        Ok(Self::Tcp(address))
    }
}

#[cfg(test)]
mod tests;
