//! The effects of the ConfigMap's keys.

use std::sync::Arc;

use proptest::prelude::*;
use shared::policy::{LoadBalance, LocationPolicy, NumberList, TextList};

use super::*;
use crate::objects::Texts;

fn compiled(data: &[(&str, &str)]) -> (Settings, Vec<Fault>) {
    let configmap = ConfigMap {
        data: data.iter().map(|(key, text)| ((*key).into(), (*text).into())).collect(),
        ..ConfigMap::default()
    };
    let Compiled { settings, faults, .. } = compile(Some(&configmap), None);
    (settings, faults)
}

#[test]
fn no_configmap_is_all_defaults() {
    let name = ObjectName::new("certs", "default");
    let Compiled { settings, faults, .. } = compile(None, Some(&name));
    assert_eq!(settings.default_certificate, "certs/default");
    assert_eq!(settings, Settings { default_certificate: "certs/default".into(), ..Settings::default() });
    assert_eq!(faults, []);
}

#[test]
fn redirects_are_honoured_in_any_case_of_the_key() {
    let (settings, faults) = compiled(&[("SSL-Redirect", "false"), ("force-ssl-redirect", "perhaps")]);
    assert_eq!(settings.defaults.ssl_redirect, Some(false));
    assert_eq!(settings.defaults.force_ssl_redirect, None);
    assert_eq!(faults.len(), 1);
}

#[test]
fn what_people_write_instead_of_a_key_is_told() {
    for (key, meant) in [
        ("client-max-body-size", "proxy-body-size"),
        ("real_ip_header", "forwarded-for-header"),
        ("Set-Real-IP-From", "proxy-real-ip-cidr"),
        ("access-log-off", "disable-access-log"),
        ("limit-req-zone-variable", "addresses"),
        ("proxy-body-szie", "did you mean proxy-body-size?"),
        ("whitelist-source-ranges", "did you mean whitelist-source-range?"),
        ("Use-Forwarded-Header", "did you mean use-forwarded-headers?"),
        ("block-cidr", "did you mean block-cidrs?"),
    ] {
        let (_, faults) = compiled(&[(key, "x")]);
        let reason = &faults[0].reason;
        assert!(reason.starts_with("unknown key, it has no effect: ") && reason.contains(meant), "{reason}");
    }
    assert_eq!(compiled(&[("of-tomorrow", "x")]).1[0].reason, "unknown key, it has no effect");
    let known = |text: &str| table::ROWS.iter().any(|(key, _)| *key == text);
    assert!(["client-max-body-size", "real-ip-header", "access-log-off"].iter().all(|key| !known(key)));
}

/// Nobody is trusted, and no location is spared, where that is said.
#[test]
fn an_empty_list_takes_the_place_of_its_default() {
    for configured in ["", " ", ","] {
        let data: Vec<_> = LISTS.iter().map(|key| (*key, configured)).collect();
        let (settings, faults) = compiled(&data);
        let it = &settings.defaults;
        for list in [
            &it.no_auth_locations,
            &it.no_tls_redirect_locations,
            &it.nginx_status_ipv4_whitelist,
            &it.nginx_status_ipv6_whitelist,
            &it.proxy_real_ip_cidr,
        ] {
            assert_eq!(*list, Some(TextList::default()), "{configured:?}");
        }
        assert_eq!(faults, []);
    }
}

/// Unlike without the key, where only what the service itself says is kept.
#[test]
fn empty_times_to_keep_its_word_are_those_of_the_annotation() {
    for configured in ["", " ", ","] {
        let (settings, faults) = compiled(&[("global-auth-cache-duration", configured)]);
        let kept = settings.defaults.global_auth_cache_duration;
        assert_eq!((kept.as_deref(), faults), (Some(""), vec![]), "{configured:?}");
    }
    assert_eq!(compiled(&[]).0.defaults.global_auth_cache_duration, None);
}

#[test]
fn an_algorithm_that_nobody_knows_or_that_needs_more_is_round_robin() {
    let load_balance = |text| {
        let (settings, faults) = compiled(&[("load-balance", text)]);
        (
            settings.backend_defaults.load_balance,
            faults.iter().map(|fault| fault.severity).collect::<Vec<_>>(),
        )
    };
    assert_eq!(load_balance("ewma"), (Some(LoadBalance::Ewma.into()), vec![]));
    assert_eq!(load_balance("round_robin"), (Some(LoadBalance::RoundRobin.into()), vec![]));
    assert_eq!(load_balance(""), (None, vec![]));
    for text in ["least_conn", "chash", "sticky_balanced", "EWMA"] {
        assert_eq!(load_balance(text), (None, vec![Severity::Warning]), "{text}");
    }
}

