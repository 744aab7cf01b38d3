use proptest::prelude::*;
use shared::admin::Body;

use super::super::{Labels, Metrics, NO_HOST, RulesConfig};
use super::*;

fn place(owner: &str, path: &str) -> Arc<RequestLabels> {
    RequestLabels::new(&format!("ingress/{owner}/a.test").into(), Some(&"ns/echo/80".into()), &path.into())
}

fn request(method: &str, status: u16) -> Request<'_> {
    let figures = [Some(7_000), None, None, None, Some(25), Some(120), Some(120)];
    Request { method, host: None, status, canary: None, figures }
}

fn page(metrics: &Metrics, rules: &Rules) -> Vec<String> {
    let labels = Labels { namespace: "edge".into(), pod: "proxy-1".into() };
    let page = Body::Pieces(Box::new(metrics.requests(&Arc::new(rules.clone()), &labels))).into_bytes();
    str::from_utf8(&page).unwrap().lines().map(str::to_owned).collect()
}

/// Of one worker, where unknown hosts are counted by name.
fn of_any_host() -> (Arc<Rules>, Metrics, Requests) {
    let said = RulesConfig { per_undefined_host: Some(true), ..RulesConfig::default() };
    let (rules, metrics) = (Arc::new(Rules::new(&said)), Metrics::new(1));
    let mut requests = Requests::new(metrics.worker(0));
    requests.follow(Some(&rules));
    (rules, metrics, requests)
}

/// Values of the counter by their labels, without those of the controller.
fn counted(metrics: &Metrics, rules: &Rules) -> Vec<String> {
    let lines = page(metrics, rules).into_iter();
    lines
        .filter_map(|line| {
            Some(
                line.strip_prefix("nginx_ingress_controller_requests{")?
                    .split_once("proxy-1\",")?
                    .1
                    .to_owned(),
            )
        })
        .collect()
}

#[test]
fn workers_are_added_up_and_labels_are_the_original_s() {
    let metrics = Metrics::new(2);
    let place = place("ns/web", "/a\"b\\c\nd");
    let canary = Arc::from("ns-next-80");
    for worker in 0..2 {
        let mut requests = Requests::new(metrics.worker(worker));
        requests.count(&place, &request("GET", 200));
        requests.count(&place, &request("BREW", 200));
        requests.count(&place, &Request { canary: Some(&canary), ..request("GET", 200) });
        requests.tick();
    }
    let rules = Rules::default();
    assert_eq!(
        counted(&metrics, &rules),
        [("", "GET", 2), ("", "OTHER", 2), ("ns-next-80", "GET", 2)].map(|(canary, method, count)| format!(
            "canary=\"{canary}\",host=\"a.test\",ingress=\"web\",method=\"{method}\",namespace=\"ns\",\
             path=\"/a\\\"b\\\\c\\nd\",service=\"echo\",status=\"200\"}} {count}"
        ))
    );
    let page = page(&metrics, &rules);
    let with = |name: &str, text: &str| {
        let start = format!(
            "nginx_ingress_controller_{name}{{controller_class=\"k8s.io/ingress-nginx\",controller_namespace=\"edge\""
        );
        page.iter()
            .filter(|line| line.starts_with(&start) && line.contains(text))
            .cloned()
            .collect::<Vec<_>>()
    };
    let buckets = with("request_duration_seconds_bucket", "method=\"OTHER\"");
    assert_eq!(buckets.len(), 12);
    assert!(
        buckets[0].ends_with(",le=\"0.005\"} 0") && buckets[1].ends_with(",le=\"0.01\"} 2"),
        "{buckets:?}"
    );
    assert!(with("request_duration_seconds_sum", "OTHER")[0].ends_with(" 0.014"));
    assert!(with("response_size_bucket", "OTHER")[10].ends_with(",le=\"+Inf\"} 2"));
    assert!(with("response_size_bucket", "OTHER")[9].ends_with(",le=\"100\"} 0"));
    assert!(with("bytes_sent_sum", "OTHER")[0].ends_with(" 240"));
    let sizes = with("bytes_sent_bucket", "OTHER");
    let shown: Vec<_> = sizes.iter().filter_map(|line| line.split('"').rev().nth(1)).collect();
    assert_eq!(
        shown,
        ["10", "100", "1000", "10000", "100000", "1e+06", "1e+07", "+Inf"],
        "as Go writes them"
    );
    assert_eq!(with("connect_duration_seconds_count", ""), [""; 0], "nobody was asked");
}

