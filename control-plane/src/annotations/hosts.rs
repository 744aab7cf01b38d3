//! Settings that apply to a whole host.

use shared::pattern::HostPattern;
use shared::policy::TextList;

use super::client_tls::{self, CIPHERS};
use super::draft::Draft;
use super::row::{Bad, Effect, Risk, Row, Scope, Spec};
use super::value::{self, BOOL, Grammar, PATTERN};
use crate::problem::{Severity, shown};

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
        doc: "With `--enable-ssl-passthrough`: TLS connections for the hosts go to the backend of `/` as they are, and other requests reach it over TLS. Without: TLS ends at the proxy; where the backend would hear plain HTTP, all paths of the hosts answer 503",
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

fn aliases(to: &mut Draft<'_>, configured: Vec<String>) {
    let mut values = Vec::new();
    let mut patterns = 0;
    for alias in configured {
        match names(&alias) {
            Ok(_) if alias.starts_with('~') && patterns == MOST_PATTERNS => {
                let reason =
                    format!("more than {MOST_PATTERNS} regular expressions: {} is not used", shown(&alias));
                to.fault(Severity::Warning, reason);
            }
            Ok(names) => {
                patterns += usize::from(alias.starts_with('~'));
                values.extend(names);
            }
            Err(problem) => to.fault(Severity::Warning, format!("{}: {problem}: not used", shown(&alias))),
        }
    }
    to.host.aliases = Some(TextList { values });
}

/// An alias in the form in which it is sent; nginx' `.a.test` stands for two names.
fn names(alias: &str) -> Result<Vec<String>, String> {
    if let Some(pattern) = alias.strip_prefix('~') {
        return match HostPattern::new(pattern) {
            Ok(_) => Ok(vec![alias.to_owned()]),
            Err(error) => Err(error.to_string()),
        };
    }
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
    use super::MOST_PATTERNS;

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
        let long = format!("{}test", "a.".repeat(150));
        for text in ["*", "a*b.test", "*.*", "a..test", "a.test.", "http://a.test", "~(", "~(?=a)a", &long] {
            assert_eq!(aliases(&format!("good.test,{text}")), (vec!["good.test".to_owned()], 1), "{text}");
        }
    }

    #[test]
    fn a_few_patterns_are_enough() {
        let text: Vec<String> = (0..MOST_PATTERNS + 2).map(|n| format!("~^a{n}")).collect();
        let (values, faults) = aliases(&text.join(","));
        assert_eq!((values.len(), faults), (MOST_PATTERNS, 2));
    }
}
