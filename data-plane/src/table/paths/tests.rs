//! The router against one that is slow and obvious.

use proptest::prelude::*;

use super::*;
use crate::table::Action;

fn declared(kind: PathType, path: &str) -> Declared {
    let entry = PathEntry {
        declared: path.into(),
        action: Action::DefaultBackend,
        policy: Arc::default(),
        counts: None,
        errors: None,
        stays_plain: false,
        rewritten: None,
        asks_nobody: false,
        users: None,
        upstream_name: "".into(),
        owner: "ns/name".into(),
        service: "".into(),
        port: "".into(),
    };
    Declared { kind, entry: Arc::new(entry) }
}

/// What nginx does with the locations that ingress-nginx writes: exact ones first, then the longest prefix; a location
/// with a slash at the end answers for the same without by a redirect.
#[derive(PartialEq, Debug)]
enum Slow<'a> {
    Path(&'a str, PathType),
    AddSlash,
    None,
}

fn slow<'a>(table: &'a [Declared], request: &str) -> Slow<'a> {
    let path = |it: &'a Declared| Slow::Path(&it.entry.declared, it.kind);
    let text = |it: &Declared| it.entry.declared.to_string();
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
            let same = |it: &&Declared| Arc::ptr_eq(&it.entry, entry);
            let found = router.declared().iter().find(same).unwrap();
            Slow::Path(&found.entry.declared, found.kind)
        }
        Match::AddSlash(_) => Slow::AddSlash,
        Match::None | Match::Unknown => Slow::None,
    }
}

fn path() -> impl Strategy<Value = String> {
    let segment = prop::sample::select(&["a", "b", "ab", "a.b", ""][..]);
    prop::collection::vec(segment, 0..4).prop_map(|segments| format!("/{}", segments.join("/")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn fast_equals_slow(
        table in prop::collection::vec((any::<bool>(), path()), 0..12),
        requests in prop::collection::vec(path(), 1..20),
    ) {
        let kind = |exact| if exact { PathType::Exact } else { PathType::Prefix };
        let table: Vec<_> = table.iter().map(|(exact, path)| declared(kind(*exact), path)).collect();
        let router = Router::new(table.clone());
        for request in &requests {
            prop_assert_eq!(fast(&router, request), slow(&table, request), "{}", request);
        }
    }
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
    let router = Router::new(table);
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