/// As Prometheus defines `le`.
#[test]
fn a_figure_that_equals_a_bound_is_below_it() {
    let metrics = Metrics::new(1);
    let mut requests = Requests::new(metrics.worker(0));
    let place = place("ns/web", "/");
    let figures = [None, None, None, None, None, Some(100), None];
    requests.count(&place, &Request { figures, ..request("GET", 200) });
    requests.tick();
    let page = page(&metrics, &Rules::default());
    let buckets =
        page.iter().filter(|line| line.starts_with("nginx_ingress_controller_response_size_bucket"));
    let ends: Vec<_> = buckets.filter_map(|line| line.split_once(",le=")).map(|(_, end)| end).collect();
    assert_eq!(ends[8..], ["\"90\"} 0", "\"100\"} 1", "\"+Inf\"} 1"]);
}

#[test]
fn configured_histograms_and_labels_are_exported() {
    let rules = Arc::new(Rules::new(&RulesConfig {
        per_host: Some(false),
        status_classes: Some(true),
        bounds: [None, Some(vec![100.0, 200.0]), None],
        excluded: &["request_duration_seconds".to_owned(), format!("{}bytes_sent", super::super::PREFIX)],
        ..RulesConfig::default()
    }));
    let metrics = Metrics::new(1);
    let mut requests = Requests::new(metrics.worker(0));
    requests.follow(Some(&rules));
    requests.count(&place("ns/web", "/"), &request("GET", 204));
    let kept = place("ns/web", "/");
    requests.count(&kept, &request("GET", 204));
    requests.count(&kept, &request("GET", 200));
    requests.tick();
    assert_eq!(
        counted(&metrics, &rules),
        [
            "canary=\"\",ingress=\"web\",method=\"GET\",namespace=\"ns\",path=\"/\",service=\"echo\",status=\"2xx\"} 2"
        ]
    );
    let text = page(&metrics, &rules).join("\n");
    assert!(!text.contains("request_duration_seconds") && !text.contains("bytes_sent"));
    assert!(text.contains("response_size_bucket") && text.contains("le=\"200\"} 2"));
    // With other rules counting starts anew.
    assert_eq!(counted(&metrics, &Rules::default()), [""; 0]);
    requests.follow(None);
    requests.tick();
    assert_eq!(counted(&metrics, &rules), [""; 0]);
}

/// What Flagger's built-in `request-duration` and ingress-nginx' dashboard ask for.
#[test]
fn latency_is_summed_up_by_ingress_and_service() {
    let summed = |excluded: &[String]| {
        let rules = Arc::new(Rules::new(&RulesConfig { excluded, ..RulesConfig::default() }));
        let metrics = Metrics::new(2);
        let places = [place("ns/web", "/"), place("ns/web", "/two"), place("ns/api", "/api")];
        let canary = Arc::from("ns-next-80");
        for worker in 0..2 {
            let mut requests = Requests::new(metrics.worker(worker));
            requests.follow(Some(&rules));
            let figures = [Some(7_000), Some(1_500), None, None, None, None, None];
            for place in &places {
                requests.count(place, &Request { figures, ..request("GET", 200) });
                requests.count(place, &Request { figures, ..request("POST", 502) });
                requests.count(place, &request("GET", 413));
            }
            requests.count(&places[0], &Request { figures, canary: Some(&canary), ..request("GET", 200) });
            requests.tick();
        }
        let lines = page(&metrics, &rules).into_iter();
        let (latency, others): (Vec<_>, Vec<_>) =
            lines.partition(|line| line.contains("ingress_upstream_latency"));
        let short = |line: &String| match line.split_once("proxy-1\",") {
            Some((_, rest)) => {
                format!("{} {rest}", line.split('{').next().unwrap().rsplit('_').next().unwrap())
            }
            None => line
                .split_whitespace()
                .skip(1)
                .take(1)
                .chain(line.rsplit(' ').take(1))
                .collect::<Vec<_>>()
                .join(" "),
        };
        let connect = others.iter().filter(|line| line.contains("connect_duration_seconds")).count();
        (latency.iter().map(short).collect::<Vec<_>>(), connect > 0)
    };
    let expected = [
        "HELP asked",
        "TYPE summary",
        "sum canary=\"\",ingress=\"api\",namespace=\"ns\",service=\"echo\"} 0.006",
        "count canary=\"\",ingress=\"api\",namespace=\"ns\",service=\"echo\"} 4",
        "sum canary=\"\",ingress=\"web\",namespace=\"ns\",service=\"echo\"} 0.012",
        "count canary=\"\",ingress=\"web\",namespace=\"ns\",service=\"echo\"} 8",
        "sum canary=\"ns-next-80\",ingress=\"web\",namespace=\"ns\",service=\"echo\"} 0.003",
        "count canary=\"ns-next-80\",ingress=\"web\",namespace=\"ns\",service=\"echo\"} 2",
    ];
    let (latency, has_histogram) = summed(&[]);
    assert_eq!((latency, has_histogram), (expected.map(str::to_owned).to_vec(), true));
    let (latency, has_histogram) = summed(&["connect_duration_seconds".to_owned()]);
    assert_eq!((latency, has_histogram), (expected.map(str::to_owned).to_vec(), false));
    let (latency, has_histogram) = summed(&["ingress_upstream_latency_seconds".to_owned()]);
    assert_eq!((latency.len(), has_histogram), (0, true));
}

