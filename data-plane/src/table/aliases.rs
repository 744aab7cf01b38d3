//! Aliases of hosts (`server-alias`), matched in nginx' order (as in ingress-nginx).
//!
//! A persistent data structure: a clone costs a few reference counts, and a change costs only the host's own aliases.
//! An alias refers to its host by name, so recompiling the host does not touch its aliases.
//!
//! **Invariant:** if several hosts claim one alias, the smallest name gets it, whichever came first.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use imbl::{HashMap, OrdMap, OrdSet};
use shared::pattern::{HostPattern, Steps};

/// The longest host name (RFC 1035 section 2.3.4). Longer ones match no alias: a search takes a lookup per label.
const LONGEST: usize = 253;

/// Limit of the compiled patterns that are remembered: twice what an Ingress may have.
const LATEST: usize = 64;

thread_local! {
    /// The patterns that were compiled last: hosts of one Ingress have the same ones, and share their memory.
    static COMPILED: RefCell<VecDeque<(Arc<str>, HostPattern)>> = const { RefCell::new(VecDeque::new()) };
}

/// The aliases of one host.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Names, `*.x` and `x.*`.
    plain: BTreeSet<Arc<str>>,
    /// Patterns by their text, which begins with `~`.
    patterns: BTreeMap<Arc<str>, HostPattern>,
}

impl Names {
    /// Compiles a host's aliases.
    ///
    /// # Errors
    /// A pattern that cannot be compiled.
    pub fn compile(configured: &[String]) -> Result<Self, String> {
        let mut names = Self::default();
        for alias in configured {
            if alias.starts_with('~') {
                let (text, pattern) = compiled(alias)?;
                names.patterns.insert(text, pattern);
            } else {
                names.plain.insert(alias.as_str().into());
            }
        }
        Ok(names)
    }
}

/// A pattern, with its text.
fn compiled(alias: &str) -> Result<(Arc<str>, HostPattern), String> {
    COMPILED.with_borrow_mut(|latest| {
        if let Some(known) = latest.iter().find(|(text, _)| **text == *alias) {
            return Ok(known.clone());
        }
        let pattern = HostPattern::new(&alias[1..]).map_err(|error| format!("{alias:?}: {error}"))?;
        latest.truncate(LATEST - 1);
        latest.push_front((alias.into(), pattern));
        Ok(latest[0].clone())
    })
}

impl Names {
    /// The configured texts: names first, then patterns.
    pub fn configured(&self) -> impl Iterator<Item = &str> {
        self.plain.iter().chain(self.patterns.keys()).map(|name| &**name)
    }

    /// Whether one of them is exactly this text.
    pub fn has(&self, text: &str) -> bool {
        self.plain.contains(text)
    }
}

/// The aliases of all hosts.
#[derive(Clone, Debug, Default)]
pub struct Aliases {
    /// The hosts that claim `a.test`.
    exact: HashMap<Arc<str>, Claims>,
    /// The hosts that claim `*.x`, by `x`.
    below: HashMap<Arc<str>, Claims>,
    /// The hosts that claim `x.*`, by `x`.
    above: HashMap<Arc<str>, Claims>,
    /// Patterns by their text, each once, however many hosts claim it: those of one Ingress usually do.
    patterns: OrdMap<Arc<str>, (HostPattern, Claims)>,
}

/// Hosts by name.
type Claims = OrdSet<Arc<str>>;

impl Aliases {
    /// Replaces the aliases of a host.
    pub fn replace(&mut self, host: &Arc<str>, before: &Names, now: &Names) {
        for alias in before.plain.difference(&now.plain) {
            let (map, text) = self.of_kind(alias);
            if let Some(claims) = map.get_mut(text) {
                claims.remove(host);
                if claims.is_empty() {
                    map.remove(text);
                }
            }
        }
        for alias in now.plain.difference(&before.plain) {
            let (map, text) = self.of_kind(alias);
            map.entry(text.into()).or_default().insert(Arc::clone(host));
        }
        for text in before.patterns.keys().filter(|text| !now.patterns.contains_key(*text)) {
            if let Some((_, claims)) = self.patterns.get_mut(text) {
                claims.remove(host);
                if claims.is_empty() {
                    self.patterns.remove(text);
                }
            }
        }
        for (text, pattern) in now.patterns.iter().filter(|(text, _)| !before.patterns.contains_key(*text)) {
            let new = || (pattern.clone(), Claims::default());
            self.patterns.entry(Arc::clone(text)).or_insert_with(new).1.insert(Arc::clone(host));
        }
    }