/// As OpenSSL reads them.
#[test]
fn ciphers_have_any_separator() {
    let suites = |text: &str| {
        let (settings, faults) = compiled(&[("ssl-ciphers", text)]);
        (settings.defaults.ssl_ciphers.map(|list| list.values), faults.len())
    };
    let [aes256, aes128] = ["ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES128-GCM-SHA256"];
    for between in [":", ",", ", ", ";", " ", "\n"] {
        let list = format!("{aes256}{between}{aes128}");
        assert_eq!(suites(&list), (Some(vec![0xc030, 0xc02f]), 0), "{between:?}");
    }
    assert_eq!(suites("AES256'; deny all"), (None, 1));
}

/// Recipes for old clients: what is left out of them shuts these clients out.
#[test]
fn versions_and_ciphers_that_are_left_out_are_reported() {
    let (settings, faults) = compiled(&[
        ("ssl-protocols", "TLSv1 TLSv1.1 TLSv1.2 TLSv1.3"),
        ("ssl-ciphers", "@SECLEVEL=0:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-SHA:AES256-SHA"),
    ]);
    let values = |list: Option<NumberList>| list.map(|list| list.values).unwrap_or_default();
    assert_eq!(values(settings.defaults.ssl_protocols), [12, 13]);
    assert_eq!(values(settings.defaults.ssl_ciphers), [0xc02f]);
    let mut said: Vec<_> = faults.iter().map(|fault| (fault.severity, fault.reason.to_string())).collect();
    said.sort_by(|a, b| a.1.cmp(&b.1));
    let [(_, ciphers), (_, versions)] = &said[..] else { panic!("{said:?}") };
    assert!(said.iter().all(|(severity, _)| *severity == Severity::Warning));
    assert!(ciphers.starts_with("\"ECDHE-RSA-AES128-SHA\" and 1 more are not known here"), "{ciphers}");
    assert!(versions.starts_with("versions before TLSv1.2 are never used"), "{versions}");
}

/// As a block of YAML has it: ingress-nginx does not trim what is a number or a boolean.
#[test]
fn numbers_and_booleans_have_no_line_break_at_their_end() {
    for (key, text) in [
        ("use-forwarded-headers", "true\n"),
        ("keep-alive", " 5"),
        ("http-redirect-code", "301 "),
        ("proxy-stream-responses", "2\n"),
        ("proxy-protocol-header-timeout", "1s "),
    ] {
        let (settings, faults) = compiled(&[(key, text)]);
        assert_eq!((settings, faults.len()), (Settings::default(), 1), "{key}");
        assert_ne!(compiled(&[(key, text.trim())]).0, Settings::default(), "{key}");
    }
    for key in [ALLOW_SNIPPETS, CROSS_NAMESPACE, LOCATION_ONLY] {
        let map =
            |text: &str| ConfigMap { data: [(key.to_owned(), text.into())].into(), ..ConfigMap::default() };
        let is_on = |text| is_on(Some(&map(text)), key);
        assert_eq!((is_on("true"), is_on("true\n")), (true, false), "{key}");
    }
    let (settings, _) = compiled(&[("gzip-types", " text/css\n")]);
    assert_eq!(settings.defaults.gzip_types.unwrap().values, ["text/css"], "texts are trimmed");
}

/// As in ingress-nginx; a number that begins with 0 and has non-octal digits is invalid.
#[test]
fn numbers_of_the_fleet_may_say_their_base() {
    let keys = table::ROWS.iter().filter(|(_, status)| status.row().is_some_and(|row| row.go_number));
    for (key, _) in keys {
        let (decimal, others) = match key.ends_with("-status-code") {
            true => ("429", ["0x1AD", "0655", "0b1_1010_1101"]),
            false => ("5", ["0x5", "05", "0b1_01"]),
        };
        let decimal = compiled(&[(key, decimal)]);
        assert!(decimal.1.iter().all(|fault| fault.severity != Severity::Warning), "{key}: {:?}", decimal.1);
        for text in others {
            assert_eq!(compiled(&[(key, text)]), decimal, "{key} {text}");
        }
        assert_eq!(compiled(&[(key, "08")]).0, Settings::default(), "{key}");
        assert_eq!(compiled(&[(key, "08")]).1.len(), 1, "{key}");
    }
    assert_eq!(compiled(&[("http-redirect-code", "0x12d")]).0, Settings::default(), "this one is decimal");
}

