//! Objects of the fleet that stay in use when they are deleted: our IngressClasses, and the fleet's ConfigMap.
//!
//! Each of them decides on every host, and most deletions are accidents: `helm uninstall` of the former controller, a
//! prune. So the last good version is held as that of a rejected object is ([`super::slot`]), until the object exists
//! again, whatever it says then. For an IngressClass, the hold lists the Ingresses that belonged to it, as an annotation
//! of the held source: only these go on being served.
//!
//! **Invariant:** which Ingresses those are is read from the stored hold, so it is the same on every replica.

use std::collections::BTreeSet;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use shared::name::ObjectName;

use super::Index;
use super::objects::reference;
use super::slot::Slot;
use crate::objects::{IngressClass, Object, ObjectKind, ObjectRef};
use crate::problem::{Fault, Severity};

/// Annotation of a held IngressClass with its Ingresses.
const ANNOTATION: &str = "firth.dev/ingresses";
/// Its value if there are more than [`MOST`]: every Ingress that names the class.
const ALL: &str = "*";
/// Limit of the Ingresses that are listed: the list fits into a ConfigMap.
const MOST: usize = 65_536;
/// Bytes of an Ingress in the list.
const SIZE: usize = size_of::<u64>();

/// The Ingresses that belonged to a class when it was deleted, as digests of their names and uids.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Members {
    All,
    Those(Arc<[u64]>),
}

impl Members {
    fn of(digests: BTreeSet<u64>) -> Self {
        if digests.len() > MOST { Self::All } else { Self::Those(digests.into_iter().collect()) }
    }

    /// Those that a held class lists; none if it lists none.
    pub(super) fn listed(class: &IngressClass) -> Self {
        let text = class.metadata.annotations.get(ANNOTATION).map(String::as_str);
        if text == Some(ALL) {
            return Self::All;
        }
        let bytes = text.and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
        let (digests, _) = bytes.as_chunks::<SIZE>();
        Self::of(digests.iter().map(|it| u64::from_be_bytes(*it)).collect())
    }

    fn text(&self) -> String {
        match self {
            Self::All => ALL.to_owned(),
            Self::Those(digests) => {
                let bytes: Vec<u8> = digests.iter().flat_map(|it| it.to_be_bytes()).collect();
                STANDARD.encode(bytes)
            }
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self::Those(digests) if digests.is_empty())
    }

    /// Whether an Ingress is one of them. One of the same name that was created later has another uid.
    pub(super) fn contain(&self, name: &ObjectName, uid: &str) -> bool {
        match self {
            Self::All => true,
            Self::Those(digests) => digests.binary_search(&digest(name, uid)).is_ok(),
        }
    }
}

fn digest(name: &ObjectName, uid: &str) -> u64 {
    let hash = blake3::hash(format!("{name}/{uid}").as_bytes());
    let (first, _) = hash.as_bytes().as_chunks::<SIZE>();
    first.first().map_or(0, |it| u64::from_be_bytes(*it))
}

impl Index {
    /// Whether a deleted object of this name may stay in use.
    pub(super) fn is_lasting(&self, object: &ObjectRef) -> bool {
        match object.kind {
            ObjectKind::IngressClass => !self.options.ignores_classes,
            ObjectKind::ConfigMap => object.name == self.options.configmap,
            _ => false,
        }
    }

    /// What stays in use of an object that was deleted now.
    pub(super) fn what_stays(&self, object: &ObjectRef) -> Option<Object> {
        if !self.is_lasting(object) {
            return None;
        }
        let slot = self.objects.get(object)?;
        match slot.in_use()? {
            // It was deleted before.
            kept if !slot.is_there() => Some(kept.clone()),
            // Without data it says the same as none.
            Object::ConfigMap(map) => (!map.data.is_empty()).then(|| Object::ConfigMap(Arc::clone(map))),
            Object::IngressClass(class) if self.is_our_class(&object.name.name, class) => {
                let members = self.members(&object.name.name);
                (!members.is_empty()).then(|| {
                    let mut class = IngressClass::clone(class);
                    class.metadata.annotations.insert(ANNOTATION.into(), members.text());
                    Object::IngressClass(Arc::new(class))
                })
            }
            _ => None,
        }
    }

    /// The Ingresses that name a class, those included whose event is still to be compiled.
    fn members(&self, class: &str) -> Members {
        let heard = self.dirty.objects.iter().filter(|it| it.kind == ObjectKind::Ingress).map(|it| &it.name);
        let names: BTreeSet<_> = self.ingresses_of(class).chain(heard).chain(&self.dirty.ingresses).collect();
        let named = names.into_iter().filter(|name| self.names_class(name, class));
        Members::of(named.filter_map(|name| Some(digest(name, self.uid(name)?))).collect())
    }

    /// The uid of an Ingress that exists.
    fn uid(&self, ingress: &ObjectName) -> Option<&str> {
        self.objects.get(&reference(ObjectKind::Ingress, ingress)).and_then(Slot::uid)
    }

    /// Whether a deleted object is in use: its values, or for a class an Ingress that it lists.
    pub(super) fn is_kept(&self, object: &ObjectRef) -> bool {
        if !self.objects.get(object).is_some_and(Slot::is_kept) {
            return false;
        }
        let class = &object.name.name;
        let Some(members) = self.classes.kept(class) else {
            return object.kind == ObjectKind::ConfigMap;
        };
        self.ingresses_of(class).any(|name| {
            self.uid(name).is_some_and(|uid| members.contain(name, uid)) && self.names_class(name, class)
        })
    }

    /// What is said of a deleted object that is in use.
    pub(super) fn fault_of_kept(&self, object: &ObjectRef) -> Option<Fault> {
        if !self.is_kept(object) {
            return None;
        }
        let reason = match object.kind {
            ObjectKind::IngressClass => format!(
                "was deleted: its Ingresses are still served, new ones are not. Create it again with spec.controller {} to serve new ones too, or with another controller to stop serving them",
                self.options.controller_class
            ),
            _ => "was deleted: its last values stay in use. Create it again to change them; without data it restores the defaults"
                .to_owned(),
        };
        Some(Fault::new(Severity::Warning, "", reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list must fit into a ConfigMap.
    #[test]
    fn more_ingresses_than_a_hold_can_list_are_all() {
        for (count, expected) in [(MOST, false), (MOST + 1, true)] {
            let members = Members::of((0..count as u64).collect());
            let text = members.text();
            assert!(text.len() < 800_000, "{} bytes", text.len());
            let mut class = IngressClass::default();
            class.metadata.annotations.insert(ANNOTATION.into(), text);
            let listed = Members::listed(&class);
            assert_eq!(listed, members);
            assert_eq!(listed.contain(&ObjectName::new("default", "web"), "u1"), expected, "{count}");
        }
    }
}
