//! The process under test: a proxy whose single worker thread is counted, and a channel to the test.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use data_plane::access_log;
use data_plane::listen::PublicPorts;
use data_plane::local::{Budgets, Limits};
use shared::policy::{BackendProtocol, HostPolicy, LocationPolicy, TextList};
use shared::resource::{
    Backend, EndpointPort, Endpoints, Host, Listener, PathType, PortRule, Resource, Route, StreamService,
    Transport,
};
use test_kit::ports::refusing;

use super::churn;
use super::counted::{self, Allocated};
use super::harness::{self, PATIENCE, Proxy, eventually, to};

/// The environment variable that gives the child the address of the test, the endpoint, and its scene.
const WHERE: &str = "FIRTH_COSTS_CALLER";
const ENDPOINT: &str = "FIRTH_COSTS_ENDPOINT";
const SCENE: &str = "FIRTH_COSTS_SCENE";

/// Number of hosts of a proxy with many.
pub(crate) const HOSTS: usize = 2_000;

/// Number of hosts of a proxy whose memory per route is measured.
pub(crate) const ROUTES: usize = 20_000;

/// The configuration of a proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scene {
    /// One host with one path, and another one with TLS.
    Plain,
    /// The same, with each request logged.
    Logged,
    /// A path with rewriting, CORS and timeouts of its own.
    Policies,
    /// [`HOSTS`] hosts.
    Many,
    /// [`ROUTES`] hosts, each with a route of its own.
    Routes,
    /// The same, each with a Service of its own.
    Services,
    /// A host whose endpoint speaks HTTP/2, as for gRPC.
    Calls,
    /// A TCP service.
    Sessions,
    /// [`churn::SERVICES`], whose endpoints change.
    Churn,
}

impl Scene {
    const ALL: [Self; 9] = [
        Self::Plain,
        Self::Logged,
        Self::Policies,
        Self::Many,
        Self::Routes,
        Self::Services,
        Self::Calls,
        Self::Sessions,
        Self::Churn,
    ];

    /// `port` is that of a TCP service.
    fn set_up(self, proxy: &mut Proxy, endpoint: SocketAddr, port: u16) {
        match self {
            Self::Plain | Self::Logged => {
                proxy.host("a.test", false, &[("/", PathType::Prefix, "echo")]);
                proxy.host("tls.test", true, &[("/", PathType::Prefix, "echo")]);
            }
            Self::Policies => {
                let policy = HostPolicy { regex: Some(true), ..HostPolicy::default() };
                let route = Route {
                    paths: vec![to("/api(/|$)(.*)", PathType::Prefix, "echo")],
                    policy: policies(),
                    ..Route::default()
                };
                proxy.config(vec![
                    ("a.test", Resource::Host(Host { policy, ..Host::default() })),
                    ("ingress/ns/web/a.test", Resource::Route(route)),
                ]);
            }
            Self::Calls => {
                let policy = LocationPolicy {
                    backend_protocol: Some(BackendProtocol::Grpc.into()),
                    proxy_body_size: Some(0),
                    ..LocationPolicy::default()
                };
                let paths = vec![to("/", PathType::Prefix, "echo")];
                let route = Resource::Route(Route { paths, policy, ..Route::default() });
                let host = Resource::Host(Host::default());
                proxy.config(vec![("a.test", host), ("ingress/ns/web/a.test", route)]);
            }
            Self::Sessions => {
                let service = StreamService {
                    transport: Transport::Tcp,
                    port,
                    backend: "ns/echo/80/tcp".into(),
                    takes_proxy_header: false,
                    sends_proxy_header: false,
                };
                let rule = PortRule { name: "sql".into(), target_port: None, udp: false };
                let backend = Backend { port: Some(rule), ..Backend::default() };
                let port = EndpointPort { name: "sql".into(), port: endpoint.port(), udp: false };
                let slice = Endpoints {
                    service: "ns/echo".into(),
                    ports: vec![port],
                    ipv4: vec![Ipv4Addr::LOCALHOST],
                    ipv6: vec![],
                };
                proxy.live("ns/echo-0", Resource::Endpoints(slice));
                proxy.config(vec![
                    (&service.backend, Resource::Backend(backend)),
                    (&service.key(), Resource::Listener(Listener::Service(service.clone()))),
                ]);
                return eventually("the worker serves the port", || {
                    TcpStream::connect((Ipv4Addr::LOCALHOST, service.port)).is_ok()
                });
            }
            Self::Churn => churn::set_up(proxy, endpoint),
            Self::Many => many(proxy, HOSTS, |_| "echo".to_owned()),
            Self::Routes => many(proxy, ROUTES, |_| "echo".to_owned()),
            Self::Services => {
                services(proxy, ROUTES, endpoint);
                many(proxy, ROUTES, own_service);
            }
        }
        proxy.service("echo", Backend::default());
        proxy.endpoints("echo", &[endpoint]);
    }
}

