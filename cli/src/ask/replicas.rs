//! The replicas of the control plane, as seen by the one that was asked.

use std::fmt::Write as _;

use serde::Serialize;
use shared::proto::inspect;

use crate::output::printable;

/// A replica; field names are the contract of `-o json`.
#[derive(Debug, Serialize)]
pub(super) struct Replica {
    /// Empty: the one that was asked.
    address: String,
    name: String,
    /// Why it does not answer; empty if it does.
    pub(super) unreachable: String,
    /// Proxies that it had when it last answered, and that are not found elsewhere.
    proxies: u32,
    /// How it has differed for a minute from the one that was asked, or that it is of another build; empty if neither.
    differs: String,
    /// Since when it has not heard the API server, what it may not list, and what follows; empty: neither.
    unread: String,
}

/// The printed form of the response.
pub(super) fn views(replicas: Vec<inspect::Replica>) -> Vec<Replica> {
    let view = |inspect::Replica { address, name, unreachable, proxies, differs, unread }| Replica {
        address,
        name,
        unreachable,
        proxies,
        differs,
        unread,
    };
    replicas.into_iter().map(view).collect()
}

/// A line for each replica that does not answer, that offers something else, or that may not read its objects.
pub(super) fn odd(replicas: &[Replica]) -> String {
    let mut text = String::new();
    for Replica { address, name, unreachable, proxies, differs, unread } in replicas {
        let who = match (name.as_str(), address.as_str()) {
            ("", address) => address.to_owned(),
            (name, "") => name.to_owned(),
            (name, address) => format!("{name} ({address})"),
        };
        if !unread.is_empty() {
            let _ = writeln!(text, "{}", printable(&format!("control plane {who} {unread}")));
        }
        let line = match proxies {
            _ if unreachable.is_empty() && differs.is_empty() => continue,
            _ if unreachable.is_empty() => format!("control plane {who} {differs}"),
            0 => format!("control plane {who} does not answer: {unreachable}"),
            _ => format!(
                "control plane {who} does not answer: {unreachable}; {proxies} of its proxies were heard nowhere else"
            ),
        };
        let _ = writeln!(text, "{}", printable(&line));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_do_not_answer_or_differ_are_named() {
        let here = inspect::Replica { name: "one".to_owned(), ..Default::default() };
        let lost = inspect::Replica {
            address: "10.0.0.7:15010".to_owned(),
            name: "two".to_owned(),
            unreachable: "connection\nrefused".to_owned(),
            proxies: 3,
            ..Default::default()
        };
        let without = inspect::Replica { proxies: 0, ..lost.clone() };
        let apart = inspect::Replica {
            address: "10.0.0.8:15010".to_owned(),
            differs: "offers version a, and this one b, for more than a minute".to_owned(),
            ..Default::default()
        };
        assert_eq!(
            odd(&views(vec![here, lost, without, apart])),
            "control plane two (10.0.0.7:15010) does not answer: connection\\nrefused; 3 of its proxies were heard nowhere else\n\
             control plane two (10.0.0.7:15010) does not answer: connection\\nrefused\n\
             control plane 10.0.0.8:15010 offers version a, and this one b, for more than a minute\n"
        );
        let forbidden = inspect::Replica {
            name: "one".to_owned(),
            unread: "may not list secrets".to_owned(),
            ..Default::default()
        };
        assert_eq!(odd(&views(vec![forbidden])), "control plane one may not list secrets\n");
        assert_eq!(odd(&[]), "");
    }
}
