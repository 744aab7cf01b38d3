//! The router compared with a slow and simple one.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::table::Action;

fn declared(kind: PathType, path: &str) -> Declared {
    of_route("ingress/ns/name/a.test", kind, path)
}

fn of_route(route: &str, kind: PathType, path: &str) -> Declared {
    let entry = PathEntry {
        action: Action::DefaultBackend,
        policy: Arc::default(),
        place: crate::metrics::RequestLabels::new(&route.into(), None, &path.into()),
        more: None,
        stays_plain: false,
        after_exact: false,
        asks_nobody: false,
    };
    Declared { kind, entry: Arc::new(entry) }
}

/// What nginx does with the locations that ingress-nginx generates: exact ones first, then the longest prefix; a
/// location with a trailing slash redirects requests without it.
#[derive(PartialEq, Debug)]
enum Slow<'a> {
    Path(&'a str, PathType),
    AddSlash,
    None,
}

fn slow<'a>(table: &'a [Declared], request: &str) -> Slow<'a> {
    let path = |it: &'a Declared| Slow::Path(it.entry.declared(), it.kind);
    let text = |it: &Declared| it.entry.declared().to_owned();
    let prefixes = |wanted: PathType| table.iter().filter(move |it| it.kind == wanted);
    if let Some(exact) = prefixes(PathType::Exact).find(|it| text(it) == request) {
        return path(exact);
    }
    if let Some(equal) = prefixes(PathType::Prefix).find(|it| text(it) != "/" && text(it) == request) {
        return path(equal);
    }
    let with_slash = format!("{request}/");
    let locations = table.iter().map(|it| match it.kind {
        PathType::Prefix if !text(it).ends_with('/') => text(it) + "/",
        _ => text(it),
    });
    if !request.ends_with('/') && locations.into_iter().any(|location| location == with_slash) {
        return Slow::AddSlash;
    }
    let mut best: Option<(&Declared, String)> = None;
    for it in prefixes(PathType::Prefix) {
        let location = if text(it).ends_with('/') { text(it) } else { text(it) + "/" };
        let longer = best.as_ref().is_none_or(|(other, was)| {
            let nearer =
                location.len() == was.len() && text(it).ends_with('/') && !text(other).ends_with('/');
            location.len() > was.len() || nearer
        });
        if request.starts_with(&location) && longer {
            best = Some((it, location));
        }
    }
    best.map_or(Slow::None, |(it, _)| path(it))
}

fn fast<'a>(router: &'a Router, request: &str) -> Slow<'a> {
    match router.route(request.as_bytes()) {
        Match::Path(entry) => {
            let found = router.declared().find(|it| Arc::ptr_eq(&it.entry, entry)).unwrap();
            Slow::Path(entry.declared(), found.kind)
        }
        Match::AddSlash(_) => Slow::AddSlash,
        Match::None | Match::Unknown => Slow::None,
    }
}

fn path() -> impl Strategy<Value = String> {
    let segment = prop::sample::select(&["a", "b", "ab", "a.b", ""][..]);
    prop::collection::vec(segment, 0..4).prop_map(|segments| format!("/{}", segments.join("/")))
}

fn kind(exact: bool) -> PathType {
    if exact { PathType::Exact } else { PathType::Prefix }
}

fn router(table: impl IntoIterator<Item = Declared>) -> Router {
    let mut router = Router::default();
    table.into_iter().for_each(|it| router.put(it));
    router
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Whatever Routes declare and withdraw, some of it identical, each state equals the slow implementation's, and is
    /// not affected by later states derived from it.
    #[test]
    fn fast_equals_slow(
        steps in prop::collection::vec((0..3_u8, any::<bool>(), path(), prop::bool::weighted(0.3)), 0..24),
        requests in prop::collection::vec(path(), 1..20),
    ) {
        let mut router = Router::default();
        let mut table: BTreeMap<(String, bool, String), Declared> = BTreeMap::new();
        let mut states = Vec::new();
        for (route, exact, path, goes) in steps {
            let route = format!("ingress/ns/{route}/a.test");
            if goes {
                router.remove(&path, kind(exact), &route.as_str().into());
                table.remove(&(route, exact, path));
            } else {
                let declared = of_route(&route, kind(exact), &path);
                router.put(declared.clone());
                table.insert((route, exact, path), declared);
            }
            states.push((router.clone(), table.values().cloned().collect::<Vec<_>>()));
        }
        for (router, table) in &states {
            prop_assert_eq!(router.declared().count(), table.len());
            for request in &requests {
                prop_assert_eq!(fast(router, request), slow(table, request), "{}", request);
            }
        }
    }
}

