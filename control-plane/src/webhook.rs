//! The validating admission webhook: API servers ask it, over HTTPS, whether to admit an Ingress
//! (`--validating-webhook`). The index decides the answer.
//!
//! If the webhook cannot decide, it admits the Ingress with a warning: its problems are found again when it is read,
//! and no rollout is blocked.
//!
//! **Invariant:** the resources that callers can hold are bounded in number, in bytes and in time
//! (docs/adr/003-budgets.md), and nothing that they send ends anything but their connection.

pub mod ca_bundle;
mod pair;
mod review;
mod room;

use std::convert::Infallible;
use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use shared::clock;
use shared::telemetry::Seldom;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use crate::enrol::keeper::Standing;
use crate::index::Verdict;
use crate::metrics::Metrics;
use crate::pipeline::Question;
use room::{Asked, Room};

pub use pair::Pair;

/// The certificate that API servers are shown.
#[derive(Clone, Debug)]
pub enum Certificate {
    /// Certificate and key from files.
    Files(Arc<Pair>),
    /// A certificate of this process, signed by the planes' own authority.
    Own(watch::Receiver<Standing>),
}

impl Certificate {
    /// The current TLS configuration; `None` before the authority was read.
    async fn newest(&self) -> Option<Arc<ServerConfig>> {
        match self {
            Self::Files(pair) => Some(pair.newest().await),
            Self::Own(authority) => authority.borrow().as_ref().ok().map(|it| Arc::clone(&it.https)),
        }
    }
}

/// Timeout of a handshake, and of the head of the first request.
const PATIENCE: Duration = Duration::from_secs(5);
/// Timeout of an idle connection, including the head of its next request. API servers close theirs after 90 s (Go,
/// `http.Transport`) and must close first: otherwise a request meets a connection that is being closed, and an Ingress
/// is rejected or not checked.
const IDLE: Duration = Duration::from_secs(120);
/// Limit of a request head in bytes.
const HEAD: usize = 16 * 1024;
/// Limit of a request in bytes, as in ingress-nginx.
const MOST: usize = 9 * 1024 * 1024;
/// Size of an ordinary request, which is read without waiting: each connection may hold this much.
const ORDINARY: usize = 64 * 1024;
/// Larger requests that are read at once; others wait.
const AT_ONCE: usize = 4;
/// From the first byte of a request to its response: API servers wait for 10 s.
const WHOLE: Duration = Duration::from_secs(9);
/// Timeout of the index. It usually takes milliseconds, except while a cluster is listed again.
const JUDGING: Duration = Duration::from_secs(3);
/// Time for which a process that was told to end still answers: that is known to its Service some seconds later, and a
/// review that nobody answers lets an invalid Ingress pass, or rejects a valid one. Meanwhile each answer closes its
/// connection: API servers keep connections, and would lose reviews on them at the end.
pub const STAY: Duration = Duration::from_secs(10);
/// Minimum interval of warnings.
const WARNINGS: Duration = Duration::from_secs(1);

/// What a connection needs to answer.
#[derive(Debug)]
struct Desk {
    questions: mpsc::Sender<Question>,
    places: Semaphore,
    metrics: Arc<Metrics>,
    /// Whether this process was told to end.
    ending: watch::Receiver<bool>,
}

