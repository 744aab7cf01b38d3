//! Every annotation that ingress-nginx knows or once knew, and what becomes of it here.
//!
//! **Invariant:** one row for one name, in ascending order. A feature that gets built changes its row.

use super::value;

/// What becomes of an annotation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// It acts as in ingress-nginx.
    Honoured,
    /// It does not act yet. A value that asks for what happens anyway is not worth a report.
    Unsupported {
        /// What happens anyway; an empty value asks for nothing.
        default: &'static str,
    },
    /// It restricts access and is not enforced yet: what it would guard answers 503.
    Restricts(Restriction),
    /// Raw nginx configuration. It never acts (annotations.md 1.5).
    Snippet,
    /// It has no effect in ingress-nginx' newest version either (annotations.md 7).
    Dead,
}

/// Which values of a restricting annotation restrict, and what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Restriction {
    /// Any but an empty one restricts the Ingress' paths.
    WhenSaid,
    /// Any: ingress-nginx denies even for an empty one (annotations.md 5.3).
    Always,
    /// A list that does not let everybody in.
    Allow {
        /// Whether an empty list restricts: ingress-nginx denies for the new name, not for the old one.
        empty: bool,
    },
    /// Any number but 0, and whatever is no number.
    Limit,
    /// The word `any`; `all` adds nothing to the other restrictions.
    Any,
    /// Any but an empty one restricts all paths of the Ingress' hosts (annotations.md 2.4).
    Host,
}

impl Restriction {
    /// Whether this value keeps anybody out.
    pub fn applies(self, text: &str) -> bool {
        match self {
            Self::WhenSaid | Self::Host => !text.trim().is_empty(),
            Self::Always => true,
            Self::Allow { empty } if text.trim().is_empty() => empty,
            Self::Allow { .. } => !value::allows_everybody(text),
            Self::Limit => value::integer(text).is_none_or(|limit| limit > 0),
            Self::Any => text.trim() == "any",
        }
    }
}

impl Status {
    /// Of an annotation, by its name without the prefix; `None`: nobody ever knew it.
    pub fn of(name: &str) -> Option<Self> {
        match ROWS.binary_search_by_key(&name, |(name, _)| name) {
            Ok(row) => Some(ROWS[row].1),
            Err(_) => DEAD_FAMILIES.iter().any(|family| name.starts_with(family)).then_some(Self::Dead),
        }
    }
}

/// The others that are read on a canary Ingress (annotations.md 6.16); the rest has no effect there.
pub const READ_ON_CANARIES: [&str; 6] = [
    "affinity-canary-behavior",
    "load-balance",
    "service-upstream",
    "upstream-hash-by",
    "upstream-hash-by-subset",
    "upstream-hash-by-subset-size",
];

/// Beginnings of names of features that were removed.
const DEAD_FAMILIES: [&str; 5] =
    ["global-rate-limit", "influxdb-", "jaeger-", "lua-resty-waf", "opentracing-"];

use Status::{Dead, Honoured, Restricts, Snippet, Unsupported};

