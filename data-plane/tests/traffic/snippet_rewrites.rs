//! Rewrites of snippets after which a request goes on: `rewrite .. last` and `rewrite .. break`.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use shared::policy::{
    HostPolicy, LocationPolicy, Shortcut, ShortcutBlock, ShortcutComparison, ShortcutPath, ShortcutRewrite,
    ShortcutTest, Shortcuts, TextList,
};
use shared::resource::{Backend, Host, PathType, Resource, Route};

use super::harness::*;

fn rewrites(pattern: &str, text: &str, rewrite: ShortcutRewrite) -> Shortcut {
    Shortcut {
        pattern: Some(pattern.into()),
        text: Some(text.into()),
        rewrite: Some(rewrite.into()),
        ..Shortcut::default()
    }
}

fn last(pattern: &str, text: &str) -> Shortcut {
    rewrites(pattern, text, ShortcutRewrite::Last)
}

fn breaks(pattern: &str, text: &str) -> Shortcut {
    rewrites(pattern, text, ShortcutRewrite::Break)
}

fn next(pattern: &str, text: &str) -> Shortcut {
    rewrites(pattern, text, ShortcutRewrite::Next)
}

fn refuses_uri(value: &str) -> Shortcut {
    let comparison = Some(ShortcutComparison::Finds.into());
    let test = ShortcutTest { subject: "$uri".into(), comparison, value: value.into() };
    Shortcut { status: 403, tests: vec![test], ..Shortcut::default() }
}

fn plain(shortcuts: Vec<Shortcut>) -> Option<Shortcuts> {
    Some(Shortcuts { shortcuts, blocks: Vec::new() })
}

fn location(shortcuts: Vec<Shortcut>) -> LocationPolicy {
    LocationPolicy { shortcuts: plain(shortcuts), ..LocationPolicy::default() }
}

fn shut() -> LocationPolicy {
    let all = TextList { values: vec!["0.0.0.0/0".into(), "::/0".into()] };
    LocationPolicy { denylist_source_range: Some(all), ..LocationPolicy::default() }
}

/// a.test with an Ingress for each path.
fn serving(of_host: Option<Shortcuts>, paths: &[(&str, LocationPolicy)], origin: &Origin) -> Proxy {
    let mut proxy = Proxy::start();
    let regex = paths.iter().any(|(_, policy)| policy.rewrite_target.is_some()).then_some(true);
    let policy = HostPolicy { shortcuts: of_host, regex, ..HostPolicy::default() };
    proxy.config(vec![("a.test", Resource::Host(Host { policy, ..Host::default() }))]);
    for (number, (path, policy)) in paths.iter().enumerate() {
        let paths = vec![to(path, PathType::Prefix, "echo")];
        let route = Route { paths, policy: policy.clone(), ..Route::default() };
        proxy.config(vec![(&format!("ingress/ns/i{number}/a.test"), Resource::Route(route))]);
    }
    proxy.service("echo", Backend::default());
    proxy.endpoints("echo", &[origin.address]);
    proxy
}

/// What the origin got, or the status of the answer.
fn outcome(proxy: &Proxy, origin: &Origin, target: &str) -> String {
    let before = origin.seen().len();
    let answer = Client::new(proxy.http).get(target);
    match origin.seen().get(before) {
        Some(seen) => seen.line().trim_start_matches("GET ").trim_end_matches(" HTTP/1.1").to_owned(),
        None => answer.status.to_string(),
    }
}

#[test]
fn a_host_rewrites_before_its_location_is_looked_up() {
    let origin = Origin::says("here");
    let of_host = plain(vec![
        last("^/.well-known/host-meta", "/public.php?service=host-meta"),
        last("^/.well-known/caldav$", "/remote.php/dav"),
        breaks("^/old/(.*)$", "/new/$1?"),
        last("^/q/(.*)$", "/index.php?r=$1"),
        last("^/to-shut", "/shut/x"),
        last("^/root$", "/"),
    ]);
    let root = LocationPolicy { app_root: Some("/app".into()), ..LocationPolicy::default() };
    let proxy = serving(of_host, &[("/", root), ("/shut", shut())], &origin);
    for (sent, expected) in [
        ("/.well-known/host-meta", "/public.php?service=host-meta"),
        ("/.well-known/host-meta?x=1&y", "/public.php?service=host-meta&x=1&y"),
        ("/.well-known/caldav?x=1", "/remote.php/dav?x=1"),
        ("/.well-known/caldavs", "/.well-known/caldavs"),
        ("/old/a%20b/%C3%A9?x=1", "/new/a%20b/%C3%A9"),
        ("/q/a&b=c", "/index.php?r=a&b=c"),
        ("/q/a&b=c%20d", "/index.php?r=a%26b=c%20d"),
        ("/q/a+b&c/d?e", "/index.php?r=a%2Bb%26c/d&e"),
        ("/q/a%0dX:%20y", "/index.php?r=a%0DX:%20y"),
        ("/shut/y", "403"),
        ("/to-shut", "403"),
        ("/%74o-shut", "403"),
        ("/", "302"),
        ("/root", "/"),
    ] {
        assert_eq!(outcome(&proxy, &origin, sent), expected, "{sent}");
    }
}

