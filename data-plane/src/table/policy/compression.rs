//! Which responses are compressed (as in ingress-nginx).
//!
//! The rules are those of nginx' gzip filter and of ingress-nginx' brotli module, which are the same except for the
//! HTTP version. For intended deviations see docs/adr/015.

use std::collections::HashSet;

use foldhash::quality::RandomState;
use shared::pattern::{Pattern, Steps};
use shared::policy::{LocationPolicy, TextList};

use super::PolicyError;

/// The media types that ingress-nginx compresses by default, in order. text/html is always included.
const TYPES: [&str; 17] = [
    "application/atom+xml",
    "application/javascript",
    "application/json",
    "application/rss+xml",
    "application/vnd.ms-fontobject",
    "application/x-font-ttf",
    "application/x-javascript",
    "application/x-web-app-manifest+json",
    "application/xhtml+xml",
    "application/xml",
    "font/opentype",
    "image/svg+xml",
    "image/x-icon",
    "text/css",
    "text/javascript",
    "text/plain",
    "text/x-component",
];

/// In addition to those, for brotli.
const MORE_TYPES: &str = "application/xml+rss";

/// What is compressed, and how.
#[derive(Clone, Debug)]
pub struct Compression {
    gzip: Option<Rule>,
    brotli: Option<Rule>,
    /// Clients that get no gzip-compressed responses.
    without: Option<Without>,
}

/// When a coding is used.
#[derive(Clone, Debug)]
struct Rule {
    level: u32,
    /// Minimum length of a response whose length is known.
    least: u64,
    types: Types,
}

#[derive(Clone, Debug)]
enum Types {
    Usual { more: bool },
    These(HashSet<Box<str>, RandomState>),
    All,
}

#[derive(Clone, Debug)]
enum Without {
    /// nginx' `msie6`: Internet Explorer 4 to 6, except for version 6 with Windows XP SP2.
    Msie6,
    Agents(Pattern),
}

/// A content coding (RFC 9110 section 8.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coding {
    /// `gzip`
    Gzip,
    /// `br`
    Brotli,
}

impl Coding {
    /// Its name in headers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Brotli => "br",
        }
    }
}

/// The properties of a request that decide.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Accept-Encoding.
    pub accept: Option<&'a [u8]>,
    /// User-Agent.
    pub agent: Option<&'a [u8]>,
    /// Whether it speaks HTTP/1.0.
    pub is_http10: bool,
}

/// The properties of a response that decide.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// Content-Type.
    pub media_type: &'a [u8],
    /// Bytes of its body, if known.
    pub length: Option<u64>,
}

impl Compression {
    pub(super) fn compile(configured: &LocationPolicy) -> Result<Option<Box<Self>>, PolicyError> {
        let on = |configured: Option<bool>| configured == Some(true);
        let least = |configured: Option<u64>, usual| configured.unwrap_or(usual);
        let gzip = on(configured.use_gzip).then(|| Rule {
            level: configured.gzip_level.unwrap_or(1).clamp(1, 9),
            least: least(configured.gzip_min_length, 256),
            types: Types::compile(configured.gzip_types.as_ref(), false),
        });
        let brotli = on(configured.enable_brotli).then(|| Rule {
            level: configured.brotli_level.unwrap_or(4).min(11),
            least: least(configured.brotli_min_length, 20),
            types: Types::compile(configured.brotli_types.as_ref(), true),
        });
        if gzip.is_none() && brotli.is_none() {
            return Ok(None);
        }
        let without = configured.gzip_disable.as_deref().map(Without::compile).transpose()?;
        Ok(Some(Box::new(Self { gzip, brotli, without })))
    }

    /// Whether the response varies by Accept-Encoding, and the coding and level for this request.
    pub fn choose(&self, asked: &Asked<'_>, answer: &Answer<'_>) -> (bool, Option<(Coding, u32)>) {
        let applies = |rule: &&Rule| rule.applies(answer);
        let (gzip, brotli) = (self.gzip.as_ref().filter(applies), self.brotli.as_ref().filter(applies));
        let accepts = |coding: Coding| asked.accept.is_some_and(|text| accepts(text, coding.as_str()));
        let chosen = match (brotli, gzip) {
            (Some(rule), _) if accepts(Coding::Brotli) => Some((Coding::Brotli, rule.level)),
            (_, Some(rule)) if accepts(Coding::Gzip) && !asked.is_http10 && !self.spares(asked.agent) => {
                Some((Coding::Gzip, rule.level))
            }
            _ => None,
        };
        (gzip.is_some() || brotli.is_some(), chosen)
    }

