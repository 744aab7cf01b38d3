//! The variables of a log line, by name.

use crate::template::{OfConnection, Variable};

/// A value that is known at the end of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Value {
    /// From the request's head, as received.
    OfHead(Variable),
    /// From its connection.
    OfConnection(OfConnection),
    /// Known during the response, and not from the head alone.
    OfAnswer(Variable),
    /// `$sent_http_NAME`: a field of the response to the client, lower-case with hyphens.
    Sent(Box<str>),
    /// `$upstream_http_NAME`: a field of the backend's response.
    Came(Box<str>),
    /// `$upstream_cookie_NAME`: a cookie that the backend's response sets.
    CameCookie(Box<str>),
    /// `$http_referer`.
    Referer,
    /// `$http_user_agent`.
    UserAgent,
    /// `$arg_NAME`.
    Argument(Box<str>),
    /// `$time_local`.
    TimeLocal,
    /// `$time_iso8601`.
    TimeIso8601,
    /// `$msec`: seconds since 1970.
    Msec,
    /// `$request_time`.
    RequestTime,
    /// `$status`.
    Status,
    /// `$bytes_sent`: head and body.
    BytesSent,
    /// `$body_bytes_sent`.
    BodyBytesSent,
    /// `$request_length`: head and body.
    RequestLength,
    /// `$request_completion`: `OK`, or nothing.
    Completion,
    /// `$pipe`: always `.`.
    Pipe,
    /// `$remote_addr`: the client, after trusted headers.
    Client,
    /// `$binary_remote_addr`.
    ClientBytes,
    /// `$realip_remote_addr`: the peer of the connection.
    Peer,
    /// `$remote_user`.
    User,
    /// `$request`: the first line.
    Request,
    Method,
    RequestUri,
    Args,
    IsArgs,
    Protocol,
    /// `$http2`: `h2`, `h2c` in plain text, or nothing.
    Http2,
    /// `$host`: lower-case, without a port.
    Host,
    /// `$server_name`: the host of the rules that served it.
    ServerName,
    /// `$req_id`: the client's `X-Request-ID`, else as `$request_id`.
    RequestId,
    /// `$request_id`: one that no client chooses.
    OwnId,
    /// `$connection_requests`: number of the request on it.
    ConnectionRequests,
    Namespace,
    Ingress,
    Service,
    ServicePort,
    LocationPath,
    /// `$proxy_upstream_name`, `$proxy_host`.
    Upstream,
    /// `$proxy_alternative_upstream_name`.
    Alternative,
    UpstreamAddr,
    UpstreamStatus,
    UpstreamLength,
    UpstreamTime,
    UpstreamConnectTime,
    UpstreamHeaderTime,
    /// `$hostname` of the proxy.
    Hostname,
    /// `$pid`.
    Pid,
    /// `$protocol` of a session: TCP or UDP.
    Transport,
    /// `$bytes_received` of a session: from its client.
    BytesReceived,
    /// `$session_time`.
    SessionTime,
    /// `$upstream_session_time`: the same, of a session that has reached an endpoint.
    UpstreamSessionTime,
    /// `$upstream_bytes_sent`: to an endpoint, everything included.
    UpstreamSent,
    /// `$upstream_bytes_received`.
    UpstreamReceived,
    /// `$nginx_version`: the proxy's own.
    Version,
    /// `$opentelemetry_context_traceparent`: the trace context that the backend was told.
    TraceParent,
    /// `$opentelemetry_trace_id` of it.
    TraceId,
    /// `$opentelemetry_span_id` of it.
    SpanId,
    /// `$request_body`, if it was in memory when it was sent to the backend.
    Body,
    /// It never has a value here: of a feature that does not exist, or defined by a snippet in nginx.
    Missing,
}

impl Value {
    /// By its name, without the dollar sign.
    pub fn of(name: &str) -> Self {
        let of_name = |prefix: &str| name.strip_prefix(prefix).filter(|rest: &&str| !rest.is_empty());
        let field = |name: &str| -> Box<str> { name.replace('_', "-").to_ascii_lowercase().into() };
        if let Some(value) = Self::plain(name).or_else(|| Self::of_upstream(name)) {
            return value;
        }
        match name {
            "http_referer" => Self::Referer,
            "http_user_agent" => Self::UserAgent,
            "uri" | "document_uri" => Self::OfAnswer(Variable::Uri),
            "best_http_host" => Self::OfAnswer(Variable::BestHost),
            "pass_access_scheme" => Self::OfAnswer(Variable::AccessScheme),
            "pass_server_port" | "pass_port" => Self::OfAnswer(Variable::AccessPort),
            "escaped_request_uri" => Self::OfAnswer(Variable::EscapedRequestUri),
            "proxy_add_x_forwarded_for" => Self::OfHead(Variable::ForwardedFor),
            "full_x_forwarded_for" => Self::OfHead(Variable::FullForwardedFor),
            "content_type" => Self::OfHead(Variable::ContentType),
            "content_length" => Self::OfHead(Variable::ContentLength),
            _ => {
                if let Some(header) = of_name("http_") {
                    Self::OfHead(Variable::Header(field(header)))
                } else if let Some(cookie) = of_name("cookie_") {
                    Self::OfHead(Variable::Cookie(cookie.into()))
                } else if let Some(argument) = of_name("arg_") {
                    Self::Argument(argument.into())
                } else if let Some(header) = of_name("sent_http_") {
                    Self::Sent(field(header))
                } else if let Some(header) = of_name("upstream_http_") {
                    Self::Came(field(header))
                } else if let Some(cookie) = of_name("upstream_cookie_") {
                    Self::CameCookie(cookie.into())
                } else {
                    Self::Missing
                }
            }
        }
    }

