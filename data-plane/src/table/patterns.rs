//! The paths of a host in regex mode: the first match wins, longer ones before shorter (as in ingress-nginx).
//!
//! Most paths of such a host are plain texts: these are looked up, and take no more memory than on any other host.
//! Patterns that match in linear time are searched for together, so a lookup reads the path once however many there
//! are; those that need backtracking are tried one by one if they precede the best match so far.
//!
//! **Invariant:** the total size of a host's patterns is bounded, whoever wrote them. One beyond the bound is not
//! compiled: whether a path matches it is unknown then, so no path reaches what follows it. A pattern that is also
//! used for rewriting is compiled once, with its Route, and counts here all the same.

mod literals;

use std::collections::HashSet;
use std::sync::Arc;

use shared::pattern::{Allowance, Exhausted, Pattern, PatternError, Set, Steps, is_literal};
use shared::resource::PathType;

use super::host::PathEntry;
use super::paths::Declared;
use literals::Literals;

/// Memory in bytes that the patterns of a host may take while they are compiled: some six thousand common ones. Those
/// that are searched for in sets are freed afterwards, except the ones that their Routes use for rewriting. The
/// control plane limits a single Ingress to far less.
const ALL: usize = 64 << 20;

/// Largest compiled size in bytes of a set of patterns that is searched for at once. More patterns form several sets.
const SIZE: usize = 1 << 20;

/// A path as it is matched.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    /// Its text.
    path: &'a str,
    /// Whether it matches only what is below it: a Prefix path of an Ingress that neither rewrites nor has
    /// `use-regex`, on a host where an Exact path of the same text matches the path itself.
    only_below: bool,
    /// Its position among paths of the same text.
    turn: Turn,
    /// The compiled pattern, if its Route has compiled it.
    pattern: Option<&'a Pattern>,
}

/// The order of an Exact path and a prefix of the same text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Turn {
    Prefix,
    Exact,
    /// The Exact path is older and leaves nothing for this prefix, because both match the same.
    Never,
}

impl Turn {
    fn of(it: &Declared, exact: &HashSet<&str>) -> Self {
        match it.kind {
            PathType::Exact => Self::Exact,
            PathType::Prefix if it.entry.after_exact && exact.contains(it.entry.declared()) => Self::Never,
            PathType::Prefix => Self::Prefix,
        }
    }
}

/// Declared paths, ready for matching. Immutable.
#[derive(Debug, Default)]
pub struct Patterns {
    declared: Box<[Declared]>,
    order: Order,
}

impl Patterns {
    /// Compiles the paths of a host, ordered by Route.
    pub fn new(declared: Box<[Declared]>) -> Self {
        let is_exact = |it: &&Declared| it.kind == PathType::Exact;
        let exact: HashSet<&str> = declared.iter().filter(is_exact).map(|it| it.entry.declared()).collect();
        let asked = declared.iter().map(|it| {
            let path = it.entry.declared();
            let is_one = it.entry.policy.rewrite.is_one_location(path, it.kind);
            Asked {
                path,
                only_below: !is_one && exact.contains(path),
                turn: Turn::of(it, &exact),
                // As a prefix it matches only below the path, which is a different pattern.
                pattern: it.entry.pattern().filter(|_| is_one || it.entry.rewritten().is_none()),
            }
        });
        let asked: Vec<_> = asked.collect();
        let order = Order::new(&asked, ALL);
        Self { declared, order }
    }

    /// The match of a path: decoded, with slashes merged and dot segments resolved.
    ///
    /// # Errors
    /// [`Exhausted`]: a pattern that precedes all matches could not be evaluated within `steps`.
    pub fn find(&self, path: &[u8], steps: &Steps) -> Result<Option<&Arc<PathEntry>>, Exhausted> {
        Ok(self.order.find(path, steps)?.map(|place| &self.declared[place].entry))
    }

    /// The paths whose patterns are beyond the bound, the first that are tried first.
    pub fn uncompiled(&self) -> impl Iterator<Item = &Declared> {
        let unknown = self.order.alone.iter().filter(|(_, it)| matches!(it, Alone::Unknown));
        unknown.map(|(place, _)| &self.declared[self.order.declared[*place]])
    }

