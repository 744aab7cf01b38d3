//! An HTTP relay in front of a real API server that, when told to, sends false responses or none.
//!
//! What it relays is real: it has a connection of its own to the server for each client, and changes the responses. A
//! new instruction cuts all open connections, so that all clients reconnect.
//!
//! **Invariant:** a false list is sent once for each collection. Two lists that agree are trusted, and should be.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Uri, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use test_kit::client::tls::trusting;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_stream::StreamExt as _;

use crate::cluster::Cluster;
use crate::ports;

/// Page size of lists: small, so that there are several pages.
const PAGE: usize = 7;
/// Minimum length of a long list: this many missing objects need a second list.
const LONG: usize = 22;

/// What the impostor responds.
#[derive(Clone, Debug, Default)]
pub enum Lie {
    /// The truth.
    #[default]
    None,
    /// The list is empty, at an earlier revision.
    Empty {
        /// How many revisions earlier; 0: now.
        ago: u64,
    },
    /// Only the first half of a long list.
    Halved,
    /// The continuation of a list has expired.
    Expired,
    /// No watch can begin at its revision.
    Gone(As),
    /// A watch begins with these events.
    Past(Vec<Value>),
    /// Every request fails, with a body of this type.
    Refused(StatusCode, &'static str),
    /// Only a part of the response is sent.
    Hang(Part),
}

/// How a watch is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum As {
    /// By the status of the response.
    Status,
    /// By an event, after a response with 200.
    Event,
}

/// The part of a response that is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Not even the head.
    Nothing,
    /// Only the head.
    Head,
    /// Half of the body, for a watch half of an event.
    Half,
}

/// How it sends the first list of a watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lists {
    /// As the server does: as a stream.
    Streamed,
    /// In pages: it does not know streamed lists.
    Paged,
}

/// A running impostor. Stops when dropped, and closes its connections.
#[derive(Debug)]
pub struct Impostor {
    address: SocketAddr,
    told: watch::Sender<Arc<Told>>,
    _server: JoinSet<()>,
}

/// The current instruction, and for which collections it was followed.
#[derive(Debug, Default)]
struct Told {
    number: u64,
    lie: Lie,
    lied: Mutex<BTreeSet<String>>,
    asked: AtomicUsize,
}

impl Told {
    /// Whether a list of a collection must be falsified, this once.
    fn lies_about(&self, collection: &str) -> bool {
        self.lied.lock().expect("nobody panics with it").insert(collection.to_owned())
    }
}

type Body = UnsyncBoxBody<Bytes, hyper::Error>;
type Upstream = Arc<AsyncMutex<SendRequest<Body>>>;

