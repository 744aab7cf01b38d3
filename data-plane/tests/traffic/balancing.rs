use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use data_plane::balance::{Member, Ring};
use data_plane::local::Limits;
use shared::policy::{Affinity, BackendPolicy, Canary, LoadBalance, LocationPolicy};
use shared::resource::{Backend, Host, PathType, Resource, Route, Settings};

use super::harness::*;

/// An endpoint on a ring that the test builds itself.
#[derive(Clone)]
struct At(SocketAddr, usize);

impl Member for At {
    type Order = SocketAddr;

    fn order(&self) -> SocketAddr {
        self.0
    }

    fn name(&self) -> String {
        self.0.to_string()
    }
}

const TEXTS: [&str; 5] = ["0", "1", "2", "3", "4"];

/// Five origins behind a Service with this policy.
fn five(policy: BackendPolicy) -> (Proxy, [Origin; 5]) {
    let mut proxy = Proxy::with(Limits::default());
    let origins = TEXTS.map(Origin::says);
    proxy.host("a.test", false, &[("/", PathType::Prefix, "echo")]);
    proxy.service("echo", Backend { policy, ..Backend::default() });
    proxy.endpoints("echo", &origins.each_ref().map(|origin| origin.address));
    (proxy, origins)
}

fn by(key: &str) -> BackendPolicy {
    BackendPolicy { hash_by: Some(key.into()), ..BackendPolicy::default() }
}

/// The endpoint for a key, by the specified algorithm.
fn owner(origins: &[Origin], key: &str) -> &'static str {
    let ring = Ring::new(origins.iter().enumerate().map(|(place, origin)| At(origin.address, place)));
    TEXTS[ring.find(crc32fast::hash(key.as_bytes())).unwrap().1]
}

fn spread(client: &mut Client, requests: usize, target: impl Fn(usize) -> String) -> BTreeMap<String, usize> {
    let mut met = BTreeMap::new();
    for number in 0..requests {
        *met.entry(client.get(&target(number)).text().to_owned()).or_default() += 1;
    }
    met
}

#[test]
fn requests_of_one_key_go_where_the_ring_says() {
    let (proxy, origins) = five(by("$request_uri"));
    let mut client = Client::new(proxy.http);
    let mut met = BTreeMap::new();
    for number in 0..60 {
        let target = format!("/k{number}?x=1");
        let text = client.get(&target).text().to_owned();
        assert_eq!(text, owner(&origins, &target));
        *met.entry(text).or_insert(0) += 1;
    }
    assert!(met.len() >= 4, "{met:?}");
}

