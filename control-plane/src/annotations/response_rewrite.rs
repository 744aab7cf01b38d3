//! Rewriting of redirects and cookies in backends' responses.

use shared::pattern::Pattern;
use shared::policy::Replacement;
use shared::template::{Template, Variable};

use super::row::{Effect, Risk, Row, Spec};
use super::snippets;
use super::value::{Grammar, URL_SPACED};

/// `proxy-cookie-domain`.
pub(crate) static PROXY_COOKIE_DOMAIN: Row = Row {
    name: "proxy-cookie-domain",
    risk: Risk::Medium,
    value: &Spec(DOMAINS, Effect::Sets(|to, it| to.location.proxy_cookie_domain = Some(it))),
    default: "off",
    doc: "Changes the domain of the backend's cookies: `from to`",
    ..Row::NEW
};

/// `proxy-cookie-path`.
pub(crate) static PROXY_COOKIE_PATH: Row = Row {
    name: "proxy-cookie-path",
    risk: Risk::Medium,
    value: &Spec(PATHS, Effect::Sets(|to, it| to.location.proxy_cookie_path = Some(it))),
    default: "off",
    doc: "Changes the beginning of the path of the backend's cookies: `from to`",
    ..Row::NEW
};

/// `proxy-cookie-domain`, the key.
pub(crate) static PROXY_COOKIE_DOMAIN_OF_ALL: Row = Row {
    value: &Spec(WORDS, Effect::Sets(|to, it| to.location.proxy_cookie_domain = Some(it))),
    ..PROXY_COOKIE_DOMAIN
};

/// `proxy-cookie-path`, the key.
pub(crate) static PROXY_COOKIE_PATH_OF_ALL: Row = Row {
    value: &Spec(WORDS, Effect::Sets(|to, it| to.location.proxy_cookie_path = Some(it))),
    ..PROXY_COOKIE_PATH
};

/// `proxy-redirect-from`.
pub(crate) static PROXY_REDIRECT_FROM: Row = Row {
    name: "proxy-redirect-from",
    risk: Risk::Medium,
    value: &Spec(FROM, Effect::Sets(|to, it| to.location.proxy_redirect_from = Some(it))),
    default: "off",
    doc: "Beginning of the backend's redirects that is replaced",
    ..Row::NEW
};

/// `proxy-redirect-to`.
pub(crate) static PROXY_REDIRECT_TO: Row = Row {
    name: "proxy-redirect-to",
    risk: Risk::Medium,
    value: &Spec(WORD, Effect::Sets(|to, it| to.location.proxy_redirect_to = Some(it))),
    default: "off",
    doc: "What replaces the beginning of the backend's redirects",
    ..Row::NEW
};

/// `proxy-redirect-from`, the key.
pub(crate) static PROXY_REDIRECT_FROM_OF_ALL: Row = Row {
    value: &Spec(FROM_OF_ALL, Effect::Sets(|to, it| to.location.proxy_redirect_from = Some(it))),
    ..PROXY_REDIRECT_FROM
};

/// `proxy-redirect-to`, the key.
pub(crate) static PROXY_REDIRECT_TO_OF_ALL: Row = Row {
    value: &Spec(TO_OF_ALL, Effect::Sets(|to, it| to.location.proxy_redirect_to = Some(it))),
    ..PROXY_REDIRECT_TO
};

pub(super) static ROWS: &[&Row] =
    &[&PROXY_COOKIE_DOMAIN, &PROXY_COOKIE_PATH, &PROXY_REDIRECT_FROM, &PROXY_REDIRECT_TO];

/// nginx would not start with one word other than `off`, nor with three.
const DOMAINS: Grammar<Replacement> = Grammar {
    words: "off, or two domains with a space between them",
    read: |text| {
        let is_domain = |c: char| c.is_ascii_alphanumeric() || "-._ ".contains(c);
        text.chars().all(is_domain).then(|| replacement(text)).flatten()
    },
    good: &["off", "localhost example.org", ".internal.test  example.org"],
    bad: &["example.org", "a b c", "a;b c", "x\ny z"],
};

/// A URL (ingress-nginx' `URLIsValidRegex`), spaces allowed, of two words.
const PATHS: Grammar<Replacement> = Grammar {
    words: "off, or two paths with a space between them",
    read: |text| (URL_SPACED.read)(text).and_then(|text| replacement(&text)),
    good: &["off", "/one/ /", "~/v. /"],
    bad: &["/one/", "/a /b /c", "/{ /", "/a\n/b"],
};

