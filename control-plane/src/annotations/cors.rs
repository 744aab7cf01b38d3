//! Cross-origin requests (CORS).

use shared::policy::TextList;

use super::row::{Effect, Risk, Row, Spec};
use super::value::{self, BOOL, Grammar, INT};

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "cors-allow-credentials",
        value: &Spec(BOOL, Effect::Sets(|to, it| to.location.cors_allow_credentials = Some(it))),
        needs: Some("enable-cors"),
        default: "true",
        doc: "Header `Access-Control-Allow-Credentials`",
        harmless: true,
        ..Row::NEW
    },
    &Row {
        name: "cors-allow-headers",
        risk: Risk::Medium,
        value: &Spec(NAMES, Effect::Sets(|to, it| to.location.cors_allow_headers = Some(it))),
        needs: Some("enable-cors"),
        default: "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization",
        doc: "Header `Access-Control-Allow-Headers`",
        ..Row::NEW
    },
    &Row {
        name: "cors-allow-methods",
        risk: Risk::Medium,
        value: &Spec(METHODS, Effect::Sets(|to, it| to.location.cors_allow_methods = Some(it))),
        needs: Some("enable-cors"),
        default: "GET, PUT, POST, DELETE, PATCH, OPTIONS",
        doc: "Header `Access-Control-Allow-Methods`",
        harmless: true,
        ..Row::NEW
    },
    &Row {
        name: "cors-allow-origin",
        risk: Risk::Medium,
        value: &Spec(
            ORIGINS,
            Effect::Sets(|to, it| {
                to.leave_out("scheme://host[:port]", it.skipped);
                to.location.cors_allow_origin = Some(TextList { values: it.taken });
            }),
        ),
        needs: Some("enable-cors"),
        default: "*",
        doc: "Origins that are allowed",
        ..Row::NEW
    },
    &Row {
        name: "cors-expose-headers",
        risk: Risk::Medium,
        value: &Spec(EXPOSED, Effect::Sets(|to, it| to.location.cors_expose_headers = Some(it))),
        needs: Some("enable-cors"),
        doc: "Header `Access-Control-Expose-Headers`",
        ..Row::NEW
    },
    &Row {
        name: "cors-max-age",
        value: &Spec(INT, Effect::Sets(|to, it| to.location.cors_max_age = Some(it))),
        needs: Some("enable-cors"),
        default: "1728000",
        doc: "Header `Access-Control-Max-Age`",
        harmless: true,
        ..Row::NEW
    },
    &Row {
        name: "enable-cors",
        value: &Spec(BOOL, Effect::Sets(|to, it| to.location.enable_cors = Some(it))),
        default: "false",
        doc: "Add CORS headers to responses, and answer preflight requests",
        harmless: true,
        ..Row::NEW
    },
];

/// The value is sent as written.
const NAMES: Grammar<String> = Grammar {
    words: "names of headers: letters, digits, - and _, with commas between them",
    read: |text| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_, ".contains(c);
        text.chars().all(is_allowed).then(|| text.trim().to_owned())
    },
    good: &["X-Total, X-Page"],
    bad: &["X:Y", "X-A\"b"],
};

const METHODS: Grammar<String> = Grammar {
    words: "names of methods with a comma or a space between them",
    read: |text| words(text, |word| word.bytes().all(|b| b.is_ascii_alphabetic())),
    good: &["POST, GET", "GET PUT"],
    bad: &["GET; POST", "X-GET", "*"],
};

const EXPOSED: Grammar<String> = Grammar {
    words: "names of headers or *, with a comma or a space between them",
    read: |text| {
        let is_name = |word: &str| word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
        words(text, |word| word == "*" || is_name(word))
    },
    good: &["X-Total, X-Page", "*"],
    bad: &["X:Y", "X-A;"],
};

/// The text as written, without the spaces around it: words, each of which may be followed by a comma, a space, or both.
fn words(text: &str, is_word: impl Fn(&str) -> bool) -> Option<String> {
    let text = value::trimmed(text);
    let mut rest = text;
    while !rest.is_empty() {
        let (word, behind) = rest.split_at(rest.find([',', ' ']).unwrap_or(rest.len()));
        if word.is_empty() || !is_word(word) {
            return None;
        }
        let behind = behind.strip_prefix(',').unwrap_or(behind);
        rest = behind.strip_prefix(' ').unwrap_or(behind);
    }
    Some(text.to_owned())
}

/// The items of a list of origins.
struct Origins {
    /// The valid origins; only `*` if that is one of them.
    taken: Vec<String>,
    /// Items that are not one origin.
    skipped: Vec<String>,
}

