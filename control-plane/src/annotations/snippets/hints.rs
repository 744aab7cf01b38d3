//! What in a snippet has no effect in ingress-nginx either, or another one than it seems to have, and what to write
//! instead.

use super::headers::SnippetContext;
use super::restriction::OURS;
use super::tokens::Directive;

/// What to tell the owner of a snippet whose directives take effect.
pub(super) fn of(directives: &[Directive], place: SnippetContext) -> Vec<String> {
    let told = directives.iter().filter(|it| it.depth == 0 && !it.is_block);
    told.filter_map(|it| hint(it, place)).collect()
}

fn hint(directive: &Directive, place: SnippetContext) -> Option<String> {
    let name = directive.name();
    match name {
        "more_set_headers" | "more_set_input_headers" if place != SnippetContext::Auth => {
            // The statuses and types of -s and -t are lists without a colon, too.
            let is_list =
                |text: &str| text.split(' ').all(|it| it.parse::<u16>().is_ok() || it.contains('/'));
            let names = directive.arguments().iter().map(|text| text.split(':').next().unwrap_or_default());
            if let Some(set) = names.map(str::trim).find(|it| is_set_afterwards(it))
                && name == "more_set_input_headers"
            {
                return Some(format!(
                    "{name} has no effect on {set}, as in ingress-nginx, which sets that itself afterwards: use \
                     proxy_set_header"
                ));
            }
            let mut texts = directive.arguments().iter().map(|text| text.trim());
            let text = texts.find(|text| text.contains(' ') && !text.contains(':') && !is_list(text))?;
            let (header, value) = text.split_once(' ')?;
            let value = value.trim_start();
            Some(format!("{name} {text:?} sets nothing, as in ingress-nginx: write \"{header}: {value}\""))
        }
        "proxy_set_header" if place == SnippetContext::Location => {
            let [header, value] = directive.arguments() else {
                return None;
            };
            let is_ours = OURS.contains(&header.to_ascii_lowercase().as_str());
            let is_forwarding =
                !["accept-encoding", "connection", "upgrade"].contains(&header.to_ascii_lowercase().as_str());
            (is_ours && is_forwarding && value.starts_with("$http_")).then(|| {
                format!(
                    "proxy_set_header {header} {value}: a request without that header reaches the backend without one \
                     (ingress-nginx sends its own, too): remove this, and to trust clients' headers set \
                     use-forwarded-headers to true in the ConfigMap"
                )
            })
        }
        "auth_request_set" if place == SnippetContext::Auth => Some(
            "auth_request_set has no effect in an auth-snippet, as in ingress-nginx: write it in configuration-snippet"
                .to_owned(),
        ),
        "proxy_pass_header" => directive.argument().filter(|it| passes_anyway(it)).map(|header| {
            format!(
                "proxy_pass_header {header} is about answers of backends, whose headers are passed on but those in hide-headers \
                 of the ConfigMap: remove this; a header of requests needs nothing"
            )
        }),
        "proxy_cookie_domain" | "proxy_cookie_path" | "proxy_redirect" => {
            let annotation = switched_off(name)?;
            let says = place != SnippetContext::Auth && directive.argument() != Some("off");
            says.then(|| {
                format!("{name} has no effect beside the one of ingress-nginx, which is off without {annotation}: set that")
            })
        }
        _ => {
            let annotation = annotation(name)?;
            match place {
                SnippetContext::Location if !is_set_by_annotation(directive) => None,
                SnippetContext::Server => Some(format!(
                    "{name} has no effect in a server-snippet, as in ingress-nginx, where each location sets it itself: set \
                     {annotation}, as an annotation or in the ConfigMap"
                )),
                SnippetContext::Location => Some(format!(
                    "{name} is left out, and nginx refuses it beside that of ingress-nginx: set {annotation} instead, as an \
                     annotation or in the ConfigMap"
                )),
                SnippetContext::Auth => None,
            }
        }
    }
}

/// Whether a request header is what ingress-nginx says, whatever a snippet has made of the client's.
pub(super) fn is_set_afterwards(header: &str) -> bool {
    let names = [
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-proto",
        "x-forwarded-scheme",
        "x-original-forwarded-for",
        "x-real-ip",
        "x-scheme",
    ];
    names.contains(&header.to_ascii_lowercase().as_str())
}

/// Whether nginx passes a header of backends' answers on unless it is told to hide it.
pub(super) fn passes_anyway(header: &str) -> bool {
    let name = header.to_ascii_lowercase();
    !["date", "server", "x-pad"].contains(&name.as_str()) && !name.starts_with("x-accel-")
}

/// The annotation without which each location of ingress-nginx has this directive switched off, so that another one has no
/// effect.
pub(super) fn switched_off(directive: &str) -> Option<&'static str> {
    match directive {
        "proxy_cookie_domain" => Some("proxy-cookie-domain"),
        "proxy_cookie_path" => Some("proxy-cookie-path"),
        "proxy_redirect" => Some("proxy-redirect-from"),
        _ => None,
    }
}

/// Whether nginx refuses a directive in a location of ingress-nginx, which has one of that name already.
pub(super) fn is_set_by_annotation(directive: &Directive) -> bool {
    let name = directive.name();
    directive.depth == 0 && !directive.is_block && !name.starts_with("grpc_") && annotation(name).is_some()
}

