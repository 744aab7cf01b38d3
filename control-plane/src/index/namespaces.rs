//! Namespaces: which are selected by their labels (`--watch-namespace-selector`).
//!
//! The API server labels each namespace with its name, so in a folder, where most namespaces are only mentioned, all of
//! them have that label. Unlike in ingress-nginx, a change of labels takes effect on the Ingresses of a namespace at
//! once.

use std::collections::BTreeMap;
use std::sync::Arc;

use shared::name::ObjectName;

use super::Index;
use super::dirty::{Dirty, follow};
use super::objects::reference;
use crate::objects::ObjectKind;

/// The label with a namespace's name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The namespaces that had events.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    /// Whether each was selected when last read.
    known: BTreeMap<Arc<str>, bool>,
}

impl Index {
    /// Whether Ingresses of a namespace may be ours.
    pub(super) fn may_be_ours(&self, namespace: &str) -> bool {
        self.is_watched(namespace) && self.is_selected(namespace)
    }

    /// Whether the labels of a namespace are selected. One that does not exist has none.
    pub(super) fn is_selected(&self, namespace: &str) -> bool {
        let Some(selector) = &self.options.namespace_selector else {
            return true;
        };
        let known = self.objects.namespace(&ObjectName::new("", namespace)).map(|it| &it.metadata.labels);
        if !self.options.folder {
            return known.is_some_and(|labels| selector.takes(labels));
        }
        let mut labels = known.cloned().unwrap_or_default();
        if !labels.contains_key(NAME_LABEL) {
            labels.insert(NAME_LABEL.to_owned(), namespace.to_owned());
        }
        selector.takes(&labels)
    }

    /// Reads a namespace again, and marks its Ingresses if that affects them.
    pub(super) fn refresh_namespace(&mut self, name: &ObjectName) {
        if self.options.namespace_selector.is_none() {
            return;
        }
        let namespace = &name.name;
        let after = self.is_selected(namespace);
        let before = match self.objects.namespace(name) {
            Some(_) => self.namespaces.known.insert(Arc::clone(namespace), after),
            None => self.namespaces.known.remove(namespace),
        };
        if before != Some(after) && self.ingresses.next_of_namespace(namespace, None).is_some() {
            self.touched.mark(reference(ObjectKind::Namespace, name));
            self.dirty.namespaces.insert(Arc::clone(namespace), None);
        }
    }

    /// Continues with the next Ingress of a namespace that changed. Returns false if there is no such namespace.
    pub(super) fn follow_namespace(&mut self) -> bool {
        let Dirty { namespaces, ingresses, .. } = &mut self.dirty;
        follow(namespaces, ingresses, |namespace, after| self.ingresses.next_of_namespace(namespace, after))
    }
}