/// A Service for each of many hosts, with one endpoint.
fn services(proxy: &mut Proxy, count: usize, endpoint: SocketAddr) {
    let slice = |number| {
        let port = EndpointPort { name: "http".into(), port: endpoint.port(), udp: false };
        let (service, ipv4) = (format!("ns/{}", own_service(number)), vec![Ipv4Addr::LOCALHOST]);
        let slice = Endpoints { service, ports: vec![port], ipv4, ipv6: vec![] };
        harness::entry(&format!("ns/{}-0", own_service(number)), Resource::Endpoints(slice))
    };
    proxy.writer.apply_live((0..count).map(slice).collect(), &[]);
    let backend = |number| {
        let rule = PortRule { name: "http".into(), target_port: None, udp: false };
        let backend = Backend { port: Some(rule), ..Backend::default() };
        harness::entry(&format!("ns/{}/80", own_service(number)), Resource::Backend(backend))
    };
    proxy.writer.apply_config((0..count).map(backend).collect(), &[]);
}

/// The name of the Service of one of many hosts.
fn own_service(number: usize) -> String {
    format!("s{number}")
}

/// Many hosts with one path each, applied at once.
fn many(proxy: &mut Proxy, count: usize, service: fn(usize) -> String) {
    let hosts = (0..count).flat_map(|number| {
        let paths = vec![to("/", PathType::Prefix, &service(number))];
        let route = Resource::Route(Route { paths, ..Route::default() });
        let name = host(number);
        [
            harness::entry(&name, Resource::Host(Host::default())),
            harness::entry(&format!("ingress/ns/web/{name}"), route),
        ]
    });
    let hosts: Vec<_> = hosts.collect();
    proxy.writer.apply_config(hosts, &[]);
}

/// The name of one of many hosts.
pub(crate) fn host(number: usize) -> String {
    format!("h{number}.test")
}

fn policies() -> LocationPolicy {
    LocationPolicy {
        rewrite_target: Some("/$2".into()),
        enable_cors: Some(true),
        cors_allow_origin: Some(TextList { values: vec!["https://a.com".to_owned()] }),
        proxy_connect_timeout: Some(7),
        proxy_send_timeout: Some(8),
        proxy_read_timeout: Some(9),
        ..LocationPolicy::default()
    }
}

/// A proxy in a process of its own.
pub(crate) struct Looked {
    process: Child,
    line: TcpStream,
    pub(crate) http: SocketAddr,
    pub(crate) https: SocketAddr,
    /// The address of its TCP service.
    pub(crate) tcp: SocketAddr,
    /// The thread id of its worker.
    pub(crate) worker: i32,
}

