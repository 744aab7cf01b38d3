//! Faults that reject an Ingress as a whole, so that its last good version stays.
//!
//! Paths and hosts are data here, never configuration text, so most of what ingress-nginx has to reject is harmless.
//! Its deep inspection (`--deep-inspect`) is kept because users' policies rely on it.

use std::sync::LazyLock;

use regex::{Regex, RegexBuilder};
use shared::pattern::{Allowance, Pattern, PatternError};
use shared::policy::LocationPolicy;
use shared::rewrites::makes_patterns;

use super::claim::kind;
use crate::objects::{Ingress, IngressPath};
use crate::problem::{Fault, Severity, shown};

/// Limit of the text of one Ingress in bytes, which bounds the cost of a manifest. An API server accepts requests of up
/// to 3 MiB, and its etcd objects of up to 1.5 MiB, so that none of theirs is too long.
const MAX_BYTES: usize = 3 * 1024 * 1024;

/// Limit of the memory, in each proxy, of the patterns in the paths of one Ingress, in bytes: some eight hundred usual
/// ones. A path is counted once for each host that has it.
const MAX_PATTERNS: usize = 8 << 20;

/// The longest DNS name, and the longest label of one (RFC 1035 2.3.4).
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// Forbidden texts of ingress-nginx' deep inspection, case-insensitive.
const FORBIDDEN: &str =
    r"\b(alias|root)\s[^;]*;|/etc/(passwd|shadow|group|nginx|ingress-controller)|/var/run/secrets|_by_lua";

/// Why an Ingress is rejected; empty if it is not.
pub fn faults(ingress: &Ingress, location: &LocationPolicy) -> Vec<Fault> {
    let bytes = text_bytes(ingress);
    if bytes > MAX_BYTES {
        // Skip the expensive checks then.
        let reason = format!("expected at most {MAX_BYTES} bytes of text, got {bytes}");
        return vec![Fault::new(Severity::Rejected, "", reason)];
    }

    let mut found = Vec::new();
    let spec = &ingress.spec;
    let mut patterns = Allowance::new(MAX_PATTERNS);
    let mut reject = |field: String, fault: Option<String>| {
        found.extend(fault.map(|reason| Fault::new(Severity::Rejected, field, reason)));
    };
    for (i, rule) in spec.rules.iter().enumerate() {
        reject(format!("spec.rules[{i}].host"), host_fault(&rule.host));
        let paths = rule.http.iter().flat_map(|http| &http.paths);
        for (j, path) in paths.enumerate() {
            let fault = path_fault(&path.path).or_else(|| pattern_fault(path, location, &mut patterns));
            reject(format!("spec.rules[{i}].http.paths[{j}].path"), fault);
        }
    }
    for (i, tls) in spec.tls.iter().enumerate() {
        reject(format!("spec.tls[{i}].secretName"), text_fault(&tls.secret_name));
        for (j, host) in tls.hosts.iter().enumerate() {
            reject(format!("spec.tls[{i}].hosts[{j}]"), text_fault(host));
        }
    }
    found
}

/// What ingress-nginx' deep inspection finds, whichever class the Ingress has.
pub fn inspected(ingress: &Ingress) -> Vec<Fault> {
    let spec = &ingress.spec;
    let rules = spec.rules.iter().enumerate();
    let of_rules = rules.flat_map(|(i, rule)| {
        let paths = rule.http.iter().flat_map(|http| &http.paths).enumerate();
        let paths = paths.map(move |(j, path)| (format!("spec.rules[{i}].http.paths[{j}].path"), &path.path));
        std::iter::once((format!("spec.rules[{i}].host"), &rule.host)).chain(paths)
    });
    let tls = spec.tls.iter().enumerate();
    let of_tls = tls.map(|(i, tls)| (format!("spec.tls[{i}].secretName"), &tls.secret_name));
    let found = of_rules.chain(of_tls).filter_map(|(field, text)| Some((field, text_fault(text)?)));
    found.map(|(field, reason)| Fault::new(Severity::Rejected, field, reason)).collect()
}

fn text_bytes(ingress: &Ingress) -> usize {
    let paths = ingress.spec.rules.iter().flat_map(|rule| rule.http.iter().flat_map(|http| &http.paths));
    let tls = ingress.spec.tls.iter();
    let annotations = ingress.metadata.annotations.iter();
    ingress.spec.rules.iter().map(|rule| rule.host.len()).sum::<usize>()
        + paths.map(|path| path.path.len()).sum::<usize>()
        + tls
            .map(|tls| tls.secret_name.len() + tls.hosts.iter().map(String::len).sum::<usize>())
            .sum::<usize>()
        + annotations.map(|(key, text)| key.len() + text.len()).sum::<usize>()
}

