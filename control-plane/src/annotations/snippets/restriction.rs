//! Whether the directives of a snippet that are not read could restrict access, or may be left out.

use super::Snippet;
use super::tokens::Directive;
use super::{shortcuts, variables};
use crate::problem::shown;

/// Directives that are left out: the effect on a response or request is visible, and their absence harms nobody.
const LEFT_OUT: [&str; 145] = [
    "absolute_redirect",
    "access_log",
    "add_header",
    "add_trailer",
    "aio",
    "autoindex",
    "brotli",
    "brotli_comp_level",
    "brotli_types",
    "charset",
    "chunked_transfer_encoding",
    "client_body_buffer_size",
    "client_body_in_file_only",
    "client_body_in_single_buffer",
    "client_body_temp_path",
    "client_body_timeout",
    "client_header_buffer_size",
    "client_header_timeout",
    "client_max_body_size",
    "default_type",
    "directio",
    "error_log",
    "error_page",
    "etag",
    "expires",
    "grpc_buffer_size",
    "grpc_next_upstream",
    "grpc_next_upstream_timeout",
    "grpc_next_upstream_tries",
    "grpc_socket_keepalive",
    "gzip",
    "gzip_buffers",
    "gzip_comp_level",
    "gzip_disable",
    "gzip_http_version",
    "gzip_min_length",
    "gzip_proxied",
    "gzip_static",
    "gzip_types",
    "gzip_vary",
    "http2",
    "http2_max_concurrent_streams",
    "http2_max_field_size",
    "http2_max_header_size",
    "http2_push_preload",
    "if_modified_since",
    "ignore_invalid_headers",
    "index",
    "keepalive_disable",
    "keepalive_requests",
    "keepalive_time",
    "keepalive_timeout",
    "large_client_header_buffers",
    "limit_conn_log_level",
    "limit_conn_status",
    "limit_req_log_level",
    "limit_req_status",
    "lingering_close",
    "lingering_time",
    "lingering_timeout",
    "log_not_found",
    "log_subrequest",
    "max_ranges",
    "more_clear_headers",
    "more_set_headers",
    "msie_padding",
    "open_file_cache",
    "open_file_cache_errors",
    "open_file_cache_min_uses",
    "open_file_cache_valid",
    "opentelemetry",
    "opentelemetry_attribute",
    "opentelemetry_ignore_paths",
    "opentelemetry_operation_name",
    "opentelemetry_propagate",
    "opentracing",
    "output_buffers",
    "port_in_redirect",
    "postpone_output",
    "proxy_buffer_size",
    "proxy_buffering",
    "proxy_buffers",
    "proxy_busy_buffers_size",
    "proxy_cache",
    "proxy_cache_background_update",
    "proxy_cache_bypass",
    "proxy_cache_convert_head",
    "proxy_cache_key",
    "proxy_cache_lock",
    "proxy_cache_lock_age",
    "proxy_cache_lock_timeout",
    "proxy_cache_methods",
    "proxy_cache_min_uses",
    "proxy_cache_revalidate",
    "proxy_cache_use_stale",
    "proxy_cache_valid",
    "proxy_connect_timeout",
    "proxy_cookie_domain",
    "proxy_cookie_path",
    "proxy_force_ranges",
    "proxy_headers_hash_bucket_size",
    "proxy_headers_hash_max_size",
    "proxy_hide_header",
    "proxy_http_version",
    "proxy_ignore_client_abort",
    "proxy_intercept_errors",
    "proxy_limit_rate",
    "proxy_max_temp_file_size",
    "proxy_next_upstream",
    "proxy_next_upstream_timeout",
    "proxy_next_upstream_tries",
    "proxy_no_cache",
    "proxy_pass_header",
    "proxy_read_timeout",
    "proxy_request_buffering",
    "proxy_send_timeout",
    "proxy_socket_keepalive",
    "proxy_ssl_session_reuse",
    "read_ahead",
    "recursive_error_pages",
    "reset_timedout_connection",
    "resolver",
    "resolver_timeout",
    "rewrite_log",
    "send_lowat",
    "send_timeout",
    "sendfile",
    "sendfile_max_chunk",
    "server_name_in_redirect",
    "server_tokens",
    "ssl_buffer_size",
    "ssl_prefer_server_ciphers",
    "ssl_session_timeout",
    "ssl_stapling",
    "ssl_stapling_verify",
    "sub_filter",
    "sub_filter_last_modified",
    "sub_filter_once",
    "sub_filter_types",
    "tcp_nodelay",
    "tcp_nopush",
    "types_hash_bucket_size",
    "types_hash_max_size",
    "underscores_in_headers",
    "uninitialized_variable_warn",
];