#[test]
fn restrictions_guard() {
    let (settings, faults) =
        compiled(&[("enable-modsecurity", "true"), ("modsecurity-snippet", "SecRuleEngine On")]);
    assert_eq!((settings.guards, settings.defaults.enable_modsecurity), (vec![], Some(true)));
    assert!(faults.iter().all(|fault| fault.severity == Severity::Unsupported));
    assert!(faults[0].reason.ends_with(ALL_PATHS), "{faults:?}");
    for (key, text) in [
        ("whitelist-source-range", "10.0.0.0/33"),
        ("denylist-source-range", "office"),
        ("block-cidrs", "10.0.0.0/8 192.0.2.1"),
        ("global-auth-url", "not-a-url"),
        ("block-user-agents", "~*bot("),
        ("block-referers", "a, ~["),
        ("location-snippet", "deny all; allow 10.0.0.0/8;"),
        ("server-snippet", "allow 10.0.0.0/8; deny 10.0.0.1;"),
        ("location-snippet", "no semicolon"),
    ] {
        let (settings, faults) = compiled(&[(key, text)]);
        assert_eq!(settings.guards, [Guard::Addresses], "{key}: {text}");
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert_eq!(faults[0].field, format!("data[{key}]"));
    }
    for (key, text) in [
        ("enable-owasp-modsecurity-crs", "true"),
        ("enable-owasp-modsecurity-crs", "perhaps"),
        ("modsecurity-snippet", "SecRuleEngine On\nSecRule ARGS @rx \"id:1,deny\""),
    ] {
        let (settings, faults) = compiled(&[("enable-modsecurity", "false"), (key, text)]);
        assert_eq!((settings, faults.len()), (without_firewall(), 1), "{key}: {faults:?}");
    }
    let (settings, faults) = compiled(&[("block-cidrs", "office"), ("denylist-source-range", "office")]);
    assert_eq!((settings.guards, faults.len()), (vec![Guard::Addresses], 2), "a guard is sent once");
    let (_, faults) = compiled(&[("location-snippet", "location /a { proxy_pass http://b; }")]);
    assert!(faults[0].reason.contains("\"proxy_pass\" in \"location\""), "{faults:?}");
    let (settings, faults) = compiled(&[
        ("enable-modsecurity", "false"),
        ("enable-owasp-modsecurity-crs", "false"),
        ("block-cidrs", ""),
        ("whitelist-source-range", ""),
        ("global-auth-url", " "),
    ]);
    assert_eq!((settings, faults), (without_firewall(), Vec::new()));
}

/// nginx refuses a second header for a client's address on one level.
#[test]
fn addresses_are_taken_from_where_snippets_say_unless_keys_say_it() {
    let text = "real_ip_header CF-Connecting-IP; set_real_ip_from 10.0.0.0/8;";
    for (key, beside, is_taken) in [
        ("http-snippet", ("gzip-level", "1"), true),
        ("http-snippet", ("enable-real-ip", "true"), false),
        ("http-snippet", ("use-forwarded-headers", "true"), false),
        ("server-snippet", ("use-forwarded-headers", "true"), true),
        ("server-snippet", ("use-proxy-protocol", "true"), false),
    ] {
        let (settings, faults) = compiled(&[(key, text), beside]);
        let header = settings.defaults.real_ip.map(|it| it.header);
        assert_eq!(header.as_deref(), is_taken.then_some("CF-Connecting-IP"), "{key} {beside:?} {faults:?}");
        assert_eq!(settings.guards.is_empty(), is_taken, "{key} {beside:?}");
    }
}

