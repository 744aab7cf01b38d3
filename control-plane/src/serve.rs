//! The gRPC server: `ConfigStream` for proxies, `Inspect` for people and tools, reflection for grpcurl, on one address.
//! Behind the door there are two servers that share nothing: one for calls, and one where certificates are asked for.
//!
//! **Invariant:** nothing here decides what is served. Streams read the newest head; what they say goes to the registry.

mod admit;
mod calls;
pub mod convergence;
pub mod door;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
mod guard;
mod identity;
pub mod limits;
pub mod message;
mod reader;
pub mod refusals;
pub mod registry;
mod roles;
pub mod session;
mod shape;
#[cfg(feature = "sim")]
pub(crate) mod sim;
mod stream;
mod wire;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use shared::budget::{Budget, Held, Peers, Place};
use shared::proto::{DESCRIPTORS, config::ProxyMessage};
use shared::version::Source;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::{Request, Status, Streaming};

use crate::barrier::Barrier;
use crate::enrol::Registrar;
use crate::metrics::Metrics;
use crate::store::Published;
use admit::admit;
use calls::Calls;
use door::{Call, Caller, Door, Line};
use guard::Guard;
use identity::Certificates;
use limits::Limits;
use registry::Registry;
use stream::{Item, Stream};

/// Frames handed to the transport ahead of what it has sent.
const AHEAD: usize = 4;
/// A peer that was silent for so long is asked whether it is there: a proxy's node may vanish without a word.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// It has so long to answer.
const KEEP_ALIVE_ANSWER: Duration = Duration::from_secs(10);
/// Connections whose handshake is over, and which a server has not taken yet.
const ADMITTED: usize = 16;

/// Hands out configuration. A clone is the same service.
#[derive(Clone, Debug)]
pub struct Service {
    group: Arc<str>,
    published: Published,
    registry: Arc<Registry>,
    metrics: Arc<Metrics>,
    door: Door,
    /// Streams at once, and those of one peer.
    streams: Budget,
    peers: Peers,
    refusals: Budget,
    slots: Arc<Semaphore>,
    leaving: watch::Receiver<bool>,
    moving: watch::Receiver<Option<Duration>>,
    barrier: Option<Barrier>,
    /// The newest compile revision of other replicas that take proxies; 0: there is none.
    newest: watch::Receiver<u32>,
    source: watch::Receiver<Option<Source>>,
}

/// One of the streams that there may be, and the call that it is.
#[derive(Debug)]
pub(crate) struct StreamPlace {
    _stream: Held,
    _at_peer: Option<Place>,
    _call: Option<Arc<Call>>,
}

impl Service {
    /// A service of `group`. Streams are told to leave once `leaving` is true.
    pub fn new(
        group: &str,
        published: Published,
        registry: Arc<Registry>,
        metrics: Arc<Metrics>,
        limits: Limits,
        leaving: watch::Receiver<bool>,
    ) -> Self {
        Self {
            group: group.into(),
            published,
            registry,
            metrics,
            door: Door::new(limits),
            streams: Budget::new(limits.connections),
            peers: Peers::new(limits.per_peer),
            refusals: Budget::new(limits.refusals),
            slots: Arc::new(Semaphore::new(limits.full_syncs)),
            leaving,
            moving: watch::Sender::new(None).subscribe(),
            barrier: None,
            newest: watch::Sender::new(0).subscribe(),
            source: watch::Sender::new(None).subscribe(),
        }
    }

    /// Says with each stream what this control plane reads, once that is known.
    #[must_use]
    pub fn reading(self, source: watch::Receiver<Option<Source>>) -> Self {
        Self { source, ..self }
    }

    /// Sends a proxy that has something else nothing before a round has passed: this replica may be behind.
    #[must_use]
    pub fn behind(self, barrier: Barrier) -> Self {
        Self { barrier: Some(barrier), ..self }
    }

    /// Takes no proxy that a newer compile revision has served while one of those takes proxies, which is told here.
    #[must_use]
    pub fn among(self, newest: watch::Receiver<u32>) -> Self {
        Self { newest, ..self }
    }

    /// Once it is told within which time, its proxies go to other replicas, each at a moment of its own, and no more come.
    #[must_use]
    pub fn moving(self, moving: watch::Receiver<Option<Duration>>) -> Self {
        Self { moving, ..self }
    }

