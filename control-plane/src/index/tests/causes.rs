//! What the line that explains a commit says, and what it keeps to itself.

use serde_json::json;

use super::fixture::*;

fn web(service: &str) -> Ing {
    ingress("web").rule("a.test", &[("/", service)])
}

#[test]
fn what_other_tools_wrote_is_not_told() {
    let applied = |ingress: Ing, text: &str| {
        ingress.with(|it| {
            it["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = json!(text);
        })
    };
    let mut world = World::default();
    world.apply(applied(web("one").annotation("canary-weight", "1"), "hunter1"));
    let commit = world.apply(applied(web("two").annotation("ssl-redirect", "false"), "hunter2"));
    assert_eq!(commit.cause, "Ingress default/web: canary-weight removed, ssl-redirect false, rules changed");
}

#[test]
fn a_class_that_changed_is_told() {
    let mut world = World::default();
    world.apply(web("one"));
    let commit = world.apply(web("one").with(|it| {
        it["metadata"]["annotations"]["kubernetes.io/ingress.class"] = json!("other");
    }));
    assert_eq!(commit.cause, "Ingress default/web: kubernetes.io/ingress.class nginx -> other");
}

#[test]
fn raw_configuration_is_not_told() {
    let mut world = World::default();
    world.apply(web("one"));
    for (service, text, what) in [
        ("two", "set $key hunter1;", "server-snippet changed, rules changed"),
        ("three", "set $key hunter2;", "server-snippet changed, rules changed"),
    ] {
        let commit = world.apply(web(service).annotation("server-snippet", text));
        assert_eq!(commit.cause, format!("Ingress default/web: {what}"));
    }
    let commit = world.apply(web("four"));
    assert_eq!(commit.cause, "Ingress default/web: server-snippet removed, rules changed");

    world.apply(configmap(json!({"ssl-redirect": "true"})));
    let data = json!({"ssl-redirect": "false", "http-snippet": "set $key hunter2;"});
    let commit = world.apply(configmap(data));
    assert_eq!(
        commit.cause,
        "ConfigMap ingress-nginx/ingress-nginx-controller: http-snippet changed, ssl-redirect true -> false"
    );
}