/// Request headers that the proxy always sets itself, so that no client's value gets through if a snippet's is left
/// out.
pub(super) const OURS: [&str; 12] = [
    "accept-encoding",
    "connection",
    "upgrade",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-forwarded-scheme",
    "x-original-forwarded-for",
    "x-real-ip",
    "x-request-id",
    "x-scheme",
];

/// Why a snippet may not be left out, if so.
pub(super) fn restricts(snippet: &Snippet) -> Option<String> {
    let directives = match snippet {
        Ok(directives) => directives,
        Err(why) => return Some(format!("it cannot be read: {why}")),
    };
    let at = directives.iter().position(|it| !is_left_out(it))?;
    let (first, behind) = (&directives[at], &directives[at + 1..]);
    // A block is judged by its contents.
    let inner = behind.iter().take_while(|it| it.depth > first.depth);
    let mut others = inner.filter(|it| !is_left_out(it) && !ANSWERS.contains(&it.name()));
    // Where a block has a backend of its own, that is what is not read, and not what it says to it.
    let backend = others.clone().find(|it| it.name().ends_with("_pass"));
    let instead = match &backend {
        Some(it) if it.name() == "proxy_pass" && first.name() == "location" => INSTEAD,
        _ => "",
    };
    let what = match backend.or_else(|| others.next()) {
        Some(inner) => format!("{} in {}", shown(&variables::named(inner)), shown(first.name())),
        None => shown(&variables::named(first)),
    };
    Some(format!("{what} could keep clients out or send them elsewhere{instead}"))
}

/// What has the same effect as a block with a backend.
const INSTEAD: &str =
    " (an Ingress can say that: a path with its Service, of type ExternalName for another host)";

/// Directives that are parsed inside of blocks.
const ANSWERS: [&str; 4] = ["allow", "deny", "internal", "return"];

