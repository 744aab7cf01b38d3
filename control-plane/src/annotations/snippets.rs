//! Snippets: raw nginx configuration. It is never used as text; if it could restrict access, paths answer 503.
//!
//! Header directives are parsed into types ([`headers`]) and take effect if the fleet allows snippets, as in
//! ingress-nginx. Fixed responses are parsed into types, too ([`shortcuts`]), and always take effect: most of them deny
//! access. Directives that are known neither to restrict access, nor to redirect elsewhere, nor to let anybody
//! impersonate somebody are left out and reported. Any other directive might do one of these, and denies.

mod definitions;
mod expires;
mod headers;
mod lists;
mod shortcuts;
mod tokens;
mod variables;

use std::collections::BTreeSet;

pub use self::headers::OfHosts;
use self::headers::{Headers, SnippetContext};
pub use self::lists::Lists;
use self::shortcuts::Taken;
use super::draft::Draft;
use super::row::{Effect, Reach, Risk, Row, Scope, Spec};
use super::value::Grammar;
use crate::problem::{Severity, shown};

/// The directives of a snippet; `None`: text that nginx would reject, too.
type Snippet = Option<Vec<tokens::Directive>>;

const NGINX: Grammar<Snippet> = Grammar {
    words: "configuration of nginx",
    read: |text| Some(tokens::directives(text)),
    good: &["deny all;", "add_header X-A b;"],
    bad: &[],
};

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "auth-snippet",
        risk: Risk::Critical,
        value: &Spec(NGINX, Effect::Snippet(|to, it| judge(to, it, SnippetContext::Auth))),
        doc: "Raw configuration of the request to the authentication",
        ..Row::NEW
    },
    &Row {
        name: "configuration-snippet",
        risk: Risk::Critical,
        value: &Spec(NGINX, Effect::Snippet(|to, it| judge(to, it, SnippetContext::Location))),
        doc: "Raw configuration of the paths",
        ..Row::NEW
    },
    &Row {
        name: "server-snippet",
        scope: Scope::Host,
        risk: Risk::Critical,
        value: &Spec(NGINX, Effect::Snippet(|to, it| judge(to, it, SnippetContext::Server))),
        doc: "Raw configuration of the hosts",
        ..Row::NEW
    },
    &Row {
        name: "stream-snippet",
        risk: Risk::Critical,
        value: &Spec(NGINX, Effect::Snippet(|to, _| to.differs(NEVER))),
        doc: "Raw configuration of TCP and UDP",
        ..Row::NEW
    },
];

const NEVER: &str = "raw nginx configuration is never used";

/// Directives that are left out: the effect on a response or request is visible, and their absence harms nobody.
const LEFT_OUT: [&str; 93] = [
    "access_log",
    "add_header",
    "add_trailer",
    "aio",
    "brotli",
    "brotli_comp_level",
    "brotli_types",
    "charset",
    "chunked_transfer_encoding",
    "client_body_buffer_size",
    "client_body_temp_path",
    "client_body_timeout",
    "client_header_buffer_size",
    "client_max_body_size",
    "default_type",
    "directio",
    "error_log",
    "error_page",
    "etag",
    "expires",
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
    "http2_max_concurrent_streams",
    "http2_max_field_size",
    "http2_max_header_size",
    "http2_push_preload",
    "keepalive_requests",
    "keepalive_timeout",
    "large_client_header_buffers",
    "limit_conn_log_level",
    "limit_conn_status",
    "limit_req_log_level",
    "limit_req_status",
    "log_not_found",
    "log_subrequest",
    "more_clear_headers",
    "more_set_headers",
    "opentelemetry",
    "opentracing",
    "port_in_redirect",
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
    "proxy_hide_header",
    "proxy_http_version",
    "proxy_ignore_client_abort",
    "proxy_ignore_headers",
    "proxy_intercept_errors",
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
    "recursive_error_pages",
    "resolver",
    "resolver_timeout",
    "send_timeout",
    "server_tokens",
    "sub_filter",
    "sub_filter_last_modified",
    "sub_filter_once",
    "sub_filter_types",
    "tcp_nodelay",
    "underscores_in_headers",
];

