//! Rewrites cookies and redirects in responses of endpoints into what clients have to see (nginx'
//! `proxy_cookie_domain`, `proxy_cookie_path`, `proxy_cookie_flags` and `proxy_redirect`; as in ingress-nginx).

mod flags;

use std::borrow::Cow;

use shared::pattern::{Groups, Pattern, Steps};
use shared::policy::{LocationPolicy, Replacement};
use shared::template::Template;

use self::flags::Flags;
use super::PolicyError;

/// Replacements in responses of endpoints.
#[derive(Clone, Debug)]
pub struct ResponseRewrite {
    domain: Option<Replace>,
    path: Option<Replace>,
    flags: Flags,
    redirect: Option<Replace>,
}

/// A part of a `Set-Cookie`: the cookie itself, or what is said of it.
struct Attribute<'a> {
    name: &'a [u8],
    value: Option<Cow<'a, [u8]>>,
}

/// What a pattern found, and in which text.
pub type Found<'a> = Option<(&'a Groups, &'a [u8])>;

/// What a request gives to the texts of these rules.
pub struct Asked<'a> {
    /// The budget of its patterns.
    pub steps: &'a Steps,
    /// Fills in a text with variables; `None`: it comes to too much, and nothing is replaced.
    pub fill: &'a dyn Fn(&Template, Found<'_>) -> Option<Vec<u8>>,
}

/// Replaces one text by another.
#[derive(Clone, Debug)]
struct Replace {
    from: From,
    to: Template,
}

#[derive(Clone, Debug)]
enum From {
    /// This prefix is replaced.
    Text(Template),
    /// The whole value is replaced if this matches.
    Pattern(Pattern),
}

impl ResponseRewrite {
    pub(super) fn compile(configured: &LocationPolicy) -> Result<Option<Box<Self>>, PolicyError> {
        let cookie = |field, configured: &Option<Replacement>, read: fn(&str) -> &str| match configured {
            Some(Replacement { from, to }) if !from.is_empty() => {
                Replace::new(field, read(from), read(to)).map(Some)
            }
            _ => Ok(None),
        };
        // nginx' default refers to the name of its own upstream, which no endpoint knows.
        let is_configured = |text: &&String| !matches!(text.as_str(), "" | "off" | "default");
        let from = configured.proxy_redirect_from.as_ref().filter(is_configured);
        let to = configured.proxy_redirect_to.as_deref().unwrap_or("off");
        // Compiled in any case: whether a policy is supported must depend on no other field.
        let redirect = from.map(|from| Replace::new("proxy_redirect_from", from, to)).transpose()?;
        let rewrite = Self {
            // A leading dot has no meaning, here as in the attribute.
            domain: cookie("proxy_cookie_domain", &configured.proxy_cookie_domain, |text| {
                text.strip_prefix('.').unwrap_or(text)
            })?,
            path: cookie("proxy_cookie_path", &configured.proxy_cookie_path, |text| text)?,
            flags: Flags::compile(configured.proxy_cookie_flags.as_ref())?,
            redirect: redirect.filter(|_| to != "off"),
        };
        Ok((rewrite.has_cookies() || rewrite.redirect.is_some()).then(|| Box::new(rewrite)))
    }

    /// Whether cookies are changed.
    pub fn has_cookies(&self) -> bool {
        self.domain.is_some() || self.path.is_some() || !self.flags.is_empty()
    }

    /// A `Set-Cookie` as the client should see it; `None`: unchanged.
    pub fn cookie(&self, value: &[u8], asked: &Asked<'_>) -> Option<Vec<u8>> {
        let mut attributes: Vec<_> = value.split(|byte| *byte == b';').map(Attribute::parse).collect();
        // As in nginx: without a value it is no cookie.
        attributes.first()?.value.as_ref()?;
        let mut changed = false;
        for it in attributes.iter_mut().skip(1) {
            let Some(text) = &it.value else { continue };
            let new = match it.name {
                name if name.eq_ignore_ascii_case(b"domain") => self.new_domain(text, asked),
                name if name.eq_ignore_ascii_case(b"path") => {
                    self.path.as_ref().and_then(|it| it.apply(text, asked))
                }
                _ => None,
            };
            if let Some(new) = new {
                it.value = Some(Cow::Owned(new));
                changed = true;
            }
        }
        changed |= self.flags.apply(&mut attributes, asked.steps);
        changed.then(|| joined(&attributes, value.len() + 64))
    }

