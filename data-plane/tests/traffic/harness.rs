//! A proxy with one worker and hand-made tables.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use data_plane::access_log;
use data_plane::listen::ports::Ports;
use data_plane::listen::{self, ListenerSet, PublicPorts};
use data_plane::local::{Budgets, KnownNames, Limits, Reach};
use data_plane::metrics::Metrics;
use data_plane::table::Writer;
use data_plane::tls;
use data_plane::worker::{self, WorkerConfig};
use shared::address::AddressSet;
use shared::drain::Drain;
use shared::entry::Entry;
use shared::policy::{BackendPolicy, Canary, LocationPolicy, TextList};
use shared::resource::{
    Backend, EndpointPort, Endpoints, Host, Path, PathType, PortRule, Resource, Route, SETTINGS_KEY,
    Settings, Tls,
};

pub(crate) use test_kit::blocking::{Client, PATIENCE, eventually};
pub(crate) use test_kit::origin::{Origin, ok, read_request};
pub(crate) use test_kit::ports::refusing;
pub(crate) use test_kit::{Answer, Seen};

/// A fleet that clients may reach at this address.
pub(crate) fn bound_to(address: &str) -> LocationPolicy {
    let bind_address = Some(TextList { values: vec![address.to_owned()] });
    LocationPolicy { bind_address, ..LocationPolicy::default() }
}

/// A proxy with one worker.
pub(crate) struct Proxy {
    pub(crate) http: SocketAddr,
    pub(crate) https: SocketAddr,
    pub(crate) metrics: Metrics,
    pub(crate) writer: Writer,
    pub(crate) log: Sink,
    drain: Option<Drain>,
    worker: Option<JoinHandle<io::Result<()>>>,
    log_writer: Option<access_log::Writer>,
}

/// A log that is stored.
#[derive(Clone, Default)]
pub(crate) struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap()
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The policy of a canary's Backend.
#[allow(clippy::needless_update, reason = "policies grow by fields")]
fn taking(canary: Canary) -> BackendPolicy {
    BackendPolicy { canary: Some(canary), ..BackendPolicy::default() }
}

impl Proxy {
    pub(crate) fn start() -> Self {
        Self::with(Limits::default())
    }

    pub(crate) fn with(limits: Limits) -> Self {
        Self::within(limits, Budgets::default())
    }

    /// With these limits and budgets.
    pub(crate) fn within(limits: Limits, budgets: Budgets) -> Self {
        Self::behind(PublicPorts::default(), limits, budgets)
    }

    /// Clients reach it at these ports.
    pub(crate) fn behind(ports: PublicPorts, limits: Limits, budgets: Budgets) -> Self {
        let log = Sink::default();
        let writes = access_log::write_to(log.clone()).unwrap();
        let mut proxy = Self::logging(writes, ports, limits, budgets);
        proxy.log = log;
        proxy
    }

    /// With its own access log. Like `firth up`, it may connect to loopback addresses in policies: origins are there.
    pub(crate) fn logging(
        log: (access_log::Handle, access_log::Writer),
        ports: PublicPorts,
        limits: Limits,
        budgets: Budgets,
    ) -> Self {
        let loopback = AddressSet::parse(["127.0.0.0/8", "::1"]).unwrap();
        Self::knowing(log, ports, (limits, budgets), (KnownNames::default(), Reach::with(loopback)))
    }

    /// With these known names, and these networks that it may connect to.
    pub(crate) fn reaching(names: KnownNames, networks: &[&str]) -> Self {
        let reach = Reach::with(AddressSet::parse(networks.iter().copied()).unwrap());
        let log = access_log::write_to(io::sink()).unwrap();
        Self::knowing(log, PublicPorts::default(), Default::default(), (names, reach))
    }

    fn knowing(
        (handle, log_writer): (access_log::Handle, access_log::Writer),
        ports: PublicPorts,
        (limits, budgets): (Limits, Budgets),
        (names, reach): (KnownNames, Reach),
    ) -> Self {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut sets = listen::bind(&[any], &[any], 1).unwrap();
        ListenerSet::of(&sets).open().unwrap();
        let listeners = sets.remove(0);
        let (http, https) = (listeners[0].address, listeners[1].address);
        let of_services = Ports::new(Some(Ipv4Addr::LOCALHOST.into()), 1, &[]);
        let mut writer = Writer::new().with_ports(of_services);
        writer.apply_config(vec![entry("default", Resource::Settings(Settings::default()))], &[]);
        let tables = Arc::clone(writer.tables());
        let metrics = Metrics::new(1);
        let (drain, watcher) = Drain::new();
        let worker = worker::spawn(WorkerConfig {
            index: 0,
            listeners,
            ports,
            names,
            reach,
            tls: Arc::new(tls::server_config(Arc::clone(&tables), None).unwrap()),
            tables,
            drain: watcher,
            begin: tokio::sync::watch::channel(true).1,
            access_log: handle,
            metrics: metrics.worker(0),
            limits,
            budgets,
        });
        Self {
            http,
            https,
            metrics,
            writer,
            log: Sink::default(),
            drain: Some(drain),
            worker: Some(worker.unwrap()),
            log_writer: Some(log_writer),
        }
    }

    /// Adds resources to the CONFIG lane.
    pub(crate) fn config(&mut self, resources: Vec<(&str, Resource)>) {
        let up = resources.into_iter().map(|(key, resource)| entry(key, resource));
        self.writer.apply_config(up.collect(), &[]);
    }

