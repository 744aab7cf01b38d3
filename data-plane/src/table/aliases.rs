//! Aliases of hosts (`server-alias`), matched in nginx' order (as in ingress-nginx).
//!
//! A persistent data structure: a clone costs a few reference counts, and a change costs only the host's own aliases.
//! An alias refers to its host by name, so recompiling the host does not touch its aliases.
//!
//! **Invariant:** if several hosts claim one alias, the smallest name gets it, whichever came first.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::{HashMap, OrdMap, OrdSet};
use shared::pattern::{Pattern, Steps};

/// The longest host name (RFC 1035 section 2.3.4). Longer ones match no alias: a search takes a lookup per label.
const LONGEST: usize = 253;

/// The aliases of one host.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Names, `*.x` and `x.*`.
    plain: BTreeSet<Arc<str>>,
    patterns: Arc<[Pattern]>,
    /// The source texts of `patterns`.
    texts: Vec<String>,
}

impl Names {
    /// Compiles a host's aliases.
    ///
    /// # Errors
    /// A pattern that cannot be compiled.
    pub fn compile(said: &[String]) -> Result<Self, String> {
        let (patterns, plain): (Vec<_>, Vec<_>) = said.iter().partition(|alias| alias.starts_with('~'));
        let texts: Vec<String> = patterns.into_iter().cloned().collect();
        let compiled =
            texts.iter().map(|text| Pattern::host(&text[1..]).map_err(|e| format!("{text:?}: {e}")));
        Ok(Self {
            plain: plain.into_iter().map(|alias| alias.as_str().into()).collect(),
            patterns: compiled.collect::<Result<_, _>>()?,
            texts,
        })
    }
}

impl Names {
    /// The configured texts: names first, then patterns.
    pub fn said(&self) -> impl Iterator<Item = &str> {
        self.plain.iter().map(|name| &**name).chain(self.texts.iter().map(String::as_str))
    }

    /// Whether one of them is exactly this text.
    pub fn has(&self, text: &str) -> bool {
        self.plain.contains(text)
    }
}

/// Steps that the patterns of one host may take for a name: common ones take a hundred.
const OF_HOST: u32 = 20_000;

/// The aliases of all hosts.
#[derive(Clone, Debug, Default)]
pub struct Aliases {
    /// The hosts that claim `a.test`.
    exact: HashMap<Arc<str>, Claims>,
    /// The hosts that claim `*.x`, by `x`.
    below: HashMap<Arc<str>, Claims>,
    /// The hosts that claim `x.*`, by `x`.
    above: HashMap<Arc<str>, Claims>,
    /// By host.
    patterns: OrdMap<Arc<str>, Arc<[Pattern]>>,
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
        if now.texts.is_empty() {
            self.patterns.remove(host);
        } else if now.texts != before.texts {
            self.patterns.insert(Arc::clone(host), Arc::clone(&now.patterns));
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
        let hosts = self.patterns.iter().take_while(|(host, _)| end.is_none_or(|end| ***host < *end));
        // A pattern that runs out of steps does not match. Only one that repeats something long does.
        let fits =
            |pattern: &Pattern, steps: &Steps| pattern.is_match(name.as_bytes(), steps).unwrap_or(false);
        // Each host has its own steps, so no tenant's pattern affects another's.
        let any = |patterns: &[Pattern], steps: &Steps| patterns.iter().any(|pattern| fits(pattern, steps));
        let mut found = hosts.filter(|(_, patterns)| any(patterns, &Steps::of(OF_HOST)));
        found.next().map(|(host, _)| host)
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

    fn names(said: &[&str]) -> Names {
        Names::compile(&said.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    fn aliases(hosts: &[(&str, &[&str])]) -> Aliases {
        let mut aliases = Aliases::default();
        for (host, said) in hosts {
            aliases.replace(&(*host).into(), &Names::default(), &names(said));
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
            let said: &[&str] = &["x.test", "*.x.test", "~^y"];
            let mut aliases = aliases(&order.map(|host| (host, said)));
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
            aliases.replace(&"a.test".into(), &names(said), &Names::default());
            assert_eq!(all(&aliases), ["b.test"; 3]);
            aliases.replace(&"b.test".into(), &names(said), &Names::default());
            assert_eq!(all(&aliases), [""; 3]);
            assert_eq!(all(&before), ["a.test"; 3], "a clone sees nothing of what comes after it");
        }
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
