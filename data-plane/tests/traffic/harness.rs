//! A proxy of one worker with tables made by hand, backends that do as they are told, and a client that sends bytes.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
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
use shared::policy::{BackendPolicy, Canary, LocationPolicy};
use shared::resource::{
    Backend, EndpointPort, Endpoints, Host, Path, PathType, PortRule, Resource, Route, Settings, Tls,
};

/// Nothing in a test takes so long unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A proxy that is served by one worker.
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

/// A log that is kept.
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

/// What is said of a canary's Backend.
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

    /// Which clients reach by these ports.
    pub(crate) fn behind(ports: PublicPorts, limits: Limits, budgets: Budgets) -> Self {
        let log = Sink::default();
        let writes = access_log::write_to(log.clone()).unwrap();
        let mut proxy = Self::logging(writes, ports, limits, budgets);
        proxy.log = log;
        proxy
    }

    /// Whose lines go elsewhere. Like that of `firth up`, it connects to loopback where a policy says so: origins are there.
    pub(crate) fn logging(
        log: (access_log::Handle, access_log::Writer),
        ports: PublicPorts,
        limits: Limits,
        budgets: Budgets,
    ) -> Self {
        let loopback = AddressSet::parse(["127.0.0.0/8", "::1"]).unwrap();
        Self::knowing(log, ports, (limits, budgets), (KnownNames::default(), Reach::with(loopback)))
    }

    /// Which nobody says anything but this of names and of where it may connect to.
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
            tls: Arc::new(tls::server_config(Arc::clone(&tables)).unwrap()),
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

    /// Puts resources into the CONFIG lane.
    pub(crate) fn config(&mut self, resources: Vec<(&str, Resource)>) {
        let up = resources.into_iter().map(|(key, resource)| entry(key, resource));
        self.writer.apply_config(up.collect(), &[]);
    }

    /// Puts a resource into the LIVE lane.
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

    /// `a.test` with what is said of each path; a path leads to the Service of its last name.
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

    /// The endpoints of a Service, a slice each.
    pub(crate) fn endpoints(&mut self, service: &str, addresses: &[SocketAddr]) {
        let slices = addresses.iter().enumerate().map(|(place, address)| {
            let IpAddr::V4(ip) = address.ip() else { panic!("IPv4 alone") };
            let slice = Endpoints {
                service: format!("ns/{service}"),
                ports: vec![EndpointPort { name: String::new(), port: address.port(), udp: false }],
                ipv4: vec![ip],
                ipv6: vec![],
            };
            entry(&format!("ns/{service}-{place}"), Resource::Endpoints(slice))
        });
        let up: Vec<_> = slices.collect();
        self.writer.apply_live(up, &[]);
    }

    /// Takes a resource of the CONFIG lane away.
    pub(crate) fn remove(&mut self, kind: shared::kind::Kind, key: &str) {
        let key = shared::kind::ResourceKey::new(kind, key);
        self.writer.apply_config(vec![], &[shared::delta::Removal { key, gone: true }]);
    }

    /// Takes the slice at a place away.
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

    /// Ends the worker as a process would, and gives the whole log.
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
    Path { path: path.to_owned(), kind, backend: Some(format!("ns/{service}/80")) }
}

/// What a backend got.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Number of the connection it came on, from 0.
    pub(crate) connection: usize,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap()
    }

    /// The values of a field.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        fields(&self.head, name)
    }
}

fn fields<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
}

/// A backend that answers as its script says.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// What a script does with a request: bytes to send, and whether the connection stays.
pub(crate) type Answer = (Vec<u8>, bool);

