//! Answers in place of errors: nginx' `error_page`, with a URL, a path, or a `location @NAME` of a fixed response.
//!
//! **Invariant:** those of a snippet are taken all together or not at all.

use shared::pattern::Allowance;
use shared::policy::{ErrorAnswer, ErrorAnswerList, ErrorPlace, Shortcut};
use shared::template::Template;

use super::headers::MOST;
use super::shortcuts::{self, Node, ends, named_answer, nodes};
use super::tokens::{Directive, switch};

/// Whether an error can have a page of its own. nginx has numbers of its own for what it finds out before a request has a
/// location.
fn may_have_page(error: u32) -> bool {
    (300..600).contains(&error) && !(494..500).contains(&error)
}

/// Takes what a snippet says last of whether errors of backends have these pages, too.
pub(super) fn take_intercepts(directives: &mut Vec<Directive>) -> Option<bool> {
    let said = |it: &Directive| match it.arguments() {
        [word] if it.name() == "proxy_intercept_errors" && it.depth == 0 && !it.is_block => switch(word),
        _ => None,
    };
    let last = directives.iter().filter_map(said).next_back();
    directives.retain(|it| said(it).is_none());
    last
}

/// Takes the directives out of a snippet, if they are supported. `whole`: all directives of its server.
pub(super) fn take(directives: &mut Vec<Directive>, whole: &[Directive]) -> Option<ErrorAnswerList> {
    let is_one = |it: &Directive| it.name() == "error_page" && it.depth == 0 && !it.is_block;
    let mut answers = Vec::new();
    for it in directives.iter().filter(|it| is_one(it)) {
        answers.extend(read(it.arguments(), whole)?);
    }
    directives.retain(|it| !is_one(it));
    (1..=MOST).contains(&answers.len()).then_some(ErrorAnswerList { answers })
}

/// Whether a `location @NAME` needs no word: nothing of these snippets names it, or what does is read.
pub(super) fn is_settled(directive: &Directive, whole: &[Directive], others: &[Directive]) -> bool {
    let Some(name) = directive.argument().filter(|_| shortcuts::is_named(directive)) else {
        return false;
    };
    let names = |it: &&Directive| !shortcuts::is_named(it) && it.arguments().iter().any(|text| text == name);
    let mut named = whole.iter().chain(others).filter(names).peekable();
    named.peek().is_none()
        || named.all(|it| it.name() == "error_page" && read(it.arguments(), whole).is_some())
}

/// `error_page STATUS .. [=[STATUS]] PLACE`.
fn read(arguments: &[String], whole: &[Directive]) -> Option<Vec<ErrorAnswer>> {
    let (place, before) = arguments.split_last()?;
    let (says, errors) = match before.split_last()? {
        (last, errors) if last.starts_with('=') => (Some(&last[1..]), errors),
        _ => (None, before),
    };
    // `Some(None)`: that of the answer.
    let status = match says {
        None => None,
        Some("") => Some(None),
        Some(text) => Some(Some(ends::status(text)?)),
    };
    let (answer, path) = match place.chars().next() {
        // An empty answer is none of ours.
        Some('@') => (Some(named(place, whole).filter(|it| it.text.is_some() || it.status >= 400)?), None),
        Some('/') => (None, Some(on_this_host(place)?)),
        _ => (Some(elsewhere(place, status.flatten())?), None),
    };
    let is_url = !place.starts_with(['@', '/']);
    let of_error = |text: &String| {
        let error = text.parse().ok().filter(|it| may_have_page(*it))?;
        let place = path
            .clone()
            .map(|path| ErrorPlace { status: status.unwrap_or(Some(error)).unwrap_or(0), ..path });
        let answer = answer.clone().map(|answer| with_status(answer, error, status));
        Some(ErrorAnswer { error, answer, place, in_location: is_url })
    };
    (!errors.is_empty()).then(|| errors.iter().map(of_error).collect()).flatten()
}