/// Checks a name, host or path for forbidden text.
fn text_fault(text: &str) -> Option<String> {
    if text.chars().any(char::is_control) {
        return Some(format!("expected no control characters, got {}", shown(text)));
    }
    let forbidden = forbidden().is_some_and(|forbidden| forbidden.is_match(text));
    forbidden.then(|| format!("ingress-nginx' deep inspection forbids {}", shown(text)))
}

fn path_fault(path: &str) -> Option<String> {
    if !path.is_empty() && !path.starts_with('/') {
        return Some(format!("expected a path that begins with a slash, got {}", shown(path)));
    }
    text_fault(path)
}

/// A path that its own Ingress makes a regular expression must compile: nginx would not start with it. Another Ingress
/// can make it one, too, if both have paths of the host: so patterns that need too much memory are always rejected.
fn pattern_fault(path: &IngressPath, location: &LocationPolicy, all: &mut Allowance) -> Option<String> {
    let (path, kind) = (path.path.as_str(), kind(path));
    let is_pattern = makes_patterns(location, path, kind);
    if !is_pattern && !path.contains('{') {
        return None;
    }
    let was_spent = all.is_spent();
    match all.compile(|| Pattern::path(path)).err()? {
        // Reported once: the others would say the same.
        PatternError::TooMuch { .. } if was_spent => None,
        error @ PatternError::TooMuch { .. } => {
            Some(format!("the regular expressions of one Ingress are bounded: with {} {error}", shown(path)))
        }
        error => is_pattern.then(|| {
            let what = "expected a regular expression, as use-regex or rewrite-target ask for";
            format!("{what}, got {}: {error}", shown(path))
        }),
    }
}

