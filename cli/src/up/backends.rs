//! The demo backends of a folder: started, renamed and ended as its EndpointSlices come and go.

mod folder;
mod slices;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use self::folder::Folder;
use self::slices::Demo;
use super::demo;
use crate::columns::Columns;

/// How long a backend stays after its endpoint is gone, as a pod does: the proxy hears of it at the same moment.
const LINGER: Duration = Duration::from_secs(2);

/// The backends that run.
pub(super) struct Backends {
    folder: Folder,
    running: BTreeMap<SocketAddr, Running>,
    tasks: JoinSet<()>,
    lines: VecDeque<String>,
    /// What was wrong with the folder when it was read last, so that it is told once.
    complaints: BTreeSet<String>,
}

struct Running {
    name: watch::Sender<Arc<str>>,
    task: AbortHandle,
    /// Set once nothing wants it any more.
    until: Option<Instant>,
}

impl Backends {
    /// Starts those that the folder asks for, and follows it from then on.
    pub(super) fn follow(dir: &Path) -> Self {
        let mut backends = Self {
            folder: Folder::open(dir),
            running: BTreeMap::new(),
            tasks: JoinSet::new(),
            lines: VecDeque::new(),
            complaints: BTreeSet::new(),
        };
        backends.update();
        // Those of the start are shown together.
        backends.lines.retain(|line| !line.ends_with(ANSWERS));
        backends
    }

    /// What runs, for the start; empty where nothing does.
    pub(super) fn render(&self) -> String {
        if self.running.is_empty() {
            return String::new();
        }
        let mut names: BTreeMap<Arc<str>, Vec<String>> = BTreeMap::new();
        for (addr, running) in &self.running {
            let name = Arc::clone(&running.name.borrow());
            names.entry(name).or_default().push(addr.to_string());
        }
        let mut columns = Columns::new(["SERVICE", "ADDRESSES"]);
        for (name, addrs) in names {
            columns.push([name.to_string(), addrs.join(", ")]);
        }
        format!("built-in demo backends, on loopback only:\n{}\n", columns.render(2))
    }

    /// The next thing that happened to a backend. Nothing is lost when the future is dropped.
    pub(super) async fn next(&mut self) -> String {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return line;
            }
            let next_end = self.running.values().filter_map(|running| running.until).min();
            tokio::select! {
                () = self.folder.changed() => self.update(),
                () = until(next_end) => self.end(Instant::now()),
            }
        }
    }

    /// Brings what runs in line with the folder.
    fn update(&mut self) {
        let read = self.folder.read();
        let mut complaints: BTreeSet<String> = read.problems.into_iter().collect();
        let wanted = choose(read.demos, &mut complaints);
        for (addr, running) in &mut self.running {
            if !wanted.contains_key(addr) && running.until.is_none() {
                running.until = Some(Instant::now() + LINGER);
            }
        }
        for (addr, name) in wanted {
            match self.running.get_mut(&addr) {
                Some(running) => {
                    running.until = None;
                    running.name.send_replace(name);
                }
                None => match self.start(addr, name) {
                    Ok(line) => self.lines.push_back(line),
                    Err(complaint) => {
                        complaints.insert(complaint);
                    }
                },
            }
        }
        let news = complaints.difference(&self.complaints).cloned();
        self.lines.extend(news);
        self.complaints = complaints;
    }

    /// Starts one; what happened, or what is in the way.
    fn start(&mut self, addr: SocketAddr, name: Arc<str>) -> Result<String, String> {
        let listener = demo::bind(addr).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => {
                format!("demo backend of {name}: {addr} is in use; change the port in its EndpointSlice")
            }
            _ => format!("demo backend of {name}: {addr} cannot be bound: {error}"),
        })?;
        let line = format!("demo backend of {name}: {addr}{ANSWERS}");
        let (name, names) = watch::channel(name);
        let task = self.tasks.spawn(demo::serve(listener, addr, names));
        let until = None;
        self.running.insert(addr, Running { name, task, until });
        Ok(line)
    }

    /// Ends those whose time is over.
    fn end(&mut self, now: Instant) {
        let lines = &mut self.lines;
        self.running.retain(|addr, running| {
            let over = running.until.is_some_and(|until| until <= now);
            if over {
                running.task.abort();
                let name = running.name.borrow();
                lines.push_back(format!("demo backend of {}: {addr} has ended", *name));
            }
            !over
        });
        // What has ended is taken from the set, so that it does not grow.
        while self.tasks.try_join_next().is_some() {}
    }
}

const ANSWERS: &str = " answers";

/// One Service an address: the first by file and place in it.
fn choose(demos: Vec<Demo>, complaints: &mut BTreeSet<String>) -> BTreeMap<SocketAddr, Arc<str>> {
    let mut wanted: BTreeMap<SocketAddr, Arc<str>> = BTreeMap::new();
    for Demo { service, addr } in demos {
        if !addr.ip().is_loopback() {
            complaints.insert(format!(
                "demo backend of {service}: {addr} is no loopback address, nothing answers there"
            ));
            continue;
        }
        let first = wanted.entry(addr).or_insert_with(|| Arc::clone(&service));
        if *first != service {
            complaints.insert(format!("demo backend of {service}: {addr} already belongs to {first}"));
        }
    }
    wanted
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn free() -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    }

    fn slice(service: &str, addr: SocketAddr) -> String {
        format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: {service}-1\n  labels: {{kubernetes.io/service-name: {service}}}\n  \
             annotations: {{firth.dev/demo: \"true\"}}\naddressType: IPv4\nports: [{{port: {}}}]\nendpoints: [{{addresses: [\"{}\"]}}]\n",
            addr.port(),
            addr.ip()
        )
    }

    #[tokio::test(start_paused = true)]
    async fn backends_follow_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (free(), free());
        fs::write(dir.path().join("a.yaml"), slice("web", first)).unwrap();
        let mut backends = Backends::follow(dir.path());
        assert_eq!(
            backends.render(),
            format!(
                "built-in demo backends, on loopback only:\n  SERVICE      ADDRESSES\n  default/web  {first}\n\n"
            )
        );

        fs::write(dir.path().join("b.yaml"), slice("canary", second)).unwrap();
        assert_eq!(backends.next().await, format!("demo backend of default/canary: {second} answers"));
        tokio::net::TcpStream::connect(second).await.unwrap();

        fs::remove_file(dir.path().join("b.yaml")).unwrap();
        assert_eq!(backends.next().await, format!("demo backend of default/canary: {second} has ended"));
        tokio::net::TcpStream::connect(first).await.unwrap();
    }

    #[tokio::test]
    async fn an_address_in_use_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        fs::write(dir.path().join("a.yaml"), slice("web", taken.local_addr().unwrap())).unwrap();
        let mut backends = Backends::follow(dir.path());
        assert_eq!(backends.render(), "");
        assert!(backends.next().await.contains("is in use"));
    }
}