#[rustfmt::skip]
static ROWS: [(&str, Status); 155] = [
    ("add-base-url", Dead),
    ("affinity", Unsupported { default: "" }),
    ("affinity-canary-behavior", Unsupported { default: "" }),
    ("affinity-mode", Unsupported { default: "" }),
    ("allowlist-source-range", Restricts(Restriction::Allow { empty: true })),
    ("app-root", Unsupported { default: "" }),
    ("auth-always-set-cookie", Unsupported { default: "false" }),
    ("auth-cache-duration", Unsupported { default: "" }),
    ("auth-cache-key", Unsupported { default: "" }),
    ("auth-keepalive", Unsupported { default: "0" }),
    ("auth-keepalive-requests", Unsupported { default: "" }),
    ("auth-keepalive-share-vars", Unsupported { default: "false" }),
    ("auth-keepalive-timeout", Unsupported { default: "" }),
    ("auth-method", Unsupported { default: "" }),
    ("auth-proxy-set-headers", Unsupported { default: "" }),
    ("auth-realm", Unsupported { default: "" }),
    ("auth-request-redirect", Unsupported { default: "" }),
    ("auth-response-headers", Unsupported { default: "" }),
    ("auth-secret", Restricts(Restriction::WhenSaid)),
    ("auth-secret-type", Unsupported { default: "" }),
    ("auth-signin", Unsupported { default: "" }),
    ("auth-signin-redirect-param", Unsupported { default: "" }),
    ("auth-snippet", Snippet),
    ("auth-tls-error-page", Unsupported { default: "" }),
    ("auth-tls-match-cn", Restricts(Restriction::Host)),
    ("auth-tls-pass-certificate-to-upstream", Unsupported { default: "false" }),
    ("auth-tls-secret", Restricts(Restriction::Host)),
    ("auth-tls-verify-client", Unsupported { default: "" }),
    ("auth-tls-verify-depth", Unsupported { default: "" }),
    ("auth-type", Restricts(Restriction::WhenSaid)),
    ("auth-url", Restricts(Restriction::WhenSaid)),
    ("backend-protocol", Unsupported { default: "HTTP" }),
    ("base-url-scheme", Dead),
    ("canary", Honoured),
    ("canary-by-cookie", Honoured),
    ("canary-by-header", Honoured),
    ("canary-by-header-pattern", Honoured),
    ("canary-by-header-value", Honoured),
    ("canary-weight", Honoured),
    ("canary-weight-total", Honoured),
    ("client-body-buffer-size", Unsupported { default: "" }),
    ("configuration-snippet", Snippet),
    ("configuration-snippets", Dead),
    ("connection-proxy-header", Unsupported { default: "" }),
    ("cors-allow-credentials", Unsupported { default: "" }),
    ("cors-allow-headers", Unsupported { default: "" }),
    ("cors-allow-methods", Unsupported { default: "" }),
    ("cors-allow-origin", Unsupported { default: "" }),
    ("cors-expose-headers", Unsupported { default: "" }),
    ("cors-max-age", Unsupported { default: "" }),
    ("custom-headers", Unsupported { default: "" }),
    ("custom-http-errors", Unsupported { default: "" }),
    ("default-backend", Unsupported { default: "" }),
    ("denylist-source-range", Restricts(Restriction::Always)),
    ("disable-proxy-intercept-errors", Unsupported { default: "false" }),
    ("enable-access-log", Unsupported { default: "true" }),
    ("enable-cors", Unsupported { default: "false" }),
    ("enable-global-auth", Honoured),
    ("enable-influxdb", Dead),
    ("enable-modsecurity", Unsupported { default: "false" }),
    ("enable-opentelemetry", Unsupported { default: "false" }),
    ("enable-opentracing", Dead),
    ("enable-owasp-core-rules", Unsupported { default: "false" }),
    ("enable-rewrite-log", Dead),
    ("fastcgi-index", Unsupported { default: "" }),
    ("fastcgi-params-configmap", Unsupported { default: "" }),
    ("force-ssl-redirect", Honoured),
    ("from-to-www-redirect", Unsupported { default: "false" }),
    ("grpc-backend", Dead),
    ("http2-push-preload", Dead),
    ("large-client-header-buffers", Dead),
    ("limit-allowlist", Unsupported { default: "" }),
    ("limit-burst-multiplier", Unsupported { default: "" }),
    ("limit-connections", Restricts(Restriction::Limit)),
    ("limit-rate", Unsupported { default: "0" }),
    ("limit-rate-after", Unsupported { default: "0" }),
    ("limit-rpm", Restricts(Restriction::Limit)),
    ("limit-rps", Restricts(Restriction::Limit)),
    ("limit-whitelist", Unsupported { default: "" }),
    ("load-balance", Unsupported { default: "round_robin" }),
    ("mirror-host", Unsupported { default: "" }),
    ("mirror-request-body", Unsupported { default: "" }),
    ("mirror-target", Unsupported { default: "" }),
    ("modsecurity-snippet", Snippet),
    ("modsecurity-transaction-id", Unsupported { default: "" }),
    ("opentelemetry-operation-name", Unsupported { default: "" }),
    ("opentelemetry-trust-incoming-span", Unsupported { default: "" }),
    ("permanent-redirect", Unsupported { default: "" }),
    ("permanent-redirect-code", Unsupported { default: "301" }),
    ("preserve-trailing-slash", Unsupported { default: "false" }),
    ("proxy-body-size", Unsupported { default: "" }),
    ("proxy-buffer-size", Unsupported { default: "" }),
    ("proxy-buffering", Unsupported { default: "off" }),
    ("proxy-buffers", Dead),
    ("proxy-buffers-number", Unsupported { default: "" }),
    ("proxy-busy-buffers-size", Unsupported { default: "" }),
    ("proxy-connect-timeout", Unsupported { default: "5" }),
    ("proxy-cookie-domain", Unsupported { default: "off" }),
    ("proxy-cookie-path", Unsupported { default: "off" }),
    ("proxy-http-version", Unsupported { default: "1.1" }),
    ("proxy-max-temp-file-size", Unsupported { default: "" }),
    ("proxy-next-upstream", Unsupported { default: "" }),
    ("proxy-next-upstream-timeout", Unsupported { default: "0" }),
    ("proxy-next-upstream-tries", Unsupported { default: "" }),
    ("proxy-read-timeout", Unsupported { default: "60" }),
    ("proxy-redirect-from", Unsupported { default: "off" }),
    ("proxy-redirect-to", Unsupported { default: "off" }),
    ("proxy-request-buffering", Unsupported { default: "" }),
    ("proxy-send-timeout", Unsupported { default: "60" }),
    ("proxy-ssl-ciphers", Unsupported { default: "" }),
    ("proxy-ssl-name", Unsupported { default: "" }),
    ("proxy-ssl-protocols", Unsupported { default: "" }),
    ("proxy-ssl-secret", Unsupported { default: "" }),
    ("proxy-ssl-server-name", Unsupported { default: "off" }),
    ("proxy-ssl-verify", Unsupported { default: "off" }),
    ("proxy-ssl-verify-depth", Unsupported { default: "" }),
    ("rate-limit-rps", Dead),
    ("relative-redirects", Unsupported { default: "false" }),
    ("rewrite-log", Dead),
    ("rewrite-target", Unsupported { default: "" }),
    ("satisfy", Restricts(Restriction::Any)),
    ("secure-backends", Dead),
    ("secure-verify-ca-secret", Dead),
    ("server-alias", Unsupported { default: "" }),
    ("server-snippet", Snippet),
    ("service-upstream", Unsupported { default: "false" }),
    ("session-cookie-change-on-failure", Unsupported { default: "false" }),
    ("session-cookie-conditional-samesite-none", Unsupported { default: "false" }),
    ("session-cookie-domain", Unsupported { default: "" }),
    ("session-cookie-expires", Unsupported { default: "" }),
    ("session-cookie-hash", Dead),
    ("session-cookie-max-age", Unsupported { default: "" }),
    ("session-cookie-name", Unsupported { default: "" }),
    ("session-cookie-path", Unsupported { default: "" }),
    ("session-cookie-samesite", Unsupported { default: "" }),
    ("session-cookie-secure", Unsupported { default: "false" }),
    ("ssl-ciphers", Unsupported { default: "" }),
    ("ssl-passthrough", Unsupported { default: "false" }),
    ("ssl-prefer-server-ciphers", Unsupported { default: "" }),
    ("ssl-redirect", Honoured),
    ("ssl-verify", Dead),
    ("stream-snippet", Snippet),
    ("temporal-redirect", Unsupported { default: "" }),
    ("temporal-redirect-code", Unsupported { default: "302" }),
    ("upstream-fail-timeout", Dead),
    ("upstream-hash-by", Unsupported { default: "" }),
    ("upstream-hash-by-subset", Unsupported { default: "false" }),
    ("upstream-hash-by-subset-size", Unsupported { default: "" }),
    ("upstream-max-fails", Dead),
    ("upstream-vhost", Unsupported { default: "" }),
    ("use-port-in-redirects", Unsupported { default: "false" }),
    ("use-regex", Unsupported { default: "false" }),
    ("websocket-services", Dead),
    ("whitelist-source-range", Restricts(Restriction::Allow { empty: false })),
    ("x-forwarded-prefix", Unsupported { default: "" }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_order() {
        assert!(ROWS.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn restrictions_that_restrict_nothing() {
        let applies = |name, text| match Status::of(name) {
            Some(Restricts(restriction)) => restriction.applies(text),
            other => panic!("{name} is {other:?}"),
        };
        let cases = [
            ("auth-url", "http://auth.test", true),
            ("auth-url", "", false),
            ("limit-rps", "0", false),
            ("limit-rps", "5", true),
            ("limit-rps", "five", true),
            ("satisfy", "any", true),
            ("satisfy", "all", false),
            ("whitelist-source-range", "0.0.0.0/0,::/0", false),
            ("whitelist-source-range", "", false),
            ("allowlist-source-range", "", true),
            ("allowlist-source-range", "10.0.0.0/8", true),
            ("denylist-source-range", "", true),
            ("auth-tls-secret", "default/ca", true),
        ];
        for (name, text, expected) in cases {
            assert_eq!(applies(name, text), expected, "{name}: {text}");
        }
    }

    #[test]
    fn families_are_dead() {
        assert_eq!(Status::of("global-rate-limit-window"), Some(Dead));
        assert_eq!(Status::of("session-cookie-hash"), Some(Dead));
        assert_eq!(Status::of("frobnicate"), None);
    }
}