    /// Replaces the fleet's settings by these defaults.
    pub(crate) fn defaults(&mut self, defaults: LocationPolicy) {
        self.config(vec![(SETTINGS_KEY, Resource::Settings(Settings { defaults, ..Settings::default() }))]);
    }

    /// Adds a resource to the LIVE lane.
    pub(crate) fn live(&mut self, key: &str, resource: Resource) {
        self.writer.apply_live(vec![entry(key, resource)], &[]);
    }

    /// A host with paths to Services of the same names.
    pub(crate) fn host(&mut self, name: &str, tls: bool, paths: &[(&str, PathType, &str)]) {
        let host = Host { tls: tls.then(Tls::default), ..Host::default() };
        let route = Route {
            paths: paths.iter().map(|(path, kind, service)| to(path, *kind, service)).collect(),
            ..Route::default()
        };
        let key = format!("ingress/ns/web/{name}");
        self.config(vec![(name, Resource::Host(host)), (&key, Resource::Route(route))]);
        for (.., service) in paths {
            self.service(service, Backend::default());
        }
    }

    /// `a.test` with these paths and policies; the backend of a path is the Service named like its last segment.
    pub(crate) fn policies(&mut self, tls: bool, paths: &[(&str, LocationPolicy)]) {
        self.config(vec![(
            "a.test",
            Resource::Host(Host { tls: tls.then(Tls::default), ..Host::default() }),
        )]);
        for (path, policy) in paths {
            let service = path.rsplit('/').next().unwrap();
            let route = Route {
                paths: vec![to(path, PathType::Prefix, service)],
                policy: policy.clone(),
                ..Route::default()
            };
            self.config(vec![(&format!("ingress/ns/{service}/a.test"), Resource::Route(route))]);
            self.service(service, Backend::default());
        }
    }

    /// A Backend of a Service; its port rule is filled in.
    pub(crate) fn service(&mut self, name: &str, backend: Backend) {
        let backend = Backend { port: Some(PortRule::default()), ..backend };
        self.config(vec![(&format!("ns/{name}/80"), Resource::Backend(backend))]);
    }

    /// Makes a Service the canary of another one.
    pub(crate) fn canary(&mut self, main: &str, canary: &str, policy: Canary) {
        let alternatives = vec![format!("ns/{canary}/80")];
        self.service(main, Backend { alternatives, ..Backend::default() });
        self.service(canary, Backend { policy: taking(policy), ..Backend::default() });
    }

    /// The endpoints of a Service, with one slice each.
    pub(crate) fn endpoints(&mut self, service: &str, addresses: &[SocketAddr]) {
        self.endpoints_in("ns", service, addresses);
    }

    /// The same, of a Service in this namespace.
    pub(crate) fn endpoints_in(&mut self, namespace: &str, service: &str, addresses: &[SocketAddr]) {
        let slices = addresses.iter().enumerate().map(|(place, address)| {
            let IpAddr::V4(ip) = address.ip() else { panic!("IPv4 alone") };
            let slice = Endpoints {
                service: format!("{namespace}/{service}"),
                ports: vec![EndpointPort { name: String::new(), port: address.port(), udp: false }],
                ipv4: vec![ip],
                ipv6: vec![],
            };
            entry(&format!("{namespace}/{service}-{place}"), Resource::Endpoints(slice))
        });
        let up: Vec<_> = slices.collect();
        self.writer.apply_live(up, &[]);
    }

    /// Removes a resource from the CONFIG lane.
    pub(crate) fn remove(&mut self, kind: shared::kind::Kind, key: &str) {
        let key = shared::kind::ResourceKey::new(kind, key);
        self.writer.apply_config(vec![], &[shared::delta::Removal { key, gone: true }]);
    }

    /// Removes the slice with this index.
    pub(crate) fn remove_endpoint(&mut self, service: &str, place: usize) {
        let key =
            shared::kind::ResourceKey::new(shared::kind::Kind::Endpoints, format!("ns/{service}-{place}"));
        self.writer.apply_live(vec![], &[shared::delta::Removal { key, gone: true }]);
    }

    /// One Service behind `a.test`, at these addresses.
    pub(crate) fn serving(limits: Limits, addresses: &[SocketAddr]) -> Self {
        let mut proxy = Self::with(limits);
        proxy.host("a.test", false, &[("/", PathType::Prefix, "echo")]);
        proxy.endpoints("echo", addresses);
        proxy
    }

    /// Shuts the worker down as a process would, and returns the whole log.
    pub(crate) fn stop(mut self, grace: Duration, deadline: Duration) -> String {
        self.end(grace, deadline);
        self.log.text()
    }

    pub(crate) fn end(&mut self, grace: Duration, deadline: Duration) {
        let Some(drain) = self.drain.take() else { return };
        let metrics = self.metrics.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(drain.run(grace, deadline, || metrics.open() > 0));
        self.worker.take().unwrap().join().unwrap().unwrap();
        self.log_writer.take().unwrap().finish();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end(Duration::ZERO, Duration::ZERO);
        }
    }
}

pub(crate) fn entry(key: &str, resource: Resource) -> Arc<Entry> {
    Arc::new(Entry::encode(key, &resource))
}

/// A path to a Service.
pub(crate) fn to(path: &str, kind: PathType, service: &str) -> Path {
    Path { path: path.to_owned(), kind, backend: Some(format!("ns/{service}/80")), after_exact: false }
}
