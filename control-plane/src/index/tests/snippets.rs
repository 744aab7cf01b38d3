//! Snippets: their header directives take effect if the fleet allows that, and what they could restrict is restricted
//! anyway.

use serde_json::json;
use shared::kind::Kind;
use shared::policy::{Header, LocationPolicy, Shortcuts};
use shared::resource::{Resource, Route};

use super::super::Options;
use super::fixture::*;
use super::restrictions::authorities;
use crate::objects::{Object, ObjectKind};

const LOCATION: &str = "\
add_header X-Frame-Options DENY always;
proxy_set_header X-Env prod;
proxy_hide_header X-Powered-By;
";

fn allowed(said: &str) -> Object {
    configmap(json!({"allow-snippet-annotations": said, "annotations-risk-level": "Critical"}))
}

fn web() -> Ing {
    ingress("web").rule("a.test", &[("/", "echo")]).annotation("configuration-snippet", LOCATION)
}

fn route(world: &World, ingress: &str) -> Route {
    match world.get(Kind::Route, &format!("ingress/default/{ingress}/a.test")) {
        Some(Resource::Route(route)) => route,
        other => panic!("{other:?}"),
    }
}

/// Names of headers that are changed, set and hidden.
fn names(policy: &LocationPolicy) -> [Vec<&str>; 3] {
    let changes = policy.header_changes.iter().flat_map(|list| &list.changes);
    let requests = policy.request_headers.iter().flat_map(|list| &list.headers);
    let hidden = policy.hide_headers.iter().flat_map(|list| &list.values);
    [
        changes.map(|it| &*it.name).collect(),
        requests.map(|it| &*it.name).collect(),
        hidden.map(|it| &**it).collect(),
    ]
}

const NOTHING: [Vec<&str>; 3] = [vec![], vec![], vec![]];

#[test]
fn headers_act_where_the_fleet_allows_snippets() {
    let mut world = World::default();
    world.apply(web());
    assert!(world.routes().is_empty(), "its risk is above what is allowed where nobody says so");
    world.apply(configmap(json!({"annotations-risk-level": "Critical"})));
    assert_eq!(names(&route(&world, "web").policy), NOTHING, "nobody allows it");
    assert!(world.reasons("web").iter().any(|reason| reason.contains("allow-snippet-annotations")));

    world.apply(allowed("true"));
    let Route { policy, denied, .. } = route(&world, "web");
    assert_eq!(
        (names(&policy), denied),
        ([vec!["X-Frame-Options"], vec!["X-Env"], vec!["X-Powered-By"]], None)
    );
    assert_eq!(world.problems_of("web"), Vec::<String>::new());

    world.apply(allowed("false"));
    assert_eq!(names(&route(&world, "web").policy), NOTHING);
    assert_eq!(world.problems_of("web").len(), 1);
}

/// Those of a location hide those of its host, as in nginx.
/// As nginx inherits them: a location's own take the place of the host's.
#[test]
fn headers_that_a_location_hides_take_the_place_of_the_host_s() {
    let mut world = World::default();
    world.apply(allowed("true"));
    let first = ingress("first").at(1).annotation("server-snippet", "proxy_hide_header X-Of-Host;");
    world.apply(first.rule("a.test", &[("/first", "a")]));
    world.apply(web());
    assert_eq!(names(&route(&world, "first").policy)[2], ["X-Of-Host"]);
    assert_eq!(names(&route(&world, "web").policy)[2], ["X-Powered-By"]);
}

#[test]
fn flags_of_cookies_act_where_the_fleet_allows_snippets() {
    let flags = |world: &World, name: &str| {
        let rules = route(world, name).policy.proxy_cookie_flags.map(|list| list.rules).unwrap_or_default();
        rules.into_iter().map(|it| format!("{} {}", it.cookie, it.flags.join(" "))).collect::<Vec<_>>()
    };
    let mut world = World::default();
    world.apply(allowed("true"));
    let first = ingress("first").at(1).annotation("server-snippet", "proxy_cookie_flags ~ secure;");
    world.apply(first.rule("a.test", &[("/", "a")]));
    let own = ingress("own").at(2).annotation("configuration-snippet", "proxy_cookie_flags one httponly;");
    world.apply(own.rule("a.test", &[("/own", "b")]));
    assert_eq!(flags(&world, "first"), ["~ secure"]);
    assert_eq!(flags(&world, "own"), ["one httponly"]);
    world.apply(allowed("false"));
    assert_eq!([flags(&world, "first"), flags(&world, "own")], [Vec::<String>::new(), Vec::new()]);
}

