//! Small worlds of resources for tests: few names, so that they collide.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, OnceLock};

use proptest::prelude::*;
use shared::delta::{Delta, Removal};
use shared::entry::Entry;
use shared::kind::{Kind, Lane, ResourceKey};
use shared::policy::{BackendPolicy, Canary, HostPolicy, LocationPolicy};
use shared::resource::{
    Backend, Certificate, Denial, EndpointPort, Endpoints, Host, Path, PathType, PortRule, Resource, Route,
    Settings, Tls,
};
use shared::snapshot::Snapshot;

use crate::table::{HostEntry, HostTable, Match, Writer};

pub(crate) const HOSTS: [&str; 4] = ["a.test", "*.test", "b.a.test", "_"];
const PATHS: [&str; 6] = ["/", "/foo", "/foo/", "/foo/bar", "/x", "/.well-known/acme-challenge/t"];
const BACKENDS: [&str; 4] = ["ns/s1/80", "ns/s1/http", "ns/s2/80", "ns/s3/80"];
const SERVICES: [&str; 3] = ["ns/s1", "ns/s2", "ns/s3"];
const SECRETS: [&str; 3] = ["ns/a", "ns/wild", "ns/other"];

pub(crate) fn entry(key: &str, resource: Resource) -> Arc<Entry> {
    Arc::new(Entry::encode(key, &resource))
}

pub(crate) fn host(name: &str, secrets: Option<&[&str]>) -> Arc<Entry> {
    let tls = secrets.map(|secrets| Tls { certificates: secrets.iter().map(ToString::to_string).collect() });
    entry(name, Resource::Host(Host { tls, ..Host::default() }))
}

/// Prefix paths of one Ingress with their backends.
pub(crate) fn route(key: &str, paths: &[(&str, &str)]) -> Arc<Entry> {
    let path = |(path, backend): &(&str, &str)| Path {
        path: (*path).to_owned(),
        kind: PathType::Prefix,
        backend: (!backend.is_empty()).then(|| (*backend).to_owned()),
        after_exact: false,
    };
    let paths = paths.iter().map(path).collect();
    entry(key, Resource::Route(Route { paths, ..Route::default() }))
}

/// A Service port called `http` with targetPort 8080.
pub(crate) fn backend(key: &str) -> Arc<Entry> {
    let port = Some(PortRule { name: "http".into(), target_port: Some(8080), udp: false });
    entry(key, Resource::Backend(Backend { port, ..Backend::default() }))
}

/// Addresses 10.0.0.x with the port `http` 8080.
pub(crate) fn slice(key: &str, service: &str, last: &[u8]) -> Arc<Entry> {
    let slice = Endpoints {
        service: service.into(),
        ports: vec![EndpointPort { name: "http".into(), port: 8080, udp: false }],
        ipv4: last.iter().map(|last| Ipv4Addr::new(10, 0, 0, *last)).collect(),
        ipv6: Vec::new(),
    };
    entry(key, Resource::Endpoints(slice))
}

/// A certificate for names; the same names give the same one.
pub(crate) fn certificate(names: &[&str]) -> Certificate {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let pair = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(names).unwrap().self_signed(&pair).unwrap();
    Certificate { leaf: leaf.der().to_vec().into(), key: pair.serialize_der().into(), chain: None }
}

fn known_certificates() -> &'static [Certificate; 3] {
    static MADE: OnceLock<[Certificate; 3]> = OnceLock::new();
    MADE.get_or_init(|| {
        [certificate(&["a.test"]), certificate(&["*.test", "*.a.test"]), certificate(&["else.where"])]
    })
}

pub(crate) fn gone(key: &ResourceKey) -> Removal {
    Removal { key: key.clone(), gone: true }
}

