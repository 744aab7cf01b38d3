//! The demo backends of a folder: started, renamed and stopped as its Services and EndpointSlices change.

mod asked;
mod cast;
mod missing;
mod outside;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use control_plane::Companion;
use control_plane::event::Event;
use control_plane::objects::{EndpointSlice, Object, ObjectKind, ObjectRef};
use data_plane::local::KnownNames;
use shared::clock;
use shared::name::ObjectName;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use self::cast::Cast;
pub(super) use self::missing::Missing;
use self::outside::Outside;
use super::demo::{self, Tls};
use crate::classes::Classes;
use crate::columns::Columns;
use crate::unread;

/// How long a backend runs after its endpoint was removed, as a pod does: the proxy learns of it at the same moment.
const LINGER: Duration = Duration::from_secs(2);

/// Readings of the folder that may be queued.
const AHEAD: usize = 64;

/// Limit of the Services with a demo backend: each takes a socket.
const MAX_PLAYED: usize = 200;

/// What is served instead of the parts that kustomize makes manifests of.
const INSTEAD: &str = "serve a folder with the output of kubectl kustomize DIR";

/// The running backends.
pub(super) struct Backends {
    heard: mpsc::Receiver<Vec<Event>>,
    slices: mpsc::Sender<Vec<Event>>,
    /// Whether demo backends are enabled.
    is_on: bool,
    cast: Cast,
    /// The Services with a demo backend, each with the address and EndpointSlice that the control plane got.
    played: BTreeMap<ObjectName, (SocketAddr, EndpointSlice)>,
    running: BTreeMap<SocketAddr, Running>,
    tasks: JoinSet<()>,
    tls: Tls,
    names: KnownNames,
    outside: Outside,
    lines: VecDeque<String>,
    /// The errors that were reported, so that each is reported once.
    complaints: BTreeSet<String>,
    classes: Classes,
    /// Kinds of objects in the folder that are not read.
    ignored: watch::Receiver<BTreeSet<String>>,
    /// Of them, those that were reported.
    told: BTreeSet<String>,
}

struct Running {
    name: watch::Sender<Arc<str>>,
    task: AbortHandle,
    /// Set once it is not needed any more: when it stops.
    until: Option<Instant>,
}

impl Backends {
    /// Without backends, and the companion through which a control plane reports the contents of its folder. Without
    /// `is_on` no backend is started.
    ///
    /// # Errors
    /// If no random key can be generated.
    pub(super) fn new(is_on: bool) -> anyhow::Result<(Self, Companion)> {
        let (tell, heard) = mpsc::channel(AHEAD);
        let (slices, added) = mpsc::channel(AHEAD);
        let (ignore, ignored) = watch::channel(BTreeSet::new());
        let backends = Self {
            heard,
            slices,
            is_on,
            cast: Cast::default(),
            played: BTreeMap::new(),
            running: BTreeMap::new(),
            tasks: JoinSet::new(),
            tls: demo::acceptor()?,
            names: KnownNames::default(),
            outside: Outside::default(),
            lines: VecDeque::new(),
            complaints: BTreeSet::new(),
            classes: Classes::default(),
            ignored,
            told: BTreeSet::new(),
        };
        Ok((backends, Companion { heard: tell, added, ignored: ignore }))
    }

    /// The names of Services that are resolved by name, updated with the folder.
    pub(super) fn names(&self) -> KnownNames {
        self.names.clone()
    }

    /// Resolves when the folder was read for the first time and its backends run: returns why it has no Ingress, if it
    /// has none.
    pub(super) async fn first(&mut self) -> Option<Missing> {
        let slices = self.slices.clone();
        let (events, answer) = next_heard(&mut self.heard, &slices).await;
        let missing = Missing::among(&events);
        let added = self.hear(events);
        answer.send(added);
        // Those of the start are shown together.
        self.lines.retain(|line| !line.ends_with(ANSWERS));
        (!self.cast.has_ingress()).then_some(missing)
    }

    /// The running backends, for the start message; empty if there are none.
    pub(super) fn render(&self) -> String {
        if self.running.is_empty() {
            return String::new();
        }
        let mut names: BTreeMap<Arc<str>, Vec<String>> = BTreeMap::new();
        for (addr, running) in &self.running {
            let name = Arc::clone(&running.name.borrow());
            names.entry(name).or_default().push(addr.to_string());
        }
        let is_played = |name: &str| self.played.keys().any(|played| played.to_string() == name);
        let mut columns = Columns::new(["SERVICE", "ADDRESSES"]);
        for (name, addrs) in names {
            let why = if is_played(&name) { " (it has no EndpointSlice)" } else { "" };
            columns.push([name.to_string(), format!("{}{why}", addrs.join(", "))]);
        }
        format!("built-in demo backends, on loopback only:\n{}\n", columns.render(2))
    }

    /// The IngressClasses of the folder.
    pub(super) fn classes(&self) -> &Classes {
        &self.classes
    }

    /// What is said of kinds that are not read, once of each.
    pub(super) fn unread(&mut self) -> Vec<String> {
        let all = self.ignored.borrow_and_update().clone();
        let lines = all.difference(&self.told).map(|kind| unread::line(kind, INSTEAD)).collect();
        self.told = all;
        lines
    }

    /// The next event of a backend, or of the folder. Cancel-safe.
    pub(super) async fn next(&mut self) -> String {
        loop {
            let unread = self.unread();
            self.lines.extend(unread);
            if let Some(line) = self.lines.pop_front() {
                return line;
            }
            self.work().await;
        }
    }

