//! The LIVE lane: slices of Services in use, certificates of Secrets that somebody names, and the fleet's settings.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use imbl::OrdSet;
use shared::kind::Kind;
use shared::name::{HostName, ObjectName};
use shared::resource::{Chain, Listener, Protocol, Resource, SETTINGS_KEY};

use super::Index;
use super::objects::reference;
use crate::compile::{certificate, endpoints, settings};
use crate::objects::{Object, ObjectKind};
use crate::problem::Fault;

/// What is known of slices.
#[derive(Debug, Default)]
pub(super) struct Slices {
    /// The Service of each slice that is there.
    services: HashMap<ObjectName, ObjectName>,
    /// The Service that each published one was published for.
    published: HashMap<ObjectName, ObjectName>,
    /// What is wrong with published ones.
    pub(super) faults: HashMap<ObjectName, Vec<Fault>>,
}

/// What is known of Secrets.
#[derive(Debug, Default)]
pub(super) struct Secrets {
    /// The hosts that name a Secret. No host: the default certificate.
    users: HashMap<ObjectName, BTreeSet<HostName>>,
    pub(super) wants: OrdSet<ObjectName>,
    /// The names that a published certificate is good for.
    names: HashMap<ObjectName, Vec<String>>,
    /// The chain of a published certificate, and the Secrets of a published chain.
    chain_of: HashMap<ObjectName, String>,
    chained: HashMap<String, BTreeSet<ObjectName>>,
}

impl Secrets {
    pub(super) fn is_wanted(&self, name: &ObjectName) -> bool {
        self.users.contains_key(name)
    }

    /// The names of a certificate; `None`: there is none.
    pub(super) fn names(&self, name: &ObjectName) -> Option<&[String]> {
        self.names.get(name).map(Vec::as_slice)
    }
}

/// What happened to chains: the contents of those that may be new.
pub(super) type Chains = BTreeMap<String, Option<Chain>>;

impl Index {
    /// A slice came, changed or went.
    pub(super) fn refresh_slice(&mut self, name: &ObjectName) {
        let service = self.objects.slice(name).and_then(|slice| slice.service());
        let before = match &service {
            Some(service) => self.slices.services.insert(name.clone(), service.clone()),
            None => self.slices.services.remove(name),
        };
        if before != service {
            if let Some(before) = before {
                if let Some(state) = self.services.get_mut(&before) {
                    state.slices.remove(name);
                }
                self.forget_service_if_void(&before);
            }
            if let Some(service) = service {
                self.services.entry(service).or_default().slices.insert(name.clone());
            }
        }
        self.dirty.heard.insert(name.clone());
        self.dirty.slices.insert(name.clone());
    }

    /// Compiles a slice again.
    pub(super) fn compile_slice(&mut self, name: &ObjectName) {
        let service = self.slices.services.get(name);
        let is_in_use =
            service.and_then(|service| self.services.get(service)).is_some_and(|state| state.is_in_use());
        self.publish_slice(name, is_in_use, false);
    }

    /// Compiles a slice that changed itself as the committed configuration needs it, while a newer one may be on its way.
    pub(super) fn compile_slice_early(&mut self, name: &ObjectName) {
        let service = self.slices.services.get(name);
        let is_in_use = service.is_some_and(|service| self.is_in_committed_use(service));
        let is_final = service.is_none_or(|service| !self.dirty.turned.contains_key(service));
        // LIVE has only what the committed configuration uses: a slice that it does not need has left its Service.
        self.publish_slice(name, is_in_use, true);
        if is_final {
            self.dirty.slices.remove(name);
        } else {
            self.dirty.slices.insert(name.clone());
        }
    }

    fn publish_slice(&mut self, name: &ObjectName, is_in_use: bool, has_left: bool) {
        let object = reference(ObjectKind::EndpointSlice, name);
        self.dirty.problems.insert(object.clone());
        let service = self.slices.services.get(name);
        let slice = self.objects.slice(name);
        let (endpoints, faults) = match slice {
            Some(slice) if is_in_use => endpoints::compile(slice, self.options.folder),
            _ => (None, Vec::new()),
        };
        match faults.is_empty() {
            true => self.slices.faults.remove(name),
            false => self.slices.faults.insert(name.clone(), faults),
        };
        let is_changed = match (endpoints, service) {
            (Some(endpoints), Some(service)) => {
                self.slices.published.insert(name.clone(), service.clone());
                self.published.put(name.to_string(), &Resource::Endpoints(endpoints))
            }
            _ => {
                // One that is there still and belongs to another Service now is gone for the one that it was of.
                let has_moved = match (self.slices.published.remove(name), service) {
                    (Some(before), Some(service)) => before != *service,
                    _ => false,
                };
                let gone = service.is_none() || is_in_use || has_left || has_moved;
                self.published.remove(Kind::Endpoints, name.to_string(), gone)
            }
        };
        if is_changed {
            self.touched.mark(object);
        }
    }

    /// A host names a Secret.
    pub(super) fn want_secret(&mut self, secret: &ObjectName, host: &HostName) {
        let users = self.secrets.users.entry(secret.clone()).or_default();
        users.insert(host.clone());
        if self.secrets.wants.insert(secret.clone()).is_none() {
            self.dirty.secrets.insert(secret.clone());
        }
    }

