//! The paths of a host in regex mode: the first that fits counts, longer ones before shorter (annotations.md 3.1 and 3.4).
//!
//! Patterns that are matched in linear time are searched for together, so a lookup reads the path once however many there
//! are; those that need backtracking are asked one by one where they stand before the best so far.

use std::collections::HashSet;
use std::sync::Arc;

use regex::bytes::{RegexSet, RegexSetBuilder};
use shared::pattern::{Exhausted, Pattern};
use shared::resource::PathType;

use super::host::PathEntry;
use super::paths::Declared;

/// Largest set of patterns that is searched for at once, compiled, in bytes. Above it they are asked one by one.
const SIZE: usize = 4 << 20;

/// A path as it is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Asked<'a> {
    /// Its text.
    path: &'a str,
    /// Whether it stands in front of what lies below it only: a Prefix path of an Ingress that neither rewrites nor says
    /// `use-regex`, on a host where an Exact path of the same text stands for the path itself.
    only_below: bool,
}

/// Declared paths, ready to be asked. Immutable.
#[derive(Debug, Default)]
pub struct Patterns {
    declared: Box<[Declared]>,
    order: Order,
}

impl Patterns {
    /// Of the paths of a host, by Route and as they stand there.
    pub fn new(declared: Box<[Declared]>) -> Self {
        let is_exact = |it: &&Declared| it.kind == PathType::Exact;
        let exact: HashSet<&str> = declared.iter().filter(is_exact).map(|it| &*it.entry.declared).collect();
        let ask = |it: &'_ Declared| {
            let is_split =
                it.kind == PathType::Prefix && !it.entry.policy.rewrite.is_pattern(&it.entry.declared);
            is_split && exact.contains(&*it.entry.declared)
        };
        let asked: Vec<_> =
            declared.iter().map(|it| Asked { path: &it.entry.declared, only_below: ask(it) }).collect();
        let order = Order::new(&asked);
        Self { declared, order }
    }

    /// What a path matches: decoded, with slashes merged and dot segments resolved.
    ///
    /// # Errors
    /// [`Exhausted`]: a pattern that stands before all that fit could not be asked to its end.
    pub fn find(&self, path: &[u8]) -> Result<Option<&Arc<PathEntry>>, Exhausted> {
        Ok(self.order.find(path)?.map(|place| &self.declared[place].entry))
    }

    /// All paths.
    pub fn declared(&self) -> &[Declared] {
        &self.declared
    }
}

/// Patterns in the order in which they are asked.
#[derive(Debug, Default)]
struct Order {
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

impl Order {
    /// Of the paths of a host. One that is no pattern, which its owner did not write as one, stands for itself.
    fn new(declared: &[Asked<'_>]) -> Self {
        let mut order: Vec<usize> = (0..declared.len()).collect();
        // nginx' own order is not used in regex mode: the text descending, then stably its length descending.
        order.sort_by(|a, b| {
            let (a, b) = (&declared[*a], &declared[*b]);
            let texts = b.path.len().cmp(&a.path.len()).then_with(|| b.path.cmp(a.path));
            texts.then_with(|| b.only_below.cmp(&a.only_below))
        });
        let compile = |place: usize| {
            let Asked { path, only_below } = declared[place];
            let slash = if only_below && !path.ends_with('/') { "/" } else { "" };
            let pattern = Pattern::path(&format!("{path}{slash}"))
                .or_else(|_| Pattern::path(&format!("{}{slash}", regex::escape(path))));
            // Only a path of some thousand octets is neither: nobody gets to what it would lead to.
            Some(Location { pattern: pattern.ok()?, declared: place })
        };
        let locations: Box<[Location]> = order.into_iter().filter_map(compile).collect();
        let together = together(&locations);
        Self { locations, together }
    }

    /// The place among the declared paths of the one that fits a path.
    fn find(&self, path: &[u8]) -> Result<Option<usize>, Exhausted> {
        let Some((set, places)) = &self.together else { return first(&self.locations, path) };
        let best = set.matches(path).iter().next().map(|linear| places[linear]);
        let before = &self.locations[..best.unwrap_or(self.locations.len())];
        for location in before.iter().filter(|location| location.pattern.linear().is_none()) {
            if location.pattern.is_match(path)? {
                return Ok(Some(location.declared));
            }
        }
        Ok(best.map(|best| self.locations[best].declared))
    }
}

fn first(locations: &[Location], path: &[u8]) -> Result<Option<usize>, Exhausted> {
    for Location { pattern, declared } in locations {
        if pattern.is_match(path)? {
            return Ok(Some(*declared));
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

    fn patterns(paths: &[&str]) -> Order {
        let declared: Vec<_> = paths.iter().map(|path| Asked { path, only_below: false }).collect();
        Order::new(&declared)
    }

    fn find<'p>(paths: &[&'p str], path: &str) -> Option<&'p str> {
        patterns(paths).find(path.as_bytes()).unwrap().map(|found| paths[found])
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
        let declared = [Asked { path: "/foo", only_below: true }, Asked { path: "/foo", only_below: false }];
        let patterns = Order::new(&declared);
        let place = |path: &str| patterns.find(path.as_bytes()).unwrap();
        assert_eq!((place("/foo/x"), place("/foobar"), place("/foo")), (Some(0), Some(1), Some(1)));
    }

    #[test]
    fn a_path_that_is_no_pattern_stands_for_itself() {
        assert_eq!(find(&["/", "/a(b"], "/A(B/c"), Some("/a(b"));
        assert_eq!(find(&["/", "/a(b"], "/a"), Some("/"));
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
