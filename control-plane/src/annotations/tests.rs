use proptest::prelude::*;
use proptest::sample::select;

use shared::policy::Canary;

use super::*;

fn all(annotations: &[(&str, &str)]) -> Parsed {
    let annotations =
        annotations.iter().map(|(name, text)| (format!("{PREFIX}{name}"), (*text).to_owned())).collect();
    read(&ObjectName::new("default", "web"), &annotations)
}

/// The location policy of these annotations, and the number of faults.
pub(super) fn location(annotations: &[(&str, &str)]) -> (LocationPolicy, usize) {
    let parsed = all(annotations);
    (parsed.serving.location, parsed.faults.len())
}

fn severities(parsed: &Parsed) -> Vec<Severity> {
    parsed.faults.iter().map(|fault| fault.severity).collect()
}

fn denies(parsed: &Parsed) -> bool {
    parsed.serving.denied.is_some() || parsed.serving.hosts_denied.is_some()
}

/// A row's annotation with this text, and the others that it needs.
pub(crate) fn companions(row: &Row, text: &str) -> Vec<(&'static str, String)> {
    let mut configured = vec![(row.name, text.to_owned())];
    let mut needed = row.needs.and_then(table::find);
    while let Some(row) = needed {
        configured.push((row.name, row.value.samples().0[0].to_owned()));
        needed = row.needs.and_then(table::find);
    }
    // It is validated without a Secret, and takes effect with one.
    if row.name == "auth-secret-type" {
        configured.push(("auth-secret", "users".to_owned()));
    }
    if let Some((other, _)) = row.behind {
        configured.retain(|(name, _)| *name != other);
        configured.push((other, "default/secret".to_owned()));
    }
    configured
}

