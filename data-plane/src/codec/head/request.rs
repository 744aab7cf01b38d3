//! The head of a request.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

use super::fields::Fields;
use super::name::Known;
use super::{Framing, Method, Version, framing, hop, start};
use crate::codec::guard::{self, HeadError, Limits};
use crate::codec::host::Host;

/// The head of a request that passed the guard.
///
/// Connection-specific fields (RFC 9110 section 7.6.1) and those whose names nginx drops were already removed from
/// [`RequestHead::fields`]; their contents are in the other members. Host and Content-Length are still there to be
/// looked at; the writer sends its own.
#[derive(Debug, Clone)]
pub(crate) struct RequestHead {
    /// The method, if it is one that is treated differently somewhere.
    pub(crate) method: Method,
    /// The version that the client speaks.
    pub(crate) version: Version,
    /// How the body ends.
    pub(crate) framing: Framing,
    /// The requested host.
    pub(crate) host: Host,
    /// All fields that may be passed on.
    pub(crate) fields: Fields,
    /// Whether the client may send another request on this connection.
    pub(crate) keep_alive: bool,
    /// Whether the client waits for `100 Continue` before sending the body.
    pub(crate) expect_continue: bool,
    /// The value of `Upgrade`, if it may be requested from a backend: never HTTP/2.
    pub(crate) upgrade: Option<Bytes>,
    /// The `Connection` header for backends whatever the client sent, in place of `upgrade`, too.
    pub(crate) connection: Option<&'static str>,
    /// Whether the request to a backend uses HTTP/1.0.
    pub(crate) as_http10: bool,
    method_len: usize,
    /// The position of the original target in the bytes of the head.
    raw: Range<usize>,
    /// The position of its origin-form, unless that had to be constructed.
    origin: Range<usize>,
    made: Option<Bytes>,
    /// The path that is served instead of the target.
    page: Option<Box<[u8]>>,
    /// Whether another request is served in its place.
    is_redirected: bool,
    /// The target with the path that was routed, if backends might read the original one differently.
    cured: Option<Box<[u8]>>,
    /// The query instead of the target's; empty: none.
    query: Option<Box<[u8]>>,
    path_len: usize,
    /// Bytes on the wire.
    size: usize,
}

/// Fields that are not passed on, besides those of the connection.
const DROPPED: u128 = Known::Expect.bit() | Known::Proxy.bit();

/// What a parser found besides the fields in the bytes of a request head, which begin with method, space and target.
pub(crate) struct RequestParts {
    pub(crate) method_len: usize,
    pub(crate) target_len: usize,
    pub(crate) version: Version,
}

impl Default for RequestHead {
    // Inlined, so that a box of it is filled in place.
    #[inline(always)]
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
            is_redirected: false,
            cured: None,
            query: None,
            path_len: 0,
            size: 0,
        }
    }
}

impl RequestHead {
    /// A head to be filled by a parser: first its fields, then [`Self::judge`].
    pub(crate) fn unread() -> Box<Self> {
        // Created in place, because it is large.
        Box::default()
    }

    /// Validates what a parser found.
    ///
    /// # Errors
    /// The first violated rule of the guard.
    pub(crate) fn judge(&mut self, parts: &RequestParts) -> Result<(), HeadError> {
        let RequestParts { method_len, target_len, version } = *parts;
        let fields = &mut self.fields;
        let bytes = fields.bytes();
        let raw = method_len + 1..method_len + 1 + target_len;
        let method = start::method(&bytes[..method_len])?;
        let form = start::target(method, &bytes[raw.clone()])?;
        let framing = framing::request_framing(version, fields)?;
        let mut host = host(version, fields)?;
        once(fields)?;
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
        let upgrade = if version == Version::Http11 { hop::upgrade(fields) } else { None };
        let options = hop::strip(fields)?;
        fields.remove_any(DROPPED);
        let keep_alive = !options.close && (version >= Version::Http11 || options.keep_alive);
        let bytes = fields.bytes();
        let target = made.as_deref().unwrap_or_else(|| &bytes[origin.clone()]);
        (self.size, self.path_len) = (bytes.len(), memchr::memchr(b'?', target).unwrap_or(target.len()));
        (self.method, self.version, self.framing, self.host) = (method, version, framing, host);
        (self.keep_alive, self.expect_continue, self.upgrade) = (keep_alive, expect_continue, upgrade);
        (self.method_len, self.raw, self.origin, self.made) = (method_len, raw, origin, made);
        Ok(())
    }