/// One without a flag: what follows it sees the new path.
#[test]
fn a_host_goes_on_behind_a_rewrite_without_a_flag() {
    let origin = Origin::says("here");
    let of_host = plain(vec![
        next("^/one(.*)$", "/two$1?x"),
        next("^/home$", "/"),
        refuses_uri("^/two/closed"),
        next("^/two/(.*)$", "/three/$1?y"),
        last("^/three/last", "/four"),
        next("^/four", "/five"),
    ]);
    let root = LocationPolicy { app_root: Some("/app".into()), ..LocationPolicy::default() };
    let proxy = serving(of_host, &[("/", root), ("/three/shut", shut())], &origin);
    for (sent, expected) in [
        ("/one", "/two?x"),
        ("/one/a?z", "/three/a?y&x&z"),
        ("/one/closed", "403"),
        ("/one/shut", "403"),
        ("/two/last", "/four?y"),
        ("/four", "/five"),
        ("/home", "302"),
        ("/other", "/other"),
    ] {
        assert_eq!(outcome(&proxy, &origin, sent), expected, "{sent}");
    }
}

/// Whatever leads to a path, the rules of its own location are those that count.
#[test]
fn a_location_sends_requests_to_another_one_with_its_rules() {
    let origin = Origin::says("here");
    let open = location(vec![
        last("^/open(/.*)?$", "/shut$1"),
        last("^/far$", "/other/far"),
        last("^/to-inner$", "/inner"),
    ]);
    let inner = LocationPolicy { internal: Some(true), ..LocationPolicy::default() };
    let other = LocationPolicy { upstream_vhost: Some("other.test".into()), ..LocationPolicy::default() };
    let closed = LocationPolicy { shortcuts: plain(vec![last("^/door", "/other")]), ..shut() };
    let paths = [("/", open), ("/shut", shut()), ("/other", other), ("/door", closed), ("/inner", inner)];
    let proxy = serving(None, &paths, &origin);
    let mut client = Client::new(proxy.http);
    for (sent, expected) in [
        ("/x", "/x"),
        ("/open", "403"),
        ("/open/x?y", "403"),
        ("/far?x=1", "/other/far?x=1"),
        // Its own list comes behind the rewrite (nginx).
        ("/door", "/other"),
        ("/shut", "403"),
        ("/to-inner", "/inner"),
        ("/inner", "404"),
    ] {
        assert_eq!(outcome(&proxy, &origin, sent), expected, "{sent}");
    }
    client.get("/far");
    assert_eq!(origin.seen().last().unwrap().all("host"), ["other.test"]);
}

/// Another location is looked up when all that its snippet says was done, unless something ends it before.
#[test]
fn a_location_goes_on_behind_a_rewrite_without_a_flag() {
    let origin = Origin::says("here");
    let open = location(vec![
        next("^/one(/.*)?$", "/two$1?x"),
        refuses_uri("^/two/closed"),
        next("^/two/(.*)$", "/other/$1?y"),
        breaks("^/other/stay$", "/stays"),
        last("^/other/leave", "/shut"),
        next("^/loop", "/loop"),
    ]);
    let other = LocationPolicy { upstream_vhost: Some("other.test".into()), ..LocationPolicy::default() };
    let proxy = serving(None, &[("/", open), ("/shut", shut()), ("/other", other)], &origin);
    for (sent, expected) in [
        ("/x", "/x"),
        ("/one", "/two?x"),
        ("/one/a?z", "/other/a?y&x&z"),
        ("/one/closed", "403"),
        ("/one/stay", "/stays?y&x"),
        ("/one/leave", "403"),
        ("/two/..%2fshut", "403"),
        ("/loop", "500"),
    ] {
        assert_eq!(outcome(&proxy, &origin, sent), expected, "{sent}");
    }
    let mut client = Client::new(proxy.http);
    for (sent, host) in [("/one/a", "other.test"), ("/one/stay", "a.test")] {
        client.get(sent);
        assert_eq!(origin.seen().last().unwrap().all("host"), [host], "{sent}");
    }
}