#[test]
fn hosts_that_nobody_has_are_counted_where_that_is_asked_for() {
    let nobody = RequestLabels::of_host(&NO_HOST.into(), None);
    for (per_host, per_undefined_host, expected) in
        [(true, false, None), (true, true, Some("host=\"asked.test\"")), (false, false, Some("ingress=\"\""))]
    {
        let said = RulesConfig {
            per_host: Some(per_host),
            per_undefined_host: Some(per_undefined_host),
            ..RulesConfig::default()
        };
        let (metrics, rules) = (Metrics::new(1), Arc::new(Rules::new(&said)));
        let mut requests = Requests::new(metrics.worker(0));
        requests.follow(Some(&rules));
        requests.count(&nobody, &Request { host: Some("asked.test"), ..request("GET", 404) });
        requests.tick();
        let counted = counted(&metrics, &rules);
        assert_eq!(counted.len(), usize::from(expected.is_some()), "{counted:?}");
        assert!(counted.iter().all(|line| line.contains(expected.unwrap())), "{counted:?}");
    }
}

/// An Ingress without a host takes requests for all hosts: they are distinguished by host, and counted under it.
#[test]
fn requests_of_a_hostless_ingress_are_counted_by_host() {
    let (rules, metrics, mut requests) = of_any_host();
    let place =
        |path: &str| RequestLabels::new(&"ingress/ns/web/_".into(), Some(&"ns/echo/80".into()), &path.into());
    let (one, two) = (place("/"), place("/two"));
    for place in [&one, &two, &one] {
        requests.count(place, &Request { host: Some("asked.test"), ..request("GET", 200) });
    }
    requests.count(&one, &Request { host: Some("other.test"), ..request("GET", 200) });
    requests.tick();
    let series = |host: &str, path: &str, count: u8| {
        format!(
            "canary=\"\",host=\"{host}\",ingress=\"web\",method=\"GET\",namespace=\"ns\",path=\"{path}\",\
             service=\"echo\",status=\"200\"}} {count}"
        )
    };
    let all = [series("asked.test", "/", 2), series("asked.test", "/two", 1), series("other.test", "/", 1)];
    assert_eq!(counted(&metrics, &rules), all);
    drop(two);
    (0..SWEEP).for_each(|_| requests.tick());
    assert_eq!(counted(&metrics, &rules), [&*all[0], &*all[2]]);
    drop(one);
    (0..SWEEP).for_each(|_| requests.tick());
    assert_eq!((requests.len, requests.names.len()), (0, 0));
}

/// All begins anew, so what was counted before takes no room.
#[test]
fn other_rules_have_all_their_room() {
    let metrics = Metrics::new(1);
    let mut requests = Requests::new(metrics.worker(0));
    let place = place("ns/web", "/");
    for classes in [true, false, true] {
        let said = RulesConfig { status_classes: Some(classes), ..RulesConfig::default() };
        requests.follow(Some(&Arc::new(Rules::new(&said))));
        [200, 204, 404].iter().for_each(|status| requests.count(&place, &request("GET", *status)));
        let sets: usize = requests.sets.values().map(SmallVec::len).sum();
        assert_eq!((requests.len, sets), if classes { (2, 2) } else { (3, 3) });
    }
}

