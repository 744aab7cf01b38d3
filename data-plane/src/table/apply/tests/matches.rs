//! A Route with a match that this build does not support is refused, and the previous Route stays.

use prost::Message;
use shared::proto::config;

use super::*;

fn path(change: impl FnOnce(&mut config::Path)) -> config::Path {
    let r#match = config::Match {
        path: "/".into(),
        r#type: config::r#match::Type::Prefix.into(),
        ..config::Match::default()
    };
    let backend = config::WeightedBackend { key: "ns/s2/80".into(), weight: None };
    let mut path = config::Path { r#match: Some(r#match), backends: vec![backend], after_exact: false };
    change(&mut path);
    path
}

fn matched(change: impl FnOnce(&mut config::Match)) -> config::Path {
    path(|path| change(path.r#match.as_mut().unwrap()))
}

fn backends(backends: &[(&str, Option<u32>)]) -> config::Path {
    let backend =
        |(key, weight): &(&str, Option<u32>)| config::WeightedBackend { key: (*key).into(), weight: *weight };
    path(|path| path.backends = backends.iter().map(backend).collect())
}

fn named() -> Vec<config::NamedMatch> {
    let r#type = config::named_match::Type::Exact.into();
    vec![config::NamedMatch { name: "x".into(), value: "y".into(), r#type }]
}

#[test]
fn a_route_that_asks_for_more_than_is_served_is_refused_and_keeps_its_last_good_version() {
    let cases = [
        (matched(|it| it.method = "GET".into()), "match.method: this build matches paths alone"),
        (matched(|it| it.headers = named()), "match.headers: this build matches paths alone"),
        (matched(|it| it.query = named()), "match.query: this build matches paths alone"),
        (matched(|it| it.path = "x".into()), "match.path: expected a leading slash, got \"x\""),
        (matched(|it| it.r#type = 7), "match.type: unknown type 7"),
        (matched(|it| it.r#type = 0), "match.type: unknown type 0"),
        (path(|it| it.r#match = None), "match.path: expected a leading slash, got \"\""),
        (backends(&[("ns/s2/80", None), ("ns/s1/80", None)]), "backends: expected one at most, got 2"),
        (backends(&[("ns/s2/80", Some(0))]), "backends[0].weight: expected at least 1, got 0"),
        (backends(&[("", None)]), "backends[0].key: expected the key of a Backend, got nothing"),
    ];
    for (asked, reason) in cases {
        let mut writer = two_hosts();
        // As the second path: the first alone would be served.
        let route = config::Route { paths: vec![path(|_| ()), asked], ..config::Route::default() };
        let name = "ingress/ns/i/a.test";
        let body = Bytes::from(route.encode_to_vec());
        let entry = Arc::new(Entry::from_body(key(Kind::Route, name), 2, body));
        writer.apply_config(vec![entry], &[]);
        let refused: Vec<_> = writer.refused(Lane::Config).collect();
        let [(which, refused)] = refused[..] else { panic!("{reason}: {refused:?}") };
        assert_eq!(&*which.key, name);
        assert_eq!((refused.code, refused.serving_last_good), (Code::Invalid, true), "{reason}");
        assert_eq!(refused.reason, format!("paths[1].{reason}"));
        assert_eq!(endpoints(&writer, "a.test"), [1], "{reason}");
        // With a single backend any weight will do.
        let good =
            config::Route { paths: vec![backends(&[("ns/s2/80", Some(7))])], ..config::Route::default() };
        let body = Bytes::from(good.encode_to_vec());
        writer.apply_config(vec![Arc::new(Entry::from_body(key(Kind::Route, name), 2, body))], &[]);
        assert_eq!((writer.refused(Lane::Config).count(), endpoints(&writer, "a.test")), (0, vec![2]));
    }
}
