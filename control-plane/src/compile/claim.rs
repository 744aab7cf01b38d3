//! A claim: what one Ingress asks for, compiled without looking at any other object.

pub mod backend_tls;
pub mod client_certificates;
pub mod difference;
mod groups;
pub mod limits;
mod literal;
mod passthrough;
mod refused;
pub mod tls;
mod tls_hosts;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::{Arc, LazyLock};

use shared::few::Few;
use shared::name::{HostName, ObjectName};
use shared::policy::LocationPolicy;
use shared::resource::{CATCH_ALL, Denial, PathType};

use self::tls::ClaimedTls;
use super::referred::{self, AllReferred, Referred};
use crate::annotations::{Parsed, Zones, field};
use crate::objects::{
    Ingress, IngressBackend, IngressPath, IngressPathType, Metadata, ObjectKind, ObjectRef,
};
use crate::problem::{Fault, Severity};

/// The precedence of competing Ingresses: the oldest; of those created in the same second the *greater*
/// `namespace/name`, as in ingress-nginx. One without a valid creationTimestamp is the oldest. No two objects are
/// equal: the kind is compared last.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Age {
    seconds: i64,
    name: Reverse<Arc<str>>,
    kind: ObjectKind,
}

impl Age {
    /// The precedence of an object.
    pub fn of(kind: ObjectKind, metadata: &Metadata) -> Self {
        let created = metadata.creation_timestamp.parse::<jiff::Timestamp>();
        Self {
            seconds: created.map_or(i64::MIN, jiff::Timestamp::as_second),
            name: Reverse(metadata.object_name().to_string().into()),
            kind,
        }
    }

    /// `namespace/name` of the object.
    pub fn name(&self) -> &Arc<str> {
        &self.name.0
    }

    /// The object; `None` for one without a name.
    pub fn object(&self) -> Option<ObjectRef> {
        Some(ObjectRef { kind: self.kind, name: ObjectName::parse(&self.name.0)? })
    }
}

/// A Service port as an Ingress writes it: `80` and `http` are two keys, even if they are the same port.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct BackendKey {
    /// The Service.
    pub service: ObjectName,
    /// Number or name of the port, as written.
    pub port: Arc<str>,
}

/// `namespace/service/port`, the key of its Backend.
impl fmt::Display for BackendKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.port)
    }
}

/// Index of a rule in its Ingress, and of a path in the rule.
pub type PathIndex = (usize, usize);

/// A path of a rule that leads to a Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimedPath {
    /// Begins with a slash.
    pub path: Arc<str>,
    /// How it is compared.
    pub kind: PathType,
    /// The backend it leads to.
    pub backend: BackendKey,
    /// Its position.
    pub place: PathIndex,
}

impl ClaimedPath {
    /// Its field path, for problems.
    pub fn field(&self) -> String {
        let (rule, path) = self.place;
        format!("spec.rules[{rule}].http.paths[{path}]")
    }
}

/// Settings of the fleet's ConfigMap and flags that affect all Ingresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OfFleet {
    /// Snippets take effect.
    pub allows_snippets: bool,
    /// TLS settings towards backends apply to the whole host (`proxy-ssl-location-only` is not on).
    pub shares_backend_tls: bool,
    /// TLS is passed through if an Ingress asks for it: `--enable-ssl-passthrough`.
    pub passes_tls: bool,
    /// In which clients are counted.
    pub zones: Arc<Zones>,
}

/// What one Ingress asks for.
#[derive(Clone, PartialEq, Debug)]
pub struct Claim {
    /// Its name.
    pub name: ObjectName,
    /// Its precedence.
    pub age: Age,
    /// The hosts that its rules name, each with its paths in the order of the Ingress.
    pub hosts: Few<HostName, Vec<ClaimedPath>>,
    /// The backend of `spec.defaultBackend`.
    pub default_backend: Option<BackendKey>,
    /// The backend of its custom error pages.
    pub errors: Option<BackendKey>,
    /// Whether it has any rule.
    pub has_rules: bool,
    /// `spec.tls`.
    pub tls: ClaimedTls,
    /// Its parsed annotations.
    pub parsed: Arc<Parsed>,
    /// The objects that its annotations refer to.
    pub referred: AllReferred,
    /// The fleet's settings.
    pub fleet: OfFleet,
    /// Whether its snippets limit clients by zones of the fleet.
    uses_zones: bool,
    /// Its problems other than those of its annotations, as far as they do not depend on other objects.
    pub faults: Vec<Fault>,
}

