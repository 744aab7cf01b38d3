use std::net::Ipv4Addr;

use shared::policy::{LocationPolicy, TextList};
use shared::resource::{Resource, Settings};

use super::harness::*;

const HERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

fn list(values: &[&str]) -> Option<TextList> {
    Some(TextList { values: values.iter().map(ToString::to_string).collect() })
}

#[test]
fn address_lists() {
    let origin = Origin::says("in");
    let mut proxy = Proxy::start();
    let allow = LocationPolicy { allowlist_source_range: list(&["127.0.0.1"]), ..LocationPolicy::default() };
    let deny = LocationPolicy { denylist_source_range: list(&["127.0.0.1/32"]), ..LocationPolicy::default() };
    let both = LocationPolicy { allowlist_source_range: list(&["127.0.0.0/8"]), ..deny.clone() };
    let none = LocationPolicy::default();
    let broken = LocationPolicy { denylist_source_range: list(&["office"]), ..none.clone() };
    let paths =
        [("/allow", allow.clone()), ("/deny", deny), ("/both", both), ("/none", none), ("/broken", broken)];
    proxy.policies(false, &paths);
    for (path, _) in &paths {
        proxy.endpoints(&path[1..], &[origin.address]);
    }
    let statuses = |proxy: &Proxy, path: &str| {
        [HERE, THERE].map(|source| Client::from(source, proxy.http).get(path).status)
    };
    for (path, expected) in
        [("/allow", [200, 403]), ("/deny", [403, 200]), ("/both", [403, 200]), ("/none", [200, 200])]
    {
        assert_eq!(statuses(&proxy, path), expected, "{path}");
    }
    assert_eq!(statuses(&proxy, "/broken"), [404, 404], "what cannot be read is refused as a whole");
    // A list of the fleet acts where there is none; it is inherited by nobody who has one.
    let defaults = LocationPolicy { block_cidrs: list(&["127.0.0.0/8"]), ..LocationPolicy::default() };
    proxy.config(vec![("default", Resource::Settings(Settings { defaults, ..Settings::default() }))]);
    for (path, expected) in
        [("/allow", [200, 403]), ("/deny", [403, 200]), ("/both", [403, 200]), ("/none", [403, 403])]
    {
        assert_eq!(statuses(&proxy, path), expected, "{path}");
    }
    // A backend without endpoints is 503 for everybody.
    proxy.policies(false, &[("/empty", allow)]);
    assert_eq!(statuses(&proxy, "/empty"), [503, 503]);
}