/// Request headers that the proxy always sets itself, so that no client's value gets through if a snippet's is left
/// out.
const OURS: [&str; 12] = [
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

/// Why a directive in a ConfigMap snippet cannot just be left out, if so.
pub(crate) fn restriction(key: &str, text: &str) -> Option<String> {
    let mut directives = tokens::directives(text);
    if let Some(directives) = directives.as_mut().filter(|_| key == "http-snippet") {
        *directives = definitions::beside(directives);
    }
    restricts(&directives)
}

/// What does not exist here although a ConfigMap snippet defines it, in words.
pub(crate) fn missing(key: &str, text: &str) -> Option<String> {
    let directives = tokens::directives(text).filter(|_| key == "http-snippet")?;
    let places: BTreeSet<_> = definitions::servers(&directives).into_iter().collect();
    let places = Vec::from_iter(places).join(", ");
    (!places.is_empty()).then(|| format!("nothing listens on {places}, as its server does not exist"))
}

fn restricts(snippet: &Snippet) -> Option<String> {
    let Some(directives) = snippet else {
        return Some("it cannot be read".to_owned());
    };
    let at = directives.iter().position(|it| !is_left_out(it))?;
    let (first, behind) = (&directives[at], &directives[at + 1..]);
    // A block is judged by its contents.
    let inner = behind.iter().take_while(|it| it.depth > first.depth);
    let mut others = inner.filter(|it| !is_left_out(it) && !ANSWERS.contains(&it.name()));
    let what = match others.next() {
        Some(inner) => format!("{} in {}", shown(&variables::named(inner)), shown(first.name())),
        None => shown(&variables::named(first)),
    };
    Some(format!("{what} could keep clients out or send them elsewhere"))
}

/// Directives that are parsed inside of blocks.
const ANSWERS: [&str; 4] = ["allow", "deny", "internal", "return"];

fn is_left_out(directive: &tokens::Directive) -> bool {
    match directive.name() {
        // Its effect depends on the directives inside.
        "if" => directive.is_block,
        "auth_request_set" | "set" => variables::may_set(directive),
        "proxy_set_header" => {
            directive.argument().is_some_and(|header| OURS.contains(&header.to_ascii_lowercase().as_str()))
        }
        name => !directive.is_block && LEFT_OUT.binary_search(&name).is_ok(),
    }
}

/// Whether a directive of a location has no effect, because backends are not spoken to over TLS or by gRPC.
fn is_idle(directive: &tokens::Directive, to: &Draft<'_>) -> bool {
    let protocol = to.text("backend-protocol").unwrap_or_default().trim().to_ascii_uppercase();
    let speaks = |protocols: &[&str]| protocols.contains(&protocol.as_str());
    let name = directive.name();
    (name.starts_with("proxy_ssl_") && !speaks(&["HTTPS", "GRPCS", "AUTO_HTTP"]))
        || (name.starts_with("grpc_") && !speaks(&["GRPC", "GRPCS"]))
}

fn judge(to: &mut Draft<'_>, snippet: Snippet, place: SnippetContext) {
    let mut headers = Headers::default();
    let mut taken = Taken::default();
    let mut lists = None;
    let rest = snippet.map(|directives| {
        let (shortcuts, mut rest) = Taken::of(&directives, place);
        rest.retain(|it| !headers.take(it, place));
        if place == SnippetContext::Location {
            rest.retain(|it| !is_idle(it, to));
        }
        lists = Lists::of(&mut rest, place, to);
        taken = shortcuts;
        rest
    });
    let reach = if place == SnippetContext::Server { Reach::Hosts } else { Reach::Paths };
    if let Some(why) = restricts(&rest) {
        to.deny(reach, "has a restriction that is not enforced");
        let what = reach.as_str();
        to.fault(Severity::Unsupported, format!("{NEVER}, and {why}: {what}"));
        return;
    }
    for path in &taken.empty {
        let what = format!("location {}: nothing in it answers, so its requests get 404", shown(path));
        to.fault(Severity::Warning, what);
    }
    match place {
        SnippetContext::Location => to.location.shortcuts = taken.put(),
        SnippetContext::Server => to.host.shortcuts = taken.put(),
        SnippetContext::Auth => {}
    }
    if headers.put(place, to) {
        to.needs_snippets();
    }
    match (lists, place) {
        (Some(lists), SnippetContext::Server) => to.of_hosts.get_or_insert_default().lists = Some(lists),
        (Some(lists), _) => lists.put(to),
        (None, _) => {}
    }
    let rest = rest.unwrap_or_default();
    // A variable of its own is only used by directives that are parsed or left out.
    let named = rest
        .iter()
        .filter(|it| it.name() != "if" && (it.name() != "set" || !variables::sets_its_own(it)))
        // A variable that the authentication request sets may be used in the sign-in URL.
        .filter(|it| place == SnippetContext::Auth || it.name() != "auth_request_set");
    let left_out: BTreeSet<_> = named.map(variables::named).collect();
    if !left_out.is_empty() {
        let names: Vec<_> = left_out.iter().map(String::as_str).collect();
        to.differs(format!("{} left out", listed(&names)));
    }
}

/// `a of it is`, `a, b and c of it are`: names of directives that are known.
fn listed(names: &[&str]) -> String {
    match names {
        [one] => format!("{one} of it is"),
        [before @ .., last] => format!("{} and {last} of it are", before.join(", ")),
        [] => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            "add_header X-A b",
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
            assert!(restriction("location-snippet", text).is_some(), "{text}");
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
            "access_log off;",
            "resolver kube-dns.kube-system.svc valid=10s; client_max_body_size 2G; error_page 403 @closed;",
            "server_tokens off; proxy_hide_header X-Powered-By; more_clear_headers Server;",
        ] {
            assert_eq!(restriction("location-snippet", text), None, "{text}");
        }
    }

    #[test]
    fn a_variable_that_chooses_the_backend_is_named() {
        let why =
            restriction("location-snippet", "if ($arg_a) { set $proxy_upstream_name a-b-80; }").unwrap();
        assert!(why.contains("set $proxy_upstream_name"), "{why}");
    }
}
