//! A reference router: determines which Service answers a request, by reading all Ingresses from first to last for each
//! request. Slow and obvious; what the proxy serves is compared with it.
//!
//! It models hosts, paths, precedence and default backends as ingress-nginx does, for Ingresses of our class whose
//! Services all exist, without regular expressions and canaries.

use serde_json::Value;

/// The response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// An answer of the Service `namespace/name`.
    Service(String),
    /// 404 of the default backend.
    NotFound,
    /// 301 to the same path with a slash.
    AddSlash,
}

/// One path of one host, as nginx has locations.
#[derive(Clone, Debug)]
struct Location {
    path: String,
    exact: bool,
    /// `None`: the default backend.
    service: Option<String>,
    /// Made with the host, and given up to the first Ingress that says "/".
    implicit: bool,
}

/// Answers for a set of Ingresses.
#[derive(Clone, Debug)]
pub struct Model {
    hosts: Vec<(String, Vec<Location>)>,
}

impl Model {
    /// For Ingresses in any order.
    pub fn new(ingresses: &[Value]) -> Self {
        let mut sorted: Vec<&Value> = ingresses.iter().collect();
        sorted.sort_by_key(|it| (created(it), std::cmp::Reverse(name(it))));
        let mut model = Self { hosts: Vec::new() };
        model.hosts.push(("_".to_owned(), vec![implicit(None)]));
        for ingress in &sorted {
            if rules(ingress).next().is_none() {
                let catch_all = &mut model.hosts[0].1[0];
                if catch_all.implicit && default_backend(ingress).is_some() {
                    catch_all.service = default_backend(ingress);
                    catch_all.implicit = false;
                }
            }
            for rule in rules(ingress) {
                if model.find(&host(rule)).is_none() {
                    model.hosts.push((host(rule), vec![implicit(default_backend(ingress))]));
                }
            }
        }
        for ingress in &sorted {
            for rule in rules(ingress) {
                for path in rule.pointer("/http/paths").and_then(Value::as_array).into_iter().flatten() {
                    model.add(&host(rule), location(ingress, path));
                }
            }
        }
        model
    }

    /// What a request for a host and a normalised path gets.
    pub fn ask(&self, host: &str, path: &str) -> Verdict {
        let host = host.to_ascii_lowercase();
        let wildcard = host.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        let locations = self
            .find(&host)
            .or_else(|| self.find(&wildcard?))
            .or_else(|| self.find("_"))
            .expect("the catch-all is always there");
        if let Some(found) = locations.iter().find(|it| it.exact && it.path == path) {
            return verdict(found);
        }
        // A Prefix path is itself, exactly, and everything below it after a slash.
        let below = |it: &&Location| {
            !it.exact && (it.path == path || path.starts_with(&format!("{}/", it.path.trim_end_matches('/'))))
        };
        let found = locations.iter().filter(below).max_by_key(|it| it.path.len());
        // A declared `/foo/` answers `/foo` by a redirect where nothing is exactly there.
        let slashed = format!("{path}/");
        let is_declared = locations.iter().any(|it| it.path == slashed);
        match found {
            Some(found) if found.path == path => verdict(found),
            _ if is_declared => Verdict::AddSlash,
            Some(found) => verdict(found),
            None => Verdict::NotFound,
        }
    }

    fn find(&self, host: &str) -> Option<&Vec<Location>> {
        self.hosts.iter().find(|(other, _)| other == host).map(|(_, locations)| locations)
    }

    fn add(&mut self, host: &str, new: Location) {
        let found = self.hosts.iter_mut().find(|(other, _)| other == host);
        let (_, locations) = found.expect("hosts are made first");
        match locations.iter_mut().find(|it| it.path == new.path && it.exact == new.exact) {
            None => locations.push(new),
            Some(old) if old.implicit => *old = new,
            Some(_) => {}
        }
    }
}

fn verdict(location: &Location) -> Verdict {
    match &location.service {
        Some(service) => Verdict::Service(service.clone()),
        None => Verdict::NotFound,
    }
}

fn implicit(service: Option<String>) -> Location {
    Location { path: "/".to_owned(), exact: false, service, implicit: true }
}

fn location(ingress: &Value, path: &Value) -> Location {
    let text = path["path"].as_str().unwrap_or_default();
    Location {
        path: if text.is_empty() { "/" } else { text }.to_owned(),
        exact: path["pathType"] == "Exact",
        service: service(ingress, &path["backend"]),
        implicit: false,
    }
}

fn rules(ingress: &Value) -> impl Iterator<Item = &Value> {
    ingress.pointer("/spec/rules").and_then(Value::as_array).into_iter().flatten()
}

fn host(rule: &Value) -> String {
    match rule["host"].as_str().unwrap_or_default() {
        "" => "_".to_owned(),
        host => host.to_ascii_lowercase(),
    }
}

fn created(ingress: &Value) -> &str {
    ingress.pointer("/metadata/creationTimestamp").and_then(Value::as_str).unwrap_or_default()
}

fn name(ingress: &Value) -> String {
    let text = |pointer: &str| ingress.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    format!("{}/{}", text("/metadata/namespace"), text("/metadata/name"))
}

fn default_backend(ingress: &Value) -> Option<String> {
    service(ingress, ingress.pointer("/spec/defaultBackend")?)
}

fn service(ingress: &Value, backend: &Value) -> Option<String> {
    let service = backend.pointer("/service/name")?.as_str()?;
    let namespace = ingress.pointer("/metadata/namespace")?.as_str()?;
    Some(format!("{namespace}/{service}"))
}
