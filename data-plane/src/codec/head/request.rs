//! The head of a request.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

use super::fields::{Fields, Span, put_field};
use super::name::Known;
use super::{Framing, Method, Version, framing, hop, start};
use crate::codec::guard::{self, HeadError, Limits};
use crate::codec::host::Host;

/// The head of a request that passed the guard.
///
/// Fields that are bound to the connection (RFC 9110 section 7.6.1) or whose names nginx drops are already gone
/// from [`RequestHead::fields`]; what they said is in the other members. Host and Content-Length are still there to
/// be looked at; the writer sends its own.
#[derive(Debug, Clone)]
pub(crate) struct RequestHead {
    /// The method, if it is one that something here treats differently.
    pub(crate) method: Method,
    /// The version that the client speaks.
    pub(crate) version: Version,
    /// How the body ends.
    pub(crate) framing: Framing,
    /// The host asked for.
    pub(crate) host: Host,
    /// All fields that may be passed on.
    pub(crate) fields: Fields,
    /// Whether the client means to send another request on this connection.
    pub(crate) keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub(crate) expect_continue: bool,
    /// The value of `Upgrade`, if it may be asked of a backend: never HTTP/2, never with a body.
    pub(crate) upgrade: Option<Bytes>,
    /// What a backend is told in `Connection` whatever the client said; then no upgrade is asked for.
    pub(crate) connection: Option<&'static str>,
    /// Whether a backend is asked in HTTP/1.0.
    pub(crate) as_http10: bool,
    method_len: usize,
    /// Where the target stands in the bytes of the head, as it was sent.
    raw: Range<usize>,
    /// Where its origin-form stands, unless that had to be made.
    origin: Range<usize>,
    made: Option<Bytes>,
    /// What is shown in place of the target.
    page: Option<Box<[u8]>>,
    /// The target that backends read as it was judged, where they need not read the one that came so.
    cured: Option<Box<[u8]>>,
    path_len: usize,
    /// Bytes that it took on the wire.
    size: usize,
}

/// What a reader found beside the fields in the bytes of a request head, which begin with method, space and target.
pub(crate) struct RequestParts {
    pub(crate) method_len: usize,
    pub(crate) target_len: usize,
    pub(crate) version: Version,
}

impl Default for RequestHead {
    fn default() -> Self {
        Self {
            method: Method::Other,
            version: Version::Http11,
            framing: Framing::None,
            host: Host::none(),
            fields: Fields::default(),
            keep_alive: false,
            expect_continue: false,
            upgrade: None,
            connection: None,
            as_http10: false,
            method_len: 0,
            raw: 0..0,
            origin: 0..0,
            made: None,
            page: None,
            cured: None,
            path_len: 0,
            size: 0,
        }
    }
}

impl RequestHead {
    /// One that is about to be read: its fields are put in, and then it is judged.
    pub(crate) fn unread() -> Box<Self> {
        // Made where it stays: it is large.
        Box::default()
    }

    /// Judges what a reader found.
    ///
    /// # Errors
    /// The first rule of the guard that it breaks.
    pub(crate) fn judge(&mut self, parts: &RequestParts) -> Result<(), HeadError> {
        let RequestParts { method_len, target_len, version } = *parts;
        let fields = &mut self.fields;
        let bytes = fields.bytes();
        let raw = method_len + 1..method_len + 1 + target_len;
        let method = start::method(&bytes[..method_len])?;
        let form = start::target(method, &bytes[raw.clone()])?;
        let framing = framing::request_framing(version, fields)?;
        let mut host = host(version, fields)?;
        let mut origin = raw.clone();
        let mut made = None;
        if let start::Target::Absolute { from, to } = form {
            // The authority of an absolute-form target replaces Host (RFC 9112 section 3.2.2).
            host = Host::parse(bytes.slice(raw.start + from..raw.start + to))?;
            origin.start += to;
            if bytes[origin.start] != b'/' {
                made = Some([b"/", &bytes[origin.clone()]].concat().into());
            }
        }
        let expect_continue = version >= Version::Http11
            && fields.get(Known::Expect).is_some_and(|expect| expect.eq_ignore_ascii_case(b"100-continue"));
        let upgrade =
            if version == Version::Http11 && framing.is_empty() { hop::upgrade(fields) } else { None };
        let options = hop::strip(fields)?;
        fields.remove_any(Known::Expect.bit() | Known::Proxy.bit());
        let keep_alive = !options.close && (version >= Version::Http11 || options.keep_alive);
        let bytes = fields.bytes();
        let target = made.as_deref().unwrap_or_else(|| &bytes[origin.clone()]);
        (self.size, self.path_len) = (bytes.len(), memchr::memchr(b'?', target).unwrap_or(target.len()));
        (self.method, self.version, self.framing, self.host) = (method, version, framing, host);
        (self.keep_alive, self.expect_continue, self.upgrade) = (keep_alive, expect_continue, upgrade);
        (self.method_len, self.raw, self.origin, self.made) = (method_len, raw, origin, made);
        Ok(())
    }