const ORIGINS: Grammar<Origins> = Grammar {
    words: "origins (scheme://[*.]host[:port], null or *) with commas between them",
    read: origins,
    good: &["https://a.test", "*", "http://*.a.test:8080, null", "tauri://localhost:3000"],
    bad: &["bad value !", "https://a.test/x", "https://$host", "https://a.*"],
};

/// As ingress-nginx: what can be no sequence of origins invalidates the whole value; then an item that is not one origin is
/// skipped. So origins without a comma between them let nobody in, while an invalid value lets everybody in.
fn origins(text: &str) -> Option<Origins> {
    if !text.split(',').all(|item| item.trim() == "*" || is_of_origins(item)) {
        return None;
    }
    let (mut taken, skipped): (Vec<_>, Vec<_>) =
        value::list(text).map(str::to_owned).partition(|item| is_origin(item));
    if taken.iter().any(|it| it == "*") {
        taken = vec!["*".to_owned()];
    }
    Some(Origins { taken, skipped })
}

/// Whether a text is a sequence of origins, or of their hosts or ports. ingress-nginx' validator removes the spaces first, and
/// needs nothing between one and the next.
fn is_of_origins(item: &str) -> bool {
    let octets: Vec<u8> = item.bytes().filter(|octet| *octet != b' ').collect();
    let (mut rest, mut before) = (&octets[..], None::<u8>);
    while let [octet, behind @ ..] = rest {
        let taken = match (octet, behind) {
            (b'*', [b'.', ..]) => 2,
            (b':', [b'/', b'/', ..]) if before.is_some_and(|it| it.is_ascii_lowercase()) => 3,
            (b':', [digit, ..]) if digit.is_ascii_digit() => 2,
            (b'-' | b'.', _) => 1,
            (octet, _) if octet.is_ascii_alphanumeric() => 1,
            _ => return false,
        };
        (rest, before) = (&rest[taken..], Some(rest[taken - 1]));
    }
    true
}

fn is_origin(item: &str) -> bool {
    if matches!(item, "*" | "null") {
        return true;
    }
    let Some((scheme, rest)) = item.split_once("://") else { return false };
    let (host, port) = rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port)));
    let name = host.strip_prefix("*.").unwrap_or(host);
    let is_text_of =
        |text: &str, is_allowed: fn(u8) -> bool| !text.is_empty() && text.bytes().all(is_allowed);
    is_text_of(scheme, |octet| octet.is_ascii_lowercase())
        && is_text_of(name, |octet| octet.is_ascii_alphanumeric() || b"-.".contains(&octet))
        && port.is_none_or(|port| is_text_of(port, |octet| octet.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &str) -> Option<Vec<String>> {
        origins(text).map(|it| it.taken)
    }

    #[test]
    fn origins_are_taken_one_by_one() {
        let some = |list: &[&str]| Some(list.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
        for (text, expected) in [
            ("https://a.com, http://*.b.com:8080", some(&["https://a.com", "http://*.b.com:8080"])),
            ("https://a.com, *, foo.bar.com", some(&["*"])),
            ("https://a.com,null", some(&["https://a.com", "null"])),
            ("foo.bar.com", some(&[])),
            ("https://, https://*.", some(&[])),
            // Without its spaces each of these passes, and none of them is one origin.
            ("https://a.com https://b.com", some(&[])),
            ("https://a.com:80:90, null", some(&["null"])),
            ("https://a.*.b.com, https:// a.com", some(&[])),
            ("bad value !", None),
            ("https://a.com, https://b.com/x", None),
            ("https://a.com:", None),
            ("HTTPS://a.com", None),
            ("https://a.com:80 ://b.com", None),
            ("https://a.*", None),
            ("https://a.com|.*", None),
        ] {
            assert_eq!(taken(text), expected, "{text}");
        }
        assert_eq!(origins("https://a.com, foo.bar.com").unwrap().skipped, ["foo.bar.com"]);
    }

    #[test]
    fn words_go_out_as_they_are_written() {
        for text in ["GET", "GET,PUT", "GET, PUT", "GET PUT", "GET,", "GET, ", " GET"] {
            assert_eq!((METHODS.read)(text).as_deref(), Some(text.trim()), "{text:?}");
        }
        for text in ["GET; PUT", "GET,,PUT", "GET  PUT", ",GET", "GET ,PUT", "GET\n"] {
            assert_eq!((METHODS.read)(text), None, "{text:?}");
        }
        assert_eq!((EXPOSED.read)("*, X-A_b").as_deref(), Some("*, X-A_b"));
        assert_eq!((NAMES.read)("A,,B"), Some("A,,B".into()));
    }
}
