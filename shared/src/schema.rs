//! Which schema revision this build speaks. What a resource needs follows from the fields that it sets: each says
//! `(firth.since)` in `proto/`, and `shared/build/policies.rs` writes the rest.

/// The newest revision that this build honours.
pub const CURRENT: u32 = 2;

/// Raised whenever the canonical bytes of something change that was there before, never for what is new: `tests/golden`
/// has a file for each, to which lines are only added.
pub const COMPILE_REVISION: u32 = 2;