    /// Makes the head of an HTTP/2 request: `:method`, `:path`, `:authority`, the other fields in order, and whether
    /// the stream ended with them.
    ///
    /// A field may be as long as a line of HTTP/1.1, and all of them as a head; `:authority` never longer than is usual, for
    /// it stands in log lines and keys. `:authority` takes the place of any Host; the crumbs of a cookie become one field
    /// (RFC 9113 section 8.2.3).
    /// Everything is checked again (RFC 9113 section 8.2.1), because it goes on as lines of text.
    ///
    /// # Errors
    /// The first rule of the guard that it breaks; [`HeadError::Field`] for fields that HTTP/2 does not have.
    pub(crate) fn from_h2<'a, F>(
        method: &str,
        path: &[u8],
        authority: Option<&[u8]>,
        fields: F,
        ended: bool,
        limits: Limits,
    ) -> Result<Box<Self>, HeadError>
    where
        F: Iterator<Item = (&'a [u8], &'a [u8])>,
    {
        if method.len() + path.len() + 12 > limits.start_line {
            return Err(HeadError::StartLineTooLong);
        }
        let mut lines = Lines::begin(method, path, limits);
        if let Some(authority) = authority {
            if authority.len() + 6 > Limits::REQUEST.field_line {
                return Err(HeadError::HeadTooLong);
            }
            lines.push(Known::Host, b"host", authority)?;
        }
        let mut cookies = BytesMut::new();
        for (name, value) in fields {
            if name.len() + value.len() + 4 > limits.field_line {
                return Err(HeadError::HeadTooLong);
            }
            let known = Known::of(name);
            match known {
                Known::Host if authority.is_some() => {}
                Known::Cookie => {
                    if !cookies.is_empty() {
                        cookies.put_slice(b"; ");
                    }
                    cookies.put_slice(value);
                }
                Known::Te if value != b"trailers" => return Err(HeadError::Field),
                Known::Te => lines.push(known, name, value)?,
                // RFC 9113 8.2.2 does not list these; as from HTTP/1, they end here.
                Known::Trailer | Known::Http2Settings => {}
                known if known.is_hop_by_hop() => return Err(HeadError::Field),
                _ => lines.push(known, name, value)?,
            }
        }
        if !cookies.is_empty() {
            lines.push(Known::Cookie, b"cookie", &cookies)?;
        }
        let mut head = lines.end();
        if !matches!(path, [b'/', ..] | b"*") {
            return Err(HeadError::Target);
        }
        head.judge(&RequestParts {
            method_len: method.len(),
            target_len: path.len(),
            version: Version::Http2,
        })?;
        head.framing = match head.framing {
            Framing::Length(length) if ended && length > 0 => return Err(HeadError::ContentLength),
            Framing::None if !ended => Framing::Chunked,
            framing => framing,
        };
        Ok(head)
    }

    /// The method as it was sent.
    pub(crate) fn method_name(&self) -> &str {
        if let Some(name) = self.method.name() {
            return name;
        }
        // The guard passed only ASCII capitals, `_` and `-`.
        std::str::from_utf8(self.method_bytes()).unwrap_or_default()
    }

    /// The same, to be written.
    pub(crate) fn method_bytes(&self) -> &[u8] {
        &self.fields.bytes()[..self.method_len]
    }

    /// The target as it was sent, for the log: a path, an absolute URI, or `*`.
    pub(crate) fn raw_target(&self) -> &[u8] {
        &self.fields.bytes()[self.raw.clone()]
    }

    /// The target in origin-form, as it was sent, scheme and authority cut off.
    pub(crate) fn asked_target(&self) -> &[u8] {
        self.made.as_deref().unwrap_or_else(|| &self.fields.bytes()[self.origin.clone()])
    }

    /// Goes on as a request for this path, without a query: nginx' internal redirect.
    ///
    /// Unlike there, `$request_uri` is this path from here on, too: what is told of what the client asked for, an
    /// application may route by.
    pub(crate) fn show(&mut self, page: Box<[u8]>) {
        self.path_len = page.len();
        self.page = Some(page);
    }

    /// Goes on with this path, already encoded, in place of its own: nobody behind is told of one that can be taken for
    /// another. The query stays.
    pub(crate) fn cure(&mut self, path: &[u8]) {
        let mut target = path.to_vec();
        if let Some(query) = self.query() {
            target.push(b'?');
            target.extend_from_slice(query);
        }
        self.path_len = path.len();
        self.cured = Some(target.into());
    }

    /// The target as it was sent, or the page that is shown instead, whoever may take that for another one.
    pub(crate) fn uncured_target(&self) -> &[u8] {
        self.page.as_deref().unwrap_or_else(|| self.asked_target())
    }

    /// The target in origin-form: path and query as they were sent, or what is served in their place.
    pub(crate) fn target(&self) -> &[u8] {
        self.cured.as_deref().unwrap_or_else(|| self.uncured_target())
    }

    /// The path of the target.
    pub(crate) fn path(&self) -> &[u8] {
        &self.target()[..self.path_len]
    }

    /// The query of the target without its `?`; none if there is no `?`, or nothing behind it, as in nginx.
    pub(crate) fn query(&self) -> Option<&[u8]> {
        self.target().get(self.path_len + 1..).filter(|query| !query.is_empty())
    }

    /// The number of bytes that the head took on the wire.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Lets go of all but what is asked for after the request was sent: by those who answer, and by the log. Where that is
    /// little, nothing is.
    pub(crate) fn let_go(&mut self) {
        const LITTLE: usize = 1024;
        const ASKED_FOR: [Known; 7] = [
            Known::Referer,
            Known::UserAgent,
            Known::XRequestId,
            Known::Authorization,
            Known::Origin,
            Known::ContentType,
            Known::Accept,
        ];
        if self.size <= LITTLE {
            return;
        }
        let line = self.raw.end.max(self.origin.end);
        self.fields.keep(line, ASKED_FOR.iter().fold(0, |mask, known| mask | known.bit()));
        // These shared the bytes of the head.
        self.host = Host::parse(Bytes::copy_from_slice(self.host.raw())).unwrap_or_else(|_| Host::none());
        self.upgrade = None;
    }
}

