//! Ingresses: which are ours, and their claims.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use shared::few::FewOf;
use shared::name::ObjectName;

use super::Index;
use super::classes;
use super::objects::reference;
use super::refs::{Choice, Site, User};
use super::slot::Slot;
use crate::annotations::Parsed;
use crate::compile::claim::Claim;
use crate::compile::referred::{self, AllReferred, Referred};
use crate::objects::{Object, ObjectKind, ObjectRef};
use crate::reference::Reference;

/// The claims of all Ingresses that are ours.
#[derive(Debug, Default)]
pub(super) struct Ingresses {
    pub(super) claims: HashMap<ObjectRef, Arc<Claim>>,
    /// The Ingresses by the class that they depend on, in any version that may come into use. Those that name none are
    /// under the empty name.
    by_class: HashMap<String, BTreeSet<ObjectName>>,
    classes: BTreeMap<ObjectName, FewOf<String>>,
}

impl Ingresses {
    /// The next of the Ingresses with this class, by name.
    pub(super) fn next_of_class(&self, class: &str, after: Option<&ObjectName>) -> Option<&ObjectName> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.by_class.get(class)?.range((after, Bound::Unbounded));
        rest.next()
    }

    /// The Ingresses with this class.
    pub(super) fn of_class(&self, class: &str) -> impl Iterator<Item = &ObjectName> {
        self.by_class.get(class).into_iter().flatten()
    }

    /// The classes that an Ingress names.
    fn classes_of(&self, name: &ObjectName) -> impl Iterator<Item = &String> {
        self.classes.get(name).into_iter().flat_map(|classes| classes.iter())
    }

    /// The next of the Ingresses of a namespace, by name.
    pub(super) fn next_of_namespace(
        &self,
        namespace: &Arc<str>,
        after: Option<&ObjectName>,
    ) -> Option<&ObjectName> {
        let first = ObjectName::new(Arc::clone(namespace), "");
        let from = after.map_or(Bound::Included(&first), Bound::Excluded);
        let (next, _) = self.classes.range((from, Bound::Unbounded)).next()?;
        (next.namespace == *namespace).then_some(next)
    }

    /// All classes that Ingresses name, with those Ingresses.
    pub(super) fn by_class(&self) -> impl Iterator<Item = (&String, &BTreeSet<ObjectName>)> {
        self.by_class.iter()
    }

    fn set_classes(&mut self, name: &ObjectName, classes: FewOf<String>) {
        let before = match classes.is_empty() {
            true => self.classes.remove(name),
            false => self.classes.insert(name.clone(), classes.clone()),
        }
        .unwrap_or_default();
        for class in before.difference(&classes) {
            if let Some(users) = self.by_class.get_mut(class) {
                users.remove(name);
                if users.is_empty() {
                    self.by_class.remove(class);
                }
            }
        }
        for class in classes.difference(&before) {
            self.by_class.entry(class.clone()).or_default().insert(name.clone());
        }
    }
}

impl Index {
    /// Reads an Ingress again and marks what its change touches.
    pub(super) fn refresh_ingress(&mut self, name: &ObjectName) {
        let object = reference(ObjectKind::Ingress, name);
        self.mark_for_report(&object);
        self.dirty.holds.insert(object.clone());
        self.dirty.problems.insert(object.clone());
        let slot = self.objects.get(&object);
        let ignores = self.options.ignores_classes;
        let classes = slot.into_iter().flat_map(|slot| slot.versions()).filter_map(|version| match version {
            Object::Ingress(ingress) => Some(classes::class_of(ingress, ignores)),
            _ => None,
        });
        let classes = classes.collect();
        // The problem of the assumed class depends on whether an Ingress names it.
        let assumed = ObjectName::new("", self.options.ingress_class.as_str());
        self.dirty.problems.insert(reference(ObjectKind::IngressClass, &assumed));
        // A rejected version that is not ours any more ends the service of older versions: there is no hold for us
        // then.
        let is_ours = |version: &Object| matches!(version, Object::Ingress(ingress) if self.is_ours(ingress));
        let in_use =
            slot.filter(|slot| slot.newest().is_none_or(is_ours)).and_then(|slot| slot.version_in_use());
        let newest = match in_use.map(|version| (&**version, version.parsed())) {
            Some((Object::Ingress(ingress), Some(parsed))) if self.is_ours(ingress) => {
                Some((Arc::clone(ingress), Arc::clone(parsed)))
            }
            _ => None,
        };
        let newest = self.what_is_closed(name).or(newest);
        let standing = newest.as_ref().and_then(|newest| self.what_stands(name, newest));
        let is_newest = standing.is_none();
        let ours = standing.or(newest);
        let referred = self.follow_references(name, ours.as_ref().map(|(_, parsed)| &**parsed));
        if is_newest {
            self.end_standing(name);
        }
        let after = ours
            .map(|(ingress, parsed)| Arc::new(Claim::of(&ingress, parsed, referred, self.of_fleet.clone())));
        self.tell_classes(name);
        self.ingresses.set_classes(name, classes);
        self.tell_classes(name);
        let before = match &after {
            Some(claim) => self.ingresses.claims.insert(object.clone(), Arc::clone(claim)),
            None => self.ingresses.claims.remove(&object),
        };
        if before == after {
            return;
        }
        self.mark_ingress(object);
        self.replace_member(before.as_ref(), after.as_ref());
        self.replace_referrer(before.as_ref(), after.as_ref());
        self.replace_called(before.as_ref(), after.as_ref());
    }