/// Whether a directive may be left out.
fn is_left_out(directive: &Directive) -> bool {
    match directive.name() {
        // Its effect depends on the directives inside.
        "if" => directive.is_block,
        "location" => shortcuts::is_named(directive),
        "auth_request_set" | "set" => variables::may_set(directive),
        "proxy_set_header" => {
            directive.argument().is_some_and(|header| OURS.contains(&header.to_ascii_lowercase().as_str()))
        }
        // A backend that may not send requests elsewhere by it.
        "proxy_ignore_headers" => {
            !directive.arguments().iter().any(|it| it.eq_ignore_ascii_case("X-Accel-Redirect"))
        }
        name => !directive.is_block && LEFT_OUT.binary_search(&name).is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::snippets::tokens;

    fn restriction(text: &str) -> Option<String> {
        restricts(&tokens::directives(text))
    }

    #[test]
    fn lists_are_in_order() {
        assert!(LEFT_OUT.is_sorted());
        assert!(OURS.is_sorted());
    }

    #[test]
    fn what_restricts() {
        for text in [
            "deny all;",
            "allow 10.0.0.0/8; deny all;",
            "location /metrics { deny all; }",
            "location ~* \"^/actuator\" { return 403; }",
            "return 404;",
            "return 200;",
            "proxy_ssl_verify on;",
            "proxy_ignore_headers Expires x-accel-redirect;",
            "proxy_redirect http:// https://;",
            "if ($http_x_token != 'x') { return 444; }",
            "if ($request_method = POST) {\n  return 405;\n}",
            "satisfy any;",
            "internal;",
            "limit_req zone=a burst=5;",
            "limit_except GET { deny all; }",
            "auth_basic \"closed\";",
            "auth_request /check;",
            "auth_request_set $user $upstream_http_x_user; proxy_set_header X-User $user;",
            "access_by_lua_block { ngx.exit(403) }",
            "access_by_lua 'ngx.exit(403)';",
            "rewrite_by_lua_block { if a then ngx.exit(ngx.HTTP_FORBIDDEN) end }",
            "rewrite ^/admin / permanent;",
            "proxy_set_header X-Remote-User $remote_user;",
            "proxy_set_header Host other.test;",
            "proxy_pass http://other;",
            "modsecurity on;",
            "valid_referers none; ",
            "add_header X-A b; deny all;",
            "add_header X-A \"} ; \"; deny all;",
            "# deny all;\ndeny all;",
            "d\\eny all;",
            "\"deny\" all;",
            "'deny' all;",
            "proxy_read_timeout 5; }\nlocation /x { deny all;",
            "add_header X-A \"b;",
            "include /etc/nginx/acl.conf;",
            "DENY all;",
            "set $proxy_upstream_name \"default-other-80\";",
            "if ($http_x_version = v2) { set $proxy_upstream_name default-other-80; }",
            "set $Proxy_Alternative_Upstream_Name default-other-80;",
            "set $args '';",
            "set $http_x_user admin;",
            "set $connection_upgrade '';",
            "set $full_x_forwarded_for $remote_addr;",
            "set $pass_access_scheme https;",
            "set host x;",
            "set $x;",
            "auth_request_set $proxy_upstream_name $upstream_http_x_to;",
        ] {
            assert!(restriction(text).is_some(), "{text}");
        }
    }

    #[test]
    fn what_does_not() {
        for text in [
            "",
            "  \n# deny all;\n",
            "add_header X-Frame-Options DENY always;",
            "add_header X-A \"deny all;\";",
            "more_set_headers 'X-A: return 403;';",
            "proxy_set_header X-Forwarded-Proto https; proxy_set_header Upgrade $http_upgrade;",
            "sub_filter '</head>' '<script>deny all;</script></head>'; sub_filter_once on;",
            "if ($scheme = https) { set $x \"${host}\"; add_header X-B c; }",
            "set $service_name other; set $limit_rate 10k;",
            "limit_req_status 429; limit_conn_status 429; http2_max_header_size 64k;",
            "access_log off; opentelemetry_attribute 'ingress.namespace' '$namespace';",
            "absolute_redirect off; server_name_in_redirect off; client_header_timeout 60; ignore_invalid_headers off;",
            "resolver kube-dns.kube-system.svc valid=10s; client_max_body_size 2G; error_page 403 @closed;",
            "grpc_next_upstream error timeout non_idempotent; grpc_buffer_size 64k; grpc_socket_keepalive on;",
            "server_tokens off; proxy_hide_header X-Powered-By; more_clear_headers Server;",
            "add_header X-A b",
            "ssl_prefer_server_ciphers on; ssl_session_timeout 10m; ssl_stapling on; http2 off;",
            "sendfile on; tcp_nopush on; lingering_close off; rewrite_log on; proxy_limit_rate 1k;",
        ] {
            assert_eq!(restriction(text), None, "{text}");
        }
    }

    #[test]
    fn a_backend_of_a_block_is_named_before_what_it_is_told() {
        let why = restriction(
            "location /a { rewrite ^/a /b break; proxy_set_header Host b; proxy_pass http://b; }",
        );
        let why = why.unwrap();
        assert!(why.starts_with("\"proxy_pass\" in \"location\"") && why.ends_with(INSTEAD), "{why}");
    }

    #[test]
    fn lua_is_named_and_not_read() {
        let lua = "access_by_lua_block {\n local a = { b = 1 }\n if a then f({ g = '}' }) end\n}";
        let why = restriction(&format!("{lua} add_header X-A b;")).unwrap();
        assert!(why.starts_with("\"access_by_lua_block\" could"), "{why}");
        let why = restriction(&format!("location /a {{ {lua} }}")).unwrap();
        assert!(why.starts_with("\"access_by_lua_block\" in \"location\""), "{why}");
    }

    #[test]
    fn a_variable_that_chooses_the_backend_is_named() {
        let why = restriction("if ($arg_a) { set $proxy_upstream_name a-b-80; }").unwrap();
        assert!(why.contains("set $proxy_upstream_name"), "{why}");
    }
}