impl Looked {
    /// Starts this program again, running [`serve`].
    pub(crate) fn start(scene: Scene, endpoint: SocketAddr) -> Self {
        let caller = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "proxy_that_is_looked_at", "--ignored", "--nocapture"])
            .env(WHERE, caller.local_addr().unwrap().to_string())
            .env(ENDPOINT, endpoint.to_string())
            .env(SCENE, format!("{scene:?}"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let (mut line, _) = caller.accept().unwrap();
        let mut numbers = [0; 16];
        line.read_exact(&mut numbers).unwrap();
        let [http, https, worker, tcp] = four(&numbers);
        let on = |port| SocketAddr::from(([127, 0, 0, 1], u16::try_from(port).unwrap()));
        let (http, https, tcp) = (on(http), on(https), on(tcp));
        Self { process, line, http, https, tcp, worker: i32::try_from(worker).unwrap() }
    }

    /// The allocations of its worker so far, and the bytes held by the process.
    pub(crate) fn allocated(&mut self) -> Allocated {
        self.changed(0)
    }

    /// The same, after the endpoints of so many Services have changed ([`Scene::Churn`], [`churn::FIRST`]).
    pub(crate) fn changed(&mut self, changes: u8) -> Allocated {
        self.line.write_all(&[changes]).unwrap();
        let mut numbers = [[0; 8]; 4];
        self.line.read_exact(numbers.as_flattened_mut()).unwrap();
        Allocated::from_bytes(numbers)
    }

    /// Bytes held once everything has settled. An idle connection is parked within a second.
    pub(crate) fn settled(&mut self) -> i64 {
        let (mut before, mut times) = (self.allocated().live, 0);
        let end = Instant::now() + PATIENCE;
        while times < 15 {
            assert!(Instant::now() < end, "its memory never comes to rest");
            std::thread::sleep(Duration::from_millis(100));
            let now = self.allocated().live;
            times = if now == before { times + 1 } else { 0 };
            before = now;
        }
        before
    }
}

impl Drop for Looked {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn four(bytes: &[u8; 16]) -> [u32; 4] {
    let (numbers, _) = bytes.as_chunks::<4>();
    [0, 1, 2, 3].map(|place| u32::from_ne_bytes(numbers[place]))
}

/// Log lines go here: processing them is not counted as a cost of the worker.
struct Aside;

impl Write for Aside {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        counted::stand_aside();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs the proxy until the test hangs up.
pub(crate) fn serve() {
    let text =
        |name| std::env::var(name).unwrap_or_else(|_| panic!("this is a part of another test: no {name}"));
    let endpoint: SocketAddr = text(ENDPOINT).parse().unwrap();
    let scene = text(SCENE);
    let scene = Scene::ALL.into_iter().find(|it| format!("{it:?}") == scene).unwrap();
    let mut line = TcpStream::connect(text(WHERE)).unwrap();
    let log = match scene {
        Scene::Logged => access_log::write_to(Aside).unwrap(),
        _ => access_log::start(&access_log::Target::Off).unwrap(),
    };
    // One connection lasts to the end.
    let limits = Limits { requests: usize::MAX, ..Limits::default() };
    let mut proxy = Proxy::logging(log, PublicPorts::default(), limits, Budgets::default());
    let port = refusing().port();
    scene.set_up(&mut proxy, endpoint, port);
    let ports = [proxy.http.port(), proxy.https.port(), port].map(u32::from);
    let hello = [ports[0], ports[1], worker(), ports[2]];
    line.write_all(hello.map(u32::to_ne_bytes).as_flattened()).unwrap();
    counted::stand_aside();
    let (mut changes, mut made) = ([0], 0);
    while line.read_exact(&mut changes).is_ok() {
        for _ in 0..changes[0] % churn::FIRST {
            churn::change(&mut proxy, endpoint, made, changes[0] >= churn::FIRST);
            made += 1;
        }
        // Like the control thread's tick: drops what no worker uses any more.
        proxy.writer.collect();
        line.write_all(counted::so_far().to_bytes().as_flattened()).unwrap();
    }
    // Exits without clean-up.
    std::process::exit(0);
}

/// The thread id of this process' worker.
fn worker() -> u32 {
    let named = || {
        let mut tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
        tasks.find(|task| {
            std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("worker-"))
        })
    };
    // A thread sets its name once it runs.
    eventually("a worker", || named().is_some());
    named().unwrap().file_name().unwrap().to_str().unwrap().parse().unwrap()
}
