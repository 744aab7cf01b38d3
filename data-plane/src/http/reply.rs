//! Responses: a backend's on its way to the client, or our own with the page that nginx would show.
//!
//! Users parse these pages, so they are identical to nginx' to the byte.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;

use crate::codec::error::{Kind, ProxyError};
use crate::codec::head::{Framing, Known, ResponseHead, reason};
use crate::local::Local;
use crate::local::timer::Timer;
use crate::upstream::call::Call;
use crate::upstream::link::Link;

pub(crate) use ahead::Ahead;
pub(crate) use coded::Coded;
pub(crate) use complaint::Complaint;
pub(crate) use paced::Paced;
pub(crate) use relay::Relay;
pub(crate) use replacer::{Pair, Replacer};

mod ahead;
mod coded;
mod complaint;
mod paced;
mod relay;
mod replacer;

/// A response that is about to be written.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) head: Box<ResponseHead>,
    pub(crate) body: ReplyBody,
    /// Whether the client's connection has to be closed afterwards.
    pub(crate) close: bool,
    /// Set when the client gets no response.
    pub(crate) untold: Option<Untold>,
    /// A text that a snippet says: no error page takes its place, whatever its status (nginx).
    pub(crate) is_said: bool,
    /// Timeout for each piece of its body, and for its trailers.
    pub(crate) read: Duration,
}

/// Why a client gets no response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Untold {
    /// It disconnected, or sent its body too slowly (`client-body-timeout`: closed, with 408 only in the log), or wrongly.
    Failed(Kind),
    /// The configuration says so, by a status that only the log has.
    Said(u16),
}

/// Request errors for which nginx has its own status numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bad {
    /// 494.
    TooLarge,
    /// 495: the client's certificate is not accepted.
    Certificate,
    /// 496: there is no client certificate.
    NoCertificate,
    /// 497: plain HTTP on a TLS port.
    Plain,
}

impl Bad {
    fn as_str(self) -> &'static str {
        match self {
            Self::TooLarge => "Request Header Or Cookie Too Large",
            Self::Certificate => "The SSL certificate error",
            Self::NoCertificate => "No required SSL certificate was sent",
            Self::Plain => "The plain HTTP request was sent to HTTPS port",
        }
    }
}

/// What follows the head of a response.
#[derive(Debug)]
pub(crate) enum ReplyBody {
    /// Nothing.
    Empty,
    /// Our own page.
    Page(Bytes),
    /// A backend's body.
    Relay(Box<Relay>),
    /// A backend's body over HTTP/2, while the client may still be sending.
    Call(Box<Call>),
    /// One of the above with a body, compressed, or with another text in place of some.
    Coded(Box<Coded>),
    /// One of the above, read ahead of its client.
    Ahead(Box<Ahead>),
    /// One of the above with a body, rate limited.
    Paced(Box<Paced>),
    /// The head is a 101: from here on both ends speak their own protocol.
    Tunnel(Box<Link>),
}

/// The length that a response with this body declares.
fn declared(status: u16, body: &[u8]) -> Option<u64> {
    (status != 204).then_some(body.len() as u64)
}

impl Reply {
    /// Our own page.
    pub(crate) fn page(local: &Local, status: u16) -> Self {
        let body = page(status);
        let mut head = Box::new(ResponseHead::new(status));
        head.framing = Framing::Length(body.len() as u64);
        head.declared_length = declared(status, &body);
        head.fields.put(local.date.borrow().line());
        if !body.is_empty() || status < 400 {
            head.fields.add(Known::ContentType, "text/html");
        }
        Self {
            head,
            body: ReplyBody::Page(body),
            close: false,
            untold: None,
            is_said: false,
            read: local.limits.timeouts.read,
        }
    }

    /// The page for a status that the configuration says. As in nginx, with 408, 444 and 499 the connection is closed
    /// without a response.
    pub(crate) fn of_status(local: &Local, status: u16) -> Self {
        let untold = matches!(status, 408 | 444 | 499).then_some(Untold::Said(status));
        Self { untold, ..Self::page(local, status) }
    }

    /// A redirect page.
    pub(crate) fn redirect(local: &Local, status: u16, location: Vec<u8>) -> Self {
        let mut reply = Self::page(local, status);
        reply.head.fields.append(Known::Location, location);
        reply
    }

    /// A response that declares an empty body, even for a 204, which never has one (RFC 9110 section 8.6):
    /// ingress-nginx does so for preflights.
    pub(crate) fn empty(local: &Local, status: u16) -> Self {
        let mut reply = Self::page(local, status);
        reply.head.fields.remove(Known::ContentType);
        reply.head.framing = Framing::Length(0);
        reply.head.declared_length = Some(0);
        reply.body = ReplyBody::Empty;
        reply
    }

    /// Whether it is our usual page for its status.
    pub(crate) fn is_usual(&self) -> bool {
        matches!(&self.body, ReplyBody::Page(body) if *body == page(self.head.status))
    }

