//! Reviews of Ingresses that are not stored yet.

use std::sync::Arc;

use serde_json::json;

use super::super::Verdict;
use super::fixture::*;
use crate::objects::Object;

fn review(world: &World, ingress: Ing) -> Verdict {
    let Object::Ingress(ingress) = ingress.into() else { panic!("no Ingress") };
    world.index.review(&Arc::clone(&ingress))
}

fn refused(world: &World, ingress: Ing) -> String {
    review(world, ingress).refused.unwrap_or_default()
}

fn web(name: &str, path: &str) -> Ing {
    ingress(name).rule("a.test", &[(path, "echo")])
}

/// A world with an Ingress that has `/` of `a.test`.
fn world() -> World {
    let mut world = World::default();
    world.apply(configmap(json!({})));
    world.apply(web("first", "/"));
    world
}

#[test]
fn a_path_is_one_ingress_unless_it_is_a_canary() {
    let world = world();
    assert_eq!(
        refused(&world, web("second", "/")),
        "host \"a.test\" and path \"/\" is already defined in ingress default/first"
    );
    // Whatever its type, and whichever Ingress is older.
    assert!(refused(&world, web("second", "=/")).contains("already defined"));
    assert!(refused(&world, web("second", "/").at(0)).contains("already defined"));
    for fine in [
        web("first", "/"),
        web("second", "/other"),
        ingress("second").rule("b.test", &[("/", "echo")]),
        web("second", "/").canary(),
        web("second", "/").annotation("canary", "false"),
    ] {
        assert_eq!(refused(&world, fine), "");
    }
    // One that says anything of canaries takes no path from others.
    for canary in ["true", "false", "perhaps"] {
        let mut said = World::default();
        said.apply(web("first", "/").annotation("canary", canary));
        assert_eq!(refused(&said, web("second", "/")), "", "{canary}");
    }
    let mut hostless = World::default();
    hostless.apply(ingress("first").rule("", &[("/x", "echo")]));
    assert!(refused(&hostless, ingress("second").rule("", &[("/x", "echo")])).contains("host \"_\""));
}

#[test]
fn what_would_be_rejected_is_refused_and_what_would_only_deny_is_not() {
    let world = world();
    for (name, text) in [
        ("limit-rps", "10r"),
        ("load-balance", "random"),
        ("custom-http-errors", "404,foo"),
        ("permanent-redirect", "https://x/;"),
    ] {
        let why = refused(&world, web("second", "/b").annotation(name, text));
        assert!(why.starts_with("metadata.annotations[nginx.ingress.kubernetes.io/"), "{name}: {why:?}");
    }
    for (name, text) in
        [("whitelist-source-range", "10.0.0.0/33"), ("auth-url", "not-a-url"), ("proxy-read-timeout", "30s")]
    {
        let verdict = review(&world, web("second", "/b").annotation(name, text));
        assert_eq!((verdict.refused, verdict.warnings.len()), (None, 1), "{name}");
    }
    assert_eq!(review(&world, web("second", "/b")), Verdict::default());
}

/// An object may come until the Ingress is read. The namespace of one that is named stays.
#[test]
fn references_to_other_namespaces_are_warned_of_unless_the_fleet_allows_them() {
    let basic =
        |secret: &str| web("second", "/b").annotation("auth-type", "basic").annotation("auth-secret", secret);
    let world = world();
    assert_eq!(review(&world, basic("users")), Verdict::default());
    let verdict = review(&world, basic("other/users"));
    assert_eq!(verdict.refused, None);
    let [warning] = &verdict.warnings[..] else { panic!("{:?}", verdict.warnings) };
    assert!(
        warning.starts_with("metadata.annotations[nginx.ingress.kubernetes.io/auth-secret]: ")
            && warning.contains("allow-cross-namespace-resources"),
        "{warning}"
    );
    let mut crossing = World::default();
    crossing.apply(configmap(json!({"allow-cross-namespace-resources": "true"})));
    assert_eq!(review(&crossing, basic("other/users")), Verdict::default());
}

#[test]
fn what_is_not_ours_is_looked_at_for_what_nobody_may_have() {
    let world = world();
    let foreign = |path: &str| {
        web("second", path)
            .with(|it| it["metadata"]["annotations"]["kubernetes.io/ingress.class"] = json!("other"))
    };
    assert_eq!(refused(&world, foreign("/").annotation("limit-rps", "10r")), "");
    for path in ["/etc/nginx", "/etc/passwd", "/var/run/secrets", "/x_by_lua_y", "/x { root /; }"] {
        assert!(refused(&world, foreign(path)).contains("deep inspection"), "{path}");
        assert!(refused(&world, web("second", path)).contains("deep inspection"), "{path}");
    }
    assert_eq!(refused(&world, web("second", "/etc/other")), "");
}

#[test]
fn snippets_words_and_odd_paths_are_refused_as_the_fleet_says() {
    let mut world = world();
    let snippet =
        |key: &str| web("second", "/b").with(|it| it["metadata"]["annotations"][key] = json!("# nothing"));
    for key in ["nginx.ingress.kubernetes.io/server-snippet", "x.example.com/foo-snippet"] {
        assert!(refused(&world, snippet(key)).contains("annotation cannot be used"), "{key}");
    }
    let odd = |kind: &str| {
        web("second", "/foo/[a-z]{3}")
            .with(|it| it["spec"]["rules"][0]["http"]["paths"][0]["pathType"] = json!(kind))
    };
    assert!(
        refused(&world, odd("Exact")).contains("invalid paths") && !refused(&world, odd("Prefix")).is_empty()
    );
    assert_eq!(refused(&world, odd("ImplementationSpecific")), "");
    assert_eq!(refused(&world, web("second", "/Bloblo_1-2.3/")), "");

    world
        .apply(configmap(json!({"strict-validate-path-type": "false", "allow-snippet-annotations": "true"})));
    assert_eq!(refused(&world, odd("Exact")), "");
    assert_eq!(refused(&world, snippet("x.example.com/foo-snippet")), "");
    let risky = refused(&world, snippet("nginx.ingress.kubernetes.io/server-snippet"));
    assert!(risky.contains("annotations-risk-level"), "its risk is above what is allowed: {risky}");

    world.apply(configmap(json!({"annotation-value-word-blocklist": "set_by_lua, }"})));
    let worded = |text: &str| refused(&world, web("second", "/b").annotation("upstream-vhost", text));
    assert!(worded("set_by_lua").ends_with("upstream-vhost annotation contains invalid word set_by_lua"));
    assert_eq!((worded("a}").is_empty(), worded("fine")), (false, String::new()));
    let others =
        web("second", "/b").with(|it| it["metadata"]["annotations"]["example.com/note"] = json!("a}"));
    assert_eq!(refused(&world, others), "", "what another program reads");
}

#[test]
fn a_catch_all_is_refused_where_there_are_none() {
    let mut world = World::with(super::super::Options { disable_catch_all: true, ..options() });
    world.apply(web("first", "/"));
    assert!(refused(&world, web("second", "/b").default_backend("echo")).contains("--disable-catch-all"));
    assert_eq!(refused(&world, ingress("second").rule("", &[("/b", "echo")])), "");
}
