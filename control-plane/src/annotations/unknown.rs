//! Unknown annotation names: suggestions for what was probably meant.

use super::{PREFIX, table};

/// What people write instead of an annotation's name.
const SYNONYMS: [(&str, &str); 25] = [
    ("allow-source-range", "allowlist-source-range"),
    ("auth-headers", "auth-response-headers"),
    ("basic-auth", "auth-type"),
    ("blacklist", "denylist-source-range"),
    ("blacklist-source-range", "denylist-source-range"),
    ("body-size", "proxy-body-size"),
    ("client-max-body-size", "proxy-body-size"),
    ("cors", "enable-cors"),
    ("deny-all", "denylist-source-range"),
    ("deny-source-range", "denylist-source-range"),
    ("denylist", "denylist-source-range"),
    ("enable-owasp-modsecurity-crs", "enable-owasp-core-rules"),
    ("ip-whitelist", "allowlist-source-range"),
    ("limit-burst", "limit-burst-multiplier"),
    ("max-body-size", "proxy-body-size"),
    ("rate-limit-burst", "limit-burst-multiplier"),
    ("rate-limit-burst-multiplier", "limit-burst-multiplier"),
    ("rate-limit-connections", "limit-connections"),
    ("rate-limit-requests-per-minute", "limit-rpm"),
    ("rate-limit-requests-per-second", "limit-rps"),
    ("rate-limit-rps", "limit-rps"),
    ("redirect", "permanent-redirect"),
    ("rewrite", "rewrite-target"),
    ("sticky-session", "affinity"),
    ("whitelist", "allowlist-source-range"),
];

/// ConfigMap keys that people write as annotations although there is no such annotation. A test of the table of keys
/// checks that they are keys.
pub(crate) const KEYS: [&str; 41] = [
    "add-headers",
    "allow-snippet-annotations",
    "client-body-timeout",
    "client-header-buffer-size",
    "client-header-timeout",
    "compute-full-forwarded-for",
    "disable-access-log",
    "enable-brotli",
    "enable-real-ip",
    "enable-underscores-in-headers",
    "forwarded-for-header",
    "gzip-level",
    "gzip-types",
    "hide-headers",
    "hsts",
    "hsts-include-subdomains",
    "hsts-max-age",
    "hsts-preload",
    "http-redirect-code",
    "http-snippet",
    "ignore-invalid-headers",
    "keep-alive",
    "keep-alive-requests",
    "limit-conn-status-code",
    "limit-req-status-code",
    "location-snippet",
    "log-format-upstream",
    "max-worker-connections",
    "proxy-protocol-header-timeout",
    "proxy-real-ip-cidr",
    "proxy-set-headers",
    "server-tokens",
    "ssl-protocols",
    "upstream-keepalive-connections",
    "upstream-keepalive-requests",
    "upstream-keepalive-timeout",
    "use-forwarded-headers",
    "use-gzip",
    "use-http2",
    "use-proxy-protocol",
    "worker-processes",
];

/// Annotations in which people put the class by mistake.
const CLASSES: [&str; 7] = [
    "ingress.class",
    "ingress.kubernetes.io/ingress.class",
    "ingressClassName",
    "kubernetes.io.ingress.class",
    "kubernetes.io/ingress-class",
    "kubernetes.io/ingressClassName",
    "spec.ingressClassName",
];

/// Prefixes that people write instead of ours, though others have them, too.
const OF_KUBERNETES: [&str; 2] = ["ingress.kubernetes.io", "kubernetes.io"];

/// And ends of more of them.
const ALIKE: [&str; 5] = [
    "nginx.ingress.io",
    "nginx.ingress.k8s.io",
    "nginx.kubernetes.io",
    "ingress-nginx.kubernetes.io",
    "ingress.nginx.kubernetes.io",
];

/// Limit of the texts that are compared: no name is longer.
const LONGEST: usize = 60;

