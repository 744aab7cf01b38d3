//! Which part of a path the fleet's lists of locations spare: `no-auth-locations` and `no-tls-redirect-locations`.

use shared::policy::{BasicAuth, HostPolicy, TextList};

use super::*;

/// For each request, whether nobody is asked for a password, and whether it stays plain.
fn spared(
    list: &str,
    (regex, kind, path): (bool, PathType, &str),
    policy: LocationPolicy,
    requests: &[&str],
) -> Vec<bool> {
    let list = || Some(TextList { values: vec![list.into()] });
    let defaults = LocationPolicy {
        no_auth_locations: list(),
        no_tls_redirect_locations: list(),
        ..LocationPolicy::default()
    };
    let basic_auth = Some(BasicAuth { users: "ns/users/auth-file".into(), ..BasicAuth::default() });
    let of_host = HostPolicy { regex: Some(regex), ..HostPolicy::default() };
    let paths = vec![Path { path: path.into(), kind, backend: Some("ns/s1/80".into()), after_exact: false }];
    let route = Route { paths, policy: LocationPolicy { basic_auth, ..policy }, ..Route::default() };
    let mut writer = Writer::new();
    writer.replace_config(vec![
        entry("default", Resource::Settings(Settings { defaults, ..Settings::default() })),
        entry("a.test", Resource::Host(Host { policy: of_host, ..Host::default() })),
        entry("ingress/ns/i/a.test", Resource::Route(route)),
        backend("ns/s1/80"),
    ]);
    let table = writer.tables().current();
    let of_request = |request: &&str| {
        let host = table.host("a.test").unwrap();
        let Match::Path(entry) = host.route(request.as_bytes(), &shared::pattern::Steps::new()) else {
            panic!("no path for {request}");
        };
        assert_eq!(entry.declared(), path, "{request}");
        assert_eq!(
            (entry.asks_nobody, entry.stays_plain),
            (entry.users().is_none(), entry.users().is_none())
        );
        entry.asks_nobody
    };
    requests.iter().map(of_request).collect()
}

#[test]
fn a_slash_at_the_end_means_what_is_below() {
    let plain = LocationPolicy::default;
    let whole = ["/p", "/p/", "/p/x"];
    let prefix = (false, PathType::Prefix, "/p");
    assert_eq!(spared("/p/", prefix, plain(), &whole), [false, true, true]);
    assert_eq!(spared("/p", prefix, plain(), &whole), [true; 3]);
    assert_eq!(spared("/p/x", prefix, plain(), &whole), [false; 3]);
    assert_eq!(spared("/p/", (false, PathType::Prefix, "/p/"), plain(), &whole[1..]), [true; 2]);
    assert_eq!(spared("/p/", (false, PathType::Exact, "/p"), plain(), &whole[..1]), [false]);
}

/// There `/p` without a slash is a pattern, too.
#[test]
fn in_regex_mode_only_a_path_that_is_split_has_a_part_below() {
    let requests = ["/p", "/pq", "/p/x", "/P/x"];
    let prefix = (true, PathType::Prefix, "/p");
    assert_eq!(spared("/p/", prefix, LocationPolicy::default(), &requests), [false, false, true, true]);
    let regex = LocationPolicy { use_regex: Some(true), ..LocationPolicy::default() };
    let rewritten = LocationPolicy { rewrite_target: Some("/".into()), ..LocationPolicy::default() };
    for one in [regex, rewritten] {
        assert_eq!(spared("/p/", prefix, one, &requests), [false; 4]);
    }
}

/// A path keeps its compiled form where nothing of it changed.
#[test]
fn another_list_is_another_path() {
    let mut writer = two_hosts();
    let at = |writer: &Writer, path: &str| {
        let table = writer.tables().current();
        match table.host("a.test").unwrap().route(path.as_bytes(), &shared::pattern::Steps::new()) {
            Match::Path(entry) => entry.asks_nobody,
            _ => panic!("no path"),
        }
    };
    writer.apply_config(vec![route("ingress/ns/i/a.test", &[("/p", "ns/s1/80")])], &[]);
    assert_eq!((at(&writer, "/p"), at(&writer, "/p/x")), (false, false));
    for (list, expected) in [("/p/", (false, true)), ("/p", (true, true)), ("/q/", (false, false))] {
        let no_auth_locations = Some(TextList { values: vec![list.into()] });
        let defaults = LocationPolicy { no_auth_locations, ..LocationPolicy::default() };
        let settings = Resource::Settings(Settings { defaults, ..Settings::default() });
        writer.apply_config(vec![entry("default", settings)], &[]);
        assert_eq!((at(&writer, "/p"), at(&writer, "/p/x")), expected, "{list}");
    }
}