fn host_fault(host: &str) -> Option<String> {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let is_label = |label: &str| {
        let inside = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        !label.is_empty()
            && label.len() <= MAX_LABEL
            && label.bytes().all(inside)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // `_`, the name of the catch-all, is not a valid host of a rule.
    let is_name = name.len() <= MAX_NAME && name != "_" && name.split('.').all(is_label);
    if host.is_empty() || is_name {
        return text_fault(host);
    }
    Some(format!("expected a DNS name or a wildcard of one, got {}", shown(host)))
}

fn forbidden() -> Option<&'static Regex> {
    static COMPILED: LazyLock<Option<Regex>> =
        LazyLock::new(|| RegexBuilder::new(FORBIDDEN).case_insensitive(true).build().ok());
    COMPILED.as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{IngressHttp, IngressPath, IngressRule, IngressTls};

    fn faults(ingress: &Ingress) -> Vec<Fault> {
        super::faults(ingress, &LocationPolicy::default())
    }

    fn with(host: &str, path: &str) -> Ingress {
        let mut ingress = Ingress::default();
        ingress.spec.rules = vec![IngressRule {
            host: host.into(),
            http: Some(IngressHttp {
                paths: vec![IngressPath { path: path.into(), ..IngressPath::default() }],
            }),
        }];
        ingress
    }

    #[test]
    fn the_inspection_compiles() {
        assert!(forbidden().is_some());
    }

    #[test]
    fn paths() {
        for path in ["", "/", "/a b", "/foo(/|$)(.*)", "/a\" { return 200 owned; } #", "/root", "/d${x}"] {
            assert_eq!(faults(&with("a.test", path)), [], "{path:?}");
        }
        for path in [
            "foo",
            "/a\n}",
            "/etc/nginx",
            "/x/ETC/passwd",
            "/var/run/secrets/x",
            "/a;alias /x;",
            "/;root /x;",
            "/content_by_lua_block",
        ] {
            let faults = faults(&with("a.test", path));
            assert_eq!(faults.len(), 1, "{path:?}");
            assert_eq!(faults[0].field, "spec.rules[0].http.paths[0].path");
        }
    }

    #[test]
    fn hosts() {
        for host in ["", "a.test", "*.a.test", "A.Test", "xn--bcher-kva.example", "localhost", "10.0.0.1"] {
            assert_eq!(faults(&with(host, "/")), [], "{host:?}");
        }
        for host in ["_", "a..test", "a.test.", "*", "*.", "a.*.test", "a/b", "a b", "-a.test", "a:80"] {
            assert_eq!(faults(&with(host, "/")).len(), 1, "{host:?}");
        }
        let long =
            |label: usize, name: usize| format!("{}{}", "a".repeat(label), ".a".repeat((name - label) / 2));
        for (host, is_name) in [
            (long(MAX_LABEL, MAX_NAME), true),
            (long(MAX_LABEL + 1, MAX_NAME - 1), false),
            (format!("aa.{}", long(MAX_LABEL, MAX_NAME - 2)), false),
            (long(MAX_LABEL, MAX_NAME + 2), false),
            ("a-.test".to_owned(), false),
            ("content_by_lua.test".to_owned(), false),
            ("by_lua.test".to_owned(), true),
        ] {
            assert_eq!(faults(&with(&host, "/")).is_empty(), is_name, "{host:?}");
        }
    }

    #[test]
    fn tls_names_are_inspected() {
        let mut ingress = with("a.test", "/");
        ingress.spec.tls = vec![IngressTls { hosts: vec!["/etc/shadow".into()], secret_name: "x\ny".into() }];
        let fields: Vec<_> = faults(&ingress).into_iter().map(|fault| fault.field).collect();
        assert_eq!(fields, ["spec.tls[0].secretName", "spec.tls[0].hosts[0]"]);
    }

    /// Ingresses of other classes, too: their controller may put such text into a configuration.
    #[test]
    fn hosts_paths_and_names_of_secrets_are_inspected_whosever_they_are() {
        let mut ingress = with("content_by_lua.test", "/etc/nginx");
        ingress.spec.tls = vec![IngressTls { hosts: vec![], secret_name: "/etc/shadow".into() }];
        let fields: Vec<_> = inspected(&ingress).into_iter().map(|fault| fault.field).collect();
        assert_eq!(
            fields,
            ["spec.rules[0].host", "spec.rules[0].http.paths[0].path", "spec.tls[0].secretName"]
        );
        assert_eq!(inspected(&with("a.test", "no slash")), [], "that is for us to say");
    }

    /// About as much as etcd stores.
    #[test]
    fn what_an_api_server_takes_is_not_too_much() {
        let mut ingress = with("a.test", "/");
        let rule = |i| with(&format!("{i:05}.a.test"), "/").spec.rules.remove(0);
        ingress.spec.rules = (0..20_000).map(rule).collect();
        let annotation = "nginx.ingress.kubernetes.io/server-snippet".to_owned();
        ingress.metadata.annotations.insert(annotation, "a;\n".repeat(400 * 1024));
        assert!(text_bytes(&ingress) > 1_400_000);
        assert_eq!(faults(&ingress), []);
    }

    #[test]
    fn too_much_is_rejected() {
        assert_eq!(faults(&with("a.test", &"/a".repeat(MAX_BYTES))).len(), 1);
        let mut ingress = with("a.test", "/");
        ingress.spec.tls = vec![IngressTls { hosts: vec!["a".repeat(MAX_BYTES)], secret_name: "a".into() }];
        assert_eq!(faults(&ingress).len(), 1);
    }

    /// 400 of these, in 56 kB, took 600 MB in each proxy, and no change was applied while they were compiled.
    #[test]
    fn patterns_of_one_ingress_are_bounded_together() {
        let patterns = LocationPolicy { use_regex: Some(true), ..LocationPolicy::default() };
        let paths = |count: usize, text: &str| {
            let mut all = with("a.test", "/");
            let first = all.spec.rules[0].http.as_ref().unwrap().paths[0].clone();
            let path = |i: usize| IngressPath { path: format!("/p{i}{text}"), ..first.clone() };
            all.spec.rules[0].http.as_mut().unwrap().paths = (0..count).map(path).collect();
            all
        };
        // Another Ingress of the host may set `use-regex`, so they are counted without it.
        for policy in [&patterns, &LocationPolicy::default()] {
            let faults = super::faults(&paths(1000, "([a-z0-9]{1,900})"), policy);
            assert_eq!(faults.len(), 1, "{faults:?}");
            assert!(faults[0].reason.contains("take more than 8388608 bytes"), "{faults:?}");
            assert_eq!(super::faults(&paths(300, "(/|$)(.*)"), policy), []);
        }
    }

    #[test]
    fn a_path_that_is_to_be_a_pattern_is_one() {
        let patterns = LocationPolicy { use_regex: Some(true), ..LocationPolicy::default() };
        let rewritten = LocationPolicy { rewrite_target: Some("/$1".into()), ..LocationPolicy::default() };
        for policy in [&patterns, &rewritten] {
            assert_eq!(super::faults(&with("a.test", "/a(/|$)(.*)"), policy), []);
            assert_eq!(super::faults(&with("a.test", "/((?!admin).*)"), policy), []);
            let faults = super::faults(&with("a.test", "/a(b"), policy);
            assert_eq!(faults.len(), 1);
            assert!(faults[0].reason.ends_with("not a regular expression: unclosed group"), "{faults:?}");
        }
        let same = |path: &str| {
            let rewrite_target = Some(path.to_owned());
            super::faults(
                &with("a.test", path),
                &LocationPolicy { rewrite_target, ..LocationPolicy::default() },
            )
        };
        assert_eq!(same("/a(b/"), [], "no rewrite, no pattern");
        assert_eq!(same("/a(b").len(), 1, "what lies below is rewritten");
    }
}
