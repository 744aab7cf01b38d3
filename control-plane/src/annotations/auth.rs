//! Authentication: by password, and by an external service. A value for which ingress-nginx would silently remove the
//! authentication denies access here.

use shared::policy::{BasicAuth, ExternalAuth, TextList};
use shared::template::Template;

use super::draft::Draft;
use super::row::{Bad, Effect, Reach, Risk, Row, Spec};
use super::snippets;
use super::value::{
    self, BASIC, BOOL, Grammar, HEADERS, INT, TEXT_LIST, URL_SPACED, URL_WITH_VARIABLES, VARIABLES, one_of,
};
use crate::problem::{Severity, shown};
use crate::reference::Use;

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "auth-always-set-cookie",
        value: &Spec(BOOL, Effect::Sets(|to, it| external(to).always_set_cookie = Some(it))),
        bad: Bad::Deny(Reach::Paths),
        needs: Some("auth-url"),
        default: "false",
        doc: "Cookies set by the auth service are passed on whatever the status is",
        ..Row::NEW
    },
    &Row {
        name: "auth-cache-duration",
        risk: Risk::Medium,
        value: &Spec(DURATIONS, Effect::Sets(|to, it| external(to).cache_duration = it)),
        bad: Bad::Deny(Reach::Paths),
        needs: Some("auth-url"),
        default: "200 202 401 5m",
        doc: "How long answers of the auth service are cached",
        ..Row::NEW
    },
    &Row {
        name: "auth-cache-key",
        risk: Risk::Medium,
        value: &Spec(VARIABLES, Effect::Sets(|to, it| external(to).cache_key = it)),
        needs: Some("auth-url"),
        doc: "Answers of the auth service are cached under this key; if a request has none of the variables in the key, the service is asked each time",
        ..Row::NEW
    },
    &Row {
        name: "auth-keepalive",
        value: &Spec(INT, Effect::Unnoticed("each auth request has a connection of its own")),
        needs: Some("auth-url"),
        default: "0",
        doc: "Idle connections kept to the auth service",
        ..Row::NEW
    },
    &Row {
        name: "auth-keepalive-requests",
        value: &Spec(INT, Effect::Unnoticed("each auth request has a connection of its own")),
        needs: Some("auth-url"),
        default: "1000",
        doc: "Requests per kept connection",
        ..Row::NEW
    },
    &Row {
        name: "auth-keepalive-share-vars",
        value: &Spec(BOOL, Effect::Unnoticed("there are no variables to share")),
        needs: Some("auth-url"),
        default: "false",
        doc: "The auth request shares nginx' variables",
        ..Row::NEW
    },
    &Row {
        name: "auth-keepalive-timeout",
        value: &Spec(INT, Effect::Unnoticed("each auth request has a connection of its own")),
        needs: Some("auth-url"),
        default: "60",
        doc: "How long an idle connection is kept",
        ..Row::NEW
    },
    &Row {
        name: "auth-method",
        value: &Spec(
            one_of!("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "CONNECT" | "OPTIONS" | "TRACE"),
            Effect::Sets(|to, it| external(to).method = it.to_owned()),
        ),
        bad: Bad::Deny(Reach::Paths),
        needs: Some("auth-url"),
        default: "GET",
        doc: "Method of the auth request",
        ..Row::NEW
    },
    &Row {
        name: "auth-proxy-set-headers",
        risk: Risk::Medium,
        value: &Spec(
            BASIC,
            Effect::Sets(|to, it| {
                external(to);
                if it.split_once('/').is_some_and(|(namespace, _)| !namespace.is_empty()) {
                    to.refer_anywhere(Use::AuthProxySetHeaders, &it);
                } else {
                    // ingress-nginx looks for exactly this text among the names of ConfigMaps.
                    to.deny(Reach::Paths, "names no ConfigMap");
                    let what = Reach::Paths.as_str();
                    to.fault(
                        Severity::Warning,
                        format!("expected namespace/name, got {}: {what}", shown(&it)),
                    );
                }
            }),
        ),
        needs: Some("auth-url"),
        doc: "ConfigMap with headers to add to the auth request",
        ..Row::NEW
    },
    &Row {
        name: "auth-realm",
        risk: Risk::Medium,
        value: &Spec(BASIC, Effect::Sets(|to, it| basic(to).realm = it)),
        bad: Bad::Reject,
        needs: Some("auth-type"),
        behind: Some(("auth-secret", |text| (BASIC.read)(text).is_some_and(|it| it.split('/').count() <= 2))),
        doc: "Realm, as browsers show it",
        ..Row::NEW
    },
    &Row {
        name: "auth-request-redirect",
        risk: Risk::Medium,
        value: &Spec(URL_SPACED, Effect::Sets(|to, it| external(to).request_redirect = it)),
        bad: Bad::Deny(Reach::Paths),
        needs: Some("auth-url"),
        doc: "Header `X-Auth-Request-Redirect` of the auth request",
        ..Row::NEW
    },
    &Row {
        name: "auth-response-headers",
        risk: Risk::Medium,
        value: &Spec(HEADERS, Effect::Sets(|to, it| external(to).response_headers = it)),
        bad: Bad::Deny(Reach::Paths),
        needs: Some("auth-url"),
        doc: "Headers of the auth service's answer that are passed to the backend",
        ..Row::NEW
    },
    &Row {
        name: "auth-secret",
        risk: Risk::Medium,
        value: &Spec(BASIC, Effect::Sets(|to, it| users(to, &it))),
        bad: Bad::Deny(Reach::Paths),
        doc: "Secret with users and passwords",
        ..Row::NEW
    },
    &Row {
        name: "auth-secret-type",
        // It is used when the Secret is read.
        value: &Spec(SECRET_TYPE, Effect::Sets(secret_type)),
        bad: Bad::Reject,
        needs: Some("auth-type"),
        default: "auth-file",
        doc: "Whether that Secret holds one htpasswd file or a key per user",
        ..Row::NEW
    },
    &Row {
        name: "auth-signin",
        risk: Risk::High,
        value: &Spec(
            URL_WITH_VARIABLES,
            Effect::Sets(|to, it| {
                match value::unset(&it).filter(|it| snippets::sets_in_vain(to, it)) {
                    Some(variable) => to.fault(
                        Severity::Warning,
                        format!(
                            "{} is empty, as in ingress-nginx: set it in configuration-snippet",
                            shown(&variable)
                        ),
                    ),
                    None => to.tells_of_variables(&it),
                }
                external(to).signin = it;
            }),
        ),
        needs: Some("auth-url"),
        doc: "Where a client is redirected when the auth service answers 401",
        ..Row::NEW
    },
    &Row {
        name: "auth-signin-redirect-param",
        risk: Risk::Medium,
        value: &Spec(URL_SPACED, Effect::Sets(|to, it| external(to).signin_redirect_param = it)),
        needs: Some("auth-signin"),
        default: "rd",
        doc: "Parameter of that redirect that holds the URL to return to",
        ..Row::NEW
    },
    &Row {
        name: "auth-type",
        value: &Spec(TYPE, Effect::Sets(|to, it| kind(to, &it))),
        bad: Bad::Reject,
        doc: "Password authentication: `basic`, or digest (any other value that contains one of the two words)",
        harmless: true,
        ..Row::NEW
    },
    &Row {
        name: "auth-url",
        risk: Risk::High,
        value: &Spec(URL_WITH_VARIABLES, Effect::Sets(url)),
        bad: Bad::Reject,
        doc: "URL that is asked first whether a request is allowed; loopback, link-local and metadata-service addresses only within `--auth-networks`",
        ..Row::NEW
    },
    &Row {
        name: "enable-global-auth",
        value: &Spec(BOOL, Effect::Sets(|to, it| to.location.enable_global_auth = Some(it))),
        default: "true",
        doc: "Whether the ConfigMap's `global-auth-url` applies here",
        ..Row::NEW
    },
    &Row {
        name: "satisfy",
        value: &Spec(
            one_of!("any" | "all"),
            Effect::Sets(|to, it| to.location.satisfy_any = Some(it == "any")),
        ),
        default: "all",
        doc: "`any`: an address list or an authentication is enough",
        harmless: true,
        ..Row::NEW
    },
];