    /// 200 without a body, for health checks.
    pub(crate) fn healthy(local: &Local) -> Self {
        let mut reply = Self::page(local, 200);
        reply.head.framing = Framing::Length(0);
        reply.head.declared_length = Some(0);
        reply.body = ReplyBody::Empty;
        reply
    }

    /// 200 with a text body.
    pub(crate) fn text(local: &Local, text: String) -> Self {
        let mut reply = Self::healthy(local);
        reply.head.framing = Framing::Length(text.len() as u64);
        reply.head.declared_length = Some(text.len() as u64);
        reply.head.fields.set(Known::ContentType, "text/plain");
        reply.body = ReplyBody::Page(text.into());
        reply
    }

    /// A response of a snippet.
    pub(crate) fn configured_page(local: &Local, status: u16, media_type: Bytes, text: Vec<u8>) -> Self {
        let mut reply = Self::page(local, status);
        reply.head.framing = Framing::Length(text.len() as u64);
        reply.head.declared_length = declared(status, &text);
        reply.head.fields.set(Known::ContentType, media_type);
        // These statuses never have a body.
        reply.body = match status {
            204 | 304 => ReplyBody::Empty,
            _ => ReplyBody::Page(text.into()),
        };
        reply
    }

    /// The page for a failed request. If the client is at fault, its connection is closed.
    pub(crate) fn failure(local: &Local, error: &ProxyError) -> Self {
        let status = error.kind.status();
        let mut reply = Self::page(local, status);
        reply.close = (400..500).contains(&status);
        let is_untold = matches!(error.kind, Kind::ClientGone | Kind::ClientTimeout);
        reply.untold = is_untold.then_some(Untold::Failed(error.kind));
        reply
    }

    /// The page for a request for which there is no memory: a retry may succeed in a moment.
    pub(crate) fn overloaded(local: &Local) -> Self {
        let mut reply = Self::refusal(local, 503);
        reply.head.fields.append("Retry-After", "1");
        reply
    }

    /// A 400 page with a reason: nginx has internal statuses for these, which are not sent.
    pub(crate) fn bad(local: &Local, why: Bad) -> Self {
        let mut reply = Self::page(local, 400);
        let text = why.as_str();
        let page = format!(
            "<html>\r\n<head><title>400 {text}</title></head>\r\n<body>\r\n<center><h1>400 Bad Request</h1></center>\r\n\
             <center>{text}</center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"
        );
        reply.close = matches!(why, Bad::TooLarge | Bad::Plain);
        reply.head.framing = Framing::Length(page.len() as u64);
        reply.head.declared_length = Some(page.len() as u64);
        reply.body = ReplyBody::Page(page.into());
        reply
    }

    /// The page for a request that is refused before routing. Nothing more is read from its connection.
    pub(crate) fn refusal(local: &Local, status: u16) -> Self {
        let mut reply = Self::page(local, status);
        reply.close = true;
        reply
    }
}

impl ReplyBody {
    /// Size of the buffer for the data from the endpoint, without the pieces that were taken from it.
    pub(crate) fn held(&self) -> usize {
        match self {
            Self::Relay(relay) => relay.held(),
            Self::Coded(coded) => coded.inner().held(),
            Self::Ahead(ahead) => ahead.held(),
            Self::Paced(paced) => paced.held(),
            _ => 0,
        }
    }

    /// Returns that buffer, if nothing in it is unread.
    pub(crate) fn rest(&mut self) {
        match self {
            Self::Relay(relay) => relay.rest(),
            Self::Coded(coded) => coded.body().rest(),
            Self::Paced(paced) => paced.body().rest(),
            _ => {}
        }
    }

    /// What is available without reading from a backend: a piece, or `Some(None)` at the end.
    pub(crate) fn buffered(&mut self) -> Result<Option<Option<Bytes>>, ProxyError> {
        match self {
            Self::Relay(relay) => relay.buffered(),
            Self::Call(call) => Ok(call.buffered()),
            Self::Coded(coded) => coded.buffered(),
            Self::Ahead(ahead) => ahead.buffered(),
            Self::Paced(paced) => paced.buffered(),
            Self::Page(page) => {
                let page = std::mem::take(page);
                *self = Self::Empty;
                Ok(Some((!page.is_empty()).then_some(page)))
            }
            Self::Empty | Self::Tunnel(_) => Ok(Some(None)),
        }
    }

    /// The number of bytes that the newest piece, which has this length, was made of. For bytes of an endpoint the
    /// framing around them is included, as in nginx.
    pub(crate) fn made_of(&mut self, piece: usize) -> usize {
        match self {
            Self::Coded(coded) => coded.came(),
            Self::Ahead(ahead) => ahead.came(),
            Self::Paced(paced) => paced.body().made_of(piece),
            Self::Relay(relay) => piece + relay.around(),
            _ => piece,
        }
    }

    /// The gRPC call that it comes from, while the client may still be sending.
    pub(crate) fn call(&mut self) -> Option<&mut Call> {
        match self {
            Self::Call(call) => Some(call),
            Self::Paced(paced) => paced.body().call(),
            _ => None,
        }
    }