/// A hint for the owner of an unknown annotation.
pub(super) fn hint(name: &str) -> Option<String> {
    let plain = name.to_ascii_lowercase().replace('_', "-");
    if KEYS.binary_search(&plain.as_str()).is_ok() {
        return Some(format!("{plain} is a key of the ConfigMap, for all Ingresses"));
    }
    if ["gzip", "enable-gzip"].contains(&plain.as_str()) {
        return Some("use-gzip is a key of the ConfigMap, for all Ingresses".into());
    }
    if ["keepalive-timeout", "keep-alive-timeout"].contains(&plain.as_str()) {
        return Some("keep-alive is a key of the ConfigMap, for all Ingresses".into());
    }
    if ["class", "ingress.class", "ingress-class", "ingressclassname"].contains(&plain.as_str()) {
        return Some(
            "set the class in spec.ingressClassName, or in the annotation kubernetes.io/ingress.class".into(),
        );
    }
    // Both are invented together: `rate-limit: 100` and `rate-limit-window: 1m`.
    if plain == "rate-limit" {
        return Some("did you mean limit-rpm, for requests in a minute, or limit-rps, in a second?".into());
    }
    if plain == "rate-limit-window" {
        return Some("limit-rpm counts requests in a minute, limit-rps in a second".into());
    }
    if plain.contains("websocket") || plain == "upgrade" {
        return Some("WebSocket needs no annotation".into());
    }
    suggestion(name).map(|meant| format!("did you mean {meant}?"))
}

/// The name that was probably meant.
fn suggestion(name: &str) -> Option<&'static str> {
    let plain = name.to_ascii_lowercase().replace('_', "-");
    let synonym = SYNONYMS.iter().find(|(synonym, _)| *synonym == plain).map(|(_, meant)| *meant);
    synonym.or_else(|| nearest(name, table::names))
}

/// The one of these names that was probably meant: the same but for case and underscores, the only one that ends with it, or
/// one with a few typos.
pub(crate) fn nearest<'n, N: Iterator<Item = &'n str>>(name: &str, names: impl Fn() -> N) -> Option<&'n str> {
    if name.len() > LONGEST {
        return None;
    }
    let name = name.to_ascii_lowercase().replace('_', "-");
    if let Some(known) = names().find(|known| *known == name) {
        return Some(known);
    }
    let ends = format!("-{name}");
    let mut longer = names().filter(|known| known.ends_with(&ends));
    if let (Some(only), None) = (longer.next(), longer.next()) {
        return Some(only);
    }
    // One typo per five letters, at least one and at most three.
    let most = (name.len() / 5).clamp(1, 3);
    let known = names().filter(|known| known.len().abs_diff(name.len()) <= most);
    let near = known.map(|known| (distance(&name, known), known)).filter(|(distance, _)| *distance <= most);
    near.min().map(|(_, known)| known)
}

/// Why an annotation with another prefix was probably meant for Firth, if so.
pub(super) fn foreign(key: &str) -> Option<String> {
    let is_slip = key.ends_with("/ingress.class") && key != "kubernetes.io/ingress.class";
    if CLASSES.contains(&key) || is_slip {
        let places = "spec.ingressClassName or the annotation kubernetes.io/ingress.class";
        return Some(format!("has no effect: the class is set in {places}"));
    }
    let ours = PREFIX.trim_end_matches('/');
    // `nginx.ingress.kubernetes.io-auth-secret`.
    let is_cut = key.strip_prefix(ours).is_some_and(|name| name.starts_with(['-', '.', '_']));
    if is_cut && !key.contains('/') {
        return Some(format!("has no effect: annotations begin with {PREFIX}"));
    }
    let Some((prefix, name)) = key.split_once('/') else {
        // A name of one word may be anybody's.
        let is_bare = key.contains('-') && table::find(key).is_some();
        return is_bare.then(|| format!("has no effect: annotations begin with {PREFIX}"));
    };
    if prefix.len() > LONGEST || prefix == ours {
        return None;
    }
    let is_known = table::find(name).is_some();
    let is_other = matches!(prefix, "nginx.org" | "nginx.com");
    let is_alike = OF_KUBERNETES.contains(&prefix) || ALIKE.iter().any(|end| prefix.ends_with(end));
    let is_old = is_alike && is_known;
    let is_near = distance(&prefix.to_ascii_lowercase(), ours) <= 3;
    let reason = if is_other {
        format!(
            "belongs to another controller and has no effect: annotations for this one begin with {PREFIX}"
        )
    } else if is_old || is_near {
        format!("has no effect: annotations begin with {PREFIX}")
    } else {
        return None;
    };
    Some(reason)
}