impl Impostor {
    /// In front of the API server of a cluster, with that one's certificate.
    ///
    /// # Panics
    /// If no port can be bound.
    pub async fn start(cluster: &Cluster, lists: Lists) -> Self {
        let listener = TcpListener::bind(ports::free()).await.expect("the port was free");
        let address = listener.local_addr().expect("it is bound");
        let (told, hears) = watch::channel(Arc::default());
        let tls = TlsAcceptor::from(Arc::new(shown(cluster)));
        let target = SocketAddr::from(([127, 0, 0, 1], cluster.port()));
        let mut server = JoinSet::new();
        server.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    Ok((client, _)) = listener.accept() => {
                        connections.spawn(converse(client, tls.clone(), target, lists, hears.clone()));
                    }
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Self { address, told, _server: server }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Sets what it responds from now on. Open connections are cut.
    pub fn tell(&self, lie: Lie) {
        let number = self.told.borrow().number + 1;
        self.told.send_replace(Arc::new(Told { number, lie, ..Told::default() }));
    }

    /// Number of requests since the last instruction.
    pub fn asked(&self) -> usize {
        self.told.borrow().asked.load(Ordering::Relaxed)
    }
}

fn shown(cluster: &Cluster) -> ServerConfig {
    let [certificate, key] = cluster.certificate().map(|file| fs::read(file).expect("it was written"));
    let certificate = CertificateDer::from_pem_slice(&certificate).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(&key).expect("a key");
    crate::client::tls::install_crypto();
    let config = ServerConfig::builder().with_no_client_auth();
    config.with_single_cert(vec![certificate], key).expect("they belong together")
}

/// Serves one connection, until the next instruction.
async fn converse(
    client: TcpStream,
    tls: TlsAcceptor,
    target: SocketAddr,
    lists: Lists,
    mut hears: watch::Receiver<Arc<Told>>,
) {
    let told = Arc::clone(&hears.borrow_and_update());
    let serves = async {
        let client = tls.accept(client).await.ok()?;
        let mut driver = JoinSet::new();
        let upstream = Arc::new(AsyncMutex::new(upstream(target, &mut driver).await?));
        let answers = service_fn(|request: Request<Incoming>| {
            let (upstream, told) = (Arc::clone(&upstream), Arc::clone(&told));
            async move { Ok::<_, Infallible>(answer(request, lists, &upstream, &told).await) }
        });
        http1::Builder::new().serve_connection(TokioIo::new(client), answers).await.ok()
    };
    tokio::select! {
        _ = serves => {}
        _ = hears.changed() => {}
    }
}

async fn upstream(target: SocketAddr, driver: &mut JoinSet<()>) -> Option<SendRequest<Body>> {
    let stream = TcpStream::connect(target).await.ok()?;
    let connector = TlsConnector::from(Arc::new(trusting(&[b"http/1.1"])));
    let name = ServerName::try_from("127.0.0.1").expect("an address");
    let stream = connector.connect(name, stream).await.ok()?;
    let (requests, connection) = handshake(TokioIo::new(stream)).await.ok()?;
    driver.spawn(async move { _ = connection.await });
    Some(requests)
}

/// The response to a request.
async fn answer(
    request: Request<Incoming>,
    lists: Lists,
    upstream: &Upstream,
    told: &Told,
) -> Response<Body> {
    told.asked.fetch_add(1, Ordering::Relaxed);
    let (head, body) = request.into_parts();
    let mut request = Request::from_parts(head, body.boxed_unsync());
    let query = request.uri().query().unwrap_or_default().to_owned();
    let (is_watch, is_streamed) = (query.contains("watch=true"), query.contains("sendInitialEvents=true"));
    let is_read = request.method() == Method::GET;
    match &told.lie {
        Lie::Refused(code, media) => return refusal(*code, media),
        Lie::Hang(Part::Nothing) => std::future::pending().await,
        _ if is_streamed && lists == Lists::Paged => {
            return refusal(StatusCode::UNPROCESSABLE_ENTITY, JSON);
        }
        Lie::Hang(Part::Head) if is_read => return whole(StatusCode::OK, JSON, endless(Bytes::new())),
        Lie::Hang(Part::Half) if is_watch => {
            return whole(StatusCode::OK, JSON, endless(r#"{"type":"MODIFIED","obj"#));
        }
        Lie::Gone(As::Status) if is_watch => return refusal(StatusCode::GONE, JSON),
        Lie::Gone(As::Event) if is_watch => {
            let event = json!({"type": "ERROR", "object": status(StatusCode::GONE)});
            return whole(StatusCode::OK, JSON, text(event.to_string() + "\n"));
        }
        Lie::Expired if query.contains("continue=") => return refusal(StatusCode::GONE, JSON),
        Lie::Empty { ago } if is_streamed && told.lies_about(&collection(request.uri())) => {
            return nothing_streamed(request, *ago, upstream).await;
        }
        Lie::Past(events) if is_watch && !is_streamed => {
            let lines: String = events.iter().filter(|it| is_of(it, &request)).map(line).collect();
            return behind(lines, ask(upstream, request).await);
        }
        _ => {}
    }
    if !is_read || is_watch {
        return ask(upstream, request).await;
    }
    let collection = collection(request.uri());
    if query.contains("limit=500") && !matches!(told.lie, Lie::Halved) {
        *request.uri_mut() = with_query(request.uri(), &query.replace("limit=500", &format!("limit={PAGE}")));
    }
    let (head, body) = ask(upstream, request).await.into_parts();
    let Ok(body) = body.collect().await else { return refusal(StatusCode::BAD_GATEWAY, JSON) };
    let body = lied(body.to_bytes(), &collection, told);
    let body = match &told.lie {
        // The complete length was announced.
        Lie::Hang(Part::Half) => endless(body.slice(..body.len() / 2)),
        _ => Full::new(body).map_err(|never| match never {}).boxed_unsync(),
    };
    let mut answer = Response::from_parts(head, body);
    answer.headers_mut().remove(header::CONTENT_LENGTH);
    answer
}

/// The falsified list; anything else is unchanged.
fn lied(body: Bytes, collection: &str, told: &Told) -> Bytes {
    let Ok(mut list) = serde_json::from_slice::<Value>(&body) else { return body };
    let Some(items) = list["items"].as_array().map(Vec::len) else { return body };
    match told.lie {
        Lie::Empty { ago } if told.lies_about(collection) => {
            list["items"] = json!([]);
            list["metadata"]["resourceVersion"] = (revision(&list) - ago).to_string().into();
        }
        Lie::Halved if items >= LONG && told.lies_about(collection) => {
            list["items"].as_array_mut().expect("it is one").truncate(items / 2);
        }
        _ => return body,
    }
    list["metadata"]["continue"] = "".into();
    list.to_string().into()
}

/// The end of a streamed list that had nothing, and what happens from then on.
async fn nothing_streamed(request: Request<Body>, ago: u64, upstream: &Upstream) -> Response<Body> {
    let selectors = selectors(request.uri());
    let mut list = Request::new(empty());
    (*list.method_mut(), *list.headers_mut()) = (Method::GET, request.headers().clone());
    list.headers_mut().insert(header::ACCEPT, http::HeaderValue::from_static(JSON));
    *list.uri_mut() = with_query(request.uri(), &format!("limit=1&{selectors}"));
    let newest = ask(upstream, list).await.into_body().collect().await.map(|body| body.to_bytes());
    let newest = newest.ok().and_then(|body| serde_json::from_slice::<Value>(&body).ok());
    let at = newest.as_ref().map_or(0, revision).saturating_sub(ago);
    let annotations = json!({"k8s.io/initial-events-end": "true"});
    let object = json!({"metadata": {"resourceVersion": at.to_string(), "annotations": annotations}});
    let mut watch = request;
    let from = format!("watch=true&allowWatchBookmarks=true&resourceVersion={at}&{selectors}");
    *watch.uri_mut() = with_query(watch.uri(), &from);
    behind(line(&json!({"type": "BOOKMARK", "object": object})), ask(upstream, watch).await)
}

/// What is watched together.
fn collection(uri: &Uri) -> String {
    format!("{}?{}", uri.path(), selectors(uri))
}

fn selectors(uri: &Uri) -> String {
    let query = uri.query().unwrap_or_default();
    let selectors: Vec<_> = query.split('&').filter(|part| part.contains("Selector=")).collect();
    selectors.join("&")
}

fn revision(list: &Value) -> u64 {
    let revision = list["metadata"]["resourceVersion"].as_str().expect("a list has one");
    revision.parse().expect("a number")
}

/// Whether an event is of the collection that is watched.
fn is_of(event: &Value, request: &Request<Body>) -> bool {
    let kind = event["object"]["kind"].as_str().expect("an object").to_lowercase();
    let collection = request.uri().path().rsplit('/').next().and_then(|name| name.strip_prefix(&*kind));
    matches!(collection, Some("s" | "es"))
}

fn line(event: &Value) -> String {
    format!("{event}\n")
}

/// An answer with something before its body.
fn behind(first: String, answer: Response<Body>) -> Response<Body> {
    let (head, body) = answer.into_parts();
    let first = tokio_stream::once(Ok(Frame::data(Bytes::from(first))));
    let both = first.chain(http_body_util::BodyStream::new(body));
    let mut answer = Response::from_parts(head, StreamBody::new(both).boxed_unsync());
    answer.headers_mut().remove(header::CONTENT_LENGTH);
    answer
}

async fn ask(upstream: &Upstream, request: Request<Body>) -> Response<Body> {
    let mut upstream = upstream.lock().await;
    let answered = match upstream.ready().await {
        Ok(()) => upstream.send_request(request).await,
        Err(error) => Err(error),
    };
    answered
        .map_or_else(|_| refusal(StatusCode::BAD_GATEWAY, JSON), |answer| answer.map(BodyExt::boxed_unsync))
}

const JSON: &str = "application/json";

fn refusal(code: StatusCode, media: &str) -> Response<Body> {
    let said = if media == JSON { status(code).to_string() } else { format!("<html>{code}</html>") };
    let mut answer = whole(code, media, text(said));
    answer.headers_mut().insert(header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    answer
}

fn status(code: StatusCode) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16(),
        "message": code.canonical_reason(), "reason": if code == StatusCode::GONE { "Expired" } else { "" },
    })
}

fn whole(code: StatusCode, media: &str, body: Body) -> Response<Body> {
    let answer = Response::builder().status(code).header(header::CONTENT_TYPE, media);
    answer.body(body).expect("a status and a type")
}

fn empty() -> Body {
    text(String::new())
}

fn text(text: String) -> Body {
    Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync()
}

/// A body that begins like this and never ends.
fn endless(first: impl Into<Bytes>) -> Body {
    let first = tokio_stream::once(Ok(Frame::data(first.into())));
    StreamBody::new(first.chain(tokio_stream::pending())).boxed_unsync()
}

fn with_query(uri: &Uri, query: &str) -> Uri {
    format!("{}?{query}", uri.path()).parse().expect("a path and a query")
}
