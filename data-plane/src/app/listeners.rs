//! The listening addresses of the process. They are bound first, so that an address in use makes the start fail before
//! anything is read.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use shared::admin::{self, Bound, Local};
use tracing::error;

use crate::listen::{self, Listener, Scheme};

/// The bound sockets, which do not accept connections yet.
pub(super) struct Listeners {
    /// The listeners of each worker.
    pub(super) listeners: Vec<Vec<Listener>>,
    pub(super) http: Vec<SocketAddr>,
    pub(super) https: Vec<SocketAddr>,
    pub(super) admin: Option<Bound>,
    pub(super) health: Option<Bound>,
}

impl Listeners {
    /// Binds them, for this many workers.
    ///
    /// # Errors
    /// An address is in use.
    pub(super) fn bind(
        http: &[SocketAddr],
        https: &[SocketAddr],
        admin: Option<Local>,
        health: Option<SocketAddr>,
        workers: usize,
    ) -> anyhow::Result<Self> {
        let listeners = listen::bind(http, https, workers)?;
        let bound = |flag, address: Local| {
            address.bind().with_context(|| format!("cannot listen on {address} ({flag})"))
        };
        Ok(Self {
            http: addresses(&listeners, Scheme::Http),
            https: addresses(&listeners, Scheme::Https),
            listeners,
            admin: admin.map(|address| bound("--admin", address)).transpose()?,
            health: health.map(|address| bound("--health", Local::Tcp(address))).transpose()?,
        })
    }

    /// All addresses, which TCP services must not use.
    pub(super) fn own(&self) -> Vec<SocketAddr> {
        let pages = [&self.admin, &self.health].into_iter().flatten().filter_map(Bound::address);
        self.http.iter().chain(&self.https).copied().chain(pages).collect()
    }
}

fn addresses(listeners: &[Vec<Listener>], scheme: Scheme) -> Vec<SocketAddr> {
    let first = listeners.iter().take(1).flatten();
    first.filter(|it| it.scheme == scheme).map(|it| it.address).collect()
}

/// Serves pages forever, on the runtime of the calling thread.
pub(super) async fn serve(bound: Option<Bound>, pages: Arc<dyn admin::Pages>) {
    let listener = match bound.map(Bound::listen).transpose() {
        Ok(Some(listener)) => listener,
        Ok(None) => return std::future::pending().await,
        Err(error) => return error!(%error, "cannot serve health and metrics"),
    };
    match admin::serve(listener, pages).await {
        Ok(()) => {}
        Err(never) => match never {},
    }
}
