//! What the snippets of the ConfigMap say, beside those of hosts and locations.

use shared::policy::{
    ExternalAuth, Header, HeaderChange, HeaderChangeList, HeaderList, HeaderOperation, HostPolicy,
    LocationPolicy, RealIp, Shortcut, ShortcutBlock, ShortcutComparison, ShortcutPath, ShortcutTest,
    Shortcuts, TextList,
};
use shared::resource::{Backend, Host, PathType, Resource, Route};

use super::harness::*;

fn header(name: &str, value: &str) -> Header {
    Header { name: name.into(), value: value.into() }
}

fn added(value: &str) -> Option<HeaderChangeList> {
    let change = |operation: HeaderOperation, name: &str| HeaderChange {
        operation: Some(operation.into()),
        name: name.into(),
        value: value.into(),
        statuses: Vec::new(),
    };
    Some(HeaderChangeList {
        changes: vec![change(HeaderOperation::AddAlways, "X-Add"), change(HeaderOperation::Set, "X-Set")],
    })
}

fn if_arg(name: &str, status: u32) -> Shortcut {
    let subject = format!("$arg_{name}");
    let comparison = Some(ShortcutComparison::IsSet.into());
    let test = ShortcutTest { subject, comparison, value: String::new() };
    Shortcut { tests: vec![test], status, ..Shortcut::default() }
}

fn block(kind: ShortcutPath, path: &str, status: u32) -> ShortcutBlock {
    let shortcuts = vec![Shortcut { status, ..Shortcut::default() }];
    ShortcutBlock { kind: Some(kind.into()), path: path.into(), shortcuts }
}

/// `plain.test` without snippets, `own.test` with these.
fn serving(origin: &Origin, of_host: Option<Shortcuts>, location: LocationPolicy) -> Proxy {
    let mut proxy = Proxy::start();
    for (host, shortcuts, policy) in
        [("plain.test", None, LocationPolicy::default()), ("own.test", of_host, location)]
    {
        let of_host = HostPolicy { shortcuts, ..HostPolicy::default() };
        proxy.config(vec![(host, Resource::Host(Host { policy: of_host, ..Host::default() }))]);
        let paths = vec![to("/", PathType::Prefix, "echo")];
        let route = Route { paths, policy, ..Route::default() };
        proxy.config(vec![(&*format!("ingress/ns/i/{host}"), Resource::Route(route))]);
    }
    proxy.config(vec![("_", Resource::Host(Host::default()))]);
    proxy.service("echo", Backend::default());
    proxy.endpoints("echo", &[origin.address]);
    proxy
}

