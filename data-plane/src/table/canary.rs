//! Which requests go to a canary, as in ingress-nginx (its `balancer.lua`), as a pure function.

use shared::pattern::{Pattern, Steps};
use shared::policy::Canary;
use tracing::warn;

/// A compiled canary policy.
#[derive(Debug)]
pub struct CompiledCanary {
    header: Option<Header>,
    cookie: Option<Box<str>>,
    weight: i64,
    weight_total: u64,
}

#[derive(Debug)]
struct Header {
    name: Box<str>,
    rule: Rule,
}

#[derive(Debug)]
enum Rule {
    Value(Box<[u8]>),
    Pattern(Pattern),
    /// A pattern that does not compile: requests with the header go to the main backend.
    Faulty,
    Words,
}

impl CompiledCanary {
    /// Compiles a policy. With a faulty pattern, requests with the header go to the main backend, as in ingress-nginx.
    pub fn new(canary: &Canary) -> Self {
        let Canary { header, header_value, header_pattern, cookie, weight, weight_total } = canary;
        let rule = || {
            if !header_value.is_empty() {
                Rule::Value(header_value.as_bytes().into())
            } else if !header_pattern.is_empty() {
                compile(header_pattern).map_or(Rule::Faulty, Rule::Pattern)
            } else {
                Rule::Words
            }
        };
        // ingress-nginx reads the variable `$http_...`, in which every field name is lower-case with underscores.
        let name = || header.replace('_', "-").to_ascii_lowercase().into();
        Self {
            header: (!header.is_empty()).then(|| Header { name: name(), rule: rule() }),
            cookie: (!cookie.is_empty()).then(|| cookie.as_str().into()),
            weight: *weight,
            weight_total: u64::try_from(*weight_total).unwrap_or(0).max(100),
        }
    }

    /// Whether a request goes to the canary.
    ///
    /// `header` returns the value of a field by its lower-case name, several values joined by `, `; `cookie` that of a
    /// cookie; `random` is uniform over all of `u64`. A request that cannot be decided within `steps` goes to the main
    /// backend.
    pub fn decide<H: AsRef<[u8]>, C: AsRef<[u8]>>(
        &self,
        header: impl FnOnce(&str) -> Option<H>,
        cookie: impl FnOnce(&str) -> Option<C>,
        random: u64,
        steps: &Steps,
    ) -> bool {
        self.by_header(header, steps)
            .or_else(|| words(cookie(self.cookie.as_deref()?)?.as_ref()))
            .unwrap_or_else(|| self.by_weight(random))
    }

    fn by_header<H: AsRef<[u8]>>(
        &self,
        header: impl FnOnce(&str) -> Option<H>,
        steps: &Steps,
    ) -> Option<bool> {
        let Header { name, rule } = self.header.as_ref()?;
        let value = header(name)?;
        let value = value.as_ref();
        match rule {
            Rule::Value(wanted) => (**wanted == *value).then_some(true),
            Rule::Pattern(pattern) => {
                pattern.is_match(value, steps).map_or(Some(false), |fits| fits.then_some(true))
            }
            Rule::Faulty => Some(false),
            Rule::Words => words(value),
        }
    }

    fn by_weight(&self, random: u64) -> bool {
        let drawn = random % self.weight_total + 1;
        u64::try_from(self.weight).is_ok_and(|weight| drawn <= weight)
    }
}

fn words(value: &[u8]) -> Option<bool> {
    match value {
        b"always" => Some(true),
        b"never" => Some(false),
        _ => None,
    }
}

fn compile(pattern: &str) -> Option<Pattern> {
    let built = Pattern::anywhere(pattern);
    built.inspect_err(|error| warn!(pattern, %error, "canary pattern cannot be used")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(canary: &Canary, header: Option<&str>, cookie: Option<&str>, random: u64) -> bool {
        CompiledCanary::new(canary).decide(|_| header, |_| cookie, random, &Steps::new())
    }

    fn by_header(value: &str, pattern: &str) -> Canary {
        Canary {
            header: "X-Canary".into(),
            header_value: value.into(),
            header_pattern: pattern.into(),
            cookie: "stage".into(),
            ..Canary::default()
        }
    }

    #[test]
    fn header_words() {
        let canary = by_header("", "");
        assert!(decide(&canary, Some("always"), Some("never"), 0));
        assert!(!decide(&canary, Some("never"), Some("always"), 0));
        assert!(decide(&canary, Some("Always"), Some("always"), 0), "goes on to the cookie");
        assert!(!decide(&canary, Some("Always"), None, 0));
    }

    #[test]
    fn value_beats_pattern_and_words() {
        let canary = by_header("blue", "gr.*");
        assert!(decide(&canary, Some("blue"), None, 0));
        assert!(!decide(&canary, Some("Blue"), None, 0));
        assert!(!decide(&canary, Some("green"), None, 0));
        assert!(!decide(&canary, Some("always"), None, 0));
        assert!(decide(&canary, Some("never"), Some("always"), 0), "a different value goes on");
    }

    #[test]
    fn pattern_is_searched_for() {
        let canary = by_header("", r"\d[ab]");
        assert!(decide(&canary, Some("xx1ayy"), None, 0));
        assert!(!decide(&canary, Some("1A"), None, 0));
        assert!(decide(&canary, Some("none"), Some("always"), 0));
        let before = by_header("", "^a(?!c)");
        assert!(decide(&before, Some("ab"), None, 0) && !decide(&before, Some("ac"), None, 0));
        for faulty in ["(", "((a{99}){99}){99}", &"a".repeat(5000)] {
            let canary = Canary { weight: 100, ..by_header("", faulty) };
            assert!(!decide(&canary, Some("a"), Some("always"), 0), "{faulty}: main backend");
            assert!(decide(&canary, None, None, 99), "without the header the weight decides");
        }
    }

    /// All patterns that a request is compared with share its steps.
    #[test]
    fn exhausted_pattern_budget_selects_the_main_backend() {
        let canary = CompiledCanary::new(&by_header("", "(a|b)*c$"));
        let (value, steps) = ("ab".repeat(16 << 10), Steps::of(1_000));
        assert!(!canary.decide(|_| Some(&value), |_| Some("always"), 0, &steps));
        assert!(steps.take(1).is_err(), "it was charged");
    }

    #[test]
    fn header_is_read_as_nginx_names_it() {
        let canary = Canary { header: "X_Canary-By".into(), ..Canary::default() };
        let asked = std::cell::RefCell::new(String::new());
        let header = |name: &str| {
            asked.replace(name.to_owned());
            Some("always")
        };
        assert!(CompiledCanary::new(&canary).decide(header, |_| None::<&str>, 0, &Steps::new()));
        assert_eq!(*asked.borrow(), "x-canary-by");
    }

    #[test]
    fn weight_is_a_share() {
        let share = |weight, weight_total| {
            let canary = CompiledCanary::new(&Canary { weight, weight_total, ..Canary::default() });
            let decide = |random| canary.decide(|_| None::<&str>, |_| None::<&str>, random, &Steps::new());
            (0..1000).filter(|random| decide(*random)).count()
        };
        assert_eq!(share(0, 0), 0);
        assert_eq!(share(30, 0), 300);
        assert_eq!(share(30, 50), 300, "totals below 100 count as 100");
        assert_eq!(share(30, 1000), 30);
        assert_eq!(share(100, 100), 1000);
        assert_eq!(share(500, 100), 1000);
        assert_eq!(share(-5, 100), 0);
    }
}
