//! External authentication settings (`auth-url` and its options, as in ingress-nginx).

use std::time::Duration;

use bytes::Bytes;
use shared::policy::{ExternalAuth, LocationPolicy};
use shared::template::Template;

use super::PolicyError;
use super::shortcuts::Shortcuts;

const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"];

/// ingress-nginx' default `auth-cache-duration`.
const KEPT: &str = "200 202 401 5m";

/// The auth service of a location.
#[derive(Clone, Debug)]
pub struct External {
    /// Its URL, as a template.
    pub url: Template,
    /// The annotation or ConfigMap option that configured it.
    pub source: &'static str,
    /// Digest of all these settings: a cached response is valid only for the same question.
    pub digest: [u8; 32],
    /// The method, if configured; else GET.
    pub method: Option<Box<str>>,
    /// Where clients go that get a 401, with a parameter for the way back.
    pub signin: Option<Template>,
    /// Headers that the backend gets instead of the client's, with the headers of the auth response that they are
    /// taken from.
    pub told: Box<[Told]>,
    /// `X-Auth-Request-Redirect`.
    pub request_redirect: Template,
    /// Cookies of the auth response are sent to the client whatever the status.
    pub always_set_cookie: bool,
    /// Response caching, if configured.
    pub cache: Option<Cache>,
    /// Additional headers of the auth request.
    pub set_headers: Box<[(Bytes, Template)]>,
    /// Answers in its place.
    pub answers: Option<Shortcuts>,
}

/// A header that the backend gets instead of the client's, with what the auth service answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// Its name.
    pub name: Bytes,
    /// The header of the auth response that it is taken from.
    pub of: Bytes,
    /// The text before and after that.
    pub around: [Box<str>; 2],
}

impl Told {
    /// Its value; empty: it is not sent.
    pub fn value(&self, answered: Option<&[u8]>) -> Bytes {
        let [before, after] = &self.around;
        [before.as_bytes(), answered.unwrap_or_default(), after.as_bytes()].concat().into()
    }
}

/// Caching of auth responses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cache {
    /// The cache key of a request.
    pub key: Template,
    rules: Box<[Kept]>,
}

impl Cache {
    /// How long a response with this status is cached.
    pub fn keeps(&self, status: u16) -> Option<Duration> {
        let found = self.rules.iter().find(|(statuses, _)| statuses.is_empty() || statuses.contains(&status));
        found.map(|(_, time)| *time).filter(|time| !time.is_zero())
    }
}

impl External {
    /// The location's settings, else the fleet-wide ones.
    pub(super) fn compile(configured: &LocationPolicy) -> Result<Option<Box<Self>>, PolicyError> {
        let told = configured.told_headers.iter().flat_map(|list| &list.headers);
        let with_told = |mut external: ExternalAuth| {
            external.told_headers.extend(told.clone().cloned());
            external
        };
        let own = configured.external_auth.clone().map(with_told);
        let own = own.map(|it| Self::of(&it, "auth-url")).transpose()?;
        // Compiled in any case: whether a policy is supported must depend on no other field.
        let global = global(configured).map(with_told);
        let mut global = global.map(|it| Self::of(&it, "global-auth-url")).transpose()?;
        // Then only what the service itself says counts (as in ingress-nginx).
        if configured.global_auth_cache_duration.is_none()
            && let Some(cache) = global.as_mut().and_then(|global| global.cache.as_mut())
        {
            cache.rules = Box::default();
        }
        let global = global.filter(|_| configured.enable_global_auth != Some(false));
        Ok(own.or(global).map(Box::new))
    }

