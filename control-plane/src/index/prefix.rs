//! Annotations under another prefix than ingress-nginx' own (`--annotations-prefix`, annotations.md 1.1). An Ingress is taken
//! in as if it had the usual one, and what is said of it has the name that its owner wrote.
//!
//! **Invariant:** with another prefix the usual one means nothing: two controllers beside each other have one each.

use std::sync::Arc;

use crate::annotations::PREFIX;
use crate::objects::{Ingress, Object};
use crate::problem::Fault;

/// Another prefix, with its slash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prefix(Arc<str>);

impl Prefix {
    /// One without its slash; `None` for the usual one.
    pub fn new(text: &str) -> Option<Self> {
        let prefix = format!("{text}/");
        (prefix != PREFIX).then(|| Self(prefix.into()))
    }

    /// An object as it is taken in.
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

    /// A fault as the owner of the object is told it.
    pub(super) fn told(&self, fault: Fault) -> Fault {
        let own = |text: String| if text.contains(PREFIX) { text.replace(PREFIX, &self.0) } else { text };
        Fault { field: own(fault.field), reason: own(fault.reason), ..fault }
    }
}