    /// Whether it is known by the time the headers of a response are made, so that they may contain it.
    pub fn is_known_with_headers(&self) -> bool {
        matches!(
            self,
            Self::Status
                | Self::RequestTime
                | Self::Alternative
                | Self::UpstreamAddr
                | Self::UpstreamStatus
                | Self::UpstreamTime
                | Self::UpstreamConnectTime
                | Self::UpstreamHeaderTime
        )
    }

    /// The same for TCP and UDP sessions.
    pub fn of_stream(name: &str) -> Self {
        match name {
            "protocol" => Self::Transport,
            "bytes_received" => Self::BytesReceived,
            "session_time" => Self::SessionTime,
            "upstream_session_time" => Self::UpstreamSessionTime,
            "upstream_bytes_sent" => Self::UpstreamSent,
            "upstream_bytes_received" => Self::UpstreamReceived,
            "upstream_addr" => Self::UpstreamAddr,
            "upstream_connect_time" => Self::UpstreamConnectTime,
            "proxy_upstream_name" => Self::Upstream,
            "time_local"
            | "time_iso8601"
            | "msec"
            | "status"
            | "bytes_sent"
            | "remote_addr"
            | "remote_port"
            | "binary_remote_addr"
            | "realip_remote_addr"
            | "realip_remote_port"
            | "server_addr"
            | "server_port"
            | "connection"
            | "hostname"
            | "pid"
            | "nginx_version"
            | "proxy_protocol_addr"
            | "proxy_protocol_port"
            | "proxy_protocol_server_addr"
            | "proxy_protocol_server_port" => Self::plain(name).unwrap_or(Self::Missing),
            _ => Self::Missing,
        }
    }

    fn plain(name: &str) -> Option<Self> {
        if let Some(of) = OfConnection::of(name) {
            return Some(Self::OfConnection(of));
        }
        Some(match name {
            "time_local" => Self::TimeLocal,
            "time_iso8601" => Self::TimeIso8601,
            "msec" => Self::Msec,
            "request_time" => Self::RequestTime,
            "status" => Self::Status,
            "bytes_sent" => Self::BytesSent,
            "body_bytes_sent" => Self::BodyBytesSent,
            "request_length" => Self::RequestLength,
            "request_completion" => Self::Completion,
            "pipe" => Self::Pipe,
            "remote_addr" | "the_real_ip" => Self::Client,
            "binary_remote_addr" => Self::ClientBytes,
            "realip_remote_addr" => Self::Peer,
            "remote_user" => Self::User,
            "request" => Self::Request,
            "request_method" => Self::Method,
            "request_uri" => Self::RequestUri,
            "args" | "query_string" => Self::Args,
            "is_args" => Self::IsArgs,
            "server_protocol" => Self::Protocol,
            "http2" => Self::Http2,
            "host" => Self::Host,
            "server_name" => Self::ServerName,
            "req_id" => Self::RequestId,
            "request_id" => Self::OwnId,
            "connection_requests" => Self::ConnectionRequests,
            "namespace" => Self::Namespace,
            "ingress_name" => Self::Ingress,
            "service_name" => Self::Service,
            "service_port" => Self::ServicePort,
            "location_path" => Self::LocationPath,
            "hostname" => Self::Hostname,
            "pid" => Self::Pid,
            "nginx_version" => Self::Version,
            "opentelemetry_context_traceparent" => Self::TraceParent,
            "opentelemetry_trace_id" => Self::TraceId,
            "opentelemetry_span_id" => Self::SpanId,
            "request_body" => Self::Body,
            _ => return None,
        })
    }

    fn of_upstream(name: &str) -> Option<Self> {
        Some(match name {
            "proxy_upstream_name" | "proxy_host" => Self::Upstream,
            "proxy_alternative_upstream_name" => Self::Alternative,
            "upstream_addr" => Self::UpstreamAddr,
            "upstream_status" => Self::UpstreamStatus,
            "upstream_response_length" => Self::UpstreamLength,
            "upstream_bytes_sent" => Self::UpstreamSent,
            "upstream_bytes_received" => Self::UpstreamReceived,
            "upstream_response_time" => Self::UpstreamTime,
            "upstream_connect_time" => Self::UpstreamConnectTime,
            "upstream_header_time" => Self::UpstreamHeaderTime,
            _ => return None,
        })
    }
}
