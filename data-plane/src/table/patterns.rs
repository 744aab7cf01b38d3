//! The paths of a host in regex mode: the first that fits counts, longer ones before shorter (annotations.md 3.1 and 3.4).
//!
//! Patterns that are matched in linear time are searched for together, so a lookup reads the path once however many there
//! are; those that need backtracking are asked one by one where they stand before the best so far.

use regex::bytes::{RegexSet, RegexSetBuilder};
use shared::pattern::{Exhausted, Groups, Pattern, PatternError};

/// Largest set of patterns that is searched for at once, compiled, in bytes. Above it they are asked one by one.
const SIZE: usize = 4 << 20;

/// A path as it was declared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeclaredPattern<'a> {
    /// Its text.
    pub path: &'a str,
    /// Whether it stands in front of what lies below it only: a Prefix path of an Ingress that neither rewrites nor says
    /// `use-regex`, on a host where an Exact path of the same text stands for the path itself.
    pub only_below: bool,
}

/// Declared paths, ready to be asked. Immutable.
#[derive(Debug, Default)]
pub struct Patterns {
    /// In the order in which they are asked.
    locations: Box<[Location]>,
    /// All linear ones, where they fit into one set; with the place of each in `locations`.
    together: Option<(RegexSet, Box<[usize]>)>,
}

#[derive(Debug)]
struct Location {
    pattern: Pattern,
    /// Place of the declared path.
    declared: usize,
}

/// The path that fits, by its place among the declared ones, and the groups of its pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Place among the declared paths.
    pub declared: usize,
    /// What its groups took.
    pub groups: Groups,
}

impl Patterns {
    /// Of the paths of a host, in the order of their Ingresses.
    ///
    /// # Errors
    /// The place of the first path that is no pattern, and why.
    pub fn new(declared: &[DeclaredPattern<'_>]) -> Result<Self, (usize, PatternError)> {
        let mut order: Vec<usize> = (0..declared.len()).collect();
        // nginx' own order is not used in regex mode: the text descending, then stably its length descending.
        order.sort_by(|a, b| {
            let (a, b) = (declared[*a].path, declared[*b].path);
            b.len().cmp(&a.len()).then_with(|| b.cmp(a))
        });
        let compile = |place: usize| {
            let DeclaredPattern { path, only_below } = declared[place];
            let slash = if only_below && !path.ends_with('/') { "/" } else { "" };
            let pattern = Pattern::path(&format!("{path}{slash}")).map_err(|error| (place, error))?;
            Ok(Location { pattern, declared: place })
        };
        let locations: Box<[Location]> = order.into_iter().map(compile).collect::<Result<_, _>>()?;
        let together = together(&locations);
        Ok(Self { locations, together })
    }

    /// What fits a path: decoded, with slashes merged and dot segments resolved.
    ///
    /// # Errors
    /// [`Exhausted`]: a pattern that stands before all that fit could not be asked to its end.
    pub fn find(&self, path: &[u8]) -> Result<Option<Found>, Exhausted> {
        let Some((set, places)) = &self.together else { return first(&self.locations, path) };
        let best = set.matches(path).iter().next().map(|linear| places[linear]);
        let before = &self.locations[..best.unwrap_or(self.locations.len())];
        for location in before.iter().filter(|location| location.pattern.linear().is_none()) {
            if let Some(groups) = location.pattern.groups(path)? {
                return Ok(Some(Found { declared: location.declared, groups }));
            }
        }
        match best {
            Some(best) => first(&self.locations[best..=best], path),
            None => Ok(None),
        }
    }
}

fn first(locations: &[Location], path: &[u8]) -> Result<Option<Found>, Exhausted> {
    for Location { pattern, declared } in locations {
        if let Some(groups) = pattern.groups(path)? {
            return Ok(Some(Found { declared: *declared, groups }));
        }
    }
    Ok(None)
}

fn together(locations: &[Location]) -> Option<(RegexSet, Box<[usize]>)> {
    let linear =
        || locations.iter().enumerate().filter_map(|(place, it)| Some((place, it.pattern.linear()?)));
    let set = RegexSetBuilder::new(linear().map(|(_, text)| text))
        .unicode(false)
        .case_insensitive(true)
        .size_limit(SIZE)
        .build()
        .ok()?;
    Some((set, linear().map(|(place, _)| place).collect()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn patterns(paths: &[&str]) -> Patterns {
        let declared: Vec<_> = paths.iter().map(|path| DeclaredPattern { path, only_below: false }).collect();
        Patterns::new(&declared).unwrap()
    }

    fn find<'p>(paths: &[&'p str], path: &str) -> Option<&'p str> {
        patterns(paths).find(path.as_bytes()).unwrap().map(|found| paths[found.declared])
    }

    #[test]
    fn the_longest_text_that_fits_counts() {
        let paths = ["/", "/foo/.*", "/foo/bar/.+", "/foo/bar/bar"];
        assert_eq!(find(&paths, "/foo/bar/bar"), Some("/foo/bar/bar"));
        assert_eq!(find(&paths, "/FOO/BAR/x"), Some("/foo/bar/.+"));
        assert_eq!(find(&paths, "/foo/x"), Some("/foo/.*"));
        assert_eq!(find(&paths, "/x"), Some("/"));
        assert_eq!(find(&["/foo"], "/x"), None);
    }

    #[test]
    fn of_equal_length_the_greater_text_counts() {
        assert_eq!(find(&["/a.*", "/b.*", "/..*"], "/b"), Some("/b.*"));
        assert_eq!(find(&["/[ab]", "/b.c."], "/bxc"), Some("/[ab]"));
    }

    #[test]
    fn backtracking_patterns_keep_their_place() {
        let paths = ["/(?!admin)[a-z]+", "/", "/admin/users/list"];
        assert_eq!(find(&paths, "/admin/users/list"), Some("/admin/users/list"));
        assert_eq!(find(&paths, "/public"), Some("/(?!admin)[a-z]+"));
        assert_eq!(find(&paths, "/admin"), Some("/"));
    }

    #[test]
    fn a_prefix_beside_its_exact_twin_stands_for_what_lies_below() {
        let declared = [
            DeclaredPattern { path: "/foo", only_below: true },
            DeclaredPattern { path: "/foo", only_below: false },
        ];
        let patterns = Patterns::new(&declared).unwrap();
        let place = |path: &str| patterns.find(path.as_bytes()).unwrap().map(|found| found.declared);
        assert_eq!((place("/foo/x"), place("/foobar"), place("/foo")), (Some(0), Some(1), Some(1)));
    }

    #[test]
    fn a_path_that_is_no_pattern_is_named() {
        let declared = [
            DeclaredPattern { path: "/fine", only_below: false },
            DeclaredPattern { path: "/a(", only_below: false },
        ];
        assert_eq!(Patterns::new(&declared).unwrap_err().0, 1);
    }

    proptest! {
        /// Asked together, patterns give what they give one by one.
        #[test]
        fn together_as_one_by_one(
            paths in prop::collection::vec("/([ab.]{0,3}|[ab]\\+|\\(\\?!a\\)[ab]\\*)", 1..8), path in "/[abAB]{0,4}",
        ) {
            let texts: Vec<&str> = paths.iter().map(String::as_str).collect();
            let patterns = patterns(&texts);
            prop_assert!(patterns.together.is_some());
            prop_assert_eq!(patterns.find(path.as_bytes()), first(&patterns.locations, path.as_bytes()));
        }
    }
}