    /// All paths.
    pub fn declared(&self) -> &[Declared] {
        &self.declared
    }
}

/// Paths in the order in which they are tried.
#[derive(Debug, Default)]
struct Order {
    /// The index of each path among the declared ones, in the order in which they are tried.
    declared: Box<[usize]>,
    /// Paths without regular expression syntax.
    literals: Literals,
    /// All linear-time patterns, in sets of limited size; with the position of each in the order.
    together: Vec<(Set, Box<[usize]>)>,
    /// The others, in order, with their positions.
    alone: Box<[(usize, Alone)]>,
}

/// A path that is tried separately.
#[derive(Debug)]
enum Alone {
    Pattern(Pattern),
    /// Not compiled: whether a path matches it is unknown.
    Unknown,
}

impl Order {
    /// Compiles the paths of a host. A path that is not a valid pattern, and was not written as one, is matched
    /// literally.
    fn new(declared: &[Asked<'_>], all: usize) -> Self {
        let is_asked = |place: &usize| declared[*place].turn != Turn::Never;
        let mut order: Vec<usize> = (0..declared.len()).filter(is_asked).collect();
        // nginx' own order is not used in regex mode: sorted by text descending, then stably by length descending.
        order.sort_by(|a, b| {
            let (a, b) = (&declared[*a], &declared[*b]);
            let texts = b.path.len().cmp(&a.path.len()).then_with(|| b.path.cmp(a.path));
            texts.then_with(|| a.turn.cmp(&b.turn))
        });
        let mut all = Allowance::new(all);
        let (mut literals, mut alone) = (Vec::new(), Vec::new());
        for (place, asked) in order.iter().map(|place| declared[*place]).enumerate() {
            match asked.compile(&mut all) {
                Compiled::Literal(text) => literals.push((text, place)),
                Compiled::Alone(pattern) => alone.push((place, pattern)),
            }
        }
        let (linear, mut alone): (Vec<_>, Vec<_>) = alone.into_iter().partition(|(_, it)| is_linear(it));
        let mut sets = Vec::new();
        together(linear, &mut sets, &mut alone);
        alone.sort_unstable_by_key(|(place, _)| *place);
        Self {
            declared: order.into(),
            literals: Literals::new(literals),
            together: sets,
            alone: alone.into(),
        }
    }

    /// The index of the declared path that matches.
    fn find(&self, path: &[u8], steps: &Steps) -> Result<Option<usize>, Exhausted> {
        let literal = self.literals.find(path);
        let mut best = literal;
        for (set, places) in &self.together {
            // Sets after the best match so far are skipped.
            if best.is_none_or(|best| places.first().is_some_and(|first| *first < best)) {
                let found = set.first(path, steps)?.map(|linear| places[linear]);
                best = best.into_iter().chain(found).min();
            }
        }
        for (place, it) in self.alone.iter().take_while(|(place, _)| best.is_none_or(|best| *place < best)) {
            let Alone::Pattern(pattern) = it else { return Err(Exhausted) };
            if pattern.is_match(path, steps)? {
                return Ok(Some(self.declared[*place]));
            }
        }
        Ok(best.map(|best| self.declared[best]))
    }
}

enum Compiled {
    Literal(Box<str>),
    Alone(Alone),
}

impl Asked<'_> {
    fn compile(self, all: &mut Allowance) -> Compiled {
        let slash = if self.only_below && !self.path.ends_with('/') { "/" } else { "" };
        let text = format!("{}{slash}", self.path);
        if is_literal(&text) {
            return Compiled::Literal(text.into());
        }
        let compiled = self.pattern.filter(|_| !self.only_below);
        match all.compile(|| compiled.cloned().map_or_else(|| Pattern::path(&text), Ok)) {
            Ok(pattern) => Compiled::Alone(Alone::Pattern(pattern)),
            Err(PatternError::TooMuch { .. }) => Compiled::Alone(Alone::Unknown),
            Err(_) => Compiled::Literal(text.into()),
        }
    }
}

fn is_linear(it: &Alone) -> bool {
    matches!(it, Alone::Pattern(pattern) if pattern.linear().is_some())
}

