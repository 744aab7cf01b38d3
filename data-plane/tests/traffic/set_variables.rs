//! Variables that a snippet sets in an `if`, in headers.

use shared::policy::{
    Header, HeaderChange, HeaderChangeList, HeaderList, HeaderOperation, LocationPolicy, ShortcutComparison,
    ShortcutTest, SnippetValue, SnippetVariable, SnippetVariables,
};

use shared::resource::{Backend, Host, PathType, Resource, Route};

use super::harness::*;

fn case(tests: &[(&str, ShortcutComparison, &str)], value: &str, groups_of: Option<u32>) -> SnippetValue {
    let test = |(subject, comparison, value): &(&str, ShortcutComparison, &str)| ShortcutTest {
        subject: (*subject).into(),
        comparison: Some((*comparison).into()),
        value: (*value).into(),
    };
    SnippetValue { tests: tests.iter().map(test).collect(), value: value.into(), groups_of }
}

fn variables(list: &[(&str, Vec<SnippetValue>)]) -> Option<SnippetVariables> {
    let variable = |(name, cases): &(&str, Vec<SnippetValue>)| SnippetVariable {
        name: (*name).into(),
        cases: cases.clone(),
    };
    Some(SnippetVariables { variables: list.iter().map(variable).collect() })
}

#[test]
fn headers_have_the_value_that_was_set_for_the_request() {
    use ShortcutComparison::{Differs, Equals, Finds};
    let origin = Origin::says("here");
    let tenant = vec![
        case(&[("$arg_x", Equals, "1"), ("$http_from", Finds, "^(.+)[.]a$")], "t-$1-$arg_x", Some(1)),
        case(&[("$http_from", Finds, "^(.+)[.]a$"), ("$arg_x", Differs, "")], "[$1] by $arg_x", None),
        case(&[("$arg_x", Equals, "")], "nobody", None),
        case(&[("$arg_x", Equals, "3")], "$arg_y", None),
    ];
    let add = |name: &str, value: &str| HeaderChange {
        operation: Some(HeaderOperation::Add.into()),
        name: name.into(),
        value: value.into(),
        statuses: Vec::new(),
    };
    let policy = LocationPolicy {
        variables: variables(&[("tenant", tenant)]),
        host_variables: variables(&[
            ("tenant", vec![case(&[], "of the host", None)]),
            ("host_s", vec![case(&[], "$request_method", None)]),
        ]),
        request_headers: Some(HeaderList {
            headers: vec![Header { name: "X-Tenant".into(), value: "<$tenant>".into() }],
        }),
        header_changes: Some(HeaderChangeList {
            changes: vec![add("X-Tenant", "$tenant"), add("X-By", "$host_s")],
        }),
        ..LocationPolicy::default()
    };
    let mut proxy = Proxy::start();
    proxy.policies(false, &[("/x", policy)]);
    proxy.endpoints("x", &[origin.address]);
    let mut client = Client::new(proxy.http);
    for (number, (path, from, expected)) in [
        ("/x?x=1", "b.a", "t-b-1"),
        ("/x?x=2", "b.a", "[] by 2"),
        ("/x", "b.a", "nobody"),
        ("/x?x=2", "b.c", "of the host"),
        ("/x?x=3", "b.c", ""),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = client.ask(&format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nFrom: {from}\r\n\r\n"));
        // As in nginx, no header is added whose value is empty.
        let expected_all = if expected.is_empty() { vec![] } else { vec![expected] };
        assert_eq!(answer.all("x-tenant"), expected_all, "{path} {from}");
        assert_eq!(answer.all("x-by"), ["GET"]);
        assert_eq!(origin.seen()[number].all("x-tenant"), [format!("<{expected}>")], "{path} {from}");
    }
}

/// The name of a group of a snippet, and of the one that ingress-nginx has for the star of a host.
#[test]
fn a_snippet_may_set_what_stands_for_the_star_of_the_host() {
    let origin = Origin::says("here");
    let set = vec![case(&[("$arg_x", ShortcutComparison::Finds, "^(.)")], "$1", Some(0))];
    let policy = LocationPolicy {
        variables: variables(&[("subdomain", set)]),
        upstream_vhost: Some("$subdomain.inner".into()),
        ..LocationPolicy::default()
    };
    let mut proxy = Proxy::start();
    proxy.config(vec![("*.a.test", Resource::Host(Host::default()))]);
    let route = Route { paths: vec![to("/", PathType::Prefix, "x")], policy, ..Route::default() };
    proxy.config(vec![("ingress/ns/i/*.a.test", Resource::Route(route))]);
    proxy.service("x", Backend::default());
    proxy.endpoints("x", &[origin.address]);
    let mut client = Client::new(proxy.http);
    for (number, (query, expected)) in [("", "b.inner"), ("?x=yz", "y.inner")].into_iter().enumerate() {
        let answer = client.ask(&format!("GET /{query} HTTP/1.1\r\nHost: b.a.test\r\n\r\n"));
        assert_eq!(answer.status, 200, "{query}");
        assert_eq!(origin.seen()[number].all("host"), [expected], "{query}");
    }
}
