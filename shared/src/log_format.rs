//! The access log's format, parsed once: text, and variables to be filled in at the end of a request (nginx'
//! `log_format`).
//!
//! The control plane parses it to report variables without a value to the owner of a ConfigMap; the proxy parses what it
//! was sent and fills it in, one line per request. Names and meanings are those of nginx and ingress-nginx. Any other name
//! may be one that a snippet or a module defines in nginx: the line has the same form without its value.
//!
//! **Invariant:** the value of a variable is data: it is never parsed again.

use thiserror::Error;

use crate::template::Variable;

pub use names::Value;

mod names;

/// ingress-nginx' default format.
pub const DEFAULT: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
    \"$http_referer\" \"$http_user_agent\" $request_length $request_time [$proxy_upstream_name] \
    [$proxy_alternative_upstream_name] $upstream_addr $upstream_response_length $upstream_response_time \
    $upstream_status $req_id";

/// ingress-nginx' default format for TCP and UDP sessions.
pub const STREAM: &str =
    "[$remote_addr] [$time_local] $protocol $status $bytes_sent $bytes_received $session_time";

/// Limit of the pieces of a format, which bounds the work per line.
const PIECES: usize = 512;

/// Limit of a format in bytes.
const LENGTH: usize = 16 * 1024;

/// How values are escaped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Escape {
    /// `\xNN` for quotes, backslashes and all but printable ASCII; `-` for missing values.
    #[default]
    Default,
    /// As in a JSON string; nothing for missing values.
    Json,
    /// Unchanged except for line breaks; nothing for missing values.
    None,
}

/// A format: text and values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogFormat {
    pieces: Box<[Piece]>,
    missing: Box<[Box<str>]>,
}

/// A piece of a [`LogFormat`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Piece {
    /// Literal text.
    Text(Box<str>),
    /// A value to fill in.
    Value(Value),
}

/// Why a text is not a format. nginx would not start with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum NoFormat {
    /// A dollar sign without a name.
    #[error("a dollar sign is not followed by the name of a variable")]
    Nameless,
    /// `${` without a closing brace.
    #[error("a closing brace is missing")]
    Open,
    /// It is too long.
    #[error("it is longer than {LENGTH} bytes, or than {PIECES} variables and the texts between them")]
    Long,
}

impl LogFormat {
    /// Parses a text as it is between single quotes in nginx' configuration, where a backslash escapes `\n`, `\t`,
    /// `\r`, quotes and itself.
    ///
    /// # Errors
    /// If nginx would reject it.
    pub fn parse(text: &str) -> Result<Self, NoFormat> {
        Self::parse_with(text, Value::of)
    }

    /// The same for TCP and UDP sessions, which have other variables.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_stream(text: &str) -> Result<Self, NoFormat> {
        Self::parse_with(text, Value::of_stream)
    }

    fn parse_with(text: &str, of: impl Fn(&str) -> Value) -> Result<Self, NoFormat> {
        if text.len() > LENGTH {
            return Err(NoFormat::Long);
        }
        let text = unquoted(text);
        let (mut pieces, mut missing, mut rest) = (Vec::new(), Vec::<Box<str>>::new(), &*text);
        while let Some(at) = rest.find('$') {
            if at > 0 {
                pieces.push(Piece::Text(rest[..at].into()));
            }
            let (name, behind) = name(&rest[at + 1..])?;
            // nginx ignores the case of a variable's name.
            let value = of(&name.to_ascii_lowercase());
            if value == Value::Missing && !missing.iter().any(|known| **known == *name) {
                missing.push(name.into());
            }
            pieces.push(Piece::Value(value));
            rest = behind;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.into()));
        }
        if pieces.len() > PIECES {
            return Err(NoFormat::Long);
        }
        Ok(Self { pieces: pieces.into(), missing: missing.into() })
    }

    /// Names of its variables that never have a value, each once.
    pub fn missing(&self) -> &[Box<str>] {
        &self.missing
    }

    /// Its pieces, in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }
}

impl Default for LogFormat {
    /// ingress-nginx' default.
    #[allow(clippy::expect_used, reason = "a test parses it")]
    fn default() -> Self {
        Self::parse(DEFAULT).expect("a format of ours")
    }
}

impl Value {
    /// The variable, if its value is taken from the request's head before that is changed for a backend.
    pub fn of_head(&self) -> Option<&Variable> {
        match self {
            Self::OfHead(variable) => Some(variable),
            _ => None,
        }
    }
}

