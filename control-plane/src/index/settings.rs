//! What is the fleet's: its settings, and the sockets that always are there.

use std::collections::BTreeSet;

use shared::resource::{Listener, Protocol, Resource, SETTINGS_KEY};

use super::Index;
use super::objects::reference;
use super::refs::{Site, User};
use crate::compile::settings;
use crate::objects::ObjectKind;
use crate::reference::Use;

impl Index {
    /// The fleet's default certificate is wanted whatever happens.
    pub(super) fn want_default_certificate(&mut self) {
        let secret = self.options.default_certificate.iter();
        let wanted: BTreeSet<_> = secret.map(|name| reference(ObjectKind::Secret, name)).collect();
        self.refer(&Site { user: User::Fleet, what: Use::DefaultCertificate }, wanted);
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
