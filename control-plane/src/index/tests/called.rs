//! Services that proxies call by name, for authentication.

use serde_json::json;

use super::fixture::*;
use crate::index::Options;
use crate::objects::ObjectKind;

const FIELD: &str = "warning metadata.annotations[nginx.ingress.kubernetes.io/auth-url]";

fn asking(url: &str) -> Ing {
    ingress("web").rule("a.test", &[("/", "echo")]).annotation("auth-url", url)
}

#[test]
fn an_authentication_that_leads_nowhere_is_told() {
    let url = "http://auth.default.svc.cluster.local:4180/verify";
    let mut world = World::default();
    world.apply(asking(url));
    assert_eq!(world.problems_of("web"), [FIELD]);
    let what = "leads nowhere: Service default/auth does not exist: its paths answer 500";
    assert!(world.reasons("web").iter().any(|it| it == what), "{:?}", world.reasons("web"));
    world.apply(service_with("auth", json!([{"port": 80}])));
    let what = "leads nowhere: Service default/auth has no port 4180: its paths answer 500";
    assert!(world.reasons("web").iter().any(|it| it == what), "{:?}", world.reasons("web"));
    world.apply(service_with("auth", json!([{"port": 4180}])));
    assert_eq!(world.problems_of("web"), Vec::<String>::new());
    world.delete(ObjectKind::Service, "auth");
    assert_eq!(world.problems_of("web"), [FIELD]);
    for other in ["http://auth.example.com/", "http://auth.default.svc.cluster.local:$arg_port/"] {
        world.apply(asking(other));
        assert!(world.reasons("web").iter().all(|it| !it.contains("leads nowhere")), "{other}");
    }
}

#[test]
fn services_that_are_not_watched_are_not_told_of() {
    let mut world = World::with(Options { watch_namespace: Some("default".into()), ..options() });
    world.apply(asking("http://auth.sso.svc.cluster.local/"));
    assert_eq!(world.problems_of("web"), Vec::<String>::new());
}
