//! What snippets of the fleet and of an Ingress say on the levels of nginx' configuration: of directives that a level
//! inherits only where it has none, those of one level count together, and those of an inner level hide others.

use std::cmp::Ordering;

use shared::policy::{CookieFlagsList, LimitList, SnippetLevel};

/// Directives of one level.
pub trait Level: Clone {
    /// Theirs.
    fn level(&self) -> SnippetLevel;
    /// Appends others.
    fn append(&mut self, others: &Self);
}

impl Level for LimitList {
    fn level(&self) -> SnippetLevel {
        Self::level(self)
    }

    fn append(&mut self, others: &Self) {
        self.limits.extend(others.limits.iter().cloned());
    }
}

impl Level for CookieFlagsList {
    fn level(&self) -> SnippetLevel {
        Self::level(self)
    }

    fn append(&mut self, others: &Self) {
        self.rules.extend(others.rules.iter().cloned());
    }
}

/// Those of the fleet and those of an Ingress, in the order of nginx' configuration. `is_taken`: the location has others
/// of its own.
pub fn merged<T: Level>(fleets: Option<&T>, own: Option<&T>, is_taken: bool) -> Option<T> {
    // The outermost is the least.
    let level = |it: &T| match it.level() {
        SnippetLevel::Unspecified => SnippetLevel::Locations,
        said => said,
    };
    let fleets = fleets.filter(|it| level(it) == SnippetLevel::Locations || !is_taken);
    let (Some(outer), Some(inner)) = (fleets, own) else {
        return fleets.or(own).cloned();
    };
    let mut inner = inner.clone();
    match level(outer).cmp(&level(&inner)) {
        Ordering::Less => {}
        Ordering::Equal => inner.append(outer),
        Ordering::Greater => return Some(outer.clone()),
    }
    Some(inner)
}

#[cfg(test)]
mod tests {
    use shared::policy::ZoneLimit;

    use super::*;

    fn list(level: SnippetLevel, zone: &str) -> LimitList {
        let limits = vec![ZoneLimit { zone: zone.into(), ..ZoneLimit::default() }];
        LimitList { limits, level: Some(level.into()) }
    }

    #[test]
    fn an_inner_level_hides_an_outer_one() {
        use SnippetLevel::{All, Hosts, Locations};
        let (all, hosts, locations) = (list(All, "a"), list(Hosts, "h"), list(Locations, "l"));
        for (fleets, own, is_taken, expected) in [
            (None, None, false, ""),
            (Some(&all), None, false, "a"),
            (Some(&all), None, true, ""),
            (Some(&all), Some(&hosts), false, "h"),
            (Some(&hosts), Some(&hosts), false, "hh"),
            (Some(&locations), Some(&hosts), false, "l"),
            (Some(&hosts), Some(&locations), false, "l"),
            (Some(&locations), Some(&locations), false, "ll"),
            (Some(&locations), None, true, "l"),
            (None, Some(&locations), true, "l"),
        ] {
            let merged = merged(fleets, own, is_taken);
            let zones: String = merged.iter().flat_map(|it| &it.limits).map(|it| it.zone.as_str()).collect();
            assert_eq!(zones, expected, "{fleets:?} {own:?} {is_taken}");
        }
    }
}