    /// Does the next pending work. Cancel-safe.
    pub(super) async fn work(&mut self) {
        let next_end = self.running.values().filter_map(|running| running.until).min();
        let slices = self.slices.clone();
        let heard = &mut self.heard;
        tokio::select! {
            (events, answer) = next_heard(heard, &slices) => {
                let added = self.hear(events);
                answer.send(added);
            }
            line = self.outside.next() => self.lines.push_back(line),
            () = clock::sleep_until(next_end) => self.end(Instant::now()),
        }
    }

    /// Updates the backends to match the folder, and returns the events to add.
    fn hear(&mut self, events: Vec<Event>) -> Vec<Event> {
        events.iter().for_each(|event| self.classes.hear(event));
        self.cast.hear(events);
        let mut complaints = BTreeSet::new();
        let mut added = Vec::new();
        if self.is_on {
            added = self.play(&mut complaints);
            let mut wanted = choose(self.cast.marked(), &mut complaints);
            wanted.extend(self.played.iter().map(|(name, (addr, _))| (*addr, name.to_string().into())));
            self.run(wanted, &mut complaints);
        }
        let played = |service: &ObjectName| self.played.get(service).map(|(_, slice)| slice);
        self.names.set(self.cast.names(played, &mut complaints));
        self.outside.set(self.cast.outside().collect());
        let news = complaints.difference(&self.complaints).cloned();
        self.lines.extend(news);
        self.complaints = complaints;
        added
    }

    /// Runs exactly the Services without endpoints; returns the events to add.
    fn play(&mut self, complaints: &mut BTreeSet<String>) -> Vec<Event> {
        let mut added = Vec::new();
        let mut before = std::mem::take(&mut self.played);
        let absent: Vec<_> = self.cast.absent().map(Arc::clone).collect();
        if absent.len() > MAX_PLAYED {
            complaints.insert(format!(
                "{} Services have no EndpointSlice: only the first {MAX_PLAYED} of them are played",
                absent.len()
            ));
        }
        for service in absent.iter().take(MAX_PLAYED) {
            let name = service.metadata.object_name();
            let known = before.remove(&name);
            let addr = match &known {
                Some((addr, _)) => *addr,
                None => match self.start_anywhere(&name) {
                    Ok(addr) => addr,
                    Err(complaint) => {
                        complaints.insert(complaint);
                        continue;
                    }
                },
            };
            let slice = cast::slice(service, addr);
            if known.is_none_or(|(_, known)| known != slice) {
                let object = Object::EndpointSlice(Arc::new(slice.clone()));
                added.push(Event::Applied { object, location: "".into() });
            }
            self.played.insert(name, (addr, slice));
        }
        let ended = before.into_values().map(|(_, slice)| slice.metadata.object_name());
        added.extend(ended.map(|name| Event::Deleted(ObjectRef { kind: ObjectKind::EndpointSlice, name })));
        added
    }

    /// Runs exactly the wanted backends; others linger.
    fn run(&mut self, wanted: BTreeMap<SocketAddr, Arc<str>>, complaints: &mut BTreeSet<String>) {
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
                None => match bind(addr, &name) {
                    Ok(listener) => self.start(listener, addr, name),
                    Err(complaint) => {
                        complaints.insert(complaint);
                    }
                },
            }
        }
    }

    fn start_anywhere(&mut self, service: &ObjectName) -> Result<SocketAddr, String> {
        let name: Arc<str> = service.to_string().into();
        let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), &name)?;
        let addr = listener.local_addr().map_err(|error| format!("demo backend of {name}: {error}"))?;
        self.start(listener, addr, name);
        Ok(addr)
    }

    fn start(&mut self, listener: TcpListener, addr: SocketAddr, name: Arc<str>) {
        self.lines.push_back(format!("demo backend of {name}: {addr}{ANSWERS}"));
        let (name, names) = watch::channel(name);
        let task = self.tasks.spawn(demo::serve(listener, addr, names, self.tls.clone()));
        self.running.insert(addr, Running { name, task, until: None });
    }

    /// Stops those that have lingered long enough.
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
        // Remove finished tasks from the set, so that it does not grow.
        while self.tasks.try_join_next().is_some() {}
    }
}

/// The next message of the folder, and the channel for its answer. Cancel-safe; pending if the control plane has ended,
/// which it reports by itself.
async fn next_heard<'a>(
    heard: &mut mpsc::Receiver<Vec<Event>>,
    slices: &'a mpsc::Sender<Vec<Event>>,
) -> (Vec<Event>, mpsc::Permit<'a, Vec<Event>>) {
    if let Ok(answer) = slices.reserve().await
        && let Some(events) = heard.recv().await
    {
        return (events, answer);
    }
    std::future::pending().await
}

const ANSWERS: &str = " answers";

/// Binds an address for a Service, or returns the error to report.
fn bind(addr: SocketAddr, name: &str) -> Result<TcpListener, String> {
    demo::bind(addr).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => {
            format!("demo backend of {name}: {addr} is in use; change the port in its EndpointSlice")
        }
        _ => format!("demo backend of {name}: {addr} cannot be bound: {error}"),
    })
}

/// One Service per address: the first by the slice's name and index.
fn choose<'a>(
    marked: impl Iterator<Item = (&'a ObjectName, SocketAddr)>,
    complaints: &mut BTreeSet<String>,
) -> BTreeMap<SocketAddr, Arc<str>> {
    let mut wanted: BTreeMap<SocketAddr, Arc<str>> = BTreeMap::new();
    for (service, addr) in marked {
        let service: Arc<str> = service.to_string().into();
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

#[cfg(test)]
mod tests;