    fn spares(&self, agent: Option<&[u8]>) -> bool {
        match (&self.without, agent) {
            (Some(without), Some(agent)) => without.is(agent),
            _ => false,
        }
    }
}

impl Rule {
    fn applies(&self, answer: &Answer<'_>) -> bool {
        answer.length.is_none_or(|length| length >= self.least) && self.types.have(answer.media_type)
    }
}

impl Types {
    fn compile(configured: Option<&TextList>, more: bool) -> Self {
        match configured {
            None => Self::Usual { more },
            Some(list) if list.values.iter().any(|it| it == "*") => Self::All,
            Some(list) => {
                let types = list.values.iter().map(|it| it.to_ascii_lowercase().into());
                Self::These(types.chain(["text/html".into()]).collect())
            }
        }
    }

    /// Whether a Content-Type is one of them, ignoring parameters.
    fn have(&self, media_type: &[u8]) -> bool {
        let bare = media_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let Ok(bare) = std::str::from_utf8(bare) else { return false };
        let bare = bare.to_ascii_lowercase();
        match self {
            _ if bare.is_empty() => false,
            Self::All => true,
            Self::These(types) => types.contains(bare.as_str()),
            Self::Usual { more } => {
                bare == "text/html"
                    || TYPES.binary_search(&bare.as_str()).is_ok()
                    || (*more && bare == MORE_TYPES)
            }
        }
    }
}

impl Without {
    fn compile(text: &str) -> Result<Self, PolicyError> {
        if text == "msie6" {
            return Ok(Self::Msie6);
        }
        let refused = |error| PolicyError { field: "gzip_disable", problem: format!("{text:?} is {error}") };
        Pattern::anywhere(&format!("(?i){text}")).map(Self::Agents).map_err(refused)
    }

    /// A User-Agent that cannot be matched in time gets the uncompressed response.
    fn is(&self, agent: &[u8]) -> bool {
        match self {
            Self::Agents(pattern) => pattern.is_match(agent, &Steps::new()).unwrap_or(true),
            Self::Msie6 => is_msie6(agent),
        }
    }
}

/// As nginx' `ngx_http_process_user_agent`.
fn is_msie6(agent: &[u8]) -> bool {
    let find = |what: &[u8]| agent.windows(what.len()).position(|part| part == what);
    let Some(version) = find(b"MSIE ").and_then(|at| agent.get(at + 5..)) else { return false };
    let has_service_pack = || find(b"SV1").is_some();
    match version {
        [b'4' | b'5', b'.', ..] => true,
        [b'6', b'.', ..] => !has_service_pack(),
        _ => false,
    }
}

/// Whether a client accepts a coding by its name: the first element with that name decides, as in nginx; `*` is
/// ignored.
fn accepts(text: &[u8], coding: &str) -> bool {
    for element in text.split(|byte| *byte == b',') {
        let mut parts = element.splitn(2, |byte| *byte == b';');
        let name = parts.next().unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(coding.as_bytes()) {
            return parts.next().is_none_or(|weight| is_some(weight.trim_ascii()));
        }
    }
    false
}

/// Whether a weight is valid and greater than 0 (RFC 9110 section 12.4.2).
fn is_some(weight: &[u8]) -> bool {
    let [b'q' | b'Q', b'=', whole @ (b'0' | b'1'), rest @ ..] = weight else {
        return weight.is_empty();
    };
    let digits = match rest {
        [] => rest,
        [b'.', digits @ ..] if digits.len() <= 3 => digits,
        _ => return false,
    };
    let is_zero = digits.iter().all(|digit| *digit == b'0');
    digits.iter().all(u8::is_ascii_digit) && (*whole == b'1') == is_zero
}

#[cfg(test)]
mod tests {
    use super::*;

    const GZIP: Asked<'_> = Asked { accept: Some(b"gzip"), agent: None, is_http10: false };

    fn compiled(configured: LocationPolicy) -> Compression {
        *Compression::compile(&configured).unwrap().unwrap()
    }

    fn gzip() -> LocationPolicy {
        LocationPolicy { use_gzip: Some(true), ..LocationPolicy::default() }
    }

