//! A URL after expansion of its variables, which means that it may contain text from a client.

/// The destination of an auth request or a mirrored request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::http::pipeline) struct Url {
    pub(in crate::http::pipeline) is_tls: bool,
    /// Without the brackets of an IPv6 address.
    pub(in crate::http::pipeline) host: String,
    pub(in crate::http::pipeline) port: u16,
    /// Whether it has its own path or query.
    pub(in crate::http::pipeline) has_target: bool,
    /// Path and query.
    pub(in crate::http::pipeline) target: Vec<u8>,
}

impl Url {
    /// Parses an http or https URL; `None` if it is neither.
    pub(in crate::http::pipeline) fn parse(text: &[u8]) -> Option<Self> {
        let (is_tls, rest) = match (text.strip_prefix(b"http://"), text.strip_prefix(b"https://")) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => return None,
        };
        let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        let authority = str::from_utf8(authority).ok()?;
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']')?;
                host.parse::<std::net::Ipv6Addr>().ok()?;
                (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
            }
            None => {
                let (host, port) = match authority.split_once(':') {
                    Some((host, port)) => (host, Some(port)),
                    None => (authority, None),
                };
                let is_name = host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
                (Some(host).filter(|host| is_name && !host.is_empty() && !host.contains(".."))?, port)
            }
        };
        let port = match port {
            Some(port) => port.parse().ok().filter(|port| *port > 0)?,
            None if is_tls => 443,
            None => 80,
        };
        let target = target.split(|byte| *byte == b'#').next().unwrap_or_default();
        let has_target = !target.is_empty();
        let target = match target.first() {
            Some(b'/') => target.to_vec(),
            _ => [b"/", target].concat(),
        };
        Some(Self { is_tls, host: host.to_owned(), port, has_target, target })
    }

    /// The `Host` header: without the port, as in ingress-nginx.
    pub(in crate::http::pipeline) fn host_field(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_http_and_https() {
        let url = |text: &str| {
            let url = Url::parse(text.as_bytes())?;
            let target = String::from_utf8(url.target.clone()).unwrap();
            Some((url.is_tls, url.host_field(), url.port, target))
        };
        let some =
            |is_tls, host: &str, port, target: &str| Some((is_tls, host.to_owned(), port, target.to_owned()));
        assert_eq!(url("http://10.0.0.1:8080/check?x=1"), some(false, "10.0.0.1", 8080, "/check?x=1"));
        assert_eq!(
            url("https://auth.ns.svc.cluster.local"),
            some(true, "auth.ns.svc.cluster.local", 443, "/")
        );
        assert_eq!(url("http://a.test?x#y"), some(false, "a.test", 80, "/?x"));
        assert_eq!(url("http://[::1]:81/"), some(false, "[::1]", 81, "/"));
        for (text, has_target) in
            [("http://a.test", false), ("http://a.test/", true), ("http://a.test?x", true)]
        {
            assert_eq!(Url::parse(text.as_bytes()).unwrap().has_target, has_target, "{text}");
        }
        for bad in [
            "",
            "a.test/",
            "ftp://a.test/",
            "http:///x",
            "http://a..b/",
            "http://u@a.test/",
            "http://a.test:x/",
            "http://a.test:0/",
            "http://a b/",
            "http://[::1/",
            "http://[x]/",
            "http://a.test:80:80/",
        ] {
            assert_eq!(url(bad), None, "{bad}");
        }
    }
}
