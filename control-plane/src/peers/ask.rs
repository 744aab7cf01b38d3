//! A request to another replica, at the address that proxies and tools use, with a control plane's certificate.
//!
//! **Invariant:** a request has a timeout, and the response a size limit.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::uri::PathAndQuery;
use rustls::ClientConfig;
use shared::proto::inspect;
use shared::telemetry::without_links;
use shared::tls::connect::Connector;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tonic::Request;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::ANSWER;
use crate::enrol::Registrar;

/// The method.
const SHARE: &str = "/firth.inspect.v1.Inspect/Share";
/// Limit of a response in bytes.
const SHARE_MAX: usize = 32 * 1024 * 1024;
/// Timeout of connecting to a replica.
const CONNECT: Duration = Duration::from_millis(900);

/// Concurrent queries about objects to one replica: others wait for their turn, as long as for an answer.
const AT_ONCE: usize = 4;

/// The response of a replica, or why there is none.
pub(super) type Answer = Result<inspect::ShareResponse, String>;

/// A connection to a replica.
#[derive(Clone, Debug)]
struct Open {
    /// The TLS configuration that it uses.
    credentials: Option<Arc<ClientConfig>>,
    channel: Channel,
    turns: Arc<Semaphore>,
}

/// Connections to replicas, kept for reuse.
#[derive(Debug)]
pub(super) struct Ways {
    /// Provides the own certificate; `None` in plaintext.
    registrar: Option<Registrar>,
    open: Mutex<HashMap<SocketAddr, Open>>,
}

impl Ways {
    pub(super) fn new(registrar: Option<Registrar>) -> Self {
        Self { registrar, open: Mutex::default() }
    }

    /// Asks a replica.
    pub(super) async fn ask(&self, address: SocketAddr, request: inspect::ShareRequest) -> Answer {
        let Open { channel, .. } = self.open(address)?;
        in_time(put(channel, request)).await
    }

    /// Asks a replica about an object, in turn: there are as many such questions as objects. One that hangs takes
    /// nobody's turn at another one.
    pub(super) async fn ask_about(&self, address: SocketAddr, object: inspect::StatusRequest) -> Answer {
        let Open { channel, turns, .. } = self.open(address)?;
        let asked = async {
            let _turn = turns.acquire().await.map_err(|error| error.to_string())?;
            put(channel, inspect::ShareRequest { object: Some(object), ..Default::default() }).await
        };
        in_time(asked).await
    }

    /// An existing connection, or one that is opened on first use. A new certificate needs a new connection.
    fn open(&self, address: SocketAddr) -> Result<Open, String> {
        let credentials = self.registrar.as_ref().map(Registrar::as_peer).transpose()?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |known: &Option<Arc<ClientConfig>>| match (known, &credentials) {
            (Some(known), Some(now)) => Arc::ptr_eq(known, now),
            (known, now) => known.is_none() && now.is_none(),
        };
        if let Some(known) = open.get(&address).filter(|it| is_same(&it.credentials)) {
            return Ok(known.clone());
        }
        if open.len() > 4 * super::PEERS_MAX {
            // Drop connections to addresses that are not in use any more.
            open.clear();
        }
        let scheme = if credentials.is_some() { "https" } else { "http" };
        let endpoint =
            Endpoint::from_shared(format!("{scheme}://{address}")).map_err(|error| error.to_string())?;
        let endpoint = endpoint.connect_timeout(CONNECT);
        let channel = match &credentials {
            Some(config) => {
                endpoint.connect_with_connector_lazy(Connector::from(ClientConfig::clone(config)))
            }
            None => endpoint.connect_lazy(),
        };
        let opened = Open { credentials, channel, turns: Arc::new(Semaphore::new(AT_ONCE)) };
        open.insert(address, opened.clone());
        Ok(opened)
    }
}

async fn put(channel: Channel, request: inspect::ShareRequest) -> Answer {
    let mut grpc = Grpc::new(channel).max_decoding_message_size(SHARE_MAX);
    grpc.ready().await.map_err(|error| reason(&error))?;
    let codec: ProstCodec<inspect::ShareRequest, inspect::ShareResponse> = ProstCodec::default();
    let answer = grpc.unary(Request::new(request), PathAndQuery::from_static(SHARE), codec).await;
    answer.map(tonic::Response::into_inner).map_err(|status| match std::error::Error::source(&status) {
        Some(source) => reason(source),
        None => without_links(format!("{:?}: {}", status.code(), status.message())),
    })
}

async fn in_time(asked: impl Future<Output = Answer>) -> Answer {
    let answer = timeout(ANSWER, asked).await;
    answer.unwrap_or_else(|_| Err(format!("no answer for {} ms", ANSWER.as_millis())))
}

/// The innermost cause.
fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::enrol::folder::Folder;
    use crate::enrol::keeper::{Keeper, Moment};
    use crate::enrol::vault::Vault;

    /// Other replicas end a connection with the certificate that it was opened with.
    #[tokio::test]
    async fn a_new_certificate_needs_a_new_connection() {
        let dir = tempfile::tempdir().unwrap();
        let life = Duration::from_secs(3_600);
        let vault = Vault::Folder(Folder::open(dir.path()).unwrap());
        let mut keeper = Keeper::new(vault, "default", life, &[]).unwrap();
        let start = Moment::now();
        keeper.look(start).await.unwrap();
        let (rotations, _) = mpsc::channel(1);
        let registrar = Registrar::new("default", life, keeper.current(), None, None, rotations);
        let ways = Ways::new(Some(registrar.clone()));
        let shown = || ways.open(SocketAddr::from(([127, 0, 0, 1], 1))).unwrap().credentials.unwrap();
        let first = shown();
        assert!(Arc::ptr_eq(&first, &shown()), "it is kept");
        let late = life.mul_f64(0.9);
        keeper.look(Moment { wall: start.wall + late, steady: start.steady + late }).await.unwrap();
        let renewed = registrar.as_peer().unwrap();
        assert!(!Arc::ptr_eq(&first, &renewed) && Arc::ptr_eq(&renewed, &shown()));
    }
}