fn read_with(configured: &[(&'static str, String)]) -> Parsed {
    let configured: Vec<_> = configured.iter().map(|(name, text)| (*name, text.as_str())).collect();
    all(&configured)
}

#[test]
fn nothing_said_is_nothing() {
    assert_eq!(all(&[]), Parsed::default());
}

/// Such as those that a snippet sets: they were empty without a word.
#[test]
fn variables_without_a_value_deny_where_requests_would_go_elsewhere() {
    for (name, text, is_denied) in [
        ("upstream-vhost", "$tenant.a.test", true),
        ("upstream-vhost", "$1.a.test", true),
        ("auth-url", "http://auth.test/$tenant", true),
        ("auth-signin", "https://login.test/$tenant", false),
        ("mirror-target", "http://copy.test/$tenant", false),
        ("mirror-host", "$tenant.test", false),
    ] {
        let row = table::find(name).unwrap();
        let parsed = read_with(&companions(row, text));
        assert_eq!(
            (denies(&parsed), severities(&parsed)),
            (is_denied, vec![Severity::Unsupported]),
            "{name} {text}"
        );
        let variable = text.split_inclusive(['/', '.']).find(|it| it.starts_with('$')).unwrap();
        let variable = variable.trim_end_matches(['/', '.']);
        assert!(parsed.faults[0].reason.contains(variable), "{:?}", parsed.faults);
    }
    for text in ["$subdomain.a.test", "$host", "$service_name.$namespace.svc", "$http_x_tenant.a.test"] {
        assert_eq!(all(&[("upstream-vhost", text)]).faults, [], "{text}");
    }
}

#[test]
fn redirects_are_read_and_faulty_ones_fall_back() {
    let parsed = all(&[("ssl-redirect", "false"), ("force-ssl-redirect", "yes")]);
    assert_eq!(parsed.serving.location.ssl_redirect, Some(false));
    assert_eq!(parsed.serving.location.force_ssl_redirect, None);
    assert_eq!(severities(&parsed), [Severity::Warning]);
    assert!(parsed.faults[0].reason.ends_with("false is used"), "{:?}", parsed.faults);
}

#[test]
fn a_bad_value_rejects_though_what_it_belongs_to_is_missing() {
    for configured in [
        &[("x-forwarded-prefix", "/a;b")] as &[_],
        &[("auth-type", "basic"), ("auth-secret-type", "auth-folder")],
    ] {
        assert!(severities(&all(configured)).contains(&Severity::Rejected), "{configured:?}");
    }
    assert_eq!(severities(&all(&[("x-forwarded-prefix", "/a")])), [Severity::Warning], "it has no effect");
    assert_eq!(severities(&all(&[("x-forwarded-prefix", "/a"), ("rewrite-target", "/")])), []);
}

#[test]
fn a_canary_is_read_whole() {
    let parsed = all(&[
        ("canary", "true"),
        ("canary-by-header", " X-Canary "),
        ("canary-by-header-value", "do it"),
        ("canary-by-header-pattern", "^beta|x"),
        ("canary-by-cookie", "canary"),
        ("canary-weight", "10"),
        ("canary-weight-total", "1000"),
    ]);
    assert_eq!(
        parsed.backend.canary,
        Some(Canary {
            header: "X-Canary".into(),
            header_value: "do it".into(),
            header_pattern: "^beta|x".into(),
            cookie: "canary".into(),
            weight: 10,
            weight_total: 1000,
        })
    );
    assert!(parsed.serving.is_canary);
    assert_eq!(parsed.faults, []);
}

#[test]
fn faulty_canary_values_count_as_not_said() {
    let parsed = all(&[
        ("canary", "true"),
        ("canary-by-header", "X;Canary"),
        ("canary-by-cookie", "a,b"),
        ("canary-weight", "50%"),
        ("canary-weight-total", "many"),
    ]);
    assert_eq!(parsed.backend.canary, Some(Canary { weight_total: 100, ..Canary::default() }));
    assert_eq!(severities(&parsed), [Severity::Warning; 4]);
}

#[test]
fn a_faulty_pattern_is_passed_on_and_reported() {
    let parsed = all(&[("canary", "true"), ("canary-by-header-pattern", "[a")]);
    assert_eq!(parsed.faults[0].field, field("canary-by-header-pattern"));
    assert_eq!(parsed.backend.canary.unwrap().header_pattern, "[a");
}

#[test]
fn canary_keys_without_canary_do_nothing() {
    for canary in ["false", "yes", ""] {
        let parsed = all(&[("canary", canary), ("canary-weight", "50")]);
        assert_eq!(parsed.backend.canary, None);
        assert!(!parsed.serving.is_canary);
        assert!(severities(&parsed).iter().all(|s| *s == Severity::Warning));
        assert!(!parsed.faults.is_empty());
    }
}

/// Annotations that are read on canaries say so in their row; the others never have an effect there.
#[test]
fn canaries_read_what_their_rows_say() {
    let ignored = "has no effect on a canary: the main Ingress decides";
    for row in table::ROWS.iter().filter(|row| row.value.status() != Status::Dead && row.name != "canary") {
        let mut configured = companions(row, row.value.samples().0[0]);
        configured.retain(|(name, _)| *name != "canary");
        configured.push(("canary", "true".into()));
        let parsed = read_with(&configured);
        let is_ignored = parsed.faults.iter().any(|it| it.field == field(row.name) && it.reason == ignored);
        assert_eq!(is_ignored, !row.on_canary, "{}: {:?}", row.name, parsed.faults);
        assert!(!denies(&parsed), "{}", row.name);
    }
    assert_eq!(severities(&all(&[("canary", "true"), ("load-balance", "ewma")])), []);
}

/// Over the whole table: every value of every annotation takes effect, or is reported, or asks for the default. A
/// denial does not depend on the annotation's name.
#[test]
fn no_row_is_silent() {
    for row in table::ROWS.iter() {
        for text in row.value.samples().0 {
            let parsed = read_with(&companions(row, text));
            let before = read_with(&companions(row, text)[1..]);
            let is_told = parsed.faults.iter().any(|it| it.field == field(row.name));
            let is_denied = denies(&parsed) && !denies(&before);
            match row.value.status() {
                Status::Honoured => {
                    let acts = parsed.serving != before.serving
                        || parsed.backend != before.backend
                        || parsed.affinity_mode != before.affinity_mode
                        || parsed.refs != before.refs;
                    // Canaries and cookies encode the default, and nothing for "no canary".
                    let same = |read: fn(&str) -> Option<bool>| {
                        read(text).is_some() && read(text) == read(row.default)
                    };
                    let is_default = row.default == text.trim_matches(' ').trim_start_matches('+')
                        || row.name == "canary"
                        || (row.name.starts_with("session-cookie-") && same(value::boolean))
                        // No spelling of `false` overrides the fleet's `true`.
                        || (row.name == "relative-redirects" && same(value::boolean));
                    assert!(acts || is_default, "{} = {text}", row.name);
                }
                Status::Unnoticed(_) | Status::Dead => {
                    assert!(is_told && !is_denied, "{} = {text}", row.name)
                }
                Status::Differs(_) => assert!(!is_denied, "{} = {text}", row.name),
                Status::Denies(_) => {
                    assert_eq!(
                        is_denied && is_told,
                        !asks_for_nothing(row, text) && !denies(&before),
                        "{} = {text}: {parsed:?}",
                        row.name
                    );
                }
                Status::Snippet => {
                    let acts = parsed.serving != before.serving;
                    assert!(acts || is_told, "{} = {text}", row.name);
                    // The fleet decides whether headers take effect, which is reported otherwise; lists always take
                    // effect.
                    let mut of_headers = parsed.serving.clone();
                    of_headers.location.denylist_source_range = None;
                    of_headers.location.lists_follow = None;
                    of_headers.of_hosts = of_headers.of_hosts.filter(|it| it.changes.is_some());
                    assert!(
                        of_headers == before.serving || is_denied || parsed.snippets == [field(row.name)],
                        "{} = {text}",
                        row.name
                    );
                }
            }
        }
    }
}

/// Values of restricting annotations that restrict nothing: a closed list, separate from the table.
fn asks_for_nothing(row: &Row, text: &str) -> bool {
    let nothing = [("satisfy", "all")];
    let is_bool = matches!(text, "false" | "0");
    nothing.contains(&(row.name, text)) || is_bool
}

/// A bad value does what its row says, and is reported.
#[test]
fn bad_values_do_what_their_rows_say() {
    for row in table::ROWS.iter().filter(|row| row.value.status() != Status::Dead || row.bad == Bad::Reject) {
        for text in row.value.samples().1 {
            let configured = companions(row, text);
            let (parsed, before) = (read_with(&configured), read_with(&configured[1..]));
            let own: Vec<_> = parsed.faults.iter().filter(|it| it.field == field(row.name)).collect();
            assert_eq!(own.len(), 1, "{} = {text:?}: {:?}", row.name, parsed.faults);
            let is_rejected = own[0].severity == Severity::Rejected;
            let must = row.bad == Bad::Reject || text.contains('\n');
            assert_eq!(is_rejected, must, "{} = {text:?}: {own:?}", row.name);
            match row.bad {
                _ if must => {}
                Bad::Deny(_) => assert!(denies(&parsed), "{} = {text:?}", row.name),
                _ => {
                    assert_eq!(parsed.serving, before.serving, "{} = {text:?}", row.name);
                    assert_eq!(parsed.backend, before.backend, "{} = {text:?}", row.name);
                }
            }
        }
    }
}

#[test]
fn restrictions_deny_the_ingress() {
    for (name, text) in [
        ("auth-url", "https://invalid..auth.url"),
        ("auth-url", "not-a-url"),
        ("auth-secret", "users"),
        ("auth-type", "basic"),
        ("whitelist-source-range", "10.0.0.0/33"),
        ("whitelist-source-range", ","),
        ("allowlist-source-range", ""),
        ("denylist-source-range", "office"),
        ("denylist-source-range", ""),
        ("enable-modsecurity", "true"),
        ("lua-resty-waf", "active"),
        ("configuration-snippet", "auth_request /a;"),
    ] {
        let parsed = all(&[(name, text)]);
        let reason = parsed.serving.denied.unwrap_or_else(|| panic!("{name} denies")).reason;
        assert!(reason.starts_with(&format!("Ingress default/web: {PREFIX}{name} ")), "{reason}");
        assert_eq!(parsed.faults[0].severity, Severity::Unsupported);
    }
    for name in ["limit-rps", "limit-rpm", "limit-connections"] {
        assert_eq!(severities(&all(&[(name, "ten")])), [Severity::Rejected], "{name}");
    }
}

#[test]
fn restrictions_of_nobody_deny_nothing() {
    let parsed = all(&[("auth-url", ""), ("enable-modsecurity", "false"), ("lua-resty-waf", "inactive")]);
    let mut expected = Parsed::default();
    expected.serving.location.enable_modsecurity = Some(false);
    assert_eq!(parsed, expected);
    for name in ["enable-owasp-core-rules", "modsecurity-snippet", "modsecurity-transaction-id"] {
        assert!(!denies(&all(&[(name, "true")])), "{name} has no effect alone");
        assert!(!denies(&all(&[("enable-modsecurity", "false"), (name, "true")])), "{name} of what is off");
        assert!(denies(&all(&[("enable-modsecurity", "true"), (name, "true")])), "{name}");
    }
    assert!(!denies(&all(&[("whitelist-source-range", "")])));
    assert!(!denies(&all(&[("backend-protocol", "HTTP3")])), "an unknown one is HTTP");
}

#[test]
fn a_name_comes_before_its_alias() {
    let parsed = all(&[("allowlist-source-range", "10.1.0.0/16"), ("whitelist-source-range", "10.0.0.0/8")]);
    assert_eq!(parsed.serving.location.allowlist_source_range.as_ref().unwrap().values, ["10.1.0.0/16"]);
    assert_eq!(severities(&parsed), [Severity::Warning]);
    assert!(denies(&all(&[("allowlist-source-range", " "), ("whitelist-source-range", "10.0.0.0/8")])));
    let empty = all(&[("allowlist-source-range", ""), ("whitelist-source-range", "10.0.0.0/8")]);
    assert_eq!((denies(&empty), &*empty.faults), (false, &[][..]));
    assert_eq!(empty.serving.location.allowlist_source_range.unwrap().values, ["10.0.0.0/8"]);
    assert!(denies(&all(&[("allowlist-source-range", ""), ("whitelist-source-range", "")])));
}

#[test]
fn what_happens_anyway_is_not_reported() {
    let parsed = all(&[
        ("use-regex", "false"),
        ("backend-protocol", "HTTP"),
        ("proxy-cookie-path", "off"),
        ("server-alias", ""),
        ("rewrite-target", "/"),
    ]);
    assert_eq!(parsed.faults, []);
}

#[test]
fn the_rest_is_reported() {
    let parsed = all(&[
        ("configuration-snippet", "add_header X-A b;"),
        ("enable-opentelemetry", "true"),
        ("frobnicate", "1"),
        ("session-cookie-hash", "sha1"),
    ]);
    let mut found = severities(&parsed);
    found.sort();
    assert_eq!(found, [Severity::Unsupported, Severity::Warning, Severity::Warning]);
    assert!(!denies(&parsed) && parsed.snippets == [field("configuration-snippet")]);
    let elsewhere = "location /a { proxy_pass http://other; }";
    let parsed = all(&[("configuration-snippet", elsewhere)]);
    assert!(parsed.faults[0].reason.contains("\"proxy_pass\" in \"location\""), "{:?}", parsed.faults);
    let of_tls = "proxy_ssl_server_name on; proxy_ssl_name $http_host;";
    assert!(!denies(&all(&[("configuration-snippet", of_tls)])), "there is no TLS");
    assert!(denies(&all(&[("backend-protocol", "HTTPS"), ("configuration-snippet", of_tls)])));
    let of_redirects = ("configuration-snippet", "proxy_redirect http:// https://;");
    let parsed = all(&[of_redirects, ("proxy-redirect-from", "off")]);
    assert!(!denies(&parsed) && parsed.faults[0].reason.ends_with("without proxy-redirect-from: set that"));
    assert!(denies(&all(&[of_redirects, ("proxy-redirect-from", "default")])), "both would count");
    // Linkerd's recipe has both, for either protocol.
    let of_grpc =
        "proxy_set_header l5d-dst-override $service_name.$namespace.svc; grpc_set_header l5d-dst-override x;";
    let with = |protocol| all(&[("backend-protocol", protocol), ("configuration-snippet", of_grpc)]);
    assert!(!denies(&with("HTTP")) && !denies(&with("HTTPS")));
    for protocol in ["GRPC", "grpcs"] {
        let parsed = with(protocol);
        let headers = parsed.serving.location.request_headers.unwrap().headers;
        let pairs: Vec<_> = headers.iter().map(|it| (it.name.as_str(), it.value.as_str())).collect();
        assert_eq!((pairs, parsed.serving.denied), (vec![("l5d-dst-override", "x")], None), "{protocol}");
    }
    let of_host =
        [("backend-protocol", "GRPC"), ("configuration-snippet", "grpc_set_header Host other.test;")];
    assert_eq!(all(&of_host).serving.vhost, "other.test");
    for text in ["grpc_pass grpc://other:80;", "grpc_set_header X-A $a;"] {
        assert!(denies(&all(&[("backend-protocol", "GRPC"), ("configuration-snippet", text)])), "{text}");
    }
    let kept = "auth_request_set $error $upstream_http_x_error;";
    let parsed = all(&[("auth-url", "http://auth.test/"), ("auth-snippet", kept)]);
    assert!(parsed.faults[0].reason.contains("write it in configuration-snippet"), "{:?}", parsed.faults);
}

/// Where nginx would refuse it, or it can not be said exactly, it denies.
#[test]
fn a_snippet_says_how_fast_answers_are_sent() {
    let parsed = all(&[("configuration-snippet", "limit_rate_after 1m; limit_rate 100k;")]);
    let location = &parsed.serving.location;
    assert_eq!((location.limit_rate, location.limit_rate_after), (Some(100), Some(1024)));
    assert!(!denies(&parsed) && parsed.faults.is_empty(), "{:?}", parsed.faults);
    let parsed = all(&[("limit-rate-after", "5"), ("configuration-snippet", "limit_rate 1k;")]);
    let location = &parsed.serving.location;
    assert_eq!((location.limit_rate, location.limit_rate_after), (Some(1), Some(5)));
    for text in [
        "limit_rate 1000;",
        "limit_rate $a;",
        "limit_rate 1k; limit_rate 2k;",
        "if ($arg_a) { limit_rate 1k; }",
    ] {
        assert!(denies(&all(&[("configuration-snippet", text)])), "{text}");
    }
    assert!(denies(&all(&[("limit-rate", "5"), ("configuration-snippet", "limit_rate 1k;")])));
}

/// A report never claims that something is served without a feature while it answers 503.
#[test]
fn siblings_of_a_denial_claim_nothing() {
    let parsed = all(&[("auth-url", "not-a-url"), ("enable-opentelemetry", "true")]);
    let sibling = parsed.faults.iter().find(|it| it.field == field("enable-opentelemetry")).unwrap();
    assert_eq!(sibling.reason, "not honoured yet");
    let alone = all(&[("enable-opentelemetry", "true")]);
    assert_eq!(
        alone.faults[0].reason,
        "not honoured yet: backends are told the trace (traceparent), and no span of ours is recorded"
    );
}

#[test]
fn names_of_other_prefixes_are_noticed() {
    let annotations: Texts = [
        ("nignx.ingress.kubernetes.io/auth-url".to_owned(), "x".to_owned()),
        ("cert-manager.io/issuer".to_owned(), "x".to_owned()),
    ]
    .into();
    let parsed = read(&ObjectName::new("default", "web"), &annotations);
    assert_eq!(parsed.faults.len(), 1);
    assert_eq!(parsed.faults[0].field, "metadata.annotations[nignx.ingress.kubernetes.io/auth-url]");
    assert_eq!(
        all(&[("body-size", "1m")]).faults[0].reason,
        "unknown annotation, it has no effect: did you mean proxy-body-size?"
    );
}

#[test]
fn what_was_replaced_already_is_only_to_be_removed() {
    let told = |configured: &[(&str, &str)]| {
        let faults = all(configured).faults;
        faults.into_iter().find(|it| it.field == field("secure-backends")).unwrap().reason
    };
    let alone = told(&[("secure-backends", "true")]);
    assert!(alone.contains("is not encrypted"), "{alone}");
    let both = told(&[("secure-backends", "true"), ("backend-protocol", "HTTPS")]);
    assert_eq!(both, "has no effect, as in ingress-nginx: remove it");
    assert_eq!(
        all(&[("enable-owasp-modsecurity-crs", "true")]).faults[0].reason,
        "unknown annotation, it has no effect: did you mean enable-owasp-core-rules?"
    );
}

/// nginx refuses these twice in one location, so there is nothing to honour.
#[test]
fn directives_of_ingress_nginx_s_own_are_told_once_with_the_annotation() {
    let told = all(&[("configuration-snippet", "proxy_read_timeout 5m; client_max_body_size 1g;")]).faults;
    assert!(told.iter().all(|it| it.severity == Severity::Warning), "{told:?}");
    let reasons: Vec<_> = told.iter().map(|it| it.reason.as_str()).collect();
    let [size, read] = reasons[..] else { panic!("{reasons:?}") };
    let (read, size) = if read.contains("proxy_read_timeout") { (read, size) } else { (size, read) };
    assert!(read.contains("nginx refuses it") && read.contains("set proxy-read-timeout instead"), "{read}");
    assert!(size.contains("set proxy-body-size instead"), "{size}");
    let within = all(&[("configuration-snippet", "if ($arg_a) { proxy_read_timeout 5m; }")]).faults;
    assert_eq!(within[0].severity, Severity::Unsupported, "{within:?}");
}

/// Text with several lines is rejected except for snippets; the trailing line break of a YAML block is just an invalid
/// value.
#[test]
fn annotations_are_of_one_line_but_for_snippets() {
    assert_eq!(severities(&all(&[("canary", "true"), ("canary-by-header", "X\r\nY")])), [Severity::Rejected]);
    assert_eq!(severities(&all(&[("ssl-redirect", "true\n")])), [Severity::Warning]);
    let lists = "10.0.0.0/8,\n172.16.0.0/12,\n192.0.2.1\n";
    for name in ["whitelist-source-range", "denylist-source-range", "limit-allowlist"] {
        assert_eq!(all(&[(name, lists)]).faults, [], "{name}: a list may go over several lines");
        assert_eq!(severities(&all(&[(name, "10.0.0.0/8,\r\n10.0.0.1")])), [Severity::Rejected], "{name}");
    }
    let policy = all(&[("whitelist-source-range", lists)]).serving.location;
    let values = policy.allowlist_source_range.unwrap().values;
    assert_eq!(values, ["10.0.0.0/8", "172.16.0.0/12", "192.0.2.1"]);
    assert_eq!(severities(&all(&[("frobnicate", "a\nb")])), [Severity::Warning]);
    assert_eq!(severities(&all(&[("influxdb-host", "\n;")])), [Severity::Warning]);
    assert_eq!(severities(&all(&[("server-snippet", "expires\n1d;\netag\non;\n")])), [Severity::Unsupported]);
}

#[test]
fn what_tenants_write_is_shown_short() {
    let long = "a\u{1b}\n".repeat(100_000);
    let parsed = all(&[("canary", "true"), ("canary-weight", &long), (&long, "x"), ("limit-rps", &long)]);
    let size: usize = parsed.faults.iter().map(|it| it.field.len() + it.reason.len()).sum();
    assert!(size < 3000, "{size}");
    assert!(parsed.faults.iter().all(|it| !it.field.contains('\n') && !it.reason.contains('\n')));

    let many: Texts = (0..10_000).map(|i| (format!("{PREFIX}x{i}"), String::new())).collect();
    assert_eq!(read(&ObjectName::new("default", "web"), &many).faults.len(), MOST_FAULTS);
}

fn an_annotation() -> impl Strategy<Value = (&'static str, String)> {
    let names: Vec<_> = table::names().collect();
    (select(names), any::<prop::sample::Index>(), 0..5_u8).prop_map(|(name, which, dice)| {
        let (good, bad) = table::find(name).unwrap().value.samples();
        let texts = if dice == 0 && !bad.is_empty() { bad } else { good };
        (name, if dice == 1 { String::new() } else { which.get(texts).to_string() })
    })
}

/// As in ingress-nginx, whose validator looks for the words anywhere in the text; what is made of it is one of the two.
#[test]
fn a_text_that_holds_a_kind_of_secret_denies_and_any_other_rejects() {
    for (text, expected) in [
        ("auth-map", (false, vec![])),
        (" auth-file ", (false, vec![])),
        ("auth-files", (true, vec![Severity::Unsupported])),
        ("auth -map", (true, vec![Severity::Unsupported])),
        ("auth-folder", (false, vec![Severity::Rejected])),
    ] {
        let parsed = all(&[("auth-type", "basic"), ("auth-secret", "users"), ("auth-secret-type", text)]);
        assert_eq!((denies(&parsed), severities(&parsed)), expected, "{text:?}");
    }
}

/// ingress-nginx looks for the whole text among the names of ConfigMaps, which have a namespace.
#[test]
fn headers_of_the_question_are_of_a_configmap_with_its_namespace() {
    for (text, expected) in [
        ("default/extra", (false, vec![])),
        (" default/extra ", (false, vec![])),
        ("extra", (true, vec![Severity::Warning])),
        ("/extra", (true, vec![Severity::Warning])),
    ] {
        let parsed = all(&[("auth-url", "http://auth.test/"), ("auth-proxy-set-headers", text)]);
        assert_eq!((denies(&parsed), severities(&parsed)), expected, "{text:?}");
    }
}

#[test]
fn spaces_around_a_host_for_the_backend_do_not_count() {
    for text in ["internal.test", " internal.test ", "internal.test\n"] {
        let (policy, faults) = location(&[("upstream-vhost", text)]);
        assert_eq!((policy.upstream_vhost.as_deref(), faults), (Some("internal.test"), 0), "{text:?}");
    }
    assert_eq!(severities(&all(&[("upstream-vhost", "internal test")])), [Severity::Rejected]);
}

#[test]
fn the_fleet_names_objects_with_their_namespaces() {
    for row in [&forwarding::PROXY_SET_HEADERS, &response_headers::ADD_HEADERS] {
        for (text, expected) in [
            ("edge/headers", Some("edge/headers")),
            ("headers", None),
            ("/headers", None),
            ("edge/", None),
            ("", None),
        ] {
            let parsed = default(row, row.name, text);
            let names: Vec<_> = parsed.refs.keys().map(|it| it.name.to_string()).collect();
            assert_eq!(names, Vec::from_iter(expected), "{} {text:?}", row.name);
        }
    }
}

proptest! {
    /// In any order, with any other annotations: the result is a function of the annotations, and adding annotations
    /// only adds denials: none lifts another's denial, except those that switch it off or have precedence.
    #[test]
    fn nothing_lifts_a_denial(mut configured in prop::collection::vec(an_annotation(), 1..8), one in an_annotation()) {
        // Nor do the ones that it needs to be complete: ssl-passthrough is about TLS to the backend. An empty
        // allowlist-source-range denies only if there is no list under its former name.
        let lifts = [
            "backend-protocol", "canary", "auth-tls-verify-client", "allowlist-source-range", "whitelist-source-range",
            "auth-secret", "auth-type",
        ];
        prop_assume!(!lifts.contains(&one.0) && configured.iter().all(|(name, _)| *name != one.0));
        let before = read_with(&configured);
        configured.push(one.clone());
        let after = read_with(&configured);
        prop_assert!(denies(&after) || !denies(&before), "{one:?} lifts the denial of {configured:?}");
    }
}
