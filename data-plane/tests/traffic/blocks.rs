//! Requests that are blocked by User-Agent and Referer.

use shared::policy::{HostPolicy, LocationPolicy, TextList};
use shared::resource::{CATCH_ALL, Host, Resource};

use super::harness::*;

fn list(texts: &[&str]) -> Option<TextList> {
    Some(TextList { values: texts.iter().map(|text| (*text).to_owned()).collect() })
}

#[test]
fn blocked_user_agent_or_referer_gets_403_before_any_redirect() {
    let origin = Origin::says("backend");
    let mut proxy = Proxy::start();
    let redirected = LocationPolicy {
        force_ssl_redirect: Some(true),
        app_root: Some("/app".into()),
        ..LocationPolicy::default()
    };
    proxy.policies(false, &[("/x", redirected), ("/echo", LocationPolicy::default())]);
    proxy.endpoints("echo", &[origin.address]);
    let www = HostPolicy { www: Some(true), ..HostPolicy::default() };
    let bare = Host { policy: www, ..Host::default() };
    proxy.config(vec![(CATCH_ALL, Resource::Host(Host::default())), ("b.test", Resource::Host(bare))]);
    let settings = |agents: &[&str], referers: &[&str]| {
        let (block_user_agents, block_referers) = (list(agents), list(referers));
        LocationPolicy { block_user_agents, block_referers, ..LocationPolicy::default() }
    };
    proxy.defaults(settings(&["~*bot/[0-9]", "AlphaBot"], &["~*example[.]com"]));
    let mut client = Client::new(proxy.http);
    let mut ask = |target: &str, host: &str, field: &str| {
        client.ask(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{field}\r\n\r\n")).status
    };
    for (target, host, field, status) in [
        ("/echo", "a.test", "User-Agent: Mozilla/5.0", 200),
        ("/echo", "a.test", "Accept: */*", 200),
        ("/echo", "a.test", "User-Agent: alphabot", 403),
        ("/echo", "a.test", "User-Agent: AlphaBot/x", 200),
        ("/echo", "a.test", "User-Agent: xBOT/7", 403),
        ("/echo", "a.test", "Referer: http://www.EXAMPLE.com/x", 403),
        ("/echo", "a.test", "Referer: AlphaBot", 200),
        ("/", "a.test", "User-Agent: AlphaBot", 403),
        ("/", "a.test", "User-Agent: x", 302),
        ("/x", "a.test", "User-Agent: AlphaBot", 403),
        ("/x", "a.test", "User-Agent: x", 308),
        ("/x", "www.b.test", "User-Agent: AlphaBot", 403),
        ("/x", "www.b.test", "Referer: http://example.com/", 403),
        ("/x", "www.b.test", "User-Agent: x", 308),
        ("/", "nobody.test", "User-Agent: AlphaBot", 403),
        ("/healthz", "nobody.test", "User-Agent: AlphaBot", 403),
        ("/healthz", "nobody.test", "User-Agent: x", 200),
    ] {
        assert_eq!(ask(target, host, field), status, "{host}{target} {field}");
    }
    proxy.defaults(settings(&["other"], &[]));
    assert_eq!(ask("/echo", "a.test", "User-Agent: AlphaBot"), 200);
    assert_eq!(ask("/echo", "a.test", "User-Agent: OTHER"), 403);
}

#[test]
fn blocked_address_gets_403_for_unknown_hosts_too() {
    let mut proxy = Proxy::start();
    proxy.config(vec![(CATCH_ALL, Resource::Host(Host::default()))]);
    let mut client = Client::new(proxy.http);
    // The fleet's other lists are defaults of annotations, which do not apply here.
    for (block_cidrs, denylist_source_range, status) in [
        ("127.0.0.0/8", None, 403),
        ("10.0.0.0/8", None, 404),
        ("10.0.0.0/8", list(&["127.0.0.1"]), 404),
        ("127.0.0.0/8", list(&["10.0.0.1"]), 403),
    ] {
        let block_cidrs = list(&[block_cidrs]);
        let defaults = LocationPolicy { block_cidrs, denylist_source_range, ..LocationPolicy::default() };
        proxy.defaults(defaults);
        let asked = client.ask("GET /x HTTP/1.1\r\nHost: nobody.test\r\n\r\n");
        assert_eq!(asked.status, status);
    }
    drop(client);
    assert_eq!(proxy.stop(std::time::Duration::ZERO, PATIENCE), "", "as what is not found there");
}
