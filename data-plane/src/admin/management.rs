//! The management interface that users of ingress-nginx write scripts against, for what this proxy serves.
//!
//! **Invariant:** it is read-only, because configuration arrives only on the stream; and no private key is ever shown.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::StatusCode;
use serde_json::{Map, Value, json};
use shared::admin::Page;
use shared::policy::{Affinity, AffinityMode, BackendPolicy, LoadBalance, SameSite};
use shared::resource::{Backend, CATCH_ALL};

use crate::table::policy::balancing::Balancing;
use crate::table::{BackendCell, DEFAULT_UPSTREAM, HostEntry, HostTable, PathEntry, Upstream};

/// The page for a path below `/configuration`. As in ingress-nginx, a query is part of the name, except for
/// certificates.
pub(super) fn page(table: &HostTable, path: &str, query: Option<&str>) -> Page {
    let refused = |reason: &'static str| Page::text(StatusCode::BAD_REQUEST, reason);
    match (path, query) {
        ("/configuration/backends", None) => {
            Page::json(StatusCode::OK, format!("{}\n", Value::Array(backends(table))))
        }
        // In ingress-nginx this page is empty as well.
        ("/configuration/general", None) => Page::json(StatusCode::OK, "{}\n"),
        ("/configuration/servers", None) => refused("Only POST requests are allowed!"),
        ("/configuration/certs", query) => match query.and_then(hostname) {
            None => refused("Hostname must be specified."),
            Some(host) => certificate(table, host).unwrap_or_else(|| {
                Page::text(StatusCode::NOT_FOUND, "No key associated with this hostname.")
            }),
        },
        _ => Page::text(StatusCode::NOT_FOUND, "Not found!"),
    }
}

fn hostname(query: &str) -> Option<&str> {
    query.split('&').find_map(|pair| pair.strip_prefix("hostname=")).filter(|host| !host.is_empty())
}

/// The certificate of a host by its exact name, or by an alias that it covers, with its chain. Its key, which
/// ingress-nginx shows, is omitted.
fn certificate(table: &HostTable, host: &str) -> Option<Page> {
    let certified = match table.iter().find(|entry| entry.name() == host) {
        _ if host == CATCH_ALL => table.certificate(None)?,
        Some(entry) => table.shown(entry)?.1,
        None => {
            let has = |entry: &&HostEntry| {
                entry.names().is_some_and(|names| names.configured().any(|alias| alias == host))
            };
            let (_, certified) = table.shown(table.iter().map(|entry| &**entry).find(has)?)?;
            Some(certified).filter(|certified| certified.covers(host))?
        }
    };
    let pem: String =
        certified.shown().cert.iter().map(|der| shared::pem::write("CERTIFICATE", der).to_string()).collect();
    Some(Page::text(StatusCode::OK, pem))
}

/// What is known about one upstream.
#[derive(Default)]
struct Record<'t> {
    cell: Option<&'t BackendCell>,
    port: Option<&'t str>,
    balancing: Option<&'t Balancing>,
    /// Paths that issue its affinity cookie, by host.
    locations: BTreeMap<&'t str, Vec<&'t str>>,
    /// Whether it is a main upstream anywhere, and not only a canary.
    is_main: bool,
    /// Whether TLS of some host is passed through to it.
    ends_tls: bool,
    /// The main upstream whose affinity it has, as its canary.
    heir_of: Option<String>,
}

