//! The static table (RFC 7541 appendix A).

use super::block::{Kind, Nature, Pseudo};
use crate::codec::head::Known;

/// An entry.
pub(super) struct Fixed {
    /// The name with the value behind it.
    pub(super) text: &'static [u8],
    /// Octets of the name.
    pub(super) name: u8,
    pub(super) nature: Nature,
}

macro_rules! fixed {
    ($($name:literal $value:literal $kind:expr, $known:ident;)*) => {
        [$(Fixed {
            text: concat!($name, $value).as_bytes(),
            name: $name.len() as u8,
            nature: Nature { kind: $kind, known: Known::$known, is_bad: is_bad($kind, $value) },
        },)*]
    };
}

/// No pseudo-header field here may be empty.
const fn is_bad(kind: Kind, value: &str) -> bool {
    match kind {
        Kind::Pseudo(_) => value.is_empty(),
        Kind::Field => false,
        Kind::Refused => true,
    }
}

const FIELD: Kind = Kind::Field;
const AUTHORITY: Kind = Kind::Pseudo(Pseudo::Authority);
const METHOD: Kind = Kind::Pseudo(Pseudo::Method);
const PATH: Kind = Kind::Pseudo(Pseudo::Path);
const SCHEME: Kind = Kind::Pseudo(Pseudo::Scheme);
const STATUS: Kind = Kind::Pseudo(Pseudo::Status);
/// `transfer-encoding`.
const FRAMING: Kind = Kind::Refused;

/// The number of entries.
pub(super) const COUNT: usize = 61;

pub(super) static FIXED: [Fixed; COUNT] = ROWS;

pub(super) const ROWS: [Fixed; COUNT] = fixed! {
    ":authority" "" AUTHORITY, Other;
    ":method" "GET" METHOD, Other;
    ":method" "POST" METHOD, Other;
    ":path" "/" PATH, Other;
    ":path" "/index.html" PATH, Other;
    ":scheme" "http" SCHEME, Other;
    ":scheme" "https" SCHEME, Other;
    ":status" "200" STATUS, Other;
    ":status" "204" STATUS, Other;
    ":status" "206" STATUS, Other;
    ":status" "304" STATUS, Other;
    ":status" "400" STATUS, Other;
    ":status" "404" STATUS, Other;
    ":status" "500" STATUS, Other;
    "accept-charset" "" FIELD, Other;
    "accept-encoding" "gzip, deflate" FIELD, Other;
    "accept-language" "" FIELD, Other;
    "accept-ranges" "" FIELD, Other;
    "accept" "" FIELD, Accept;
    "access-control-allow-origin" "" FIELD, AccessControlAllowOrigin;
    "age" "" FIELD, Other;
    "allow" "" FIELD, Other;
    "authorization" "" FIELD, Authorization;
    "cache-control" "" FIELD, CacheControl;
    "content-disposition" "" FIELD, Other;
    "content-encoding" "" FIELD, Other;
    "content-language" "" FIELD, Other;
    "content-length" "" FIELD, ContentLength;
    "content-location" "" FIELD, Other;
    "content-range" "" FIELD, ContentRange;
    "content-type" "" FIELD, ContentType;
    "cookie" "" FIELD, Cookie;
    "date" "" FIELD, Date;
    "etag" "" FIELD, ETag;
    "expect" "" FIELD, Expect;
    "expires" "" FIELD, Expires;
    "from" "" FIELD, Other;
    "host" "" FIELD, Host;
    "if-match" "" FIELD, IfMatch;
    "if-modified-since" "" FIELD, IfModifiedSince;
    "if-none-match" "" FIELD, IfNoneMatch;
    "if-range" "" FIELD, IfRange;
    "if-unmodified-since" "" FIELD, IfUnmodifiedSince;
    "last-modified" "" FIELD, LastModified;
    "link" "" FIELD, Other;
    "location" "" FIELD, Location;
    "max-forwards" "" FIELD, Other;
    "proxy-authenticate" "" FIELD, Other;
    "proxy-authorization" "" FIELD, Other;
    "range" "" FIELD, Other;
    "referer" "" FIELD, Referer;
    "refresh" "" FIELD, Other;
    "retry-after" "" FIELD, RetryAfter;
    "server" "" FIELD, Server;
    "set-cookie" "" FIELD, SetCookie;
    "strict-transport-security" "" FIELD, StrictTransportSecurity;
    "transfer-encoding" "" FRAMING, TransferEncoding;
    "user-agent" "" FIELD, UserAgent;
    "vary" "" FIELD, Vary;
    "via" "" FIELD, Other;
    "www-authenticate" "" FIELD, WwwAuthenticate;
};