    fn of(configured: &ExternalAuth, source: &'static str) -> Result<Self, PolicyError> {
        let ExternalAuth {
            url,
            method,
            signin,
            signin_redirect_param,
            response_headers,
            request_redirect,
            always_set_cookie,
            cache_key,
            cache_duration,
            proxy_set_headers,
            told_headers,
            told_within,
            answers,
        } = configured;
        let refused = |field, problem: String| PolicyError { field, problem };
        if url.is_empty() {
            return Err(refused("external_auth.url", "expected a URL, got none".into()));
        }
        if !method.is_empty() && !METHODS.contains(&method.as_str()) {
            return Err(refused("external_auth.method", format!("expected a method, got {method:?}")));
        }
        let name = |field, name: &str| match http::HeaderName::from_bytes(name.as_bytes()) {
            // As it is written: there are readers that tell one spelling from another.
            Ok(_) => Ok(Bytes::copy_from_slice(name.as_bytes())),
            Err(_) => Err(refused(field, format!("expected the name of a header, got {name:?}"))),
        };
        let same = response_headers.iter().map(|it| {
            let name = name("external_auth.response_headers", it)?;
            Ok(Told { name: name.clone(), of: name, around: Default::default() })
        });
        let told = told_headers.iter().map(|it| {
            let field = "external_auth.told_headers";
            let (name, of) = (name(field, &it.name)?, name(field, &it.value)?);
            Ok(Told { name, of, around: Default::default() })
        });
        let within = told_within.iter().map(|it| {
            let field = "external_auth.told_within";
            let (name, of) = (name(field, &it.name)?, name(field, &it.header)?);
            let around = [&it.before, &it.after];
            // One that breaks the line would begin another header.
            let is_text = |text: &String| text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
            match around.iter().all(|it| is_text(it)) {
                true => Ok(Told { name, of, around: around.map(|text| text.as_str().into()) }),
                false => Err(refused(field, format!("expected text of one line, got {around:?}"))),
            }
        });
        let headers = proxy_set_headers.iter().map(|header| {
            Ok((name("external_auth.proxy_set_headers", &header.name)?, Template::parse(&header.value)))
        });
        let kept = if cache_duration.is_empty() { KEPT } else { cache_duration };
        let rules = durations(kept).ok_or_else(|| {
            refused("external_auth.cache_duration", format!("expected `200 202 10m, 401 5m`, got {kept:?}"))
        })?;
        let cache = (!cache_key.is_empty()).then(|| Cache { key: Template::parse(cache_key), rules });
        let back = if request_redirect.is_empty() { "$request_uri" } else { request_redirect };
        Ok(Self {
            url: Template::parse(url),
            source,
            digest: *blake3::hash(format!("{configured:?}").as_bytes()).as_bytes(),
            method: (!method.is_empty()).then(|| method.as_str().into()),
            signin: (!signin.is_empty()).then(|| signin_url(signin, signin_redirect_param)),
            told: same.chain(told).chain(within).collect::<Result<_, _>>()?,
            request_redirect: Template::parse(back),
            always_set_cookie: always_set_cookie.unwrap_or_default(),
            cache,
            set_headers: headers.collect::<Result<_, PolicyError>>()?,
            answers: Shortcuts::compile(answers.as_ref())?,
        })
    }
}

fn global(configured: &LocationPolicy) -> Option<ExternalAuth> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Some(ExternalAuth {
        url: configured.global_auth_url.clone()?,
        method: text(&configured.global_auth_method),
        signin: text(&configured.global_auth_signin),
        signin_redirect_param: text(&configured.global_auth_signin_redirect_param),
        response_headers: configured.global_auth_response_headers.clone().unwrap_or_default().values,
        request_redirect: text(&configured.global_auth_request_redirect),
        always_set_cookie: configured.global_auth_always_set_cookie,
        cache_key: text(&configured.global_auth_cache_key),
        cache_duration: text(&configured.global_auth_cache_duration),
        proxy_set_headers: configured.global_auth_proxy_set_headers.clone().unwrap_or_default().headers,
        told_headers: Vec::new(),
        told_within: Vec::new(),
        answers: configured.global_auth_answers.clone(),
    })
}

/// Adds the parameter for the way back, unless the URL has one.
fn signin_url(url: &str, param: &str) -> Template {
    let param = if param.is_empty() { "rd" } else { param };
    let query = url.split_once('?').map(|(_, query)| query.split('#').next().unwrap_or_default());
    let mut pairs = query.unwrap_or_default().split('&');
    if pairs.any(|pair| pair.split_once('=').is_some_and(|(name, value)| name == param && !value.is_empty()))
    {
        return Template::parse(url);
    }
    let joint = if query.is_some_and(|query| !query.is_empty()) { '&' } else { '?' };
    let url = url.strip_suffix('?').unwrap_or(url);
    Template::parse(&format!("{url}{joint}{param}=$pass_access_scheme://$http_host$escaped_request_uri"))
}

/// How long a response with one of these statuses is cached; with any if there are none.
type Kept = (Vec<u16>, Duration);

/// `[status ...] duration`, separated by commas (as in ingress-nginx). Without a status: 200, 301 and 302; `any` are all.
fn durations(text: &str) -> Option<Box<[Kept]>> {
    let rule = |item: &str| {
        let mut words: Vec<&str> = item.split_ascii_whitespace().collect();
        let time = duration(words.pop()?)?;
        let is_any = |word: &&str| *word == "any";
        let status = |word: &&str| word.parse().ok().filter(|status| (100..=599).contains(status));
        let numbers = words.iter().filter(|word| !is_any(word)).map(status);
        let statuses = numbers.collect::<Option<Vec<u16>>>()?;
        let statuses = match words.is_empty() {
            true => vec![200, 301, 302],
            false if words.iter().any(is_any) => Vec::new(),
            false => statuses,
        };
        Some((statuses, time))
    };
    text.split(',').map(rule).collect()
}

