//! The summary that `firth up` prints when it is ready: hosts, paths and backends, and `curl` commands to try.

mod canary;
mod curl;
mod failure;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use control_plane::problem::Consequence;
use serde_json::Value;
use shared::proto::inspect::{self, Problem};
use shared::resource::SETTINGS_KEY;
use tonic::{Code, Status};

use self::canary::Canary;
use super::authority::StoredIdentity;
use super::ports::{Ports, reachable};
use crate::client::Inspect;
use crate::columns::Columns;
use crate::identity;
use crate::lists;
use crate::output::printable;
use crate::value::{self, field, strings};

/// Limit of the routes that are shown.
const SHOWN: usize = 20;
/// Limit of the slices that are counted, and of the routes that are looked at, at the start.
const COUNTED: usize = 500;

/// The summary.
#[derive(Debug, Default)]
pub(super) struct Served {
    version: String,
    proxies: usize,
    rows: Vec<Row>,
    /// Number of routes that are not shown.
    hidden: usize,
    /// Number of those of them that are known to answer 503.
    hidden_failing: usize,
    /// Whether an Ingress is rejected.
    is_rejected: bool,
    /// Why there is no Ingress to serve, where none is rejected.
    nothing: String,
    /// TCP and UDP services: `tcp 9000`, and the Backend.
    ports: Vec<(String, String)>,
}

/// One path of a host.
#[derive(Debug)]
struct Row {
    host: String,
    /// Whether the host has certificates, and so redirects to https.
    tls: bool,
    path: String,
    exact: bool,
    /// Key of the Backend; empty: the default backend.
    backend: String,
    endpoints: Option<usize>,
    canary: Option<Canary>,
    /// The external name whose addresses are the endpoints.
    external: Option<String>,
    /// The redirect target of its requests, if there is one.
    redirect: Option<String>,
    /// Why it answers 503, if it does.
    failure: Option<String>,
    /// Whether another backend answers in place of a 503.
    has_page: bool,
}

impl Served {
    /// Queries a control plane. `nothing`: why there is no Ingress to serve, if there is none.
    ///
    /// # Errors
    /// If it does not respond.
    pub(super) async fn ask(inspect: &mut Inspect, nothing: String) -> Result<Self, Status> {
        let mut source = Source::new(inspect).await?;
        let proxies = lists::proxies(source.inspect).await?.proxies;
        let mut served = Self { proxies: proxies.len(), nothing, ..Self::default() };
        let problems = lists::problems(source.inspect).await?;
        source.settings = source.get("settings", SETTINGS_KEY).await?.unwrap_or_default();
        source.guard = failure::guard(&source.settings, &problems);
        served.is_rejected =
            problems.iter().any(|it| it.severity == "rejected" && it.object.starts_with("Ingress "));
        for key in source.list("listener").await? {
            let (Some(body), Some(place)) = (source.get("listener", &key).await?, port_shown(&key)) else {
                continue;
            };
            let backend = field(&body, "backend").as_str().unwrap_or_default().to_owned();
            let backend = without_transport(&backend);
            let endpoints = source.endpoints(backend);
            served.ports.push((place, with_endpoints(dotted(backend), endpoints)));
        }
        let mut routes = source.list("route").await?;
        served.version = source.version.clone();
        put_suspects_first(&mut routes, &problems);
        let count = routes.len();
        let mut looked_at = Vec::new();
        for key in routes.into_iter().take(COUNTED) {
            looked_at.push(source.rows(&key, &problems).await?);
        }
        served.show(looked_at, count);
        Ok(served)
    }

    /// Takes in the rows of the routes that were looked at, and the number of all routes. Who has many wants to know which do not work.
    fn show(&mut self, mut looked_at: Vec<Vec<Row>>, count: usize) {
        let fails = |rows: &Vec<Row>| rows.iter().any(|row| row.failure.is_some());
        looked_at.sort_by_key(|rows| !fails(rows));
        let hidden = looked_at.split_off(looked_at.len().min(SHOWN));
        self.hidden = count.saturating_sub(SHOWN);
        self.hidden_failing = hidden.iter().filter(|rows| fails(rows)).count();
        self.rows = looked_at.into_iter().flatten().collect();
        let order = |row: &Row| (row.failure.is_none(), row.host.clone(), row.path.clone());
        self.rows.sort_by_cached_key(order);
    }

