//! The gRPC server: `ConfigStream` for proxies, `Inspect` for people and tools, reflection for grpcurl, on one address.
//! After the handshake, two servers that share nothing take connections: one for calls, and one for enrolment.
//!
//! **Invariant:** nothing here decides what is served. Streams read the newest head; what proxies report goes to the
//! registry.

pub mod admission;
mod admit;
mod calls;
pub mod convergence;
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

use shared::budget::{Budget, Held, PeerPermit, Peers};
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
use admission::{Admission, Call, Caller, Line};
use admit::admit;
use calls::Calls;
use guard::Guard;
use identity::Certificates;
use limits::Limits;
use registry::Registry;
use stream::{Item, Stream};

/// Frames handed to the transport ahead of what it has sent.
const AHEAD: usize = 4;
/// Idle time after which a peer is pinged: a proxy's node may vanish without closing the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Time that a peer has to answer a ping.
const KEEP_ALIVE_ANSWER: Duration = Duration::from_secs(10);
/// Capacity of the queue of connections between handshake and server.
const ADMITTED: usize = 16;

/// Serves configuration. Clones share state.
#[derive(Clone, Debug)]
pub struct Service {
    group: Arc<str>,
    published: Published,
    registry: Arc<Registry>,
    metrics: Arc<Metrics>,
    admission: Admission,
    /// Limits of concurrent streams, in all and per peer.
    streams: Budget,
    peers: Peers,
    refusals: Budget,
    slots: Arc<Semaphore>,
    leaving: watch::Receiver<bool>,
    moving: watch::Receiver<Option<Duration>>,
    barrier: Option<Barrier>,
    /// The newest compile revision of other replicas that accept proxies; 0 if there are none.
    newest: watch::Receiver<u32>,
    source: watch::Receiver<Option<Source>>,
}

/// A stream's share of the limits, and its call.
#[derive(Debug)]
pub(crate) struct StreamPlace {
    _stream: Held,
    _at_peer: Option<PeerPermit>,
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
            admission: Admission::new(limits),
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

    /// Names the source in each Welcome, once it is known.
    #[must_use]
    pub fn with_source(self, source: watch::Receiver<Option<Source>>) -> Self {
        Self { source, ..self }
    }

    /// Makes proxies with a different state wait for a barrier round, since this replica may be behind.
    #[must_use]
    pub fn with_barrier(self, barrier: Barrier) -> Self {
        Self { barrier: Some(barrier), ..self }
    }

    /// Rejects proxies that a newer compile revision has served, while another replica of that revision accepts
    /// proxies.
    #[must_use]
    pub fn with_newest_revision(self, newest: watch::Receiver<u32>) -> Self {
        Self { newest, ..self }
    }

    /// While told a period, hands its proxies to other replicas within it, spread over time, and accepts no new ones.
    #[must_use]
    pub fn with_moves(self, moving: watch::Receiver<Option<Duration>>) -> Self {
        Self { moving, ..self }
    }

    /// Reserves a place for a stream, if the limits allow it.
    fn place(&self, caller: Option<&Caller>, call: Option<Arc<Call>>) -> Result<StreamPlace, Status> {
        let full =
            |what: &str| Status::resource_exhausted(format!("{what} has the maximum number of streams"));
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
    /// Starts the stream of a proxy; returns its frames, followed by the error if it ended with one.
    ///
    /// # Errors
    /// If the limits are reached, or there is nothing to offer yet.
    #[allow(
        clippy::disallowed_methods,
        reason = "a stream's task is owned by its stream: it ends when either side of it does"
    )]
    fn connect(&self, request: Request<Streaming<ProxyMessage>>) -> Result<mpsc::Receiver<Item>, Status> {
        let heads = self.published.heads();
        let head = self.published.head();
        if !head.is_ready() {
            // An empty state must never reach a proxy that has a complete one.
            return Err(Status::unavailable("the first lists are not complete yet"));
        }
        if self.moving.borrow().is_some() {
            return Err(Status::unavailable("this replica sends its proxies to the others"));
        }
        let caller = request.extensions().get::<Caller>();
        let address = caller.map_or_else(|| "unknown".into(), |caller| caller.address().to_string().into());
        let place = self.place(caller, admission::call(&request))?;
        let (out, frames) = mpsc::channel(AHEAD);
        let caller = caller.cloned();
        let stream = Stream::new(self.clone(), head, address, caller, place, out);
        tokio::spawn(stream.run(request.into_inner(), heads));
        Ok(frames)
    }
}

/// Why the server stopped.
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

/// Serves until `service` is told to leave, then until its streams have ended. `also` is served on the same address.
/// Without a `registrar`, in plaintext, everybody is permitted everything.
///
/// # Errors
/// If the transport fails.
pub async fn run(
    listener: TcpListener,
    service: Service,
    also: Routes,
    registrar: Option<Registrar>,
) -> Result<(), ServeError> {
    let reflection =
        || tonic_reflection::server::Builder::configure().register_encoded_file_descriptor_set(DESCRIPTORS);
    let leaving = service.leaving.clone();
    let limits = *service.admission.limits();
    let (calls, called) = mpsc::channel(ADMITTED);
    let (enrolments, enrolled) = mpsc::channel(ADMITTED);
    let admitting =
        admit(service.admission.clone(), listener, registrar.clone(), calls, enrolments, leaving.clone());
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
    // Calls on this server are not registered with admission, so its connections live for the first-call timeout and no
    // longer.
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
    // An error means that the process is ending anyway.
    let _ = leaving.wait_for(|leaving| *leaving).await;
}

fn incoming(lines: mpsc::Receiver<Line>) -> impl tokio_stream::Stream<Item = Result<Line, Infallible>> {
    ReceiverStream::new(lines).map(Ok)
}

#[cfg(test)]
mod tests;