    /// Replaces a whole domain, ignoring case; a leading dot stays.
    fn new_domain(&self, text: &[u8], asked: &Asked<'_>) -> Option<Vec<u8>> {
        let replace = self.domain.as_ref()?;
        let From::Text(from) = &replace.from else { return replace.apply(text, asked) };
        let (dot, bare) = text.split_at(usize::from(text.first() == Some(&b'.')));
        let is_it = asked.filled(from, None)?.eq_ignore_ascii_case(bare);
        is_it.then(|| Some([dot, &asked.filled(&replace.to, None)?].concat())).flatten()
    }

    /// A `Location` as the client should see it; `None`: unchanged.
    pub fn location(&self, value: &[u8], asked: &Asked<'_>) -> Option<Vec<u8>> {
        self.redirect.as_ref()?.apply(value, asked)
    }

    /// A `Refresh` header with its URL rewritten; `None`: unchanged.
    pub fn refresh(&self, value: &[u8], asked: &Asked<'_>) -> Option<Vec<u8>> {
        const URL: &[u8] = b"url=";
        let place = value.windows(URL.len()).position(|part| part.eq_ignore_ascii_case(URL))?;
        let (before, url) = value.split_at(place + URL.len());
        Some([before, &self.location(url, asked)?].concat())
    }
}

impl Asked<'_> {
    fn filled<'t>(&self, template: &'t Template, found: Found<'_>) -> Option<Cow<'t, [u8]>> {
        match template.as_literal() {
            Some(text) => Some(Cow::Borrowed(text.as_bytes())),
            None => (self.fill)(template, found).map(Cow::Owned),
        }
    }
}

impl<'a> Attribute<'a> {
    fn parse(text: &'a [u8]) -> Self {
        let mut halves = text.trim_ascii().splitn(2, |byte| *byte == b'=');
        let name = halves.next().unwrap_or_default().trim_ascii_end();
        Self { name, value: halves.next().map(|text| Cow::Borrowed(text.trim_ascii_start())) }
    }
}

