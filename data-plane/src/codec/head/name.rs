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

            #[cfg(test)]
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
    /// Recognises a name, which is a token, ignoring case: its length and first letter leave few comparisons, or none.
    pub(crate) fn of(name: &[u8]) -> Self {
        let first = name.first().map_or(0, u8::to_ascii_lowercase);
        let candidates: &[Self] = match (name.len(), first) {
            (2, b't') => &[Self::Te],
            (4, b'd') => &[Self::Date],
            (4, b'h') => &[Self::Host],
            (4, b'v') => &[Self::Vary],
            (5, b'p') => &[Self::Proxy],
            (5, b'x') => &[Self::XPad],
            (6, b'a') => &[Self::Accept],
            (6, b'c') => &[Self::Cookie],
            (6, b'e') => &[Self::Expect],
            (6, b'o') => &[Self::Origin],
            (6, b's') => &[Self::Server],
            (6, b'x') => &[Self::XCode],
            (7, b'b') => &[Self::Baggage],
            (7, b'r') => &[Self::Referer],
            (7, b't') => &[Self::Trailer],
            (7, b'u') => &[Self::Upgrade],
            (8, b'l') => &[Self::Location],
            (8, b'x') => &[Self::XScheme, Self::XFormat],
            (9, b'f') => &[Self::Forwarded],
            (9, b'x') => &[Self::XRealIp],
            (10, b'c') => &[Self::Connection],
            (10, b'k') => &[Self::KeepAlive],
            (10, b's') => &[Self::SetCookie],
            (10, b't') => &[Self::Tracestate],
            (10, b'u') => &[Self::UserAgent],
            (11, b'r') => &[Self::RetryAfter],
            (11, b't') => &[Self::Traceparent],
            (11, b'x') => &[Self::XSentFrom, Self::XNamespace],
            (12, b'c') => &[Self::ContentType],
            (12, b'x') => &[Self::XRequestId],
            (13, b'a') => &[Self::Authorization],
            (13, b'c') => &[Self::CacheControl],
            (14, b'c') => &[Self::ContentLength],
            (14, b'h') => &[Self::Http2Settings],
            (14, b'x') => &[
                Self::XOriginalUri,
                Self::XOriginalUrl,
                Self::XIngressName,
                Self::XServiceName,
                Self::XServicePort,
            ],
            (15, b's') => &[Self::SslClientCert],
            (15, b'x') => &[Self::XForwardedFor, Self::XAccelExpires, Self::XAccelCharset],
            (16, b'p') => &[Self::ProxyConnection],
            (16, b'w') => &[Self::WwwAuthenticate],
            (16, b'x') => &[Self::XForwardedHost, Self::XForwardedPort, Self::XAccelRedirect],
            (17, b's') => &[Self::SslClientVerify],
            (17, b't') => &[Self::TransferEncoding],
            (17, b'x') => &[Self::XForwardedProto, Self::XOriginalMethod, Self::XAccelBuffering],
            (18, b'x') => &[Self::XForwardedScheme, Self::XForwardedPrefix, Self::XAccelLimitRate],
            (20, b's') => &[Self::SslClientIssuerDn],
            (21, b's') => &[Self::SslClientSubjectDn],
            (22, b'a') => &[Self::AccessControlMaxAge],
            (23, b'x') => &[Self::XAuthRequestRedirect],
            (24, b'x') => &[Self::XOriginalForwardedFor],
            (25, b's') => &[Self::StrictTransportSecurity],
            (25, b'x') => &[Self::XOriginalForwardedHost],
            (27, b'a') => &[Self::AccessControlAllowOrigin],
            (28, b'a') => &[Self::AccessControlAllowMethods, Self::AccessControlAllowHeaders],
            (29, b'a') => &[Self::AccessControlRequestMethod, Self::AccessControlExposeHeaders],
            (30, b'a') => &[Self::AccessControlRequestHeaders],
            (32, b'a') => &[Self::AccessControlAllowCredentials],
            _ => return Self::Other,
        };
        let found = candidates.iter().find(|known| is_spelled(name, known.lower()));
        found.copied().unwrap_or(Self::Other)
    }

    /// This name's bit in masks; [`Known::Other`] has none.
    pub(crate) const fn bit(self) -> u128 {
        match self {
            Self::Other => 0,
            known => 1 << known as u8,
        }
    }

    /// The bits of all hop-by-hop names.
    pub(crate) const HOP_BY_HOP: u128 = Self::Connection.bit()
        | Self::TransferEncoding.bit()
        | Self::Upgrade.bit()
        | Self::Te.bit()
        | Self::Trailer.bit()
        | Self::KeepAlive.bit()
        | Self::ProxyConnection.bit()
        | Self::Http2Settings.bit();

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
    const CASE: u64 = u64::from_ne_bytes([b' '; 8]);
    let equal =
        |one: &[u8; 8], other: &[u8; 8]| u64::from_ne_bytes(*one) | CASE == u64::from_ne_bytes(*other);
    let (Some(ends), Some(lower_ends)) = (token.last_chunk(), lower.last_chunk()) else {
        return token.eq_ignore_ascii_case(lower);
    };
    // As below, the last eight may overlap with those before.
    token.len() == lower.len()
        && token.as_chunks().0.iter().zip(lower.as_chunks().0).all(|(one, other)| equal(one, other))
        && equal(ends, lower_ends)
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