/// As `docs/examples/grpc` of ingress-nginx says it for streams of requests.
#[test]
fn a_wait_for_bodies_acts_where_the_fleet_allows_snippets() {
    let wait = |world: &World, name: &str| route(world, name).policy.client_body_timeout;
    let mut world = World::default();
    world.apply(allowed("true"));
    let text = "grpc_read_timeout \"1200s\"; grpc_send_timeout \"1200s\"; client_body_timeout \"1200s\";";
    let first = ingress("first").at(1).annotation("server-snippet", text);
    world.apply(first.annotation("backend-protocol", "GRPC").rule("a.test", &[("/", "a")]));
    let own = ingress("own").at(2).annotation("configuration-snippet", "client_body_timeout 5m;");
    world.apply(own.rule("a.test", &[("/own", "b")]));
    world.apply(ingress("other").at(3).rule("a.test", &[("/other", "b")]));
    let waits = ["first", "own", "other"].map(|name| wait(&world, name));
    assert_eq!(waits, [Some(1_200), Some(300), Some(1_200)]);
    let reasons = world.reasons("first");
    assert!(!reasons.iter().any(|it| it.contains("client_body_timeout")), "{reasons:?}");
    world.apply(allowed("false"));
    assert_eq!([wait(&world, "first"), wait(&world, "own")], [None, None]);
}

#[test]
fn a_folder_without_a_configmap_is_judged_as_one_whose_configmap_says_nothing_of_them() {
    let of = |data: Option<serde_json::Value>| {
        let mut world = World::with(Options { folder: true, ..options() });
        world.events(data.map(|data| applied(configmap(data))).into_iter().chain([applied(web())]));
        (world.routes().len(), world.reasons("web"))
    };
    let said = [of(None), of(Some(json!({}))), of(Some(json!({"ssl-redirect": "false"})))];
    assert!(said[0].0 == 0 && said[0].1[0].contains("annotations-risk-level"), "{said:?}");
    assert!(said[1] == said[0] && said[2] == said[0], "{said:?}");
    let open = json!({"allow-snippet-annotations": "true", "annotations-risk-level": "Critical"});
    assert_eq!(of(Some(open)).0, 1);
}

#[test]
fn what_is_answered_at_once_is_whoever_allows_snippets() {
    for said in ["true", "false"] {
        let mut world = World::default();
        world.events([
            applied(allowed(said)),
            applied(
                web()
                    .annotation("configuration-snippet", "if ($request_method = TRACE) { return 405; }")
                    .annotation("server-snippet", "location = /metrics { deny all; }"),
            ),
        ]);
        let Route { policy, denied, .. } = route(&world, "web");
        let shortcuts = policy.shortcuts.unwrap_or_default().shortcuts;
        assert_eq!((shortcuts.len(), denied), (1, None), "{said}");
        let Some(Resource::Host(host)) = world.get(Kind::Host, "a.test") else { panic!("no host") };
        let blocks = host.policy.shortcuts.unwrap_or_default().blocks;
        assert_eq!(blocks.iter().map(|it| it.path.as_str()).collect::<Vec<_>>(), ["/metrics"], "{said}");
        assert_eq!(world.problems_of("web"), Vec::<String>::new(), "{said}");
    }
}

/// Who may have no snippets does not send the requests of a host elsewhere.
#[test]
fn rewrites_act_where_the_fleet_allows_snippets() {
    let rewriting = || {
        web()
            .annotation("configuration-snippet", "rewrite ^/a(.*) /b$1 break; if ($arg_x) { return 403; }")
            .annotation(
                "server-snippet",
                "rewrite ^/c /d last; location /e { rewrite ^/e /f last; }
                 location /g { return 403; rewrite ^/g /h last; }",
            )
    };
    for (said, of_host, blocks, of_location) in [("true", 1, 2, 2), ("false", 0, 1, 1)] {
        let mut world = World::default();
        world.events([applied(allowed(said)), applied(rewriting())]);
        let Route { policy, denied, .. } = route(&world, "web");
        let count = |it: Option<Shortcuts>| it.map_or(0, |it| it.shortcuts.len());
        assert_eq!((count(policy.shortcuts), denied), (of_location, None), "{said}");
        let Some(Resource::Host(host)) = world.get(Kind::Host, "a.test") else { panic!("no host") };
        let all = host.policy.shortcuts.unwrap_or_default();
        assert_eq!((all.shortcuts.len(), all.blocks.len(), host.denied), (of_host, blocks, None), "{said}");
    }
}

/// Whether nginx redirects behind it depends on the new path.
#[test]
fn a_rewrite_without_a_flag_beside_a_redirect_denies() {
    let mut world = World::default();
    let redirecting = |text: &str| {
        web().annotation("permanent-redirect", "https://b.test").annotation("configuration-snippet", text)
    };
    world.events([applied(allowed("true")), applied(redirecting("rewrite ^/a /b;"))]);
    assert!(route(&world, "web").denied.is_some());
    world.apply(redirecting("rewrite ^/a /b last;"));
    assert_eq!(route(&world, "web").denied, None);
}

/// In nginx the groups of a declared path are lost behind a snippet's pattern.
#[test]
fn a_rewrite_beside_groups_of_the_declared_path_denies() {
    let mut world = World::default();
    let rewriting = || web().annotation("configuration-snippet", "rewrite ^/a(.*) /b$1 break;");
    world.events([applied(allowed("true")), applied(rewriting().annotation("upstream-vhost", "$1.test"))]);
    assert!(route(&world, "web").denied.is_some());
    let reasons = world.reasons("web");
    assert!(reasons.iter().any(|it| it.contains("\"rewrite\" could keep clients out")), "{reasons:?}");
    world.apply(rewriting().annotation("rewrite-target", "/$1"));
    assert_eq!(route(&world, "web").denied, None, "which is not reached behind it");
}