/// As in nginx: an inner level has its own, or those of the outer one.
#[test]
fn flags_and_limits_are_those_of_the_innermost_level() {
    let zones = "limit_req_zone $host zone=a:1m rate=1r/s;";
    let http = format!("{zones} proxy_cookie_flags h secure; limit_req zone=a;");
    let said = |data: &[(&str, &str)]| {
        let (settings, faults) = compiled(data);
        assert_eq!((settings.guards, faults), (vec![], vec![]), "{data:?}");
        let LocationPolicy { proxy_cookie_flags, limit_requests, limit_req_status_code, .. } =
            settings.defaults;
        let cookies = proxy_cookie_flags.into_iter().flat_map(|it| it.rules).map(|it| it.cookie);
        let limits = limit_requests.into_iter().flat_map(|it| it.limits).map(|it| it.burst);
        (cookies.collect::<String>(), limits.collect::<Vec<_>>(), limit_req_status_code)
    };
    let hosts =
        ("server-snippet", "proxy_cookie_flags s secure; limit_req zone=a burst=2; limit_req_status 429;");
    let locations = ("location-snippet", "proxy_cookie_flags l secure; limit_req zone=a burst=3;");
    assert_eq!(said(&[("http-snippet", &http)]), ("h".into(), vec![0], None));
    assert_eq!(said(&[("http-snippet", &http), hosts]), ("s".into(), vec![2], Some(429)));
    assert_eq!(said(&[("http-snippet", zones), hosts, locations]), ("l".into(), vec![3], Some(429)));
    let (settings, faults) = compiled(&[("http-snippet", "limit_req zone=a;")]);
    assert!(!settings.guards.is_empty() && faults[0].reason.contains("no zone \"a\""), "{faults:?}");
}

/// A snippet about a service that nobody asks shuts nobody out.
#[test]
fn what_the_authentication_service_is_asked_counts_where_it_is_asked() {
    let url = ("global-auth-url", "http://auth.test/");
    let (settings, faults) = compiled(&[url, ("global-auth-snippet", "proxy_set_header X-A b;")]);
    assert_eq!(settings.defaults.global_auth_proxy_set_headers.unwrap().headers[0].name, "X-A");
    assert_eq!((settings.guards, faults), (vec![], vec![]));
    let refused = ("global-auth-snippet", "proxy_pass http://b;");
    let (settings, faults) = compiled(&[url, refused]);
    assert_eq!(settings.guards, [Guard::Addresses]);
    assert!(faults[0].reason.ends_with(ALL_PATHS), "{faults:?}");
    let (settings, faults) = compiled(&[refused]);
    assert_eq!((settings.guards, faults[0].severity), (vec![], Severity::Warning), "{faults:?}");
}

fn without_firewall() -> Settings {
    let defaults = LocationPolicy { enable_modsecurity: Some(false), ..LocationPolicy::default() };
    Settings { defaults, ..Settings::default() }
}

/// Whatever the order of the keys is, the innermost level counts.
#[test]
fn snippets_list_addresses_as_levels_do() {
    let http = ("http-snippet", "deny 10.0.0.1; proxy_hide_header X-Http;");
    let server = ("server-snippet", "allow 10.0.0.0/8; deny all;");
    let hidden = ("hide-headers", "X-Key");
    let (settings, faults) = compiled(&[server, http, hidden]);
    assert_eq!((settings.guards, faults), (vec![], vec![]));
    let values = |list: Option<TextList>| list.map(|it| it.values).unwrap_or_default();
    assert_eq!(values(settings.defaults.outer_allowlist), ["10.0.0.0/8"]);
    assert_eq!(values(settings.defaults.outer_denylist), Vec::<String>::new());
    assert_eq!(values(settings.defaults.hide_headers), ["X-Key", "X-Http"]);
}

/// How nobody is asked restricts nobody.
#[test]
fn a_faulty_question_guards_where_it_is_asked() {
    let (key, text) = ("global-auth-signin-redirect-param", "a;b");
    let (settings, faults) = compiled(&[("global-auth-url", "http://auth.test/"), (key, text)]);
    assert_eq!((settings.guards, faults.len()), (vec![Guard::Addresses], 1), "{faults:?}");
    assert!(faults[0].reason.ends_with(ALL_PATHS), "{faults:?}");
    for url in ["", " "] {
        let (settings, faults) = compiled(&[("global-auth-url", url), (key, text)]);
        assert_eq!((settings, faults.len()), (Settings::default(), 1), "{faults:?}");
        assert_eq!(faults[0].severity, Severity::Warning);
        assert!(!faults[0].reason.contains("503"), "{faults:?}");
    }
}

