//! Restrictions that are not enforced yet: what they would guard answers 503.

use shared::kind::Kind;
use shared::resource::Resource;

use super::fixture::*;
use crate::objects::ObjectKind;
use crate::problem::Severity;

#[test]
fn paths_of_a_guarded_ingress_are_denied_the_implicit_root_too() {
    let mut world = World::default();
    world.apply(
        ingress("guarded").at(1).annotation("auth-url", "https://auth.test").rule("a.test", &[("/x", "x")]),
    );
    world.apply(ingress("open").at(2).rule("a.test", &[("/y", "y")]));
    assert_eq!(
        world.routes(),
        [
            "default/guarded/a.test: / -> 404, /x -> default/x/80 (denied)",
            "default/open/a.test: /y -> default/y/80",
        ]
    );
    assert!(world.severities(ObjectKind::Ingress, "guarded").contains(&Severity::Unsupported));
}

#[test]
fn client_certificates_deny_the_host_whoever_owns_its_paths() {
    let mut world = World::default();
    world.apply(ingress("open").at(1).rule("a.test", &[("/", "open")]).rule("b.test", &[("/", "open")]));
    let guard = ingress("guard").at(2).annotation("auth-tls-secret", "default/ca");
    world.apply(guard.rule("a.test", &[("/", "lost")]));
    let denied = |host: &str| match world.get(Kind::Host, host) {
        Some(Resource::Host(it)) => it.denied.map(|denial| denial.reason),
        _ => None,
    };
    assert_eq!(
        denied("a.test").unwrap(),
        "Ingress default/guard: nginx.ingress.kubernetes.io/auth-tls-secret is not enforced yet"
    );
    assert_eq!(denied("b.test"), None);
    assert_eq!(denied("_"), None);
}

#[test]
fn a_guarded_catch_all_is_denied() {
    let mut world = World::default();
    let guard = ingress("guard").annotation("auth-tls-secret", "default/ca").annotation("limit-rps", "1");
    world.apply(guard.default_backend("rest"));
    assert_eq!(world.routes(), ["default/guard/_: / -> default/rest/80 (denied)"]);
    assert!(matches!(world.get(Kind::Host, "_"), Some(Resource::Host(it)) if it.denied.is_some()));
}
