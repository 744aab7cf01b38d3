//! The HTTP server of an admin or health address.
//!
//! **Invariant:** a probe always gets in, and waits for no other page. What other clients hold open is bounded in
//! number and in time: the oldest connection is closed when a new one needs its place; in a burst not before it had
//! time for its request. The pages other than probes that are made or sent at once are limited, each on a thread of its
//! own: however many are requested, and however slowly they are read, the rest waits.

mod gzip;
mod maker;
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

use http::{HeaderValue, Request, Response, StatusCode, header};
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
use crate::socket;
use crate::telemetry::Seldom;

/// Limits of an admin address' clients (docs/adr/003-budgets.md).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Concurrent connections; one more replaces the oldest.
    pub connections: usize,
    /// The oldest is not closed within this time after it was accepted, as its request may be on its way; see
    /// `patience`.
    pub young: Duration,
    /// Exception to `young`: the time, in total since there was last room for all, that new connections may have to
    /// wait.
    pub patience: Duration,
    /// Timeout of a request's head, counted from the end of the previous request or from the start: so it is the idle
    /// timeout, too.
    pub head: Duration,
    /// Limit of a request's head in bytes.
    pub head_bytes: usize,
    /// Pages that are made or sent at once, probes excluded.
    pub pages: usize,
    /// Time that one of those waits for its client to read it, in total.
    pub page: Duration,
    /// Lifetime of a connection.
    pub life: Duration,
    /// Timeout of the response under way when a connection's lifetime ends.
    pub farewell: Duration,
    /// Minimum interval of warnings.
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

/// A bound address, before the runtime that serves it exists.
#[derive(Debug)]
pub enum Bound {
    /// A port.
    Tcp(std::net::TcpListener),
    /// A path, for those who may enter its folder.
    Unix(std::os::unix::net::UnixListener),
}

impl Bound {
    /// Binds a TCP port.
    ///
    /// # Errors
    /// I/O errors.
    pub fn tcp(address: SocketAddr) -> io::Result<Self> {
        let listener = socket::bound(address, std::net::TcpListener::bind)?;
        listener.set_nonblocking(true)?;
        Ok(Self::Tcp(listener))
    }

    /// Binds a Unix socket, for its owner alone. A socket that an earlier process left is replaced; anything else, and
    /// a socket that answers, is not.
    ///
    /// # Errors
    /// I/O errors.
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
                    "a file that is not a socket is in the way",
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

    /// Registers it with the current runtime.
    ///
    /// # Errors
    /// I/O errors.
    pub fn listen(self) -> io::Result<Listener> {
        Ok(match self {
            Self::Tcp(listener) => Listener::Tcp(TcpListener::from_std(listener)?),
            Self::Unix(listener) => Listener::Unix(UnixListener::from_std(listener)?),
        })
    }
}

/// A listener.
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

/// A stream of either kind.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Serves pages on a listener until dropped, together with its connections. Errors of single connections are logged and
/// affect no others.
///
/// # Errors
/// Never; the signature fits a supervisor of tasks.
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
                // Out of descriptors: close one of ours, so that a probe gets in.
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
        // A client that has sent its request is answered before the next one replaces it.
        yield_now().await;
    }
}

/// A connection that is served.
struct Open {
    since: Instant,
    task: AbortHandle,
}

/// Makes the pages.
#[derive(Clone)]
struct Desk {
    pages: Arc<dyn Pages>,
    /// Limits pages other than probes.
    places: Arc<Semaphore>,
}

impl Desk {
    async fn answer(&self, request: &Request<Incoming>, sending: &Sending) -> Response<Sent> {
        let uri = request.uri();
        if PROBES.contains(&uri.path()) {
            let Page { status, content_type, body } =
                respond(&*self.pages, request.method(), uri.path(), uri.query());
            return into_response((status, content_type), Sent::all(body.into_bytes()));
        }
        // Never closed.
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        let (pages, method, uri) = (Arc::clone(&self.pages), request.method().clone(), uri.clone());
        let may_compress = gzip::is_accepted(request.headers());
        let made = spawn_blocking(move || {
            let Page { status, content_type, body } = respond(&*pages, &method, uri.path(), uri.query());
            let (body, is_coded) = maker::begin(body, may_compress);
            ((status, content_type), body, is_coded)
        });
        let (head, body, is_coded) = made.await.unwrap_or_else(|_| {
            let Page { status, content_type, body } =
                Page::text(StatusCode::INTERNAL_SERVER_ERROR, "it cannot be made\n");
            ((status, content_type), (body.into_bytes(), None), false)
        });
        let mut response = into_response(head, Sent::in_pieces(body, place, sending));
        if is_coded {
            let coding = HeaderValue::from_static("gzip");
            response.headers_mut().insert(header::CONTENT_ENCODING, coding);
        }
        response
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
        // It holds a place that others need.
        () = sending.longer_than(limits.page) => return debug!("a page is not taken: its connection is closed"),
        () = sleep(limits.life) => {
            connection.as_mut().graceful_shutdown();
            // A client that does not read is not waited for.
            timeout(limits.farewell, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = outcome {
        debug!(%error, "admin connection ended");
    }
}

fn into_response((status, content_type): (StatusCode, &'static str), sent: Sent) -> Response<Sent> {
    let mut response = Response::new(sent);
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// An admin address that is reachable only from the same machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Local {
    /// A loopback port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Local {
    /// Binds it.
    ///
    /// # Errors
    /// I/O errors.
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
