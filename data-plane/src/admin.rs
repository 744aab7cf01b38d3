//! The pages of `--admin` and `--health`: health, metrics, ingress-nginx' management interface, and a dump of a host
//! as it is in the table.
//!
//! **Invariant:** nothing here changes any state, and no key is ever shown, neither of a certificate nor of session
//! tickets.

use std::sync::Arc;

use http::StatusCode;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use shared::admin::{self, Body, Page, Pages};
use shared::clock;
use shared::drain::{Phase, Watcher};
use tokio::sync::watch;

use self::controller::Constant;
use self::scrape::Scrape;
use crate::metrics::{Labels, Metrics};
use crate::subscribe::View;
use crate::table::paths::Declared;
use crate::table::{Action, HostEntry, HostTable, Tables, Upstream};

mod controller;
mod management;
mod process;
mod scrape;

/// The data behind the pages.
#[derive(Clone, Debug)]
pub(crate) struct ProxyPages {
    registry: Arc<Registry>,
    view: watch::Receiver<View>,
    drain: Watcher,
    tables: Arc<Tables>,
    metrics: Metrics,
    labels: Labels,
    debug: bool,
}

/// The sources of metrics.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    /// The proxy's own metric families.
    pub(crate) registry: Arc<Registry>,
    /// The workers' counters.
    pub(crate) metrics: Metrics,
    /// The labels of ingress-nginx' metric families.
    pub(crate) labels: Labels,
}

impl ProxyPages {
    /// The pages of `--health`: health and metrics.
    pub(crate) fn new(
        figures: Figures,
        view: watch::Receiver<View>,
        drain: Watcher,
        tables: Arc<Tables>,
    ) -> Self {
        let Figures { registry, metrics, labels } = figures;
        Self { registry, view, drain, tables, metrics, labels, debug: false }
    }

    /// The pages of `--admin`.
    #[must_use]
    pub(crate) fn with_debug(self) -> Self {
        Self { debug: true, ..self }
    }

    /// Why the proxy is not ready for traffic, if it is not.
    fn not_ready(&self) -> Option<String> {
        if self.drain.phase() > Phase::Serving {
            Some("shutting down".to_owned())
        } else if !self.view.borrow().complete {
            let view = self.view.borrow();
            let missing = view.remembered().map(|kept| format!("from the state on disk: {}; ", kept.missing));
            let missing = missing.unwrap_or_default();
            let why = view.failed.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            Some(format!("{missing}the control plane has not sent everything yet{why}"))
        } else {
            None
        }
    }

    /// Tells humans if it is ready only with state from disk.
    fn ready(&self) -> Page {
        let kept = self.view.borrow().remembered().map(|kept| kept.written);
        let Some(written) = kept else { return Page::health(None) };
        let age = clock::wall().duration_since(written).unwrap_or_default().as_secs();
        let body =
            format!("ok, with the state on disk, written {age} s ago: no control plane was reached yet\n");
        Page::text(StatusCode::OK, body)
    }

    fn metrics(&self) -> Page {
        let mut families = String::new();
        if let Err(error) = encode(&mut families, &self.registry) {
            return Page::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"));
        }
        let table = self.tables.current();
        let rules = table.policy().counting.clone().unwrap_or_default();
        let text: Arc<str> = self.labels.text(&rules.class).into();
        let constant = Constant { text: Arc::clone(&text), class: (*rules.class).into() };
        let (metrics, labels, of_process) = (self.metrics.clone(), self.labels.clone(), self.metrics.clone());
        let scrape = Scrape::default()
            .with_text(move |out| out.push_str(&admin::classic(&families)))
            .with(move || metrics.requests(&rules, &labels))
            .with_text(move |out| process::append(&of_process, &text, out));
        let scrape = controller::add(scrape, &table, &self.view.borrow(), &constant);
        Page::prometheus(Body::Pieces(Box::new(scrape)))
    }
}

impl Pages for ProxyPages {
    fn page(&self, path: &str, query: Option<&str>) -> Option<Page> {
        Some(match path {
            "/metrics" => self.metrics(),
            "/readyz" => self.not_ready().map_or_else(|| self.ready(), |why| Page::health(Some(why))),
            // For load balancers (as in ingress-nginx): a proxy that leaves is sent nothing any more.
            "/healthz" if self.drain.phase() > Phase::Serving => {
                Page::text(StatusCode::INTERNAL_SERVER_ERROR, "shutting down\n")
            }
            // The process ends when one of its threads fails, so any response means that it is alive.
            "/healthz" | "/livez" => Page::health(None),
            "/nginx_status" if self.debug => Page::text(StatusCode::OK, self.metrics.stub()),
            "/is-dynamic-lb-initialized" if self.debug => match self.view.borrow().complete {
                true => Page::text(StatusCode::OK, "OK\n"),
                false => Page::text(StatusCode::INTERNAL_SERVER_ERROR, ""),
            },
            path if self.debug && path.starts_with("/configuration/") => {
                management::page(&self.tables.current(), path, query)
            }
            "/debug/table" if self.debug => {
                let host =
                    query.and_then(|query| query.split('&').find_map(|pair| pair.strip_prefix("host=")));
                Page::json(StatusCode::OK, format!("{:#}\n", describe(&self.tables.current(), host)))
            }
            _ => return None,
        })
    }
}

