//! The index: all objects, and what was compiled from them, as one synchronous graph with a single owner.
//!
//! [`Index::apply`] takes in an event and only marks what it touches; [`Index::compile`] compiles that and nothing
//! else, piece by piece; [`Index::commit`] returns all of it at once. While a compile is under way,
//! [`Index::commit_live`] returns what endpoints alone changed. References are kept in both directions (class to
//! Ingress, Ingress to host, Service port to Ingress, Service to slice, Secret to host), so that a commit costs what
//! changed, however many objects there are.
//!
//! The pipeline owns it, and is the only writer.
//!
//! **Invariant:** what is published is a function of the objects and decisions: the order of events does not matter,
//! and a graph that was changed a thousand times equals one built afresh. No clock, no randomness, no task, no file.

mod aliases;
mod backends;
mod called;
mod cause;
mod classes;
mod closed;
mod commit;
mod deciders;
mod dirty;
mod hosts;
mod ingresses;
mod lives;
mod namespaces;
mod objects;
mod overlooked;
mod pinned;
mod prefix;
mod problems;
mod published;
mod refs;
mod report;
mod retained;
mod review;
mod secrets;
mod settings;
mod slices;
mod slot;
mod stale;
mod standing;
mod steps;
mod streams;
mod ticket_keys;
mod version;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use shared::kind::Kind;
use shared::name::{HostName, ObjectName};
use shared::policy::{BackendPolicy, RequestMetrics};

use self::aliases::Aliases;
use self::backends::{BackendState, ServiceState};
use self::called::Callers;
use self::classes::Classes;
use self::closed::Closed;
pub use self::commit::Commit;
use self::dirty::{Dirty, Touched};
use self::hosts::HostState;
use self::ingresses::Ingresses;
use self::namespaces::Namespaces;
use self::objects::Objects;
use self::pinned::Pinned;
use self::published::Published;
use self::refs::{Choice, Refs, Site, User};
use self::secrets::Secrets;
use self::slices::Slices;
use self::slot::Slot;
use self::standing::Standing;
use self::streams::Streams;
use self::waiting::Waiting;
use crate::annotations::errors::FIRST_PORT;
use crate::compile::allowed::Allowed;
use crate::compile::backend;
use crate::compile::claim::{BackendKey, OfFleet};
use crate::event::{Event, HoldRequest, Wants};
use crate::objects::{Object, ObjectKind, ObjectRef};
use crate::problem::{Fault, Problems};
use crate::reference::Use;
use crate::selector::Selector;

pub use prefix::Prefix;
pub use review::Verdict;

/// Default path of health checks on the public ports.
pub const HEALTH_PATH: &str = "/healthz";

/// Settings of the index that come from flags, not from objects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Value of the annotation `kubernetes.io/ingress.class` that makes an Ingress ours.
    pub ingress_class: String,
    /// `spec.controller` of the IngressClasses that make an Ingress ours.
    pub controller_class: String,
    /// Which request metrics proxies export.
    pub request_metrics: RequestMetrics,
    /// Path at which proxies answer health checks on their public ports.
    pub health_path: Arc<str>,
    /// Whether the IngressClass named `ingress_class` is ours, whatever its controller.
    pub class_by_name: bool,
    /// IngressClasses are not read, and `spec.ingressClassName` has no effect.
    pub ignores_classes: bool,
    /// An Ingress without any class is ours.
    pub watch_without_class: bool,
    /// Secret with the certificate for names that have none; `None`: each proxy makes its own.
    pub default_certificate: Option<ObjectName>,
    /// The fleet's ConfigMap.
    pub configmap: ObjectName,
    /// The ConfigMap with TCP services.
    pub tcp_services: ObjectName,
    /// The ConfigMap with UDP services.
    pub udp_services: ObjectName,
    /// Which of these three flags name: that one of them does not exist is reported.
    pub expected: BTreeSet<ObjectName>,
    /// Service whose first port answers requests that match nothing; `None`: each proxy answers 404.
    pub default_backend: Option<ObjectName>,
    /// Ignore Ingresses with `spec.defaultBackend`.
    pub disable_catch_all: bool,
    /// Prefix of annotations, if it is not that of ingress-nginx.
    pub prefix: Option<Prefix>,
    /// Do not follow Services of type ExternalName.
    pub no_external_names: bool,
    /// Pass TLS through to backends if an Ingress asks for it.
    pub passes_tls: bool,
    /// Secret with the generated session ticket keys of the fleet.
    pub ticket_keys: ObjectName,
    /// The only namespace that is watched; `None`: all are.
    pub watch_namespace: Option<Arc<str>>,
    /// Which namespaces Ingresses may be in, by their labels; `None`: all.
    pub namespace_selector: Option<Selector>,
    /// The objects come from a folder: loopback endpoints are allowed, objects have no uid.
    pub folder: bool,
    /// The source reads referenced objects only once they are wanted.
    pub on_demand: bool,
}