    /// The text for the terminal. `program` is the name that this program was run as.
    pub(super) fn render(
        &self,
        dir: &Path,
        ports: &Ports,
        program: &str,
        identity: &StoredIdentity,
    ) -> String {
        let mut text = String::new();
        let flags = flags(ports, identity);
        let dir = printable(&dir.display().to_string());
        let proxies = if self.proxies == 1 { "proxy" } else { "proxies" };
        let _ = writeln!(text, "firth serves {dir}, version {}, on {} {proxies}", self.version, self.proxies);
        let (http, https) = (reachable(ports.http), reachable(ports.https));
        let _ = writeln!(text, "  http://{http}  https://{https}\n");
        if self.rows.is_empty() {
            let why = match self.is_rejected {
                true => format!("what is wrong with the Ingresses of {dir} is said below"),
                false => self.nothing.clone(),
            };
            let _ = writeln!(text, "nothing to serve yet: {why}; every request gets 404\n");
        } else {
            let mut columns = Columns::new(["HOST", "PATH", "BACKEND"]);
            for row in &self.rows {
                columns.push([row.host_shown(), row.path_shown(), row.backend_shown()]);
                let is_asked = row.failure.is_none() && row.redirect.is_none();
                if let Some(canary) = row.canary.as_ref().filter(|_| is_asked) {
                    let service = with_endpoints(dotted(&canary.backend), canary.endpoints);
                    columns.note(&format!("canary {service}: {}", canary.describe()));
                }
            }
            text.push_str(&columns.render(2));
            if self.hidden > 0 {
                let failing = match self.hidden_failing {
                    0 => String::new(),
                    count => format!(", {count} of which answer 503"),
                };
                let hidden = self.hidden;
                let _ = writeln!(
                    text,
                    "  and {hidden} routes more{failing}: {program} resources --kind route{flags}"
                );
            }
            let _ = writeln!(text, "\ntry:");
            // What answers is tried first.
            let (failing, fine): (Vec<_>, Vec<_>) = self.rows.iter().partition(|row| row.failure.is_some());
            for line in curl::lines(fine.into_iter().chain(failing), http, https) {
                let _ = writeln!(text, "  {}", printable(&line));
            }
            text.push('\n');
        }
        if !self.ports.is_empty() {
            let mut columns = Columns::new(["PORT", "BACKEND"]);
            self.ports.iter().for_each(|(port, backend)| columns.push([port.clone(), backend.clone()]));
            text.push_str(&columns.render(2));
            text.push('\n');
        }
        let _ = writeln!(text, "ask it:");
        for question in ["proxies", "history", "problems"] {
            let _ = writeln!(text, "  {program} {question}{flags}");
        }
        let grpcurl = identity::grpcurl(&identity.folder, &ports.listen.to_string());
        let _ = writeln!(text, "  {} list\n", printable(&grpcurl));
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
        if let Some(reason) = &self.failure {
            let page = if self.has_page { ", or what custom-http-errors puts in its place" } else { "" };
            return format!("503{page}: {reason}");
        }
        if let Some(redirect) = &self.redirect {
            return redirect.clone();
        }
        match &self.external {
            _ if self.backend.is_empty() => "404: the default backend".to_owned(),
            Some(name) => format!("{}, the addresses of {name}", dotted(&self.backend)),
            None => with_endpoints(dotted(&self.backend), self.endpoints),
        }
    }
}

/// The routes of objects with a problem for which requests fail come before the others: if there are too many to look at all, these are
/// not left out.
fn put_suspects_first(routes: &mut [String], problems: &[Problem]) {
    let fails = problems.iter().filter(|it| it.consequence == Consequence::Fails.as_str());
    let suspects: BTreeSet<&str> = fails.map(|it| it.object.as_str()).collect();
    routes.sort_by_cached_key(|key| {
        !object_and_host(key).is_some_and(|(object, _)| suspects.contains(&*object))
    });
}

/// The flags with which a command asks this control plane.
fn flags(ports: &Ports, identity: &StoredIdentity) -> String {
    let mut flags = match ports.listen == SocketAddr::from((Ipv4Addr::LOCALHOST, 15010)) {
        true => String::new(),
        false => format!(" --server https://{}", ports.listen),
    };
    if !identity.found {
        let _ = write!(flags, " --identity {}", printable(&identity.folder.display().to_string()));
    }
    flags
}

/// The Service with its number of endpoints, if they were counted.
fn with_endpoints(service: String, endpoints: Option<usize>) -> String {
    match endpoints {
        Some(0) => format!("{service}, no endpoints"),
        Some(1) => format!("{service}, 1 endpoint"),
        Some(count) => format!("{service}, {count} endpoints"),
        None => service,
    }
}

/// `tcp-9000`, the key of a TCP service, as `tcp 9000`; `None` for HTTP and HTTPS.
fn port_shown(key: &str) -> Option<String> {
    key.split_once('-').map(|(transport, port)| format!("{transport} {port}"))
}