    /// The host that has exactly this alias.
    pub fn exact(&self, name: &str) -> Option<&Arc<str>> {
        first(&self.exact, name)
    }

    /// The host that has `*.parent`.
    pub fn wildcard(&self, parent: &str) -> Option<&Arc<str>> {
        first(&self.below, parent)
    }

    /// The host of the longest matching `*.x`, else of the longest matching `x.*`. A wildcard for which `is_host`
    /// returns true belongs to a host and is no alias (as in ingress-nginx); `is_host` gets the `x` of `*.x`.
    pub fn widest(&self, name: &str, is_host: impl Fn(&str) -> bool) -> Option<&Arc<str>> {
        // Most fleets have none, and then the labels need not be searched.
        if name.len() > LONGEST || (self.below.is_empty() && self.above.is_empty()) {
            return None;
        }
        let parents = ends(name, |name| name.split_once('.').map(|(_, parent)| parent));
        let heads = ends(name, |name| name.rsplit_once('.').map(|(head, _)| head));
        let below = || {
            parents
                .filter(|_| !self.below.is_empty())
                .find_map(|parent| self.wildcard(parent).filter(|_| !is_host(parent)))
        };
        let above = || heads.filter(|_| !self.above.is_empty()).find_map(|head| first(&self.above, head));
        below().or_else(above)
    }

    /// The host of the first pattern that the name matches, among hosts before `end`, in the order of hosts as in
    /// nginx' configuration, where wildcard hosts are patterns as well.
    pub fn pattern(&self, name: &str, end: Option<&str>) -> Option<&Arc<str>> {
        if name.len() > LONGEST {
            return None;
        }
        // All hosts share the steps of a name. They are enough for tens of thousands of patterns; what is left then does
        // not match.
        let (mut first, steps): (Option<&Arc<str>>, _) = (None, Steps::new());
        for (pattern, claims) in self.patterns.values() {
            let Some(host) = claims.get_min() else { continue };
            let is_before = end.is_none_or(|end| **host < *end) && first.is_none_or(|first| host < first);
            if is_before && pattern.is_match(name.as_bytes(), &steps).unwrap_or(false) {
                first = Some(host);
            }
        }
        first
    }

    fn of_kind<'a>(&mut self, alias: &'a str) -> (&mut HashMap<Arc<str>, Claims>, &'a str) {
        match (alias.strip_prefix("*."), alias.strip_suffix(".*")) {
            (Some(parent), _) => (&mut self.below, parent),
            (_, Some(head)) => (&mut self.above, head),
            _ => (&mut self.exact, alias),
        }
    }
}

fn first<'a>(map: &'a HashMap<Arc<str>, Claims>, text: &str) -> Option<&'a Arc<str>> {
    map.get(text)?.get_min()
}