impl Options {
    /// What the flags of ingress-nginx say by default, of a cluster whose objects are all read.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn usual() -> Self {
        let of_the_fleet = |name: &str| ObjectName::new("ingress-nginx", name);
        Self {
            ingress_class: "nginx".to_owned(),
            controller_class: "k8s.io/ingress-nginx".to_owned(),
            request_metrics: RequestMetrics::default(),
            health_path: HEALTH_PATH.into(),
            class_by_name: false,
            ignores_classes: false,
            watch_without_class: false,
            default_certificate: None,
            configmap: of_the_fleet("ingress-nginx-controller"),
            tcp_services: of_the_fleet("tcp-services"),
            udp_services: of_the_fleet("udp-services"),
            expected: BTreeSet::new(),
            default_backend: None,
            disable_catch_all: false,
            prefix: None,
            no_external_names: false,
            passes_tls: false,
            ticket_keys: ObjectName::new("firth", "firth-ticket-keys"),
            watch_namespace: None,
            namespace_selector: None,
            folder: false,
            on_demand: false,
        }
    }

    /// What it means that one of the fleet's ConfigMaps does not exist.
    fn effect_of_absence(&self, configmap: &ObjectName) -> &'static str {
        if *configmap == self.configmap {
            "the ConfigMap of --configmap (FIRTH_CONFIGMAP) does not exist: every setting of the fleet has its default"
        } else if *configmap == self.tcp_services {
            "the ConfigMap of --tcp-services-configmap (FIRTH_TCP_SERVICES_CONFIGMAP) does not exist: no TCP service is served"
        } else {
            "the ConfigMap of --udp-services-configmap (FIRTH_UDP_SERVICES_CONFIGMAP) does not exist: no UDP service is served"
        }
    }

    /// The Backend for requests that match nothing.
    fn default_backend(&self) -> Option<BackendKey> {
        let service = self.default_backend.clone()?;
        Some(BackendKey { service, port: FIRST_PORT.into() })
    }

    /// Which names of ExternalName Services are followed.
    fn names(&self) -> backend::Names {
        backend::Names { disabled: self.no_external_names, local: self.folder }
    }
}

/// The objects, and what was compiled from them.
#[derive(Debug)]
pub struct Index {
    options: Options,
    objects: Objects,
    classes: Classes,
    namespaces: Namespaces,
    ingresses: Ingresses,
    standing: Standing,
    closed: Closed,
    /// Boxed, as the backends: up to half of a hash table is unused.
    hosts: HashMap<HostName, Box<HostState>>,
    aliases: Aliases,
    callers: Callers,
    backends: HashMap<BackendKey, Box<BackendState>>,
    services: HashMap<ObjectName, ServiceState>,
    slices: Slices,
    refs: Refs,
    secrets: Secrets,
    settings_faults: Vec<Fault>,
    streams: Streams,
    /// ConfigMaps that look like those that flags name.
    alike: BTreeSet<ObjectName>,
    /// What the fleet's ConfigMap refers to.
    settings_refs: BTreeSet<Use>,
    /// The response headers that Ingresses may set.
    allowed_headers: BTreeSet<String>,
    /// What Service ports have of which no Ingress says something.
    backend_defaults: BackendPolicy,
    /// Whether annotations may refer to objects of other namespaces.
    crosses_namespaces: bool,
    /// Whether snippets take effect.
    of_fleet: OfFleet,
    /// Which annotations are allowed.
    allowed: Allowed,
    published: Published,
    pinned: Pinned,
    problems: Problems,
    problems_changed: bool,
    /// The value of [`Index::wants`] after the last commit.
    wanted: Wants,
    touched: Touched,
    waiting: Waiting,
    dirty: Dirty,
    /// Work done since the last commit.
    work: usize,
}

