//! The invariants of `properties` over every annotation and every key of the ConfigMap, with the samples of their rows, and
//! over snippets: whoever depends on what another Ingress or the fleet says is compiled anew when that changes.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index as Any, select};
use serde_json::{Value, json};

use super::fixture::*;
use super::properties::{Step, assert_same, live_through};
use super::references::htpasswd;
use super::restrictions::authorities;
use crate::annotations::row::Row;
use crate::annotations::table;
use crate::compile::settings::table as settings;
use crate::objects::Object;

/// What each reference of a sample names.
const REFERRED: &str = "some-name";

/// What is told apart only where several stand in a host, or the fleet allows it.
const SNIPPETS: [&str; 16] = [
    "add_header X-A 1; proxy_set_header X-B 2; proxy_hide_header X-C;",
    "more_set_headers \"X-D: 3\";",
    "if ($request_method = TRACE) { return 405; }",
    "location = /metrics { deny all; }",
    "location ~ ^/x { return 403; }",
    "rewrite ^/old(.*)$ /new$1 permanent;",
    "return 301 https://c.test$request_uri;",
    "deny 192.0.2.0/24; allow all;",
    "allow 192.0.2.0/24; deny all;",
    "limit_req zone=by_address burst=5 nodelay;",
    "limit_conn together 7;",
    "proxy_cookie_flags ~ secure;",
    "client_max_body_size 3m; proxy_read_timeout 9s;",
    "if ($http_x_a = \"b\") { set $x 1; add_header X-E $x; }",
    "access_by_lua_block { ngx.exit(403) }",
    "real_ip_header X-Who; set_real_ip_from 10.0.0.0/8;",
];

/// Keys whose values no row of an annotation parses.
const OF_THE_FLEET: [(&str, &str); 14] = [
    ("allow-snippet-annotations", "false"),
    ("annotations-risk-level", "Low"),
    ("annotation-value-word-blocklist", "secure,deny"),
    ("allow-cross-namespace-resources", "true"),
    ("strict-validate-path-type", "false"),
    ("proxy-ssl-location-only", "true"),
    ("global-allowed-response-headers", "X-A,X-B"),
    ("global-auth-snippet", "proxy_set_header X-Auth 1;"),
    (
        "http-snippet",
        "limit_req_zone $remote_addr zone=by_address:1m rate=5r/s; limit_conn_zone $host zone=together:1m;",
    ),
    ("http-snippet", "limit_req_zone $remote_addr zone=by_address:1m rate=9r/s; add_header X-H 1;"),
    ("location-snippet", "add_header X-L 1; deny 192.0.2.7;"),
    ("location-snippet", "limit_conn together 2;"),
    ("server-snippet", "add_header X-S 1; limit_req zone=by_address;"),
    ("server-snippet", "location = /health { return 200; }"),
];

/// Where several of an Ingress go together, or refer to something.
const USUAL: [(&str, &str); 10] = [
    ("auth-type", "basic"),
    ("auth-secret", REFERRED),
    ("auth-tls-secret", "default/some-name"),
    ("canary", "true"),
    ("canary-weight", "20"),
    ("default-backend", "s2"),
    ("custom-http-errors", "404,503"),
    ("server-alias", "b.test,c.test"),
    ("use-regex", "true"),
    ("backend-protocol", "HTTPS"),
];

/// One of a row's samples, seldom a bad one.
fn sample(row: &'static Row, which: Any, is_bad: bool) -> &'static str {
    let (good, bad) = row.value.samples();
    let texts = if is_bad && !bad.is_empty() { bad } else { good };
    texts[which.index(texts.len())]
}

fn an_annotation() -> impl Strategy<Value = (&'static str, String)> {
    let of_a_row = (select(table::names().collect::<Vec<_>>()), any::<Any>(), prop::bool::weighted(0.1))
        .prop_map(|(name, which, is_bad)| {
            (name, sample(table::find(name).unwrap(), which, is_bad).to_owned())
        });
    let snippets = select(&["server-snippet", "configuration-snippet"][..]);
    let a_snippet = (snippets, select(&SNIPPETS[..])).prop_map(|(name, text)| (name, text.to_owned()));
    let of_use = select(&USUAL[..]).prop_map(|(name, text)| (name, text.to_owned()));
    prop_oneof![4 => of_a_row, 2 => a_snippet, 2 => of_use]
}

fn an_ingress() -> impl Strategy<Value = Object> {
    let path = (select(&["/", "/", "/x", "=/x"][..]), select(&["s0", "s1", "s2"][..]));
    let rules =
        vec((select(&["a.test", "a.test", "b.test", "www.a.test", "*.test", ""][..]), vec(path, 1..3)), 1..3);
    let who = (select(&["i0", "i1", "i2"][..]), option::of(1..3_u32));
    let tls = option::of(select(&["a.test", "b.test"][..]));
    (who, rules, tls, vec(an_annotation(), 0..5)).prop_map(|((name, at), rules, tls, annotations)| {
        let mut it = ingress(name);
        if let Some(at) = at {
            it = it.at(at);
        }
        for (host, paths) in &rules {
            it = it.rule(host, paths);
        }
        if let Some(host) = tls {
            it = it.tls(&[host], REFERRED);
        }
        annotations.iter().fold(it, |it, (name, text)| it.annotation(name, text)).into()
    })
}

fn what_the_fleet_says() -> impl Strategy<Value = Object> {
    let keys: Vec<_> =
        settings::ROWS.iter().filter(|(_, it)| it.row().is_some()).map(|(key, _)| *key).collect();
    let of_a_row =
        (select(keys), any::<Any>(), prop::bool::weighted(0.1)).prop_map(|(key, which, is_bad)| {
            let row = settings::Status::of(key).and_then(settings::Status::row);
            (key, sample(row.unwrap(), which, is_bad))
        });
    let said = prop_oneof![1 => of_a_row, 2 => select(&OF_THE_FLEET[..])];
    vec(said, 0..4).prop_map(|said| {
        let mut data = json!({"allow-snippet-annotations": "true", "annotations-risk-level": "Critical"});
        said.iter().for_each(|(key, text)| data[*key] = json!(text));
        configmap(data)
    })
}

fn what_is_referred_to() -> impl Strategy<Value = Object> {
    let fields = |data: Value| {
        let metadata = json!({"namespace": "default", "name": REFERRED});
        Object::ConfigMap(serde_json::from_value(json!({"metadata": metadata, "data": data})).unwrap())
    };
    let all = [
        htpasswd(REFERRED, "a:{PLAIN}b\n"),
        htpasswd(REFERRED, "c:{PLAIN}d\n"),
        authorities(REFERRED),
        secret(REFERRED, 0),
        secret(REFERRED, 1),
        fields(json!({"X-A": "1"})),
        fields(json!({"X-B": "2"})),
    ];
    select(all.to_vec())
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let object = prop_oneof![
        6 => an_ingress(),
        2 => what_the_fleet_says(),
        2 => what_is_referred_to(),
        1 => select(&["s0", "s1", "s2"][..]).prop_map(service),
    ];
    let step = (object, 0..10_u32).prop_map(|(object, dice)| match dice {
        0 | 1 => Step::Delete(object),
        2..5 => Step::Commit,
        _ => Step::Apply(object),
    });
    vec(step, 0..24)
}

proptest! {
    #[test]
    fn incremental_equals_from_scratch_whatever_is_said(steps in steps()) {
        let (world, truth) = live_through(steps);
        let mut fresh = World::default();
        let commit = fresh.events(truth.events());
        prop_assert_eq!(commit.holds, vec![]);
        assert_same(&world, &fresh);
    }
}