impl Claim {
    /// Compiles an Ingress that is not rejected.
    pub fn of(ingress: &Ingress, parsed: Arc<Parsed>, mut referred: AllReferred, fleet: OfFleet) -> Self {
        let name = ingress.metadata.object_name();
        let spec = &ingress.spec;
        let rules: HashSet<_> = spec.rules.iter().map(|rule| rule.host.as_str()).collect();
        for found in referred.values_mut() {
            // An Ingress without rules may own the catch-all.
            if let Some(why) = found.excess(rules.len().max(1)) {
                *found = Referred::Faulty(why);
            }
        }
        let told = parsed.refs.iter();
        let mut faults: Vec<_> = told
            .filter_map(|(reference, field)| referred.get(&reference.what)?.fault(reference, field))
            .collect();
        faults.extend(backend_tls::fault(&parsed, &referred));
        let (parsed, fault) = passthrough::settle(parsed, &fleet);
        faults.extend(fault);
        let uses_zones = limits::has_some(&parsed);
        let (parsed, of_limits) = limits::settle(parsed, &name, &fleet);
        faults.extend(of_limits);
        if !fleet.allows_snippets {
            faults.extend(parsed.snippets.iter().map(|field| not_allowed(field)));
        }
        let mut hosts: BTreeMap<HostName, Vec<ClaimedPath>> = BTreeMap::new();
        for (i, rule) in spec.rules.iter().enumerate() {
            faults.extend(refused::host(&rule.host).map(|why| {
                let field = format!("spec.rules[{i}].host");
                Fault::new(Severity::Warning, field, why)
            }));
            let claimed = hosts.entry(HostName::from_rule(&rule.host)).or_default();
            for (j, path) in rule.http.iter().flat_map(|http| &http.paths).enumerate() {
                // A path whose backend is no Service is ignored, as in ingress-nginx.
                let Some(backend) = backend_key(&name, &path.backend) else {
                    faults.push(no_service(format!("spec.rules[{i}].http.paths[{j}].backend")));
                    continue;
                };
                if path.path_type.is_none() {
                    let field = format!("spec.rules[{i}].http.paths[{j}].pathType");
                    let reason =
                        "expected a pathType, without which an API server refuses the object: Prefix is used";
                    faults.push(Fault::new(Severity::Warning, field, reason));
                }
                claimed.push(ClaimedPath {
                    path: if path.path.is_empty() { "/" } else { &path.path }.into(),
                    kind: kind(path),
                    backend,
                    place: (i, j),
                });
            }
        }
        let default_backend = spec.default_backend.as_ref().and_then(|backend| {
            let key = backend_key(&name, backend);
            if key.is_none() {
                faults.push(no_service("spec.defaultBackend".into()));
            }
            key
        });
        let tls = ClaimedTls::of(&name.namespace, &spec.tls);
        faults.extend(tls.fault());
        if let Some(target) = &parsed.serving.location.rewrite_target
            && let Some(last) = groups::last(target)
        {
            faults.extend(hosts.values().flatten().filter_map(|path| path.group_fault(target, last)));
        }
        // Most have one of each, and a vector that grew has capacity for four.
        hosts.values_mut().for_each(Vec::shrink_to_fit);
        let hosts: Few<_, _> = hosts.into_iter().collect();
        // A canary has no certificates.
        if !parsed.serving.is_canary {
            faults.extend(tls_hosts::faults(&spec.tls, &hosts, &parsed.serving.host));
        }
        Self {
            age: Age::of(ObjectKind::Ingress, &ingress.metadata),
            hosts,
            default_backend,
            errors: errors_backend(&parsed),
            has_rules: !spec.rules.is_empty(),
            tls,
            parsed,
            referred,
            fleet,
            uses_zones,
            faults,
            name,
        }
    }

    /// The policy of its paths with references filled in, and why they answer 503, if they do.
    pub fn location(&self, configured: LocationPolicy) -> (LocationPolicy, Option<Denial>) {
        let Parsed { serving, refs, .. } = &*self.parsed;
        let (mut policy, failed) = referred::filled(configured, refs, &self.referred);
        let failed = failed.map(|reason| Denial { reason: format!("Ingress {}: {reason}", self.name) });
        let denied = serving.denied.clone().or(failed);
        if denied.is_some() && policy.basic_auth.as_ref().is_some_and(|it| it.users.is_empty()) {
            // Proxies refuse a password authentication without users, and the paths would lead elsewhere instead of
            // being denied.
            policy.basic_auth = None;
        }
        (policy, denied)
    }

    /// Whether snippets limit its clients, or would if the fleet had the zones.
    pub fn is_limited_by_zones(&self) -> bool {
        self.uses_zones
    }

    /// Whether it is a canary.
    pub fn is_canary(&self) -> bool {
        self.parsed.serving.is_canary
    }