/// The name after a dollar sign, and the rest.
fn name(text: &str) -> Result<(&str, &str), NoFormat> {
    let braced = text.strip_prefix('{');
    let inner = braced.unwrap_or(text);
    let end = inner.bytes().position(|it| !it.is_ascii_alphanumeric() && it != b'_').unwrap_or(inner.len());
    let (name, behind) = inner.split_at(end);
    let behind = match braced {
        Some(_) => behind.strip_prefix('}').ok_or(NoFormat::Open)?,
        None => behind,
    };
    if name.is_empty() { Err(NoFormat::Nameless) } else { Ok((name, behind)) }
}

fn unquoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        let next = rest.clone().next().filter(|_| character == '\\');
        let meant = match next {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some(quoted @ ('\'' | '"' | '\\')) => quoted,
            _ => {
                out.push(character);
                continue;
            }
        };
        rest.next();
        out.push(meant);
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> String {
        let format = LogFormat::parse(text).unwrap();
        let shown = |piece: &Piece| match piece {
            Piece::Text(text) => text.to_string(),
            Piece::Value(value) => format!("<{value:?}>"),
        };
        format.pieces().iter().map(shown).collect()
    }

    #[test]
    fn values_are_found() {
        for (text, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("$status", "<Status>"),
            ("{\"a\":\"${status}00\"}", "{\"a\":\"<Status>00\"}"),
            ("$full_x_forwarded_for", "<OfHead(FullForwardedFor)>"),
            ("$http_x_user_id", "<OfHead(Header(\"x-user-id\"))>"),
            ("$sent_http_content_type|$upstream_http_x", "<Sent(\"content-type\")>|<Came(\"x\")>"),
            (r#"a\tb\'c\"d\\e\x"#, "a\tb'c\"d\\e\\x"),
            ("$geoip2_city", "<Missing>"),
            ("$balancer_ewma_score,$connection_upgrade,$proxy_port", "<Missing>,<Missing>,<Missing>"),
            ("$Status|$HTTP_X_Id|$Time_ISO8601", "<Status>|<OfHead(Header(\"x-id\"))>|<TimeIso8601>"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn what_nginx_would_not_start_with_is_none() {
        for (text, why) in [
            ("$", NoFormat::Nameless),
            ("a $ b", NoFormat::Nameless),
            ("${}", NoFormat::Nameless),
            ("${status", NoFormat::Open),
            ("${a b}", NoFormat::Open),
        ] {
            assert_eq!(LogFormat::parse(text), Err(why), "{text}");
        }
        assert_eq!(LogFormat::parse(&"x".repeat(LENGTH + 1)), Err(NoFormat::Long));
        assert_eq!(LogFormat::parse(&"$status ".repeat(PIECES)), Err(NoFormat::Long));
    }

    /// Snippets and modules of nginx define variables.
    #[test]
    fn a_name_that_nobody_knows_has_no_value_and_is_told() {
        let text = "$status ${uri_normalized}|$1 $GeoIP2_city $uri_normalized";
        assert_eq!(shown(text), "<Status> <Missing>|<Missing> <Missing> <Missing>");
        let missing =
            |format: LogFormat| format.missing().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(missing(LogFormat::parse(text).unwrap()), ["uri_normalized", "1", "GeoIP2_city"]);
        assert_eq!(missing(LogFormat::default()), [""; 0]);
        assert_eq!(missing(LogFormat::parse_stream("$status $request_uri").unwrap()), ["request_uri"]);
    }

    #[test]
    fn sessions_have_variables_of_their_own() {
        let values = |text: &str| {
            let pieces = LogFormat::parse_stream(text).unwrap().pieces;
            pieces.iter().filter(|it| matches!(it, Piece::Value(_))).count()
        };
        assert_eq!(values(STREAM), 7);
        assert_eq!(values("$protocol|$bytes_received|$server_port|$upstream_addr|$proxy_upstream_name"), 5);
        let has_all = |format: Result<LogFormat, _>| format.unwrap().missing().is_empty();
        for (of_sessions, of_requests) in [("$bytes_received", "$request_uri"), ("$session_time", "$http_x")]
        {
            assert!(has_all(LogFormat::parse_stream(of_sessions)), "{of_sessions}");
            assert!(!has_all(LogFormat::parse(of_sessions)), "{of_sessions}");
            assert!(has_all(LogFormat::parse(of_requests)), "{of_requests}");
            assert!(!has_all(LogFormat::parse_stream(of_requests)), "{of_requests}");
        }
    }

    #[test]
    fn the_default_format_has_17_variables() {
        let values = LogFormat::default().pieces().iter().filter(|it| matches!(it, Piece::Value(_))).count();
        assert_eq!(values, 17);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in ".{0,60}") {
            let _ = LogFormat::parse(&text);
        }
    }
}