#[test]
fn tls_to_backends_is_set_where_there_is_no_secret() {
    let text = "proxy_ssl_name b.test; proxy_ssl_server_name on;";
    let tls = |world: &World, name: &str| {
        let Route { policy, denied, .. } = route(world, name);
        (policy.backend_tls.map(|it| (it.name, it.tells_name, it.material)), denied.is_some())
    };
    let secure = |name: &str, at| {
        ingress(name)
            .at(at)
            .rule("a.test", &[(&format!("/{name}"), "echo")])
            .annotation("backend-protocol", "HTTPS")
    };
    let said = Some(("b.test".to_owned(), true, String::new()));
    let mut world = World::default();
    world.events([
        applied(allowed("true")),
        applied(secure("web", 1).annotation("configuration-snippet", text)),
        applied(secure("plain", 2)),
    ]);
    assert_eq!((tls(&world, "web"), tls(&world, "plain")), ((said, false), (None, false)));
    assert_eq!(world.problems_of("web"), Vec::<String>::new());
    world.apply(allowed("false"));
    assert_eq!(tls(&world, "web"), (None, false));
    world.apply(allowed("true"));
    let own = secure("web", 1).annotation("configuration-snippet", text);
    world.apply(own.annotation("proxy-ssl-secret", "default/ca"));
    assert!(tls(&world, "web").1, "beside a Secret");
    world.apply(
        secure("web", 1).annotation("configuration-snippet", "proxy_ssl_name b.test; proxy_ssl_verify on;"),
    );
    assert!(tls(&world, "web").1, "without a CA nothing is verified");
}

/// `$host` is the name of a host that has one.
#[test]
fn the_name_of_the_host_is_told_to_backends_where_there_is_one() {
    let text = "proxy_ssl_server_name on; proxy_ssl_name $host;";
    let web = |host: &str| {
        let it = ingress("web").rule(host, &[("/", "echo")]).annotation("backend-protocol", "HTTPS");
        it.annotation("configuration-snippet", text)
    };
    let made =
        |world: &World, host: &str| match world.get(Kind::Route, &format!("ingress/default/web/{host}")) {
            Some(Resource::Route(it)) => {
                (it.policy.backend_tls.map(|it| (it.name, it.tells_name)), it.denied.is_some())
            }
            other => panic!("{other:?}"),
        };
    let mut world = World::default();
    world.events([applied(allowed("true")), applied(web("a.test").rule("b.test", &[("/", "echo")]))]);
    for host in ["a.test", "b.test"] {
        assert_eq!(made(&world, host), (Some((host.to_owned(), true)), false));
    }
    assert_eq!(world.problems_of("web"), Vec::<String>::new());
    for (several, host) in [
        (web("*.a.test"), "*.a.test"),
        (web(""), "_"),
        (web("a.test").annotation("server-alias", "c.test"), "a.test"),
    ] {
        world.apply(several);
        assert_eq!(made(&world, host), (None, true), "{host}");
        assert_eq!(world.problems_of("web"), ["unsupported spec.rules[0]"]);
    }
    world.apply(web("a.test").annotation("proxy-ssl-secret", "default/ca"));
    assert!(made(&world, "a.test").1, "beside a Secret");
}

/// Whoever misspells a variable is told which.
#[test]
fn a_variable_that_there_is_not_is_named() {
    let mut world = World::default();
    let text = "proxy_set_header X-Cn $ssl_client_s_dn_cn;";
    world.events([applied(allowed("true")), applied(web().annotation("configuration-snippet", text))]);
    let reasons = world.reasons("web");
    assert!(reasons[0].contains("\"proxy_set_header .. $ssl_client_s_dn_cn\""), "{reasons:?}");
}

/// Where a Secret's annotations say no name, nginx takes one of the snippet, for the paths of its Ingress alone.
#[test]
fn a_name_for_tls_to_backends_is_set_beside_a_secret() {
    let secure = |name: &str, at| {
        ingress(name)
            .at(at)
            .rule("a.test", &[(&format!("/{name}"), "echo")])
            .annotation("backend-protocol", "HTTPS")
    };
    let verified = |text: &str| {
        let own = secure("web", 1).annotation("configuration-snippet", text);
        own.annotation("proxy-ssl-secret", "default/ca").annotation("proxy-ssl-verify", "on")
    };
    let name = |world: &World| {
        let Route { policy, denied, .. } = route(world, "web");
        (policy.backend_tls.map(|it| (it.name, it.verify)), denied.is_some())
    };
    let of_host = |world: &World| match world.get(Kind::Host, "a.test") {
        Some(Resource::Host(it)) => it.policy.backend_tls.map(|it| it.name),
        _ => panic!("no host"),
    };
    let mut world = World::default();
    world.events([
        applied(allowed("true")),
        applied(authorities("ca")),
        applied(verified("proxy_ssl_name b.test;")),
        applied(secure("plain", 2)),
    ]);
    assert_eq!(name(&world), (Some(("b.test".into(), true)), false));
    assert_eq!(of_host(&world), Some(String::new()), "others have no such name");
    assert_eq!(world.problems_of("web"), Vec::<String>::new());
    world.apply(allowed("false"));
    assert_eq!(name(&world), (Some((String::new(), true)), false));
    world.apply(allowed("true"));
    for text in ["proxy_ssl_server_name on;", "proxy_ssl_name b.test; proxy_ssl_protocols TLSv1.2;"] {
        world.apply(verified(text));
        assert!(name(&world).1, "nginx refuses a second one: {text}");
    }
    world.apply(verified("proxy_ssl_name b.test;").annotation("proxy-ssl-name", "c.test"));
    assert!(name(&world).1, "nginx refuses a second one");
}