/// The remainders of a name, one label shorter each time.
fn ends<'a>(name: &'a str, less: impl Fn(&'a str) -> Option<&'a str>) -> impl Iterator<Item = &'a str> {
    std::iter::successors(less(name), move |rest| less(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(configured: &[&str]) -> Names {
        Names::compile(&configured.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    fn aliases(hosts: &[(&str, &[&str])]) -> Aliases {
        let mut aliases = Aliases::default();
        for (host, configured) in hosts {
            aliases.replace(&(*host).into(), &Names::default(), &names(configured));
        }
        aliases
    }

    #[test]
    fn the_longest_wildcard_comes_first_and_the_leading_one() {
        let aliases = aliases(&[
            ("one", &["*.test", "www.*"]),
            ("two", &["*.a.test", "www.b.*"]),
            ("three", &["*.b.example"]),
        ]);
        let widest = |name| aliases.widest(name, |_| false).map(|host| &**host);
        for (name, host) in [
            ("x.test", Some("one")),
            ("y.x.test", Some("one")),
            ("x.a.test", Some("two")),
            ("y.x.a.test", Some("two")),
            ("test", None),
            ("www.example", Some("one")),
            ("www.b.example", Some("three")),
            ("www.b.co.uk", Some("two")),
            ("www", None),
        ] {
            assert_eq!(widest(name), host, "{name}");
        }
        let known = aliases.widest("x.a.test", |parent| parent == "a.test");
        assert_eq!(known.map(|host| &**host), Some("one"), "*.a.test is a host's own name");
        assert_eq!(widest(&format!("{}test", "a.".repeat(150))), None);
    }

    #[test]
    fn the_smallest_host_has_what_several_claim() {
        for order in [["b.test", "a.test"], ["a.test", "b.test"]] {
            let configured: &[&str] = &["x.test", "*.x.test", "~^y"];
            let mut aliases = aliases(&order.map(|host| (host, configured)));
            let all = |aliases: &Aliases| {
                let found = [
                    aliases.exact("x.test"),
                    aliases.widest("z.x.test", |_| false),
                    aliases.pattern("y.test", None),
                ];
                found.map(|host| host.map_or("", |host| &**host).to_owned())
            };
            assert_eq!(all(&aliases), ["a.test"; 3]);
            let before = aliases.clone();
            aliases.replace(&"a.test".into(), &names(configured), &Names::default());
            assert_eq!(all(&aliases), ["b.test"; 3]);
            aliases.replace(&"b.test".into(), &names(configured), &Names::default());
            assert_eq!(all(&aliases), [""; 3]);
            assert_eq!(all(&before), ["a.test"; 3], "a clone sees nothing of what comes after it");
        }
    }

    #[test]
    fn what_hosts_have_in_common_is_compiled_once() {
        let all: Vec<_> = (0..LATEST).map(|i| format!("~^a{i}[0-9]")).collect();
        let mut table = Aliases::default();
        for host in 0..300 {
            let host = format!("{host}.test").into();
            table.replace(&host, &Names::default(), &Names::compile(&all).unwrap());
        }
        assert_eq!(COMPILED.with_borrow(VecDeque::len), LATEST);
        assert_eq!(table.patterns.len(), LATEST);
        names(&["~^b"]);
        assert_eq!(COMPILED.with_borrow(VecDeque::len), LATEST);
    }

    /// Each host had its own steps and its own automatons: the patterns of one Ingress took 200 ms for each name that
    /// nothing else matched, and all the others waited.
    #[test]
    fn patterns_of_many_hosts_leave_steps_for_the_others() {
        let many: Vec<_> = (0..32).map(|i| format!("~[a-m][a-z0-9]{{4}}[n-z][^a-z0-9.]{i}")).collect();
        let mut table = aliases(&[("z.test", &["~^shop[0-9]+"])]);
        for host in 0..3_000 {
            table.replace(&format!("{host}.test").into(), &Names::default(), &Names::compile(&many).unwrap());
        }
        let name = format!("shop1.{}", "amnz19.".repeat(30));
        assert_eq!(table.pattern(&name, None).map(|host| &**host), Some("z.test"));
        assert_eq!(table.pattern("shopx.test", None), None);
    }

    #[test]
    fn patterns_are_searched_for_in_the_order_of_hosts() {
        let aliases = aliases(&[("b.test", &["~^x[0-9]+"]), ("c.test", &["~^X1", "~test$"])]);
        let found = |name, end| aliases.pattern(name, end).map(|host| &**host);
        assert_eq!(found("x1.test", None), Some("b.test"));
        assert_eq!(found("x1.test", Some("b.test")), None);
        assert_eq!(found("y.test", None), Some("c.test"));
        assert_eq!(found("y.test", Some("c.test")), None);
        assert_eq!(found("y.example", None), None);
    }
}
