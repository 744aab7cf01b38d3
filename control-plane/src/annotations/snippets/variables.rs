//! Variables that a snippet sets: its own, or ones with a meaning to nginx or the controller.

use shared::template::{Part, Template, Variable};

use super::tokens::Directive;
use crate::annotations::balancing;

/// The controller's own: who sets them chooses another backend, or changes what backends are told.
const OF_CONTROLLER: [&str; 8] = [
    "balancer_ewma_score",
    "connection_upgrade",
    "full_x_forwarded_for",
    "global_rate_limit_exceeding",
    "proxy_alternative_upstream_name",
    "proxy_upstream_name",
    "redirect_to_https",
    "upstream_balancer",
];

/// These only change logs and metrics, or the speed of responses: no client is sent elsewhere without them.
const HARMLESS: [&str; 7] = [
    "ingress_name",
    "limit_rate",
    "limit_rate_after",
    "location_path",
    "namespace",
    "service_name",
    "service_port",
];

/// The variable that a directive like `set` writes to, in lower case.
pub(super) fn target(directive: &Directive) -> Option<String> {
    let [name, _] = directive.arguments() else { return None };
    let is_one = matches!(Template::parse(name).parts(), [Part::Variable(_)]);
    name.strip_prefix('$').filter(|_| is_one).map(str::to_ascii_lowercase)
}

/// Whether a `set` writes to a variable that only snippets and annotations read.
pub(super) fn sets_its_own(directive: &Directive) -> bool {
    target(directive).is_some_and(|name| {
        let is_free = matches!(Variable::of(&name), Variable::Named(_));
        is_free && !balancing::is_known_to_nginx(&name) && !OF_CONTROLLER.contains(&&*name)
    })
}

/// Whether the `set` may be left out.
pub(super) fn may_set(directive: &Directive) -> bool {
    sets_its_own(directive) || target(directive).is_some_and(|name| HARMLESS.contains(&&*name))
}

/// What to call a directive in a message: `set` by its variable, unless that is its own, a named location by that, and one
/// that changes a header by the variable that has no value, if there is one.
pub(super) fn named(directive: &Directive) -> String {
    match (directive.name(), directive.argument()) {
        (name @ ("auth_request_set" | "set"), Some(variable)) if !sets_its_own(directive) => {
            format!("{name} {variable}")
        }
        (name @ "location", Some(place)) if place.starts_with('@') => format!("{name} {place}"),
        (name @ ("add_header" | "more_set_headers" | "more_set_input_headers" | "proxy_set_header"), _) => {
            let values = directive.arguments().iter().map(|text| Template::parse(text));
            let unknown = values.flat_map(|it| it.variables().find_map(unknown));
            unknown.last().map_or_else(|| name.to_owned(), |unknown| format!("{name} .. ${unknown}"))
        }
        (name, _) => name.to_owned(),
    }
}

/// The name of a variable that has no value of its own: nginx does not have it, it is not read here, or a snippet sets it.
fn unknown(variable: &Variable) -> Option<String> {
    match variable {
        Variable::Named(name) => Some(name.to_string()),
        _ => None,
    }
}