/// Everything that a proxy may serve, host by host, as JSON, and where requests go.
pub(crate) fn dump(table: &HostTable) -> BTreeMap<String, String> {
    let found =
        |entry: &HostEntry, path: &str| match entry.route(path.as_bytes(), &shared::pattern::Steps::new()) {
            Match::Path(it) => format!("{path} -> {} of {}", it.declared(), it.route()),
            Match::AddSlash(it) => format!("{path} -> redirect to {} of {}", it.declared(), it.route()),
            Match::None => format!("{path} -> none"),
            Match::Unknown => format!("{path} -> unknown"),
        };
    let host = |entry: &Arc<HostEntry>| {
        let requests = PATHS.iter().chain(&["/foo/x", "/nothing", "/x/"]);
        let found: Vec<String> = requests.map(|path| found(entry, path)).collect();
        let json = crate::admin::entry_json(entry);
        let names = (entry.app_root(), entry.has_www(), entry.names());
        (entry.name().to_owned(), format!("{json:#} {names:?} {found:#?}"))
    };
    table.iter().map(host).collect()
}

/// A set of resources of both lanes.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub(crate) config: Snapshot,
    pub(crate) live: Snapshot,
}

impl World {
    pub(crate) fn lane(&self, lane: Lane) -> &Snapshot {
        match lane {
            Lane::Config => &self.config,
            Lane::Live => &self.live,
        }
    }

    fn lane_mut(&mut self, lane: Lane) -> &mut Snapshot {
        match lane {
            Lane::Config => &mut self.config,
            Lane::Live => &mut self.live,
        }
    }

    /// Applies a step. In these worlds removal means deletion.
    pub(crate) fn step(&mut self, step: &Step) -> (Lane, Delta) {
        let (key, resource) = step;
        let lane = key.kind.lane();
        let mut delta = Delta::default();
        match resource {
            Some(resource) => delta.up.push(entry(&key.key, resource.clone())),
            None => delta.removed.push(gone(key)),
        }
        delta.apply(self.lane_mut(lane));
        (lane, delta)
    }

    /// A writer with all of it applied.
    pub(crate) fn writer(&self) -> Writer {
        let mut writer = Writer::new();
        writer.apply_live(self.live.iter().cloned().collect(), &[]);
        writer.replace_config(self.config.iter().cloned().collect());
        writer
    }
}

/// A resource that is added, changed or removed.
pub(crate) type Step = (ResourceKey, Option<Resource>);

pub(crate) fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..most)
}

fn step() -> impl Strategy<Value = Step> {
    let key = |kind, key: String| ResourceKey::new(kind, key);
    let named = |names: &'static [&'static str]| prop::sample::select(names).prop_map(ToString::to_string);
    prop_oneof![
        1 => (any::<Option<bool>>(), any::<Option<bool>>(), any::<bool>()).prop_map(move |(ssl_redirect, service_upstream, there)| {
            let backend_defaults = BackendPolicy { service_upstream, ..BackendPolicy::default() };
            let settings = Settings { defaults: redirects(ssl_redirect), backend_defaults, ..Settings::default() };
            (key(Kind::Settings, "default".into()), there.then_some(Resource::Settings(settings)))
        }),
        3 => (named(&HOSTS), prop::option::of(host_strategy()))
            .prop_map(move |(name, it)| (key(Kind::Host, name), it.map(Resource::Host))),
        4 => (named(&["ns/i1", "ns/i2"]), named(&HOSTS), prop::option::weighted(0.8, route_strategy()))
            .prop_map(move |(ingress, host, it)| (key(Kind::Route, format!("ingress/{ingress}/{host}")), it.map(Resource::Route))),
        4 => (named(&BACKENDS), prop::option::weighted(0.8, backend_strategy()))
            .prop_map(move |(name, it)| (key(Kind::Backend, name), it.map(Resource::Backend))),
        6 => (named(&["ns/e1", "ns/e2", "ns/e3"]), prop::option::weighted(0.8, slice_strategy()))
            .prop_map(move |(name, it)| (key(Kind::Endpoints, name), it.map(Resource::Endpoints))),
        2 => (named(&SECRETS), prop::option::weighted(0.8, 0..3_usize)).prop_map(move |(name, it)| {
            let it = it.map(|index| Resource::Certificate(known_certificates()[index].clone()));
            (key(Kind::Certificate, name), it)
        }),
    ]
}