#[test]
fn tls_to_backends_is_set_for_all_locations_of_a_host() {
    let tls = |world: &World, name: &str| {
        let Route { policy, denied, .. } = route(world, name);
        (policy.backend_tls.map(|it| it.name), denied.is_some())
    };
    let at = |name: &str, at| ingress(name).at(at).rule("a.test", &[(&format!("/{name}"), "echo")]);
    let mut world = World::default();
    world.events([
        applied(allowed("true")),
        applied(
            at("first", 1).annotation("server-snippet", "proxy_ssl_name b.test; proxy_ssl_server_name on;"),
        ),
        applied(at("plain", 2)),
        applied(
            at("own", 3)
                .annotation("backend-protocol", "HTTPS")
                .annotation("configuration-snippet", "proxy_ssl_name c.test;"),
        ),
    ]);
    let said = || (Some("b.test".to_owned()), false);
    assert_eq!([tls(&world, "first"), tls(&world, "plain")], [said(), said()]);
    assert!(tls(&world, "own").1, "which of the two says what is not followed");
    assert!(world.reasons("own").iter().any(|it| it.contains("beside other settings")));
    for (protocol, is_denied) in [("HTTP", false), ("GRPC", false), ("GRPCS", true), ("AUTO_HTTP", true)] {
        let own = at("own", 3).annotation("backend-protocol", protocol);
        world.apply(own.annotation("configuration-snippet", "proxy_ssl_name c.test;"));
        assert_eq!(tls(&world, "own").1, is_denied, "{protocol}");
    }
    let secret = at("secret", 4).annotation("backend-protocol", "HTTPS");
    world.apply(secret.annotation("proxy-ssl-secret", "default/ca"));
    assert!(tls(&world, "secret").1);
    world.apply(allowed("false"));
    assert_eq!(tls(&world, "plain"), (None, false));
}

#[test]
fn the_first_server_snippet_of_a_host_counts() {
    let mut world = World::default();
    let with = |name: &str, at, text| {
        ingress(name)
            .at(at)
            .rule("a.test", &[(&format!("/{name}"), "echo")])
            .annotation("server-snippet", text)
    };
    world.events([
        applied(allowed("true")),
        applied(with("late", 2, "location = /late { return 403; }")),
        applied(with("early", 1, "add_header A b;")),
    ]);
    let shortcuts = |world: &World| match world.get(Kind::Host, "a.test") {
        Some(Resource::Host(host)) => host.policy.shortcuts,
        other => panic!("{other:?}"),
    };
    assert_eq!(shortcuts(&world), None);
    world.apply(with("early", 1, "return 403;"));
    assert_eq!(shortcuts(&world).unwrap().shortcuts.len(), 1);
    world.delete(ObjectKind::Ingress, "early");
    assert_eq!(shortcuts(&world).unwrap().blocks.len(), 1);
}

/// nginx' inner level hides the outer one, whomever it keeps out.
#[test]
fn location_that_admits_everybody_has_none_of_its_hosts_lists() {
    let mut world = World::default();
    let host =
        ingress("host").at(1).rule("a.test", &[("/", "echo")]).annotation("server-snippet", "deny all;");
    let open = |text| {
        let it = ingress("open").at(2).rule("a.test", &[("/open", "echo")]);
        it.annotation("configuration-snippet", text)
    };
    world.events([applied(allowed("true")), applied(host)]);
    for (text, denied) in [
        ("allow all;", vec![]),
        ("allow 10.0.0.1;", vec![]),
        ("deny 10.0.0.1; allow all;", vec!["10.0.0.1"]),
        ("satisfy all;", vec!["0.0.0.0/0", "::/0"]),
    ] {
        world.apply(open(text));
        let policy = route(&world, "open").policy;
        assert_eq!(policy.denylist_source_range.unwrap().values, denied, "{text}");
        assert_eq!(policy.lists_follow, (text != "satisfy all;").then_some(true), "{text}");
        assert_eq!(world.problems_of("open"), Vec::<String>::new(), "{text}");
    }
    assert_eq!(route(&world, "host").policy.denylist_source_range.unwrap().values, ["0.0.0.0/0", "::/0"]);
}

