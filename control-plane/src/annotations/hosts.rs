//! Settings that apply to a whole host.

use shared::pattern::PatternError;
use shared::policy::TextList;

use super::client_tls::{self, CIPHERS};
use super::draft::Draft;
use super::row::{Bad, Effect, Risk, Row, Scope, Spec};
use super::value::{self, BOOL, Grammar, PATTERN};
use crate::problem::{Severity, shown};

pub(crate) mod patterns;

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "server-alias",
        scope: Scope::Host,
        risk: Risk::High,
        value: &Spec(ALIASES, Effect::Sets(aliases)),
        bad: Bad::Reject,
        doc: "More names of the host",
        ..Row::NEW
    },
    &Row {
        name: "ssl-ciphers",
        scope: Scope::Host,
        value: &Spec(CIPHERS, Effect::Sets(|to, it| to.host.ssl_ciphers = client_tls::known(to, &it))),
        bad: Bad::Reject,
        doc: "Ciphers of TLS 1.2, in OpenSSL's words; only those with forward secrecy are known",
        ..Row::NEW
    },
    &Row {
        name: "ssl-passthrough",
        scope: Scope::Host,
        value: &Spec(BOOL, Effect::Sets(|to, it| to.host.passthrough = Some(it))),
        bad: Bad::Reject,
        default: "false",
        doc: "With `--enable-ssl-passthrough`: TLS connections for the hosts go to the backend of `/` as they are, if the host's first Ingress says so; plain requests reach it as `backend-protocol` says. Without: no effect, TLS ends at the proxy",
        harmless: true,
        ..Row::NEW
    },
    &Row {
        name: "ssl-prefer-server-ciphers",
        scope: Scope::Host,
        value: &Spec(BOOL, Effect::Sets(|to, it| to.host.ssl_prefer_server_ciphers = Some(it))),
        default: "true",
        doc: "Whether the proxy's cipher order is used; otherwise the client's",
        harmless: true,
        ..Row::NEW
    },
];

/// The longest name of a host (RFC 1035 section 2.3.4).
const LONGEST: usize = 253;

/// Limit of the regular expressions of one Ingress: each is searched for in names that nothing else matches.
const MOST_PATTERNS: usize = 32;

/// Limit in bytes of the automatons of all of them, which are made before anything else is done with the Ingress. A
/// pattern that is refused because its own is too large counts in full, as most of the work was done.
const AUTOMATONS: usize = 256 << 10;

fn aliases(to: &mut Draft<'_>, configured: Vec<String>) {
    let mut values = Vec::new();
    let mut room = Room { patterns: MOST_PATTERNS, bytes: AUTOMATONS };
    for alias in configured {
        let names = match alias.strip_prefix('~') {
            Some(pattern) => room.take(pattern).map(|()| vec![alias.clone()]),
            None => names(&alias),
        };
        match names {
            Ok(names) => values.extend(names),
            Err(problem) => to.fault(Severity::Warning, format!("{}: {problem}: not used", shown(&alias))),
        }
    }
    to.host.aliases = Some(TextList { values });
}

/// What is left for the patterns of an Ingress.
struct Room {
    patterns: usize,
    bytes: usize,
}

impl Room {
    /// Takes room for a pattern. Nothing is computed if none is left.
    fn take(&mut self, pattern: &str) -> Result<(), String> {
        if self.patterns == 0 {
            return Err(format!("more than {MOST_PATTERNS} regular expressions"));
        }
        let too_much =
            || format!("the automatons of the regular expressions take more than {AUTOMATONS} bytes");
        if self.bytes == 0 {
            return Err(too_much());
        }
        let size = patterns::size(pattern);
        let left = self.bytes.checked_sub(match size {
            Ok(bytes) | Err(PatternError::Automaton { most: bytes }) => bytes,
            Err(_) => 0,
        });
        self.bytes = left.unwrap_or(0);
        size.map_err(|error| error.to_string())?;
        left.ok_or_else(too_much)?;
        self.patterns -= 1;
        Ok(())
    }
}