impl Index {
    /// An index without objects. Its first commit publishes what is always there.
    pub fn new(options: Options) -> Self {
        let of_fleet = OfFleet {
            allows_snippets: false,
            shares_backend_tls: true,
            passes_tls: options.passes_tls,
            zones: Arc::default(),
        };
        let allowed = Allowed::of(None);
        let mut index = Self {
            options,
            objects: Objects::default(),
            classes: Classes::default(),
            namespaces: Namespaces::default(),
            ingresses: Ingresses::default(),
            standing: Standing::default(),
            closed: Closed::default(),
            hosts: HashMap::new(),
            aliases: Aliases::default(),
            callers: Callers::default(),
            backends: HashMap::new(),
            services: HashMap::new(),
            slices: Slices::default(),
            refs: Refs::default(),
            secrets: Secrets::default(),
            settings_faults: Vec::new(),
            streams: Streams::default(),
            alike: BTreeSet::new(),
            settings_refs: BTreeSet::new(),
            allowed_headers: BTreeSet::new(),
            backend_defaults: BackendPolicy::default(),
            crosses_namespaces: false,
            of_fleet,
            allowed,
            published: Published::default(),
            pinned: Pinned::default(),
            problems: Problems::new(),
            problems_changed: false,
            wanted: Wants::new(),
            touched: Touched::default(),
            waiting: Waiting::default(),
            dirty: Dirty::default(),
            work: 0,
        };
        index.dirty.settings = true;
        index.dirty.hosts.insert(HostName::catch_all());
        index.compile_listeners();
        index.want_default_certificate();
        index.want_default_backend();
        index.want_configmaps();
        index
    }

    /// Takes in one event, without compiling anything.
    ///
    /// An event that arrives while a compile is under way becomes part of it.
    pub fn apply(&mut self, event: Event) {
        match &event {
            Event::Moved { object, location } => return self.note_place(object, location),
            Event::Unstored { object, reason } => return self.note_unstored(object, reason),
            Event::Noted { file, problems } => return self.note_file(file, problems),
            Event::Pinned(pin) => return self.note_pin(Some(Arc::clone(pin))),
            Event::Unpinned => return self.note_pin(None),
            Event::HoldsListed => return self.dirty.unanswered.extend(self.objects.asking()),
            Event::PinUnreadable { why, revision } => {
                return self.note_unreadable_pin(why.clone(), Arc::clone(revision));
            }
            _ => {}
        }
        let Some(reference) = event.object() else {
            return;
        };
        if self.is_unwatched(&reference) {
            return;
        }
        if !self.hear_of(&reference, &event) {
            return;
        }
        let stays = matches!(event, Event::Deleted(_)).then(|| self.what_stays(&reference)).flatten();
        let is_lasting = self.is_lasting(&reference);
        let slot = self.objects.slot(&reference, is_lasting);
        let before = slot.newest().or_else(|| slot.in_use()).cloned();
        // One that is closed must not be open again while another version is read.
        let may_stand = reference.kind == ObjectKind::Ingress && !self.closed.is(&reference);
        let used = slot.version_in_use().filter(|_| may_stand).cloned();
        let is_news = match event {
            Event::Applied { object, location } => {
                // The object inside a hold was already translated.
                let object = match &self.options.prefix {
                    Some(prefix) => prefix.taken_in(object),
                    None => object,
                };
                slot.apply(object, location, &self.allowed)
            }
            Event::Broken { uid, problem, .. } => slot.break_off(uid, problem),
            Event::Deleted(_) | Event::Dropped(_) | Event::Unreadable { .. } => slot.delete(stays),
            Event::Held(hold) => slot.held(hold.object, &self.allowed),
            Event::Released(_) => slot.released(),
            _ => false,
        };
        if !is_news {
            let counted =
                |object: Option<&Object>| object.map(|it| Arc::clone(&it.metadata().resource_version));
            if counted(slot.newest()) != counted(before.as_ref()) {
                self.mark_for_report(&reference);
            }
            self.objects.forget_if_void(&reference);
            return;
        }
        self.mark_for_report(&reference);
        self.touched.note(&reference, before.as_ref());
        if let Some(used) = used.filter(|_| self.options.on_demand) {
            self.standing.note(&reference.name, used);
        }
        if reference.kind == ObjectKind::ConfigMap && reference.name == self.options.configmap {
            self.judge_annotations();
        }
        if reference.kind == ObjectKind::EndpointSlice {
            // Compiled right away: this is cheap, and endpoints are wanted before the rest.
            self.refresh_slice(&reference.name);
        }
        self.dirty.objects.insert(reference);
    }

