//! The real binaries of both planes, with ports of their own; their logs are kept and shown when a test fails.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::client;
use crate::eventually::eventually;
use crate::grpc::Inspect;
use crate::metrics::Metrics;
use crate::ports;
use crate::process::{Log, Process, Signal};

/// How often a plane that exits at once is started with other ports: another process may have taken them.
const TRIES: usize = 3;

/// Requests that must confirm an awaited response: more than there are workers.
const STAYS: usize = 4;

/// How long a plane may take to shut down.
const ENDING: Duration = Duration::from_secs(20);

/// The source of a control plane's objects.
#[derive(Clone, Debug)]
pub enum Source {
    /// A folder of manifests.
    Folder(PathBuf),
    /// A cluster; one namespace of it, or all.
    Cluster {
        /// The kubeconfig.
        kubeconfig: PathBuf,
        /// Only this namespace; its ConfigMap is then `NAMESPACE/ingress-nginx-controller`, and decisions are stored
        /// there, too.
        namespace: Option<String>,
    },
}

impl Source {
    /// A folder.
    pub fn folder(folder: &crate::Folder) -> Self {
        Self::Folder(folder.path().to_owned())
    }

    /// One namespace of a cluster.
    pub fn namespace(cluster: &crate::cluster::Cluster, namespace: &str) -> Self {
        Self::Cluster { kubeconfig: cluster.kubeconfig(), namespace: Some(namespace.to_owned()) }
    }

    fn flags(&self) -> Vec<OsString> {
        match self {
            Self::Folder(folder) => vec!["--manifests".into(), folder.into()],
            Self::Cluster { kubeconfig, namespace } => {
                let mut flags: Vec<OsString> = vec!["--kubeconfig".into(), kubeconfig.into()];
                if let Some(namespace) = namespace {
                    flags.extend(["--watch-namespace".into(), namespace.into()]);
                    for (flag, name) in [
                        ("configmap", "ingress-nginx-controller"),
                        ("tcp-services-configmap", "tcp-services"),
                        ("udp-services-configmap", "udp-services"),
                    ] {
                        flags.push(format!("--{flag}={namespace}/{name}").into());
                    }
                }
                flags
            }
        }
    }
}

/// A binary of the workspace.
///
/// In `FIRTH_BIN` if that is set; else beside the tests, where `cargo build --workspace --bins` puts it.
///
/// # Panics
/// If it does not exist.
pub fn binary(name: &str) -> PathBuf {
    let folder = env::var_os("FIRTH_BIN").map(PathBuf::from).unwrap_or_else(|| {
        let test = env::current_exe().expect("a test knows its own file");
        // target/debug/deps/TEST-HASH
        test.ancestors().nth(2).expect("it lies in deps").to_owned()
    });
    let file = folder.join(name);
    let how = "run ./test, or `cargo build --workspace --bins` first";
    let Some(built) = modified(&file) else {
        panic!("{} is missing: {how}", file.display());
    };
    // With an explicit folder, the caller is responsible for fresh binaries.
    if env::var_os("FIRTH_BIN").is_none()
        && let Some(newer) =
            sources(&file).into_iter().find(|source| modified(source).is_some_and(|when| when > built))
    {
        panic!("{} is older than {}: {how}", file.display(), newer.display());
    }
    file
}

fn modified(file: &Path) -> Option<SystemTime> {
    file.metadata().ok()?.modified().ok()
}

/// The sources of a binary, as cargo records them beside it.
fn sources(binary: &Path) -> Vec<PathBuf> {
    let noted = fs::read_to_string(binary.with_extension("d")).unwrap_or_default();
    let sources = noted.split_once(": ").map(|(_, sources)| sources.replace("\\ ", "\0")).unwrap_or_default();
    sources.split_whitespace().map(|name| name.replace('\0', " ").into()).collect()
}

const CONTROL_PLANE: &str = "firth-control-plane";
const DATA_PLANE: &str = "firth-data-plane";

/// A running control plane.
#[derive(Debug)]
pub struct ControlPlane {
    process: Process,
    binary: PathBuf,
    flags: Vec<OsString>,
    listen: SocketAddr,
    admin: SocketAddr,
    folder: TempDir,
}

impl ControlPlane {
    /// Starts one and waits until it serves proxies.
    pub async fn start(source: &Source) -> Self {
        Self::start_with(source, &[]).await
    }

