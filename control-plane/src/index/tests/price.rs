//! A commit costs what changed, however much there is: counted, not timed.

use super::fixture::*;

const MANY: usize = 1000;

fn world() -> World {
    let mut world = World::default();
    let events = (0..MANY).flat_map(|i| {
        let (web, echo) = (format!("web-{i}"), format!("echo-{i}"));
        let rule = ingress(&web).rule(&format!("{web}.test"), &[("/", &echo)]);
        let rule = rule.tls(&[&format!("{web}.test")], "cert");
        [applied(rule), applied(service(&echo)), applied(slice(&echo, &echo, &["10.0.0.1"]))]
    });
    let commit = world.events(events);
    assert_eq!(commit.config.len(), 4 + 3 * MANY);
    assert_eq!(commit.live.len(), MANY);
    world
}

#[test]
fn one_change_among_many() {
    let mut world = world();
    let commit = world.apply(slice("echo-7", "echo-7", &["10.0.0.1", "10.0.0.2"]));
    assert_eq!((commit.live.len(), commit.config.len(), commit.compiled), (1, 0, 1));

    let changed = ingress("web-7").rule("web-7.test", &[("/", "echo-7"), ("/x", "echo-8")]);
    let commit = world.apply(changed.tls(&["web-7.test"], "cert"));
    assert_eq!((commit.live.len(), commit.config.len()), (0, 1));
    assert_eq!(commit.compiled, 2, "the Host and its Route");

    let commit = world.apply(service_with("echo-9", serde_json::json!([{"name": "http", "port": 81}])));
    assert_eq!((commit.config.len(), commit.compiled), (1, 1));

    let commit = world.apply(secret("cert", 0));
    assert_eq!((commit.live.len(), commit.config.len(), commit.compiled), (1, 0, 1));

    let commit = world.apply(ingress("new").rule("new.test", &[("/", "echo-1")]).tls(&["new.test"], "cert"));
    assert_eq!((commit.config.len(), commit.compiled), (2, 2));
}

#[test]
fn an_ingress_of_many_hosts_costs_the_hosts_that_change() {
    let many = |changed: &str| {
        (0..100).fold(ingress("many"), |it, i| {
            let service = if i == 50 { changed } else { "echo" };
            it.rule(&format!("h{i}.test"), &[("/", service)])
        })
    };
    let mut world = World::default();
    world.apply(many("echo"));
    let commit = world.apply(many("other"));
    assert_eq!(commit.compiled, 3, "one Host, its Route, and the new Backend");
    assert_eq!(commit.config.len(), 2);
}
