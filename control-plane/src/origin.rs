//! The origin of a commit: the object that its cause names first.

use serde::{Deserialize, Serialize};

use crate::objects::{Manager, Object, ObjectRef};

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
    /// The manager that wrote that version. Empty in a folder, and if the object was deleted or something was only
    /// removed from it: Kubernetes does not say by whom.
    pub manager: String,
}

impl Origin {
    /// An object that changed from one version to another; either may be absent.
    pub fn new(object: &ObjectRef, before: Option<&Object>, after: Option<&Object>) -> Self {
        let seen = after.or(before).map(Object::metadata);
        let [was, is] = [before, after].map(|it| it.map(|it| &it.metadata().manager));
        // If somebody wrote it, there is an entry that is newer than all that were there, or as new, and another one's.
        let is_told = |is: &&Manager| {
            was.is_none_or(|was| is.time > was.time || is.time == was.time && is.name != was.name)
        };
        let manager = is.filter(is_told).map_or("", |is| &*is.name);
        let shown = &manager[..manager.floor_char_boundary(MANAGER_MAX)];
        Self {
            object: object.to_string(),
            resource_version: seen.map_or_else(String::new, |it| it.resource_version.to_string()),
            manager: shown.chars().map(|c| if c.is_control() { ' ' } else { c }).collect(),
        }
    }
}
