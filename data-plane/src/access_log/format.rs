//! One log line in ingress-nginx' default format.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A request as it is logged.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// The client.
    pub client: IpAddr,
    /// User of a Basic Authorization, verified or not.
    pub user: Option<&'a [u8]>,
    /// Method, target and version as received; or the whole unparsable line in the first element.
    pub request: [&'a [u8]; 3],
    /// Status of the response.
    pub status: u16,
    /// Bytes of response body sent.
    pub sent: u64,
    /// Request header Referer.
    pub referer: Option<&'a [u8]>,
    /// Request header User-Agent.
    pub user_agent: Option<&'a [u8]>,
    /// Bytes of the request: head and body.
    pub received: u64,
    /// From the head to the end of the response.
    pub took: Duration,
    /// `namespace-service-port`; `-` before a path was found.
    pub upstream: &'a str,
    /// The canary's name, if it was chosen.
    pub alternative: &'a str,
    /// Endpoints that were tried, in order.
    pub attempts: &'a [Attempt],
    /// X-Request-ID.
    pub request_id: &'a [u8],
}

/// One endpoint that was tried.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Its address.
    pub address: SocketAddr,
    /// Bytes of body received from it.
    pub length: u64,
    /// How long it took.
    pub took: Duration,
    /// Status of its response, or 502 or 504 if it failed.
    pub status: u16,
}

/// Appends the line including its end.
pub(super) fn line(record: &Record<'_>, time: &str, out: &mut Vec<u8>) {
    let Record {
        client,
        user,
        request: [method, target, version],
        status,
        sent,
        referer,
        user_agent,
        received,
        took,
        upstream,
        alternative,
        attempts,
        request_id,
    } = record;
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{client} - ");
    escape(user.unwrap_or(b"-"), out);
    let _ = write!(out, " [{time}] \"");
    escape(method, out);
    for part in [target, version] {
        if !part.is_empty() {
            out.push(b' ');
            escape(part, out);
        }
    }
    let _ = write!(out, "\" {status} {sent} \"");
    escape(referer.unwrap_or(b"-"), out);
    out.extend_from_slice(b"\" \"");
    escape(user_agent.unwrap_or(b"-"), out);
    let _ = write!(out, "\" {received} {} [{upstream}] [{alternative}] ", Seconds(*took));
    list(attempts, out, |attempt, out| write!(out, "{}", attempt.address));
    list(attempts, out, |attempt, out| write!(out, "{}", attempt.length));
    list(attempts, out, |attempt, out| write!(out, "{}", Seconds(attempt.took)));
    list(attempts, out, |attempt, out| write!(out, "{}", attempt.status));
    escape(request_id, out);
    out.push(b'\n');
}

/// Values of several attempts are separated by commas; no attempt is a dash.
fn list(
    attempts: &[Attempt],
    out: &mut Vec<u8>,
    one: impl Fn(&Attempt, &mut Vec<u8>) -> std::io::Result<()>,
) {
    if attempts.is_empty() {
        out.push(b'-');
    }
    for (place, attempt) in attempts.iter().enumerate() {
        if place > 0 {
            out.extend_from_slice(b", ");
        }
        let _ = one(attempt, out);
    }
    out.push(b' ');
}

/// nginx' `escape=default`: a client cannot terminate the quotes or the line.
fn escape(value: &[u8], out: &mut Vec<u8>) {
    for &byte in value {
        match byte {
            b'"' | b'\\' | 0..=0x1f | 0x7f.. => {
                let _ = write!(out, "\\x{byte:02X}");
            }
            byte => out.push(byte),
        }
    }
}

/// Seconds with three decimals.
struct Seconds(Duration);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0.as_secs(), self.0.subsec_millis())
    }
}