fn joined(attributes: &[Attribute<'_>], room: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(room);
    for (place, Attribute { name, value }) in attributes.iter().enumerate() {
        if place > 0 {
            out.extend_from_slice(b"; ");
        }
        out.extend_from_slice(name);
        if let Some(text) = value {
            out.push(b'=');
            out.extend_from_slice(text);
        }
    }
    out
}

impl From {
    fn parse(text: &str) -> Result<Self, String> {
        let pattern = match (text.strip_prefix("~*"), text.strip_prefix('~')) {
            (Some(text), _) => Pattern::anywhere(&format!("(?i){text}")),
            (None, Some(text)) => Pattern::anywhere(text),
            (None, None) => return Ok(Self::Text(Template::parse(text))),
        };
        pattern.map(Self::Pattern).map_err(|error| format!("{text:?} is {error}"))
    }
}

impl Replace {
    fn new(field: &'static str, from: &str, to: &str) -> Result<Self, PolicyError> {
        let from = From::parse(from).map_err(|problem| PolicyError { field, problem })?;
        Ok(Self { from, to: Template::parse(to) })
    }

    fn apply(&self, text: &[u8], asked: &Asked<'_>) -> Option<Vec<u8>> {
        match &self.from {
            From::Text(from) => {
                let rest = text.strip_prefix(&*asked.filled(from, None)?)?;
                Some([&asked.filled(&self.to, None)?, rest].concat())
            }
            From::Pattern(pattern) => {
                let groups = pattern.groups(text, asked.steps).ok()??;
                asked.filled(&self.to, Some((&groups, text))).map(Cow::into_owned)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::template::Variable;

    use super::*;

    /// Of a request whose variables are all `v`.
    pub(super) fn plain(steps: &Steps) -> Asked<'_> {
        Asked {
            steps,
            fill: &|template, found| {
                let mut out = Vec::new();
                let value = |variable: &Variable, out: &mut Vec<u8>| match (variable, found) {
                    (Variable::Capture(number), Some((groups, text))) => {
                        out.extend_from_slice(groups.get(usize::from(*number), text));
                    }
                    _ => out.push(b'v'),
                };
                template.fill(&mut out, 1 << 10, value).ok()?;
                Some(out)
            },
        }
    }

    fn replacing(from: &str, to: &str) -> Option<Replacement> {
        Some(Replacement { from: from.into(), to: to.into() })
    }

    fn cookies(domain: (&str, &str), path: (&str, &str)) -> impl Fn(&str) -> String {
        let configured = LocationPolicy {
            proxy_cookie_domain: replacing(domain.0, domain.1),
            proxy_cookie_path: replacing(path.0, path.1),
            ..LocationPolicy::default()
        };
        let rewrite = ResponseRewrite::compile(&configured).unwrap().unwrap();
        move |cookie| {
            let new =
                rewrite.cookie(cookie.as_bytes(), &plain(&Steps::new())).unwrap_or_else(|| cookie.into());
            String::from_utf8(new).unwrap()
        }
    }

    #[test]
    fn domains_are_compared_whole_and_paths_from_their_beginning() {
        let new = cookies(("localhost", "example.org"), ("/one/", "/"));
        for (came, goes) in [
            ("a=1; Domain=localhost; Path=/one/x", "a=1; Domain=example.org; Path=/x"),
            ("a=1;path=/one/;DOMAIN=LOCALHOST", "a=1; path=/; DOMAIN=example.org"),
            ("a=1; domain=.localhost ; HttpOnly", "a=1; domain=.example.org; HttpOnly"),
            ("a=1; Domain=my.localhost; Path=/One/x", "a=1; Domain=my.localhost; Path=/One/x"),
            ("a=1;Domain=other.test;  Secure", "a=1;Domain=other.test;  Secure"),
            ("domain=localhost; Path=/two", "domain=localhost; Path=/two"),
            ("a=b=c;Path=/one/", "a=b=c; Path=/"),
            ("=;Path=/one/", "=; Path=/"),
            ("a; Path=/one/x", "a; Path=/one/x"),
            ("; Path=/one/x", "; Path=/one/x"),
            ("", ""),
        ] {
            assert_eq!(new(came), goes);
        }
        let dotted = cookies((".a.test", ".b.test"), ("", ""));
        assert_eq!(dotted("x=y; Domain=a.test"), "x=y; Domain=b.test");
        let pattern = cookies(("", ""), ("~/v[0-9]+/", "/"));
        assert_eq!(pattern("x=y; Path=/v12/deep"), "x=y; Path=/", "all of what it is found in");
    }

    #[test]
    fn redirects_lose_their_beginning() {
        let redirect = |from: &str, to: &str| {
            let configured = LocationPolicy {
                proxy_redirect_from: Some(from.into()),
                proxy_redirect_to: Some(to.into()),
                ..LocationPolicy::default()
            };
            ResponseRewrite::compile(&configured).unwrap()
        };
        let text = |new: Option<Vec<u8>>| new.map(|new| String::from_utf8(new).unwrap());
        let rewrite = redirect("http://a.test/", "https://b.test/new/").unwrap();
        let location = |url: &str| text(rewrite.location(url.as_bytes(), &plain(&Steps::new())));
        assert_eq!(location("http://a.test/x?y=1").as_deref(), Some("https://b.test/new/x?y=1"));
        assert_eq!(location("http://A.test/x"), None, "in this case");
        assert_eq!(location("/x"), None);
        let refresh = |value: &str| text(rewrite.refresh(value.as_bytes(), &plain(&Steps::new())));
        assert_eq!(refresh("5; URL=http://a.test/z").as_deref(), Some("5; URL=https://b.test/new/z"));
        assert_eq!((refresh("5"), refresh("5; url=/z")), (None, None));
        for (from, to) in [("off", "/x"), ("default", "/x"), ("http://a.test/", "off"), ("", "/x")] {
            assert!(redirect(from, to).is_none(), "{from} {to}");
        }
        let pattern = redirect("~*A[.]TEST", "/").unwrap();
        assert_eq!(text(pattern.location(b"http://a.test/x", &plain(&Steps::new()))).as_deref(), Some("/"));
    }

    #[test]
    fn texts_have_variables_and_groups() {
        let (from, to) = ("~^http://([^:/]+):[0-9]+(/.*)$", "https://$host.$1$2");
        let configured = LocationPolicy {
            proxy_redirect_from: Some(from.into()),
            proxy_redirect_to: Some(to.into()),
            ..LocationPolicy::default()
        };
        let rewrite = ResponseRewrite::compile(&configured).unwrap().unwrap();
        let steps = Steps::new();
        let location = |url: &str| rewrite.location(url.as_bytes(), &plain(&steps));
        assert_eq!(location("http://a.test:8080/x?y").as_deref(), Some(&b"https://v.a.test/x?y"[..]));
        assert_eq!(location("http://a.test/x"), None);
        for (domain, path, came, goes) in [
            (
                ("~[.]?b[.](.+)$", "$1"),
                ("~^/one(/.*)?$", "/$host$1"),
                "Domain=.b.test; Path=/one/x",
                "Domain=test; Path=/v/x",
            ),
            ((".$host", "$host.$http_host"), ("/$host/", "/"), "Domain=V; Path=/v/x", "Domain=v.v; Path=/x"),
            (("$host.test", "x"), ("/$host/", "/"), "Domain=w.test; Path=/w/", "Domain=w.test; Path=/w/"),
        ] {
            assert_eq!(cookies(domain, path)(&format!("a=b; {came}")), format!("a=b; {goes}"));
        }
    }

    #[test]
    fn invalid_pattern_is_refused() {
        let refused = |configured| ResponseRewrite::compile(&configured).unwrap_err().field;
        let default = LocationPolicy::default;
        assert_eq!(
            refused(LocationPolicy { proxy_cookie_domain: replacing("~(", "x"), ..default() }),
            "proxy_cookie_domain"
        );
        assert_eq!(
            refused(LocationPolicy { proxy_cookie_path: replacing("~(", "x"), ..default() }),
            "proxy_cookie_path"
        );
        assert_eq!(
            refused(LocationPolicy { proxy_redirect_from: Some("~(".into()), ..default() }),
            "proxy_redirect_from"
        );
    }

    #[test]
    fn many_cookies_have_the_steps_of_one_request() {
        let path = replacing("~(a|b)*c$", "/");
        let configured = LocationPolicy { proxy_cookie_path: path, ..LocationPolicy::default() };
        let rewrite = ResponseRewrite::compile(&configured).unwrap().unwrap();
        let cookie = format!("a=b; Path={}", "ab".repeat(1 << 10));
        let steps = Steps::of(4_000);
        for _ in 0..100 {
            rewrite.cookie(cookie.as_bytes(), &plain(&steps));
        }
        assert!(steps.take(1).is_err(), "all were charged");
        assert_eq!(rewrite.cookie(b"a=b; Path=/c", &plain(&Steps::new())).unwrap(), b"a=b; Path=/");
        assert_eq!(rewrite.cookie(b"a=b; Path=/c", &plain(&steps)), None);
    }
}
