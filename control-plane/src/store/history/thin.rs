//! Which version the history forgets when it is full.
//!
//! Not the oldest: one object that is edited every few seconds, by a controller or on purpose, would leave nobody a version of
//! yesterday. The newest half stays; of the older half that version goes whose neighbours are the closest in time. What
//! is left is spread over the whole time, and a version that was in force for long stays.
//!
//! **Invariant:** pure; the oldest version goes only where it is the only one that may.

use std::time::Duration;

use super::PastVersion;

/// The place of the version to forget, of versions from the oldest to the newest; `kept` is not forgotten. `None`: there is
/// none.
pub(super) fn least_missed<'a>(
    versions: impl ExactSizeIterator<Item = &'a PastVersion>,
    kept: Option<usize>,
) -> Option<usize> {
    let older = (versions.len() / 2).max(1);
    let mut least: Option<(Duration, usize)> = None;
    // Those that were offered and those that were not, which are no neighbours: a version that is pinned while others
    // are held back is the one in force.
    let mut waiting: [Option<(usize, Option<&PastVersion>)>; 2] = [None, None];
    let mut before: [Option<&PastVersion>; 2] = [None, None];
    for (place, version) in versions.enumerate() {
        let row = usize::from(version.released);
        if let Some((place, before)) = waiting[row].take() {
            let gap = before.map_or(Duration::MAX, |before| before.age(version));
            if least.is_none_or(|(smallest, _)| gap < smallest) {
                least = Some((gap, place));
            }
        }
        match place < older {
            true if kept == Some(place) => {}
            true => waiting[row] = Some((place, before[row])),
            false if waiting.iter().all(Option::is_none) => break,
            false => {}
        }
        before[row] = Some(version);
    }
    // Nothing of its kind came after it: it is the newest of those, and goes last.
    let last = waiting.into_iter().flatten().map(|(place, _)| place).min();
    least.map(|(_, place)| place).or(last)
}
