//! Ingresses: which are ours, and what they claim.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use shared::name::ObjectName;

use super::Index;
use super::objects::reference;
use crate::compile::claim::Claim;
use crate::objects::{Ingress, Object, ObjectKind};

/// Annotation that names the class of an Ingress without `spec.ingressClassName`.
pub(super) const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// The claims of all Ingresses that are ours.
#[derive(Debug, Default)]
pub(super) struct Ingresses {
    pub(super) claims: HashMap<ObjectName, Arc<Claim>>,
    /// Which Ingresses name a class in `spec.ingressClassName`, in any version that may come into use.
    by_class: HashMap<String, BTreeSet<ObjectName>>,
    classes: HashMap<ObjectName, BTreeSet<String>>,
}

impl Ingresses {
    /// The next of the Ingresses that name a class, by name.
    pub(super) fn next_of_class(&self, class: &str, after: Option<&ObjectName>) -> Option<&ObjectName> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.by_class.get(class)?.range((after, Bound::Unbounded));
        rest.next()
    }

    fn set_classes(&mut self, name: &ObjectName, classes: BTreeSet<String>) {
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
    /// Whether an Ingress is ours (controller.md 2). The field comes first; an Ingress that has it is never ours by the
    /// annotation. Unlike in the original a class that comes or goes brings its Ingresses along (pitfalls.md 2.37).
    pub(super) fn is_ours(&self, ingress: &Ingress) -> bool {
        match ingress.spec.ingress_class_name.as_deref() {
            Some(class) if !class.is_empty() => self
                .objects
                .ingress_class(&ObjectName::new("", class))
                .is_some_and(|class| class.spec.controller == self.options.controller_class),
            _ => ingress
                .metadata
                .annotations
                .get(CLASS_ANNOTATION)
                .is_some_and(|class| *class == self.options.ingress_class),
        }
    }

    /// Reads an Ingress again and notes what its change touches.
    pub(super) fn refresh_ingress(&mut self, name: &ObjectName) {
        let object = reference(ObjectKind::Ingress, name);
        self.dirty.holds.insert(object.clone());
        self.dirty.problems.insert(object.clone());
        let slot = self.objects.get(&object);
        let classes = slot.into_iter().flat_map(|slot| slot.versions()).filter_map(|version| match version {
            Object::Ingress(ingress) => ingress.spec.ingress_class_name.clone(),
            _ => None,
        });
        let classes = classes.collect();
        // A rejected version that is not ours any longer ends what an older one had: nobody holds it for us then.
        let is_ours = |version: &Object| matches!(version, Object::Ingress(ingress) if self.is_ours(ingress));
        let in_use = slot.filter(|slot| slot.newest().is_none_or(is_ours)).and_then(|slot| slot.in_use());
        let after = match in_use {
            Some(Object::Ingress(ingress)) if self.is_ours(ingress) => Some(Arc::new(Claim::of(ingress))),
            _ => None,
        };
        self.ingresses.set_classes(name, classes);
        let before = match &after {
            Some(claim) => self.ingresses.claims.insert(name.clone(), Arc::clone(claim)),
            None => self.ingresses.claims.remove(name),
        };
        if before == after {
            return;
        }
        self.touched.mark(object);
        self.replace_member(before.as_ref(), after.as_ref());
        self.replace_referrer(before.as_ref(), after.as_ref());
    }
}