/// As in ingress-nginx: the service is asked all the same.
#[test]
fn a_question_is_asked_however_it_should_be_asked() {
    let url = ("global-auth-url", "http://auth.test/");
    for (key, text) in [
        ("global-auth-method", "get"),
        ("global-auth-always-set-cookie", "often"),
        ("global-auth-cache-duration", "5 minutes"),
        ("global-auth-cache-key", "$host'; x"),
    ] {
        let (settings, faults) = compiled(&[url, (key, text)]);
        assert_eq!((&settings, faults.len()), (&compiled(&[url]).0, 1), "{key}: {faults:?}");
        assert_eq!(faults[0].severity, Severity::Warning);
    }
}

/// As in ingress-nginx, an empty value is false; a value of spaces is invalid.
#[test]
fn a_switch_without_a_value_is_off() {
    let (settings, faults) = compiled(&[("ssl-redirect", ""), ("hsts", " "), ("use-gzip", "")]);
    assert_eq!((settings.defaults.ssl_redirect, settings.defaults.hsts), (Some(false), None));
    let fields: Vec<_> = faults.iter().map(|fault| fault.field.as_str()).collect();
    assert_eq!(fields, ["data[ssl-redirect]"], "the others are off anyway, or say nothing");
}

/// So is a number, where that can be meant.
#[test]
fn a_number_without_a_value_is_0() {
    let (settings, faults) = compiled(&[
        ("keep-alive", ""),
        ("upstream-keepalive-connections", ""),
        ("gzip-min-length", " "),
        ("limit-rate", ""),
        ("gzip-level", ""),
        ("http2-max-concurrent-streams", ""),
        ("proxy-connect-timeout", ""),
        ("proxy-stream-responses", ""),
    ]);
    let defaults = LocationPolicy {
        keep_alive: Some(0),
        upstream_keepalive_connections: Some(0),
        limit_rate: Some(0),
        ..LocationPolicy::default()
    };
    assert_eq!(settings.defaults, defaults);
    let told: Vec<_> = faults.iter().map(|it| (it.field.as_str(), it.reason.as_str())).collect();
    assert_eq!(
        told,
        [
            ("data[keep-alive]", "expected a number of seconds without a unit, got nothing: 0 is used"),
            ("data[upstream-keepalive-connections]", "expected a number, got nothing: 0 is used"),
        ]
    );
}

/// Annotations are compared with the words as they are.
#[test]
fn a_switch_is_thrown_in_any_case() {
    for (text, on) in [("OFF", Some(false)), ("On", Some(true)), ("yes", None)] {
        let (settings, faults) = compiled(&[("proxy-request-buffering", text), ("proxy-buffering", text)]);
        let defaults = settings.defaults;
        assert_eq!((defaults.proxy_request_buffering, defaults.proxy_buffering), (on, on), "{text}");
        assert_eq!(faults.is_empty(), on.is_some(), "{text}: {faults:?}");
    }
}

/// The others of its list count.
#[test]
fn an_item_that_is_none_is_left_out() {
    let values = |list: Option<TextList>| list.map(|it| it.values.join("|"));
    for (key, text, kept, left_out) in [
        ("hide-headers", "X-A,, X.B, X C", Some("X-A|X.B"), 1),
        ("hide-headers", "X C", None, 1),
        ("skip-access-log-urls", "/a, ping, ~^/b, ~(, '/c'", Some("/a|~^/b|/c"), 2),
        ("skip-access-log-urls", "ping", None, 1),
        ("bind-address", "10.0.0.1, localhost,fd00::1,10.0.0.0/8", Some("10.0.0.1|fd00::1"), 2),
    ] {
        let (settings, faults) = compiled(&[(key, text)]);
        let LocationPolicy { hide_headers, skip_access_log_urls, bind_address, .. } = settings.defaults;
        let list = hide_headers.or(skip_access_log_urls).or(bind_address);
        assert_eq!((values(list).as_deref(), faults.len()), (kept, left_out), "{key} {text}: {faults:?}");
        assert!(faults.iter().all(|it| it.severity == Severity::Warning), "{faults:?}");
    }
}