/// `default/db/5432/tcp`, the key of the Backend of a TCP service, without the transport, which the row says anyway.
fn without_transport(key: &str) -> &str {
    key.strip_suffix("/tcp").or_else(|| key.strip_suffix("/udp")).unwrap_or(key)
}

/// `default/web/80` as `default/web:80`.
fn dotted(key: &str) -> String {
    match key.rsplit_once('/') {
        Some((service, port)) => format!("{service}:{port}"),
        None => key.to_owned(),
    }
}

/// `Ingress default/web` and its host, from the key `ingress/default/web/a.test`: none of the four parts contains a
/// slash.
fn object_and_host(key: &str) -> Option<(String, &str)> {
    let (object, host) = key.rsplit_once('/')?;
    let (_kind, name) = object.split_once('/')?;
    Some((format!("Ingress {name}"), host))
}

fn is_exact(kind: &Value) -> bool {
    kind.as_str().is_some_and(|it| it.ends_with("EXACT")) || kind.as_i64() == Some(1)
}

/// A control plane, with cached responses.
struct Source<'a> {
    inspect: &'a mut Inspect,
    version: String,
    /// Endpoints by `namespace/name` of the Service; `None` if there are too many slices to count.
    endpoints: Option<BTreeMap<String, usize>>,
    /// Why paths answer 503, if they do.
    guard: Option<failure::Guard>,
    /// Those of the fleet.
    settings: Value,
}

impl<'a> Source<'a> {
    async fn new(inspect: &'a mut Inspect) -> Result<Self, Status> {
        let mut source =
            Source { inspect, version: String::new(), endpoints: None, guard: None, settings: Value::Null };
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

    /// The body of a resource; `None` if it was removed since it was listed.
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

    /// The paths of a Route.
    async fn rows(&mut self, key: &str, problems: &[Problem]) -> Result<Vec<Row>, Status> {
        let mut rows = Vec::new();
        let Some((object, host)) = object_and_host(key) else {
            return Ok(rows);
        };
        let (Some(route), host_body) = (self.get("route", key).await?, self.get("host", host).await?) else {
            return Ok(rows);
        };
        let host_body = host_body.unwrap_or_default();
        let substitute = field(field(&route, "policy"), "default_backend").as_str().unwrap_or_default();
        for path in field(&route, "paths").as_array().into_iter().flatten() {
            let matched = field(path, "match");
            let backend = field(path, "backends").get(0).map(|backend| field(backend, "key"));
            let backend = backend.and_then(Value::as_str).unwrap_or_default().to_owned();
            let body = match backend.as_str() {
                "" => Value::Null,
                key => self.get("backend", key).await?.unwrap_or_default(),
            };
            let endpoints = self.endpoints(&backend);
            let guarded = self.guard.as_ref().and_then(|it| it.of(&route));
            let served = failure::Served {
                object: &object,
                route: &route,
                host: &host_body,
                key: &backend,
                backend: &body,
                endpoints,
                substitutes: self.endpoints(substitute),
            };
            let external = field(field(&body, "external_name"), "name").as_str();
            rows.push(Row {
                host: host.to_owned(),
                tls: !field(&host_body, "tls").is_null(),
                path: field(matched, "path").as_str().unwrap_or_default().to_owned(),
                exact: is_exact(field(matched, "type")),
                endpoints,
                canary: self.canary(&body).await?,
                external: external.map(str::to_owned),
                redirect: failure::redirect(&route),
                failure: guarded.or_else(|| served.failure(problems)),
                has_page: failure::has_page(&route, &self.settings),
                backend,
            });
        }
        Ok(rows)
    }

    fn endpoints(&self, backend: &str) -> Option<usize> {
        let (service, _) = backend.rsplit_once('/')?;
        Some(self.endpoints.as_ref()?.get(service).copied().unwrap_or(0))
    }

    async fn canary(&mut self, backend: &Value) -> Result<Option<Canary>, Status> {
        // The first one takes effect.
        let Some(alternative) = strings(field(backend, "alternatives")).next().map(str::to_owned) else {
            return Ok(None);
        };
        let policy = self.get("backend", &alternative).await?.unwrap_or_default();
        let mut canary = Canary::of(alternative, field(field(&policy, "policy"), "canary"));
        canary.endpoints = self.endpoints(&canary.backend);
        Ok(Some(canary))
    }
}

/// Number of addresses of a slice: columns of numbers, or readable strings.
fn addresses(slice: &Value) -> usize {
    let count = |name| match field(slice, name) {
        Value::Array(list) => list.len(),
        // Base64 of 16 bytes per address.
        Value::String(packed) => packed.trim_end_matches('=').len() * 3 / 4 / 16,
        _ => 0,
    };
    count("ipv4") + count("ipv6") + count("addresses")
}

#[cfg(test)]
mod tests;
