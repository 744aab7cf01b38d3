//! The origin of a commit: the object that its cause names first.

use serde::{Deserialize, Serialize};

use crate::objects::{Object, ObjectRef};

/// Bytes of a field manager's name at most: a tenant may call theirs what they like.
const MANAGER_MAX: usize = 128;

/// The object behind a commit. Of several it is the one that says most. Empty where there is none, as at the start.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Origin {
    /// `Ingress default/web`.
    pub object: String,
    /// The API server's count of the version that was seen; of one that is gone the last one. Empty in a folder.
    pub resource_version: String,
    /// Who wrote that version. Empty in a folder, and where the object is gone: nobody says who deleted it.
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