fn duration(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let seconds = match unit {
        "ms" => return Some(Duration::from_millis(number)),
        "s" | "" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        "M" => 30 * 86_400,
        "y" => 365 * 86_400,
        _ => return None,
    };
    number.checked_mul(seconds).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use shared::policy::TextList;
    use shared::template::Variable;

    use super::*;

    fn own(change: impl Fn(&mut ExternalAuth)) -> Result<Option<Box<External>>, PolicyError> {
        let mut external_auth = ExternalAuth { url: "http://auth.test/".into(), ..ExternalAuth::default() };
        change(&mut external_auth);
        External::compile(&LocationPolicy { external_auth: Some(external_auth), ..LocationPolicy::default() })
    }

    fn filled(template: &Template) -> String {
        let mut out = Vec::new();
        let value = |variable: &Variable, out: &mut Vec<u8>| {
            out.extend_from_slice(format!("<{variable:?}>").as_bytes())
        };
        template.fill(&mut out, usize::MAX, value).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_way_back_is_added_unless_it_is_there() {
        let back = "<AccessScheme>://<Header(\"host\")><EscapedRequestUri>";
        for (url, param, expected) in [
            ("http://a.test/start", "", format!("http://a.test/start?rd={back}")),
            ("http://a.test/start?x=1", "", format!("http://a.test/start?x=1&rd={back}")),
            ("http://a.test/start", "orig", format!("http://a.test/start?orig={back}")),
            ("http://a.test/start?rd=/home", "", "http://a.test/start?rd=/home".into()),
            ("http://a.test/start?rd=/home", "orig", format!("http://a.test/start?rd=/home&orig={back}")),
        ] {
            assert_eq!(filled(&signin_url(url, param)), expected);
        }
    }

    #[test]
    fn of_all_locations_nothing_is_kept_where_no_time_is_said() {
        let global = |duration: Option<&str>| {
            let configured = LocationPolicy {
                global_auth_url: Some("http://auth.test/".into()),
                global_auth_cache_key: Some("$remote_user".into()),
                global_auth_cache_duration: duration.map(str::to_owned),
                ..LocationPolicy::default()
            };
            External::compile(&configured).unwrap().unwrap().cache.unwrap().keeps(200)
        };
        assert_eq!(global(None), None);
        assert_eq!(global(Some("")), Some(Duration::from_secs(300)), "the annotation's");
        assert_eq!(global(Some("10s")), Some(Duration::from_secs(10)));
        let own = own(|it| it.cache_key = "$remote_user".into()).unwrap().unwrap();
        assert_eq!(own.cache.unwrap().keeps(200), Some(Duration::from_secs(300)));
    }

    #[test]
    fn durations_are_nginx() {
        let rules = |text| durations(text).map(Vec::from);
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        assert_eq!(
            rules("200 202 10m, 401 5m"),
            Some(vec![(vec![200, 202], minutes(10)), (vec![401], minutes(5))])
        );
        assert_eq!(rules("1h"), Some(vec![(vec![200, 301, 302], minutes(60))]));
        assert_eq!(rules("200 2m, any 1m"), Some(vec![(vec![200], minutes(2)), (vec![], minutes(1))]));
        for bad in
            ["", "200", "5 minutes", "2000 5m", "200 5x", "200 202 401 5m,", "m", "200 99999999999999999999y"]
        {
            if bad != "200" {
                assert_eq!(rules(bad), None, "{bad}");
            }
        }
    }

    #[test]
    fn invalid_settings_are_refused() {
        assert!(own(|_| {}).unwrap().is_some());
        for (change, field) in [
            ((|it| it.url.clear()) as fn(&mut ExternalAuth), "external_auth.url"),
            (|it| it.method = "GET;return 200".into(), "external_auth.method"),
            (|it| it.response_headers.push("X;User".into()), "external_auth.response_headers"),
            (
                |it| {
                    it.told_headers
                        .push(shared::policy::Header { name: "X-User".into(), value: "X;User".into() })
                },
                "external_auth.told_headers",
            ),
            (
                |it| {
                    it.told_within.push(shared::policy::ToldWithin {
                        name: "X-User".into(),
                        header: "x-user".into(),
                        before: "a\r\nb".into(),
                        after: String::new(),
                    })
                },
                "external_auth.told_within",
            ),
            (|it| it.cache_duration = "never".into(), "external_auth.cache_duration"),
        ] {
            assert_eq!(own(change).unwrap_err().field, field);
        }
    }

    #[test]
    fn the_fleets_counts_where_a_location_says_nothing() {
        let mut configured = LocationPolicy {
            global_auth_url: Some("http://fleet.test/".into()),
            global_auth_response_headers: Some(TextList { values: vec!["X-User".into()] }),
            ..LocationPolicy::default()
        };
        let url = |configured: &LocationPolicy| {
            External::compile(configured).unwrap().map(|it| it.url.as_literal().unwrap().to_owned())
        };
        assert_eq!(url(&configured).as_deref(), Some("http://fleet.test/"));
        configured.enable_global_auth = Some(false);
        assert_eq!(url(&configured), None);
        configured.external_auth =
            Some(ExternalAuth { url: "http://own.test/".into(), ..ExternalAuth::default() });
        assert_eq!(url(&configured).as_deref(), Some("http://own.test/"));
    }
}
