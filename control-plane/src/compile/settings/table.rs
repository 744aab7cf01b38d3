//! The keys of ingress-nginx' ConfigMap, and how each is handled.
//!
//! **Invariant:** one row for one key, in ascending order. A supported key is parsed by one row only: that of the
//! annotation of which it is the default, or one of its own in the same file.

use std::borrow::Cow;

use crate::annotations::nearest;
use crate::annotations::row::Row;
use crate::annotations::{
    access, auth, balancing, buffering, client_tls, clients, compression, errors, forwarding, limits, log,
    redirect, response_headers, response_rewrite, retries, streams, timeouts, tracing, upstream_keepalive,
    waf,
};
use crate::compile::allowed;

/// How a key is handled.
#[derive(Clone, Copy)]
pub enum Status {
    /// Parsed by this row, which defines its effect.
    Default(&'static Row),
    /// The response headers that Ingresses may set. Read where those are compiled; not sent to proxies.
    AllowedHeaders,
    /// A secret: sent to proxies as one, never part of the settings.
    TicketKey,
    /// Restricts annotations, with this default; see [`allowed`].
    Allows(
        #[cfg_attr(not(test), allow(dead_code, reason = "for docs/compatibility.md, which a test writes"))]
        &'static str,
    ),
    /// A boolean that affects how objects are compiled; not sent to proxies.
    OfIndex,
    /// Not supported yet. It does not restrict access, and its absence sends nothing elsewhere.
    Unsupported,
    /// Raw nginx configuration. What is not read into types never takes effect; what it could restrict answers 503.
    Snippet,
    /// Tunes nginx itself; has no meaning here.
    Nginx,
    /// Has no effect in the newest version of ingress-nginx either.
    Dead,
}

/// `allow-snippet-annotations`.
pub(crate) const ALLOW_SNIPPETS: &str = "allow-snippet-annotations";

/// `allow-cross-namespace-resources`.
pub(crate) const CROSS_NAMESPACE: &str = "allow-cross-namespace-resources";

/// `strict-validate-path-type`.
pub(crate) const STRICT_PATHS: &str = "strict-validate-path-type";

/// `proxy-ssl-location-only`.
pub(crate) const LOCATION_ONLY: &str = "proxy-ssl-location-only";

/// What to write instead of keys that never existed: names of nginx' directives, and misspelt keys.
pub(super) fn hint(key: &str) -> Option<Cow<'static, str>> {
    let plain = key.to_ascii_lowercase().replace('_', "-");
    if let Some((_, hint)) = HINTS.iter().find(|(name, _)| *name == plain) {
        return Some((*hint).into());
    }
    // Nobody is led to what has no effect.
    let alive = || ROWS.iter().filter(|(_, status)| !matches!(status, Dead | Nginx)).map(|(key, _)| *key);
    nearest(key, alive).map(|meant| format!("did you mean {meant}?").into())
}

const HINTS: [(&str, &str); 5] = [
    ("access-log-off", "set disable-access-log to true"),
    ("client-max-body-size", "set proxy-body-size"),
    ("limit-req-zone-variable", "limits count the addresses of clients"),
    ("real-ip-header", "set forwarded-for-header, with enable-real-ip or use-forwarded-headers"),
    ("set-real-ip-from", "set proxy-real-ip-cidr, with enable-real-ip or use-forwarded-headers"),
];

impl Status {
    /// The row of a key; `None`: it never existed. Keys are compared without regard to case (ingress-nginx).
    pub fn of(key: &str) -> Option<Self> {
        let key = key.to_ascii_lowercase();
        match ROWS.binary_search_by_key(&key.as_str(), |(key, _)| key) {
            Ok(row) => Some(ROWS[row].1),
            Err(_) => key.starts_with("jaeger-").then_some(Self::Dead),
        }
    }

    /// The row that parses it, if one does.
    pub fn row(self) -> Option<&'static Row> {
        match self {
            Self::Default(row) => Some(row),
            _ => None,
        }
    }
}

use Status::{AllowedHeaders, Allows, Dead, Default, Nginx, OfIndex, Snippet, TicketKey, Unsupported};