/// The entry that serves a host; without a name, the names of all.
fn describe(table: &HostTable, host: Option<&str>) -> Value {
    match host {
        Some(name) => table.host(&name.to_ascii_lowercase()).map_or(Value::Null, |entry| entry_json(entry)),
        None => {
            let mut names: Vec<&str> = table.iter().map(|entry| entry.name()).collect();
            names.sort_unstable();
            json!({ "generation": table.generation(), "hosts": names })
        }
    }
}

/// Everything about a host that is relevant for requests.
pub(crate) fn entry_json(entry: &HostEntry) -> Value {
    json!({
        "host": entry.name(),
        "tls": entry.has_tls(),
        "certificates": entry.secrets().collect::<Vec<_>>(),
        "aliases": entry.names().map(|names| names.configured().collect::<Vec<_>>()).unwrap_or_default(),
        "www": entry.has_www(),
        "certificate_covers": entry.certificate().map(|certificate| certificate.names().to_vec()),
        "paths": entry.paths().iter().map(path_json).collect::<Vec<_>>(),
    })
}

fn path_json(Declared { kind, entry }: &Declared) -> Value {
    let mut value = json!({
        "path": entry.declared(),
        "type": format!("{kind:?}"),
        "route": &**entry.route(),
        "ingress": entry.owner(),
        "policy": format!("{:?}", entry.policy),
        "stays_plain": entry.stays_plain,
    });
    let (action, more) = match &entry.action {
        Action::Backend(upstream) => ("backend", upstream_json(upstream)),
        Action::DefaultBackend => ("default backend", Value::Null),
        Action::Denied(reason) => ("denied", json!(&**reason)),
        Action::Unavailable => ("unavailable", Value::Null),
    };
    if let Some(errors) = entry.errors() {
        value["errors"] = upstream_json(errors);
    }
    value["action"] = json!(action);
    value["target"] = more;
    value
}

fn upstream_json(upstream: &Upstream) -> Value {
    let endpoints = |cell: &crate::table::BackendCell| -> Vec<String> {
        cell.endpoints().list.iter().map(|endpoint| endpoint.address.to_string()).collect()
    };
    let out = |cell: &crate::table::BackendCell| -> Vec<String> {
        let out = cell.endpoints();
        let out = out.list.iter().filter(|endpoint| endpoint.health.is_out());
        out.map(|endpoint| endpoint.address.to_string()).collect()
    };
    json!({
        "backend": &*upstream.cell.key,
        "endpoints": endpoints(&upstream.cell),
        "out": out(&upstream.cell),
        "affinity": upstream.sticky.as_ref().map(|sticky| format!("{:?}", sticky.rules)),
        "canary": upstream.alternative.as_ref().map(|alternative| json!({
            "backend": &*alternative.cell.key,
            "endpoints": endpoints(&alternative.cell),
            "affinity": alternative.sticky.as_ref().map(|sticky| format!("{:?}", sticky.rules)),
            "policy": alternative.canary.as_ref().map(|canary| format!("{canary:?}")),
        })),
    })
}

#[cfg(test)]
mod tests {
    use shared::drain::Drain;

    use super::*;

    fn pages(view: View) -> (ProxyPages, Drain, watch::Sender<View>) {
        let (drain, watcher) = Drain::new();
        let (sender, view) = watch::channel(view);
        let figures =
            Figures { registry: Arc::default(), metrics: Metrics::new(1), labels: Labels::default() };
        let pages = ProxyPages::new(figures, view, watcher, Tables::new());
        (pages, drain, sender)
    }

    fn status(pages: &ProxyPages, path: &str) -> Option<u16> {
        pages.page(path, None).map(|page| page.status.as_u16())
    }

    #[tokio::test]
    async fn ready_when_complete_and_not_leaving() {
        let (pages, drain, view) = pages(View::default());
        assert_eq!(status(&pages, "/readyz"), Some(503));
        assert_eq!(status(&pages, "/healthz"), Some(200));
        view.send_modify(|view| {
            view.failed = Some("no certificate for proxy a of group b: refused: c".into())
        });
        let page = pages.page("/readyz", None).unwrap();
        let body = "the control plane has not sent everything yet: no certificate for proxy a of group b: refused: c\n";
        assert_eq!(page.body.into_bytes(), body);
        view.send_modify(|view| view.complete = true);
        assert_eq!(status(&pages, "/readyz"), Some(200));
        drain.run(std::time::Duration::ZERO, std::time::Duration::ZERO, || false).await;
        assert_eq!(status(&pages, "/readyz"), Some(503));
        assert_eq!(status(&pages, "/healthz"), Some(500), "load balancers look at it");
        assert_eq!(status(&pages, "/livez"), Some(200), "it is not to be restarted");
    }

    #[test]
    fn health_has_nothing_else() {
        let (pages, _drain, _view) = pages(View::default());
        assert_eq!(status(&pages, "/metrics"), Some(200));
        assert_eq!(status(&pages, "/livez"), Some(200));
        assert_eq!(status(&pages, "/debug/table"), None);
        for path in ["/nginx_status", "/is-dynamic-lb-initialized", "/configuration/backends"] {
            assert_eq!(status(&pages, path), None, "{path}");
        }
        let admin = pages.with_debug();
        assert_eq!(status(&admin, "/livez"), Some(200));
        assert_eq!(status(&admin, "/debug/table"), Some(200));
        assert_eq!(status(&admin, "/nginx_status"), Some(200));
        assert_eq!(status(&admin, "/configuration/backends"), Some(200));
        assert_eq!(status(&admin, "/is-dynamic-lb-initialized"), Some(500), "nothing is known yet");
    }
}
