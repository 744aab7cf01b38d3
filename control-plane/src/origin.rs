//! The origin of a commit: the object that its cause names first.

use serde::{Deserialize, Serialize};

use crate::objects::{Object, ObjectRef};

/// Limit of a field manager's name in bytes: tenants choose the name.
const MANAGER_MAX: usize = 128;

/// The object behind a commit; of several, the most informative one. Empty if there is none, as at the start.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Origin {
    /// `Ingress default/web`.
    pub object: String,
    /// The resource version of the object; of a deleted one the last. Empty in a folder.
    pub resource_version: String,
    /// The manager that wrote that version. Empty in a folder, and if the object was deleted: Kubernetes does not say
    /// by whom.
    pub manager: String,
}

impl Origin {
    /// An object that changed from one version to another; either may be absent.
    pub fn new(object: &ObjectRef, before: Option<&Object>, after: Option<&Object>) -> Self {
        let seen = after.or(before).map(Object::metadata);
        let manager = after.map_or("", |after| &*after.metadata().manager);
        let shown = &manager[..manager.floor_char_boundary(MANAGER_MAX)];
        Self {
            object: object.to_string(),
            resource_version: seen.map_or_else(String::new, |it| it.resource_version.to_string()),
            manager: shown.chars().map(|c| if c.is_control() { ' ' } else { c }).collect(),
        }
    }
}
