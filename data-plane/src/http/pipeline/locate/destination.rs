//! What a path leads to, according to one way of reading it. Where two readings lead to different places, it is unknown
//! which of them a backend follows.

use std::sync::Arc;

use shared::pattern::{Exhausted, Steps};

use crate::codec::path::has_one_reading;
use crate::table::location::Plainly;
use crate::table::policy::shortcuts::{Block, Shortcuts};
use crate::table::{HostEntry, Match, PathEntry};

/// What a path leads to, to be compared with the result of another reading.
#[derive(PartialEq)]
pub(super) struct Destination {
    location: Location,
    /// Whether the location refuses some clients.
    is_guarded: bool,
    /// The snippet blocks of the host and of the location that take it; an error if that could not be determined in
    /// time.
    blocks: [Result<Option<*const Block>, Exhausted>; 2],
    /// Which conditions outside of blocks hold for it, likewise.
    asked: [Result<Box<[bool]>, Exhausted>; 2],
    /// The path itself, if some reader sees a `..` step in it and an auth service is asked about it, whose rules are
    /// unknown.
    told: Option<Box<[u8]>>,
}

#[derive(PartialEq)]
enum Location {
    Path(*const PathEntry),
    /// One that is as good as others: who has `/` and `/login` of one backend evades nothing by `/login;jsessionid=1`.
    Plain(Plainly),
    AddSlash,
    None,
}

impl Destination {
    /// Whether a request that is judged as this one, but read as the other, evades an access rule.
    pub(super) fn evades(&self, read: &Self) -> bool {
        (read.is_guarded && read.location != self.location)
            || read.blocks != self.blocks
            || read.asked != self.asked
    }
}

/// Whether the path of a location has parameters, as in `/a;v=1`, and a normalised one begins as its Ingress spells it, and
/// nothing else in it can be read in two ways. Who declares such a path knows that its backend does not cut them; it may still not
/// be one that leads past an access rule of another.
pub(super) fn is_spelled(found: Match<'_>, path: &[u8]) -> bool {
    let Match::Path(entry) = found else { return false };
    let declared = entry.declared().as_bytes();
    let rest = path.strip_prefix(declared);
    declared.contains(&b';')
        && declared.split(|byte| *byte == b';').all(has_one_reading)
        && rest.is_some_and(has_one_reading)
}

/// `climbs`: some reader sees a `..` step in the raw path.
pub(super) fn destination(
    host: &HostEntry,
    path: &[u8],
    query: Option<&[u8]>,
    climbs: bool,
    steps: &Steps,
) -> Destination {
    let (location, entry) = match host.route(path, steps) {
        Match::Path(entry) => match entry.plainly() {
            Some(plainly) => (Location::Plain(plainly), Some(entry)),
            None => (Location::Path(Arc::as_ptr(entry)), Some(entry)),
        },
        Match::AddSlash(_) => (Location::AddSlash, None),
        Match::None | Match::Unknown => (Location::None, None),
    };
    let is_guarded =
        entry.is_some_and(|entry| entry.is_guarded() || entry.is_denied() || entry.policy.is_internal);
    let declared = entry.map_or("", |entry| entry.declared());
    let block = |shortcuts: Option<&Shortcuts>| match shortcuts {
        Some(shortcuts) => {
            let block = shortcuts.block(path, declared, host.is_in_patterns(), steps)?;
            Ok(block.map(|(block, _)| std::ptr::from_ref(block)))
        }
        None => Ok(None),
    };
    let of_location = entry.and_then(|entry| entry.policy.shortcuts.as_deref());
    let of_host = host.shortcuts().map(|it| &**it);
    let asked = |shortcuts: Option<&Shortcuts>| match shortcuts {
        Some(shortcuts) => shortcuts.asked(path, query, steps),
        None => Ok(Box::default()),
    };
    // Other paths with two spellings are usually legitimate, and the auth service gets the spelling that the backend
    // gets.
    let told = entry.filter(|entry| climbs && entry.external().is_some()).map(|_| path.into());
    Destination {
        location,
        is_guarded,
        blocks: [block(of_host), block(of_location)],
        asked: [asked(of_host), asked(of_location)],
        told,
    }
}