    /// A host names it no longer.
    pub(super) fn drop_secret(&mut self, secret: &ObjectName, host: &HostName) {
        let Some(users) = self.secrets.users.get_mut(secret) else {
            return;
        };
        users.remove(host);
        if users.is_empty() && self.options.default_certificate.as_ref() != Some(secret) {
            self.secrets.users.remove(secret);
            self.secrets.wants.remove(secret);
            self.dirty.secrets.insert(secret.clone());
        }
    }

    /// The fleet's default certificate is wanted whatever happens.
    pub(super) fn want_default_certificate(&mut self) {
        if let Some(secret) = &self.options.default_certificate {
            self.secrets.users.entry(secret.clone()).or_default();
            self.secrets.wants.insert(secret.clone());
            self.dirty.secrets.insert(secret.clone());
        }
    }

    /// Compiles the certificate of a Secret again.
    pub(super) fn compile_secret(&mut self, name: &ObjectName) {
        let object = reference(ObjectKind::Secret, name);
        let is_wanted = self.secrets.is_wanted(name);
        if is_wanted && let Some(slot) = self.objects.get_mut(&object) {
            slot.check();
        }
        let pair = match self.objects.get(&object).and_then(|slot| slot.in_use()) {
            Some(Object::Secret(secret)) if is_wanted => certificate::compile(secret).ok(),
            _ => None,
        };
        let (certificate, chain, names) = match pair {
            Some(pair) => (Some(pair.certificate), pair.chain, Some(pair.names)),
            None => (None, None, None),
        };
        let chain_key = certificate.as_ref().and_then(|it| it.chain.clone());
        self.replace_chain(name, chain_key.as_ref(), chain);
        let is_changed = match certificate {
            Some(certificate) => self.published.put(name.to_string(), &Resource::Certificate(certificate)),
            // Whoever still wants it has lost it: the Secret is no more, or another one of its name.
            None => {
                self.published.remove(Kind::Certificate, name.to_string(), is_wanted || self.is_deleted(name))
            }
        };
        if is_changed {
            self.touched.mark(object.clone());
        }
        match names {
            Some(names) => self.secrets.names.insert(name.clone(), names),
            None => self.secrets.names.remove(name),
        };

        let hosts = self.secrets.users.get(name).into_iter().flatten();
        let deciders = hosts.filter_map(|host| self.hosts.get(host)?.outcome.tls_decided_by.as_ref());
        let ingresses = deciders.map(|ingress| reference(ObjectKind::Ingress, ingress));
        self.dirty.problems.extend(ingresses);
        self.dirty.problems.insert(object.clone());
        self.dirty.holds.insert(object);
    }

    fn is_deleted(&self, secret: &ObjectName) -> bool {
        let slot = self.objects.get(&reference(ObjectKind::Secret, secret));
        slot.is_none_or(|slot| slot.newest().is_none() && slot.in_use().is_none())
    }

    fn replace_chain(&mut self, secret: &ObjectName, key: Option<&String>, chain: Option<Chain>) {
        let before = match key {
            Some(key) => self.secrets.chain_of.insert(secret.clone(), key.clone()),
            None => self.secrets.chain_of.remove(secret),
        };
        if before.as_ref() == key {
            return;
        }
        if let Some(before) = before {
            if let Some(users) = self.secrets.chained.get_mut(&before) {
                users.remove(secret);
            }
            self.dirty.chains.entry(before).or_default();
        }
        if let Some(key) = key {
            self.secrets.chained.entry(key.clone()).or_default().insert(secret.clone());
            self.dirty.chains.insert(key.clone(), chain);
        }
    }

    /// Publishes a chain that has a first user, takes back one that lost its last.
    pub(super) fn compile_chain(&mut self, key: String, chain: Option<Chain>) {
        let users = self.secrets.chained.get(&key);
        let is_used = users.is_some_and(|users| !users.is_empty());
        match chain {
            Some(chain) if is_used => {
                self.published.put(key, &Resource::Chain(chain));
            }
            _ if is_used => {}
            _ => {
                self.secrets.chained.remove(&key);
                // Whoever shows it goes with a certificate of its own; it never was an object.
                self.published.remove(Kind::Chain, key, false);
            }
        }
    }

    /// Compiles the fleet's settings again.
    pub(super) fn compile_settings(&mut self) {
        let configmap = self.objects.configmap(&self.options.configmap).map(|it| &**it);
        let default_certificate = self.options.default_certificate.as_ref();
        let (settings, faults) = settings::compile(configmap, default_certificate);
        self.settings_faults = faults;
        self.published.put(SETTINGS_KEY, &Resource::Settings(settings));
        let object = reference(ObjectKind::ConfigMap, &self.options.configmap);
        self.touched.mark(object.clone());
        self.dirty.problems.insert(object);
    }

    /// Publishes the sockets that always are there.
    pub(super) fn compile_listeners(&mut self) {
        for (name, protocol) in [("http", Protocol::Http), ("https", Protocol::Https)] {
            self.published.put(name, &Resource::Listener(Listener { protocol }));
        }
    }
}
