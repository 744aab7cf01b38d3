//! The compile, one piece at a time.
//!
//! Each piece is taken from the first set that is not empty, so that what hosts touch is compiled once all hosts are,
//! and nothing twice. Changes in between are added to the same sets.

use super::Index;
use super::dirty::{Dirty, follow};
use crate::objects::{ObjectKind, ObjectRef};

impl Index {
    /// Compiles what the events since the last commit touched, until all is done (true) or `is_over` returns true. It
    /// is called after each piece, which is one object or resource; at least one piece is done each time.
    pub fn compile(&mut self, mut is_over: impl FnMut() -> bool) -> bool {
        while self.step() {
            if is_over() {
                return false;
            }
        }
        true
    }

    /// Compiles one piece. Returns false if there is none.
    fn step(&mut self) -> bool {
        if let Some(object) = self.dirty.objects.pop_first() {
            self.spread(object);
        } else if let Some(name) = self.dirty.ingresses.pop_first() {
            self.refresh_ingress(&name);
        } else if self.follow_class() || self.follow_namespace() {
        } else if let Some(host) = self.dirty.dependents.pop_first() {
            self.mark_dependents(&host);
        } else if let Some((host, object)) = self.dirty.parts.pop_first() {
            self.compile_part(&host, &object);
        } else if let Some(host) = self.dirty.hosts.pop_first() {
            self.compile_host(&host);
        } else if std::mem::take(&mut self.dirty.streams) {
            self.compile_streams();
        } else if let Some(key) = self.dirty.referred.pop_first() {
            self.tell_referrers(&key);
        } else if let Some(key) = self.dirty.backends.pop_first() {
            self.compile_backend(&key);
        } else if let Some(name) = self.dirty.slices.pop_first() {
            self.compile_slice(&name);
        } else if let Some(name) = self.dirty.secrets.pop_first() {
            self.compile_secret(&name);
        } else if let Some((key, chain)) = self.dirty.chains.pop_first() {
            self.compile_chain(key, chain);
        } else if std::mem::take(&mut self.dirty.settings) {
            self.compile_settings();
        } else if std::mem::take(&mut self.dirty.pin) {
            self.problems_changed |= self.refresh_pin_problems();
        } else if let Some(object) = self.dirty.problems.pop_first() {
            self.problems_changed |= self.refresh_problems(&object);
        } else {
            return false;
        }
        true
    }

    /// Marks what must be compiled again after an event of an object.
    fn spread(&mut self, object: ObjectRef) {
        let name = &object.name;
        match object.kind {
            ObjectKind::Ingress => {
                self.dirty.ingresses.insert(name.clone());
            }
            ObjectKind::IngressClass => self.refresh_class(name),
            ObjectKind::Namespace => self.refresh_namespace(name),
            ObjectKind::Service => {
                self.refresh_service(name);
                self.tell_callers(name);
                self.tell_pin(&object);
            }
            ObjectKind::Secret => {
                self.tell_pin(&object);
                self.dirty.secrets.insert(name.clone());
                self.tell_users(&object);
            }
            ObjectKind::ConfigMap => {
                self.dirty.settings |= *name == self.options.configmap;
                self.dirty.streams |= self.has_streams(&object);
                self.compare_configmap(&object.name);
                self.tell_users(&object);
            }
            // Done when the event arrived.
            ObjectKind::EndpointSlice => {}
        }
        self.dirty.holds.insert(object.clone());
        self.dirty.problems.insert(object);
    }

    /// Marks the Ingresses or the settings that contain what is compiled from the object. A certificate is a resource
    /// of its own.
    fn tell_users(&mut self, object: &ObjectRef) {
        let users: Vec<_> =
            self.refs.sites_of(object).filter(|site| !site.what.is_certificate()).cloned().collect();
        for site in users {
            self.look_again(site);
        }
    }

    /// Continues with the next Ingress of a class that changed. Returns false if there is no such class.
    fn follow_class(&mut self) -> bool {
        let Dirty { classes, ingresses, .. } = &mut self.dirty;
        follow(classes, ingresses, |class, after| self.ingresses.next_of_class(class, after))
    }
}
