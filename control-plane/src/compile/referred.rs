//! What a reference leads to, for whoever compiles a policy from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use shared::policy::HeaderList;

use super::{headers, material};
use crate::objects::Object;
use crate::problem::{Fault, Severity};
use crate::reference::{Reference, Use};

/// What one object of an Ingress, or of the fleet, refers to, by what it is for.
pub type AllReferred = BTreeMap<Use, Referred>;

/// What a reference leads to now.
#[derive(Clone, PartialEq, Debug)]
pub enum Referred {
    /// Nothing yet: it was not read, and there is nothing that was referred to before.
    Awaited,
    /// There is no such object.
    Absent,
    /// It is there and of no use; why.
    Faulty(String),
    /// The key of a Material. It goes to the proxies before what names it.
    Material(String),
    /// Headers of a ConfigMap.
    Headers(HeaderList),
    /// The entries of a ConfigMap.
    Entries(Arc<BTreeMap<String, String>>),
}

/// What comes of an object that is referred to; `None`: there is none. `allowed_headers`: those that Ingresses may put into
/// answers.
pub fn referred(
    reference: &Reference,
    object: Option<&Object>,
    allowed_headers: &BTreeSet<String>,
) -> Referred {
    match object {
        None => Referred::Absent,
        Some(Object::ConfigMap(map)) if reference.what == Use::CustomHeaders => {
            headers::custom(&map.data, allowed_headers).map_or_else(Referred::Faulty, Referred::Headers)
        }
        Some(Object::ConfigMap(map)) => Referred::Entries(Arc::new(map.data.clone())),
        Some(Object::Secret(secret)) => match material::compile(secret, reference.what) {
            Ok(_) => match material::key(&reference.name, reference.what) {
                Some(key) => Referred::Material(key),
                None => Referred::Faulty("it is not read for that".into()),
            },
            Err(Fault { field, reason, .. }) => Referred::Faulty(format!("{field}: {reason}")),
        },
        Some(_) => Referred::Faulty("it is not read for that".into()),
    }
}

impl Referred {
    /// What the owner of the reference should know; `field` is where it stands.
    pub fn fault(&self, reference: &Reference, field: &str) -> Option<Fault> {
        let object = reference.object();
        let reason = match self {
            Self::Awaited => format!("{object} was not read yet"),
            Self::Absent => format!("{object} does not exist"),
            Self::Faulty(reason) => format!("{object} cannot be used: {reason}"),
            Self::Material(_) | Self::Entries(_) | Self::Headers(_) => return None,
        };
        Some(Fault::new(Severity::Warning, field, reason))
    }
}