/// `rewrite-target` is one that breaks off, if it fits the new path.
#[test]
fn a_rewrite_target_follows_a_rewrite_without_a_flag() {
    let origin = Origin::says("here");
    let own = LocationPolicy {
        rewrite_target: Some("/target/$1".into()),
        ..location(vec![next("^/app/old/(.*)$", "/app/new/$1"), next("^/app/far$", "/shut")])
    };
    let proxy = serving(None, &[("/app/(.*)", own), ("/shut", shut())], &origin);
    for (sent, expected) in [
        ("/app/x", "/target/x"),
        ("/app/old/x?y", "/target/new/x?y"),
        ("/app/far", "403"),
        ("/app/old/..%252fx", "400"),
    ] {
        assert_eq!(outcome(&proxy, &origin, sent), expected, "{sent}");
    }
}

/// Nexus behind two of its repositories.
#[test]
fn a_block_of_a_host_sends_requests_to_a_location() {
    let origin = Origin::says("here");
    let is_post = ShortcutTest {
        subject: "$request_method".into(),
        comparison: Some(ShortcutComparison::FindsAnyCase.into()),
        value: "(POST|HEAD)".into(),
    };
    let block = |kind: ShortcutPath, path: &str, shortcuts: Vec<Shortcut>| ShortcutBlock {
        kind: Some(kind.into()),
        path: path.into(),
        shortcuts,
    };
    let closed = Shortcut { status: 403, ..Shortcut::default() };
    let of_host = Shortcuts {
        shortcuts: vec![last("^/to-v2/(.*)", "/v2/$1/blobs/")],
        blocks: vec![
            block(
                ShortcutPath::Pattern,
                "^/(v1|v2)/.*/blobs/",
                vec![
                    refuses_uri("/secret/"),
                    Shortcut { tests: vec![is_post], ..last("^/(.*)$", "/private/$1") },
                    next("^/(.*)$", "/group/$1"),
                ],
            ),
            block(
                ShortcutPath::Prefix,
                "/group/v1/",
                vec![next("^/group/v1/(.*)$", "/shut/$1"), last("/no", "/no")],
            ),
            block(ShortcutPath::Prefix, "/some/", vec![last("^/some/a", "/a"), closed]),
        ],
    };
    let moves = location(vec![last("^/in/(.*)", "/v2/$1/blobs/x")]);
    let proxy = serving(
        Some(of_host),
        &[("/", LocationPolicy::default()), ("/in", moves), ("/shut", shut())],
        &origin,
    );
    for (sent, expected) in [
        ("/v2/a", "/v2/a"),
        ("/v2/a/blobs/b?c", "/group/v2/a/blobs/b?c"),
        ("/v1/a/blobs/b", "403"),
        ("/v2/secret/blobs/", "403"),
        ("/to-v2/a", "/group/v2/a/blobs/"),
        ("/in/a", "/group/v2/a/blobs/x"),
        ("/some/a", "/a"),
        ("/some/b", "403"),
    ] {
        assert_eq!(outcome(&proxy, &origin, sent), expected, "{sent}");
    }
    Client::new(proxy.http).ask("POST /v2/a/blobs/b HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n");
    assert!(origin.seen().last().unwrap().line().contains(" /private/v2/a/blobs/b "));
}

/// What comes before the rewrite in nginx answers before it here.
#[test]
fn what_comes_before_a_rewrite_is_not_got_around() {
    let origin = Origin::says("here");
    let of_host = Shortcuts {
        shortcuts: vec![refuses_uri("^/secret")],
        blocks: vec![ShortcutBlock {
            kind: Some(ShortcutPath::Prefix.into()),
            path: "/block/".into(),
            shortcuts: vec![Shortcut { status: 404, ..Shortcut::default() }],
        }],
    };
    let everything = LocationPolicy {
        enable_cors: Some(true),
        proxy_body_size: Some(10),
        ..location(vec![refuses_uri("^/mine"), last("^/(secret|block|mine|big|to-block)(.*)$", "/block/$1")])
    };
    let proxy = serving(Some(of_host), &[("/", everything)], &origin);
    let mut client = Client::new(proxy.http);
    for (sent, status) in [("/secret", 403), ("/%73ecret", 403), ("/block/x", 404), ("/mine", 403)] {
        assert_eq!(client.get(sent).status, status, "{sent}");
    }
    assert_eq!(client.get("/to-block").status, 404, "the block of the rewritten path");
    let big = client.ask("POST /big HTTP/1.1\r\nHost: a.test\r\nContent-Length: 11\r\n\r\n12345678901");
    assert_eq!(big.status, 413);
    let mut client = Client::new(proxy.http);
    let preflight =
        client.ask("OPTIONS /to-block HTTP/1.1\r\nHost: a.test\r\nOrigin: https://b.test\r\n\r\n");
    assert_eq!(preflight.status, 204);
    assert!(origin.seen().is_empty());
}

