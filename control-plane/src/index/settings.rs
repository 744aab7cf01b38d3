//! Fleet-wide resources: settings, and the listeners that always exist.

use std::collections::BTreeSet;

use shared::policy::RequestMetrics;
use shared::resource::{Guard, Listener, Resource, SETTINGS_KEY};

use super::deciders::says_something;
use super::objects::reference;
use super::refs::{Site, User};
use super::{HEALTH_PATH, Index};
use crate::compile::allowed::Allowed;
use crate::compile::claim::{Claim, OfFleet};
use crate::compile::referred::Referred;
use crate::compile::settings::{self, ALL_PATHS, Compiled};
use crate::objects::ObjectKind;
use crate::problem::{Fault, Severity};
use crate::reference::{Reference, Use};

impl Index {
    /// References the fleet's default certificate.
    pub(super) fn want_default_certificate(&mut self) {
        let secret = self.options.default_certificate.iter();
        let wanted: BTreeSet<_> = secret.map(|name| reference(ObjectKind::Secret, name)).collect();
        self.refer(&Site { user: User::Fleet, what: Use::DefaultCertificate }, wanted);
    }

    /// References the fleet's default backend.
    pub(super) fn want_default_backend(&mut self) {
        if let Some(key) = self.options.default_backend() {
            self.count_use(&key, 1);
            self.dirty.problems.insert(reference(ObjectKind::Service, &key.service));
        }
    }

    /// Reports those of the fleet's ConfigMaps that flags name and that do not exist.
    pub(super) fn want_configmaps(&mut self) {
        let expected = self.options.expected.iter().map(|name| reference(ObjectKind::ConfigMap, name));
        self.dirty.problems.extend(expected);
    }

    /// Applies the restrictions that the fleet's ConfigMap puts on annotations. At once: later events are checked
    /// against them.
    pub(super) fn judge_annotations(&mut self) {
        let allowed = Allowed::of(self.objects.configmap(&self.options.configmap).map(|it| &**it));
        if allowed != self.allowed {
            self.allowed = allowed;
            self.dirty.objects.extend(self.objects.judge_again(&self.allowed));
        }
    }

    /// Compiles the fleet's settings again.
    pub(super) fn compile_settings(&mut self) {
        let configmap = self.objects.configmap(&self.options.configmap).map(|it| &**it);
        let default_certificate = self.options.default_certificate.as_ref();
        let crosses = settings::crosses_namespaces(configmap);
        let allows = settings::allows_snippets(configmap);
        let shares = !settings::is_location_only(configmap);
        let mut compiled = settings::compile(configmap, default_certificate);
        // It may restrict access, in an unknown way.
        let is_unreadable = configmap.is_none()
            && self.objects.unreadable(ObjectKind::ConfigMap, &self.options.configmap).is_some();
        for (reference, referred) in self.follow_settings(compiled.refs.keys()) {
            compiled.put(&reference, &referred);
            let key = compiled.refs.get(&reference).cloned().unwrap_or_default();
            let site = Site { user: User::Fleet, what: reference.what };
            compiled.faults.extend(self.stale_of(&site, |_| key.clone()));
        }
        let Compiled { mut settings, mut faults, refs: _, allowed_headers, ticket_key, zones } = compiled;
        if is_unreadable {
            settings.guards = vec![Guard::Addresses];
            let reason = format!("the ConfigMap cannot be read, and no version of it is known: {ALL_PATHS}");
            faults.push(Fault::new(Severity::Unsupported, "", reason));
        }
        self.compile_ticket_keys(settings.defaults.ssl_session_tickets == Some(true), ticket_key);
        settings.defaults.request_metrics =
            Some(self.options.request_metrics.clone()).filter(|it| *it != RequestMetrics::default());
        settings.defaults.health_check_path =
            Some(self.options.health_path.to_string()).filter(|it| it != HEALTH_PATH);
        settings.default_backend =
            self.options.default_backend().map(|key| key.to_string()).unwrap_or_default();
        if self.allowed_headers != allowed_headers {
            self.allowed_headers = allowed_headers;
            let users: Vec<_> = self.refs.sites_for(Use::CustomHeaders).cloned().collect();
            for site in users {
                self.look_again(site);
            }
        }
        self.settings_faults = faults;
        if self.backend_defaults != settings.backend_defaults {
            self.backend_defaults = settings.backend_defaults.clone();
            let claims = self.ingresses.claims.iter().filter(|(_, claim)| says_something(claim));
            self.dirty.problems.extend(claims.map(|(object, _)| object.clone()));
        }
        if crosses != self.crosses_namespaces {
            self.crosses_namespaces = crosses;
            let is_foreign = |claim: &Claim| {
                let mut refs = claim.parsed.refs.keys();
                refs.any(|reference| reference.name.namespace != claim.name.namespace)
            };
            let claims = self.ingresses.claims.iter().filter(|(_, claim)| is_foreign(claim));
            self.dirty.ingresses.extend(claims.map(|(object, _)| object.name.clone()));
            self.dirty.ingresses.extend(self.closed.guarded().cloned());
        }
        let passes_tls = self.options.passes_tls;
        let of_fleet =
            OfFleet { allows_snippets: allows, shares_backend_tls: shares, passes_tls, zones: zones.into() };
        let before = std::mem::replace(&mut self.of_fleet, of_fleet);
        if before != self.of_fleet {
            let are_others = before.zones != self.of_fleet.zones;
            let is_touched = |claim: &Claim| {
                before.allows_snippets != allows && !claim.parsed.snippets.is_empty()
                    || before.shares_backend_tls != shares && claim.says_backend_tls()
                    || are_others && claim.is_limited_by_zones()
            };
            let claims = self.ingresses.claims.iter().filter(|(_, claim)| is_touched(claim));
            self.dirty.ingresses.extend(claims.map(|(object, _)| object.name.clone()));
            // Owners of rejected ones are told of these settings, too.
            self.dirty.problems.extend(self.objects.faulty_ingresses().cloned());
        }
        self.published.put(SETTINGS_KEY, &Resource::Settings(settings));
        let object = reference(ObjectKind::ConfigMap, &self.options.configmap);
        self.touched.mark(object.clone());
        self.dirty.problems.insert(object);
    }

    /// Updates the references of the fleet's ConfigMap.
    fn follow_settings<'a>(
        &mut self,
        refs: impl Iterator<Item = &'a Reference>,
    ) -> Vec<(Reference, Referred)> {
        let refs: Vec<_> = refs.cloned().collect();
        let uses: BTreeSet<_> = refs.iter().map(|reference| reference.what).collect();
        for what in std::mem::replace(&mut self.settings_refs, uses.clone()).difference(&uses) {
            self.refer(&Site { user: User::Fleet, what: *what }, BTreeSet::new());
        }
        let lead = |reference: Reference| {
            let site = Site { user: User::Fleet, what: reference.what };
            let found = self.what_is_used(&site, &reference);
            (reference, found)
        };
        refs.into_iter().map(lead).collect()
    }

    /// Publishes the listeners that always exist.
    pub(super) fn compile_listeners(&mut self) {
        for (name, listener) in [("http", Listener::Http), ("https", Listener::Https)] {
            self.published.put(name, &Resource::Listener(listener));
        }
    }
}
