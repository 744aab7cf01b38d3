//! Pages of `--admin`: health and metrics.

use std::sync::Arc;
use std::time::Instant;

use http::StatusCode;
use shared::admin::{Page, Pages};
use shared::clock;
use tokio::sync::watch;

use crate::enrol::Registrar;
use crate::freshness::Freshness;
use crate::metrics::{Metrics, Original};
use crate::pipeline::Awaited;
use crate::problem::Problems;
use crate::serve::registry::Registry;
use crate::store::Published;

/// What the pages are made from.
#[derive(Debug)]
pub struct ControlPages {
    /// What is offered.
    pub published: Published,
    /// Who lets proxies in; nobody without encryption.
    pub registrar: Option<Registrar>,
    /// Who is connected.
    pub registry: Arc<Registry>,
    /// What is wrong with objects.
    pub problems: watch::Receiver<Problems>,
    /// What was counted.
    pub metrics: Arc<Metrics>,
    /// How fresh the source's objects are.
    pub source: Freshness,
    /// What is missing before anything is offered.
    pub awaited: watch::Receiver<Option<Awaited>>,
    /// What ingress-nginx' families are labelled with.
    pub original: Original,
    /// Until when this replica writes the status of Ingresses; `None`: nobody does.
    pub hold: Option<watch::Receiver<Option<Instant>>>,
    /// Whether the process is on its way out.
    pub leaving: watch::Receiver<bool>,
}

impl ControlPages {
    fn not_ready(&self) -> Option<String> {
        if *self.leaving.borrow() {
            Some("shutting down".to_owned())
        } else if !self.published.head().is_ready() {
            let awaited = self.awaited.borrow();
            Some(awaited.as_ref().map_or_else(|| "nothing was read yet".to_owned(), ToString::to_string))
        } else {
            // A rolling upgrade must not take away the last one that proxies can reach.
            self.registrar.as_ref()?.closed(clock::wall())
        }
    }
}

impl Pages for ControlPages {
    fn page(&self, path: &str, _query: Option<&str>) -> Option<Page> {
        Some(match path {
            "/metrics" => {
                let problems = self.problems.borrow().clone();
                let head = self.published.head();
                let proxies = self.registry.figures(&head, clock::now());
                if let Some(registrar) = &self.registrar {
                    let (certificate, authority) = registrar.ends(clock::wall());
                    self.metrics.note_ends(certificate, authority);
                }
                let mut original = self.original.clone();
                if let (Some((_, leads)), Some(hold)) = (&mut original.leads, &self.hold) {
                    *leads = hold.borrow().is_some_and(|until| until > clock::now());
                }
                let text = self.metrics.render(&head, &proxies, &problems, &self.source, &original);
                Page::metrics(text)
            }
            "/readyz" => Page::health(self.not_ready()),
            // The process ends when a task of it fails, so that whoever answers is alive.
            "/healthz" | "/livez" => Page::text(StatusCode::OK, "ok\n"),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests;
