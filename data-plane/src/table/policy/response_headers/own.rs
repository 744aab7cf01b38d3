//! What an `if` of a snippet, or a block, says of the headers of its answers (docs/adr/034-shortcuts.md).

use shared::policy::{HeaderChangeList, HeaderOperation, LocationPolicy};

use super::{Added, Appended, ResponseHeaders};
use crate::table::policy::PolicyError;
use crate::table::policy::expires::Expires;

/// Changes beside those of the place that a request has reached.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OwnHeaders {
    /// Headers to set, after those of its place.
    pub added: Box<[Added]>,
    /// Headers to append; if there are any, none of its place is.
    pub appended: Box<[Appended]>,
    /// How long clients may keep the response, if it says so.
    pub expires: Option<Option<Expires>>,
    /// Whether one of them contains the request's id.
    pub uses_request_id: bool,
    /// Whether a value has a group of a pattern.
    pub has_groups: bool,
}

impl OwnHeaders {
    /// Compiles a list.
    ///
    /// # Errors
    /// A change is not supported.
    pub fn compile(configured: Option<&HeaderChangeList>) -> Result<Self, PolicyError> {
        let Some(list) = configured else {
            return Ok(Self::default());
        };
        let policy = LocationPolicy { header_changes: Some(list.clone()), ..LocationPolicy::default() };
        let ResponseHeaders { added, appended, expires, uses_request_id, has_groups, .. } =
            ResponseHeaders::compile(&policy)?;
        let says = list.changes.iter().any(|it| it.operation() == HeaderOperation::Expires);
        Ok(Self { added, appended, expires: says.then_some(expires), uses_request_id, has_groups })
    }
}
