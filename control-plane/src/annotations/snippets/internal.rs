//! Locations, and blocks of a server, that only nginx itself leads to: `internal`. A client's own request for one is answered
//! 404.

use super::shortcuts::{is_named, nodes};
use super::tokens::Directive;

/// Directives by which a request may get there.
const LEAD: [&str; 6] = ["auth_request", "error_page", "mirror", "post_action", "rewrite", "try_files"];

/// Takes it out of a snippet of locations. Returns whether it was there.
pub(super) fn take(directives: &mut Vec<Directive>) -> bool {
    let is_one = |it: &Directive| {
        it.name() == "internal" && it.depth == 0 && !it.is_block && it.arguments().is_empty()
    };
    let before = directives.len();
    directives.retain(|it| !is_one(it));
    directives.len() < before
}

/// Takes what they answer out of such blocks, unless something of these snippets leads to some location: a client's request
/// gets 404 before that. Returns their paths. What is left is a backend's `X-Accel-Redirect`, which leads to no block here.
pub(super) fn close(directives: &mut Vec<Directive>, others: &[Directive]) -> Vec<String> {
    let leads = |it: &Directive| LEAD.contains(&it.name());
    if directives.iter().chain(others).any(leads) {
        return Vec::new();
    }
    let (mut rest, mut closed) = (Vec::new(), Vec::new());
    for node in nodes(directives) {
        rest.push(node.directive.clone());
        let own = || node.inner.iter().filter(|it| it.depth == node.directive.depth + 1);
        let is_internal = own().any(|it| it.name() == "internal" && !it.is_block);
        let answers = |it: &Directive| it.name().ends_with("_pass") || it.name() == "return";
        let is_place = node.directive.name() == "location" && !is_named(node.directive);
        if is_place && is_internal && node.inner.iter().any(answers) {
            closed.push(node.directive.arguments().join(" "));
            rest.extend(own().filter(|it| it.name() == "internal").cloned());
        } else {
            rest.extend_from_slice(node.inner);
        }
    }
    *directives = rest;
    closed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::snippets::tokens;

    #[test]
    fn only_that_of_the_location_itself_is_taken() {
        for (text, expected, left) in [
            ("internal; gzip on;", true, 1),
            ("if ($arg_a) { internal; }", false, 2),
            ("internal x;", false, 1),
        ] {
            let mut directives = tokens::directives(text).unwrap();
            assert_eq!((take(&mut directives), directives.len()), (expected, left), "{text}");
        }
    }

    #[test]
    fn a_block_that_nothing_leads_to_answers_nothing() {
        let asked = "location = /check { internal; proxy_pass http://a/b; proxy_set_header X-A b; }";
        let read = |text: &str| tokens::directives(text).unwrap();
        for (text, others, closed, left) in [
            (asked, "", vec!["= /check"], "location = /check { internal; }"),
            (asked, "auth_request /check;", vec![], asked),
            (asked, "if ($arg_a) { rewrite ^ /check last; }", vec![], asked),
            ("location /a { proxy_pass http://a; }", "", vec![], "location /a { proxy_pass http://a; }"),
            ("location /a { internal; return 404; }", "", vec!["/a"], "location /a { internal; }"),
            ("location @a { internal; return 503; }", "", vec![], "location @a { internal; return 503; }"),
            ("location /a { internal; alias /b; }", "", vec![], "location /a { internal; alias /b; }"),
        ] {
            let mut directives = read(text);
            assert_eq!(
                (close(&mut directives, &read(others)), &directives),
                (closed.iter().map(|it: &&str| (*it).to_owned()).collect(), &read(left)),
                "{text} {others}"
            );
        }
    }
}