/// nginx inherits them into the locations that have none.
#[test]
fn lists_of_the_first_server_snippet_are_for_all_locations_without_their_own() {
    let lists = |world: &World, name: &str| {
        let policy = route(world, name).policy;
        [policy.allowlist_source_range, policy.denylist_source_range].map(|it| it.unwrap_or_default().values)
    };
    for said in ["true", "false"] {
        let mut world = World::default();
        let snippet = |text| {
            let it = ingress("first").at(1).rule("a.test", &[("/first", "echo")]);
            it.annotation("server-snippet", text)
        };
        let own = ingress("own").at(2).rule("a.test", &[("/own", "echo")]);
        world.events([
            applied(allowed(said)),
            applied(snippet("deny 10.0.0.1; allow 10.0.0.0/8; deny all;")),
            applied(own.annotation("denylist-source-range", "10.0.0.2")),
            applied(ingress("plain").at(3).rule("a.test", &[("/plain", "echo")])),
        ]);
        for name in ["first", "plain"] {
            assert_eq!(lists(&world, name), [vec!["10.0.0.0/8"], vec!["10.0.0.1"]], "{name}");
        }
        assert_eq!(lists(&world, "own"), [vec![], vec!["10.0.0.2"]]);
        assert_eq!(world.problems_of("first"), Vec::<String>::new(), "{said}");
        world.apply(snippet("deny all;"));
        assert_eq!(lists(&world, "plain")[1], ["0.0.0.0/0", "::/0"]);
        world.apply(snippet("allow 10.0.0.1;"));
        assert_eq!(lists(&world, "plain"), [const { Vec::<String>::new() }; 2], "nobody is kept out");
        let Some(Resource::Host(host)) = world.get(Kind::Host, "a.test") else { panic!("no host") };
        assert_eq!(host.denied, None);
        world.apply(snippet("allow 10.0.0.0/8; deny 10.0.0.1;"));
        let Some(Resource::Host(host)) = world.get(Kind::Host, "a.test") else { panic!("no host") };
        assert!(host.denied.is_some(), "what cannot be expressed is not ignored");
    }
}

/// A directive that could restrict access denies access, whatever is allowed.
#[test]
fn what_restricts_answers_503_beside_headers_too() {
    for said in ["true", "false"] {
        let mut world = World::default();
        world.events([
            applied(allowed(said)),
            applied(web().annotation("configuration-snippet", &format!("{LOCATION}auth_request /a;"))),
        ]);
        let Route { policy, denied, .. } = route(&world, "web");
        assert!(denied.is_some() && names(&policy) == NOTHING, "{said}");
    }
}

/// One server-snippet applies to the whole host, in addition to its locations' snippets.
#[test]
fn the_first_server_snippet_is_the_host_s() {
    let mut world = World::default();
    let first = ingress("first").at(1).rule("a.test", &[("/first", "echo")]);
    let second = ingress("second").at(2).rule("a.test", &[("/second", "echo")]);
    world.events([
        applied(allowed("true")),
        applied(web().at(3)),
        applied(first.annotation("server-snippet", "more_set_headers 'X-First: 1';")),
        applied(second.annotation("server-snippet", "more_set_headers 'X-Second: 1';")),
    ]);
    for (ingress, own) in [("first", vec![]), ("second", vec![]), ("web", vec!["X-Frame-Options"])] {
        let policy = route(&world, ingress).policy;
        assert_eq!(names(&policy)[0], own, "{ingress}");
        let of_host = policy.host_header_changes.unwrap_or_default().changes;
        assert_eq!(of_host.iter().map(|it| &*it.name).collect::<Vec<_>>(), ["X-First"], "{ingress}");
    }
}

/// Headers of the authentication request follow those of auth-proxy-set-headers.
#[test]
fn an_auth_snippet_sets_headers_of_the_question() {
    let mut world = World::default();
    let web =
        ingress("web").rule("a.test", &[("/", "echo")]).annotation("auth-url", "http://auth.test/check");
    world.events([
        applied(allowed("true")),
        applied(web.annotation("auth-snippet", "proxy_set_header X-Forwarded-Host $http_host;")),
    ]);
    let external = route(&world, "web").policy.external_auth.unwrap();
    assert_eq!(external.proxy_set_headers[0].name, "X-Forwarded-Host");
    assert_eq!(world.problems_of("web"), Vec::<String>::new());
    world.apply(allowed("false"));
    assert!(route(&world, "web").policy.external_auth.unwrap().proxy_set_headers.is_empty());
}

/// Whoever allows snippets: a refusal is a restriction, what lets in is none.
#[test]
fn refusals_of_an_auth_snippet_stay_without_what_lets_in() {
    let text = "if ($host = a.test) { return 401; } if ($host = b.test) { return 403; } if ($host = c.test) { return 204; }";
    let web =
        ingress("web").rule("a.test", &[("/", "echo")]).annotation("auth-url", "http://auth.test/check");
    let mut world = World::default();
    world.events([applied(allowed("true")), applied(web.annotation("auth-snippet", text))]);
    let answers = |world: &World| {
        let external = route(world, "web").policy.external_auth.unwrap();
        let answers = external.answers.map(|it| it.shortcuts).unwrap_or_default();
        answers.into_iter().map(|it| it.status).collect::<Vec<_>>()
    };
    assert_eq!(answers(&world), [401, 403, 204], "{:?}", world.reasons("web"));
    world.apply(allowed("false"));
    assert_eq!(answers(&world), [401, 403]);
}

