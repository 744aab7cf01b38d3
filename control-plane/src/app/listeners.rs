//! Listening addresses of the process, and the server of each: they are bound first, so that an address in use ends the
//! start before anything is read.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use shared::admin;
use shared::{budget, socket};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tonic::service::Routes;
use tracing::warn;

use crate::admin::ControlPages;
use crate::args::Args;
use crate::enrol::Registrar;
use crate::metrics::Metrics;
use crate::pipeline::Question;
use crate::serve::limits::{DESCRIPTORS_RESERVED, Limits};
use crate::serve::{self, Service};
use crate::tasks::Supervisor;
use crate::webhook::{self, Pair};

/// The listeners.
pub(super) struct Listeners {
    /// For proxies and tools.
    pub(super) listen: TcpListener,
    /// For health checks and metrics.
    pub(super) admin: Option<TcpListener>,
    /// For the admission requests of API servers.
    pub(super) webhook: Option<WebhookListener>,
}

/// The webhook's listener and certificate; without files the certificate is signed by the own authority.
pub(super) struct WebhookListener {
    listener: TcpListener,
    pair: Option<Pair>,
}

impl Listeners {
    /// Binds the addresses.
    ///
    /// # Errors
    /// If an address is in use, or the flags contradict each other.
    pub(super) async fn bind(args: &Args) -> anyhow::Result<Self> {
        if args.insecure {
            check_plaintext(args.listen)?;
        }
        let listen = bind("--listen", args.listen).await?;
        let admin = match args.admin {
            Some(address) => Some(bind("--admin", address).await?),
            None => None,
        };
        let webhook = match args.validating_webhook {
            Some(address) => {
                let pair = webhook_pair(args)?;
                Some(WebhookListener { listener: bind("--validating-webhook", address).await?, pair })
            }
            None => None,
        };
        Ok(Self { listen, admin, webhook })
    }
}

impl WebhookListener {
    /// Starts to answer API servers, from the pipeline's answers.
    ///
    /// # Errors
    /// If there is no certificate to show.
    pub(super) fn open(
        self,
        tasks: &mut Supervisor,
        registrar: Option<&Registrar>,
        asks: mpsc::Sender<Question>,
        metrics: &Arc<Metrics>,
        ending: watch::Receiver<bool>,
    ) -> anyhow::Result<()> {
        let own = registrar.map(|it| webhook::Certificate::Own(it.current()));
        let files = self.pair.map(|pair| webhook::Certificate::Files(Arc::new(pair)));
        let certificate = files.or(own).context("--validating-webhook: it has no certificate")?;
        let serving = webhook::serve(self.listener, certificate, asks, Arc::clone(metrics), ending);
        tasks.spawn("webhook", serving);
        Ok(())
    }
}

/// Runs the server as a task whose end is an error, unless it was told to leave: then it is reported to the receiver.
pub(super) fn spawn_server(
    tasks: &mut Supervisor,
    listener: TcpListener,
    service: Service,
    inspect: Routes,
    registrar: Option<Registrar>,
    leaves: watch::Receiver<bool>,
) -> oneshot::Receiver<()> {
    let (done, served) = oneshot::channel();
    tasks.spawn("serve", async move {
        serve::run(listener, service, inspect, registrar).await?;
        if *leaves.borrow() {
            // After the timeout nobody waits for this.
            let _ = done.send(());
            return std::future::pending().await;
        }
        Ok::<_, serve::ServeError>(())
    });
    served
}

/// Serves the pages, and returns their address.
pub(super) fn spawn_admin(
    tasks: &mut Supervisor,
    listener: Option<TcpListener>,
    pages: ControlPages,
) -> anyhow::Result<Option<SocketAddr>> {
    let Some(listener) = listener else {
        return Ok(None);
    };
    let address = listener.local_addr()?;
    tasks.spawn("admin", admin::serve(listener, Arc::new(pages)));
    Ok(Some(address))
}

/// Raises the limit of open files to the maximum, and derives the limits of connections from it and from the memory.
pub(super) fn stream_limits(
    memory: Option<u64>,
    connections: Option<NonZeroUsize>,
    per_peer: NonZeroUsize,
) -> Limits {
    let descriptors = rlimit::increase_nofile_limit(rlimit::INFINITY).unwrap_or(1024);
    let mut limits = Limits::within(memory.unwrap_or_else(budget::memory), descriptors);
    if let Some(connections) = connections {
        let most = descriptors.saturating_sub(DESCRIPTORS_RESERVED);
        limits.connections = connections.get().min(usize::try_from(most).unwrap_or(usize::MAX)).max(1);
        if limits.connections < connections.get() {
            warn!(descriptors, connections = limits.connections, "the limit of open files is low; raise it");
        }
    }
    limits.per_peer = per_peer.get();
    limits
}

async fn bind(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let bound = match TcpListener::bind(address).await {
        Err(error) => match socket::without_ipv6(address, &error) {
            Some(other) => TcpListener::bind(other).await,
            None => Err(error),
        },
        bound => bound,
    };
    bound.with_context(|| format!("{flag} {address}: cannot listen there"))
}

fn check_plaintext(listen: SocketAddr) -> anyhow::Result<()> {
    if !listen.ip().is_loopback() {
        bail!(
            "--insecure is refused on {listen}, which is not loopback: private keys would cross the network in the \
             clear, to whoever asks"
        );
    }
    Ok(())
}

/// The certificate files of the webhook; `None`: its certificate is signed by the own authority.
fn webhook_pair(args: &Args) -> anyhow::Result<Option<Pair>> {
    let files = args.validating_webhook_certificate.clone().zip(args.validating_webhook_key.clone());
    match (files, &args.validating_webhook_configuration) {
        (Some(_), Some(_)) => bail!(
            "--validating-webhook-configuration and --validating-webhook-certificate: expected one of them"
        ),
        (Some((certificate, key)), None) => {
            Ok(Some(Pair::open(certificate, key).context("--validating-webhook")?))
        }
        (None, Some(_)) if args.insecure || args.manifests.is_some() => {
            bail!(
                "--validating-webhook-configuration needs a cluster, and cannot be combined with --insecure"
            )
        }
        (None, Some(_)) => Ok(None),
        (None, None) => bail!(
            "--validating-webhook needs --validating-webhook-certificate and --validating-webhook-key, or \
             --validating-webhook-configuration"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plaintext_stays_on_loopback() {
        for (address, allowed) in [
            ("127.0.0.1:1", true),
            ("[::1]:1", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("192.0.2.1:1", false),
        ] {
            assert_eq!(check_plaintext(address.parse().unwrap()).is_ok(), allowed, "{address}");
        }
    }
}
