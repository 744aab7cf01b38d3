//! The ConfigMap's `server-snippet` and `location-snippet`: what they say to all hosts, and to all locations.
//!
//! They are read as those of Ingresses, and take effect whether Ingresses may have any (ingress-nginx).

use shared::policy::{HeaderChangeList, HeaderList, LocationPolicy};

use super::headers::{Headers, SnippetContext};
use super::restriction::restricts;
use super::shortcuts::{Rewrites, Taken};
use super::{hints, left_out, tokens, unanswered};
use crate::problem::Severity;

/// A snippet of the fleet, as far as it takes effect.
#[derive(Debug)]
pub(crate) struct Snippet {
    /// Defaults of all locations.
    pub defaults: LocationPolicy,
    /// What to report.
    pub faults: Vec<(Severity, String)>,
}

/// Reads the key `server-snippet` or `location-snippet`; `None`: another key.
///
/// # Errors
/// Why all paths answer 503.
pub(crate) fn read(key: &str, text: &str) -> Option<Result<Snippet, String>> {
    let place = match key {
        "server-snippet" => SnippetContext::Server,
        "location-snippet" => SnippetContext::Location,
        _ => return None,
    };
    let mut headers = Headers::default();
    let mut taken = Taken::default();
    let mut told = Vec::new();
    let rest = tokens::directives(text).map(|directives| {
        told = hints::of(&directives, place);
        let rewrites = match place {
            SnippetContext::Server => Rewrites::All,
            _ => Rewrites::None,
        };
        let (shortcuts, mut rest) = Taken::of(&directives, place, rewrites);
        taken = shortcuts;
        // A location that hides other headers would no longer hide these.
        rest.retain(|it| it.name() == "proxy_hide_header" || !headers.take(it, place));
        rest
    });
    if let Some(why) = restricts(&rest) {
        return Some(Err(why));
    }
    told.extend(taken.empty.iter().map(|path| unanswered(path)));
    let mut faults: Vec<_> = told.into_iter().map(|hint| (Severity::Warning, hint)).collect();
    faults.extend(left_out(&rest.unwrap_or_default(), place).map(|what| (Severity::Unsupported, what)));
    Some(Ok(Snippet { defaults: defaults(headers, taken, place), faults }))
}

fn defaults(headers: Headers, taken: Taken, place: SnippetContext) -> LocationPolicy {
    let Headers { answers, requests, told, .. } = headers;
    let list = |headers: Vec<_>| (!headers.is_empty()).then_some(HeaderList { headers });
    let changes = (!answers.is_empty()).then_some(HeaderChangeList { changes: answers });
    match place {
        SnippetContext::Server => LocationPolicy {
            host_header_changes: changes,
            host_shortcuts: taken.put(),
            ..LocationPolicy::default()
        },
        _ => LocationPolicy {
            header_changes: changes,
            shortcuts: taken.put(),
            request_headers: list(requests),
            told_headers: list(told),
            ..LocationPolicy::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snippet(key: &str, text: &str) -> Snippet {
        read(key, text).expect(key).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn those_of_hosts_and_of_locations_are_told_apart() {
        let text = "add_header X-A b; if ($scheme != https) { return 308 https://$host$request_uri; }
            location = /metrics { deny all; }";
        let Snippet { defaults, faults } = snippet("server-snippet", text);
        let changes = defaults.host_header_changes.unwrap().changes;
        let shortcuts = defaults.host_shortcuts.unwrap();
        assert_eq!((changes.len(), shortcuts.shortcuts.len(), shortcuts.blocks.len()), (1, 1, 1));
        assert_eq!((defaults.header_changes, defaults.shortcuts, faults), (None, None, vec![]));

        let text = "more_set_headers 'X-A: b'; proxy_set_header X-C d; if ($arg_x) { return 403; }
            auth_request_set $user $upstream_http_x_uid; proxy_set_header X-User $user;";
        let Snippet { defaults, faults } = snippet("location-snippet", text);
        let names = |list: Option<HeaderList>| -> Vec<_> {
            list.unwrap().headers.into_iter().map(|it| (it.name, it.value)).collect()
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(defaults.header_changes.unwrap().changes.len(), 1);
        assert_eq!(defaults.shortcuts.unwrap().shortcuts.len(), 1);
        assert_eq!(names(defaults.request_headers), [pair("X-C", "d")]);
        assert_eq!(names(defaults.told_headers), [pair("X-User", "x-uid")]);
        assert_eq!((defaults.host_header_changes, defaults.host_shortcuts, faults), (None, None, vec![]));
    }

    #[test]
    fn what_is_left_out_is_named() {
        let text = "gzip on; proxy_hide_header X-Powered-By; set $a b; location /x { access_log off; }";
        let Snippet { defaults, faults } = snippet("server-snippet", text);
        assert_eq!(defaults.hide_headers, None);
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].1.contains("\"/x\""), "{faults:?}");
        assert_eq!(faults[1].1, "gzip and proxy_hide_header of it are left out");
    }

    #[test]
    fn what_could_restrict_and_is_not_read_does() {
        for (key, text) in [
            ("server-snippet", "allow 10.0.0.0/8; deny all;"),
            ("server-snippet", "location / { proxy_pass http://b; }"),
            ("location-snippet", "deny all;"),
            ("location-snippet", "limit_req zone=a;"),
            ("location-snippet", "proxy_ssl_name b.test;"),
            ("location-snippet", "no semicolon"),
        ] {
            assert!(read(key, text).expect(key).is_err(), "{key}: {text}");
        }
        assert!(read("http-snippet", "gzip on;").is_none());
    }
}