/// The ConfigMap's `no-auth-locations`.
pub(crate) static NO_AUTH_LOCATIONS: Row = Row {
    name: "no-auth-locations",
    value: &Spec(
        TEXT_LIST,
        Effect::Sets(|to, values| to.location.no_auth_locations = Some(TextList { values })),
    ),
    default: "/.well-known/acme-challenge",
    doc: "Locations whose path begins with one of these need no authentication",
    ..Row::NEW
};

fn external<'a>(to: &'a mut Draft<'_>) -> &'a mut ExternalAuth {
    to.location.external_auth.get_or_insert_default()
}

fn url(to: &mut Draft<'_>, text: String) {
    // Spaces are tolerated by the grammar, but a URL has none.
    if !is_url(&text) {
        let what = Reach::Paths.as_str();
        to.deny(Reach::Paths, "is no URL");
        let got = shown(&text);
        to.fault(
            Severity::Unsupported,
            format!("expected a URL of http or https with a host, got {got}: {what}"),
        );
    }
    to.needs_variables(&text);
    external(to).url = text;
}

/// Whether a text is an http or https URL with a valid host, as far as that can be checked before its variables are
/// replaced.
fn is_url(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    host.is_some_and(|host| !host.is_empty() && !host.starts_with(':') && !host.contains(".."))
        && !text.contains(' ')
}

