//! The field names that the proxy itself uses, recognised in one pass while a head is read.

macro_rules! known {
    ($($variant:ident = $text:literal,)*) => {
        /// A field name that the proxy itself uses. Every other name is [`Known::Other`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub(crate) enum Known {
            $(#[doc = concat!("`", $text, "`")] $variant,)*
            /// Any other name.
            Other,
        }

        impl Known {
            /// The name as the proxy writes it; empty for [`Known::Other`].
            pub(crate) const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Other => "",
                }
            }

            /// The same in lower case.
            const fn lower(self) -> &'static [u8] {
                match self {
                    $(Self::$variant => const { &lower_case::<{ $text.len() }>($text) },)*
                    Self::Other => b"",
                }
            }

            const ALL: &[Self] = &[$(Self::$variant,)*];
        }
    };
}

known! {
    Host = "Host",
    Connection = "Connection",
    ContentLength = "Content-Length",
    TransferEncoding = "Transfer-Encoding",
    Upgrade = "Upgrade",
    Expect = "Expect",
    Te = "TE",
    Trailer = "Trailer",
    KeepAlive = "Keep-Alive",
    ProxyConnection = "Proxy-Connection",
    Proxy = "Proxy",
    Http2Settings = "HTTP2-Settings",
    Authorization = "Authorization",
    Cookie = "Cookie",
    UserAgent = "User-Agent",
    Referer = "Referer",
    Forwarded = "Forwarded",
    CdnLoop = "CDN-Loop",
    XForwardedFor = "X-Forwarded-For",
    XForwardedHost = "X-Forwarded-Host",
    XForwardedPort = "X-Forwarded-Port",
    XForwardedProto = "X-Forwarded-Proto",
    XForwardedScheme = "X-Forwarded-Scheme",
    XForwardedPrefix = "X-Forwarded-Prefix",
    XScheme = "X-Scheme",
    XRealIp = "X-Real-IP",
    XRequestId = "X-Request-ID",
    XOriginalUri = "X-Original-URI",
    XOriginalUrl = "X-Original-URL",
    XOriginalMethod = "X-Original-Method",
    XOriginalForwardedFor = "X-Original-Forwarded-For",
    XOriginalForwardedHost = "X-Original-Forwarded-Host",
    Date = "Date",
    Server = "Server",
    Location = "Location",
    SetCookie = "Set-Cookie",
    ContentType = "Content-Type",
    LastModified = "Last-Modified",
    ETag = "ETag",
    Expires = "Expires",
    XAccelRedirect = "X-Accel-Redirect",
    XAccelExpires = "X-Accel-Expires",
    XAccelLimitRate = "X-Accel-Limit-Rate",
    XAccelBuffering = "X-Accel-Buffering",
    XAccelCharset = "X-Accel-Charset",
    XPad = "X-Pad",
    Accept = "Accept",
    CacheControl = "Cache-Control",
    RetryAfter = "Retry-After",
    Vary = "Vary",
    Origin = "Origin",
    IfMatch = "If-Match",
    IfNoneMatch = "If-None-Match",
    IfModifiedSince = "If-Modified-Since",
    IfUnmodifiedSince = "If-Unmodified-Since",
    IfRange = "If-Range",
    ContentRange = "Content-Range",
    AccessControlRequestMethod = "Access-Control-Request-Method",
    AccessControlRequestHeaders = "Access-Control-Request-Headers",
    AccessControlAllowOrigin = "Access-Control-Allow-Origin",
    AccessControlAllowMethods = "Access-Control-Allow-Methods",
    AccessControlAllowHeaders = "Access-Control-Allow-Headers",
    AccessControlAllowCredentials = "Access-Control-Allow-Credentials",
    AccessControlExposeHeaders = "Access-Control-Expose-Headers",
    AccessControlMaxAge = "Access-Control-Max-Age",
    StrictTransportSecurity = "Strict-Transport-Security",
    WwwAuthenticate = "WWW-Authenticate",
    XAuthRequestRedirect = "X-Auth-Request-Redirect",
    XSentFrom = "X-Sent-From",
    SslClientVerify = "ssl-client-verify",
    SslClientSubjectDn = "ssl-client-subject-dn",
    SslClientIssuerDn = "ssl-client-issuer-dn",
    SslClientCert = "ssl-client-cert",
    Traceparent = "traceparent",
    Tracestate = "tracestate",
    Baggage = "baggage",
    XCode = "X-Code",
    XFormat = "X-Format",
    XNamespace = "X-Namespace",
    XIngressName = "X-Ingress-Name",
    XServiceName = "X-Service-Name",
    XServicePort = "X-Service-Port",
}

