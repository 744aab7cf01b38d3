//! Text with nginx variables (`https://$host/start?rd=$escaped_request_uri`), parsed once and filled in for each
//! request.
//!
//! The control plane parses it to report unknown variables to the owner; the proxy parses what it was sent and fills it
//! in. A `$` that does not begin a variable is literal, as in ingress-nginx (`util.lua`).
//!
//! **Invariant:** the value of a variable is data: it is never parsed again.

mod connection;

pub use connection::{OfCertificate, OfConnection};

/// Limit of the variables of a template: each occurrence expands to as much as a client sends.
pub const MOST_VARIABLES: usize = 64;

/// The filled-in text exceeds its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the expanded text takes more than {most} bytes")]
pub struct Overlong {
    /// The limit.
    pub most: usize,
}

/// A template: text and variables.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Template {
    parts: Box<[Part]>,
}

/// A piece of a [`Template`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// Literal text.
    Text(Box<str>),
    /// A variable to fill in.
    Variable(Variable),
}

/// A variable with a value per request. Names and meanings are those of nginx and ingress-nginx.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Variable {
    /// `$1` to `$9`, groups of the location's regular expression.
    Capture(u8),
    /// `$http_NAME`: a request header, lower-case with hyphens.
    Header(Box<str>),
    /// `$arg_NAME`: the first query parameter of that name, lower-case.
    Argument(Box<str>),
    /// `$cookie_NAME`: the first cookie of that name, lower-case.
    Cookie(Box<str>),
    /// `$host`: the request's host, lower-case, without a port.
    Host,
    /// `$best_http_host`: the host with its port, after trusted headers.
    BestHost,
    /// `$request_uri`: path and query as the client sent them.
    RequestUri,
    /// `$escaped_request_uri`: the same, percent-encoded to stand in a query.
    EscapedRequestUri,
    /// `$uri`: the normalised path.
    Uri,
    /// `$args`, `$query_string`.
    Args,
    /// `$is_args`: `?` where there is a query.
    IsArgs,
    /// `$pass_access_scheme`: of the request, after trusted headers.
    AccessScheme,
    /// `$pass_server_port`, `$pass_port`.
    AccessPort,
    /// `$server_name`: the host of the rules that serve the request.
    ServerName,
    /// `$server_protocol`.
    Protocol,
    /// `$request_method`.
    Method,
    /// `$remote_addr`: the client, after trusted headers.
    ClientAddress,
    /// `$binary_remote_addr`: the same, in 4 or 16 bytes.
    ClientBytes,
    /// `$realip_remote_addr`: the peer of the connection.
    PeerAddress,
    /// `$remote_user`: of basic authentication.
    User,
    /// `$req_id`: the client's `X-Request-ID`, else as `$request_id`.
    RequestId,
    /// `$request_id`: one that no client chooses.
    OwnId,
    /// `$content_type`.
    ContentType,
    /// `$content_length`.
    ContentLength,
    /// `$proxy_add_x_forwarded_for`.
    ForwardedFor,
    /// `$full_x_forwarded_for`: `X-Forwarded-For` as it came, and the peer of the connection, or the client that its PROXY
    /// protocol header names.
    FullForwardedFor,
    /// `$namespace` of the Ingress.
    Namespace,
    /// `$ingress_name`.
    Ingress,
    /// `$service_name`.
    Service,
    /// `$service_port`.
    ServicePort,
    /// `$location_path`: the path as declared.
    LocationPath,
    /// `$proxy_upstream_name`.
    UpstreamName,
    /// `$hostname` of the proxy.
    Hostname,
    /// `$time_local`.
    TimeLocal,
    /// `$time_iso8601`.
    TimeIso8601,
    /// `$msec`.
    Msec,
    /// From the connection.
    OfConnection(OfConnection),
    /// `$connection_requests`: number of the request on its connection.
    ConnectionRequests,
    /// `$request`: the first line.
    Request,
    /// A name without a value: empty, like an nginx variable that is not set. `$subdomain` is what matched the star of
    /// a location's host.
    Named(Box<str>),
}

impl Variable {
    /// Whether its value differs between clients, so that they can be told apart by it. True for variables without a
    /// value: whoever names one expects a value.
    pub fn is_of_client(&self) -> bool {
        match self {
            // That is the place that they ask for.
            Self::Header(name) => **name != *"host",
            Self::Argument(_)
            | Self::Cookie(_)
            | Self::User
            | Self::Named(_)
            | Self::Capture(_)
            | Self::OfConnection(OfConnection::OfCertificate(_)) => true,
            _ => false,
        }
    }