fn ask(proxy: &Proxy, host: &str, target: &str) -> Answer {
    Client::new(proxy.http).ask(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
}

/// In nginx' configuration they stand behind those of the host and of the location, and blocks of the same level are
/// chosen among all.
#[test]
fn fixed_responses_of_the_fleet_come_after_own_ones() {
    let origin = Origin::says("here");
    let of_host = Shortcuts {
        shortcuts: vec![if_arg("both", 410), if_arg("host", 411)],
        blocks: vec![block(ShortcutPath::Prefix, "/m", 412)],
    };
    let location = LocationPolicy {
        shortcuts: Some(Shortcuts { shortcuts: vec![if_arg("there", 413)], blocks: Vec::new() }),
        ..LocationPolicy::default()
    };
    let mut proxy = serving(&origin, Some(of_host), location);
    let defaults = LocationPolicy {
        host_shortcuts: Some(Shortcuts {
            shortcuts: vec![if_arg("both", 420), if_arg("fleet", 421)],
            blocks: vec![block(ShortcutPath::Exact, "/metrics", 422)],
        }),
        shortcuts: Some(Shortcuts {
            shortcuts: vec![if_arg("there", 423), if_arg("everywhere", 424)],
            blocks: Vec::new(),
        }),
        ..LocationPolicy::default()
    };
    let statuses = |proxy: &Proxy, host: &str| {
        ["/?both=1", "/?host=1", "/?fleet=1", "/metrics", "/m", "/?there=1", "/?everywhere=1", "/"]
            .map(|target| ask(proxy, host, target).status)
    };
    let of_nobody = [404; 8];
    assert_eq!(statuses(&proxy, "plain.test"), [200; 8]);
    assert_eq!(statuses(&proxy, "unknown.test"), of_nobody);
    proxy.defaults(defaults);
    assert_eq!(statuses(&proxy, "plain.test"), [420, 200, 421, 422, 200, 423, 424, 200]);
    assert_eq!(statuses(&proxy, "own.test"), [410, 411, 421, 422, 412, 413, 424, 200]);
    assert_eq!(statuses(&proxy, "unknown.test"), [420, 404, 421, 422, 404, 404, 404, 404]);
    for other_spelling in ["/metrics;x", "/x/..;/metrics"] {
        assert_eq!(ask(&proxy, "plain.test", other_spelling).status, 400, "{other_spelling}");
    }
    proxy.defaults(LocationPolicy::default());
    assert_eq!(statuses(&proxy, "plain.test"), [200; 8]);
    assert_eq!(statuses(&proxy, "own.test"), [410, 411, 200, 412, 412, 413, 200, 200]);
    assert_eq!(statuses(&proxy, "unknown.test"), of_nobody);
}

/// `add_header` of one level counts, with all that is said there; `more_set_headers` of both, the last one wins.
#[test]
fn headers_of_the_fleet_are_added_to_own_ones() {
    let origin = Origin::says("here");
    let location = LocationPolicy {
        host_header_changes: added("own host"),
        header_changes: added("own"),
        request_headers: Some(HeaderList { headers: vec![header("X-Own", "1")] }),
        ..LocationPolicy::default()
    };
    let mut proxy = serving(&origin, None, location);
    proxy.defaults(LocationPolicy {
        host_header_changes: added("all hosts"),
        request_headers: Some(HeaderList { headers: vec![header("X-All", "2")] }),
        ..LocationPolicy::default()
    });
    let seen = |proxy: &Proxy, host: &str| {
        let answer = ask(proxy, host, "/");
        [answer.all("x-add").join(","), answer.all("x-set").join(",")]
    };
    assert_eq!(seen(&proxy, "plain.test"), ["all hosts", "all hosts"]);
    assert_eq!(seen(&proxy, "own.test"), ["own", "own"]);
    assert_eq!(seen(&proxy, "unknown.test"), ["all hosts", "all hosts"], "a 404");
    let request = origin.seen().last().unwrap().head.to_ascii_lowercase();
    assert!(request.contains("\r\nx-own: 1\r\n") && request.contains("\r\nx-all: 2\r\n"), "{request}");
    let of_locations = LocationPolicy { header_changes: added("all"), ..LocationPolicy::default() };
    proxy.defaults(LocationPolicy { host_header_changes: added("all hosts"), ..of_locations });
    assert_eq!(seen(&proxy, "plain.test"), ["all", "all"]);
    assert_eq!(seen(&proxy, "own.test"), ["own,all", "all"]);
}

/// As those of nginx' http level: `add_header` counts where no inner level adds one, `more_set_headers` before those of
/// inner levels.
#[test]
fn hosts_inherit_headers_of_the_fleet() {
    let origin = Origin::says("here");
    let location = LocationPolicy { header_changes: added("own"), ..LocationPolicy::default() };
    let mut proxy = serving(&origin, None, location);
    let seen = |proxy: &Proxy, host: &str| {
        let answer = ask(proxy, host, "/");
        [answer.all("x-add").join(","), answer.all("x-set").join(",")]
    };
    let inherited = LocationPolicy { fleet_header_changes: added("all"), ..LocationPolicy::default() };
    proxy.defaults(inherited.clone());
    assert_eq!(seen(&proxy, "plain.test"), ["all", "all"]);
    assert_eq!(seen(&proxy, "own.test"), ["own", "own"]);
    assert_eq!(seen(&proxy, "unknown.test"), ["all", "all"], "a 404");
    proxy.defaults(LocationPolicy { host_header_changes: added("hosts"), ..inherited.clone() });
    assert_eq!(seen(&proxy, "plain.test"), ["hosts", "hosts"]);
    let sets = added("hosts").map(|mut list| {
        list.changes.retain(|it| it.operation() == HeaderOperation::Set);
        list
    });
    proxy.defaults(LocationPolicy { host_header_changes: sets, ..inherited });
    assert_eq!(seen(&proxy, "plain.test"), ["all", "hosts"], "nothing is added there");
}

/// As `real_ip_header` and the like of its `http-snippet`.
#[test]
fn addresses_of_clients_are_taken_from_where_the_fleet_says() {
    let origin = Origin::says("here");
    let mut proxy = serving(&origin, None, LocationPolicy::default());
    let client = |proxy: &Proxy| {
        let fields = "CF-Connecting-IP: 203.0.113.7, 198.51.100.9\r\nX-Forwarded-For: 192.0.2.1";
        let text = format!("GET / HTTP/1.1\r\nHost: plain.test\r\n{fields}\r\n\r\n");
        assert_eq!(Client::new(proxy.http).ask(&text).status, 200);
        origin.seen().last().unwrap().all("x-real-ip").join(",")
    };
    assert_eq!(client(&proxy), "127.0.0.1");
    for (trusted, recursive, expected) in [
        ("127.0.0.0/8", None, "198.51.100.9"),
        ("198.51.100.0/24", None, "127.0.0.1"),
        ("127.0.0.0/8 198.51.100.0/24", None, "198.51.100.9"),
        ("127.0.0.0/8 198.51.100.0/24", Some(true), "203.0.113.7"),
    ] {
        let trusted = trusted.split(' ').map(str::to_owned).collect();
        let real_ip = Some(RealIp { header: "CF-Connecting-IP".into(), trusted, recursive });
        proxy.defaults(LocationPolicy { real_ip, ..LocationPolicy::default() });
        assert_eq!(client(&proxy), expected, "{recursive:?}");
    }
}

/// As those of the snippets of a host and of a location.
#[test]
fn a_host_and_a_location_say_where_addresses_of_clients_are_taken_from() {
    let origin = Origin::says("here");
    let mut proxy = serving(&origin, None, LocationPolicy::default());
    let said = |text: &str| {
        let (header, trusted) = text.split_once(' ')?;
        let trusted = trusted.split(' ').filter(|it| !it.is_empty()).map(str::to_owned).collect();
        Some(RealIp { header: header.into(), trusted, recursive: None })
    };
    // The client's address as the backend is told, or the status of a refusal.
    let mut client = |trusts: bool, host: &str, location: &str, admitted: &str| {
        let keys = LocationPolicy { enable_real_ip: Some(trusts), ..LocationPolicy::default() };
        proxy.defaults(keys);
        let policy = LocationPolicy {
            host_real_ip: said(host),
            own_real_ip: said(location),
            allowlist_source_range: Some(TextList { values: vec![admitted.into()] }),
            ..LocationPolicy::default()
        };
        let route = Route { paths: vec![to("/", PathType::Prefix, "echo")], policy, ..Route::default() };
        proxy.config(vec![("ingress/ns/i/own.test", Resource::Route(route))]);
        let fields = "X-Host: 203.0.113.7\r\nX-Location: 203.0.113.8\r\nX-Forwarded-For: 192.0.2.1";
        let text = format!("GET / HTTP/1.1\r\nHost: own.test\r\n{fields}\r\n\r\n");
        match Client::new(proxy.http).ask(&text).status {
            200 => origin.seen().last().unwrap().all("x-real-ip").join(","),
            refused => refused.to_string(),
        }
    };
    let anybody = "0.0.0.0/0";
    for (trusts, host, location, expected) in [
        (true, "", "", "192.0.2.1"),
        (true, "X-Host ", "", "203.0.113.7"),
        (true, " 198.51.100.0/24", "", "127.0.0.1"),
        (true, "", "X-Location ", "192.0.2.1"),
        (true, "X-None ", "X-Location ", "203.0.113.8"),
        (false, "X-Host ", "", "127.0.0.1"),
        (false, "X-Host 127.0.0.0/8", "X-Location ", "203.0.113.7"),
        (false, "", "X-Location 127.0.0.0/8", "203.0.113.8"),
        (false, "", "X-Location 198.51.100.0/24", "127.0.0.1"),
    ] {
        assert_eq!(client(trusts, host, location, anybody), expected, "{trusts} {host:?} {location:?}");
    }
    for (host, location, admitted) in
        [("X-Host 127.0.0.0/8", "", "203.0.113.7"), ("", "X-Location 127.0.0.0/8", "203.0.113.8")]
    {
        assert_eq!(client(false, host, location, admitted), admitted);
        assert_eq!(client(false, host, location, "127.0.0.1"), "403", "the peer is not the client");
    }
}

/// As `proxy_set_header` and `return` of its `global-auth-snippet`.
#[test]
fn the_authentication_of_the_fleet_is_asked_as_its_snippet_says() {
    let origin = Origin::says("here");
    let auth = Origin::new(|_| (b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n".to_vec(), true));
    let mut proxy = serving(&origin, None, LocationPolicy::default());
    let lets_in = Shortcuts { shortcuts: vec![if_arg("open", 200)], blocks: Vec::new() };
    let asking = LocationPolicy {
        global_auth_url: Some(format!("http://{}/", auth.address)),
        global_auth_proxy_set_headers: Some(HeaderList { headers: vec![header("X-Fleet", "$host")] }),
        global_auth_answers: Some(lets_in),
        ..LocationPolicy::default()
    };
    proxy.defaults(asking);
    assert_eq!(ask(&proxy, "plain.test", "/").status, 401);
    assert_eq!(auth.seen().remove(0).all("x-fleet"), ["plain.test"]);
    assert_eq!(ask(&proxy, "plain.test", "/?open=1").status, 200);
    assert_eq!(auth.seen().len(), 1, "answered in its place");
}

/// As `auth_request_set` and `proxy_set_header` in all locations: a client cannot set the header, asked or not.
#[test]
fn what_the_authentication_answers_is_told_in_all_locations() {
    let origin = Origin::says("here");
    let auth =
        Origin::new(|_| (b"HTTP/1.1 200 OK\r\nX-Uid: alice\r\nContent-Length: 0\r\n\r\n".to_vec(), true));
    let url = format!("http://{}/", auth.address);
    let external = ExternalAuth { url: url.clone(), ..ExternalAuth::default() };
    let location = LocationPolicy { external_auth: Some(external), ..LocationPolicy::default() };
    let mut proxy = serving(&origin, None, location);
    let told = Some(HeaderList { headers: vec![header("X-User", "x-uid")] });
    let defaults = LocationPolicy { told_headers: told, ..LocationPolicy::default() };
    let user = |proxy: &Proxy, host: &str| {
        let text = format!("GET /p HTTP/1.1\r\nHost: {host}\r\nX-User: admin\r\n\r\n");
        assert_eq!(Client::new(proxy.http).ask(&text).status, 200);
        origin.seen().last().unwrap().all("x-user").join(",")
    };
    assert_eq!(user(&proxy, "own.test"), "admin", "nothing says that it is theirs");
    proxy.defaults(defaults.clone());
    assert_eq!(user(&proxy, "own.test"), "alice");
    assert_eq!(user(&proxy, "plain.test"), "");
    let global = LocationPolicy { global_auth_url: Some(url), ..defaults };
    proxy.defaults(global.clone());
    assert_eq!(user(&proxy, "plain.test"), "alice");
    let open = TextList { values: vec!["/".into()] };
    proxy.defaults(LocationPolicy { no_auth_locations: Some(open), ..global });
    assert_eq!(user(&proxy, "plain.test"), "", "nobody is asked");
}

/// As `allow` and `deny` of all hosts in nginx: where a location lists addresses, they do not count, unless its host's list
/// has no end.
#[test]
fn lists_of_the_fleet_count_where_there_is_no_own_one() {
    let origin = Origin::says("here");
    let list = |text: &str| Some(TextList { values: vec![text.into()] });
    let own = |goes_on: bool| LocationPolicy {
        denylist_source_range: list("192.0.2.1"),
        lists_go_on: goes_on.then_some(true),
        ..LocationPolicy::default()
    };
    let statuses =
        |proxy: &Proxy| ["plain.test", "own.test", "unknown.test"].map(|host| ask(proxy, host, "/").status);
    for (goes_on, others) in [(false, 200), (true, 403)] {
        let mut proxy = serving(&origin, None, own(goes_on));
        assert_eq!(statuses(&proxy), [200, 200, 404]);
        let outer_allowlist = list("192.0.2.0/24");
        proxy.defaults(LocationPolicy { outer_allowlist, ..LocationPolicy::default() });
        assert_eq!(statuses(&proxy), [403, others, 403]);
        let (outer_allowlist, outer_denylist) = (list("127.0.0.0/8"), list("127.0.0.1"));
        let defaults = LocationPolicy { outer_allowlist, outer_denylist, ..LocationPolicy::default() };
        proxy.defaults(defaults);
        assert_eq!(statuses(&proxy), [403, others, 403]);
        proxy.defaults(LocationPolicy { outer_allowlist: list("127.0.0.0/8"), ..LocationPolicy::default() });
        assert_eq!(statuses(&proxy), [200, 200, 404]);
    }
}

/// What a location hides hides what the fleet says, except for what stands in all locations.
#[test]
fn headers_that_all_locations_hide_are_hidden_beside_own_ones() {
    let head = "HTTP/1.1 200 OK\r\nX-A: 1\r\nX-B: 1\r\nX-C: 1\r\nContent-Length: 0\r\n\r\n";
    let origin = Origin::new(move |_| (head.as_bytes().to_vec(), true));
    let list = |text: &str| Some(TextList { values: vec![text.into()] });
    let own = LocationPolicy { hide_headers: list("X-A"), ..LocationPolicy::default() };
    let mut proxy = serving(&origin, None, own);
    let shown = |proxy: &Proxy, host: &str| {
        let answer = ask(proxy, host, "/");
        ["x-a", "x-b", "x-c"].map(|name| answer.all(name).len())
    };
    proxy.defaults(LocationPolicy { hide_headers: list("X-B"), ..LocationPolicy::default() });
    assert_eq!([shown(&proxy, "plain.test"), shown(&proxy, "own.test")], [[1, 0, 1], [0, 1, 1]]);
    let (hide_headers, hide_headers_beside) = (list("X-B"), list("X-C"));
    proxy.defaults(LocationPolicy { hide_headers, hide_headers_beside, ..LocationPolicy::default() });
    assert_eq!([shown(&proxy, "plain.test"), shown(&proxy, "own.test")], [[1, 1, 0], [0, 1, 0]]);
}
