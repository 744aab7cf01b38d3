use super::*;

fn read_all(annotations: &[(&str, &str)]) -> Read {
    let annotations =
        annotations.iter().map(|(name, text)| (format!("{PREFIX}{name}"), (*text).to_owned())).collect();
    read(&ObjectName::new("default", "web"), &annotations)
}

fn severities(read: &Read) -> Vec<Severity> {
    read.faults.iter().map(|fault| fault.severity).collect()
}

#[test]
fn nothing_said_is_nothing() {
    assert_eq!(read_all(&[]), Read::default());
}

#[test]
fn redirects_are_read_and_faulty_ones_fall_back() {
    let read = read_all(&[("ssl-redirect", "false"), ("force-ssl-redirect", "yes")]);
    assert_eq!(read.ssl_redirect, Some(false));
    assert_eq!(read.force_ssl_redirect, None);
    assert_eq!(severities(&read), [Severity::Warning]);
}

#[test]
fn a_canary_is_read_whole() {
    let read = read_all(&[
        ("canary", "true"),
        ("canary-by-header", " X-Canary "),
        ("canary-by-header-value", "do it"),
        ("canary-by-header-pattern", "^beta|x"),
        ("canary-by-cookie", "canary"),
        ("canary-weight", "10"),
        ("canary-weight-total", "1000"),
    ]);
    assert_eq!(
        read.canary,
        Some(Canary {
            header: "X-Canary".into(),
            header_value: "do it".into(),
            header_pattern: "^beta|x".into(),
            cookie: "canary".into(),
            weight: 10,
            weight_total: 1000,
        })
    );
    assert_eq!(read.faults, []);
}

#[test]
fn faulty_canary_values_count_as_not_said() {
    let read = read_all(&[
        ("canary", "true"),
        ("canary-by-header", "X;Canary"),
        ("canary-by-cookie", ""),
        ("canary-weight", "50%"),
        ("canary-weight-total", "many"),
    ]);
    let expected = Canary { weight_total: 100, ..Canary::default() };
    assert_eq!(read.canary, Some(expected));
    assert_eq!(severities(&read), [Severity::Warning; 4]);
}

#[test]
fn a_faulty_pattern_is_passed_on_and_reported() {
    let read = read_all(&[("canary", "true"), ("canary-by-header-pattern", "[a")]);
    assert_eq!(read.canary.unwrap().header_pattern, "[a");
    assert_eq!(read.faults[0].field, field("canary-by-header-pattern"));
}

#[test]
fn canary_keys_without_canary_do_nothing() {
    for canary in ["false", "yes"] {
        let read = read_all(&[("canary", canary), ("canary-weight", "50")]);
        assert_eq!(read.canary, None);
        assert!(severities(&read).iter().all(|s| *s == Severity::Warning));
    }
}

#[test]
fn restrictions_deny_the_ingress() {
    for (name, text) in [
        ("auth-url", "https://auth.test"),
        ("auth-type", "basic"),
        ("whitelist-source-range", "10.0.0.0/8"),
        ("denylist-source-range", "10.0.0.0/8"),
        ("limit-rpm", "5"),
        ("satisfy", "any"),
    ] {
        let read = read_all(&[(name, text)]);
        let reason = read.denied.unwrap_or_else(|| panic!("{name} denies")).reason;
        assert_eq!(reason, format!("Ingress default/web: {PREFIX}{name} is not enforced yet"));
        assert_eq!(read.faults[0].severity, Severity::Unsupported);
    }
}

#[test]
fn restrictions_of_nobody_deny_nothing() {
    let read =
        read_all(&[("whitelist-source-range", "0.0.0.0/0,::/0"), ("limit-rps", "0"), ("satisfy", "all")]);
    assert_eq!(read, Read::default());
}

#[test]
fn client_certificates_deny_the_hosts() {
    let read = read_all(&[("auth-tls-secret", "default/ca"), ("auth-tls-verify-depth", "2")]);
    assert!(read.hosts_denied.is_some());
    assert_eq!(read.denied, None);
}

#[test]
fn on_a_canary_restrictions_have_no_effect() {
    let read = read_all(&[("canary", "true"), ("auth-url", "https://auth.test"), ("auth-tls-secret", "a/b")]);
    assert_eq!((read.denied, read.hosts_denied), (None, None));
    assert_eq!(
        severities(&read_all(&[("canary", "true"), ("load-balance", "ewma")])),
        [Severity::Unsupported]
    );
}

#[test]
fn what_happens_anyway_is_not_reported() {
    let read = read_all(&[
        ("use-regex", "false"),
        ("backend-protocol", "HTTP"),
        ("proxy-read-timeout", "60"),
        ("server-alias", ""),
    ]);
    assert_eq!(read, Read::default());
}

#[test]
fn the_rest_is_reported() {
    let read = read_all(&[
        ("configuration-snippet", "return 200;"),
        ("frobnicate", "1"),
        ("rewrite-target", "/$1"),
        ("session-cookie-hash", "sha1"),
    ]);
    assert_eq!(
        severities(&read),
        [Severity::Unsupported, Severity::Warning, Severity::Unsupported, Severity::Warning]
    );
    assert_eq!(read.denied, None);
}