    /// Whether its `spec.defaultBackend` matters on the catch-all host: that of an Ingress without rules serves it,
    /// that of a canary attaches there.
    pub fn claims_catch_all(&self) -> bool {
        self.default_backend.is_some() && (self.is_canary() || !self.has_rules)
    }

    /// The Ingress object.
    pub fn object(&self) -> ObjectRef {
        ObjectRef { kind: ObjectKind::Ingress, name: self.name.clone() }
    }

    /// All hosts that it applies to, each once.
    pub fn hosts(&self) -> impl Iterator<Item = &HostName> {
        static EVERYBODY: LazyLock<HostName> = LazyLock::new(HostName::catch_all);
        let catch_all = &*EVERYBODY;
        let is_more = self.claims_catch_all() && !self.hosts.contains_key(catch_all);
        self.hosts.keys().chain(is_more.then_some(catch_all))
    }

    /// Whether it applies to a host.
    pub fn counts_for(&self, host: &HostName) -> bool {
        self.hosts.contains_key(host) || (host.as_str() == CATCH_ALL && self.claims_catch_all())
    }

    /// Its paths on a host.
    pub fn paths(&self, host: &HostName) -> &[ClaimedPath] {
        self.hosts.get(host).map_or(&[], Vec::as_slice)
    }

    /// All backends that it refers to, whether it wins the paths or not, with the field paths.
    pub fn references(&self) -> impl Iterator<Item = (&BackendKey, String)> {
        let default = self.default_backend.iter().map(|key| (key, "spec.defaultBackend".to_owned()));
        let paths = self.hosts.values().flatten();
        let errors = self.errors.iter().map(|key| (key, field("default-backend")));
        default.chain(paths.map(|path| (&path.backend, format!("{}.backend", path.field())))).chain(errors)
    }

    /// Its problems that do not depend on other objects.
    pub fn all_faults(&self) -> impl Iterator<Item = &Fault> {
        self.parsed.faults.iter().chain(&self.faults)
    }
}

/// Parses the backend key in its policy.
fn errors_backend(parsed: &Parsed) -> Option<BackendKey> {
    let key = parsed.serving.location.default_backend.as_deref()?;
    let (service, port) = key.rsplit_once('/')?;
    Some(BackendKey { service: ObjectName::parse(service)?, port: port.into() })
}

/// The fault of a snippet that the fleet does not allow.
fn not_allowed(field: &str) -> Fault {
    let reason = "its header directives have no effect, as in ingress-nginx: set allow-snippet-annotations to true in the ConfigMap to allow them";
    Fault::new(Severity::Unsupported, field, reason)
}

fn no_service(field: String) -> Fault {
    Fault::new(Severity::Unsupported, field, "only Services are supported as backends, as in ingress-nginx")
}

/// How a path is compared.
pub fn kind(path: &IngressPath) -> PathType {
    match path.path_type {
        Some(IngressPathType::Exact) => PathType::Exact,
        Some(IngressPathType::Prefix | IngressPathType::ImplementationSpecific) | None => PathType::Prefix,
    }
}

fn backend_key(ingress: &ObjectName, backend: &IngressBackend) -> Option<BackendKey> {
    let service = backend.service.as_ref()?;
    Some(BackendKey {
        service: ObjectName::new(Arc::clone(&ingress.namespace), service.name.as_str()),
        port: service.port.to_string().into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn age(created: &str, name: &str) -> Age {
        let metadata = Metadata {
            namespace: "default".into(),
            name: name.into(),
            creation_timestamp: created.into(),
            ..Metadata::default()
        };
        Age::of(ObjectKind::Ingress, &metadata)
    }

    #[test]
    fn the_oldest_comes_first_then_the_greater_name() {
        let mut ages = [
            age("2026-03-01T00:00:01Z", "a"),
            age("2026-03-01T00:00:00Z", "a"),
            age("2026-03-01T00:00:00Z", "b"),
            age("", "a"),
            age("1970-01-01T00:00:00Z", "z"),
        ];
        ages.sort();
        let names: Vec<_> = ages.iter().map(|age| (age.seconds, &**age.name())).collect();
        assert_eq!(
            names,
            [
                (i64::MIN, "default/a"),
                (0, "default/z"),
                (1_772_323_200, "default/b"),
                (1_772_323_200, "default/a"),
                (1_772_323_201, "default/a"),
            ]
        );
    }

    #[test]
    fn fractions_of_seconds_do_not_count() {
        assert_eq!(age("2026-03-01T00:00:00.9Z", "a"), age("2026-03-01T01:00:00+01:00", "a"));
    }
}