/// Serves until dropped, together with its connections. `ending`: the process was told to end.
///
/// # Errors
/// Never; the signature fits the supervisor of tasks.
pub async fn serve(
    listener: TcpListener,
    certificate: Certificate,
    questions: mpsc::Sender<Question>,
    metrics: Arc<Metrics>,
    ending: watch::Receiver<bool>,
) -> Result<(), Infallible> {
    let desk = Arc::new(Desk { questions, places: Semaphore::new(AT_ONCE), metrics, ending });
    let mut open = JoinSet::new();
    let mut room = Room::default();
    let mut warning = Seldom::new(WARNINGS);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = open.join_next() => continue,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if let Some(before) = warning.now(clock::now()) {
                    warn!(%error, before, "accept failed on --validating-webhook");
                }
                sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        let now = clock::now();
        room.make(now);
        let asked = Arc::new(Asked::default());
        let task = connection(stream, certificate.clone(), Arc::clone(&desk), Arc::clone(&asked));
        room.add(open.spawn(task), asked, from.ip(), now);
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    certificate: Certificate,
    desk: Arc<Desk>,
    asked: Arc<Asked>,
) {
    let Some(config) = certificate.newest().await else {
        return debug!("there is no certificate for --validating-webhook yet");
    };
    let acceptor = TlsAcceptor::from(config);
    let stream = match timeout(PATIENCE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return debug!(%error, "a handshake with --validating-webhook failed"),
        Err(_) => return,
    };
    let noted = Arc::clone(&asked);
    let service = service_fn(move |request: Request<Incoming>| {
        let (desk, asked) = (Arc::clone(&desk), Arc::clone(&noted));
        async move {
            asked.has_begun.store(true, Ordering::Relaxed);
            let mut answer = answer(request, &desk, &asked).await;
            if *desk.ending.borrow() {
                answer.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
            }
            asked.is_judged.store(false, Ordering::Relaxed);
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_buf_size(HEAD)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        ended = pin!(connection) => if let Err(error) = ended {
            debug!(%error, "a connection to --validating-webhook ended");
        },
        () = none_in_time(&asked) => debug!("nothing was asked on a connection to --validating-webhook"),
    }
}

/// Waits for the timeout of the first request. Never resolves if one has begun.
async fn none_in_time(asked: &Asked) {
    sleep(PATIENCE).await;
    if asked.has_begun.load(Ordering::Relaxed) {
        std::future::pending().await
    }
}

async fn answer(request: Request<Incoming>, desk: &Desk, asked: &Asked) -> Response<Full<Bytes>> {
    if request.method() != Method::POST {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only POST".into());
    }
    timeout(WHOLE, judged(request, desk, asked))
        .await
        .unwrap_or_else(|_| text(StatusCode::REQUEST_TIMEOUT, "the request did not arrive in time".into()))
}

async fn judged(request: Request<Incoming>, desk: &Desk, asked: &Asked) -> Response<Full<Bytes>> {
    let (body, _place) = match read(request.into_body(), &desk.places).await {
        Ok(read) => read,
        Err(error) if error.is::<LengthLimitError>() => {
            return text(StatusCode::PAYLOAD_TOO_LARGE, format!("expected at most {MOST} bytes"));
        }
        Err(error) => return text(StatusCode::BAD_REQUEST, error.to_string()),
    };
    asked.is_judged.store(true, Ordering::Relaxed);
    let question = match review::Question::read(&body) {
        Ok(question) => question,
        Err(error) => return text(StatusCode::BAD_REQUEST, error.to_string()),
    };
    drop(body);
    let verdict = match &question.ingress {
        None => Verdict::default(),
        Some(Err(why)) => Verdict { refused: Some(why.clone()), ..Verdict::default() },
        Some(Ok(ingress)) => {
            let (to_index, told) = Question::new(Arc::clone(ingress));
            let judged = async {
                desk.questions.send(to_index).await.ok()?;
                told.await.ok()?
            };
            timeout(JUDGING, judged).await.ok().flatten().unwrap_or_else(not_judged)
        }
    };
    let of = question.ingress.as_ref().and_then(|it| it.as_ref().ok()).map(|it| it.metadata.object_name());
    desk.metrics.reviewed(of.as_ref(), verdict.refused.is_none());
    let mut response = Response::new(Full::new(question.answer(&verdict).into()));
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Reads a request; a large one takes a place. A slow ordinary request must not block others: API servers reject an
/// Ingress if they get no answer.
async fn read(
    body: Incoming,
    places: &Semaphore,
) -> Result<(Vec<u8>, Option<SemaphorePermit<'_>>), Box<dyn Error + Send + Sync>> {
    let mut body = Limited::new(body, MOST);
    let (mut pieces, mut held, mut place) = (Vec::new(), 0, None);
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame?.into_data() else { continue };
        held += piece.len() + size_of::<Bytes>();
        if place.is_none() && held > ORDINARY {
            place = Some(places.acquire().await?);
        }
        pieces.push(piece);
    }
    Ok((pieces.concat(), place))
}

/// The webhook fails open.
fn not_judged() -> Verdict {
    let warning = "not checked: the control plane is still reading the cluster; see `firth problems`";
    Verdict { refused: None, warnings: vec![warning.to_owned()] }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests;