    fn of(media_type: &str, length: Option<u64>) -> Answer<'_> {
        Answer { media_type: media_type.as_bytes(), length }
    }

    #[test]
    fn weights_are_read_as_nginx_reads_them() {
        for text in
            ["gzip", "GZip", "deflate, gzip", "gzip;q=1", "gzip; q=0.001", "gzip;Q=0.5, br", "gzip;q=1.000"]
        {
            assert!(accepts(text.as_bytes(), "gzip"), "{text}");
        }
        for text in [
            "",
            "*",
            "br",
            "xgzip",
            "gzip;q=0",
            "gzip;q=0.000",
            "gzip;q=0, gzip",
            "gzip;q=2",
            "gzip;x=1",
            "gzip;q=0.1111",
        ] {
            assert!(!accepts(text.as_bytes(), "gzip"), "{text}");
        }
    }

    #[test]
    fn types_and_lengths_decide() {
        let usual = compiled(gzip());
        let chosen = |it: &Compression, answer| it.choose(&GZIP, &answer);
        let yes = (true, Some((Coding::Gzip, 1)));
        for (media_type, length) in [
            ("text/html", Some(256)),
            ("Text/Plain; charset=utf-8", None),
            ("application/json", Some(10_000)),
            ("image/svg+xml ; x=1", None),
        ] {
            assert_eq!(chosen(&usual, of(media_type, length)), yes, "{media_type}");
        }
        for (media_type, length) in [
            ("text/html", Some(255)),
            ("image/png", None),
            ("", None),
            ("application/xml+rss", None),
            ("text", None),
        ] {
            assert_eq!(chosen(&usual, of(media_type, length)), (false, None), "{media_type}");
        }
        let list =
            |types: &[&str]| Some(TextList { values: types.iter().map(|it| (*it).to_owned()).collect() });
        let own = compiled(LocationPolicy { gzip_types: list(&["application/Foo"]), ..gzip() });
        assert_eq!(chosen(&own, of("application/foo", None)), yes);
        assert_eq!(chosen(&own, of("text/html", None)), yes);
        assert_eq!(chosen(&own, of("text/plain", None)), (false, None));
        let all = compiled(LocationPolicy { gzip_types: list(&["*"]), gzip_level: Some(7), ..gzip() });
        assert_eq!(chosen(&all, of("image/png", None)), (true, Some((Coding::Gzip, 7))));
    }

    #[test]
    fn vary_is_sent_to_clients_without_compression() {
        let it = compiled(LocationPolicy { gzip_disable: Some("msie6|old[0-9]".into()), ..gzip() });
        let html = of("text/html", None);
        let with = |agent: &'static [u8]| it.choose(&Asked { agent: Some(agent), ..GZIP }, &html);
        assert_eq!((with(b"OLD7"), with(b"MSIE6")), ((true, None), (true, None)));
        assert_eq!(with(b"new"), (true, Some((Coding::Gzip, 1))));
        assert_eq!(it.choose(&Asked { is_http10: true, ..GZIP }, &html), (true, None));
        assert_eq!(it.choose(&Asked { accept: None, ..GZIP }, &html), (true, None));
        let it = compiled(LocationPolicy { gzip_disable: Some("msie6".into()), ..gzip() });
        let spared = |agent: &[u8]| it.spares(Some(agent));
        assert!(spared(b"Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)"));
        assert!(spared(b"Mozilla/4.0 (compatible; MSIE 5.5; Windows NT 5.1; SV1)"));
        assert!(!spared(b"Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1; SV1)"));
        assert!(!spared(b"Mozilla/4.0 (compatible; MSIE 7.0)") && !spared(b"msie6"));
        let bad = LocationPolicy { gzip_disable: Some("(".into()), ..gzip() };
        assert_eq!(Compression::compile(&bad).unwrap_err().field, "gzip_disable");
    }

    #[test]
    fn brotli_comes_first() {
        let brotli = LocationPolicy { enable_brotli: Some(true), ..LocationPolicy::default() };
        let both = compiled(LocationPolicy { use_gzip: Some(true), ..brotli.clone() });
        let (html, feed) = (of("text/html", None), of("application/xml+rss", None));
        let asked = |accept: &'static str| Asked { accept: Some(accept.as_bytes()), ..GZIP };
        assert_eq!(both.choose(&asked("gzip, br"), &html).1, Some((Coding::Brotli, 4)));
        assert_eq!(both.choose(&asked("gzip, br;q=0"), &html).1, Some((Coding::Gzip, 1)));
        assert_eq!(both.choose(&asked("gzip, br"), &feed).1, Some((Coding::Brotli, 4)));
        assert_eq!(both.choose(&asked("gzip"), &feed), (true, None));
        let short = of("text/html", Some(20));
        assert_eq!(both.choose(&asked("gzip"), &short), (true, None), "others may get it");
        assert_eq!(both.choose(&asked("br"), &short).1, Some((Coding::Brotli, 4)));
        assert_eq!(compiled(brotli).choose(&asked("gzip"), &html), (true, None));
        assert!(Compression::compile(&LocationPolicy::default()).unwrap().is_none());
    }
}
