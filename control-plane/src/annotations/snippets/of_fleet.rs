//! The ConfigMap's `server-snippet` and `location-snippet`: what they say to all hosts, and to all locations; of its
//! `http-snippet`, what hosts inherit; and of its `global-auth-snippet`, what the authentication service is asked.
//!
//! They are read as those of Ingresses, and take effect whether Ingresses may have any (ingress-nginx).

use std::collections::BTreeSet;

use shared::policy::{CookieFlagsList, HeaderChangeList, HeaderList, LocationPolicy, SnippetLevel, TextList};

use super::headers::{CHANGES_ANSWERS, Headers, SnippetContext};
use super::limits::Limits;
use super::lists::Lists;
use super::restriction::restricts;
use super::shortcuts::{Rewrites, Taken};
use super::zones::Zones;
use super::{NEVER, cookies, definitions, hints, left_out, pages, real_ip, tokens, unanswered};
use crate::problem::{Severity, shown};

/// A snippet of the fleet, as far as it takes effect.
#[derive(Default, Debug)]
pub(crate) struct Snippet {
    /// Defaults of all locations.
    pub defaults: LocationPolicy,
    /// What counts where no inner level of nginx' configuration says the same.
    pub outer: Outer,
    /// What to report.
    pub faults: Vec<(Severity, String)>,
}

/// What one level of nginx' configuration says to the inner ones.
#[derive(Default, Debug)]
pub(crate) struct Outer {
    /// The outermost first.
    pub(crate) level: SnippetLevel,
    lists: Option<Lists>,
    hidden: Vec<String>,
    limits: Option<Limits>,
    cookies: Option<CookieFlagsList>,
}

impl Outer {
    /// Sets it in place of what the levels around it say; headers to hide of the outermost are beside those of keys.
    pub(crate) fn put(self, defaults: &mut LocationPolicy) {
        let Self { level, lists, hidden, limits, cookies } = self;
        defaults.proxy_cookie_flags = cookies.or_else(|| defaults.proxy_cookie_flags.take());
        if let Some(limits) = limits {
            limits.put_inside(defaults);
        }
        if let Some(lists) = lists {
            lists.put_outside(defaults);
            defaults.outer_lists_follow = (level == SnippetLevel::Locations).then_some(true);
        }
        if !hidden.is_empty() {
            let around =
                defaults.hide_headers.take().filter(|_| level == SnippetLevel::All).unwrap_or_default();
            let values = around.values.into_iter().chain(hidden).collect();
            defaults.hide_headers = Some(TextList { values });
        }
    }
}

/// Reads the key `http-snippet`, `server-snippet`, `location-snippet`, `global-auth-snippet` or `stream-snippet`; `None`:
/// another key.
///
/// # Errors
/// Why all paths answer 503.
pub(crate) fn read(key: &str, text: &str, zones: &Zones) -> Option<Result<Snippet, String>> {
    let place = match key {
        "server-snippet" => SnippetContext::Server,
        "location-snippet" => SnippetContext::Location,
        GLOBAL_AUTH => SnippetContext::Auth,
        "http-snippet" => return Some(of_all(text, zones)),
        "stream-snippet" => return Some(of_streams(text)),
        _ => return None,
    };
    let mut headers = Headers::default();
    let mut taken = Taken::default();
    let mut told = Vec::new();
    let (mut lists, mut cookies, mut addresses, mut limits) = (None, None, None, None);
    let (mut pages, mut intercepts) = (None, None);
    let snippet = tokens::directives(text);
    // A rewrite of an Ingress would come before it, and end its list.
    if snippet.iter().flatten().any(|it| it.depth == 0 && it.name() == "limit_except") {
        return restricts(&snippet).map(Err);
    }
    let rest = snippet.map(|directives| {
        told = hints::of(&directives, place);
        let rewrites = match place {
            SnippetContext::Server => Rewrites::All,
            _ => Rewrites::None,
        };
        let (shortcuts, mut rest) = Taken::of(&directives, place, rewrites);
        taken = shortcuts;
        rest.retain(|it| !headers.take(it, place));
        if let Some(level) = place.level() {
            lists = Lists::take(&mut rest);
            limits = Limits::take(&mut rest, level);
            cookies = cookies::take(&mut rest, level);
            pages = pages::take(&mut rest, &directives);
            intercepts = pages::take_intercepts(&mut rest);
        }
        if place == SnippetContext::Server {
            addresses = real_ip::take(&mut rest);
            rest.retain(|it| !pages::is_settled(it, &directives, &[]));
        }
        rest
    });
    if let Some(why) = restricts(&rest) {
        return Some(Err(why));
    }
    told.extend(taken.empty.iter().map(|path| unanswered(path)));
    let mut faults: Vec<_> = told.into_iter().map(|hint| (Severity::Warning, hint)).collect();
    faults.extend(left_out(&rest.unwrap_or_default(), place).map(|what| (Severity::Unsupported, what)));
    let hidden =
        if place == SnippetContext::Server { std::mem::take(&mut headers.hidden) } else { Vec::new() };
    if let Some(Err(zone)) = limits.as_mut().map(|it| it.fill(zones)) {
        return Some(Err(without_zone(&zone)));
    }
    let outer = Outer { level: place.level().unwrap_or_default(), lists, hidden, limits, cookies };
    let read = defaults(headers, taken, place);
    let said = match place {
        SnippetContext::Server => LocationPolicy {
            host_error_answers: pages,
            host_intercept_errors: intercepts,
            ..LocationPolicy::default()
        },
        _ => {
            LocationPolicy { error_answers: pages, intercept_errors: intercepts, ..LocationPolicy::default() }
        }
    };
    let mut defaults = LocationPolicy { real_ip: addresses, ..read };
    defaults.overlay(&said);
    Some(Ok(Snippet { defaults, outer, faults }))
}

