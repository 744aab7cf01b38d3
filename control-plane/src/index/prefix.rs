//! Annotations with another prefix than ingress-nginx' (`--annotations-prefix`). An Ingress is processed as if it had
//! the usual prefix, and problems show the name that its owner wrote.
//!
//! **Invariant:** with another prefix the usual one has no effect: two controllers side by side have one each.

use std::sync::Arc;

use crate::annotations::PREFIX;
use crate::objects::{Ingress, Object};
use crate::problem::Fault;

/// A custom prefix, with its slash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prefix(Arc<str>);

impl Prefix {
    /// From a prefix without its slash; `None` for the usual one.
    pub fn new(text: &str) -> Option<Self> {
        let prefix = format!("{text}/");
        (prefix != PREFIX).then(|| Self(prefix.into()))
    }

    /// Translates the annotations of an object to the usual prefix.
    pub(super) fn taken_in(&self, object: Object) -> Object {
        match object {
            Object::Ingress(ingress) => Object::Ingress(self.usual(ingress)),
            other => other,
        }
    }

    pub(super) fn usual(&self, ingress: Arc<Ingress>) -> Arc<Ingress> {
        let keys = || ingress.metadata.annotations.keys();
        if !keys().any(|key| key.starts_with(&*self.0) || key.starts_with(PREFIX)) {
            return ingress;
        }
        let mut usual = Ingress::clone(&ingress);
        let annotations = std::mem::take(&mut usual.metadata.annotations).into_iter();
        let annotations = annotations.filter(|(key, _)| !key.starts_with(PREFIX));
        usual.metadata.annotations = annotations
            .map(|(key, text)| match key.strip_prefix(&*self.0) {
                Some(name) => (format!("{PREFIX}{name}"), text),
                None => (key, text),
            })
            .collect();
        Arc::new(usual)
    }

    /// The first annotation that has the usual prefix.
    pub(super) fn misnamed<'a>(&self, ingress: &'a Ingress) -> Option<&'a str> {
        ingress.metadata.annotations.keys().map(String::as_str).find(|key| key.starts_with(PREFIX))
    }

    /// Translates a fault back to the owner's prefix.
    pub(super) fn restored(&self, fault: Fault) -> Fault {
        Fault { field: self.restored_text(fault.field), reason: self.restored_text(fault.reason), ..fault }
    }

    /// The same for a text that names annotations.
    pub(super) fn restored_text(&self, text: String) -> String {
        if text.contains(PREFIX) { text.replace(PREFIX, &self.0) } else { text }
    }
}