/// A redirect and a bare error have their own status. Any other answer has that of the error, unless another one is said.
fn with_status(answer: Shortcut, error: u32, said: Option<Option<u32>>) -> Shortcut {
    let keeps = ends::is_redirect(answer.status) || answer.text.is_none() && answer.status >= 400;
    let status = match said {
        _ if keeps => answer.status,
        None => error,
        Some(None) => answer.status,
        Some(Some(status)) => status,
    };
    Shortcut { status, ..answer }
}

/// A path as it stands, which nginx does not decode. It is one that all readers agree on.
fn on_this_host(place: &str) -> Option<ErrorPlace> {
    let (path, query) = place.split_once('?').unwrap_or((place, ""));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-._~".contains(c);
    let is_fine = path.chars().all(is_plain)
        && !path.contains("//")
        && !path.split('/').any(|it| it == "." || it == "..")
        && query.chars().all(|c| ('!'..='~').contains(&c))
        && Template::parse(query).as_literal().is_some();
    is_fine.then(|| ErrorPlace { path: path.into(), query: query.into(), status: 0 })
}

fn elsewhere(url: &str, status: Option<u32>) -> Option<Shortcut> {
    let status = status.filter(|status| ends::is_redirect(*status)).unwrap_or(302);
    ends::is_url(url).then(|| ends::returned(&[status.to_string(), url.to_owned()], false)).flatten()
}