    /// Starts one with additional flags and waits until it serves proxies: in plaintext, unless the flags have a
    /// `--ca-dir` or an `--account`.
    ///
    /// # Panics
    /// If it exits.
    pub async fn start_with(source: &Source, further: &[&str]) -> Self {
        Self::start_from(binary(CONTROL_PLANE), source, further).await
    }

    /// The same of another build, whose binaries are in a folder.
    ///
    /// # Panics
    /// If it exits.
    pub async fn start_of(build: &Path, source: &Source, further: &[&str]) -> Self {
        Self::start_from(build.join(CONTROL_PLANE), source, further).await
    }

    async fn start_from(binary: PathBuf, source: &Source, further: &[&str]) -> Self {
        for attempt in 1.. {
            let mut plane = Self::spawn_to(Log::Kept, binary.clone(), source, further);
            if plane.up().await {
                return plane;
            }
            assert!(attempt < TRIES, "the control plane ends at once:\n{}", plane.process.tail());
        }
        unreachable!("the loop ends by returning or panicking")
    }

    /// Starts one whose log is not read, and waits until it serves proxies.
    ///
    /// # Panics
    /// If it exits.
    pub async fn start_unread(source: &Source, further: &[&str]) -> Self {
        let mut plane = Self::spawn_to(Log::Unread, binary(CONTROL_PLANE), source, further);
        assert!(plane.up().await, "the control plane ends at once");
        plane
    }

    /// Starts one without waiting.
    pub fn spawn(source: &Source, further: &[&str]) -> Self {
        Self::spawn_to(Log::Kept, binary(CONTROL_PLANE), source, further)
    }

    fn spawn_to(log: Log, binary: PathBuf, source: &Source, further: &[&str]) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let said = further.iter().position(|flag| *flag == "--listen").and_then(|at| further.get(at + 1));
        let listen = said.map_or_else(ports::free, |said| said.parse().expect("an address"));
        let admin = ports::free();
        let mut flags = source.flags();
        if said.is_none() {
            flags.extend(["--listen".into(), listen.to_string().into()]);
        }
        if !further.iter().any(|flag| matches!(*flag, "--ca-dir" | "--account")) {
            flags.push("--insecure".into());
        }
        flags.extend(["--admin".into(), admin.to_string().into()]);
        flags.extend(further.iter().map(OsString::from));
        let process = run(log, &binary, &flags, folder.path());
        Self { process, binary, flags, listen, admin, folder }
    }

    /// Kills it and restarts it with the same flags and ports.
    ///
    /// # Panics
    /// If it exits instead of serving again.
    pub async fn restart(&mut self) {
        self.kill();
        self.resume().await;
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Restarts it after [`Self::kill`], with the same flags, ports and folder, without waiting.
    pub fn start_again(&mut self) {
        self.process = run(Log::Kept, &self.binary, &self.flags, self.folder.path());
    }

    /// Restarts it after [`Self::kill`].
    ///
    /// # Panics
    /// If it exits instead of serving again.
    pub async fn resume(&mut self) {
        self.start_again();
        assert!(self.up().await, "the control plane ends after its restart:\n{}", self.process.tail());
    }

    /// Terminates it and waits for that.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.process.signal(Signal::Term);
        self.process.wait(ENDING).await
    }

    /// Waits until it says on its page for probes that it is not ready, in these words among others.
    pub async fn waits_for(&self, words: &str) {
        eventually(&format!("it waits, and says {words:?}"), || async {
            match client::page(&self.admin(), "/readyz").await {
                Ok(answer) if answer.status == 503 && answer.text().contains(words) => Ok(()),
                Ok(answer) => Err(format!("{}: {}", answer.status, answer.text())),
                Err(error) => Err(error.to_string()),
            }
        })
        .await;
    }

    /// Waits until it serves proxies, where it was started without waiting for that.
    ///
    /// # Panics
    /// When it ends instead.
    pub async fn serves(&mut self) {
        assert!(self.up().await, "the control plane ends:\n{}", self.process.tail());
    }

    /// Where proxies and questions go.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Its admin pages, `http://ADDRESS`.
    pub fn admin(&self) -> String {
        format!("http://{}", self.admin)
    }

    /// The files that it has written below its folder.
    pub fn files(&self) -> Vec<PathBuf> {
        files(self.folder.path())
    }

    /// Its Inspect service.
    pub async fn inspect(&self) -> Inspect {
        Inspect::open(self.listen).await
    }

    /// Its metrics now.
    ///
    /// # Panics
    /// If it does not answer.
    pub async fn metrics(&self) -> Metrics {
        metrics(self.admin).await
    }

    /// Waits until its log holds these words.
    pub async fn logs(&self, words: &str) {
        self.process.logs(words).await;
    }

    /// Its whole log.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// The child.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    async fn up(&mut self) -> bool {
        up(&mut self.process, self.admin, "the control plane serves").await
    }
}