/// The annotation that sets what each location of ingress-nginx sets by this directive, so that one of the server has no
/// effect.
pub(super) fn annotation(directive: &str) -> Option<String> {
    match directive {
        "client_max_body_size" => Some("proxy-body-size".to_owned()),
        "proxy_buffers" => Some("proxy-buffers-number".to_owned()),
        "grpc_connect_timeout" | "grpc_read_timeout" | "grpc_send_timeout" => {
            Some(directive.replace("grpc_", "proxy-").replace('_', "-"))
        }
        "proxy_buffer_size"
        | "proxy_buffering"
        | "proxy_connect_timeout"
        | "proxy_http_version"
        | "proxy_max_temp_file_size"
        | "proxy_next_upstream"
        | "proxy_next_upstream_timeout"
        | "proxy_next_upstream_tries"
        | "proxy_read_timeout"
        | "proxy_request_buffering"
        | "proxy_send_timeout" => Some(directive.replace('_', "-")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::snippets::tokens;
    use crate::annotations::table;

    fn told(text: &str, place: SnippetContext) -> Vec<String> {
        of(&tokens::directives(text).unwrap(), place)
    }

    #[test]
    fn a_header_without_a_colon_is_told_with_what_to_write() {
        let all = told("more_set_headers \"X-Frame-Options DENY\" 'X-A: b';", SnippetContext::Location);
        assert_eq!(all.len(), 1);
        assert!(all[0].ends_with("write \"X-Frame-Options: DENY\""), "{all:?}");
        for fine in [
            "more_set_headers 'X-A: b c' X-B -s '404 500' -t 'text/html text/plain';",
            "more_clear_headers 'X-A';",
            "if ($a) { more_set_headers 'X-A b'; }",
        ] {
            assert_eq!(told(fine, SnippetContext::Server), Vec::<String>::new(), "{fine}");
        }
    }

    #[test]
    fn what_each_location_sets_itself_is_told_with_the_annotation() {
        let text = "proxy_read_timeout 5m; client_max_body_size 1g; gzip on;";
        let of_hosts = told(text, SnippetContext::Server);
        assert_eq!(of_hosts.len(), 2);
        assert!(of_hosts[0].contains("no effect") && of_hosts[0].contains(" proxy-read-timeout,"));
        assert!(of_hosts[1].contains(" proxy-body-size,"));
        assert_eq!(told(text, SnippetContext::Location).len(), 2);
        assert_eq!(told(text, SnippetContext::Auth).len(), 0);
        let of_grpc = told("grpc_read_timeout 1h; grpc_send_timeout 1h;", SnippetContext::Server);
        assert!(of_grpc[0].contains(" proxy-read-timeout,") && of_grpc[1].contains(" proxy-send-timeout,"));
        assert_eq!(told("grpc_read_timeout 1h;", SnippetContext::Location).len(), 0);
        for directive in
            ["client_max_body_size", "grpc_read_timeout", "proxy_buffers", "proxy_next_upstream_tries"]
        {
            let annotation = annotation(directive).unwrap();
            assert!(table::find(&annotation).is_some(), "{annotation}");
        }
    }

    #[test]
    fn what_ingress_nginx_switches_off_is_told_with_the_annotation() {
        let text = "proxy_cookie_path / '/; Secure'; proxy_redirect http:// https://; proxy_redirect off;";
        let of_location = told(text, SnippetContext::Location);
        assert_eq!(of_location.len(), 2, "{of_location:?}");
        assert!(of_location[0].contains(" proxy-cookie-path:"), "{of_location:?}");
        for directive in ["proxy_cookie_domain", "proxy_cookie_path", "proxy_redirect"] {
            let annotation = switched_off(directive).unwrap();
            assert!(table::find(annotation).is_some(), "{annotation}");
        }
    }

    #[test]
    fn what_has_no_effect_is_told_with_what_to_write() {
        let set = "more_set_input_headers 'X-A: b' 'X-Forwarded-Proto: https';";
        let all = told(set, SnippetContext::Location);
        assert!(all[0].contains("X-Forwarded-Proto") && all[0].ends_with("use proxy_set_header"), "{all:?}");
        assert!(told("proxy_pass_header X-A;", SnippetContext::Location)[0].contains("hide-headers"));
        let set = "auth_request_set $a $upstream_http_b;";
        assert!(told(set, SnippetContext::Auth)[0].contains("configuration-snippet"));
        assert_eq!(told(set, SnippetContext::Location), Vec::<String>::new());
        for fine in ["more_set_input_headers 'X-A: b';", "proxy_pass_header Server;"] {
            assert_eq!(told(fine, SnippetContext::Location), Vec::<String>::new(), "{fine}");
        }
    }

    #[test]
    fn a_client_s_header_in_place_of_the_proxy_s_is_told() {
        let text = "proxy_set_header X-Forwarded-Proto $http_x_forwarded_proto;";
        assert!(told(text, SnippetContext::Location)[0].contains("use-forwarded-headers"));
        for fine in [
            "proxy_set_header X-Forwarded-Proto https;",
            "proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $http_connection;",
            "proxy_set_header X-Tenant $http_x_tenant;",
        ] {
            assert_eq!(told(fine, SnippetContext::Location), Vec::<String>::new(), "{fine}");
        }
    }
}
