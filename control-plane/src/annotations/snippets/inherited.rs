//! Variables that the server-snippet of an Ingress sets, in its locations: nginx sets them before it looks one up, and the
//! locations' snippets go on with them.

use std::collections::BTreeSet;

use super::groups;
use super::shortcuts::{Condition, Node, nodes};
use super::tokens::Directive;
use super::variables;
use crate::annotations::draft::Draft;

/// Directives behind which a request has another path, or has left the snippet.
const MOVES: [&str; 2] = ["break", "rewrite"];

/// What a server-snippet sets for the requests that it lets through, as directives to stand before those of a location; none
/// if nothing there uses it, or the path may be another one by then. `asked`: other names that are used.
pub(super) fn sets(server: &[Directive], location: &[Directive], asked: &BTreeSet<String>) -> Vec<Directive> {
    let used: BTreeSet<_> = groups::used(location).chain(asked.iter().cloned()).collect();
    let moves = |it: &Directive| MOVES.contains(&it.name());
    if server.iter().any(moves) || !server.iter().flat_map(names).any(|name| used.contains(&name)) {
        return Vec::new();
    }
    let mut all = Vec::new();
    for Node { directive, inner } in nodes(server) {
        match directive.name() {
            "set" if !directive.is_block => all.push(directive.clone()),
            // Whom it answers reaches no location.
            "if" if directive.is_block && !inner.iter().any(|it| it.name() == "return") => {
                all.push(directive.clone());
                all.extend(inner.iter().filter(|it| it.name() == "set").cloned());
            }
            _ => {}
        }
    }
    all
}

/// What may be set before the snippet of a location whose server-snippet is this one, other than by what goes before it.
pub(super) fn around(server: &[Directive], inherited: &[Directive], to: &Draft<'_>) -> BTreeSet<String> {
    let of_server = server.iter().filter(|_| inherited.is_empty()).flat_map(names);
    // ingress-nginx' own, of its answers to preflights.
    let of_template = to.is_on("enable-cors").then(|| "cors".to_owned());
    of_server.chain(of_template).collect()
}

/// The variables that a directive sets, in lower case.
fn names(directive: &Directive) -> Vec<String> {
    match directive.name() {
        "set" => variables::target(directive).into_iter().collect(),
        "if" => Condition::of(directive).map_or_else(Vec::new, |it| groups::names_of(&it)),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::snippets::tokens;

    #[test]
    fn what_a_location_uses_of_its_host_is_set_before_it() {
        let read = |text: &str| tokens::directives(text).unwrap();
        let uses = "proxy_set_header X-A $a;";
        let choice = "set $a one; if ($http_x = 2) { set $a two; }";
        for (server, location, expected) in [
            (choice, uses, choice),
            ("add_header X-B c; set $a one; location /x { set $a two; }", uses, "set $a one;"),
            ("set $a one; if ($arg_b) { set $a two; return 403; }", uses, "set $a one;"),
            ("if ($host ~ ^(?<A>.)) { gzip on; }", uses, "if ($host ~ ^(?<A>.)) { }"),
            (choice, "proxy_set_header X-A $b;", ""),
            ("set $a one; rewrite ^/x /y;", uses, ""),
            ("set $a one; break;", uses, ""),
        ] {
            let sets = sets(&read(server), &read(location), &BTreeSet::new());
            assert_eq!(sets, read(expected), "{server} {location}");
        }
        let asked = BTreeSet::from(["a".to_owned()]);
        assert_eq!(sets(&read(choice), &[], &asked), read(choice), "an annotation uses it");
    }
}
