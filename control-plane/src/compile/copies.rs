//! Bounds the amplification of one Ingress: its annotations are copied into the Route and Host of each of its hosts, and into the
//! Backend of each Service port that it names. The copies are counted, so that a little text never becomes a lot of configuration.
//!
//! **Invariant:** only the Ingress itself is looked at, so that its last good version stays, as with any other fault.

use std::collections::HashSet;

use shared::name::ObjectName;
use shared::pattern::{Pattern, PatternError};
use shared::policy::{
    HostPolicy, LocationPolicy, ShortcutComparison, ShortcutPath, ShortcutTest, SnippetVariables,
};
use shared::resource::{Backend, Host, Resource, Route};

use super::claim::Claim;
use super::size::COPIES;
use super::snippets;
use crate::annotations::hosts::patterns;
use crate::problem::{Fault, Severity};

/// Overhead of a Secret's name in a list: tag, length and the slash.
const NAME_HEAD: usize = 4;

/// Whether the annotations of an Ingress take too much memory, once copied into all resources that contain them.
///
/// Settings that another Ingress decides for the same host are counted, too: whether this one is served must not depend
/// on another.
pub fn of_ingress(claim: &Claim) -> Option<Fault> {
    let hosts = claim.hosts().count();
    let backends = claim.references().map(|(key, _)| key).collect::<HashSet<_>>().len();
    let configured = hosts * of_each_host(claim) + backends * of_each_backend(claim);
    if configured > COPIES {
        let reason = format!(
            "the annotations take {configured} bytes for {hosts} hosts and {backends} Service ports, compiled regular expressions included, and may take {COPIES}: divide the hosts over several Ingresses"
        );
        return Some(Fault::new(Severity::Rejected, "metadata.annotations", reason));
    }
    let names = names_of_secrets(claim);
    (names > COPIES).then(|| {
        let reason = format!(
            "Secrets whose spec.tls entry lists no hosts apply to all {hosts} hosts, and their names take {names} bytes of at most {COPIES}: list the hosts of each Secret"
        );
        Fault::new(Severity::Rejected, "spec.tls", reason)
    })
}

/// Bytes that are copied into each Route and Host. A canary has no Route.
fn of_each_host(claim: &Claim) -> usize {
    let serving = &claim.parsed.serving;
    if claim.is_canary() {
        let backend_tls = serving.location.backend_tls.clone();
        let policy = HostPolicy { backend_tls, ..serving.host.clone() };
        return Resource::Host(Host { policy, ..Host::default() }).encode().len();
    }
    let policy = snippets::put(serving.location.clone(), claim, serving.of_hosts.as_ref());
    let route = Route { denied: serving.denied.clone(), policy, ..Route::default() };
    let host = Host { denied: serving.hosts_denied.clone(), policy: serving.host.clone(), ..Host::default() };
    let of_hosts = serving.of_hosts.as_ref().and_then(|it| it.variables.as_ref());
    let set = serving.location.variables.iter().chain(of_hosts).map(of_variables).sum::<usize>();
    let compiled = compiled(&serving.location, &serving.host) + set;
    Resource::Route(route).encode().len() + Resource::Host(host).encode().len() + compiled
}

/// Bytes that the annotations' regular expressions take in each proxy, which compiles them for each host that has them.
/// Those of paths have a limit of their own. An invalid pattern is reported elsewhere.
fn compiled(location: &LocationPolicy, host: &HostPolicy) -> usize {
    let aliases = host.aliases.iter().flat_map(|list| &list.values);
    let names = aliases.filter_map(|it| it.strip_prefix('~'));
    let names = names.map(|it| patterns::size(it).unwrap_or(0));
    let from = location.proxy_cookie_path.as_ref().map(|it| it.from.as_str());
    let replaced = from.into_iter().chain(location.proxy_redirect_from.as_deref());
    let replaced = replaced.filter_map(|it| it.strip_prefix('~')).map(|it| size(Pattern::anywhere(it)));
    let blocks = [&location.shortcuts, &host.shortcuts].into_iter().flatten().flat_map(|it| {
        let paths = it.blocks.iter().map(|block| match block.kind() {
            ShortcutPath::Pattern | ShortcutPath::PatternAnyCase => size(Pattern::anywhere(&block.path)),
            _ => 0,
        });
        let all = it.shortcuts.iter().chain(it.blocks.iter().flat_map(|block| &block.shortcuts));
        let answers = all.map(|answer| {
            let rewritten = answer.pattern.as_deref().map_or(0, |text| size(Pattern::anywhere(text)));
            let tests = answer.tests.iter().filter_map(searched);
            rewritten + tests.map(|it| size(Pattern::anywhere(it))).sum::<usize>()
        });
        paths.chain(answers)
    });
    names.chain(replaced).chain(blocks).sum()
}

fn of_variables(list: &SnippetVariables) -> usize {
    let cases = list.variables.iter().flat_map(|it| &it.cases);
    let tests = cases.flat_map(|it| &it.tests).filter_map(searched);
    tests.map(|it| size(Pattern::anywhere(it))).sum()
}