    /// Ready when nothing was heard of the endpoint for so long, by a timer that began with the wait. As in nginx each frame
    /// counts, also one that only takes more of the request: an endpoint may respond early to a request that is long.
    pub(crate) fn poll_silent(
        &mut self,
        (local, timer): (&Local, &Timer),
        limit: Duration,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        loop {
            ready!(timer.poll_elapsed(cx));
            let heard = self.call().and_then(|call| call.heard());
            let left = heard.map(|at| (at + limit).saturating_duration_since(local.timers.now()));
            match left {
                Some(left) if !left.is_zero() => timer.arm(left),
                _ => return Poll::Ready(()),
            }
        }
    }

    /// From here on at most this many bytes are read from an HTTP/1.1 endpoint at a time.
    pub(crate) fn wants(&mut self, most: usize) {
        match self {
            Self::Relay(relay) => relay.wants(most),
            Self::Coded(coded) => coded.body().wants(most),
            Self::Paced(paced) => paced.body().wants(most),
            _ => {}
        }
    }

    /// Ready when [`Self::poll_more`] has something to read from an HTTP/1.1 endpoint, if only the end.
    pub(crate) fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Relay(relay) => relay.poll_arrived(cx),
            Self::Coded(coded) => coded.body().poll_arrived(cx),
            Self::Ahead(ahead) => ahead.poll_arrived(cx),
            Self::Paced(paced) => paced.poll_arrived(cx),
            _ => Poll::Ready(()),
        }
    }

    /// Whether it is an endpoint's that has its whole request, and more may come of it.
    pub(crate) fn is_arriving(&self) -> bool {
        match self {
            Self::Relay(relay) => !relay.is_sending() && !relay.has_arrived(),
            Self::Coded(coded) => coded.inner().is_arriving(),
            _ => false,
        }
    }

    /// The response of an endpoint that is still sent its request.
    pub(crate) fn sending(&mut self) -> Option<&mut Relay> {
        match self {
            Self::Relay(relay) if relay.is_sending() => Some(relay),
            Self::Coded(coded) => coded.body().sending(),
            Self::Paced(paced) => paced.body().sending(),
            _ => None,
        }
    }

    /// Reads more if it is available.
    pub(crate) async fn more_at_once(&mut self) -> Option<Result<(), ProxyError>> {
        poll_fn(|cx| match self.poll_more(cx) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    /// Reads more, for [`Self::buffered`] to look at.
    pub(crate) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProxyError>> {
        match self {
            Self::Relay(relay) => relay.poll_more(cx),
            Self::Call(call) => call.poll_more(cx),
            Self::Coded(coded) => coded.body().poll_more(cx),
            Self::Ahead(ahead) => ahead.poll_arrived(cx).map(Ok),
            Self::Paced(paced) => paced.poll_more(cx),
            _ => Poll::Ready(Ok(())),
        }
    }
}

/// nginx' page for a status.
fn page(status: u16) -> Bytes {
    let reason = match status {
        // nginx' pages and its status lines differ here.
        302 => "Found",
        401 => "Authorization Required",
        405 => "Not Allowed",
        301 | 303 | 307 | 308 | 400..=599 => reason(status),
        _ => return Bytes::new(),
    };
    // nginx has no page for statuses without a name.
    if reason.is_empty() {
        return Bytes::new();
    }
    format!(
        "<html>\r\n<head><title>{status} {reason}</title></head>\r\n<body>\r\n\
         <center><h1>{status} {reason}</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_those_of_nginx() {
        assert_eq!(
            page(404),
            "<html>\r\n<head><title>404 Not Found</title></head>\r\n<body>\r\n\
             <center><h1>404 Not Found</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"
        );
        for (status, title) in [
            (301, "301 Moved Permanently"),
            (302, "302 Found"),
            (303, "303 See Other"),
            (307, "307 Temporary Redirect"),
            (308, "308 Permanent Redirect"),
            (400, "400 Bad Request"),
            (401, "401 Authorization Required"),
            (405, "405 Not Allowed"),
            (408, "408 Request Time-out"),
            (413, "413 Request Entity Too Large"),
            (414, "414 Request-URI Too Large"),
            (500, "500 Internal Server Error"),
            (501, "501 Not Implemented"),
            (502, "502 Bad Gateway"),
            (503, "503 Service Temporarily Unavailable"),
            (504, "504 Gateway Time-out"),
            (505, "505 HTTP Version Not Supported"),
        ] {
            let text = page(status);
            let expected = format!("<center><h1>{title}</h1></center>");
            assert!(text.windows(expected.len()).any(|part| part == expected.as_bytes()), "{title}");
        }
        // As in nginx: statuses without a name.
        for status in [200, 300, 305, 407, 417, 418, 420, 422, 425, 428, 431, 451, 506, 511, 599] {
            assert!(page(status).is_empty(), "{status}");
        }
    }
}