/// All upstreams, by name.
fn backends(table: &HostTable) -> Vec<Value> {
    let mut records: BTreeMap<String, Record<'_>> = BTreeMap::new();
    let mut stands_in: BTreeMap<String, (String, &BackendCell)> = BTreeMap::new();
    let entries: Vec<_> = table.iter().map(|host| (host, host.paths())).collect();
    for (host, declared) in &entries {
        let aliases = || host.names().into_iter().flat_map(|names| names.configured());
        for entry in declared.iter().map(|declared| &declared.entry).filter(|entry| entry.names_backend()) {
            let upstream = entry.upstream();
            let name = match upstream {
                Some(upstream) => upstream.name().to_string(),
                None => entry.upstream_name().to_string(),
            };
            let record = records.entry(name.clone()).or_default();
            record.is_main = true;
            record.ends_tls |= host.has_passthrough() && entry.declared() == "/";
            record.port.get_or_insert_with(|| entry.port());
            let errors = entry.errors().filter(|_| has_stand_in(entry, upstream));
            if let Some(errors) = errors.filter(|it| !it.cell.endpoints().list.is_empty()) {
                stands_in.insert(errors.cell.name_in_place(), (name.clone(), &errors.cell));
            }
            if entry.issues_cookie() {
                for name in std::iter::once(host.name()).chain(aliases()) {
                    record.locations.entry(name).or_default().push(entry.declared());
                }
            }
            let Some(upstream) = upstream else { continue };
            (record.cell, record.balancing) = (Some(&*upstream.cell), Some(&upstream.balancing));
            if let Some(other) = &upstream.alternative {
                let record = records.entry(other.name.to_string()).or_default();
                (record.cell, record.balancing) = (Some(&*other.cell), Some(&other.balancing));
                record.heir_of = other.sticky.as_ref().map(|_| name);
            }
        }
    }
    let sticky = |record: &Record<'_>| {
        // An upstream that is a main one anywhere has its own affinity.
        let main = record.heir_of.as_ref().filter(|_| !record.is_main).and_then(|name| records.get(name));
        main.map_or_else(|| record.affinity(), Record::affinity)
    };
    let mut listed: BTreeMap<String, Value> = records
        .iter()
        .map(|(name, record)| (name.clone(), described(name, record, sticky(record))))
        .collect();
    for (name, (of, cell)) in stands_in {
        // As in ingress-nginx, a copy of the upstream that it replaces.
        let Some(Value::Object(mut record)) = listed.get(&of).cloned() else { continue };
        record.insert("name".into(), name.as_str().into());
        record.insert("endpoints".into(), endpoints(cell).into());
        listed.insert(name, record.into());
    }
    listed.insert(DEFAULT_UPSTREAM.into(), fallback(table));
    listed.into_values().collect()
}

/// Whether another backend is asked in place of this one: where it has no endpoints, or for errors that the location lists
/// itself.
fn has_stand_in(entry: &PathEntry, upstream: Option<&Arc<Upstream>>) -> bool {
    let is_idle = upstream.is_none_or(|upstream| upstream.cell.endpoints().list.is_empty());
    is_idle || entry.policy.errors.are_own()
}

impl Record<'_> {
    fn affinity(&self) -> Value {
        let configured = self.cell.and_then(BackendCell::configured);
        affinity(
            configured.as_ref().and_then(|configured| configured.policy.affinity.as_ref()),
            &self.locations,
        )
    }
}

/// The fleet's default backend; the proxy's own 404 has the same address as in ingress-nginx.
fn fallback(table: &HostTable) -> Value {
    let endpoints = match table.default_backend() {
        Some(upstream) => endpoints(&upstream.cell),
        None => vec![json!({ "address": "127.0.0.1", "port": "8181" })],
    };
    let mut record = basic(DEFAULT_UPSTREAM, json!(0), &BackendPolicy::default());
    record.insert("endpoints".into(), endpoints.into());
    record.insert("sessionAffinityConfig".into(), affinity(None, &BTreeMap::new()));
    record.into()
}

fn described(name: &str, record: &Record<'_>, affinity: Value) -> Value {
    let configured = record.cell.and_then(BackendCell::configured);
    let policy = configured.as_ref().map(|configured| configured.policy.clone()).unwrap_or_default();
    let port = record.port.map(str::to_owned).or_else(|| {
        let key = &record.cell?.key;
        key.splitn(3, '/').nth(2).map(str::to_owned)
    });
    let port = port.map_or(Value::Null, |port| match port.parse::<u16>() {
        Ok(number) => json!(number),
        Err(_) => json!(port),
    });
    let mut json = basic(name, port, &policy);
    json.insert("service".into(), service(configured.as_deref()));
    // An external name is shown itself, not its current addresses.
    let external = configured.as_ref().and_then(|configured| configured.external.as_ref());
    let endpoints = match external {
        Some(it) => vec![json!({ "address": it.name.as_str(), "port": it.port.to_string() })],
        None => record.cell.map(endpoints).unwrap_or_default(),
    };
    if !endpoints.is_empty() {
        json.insert("endpoints".into(), endpoints.into());
    }
    json.insert("sslPassthrough".into(), record.ends_tls.into());
    json.insert("noServer".into(), (policy.canary.is_some() && !record.is_main).into());
    json.insert("sessionAffinityConfig".into(), affinity);
    if let Some(algorithm) = algorithm(&policy, record.balancing) {
        json.insert("load-balance".into(), algorithm.into());
    }
    let alternatives = configured.iter().flat_map(|configured| &configured.alternatives);
    let alternatives: Vec<_> = alternatives.map(|key| key.replace('/', "-")).collect();
    if !alternatives.is_empty() {
        json.insert("alternativeBackends".into(), alternatives.into());
    }
    json.into()
}