    /// Looks again whether the classes of an Ingress are still to be kept, if they were deleted.
    fn tell_classes(&mut self, name: &ObjectName) {
        for class in self.ingresses.classes_of(name) {
            for class in self.classes.kept_for(class) {
                let object = reference(ObjectKind::IngressClass, &ObjectName::new("", Arc::clone(class)));
                self.dirty.holds.insert(object.clone());
                self.dirty.problems.insert(object);
            }
        }
    }

    /// Updates the references of an Ingress' annotations. Returns the target of each reference: if the new target was
    /// not read yet, the previous one.
    fn follow_references(&mut self, name: &ObjectName, parsed: Option<&Parsed>) -> AllReferred {
        let site = |what| Site { user: User::Ingress(name.clone()), what };
        let object = reference(ObjectKind::Ingress, name);
        let before = self.ingresses.claims.get(&object).map(|claim| Arc::clone(&claim.parsed));
        let refs = || parsed.into_iter().flat_map(|parsed| parsed.refs.keys());
        let dropped = before.iter().flat_map(|parsed| parsed.refs.keys()).map(|reference| reference.what);
        for what in dropped.filter(|what| refs().all(|reference| reference.what != *what)) {
            self.refer(&site(what), BTreeSet::new());
        }
        let mut all = AllReferred::new();
        for reference in refs() {
            all.insert(reference.what, self.follow(name, &site(reference.what), reference));
        }
        all
    }

    /// Updates a reference of an Ingress, and returns its target.
    pub(super) fn follow(&mut self, name: &ObjectName, site: &Site, reference: &Reference) -> Referred {
        match self.out_of_reach(name, reference) {
            Some(found) => {
                self.refer(site, BTreeSet::new());
                found
            }
            None => self.what_is_used(site, reference),
        }
    }

    /// The target of a reference to another namespace that an Ingress may not refer to.
    pub(super) fn out_of_reach(&self, ingress: &ObjectName, reference: &Reference) -> Option<Referred> {
        if reference.name.namespace == ingress.namespace {
            return None;
        }
        let may_cross = self.crosses_namespaces || reference.what.crosses_namespaces();
        let outside = self.outside_of(reference).map(Referred::Outside);
        outside.or_else(|| (!may_cross).then_some(Referred::Foreign))
    }

    /// Sets the reference of a site to an object, and returns its target: the previous one, if the new one was not read
    /// yet.
    pub(super) fn what_is_used(&mut self, site: &Site, reference: &Reference) -> Referred {
        if !reference.name.is_possible() {
            self.refer(site, BTreeSet::new());
            return Referred::Misnamed;
        }
        let used = match self.refer(site, [reference.object()].into()) {
            Choice::Newest => reference.object(),
            Choice::Earlier => match self.refs.in_use(site).next() {
                Some(object) => object.clone(),
                None => return Referred::Awaited,
            },
            Choice::Nothing => return Referred::Awaited,
        };
        let slot = self.objects.get(&used);
        // A Secret's last good version is used as a certificate only, whatever its other uses.
        let version = slot.and_then(|slot| match used.kind {
            ObjectKind::Secret => slot.newest(),
            _ => slot.in_use(),
        });
        if version.is_none()
            && let Some(why) = slot.and_then(Slot::unreadable)
        {
            return Referred::Faulty(why);
        }
        let reference = Reference::new(reference.what, used.name);
        referred::referred(&reference, version, &self.allowed_headers)
    }

    /// The only watched namespace, if an object that tenants refer to is in another one: the control plane may not be
    /// permitted to read it, and would not see its changes. What operators name is read in any namespace.
    pub(super) fn outside_of(&self, reference: &Reference) -> Option<Arc<str>> {
        let watched = self.options.watch_namespace.as_ref()?;
        let is_operators = reference.what.is_of_the_fleet();
        (!is_operators && reference.name.namespace != *watched).then(|| Arc::clone(watched))
    }
}