/// A running proxy.
#[derive(Debug)]
pub struct DataPlane {
    process: Process,
    binary: PathBuf,
    flags: Vec<OsString>,
    state: PathBuf,
    http: SocketAddr,
    https: SocketAddr,
    admin: SocketAddr,
    health: SocketAddr,
    folder: TempDir,
}

impl DataPlane {
    /// Starts one that follows a control plane, and waits until it is ready.
    pub async fn start(control: SocketAddr) -> Self {
        Self::start_with(control, &[]).await
    }

    /// Starts one with additional flags and waits until it is ready: in plaintext, unless the flags have a token to
    /// `--join` with, or a `--token-file`.
    ///
    /// # Panics
    /// If it exits.
    pub async fn start_with(control: SocketAddr, further: &[&str]) -> Self {
        Self::start_from(binary(DATA_PLANE), control, further).await
    }

    /// The same of another build, whose binaries are in a folder.
    ///
    /// # Panics
    /// If it exits.
    pub async fn start_of(build: &Path, control: SocketAddr, further: &[&str]) -> Self {
        Self::start_from(build.join(DATA_PLANE), control, further).await
    }

    async fn start_from(binary: PathBuf, control: SocketAddr, further: &[&str]) -> Self {
        for attempt in 1.. {
            let mut plane = Self::spawn_to(Log::Kept, binary.clone(), control, further);
            if up(&mut plane.process, plane.health, "the proxy is ready").await {
                return plane;
            }
            assert!(attempt < TRIES, "the proxy ends at once:\n{}", plane.process.tail());
        }
        unreachable!("the loop ends by returning or panicking")
    }

    /// Starts one whose log is not read, and waits until it is ready.
    ///
    /// # Panics
    /// If it exits.
    pub async fn start_unread(control: SocketAddr, further: &[&str]) -> Self {
        let mut plane = Self::spawn_to(Log::Unread, binary(DATA_PLANE), control, further);
        assert!(up(&mut plane.process, plane.health, "the proxy is ready").await, "the proxy ends at once");
        plane
    }

    /// Starts one without waiting.
    pub fn spawn(control: SocketAddr, further: &[&str]) -> Self {
        Self::spawn_to(Log::Kept, binary(DATA_PLANE), control, further)
    }

    fn spawn_to(log: Log, binary: PathBuf, control: SocketAddr, further: &[&str]) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let [http, https, admin, health] = [(); 4].map(|()| ports::free());
        let encrypted = further.iter().any(|flag| matches!(*flag, "--join" | "--token-file"));
        let scheme = if encrypted { "https" } else { "http" };
        let mut flags: Vec<OsString> = vec!["--control-plane".into(), format!("{scheme}://{control}").into()];
        if scheme == "http" {
            flags.push("--insecure".into());
        }
        let said = |flag: &str| {
            let at = further.iter().position(|it| *it == flag)?;
            further.get(at + 1)
        };
        let http = said("--http").map_or(http, |said| said.parse().expect("an address"));
        let https = said("--https").map_or(https, |said| said.parse().expect("an address"));
        let own = |flag: &str| !further.contains(&format!("--{flag}").as_str());
        for (flag, address) in [("http", http), ("https", https), ("admin", admin), ("health", health)]
            .into_iter()
            .filter(|(flag, _)| own(flag))
        {
            flags.extend([format!("--{flag}").into(), address.to_string().into()]);
        }
        let state = said("--state-dir").map_or_else(|| folder.path().join("state"), PathBuf::from);
        if own("state-dir") {
            flags.extend(["--state-dir".into(), state.clone().into()]);
        }
        if !further.iter().any(|flag| flag.starts_with("--workers")) {
            flags.extend(["--workers".into(), "2".into()]);
        }
        flags.extend(further.iter().map(OsString::from));
        let process = run(log, &binary, &flags, folder.path());
        Self { process, binary, flags, state, http, https, admin, health, folder }
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Restarts it after [`Self::kill`], with the same flags, ports and folders, without waiting.
    pub fn start_again(&mut self) {
        self.process = run(Log::Kept, &self.binary, &self.flags, self.folder.path());
    }