    /// Whether the object is in a namespace that is not watched, in a folder, which is read completely. Objects that
    /// annotations refer to are checked at the reference, and operators may name ConfigMaps and Secrets in any
    /// namespace.
    fn is_unwatched(&self, object: &ObjectRef) -> bool {
        let is_watched_for =
            matches!(object.kind, ObjectKind::Ingress | ObjectKind::Service | ObjectKind::EndpointSlice);
        self.options.folder && is_watched_for && !self.is_watched(&object.name.namespace)
    }

    /// Whether objects of a namespace may be ours.
    fn is_watched(&self, namespace: &str) -> bool {
        self.options.watch_namespace.as_deref().is_none_or(|watched| watched == namespace)
    }

    /// Applies an event to the sites that refer to the object. Returns false if it has no other effect.
    fn hear_of(&mut self, object: &ObjectRef, event: &Event) -> bool {
        let before = self.refs.stale(object).cloned();
        let sites = match event {
            Event::Held(_)
            | Event::Released(_)
            | Event::Unstored { .. }
            | Event::HoldsListed
            | Event::Moved { .. }
            | Event::Noted { .. }
            | Event::Pinned(_)
            | Event::Unpinned
            | Event::PinUnreadable { .. } => return true,
            // If it is wanted again by now, the source reads it again, and what was read before stays in use until
            // then.
            Event::Dropped(_) => return !self.refs.wants().contains(object),
            Event::Unreadable { reason, .. } => self.refs.failed(object, reason),
            Event::Late(_) => self.refs.late(object),
            Event::Applied { .. } | Event::Broken { .. } | Event::Deleted(_) => self.refs.read(object),
        };
        for site in sites {
            self.look_again(site);
        }
        if self.refs.stale(object) != before.as_ref() {
            self.tell_of_stale(object);
        }
        !matches!(event, Event::Unreadable { .. } | Event::Late(_))
    }

    /// Marks a site for compilation.
    fn look_again(&mut self, Site { user, .. }: Site) {
        match user {
            User::Host(host) => {
                self.dirty.hosts.insert(host);
            }
            User::Ingress(name) | User::Coming(name) | User::Rejected(name) => {
                self.dirty.ingresses.insert(name);
            }
            User::Fleet => self.dirty.settings = true,
            User::Pin => self.dirty.pin = true,
        }
    }

    /// Sets what a site refers to, and returns which of it the site may use now.
    fn refer(&mut self, site: &Site, to: BTreeSet<ObjectRef>) -> Choice {
        let (objects, options) = (&self.objects, &self.options);
        // A folder is read completely, but the ticket keys come from the task that keeps them.
        let is_kept = |object: &ObjectRef| {
            options.folder && object.kind == ObjectKind::Secret && object.name == options.ticket_keys
        };
        let is_there = |object: &ObjectRef| {
            !(options.on_demand || is_kept(object)) || objects.get(object).is_some_and(Slot::is_there)
        };
        let choice = self.refs.set(site, to, is_there);
        for object in self.refs.take_turned() {
            match object.kind {
                ObjectKind::Secret => _ = self.dirty.secrets.insert(object.name),
                // One that nobody uses any more is not read, either.
                _ => _ = self.dirty.problems.insert(object),
            }
        }
        choice
    }

    /// Notes that the first lists of all kinds are complete: a hold whose object is in none of them is obsolete, and
    /// the next commit asks for its deletion. Once is enough.
    pub fn lists_complete(&mut self) {
        for orphan in self.objects.lists_complete() {
            if self.is_lasting(&orphan) {
                self.dirty.objects.insert(orphan.clone());
            }
            self.dirty.holds.insert(orphan);
        }
    }

