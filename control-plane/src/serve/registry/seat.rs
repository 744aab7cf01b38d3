//! The place of a stream in the registry.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use shared::clock;
use tokio::sync::Notify;

use super::Registry;
use super::proxy::{Parting, Proxy, Silence};
use crate::serve::admission::Caller;
use crate::serve::session::Standing;

/// A stream's place in the registry. When it is dropped the proxy becomes silent, unless another stream replaced it.
#[derive(Debug)]
pub struct Seat {
    pub(super) registry: Arc<Registry>,
    pub(super) id: Arc<str>,
    pub(super) stream: u64,
    pub(super) replaced: Arc<Notify>,
    pub(super) parting: Parting,
}

impl Seat {
    /// Records what the proxy has acknowledged.
    pub fn update(&self, config: &Standing, live: &Standing) {
        if let Some(mut proxy) = self.registry.proxies.get_mut(&self.id)
            && proxy.stream == self.stream
        {
            proxy.config = config.clone();
            proxy.live = live.clone();
            proxy.is_known = true;
            proxy.last = clock::now();
        }
        self.registry.touch();
    }

    /// Sets the connection on which its stream is.
    pub fn is_on(&self, caller: Option<Caller>) {
        if let Some(mut proxy) = self.registry.proxies.get_mut(&self.id)
            && proxy.stream == self.stream
        {
            proxy.caller = caller;
        }
    }

    /// The proxy said goodbye: it is not relied on any more.
    pub fn leave(&self) {
        let is_ours = |_: &Arc<str>, proxy: &Proxy| proxy.stream == self.stream;
        if self.registry.proxies.remove_if(&self.id, is_ours).is_some() {
            self.registry.missed().has_left(Arc::clone(&self.id), clock::now());
        }
        self.registry.touch();
    }

    /// Sets how its stream ends; the default is [`Parting::Cut`].
    pub fn part(&mut self, parting: Parting) {
        self.parting = parting;
    }

    /// Resolves when another stream has replaced this one.
    pub async fn replaced(&self) {
        self.replaced.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.registry.has_silent.store(true, Ordering::Relaxed);
        if let Some(mut proxy) = self.registry.proxies.get_mut(&self.id)
            && proxy.stream == self.stream
        {
            let now = clock::now();
            proxy.last = now.checked_sub(proxy.unheard(now)).unwrap_or(now);
            proxy.caller = None;
            proxy.silence = Some(Silence { since: now, parting: self.parting });
            proxy.is_known = true;
        }
        self.registry.touch();
    }
}
