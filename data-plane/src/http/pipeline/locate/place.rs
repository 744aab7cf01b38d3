//! What a path leads to, as one reader of it has it: where two readers are led to two places, nobody is told which is right.

use std::sync::Arc;

use shared::pattern::{Exhausted, Steps};

use crate::table::policy::shortcuts::{Block, Shortcuts};
use crate::table::{HostEntry, Match, PathEntry};

/// What a path leads to, to be compared with what another reading of it does.
#[derive(PartialEq)]
pub(super) struct Place {
    location: Location,
    /// The blocks that take it, of the host and of the location; an error where that takes too long to tell.
    blocks: [Result<Option<*const Block>, Exhausted>; 2],
    /// What those beside them ask of it.
    asked: [Result<Box<[bool]>, Exhausted>; 2],
    /// The path itself, where somebody is asked for it whose rules nobody knows.
    told: Option<Box<[u8]>>,
}

#[derive(PartialEq)]
enum Location {
    Path(*const PathEntry),
    AddSlash,
    None,
}

/// `climbs`: somebody reads a step up into the path as it came.
pub(super) fn place(
    host: &HostEntry,
    path: &[u8],
    query: Option<&[u8]>,
    climbs: bool,
    steps: &Steps,
) -> Place {
    let (location, entry) = match host.route(path, steps) {
        Match::Path(entry) => (Location::Path(Arc::as_ptr(entry)), Some(entry)),
        Match::AddSlash(_) => (Location::AddSlash, None),
        Match::None | Match::Unknown => (Location::None, None),
    };
    let declared = entry.map_or("", |entry| &entry.declared);
    let block = |shortcuts: Option<&Shortcuts>| match shortcuts {
        Some(shortcuts) => {
            Ok(shortcuts.block(path, declared, steps)?.map(|(block, _)| std::ptr::from_ref(block)))
        }
        None => Ok(None),
    };
    let of_location = entry.and_then(|entry| entry.policy.shortcuts.as_deref());
    let of_host = host.shortcuts().map(|it| &**it);
    let asked = |shortcuts: Option<&Shortcuts>| match shortcuts {
        Some(shortcuts) => shortcuts.asked(path, query, steps),
        None => Ok(Box::default()),
    };
    // What else has two spellings is often meant, and its reader asks by the one that the backend gets, too.
    let told = entry.filter(|entry| climbs && entry.external().is_some()).map(|_| path.into());
    Place {
        location,
        blocks: [block(of_host), block(of_location)],
        asked: [asked(of_host), asked(of_location)],
        told,
    }
}