/// The key about the ConfigMap's authentication service.
pub(crate) const GLOBAL_AUTH: &str = "global-auth-snippet";

/// Whether hosts inherit a directive about headers, of which none is in the configuration of ingress-nginx itself.
fn is_inherited(name: &str) -> bool {
    CHANGES_ANSWERS.contains(&name) || name == "proxy_hide_header"
}

/// Reads what is around all hosts.
fn of_all(text: &str, zones: &Zones) -> Result<Snippet, String> {
    let (mut headers, mut lists, mut servers) = (Headers::default(), None, BTreeSet::new());
    let (mut told, mut real_ip, mut limits, mut cookies) = (Vec::new(), None, None, None);
    let mut intercepts = None;
    let rest = undefined(text, &mut servers).map(|mut rest| {
        lists = Lists::take(&mut rest);
        real_ip = real_ip::take(&mut rest);
        limits = Limits::take(&mut rest, SnippetLevel::All);
        cookies = cookies::take(&mut rest, SnippetLevel::All);
        intercepts = pages::take_intercepts(&mut rest);
        let (inherited, mut rest): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|it| is_inherited(it.name()));
        told = hints::of(&inherited, SnippetContext::Server);
        rest.extend(inherited.into_iter().filter(|it| !headers.take(it, SnippetContext::Server)));
        rest
    });
    if let Some(why) = restricts(&rest) {
        return Err(why);
    }
    if let Some(Err(zone)) = limits.as_mut().map(|it| it.fill(zones)) {
        return Err(without_zone(&zone));
    }
    let outer = Outer { level: SnippetLevel::All, lists, hidden: headers.hidden, limits, cookies };
    let changes = (!headers.answers.is_empty()).then_some(HeaderChangeList { changes: headers.answers });
    let mut faults: Vec<_> = told.into_iter().map(|hint| (Severity::Warning, hint)).collect();
    let inherits = outer.lists.is_some()
        || !outer.hidden.is_empty()
        || outer.limits.is_some()
        || outer.cookies.is_some();
    let says = changes.is_some() || real_ip.is_some() || intercepts.is_some();
    let is_idle = !inherits && !says && zones.is_empty();
    if is_idle || !servers.is_empty() {
        faults.push(never(servers));
    } else {
        let left = left_out(&rest.unwrap_or_default(), SnippetContext::Server);
        faults.extend(left.map(|what| (Severity::Unsupported, what)));
    }
    let defaults = LocationPolicy {
        fleet_header_changes: changes,
        real_ip,
        host_intercept_errors: intercepts,
        ..LocationPolicy::default()
    };
    Ok(Snippet { defaults, outer, faults })
}

/// Why all paths answer 503 that a zone is missing for.
fn without_zone(zone: &str) -> String {
    format!("no zone {} is defined in http-snippet, with a key that is known", shown(zone))
}

/// Reads what is beside the hosts, of which nothing takes effect.
fn of_streams(text: &str) -> Result<Snippet, String> {
    let mut servers = BTreeSet::new();
    match restricts(&undefined(text, &mut servers)) {
        Some(why) => Err(why),
        None => Ok(Snippet { faults: vec![never(servers)], ..Snippet::default() }),
    }
}

/// The directives that do more than define something. `servers` receives where those listen that are defined.
fn undefined(text: &str, servers: &mut BTreeSet<String>) -> super::Snippet {
    tokens::directives(text).map(|directives| {
        servers.extend(definitions::servers(&directives).into_iter().map(str::to_owned));
        definitions::beside(&directives)
    })
}