    /// Compiles whatever is dirty, and returns everything that the events since the last commit changed.
    pub fn commit(&mut self) -> Commit {
        self.compile(|| false);
        let is_pin_news = self.settle_pin();
        self.compile(|| false);
        let holds = self.hold_requests();
        let (config, live, compiled) = self.published.take();
        self.dirty.heard.clear();
        self.dirty.turned.clear();
        let touched = std::mem::take(&mut self.touched);
        let (cause, origin) = match config.is_empty() && live.is_empty() {
            true => Default::default(),
            // The effects of a pin alone are reported by the store.
            false if is_pin_news && touched.relevant().len() == 0 => Default::default(),
            false => self.cause(&touched),
        };
        let reports = self.reports(&touched);
        self.note_waiting(&touched);
        for object in touched.all() {
            self.objects.forget_if_void(object);
        }
        let wants_changed = self.wanted.diff(self.refs.wants()).next().is_some();
        if wants_changed {
            self.wanted = self.refs.wants().clone();
        }
        Commit {
            config,
            live,
            cause,
            origin,
            reports,
            pin: self.pinned.in_force.clone(),
            on_record: self.pinned.revision(),
            mend: self.take_mend(),
            holds,
            problems_changed: std::mem::take(&mut self.problems_changed),
            wants_changed,
            compiled,
            looked_at: std::mem::take(&mut self.work),
        }
    }

    /// Returns what changed slices mean for the committed configuration, whatever is left to compile.
    ///
    /// It contains changes of Endpoints alone, and only of those that the committed configuration needs: what it uses
    /// stays whatever the compile under way made of it, and what no longer exists is removed. All else is left to
    /// [`Index::commit`].
    pub fn commit_live(&mut self) -> Commit {
        let compiled = self.published.take_compiled();
        let work = std::mem::take(&mut self.work);
        let heard = std::mem::take(&mut self.dirty.heard);
        for name in &heard {
            self.compile_slice_early(name);
        }
        let keys = heard.iter().map(ToString::to_string);
        let live = self.published.take_only(Kind::Endpoints, keys);
        let early = self.published.take_compiled();
        self.published.add_compiled(compiled);

        let ups = live.up.iter().map(|entry| &entry.key);
        let removals = live.removed.iter().map(|removal| &removal.key);
        let changed = ups.chain(removals).filter_map(|key| ObjectName::parse(&key.key));
        let objects = changed.map(|name| objects::reference(ObjectKind::EndpointSlice, &name));
        let touched = self.touched.split_off(objects);
        let (cause, origin) = match live.is_empty() {
            true => Default::default(),
            false => self.cause(&touched),
        };
        let reports = self.endpoint_changes(&touched);
        for object in touched.all() {
            self.objects.forget_if_void(object);
        }
        let looked_at = std::mem::replace(&mut self.work, work);
        let (pin, on_record) = (self.pinned.in_force.clone(), self.pinned.revision());
        Commit {
            live,
            cause,
            origin,
            reports,
            pin,
            on_record,
            compiled: early,
            looked_at,
            ..Commit::default()
        }
    }

    /// The problems of each object that has any. A clone is cheap.
    pub fn problems(&self) -> &Problems {
        &self.problems
    }

    /// The objects whose contents are needed, whether they exist or not. A clone is cheap.
    pub fn wants(&self) -> &Wants {
        self.refs.wants()
    }

    /// Those of them that the source has not read yet, with the reason if reading failed.
    pub fn awaited(&self) -> &BTreeMap<ObjectRef, Option<Arc<str>>> {
        self.refs.awaited()
    }

    fn hold_requests(&mut self) -> Vec<HoldRequest> {
        let mut requests = Vec::new();
        while let Some(object) = self.dirty.holds.pop_first() {
            let is_held = self.is_rejected(&object) || self.is_kept(&object);
            if let Some(slot) = self.objects.get_mut(&object) {
                let request = slot.hold_request(&object, is_held);
                // A class that was kept until now is not known any more.
                if matches!(request, Some(HoldRequest::Erase(_))) && object.kind == ObjectKind::IngressClass {
                    self.dirty.objects.insert(object);
                }
                requests.extend(request);
            }
        }
        for object in std::mem::take(&mut self.dirty.unanswered) {
            let slot = self.objects.get(&object);
            requests.extend(slot.and_then(|slot| slot.unanswered_request(&object)));
        }
        requests
    }
}

#[cfg(test)]
mod tests;
