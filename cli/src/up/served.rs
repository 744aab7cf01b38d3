//! What `firth up` says when it is ready: hosts, paths and backends, and `curl` lines to try.

mod canary;
mod curl;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use serde_json::Value;
use shared::proto::inspect;
use tonic::{Code, Status};

use self::canary::Canary;
use super::ports::{Ports, reachable};
use crate::client::Inspect;
use crate::columns::Columns;
use crate::lists;
use crate::output::printable;
use crate::value::{self, field, strings};

/// More routes than people read.
const SHOWN: usize = 20;
/// More slices than are worth counting at a start.
const COUNTED: usize = 500;

/// What is served, as far as it is shown.
#[derive(Debug, Default)]
pub(super) struct Served {
    version: String,
    proxies: usize,
    rows: Vec<Row>,
    /// Routes that are not shown.
    hidden: usize,
}

/// One path of a host.
#[derive(Debug)]
struct Row {
    host: String,
    /// Whether the host has certificates of its own, and so redirects to https.
    tls: bool,
    path: String,
    exact: bool,
    /// Key of the Backend; empty: the default backend.
    backend: String,
    endpoints: Option<usize>,
    canary: Option<Canary>,
    denied: bool,
}

impl Served {
    /// Asks a control plane.
    ///
    /// # Errors
    /// Where it does not answer.
    pub(super) async fn ask(inspect: &mut Inspect) -> Result<Self, Status> {
        let mut source = Source::new(inspect).await?;
        let proxies = lists::proxies(source.inspect).await?;
        let mut served = Self { proxies: proxies.len(), ..Self::default() };
        let routes = source.list("route").await?;
        served.version = source.version.clone();
        served.hidden = routes.len().saturating_sub(SHOWN);
        for key in routes.into_iter().take(SHOWN) {
            // Keys are kind/namespace/name/host, and none of the four contains a slash.
            let host = key.rsplit('/').next().unwrap_or_default().to_owned();
            let (Some(route), host_body) =
                (source.get("route", &key).await?, source.get("host", &host).await?)
            else {
                continue;
            };
            let host_body = host_body.unwrap_or_default();
            let denied = [&route, &host_body].iter().any(|body| !field(body, "denied").is_null());
            for path in field(&route, "paths").as_array().into_iter().flatten() {
                let matched = field(path, "match");
                let backend = field(path, "backends").get(0).map(|backend| field(backend, "key"));
                let backend = backend.and_then(Value::as_str).unwrap_or_default().to_owned();
                served.rows.push(Row {
                    host: host.clone(),
                    tls: !field(&host_body, "tls").is_null(),
                    path: field(matched, "path").as_str().unwrap_or_default().to_owned(),
                    exact: is_exact(field(matched, "type")),
                    endpoints: source.endpoints(&backend),
                    canary: source.canary(&backend).await?,
                    denied,
                    backend,
                });
            }
        }
        served.rows.sort_by(|a, b| (&a.host, &a.path).cmp(&(&b.host, &b.path)));
        Ok(served)
    }

    /// The text for the terminal. `program` is what this one was called by.
    pub(super) fn render(&self, dir: &Path, ports: &Ports, program: &str) -> String {
        let mut text = String::new();
        let dir = printable(&dir.display().to_string());
        let proxies = if self.proxies == 1 { "proxy" } else { "proxies" };
        let _ = writeln!(text, "firth serves {dir}, version {}, on {} {proxies}", self.version, self.proxies);
        let (http, https) = (reachable(ports.http), reachable(ports.https));
        let _ = writeln!(text, "  http://{http}  https://{https}\n");
        if self.rows.is_empty() {
            let _ = writeln!(
                text,
                "nothing to serve yet: no Ingress of ours in {dir}; every request is answered with 404\n"
            );
        } else {
            let mut columns = Columns::new(["HOST", "PATH", "BACKEND"]);
            for row in &self.rows {
                columns.push([row.host_shown(), row.path_shown(), row.backend_shown()]);
                if let Some(canary) = row.canary.as_ref().filter(|_| !row.denied) {
                    let service = with_endpoints(dotted(&canary.backend), canary.endpoints);
                    columns.note(&format!("canary {service}: {}", canary.describe()));
                }
            }
            text.push_str(&columns.render(2));
            if self.hidden > 0 {
                let _ = writeln!(text, "  and {} routes more: firth resources --kind route", self.hidden);
            }
            let _ = writeln!(text, "\ntry:");
            for line in curl::lines(&self.rows, http, https) {
                let _ = writeln!(text, "  {}", printable(&line));
            }
            text.push('\n');
        }
        let server = if ports.listen == SocketAddr::from((Ipv4Addr::LOCALHOST, 15010)) {
            String::new()
        } else {
            format!(" --server http://{}", ports.listen)
        };
        let _ = writeln!(text, "ask it:");
        for question in ["proxies", "history"] {
            let _ = writeln!(text, "  {program} {question}{server}");
        }
        let _ = writeln!(text, "  grpcurl -plaintext {} list\n", ports.listen);
        text
    }
}