/// What is reported of raw configuration that does not take effect, and of servers that it defines.
fn never(servers: BTreeSet<String>) -> (Severity, String) {
    let servers = Vec::from_iter(servers).join(", ");
    let missing = format!(": nothing listens on {servers}, as its server does not exist");
    (Severity::Unsupported, format!("{NEVER}{}", if servers.is_empty() { "" } else { &missing }))
}

fn defaults(mut headers: Headers, taken: Taken, place: SnippetContext) -> LocationPolicy {
    let requests = headers.take_requests();
    let Headers { answers, told, hidden, .. } = headers;
    let list = |headers: Vec<_>| (!headers.is_empty()).then_some(HeaderList { headers });
    let changes = (!answers.is_empty()).then_some(HeaderChangeList { changes: answers });
    match place {
        SnippetContext::Server => LocationPolicy {
            host_header_changes: changes,
            host_shortcuts: taken.put(),
            ..LocationPolicy::default()
        },
        SnippetContext::Auth => LocationPolicy {
            global_auth_proxy_set_headers: list(requests),
            global_auth_answers: taken.put(),
            ..LocationPolicy::default()
        },
        SnippetContext::Location => LocationPolicy {
            header_changes: changes,
            shortcuts: taken.put(),
            request_headers: list(requests),
            told_headers: list(told),
            hide_headers_beside: (!hidden.is_empty()).then_some(TextList { values: hidden }),
            ..LocationPolicy::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use shared::policy::ErrorAnswerList;

    use super::*;

    fn snippet(key: &str, text: &str) -> Snippet {
        read(key, text, &Zones::default()).expect(key).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn those_of_hosts_and_of_locations_are_told_apart() {
        let text = "add_header X-A b; if ($scheme != https) { return 308 https://$host$request_uri; }
            location = /metrics { deny all; }";
        let Snippet { defaults, faults, .. } = snippet("server-snippet", text);
        let changes = defaults.host_header_changes.unwrap().changes;
        let shortcuts = defaults.host_shortcuts.unwrap();
        assert_eq!((changes.len(), shortcuts.shortcuts.len(), shortcuts.blocks.len()), (1, 1, 1));
        assert_eq!((defaults.header_changes, defaults.shortcuts, faults), (None, None, vec![]));

        let text = "proxy_cookie_flags ~ secure; more_set_headers 'X-A: b'; proxy_set_header X-C d; if ($arg_x) { return 403; }
            auth_request_set $user $upstream_http_x_uid; proxy_set_header X-User $user;";
        let Snippet { defaults, faults, outer } = snippet("location-snippet", text);
        let names = |list: Option<HeaderList>| -> Vec<_> {
            list.unwrap().headers.into_iter().map(|it| (it.name, it.value)).collect()
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(defaults.header_changes.unwrap().changes.len(), 1);
        assert_eq!(outer.cookies.unwrap().rules.len(), 1);
        assert_eq!(defaults.shortcuts.unwrap().shortcuts.len(), 1);
        assert_eq!(names(defaults.request_headers), [pair("X-C", "d")]);
        assert_eq!(names(defaults.told_headers), [pair("X-User", "x-uid")]);
        assert_eq!((defaults.host_header_changes, defaults.host_shortcuts, faults), (None, None, vec![]));
    }

    #[test]
    fn answers_in_place_of_errors_are_read() {
        let text = "error_page 503 =200 /busy; error_page 404 @no; proxy_intercept_errors off; location @no { return 410; }";
        let Snippet { defaults, faults, .. } = snippet("server-snippet", text);
        let errors = |list: Option<ErrorAnswerList>| -> Vec<_> {
            list.unwrap().answers.into_iter().map(|it| it.error).collect()
        };
        assert_eq!((errors(defaults.host_error_answers), faults), (vec![503, 404], vec![]));
        assert_eq!((defaults.host_intercept_errors, defaults.intercept_errors), (Some(false), None));
        let text = "proxy_intercept_errors on; error_page 404 /index.html;";
        let Snippet { defaults, faults, .. } = snippet("location-snippet", text);
        assert_eq!((errors(defaults.error_answers), faults), (vec![404], vec![]));
        assert_eq!((defaults.host_intercept_errors, defaults.intercept_errors), (None, Some(true)));
        let Snippet { defaults, faults, .. } = snippet("http-snippet", "proxy_intercept_errors on;");
        assert_eq!((defaults.host_intercept_errors, faults), (Some(true), vec![]));
    }

    #[test]
    fn what_hosts_inherit_is_read() {
        let text =
            "add_header X-A b always; more_clear_headers Server; map $a $b { default 1; } server_tokens off;";
        let Snippet { defaults, faults, .. } = snippet("http-snippet", text);
        let changes = defaults.fleet_header_changes.unwrap().changes;
        let names: Vec<_> = changes.iter().map(|it| (it.name.as_str(), it.value.as_str())).collect();
        assert_eq!(names, [("X-A", "b"), ("Server", "")]);
        assert_eq!(faults, [(Severity::Unsupported, "server_tokens of it is left out".to_owned())]);
        let Snippet { defaults, faults, .. } = snippet("http-snippet", "more_set_headers 'X-A b';");
        assert_eq!(defaults.fleet_header_changes, None);
        assert!(faults[0].1.ends_with("write \"X-A: b\""), "{faults:?}");
    }

    #[test]
    fn what_the_authentication_service_is_asked_is_read() {
        let text = "proxy_set_header My-Custom-Header 42; if ($request_method = OPTIONS) { return 200; }";
        let Snippet { defaults, faults, .. } = snippet(GLOBAL_AUTH, text);
        let headers = defaults.global_auth_proxy_set_headers.unwrap().headers;
        let pairs: Vec<_> = headers.iter().map(|it| (it.name.as_str(), it.value.as_str())).collect();
        assert_eq!((pairs, faults), (vec![("My-Custom-Header", "42")], vec![]));
        assert_eq!(defaults.global_auth_answers.unwrap().shortcuts[0].status, 200);
        assert_eq!((defaults.request_headers, defaults.shortcuts), (None, None));
    }

    #[test]
    fn what_is_left_out_is_named() {
        let text = "gzip on; brotli on; set $a b; location /x { access_log off; }";
        let Snippet { faults, .. } = snippet("server-snippet", text);
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].1.contains("\"/x\""), "{faults:?}");
        assert_eq!(faults[1].1, "brotli and gzip of it are left out");
    }

    #[test]
    fn what_could_restrict_and_is_not_read_does() {
        for (key, text) in [
            ("server-snippet", "deny all; allow 10.0.0.0/8;"),
            ("http-snippet", "allow 10.0.0.0/8; deny 10.0.0.1;"),
            ("http-snippet", "auth_basic x;"),
            ("http-snippet", "proxy_cookie_flags ~ unsure;"),
            (GLOBAL_AUTH, "return 302 /in;"),
            (GLOBAL_AUTH, "proxy_pass http://b;"),
            ("server-snippet", "location / { proxy_pass http://b; }"),
            ("location-snippet", "allow 10.0.0.0/8; deny 10.0.0.1;"),
            ("location-snippet", "limit_req zone=a;"),
            ("location-snippet", "limit_except GET { deny all; }"),
            ("location-snippet", "proxy_ssl_name b.test;"),
            ("location-snippet", "no semicolon"),
        ] {
            assert!(read(key, text, &Zones::default()).expect(key).is_err(), "{key}: {text}");
        }
        assert!(read("main-snippet", "gzip on;", &Zones::default()).is_none());
    }

    /// In nginx the innermost level that lists addresses, or hides headers, is the one that counts.
    #[test]
    fn inner_levels_count() {
        let come_to = |snippets: &[(&str, &str)]| {
            let list = |list: Option<TextList>| list.map(|it| it.values.join(" ")).unwrap_or_default();
            let mut all = LocationPolicy {
                hide_headers: Some(TextList { values: vec!["X-Key".into()] }),
                ..LocationPolicy::default()
            };
            for (key, text) in snippets {
                let Snippet { defaults, outer, faults } = snippet(key, text);
                assert_eq!(faults, [], "{text}");
                all.overlay(&defaults);
                outer.put(&mut all);
            }
            let lists = [list(all.outer_allowlist), list(all.outer_denylist)];
            (lists, list(all.hide_headers), list(all.hide_headers_beside))
        };
        let http = ("http-snippet", "deny 10.0.0.1; allow 10.0.0.0/8; deny all; proxy_hide_header X-Http;");
        let lists = |allowed: &str, denied: &str| [allowed.to_owned(), denied.to_owned()];
        let of_http = lists("10.0.0.0/8", "10.0.0.1");
        assert_eq!(come_to(&[http]), (of_http.clone(), "X-Key X-Http".into(), String::new()));
        let hides = ("server-snippet", "proxy_hide_header X-Server;");
        assert_eq!(come_to(&[http, hides]), (of_http, "X-Server".into(), String::new()));
        let lists_itself = ("server-snippet", "deny 10.0.0.2;");
        assert_eq!(come_to(&[http, lists_itself]).0, lists("", "10.0.0.2"));
        let innermost = ("location-snippet", "allow 10.3.0.0/16; deny all;");
        assert_eq!(come_to(&[http, lists_itself, innermost]).0, lists("10.3.0.0/16", ""));
        let of_locations = ("location-snippet", "proxy_hide_header X-Here;");
        assert_eq!(come_to(&[of_locations]).2, "X-Here");
    }
}
