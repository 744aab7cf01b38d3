//! `curl` commands that show what is served, ready to be pasted into a shell.

use std::net::{IpAddr, SocketAddr};

use super::Row;

/// Limit of the hosts that are shown.
const HOSTS: usize = 3;

/// The commands: plain, with the canary's header, and https, for the first hosts.
pub(super) fn lines<'a>(
    rows: impl IntoIterator<Item = &'a Row>,
    http: SocketAddr,
    https: SocketAddr,
) -> Vec<String> {
    let mut lines = Vec::new();
    let mut shown: Vec<&str> = Vec::new();
    for row in rows {
        if shown.contains(&row.host.as_str()) || shown.len() == HOSTS {
            continue;
        }
        shown.push(&row.host);
        let host = example(&row.host);
        let url = quote(&format!("http://{http}{}", row.path));
        let to_host = host
            .as_deref()
            .map_or_else(String::new, |host| format!(" -H {}", quote(&format!("Host: {host}"))));
        // A host with TLS answers plain http with a redirect, of which only the head is interesting.
        let head = if row.tls { " -i" } else { "" };
        lines.push(format!("curl{head}{to_host} {url}"));
        let canary = row.canary.as_ref();
        if let Some((canary, value)) = canary.and_then(|canary| Some((canary, canary.header_to_reach()?))) {
            let header = quote(&format!("{}: {value}", canary.header));
            lines.push(format!("curl{head}{to_host} -H {header} {url}"));
        }
        let name = host.as_deref().unwrap_or("firth.test");
        let port = https.port();
        let ip = match https.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        let resolve = quote(&format!("{name}:{port}:{ip}"));
        let url = quote(&format!("https://{name}:{port}{}", row.path));
        lines.push(format!("curl -k --resolve {resolve} {url}"));
    }
    lines
}

/// An example host name: one that a wildcard covers, none for the catch-all.
fn example(host: &str) -> Option<String> {
    match host.strip_prefix('*') {
        _ if host == "_" => None,
        Some(parent) => Some(format!("www{parent}")),
        None => Some(host.to_owned()),
    }
}

/// Quotes a word for a shell. Hosts and paths are written by tenants, and these commands are meant to be pasted.
fn quote(word: &str) -> String {
    let plain = |it: char| it.is_ascii_alphanumeric() || "-_./:=,@%+".contains(it);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_and_the_catch_all_get_an_example() {
        assert_eq!(example("*.a.test").as_deref(), Some("www.a.test"));
        assert_eq!(example("a.test").as_deref(), Some("a.test"));
        assert_eq!(example("_"), None);
    }

    #[test]
    fn nothing_escapes_its_quotes() {
        assert_eq!(quote("http://127.0.0.1:8080/a"), "http://127.0.0.1:8080/a");
        assert_eq!(quote("/$(id)"), "'/$(id)'");
        assert_eq!(quote("/a'; id '"), r"'/a'\''; id '\'''");
        assert_eq!(quote("http://[::1]/"), "'http://[::1]/'");
    }
}