fn basic<'a>(to: &'a mut Draft<'_>) -> &'a mut BasicAuth {
    to.location.basic_auth.get_or_insert_default()
}

/// A Secret of another namespace may be named only if the fleet allows it, which is checked at the reference.
fn users(to: &mut Draft<'_>, secret: &str) {
    let is_map = to.text("auth-secret-type").is_some_and(|it| it.trim() == "auth-map");
    let is_digest = to.text("auth-type").is_some_and(is_digest);
    let what = match (is_digest, is_map) {
        (false, false) => Use::UsersFile,
        (false, true) => Use::UsersMap,
        (true, false) => Use::DigestsFile,
        (true, true) => Use::DigestsMap,
    };
    let name = to.refer_anywhere(what, secret);
    basic(to).users = what.material(&name).unwrap_or_default();
    if !to.is_on("auth-type") {
        to.deny(Reach::Paths, "is of no use without auth-type");
        let what = Reach::Paths.as_str();
        to.fault(Severity::Unsupported, format!("has no effect without auth-type: {what}"));
    }
}

fn secret_type(to: &mut Draft<'_>, text: String) {
    if !["auth-file", "auth-map"].contains(&text.as_str()) {
        to.deny(Reach::Paths, "is neither auth-file nor auth-map");
        let (words, got, what) = (SECRET_TYPE.words, shown(&text), Reach::Paths.as_str());
        to.fault(Severity::Unsupported, format!("expected {words}, got {got}: {what}"));
    }
}

/// Only exactly `basic` is basic authentication; any other text that contains one of the two words is digest
/// (ingress-nginx).
fn is_digest(kind: &str) -> bool {
    kind.trim() != "basic"
}

fn kind(to: &mut Draft<'_>, text: &str) {
    let what = Reach::Paths.as_str();
    if is_digest(text) {
        basic(to).digest = true;
    }
    if to.text("auth-secret").is_none() {
        to.deny(Reach::Paths, "needs auth-secret");
        to.fault(Severity::Unsupported, format!("expected auth-secret beside it, got none: {what}"));
    }
}

/// ingress-nginx' validator looks for the words anywhere in the text.
const TYPE: Grammar<String> = Grammar {
    words: "basic or digest",
    read: |text| (text.contains("basic") || text.contains("digest")).then(|| text.to_owned()),
    good: &["basic", "digest"],
    bad: &["bearer", "Basic"],
};

/// As that of [`TYPE`], which ignores spaces here. What else the text holds denies.
const SECRET_TYPE: Grammar<String> = Grammar {
    words: "one of auth-file auth-map",
    read: |text| {
        let squeezed = text.replace(' ', "");
        let has_word = ["auth-file", "auth-map"].iter().any(|word| squeezed.contains(word));
        (has_word && !text.contains('\n')).then(|| value::trimmed(text).to_owned())
    },
    good: &["auth-file", " auth-file ", "auth-map", " auth-map ", "auth-files"],
    bad: &["no-such-word"],
};