    /// Creates the head of an HTTP/2 request from `:method`, `:path`, `:authority`, the other fields in order with their
    /// names recognised, and whether the stream ended with them.
    ///
    /// A field may be as long as a line in HTTP/1.1, and all of them as long as a head; `:authority` has the usual
    /// fixed limit, because it appears in log lines and keys. `:authority` replaces Host; the crumbs of a cookie are
    /// joined into one field (RFC 9113 section 8.2.3). Everything is validated again (RFC 9113 section 8.2.1), because
    /// it is sent on as lines of text.
    ///
    /// # Errors
    /// The first violated rule of the guard; [`HeadError::Field`] for fields that are not allowed in HTTP/2.
    pub(crate) fn from_h2<'a, F>(
        method: &str,
        path: &[u8],
        authority: Option<&[u8]>,
        fields: F,
        ended: bool,
        limits: Limits,
    ) -> Result<Box<Self>, HeadError>
    where
        F: Iterator<Item = (Known, &'a [u8], &'a [u8])>,
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
        for (known, name, value) in fields {
            debug_assert!(known == Known::of(name), "whoever reads a name recognises it");
            if name.len() + value.len() + 4 > limits.field_line {
                return Err(HeadError::HeadTooLong);
            }
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
                // RFC 9113 8.2.2 does not list these; they are dropped, as with HTTP/1.
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

    /// The original method.
    pub(crate) fn method_name(&self) -> &str {
        if let Some(name) = self.method.name() {
            return name;
        }
        // The guard passed only ASCII capitals, `_` and `-`.
        std::str::from_utf8(self.method_bytes()).unwrap_or_default()
    }

    /// The same as bytes.
    pub(crate) fn method_bytes(&self) -> &[u8] {
        match (self.is_for_page(), self.method) {
            (true, Method::Get) => b"GET",
            _ => self.asked_method(),
        }
    }

    /// The original method, for the log.
    pub(crate) fn asked_method(&self) -> &[u8] {
        &self.fields.bytes()[..self.method_len]
    }

    /// The original target, for the log: a path, an absolute URI, or `*`.
    pub(crate) fn raw_target(&self) -> &[u8] {
        &self.fields.bytes()[self.raw.clone()]
    }

    /// The original target in origin-form, without scheme and authority.
    pub(crate) fn asked_target(&self) -> &[u8] {
        self.made.as_deref().unwrap_or_else(|| &self.fields.bytes()[self.origin.clone()])
    }

    /// Continues as a request for this path, without a query and a body: nginx' internal redirect. Its method is GET from
    /// here on, unless it is HEAD.
    ///
    /// Unlike in nginx, `$request_uri` is this path from here on, too: an application might route by the original one.
    pub(crate) fn show(&mut self, page: Box<[u8]>) {
        self.path_len = page.len();
        self.page = Some(page);
        self.get();
    }

    /// Continues as it came from the client, but as a request without a body: nginx' internal redirect to a path that the
    /// caller knows. What was done to its fields for a backend is undone.
    pub(crate) fn redirect(&mut self) {
        self.is_redirected = true;
        self.get();
        (self.connection, self.as_http10) = (None, false);
        self.fields = self.fields_that_came();
    }

    /// Its fields as they came from the client, without those that end at the proxy.
    pub(crate) fn fields_that_came(&self) -> Fields {
        let mut fields = self.fields.clone();
        fields.reset();
        // It has passed this once.
        let stripped = hop::strip(&mut fields);
        debug_assert!(stripped.is_ok(), "the same fields are judged the same way");
        fields.remove_any(DROPPED);
        fields
    }

    fn get(&mut self) {
        if self.method != Method::Head {
            self.method = Method::Get;
        }
        (self.framing, self.upgrade) = (Framing::None, None);
    }

    /// Whether a page is served instead of what was requested.
    pub(crate) fn is_for_page(&self) -> bool {
        self.page.is_some() || self.is_redirected
    }

    /// Whether it goes on in place of what the client sent.
    pub(crate) fn is_redirected(&self) -> bool {
        self.is_redirected
    }

    /// Continues with this path, already encoded, instead of the original: nothing behind the proxy sees one that
    /// could be mistaken for another. The query stays.
    pub(crate) fn cure(&mut self, path: &[u8]) {
        let mut target = path.to_vec();
        if let Some(query) = self.asked_query() {
            target.push(b'?');
            target.extend_from_slice(query);
        }
        self.path_len = path.len();
        self.cured = Some(target.into());
    }

    /// The original target, or the page served instead, even if other readers may interpret it differently.
    pub(crate) fn uncured_target(&self) -> &[u8] {
        self.page.as_deref().unwrap_or_else(|| self.asked_target())
    }

    /// The target in origin-form: the original path and query, or what is served instead.
    pub(crate) fn target(&self) -> &[u8] {
        self.cured.as_deref().unwrap_or_else(|| self.uncured_target())
    }

    /// The path of the target.
    pub(crate) fn path(&self) -> &[u8] {
        &self.target()[..self.path_len]
    }

    /// The query of the target without `?`; `None` if there is no `?`, or nothing after it, as in nginx.
    pub(crate) fn asked_query(&self) -> Option<&[u8]> {
        self.target().get(self.path_len + 1..).filter(|query| !query.is_empty())
    }

    /// The same, or the query that a rewrite left.
    pub(crate) fn query(&self) -> Option<&[u8]> {
        match &self.query {
            Some(query) => Some(&**query).filter(|query| !query.is_empty()),
            None => self.asked_query(),
        }
    }

    /// Continues with this query, after a rewrite of the path. The target stays what was asked for.
    pub(crate) fn set_query(&mut self, query: Vec<u8>) {
        self.query = Some(query.into());
    }

    /// The length of the head in bytes on the wire.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Frees everything that is not needed after the request was sent, neither for the response nor for the log. Does
    /// nothing if that is little.
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
        self.fields.keep(line, Known::bits(&ASKED_FOR));
        // These shared the memory of the head.
        self.host = Host::parse(Bytes::copy_from_slice(self.host.raw())).unwrap_or_else(|_| Host::none());
        self.upgrade = None;
    }
}

