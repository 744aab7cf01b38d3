//! The parts of `http-snippet` and `stream-snippet` that only define something, and so restrict nobody by themselves.

use super::tokens::Directive;

/// The directives other than blocks and lines of `http` that only define something: those take effect only where they
/// are used.
pub(super) fn beside(directives: &[Directive]) -> Vec<Directive> {
    let mut rest = Vec::new();
    let mut at = 0;
    while let Some(directive) = directives.get(at) {
        let inner = directives[at + 1..].iter().take_while(|it| it.depth > directive.depth).count();
        let (from, behind) = (at, at + 1 + inner);
        at = behind;
        if !defines(directive, &directives[from + 1..behind]) {
            rest.extend_from_slice(&directives[from..behind]);
        }
    }
    rest
}

/// The addresses on which servers of their own listen.
pub(super) fn servers(directives: &[Directive]) -> Vec<&str> {
    let starts = directives.iter().enumerate().filter(|(_, it)| it.name() == "server" && it.is_block);
    starts.flat_map(|(at, server)| listens(server, &directives[at + 1..])).collect()
}

/// Where a server listens, which is followed by these directives.
fn listens<'a>(server: &Directive, behind: &'a [Directive]) -> Vec<&'a str> {
    let depth = server.depth;
    let inner = behind.iter().take_while(|it| it.depth > depth);
    inner
        .filter(|it| it.depth == depth + 1 && it.name() == "listen")
        .filter_map(Directive::argument)
        .collect()
}

fn defines(directive: &Directive, inner: &[Directive]) -> bool {
    match directive.name() {
        "geo" | "map" | "split_clients" | "upstream" => directive.is_block,
        // A server that clients of the hosts never reach: they connect to the proxy's ports.
        "server" => {
            let places = listens(directive, inner);
            !places.is_empty() && places.into_iter().all(is_other_port)
        }
        name => DEFINES.contains(&name) && !directive.is_block,
    }
}

/// Directives that define something, or tune nginx itself.
const DEFINES: [&str; 12] = [
    "keyval_zone",
    "limit_conn_zone",
    "limit_req_zone",
    "log_format",
    "lua_shared_dict",
    "map_hash_bucket_size",
    "map_hash_max_size",
    "proxy_cache_path",
    "server_names_hash_bucket_size",
    "server_names_hash_max_size",
    "variables_hash_bucket_size",
    "variables_hash_max_size",
];

/// Whether it is an address or a port, and the port is not one of HTTP's.
fn is_other_port(place: &str) -> bool {
    let port = place.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
    port.is_some_and(|port| ![80, 443].contains(&port))
}

#[cfg(test)]
mod tests {
    use crate::annotations::snippets::{Zones, of_fleet, restriction};

    #[test]
    fn definitions_keep_nobody_out() {
        for text in [
            "map $http_upgrade $connection_upgrade { default upgrade; '' close; }",
            "limit_req_zone $binary_remote_addr zone=one:10m rate=10r/s;",
            "server { listen 18080; location /status { allow all; stub_status on; } location / { return 404; } }",
            "server { listen 2443; return 308 https://$host$request_uri; }",
            "upstream other { server 10.0.0.1:80; } proxy_cache_path /tmp/c keys_zone=c:1m;",
            "geo $inner { default 0; 10.0.0.0/8 1; } log_format short '$status';",
        ] {
            assert!(of_fleet::read("http-snippet", text, &Zones::default()).unwrap().is_ok(), "{text}");
            assert!(restriction(text).is_some(), "{text}");
        }
        for text in [
            "server { listen 80; server_name a.test; return 444; }",
            "server { listen 8080; listen [::]:443 ssl; return 444; }",
            "server { return 444; }",
            "server { listen unix:/tmp/x; }",
            "map $a $b { default c; } auth_basic x;",
            "limit_req zone=one;",
        ] {
            assert!(of_fleet::read("http-snippet", text, &Zones::default()).unwrap().is_err(), "{text}");
        }
    }

    #[test]
    fn servers_of_streams_keep_nobody_out() {
        for text in [
            "server { listen 8000; proxy_pass 127.0.0.1:80; }",
            "upstream dns { server 10.0.0.1:53; } server { listen 53 udp; proxy_pass dns; proxy_responses 1; }",
        ] {
            let snippet = of_fleet::read("stream-snippet", text, &Zones::default()).unwrap().unwrap();
            assert!(snippet.faults[0].1.contains("nothing listens on "), "{text}: {snippet:?}");
        }
        for text in ["deny all;", "server { listen 443; ssl_preread on; }"] {
            assert!(of_fleet::read("stream-snippet", text, &Zones::default()).unwrap().is_err(), "{text}");
        }
    }
}