#[test]
fn a_key_is_made_of_what_the_request_says() {
    let cases: &[(&str, &str, &str)] = &[
        ("$uri", "GET /a%20b/../c?x=1 HTTP/1.1\r\nHost: a.test\r\n\r\n", "/c"),
        ("$arg_user", "GET /a?z=2&user=anna HTTP/1.1\r\nHost: a.test\r\n\r\n", "anna"),
        ("$arg_user", "GET /a HTTP/1.1\r\nHost: a.test\r\n\r\n", ""),
        ("$http_x_user", "GET / HTTP/1.1\r\nHost: a.test\r\nX-User: bert\r\n\r\n", "bert"),
        ("$cookie_user", "GET / HTTP/1.1\r\nHost: a.test\r\nCookie: a=1; user=cleo; b=2\r\n\r\n", "cleo"),
        ("$host$uri", "GET /k?x=1 HTTP/1.1\r\nHost: A.test:80\r\n\r\n", "a.test/k"),
        ("${remote_addr}-text", "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "127.0.0.1-text"),
        ("$binary_remote_addr", "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "\x7f\0\0\x01"),
        ("$remote_user", "GET / HTTP/1.1\r\nHost: a.test\r\nAuthorization: Basic YW5uYTpw\r\n\r\n", "anna"),
        ("$request_method$scheme", "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "GEThttp"),
        ("$foo_bar", "GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n", ""),
    ];
    for (expression, request, key) in cases {
        let (proxy, origins) = five(by(expression));
        let mut client = Client::new(proxy.http);
        assert_eq!(client.ask(request).text(), owner(&origins, key), "{expression}");
    }
}

#[test]
fn a_key_knows_the_rewritten_path_and_its_captures() {
    let mut proxy = Proxy::with(Limits::default());
    let origins = TEXTS.map(Origin::says);
    let policy = LocationPolicy {
        use_regex: Some(true),
        rewrite_target: Some("/to/$2".into()),
        ..LocationPolicy::default()
    };
    let route = |service| Route {
        paths: vec![to(&format!("/{service}(/|$)(.*)"), PathType::Prefix, service)],
        policy: policy.clone(),
        ..Route::default()
    };
    let host = Host {
        policy: shared::policy::HostPolicy { regex: Some(true), ..Default::default() },
        ..Host::default()
    };
    proxy.config(vec![
        ("a.test", Resource::Host(host)),
        ("ingress/ns/one/a.test", Resource::Route(route("one"))),
        ("ingress/ns/two/a.test", Resource::Route(route("two"))),
    ]);
    // Nothing is rewritten: the groups are those of the matched path.
    let policy = LocationPolicy { use_regex: Some(true), ..LocationPolicy::default() };
    proxy.config(vec![(
        "ingress/ns/three/a.test",
        Resource::Route(Route { paths: route("three").paths, policy, ..Route::default() }),
    )]);
    for (service, expression) in [("one", "$uri"), ("two", "$2-$request_uri"), ("three", "$2")] {
        proxy.service(service, Backend { policy: by(expression), ..Backend::default() });
        proxy.endpoints(service, &origins.each_ref().map(|origin| origin.address));
    }
    let mut client = Client::new(proxy.http);
    for number in 0..12 {
        let text = client.get(&format!("/one/k%20{number}")).text().to_owned();
        assert_eq!(text, owner(&origins, &format!("/to/k {number}")));
        let text = client.get(&format!("/two/{number}")).text().to_owned();
        assert_eq!(text, owner(&origins, &format!("{number}-/two/{number}")));
        let text = client.get(&format!("/three/{number}?x")).text().to_owned();
        assert_eq!(text, owner(&origins, &number.to_string()));
    }
}

#[test]
fn when_an_endpoint_leaves_its_own_keys_move_and_no_other() {
    let (mut proxy, origins) = five(by("$request_uri"));
    let mut client = Client::new(proxy.http);
    let ask = |client: &mut Client, number| client.get(&format!("/k{number}")).text().to_owned();
    let before: Vec<_> = (0..60).map(|number| ask(&mut client, number)).collect();
    proxy.remove_endpoint("echo", 2);
    for (number, text) in before.iter().enumerate() {
        let now = ask(&mut client, number);
        assert!(if text == "2" { now != "2" } else { now == *text }, "{number}: {text}, then {now}");
    }
    proxy.endpoints("echo", &origins.each_ref().map(|origin| origin.address));
    assert!(before.iter().enumerate().all(|(number, text)| ask(&mut client, number) == *text));
}

#[test]
fn a_key_goes_on_to_another_endpoint_where_its_own_is_dead() {
    let mut proxy = Proxy::with(Limits::default());
    let alive = Origin::says("alive");
    let addresses = [refusing(), alive.address, refusing()];
    proxy.host("a.test", false, &[("/", PathType::Prefix, "echo")]);
    proxy.service("echo", Backend { policy: by("$request_uri"), ..Backend::default() });
    proxy.endpoints("echo", &addresses);
    let mut client = Client::new(proxy.http);
    for number in 0..20 {
        let response = client.get(&format!("/k{number}"));
        assert_eq!((response.status, response.text()), (200, "alive"), "{number}");
    }
}

#[test]
fn a_key_of_a_group_is_shared_by_it_and_goes_beyond_it_where_it_is_dead() {
    let subset = |size| BackendPolicy { hash_subset: Some(true), hash_subset_size: size, ..by("$arg_k") };
    let (mut proxy, _origins) = five(subset(Some(2)));
    let mut client = Client::new(proxy.http);
    let groups: Vec<Vec<String>> =
        (0..8).map(|key| spread(&mut client, 30, |_| format!("/?k={key}")).into_keys().collect()).collect();
    for group in &groups {
        assert!([vec!["0", "1"], vec!["2", "3"], vec!["0", "4"]].iter().any(|it| it == group), "{groups:?}");
    }
    // Another group size for the same endpoints; 0 and unset mean three.
    for size in [Some(0), None] {
        proxy.service("echo", Backend { policy: subset(size), ..Backend::default() });
        let met = spread(&mut client, 60, |_| "/?k=x".into());
        let met: Vec<_> = met.into_keys().collect();
        assert!(met == ["0", "1", "2"] || met == ["0", "3", "4"], "{met:?}");
    }
    // All endpoints but one are dead: requests with the key reach it nevertheless.
    let alive = Origin::says("alive");
    proxy.service("echo", Backend { policy: subset(Some(1)), ..Backend::default() });
    proxy.endpoints("echo", &[refusing(), alive.address, refusing()]);
    for index in [3, 4] {
        proxy.remove_endpoint("echo", index);
    }
    let met = spread(&mut client, 12, |number| format!("/?k={number}"));
    assert_eq!(met, BTreeMap::from([("alive".to_owned(), 12)]));
}

#[test]
fn affinity_comes_before_a_key_and_a_change_of_it_takes_effect() {
    let affinity = Some(Affinity { name: "seat".into(), ..Affinity::default() });
    let (mut proxy, origins) = five(BackendPolicy { affinity, ..by("$request_uri") });
    let mut client = Client::new(proxy.http);
    assert!(spread(&mut client, 60, |_| "/same".into()).len() > 1);
    proxy.service("echo", Backend { policy: by("$request_uri"), ..Backend::default() });
    assert_eq!(client.get("/same").text(), owner(&origins, "/same"));
    proxy.service("echo", Backend { policy: by("$arg_k"), ..Backend::default() });
    assert_eq!(client.get("/same?k=a").text(), owner(&origins, "a"));
    proxy.service("echo", Backend::default());
    let met = spread(&mut client, 50, |_| "/same".into());
    assert!(met.len() == 5 && met.values().all(|count| *count == 10), "{met:?}");
}

#[test]
fn a_canary_has_a_balancer_of_its_own() {
    let mut proxy = Proxy::with(Limits::default());
    let (main, next) = (["m0", "m1", "m2"].map(Origin::says), TEXTS.map(Origin::says));
    proxy.host("a.test", false, &[("/", PathType::Prefix, "main")]);
    let canary = Some(Canary { header: "x-next".into(), ..Canary::default() });
    proxy.service("main", Backend { alternatives: vec!["ns/next/80".into()], ..Backend::default() });
    proxy.service(
        "next",
        Backend { policy: BackendPolicy { canary, ..by("$request_uri") }, ..Backend::default() },
    );
    proxy.endpoints("main", &main.each_ref().map(|origin| origin.address));
    proxy.endpoints("next", &next.each_ref().map(|origin| origin.address));
    let mut client = Client::new(proxy.http);
    let met = spread(&mut client, 30, |_| "/same".into());
    assert!(met.len() == 3 && met.values().all(|count| *count == 10), "{met:?}");
    for _ in 0..6 {
        let response = client.ask("GET /same HTTP/1.1\r\nHost: a.test\r\nX-Next: always\r\n\r\n");
        assert_eq!(response.text(), owner(&next, "/same"));
    }
}

#[test]
fn without_endpoints_a_key_leads_nowhere_and_with_one_always_there() {
    let mut proxy = Proxy::with(Limits::default());
    let origin = Origin::says("one");
    proxy.host("a.test", false, &[("/", PathType::Prefix, "echo")]);
    proxy.service("echo", Backend { policy: by("$request_uri"), ..Backend::default() });
    let mut client = Client::new(proxy.http);
    assert_eq!(client.get("/").status, 503);
    proxy.endpoints("echo", &[origin.address]);
    assert_eq!(spread(&mut client, 10, |number| format!("/k{number}")).len(), 1);
    proxy.remove_endpoint("echo", 0);
    assert_eq!(client.get("/").status, 503);
}

/// Five origins, the first of which is slow, behind a Service with this policy.
fn one_of_them_slow(policy: BackendPolicy, slow: Duration) -> (Proxy, Vec<Origin>) {
    let mut proxy = Proxy::with(Limits::default());
    let mut origins = vec![Origin::new(move |_| {
        std::thread::sleep(slow);
        (ok("slow"), true)
    })];
    origins.extend(["1", "2", "3", "4"].map(Origin::says));
    proxy.host("a.test", false, &[("/", PathType::Prefix, "echo")]);
    proxy.service("echo", Backend { policy, ..Backend::default() });
    proxy.endpoints("echo", &origins.iter().map(|origin| origin.address).collect::<Vec<_>>());
    (proxy, origins)
}

fn ewma() -> BackendPolicy {
    BackendPolicy { load_balance: Some(LoadBalance::Ewma.into()), ..BackendPolicy::default() }
}

const SLOW: Duration = Duration::from_millis(150);

#[test]
fn ewma_avoids_the_slow_endpoint_and_spreads_over_the_others() {
    let (proxy, _origins) = one_of_them_slow(ewma(), SLOW);
    let mut client = Client::new(proxy.http);
    let met = spread(&mut client, 100, |_| "/".into());
    assert!(met.get("slow").copied().unwrap_or_default() <= 8, "{met:?}");
    assert!(met.len() >= 4, "{met:?}");
}

#[test]
fn a_body_that_comes_slowly_counts() {
    let mut proxy = Proxy::with(Limits::default());
    let slow = Origin::raw(|mut stream, number, seen| {
        while let Some(request) = read_request(&mut stream, number) {
            seen.lock().unwrap().push(request);
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsl";
            let rest = stream.write_all(head).and_then(|()| {
                std::thread::sleep(SLOW);
                stream.write_all(b"ow")
            });
            if rest.is_err() {
                break;
            }
        }
    });
    let quick = ["1", "2"].map(Origin::says);
    proxy.host("a.test", false, &[("/", PathType::Prefix, "echo")]);
    proxy.service("echo", Backend { policy: ewma(), ..Backend::default() });
    proxy.endpoints("echo", &[slow.address, quick[0].address, quick[1].address]);
    let met = spread(&mut Client::new(proxy.http), 60, |_| "/".into());
    assert!(met.get("slow").copied().unwrap_or_default() <= 8, "{met:?}");
}

#[test]
fn load_balance_of_the_fleet_applies_until_an_ingress_overrides_it() {
    let (mut proxy, _origins) = one_of_them_slow(BackendPolicy::default(), SLOW / 2);
    let mut client = Client::new(proxy.http);
    let of_slow = |client: &mut Client| {
        let met = spread(client, 50, |_| "/".into());
        met.get("slow").copied().unwrap_or_default()
    };
    assert_eq!(of_slow(&mut client), 10);
    let fleet = |backend_defaults| Resource::Settings(Settings { backend_defaults, ..Settings::default() });
    proxy.config(vec![("default", fleet(ewma()))]);
    assert!(of_slow(&mut client) <= 4);
    let policy =
        BackendPolicy { load_balance: Some(LoadBalance::RoundRobin.into()), ..BackendPolicy::default() };
    proxy.service("echo", Backend { policy, ..Backend::default() });
    assert_eq!(of_slow(&mut client), 10);
    proxy.service("echo", Backend::default());
    assert!(of_slow(&mut client) <= 4);
    proxy.config(vec![("default", fleet(BackendPolicy::default()))]);
    assert_eq!(of_slow(&mut client), 10);
}

#[test]
fn latencies_of_endpoints_survive_changes_of_the_others() {
    let (mut proxy, origins) = one_of_them_slow(ewma(), SLOW);
    let mut client = Client::new(proxy.http);
    // Until it was used once, its score is the best.
    let met = (0..200).any(|_| client.get("/").text() == "slow");
    assert!(met);
    let more = Origin::says("more");
    let mut addresses: Vec<_> = origins.iter().map(|origin| origin.address).collect();
    addresses.push(more.address);
    let mut slow = 0;
    for change in 0..4 {
        match change % 2 {
            0 => proxy.endpoints("echo", &addresses),
            _ => proxy.remove_endpoint("echo", addresses.len() - 1),
        }
        let met = spread(&mut client, 10, |_| "/".into());
        slow += met.get("slow").copied().unwrap_or_default();
    }
    assert!(slow <= 2, "{slow}");
}

#[test]
fn with_ewma_a_request_leaves_who_fails() {
    let mut proxy = Proxy::with(Limits::default());
    let alive = Origin::says("alive");
    proxy.host("a.test", false, &[("/", PathType::Prefix, "echo")]);
    proxy.service("echo", Backend { policy: ewma(), ..Backend::default() });
    let mut client = Client::new(proxy.http);
    assert_eq!(client.get("/").status, 503);
    proxy.endpoints("echo", &[refusing(), alive.address, refusing()]);
    assert_eq!(spread(&mut client, 30, |_| "/".into()), BTreeMap::from([("alive".to_owned(), 30)]));
    proxy.endpoints("echo", &[refusing(), refusing(), refusing()]);
    assert_eq!(client.get("/").status, 502);
}

#[test]
fn endpoints_take_turns() {
    let origins = [Origin::says("one"), Origin::says("two")];
    let proxy = Proxy::serving(Limits::default(), &origins.each_ref().map(|origin| origin.address));
    let mut client = Client::new(proxy.http);
    (0..100).for_each(|_| assert_eq!(client.get("/").status, 200));
    assert_eq!(origins.each_ref().map(|origin| origin.seen().len()), [50, 50]);
}