#[test]
fn an_address_of_one_family_has_a_key_of_its_own() {
    let (all, v4, v6) = ("bind-address", "bind-address-ipv4", "bind-address-ipv6");
    for (data, kept, problems) in [
        (&[(v4, "10.0.0.1")][..], Some("10.0.0.1"), 0),
        (&[(v6, "[fd00::1]")], Some("fd00::1"), 0),
        (&[(v4, "10.0.0.1"), (v6, " [fd00::1] ")], Some("10.0.0.1|fd00::1"), 0),
        (
            &[(all, "fd00::1,10.0.0.1,10.0.0.2,fd00::2"), (v4, "10.0.0.3")],
            Some("10.0.0.3|10.0.0.2|fd00::1|fd00::2"),
            0,
        ),
        (&[(all, "10.0.0.1"), (v6, "[fd00::1]")], Some("10.0.0.1|fd00::1"), 0),
        (&[(all, "10.0.0.1"), (v4, "")], Some("10.0.0.1"), 0),
        (&[(v4, "10.0.0.1,10.0.0.2")], None, 1),
        (&[(all, "10.0.0.1"), (v6, "fd00::1")], Some("10.0.0.1"), 1),
    ] {
        let (settings, faults) = compiled(data);
        let values = settings.defaults.bind_address.map(|it| it.values.join("|"));
        assert_eq!((values.as_deref(), faults.len()), (kept, problems), "{data:?}: {faults:?}");
    }
}

#[test]
fn what_is_written_to_the_null_device_is_not_written() {
    let (http, stream) = ("http-access-log-path", "stream-access-log-path");
    for (data, is_off) in [
        (&[("access-log-path", "/dev/null")][..], (true, true)),
        (&[("access-log-path", " /dev/null "), (http, "/dev/stdout")], (false, true)),
        (&[(http, "/dev/null"), ("disable-http-access-log", "false")], (true, false)),
        (&[("Stream-Access-Log-Path", "/dev/null"), (http, "")], (false, true)),
        (&[("access-log-path", "/dev/null"), (stream, "")], (true, true)),
        (&[("access-log-path", "/var/log/nginx/access.log")], (false, false)),
    ] {
        let (settings, faults) = compiled(data);
        let LocationPolicy { disable_http_access_log, disable_stream_access_log, .. } = settings.defaults;
        let off = |it: Option<bool>| it == Some(true);
        assert_eq!((off(disable_http_access_log), off(disable_stream_access_log)), is_off, "{data:?}");
        assert_eq!(faults, [], "{data:?}");
    }
    let (_, faults) = compiled(&[("access-log-path", "/tmp/access.log")]);
    assert_eq!(faults.len(), 1);
}

/// nobody misses what the defaults say; all else is said.
#[test]
fn logs_of_the_proxy_itself_are_told_of_where_they_differ() {
    let (_, faults) = compiled(&[
        ("enable-syslog", "false"),
        ("error-log-level", "notice"),
        ("error-log-path", "/dev/stderr"),
    ]);
    assert_eq!(faults, []);
    let differing = [("enable-syslog", "true"), ("error-log-level", "debug"), ("error-log-path", "/tmp/e")];
    let (settings, faults) = compiled(&differing);
    assert_eq!((settings, faults.len()), (Settings::default(), 3));
    assert!(faults[0].reason.contains("--access-log") && faults[1].reason.contains("--log"), "{faults:?}");
}

/// As in ingress-nginx, whose template clears it behind them.
#[test]
fn headers_that_are_added_name_no_server_without_server_tokens() {
    for (tokens, kept) in [("false", "X-A"), ("", "X-A"), ("true", "SERVER|X-A")] {
        let data = [("add-headers", "ns/extra"), ("server-tokens", tokens)];
        let data = data.into_iter().map(|(key, text)| (key.into(), text.into())).collect();
        let mut compiled = compile(Some(&ConfigMap { data, ..ConfigMap::default() }), None);
        let reference = compiled.refs.keys().next().unwrap().clone();
        let entries = [("SERVER", "mine"), ("X-A", "b")].map(|(name, value)| (name.into(), value.into()));
        compiled.put(&reference, &Referred::Entries(Arc::new(entries.into())));
        let names = compiled.settings.defaults.add_headers.unwrap().headers.into_iter().map(|it| it.name);
        assert_eq!(names.collect::<Vec<_>>().join("|"), kept, "{tokens:?}");
        assert_eq!(compiled.faults.len(), usize::from(kept == "X-A"), "{:?}", compiled.faults);
    }
}

fn last(text: &str) -> &str {
    text.rsplit(',').next().unwrap_or_default().trim()
}