/// Words of nginx' configuration, which may be in quotes: ingress-nginx does not check the ConfigMap, where they are used
/// for attributes of cookies.
const WORDS: Grammar<Replacement> = Grammar {
    words: "off, or two words of nginx' configuration whose variables have values",
    read: |text| {
        let words = snippets::words(text)?;
        let (from, to) = (words.first()?, words.get(1));
        let are_fine = is_source(from) && to.is_none_or(|to| has_values(to, from.starts_with('~')));
        are_fine.then(|| from_words(words.iter().map(String::as_str))).flatten()
    },
    good: &["off", "/one/ /", r#"/ "/; Secure; HttpOnly""#, "~^/a(.*) /b$1", "/$host/ /"],
    bad: &["/one/", "/a /b /c", "/ '/; Secure", "/a /b$1", "/ /$nobody", r#"/ "/\n""#],
};

/// One such word.
const FROM_OF_ALL: Grammar<String> = Grammar {
    words: "off, default, or a word of nginx' configuration whose variables have values",
    read: |text| word(text).filter(|word| is_source(word) && is_from(word)),
    good: &["off", "default", "http://$host:8080/", "'~^http://([^:]+):[0-9]+(/.*)$'"],
    bad: &["http://$nobody/", "/a /b", "~("],
};

/// The same; groups are those of the other key's pattern.
const TO_OF_ALL: Grammar<String> = Grammar {
    words: "off, or a word of nginx' configuration whose variables have values",
    read: |text| word(text).filter(|word| has_values(word, true)),
    good: &["off", "https://$host/", "$scheme://$1$2"],
    bad: &["https://$nobody/", "/a /b", "$remote_user"],
};

/// A URL (ingress-nginx' `URLIsValidRegex`), one word.
const WORD: Grammar<String> = Grammar {
    words: "off, or a URL of letters, digits and / - . _ ~ : , ? & =",
    read: |text| (URL_SPACED.read)(text).filter(|text| !text.contains(' ')),
    good: &["off", "https://x.test/new/", "/"],
    bad: &["https://x.test/{", "/a /b", "x\ny"],
};

/// The same; `~` begins a regular expression.
const FROM: Grammar<String> = Grammar {
    words: "off, default, or a URL of letters, digits and / - . _ ~ : , ? & =",
    read: |text| (WORD.read)(text).filter(|text| is_from(text)),
    good: &["off", "default", "http://x.test/", "~//x.test/a?"],
    bad: &["https://x.test/{", "/a /b", "~?"],
};

/// `off` replaces nothing.
fn replacement(text: &str) -> Option<Replacement> {
    from_words(text.split_ascii_whitespace())
}

fn from_words<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Replacement> {
    match (words.next()?, words.next(), words.next()) {
        ("off", None, _) => Some(Replacement::default()),
        (from, Some(to), None) if is_from(from) => Some(Replacement { from: from.into(), to: to.into() }),
        _ => None,
    }
}

/// The only word of a text, as nginx reads it.
fn word(text: &str) -> Option<String> {
    let [word] = <[String; 1]>::try_from(snippets::words(text)?).ok()?;
    Some(word)
}

/// Whether what is replaced is a pattern, or a text that is known for each request.
fn is_source(word: &str) -> bool {
    word.starts_with('~') && !word.chars().any(char::is_control) || has_values(word, false)
}

/// Whether it is text of one line whose variables all have a value, groups of a pattern only if there is one.
fn has_values(word: &str, has_groups: bool) -> bool {
    let has_value = |variable: &Variable| match variable {
        Variable::Capture(_) => has_groups,
        // Nobody may have asked that user for a password.
        Variable::Named(_) | Variable::User => false,
        _ => true,
    };
    let template = Template::parse(word);
    !word.chars().any(char::is_control) && template.is_moderate() && template.variables().all(has_value)
}

/// Whether the pattern after a `~` can be compiled.
fn is_from(text: &str) -> bool {
    let pattern = text.strip_prefix("~*").or_else(|| text.strip_prefix('~'));
    pattern.is_none_or(|pattern| Pattern::anywhere(pattern).is_ok())
}

#[cfg(test)]
mod tests {
    use shared::policy::LocationPolicy;

    use super::super::tests::location;
    use super::*;

    #[test]
    fn cookies_have_two_words_or_off() {
        let configured = |from: &str, to: &str| Some(Replacement { from: from.into(), to: to.into() });
        for (text, domain) in [
            ("localhost example.org", configured("localhost", "example.org")),
            (" a.test   b.test ", configured("a.test", "b.test")),
            ("off", configured("", "")),
            ("example.org", None),
            ("a b c", None),
            ("a.test b.test;", None),
        ] {
            let faults = usize::from(domain.is_none());
            let expected = LocationPolicy { proxy_cookie_domain: domain, ..LocationPolicy::default() };
            assert_eq!(location(&[("proxy-cookie-domain", text)]), (expected, faults), "{text}");
        }
        for (text, path) in [
            ("/one/ /", configured("/one/", "/")),
            ("off", configured("", "")),
            ("/one", None),
            ("off off off", None),
            ("/{x} /", None),
        ] {
            let faults = usize::from(path.is_none());
            let expected = LocationPolicy { proxy_cookie_path: path, ..LocationPolicy::default() };
            assert_eq!(location(&[("proxy-cookie-path", text)]), (expected, faults), "{text}");
        }
    }

    #[test]
    fn cookies_of_the_fleet_may_be_given_attributes() {
        let read = |text| (WORDS.read)(text).map(|it| (it.from, it.to));
        let expected = |from: &str, to: &str| Some((from.to_owned(), to.to_owned()));
        assert_eq!(
            read(r#"/ "/; secure; HttpOnly; SameSite=strict""#),
            expected("/", "/; secure; HttpOnly; SameSite=strict")
        );
        assert_eq!(read("'~^/(a|b)$'   /"), expected("~^/(a|b)$", "/"));
        assert_eq!(read("off"), expected("", ""));
        assert_eq!(read("~^/x(.*) /$host$1"), expected("~^/x(.*)", "/$host$1"));
        for text in ["/ /$1", "/a$x /", "/ \"/\\r\"", "/ '/", "/ /{x}", "a b c", "~( /"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn redirects_have_one_word_each() {
        let configured =
            [("proxy-redirect-from", "http://a.test/"), ("proxy-redirect-to", "https://b.test/x/")];
        let expected = LocationPolicy {
            proxy_redirect_from: Some("http://a.test/".into()),
            proxy_redirect_to: Some("https://b.test/x/".into()),
            ..LocationPolicy::default()
        };
        assert_eq!(location(&configured), (expected, 0));
        for configured in [[("proxy-redirect-from", "~?")], [("proxy-redirect-to", "/a /b")]] {
            assert_eq!(location(&configured), (LocationPolicy::default(), 1), "{configured:?}");
        }
    }
}