impl Known {
    /// Recognises a name, which is a token, ignoring case: it is compared with the only one that it can be.
    pub(crate) fn of(name: &[u8]) -> Self {
        let known = PLACES.known[place(name, PLACES.multiplier)];
        if is_spelled(name, known.lower()) { known } else { Self::Other }
    }

    /// This name's bit in masks; [`Known::Other`] has none.
    pub(crate) const fn bit(self) -> u128 {
        match self {
            Self::Other => 0,
            known => 1 << known as u8,
        }
    }

    /// The mask of some names.
    pub(crate) const fn bits(names: &[Self]) -> u128 {
        let (mut mask, mut at) = (0, 0);
        while at < names.len() {
            mask |= names[at].bit();
            at += 1;
        }
        mask
    }

    /// The bits of all hop-by-hop names.
    pub(crate) const HOP_BY_HOP: u128 = Self::bits(&[
        Self::Connection,
        Self::TransferEncoding,
        Self::Upgrade,
        Self::Te,
        Self::Trailer,
        Self::KeepAlive,
        Self::ProxyConnection,
        Self::Http2Settings,
    ]);

    /// Whether only the writer decides about such a field: it is never copied from the received head.
    pub(crate) fn is_framing(self) -> bool {
        matches!(
            self,
            Self::Host | Self::Connection | Self::ContentLength | Self::TransferEncoding | Self::Upgrade
        )
    }

    /// Whether the field is hop-by-hop (RFC 9110 section 7.6.1).
    pub(crate) fn is_hop_by_hop(self) -> bool {
        self.is_in(Self::HOP_BY_HOP)
    }

    /// Whether it is in a mask.
    pub(crate) const fn is_in(self, mask: u128) -> bool {
        self.bit() & mask != 0
    }

    /// Whether the field cannot be removed by naming it in `Connection`, because routing, security or the backend
    /// relies on it.
    pub(crate) fn is_protected(self) -> bool {
        self != Self::Other
    }
}

/// Whether two names are equal ignoring case: eight octets at a time, because this runs for every name of every head.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let (Some(one_ends), Some(other_ends)) = (one.last_chunk(), other.last_chunk()) else {
        return one.eq_ignore_ascii_case(other);
    };
    let equal = |one: &[u8; 8], other: &[u8; 8]| folded(*one) == folded(*other);
    // The last eight overlap with those before, if the length is not a multiple of eight.
    let (ones, others) = (one.as_chunks().0, other.as_chunks().0);
    one.len() == other.len()
        && ones.iter().zip(others).all(|(one, other)| equal(one, other))
        && equal(one_ends, other_ends)
}

/// Whether a token equals, ignoring case, one that consists of lower-case letters, digits and dashes: apart from
/// capitals, only controls differ from these octets in just the case bit, and a token contains no controls.
fn is_spelled(token: &[u8], lower: &[u8]) -> bool {
    let equal =
        |(one, other): (&[u8; 8], &[u8; 8])| u64::from_le_bytes(*one) | CASE == u64::from_le_bytes(*other);
    // As above, the last eight may overlap with those before.
    token.len() == lower.len()
        && end_of(token) == end_of(lower)
        && token.as_chunks().0.iter().zip(lower.as_chunks().0).all(equal)
}

/// The case bit of eight octets.
const CASE: u64 = u64::from_le_bytes([b' '; 8]);

/// The last eight octets of a name, or all of a shorter one, in lower case.
const fn end_of(name: &[u8]) -> u64 {
    let end = match (name.last_chunk(), name.first_chunk(), name.last_chunk()) {
        (Some(end), _, _) => u64::from_le_bytes(*end),
        // Of five, three are in both halves.
        (None, Some(first), Some(last)) => {
            (u32::from_le_bytes(*first) as u64) << 32 | u32::from_le_bytes(*last) as u64
        }
        (None, _, _) => match *name {
            [a, b, c] => u64::from_le_bytes([a, b, c, 0, 0, 0, 0, 0]),
            [a, b] => u64::from_le_bytes([a, b, 0, 0, 0, 0, 0, 0]),
            [a] => a as u64,
            _ => 0,
        },
    };
    end | CASE
}

/// The places of names are numbers of so many bits.
const BITS: u32 = 10;

/// Where in [`PLACES`] a name is, if it is known: by its length and its end.
const fn place(name: &[u8], multiplier: u64) -> usize {
    ((end_of(name) ^ name.len() as u64).wrapping_mul(multiplier) >> (64 - BITS)) as usize
}

/// A perfect hash table of the known names.
struct Places {
    multiplier: u64,
    /// All other places have [`Known::Other`].
    known: [Known; 1 << BITS],
}

