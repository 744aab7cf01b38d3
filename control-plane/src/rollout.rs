//! Determines which proxies serve an object, and why the others do not.
//!
//! An object is compiled to resources, each of which last changed at some position of its lane's log. A proxy that has
//! acknowledged these positions, and refuses none of the resources, serves the object.
//!
//! **Invariant:** pure, and never optimistic: if something is unknown, the proxy is not reported as serving.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use shared::entry::Entry;
use shared::kind::{Kind, Lane, ResourceKey};
use shared::resource::{Listener, Resource};
use shared::version::Seq;

use crate::objects::{ObjectKind, ObjectRef};
use crate::placement::Placement;
use crate::serve::message::Refused;
use crate::serve::registry::Proxy;
use crate::store::Head;

/// State of an object on one proxy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ObjectState {
    /// The proxy serves the newest version.
    Programmed,
    /// The proxy has it, and refuses these resources of it.
    Refused(Vec<Refused>),
    /// The proxy refuses more resources than it lists, perhaps one of this object.
    Unknown,
    /// The proxy has not acknowledged it yet.
    Behind,
    /// The proxy's state differs from what it was sent.
    Diverged,
    /// The proxy has no stream.
    Silent,
}

/// The resources of an object, and the positions where they changed last.
#[derive(Debug)]
pub struct Extent<'a> {
    object: &'a ObjectRef,
    head: &'a Head,
    placed: Option<&'a Placement>,
    /// Hosts on which it has a Route.
    hosts: BTreeSet<String>,
    config: Seq,
    live: Seq,
    /// Secrets that these hosts name: consulted if a certificate is refused.
    certificates: OnceCell<BTreeSet<String>>,
}

impl<'a> Extent<'a> {
    /// For an object at a head. `None`: it does not exist, and there are no resources under its name, or removals that
    /// are remembered. A Service may have a Backend without ever having existed.
    pub fn of(object: &'a ObjectRef, placed: Option<&'a Placement>, head: &'a Head) -> Option<Self> {
        let (config, live) = placed.map(|placed| (placed.config, placed.live)).unwrap_or_default();
        let mut extent = Self {
            object,
            head,
            placed,
            hosts: BTreeSet::new(),
            config,
            live,
            certificates: OnceCell::new(),
        };
        match object.kind {
            ObjectKind::Ingress => extent.take_ingress(),
            ObjectKind::Service => extent.take_service(),
            ObjectKind::Secret => {
                extent.take(ResourceKey::new(Kind::Certificate, object.name.to_string()));
                extent.take_all(Kind::Material);
            }
            ObjectKind::IngressClass
            | ObjectKind::ConfigMap
            | ObjectKind::EndpointSlice
            | ObjectKind::Namespace => {}
        }
        let is_known = placed.is_some() || extent.config.max(extent.live) > Seq::default();
        is_known.then_some(extent)
    }

    /// Whether a pin holds the compiled version back.
    pub fn is_held_back(&self) -> bool {
        let Head { config, compiled, pin: Some(_), .. } = self.head else {
            return false;
        };
        let differs = |key: ResourceKey| config.snapshot.version(&key) != compiled.version(&key);
        match self.object.kind {
            ObjectKind::Ingress => {
                let named =
                    self.placed.iter().flat_map(|placed| placed.compiled.hosts.iter()).map(|it| &**it);
                let hosts: BTreeSet<&str> = named.chain(self.hosts.iter().map(String::as_str)).collect();
                hosts.iter().any(|host| {
                    differs(ResourceKey::new(Kind::Route, format!("{}{host}", self.routes())))
                        || differs(ResourceKey::new(Kind::Host, *host))
                }) || self.backends().any(|key| differs(ResourceKey::new(Kind::Backend, key)))
            }
            ObjectKind::Service => {
                let under = self.under();
                let is_own = |entry: &Entry| match entry.kind() {
                    Kind::Backend => entry.key.key.starts_with(&under),
                    Kind::Listener => self.is_led_here(entry),
                    _ => false,
                };
                // Compares what is or was offered, and what is only compiled: objects created after the pin have only
                // the latter.
                config.changes(Kind::Backend, &under).any(|(key, _)| differs(key.clone()))
                    || self.listeners(Seq::default()).any(|(key, _)| differs(key.clone()))
                    || (config.snapshot.root() != compiled.root()
                        && compiled.iter().any(|entry| is_own(entry) && differs(entry.key.clone())))
            }
            // LIVE is never pinned.
            _ => false,
        }
    }