/// A name in the form in which it is sent; nginx' `.a.test` stands for two.
fn names(alias: &str) -> Result<Vec<String>, String> {
    let alias = alias.to_ascii_lowercase();
    let (name, all) = match (alias.strip_prefix("*."), alias.strip_suffix(".*"), alias.strip_prefix('.')) {
        (Some(name), ..) | (None, Some(name), _) => (name, vec![alias.clone()]),
        (None, None, Some(name)) => (name, vec![name.to_owned(), format!("*{alias}")]),
        (None, None, None) => (alias.as_str(), vec![alias.clone()]),
    };
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    let is_name = name.len() <= LONGEST && name.split('.').all(is_label);
    if is_name {
        Ok(all)
    } else {
        Err("expected a name, *.name, name.* or ~ and a regular expression".into())
    }
}

/// A comma-separated list of names and patterns.
const ALIASES: Grammar<Vec<String>> = Grammar {
    words: "names with commas between them",
    read: |text| value::list(text).map(|item| (PATTERN.read)(item)).collect(),
    good: &["www.a.test, b.test"],
    bad: &["a.test;b.test", "a b"],
};

#[cfg(test)]
mod tests {
    use shared::name::ObjectName;

    use super::super::{PREFIX, read};
    use super::patterns::size;
    use super::{AUTOMATONS, MOST_PATTERNS};

    /// The aliases that a value results in, and the number of faults.
    fn aliases(text: &str) -> (Vec<String>, usize) {
        let annotations = [(format!("{PREFIX}server-alias"), text.to_owned())].into();
        let parsed = read(&ObjectName::new("default", "web"), &annotations);
        (parsed.serving.host.aliases.unwrap_or_default().values, parsed.faults.len())
    }

    #[test]
    fn aliases_are_names_wildcards_and_patterns() {
        for (text, values) in [
            ("B.Test, a.test", &["b.test", "a.test"][..]),
            ("*.a.test,www.*", &["*.a.test", "www.*"]),
            (".a.test", &["a.test", "*.a.test"]),
            ("~^(a|B)[0-9]+\\.test$", &["~^(a|B)[0-9]+\\.test$"]),
        ] {
            assert_eq!(aliases(text), (values.iter().map(ToString::to_string).collect(), 0), "{text}");
        }
        let longest = format!("{}{}", "a.".repeat(100), "b".repeat(53));
        assert_eq!(aliases(&longest), (vec![longest.clone()], 0));
        let long = format!("{longest}b");
        for text in ["*", "a*b.test", "*.*", "a..test", "a.test.", "http://a.test", "~(", "~(?=a)a", &long] {
            assert_eq!(aliases(&format!("good.test,{text}")), (vec!["good.test".to_owned()], 1), "{text}");
        }
    }

    /// Twelve bytes of pattern took 128 KiB and the time to make them.
    #[test]
    fn automatons_of_all_patterns_are_bounded_together() {
        let mut good: Vec<String> =
            (10..30).map(|n| format!("~^[a-z0-9-]{{60}}\\.shop{n}\\.example\\.com$")).collect();
        let (values, faults) = aliases(&good.join(","));
        let taken: usize = values.iter().map(|it| size(&it[1..]).unwrap()).sum();
        assert!(taken <= AUTOMATONS && values.len() > 8 && faults == good.len() - values.len(), "{taken}");
        // Those that are refused count as well: nothing is made after them. Names need none.
        good.truncate(1);
        let bad = (1..10).map(|n| format!("~[ab].{{9}}c{n}"));
        let (values, faults) =
            aliases(&bad.chain(good).chain(["a.test".to_owned()]).collect::<Vec<_>>().join(","));
        assert_eq!((values, faults), (vec!["a.test".to_owned()], 10));
        // What is no pattern costs nothing.
        let wrong = (1..10).map(|_| "~(".to_owned());
        let (values, faults) = aliases(&wrong.chain(["~^a$".to_owned()]).collect::<Vec<_>>().join(","));
        assert_eq!((values, faults), (vec!["~^a$".to_owned()], 9));
    }

    #[test]
    fn a_few_patterns_are_enough() {
        let text: Vec<String> = (0..MOST_PATTERNS + 2).map(|n| format!("~^a{n}")).collect();
        let (values, faults) = aliases(&text.join(","));
        assert_eq!((values.len(), faults), (MOST_PATTERNS, 2));
    }
}