const DURATIONS: Grammar<String> = Grammar {
    words: "statuses (or any) and durations with commas between them: 200 202 10m, 401 5m",
    // Empty items are left out, as in ingress-nginx; if there are no others, the default counts.
    read: |text| {
        let items: Vec<_> = value::list(text).collect();
        items.iter().all(|item| is_duration(item)).then(|| items.join(", "))
    },
    good: &["200 202 10m, 401 5m", "5m", ",200 5m,,401 30m,", "any 1m"],
    bad: &["5 minutes!", "5m;", "200", "5m, never", "5m 200"],
};

/// `[status ...] duration`, or `any duration`.
fn is_duration(item: &str) -> bool {
    let mut words: Vec<&str> = item.split(' ').filter(|word| !word.is_empty()).collect();
    let Some(time) = words.pop() else { return false };
    let unit = time.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = &time[..time.len() - unit.len()];
    let is_status = |word: &&str| {
        // ingress-nginx lets any word pass, and nginx refuses all but this one.
        *word == "any" || word.len() == 3 && word.parse().is_ok_and(|it: u16| (100..600).contains(&it))
    };
    (1..=9).contains(&number.len())
        && ["ms", "s", "m", "h", "d", "w", "M", "y"].contains(&unit)
        && words.iter().all(is_status)
}