impl Origin {
    /// Answers each request by `script`.
    pub(crate) fn new(script: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Self {
        Self::listening(TcpListener::bind("127.0.0.1:0").unwrap(), script)
    }

    /// The same on a socket that is there.
    pub(crate) fn listening(
        listener: TcpListener,
        script: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::serving(listener, move |mut stream, number, seen| {
            while let Some(request) = read_request(&mut stream, number) {
                seen.lock().unwrap().push(request.clone());
                let (bytes, stays) = script(&request);
                if stream.write_all(&bytes).is_err() || !stays {
                    break;
                }
            }
        })
    }

    /// Answers 200 with a text.
    pub(crate) fn says(text: &'static str) -> Self {
        Self::new(move |_| (ok(text), true))
    }

    /// Does with each connection what `serve` does.
    pub(crate) fn raw(serve: impl Fn(TcpStream, usize, &Mutex<Vec<Seen>>) + Send + Sync + 'static) -> Self {
        Self::serving(TcpListener::bind("127.0.0.1:0").unwrap(), serve)
    }

    fn serving(
        listener: TcpListener,
        serve: impl Fn(TcpStream, usize, &Mutex<Vec<Seen>>) + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (serve, list) = (Arc::new(serve), Arc::clone(&seen));
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let (serve, list) = (Arc::clone(&serve), Arc::clone(&list));
                let stream = stream.unwrap();
                std::thread::spawn(move || serve(stream, number, &list));
            }
        });
        Self { address, seen }
    }

    /// Requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

/// An address that refuses connections.
pub(crate) fn refusing() -> SocketAddr {
    // Bound and not listening: nobody else gets the port while the test runs.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    std::mem::forget(socket);
    address
}

pub(crate) fn ok(text: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()).into_bytes()
}

/// Reads a request, its body by length or chunks.
pub(crate) fn read_request(stream: &mut impl Read, connection: usize) -> Option<Seen> {
    let head = read_head(stream)?;
    let mut body = Vec::new();
    if let Some(length) = fields(&head, "content-length").first() {
        body = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut body).ok()?;
    } else if !fields(&head, "transfer-encoding").is_empty() {
        body = read_chunks(stream)?;
    }
    Some(Seen { connection, head, body })
}

fn read_head(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(byte(stream)?);
    }
    Some(String::from_utf8(head).unwrap())
}

fn byte(stream: &mut impl Read) -> Option<u8> {
    let mut one = [0];
    (stream.read(&mut one).ok()? == 1).then_some(one[0])
}

fn read_chunks(stream: &mut impl Read) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.push(byte(stream)?);
        }
        let size = usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim(), 16).unwrap();
        let mut chunk = vec![0; size + 2];
        stream.read_exact(&mut chunk).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.extend(&chunk[..size]);
    }
}

/// A client's connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        fields(&self.head, name)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).unwrap())
    }

    /// One that comes from another address of this machine.
    pub(crate) fn from(source: Ipv4Addr, address: SocketAddr) -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
        socket.connect(&address.into()).unwrap();
        Self::over(socket.into())
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// A request without body for `a.test`.
    pub(crate) fn get(&mut self, target: &str) -> Response {
        self.ask(&format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n"))
    }

    pub(crate) fn ask(&mut self, request: &str) -> Response {
        self.send(request);
        self.receive(request.starts_with("HEAD ")).unwrap_or_else(|| panic!("no answer to {request:?}"))
    }

    /// The next answer, `None` when the connection ends before it is whole.
    pub(crate) fn receive(&mut self, to_head: bool) -> Option<Response> {
        let head = read_head(&mut self.stream)?;
        let status: u16 = head[9..12].parse().unwrap();
        let mut body = Vec::new();
        if to_head || matches!(status, 100..=199 | 204 | 304) {
        } else if let Some(length) = fields(&head, "content-length").first() {
            body = vec![0; length.parse().unwrap()];
            self.stream.read_exact(&mut body).ok()?;
        } else if !fields(&head, "transfer-encoding").is_empty() {
            body = read_chunks(&mut self.stream)?;
        } else {
            self.stream.read_to_end(&mut body).ok()?;
        }
        Some(Response { status, head, body })
    }

    /// All until the connection ends.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A reset is an end, too.
        let _ = self.stream.read_to_end(&mut rest);
        rest
    }

    /// Whether the proxy has ended the connection, and said nothing more.
    pub(crate) fn ended(&mut self) -> bool {
        self.rest().is_empty()
    }
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, so: impl Fn() -> bool) {
    let end = std::time::Instant::now() + PATIENCE;
    while !so() {
        assert!(std::time::Instant::now() < end, "never: {what}");
        std::thread::yield_now();
    }
}