#[test]
fn what_is_left_out_is_named() {
    let mut world = World::default();
    let text = "add_header X-A b; gzip on; if ($scheme = http) { etag off; }";
    world.events([applied(allowed("true")), applied(web().annotation("configuration-snippet", text))]);
    assert!(world.reasons("web").contains(&"not honoured yet: etag and gzip of it are left out".into()));
    let text = "error_page 403 = @out; location @out { proxy_pass https://out.test/; }";
    world.apply(ingress("web").rule("a.test", &[("/", "echo")]).annotation("server-snippet", text));
    let reason = "not honoured yet: error_page and location @out of it are left out";
    assert!(world.reasons("web").contains(&reason.into()), "{:?}", world.reasons("web"));
}

/// As nginx inherits them.
#[test]
fn answers_in_place_of_errors_are_those_of_the_host_or_the_location() {
    let mut world = World::default();
    world.apply(allowed("true"));
    let text = "error_page 401 = @in; location @in { return 302 https://in.test/; }";
    let first = || ingress("first").at(1).rule("a.test", &[("/", "a")]);
    world.apply(first().annotation("server-snippet", text));
    let text = "error_page 403 https://no.test/;";
    let own = ingress("own").at(2).rule("a.test", &[("/own", "b")]).annotation("configuration-snippet", text);
    world.apply(own);
    let errors = |world: &World, name: &str| {
        let LocationPolicy { error_answers, host_error_answers, .. } = route(world, name).policy;
        [error_answers, host_error_answers]
            .map(|list| list.into_iter().flat_map(|it| it.answers).map(|it| it.error).collect::<Vec<_>>())
    };
    assert_eq!(errors(&world, "first"), [vec![], vec![401]]);
    assert_eq!(errors(&world, "own"), [vec![403], vec![401]]);
    assert_eq!([world.problems_of("first"), world.problems_of("own")], [const { Vec::<String>::new() }; 2]);
    // Beside pages of annotations, and with backends' errors.
    let page = "proxy_intercept_errors on; error_page 403 404 =200 /index.html;";
    let own = ingress("own").at(2).rule("a.test", &[("/own", "b")]).annotation("configuration-snippet", page);
    let signs_in =
        own.annotation("auth-url", "https://in.test/").annotation("auth-signin", "https://in.test/");
    world.apply(signs_in);
    assert_eq!(errors(&world, "own"), [vec![403, 404], vec![401]]);
    assert_eq!(world.problems_of("own"), Vec::<String>::new());
    let intercepts = |world: &World, name: &str| {
        let LocationPolicy { intercept_errors, host_intercept_errors, .. } = route(world, name).policy;
        (intercept_errors, host_intercept_errors)
    };
    assert_eq!(intercepts(&world, "own"), (Some(true), None));
    world.apply(first().annotation("server-snippet", "proxy_intercept_errors on; error_page 404 /a;"));
    assert_eq!(
        (errors(&world, "own"), intercepts(&world, "own")),
        ([vec![403, 404], vec![404]], (Some(true), Some(true)))
    );
    world.apply(allowed("false"));
    for name in ["first", "own"] {
        assert_eq!(errors(&world, name), [const { Vec::<u32>::new() }; 2], "{name}");
        assert_eq!(intercepts(&world, name), (None, None), "{name}");
    }
}

/// As for several origins of CORS, and for tenants by their names.
#[test]
fn headers_may_have_variables_that_an_if_sets() {
    let mut world = World::default();
    world.apply(allowed("true"));
    let text = "if ($http_origin ~ '^https://(.+)[.]a[.]test$') { set $origin $http_origin; set $tenant $1; }
        add_header Access-Control-Allow-Origin $origin; proxy_set_header X-Tenant $tenant;";
    world.apply(web().annotation("configuration-snippet", text));
    assert_eq!(world.problems_of("web"), Vec::<String>::new());
    let names = |world: &World| -> Vec<String> {
        let variables = route(world, "web").policy.variables;
        variables.into_iter().flat_map(|it| it.variables).map(|it| it.name).collect()
    };
    assert_eq!(names(&world), ["origin", "tenant"]);
    let of_host = "set $v a; if ($arg_v) { set $v $arg_v; } add_header X-V $v;";
    world.apply(web().annotation("server-snippet", of_host));
    assert_eq!(world.problems_of("web").len(), 1, "{:?}", world.problems_of("web"));
    let of_host = of_host.replace("arg_v", "http_v");
    world.apply(web().annotation("server-snippet", &of_host));
    assert_eq!(world.problems_of("web"), Vec::<String>::new());
    let policy = route(&world, "web").policy;
    assert_eq!((policy.variables, policy.host_variables.unwrap().variables.len()), (None, 1));
    world.apply(web().annotation("configuration-snippet", text));
    world.apply(allowed("false"));
    assert_eq!(names(&world), [""; 0]);
}

