//! Headers that an `if` or a block of a snippet says: nginx answers with those of the last `if` that passes its test.

use shared::policy::{
    HeaderChange, HeaderChangeList, HeaderOperation, HostPolicy, LocationPolicy, Shortcut, ShortcutBlock,
    ShortcutComparison, ShortcutPath, ShortcutTest, Shortcuts,
};
use shared::resource::{Backend, Host, PathType, Resource, Route};

use super::harness::*;

use HeaderOperation::{Add, AddAlways, Expires, Set};

fn changes(list: &[(HeaderOperation, &str, &str)]) -> Option<HeaderChangeList> {
    let change = |(operation, name, value): &(HeaderOperation, &str, &str)| HeaderChange {
        operation: Some((*operation).into()),
        name: (*name).into(),
        value: (*value).into(),
        statuses: Vec::new(),
    };
    Some(HeaderChangeList { changes: list.iter().map(change).collect() })
}

fn only_if(subject: &str, value: &str, then: Shortcut) -> Shortcut {
    let comparison = Some(ShortcutComparison::Finds.into());
    let test = ShortcutTest { subject: subject.into(), comparison, value: value.into() };
    Shortcut { tests: vec![test], ..then }
}

fn says(status: u32, header_changes: Option<HeaderChangeList>) -> Shortcut {
    Shortcut { status, header_changes, only_headers: (status == 0).then_some(true), ..Shortcut::default() }
}

fn serving(of_host: Vec<ShortcutBlock>, location: LocationPolicy, origin: &Origin) -> Proxy {
    let mut proxy = Proxy::start();
    let shortcuts = Some(Shortcuts { shortcuts: Vec::new(), blocks: of_host });
    let policy = HostPolicy { shortcuts, ..HostPolicy::default() };
    proxy.config(vec![("a.test", Resource::Host(Host { policy, ..Host::default() }))]);
    let paths = vec![to("/", PathType::Prefix, "echo")];
    let route = Route { paths, policy: location, ..Route::default() };
    proxy.config(vec![("ingress/ns/i/a.test", Resource::Route(route))]);
    proxy.service("echo", Backend::default());
    proxy.endpoints("echo", &[origin.address]);
    proxy
}

/// The values of these headers.
fn values(answer: &Answer) -> [Vec<&str>; 3] {
    ["x-add", "x-set", "x-own"].map(|name| answer.all(name))
}

const NONE: Vec<&str> = Vec::new();

#[test]
fn the_last_if_that_passes_its_test_says_the_headers() {
    let origin = Origin::says("here");
    let shortcuts = vec![
        only_if("$arg_a", ".", says(0, changes(&[(Add, "X-Own", "a"), (Set, "X-Set", "of a")]))),
        only_if("$arg_b", ".", says(0, changes(&[(Set, "X-Own", "b"), (Expires, "", "epoch")]))),
        only_if("$arg_c", ".", says(0, None)),
        only_if(
            "$arg_d",
            "(.+)",
            says(204, changes(&[(Add, "X-Own", "$1"), (Add, "Content-Type", "text/a")])),
        ),
        only_if("$arg_e", ".", says(403, changes(&[(Add, "X-Own", "no"), (Set, "X-Set", "of e")]))),
        only_if("$arg_f", ".", says(403, None)),
    ];
    let location = LocationPolicy {
        shortcuts: Some(Shortcuts { shortcuts, blocks: Vec::new() }),
        header_changes: changes(&[(AddAlways, "X-Add", "place"), (Set, "X-Set", "place")]),
        ..LocationPolicy::default()
    };
    let proxy = serving(Vec::new(), location, &origin);
    let mut client = Client::new(proxy.http);
    for (query, status, expected) in [
        ("", 200, [vec!["place"], vec!["place"], NONE]),
        ("?a=1", 200, [NONE, vec!["of a"], vec!["a"]]),
        ("?b=1", 200, [vec!["place"], vec!["place"], vec!["b"]]),
        ("?a=1&b=1", 200, [vec!["place"], vec!["place"], vec!["b"]]),
        ("?a=1&c=1", 200, [vec!["place"], vec!["place"], NONE]),
        ("?d=this", 204, [NONE, vec!["place"], vec!["this"]]),
        ("?a=1&e=1", 403, [NONE, vec!["of e"], NONE]),
        ("?a=1&f=1", 403, [vec!["place"], vec!["place"], NONE]),
    ] {
        let answer = client.get(&format!("/{query}"));
        assert_eq!((answer.status, values(&answer)), (status, expected), "{query}");
    }
    let answer = client.get("/?d=this");
    assert_eq!((answer.all("content-type"), answer.all("content-length")), (vec!["text/a"], NONE));
    assert_eq!(client.get("/?b=1").all("cache-control"), ["no-cache"]);
    assert!(client.get("/?a=1").all("cache-control").is_empty());
}

#[test]
fn a_block_says_headers_in_place_of_its_host() {
    let origin = Origin::says("here");
    let headers = |value: &str| changes(&[(Add, "X-Own", value), (Set, "X-Set", "block")]);
    let block = |path: &str, shortcuts| ShortcutBlock {
        kind: Some(ShortcutPath::Pattern.into()),
        path: path.into(),
        shortcuts,
    };
    let blocks = vec![
        block("^/v(1)", vec![says(302, headers("v$1"))]),
        block("^/v2", vec![only_if("$arg_a", ".", says(0, headers("a"))), says(200, headers("block"))]),
        block("^/v3", vec![says(200, None)]),
    ]
    .into_iter()
    .map(|mut block| {
        let texts = block.shortcuts.iter_mut().filter(|it| it.status > 0);
        texts.for_each(|it| it.text = Some(if it.status == 302 { "https://b.test/" } else { "said" }.into()));
        block
    });
    let location = LocationPolicy {
        host_header_changes: changes(&[(AddAlways, "X-Add", "host"), (Set, "X-Set", "host")]),
        ..LocationPolicy::default()
    };
    let proxy = serving(blocks.collect(), location, &origin);
    let mut client = Client::new(proxy.http);
    for (target, status, expected) in [
        ("/v1", 302, [NONE, vec!["block"], vec!["v1"]]),
        ("/v2", 200, [NONE, vec!["block"], vec!["block"]]),
        ("/v2?a=1", 200, [NONE, vec!["block"], vec!["a"]]),
        ("/v3", 200, [vec!["host"], vec!["host"], NONE]),
        ("/other", 200, [vec!["host"], vec!["host"], NONE]),
    ] {
        let answer = client.get(target);
        assert_eq!((answer.status, values(&answer)), (status, expected), "{target}");
    }
    assert_eq!(origin.seen().len(), 1);
}