/// Each then has its default, or denies access.
#[test]
fn a_value_that_cannot_be_read_is_named_with_its_key() {
    let of_rows = table::ROWS.iter().flat_map(|(key, status)| match status {
        Status::Default(row) => row.value.samples().1.iter().map(|text| (*key, *text)).collect(),
        Status::OfIndex => vec![(*key, "perhaps")],
        _ => Vec::new(),
    });
    let others = [
        ("annotations-risk-level", "enormous"),
        ("global-allowed-response-headers", "X-A, b c"),
        ("global-auth-url", "::::"),
        ("keep-alive", "long"),
    ];
    // Lists of the ConfigMap may have empty items, and lists of addresses hold nothing else.
    // Nor do spaces around most values matter there, nor the case of a switch.
    let is_bad = |(_, text): &(&str, &str)| {
        let is_switch = ["on", "off"].contains(&&*text.to_ascii_lowercase());
        !is_switch && text.trim() == *text && text.split(',').all(|item| !item.trim().is_empty())
    };
    for (key, text) in of_rows.chain(others).filter(is_bad) {
        let (settings, faults) = compiled(&[(key, text)]);
        let [fault] = &faults[..] else { panic!("{key} {text}: {faults:?}") };
        assert_eq!(fault.field, format!("data[{key}]"));
        // All of it, or the items that are left out.
        let whole = shown(text.trim());
        let is_named = fault.reason.contains(&whole) || fault.reason.contains(&shown(last(text)));
        assert!(is_named && !fault.reason.contains("not enforced"), "{text}: {fault:?}");
        assert_eq!(!settings.guards.is_empty(), fault.reason.ends_with(ALL_PATHS), "{text}: {fault:?}");
    }
}

/// Two supported keys never set the same field: neither is lost if both are set.
#[test]
fn each_key_has_a_field_of_its_own() {
    let honoured = table::ROWS.iter().filter_map(|(key, status)| match status {
        Status::Default(row) if row.value.status() == annotations::row::Status::Honoured => {
            Some((*key, row.value.samples().0[0]))
        }
        _ => None,
    });
    let honoured: Vec<_> = honoured.collect();
    assert!(honoured.len() >= 2);
    let whole = |data: &[(&str, &str)]| {
        let data = data.iter().map(|(key, text)| ((*key).into(), (*text).into())).collect();
        compile(Some(&ConfigMap { data, ..ConfigMap::default() }), None)
    };
    for one in &honoured {
        let alone = whole(&[*one]);
        assert_ne!(alone, Compiled::default(), "{one:?} acts");
        assert_eq!(alone.faults, []);
        for other in honoured.iter().filter(|other| other.0 != one.0) {
            let both = whole(&[*one, *other]);
            assert!(both != alone && both != whole(&[*other]), "{one:?} and {other:?}");
        }
    }
}

#[test]
fn every_other_key_is_reported() {
    let (settings, faults) = compiled(&[
        ("http-snippet", "gzip on;"),
        ("jaeger-endpoint", "x"),
        ("nonsense", "x"),
        ("proxy-headers-hash-bucket-size", "64"),
        ("worker-processes", "4"),
    ]);
    assert_eq!(settings, Settings::default());
    use Severity::{Unsupported, Warning};
    let severities: Vec<_> = faults.iter().map(|fault| fault.severity).collect();
    assert_eq!(severities, [Unsupported, Warning, Warning, Unsupported, Unsupported]);
}

/// A public format of an article about ingress-nginx has `$uri_normalized`, which a map in `http-snippet` defines.
#[test]
fn a_log_format_stays_in_use_without_the_variables_that_have_no_value() {
    let text = "{\"a\": \"$status\", \"b\": \"$uri_normalized\", \"c\": \"$geoip2_city\"}";
    let (settings, faults) = compiled(&[("log-format-upstream", text)]);
    assert_eq!(settings.defaults.log_format_upstream.as_deref(), Some(text));
    let reasons: Vec<_> = faults.iter().map(|fault| (fault.severity, &*fault.reason)).collect();
    let told = |name: &str| format!("\"{name}\" has no value here: lines have nothing in its place");
    let told = [told("$uri_normalized"), told("$geoip2_city")];
    assert_eq!(reasons, [(Severity::Warning, &*told[0]), (Severity::Warning, &*told[1])]);
}

/// It cannot touch a request, so it denies none.
#[test]
fn whatever_a_main_snippet_holds_denies_nothing() {
    let (settings, faults) =
        compiled(&[("main-snippet", "load_module modules/x.so; env KEY; worker_rlimit_nofile 9;")]);
    assert_eq!(settings, Settings::default());
    assert_eq!(faults.len(), 1);
}