#[rustfmt::skip]
pub(crate) static ROWS: [(&str, Status); 197] = [
    ("access-log-params", Nginx),
    ("access-log-path", Default(&log::ACCESS_LOG_PATH)),
    ("add-headers", Default(&response_headers::ADD_HEADERS)),
    ("allow-backend-server-header", Default(&response_headers::ALLOW_BACKEND_SERVER_HEADER)),
    (CROSS_NAMESPACE, OfIndex),
    (ALLOW_SNIPPETS, OfIndex),
    (allowed::WORDS, Allows("")),
    (allowed::RISK_LEVEL, Allows("High")),
    ("app-root", Dead),
    ("bind-address", Default(&clients::BIND_ADDRESS)),
    ("bind-address-ipv4", Default(&clients::BIND_ADDRESS_IPV4)),
    ("bind-address-ipv6", Default(&clients::BIND_ADDRESS_IPV6)),
    ("block-cidrs", Default(&access::BLOCK_CIDRS)),
    ("block-referers", Default(&access::BLOCK_REFERERS)),
    ("block-user-agents", Default(&access::BLOCK_USER_AGENTS)),
    ("brotli-level", Default(&compression::BROTLI_LEVEL)),
    ("brotli-min-length", Default(&compression::BROTLI_MIN_LENGTH)),
    ("brotli-types", Default(&compression::BROTLI_TYPES)),
    ("client-body-buffer-size", Default(&buffering::CLIENT_BODY_BUFFER_SIZE)),
    ("client-body-timeout", Default(&buffering::CLIENT_BODY_TIMEOUT)),
    ("client-header-buffer-size", Default(&clients::CLIENT_HEADER_BUFFER_SIZE)),
    ("client-header-timeout", Default(&clients::CLIENT_HEADER_TIMEOUT)),
    ("compute-full-forwarded-for", Default(&forwarding::COMPUTE_FULL_FORWARDED_FOR)),
    ("custom-http-errors", Default(&errors::CUSTOM_HTTP_ERRORS_OF_ALL)),
    ("debug-connections", Nginx),
    ("default-type", Default(&response_headers::DEFAULT_TYPE)),
    ("denylist-source-range", Default(&access::DENYLIST_SOURCE_RANGE)),
    ("disable-access-log", Default(&log::DISABLE_ACCESS_LOG)),
    ("disable-http-access-log", Default(&log::DISABLE_HTTP_ACCESS_LOG)),
    ("disable-ipv6", Default(&clients::DISABLE_IPV6)),
    ("disable-ipv6-dns", Default(&clients::DISABLE_IPV6_DNS)),
    ("disable-proxy-intercept-errors", Default(&errors::DISABLE_PROXY_INTERCEPT_ERRORS)),
    ("disable-stream-access-log", Default(&log::DISABLE_STREAM_ACCESS_LOG)),
    ("enable-access-log-for-default-backend", Default(&log::ENABLE_ACCESS_LOG_FOR_DEFAULT_BACKEND)),
    ("enable-aio-write", Nginx),
    ("enable-auth-access-log", Default(&log::ENABLE_AUTH_ACCESS_LOG)),
    ("enable-brotli", Default(&compression::ENABLE_BROTLI)),
    ("enable-modsecurity", Default(&waf::ENABLE_MODSECURITY)),
    ("enable-multi-accept", Nginx),
    ("enable-ocsp", Default(&client_tls::ENABLE_OCSP)),
    ("enable-opentelemetry", Default(&tracing::ENABLE_OPENTELEMETRY)),
    ("enable-owasp-modsecurity-crs", Default(&waf::ENABLE_OWASP_CORE_RULES)),
    ("enable-real-ip", Default(&forwarding::ENABLE_REAL_IP)),
    ("enable-serial-reloads", Nginx),
    ("enable-syslog", Default(&log::ENABLE_SYSLOG)),
    ("enable-underscores-in-headers", Default(&forwarding::ENABLE_UNDERSCORES_IN_HEADERS)),
    ("error-log-level", Default(&log::ERROR_LOG_LEVEL)),
    ("error-log-path", Default(&log::ERROR_LOG_PATH)),
    ("force-ssl-redirect", Default(&redirect::FORCE_SSL_REDIRECT)),
    ("forwarded-for-header", Default(&forwarding::FORWARDED_FOR_HEADER)),
    ("forwarded-for-proxy-protocol-header", Default(&forwarding::FORWARDED_FOR_PROXY_PROTOCOL_HEADER)),
    ("forwarded-host-header", Default(&forwarding::FORWARDED_HOST_HEADER)),
    ("generate-request-id", Default(&forwarding::GENERATE_REQUEST_ID)),
    ("geoip2-autoreload-in-minutes", Unsupported),
    ("global-allowed-response-headers", AllowedHeaders),
    ("global-auth-always-set-cookie", Default(&auth::GLOBAL_ALWAYS_SET_COOKIE)),
    ("global-auth-cache-duration", Default(&auth::GLOBAL_CACHE_DURATION)),
    ("global-auth-cache-key", Default(&auth::GLOBAL_CACHE_KEY)),
    ("global-auth-method", Default(&auth::GLOBAL_METHOD)),
    ("global-auth-request-redirect", Default(&auth::GLOBAL_REQUEST_REDIRECT)),
    ("global-auth-response-headers", Default(&auth::GLOBAL_RESPONSE_HEADERS)),
    ("global-auth-signin", Default(&auth::GLOBAL_SIGNIN)),
    ("global-auth-signin-redirect-param", Default(&auth::GLOBAL_SIGNIN_PARAM)),
    ("global-auth-snippet", Snippet),
    ("global-auth-url", Default(&auth::GLOBAL_URL)),
    ("grpc-buffer-size-kb", Default(&clients::GRPC_BUFFER_SIZE_KB)),
    ("gzip-disable", Default(&compression::GZIP_DISABLE)),
    ("gzip-level", Default(&compression::GZIP_LEVEL)),
    ("gzip-min-length", Default(&compression::GZIP_MIN_LENGTH)),
    ("gzip-types", Default(&compression::GZIP_TYPES)),
    ("hide-headers", Default(&response_headers::HIDE_HEADERS)),
    ("hsts", Default(&response_headers::HSTS)),
    ("hsts-include-subdomains", Default(&response_headers::HSTS_INCLUDE_SUBDOMAINS)),
    ("hsts-max-age", Default(&response_headers::HSTS_MAX_AGE)),
    ("hsts-preload", Default(&response_headers::HSTS_PRELOAD)),
    ("http-access-log-path", Default(&log::ACCESS_LOG_PATH)),
    ("http-redirect-code", Default(&redirect::HTTP_REDIRECT_CODE)),
    ("http-snippet", Snippet),
    ("http2-max-concurrent-streams", Default(&clients::HTTP2_MAX_CONCURRENT_STREAMS)),
    ("http2-max-field-size", Nginx),
    ("http2-max-header-size", Nginx),
    ("http2-max-requests", Nginx),
    ("ignore-invalid-headers", Default(&forwarding::IGNORE_INVALID_HEADERS)),
    ("keep-alive", Default(&clients::KEEP_ALIVE)),
    ("keep-alive-requests", Default(&clients::KEEP_ALIVE_REQUESTS)),
    ("large-client-header-buffers", Default(&clients::LARGE_CLIENT_HEADER_BUFFERS)),
    ("limit-conn-status-code", Default(&limits::LIMIT_CONN_STATUS_CODE)),
    ("limit-conn-zone-variable", Default(&limits::LIMIT_CONN_ZONE_VARIABLE)),
    ("limit-rate", Default(&limits::LIMIT_RATE)),
    ("limit-rate-after", Default(&limits::LIMIT_RATE_AFTER)),
    ("limit-req-status-code", Default(&limits::LIMIT_REQ_STATUS_CODE)),
    ("load-balance", Default(&balancing::LOAD_BALANCE_OF_ALL)),
    ("location-snippet", Snippet),
    ("log-format-escape-json", Default(&log::LOG_FORMAT_ESCAPE_JSON)),
    ("log-format-escape-none", Default(&log::LOG_FORMAT_ESCAPE_NONE)),
    ("log-format-stream", Default(&log::LOG_FORMAT_STREAM)),
    ("log-format-upstream", Default(&log::LOG_FORMAT_UPSTREAM)),
    ("lua-shared-dicts", Nginx),
    ("main-snippet", Nginx),
    ("map-hash-bucket-size", Nginx),
    ("max-worker-connections", Nginx),
    ("max-worker-open-files", Nginx),
    ("modsecurity-snippet", Default(&waf::MODSECURITY_SNIPPET)),
    ("nginx-status-ipv4-whitelist", Default(&log::NGINX_STATUS_IPV4_WHITELIST)),
    ("nginx-status-ipv6-whitelist", Default(&log::NGINX_STATUS_IPV6_WHITELIST)),
    ("no-auth-locations", Default(&auth::NO_AUTH_LOCATIONS)),
    ("no-tls-redirect-locations", Default(&redirect::NO_TLS_REDIRECT_LOCATIONS)),
    ("opentelemetry-config", Nginx),
    ("opentelemetry-operation-name", Default(&tracing::OPENTELEMETRY_OPERATION_NAME)),
    ("opentelemetry-trust-incoming-span", Default(&tracing::OPENTELEMETRY_TRUST_INCOMING_SPAN)),
    ("otel-max-export-batch-size", Unsupported),
    ("otel-max-queuesize", Unsupported),
    ("otel-sampler", Default(&tracing::OTEL_SAMPLER)),
    ("otel-sampler-parent-based", Default(&tracing::OTEL_SAMPLER_PARENT_BASED)),
    ("otel-sampler-ratio", Default(&tracing::OTEL_SAMPLER_RATIO)),
    ("otel-schedule-delay-millis", Unsupported),
    ("otel-service-name", Unsupported),
    ("otlp-collector-host", Unsupported),
    ("otlp-collector-port", Unsupported),
    ("preserve-trailing-slash", Default(&redirect::PRESERVE_TRAILING_SLASH)),
    ("proxy-add-original-uri-header", Default(&forwarding::PROXY_ADD_ORIGINAL_URI_HEADER)),
    ("proxy-body-size", Default(&buffering::PROXY_BODY_SIZE)),
    ("proxy-buffer-size", Default(&buffering::PROXY_BUFFER_SIZE)),
    ("proxy-buffering", Default(&buffering::PROXY_BUFFERING)),
    ("proxy-buffers-number", Default(&buffering::PROXY_BUFFERS_NUMBER)),
    ("proxy-busy-buffers-size", Default(&buffering::PROXY_BUSY_BUFFERS_SIZE)),
    ("proxy-connect-timeout", Default(&timeouts::CONNECT)),
    ("proxy-cookie-domain", Default(&response_rewrite::PROXY_COOKIE_DOMAIN_OF_ALL)),
    ("proxy-cookie-path", Default(&response_rewrite::PROXY_COOKIE_PATH_OF_ALL)),
    ("proxy-headers-hash-bucket-size", Nginx),
    ("proxy-headers-hash-max-size", Nginx),
    ("proxy-http-version", Default(&buffering::PROXY_HTTP_VERSION)),
    ("proxy-max-temp-file-size", Default(&buffering::PROXY_MAX_TEMP_FILE_SIZE)),
    ("proxy-next-upstream", Default(&retries::PROXY_NEXT_UPSTREAM_OF_ALL)),
    ("proxy-next-upstream-timeout", Default(&retries::PROXY_NEXT_UPSTREAM_TIMEOUT)),
    ("proxy-next-upstream-tries", Default(&retries::PROXY_NEXT_UPSTREAM_TRIES)),
    ("proxy-protocol-header-timeout", Default(&clients::PROXY_PROTOCOL_HEADER_TIMEOUT)),
    ("proxy-read-timeout", Default(&timeouts::READ)),
    ("proxy-real-ip-cidr", Default(&forwarding::PROXY_REAL_IP_CIDR)),
    ("proxy-redirect-from", Default(&response_rewrite::PROXY_REDIRECT_FROM_OF_ALL)),
    ("proxy-redirect-to", Default(&response_rewrite::PROXY_REDIRECT_TO_OF_ALL)),
    ("proxy-request-buffering", Default(&buffering::PROXY_REQUEST_BUFFERING)),
    ("proxy-send-timeout", Default(&timeouts::SEND)),
    ("proxy-set-headers", Default(&forwarding::PROXY_SET_HEADERS)),
    (LOCATION_ONLY, OfIndex),
    ("proxy-stream-next-upstream", Default(&streams::PROXY_STREAM_NEXT_UPSTREAM)),
    ("proxy-stream-next-upstream-timeout", Default(&streams::PROXY_STREAM_NEXT_UPSTREAM_TIMEOUT)),
    ("proxy-stream-next-upstream-tries", Default(&streams::PROXY_STREAM_NEXT_UPSTREAM_TRIES)),
    ("proxy-stream-responses", Default(&streams::PROXY_STREAM_RESPONSES)),
    ("proxy-stream-timeout", Default(&streams::PROXY_STREAM_TIMEOUT)),
    ("relative-redirects", Default(&redirect::RELATIVE_REDIRECTS)),
    ("retry-non-idempotent", Default(&retries::RETRY_NON_IDEMPOTENT)),
    ("reuse-port", Nginx),
    ("server-name-hash-bucket-size", Nginx),
    ("server-name-hash-max-size", Nginx),
    ("server-snippet", Snippet),
    ("server-tokens", Default(&response_headers::SERVER_TOKENS)),
    ("service-upstream", Default(&balancing::SERVICE_UPSTREAM)),
    ("skip-access-log-urls", Default(&log::SKIP_ACCESS_LOG_URLS)),
    ("ssl-buffer-size", Nginx),
    ("ssl-ciphers", Default(&client_tls::SSL_CIPHERS)),
    ("ssl-dh-param", Default(&client_tls::SSL_DH_PARAM)),
    ("ssl-early-data", Default(&client_tls::SSL_EARLY_DATA)),
    ("ssl-ecdh-curve", Default(&client_tls::SSL_ECDH_CURVE)),
    ("ssl-protocols", Default(&client_tls::SSL_PROTOCOLS)),
    ("ssl-redirect", Default(&redirect::SSL_REDIRECT)),
    ("ssl-reject-handshake", Default(&client_tls::SSL_REJECT_HANDSHAKE)),
    ("ssl-session-cache", Default(&client_tls::SSL_SESSION_CACHE)),
    ("ssl-session-cache-size", Nginx),
    ("ssl-session-ticket-key", TicketKey),
    ("ssl-session-tickets", Default(&client_tls::SSL_SESSION_TICKETS)),
    ("ssl-session-timeout", Default(&client_tls::SSL_SESSION_TIMEOUT)),
    ("stream-access-log-path", Default(&log::ACCESS_LOG_PATH)),
    ("stream-snippet", Snippet),
    (STRICT_PATHS, OfIndex),
    ("syslog-host", Unsupported),
    ("syslog-port", Unsupported),
    ("upstream-hash-by", Dead),
    ("upstream-hash-by-subset", Dead),
    ("upstream-hash-by-subset-size", Dead),
    ("upstream-keepalive-connections", Default(&upstream_keepalive::UPSTREAM_KEEPALIVE_CONNECTIONS)),
    ("upstream-keepalive-requests", Default(&upstream_keepalive::UPSTREAM_KEEPALIVE_REQUESTS)),
    ("upstream-keepalive-time", Default(&upstream_keepalive::UPSTREAM_KEEPALIVE_TIME)),
    ("upstream-keepalive-timeout", Default(&upstream_keepalive::UPSTREAM_KEEPALIVE_TIMEOUT)),
    ("use-forwarded-headers", Default(&forwarding::USE_FORWARDED_HEADERS)),
    ("use-geoip", Dead),
    ("use-geoip2", Unsupported),
    ("use-gzip", Default(&compression::USE_GZIP)),
    ("use-http2", Default(&client_tls::USE_HTTP2)),
    ("use-port-in-redirects", Default(&redirect::USE_PORT_IN_REDIRECTS)),
    ("use-proxy-protocol", Default(&clients::USE_PROXY_PROTOCOL)),
    ("variables-hash-bucket-size", Nginx),
    ("variables-hash-max-size", Nginx),
    ("whitelist-source-range", Default(&access::ALLOWLIST_SOURCE_RANGE)),
    ("worker-cpu-affinity", Nginx),
    ("worker-processes", Nginx),
    ("worker-shutdown-timeout", Default(&clients::WORKER_SHUTDOWN_TIMEOUT)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_order() {
        assert!(ROWS.is_sorted_by(|a, b| a.0 < b.0));
    }

    /// Keys that problems advise to set exist in the table.
    #[test]
    fn keys_that_people_write_as_annotations_are_keys() {
        for key in crate::annotations::KEYS {
            assert!(Status::of(key).is_some(), "{key}");
        }
    }
}
