//! Resolves the names whose addresses are endpoints, periodically, on the control thread.
//!
//! Which name is resolved, and when, is decided in [`names`](crate::table::apply::names); this module does the
//! waiting. As in ingress-nginx' resolver, the hosts file is not used.
//!
//! **Invariant:** no request waits for it, and a slow name delays no other name.

use std::cell::RefCell;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt as _};
use shared::clock;
use tokio::sync::Notify;
use tokio::time;
use tracing::{info, warn};

use crate::dns::{self, Outcome, Servers};
use crate::table::Writer;
use crate::table::apply::names::Answer;

/// Keeps the names of a [`Writer`] resolved.
#[derive(Debug)]
pub(crate) struct Names {
    servers: RefCell<Servers>,
    /// The writer may have names to resolve.
    changed: Notify,
    /// A name was resolved.
    answered: Notify,
}

impl Names {
    /// Uses the DNS servers of this machine.
    pub(crate) fn of_system() -> Self {
        Self::by(Servers::of_system())
    }

    fn by(servers: Servers) -> Self {
        Self { servers: RefCell::new(servers), changed: Notify::new(), answered: Notify::new() }
    }

    /// The writer may have other names.
    pub(crate) fn look(&self) {
        self.changed.notify_one();
    }

    /// Waits until each name was resolved, or failed, once; not longer than `patience`.
    pub(crate) async fn settled(&self, writer: &RefCell<Writer>, patience: Duration) {
        let all = async {
            loop {
                // Several may wait, and an answer is told only to those that do.
                let mut answered = pin!(self.answered.notified());
                answered.as_mut().enable();
                if writer.borrow_mut().names().is_settled() {
                    return;
                }
                answered.await;
            }
        };
        if time::timeout(patience, all).await.is_err() {
            warn!("some external names are not resolved yet: their paths answer 503 until they are");
        }
    }

    /// Resolves names until dropped.
    pub(crate) async fn keep(&self, writer: &RefCell<Writer>) -> Infallible {
        let mut asking = FuturesUnordered::new();
        loop {
            let wake = {
                let mut writer = writer.borrow_mut();
                let now = clock::now();
                while let Some(name) = writer.names().next(now) {
                    let resolver = self.servers.borrow_mut().current(now);
                    asking.push(async move { (Arc::clone(&name), dns::ask(resolver, &name).await) });
                }
                writer.names().wake()
            };
            let until = clock::sleep_until(wake.flatten());
            tokio::select! {
                Some((name, outcome)) = asking.next(), if !asking.is_empty() => {
                    take_in(&mut writer.borrow_mut(), &name, outcome);
                    self.answered.notify_waiters();
                }
                () = self.changed.notified() => {}
                () = until => {}
            }
        }
    }
}

fn take_in(writer: &mut Writer, name: &str, outcome: Outcome) {
    let now = clock::now();
    match outcome {
        Ok(answer) => {
            let count = match &answer {
                Answer::Found { addresses, .. } => addresses.len(),
                Answer::Nothing | Answer::Failed => 0,
            };
            if writer.answered(name, answer, now) {
                match count {
                    0 => warn!(name, "an external name has no address: its paths answer 503"),
                    addresses => info!(name, addresses, "an external name resolves again"),
                }
            }
        }
        Err(reason) => {
            if writer.answered(name, Answer::Failed, now) {
                warn!(name, reason, "an external name cannot be resolved: its last addresses stay in use");
            }
        }
    }
}

#[cfg(test)]
mod tests;