/// Whoever may have snippets: it keeps clients out.
#[test]
fn a_location_may_be_internal() {
    let mut world = World::default();
    for allows in ["true", "false"] {
        world.apply(allowed(allows));
        world.apply(web().annotation("configuration-snippet", "internal;"));
        assert_eq!(route(&world, "web").policy.internal, Some(true), "{allows}");
        assert_eq!(world.problems_of("web"), Vec::<String>::new(), "{allows}");
    }
}

/// Whom addresses of clients are taken from, likewise.
#[test]
fn peers_are_those_of_the_host_and_the_location() {
    let mut world = World::default();
    world.apply(allowed("true"));
    let first = ingress("first").at(1).annotation("server-snippet", "real_ip_header CF-Connecting-IP;");
    world.apply(first.rule("a.test", &[("/", "a")]));
    let text = "set_real_ip_from 10.0.0.0/8; real_ip_recursive on;";
    let own = ingress("own").at(2).annotation("configuration-snippet", text);
    world.apply(own.rule("a.test", &[("/own", "b")]));
    let said = |world: &World| {
        let LocationPolicy { host_real_ip, own_real_ip, .. } = route(world, "own").policy;
        (host_real_ip.map(|it| it.header), own_real_ip.map(|it| (it.trusted, it.recursive)))
    };
    let trusted = vec!["10.0.0.0/8".to_owned()];
    assert_eq!(said(&world), (Some("CF-Connecting-IP".to_owned()), Some((trusted, Some(true)))));
    assert_eq!([world.problems_of("first"), world.problems_of("own")], [const { Vec::<String>::new() }; 2]);
    world.apply(allowed("false"));
    assert_eq!(said(&world), (None, None));
    let text = "real_ip_header proxy_protocol;";
    world.apply(
        ingress("own").at(2).rule("a.test", &[("/own", "b")]).annotation("configuration-snippet", text),
    );
    assert!(route(&world, "own").denied.is_some());
}

/// A client cannot set the header, asked or not.
#[test]
fn a_token_of_the_authentication_is_told_between_other_text() {
    let mut world = World::default();
    let text =
        "auth_request_set $token $upstream_http_x_token; proxy_set_header Authorization \"Bearer $token\";";
    let web = || ingress("web").rule("a.test", &[("/", "echo")]).annotation("configuration-snippet", text);
    let asks = web().annotation("auth-url", "http://auth.test/check");
    world.events([applied(allowed("true")), applied(asks)]);
    let told = route(&world, "web").policy.external_auth.unwrap().told_within.remove(0);
    let parts = [&*told.name, &*told.header, &*told.before, &*told.after];
    assert_eq!(parts, ["Authorization", "x-token", "Bearer ", ""]);
    assert_eq!(world.problems_of("web"), Vec::<String>::new());
    world.apply(allowed("false"));
    assert_eq!(route(&world, "web").policy.external_auth.unwrap().told_within, []);
    world.apply(allowed("true"));
    world.apply(web());
    let Header { name, value } = route(&world, "web").policy.request_headers.unwrap().headers.remove(0);
    assert_eq!([&*name, &*value], ["Authorization", ""]);
}

#[test]
fn what_has_no_effect_in_nginx_either_is_not_called_left_out() {
    let reasons = |annotations: &[(&str, &str)]| {
        let mut world = World::default();
        world.apply(allowed("true"));
        let one = ingress("web").rule("a.test", &[("/", "echo")]);
        world.apply(annotations.iter().fold(one, |it, (name, text)| it.annotation(name, text)));
        assert!(route(&world, "web").denied.is_none());
        let mut reasons = world.reasons("web");
        reasons.retain(|it| !it.contains("does not exist"));
        reasons
    };
    let keys = "proxy_cache_key $host; proxy_cache_lock on;";
    assert_eq!(reasons(&[("configuration-snippet", keys)]), Vec::<String>::new());
    let cached = [("configuration-snippet", keys), ("server-snippet", "proxy_cache all;")];
    assert_eq!(reasons(&cached).len(), 2, "each says what is left out");
    let signs_in = [
        ("auth-url", "https://vouch.test/validate"),
        ("auth-signin", "https://vouch.test/login?error=$err"),
        ("auth-snippet", "auth_request_set $err $upstream_http_x_err;"),
    ];
    let told = reasons(&signs_in);
    assert!(told.iter().any(|it| it.contains("\"$err\" is empty, as in ingress-nginx")), "{told:?}");
    assert!(told.iter().all(|it| !it.contains("no value here")), "{told:?}");
}

