//! Every limit of docs/adr/003-budgets.md, for each listener of both planes: its name in the code, and the tests that
//! show what happens at it and just below it.
//!
//! Read from the source, like the borders between modules: this fails for a new constant or field of limits without a
//! row, for a documented number or default that differs from the code, for a documented number that is not in the code,
//! and for a test that does not exist.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod objects;
mod page;
mod pages;
mod source;
mod stream;
mod traffic;
mod webhook;

use std::collections::{BTreeMap, BTreeSet};

use page::numbers;

const PAGE: &str = "docs/adr/003-budgets.md";

/// A row of the page: its subject, the limits in the code, and the tests that cover it.
struct Row(&'static str, &'static [&'static str], &'static [&'static str]);

/// The limits of a listener's clients.
struct Listener {
    /// Its heading on the page.
    heading: &'static str,
    krate: &'static str,
    /// Crates that have tests of it.
    tested_in: &'static [&'static str],
    /// Files and folders with its limits.
    places: &'static [&'static str],
    rows: &'static [Row],
    /// Numbers and times there that limit nothing of a peer, each with its meaning.
    others: &'static [(&'static str, &'static str)],
    /// The same of flags.
    other_flags: &'static [&'static str],
}

const LISTENERS: [&Listener; 6] = [
    &stream::LISTENER,
    &traffic::LISTENER,
    &webhook::LISTENER,
    &pages::LISTENER,
    &objects::LISTENER,
    &objects::PATTERNS,
];

impl Listener {
    /// What is inconsistent.
    fn faults(&self, page: &str) -> Vec<String> {
        let limits = source::limits(self.krate, self.places);
        let flags = if self.other_flags.is_empty() { BTreeMap::new() } else { source::flags(self.krate) };
        let tests: BTreeSet<String> = self.tested_in.iter().flat_map(|krate| source::tests(krate)).collect();
        let mut faults = Vec::new();
        let mut said: BTreeMap<String, page::Row> =
            page::table(page, self.heading).into_iter().map(|row| (row.what.clone(), row)).collect();
        let mut named: BTreeSet<&str> = self.others.iter().map(|(name, _)| *name).collect();
        let mut flagged: BTreeSet<&str> = self.other_flags.iter().copied().collect();
        for Row(what, names, shown) in self.rows {
            let Some(on_page) = said.remove(*what) else {
                faults.push(format!("{what}: the page has no such row"));
                continue;
            };
            named.extend(*names);
            let mut code = BTreeSet::new();
            for name in *names {
                match limits.get(*name) {
                    Some(value) => code.extend(*value),
                    None => faults.push(format!("{what}: the code has no {name}")),
                }
            }
            for flag in on_page.flags.iter() {
                match flags.get_key_value(flag) {
                    Some((flag, default)) => {
                        flagged.extend(flags.keys().filter(|known| *known == flag).map(String::as_str));
                        let default =
                            default.as_deref().map(spaced).map(|text| numbers(&text)).unwrap_or_default();
                        if !default.is_subset(&on_page.numbers) {
                            faults.push(format!("{what}: {flag} is {default:?} where nobody says otherwise"));
                        }
                    }
                    None => faults.push(format!("{what}: there is no {flag}")),
                }
            }
            if code != on_page.numbers {
                faults.push(format!(
                    "{what}: the page says {:?}, the code {code:?} (thousandths)",
                    on_page.numbers
                ));
            }
            if shown.is_empty() {
                faults.push(format!("{what}: no test shows it"));
            }
            let gone = shown.iter().filter(|test| !tests.contains(**test));
            faults.extend(gone.map(|test| format!("{what}: there is no test {test}")));
        }
        faults.extend(said.keys().map(|what| format!("{what}: a row of the page without one here")));
        let of_code = limits.keys().filter(|name| !named.contains(name.as_str()));
        faults.extend(of_code.map(|name| format!("{name}: a limit of {} that is in no row", self.krate)));
        let gone = self.others.iter().filter(|(name, _)| !limits.contains_key(*name));
        faults.extend(gone.map(|(name, _)| format!("{name}: not there any more")));
        let silent = flags.keys().filter(|flag| !flagged.contains(flag.as_str()));
        faults.extend(silent.map(|flag| format!("{flag}: a flag of {} that no row names", self.krate)));
        faults
    }
}

/// `1Gi` as the page has it.
fn spaced(text: &str) -> String {
    ["Ki", "Mi", "Gi"].iter().fold(text.to_owned(), |text, unit| text.replace(unit, &format!(" {unit}B")))
}

#[test]
fn every_limit_is_on_the_page_with_its_default_and_is_shown_by_a_test() {
    let page = source::page(PAGE);
    let faults: Vec<String> = LISTENERS.iter().flat_map(|listener| listener.faults(&page)).collect();
    assert!(faults.is_empty(), "{PAGE}:\n  {}", faults.join("\n  "));
}

/// The test above detects what it is meant for.
#[test]
fn a_page_and_a_code_that_differ_are_noticed() {
    let page = source::page(PAGE);
    for (from, to, fault) in [
        (
            "| 75 s |",
            "| 76 s |",
            "keep-alive (idle) timeout of a connection: the page says {76000}, the code {75000}",
        ),
        ("| 64 per listener |", "| 64 per listener, 7 more |", "connections: the page says {7000, 64000}"),
        ("`--spill-bytes` |", "`--spill-byte` |", "there is no --spill-byte"),
        (
            "| request header list | 16 KiB |",
            "| request header lists | 16 KiB |",
            "request header list: the page has no such row",
        ),
        ("| warnings in the log |", "| other |\n| warnings in the log |", ""),
    ] {
        assert!(page.contains(from), "{from}");
        let changed = page.replacen(from, to, 1);
        let faults = std::panic::catch_unwind(|| {
            LISTENERS.iter().flat_map(|listener| listener.faults(&changed)).collect::<Vec<_>>()
        });
        let seen =
            faults.map_or(true, |faults| faults.iter().any(|it| !fault.is_empty() && it.contains(fault)));
        assert!(seen, "{to}");
    }
    let unnamed = Listener { rows: &[], ..stream::LISTENER };
    let faults = unnamed.faults(&page).join("\n");
    assert!(
        faults.contains("serve::admission::PAUSE: a limit of control-plane that is in no row"),
        "{faults}"
    );
    assert!(faults.contains("--max-connections: a flag of control-plane that no row names"), "{faults}");
}

#[test]
fn numbers_are_read_as_people_write_them() {
    let read = |text| numbers(text).into_iter().collect::<Vec<_>>();
    assert_eq!(read("4,096 at most, below 1/2 of HTTP/2; (64 KiB) each"), [2_000, 4_096_000, 65_536_000]);
    assert_eq!(read("50 ms, then 10 s. And 240 B/s"), [50, 10_000, 240_000]);
}