/// Number of letters to change, remove, insert or swap with their neighbour (optimal string alignment distance).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<_>, Vec<_>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let is_other = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + is_other);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_people_write() {
        for (name, meant) in [
            ("body-size", "proxy-body-size"),
            ("send-timeout", "proxy-send-timeout"),
            ("denylist", "denylist-source-range"),
            ("rate-limit-burst", "limit-burst-multiplier"),
            ("rate-limit-connections", "limit-connections"),
            ("limit-burst", "limit-burst-multiplier"),
            ("rate-limit-requests-per-minute", "limit-rpm"),
            ("read-timeout", "proxy-read-timeout"),
            ("proxy-reed-timeout", "proxy-read-timeout"),
            ("ssl_redirect", "ssl-redirect"),
            ("rewrite-traget", "rewrite-target"),
            ("Use-Regex", "use-regex"),
            ("backend-protocols", "backend-protocol"),
            ("whitelist-source-ranges", "whitelist-source-range"),
        ] {
            assert_eq!(suggestion(name), Some(meant), "{name}");
        }
        for name in ["frobnicate", "", "x", "no-such-thing", "timeout"] {
            assert_eq!(suggestion(name), None, "{name}");
        }
        assert_eq!(suggestion(&"a".repeat(1 << 20)), None);
    }

    #[test]
    fn what_stands_in_the_wrong_place_is_told_so() {
        let key = |name: &str| Some(format!("{name} is a key of the ConfigMap, for all Ingresses"));
        for name in ["use-forwarded-headers", "proxy-set-headers", "ssl-protocols", "hsts"] {
            assert_eq!(hint(name), key(name));
        }
        assert_eq!(hint("Use_Gzip"), key("use-gzip"));
        for name in ["enable-websocket", "enable-websockets", "websocket", "upgrade"] {
            assert_eq!(hint(name).as_deref(), Some("WebSocket needs no annotation"), "{name}");
        }
        assert_eq!(hint("keepalive-timeout"), key("keep-alive"));
        assert!(hint("gzip").unwrap().starts_with("use-gzip is a key"));
        assert!(hint("ingress.class").unwrap().contains("spec.ingressClassName"));
        assert!(foreign("kubernets.io/ingress.class").unwrap().contains("spec.ingressClassName"));
        assert_eq!(foreign("kubernetes.io/ingress.class"), None);
        assert_eq!(hint("client-max-body-size").as_deref(), Some("did you mean proxy-body-size?"));
        assert_eq!(hint("frobnicate"), None);
        for name in ["rate-limit", "rate-limit-window"] {
            let hint = hint(name).unwrap();
            assert!(hint.contains("limit-rpm") && hint.contains("limit-rps"), "{hint}");
        }
        for key in ["nginx.ingress.kubernetes.io-auth-secret", "nginx.kubernetes.io/proxy-body-size"] {
            assert_eq!(
                foreign(key).unwrap(),
                format!("has no effect: annotations begin with {PREFIX}"),
                "{key}"
            );
        }
        assert_eq!(foreign("nginx.kubernetes.io/other"), None);
        assert_eq!(foreign("nginx.ingress.kubernetes.iox"), None);
        assert!(KEYS.is_sorted() && CLASSES.is_sorted());
        for key in KEYS {
            assert!(table::find(key).is_none(), "{key} is an annotation, too");
        }
    }

    #[test]
    fn prefixes_that_people_write() {
        for key in [
            "nignx.ingress.kubernetes.io/ssl-redirect",
            "nginx.ingress.kubernetes.io.io/x",
            "ngnix.ingress.kubernetes.io/anything",
            "nginx.ingress.kubernets.io/rewrite-target",
            "ingress.kubernetes.io/rewrite-target",
            "nginx.org/client-max-body-size",
            "nginx.ingress.k8s.io/rewrite-target",
            "nginx.ingress.io/rewrite-target",
            "ingress-nginx.kubernetes.io/whitelist-source-range",
            "ingress.nginx.kubernetes.io/ssl-redirect",
            "kubernetes.io/rewrite-target",
            "rewrite-target",
            "kubernetes.io.ingress.class",
            "spec.ingressClassName",
        ] {
            assert!(foreign(key).is_some(), "{key}");
        }
        for key in [
            "nginx.ingress.kubernetes.io/x",
            "kubernetes.io/ingress.class",
            "ingress.kubernetes.io/whitelist-x-forwarded-for",
            "cert-manager.io/cluster-issuer",
            "traefik.ingress.kubernetes.io/router.tls",
            "haproxy.org/ssl-redirect",
            "no-slash",
            "affinity",
            "canary",
            "kubernetes.io/ingress.allow-http",
            "ingress-nginx.kubernetes.io/other",
            "traefik.ingress.kubernetes.io/rewrite-target",
        ] {
            assert_eq!(foreign(key), None, "{key}");
        }
    }

    #[test]
    fn synonyms_are_in_order() {
        assert!(SYNONYMS.is_sorted_by_key(|(synonym, _)| synonym));
    }
}