    /// By its name, without the dollar sign, in any case (nginx).
    pub fn of(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        if let [digit @ b'1'..=b'9'] = name.as_bytes() {
            return Self::Capture(digit - b'0');
        }
        match name.as_str() {
            "host" => Self::Host,
            "best_http_host" => Self::BestHost,
            "request_uri" => Self::RequestUri,
            "escaped_request_uri" => Self::EscapedRequestUri,
            "uri" | "document_uri" => Self::Uri,
            "args" | "query_string" => Self::Args,
            "is_args" => Self::IsArgs,
            "pass_access_scheme" => Self::AccessScheme,
            "pass_server_port" | "pass_port" => Self::AccessPort,
            "server_name" => Self::ServerName,
            "server_protocol" => Self::Protocol,
            "request_method" => Self::Method,
            "remote_addr" | "the_real_ip" => Self::ClientAddress,
            "binary_remote_addr" => Self::ClientBytes,
            "realip_remote_addr" => Self::PeerAddress,
            "remote_user" => Self::User,
            "req_id" => Self::RequestId,
            "request_id" => Self::OwnId,
            "content_type" => Self::ContentType,
            "content_length" => Self::ContentLength,
            "proxy_add_x_forwarded_for" => Self::ForwardedFor,
            "full_x_forwarded_for" => Self::FullForwardedFor,
            "namespace" => Self::Namespace,
            "ingress_name" => Self::Ingress,
            "service_name" => Self::Service,
            "service_port" => Self::ServicePort,
            "location_path" => Self::LocationPath,
            "proxy_upstream_name" | "proxy_host" => Self::UpstreamName,
            "hostname" => Self::Hostname,
            "time_local" => Self::TimeLocal,
            "time_iso8601" => Self::TimeIso8601,
            "msec" => Self::Msec,
            "connection_requests" => Self::ConnectionRequests,
            "request" => Self::Request,
            name => {
                if let Some(of) = OfConnection::of(name) {
                    Self::OfConnection(of)
                } else if let Some(header) = name.strip_prefix("http_") {
                    Self::Header(header.replace('_', "-").into())
                } else if let Some(argument) = name.strip_prefix("arg_") {
                    Self::Argument(argument.into())
                } else if let Some(cookie) = name.strip_prefix("cookie_") {
                    Self::Cookie(cookie.into())
                } else {
                    Self::Named(name.into())
                }
            }
        }
    }
}

impl Template {
    /// Parses a text. This never fails: an unclosed `${`, or a `$` before anything else, is literal.
    pub fn parse(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            plain.push_str(&rest[..at]);
            let behind = &rest[at + 1..];
            let Some((name, length)) = name(behind) else {
                plain.push('$');
                rest = behind;
                continue;
            };
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain).into()));
            }
            parts.push(Part::Variable(Variable::of(name)));
            rest = &behind[length..];
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain.into()));
        }
        Self { parts: parts.into() }
    }

    /// The text of a template with other texts in place of some variables: `value` returns that of a name, given in lower
    /// case.
    pub fn replaced(text: &str, mut value: impl FnMut(&str) -> Option<String>) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            let behind = &rest[at + 1..];
            let found =
                name(behind).and_then(|(name, length)| Some((value(&name.to_ascii_lowercase())?, length)));
            out.push_str(&rest[..at]);
            let length = match found {
                Some((replacement, length)) => {
                    out.push_str(&replacement);
                    length
                }
                None => {
                    out.push('$');
                    0
                }
            };
            rest = &behind[length..];
        }
        out.push_str(rest);
        out
    }

    /// A template without variables, whatever the text contains.
    pub fn literal(text: &str) -> Self {
        let part = (!text.is_empty()).then(|| Part::Text(text.into()));
        Self { parts: part.into_iter().collect() }
    }

    /// The text, if it has no variables.
    pub fn as_literal(&self) -> Option<&str> {
        match &*self.parts {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Its pieces, in order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Its variables, in order.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.parts.iter().filter_map(|part| match part {
            Part::Variable(variable) => Some(variable),
            Part::Text(_) => None,
        })
    }

    /// Whether the number of its variables is within the limit.
    pub fn is_moderate(&self) -> bool {
        self.variables().nth(MOST_VARIABLES).is_none()
    }

    /// Appends the filled-in text to `out`, up to `most` bytes; `value` appends the value of a variable.
    ///
    /// # Errors
    /// The limit is exceeded; `out` is then longer by one value at most.
    pub fn fill(
        &self,
        out: &mut Vec<u8>,
        most: usize,
        mut value: impl FnMut(&Variable, &mut Vec<u8>),
    ) -> Result<(), Overlong> {
        for part in &self.parts {
            match part {
                Part::Text(text) if text.len() > most.saturating_sub(out.len()) => {
                    return Err(Overlong { most });
                }
                Part::Text(text) => out.extend_from_slice(text.as_bytes()),
                Part::Variable(variable) => value(variable, out),
            }
            if out.len() > most {
                return Err(Overlong { most });
            }
        }
        Ok(())
    }
}