/// The one Host (RFC 9112 section 3.2); HTTP/1.0 may have none.
fn host(version: Version, fields: &Fields) -> Result<Host, HeadError> {
    let mut hosts = fields.all(Known::Host);
    match (hosts.next(), hosts.next()) {
        (Some(_), None) => Host::parse(fields.get_bytes(Known::Host).unwrap_or_default()),
        (None, _) if version == Version::Http10 => Ok(Host::none()),
        _ => Err(HeadError::Host),
    }
}

/// Lines of text made of HTTP/2 fields, and the head that they are to be.
struct Lines {
    text: Vec<u8>,
    head: Box<RequestHead>,
    limits: Limits,
}

impl Lines {
    fn begin(method: &str, path: &[u8], limits: Limits) -> Self {
        let mut text = Vec::with_capacity(1024);
        text.put_slice(method.as_bytes());
        text.put_u8(b' ');
        text.put_slice(path);
        text.put_slice(b" HTTP/2.0\r\n");
        Self { text, head: RequestHead::unread(), limits }
    }

    fn push(&mut self, known: Known, name: &[u8], value: &[u8]) -> Result<(), HeadError> {
        let value = value.trim_ascii();
        if !guard::is_name(name) || name.iter().any(u8::is_ascii_uppercase) || !guard::is_value(value) {
            return Err(HeadError::Field);
        }
        if self.text.len() + name.len() + value.len() + 4 > self.limits.head {
            return Err(HeadError::HeadTooLong);
        }
        if self.head.fields.spans() == self.limits.fields {
            return Err(HeadError::TooManyFields);
        }
        let at = self.text.len();
        put_field(&mut self.text, name, value);
        self.head.fields.put_span(Span {
            name: at as u32,
            name_len: name.len() as u16,
            known,
            dropped: known == Known::Other && !guard::is_plain_name(name),
            value: (at + name.len() + 2) as u32,
            value_len: value.len() as u32,
        });
        Ok(())
    }

    fn end(self) -> Box<RequestHead> {
        let Self { text, mut head, limits: _ } = self;
        let end = text.len();
        head.fields.stand_in(text.into(), end);
        head
    }
}