#[test]
fn a_break_stays_in_its_location() {
    let origin = Origin::says("here");
    let own = LocationPolicy {
        rewrite_target: Some("/target/$1".into()),
        ..location(vec![
            breaks("^/app/(v[0-9])/(.*)$", "/$2?v=$1"),
            breaks("^/app/none$", "/shut"),
            breaks("^/app/up$", "/../up"),
            breaks("^/app/to$", "/to/$arg_file"),
            breaks("^/app/blank$", "/blank?x=a b"),
        ])
    };
    let proxy = serving(None, &[("/app/(.*)", own), ("/shut", shut())], &origin);
    for (sent, expected) in [
        ("/app/x?y", "/target/x?y"),
        ("/app/v2/x/y?z=1", "/x/y?v=v2&z=1"),
        ("/app/v2/x%3Fy", "/x%3Fy?v=v2"),
        ("/app/v2//x", "/x?v=v2"),
        ("/app/none", "/shut"),
        ("/app/v2/..%252f", "400"),
        // Its owner wrote that, and no client.
        ("/app/up", "/../up"),
        ("/app/to?file=x", "/to/x?file=x"),
        ("/app/to?file=../../shut", "400"),
        ("/app/blank", "/blank?x=a%20b"),
    ] {
        assert_eq!(outcome(&proxy, &origin, sent), expected, "{sent}");
    }
}

#[test]
fn a_break_comes_before_a_redirect_of_its_location() {
    let origin = Origin::says("here");
    let policy = LocationPolicy {
        permanent_redirect: Some("https://new.test/".into()),
        ..location(vec![breaks("^/stay", "/stays")])
    };
    let proxy = serving(None, &[("/", policy)], &origin);
    assert_eq!(outcome(&proxy, &origin, "/stay"), "/stays");
    assert_eq!(outcome(&proxy, &origin, "/go"), "301");
}

#[test]
fn locations_send_a_request_on_ten_times_at_most() {
    let origin = Origin::says("here");
    let policy = location(vec![last("^/loop", "/loop"), last("^/n(x*)x$", "/n$1")]);
    let proxy = serving(None, &[("/", policy)], &origin);
    assert_eq!(outcome(&proxy, &origin, "/loop"), "500");
    assert_eq!(outcome(&proxy, &origin, &format!("/n{}", "x".repeat(10))), "/n");
    assert_eq!(outcome(&proxy, &origin, &format!("/n{}", "x".repeat(11))), "500");
}

/// A rewritten path that its backend could read as another location's goes nowhere, and neither does one that would be
/// rewritten in another spelling.
#[test]
fn a_rewritten_path_has_one_reading() {
    let origin = Origin::says("here");
    let of_host = plain(vec![last("^/a(.*)$", "/b$1"), last("^/c/(.*)$", "$1")]);
    let proxy = serving(of_host, &[("/", LocationPolicy::default()), ("/shut", shut())], &origin);
    for (sent, expected) in [
        ("/a/x", "/b/x"),
        ("/a/x%20y", "/b/x%20y"),
        ("/a//x", "/b/x"),
        ("/a..", "/b.."),
        ("/a/x/..%2f..%2fshut", "403"),
        ("/a/..%252fshut", "400"),
        ("/a/..%5cshut", "400"),
        ("/a;/../shut", "400"),
        ("/c/x", "500"),
    ] {
        assert_eq!(outcome(&proxy, &origin, sent), expected, "{sent}");
    }
}

/// What a rule of a snippet does with a path that begins with a text.
#[derive(Clone, Debug)]
enum Rule {
    Refuses(String),
    Rewrites { from: String, to: String, keeps_rest: bool, then: ShortcutRewrite },
}

impl Rule {
    fn shortcut(&self) -> Shortcut {
        match self {
            Self::Refuses(from) => refuses_uri(&format!("^{from}")),
            Self::Rewrites { from, to, keeps_rest: true, then } => {
                rewrites(&format!("^{from}(.*)$"), &format!("{to}$1"), *then)
            }
            Self::Rewrites { from, to, then, .. } => rewrites(&format!("^{from}"), to, *then),
        }
    }
}

/// nginx' way with a.test, whose locations are `/`, `/a`, the guarded `/b` and the block `/c` of its snippet: what the
/// backend gets, or the status.
struct Interpreter<'r> {
    of_host: &'r [Rule],
    locations: [(&'static str, &'r [Rule]); 4],
}