/// What the location of this name answers, if that is one fixed response for all requests.
fn named(name: &str, whole: &[Directive]) -> Option<Shortcut> {
    let mut found = nodes(whole).filter(|Node { directive, .. }| {
        shortcuts::is_named(directive) && directive.argument() == Some(name)
    });
    let node = found.next().filter(|_| found.next().is_none())?;
    named_answer(&node, &mut Allowance::new(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::snippets::tokens;

    fn taken(text: &str) -> Option<Vec<(u32, u32, Option<String>)>> {
        let mut directives = tokens::directives(text).unwrap();
        let whole = directives.clone();
        let list = take(&mut directives, &whole)?;
        let line = |it: ErrorAnswer| {
            let answer = it.answer.unwrap();
            let is_url = text.contains("https://no.test/");
            assert_eq!(it.in_location, is_url, "{text}");
            (it.error, answer.status, answer.text)
        };
        Some(list.answers.into_iter().map(line).collect())
    }

    #[test]
    fn answers_have_the_status_that_nginx_gives_them() {
        let login = "location @in { internal; access_log off; return 302 https://in.test/?to=$request_uri; }";
        let slow = "location @slow { default_type application/json; return 429 '{}'; }";
        let bare = "location @bare { return 401; }";
        let url = Some("https://in.test/?to=$request_uri".to_owned());
        let json = Some("{}".to_owned());
        for (text, expected) in [
            (
                format!("error_page 401 500 = @in; {login}"),
                vec![(401, 302, url.clone()), (500, 302, url.clone())],
            ),
            (format!("error_page 403 @in; {login}"), vec![(403, 302, url)]),
            (format!("error_page 503 @slow; {slow}"), vec![(503, 503, json.clone())]),
            (format!("error_page 503 = @slow; {slow}"), vec![(503, 429, json.clone())]),
            (format!("error_page 503 =418 @slow; {slow}"), vec![(503, 418, json)]),
            (format!("error_page 403 =200 @bare; {bare}"), vec![(403, 401, None)]),
            (
                "error_page 403 https://no.test/;".to_owned(),
                vec![(403, 302, Some("https://no.test/".to_owned()))],
            ),
            (
                "error_page 403 =301 https://no.test/;".to_owned(),
                vec![(403, 301, Some("https://no.test/".to_owned()))],
            ),
            (
                "error_page 403 = \"https://no.test/\";".to_owned(),
                vec![(403, 302, Some("https://no.test/".to_owned()))],
            ),
        ] {
            assert_eq!(taken(&text), Some(expected), "{text}");
        }
    }

    #[test]
    fn a_path_of_the_same_host_has_its_status() {
        for (text, expected) in [
            ("error_page 404 /index.html;", vec![(404, "/index.html", "", 404)]),
            ("error_page 404 = /index.html;", vec![(404, "/index.html", "", 0)]),
            ("error_page 404 =200 /index.html;", vec![(404, "/index.html", "", 200)]),
            ("error_page 403 404 =200 /?from=$;", vec![(403, "/", "from=$", 200), (404, "/", "from=$", 200)]),
            ("error_page 500 502 /50x.html;", vec![(500, "/50x.html", "", 500), (502, "/50x.html", "", 502)]),
            ("error_page 405 =200 /a.json;", vec![(405, "/a.json", "", 200)]),
        ] {
            let mut directives = tokens::directives(text).unwrap();
            let list = take(&mut directives, &[]).unwrap();
            let places = list.answers.into_iter().map(|it| (it.error, it.place.unwrap(), it.answer));
            let expected = expected.into_iter().map(|(error, path, query, status)| {
                (error, ErrorPlace { path: path.into(), query: query.into(), status }, None)
            });
            assert_eq!(places.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{text}");
        }
    }

    #[test]
    fn the_last_word_about_errors_of_backends_counts() {
        for (text, expected, left) in [
            ("proxy_intercept_errors on;", Some(true), 0),
            ("proxy_intercept_errors on; gzip on; proxy_intercept_errors Off;", Some(false), 1),
            ("proxy_intercept_errors maybe; if ($arg_a) { proxy_intercept_errors on; }", None, 3),
        ] {
            let mut directives = tokens::directives(text).unwrap();
            assert_eq!((take_intercepts(&mut directives), directives.len()), (expected, left), "{text}");
        }
    }

    #[test]
    fn what_is_not_known_exactly_is_not_taken() {
        for text in [
            "gzip on;",
            "error_page 404 /errors/$status;",
            "error_page 404 /a/../b;",
            "error_page 404 /%2e%2e/b;",
            "error_page 404 404.html;",
            "error_page 401 = @out;",
            "error_page 401 = @in; location @in { proxy_pass http://a; }",
            "error_page 401 = @in; location @in { if ($arg_x) { return 403; } return 302 https://in.test/; }",
            "error_page 401 = @in; location @in { rewrite ^ /in last; }",
            "error_page 401 = @in; location @in { return 302 https://in.test/$1; }",
            "error_page 401 = @in; location @in { deny all; }",
            "error_page 401 @in; location @in { return 204; }",
            "error_page 401 = @in; location @in { return 403; } location @in { return 401; }",
            "error_page 495 496 =401 @in; location @in { return 401; }",
            "error_page 401 = @in; error_page 404 404.html; location @in { return 401; }",
            "error_page 401 =x @in; location @in { return 401; }",
            "error_page @in; location @in { return 401; }",
        ] {
            assert_eq!(taken(text), None, "{text}");
        }
    }

    #[test]
    fn a_named_location_needs_a_word_if_something_leads_there() {
        let is_settled = |text: &str, others: &str| {
            let (whole, others) = (tokens::directives(text).unwrap(), tokens::directives(others).unwrap());
            is_settled(whole.iter().find(|it| shortcuts::is_named(it)).unwrap(), &whole, &others)
        };
        assert!(is_settled("location @a { proxy_pass http://b; }", ""));
        assert!(is_settled("location @a { return 401; } error_page 403 @a;", ""));
        assert!(!is_settled("location @a { proxy_pass http://b; } error_page 403 @a;", ""));
        assert!(!is_settled("location @a { proxy_pass http://b; }", "error_page 403 @a;"));
        assert!(!is_settled("location @a { return 401; }", "try_files $uri @a;"));
    }
}