/// Puts patterns into as few sets as their size allows, in order. A pattern that fits in no set is tried separately.
fn together(
    mut linear: Vec<(usize, Alone)>,
    sets: &mut Vec<(Set, Box<[usize]>)>,
    alone: &mut Vec<(usize, Alone)>,
) {
    if linear.is_empty() {
        return;
    }
    let patterns = linear.iter().filter_map(|(_, it)| match it {
        Alone::Pattern(pattern) => Some(pattern),
        Alone::Unknown => None,
    });
    if let Some(set) = Set::new(patterns, SIZE) {
        sets.push((set, linear.iter().map(|(place, _)| *place).collect()));
    } else if linear.len() == 1 {
        alone.append(&mut linear);
    } else {
        let second = linear.split_off(linear.len() / 2);
        together(linear, sets, alone);
        together(second, sets, alone);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked(path: &str, only_below: bool) -> Asked<'_> {
        asked_as(path, only_below, Turn::Prefix)
    }

    fn asked_as(path: &str, only_below: bool, turn: Turn) -> Asked<'_> {
        Asked { path, only_below, turn, pattern: None }
    }

    fn patterns(paths: &[&str]) -> Order {
        let declared: Vec<_> = paths.iter().map(|path| asked(path, false)).collect();
        Order::new(&declared, ALL)
    }

    fn find<'p>(paths: &[&'p str], path: &str) -> Option<&'p str> {
        patterns(paths).find(path.as_bytes(), &Steps::new()).unwrap().map(|found| paths[found])
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
    fn greater_of_equally_long_patterns_wins() {
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

    /// Of two paths of one text, the one that is tried first takes what both match; a plain prefix matches only what
    /// is below it.
    #[test]
    fn an_exact_path_and_its_twin_are_asked_in_turn() {
        for text in ["/foo", "/fo[o]"] {
            for (only_below, turn, expected) in [
                (true, Turn::Prefix, [Some(0), Some(1), Some(1)]),
                (false, Turn::Prefix, [Some(0); 3]),
                (true, Turn::Never, [Some(1); 3]),
                (false, Turn::Never, [Some(1); 3]),
            ] {
                let both = [asked_as(text, only_below, turn), asked_as(text, false, Turn::Exact)];
                let found = |path: &str| Order::new(&both, ALL).find(path.as_bytes(), &Steps::new()).unwrap();
                assert_eq!(
                    ["/foo/x", "/foobar", "/foo"].map(found),
                    expected,
                    "{text} {only_below} {turn:?}"
                );
            }
        }
    }

    /// A slash makes the later of two paths the longer text.
    #[test]
    fn a_path_that_matches_only_below_keeps_its_place() {
        let paths = [asked("/a", false), asked("/A", true), asked_as("/A", false, Turn::Exact)];
        let order = Order::new(&paths, ALL);
        for path in ["/a/x", "/A/x", "/a"] {
            assert_eq!(order.find(path.as_bytes(), &Steps::new()), Ok(Some(0)), "{path}");
        }
    }

    #[test]
    fn a_path_that_is_no_pattern_stands_for_itself() {
        assert_eq!(find(&["/", "/a(b"], "/A(B/c"), Some("/a(b"));
        assert_eq!(find(&["/", "/a(b"], "/a"), Some("/"));
    }

    /// A path after a pattern that was not compiled may be less restricted than the one the pattern leads to.
    #[test]
    fn path_behind_an_uncompiled_pattern_is_refused() {
        let paths = ["/", "/admin/[a-z]+", "/public/assets/icons", "/[ab]{1,4}"];
        let declared: Vec<_> = paths.iter().map(|path| asked(path, false)).collect();
        let order = Order::new(&declared, 1);
        assert_eq!(
            order.find(b"/public/assets/icons/x", &Steps::new()),
            Ok(Some(2)),
            "longer than all that is not known"
        );
        for path in [&b"/admin/x"[..], b"/"] {
            assert_eq!(order.find(path, &Steps::new()), Err(Exhausted));
        }
    }

    #[test]
    fn texts_and_what_fits_into_a_set_keep_no_pattern_of_their_own() {
        let texts: Vec<_> =
            (0..2000).map(|i| format!("/shop/{i}")).chain(["/api/v[0-9]+/(.*)".into()]).collect();
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let order = patterns(&texts);
        let sets: Vec<_> = order.together.iter().map(|(set, _)| set.len()).collect();
        assert_eq!((order.alone.len(), sets), (0, vec![1]));
    }

    /// A pattern that a Route has compiled for rewriting is reused, and counted like the others.
    #[test]
    fn rewrite_pattern_is_compiled_once_and_charged() {
        let (linear, looking) = (Pattern::path("/x[0-9]").unwrap(), Pattern::path("/y(?!z)").unwrap());
        let of = |path, pattern| Asked { pattern: Some(pattern), ..asked(path, false) };
        let declared = [of("/a[0-9]", &linear), of("/b(?!c)", &looking), asked("/", false)];
        let find = |all, path: &[u8]| Order::new(&declared, all).find(path, &Steps::new());
        // These differ from the declared paths, to show which pattern is used. Sets, too, are built from the compiled
        // ones.
        assert_eq!((find(ALL, b"/x1"), find(ALL, b"/a1")), (Ok(Some(0)), Ok(Some(2))));
        assert_eq!((find(ALL, b"/y"), find(ALL, b"/b")), (Ok(Some(1)), Ok(Some(2))));
        assert_eq!(find(linear.bytes(), b"/"), Err(Exhausted), "there is no room for the second");
        assert_eq!(find(linear.bytes() + looking.bytes(), b"/"), Ok(Some(2)));
    }

    /// Only the slower engine supports Unicode word boundaries: such a path is tried separately.
    #[test]
    fn one_that_no_set_takes_is_asked_alone() {
        let paths = ["/", r"/(?u:\b)x", r"/(?u)\bfoo[0-9]", "/api/[0-9]+"];
        assert_eq!(find(&paths, "/foo7"), Some(r"/(?u)\bfoo[0-9]"));
        assert_eq!(find(&paths, "/x"), Some(r"/(?u:\b)x"));
        assert_eq!(find(&paths, "/api/1"), Some("/api/[0-9]+"));
        assert_eq!(find(&paths, "/none"), Some("/"));
    }

    /// In `^/a|/b` the second alternative matches anywhere, as in nginx' configuration.
    #[test]
    fn an_alternative_is_found_where_it_stands() {
        assert_eq!(find(&["/", "/api|/admin"], "/x/admin"), Some("/api|/admin"));
    }

    const TURNS: [Turn; 3] = [Turn::Prefix, Turn::Exact, Turn::Never];

    /// The slow and simple implementation.
    fn one_by_one(declared: &[Asked<'_>], path: &[u8]) -> Option<usize> {
        let mut order: Vec<usize> = (0..declared.len()).collect();
        order.retain(|place| declared[*place].turn != Turn::Never);
        order.sort_by_key(|place| {
            let it = declared[*place];
            (std::cmp::Reverse((it.path.len(), it.path)), it.turn)
        });
        order.into_iter().find(|place| {
            let Asked { path: text, only_below, .. } = declared[*place];
            let slash = if only_below && !text.ends_with('/') { "/" } else { "" };
            let pattern = Pattern::path(&format!("{text}{slash}"));
            let pattern = pattern.or_else(|_| Pattern::path(&format!("{}{slash}", regex::escape(text))));
            pattern.unwrap().is_match(path, &Steps::new()).unwrap()
        })
    }

    proptest! {
        /// Looking paths up and matching them together gives the same result as one by one.
        #[test]
        fn all_at_once_as_one_by_one(
            paths in prop::collection::vec(
                ("/([abA.]{0,3}|[ab]/[ab]|a\\|/b|[ab]\\+|a\\(|\\(\\?!a\\)[ab]\\*)", any::<bool>(), 0..3_usize), 1..8
            ),
            path in "/[abAB/(]{0,4}",
        ) {
            let declared: Vec<_> =
                paths.iter().map(|(path, below, turn)| asked_as(path, *below, TURNS[*turn])).collect();
            let found = Order::new(&declared, ALL).find(path.as_bytes(), &Steps::new()).unwrap();
            let expected = one_by_one(&declared, path.as_bytes());
            let configured = |it: usize| (declared[it].path, declared[it].only_below, declared[it].turn);
            prop_assert_eq!(found.map(configured), expected.map(configured));
        }
    }
}
