//! All objects by name, with the versions in use.

use std::collections::HashMap;
use std::sync::Arc;

use shared::name::ObjectName;

use super::slot::{Present, Slot};
use crate::compile::allowed::Allowed;
use crate::objects::{
    ConfigMap, EndpointSlice, IngressClass, Namespace, Object, ObjectKind, ObjectRef, Service,
};

/// All objects.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// Boxed: up to half of a hash table is unused.
    slots: HashMap<ObjectRef, Box<Slot>>,
}

/// Defines access to the version in use of one kind.
macro_rules! in_use {
    ($($method:ident -> $kind:ident;)*) => {
        $(pub(super) fn $method(&self, name: &ObjectName) -> Option<&Arc<$kind>> {
            match self.in_use(ObjectKind::$kind, name)? {
                Object::$kind(object) => Some(object),
                _ => None,
            }
        })*
    };
}

impl Objects {
    in_use! {
        ingress_class -> IngressClass;
        service -> Service;
        slice -> EndpointSlice;
        configmap -> ConfigMap;
        namespace -> Namespace;
    }

    fn in_use(&self, kind: ObjectKind, name: &ObjectName) -> Option<&Object> {
        self.get(&reference(kind, name))?.in_use()
    }

    /// Why the newest version of an object cannot be read; `None`: it can, or there is none.
    pub(super) fn unreadable(&self, kind: ObjectKind, name: &ObjectName) -> Option<String> {
        self.get(&reference(kind, name)).and_then(Slot::unreadable)
    }

    pub(super) fn get(&self, reference: &ObjectRef) -> Option<&Slot> {
        self.slots.get(reference).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, reference: &ObjectRef) -> Option<&mut Slot> {
        self.slots.get_mut(reference).map(Box::as_mut)
    }

    /// The slot of an object, created if there is none.
    pub(super) fn slot(&mut self, reference: &ObjectRef, is_lasting: bool) -> &mut Slot {
        self.slots.entry(reference.clone()).or_insert_with(|| Box::new(Slot::new(is_lasting)))
    }

    /// Takes objects of which only a hold is known for deleted, and returns them. Not Secrets: only wanted ones are
    /// read.
    pub(super) fn lists_complete(&mut self) -> Vec<ObjectRef> {
        let listed = self.slots.iter_mut().filter(|(it, _)| it.kind != ObjectKind::Secret);
        let orphans = listed.filter_map(|(object, slot)| slot.list_complete().then_some(object));
        orphans.cloned().collect()
    }

    /// The objects of which a change of the stored hold was requested and not read back yet.
    pub(super) fn asking(&self) -> impl Iterator<Item = ObjectRef> {
        self.slots.iter().filter(|(_, slot)| slot.is_asking()).map(|(object, _)| object.clone())
    }

    /// The Ingresses whose newest version is rejected, if it is wanted.
    pub(super) fn faulty_ingresses(&self) -> impl Iterator<Item = &ObjectRef> {
        let is_faulty = |slot: &Slot| matches!(slot.present, Present::Faulty(..));
        let ingresses = self.slots.iter().filter(|(it, _)| it.kind == ObjectKind::Ingress);
        ingresses.filter(move |(_, slot)| is_faulty(slot)).map(|(object, _)| object)
    }

    /// Checks all Ingresses against new restrictions, and returns those that changed.
    pub(super) fn judge_again(&mut self, allowed: &Allowed) -> Vec<ObjectRef> {
        let ingresses = self.slots.iter_mut().filter(|(it, _)| it.kind == ObjectKind::Ingress);
        let judged = ingresses.map(|(object, slot)| {
            slot.judge_again(allowed);
            object.clone()
        });
        judged.collect()
    }

    /// Drops the slot of an object of which nothing is known any more.
    pub(super) fn forget_if_void(&mut self, reference: &ObjectRef) {
        if self.slots.get(reference).is_some_and(|slot| slot.is_void()) {
            self.slots.remove(reference);
        }
    }
}

/// Names an object.
pub(super) fn reference(kind: ObjectKind, name: &ObjectName) -> ObjectRef {
    ObjectRef { kind, name: name.clone() }
}
