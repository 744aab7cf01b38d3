//! Secrets: certificates with their chains, and material for other uses.
//!
//! A Secret is checked for its use: as a certificate only if it is used as one.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use shared::kind::Kind;
use shared::name::ObjectName;
use shared::resource::{Chain, Resource};

use super::Index;
use super::lives::Lives;
use super::objects::reference;
use super::refs::{Site, User};
use crate::compile::{certificate, material};
use crate::objects::{Object, ObjectKind, ObjectRef};
use crate::reference::Use;

/// What was compiled from Secrets.
#[derive(Debug, Default)]
pub(super) struct Secrets {
    /// The names that a published certificate is valid for.
    names: HashMap<ObjectName, Vec<String>>,
    pub(super) lives: Lives,
    /// The chain of a published certificate, and the Secrets of a published chain.
    chain_of: HashMap<ObjectName, String>,
    chained: HashMap<String, BTreeSet<ObjectName>>,
}

impl Secrets {
    /// The names of a certificate; `None` if there is none.
    pub(super) fn names(&self, name: &ObjectName) -> Option<&[String]> {
        self.names.get(name).map(Vec::as_slice)
    }
}

/// Chains to update, with the contents of those that may be new.
pub(super) type Chains = BTreeMap<String, Option<Chain>>;

impl Index {
    /// Compiles all uses of a Secret again.
    pub(super) fn compile_secret(&mut self, name: &ObjectName) {
        for what in Use::of_secrets() {
            self.compile_material(name, what);
        }
        self.compile_certificate(name);
    }

    /// Compiles a use other than as a certificate. There is no last good version: a user that was removed stays
    /// removed.
    fn compile_material(&mut self, name: &ObjectName, what: Use) {
        let Some(key) = what.material(name) else {
            return;
        };
        let object = reference(ObjectKind::Secret, name);
        let is_wanted = self.refs.is_used(&object, |it| it == what);
        let material = match self.objects.get(&object).and_then(|slot| slot.newest()) {
            Some(Object::Secret(secret)) if is_wanted => material::compile(secret, what).ok(),
            _ => None,
        };
        if material.is_none() && self.is_deleted(name) && self.refs.is_kept(&object) {
            return;
        }
        let is_changed = match material {
            Some(material) => self.published.put(key, &Resource::Material(material)),
            None => self.published.remove(Kind::Material, key, is_wanted || self.is_deleted(name)),
        };
        if is_changed {
            self.touched.mark(object);
        }
    }

    /// Compiles the certificate of a Secret again.
    fn compile_certificate(&mut self, name: &ObjectName) {
        let object = reference(ObjectKind::Secret, name);
        let is_wanted = self.refs.is_used(&object, Use::is_certificate);
        if is_wanted && let Some(slot) = self.objects.get_mut(&object) {
            slot.check();
        }
        let pair = match self.objects.get(&object).and_then(|slot| slot.in_use()) {
            Some(Object::Secret(secret)) if is_wanted => certificate::compile(secret).ok(),
            _ => None,
        };
        if pair.is_none() && self.is_deleted(name) && self.refs.is_kept(&object) {
            // Its use ended before its replacement was read: it is kept until then.
            return;
        }
        self.secrets.lives.set(name, pair.as_ref().map(|pair| pair.life));
        let (certificate, chain, names) = match pair {
            Some(pair) => (Some(pair.certificate), pair.chain, Some(pair.names)),
            None => (None, None, None),
        };
        let chain_key = certificate.as_ref().and_then(|it| it.chain.clone());
        self.replace_chain(name, chain_key.as_ref(), chain);
        let is_changed = match certificate {
            Some(certificate) => self.published.put(name.to_string(), &Resource::Certificate(certificate)),
            // Users lost it: the Secret was deleted or replaced by another one with its name.
            None => {
                self.published.remove(Kind::Certificate, name.to_string(), is_wanted || self.is_deleted(name))
            }
        };
        if is_changed {
            self.touched.mark(object.clone());
        }
        let before = match names.clone() {
            Some(names) => self.secrets.names.insert(name.clone(), names),
            None => self.secrets.names.remove(name),
        };
        // For an unusable Secret, the problem says whether it exists.
        if names.is_none() || before != names {
            self.tell_of_names(&object);
        }
        self.mark_for_report(&object);
        self.dirty.problems.insert(object.clone());
        self.dirty.holds.insert(object);
    }

    /// Marks the claims that decide on TLS if a certificate covers other names than before, or became unusable. A
    /// renewed one does not change anything for them.
    fn tell_of_names(&mut self, secret: &ObjectRef) {
        let hosts = self.refs.sites_of(secret).filter_map(|site| match site {
            Site { user: User::Host(host), what: Use::Certificate } => self.hosts.get(host),
            _ => None,
        });
        let deciders: Vec<_> = hosts.filter_map(|host| host.shown.tls_decided_by().cloned()).collect();
        self.work += deciders.len();
        self.dirty.problems.extend(deciders);
    }

    /// Whether the Secret is known not to exist.
    pub(super) fn is_deleted(&self, secret: &ObjectName) -> bool {
        let slot = self.objects.get(&reference(ObjectKind::Secret, secret));
        slot.is_none_or(|slot| !slot.is_there() && slot.in_use().is_none())
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

    /// Publishes a chain with its first user, removes it with its last.
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
                // A chain is removed together with its certificates; it never was an object.
                self.published.remove(Kind::Chain, key, false);
            }
        }
    }
}