#[test]
fn counts_of_removed_paths_are_dropped() {
    let metrics = Metrics::new(1);
    let (gone, kept) = (place("ns/gone", "/gone"), place("ns/kept", "/kept"));
    let mut requests = Requests::new(metrics.worker(0));
    requests.count(&gone, &request("GET", 200));
    requests.count(&kept, &request("GET", 200));
    requests.tick();
    assert_eq!(counted(&metrics, &Rules::default()).len(), 2);
    drop(gone);
    assert_eq!(counted(&metrics, &Rules::default()).len(), 1);
    (0..SWEEP).for_each(|_| requests.tick());
    assert_eq!(requests.len, 1);
}

/// Counts of the series whose labels have all of these.
fn sum(counted: &[String], labels: &[&str]) -> u64 {
    let lines = counted.iter().filter(|line| labels.iter().all(|label| line.contains(label)));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

/// Anybody can send requests with 16 methods, and get as many statuses: alerts of the path still see its failures.
#[test]
fn a_flood_of_odd_requests_hides_no_failure_of_a_path() {
    let metrics = Metrics::new(1);
    let mut requests = Requests::new(metrics.worker(0));
    let place = place("ns/web", "/");
    let canary = Arc::from("ns-next-80");
    for status in 100..500 {
        requests.count(&place, &request("GET", status));
        requests.count(&place, &Request { canary: Some(&canary), ..request("POST", status) });
    }
    for status in [500, 502, 503, 504, 503] {
        requests.count(&place, &request("GET", status));
        requests.count(&place, &Request { canary: Some(&canary), ..request("GET", status) });
    }
    requests.tick();
    let counted = counted(&metrics, &Rules::default());
    let of_path = ["ingress=\"web\"", "path=\"/\"", "service=\"echo\"", "host=\"a.test\""];
    assert_eq!(sum(&counted, &of_path), 810, "each is counted where it belongs");
    let failures = |canary| sum(&counted, &[canary, "ingress=\"web\"", "method=\"OTHER\"", "status=\"5xx\""]);
    assert_eq!([failures("canary=\"\""), failures("canary=\"ns-next-80\"")], [5, 5]);
    assert_eq!(requests.len, SETS_OF_PLACE + 10, "one of each class of status, with and without canary");
    assert_eq!(metrics.worker(0).overflowed.value(), 810 - SETS_OF_PLACE as u64);
}

#[test]
fn a_place_has_so_many_sets_whatever_its_canaries_are_called() {
    let metrics = Metrics::new(1);
    let mut requests = Requests::new(metrics.worker(0));
    let place = place("ns/web", "/");
    let canaries: Vec<Arc<str>> = (0..200).map(|number| format!("ns-next-{number}").into()).collect();
    for canary in &canaries {
        requests.count(&place, &Request { canary: Some(canary), ..request("GET", 200) });
    }
    requests.tick();
    let counted = counted(&metrics, &Rules::default());
    assert_eq!(counted.len(), SETS_OF_PLACE + FOLDED_OF_PLACE + 1);
    assert_eq!(sum(&counted, &["ingress=\"_overflow\"", "status=\"2xx\""]), 104);
    assert_eq!(sum(&counted, &[]), 200);
}

/// Some name a canary after each release.
#[test]
fn canaries_that_are_gone_leave_their_room_to_later_ones() {
    let metrics = Metrics::new(1);
    let mut requests = Requests::new(metrics.worker(0));
    let place = place("ns/web", "/");
    requests.count(&place, &request("GET", 200));
    for number in 0..40 {
        let canary = Arc::from(format!("ns-next-{number}"));
        for status in [200, 201, 404, 500, 503] {
            requests.count(&place, &Request { canary: Some(&canary), ..request("GET", status) });
        }
        requests.tick();
        let counted = counted(&metrics, &Rules::default());
        let of_canary = format!("canary=\"ns-next-{number}\"");
        let own = counted.iter().filter(|line| line.contains(&of_canary) && line.contains("\"GET\"")).count();
        assert_eq!((counted.len(), own), (6, 5), "{counted:?}");
        drop(canary);
        (0..SWEEP).for_each(|_| requests.tick());
        assert_eq!(requests.len, 1, "what the path itself has is kept");
    }
}

#[test]
fn every_path_has_its_series_beyond_the_room_for_all_kinds() {
    let metrics = Metrics::new(1);
    let mut requests = Requests::new(metrics.worker(0));
    let places: Vec<_> = (0..SETS + 100).map(|number| place("ns/many", &format!("/{number}"))).collect();
    for place in &places {
        requests.count(place, &request("GET", 503));
    }
    assert_eq!(requests.len, SETS + 100);
    requests.tick();
    let counted = counted(&metrics, &Rules::default());
    assert_eq!(sum(&counted, &["ingress=\"many\"", "method=\"GET\"", "status=\"503\""]), SETS as u64);
    assert_eq!(sum(&counted, &["ingress=\"many\"", "method=\"OTHER\"", "status=\"5xx\""]), 100);
    // There is an end to it all the same.
    let more: Vec<_> = (0..SETS).map(|number| place("ns/more", &format!("/{number}"))).collect();
    for place in &more {
        requests.count(place, &request("GET", 404));
    }
    assert_eq!(requests.len, 2 * SETS + 1);
}

#[test]
fn names_that_clients_bring_leave_room_to_declared_paths() {
    let (rules, metrics, mut requests) = of_any_host();
    let (declared, nobody) = (place("ns/web", "/"), RequestLabels::of_host(&NO_HOST.into(), None));
    let alias = Request { host: Some("alias.test"), ..request("GET", 503) };
    for status in 100..500 {
        requests.count(&declared, &Request { status, ..alias.clone() });
    }
    requests.count(&declared, &alias);
    for number in 0..NAMES {
        let host = format!("{number}.test");
        for status in 100..200 {
            requests.count(&nobody, &Request { host: Some(&host), ..request("GET", status) });
        }
    }
    assert!(requests.len <= SETS + 10, "{}", requests.len);
    requests.count(&declared, &request("GET", 503));
    requests.tick();
    let counted = counted(&metrics, &rules);
    let failures = |host| sum(&counted, &[host, "ingress=\"web\"", "status=\"5xx\""]);
    assert_eq!([failures("host=\"alias.test\""), failures("host=\"a.test\"")], [1, 1]);
}

/// A fleet of 3,000 Ingresses whose paths have five kinds of requests.
#[test]
fn there_is_more_room_where_there_is_more_memory() {
    let rules = Rules::default();
    let metrics = Metrics::new(2).within(2 << 30);
    let mut requests = Requests::new(metrics.worker(1));
    assert!(requests.most > 3_000 * 5, "{}", requests.most);
    // Two workers with twice as many sets as that take a sixteenth of the memory.
    assert!(2 * 2 * requests.most * (SET + rules.len() * 8) <= (2 << 30) / 16);
    let before = requests.most;
    requests.follow(Some(&Arc::new(Rules::new(&RulesConfig {
        bounds: [Some((1..=50).map(f64::from).collect()), None, None],
        ..RulesConfig::default()
    }))));
    assert!(requests.most < before / 2, "longer sets, less of them: {}", requests.most);
    assert_eq!(Requests::new(Metrics::new(2).within(64 << 20).worker(0)).most, SETS);
}

proptest! {
    /// Whatever clients request from unknown hosts with any method, the number of series is bounded.
    #[test]
    fn clients_make_no_series(asked in prop::collection::vec(("[A-Z]{1,12}", "[a-z]{1,20}", 100..1000_u16), 0..600)) {
        let (rules, metrics, mut requests) = of_any_host();
        let nobody = RequestLabels::of_host(&NO_HOST.into(), None);
        for (method, host, status) in &asked {
            requests.count(&nobody, &Request { host: Some(host), ..request(method, *status) });
        }
        requests.tick();
        prop_assert!(requests.len <= SETS + 10 && requests.names.len() <= NAMES);
        let lines = counted(&metrics, &rules);
        let sum: usize = lines.iter().map(|line| line.rsplit_once(' ').unwrap().1.parse::<usize>().unwrap()).sum();
        prop_assert_eq!(sum, asked.len());
    }
}

/// Clients choose the name and the paths: one name does not take the room of all others.
#[test]
fn one_name_has_so_many_places() {
    let (rules, metrics, mut requests) = of_any_host();
    let places: Vec<_> = (0..=PLACES_OF_NAME)
        .map(|number| {
            let path = format!("/{number}");
            RequestLabels::new(&"ingress/ns/web/_".into(), Some(&"ns/echo/80".into()), &path.into())
        })
        .collect();
    for place in &places {
        requests.count(place, &Request { host: Some("asked.test"), ..request("GET", 200) });
    }
    requests.tick();
    let counted = counted(&metrics, &rules);
    let named = counted.iter().filter(|line| line.contains("host=\"asked.test\"")).count();
    assert_eq!((counted.len(), named), (PLACES_OF_NAME + 1, PLACES_OF_NAME), "{counted:?}");
}