/// The name after a `$`, and its length in bytes. A digit is a name by itself.
fn name(behind: &str) -> Option<(&str, usize)> {
    if let Some(braced) = behind.strip_prefix('{') {
        let end = braced.find('}')?;
        let name = &braced[..end];
        let is_name = !name.is_empty() && name.bytes().all(is_part_of_name);
        return is_name.then_some((name, end + 2));
    }
    if behind.starts_with(|first: char| matches!(first, '1'..='9')) {
        return Some((&behind[..1], 1));
    }
    let end = behind.bytes().position(|byte| !is_part_of_name(byte)).unwrap_or(behind.len());
    (end > 0).then(|| (&behind[..end], end))
}

fn is_part_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filled(text: &str) -> String {
        let mut out = Vec::new();
        let value = |variable: &Variable, out: &mut Vec<u8>| {
            out.extend_from_slice(format!("<{variable:?}>").as_bytes());
        };
        Template::parse(text).fill(&mut out, usize::MAX, value).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn variables_are_found() {
        let cases = [
            ("", ""),
            ("plain", "plain"),
            ("$host", "<Host>"),
            ("http://$host/a?rd=$escaped_request_uri&x", "http://<Host>/a?rd=<EscapedRequestUri>&x"),
            ("/$2", "/<Capture(2)>"),
            ("/$1/$23", "/<Capture(1)>/<Capture(2)>3"),
            ("${host}name", "<Host>name"),
            ("$http_x_user_id", "<Header(\"x-user-id\")>"),
            ("$arg_id-$cookie_Session", "<Argument(\"id\")>-<Cookie(\"session\")>"),
            ("$http_host$best_http_host", "<Header(\"host\")><BestHost>"),
            ("$Request_URI${HTTP_X_User}", "<RequestUri><Header(\"x-user\")>"),
            ("$subdomain", "<Named(\"subdomain\")>"),
        ];
        for (text, expected) in cases {
            assert_eq!(filled(text), expected, "{text}");
        }
    }

    #[test]
    fn a_dollar_that_begins_no_variable_is_itself() {
        for text in ["$", "a$", "$$", "$-", "${", "${}", "${a b}", "100 $ and $.", "$\u{e4}"] {
            assert_eq!(filled(text), text);
        }
    }

    #[test]
    fn a_text_without_variables_is_literal() {
        assert_eq!(Template::parse("a $ b").as_literal(), Some("a $ b"));
        assert_eq!(Template::parse("").as_literal(), Some(""));
        assert_eq!(Template::parse("a$host").as_literal(), None);
        assert_eq!(Template::literal("a$host").as_literal(), Some("a$host"));
    }

    #[test]
    fn a_text_comes_to_no_more_than_it_may() {
        let fill = |text: &str, most: usize| {
            let (mut out, mut asked) = (b"ab".to_vec(), 0);
            let value = |_: &Variable, out: &mut Vec<u8>| {
                asked += 1;
                out.extend_from_slice(b"1234");
            };
            let outcome = Template::parse(text).fill(&mut out, most, value);
            (outcome.map(|()| out.len()), asked)
        };
        assert_eq!(fill("$host/$host", 11), (Ok(11), 2));
        assert_eq!(fill("$host/$host", 10), (Err(Overlong { most: 10 }), 2));
        assert_eq!(fill(&"$host".repeat(1_000), 13), (Err(Overlong { most: 13 }), 3), "nobody asks for more");
        assert_eq!(fill(&"long".repeat(1_000), 13), (Err(Overlong { most: 13 }), 0));
        assert_eq!(fill("", 2), (Ok(2), 0));
    }

    #[test]
    fn so_many_variables_are_moderate() {
        assert!(Template::parse(&"$host/".repeat(MOST_VARIABLES)).is_moderate());
        assert!(!Template::parse(&"$host".repeat(MOST_VARIABLES + 1)).is_moderate());
    }

    proptest! {
        #[test]
        fn any_text_is_a_template(text in ".{0,40}") {
            Template::parse(&text);
        }

        /// Only variables are parsed: putting the names back gives the text.
        #[test]
        fn names_put_back_give_the_text(parts in prop::collection::vec(("[a-z/?=.-]{0,6}", "[a-z]{1,6}"), 0..6)) {
            let text: String = parts.iter().map(|(plain, name)| format!("{plain}${{zz{name}}}")).collect();
            let mut out = Vec::new();
            let value = |variable: &Variable, out: &mut Vec<u8>| {
                let Variable::Named(name) = variable else { panic!("{variable:?}") };
                out.extend_from_slice(format!("${{{name}}}").as_bytes());
            };
            Template::parse(&text).fill(&mut out, usize::MAX, value).unwrap();
            prop_assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }
}