/// The algorithm as it is configured, even if a hash or an affinity comes before it; absent if it is not, as in
/// ingress-nginx.
fn algorithm(policy: &BackendPolicy, used: Option<&Balancing>) -> Option<&'static str> {
    match (policy.load_balance.is_some(), policy.load_balance(), used) {
        (true, LoadBalance::Ewma, _) | (false, _, Some(Balancing::Ewma)) => Some("ewma"),
        (true, _, _) => Some("round_robin"),
        (false, ..) => None,
    }
}

/// The fields that every record has.
fn basic(name: &str, port: Value, policy: &BackendPolicy) -> Map<String, Value> {
    let canary = policy.canary.clone().unwrap_or_default();
    let mut hash = Map::new();
    if let Some(by) = policy.hash_by.as_deref().filter(|by| !by.is_empty()) {
        hash.insert("upstream-hash-by".into(), by.into());
    }
    if policy.hash_subset == Some(true) {
        hash.insert("upstream-hash-by-subset".into(), true.into());
    }
    let size = policy.hash_subset_size.filter(|size| *size > 0).unwrap_or(3);
    hash.insert("upstream-hash-by-subset-size".into(), size.into());
    let record = json!({
        "name": name,
        "port": port,
        "sslPassthrough": false,
        "noServer": false,
        "trafficShapingPolicy": {
            "weight": canary.weight,
            "weightTotal": canary.weight_total,
            "header": canary.header,
            "headerValue": canary.header_value,
            "headerPattern": canary.header_pattern,
            "cookie": canary.cookie,
        },
        "upstreamHashByConfig": hash,
    });
    match record {
        Value::Object(record) => record,
        _ => Map::new(),
    }
}

/// The parts of the Service that the proxy knows.
fn service(configured: Option<&Backend>) -> Value {
    let mut spec = Map::new();
    if let Some(address) = configured.and_then(|configured| configured.service) {
        spec.insert("clusterIP".into(), address.ip().to_string().into());
    }
    if let Some(name) = configured.and_then(|configured| configured.external.as_ref()) {
        spec.insert("type".into(), "ExternalName".into());
        spec.insert("externalName".into(), name.name.as_str().into());
    }
    json!({ "metadata": { "creationTimestamp": null }, "spec": spec, "status": { "loadBalancer": {} } })
}

fn endpoints(cell: &BackendCell) -> Vec<Value> {
    let endpoint = |address: std::net::SocketAddr| json!({ "address": address.ip().to_string(), "port": address.port().to_string() });
    cell.endpoints().list.iter().map(|it| endpoint(it.address)).collect()
}

fn affinity(configured: Option<&Affinity>, locations: &BTreeMap<&str, Vec<&str>>) -> Value {
    let Some(configured) = configured else {
        return json!({ "name": "", "mode": "", "cookieSessionAffinity": { "name": "" } });
    };
    // As it is configured: that the default is a balanced one is up to who reads this.
    let mode = match configured.mode() {
        AffinityMode::Persistent => "persistent",
        AffinityMode::Balanced => "balanced",
        AffinityMode::Unspecified => "",
    };
    let same_site = match configured.same_site() {
        SameSite::None => "None",
        SameSite::Lax => "Lax",
        SameSite::Strict => "Strict",
        SameSite::Unspecified => "",
    };
    let texts = [
        ("expires", configured.expires.map(|it| it.to_string()).unwrap_or_default()),
        ("maxage", configured.max_age.map(|it| it.to_string()).unwrap_or_default()),
        ("path", configured.path.clone().unwrap_or_default()),
        ("domain", configured.domain.clone().unwrap_or_default()),
        ("samesite", same_site.to_owned()),
    ];
    let flags = [
        ("secure", configured.secure),
        ("conditional_samesite_none", configured.conditional_none),
        ("change_on_failure", configured.change_on_failure),
    ];
    let mut cookie = Map::from_iter([("name".to_owned(), json!(configured.name))]);
    let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
    cookie.extend(texts.map(|(name, text)| (name.to_owned(), json!(text))));
    let flags = flags.into_iter().filter(|(_, is_set)| *is_set);
    cookie.extend(flags.map(|(name, is_set)| (name.to_owned(), json!(is_set))));
    if !locations.is_empty() {
        cookie.insert("locations".into(), json!(locations));
    }
    json!({ "name": "cookie", "mode": mode, "cookieSessionAffinity": cookie })
}

#[cfg(test)]
mod tests;