/// With the first of some random multipliers that gives each name a place of its own.
static PLACES: Places = {
    let mut multiplier: u64 = 1;
    loop {
        if let Some(known) = places(multiplier) {
            break Places { multiplier, known };
        }
        // Knuth's generator.
        multiplier =
            multiplier.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    }
};

const fn places(multiplier: u64) -> Option<[Known; 1 << BITS]> {
    let (mut places, mut at) = ([Known::Other; 1 << BITS], 0);
    while at < Known::ALL.len() {
        let place = &mut places[place(Known::ALL[at].lower(), multiplier)];
        if !matches!(*place, Known::Other) {
            return None;
        }
        *place = Known::ALL[at];
        at += 1;
    }
    Some(places)
}

const fn lower_case<const LENGTH: usize>(text: &str) -> [u8; LENGTH] {
    let (mut lower, mut at) = ([0; LENGTH], 0);
    while at < LENGTH {
        lower[at] = text.as_bytes()[at].to_ascii_lowercase();
        at += 1;
    }
    lower
}

/// Octets with ASCII letters folded: for each from `A` to `Z` the lower-case bit is set.
const fn folded(octets: [u8; 8]) -> u64 {
    const EACH: u64 = u64::from_ne_bytes([1; 8]);
    const TOP: u64 = 0x80 * EACH;
    let word = u64::from_ne_bytes(octets);
    // Without the top bits no sum carries into the next octet: a top bit is set in each octet that is at least this
    // value.
    let low = word & !TOP;
    let (from_a, past_z) = (low + (0x80 - b'A' as u64) * EACH, low + (0x7f - b'Z' as u64) * EACH);
    word | (from_a & !past_z & !word & TOP) >> 2
}

impl AsRef<[u8]> for Known {
    fn as_ref(&self) -> &[u8] {
        self.as_str().as_bytes()
    }
}

/// A key to look up fields by: a [`Known`] name (one comparison per field) or any text, ignoring case.
pub(crate) trait FieldName: Copy {
    /// Whether a field with this tag and name matches.
    fn is(self, known: Known, name: &[u8]) -> bool;

    /// The only known name that can match, if that is certain without looking at the fields.
    fn known(self) -> Option<Known> {
        None
    }
}

impl FieldName for Known {
    fn is(self, known: Known, _: &[u8]) -> bool {
        self == known
    }

    fn known(self) -> Option<Known> {
        (self != Self::Other).then_some(self)
    }
}

/// The fields that nginx' variable `$http_...` refers to: those of this name, and those with underscores for dashes.
/// In lower case and with dashes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfVariable<'n>(pub(crate) &'n str);

impl FieldName for OfVariable<'_> {
    fn is(self, _: Known, name: &[u8]) -> bool {
        let dashed = |b: &u8| if *b == b'_' { b'-' } else { b.to_ascii_lowercase() };
        name.len() == self.0.len() && name.iter().map(dashed).eq(self.0.bytes())
    }
}

impl FieldName for &str {
    fn is(self, _: Known, name: &[u8]) -> bool {
        is_same(name, self.as_bytes())
    }
}

impl FieldName for &[u8] {
    fn is(self, _: Known, name: &[u8]) -> bool {
        is_same(name, self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_two_octets_are_compared_as_one_by_one() {
        for length in [1, 7, 8, 9, 16, 21] {
            for (one, other) in (0..=255).flat_map(|one| (0..=255).map(move |other| (one, other))) {
                for place in [0, length / 2, length - 1] {
                    let (mut left, mut right) = (vec![b'x'; length], vec![b'X'; length]);
                    (left[place], right[place]) = (one, other);
                    assert_eq!(
                        is_same(&left, &right),
                        left.eq_ignore_ascii_case(&right),
                        "{left:?} {right:?}"
                    );
                }
            }
        }
        assert!(!is_same(b"content-length", b"content-lengt") && !is_same(b"", b"a") && is_same(b"", b""));
        assert!(!is_same(b"12345678", b"123456789"));
    }

    #[test]
    fn every_name_is_recognised_in_any_case() {
        for &known in Known::ALL {
            let name = known.as_str();
            assert_eq!(Known::of(name.as_bytes()), known, "{name}");
            assert_eq!(Known::of(name.to_ascii_lowercase().as_bytes()), known, "{name}");
            assert_eq!(Known::of(name.to_ascii_uppercase().as_bytes()), known, "{name}");
            assert_eq!(Known::of(format!("{name}x").as_bytes()), Known::Other, "{name}");
        }
        assert_eq!(Known::of(b""), Known::Other);
        assert!(Known::ALL.len() < 128, "a mask has 128 bits");
    }
}