impl Row {
    fn host_shown(&self) -> String {
        match (self.host.as_str(), self.tls) {
            ("_", _) => "any other".to_owned(),
            (host, true) => format!("{host} (TLS)"),
            (host, false) => host.to_owned(),
        }
    }

    fn path_shown(&self) -> String {
        if self.exact { format!("{} (exact)", self.path) } else { self.path.clone() }
    }

    fn backend_shown(&self) -> String {
        if self.denied {
            return "503: restricted by something that is not enforced yet, see `firth problems`".to_owned();
        }
        if self.backend.is_empty() {
            "404: the default backend".to_owned()
        } else {
            with_endpoints(dotted(&self.backend), self.endpoints)
        }
    }
}

/// The Service and how many endpoints it has, where they were counted.
fn with_endpoints(service: String, endpoints: Option<usize>) -> String {
    match endpoints {
        Some(0) => format!("{service}, no endpoints"),
        Some(1) => format!("{service}, 1 endpoint"),
        Some(count) => format!("{service}, {count} endpoints"),
        None => service,
    }
}

/// `default/web/80` as `default/web:80`.
fn dotted(key: &str) -> String {
    match key.rsplit_once('/') {
        Some((service, port)) => format!("{service}:{port}"),
        None => key.to_owned(),
    }
}

fn is_exact(kind: &Value) -> bool {
    kind.as_str().is_some_and(|it| it.ends_with("EXACT")) || kind.as_i64() == Some(1)
}

/// A control plane, and what was asked of it already.
struct Source<'a> {
    inspect: &'a mut Inspect,
    version: String,
    /// Endpoints by `namespace/name` of the Service; `None` where there are too many slices to count.
    endpoints: Option<BTreeMap<String, usize>>,
}

impl<'a> Source<'a> {
    async fn new(inspect: &'a mut Inspect) -> Result<Self, Status> {
        let mut source = Source { inspect, version: String::new(), endpoints: None };
        let slices = source.list("endpoints").await?;
        if slices.len() <= COUNTED {
            let mut counts = BTreeMap::new();
            for key in slices {
                let body = source.get("endpoints", &key).await?.unwrap_or_default();
                let service = field(&body, "service").as_str().unwrap_or_default().to_owned();
                *counts.entry(service).or_default() += addresses(&body);
            }
            source.endpoints = Some(counts);
        }
        Ok(source)
    }

    async fn list(&mut self, kind: &str) -> Result<Vec<String>, Status> {
        let (resources, version) = lists::resources(self.inspect, kind, "").await?;
        self.version = version;
        Ok(resources.into_iter().map(|it| it.key).collect())
    }

    /// A body; `None` for what is gone since it was listed.
    async fn get(&mut self, kind: &str, key: &str) -> Result<Option<Value>, Status> {
        let request = inspect::GetResourceRequest {
            kind: kind.to_owned(),
            key: key.to_owned(),
            version: String::new(),
        };
        match self.inspect.get_resource(request).await {
            Ok(answer) => Ok(Some(value::object(&answer.into_inner().body.unwrap_or_default()))),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(status),
        }
    }

    fn endpoints(&self, backend: &str) -> Option<usize> {
        let (service, _) = backend.rsplit_once('/')?;
        Some(self.endpoints.as_ref()?.get(service).copied().unwrap_or(0))
    }

    async fn canary(&mut self, backend: &str) -> Result<Option<Canary>, Status> {
        if backend.is_empty() {
            return Ok(None);
        }
        let Some(body) = self.get("backend", backend).await? else {
            return Ok(None);
        };
        // The first one acts.
        let Some(alternative) = strings(field(&body, "alternatives")).next().map(str::to_owned) else {
            return Ok(None);
        };
        let policy = self.get("backend", &alternative).await?.unwrap_or_default();
        let mut canary = Canary::of(alternative, field(field(&policy, "policy"), "canary"));
        canary.endpoints = self.endpoints(&canary.backend);
        Ok(Some(canary))
    }
}

/// How many addresses a slice has: columns of numbers, or strings where they are shown readable.
fn addresses(slice: &Value) -> usize {
    let count = |name| match field(slice, name) {
        Value::Array(list) => list.len(),
        // Bytes in base64, 16 an address.
        Value::String(packed) => packed.trim_end_matches('=').len() * 3 / 4 / 16,
        _ => 0,
    };
    count("ipv4") + count("ipv6") + count("addresses")
}

#[cfg(test)]
mod tests;
