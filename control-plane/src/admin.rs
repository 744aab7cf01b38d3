//! The HTTP pages of `--admin`: health checks and metrics.

use std::sync::Arc;
use std::time::Instant;

use http::StatusCode;
use shared::admin::{self, Body, Page, Pages};
use shared::clock;
use tokio::sync::watch;

use crate::enrol::Registrar;
use crate::metrics::{Metrics, Original};
use crate::pipeline::Start;
use crate::problem::Problems;
use crate::serve::registry::Registry;
use crate::store::Published;

/// The state that the pages are rendered from.
#[derive(Debug)]
pub struct ControlPages {
    /// The configuration that is currently offered to proxies.
    pub published: Published,
    /// Issues certificates to proxies; `None` without encryption.
    pub registrar: Option<Registrar>,
    /// The proxies that are connected.
    pub registry: Arc<Registry>,
    /// Problems of objects.
    pub problems: watch::Receiver<Problems>,
    /// The process' counters.
    pub metrics: Arc<Metrics>,
    /// What is missing before anything can be offered, and how fresh the objects of the source are.
    pub start: Start,
    /// Label values of the metric families that keep ingress-nginx' names.
    pub original: Original,
    /// Until when this replica leads the writing of Ingress statuses; `None`: statuses are not written.
    pub hold: Option<watch::Receiver<Option<Instant>>>,
    /// Whether the process is shutting down.
    pub leaving: watch::Receiver<bool>,
}

impl ControlPages {
    fn not_ready(&self) -> Option<String> {
        if *self.leaving.borrow() {
            Some("shutting down".to_owned())
        } else if !self.published.head().is_ready() {
            Some(self.start.missing())
        } else {
            // Otherwise a rolling upgrade could terminate the last replica that proxies can reach.
            self.registrar.as_ref()?.closed(clock::wall())
        }
    }

    /// What may not be read any more, or cannot be, and that the source does not answer. That is no reason to be not ready: it is the
    /// same for all replicas, and proxies that start must find one.
    fn unread(&self) -> String {
        let forbidden = self.start.source.forbidden();
        let forbidden =
            forbidden.iter().map(|it| format!("not read any more, and kept as it was: {}\n", it.reason));
        let unheard = self.start.source.unheard().map(|it| format!("this replica {}\n", it.stays()));
        let failing = self.start.source.failing();
        let failing = failing.iter().map(|it| format!("{}\n", it.stays()));
        unheard.into_iter().chain(forbidden).chain(failing).collect()
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
                let text = self.metrics.render(&head, &proxies, &problems, &self.start.source, &original);
                let mut text = admin::classic(&text);
                if let Some(process) = admin::Process::read() {
                    process.append(&mut text);
                }
                Page::prometheus(Body::Whole(text.into()))
            }
            "/readyz" => match self.not_ready() {
                Some(problem) => Page::health(Some(problem)),
                None => Page::text(StatusCode::OK, format!("ok\n{}", self.unread())),
            },
            // The process exits when one of its tasks fails, so a process that answers is alive.
            "/healthz" | "/livez" => Page::text(StatusCode::OK, "ok\n"),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests;