/// As for a load balancer that ends TLS and has a port of its own for plaintext.
#[test]
fn port_of_a_server_in_an_http_snippet_is_named() {
    let text = "server { listen 2443; return 308 https://$host$request_uri; } map $x $y { default 1; }";
    let (settings, faults) = compiled(&[("http-snippet", text)]);
    assert_eq!(settings, Settings::default());
    assert!(
        faults[0].reason.ends_with(": nothing listens on 2443, as its server does not exist"),
        "{}",
        faults[0].reason
    );
}

/// Keys that are honoured and say something of locations, each with its row.
fn of_locations() -> Vec<(&'static str, &'static Row)> {
    let rows = table::ROWS.iter().filter_map(|(key, status)| match status {
        // A key may have the name of an annotation that is dead.
        Status::Default(row)
            if annotations::table::find(row.name).is_some_and(|it| std::ptr::eq(it, *row)) =>
        {
            Some((*key, *row))
        }
        _ => None,
    });
    let is_honoured = |row: &Row| row.value.status() == annotations::row::Status::Honoured;
    rows.filter(|(_, row)| is_honoured(row) && row.needs.is_none()).collect()
}

/// What one row says of locations where this is its text.
fn alone(row: &'static Row, text: &str) -> LocationPolicy {
    match row.value.read(text).filter(|_| !text.is_empty()) {
        Some(_) => annotations::default(row, row.name, text).serving.location,
        None => LocationPolicy::default(),
    }
}

#[test]
fn lists_of_addresses_may_have_empty_items() {
    for key in ["whitelist-source-range", "denylist-source-range", "block-cidrs"] {
        let (settings, faults) = compiled(&[(key, "10.0.0.0/8,, 192.0.2.1,")]);
        assert_eq!((settings.guards, faults), (vec![], vec![]), "{key}");
    }
    let (settings, _) = compiled(&[("whitelist-source-range", "10.0.0.0/8,")]);
    assert_eq!(settings.defaults.allowlist_source_range.unwrap().values, ["10.0.0.0/8"]);
    let configured =
        [(format!("{}allowlist-source-range", annotations::PREFIX), "10.0.0.0/8,".into())].into();
    let web = annotations::read(&ObjectName::new("default", "web"), &configured);
    assert!(web.serving.denied.is_some(), "those of an Ingress may not");
}

proptest! {
    /// Annotations over the ConfigMap's keys, as the proxy lays them, are row by row what the key says, where it is
    /// a value, and over it what the annotation says, where it is one.
    #[test]
    fn annotations_lie_over_keys_row_by_row(
        texts in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 64)
    ) {
        let rows = of_locations();
        prop_assert!(rows.len() >= 5 && rows.len() <= texts.len());
        let (mut data, mut configured, mut slow) = (Vec::new(), Texts::default(), LocationPolicy::default());
        for ((key, row), (of_key, of_annotation)) in rows.into_iter().zip(&texts) {
            let (good, bad) = row.value.samples();
            let choices: Vec<&str> = good.iter().chain(bad).copied().chain([""]).collect();
            let (global, own) = (*of_key.get(&choices), *of_annotation.get(&choices));
            data.push((key, global));
            configured.insert(format!("{}{}", annotations::PREFIX, row.name), own.to_owned());
            let written = if global.is_empty() { meant_by_nothing(row).unwrap_or("") } else { taken(key, global) };
            slow.overlay(&alone(row, &in_lower_case(row, written.into())));
            slow.overlay(&alone(row, own));
        }
        let mut fast = compiled(&data).0.defaults;
        let parsed = annotations::read(&ObjectName::new("default", "web"), &configured);
        fast.overlay(&parsed.serving.location);
        prop_assert_eq!(fast, slow);
    }
}

#[test]
fn clients_are_told_apart_by_what_has_a_value_and_is_moderate() {
    for (text, kept, faults) in [
        ("$binary_remote_addr".to_owned(), false, 0),
        ("$remote_addr".to_owned(), false, 0),
        ("$host$uri".to_owned(), true, 0),
        ("$nothing".to_owned(), false, 1),
        ("$host".repeat(200), false, 1),
    ] {
        let (settings, told) = compiled(&[("limit-conn-zone-variable", &text)]);
        let expected = kept.then(|| text.clone());
        assert_eq!((settings.defaults.limit_conn_zone_variable, told.len()), (expected, faults), "{text}");
    }
}
