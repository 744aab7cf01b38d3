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

/// The text as written: words, each of which may be followed by a comma, a space, or both.
fn words(text: &str, is_word: impl Fn(&str) -> bool) -> Option<String> {
    let text = text.trim_end_matches(' ');
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
    /// Items of allowed characters that are no origins.
    skipped: Vec<String>,
}

const ORIGINS: Grammar<Origins> = Grammar {
    words: "origins (scheme://[*.]host[:port], null or *) with commas between them",
    read: origins,
    good: &["https://a.test", "*", "http://*.a.test:8080, null", "tauri://localhost:3000"],
    bad: &["bad value !", "https://a.test/x", "https://$host", "https://a.*"],
};

/// As ingress-nginx: one forbidden character invalidates the whole value; an item that is no origin is skipped.
fn origins(text: &str) -> Option<Origins> {
    let (mut taken, mut skipped) = (Vec::new(), Vec::new());
    for item in value::list(text) {
        let (scheme, rest) = match item.split_once("://") {
            Some((scheme, rest)) => (Some(scheme), rest),
            None => (None, item),
        };
        let (host, port) = match rest.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        };
        let name = host.strip_prefix("*.").unwrap_or(host);
        let is_clean = item == "*"
            || (scheme.is_none_or(|it| !it.is_empty() && it.bytes().all(|b| b.is_ascii_lowercase()))
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b))
                && port.is_none_or(|it| !it.is_empty() && it.bytes().all(|b| b.is_ascii_digit())));
        if !is_clean {
            return None;
        }
        let is_origin = matches!(item, "*" | "null") || (scheme.is_some() && !name.is_empty());
        if is_origin { &mut taken } else { &mut skipped }.push(item.to_owned());
    }
    if taken.iter().any(|it| it == "*") {
        taken = vec!["*".to_owned()];
    }
    Some(Origins { taken, skipped })
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
            ("bad value !", None),
            ("https://a.com, https://b.com/x", None),
            ("https://a.com:", None),
            ("HTTPS://a.com", None),
            ("https://a.com|.*", None),
        ] {
            assert_eq!(taken(text), expected, "{text}");
        }
        assert_eq!(origins("https://a.com, foo.bar.com").unwrap().skipped, ["foo.bar.com"]);
    }

    #[test]
    fn words_go_out_as_they_are_written() {
        for text in ["GET", "GET,PUT", "GET, PUT", "GET PUT", "GET,", "GET, "] {
            assert_eq!((METHODS.read)(text).as_deref(), Some(text.trim_end()), "{text:?}");
        }
        for text in ["GET; PUT", "GET,,PUT", "GET  PUT", ",GET", " GET", "GET ,PUT", "GET\n"] {
            assert_eq!((METHODS.read)(text), None, "{text:?}");
        }
        assert_eq!((EXPOSED.read)("*, X-A_b").as_deref(), Some("*, X-A_b"));
        assert_eq!((NAMES.read)("A,,B"), Some("A,,B".into()));
    }
}