#[test]
fn first_route_by_key_wins_an_equal_path() {
    for order in [["ingress/ns/a/h", "ingress/ns/b/h"], ["ingress/ns/b/h", "ingress/ns/a/h"]] {
        let mut router = router(order.map(|route| of_route(route, PathType::Prefix, "/x")));
        let first = |router: &Router| match router.route(b"/x") {
            Match::Path(entry) => Some(entry.route().to_string()),
            _ => None,
        };
        for route in ["ingress/ns/a/h", "ingress/ns/b/h"] {
            assert_eq!(first(&router).as_deref(), Some(route));
            router.remove("/x", PathType::Prefix, &route.into());
        }
        assert_eq!(first(&router), None);
    }
}

fn large(router: &Router) -> &Large {
    match &router.0 {
        Kept::Large(large) => large,
        Kept::Row(_) => panic!("expected more than a few paths"),
    }
}

#[test]
fn a_path_of_ten_thousand_copies_its_shard() {
    let many =
        |count: u32| (0..count).map(|number| declared(PathType::Prefix, &format!("/section-{number}")));
    let before = router(many(10_000));
    let mut after = before.clone();
    after.put(declared(PathType::Prefix, "/one-more"));
    after.remove("/section-7", PathType::Prefix, &"ingress/ns/name/a.test".into());
    let own = large(&after).nodes.own(&large(&before).nodes);
    assert!((1..=4 * 64).contains(&own), "{own} nodes were copied");
    assert_eq!(fast(&after, "/one-more/x"), Slow::Path("/one-more", PathType::Prefix));
    assert_eq!(fast(&after, "/section-7/x"), Slow::None);
    assert_eq!(fast(&before, "/section-7/x"), Slow::Path("/section-7", PathType::Prefix));
    // Down to none, through every number of shards.
    for number in 0..10_000 {
        after.remove(&format!("/section-{number}"), PathType::Prefix, &"ingress/ns/name/a.test".into());
    }
    assert_eq!(after.declared().count(), 1);
    assert_eq!(fast(&after, "/one-more/x"), Slow::Path("/one-more", PathType::Prefix));
    assert_eq!(large(&after).lengths.len(), 1);
}

#[test]
fn examples_of_the_original() {
    use PathType::{Exact, Prefix};
    let table = [
        declared(Prefix, "/"),
        declared(Prefix, "/foo"),
        declared(Prefix, "/dir/"),
        declared(Exact, "/only"),
        declared(Exact, "/leaf/"),
        declared(Exact, "/foo"),
    ];
    let router = router(table);
    let cases = [
        ("/foo", Slow::Path("/foo", Exact)),
        ("/foo/", Slow::Path("/foo", Prefix)),
        ("/foo/bar", Slow::Path("/foo", Prefix)),
        ("/foobar", Slow::Path("/", Prefix)),
        ("/dir", Slow::AddSlash),
        ("/dir/", Slow::Path("/dir/", Prefix)),
        ("/dir/x", Slow::Path("/dir/", Prefix)),
        ("/only", Slow::Path("/only", Exact)),
        ("/only/", Slow::Path("/", Prefix)),
        ("/leaf", Slow::AddSlash),
        ("/leaf/", Slow::Path("/leaf/", Exact)),
        ("/leaf/x", Slow::Path("/", Prefix)),
        ("/Foo", Slow::Path("/", Prefix)),
        ("/", Slow::Path("/", Prefix)),
    ];
    for (request, expected) in cases {
        assert_eq!(fast(&router, request), expected, "{request}");
    }
}
