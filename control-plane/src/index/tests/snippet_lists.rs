//! Address lists of a snippet beside annotations about the same, which stand before it in nginx' configuration.

use serde_json::json;
use shared::kind::Kind;
use shared::resource::{Resource, Route};

use super::fixture::*;

fn route(world: &World) -> Route {
    match world.get(Kind::Route, "ingress/default/web/a.test") {
        Some(Resource::Route(route)) => route,
        other => panic!("{other:?}"),
    }
}

/// What an Ingress with these annotations comes to: who is allowed, who is denied, whether one of the rules is enough, and
/// what is said of it. `None`: its paths answer 503.
fn comes_to(annotations: &[(&str, &str)]) -> Option<(String, String, Option<bool>, usize)> {
    let mut world = World::default();
    let allowed = json!({"allow-snippet-annotations": "true", "annotations-risk-level": "Critical"});
    world.apply(configmap(allowed));
    let web = ingress("web").rule("a.test", &[("/", "echo")]);
    world.apply(annotations.iter().fold(web, |web, (name, text)| web.annotation(name, text)));
    let Route { policy, denied, .. } = route(&world);
    let list =
        |list: Option<shared::policy::TextList>| list.map_or_else(|| "-".into(), |it| it.values.join(" "));
    let (allows, denies) = (list(policy.allowlist_source_range), list(policy.denylist_source_range));
    denied.is_none().then(|| (allows, denies, policy.satisfy_any, world.problems_of("web").len()))
}

#[test]
fn lists_of_a_snippet_go_on_behind_those_of_annotations() {
    let snippet = "configuration-snippet";
    let denies = ("denylist-source-range", "10.0.0.6, 10.0.0.7");
    let allows = ("whitelist-source-range", "10.0.0.0/8");
    let any = ("satisfy", "any");
    for (annotations, expected) in [
        (vec![denies, (snippet, "deny 10.0.0.5;")], ("-", "10.0.0.6 10.0.0.7 10.0.0.5", None, 0)),
        (
            vec![denies, (snippet, "deny 10.0.0.5; allow 10.0.0.0/8; deny all;")],
            ("10.0.0.0/8", "10.0.0.6 10.0.0.7 10.0.0.5", None, 0),
        ),
        (vec![denies, (snippet, "allow all;")], ("-", "10.0.0.6 10.0.0.7", None, 0)),
        // It denies everybody else, whatever follows.
        (vec![allows, (snippet, "deny 10.0.0.5;")], ("10.0.0.0/8", "-", None, 1)),
        (vec![allows, (snippet, "allow 11.0.0.1; deny all;")], ("10.0.0.0/8", "-", None, 1)),
        (
            vec![allows, denies, (snippet, "allow 11.0.0.1; deny all;")],
            ("10.0.0.0/8", "10.0.0.6 10.0.0.7", None, 1),
        ),
        (vec![any, (snippet, "allow 10.0.0.0/8; deny all;")], ("10.0.0.0/8", "-", Some(true), 0)),
        (vec![(snippet, "satisfy any;")], ("-", "-", Some(true), 0)),
        (vec![allows, (snippet, "satisfy any;")], ("10.0.0.0/8", "-", Some(true), 0)),
        (vec![("server-snippet", "satisfy any;")], ("-", "-", Some(true), 0)),
        (vec![denies, ("server-snippet", "satisfy any;")], ("-", "10.0.0.6 10.0.0.7", Some(true), 0)),
    ] {
        let (allowed, denied, any, told) = expected;
        let expected = Some((allowed.to_owned(), denied.to_owned(), any, told));
        assert_eq!(comes_to(&annotations), expected, "{annotations:?}");
    }
}

#[test]
fn what_nginx_refuses_answers_503() {
    for annotations in [
        [("satisfy", "any"), ("configuration-snippet", "satisfy any;")],
        [("denylist-source-range", "office"), ("configuration-snippet", "deny 10.0.0.5;")],
    ] {
        assert_eq!(comes_to(&annotations), None, "{annotations:?}");
    }
}