/// Whoever allows snippets. Where a zone is missing, nobody is let in.
#[test]
fn limits_act_where_the_fleet_has_their_zones() {
    let of_fleet =
        |zones: &str| configmap(json!({"http-snippet": zones, "annotations-risk-level": "Critical"}));
    let limits = |world: &World, name: &str| {
        let Route { policy, denied, .. } = route(world, name);
        let lists = policy.limit_requests.into_iter().chain(policy.limit_in_progress);
        let limits = lists.flat_map(|it| it.limits);
        let line =
            |it: shared::policy::ZoneLimit| format!("{} {} {}/{}", it.zone, it.key, it.requests, it.seconds);
        (limits.map(line).collect::<Vec<_>>(), denied.is_some())
    };
    let mut world = World::default();
    world.apply(of_fleet("limit_req_zone $binary_remote_addr zone=a:1m rate=5r/m;"));
    let first = ingress("first").at(1).annotation("server-snippet", "limit_req zone=a burst=3;");
    world.apply(first.rule("a.test", &[("/", "a")]));
    let own = ingress("own").at(2).annotation("configuration-snippet", "limit_req zone=b; limit_conn c 1;");
    world.apply(own.rule("a.test", &[("/own", "b")]));
    assert_eq!(limits(&world, "first"), (vec!["a $binary_remote_addr 5/60".to_owned()], false));
    assert_eq!(world.problems_of("first"), Vec::<String>::new());
    assert_eq!(
        limits(&world, "own"),
        (vec!["a $binary_remote_addr 5/60".to_owned()], true),
        "those of the host"
    );
    assert!(world.reasons("own")[0].contains("no zone \"b\" is defined"), "{:?}", world.reasons("own"));

    world.apply(of_fleet(
        "limit_req_zone $host zone=b:1m rate=1r/s; limit_conn_zone $host zone=c:1m; limit_req_zone $host zone=a:1m rate=1r/s;",
    ));
    assert_eq!(limits(&world, "first"), (vec!["a $host 1/1".to_owned()], false));
    assert_eq!(limits(&world, "own"), (vec!["b $host 1/1".to_owned(), "c $host 0/0".to_owned()], false));
    assert_eq!(world.problems_of("own"), Vec::<String>::new());

    // Others follow the first one's snippet.
    let other = ingress("other").at(3).rule("a.test", &[("/other", "c")]);
    world.apply(other);
    assert_eq!(limits(&world, "other"), (vec!["a $host 1/1".to_owned()], false));
    for (snippet, zones) in [("limit_req zone=b;", &["b $host 1/1"][..]), ("limit_req_status 429;", &[])] {
        let first = ingress("first").at(1).annotation("server-snippet", snippet);
        world.apply(first.rule("a.test", &[("/", "a")]));
        assert_eq!(limits(&world, "other").0, zones, "{snippet}");
    }
    let first = ingress("first").at(1).annotation("server-snippet", "limit_req zone=a burst=3;");
    world.apply(first.rule("a.test", &[("/", "a")]));

    world.apply(of_fleet(""));
    let Some(Resource::Host(host)) = world.get(Kind::Host, "a.test") else { panic!("no host") };
    assert!(host.denied.is_some() && limits(&world, "own").1);
    let none = (vec![], true);
    assert_eq!(
        (limits(&world, "first").0, limits(&world, "own")),
        (none.0.clone(), none),
        "no limit without a key"
    );
}

/// A name that nobody has verified is not told to a backend, and nginx matches a pattern last where it rewrites.
#[test]
fn users_and_groups_are_in_headers_where_they_have_a_value() {
    let mut world = World::default();
    world.apply(allowed("true"));
    let with = |annotations: &[(&str, &str)]| {
        let snippet = "proxy_set_header X-User $remote_user; more_set_headers \"X-Group: $1\";";
        let one =
            ingress("web").rule("a.test", &[("/(.*)", "echo")]).annotation("configuration-snippet", snippet);
        annotations.iter().fold(one, |it, (name, text)| it.annotation(name, text))
    };
    let (basic, secret, rewrite) =
        (("auth-type", "basic"), ("auth-secret", "users"), ("rewrite-target", "/$1"));
    world.apply(with(&[basic, secret, rewrite]));
    assert_eq!(names(&route(&world, "web").policy), [vec!["X-Group"], vec!["X-User"], vec![]]);
    for annotations in [&[rewrite][..], &[("auth-type", "digest"), secret, rewrite]] {
        world.apply(with(annotations));
        assert!(route(&world, "web").denied.is_some(), "{annotations:?}");
        assert_eq!(names(&route(&world, "web").policy), NOTHING, "{annotations:?}");
    }
    world.apply(with(&[basic, secret]));
    assert!(
        world.reasons("web").iter().any(|it| it.contains("more_set_headers")),
        "{:?}",
        world.reasons("web")
    );
}

/// They act whoever allows snippets, without what they say of headers.
#[test]
fn headers_of_an_if_act_where_the_fleet_allows_snippets() {
    let snippet =
        "if ($request_method = OPTIONS) { add_header A b; return 204; } if ($arg_a) { add_header A c; }";
    for (said, count, headers) in [("true", 2, true), ("false", 1, false)] {
        let mut world = World::default();
        world.events([applied(allowed(said)), applied(web().annotation("configuration-snippet", snippet))]);
        let all = route(&world, "web").policy.shortcuts.unwrap_or_default().shortcuts;
        assert_eq!((all.len(), all[0].header_changes.is_some()), (count, headers), "{said}");
        assert_eq!(world.problems_of("web").is_empty(), headers, "{said}");
    }
}