const GUARDED: &str = "/b";
const BLOCK: &str = "/c";

impl Interpreter<'_> {
    fn run(&self, asked: &str) -> String {
        let mut path = asked.to_owned();
        if decided(self.of_host, &mut path) == Decided::Refused {
            return "403".into();
        }
        for _ in 0..=10 {
            let takes = |at: &str| match at {
                "/" => true,
                BLOCK => path.starts_with(BLOCK),
                at => path == at || path.starts_with(&format!("{at}/")),
            };
            let (at, rules) = self.locations.into_iter().rfind(|(at, _)| takes(at)).unwrap();
            match decided(rules, &mut path) {
                Decided::Refused => return "403".into(),
                Decided::Rewritten(ShortcutRewrite::Last | ShortcutRewrite::Next) => {}
                _ if at == GUARDED => return "403".into(),
                _ if at == BLOCK => return "404".into(),
                _ => return path,
            }
        }
        "500".into()
    }
}

#[derive(PartialEq)]
enum Decided {
    Nothing,
    Refused,
    Rewritten(ShortcutRewrite),
}

/// What rules come to for the path, which they change.
fn decided(rules: &[Rule], path: &mut String) -> Decided {
    let mut comes_to = Decided::Nothing;
    for rule in rules {
        match rule {
            Rule::Refuses(from) if path.starts_with(from) => return Decided::Refused,
            Rule::Rewrites { from, to, keeps_rest, then } => {
                let Some(rest) = path.strip_prefix(from.as_str()) else { continue };
                *path = if *keeps_rest { format!("{to}{rest}") } else { to.clone() };
                comes_to = Decided::Rewritten(*then);
                if *then != ShortcutRewrite::Next {
                    break;
                }
            }
            Rule::Refuses(_) => {}
        }
    }
    comes_to
}

fn rules(kinds: &'static [ShortcutRewrite]) -> impl Strategy<Value = Vec<Rule>> {
    let rewrite = ("/[abc]?/?", "/[abc](/[abc])?", any::<bool>(), prop::sample::select(kinds));
    let rewrite = rewrite.prop_map(|(from, to, keeps_rest, then)| {
        // No `//`, which has two readings.
        let keeps_rest = keeps_rest && !from.ends_with('/');
        Rule::Rewrites { from, to, keeps_rest, then }
    });
    let rule = prop_oneof![1 => "/[abc]/?".prop_map(Rule::Refuses), 4 => rewrite];
    prop::collection::vec(rule, 0..4)
}

/// Whatever snippets say, a path is refused where nginx refuses it, and arrives as nginx sends it.
#[test]
fn rewrites_lead_where_those_of_nginx_lead() {
    let origin = Origin::says("here");
    let mut runner = TestRunner::new(Config { cases: 60, failure_persistence: None, ..Config::default() });
    let any = || rules(&[ShortcutRewrite::Last, ShortcutRewrite::Break, ShortcutRewrite::Next]);
    let cases = (any(), any(), any(), any(), rules(&[ShortcutRewrite::Last, ShortcutRewrite::Next]));
    let result = runner.run(&cases, |(of_host, root, open, guarded, mut block)| {
        // Behind a rewrite without a flag nothing answers in a block.
        block.sort_by_key(|it| matches!(it, Rule::Rewrites { .. }));
        let with = |rules: &[Rule], policy: LocationPolicy| LocationPolicy {
            shortcuts: plain(rules.iter().map(Rule::shortcut).collect()),
            ..policy
        };
        let paths = [
            ("/", with(&root, LocationPolicy::default())),
            ("/a", with(&open, LocationPolicy::default())),
            (GUARDED, with(&guarded, shut())),
        ];
        let blocks = vec![ShortcutBlock {
            kind: Some(ShortcutPath::Prefix.into()),
            path: BLOCK.into(),
            shortcuts: block.iter().map(Rule::shortcut).collect(),
        }];
        let said = Shortcuts { shortcuts: of_host.iter().map(Rule::shortcut).collect(), blocks };
        let proxy = serving(Some(said), &paths, &origin);
        let locations = [("/", &*root), ("/a", &*open), (GUARDED, &*guarded), (BLOCK, &*block)];
        let interpreter = Interpreter { of_host: &of_host, locations };
        for asked in ["/", "/a", "/a/b", "/ab", "/b", "/b/c", "/c/a", "/x"] {
            prop_assert_eq!(outcome(&proxy, &origin, asked), interpreter.run(asked), "{}", asked);
        }
        Ok(())
    });
    result.unwrap();
}
