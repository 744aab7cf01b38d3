//! The canary annotations (annotations.md 5.7, 6.16).

use std::collections::BTreeMap;

use shared::resource::Canary;

use super::{PREFIX, field, value};
use crate::problem::{Fault, Severity};

/// Out of 100, where nothing else is said (annotations.md 5.7).
const WEIGHT_TOTAL: i64 = 100;

/// What a canary Ingress says of the requests that it takes. A value that is not understood counts as not said
/// (outcome F of annotations.md 1.4) and is reported.
pub(super) fn read(annotations: &BTreeMap<String, String>, faults: &mut Vec<Fault>) -> Canary {
    let mut reader = Reader { annotations, faults };
    let header_pattern = reader.string("canary-by-header-pattern", value::is_pattern);
    if let Err(error) = regex::Regex::new(&header_pattern) {
        // Passed on as it is: the proxy sends requests with the header to the main backend (balancing.md 9).
        let reason = match error {
            regex::Error::CompiledTooBig(_) => "the pattern is too big",
            _ => "not a regular expression that can be searched in linear time",
        };
        reader.fault(
            "canary-by-header-pattern",
            format!("{reason}, requests with the header go to the main backend"),
        );
    }
    Canary {
        header: reader.string("canary-by-header", value::is_basic),
        header_value: reader.string("canary-by-header-value", value::is_basic),
        header_pattern,
        cookie: reader.string("canary-by-cookie", value::is_basic),
        weight: reader.integer("canary-weight", 0),
        weight_total: reader.integer("canary-weight-total", WEIGHT_TOTAL),
    }
}

struct Reader<'a> {
    annotations: &'a BTreeMap<String, String>,
    faults: &'a mut Vec<Fault>,
}

impl Reader<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        self.annotations.get(&format!("{PREFIX}{name}")).map(String::as_str)
    }

    fn fault(&mut self, name: &str, reason: String) {
        self.faults.push(Fault::new(Severity::Warning, field(name), reason));
    }

    fn string(&mut self, name: &str, is_allowed: fn(&str) -> bool) -> String {
        let Some(text) = self.text(name) else {
            return String::new();
        };
        // The check is on the raw text and refuses line breaks, as the original's.
        match value::string(text) {
            Some(string) if is_allowed(text) => string,
            _ => {
                let reason = format!("not understood and not used: {text:?}");
                self.fault(name, reason);
                String::new()
            }
        }
    }

    fn integer(&mut self, name: &str, default: i64) -> i64 {
        let Some(text) = self.text(name) else {
            return default;
        };
        match value::integer(text) {
            Some(number) => number,
            None => {
                let reason = format!("expected a whole number, got {text:?}: {default} counts");
                self.fault(name, reason);
                default
            }
        }
    }
}
