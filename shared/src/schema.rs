//! Which schema revision a resource needs: the table of `proto/firth/config/v1/schema.md` as code.

use crate::resource::Resource;

/// The newest revision that this build honours.
pub const CURRENT: u32 = 1;

/// Raised whenever the canonical bytes of something change that was there before; `tests/golden` has a file for each.
pub const COMPILE_REVISION: u32 = 1;

/// Lowest revision that honours every field *set* in a resource.
///
/// A proxy below it refuses the resource and keeps its last good version: protobuf would drop what it does not know.
pub fn minimum(resource: &Resource) -> u32 {
    match resource {
        Resource::Settings(_)
        | Resource::Listener(_)
        | Resource::Host(_)
        | Resource::Route(_)
        | Resource::Backend(_)
        | Resource::Endpoints(_)
        | Resource::Certificate(_)
        | Resource::Chain(_) => 1,
    }
}