/// Rows of the ConfigMap alone, and what a faulty value does.
macro_rules! global {
    ($bad:expr; $($(#[$doc:meta])* $row:ident = $name:literal, $grammar:expr, $set:expr;)+) => {
        $($(#[$doc])* pub(crate) static $row: Row = Row {
            name: $name,
            value: &Spec($grammar, Effect::Sets($set)),
            bad: $bad,
            doc: "As the annotation, for locations without auth-url",
            ..Row::NEW
        };)+
    };
}

// Whom is asked, what it is told and what the endpoint is told of it: all paths answer 503.
global! { Bad::Deny(Reach::Paths);
    /// `global-auth-url`.
    GLOBAL_URL = "global-auth-url", WHERE, |to, it| to.location.global_auth_url = Some(it);
    /// `global-auth-signin`.
    GLOBAL_SIGNIN = "global-auth-signin", TEXT, |to, it| match has_host(&it) {
        true => to.location.global_auth_signin = Some(it),
        false => to.leave_out("a URL with a scheme and a host", [it]),
    };
    /// `global-auth-signin-redirect-param`.
    GLOBAL_SIGNIN_PARAM = "global-auth-signin-redirect-param", URL_SPACED,
        |to, it| to.location.global_auth_signin_redirect_param = Some(it);
    /// `global-auth-response-headers`.
    GLOBAL_RESPONSE_HEADERS = "global-auth-response-headers", NAMES, |to, (values, left_out)| {
        to.leave_out("the name of a header", left_out);
        to.location.global_auth_response_headers = Some(TextList { values });
    };
    /// `global-auth-request-redirect`.
    GLOBAL_REQUEST_REDIRECT = "global-auth-request-redirect", TEXT,
        |to, it| to.location.global_auth_request_redirect = Some(it);
}

// How it is asked and how long its word is kept: without them it is asked all the same, each time (as in ingress-nginx).
global! { Bad::Fallback;
    /// `global-auth-method`.
    GLOBAL_METHOD = "global-auth-method",
        one_of!("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "CONNECT" | "OPTIONS" | "TRACE"),
        |to, it| to.location.global_auth_method = Some(it.to_owned());
    /// `global-auth-always-set-cookie`.
    GLOBAL_ALWAYS_SET_COOKIE = "global-auth-always-set-cookie", BOOL,
        |to, it| to.location.global_auth_always_set_cookie = Some(it);
    /// `global-auth-cache-key`.
    GLOBAL_CACHE_KEY = "global-auth-cache-key", CACHE_KEY,
        |to, it| to.location.global_auth_cache_key = Some(it);
    /// `global-auth-cache-duration`.
    GLOBAL_CACHE_DURATION = "global-auth-cache-duration", DURATIONS,
        |to, it| to.location.global_auth_cache_duration = Some(it);
}

/// Whether ingress-nginx takes a text of the ConfigMap for a URL (`StringToURL`).
fn has_host(text: &str) -> bool {
    let host = text.split_once("://").filter(|(scheme, _)| !scheme.is_empty()).map(|(_, rest)| rest);
    let host = host.and_then(|rest| rest.split(['/', '?']).next());
    host.is_some_and(|host| !host.is_empty() && !host.contains(".."))
}

/// Names of headers, and what is none. ingress-nginx leaves those out one by one; no client can send them either.
const NAMES: Grammar<(Vec<String>, Vec<String>)> = Grammar {
    words: "names of headers: letters, digits, - and _, with commas between them",
    read: |text| Some(value::list(text).map(str::to_owned).partition(|name| value::is_header_name(name))),
    good: &["X-User, X-Groups"],
    bad: &[],
};

/// A URL that requests can be sent to.
const WHERE: Grammar<String> = Grammar {
    words: "a URL of http or https with a host",
    read: |text| (TEXT.read)(text).filter(|url| is_url(url)),
    good: &["https://auth.test/check?to=$request_uri", "http://auth.test/%7Eme+x"],
    bad: &["not-a-url", "http://a..b/", "http://a.test/;"],
};

/// A word of nginx' configuration without quotes. Annotations may have fewer characters: ingress-nginx does not check the
/// ConfigMap.
const TEXT: Grammar<String> = Grammar {
    words: "a URL without spaces, quotes, semicolons, backslashes and braces, with at most 64 variables",
    read: |text| {
        let is_of_word = |c: char| c.is_ascii_graphic() && !";\"'\\{".contains(c);
        let is_word = text.replace("${", "").chars().all(is_of_word);
        (is_word && Template::parse(text).is_moderate()).then(|| text.to_owned())
    },
    good: &["https://auth.test/?to=https%3A%2F%2F${host}", "$scheme://$host"],
    bad: &["http://a.test/{x}", "http://a.test/;", "a b", "x\ny"],
};

/// Text in quotes, of the ConfigMap.
const CACHE_KEY: Grammar<String> = Grammar {
    words: "text of one line without quotes, with at most 64 variables",
    read: |text| {
        let is_of_text = |c: char| c == ' ' || (c.is_ascii_graphic() && !"\"'\\".contains(c));
        (text.chars().all(is_of_text) && Template::parse(text).is_moderate()).then(|| text.to_owned())
    },
    good: &["$remote_user|$http_authorization", "${cookie_sid}:$host/x"],
    bad: &["$host'", "x\ny"],
};

#[cfg(test)]
mod tests {
    use shared::name::ObjectName;

    use super::*;
    use crate::annotations::{PREFIX, default, read};

    #[test]
    fn a_name_with_a_space_denies_and_the_fleets_is_left_out() {
        let configured = [("auth-url", "http://auth.test/"), ("auth-response-headers", "X-User X-Groups")];
        let configured = configured.map(|(name, text)| (format!("{PREFIX}{name}"), text.to_owned()));
        let parsed = read(&ObjectName::new("default", "web"), &configured.into());
        assert!(parsed.serving.denied.is_some(), "{:?}", parsed.faults);
        let fleet = default(&GLOBAL_RESPONSE_HEADERS, GLOBAL_RESPONSE_HEADERS.name, "X-User, X Y,X-Groups,");
        let names = fleet.serving.location.global_auth_response_headers.unwrap().values;
        assert_eq!(names, ["X-User", "X-Groups"]);
        let severities: Vec<_> = fleet.faults.iter().map(|it| it.severity).collect();
        assert_eq!((severities, fleet.serving.denied), (vec![Severity::Warning], None));
    }

    #[test]
    fn a_sign_in_of_the_fleet_without_a_host_is_left_out() {
        let read = |text: &str| {
            let parsed = default(&GLOBAL_SIGNIN, GLOBAL_SIGNIN.name, text);
            let severities: Vec<_> = parsed.faults.iter().map(|it| it.severity).collect();
            assert_eq!(parsed.serving.denied, None, "{text}");
            (parsed.serving.location.global_auth_signin, severities)
        };
        for text in ["https://a.test/start?x=$uri", "http://$host", "http://a.test?x"] {
            assert_eq!(read(text), (Some(text.to_owned()), vec![]));
        }
        for text in
            ["bar", "/start", "//a.test/x", "http://", "http:///x", "http://foo..bar.com", "://a.test"]
        {
            assert_eq!(read(text), (None, vec![Severity::Warning]), "{text}");
        }
    }

    /// Annotations have fewer characters.
    #[test]
    fn texts_of_the_fleet_are_words_of_nginx() {
        for (row, text, is_one) in [
            (&GLOBAL_URL, "http://[fd00::1]:4180/x%20y+z", true),
            (&GLOBAL_URL, "http://${host}.auth.test/", true),
            (&GLOBAL_URL, "http://auth.test/{x}", false),
            (&GLOBAL_URL, "http://auth.test/\"", false),
            (&GLOBAL_SIGNIN, "https://login.test/?rd=https%3A%2F%2F$host#top", true),
            (&GLOBAL_SIGNIN, "https://login.test/;", false),
            (&GLOBAL_REQUEST_REDIRECT, "$scheme://$host/a(b)*", true),
            (&GLOBAL_CACHE_KEY, "$remote_user|$http_authorization, $host/x", true),
            (&GLOBAL_CACHE_KEY, "$host'; x", false),
        ] {
            let parsed = default(row, row.name, text);
            let kept = [
                parsed.serving.location.global_auth_url,
                parsed.serving.location.global_auth_signin,
                parsed.serving.location.global_auth_request_redirect,
                parsed.serving.location.global_auth_cache_key,
            ];
            let kept: Vec<_> = kept.into_iter().flatten().collect();
            let denies = !is_one && row.bad != Bad::Fallback;
            assert_eq!((kept == [text], parsed.serving.denied.is_some()), (is_one, denies), "{text}");
            let annotation = row.name.strip_prefix("global-").unwrap();
            let own = [(format!("{PREFIX}{annotation}"), text.to_owned())];
            let own = read(&ObjectName::new("default", "web"), &own.into());
            assert!(!own.faults.is_empty() || text.contains("${host}"), "{annotation}: {text}");
        }
    }

    #[test]
    fn a_url_has_a_host_and_no_space() {
        for (text, expected) in [
            ("http://auth.test/?x=$uri", true),
            ("https://$host", true),
            ("http://auth.test/a b", false),
            ("http://auth.test ", false),
            ("ftp://auth.test/", false),
            ("http://:80/", false),
            ("http://?x", false),
        ] {
            assert_eq!(is_url(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_duration_has_one_to_nine_digits_and_its_statuses_are_of_http() {
        for (text, expected) in [
            ("123456789s", true),
            ("1234567890s", false),
            ("s", false),
            ("100 5m", true),
            ("599 5m", true),
            ("099 5m", false),
            ("600 5m", false),
            ("+20 5m", false),
            ("any 1m", true),
            ("200 any 1m", true),
            ("all 1m", false),
            ("5x", false),
        ] {
            assert_eq!(is_duration(text), expected, "{text:?}");
        }
    }

    /// With one that does, the last good version stays, which may have been open.
    #[test]
    fn a_bad_realm_rejects_nothing_where_the_secret_has_no_name() {
        for (secret, rejects) in [
            (Some("users"), true),
            (Some("ns/users"), true),
            (Some("a/b/c"), false),
            (Some("us;ers"), false),
            (None, false),
        ] {
            let configured =
                [("auth-type", Some("basic")), ("auth-realm", Some("a;b")), ("auth-secret", secret)];
            let said = configured
                .iter()
                .filter_map(|(name, text)| Some((format!("{PREFIX}{name}"), (*text)?.to_owned())));
            let it = read(&ObjectName::new("default", "web"), &said.collect());
            let is_rejected = it.faults.iter().any(|it| it.severity == Severity::Rejected);
            assert_eq!(is_rejected, rejects, "{secret:?}");
        }
    }

    #[test]
    fn empty_durations_are_left_out() {
        for (text, kept) in [(",200 5m,,401 30m,", "200 5m, 401 30m"), (" 5m , ", "5m"), (",", "")] {
            assert_eq!((DURATIONS.read)(text).as_deref(), Some(kept), "{text}");
        }
    }
}