    /// Digest of all that is offered of it: two replicas that offer the same have the same digest.
    pub fn digest(&self) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new();
        let mut add = |key: &ResourceKey| {
            let version = self.head.lane(key.kind.lane()).snapshot.version(key);
            if let Some(version) = version {
                hasher.update(format!("{} {}\n{version}\n", key.kind.as_str(), key.key).as_bytes());
            }
        };
        match self.object.kind {
            ObjectKind::Ingress => {
                self.head.config.changes(Kind::Route, &self.routes()).for_each(|(key, _)| add(key));
                self.hosts.iter().for_each(|host| add(&ResourceKey::new(Kind::Host, host.as_str())));
                self.backends().for_each(|key| add(&ResourceKey::new(Kind::Backend, key)));
            }
            ObjectKind::Service => {
                self.head.config.changes(Kind::Backend, &self.under()).for_each(|(key, _)| add(key));
                self.listeners(Seq::default()).for_each(|(key, _)| add(key));
                let (name, namespace) =
                    (self.object.name.to_string(), format!("{}/", self.object.name.namespace));
                let slices = self.head.live.changes(Kind::Endpoints, &namespace);
                let own =
                    slices.filter(|(key, _)| self.service_of(&key.key).as_deref() == Some(name.as_str()));
                own.for_each(|(key, _)| add(key));
            }
            _ => {
                add(&ResourceKey::new(Kind::Certificate, self.object.name.to_string()));
                self.head.live.changes(Kind::Material, &self.under()).for_each(|(key, _)| add(key));
            }
        }
        let mut digest = [0; 16];
        digest.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        digest
    }

    /// Its state on a proxy.
    pub fn state(&self, proxy: &Proxy) -> ObjectState {
        if proxy.is_silent() {
            return ObjectState::Silent;
        }
        if proxy.is_diverged() {
            return ObjectState::Diverged;
        }
        if !self.is_acknowledged(proxy, Lane::Config) || !self.is_acknowledged(proxy, Lane::Live) {
            return ObjectState::Behind;
        }
        let all = proxy.config.refused.iter().chain(proxy.live.refused.iter());
        let refused: Vec<_> = all.filter(|it| self.is_part(it.kind, &it.key)).cloned().collect();
        if !refused.is_empty() {
            return ObjectState::Refused(refused);
        }
        let is_cut = |lane| proxy.standing(lane).refused_total as usize > proxy.standing(lane).refused.len();
        match is_cut(Lane::Config) || is_cut(Lane::Live) {
            true => ObjectState::Unknown,
            false => ObjectState::Programmed,
        }
    }

    fn is_acknowledged(&self, proxy: &Proxy, lane: Lane) -> bool {
        let standing = proxy.standing(lane);
        let place = match lane {
            Lane::Config => self.config,
            Lane::Live => self.live,
        };
        let is_newest = standing.root == Some(self.head.lane(lane).root);
        is_newest || (standing.root.is_some() && standing.seq >= place)
    }

    /// Whether a resource is one of the object's, or one that it depends on.
    fn is_part(&self, kind: Kind, key: &str) -> bool {
        let name = || self.object.name.to_string();
        match (self.object.kind, kind) {
            (ObjectKind::Ingress, Kind::Route) => key.starts_with(&self.routes()),
            (ObjectKind::Ingress, Kind::Host) => self.hosts.contains(key),
            // They apply to all paths: a proxy that cannot read them denies these, or goes by an older denylist.
            (ObjectKind::Ingress, Kind::Settings) => self.placed.is_some(),
            (ObjectKind::Ingress, Kind::Backend) => self.backends().any(|it| it == key),
            (ObjectKind::Ingress, Kind::Endpoints) => self.service_of(key).is_some_and(|service| {
                let leads_there = |it: &str| it.rsplit_once('/').is_some_and(|(it, _)| it == service);
                self.backends().any(leads_there)
            }),
            (ObjectKind::Ingress, Kind::Certificate) => self.certificates().contains(key),
            (ObjectKind::Ingress, Kind::Chain) => {
                self.certificates().iter().any(|it| self.chain_of(it).as_deref() == Some(key))
            }
            (ObjectKind::Ingress, Kind::Material) => {
                let named = self.placed.iter().flat_map(|placed| placed.compiled.materials.iter());
                named.into_iter().any(|it| **it == *key)
            }
            (ObjectKind::Service, Kind::Endpoints) => self.service_of(key) == Some(name()),
            (ObjectKind::Service, Kind::Listener) => {
                let listener = self.head.config.snapshot.get(&ResourceKey::new(kind, key));
                listener.is_some_and(|it| self.is_led_here(it))
            }
            (ObjectKind::Service, Kind::Backend) | (ObjectKind::Secret, Kind::Material) => {
                key.starts_with(&self.under())
            }
            (ObjectKind::Secret, Kind::Certificate) => *key == name(),
            (ObjectKind::Secret, Kind::Chain) => self.chain_of(&name()).as_deref() == Some(key),
            _ => false,
        }
    }

    /// An Ingress consists of its Routes, their hosts, and the Backends that it names. A removed Route is included
    /// until it is forgotten.
    fn take_ingress(&mut self) {
        let prefix = self.routes();
        for (key, seq) in self.head.config.changes(Kind::Route, &prefix) {
            self.config = self.config.max(seq);
            if self.head.config.snapshot.get(key).is_some() {
                self.hosts.insert(key.key[prefix.len()..].to_owned());
            }
        }
        for host in self.hosts.clone() {
            self.take(ResourceKey::new(Kind::Host, host));
        }
        let changed = |key: &str| self.head.config.changed(&ResourceKey::new(Kind::Backend, key));
        let newest = self.backends().map(changed).max();
        self.raise(Lane::Config, newest.unwrap_or_default());
    }

    /// A Service consists of its Backends, and the ports that lead to them.
    fn take_service(&mut self) {
        self.take_all(Kind::Backend);
        let newest = self.listeners(self.config).map(|(_, seq)| seq).max();
        self.raise(Lane::Config, newest.unwrap_or_default());
    }

    /// The ports that lead to a Backend of the Service and changed after a position. A removed one leads nowhere.
    fn listeners(&self, after: Seq) -> impl Iterator<Item = (&ResourceKey, Seq)> {
        let config = &self.head.config;
        let is_led_here = |key: &ResourceKey| config.snapshot.get(key).is_some_and(|it| self.is_led_here(it));
        config.changes(Kind::Listener, "").filter(move |(key, seq)| *seq > after && is_led_here(key))
    }

    fn is_led_here(&self, listener: &Entry) -> bool {
        match Resource::decode(Kind::Listener, &listener.body) {
            Ok(Resource::Listener(Listener::Service(service))) => service.backend.starts_with(&self.under()),
            _ => false,
        }
    }

    fn take_all(&mut self, kind: Kind) {
        let under = self.under();
        let newest = self.head.lane(kind.lane()).changes(kind, &under).map(|(_, seq)| seq).max();
        self.raise(kind.lane(), newest.unwrap_or_default());
    }

    fn take(&mut self, key: ResourceKey) {
        let lane = key.kind.lane();
        self.raise(lane, self.head.lane(lane).changed(&key));
    }

    fn raise(&mut self, lane: Lane, seq: Seq) {
        let place = match lane {
            Lane::Config => &mut self.config,
            Lane::Live => &mut self.live,
        };
        *place = (*place).max(seq);
    }

    /// Key prefix of its Routes.
    fn routes(&self) -> String {
        format!("{}/{}/", self.object.kind.lower(), self.object.name)
    }

    /// Key prefix of all resources of a Service or Secret.
    fn under(&self) -> String {
        format!("{}/", self.object.name)
    }

    fn backends(&self) -> impl Iterator<Item = &str> {
        self.placed.iter().flat_map(|placed| placed.compiled.backends.iter()).map(|key| &**key)
    }

    fn certificates(&self) -> &BTreeSet<String> {
        self.certificates.get_or_init(|| {
            let hosts = self.hosts.iter().filter_map(|host| match self.decoded(Kind::Host, host)? {
                Resource::Host(host) => host.tls,
                _ => None,
            });
            hosts.flat_map(|tls| tls.certificates).collect()
        })
    }

    fn chain_of(&self, certificate: &str) -> Option<String> {
        match self.decoded(Kind::Certificate, certificate)? {
            Resource::Certificate(certificate) => certificate.chain,
            _ => None,
        }
    }

    fn service_of(&self, slice: &str) -> Option<String> {
        match self.decoded(Kind::Endpoints, slice)? {
            Resource::Endpoints(endpoints) => Some(endpoints.service),
            _ => None,
        }
    }

    fn decoded(&self, kind: Kind, key: &str) -> Option<Resource> {
        let entry = self.head.lane(kind.lane()).snapshot.get(&ResourceKey::new(kind, key))?;
        Resource::decode(kind, &entry.body).ok()
    }
}

#[cfg(test)]
mod tests;