/// The single Host (RFC 9112 section 3.2); optional in HTTP/1.0.
fn host(version: Version, fields: &Fields) -> Result<Host, HeadError> {
    let mut hosts = fields.all(Known::Host);
    match (hosts.next(), hosts.next()) {
        (Some(_), None) => Host::parse(fields.get_bytes(Known::Host).unwrap_or_default()),
        (None, _) if version == Version::Http10 => Ok(Host::none()),
        _ => Err(HeadError::Host),
    }
}

/// Fields of which nginx refuses a second line: somebody behind the proxy could heed the other one.
const ONCE: [Known; 8] = [
    Known::Authorization,
    Known::Expect,
    Known::IfMatch,
    Known::IfNoneMatch,
    Known::IfModifiedSince,
    Known::IfUnmodifiedSince,
    Known::IfRange,
    Known::ContentRange,
];

fn once(fields: &Fields) -> Result<(), HeadError> {
    const ANY: u128 = Known::bits(&ONCE);
    // Most requests have none.
    let is_repeated = |name: &Known| fields.all(*name).nth(1).is_some();
    match fields.may_have_any(ANY) && ONCE.iter().any(is_repeated) {
        true => Err(HeadError::Repeated),
        false => Ok(()),
    }
}

/// HTTP/2 fields as lines of text, and the head under construction.
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
        if self.text.len() + name.len() + value.len() + 4 > self.limits.head {
            return Err(HeadError::HeadTooLong);
        }
        if self.head.fields.spans() == self.limits.fields {
            return Err(HeadError::TooManyFields);
        }
        let dropped = known == Known::Other && !guard::is_plain_name(name);
        self.head.fields.put_line(&mut self.text, (known, name, value), dropped)
    }

    fn end(self) -> Box<RequestHead> {
        let Self { text, mut head, limits: _ } = self;
        let end = text.len();
        head.fields.stand_in(text.into(), end);
        head
    }
}
