//! The schema revision of this build. The revision that a resource needs follows from the fields that it sets: each has
//! `(firth.since)` in `proto/`, and `shared/build/policies.rs` generates the rest.

/// The newest revision that this build supports.
pub const CURRENT: u32 = 2;

/// Raised whenever the canonical bytes of existing values change, never for new ones: `tests/golden` has a file for
/// each revision, to which lines are only added.
pub const COMPILE_REVISION: u32 = 2;