/// A policy with only `ssl-redirect`.
pub(crate) fn redirects(ssl_redirect: Option<bool>) -> LocationPolicy {
    LocationPolicy { ssl_redirect, ..LocationPolicy::default() }
}

/// The policy of a canary with this weight.
#[allow(clippy::needless_update, reason = "policies grow by fields")]
pub(crate) fn taking(weight: Option<i64>) -> BackendPolicy {
    let canary = weight.map(|weight| Canary { weight, ..Canary::default() });
    BackendPolicy { canary, ..BackendPolicy::default() }
}

fn host_strategy() -> impl Strategy<Value = Host> {
    let secrets =
        prop::collection::vec(prop::sample::select(&SECRETS[..]).prop_map(ToString::to_string), 0..3);
    let policy = (prop::bool::weighted(0.2), any::<Option<bool>>()).prop_map(|(regex, www)| HostPolicy {
        regex: regex.then_some(true),
        www,
        ..HostPolicy::default()
    });
    (prop::option::of(secrets), prop::bool::weighted(0.1), policy).prop_map(|(secrets, denied, policy)| {
        Host {
            tls: secrets.map(|certificates| Tls { certificates }),
            denied: denied.then(|| Denial { reason: "no".into() }),
            policy,
        }
    })
}

fn route_strategy() -> impl Strategy<Value = Route> {
    let backend =
        prop::option::weighted(0.9, prop::sample::select(&BACKENDS[..]).prop_map(ToString::to_string));
    let path = (prop::sample::select(&PATHS[..]), any::<bool>(), backend, any::<bool>()).prop_map(
        |(path, exact, backend, after_exact)| Path {
            path: path.into(),
            kind: if exact { PathType::Exact } else { PathType::Prefix },
            backend,
            after_exact,
        },
    );
    let app_root = prop::option::weighted(0.2, "/[ab]");
    let errors =
        prop::option::weighted(0.2, prop::sample::select(&BACKENDS[..]).prop_map(ToString::to_string));
    (prop::collection::vec(path, 0..5), any::<Option<bool>>(), app_root, errors).prop_map(
        |(paths, ssl_redirect, app_root, default_backend)| Route {
            paths,
            policy: LocationPolicy { app_root, default_backend, ..redirects(ssl_redirect) },
            ..Route::default()
        },
    )
}

fn backend_strategy() -> impl Strategy<Value = Backend> {
    let rule = (prop::sample::select(&["http", "admin", ""][..]), prop::option::of(8080..8083_u16))
        .prop_map(|(name, target_port)| PortRule { name: name.into(), target_port, udp: false });
    let alternatives =
        prop::collection::vec(prop::sample::select(&BACKENDS[..]).prop_map(ToString::to_string), 0..2);
    let service = prop::option::of(Just("10.96.0.1:80".parse().unwrap()));
    let configured = prop::option::weighted(0.2, any::<bool>());
    (prop::option::weighted(0.9, rule), service, alternatives, prop::option::of(0..100_i64), configured)
        .prop_map(|(port, service, alternatives, weight, service_upstream)| {
            let policy = BackendPolicy { service_upstream, ..taking(weight) };
            Backend { port, service, alternatives, policy, ..Backend::default() }
        })
}

fn slice_strategy() -> impl Strategy<Value = Endpoints> {
    let port = (prop::sample::select(&["http", "admin"][..]), 8080..8083_u16)
        .prop_map(|(name, port)| EndpointPort { name: name.into(), port, udp: false });
    let addresses = prop::collection::btree_set(1..8_u8, 0..4);
    (prop::sample::select(&SERVICES[..]), prop::collection::vec(port, 0..3), addresses).prop_map(
        |(service, ports, last)| Endpoints {
            service: service.into(),
            ports,
            ipv4: last.iter().map(|last| Ipv4Addr::new(10, 0, 0, *last)).collect(),
            ipv6: Vec::new(),
        },
    )
}