fn size(pattern: Result<Pattern, PatternError>) -> usize {
    pattern.map_or(0, |it| it.bytes())
}

/// The pattern that a test searches for; `None` if it compares texts.
fn searched(test: &ShortcutTest) -> Option<&str> {
    use ShortcutComparison::{Finds, FindsAnyCase, Lacks, LacksAnyCase};
    matches!(test.comparison(), Finds | FindsAnyCase | Lacks | LacksAnyCase).then_some(test.value.as_str())
}

/// Bytes that are copied into each Backend.
fn of_each_backend(claim: &Claim) -> usize {
    let policy = claim.parsed.backend.clone();
    let sought = policy.canary.as_ref().map(|it| it.header_pattern.as_str()).filter(|it| !it.is_empty());
    let compiled = sought.and_then(|text| Pattern::anywhere(text).ok()).map_or(0, |it| it.bytes());
    Resource::Backend(Backend { policy, ..Backend::default() }).encode().len() + compiled
}

/// Bytes of the names of Secrets in all its Hosts: one that no entry of `spec.tls` lists has all of them.
fn names_of_secrets(claim: &Claim) -> usize {
    let of = |secrets: &[ObjectName]| -> usize {
        secrets.iter().map(|it| it.namespace.len() + it.name.len() + NAME_HEAD).sum()
    };
    let all = claim.tls.secrets();
    let of_all = of(all);
    let hosts = claim.hosts.keys().map(|host| claim.tls.secrets_of(host));
    // A listed host has at most one, so that the full list is not walked for each host.
    hosts.map(|secrets| if secrets.len() == all.len() { of_all } else { of(secrets) }).sum()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::annotations;
    use crate::compile::claim::OfFleet;
    use crate::objects::{
        Ingress, IngressBackend, IngressHttp, IngressPath, IngressRule, IngressTls, ServiceRef,
    };

    fn with(hosts: usize, service: impl Fn(usize) -> String, configured: &[(&str, String)]) -> Ingress {
        let mut ingress = Ingress::default();
        ingress.metadata.namespace = "default".into();
        ingress.metadata.name = "web".into();
        let rule = |i| {
            let service = Some(ServiceRef { name: service(i), ..ServiceRef::default() });
            let path = IngressPath { backend: IngressBackend { service }, ..IngressPath::default() };
            IngressRule { host: format!("h{i}.test"), http: Some(IngressHttp { paths: vec![path] }) }
        };
        ingress.spec.rules = (0..hosts).map(rule).collect();
        let configured =
            configured.iter().map(|(name, text)| (format!("{}{name}", annotations::PREFIX), text.clone()));
        ingress.metadata.annotations = configured.collect();
        ingress
    }

    fn claim(ingress: &Ingress) -> Claim {
        let name = ingress.metadata.object_name();
        let parsed = annotations::read(&name, &ingress.metadata.annotations);
        let zones = Arc::default();
        let fleet = OfFleet { allows_snippets: true, shares_backend_tls: true, passes_tls: true, zones };
        Claim::of(ingress, Arc::new(parsed), BTreeMap::new(), fleet)
    }

    fn fault(ingress: &Ingress) -> Option<Fault> {
        of_ingress(&claim(ingress))
    }

    fn to_one(_: usize) -> String {
        "echo".into()
    }

    /// 200 kB of addresses on 4,000 hosts were 800 MB in each proxy.
    #[test]
    fn what_is_said_counts_on_each_host() {
        let list = |addresses: usize| (0..addresses).map(|i| format!("10.{}.{}.0/24", i / 256, i % 256));
        for (name, hosts, few, many) in
            [("whitelist-source-range", 4_000, 100, 10_000), ("server-alias", 4_000, 100, 10_000)]
        {
            let configured = |count| {
                let texts: Vec<_> = match name {
                    "server-alias" => (0..count).map(|i| format!("alias-{i}.test")).collect(),
                    _ => list(count).collect(),
                };
                texts.join(",")
            };
            assert_eq!(fault(&with(hosts, to_one, &[(name, configured(few))])), None, "{name}");
            assert_eq!(fault(&with(10, to_one, &[(name, configured(many))])), None, "{name}");
            let found = fault(&with(hosts, to_one, &[(name, configured(many))])).expect(name);
            assert_eq!((found.severity, found.field.as_str()), (Severity::Rejected, "metadata.annotations"));
            assert!(found.reason.contains("for 4000 hosts and 1 Service ports"), "{}", found.reason);
        }
    }

    /// That of a canary stands in the Backend of each of its Service ports.
    #[test]
    fn the_pattern_of_a_canary_counts_for_each_of_its_backends() {
        let to_its_own = |i: usize| format!("echo-{i}");
        let canary = |pattern: &str| {
            let said =
                [("canary", "true"), ("canary-by-header", "x-a"), ("canary-by-header-pattern", pattern)];
            said.map(|(name, text)| (name, text.to_owned()))
        };
        let wide = r"\w{150}";
        assert_eq!(fault(&with(1_000, to_its_own, &canary("beta"))), None);
        assert_eq!(fault(&with(1_000, to_one, &canary(wide))), None);
        let found = fault(&with(1_000, to_its_own, &canary(wide))).expect("1,000 automatons");
        assert!(found.reason.contains("1000 Service ports"), "{}", found.reason);
    }

    /// 60 bytes on 1,000 hosts were half a gigabyte in each proxy.
    #[test]
    fn regular_expressions_count_as_they_are_compiled_on_each_host() {
        let blocks = |pattern: &str| format!("location ~ {pattern} {{ deny all; }}");
        let sets = |pattern: &str| format!("if ($http_a ~ {pattern}) {{ set $v 1; }} add_header X-A $v;");
        let aliases: Vec<_> = (0..30).map(|i| format!(r"~^[a-z0-9]{{50}}{i}\.test$")).collect();
        let dots = ".a".repeat(1_000);
        for (name, few, many) in [
            ("server-snippet", blocks("/admin"), blocks(r#""\w{150}""#)),
            ("configuration-snippet", blocks("/admin"), blocks(r#""\w{150}""#)),
            ("configuration-snippet", String::new(), r#"if ($uri ~ "\w{150}") { return 403; }"#.into()),
            ("configuration-snippet", String::new(), r#"rewrite "\w{150}" /gone permanent;"#.into()),
            ("configuration-snippet", String::new(), sets(r#""\w{150}""#)),
            ("server-snippet", String::new(), sets(r#""\w{150}""#)),
            ("server-alias", r"~^a[0-9]+\.test$".into(), aliases.join(",")),
            ("proxy-cookie-path", "/a /b".into(), format!("~{dots} /b")),
            ("proxy-redirect-from", "/a".into(), format!("~{dots}")),
        ] {
            let of = |hosts, configured: &String| fault(&with(hosts, to_one, &[(name, configured.clone())]));
            assert_eq!(of(1_000, &few), None, "{name} {few}");
            assert_eq!(of(10, &many), None, "{name} {many}");
            let found = of(1_000, &many).unwrap_or_else(|| panic!("{name} {many}"));
            assert_eq!(found.field, "metadata.annotations", "{name} {many}");
        }
    }

    #[test]
    fn what_is_said_counts_for_each_backend() {
        let hashed = [("upstream-hash-by", format!("$host{}", "x".repeat(20_000)))];
        let each = |i| format!("echo-{i}");
        assert_eq!(fault(&with(4_000, to_one, &hashed)), None);
        assert!(fault(&with(4_000, each, &hashed)).is_some());
        let canary = [("canary", "true".to_owned()), ("canary-by-header-value", "x".repeat(20_000))];
        let canary = canary.into_iter().chain([("canary-by-header", "X-Canary".to_owned())]);
        let canary: Vec<_> = canary.collect();
        assert_eq!(fault(&with(4_000, to_one, &canary)), None);
        assert!(fault(&with(4_000, each, &canary)).is_some());
    }

    /// A canary has no Route: of what it says, TLS towards its backends is copied to its hosts.
    #[test]
    fn what_a_canary_says_counts_where_it_is_copied() {
        let each_host = |is_canary: bool, name: &str, text: &str| {
            let configured =
                [("canary", is_canary.to_string()), ("proxy-ssl-secret", "default/ca".to_owned())];
            let configured = [&configured[..], &[(name, text.to_owned())]].concat();
            of_each_host(&claim(&with(1, to_one, &configured)))
        };
        let label = "x".repeat(50);
        let (short, long) = ("a.test".to_owned(), format!("{label}.{label}.test"));
        let [less, more] = [&short, &long].map(|name| each_host(true, "proxy-ssl-name", name));
        assert!(less > short.len() && more - less >= long.len() - short.len(), "{less} and {more}");
        let list: Vec<_> = (0..200).map(|i| format!("10.0.{i}.0/24")).collect();
        let [route, none] = [false, true].map(|it| each_host(it, "whitelist-source-range", &list.join(",")));
        assert!(route > 1_000 && none < less, "{route} and {none}");
    }

    #[test]
    fn secrets_count_on_each_host_that_none_lists() {
        let mut ingress = with(4_000, to_one, &[]);
        let tls = |i, hosts| IngressTls { hosts, secret_name: format!("certificate-number-{i}") };
        ingress.spec.tls = (0..900).map(|i| tls(i, vec![format!("h{i}.test")])).collect();
        assert_eq!(fault(&ingress).expect("3,100 hosts with 900 each").field, "spec.tls");
        ingress.spec.tls = (0..4_000).map(|i| tls(i % 900, vec![format!("h{i}.test")])).collect();
        assert_eq!(fault(&ingress), None);
    }

    /// As many hosts as an API server accepts, with typical annotations.
    #[test]
    fn usual_ones_are_far_from_it() {
        let configured = [
            ("ssl-redirect", "true".to_owned()),
            ("proxy-body-size", "8m".to_owned()),
            ("enable-cors", "true".to_owned()),
            ("whitelist-source-range", "10.0.0.0/8,192.168.0.0/16".to_owned()),
            ("configuration-snippet", "more_set_headers \"X-Frame-Options: DENY\";\n".repeat(10)),
        ];
        assert_eq!(fault(&with(20_000, to_one, &configured)), None);
    }
}