    /// A place for one more stream, where there is one.
    fn place(&self, caller: Option<&Caller>, call: Option<Arc<Call>>) -> Result<StreamPlace, Status> {
        let full =
            |what: &str| Status::resource_exhausted(format!("{what} has as many streams as it may have"));
        let at_peer = match caller {
            Some(caller) => {
                Some(self.peers.enter(caller.address().ip()).ok_or_else(|| full("this address"))?)
            }
            None => None,
        };
        let stream = self.streams.take(1).ok_or_else(|| full("this control plane"))?;
        Ok(StreamPlace { _stream: stream, _at_peer: at_peer, _call: call })
    }
}

impl Service {
    /// Begins the stream of a proxy; gives what it is told, frame by frame, and last how it ended, where that was not well.
    ///
    /// # Errors
    /// Where there is no place for it, or nothing that could be told.
    #[allow(
        clippy::disallowed_methods,
        reason = "a stream's task is owned by its stream: it ends when either side of it does"
    )]
    fn connect(&self, request: Request<Streaming<ProxyMessage>>) -> Result<mpsc::Receiver<Item>, Status> {
        let heads = self.published.heads();
        let head = self.published.head();
        if !head.is_ready() {
            // An empty state must never reach a proxy that has a full one.
            return Err(Status::unavailable("the first lists are not complete yet"));
        }
        if self.moving.borrow().is_some() {
            return Err(Status::unavailable("this replica is about to end: there are others"));
        }
        let caller = request.extensions().get::<Caller>();
        let address = caller.map_or_else(|| "unknown".into(), |caller| caller.address().to_string().into());
        let place = self.place(caller, door::call(&request))?;
        let (out, frames) = mpsc::channel(AHEAD);
        let caller = caller.cloned();
        let stream = Stream::new(self.clone(), head, address, caller, place, out);
        tokio::spawn(stream.run(request.into_inner(), heads));
        Ok(frames)
    }
}

/// Why the server does not run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The descriptors of this build are broken.
    #[error("reflection cannot be built: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The transport failed.
    #[error("the gRPC server failed: {0}")]
    Transport(#[from] tonic::transport::Error),
}

/// Serves until `service` is told to leave, then until its streams have left. `also` is served on the same address. Without a
/// `registrar` in plaintext, where everybody may do everything.
///
/// # Errors
/// Where the transport fails.
pub async fn run(
    listener: TcpListener,
    service: Service,
    also: Routes,
    registrar: Option<Registrar>,
) -> Result<(), ServeError> {
    let reflection =
        || tonic_reflection::server::Builder::configure().register_encoded_file_descriptor_set(DESCRIPTORS);
    let leaving = service.leaving.clone();
    let limits = *service.door.limits();
    let (calls, called) = mpsc::channel(ADMITTED);
    let (enrolments, enrolled) = mpsc::channel(ADMITTED);
    let admitting =
        admit(service.door.clone(), listener, registrar.clone(), calls, enrolments, leaving.clone());
    let certificates = registrar.map(Certificates::new);
    let server = Server::builder()
        .layer(Guard)
        .max_concurrent_streams(limits.calls)
        .http2_max_header_list_size(limits.header_list)
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_ANSWER))
        .add_routes(also)
        .add_service(Calls(service))
        .add_optional_service(certificates.clone().map(Certificates::into_identity))
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?)
        .serve_with_incoming_shutdown(incoming(called), leave(leaving.clone()));
    // Nothing here begins a call of the door's: a connection has the time until a first one, and no more.
    let enrolment = Server::builder()
        .max_concurrent_streams(1)
        .http2_max_header_list_size(limits.header_list)
        .timeout(limits.first_call)
        .add_optional_service(certificates.map(Certificates::into_enrolment))
        .serve_with_incoming_shutdown(incoming(enrolled), leave(leaving));
    let ((), server, enrolment) = tokio::join!(admitting, server, enrolment);
    Ok(server.and(enrolment)?)
}

async fn leave(mut leaving: watch::Receiver<bool>) {
    // An error means that the process is over anyway.
    let _ = leaving.wait_for(|leaving| *leaving).await;
}

fn incoming(lines: mpsc::Receiver<Line>) -> impl tokio_stream::Stream<Item = Result<Line, Infallible>> {
    ReceiverStream::new(lines).map(Ok)
}

#[cfg(test)]
mod tests;