    /// The folder of its last good state.
    pub fn state_dir(&self) -> PathBuf {
        self.state.clone()
    }

    /// Its HTTP address.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// Its HTTPS address.
    pub fn https(&self) -> SocketAddr {
        self.https
    }

    /// Its admin pages, `http://ADDRESS`.
    pub fn admin(&self) -> String {
        format!("http://{}", self.admin)
    }

    /// The files that it has written: its state, and the logs.
    pub fn files(&self) -> Vec<PathBuf> {
        files(self.folder.path())
    }

    /// Its health page, `http://ADDRESS`.
    pub fn health(&self) -> String {
        format!("http://{}", self.health)
    }

    /// Its metrics now.
    ///
    /// # Panics
    /// If it does not answer.
    pub async fn metrics(&self) -> Metrics {
        metrics(self.admin).await
    }

    /// Its access log.
    pub fn access_log(&self) -> String {
        self.process.output()
    }

    /// Waits until its log holds these words.
    pub async fn logs(&self, words: &str) {
        self.process.logs(words).await;
    }

    /// The rest of its log.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// The child.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Terminates it and waits for that.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.process.signal(Signal::Term);
        self.process.wait(ENDING).await
    }

    /// Requests a path of a host until an origin answers.
    pub async fn serves(&self, host: &str, path: &str, origin: &str) {
        let what = format!("{host}{path} is served by {origin}");
        eventually(&what, || async {
            match client::get(self.http, host, path).await {
                Ok(answer) if answer.status == 200 && answer.origin() == Some(origin) => Ok(()),
                Ok(answer) => Err(format!("{} by {:?}", answer.status, answer.origin())),
                Err(error) => Err(error.to_string()),
            }
        })
        .await;
        self.stays(host, path, 200).await;
    }

    /// Once true, this must hold for every worker and not revert: new connections go to any worker.
    async fn stays(&self, host: &str, path: &str, status: u16) {
        for number in 0..STAYS {
            let answer = client::get(self.http, host, path).await;
            let answer = answer.unwrap_or_else(|error| panic!("{host}{path} was {status}, then: {error}"));
            assert_eq!(
                answer.status, status,
                "{host}{path} was {status}, and no longer after {number} requests"
            );
        }
    }

    /// Requests a path of a host until the response has a status.
    pub async fn answers(&self, host: &str, path: &str, status: u16) {
        let what = format!("{host}{path} answers {status}");
        eventually(&what, || async {
            match client::get(self.http, host, path).await {
                Ok(answer) if answer.status == status => Ok(()),
                Ok(answer) => Err(format!("{} by {:?}", answer.status, answer.origin())),
                Err(error) => Err(error.to_string()),
            }
        })
        .await;
        self.stays(host, path, status).await;
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let kind = if entry.path().is_dir() { &mut folders } else { &mut files };
            kind.push(entry.path());
        }
    }
    files
}

fn run(log: Log, binary: &Path, flags: &[OsString], folder: &Path) -> Process {
    let name = binary.file_name().and_then(OsStr::to_str).expect("a name");
    Process::spawn_to(log, name, Command::new(binary).args(flags).current_dir(folder), folder)
}

/// Waits until a plane is ready; returns false if it exits.
async fn up(process: &mut Process, page: SocketAddr, what: &str) -> bool {
    let url = format!("http://{page}");
    eventually(what, || {
        let ended = process.ended().is_some();
        let url = url.clone();
        async move {
            match client::page(&url, "/readyz").await {
                _ if ended => Ok(false),
                Ok(answer) if answer.status == 200 => Ok(true),
                Ok(answer) => Err(format!("{}: {}", answer.status, answer.text())),
                Err(error) => Err(error.to_string()),
            }
        }
    })
    .await
}

async fn metrics(admin: SocketAddr) -> Metrics {
    let url = format!("http://{admin}");
    // A process that was just started does not listen yet.
    let page = eventually("the admin page answers", || client::page(&url, "/metrics")).await;
    Metrics::parse(page.text())
}
