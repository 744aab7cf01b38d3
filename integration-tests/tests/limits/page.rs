//! Parses the tables of docs/adr/003-budgets.md: what each row names, and its numbers.

use std::collections::BTreeSet;

use super::source::ONE;

/// A row of a table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) what: String,
    /// What the limit says in numbers: bytes, things, seconds.
    pub(crate) numbers: BTreeSet<u128>,
    /// Flags that it names.
    pub(crate) flags: BTreeSet<String>,
}

/// The rows of the table below a heading.
pub(crate) fn table(page: &str, heading: &str) -> Vec<Row> {
    let (_, section) =
        page.split_once(&format!("\n### {heading}\n")).unwrap_or_else(|| panic!("no heading {heading:?}"));
    let section = section.split("\n#").next().unwrap();
    let mut lines = section.lines().filter(|line| line.starts_with('|'));
    let cells =
        |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    assert_eq!(cells(lines.next().unwrap()), ["what", "limit", "when reached", "set by"], "{heading}");
    let rows = lines.skip(1).map(|line| {
        let cells = cells(line);
        let [what, limit, answer, place] =
            cells.try_into().unwrap_or_else(|_| panic!("expected four cells: {line}"));
        assert!(!answer.is_empty(), "what happens at the limit? {line}");
        Row { what, numbers: numbers(&limit), flags: flags(&place) }
    });
    rows.collect()
}

/// The numbers of a text in thousandths: `4,096`, `64 KiB`, `1/64`, `10 s`, `50 ms`, `240 B/s`. What belongs to a word does
/// not count: `HTTP/2`.
pub(crate) fn numbers(text: &str) -> BTreeSet<u128> {
    let mut found = BTreeSet::new();
    let mut words = text.split([' ', '(', ')', ';']).filter(|word| !word.is_empty()).peekable();
    while let Some(word) = words.next() {
        let word = word.trim_end_matches([',', '.', ':']);
        // A part of one.
        let word = word.strip_prefix("1/").unwrap_or(word);
        let Ok(number) = word.replace(',', "").parse::<u128>() else { continue };
        let unit = words.peek().map_or("", |unit| unit.trim_end_matches([',', '.', ':']));
        found.insert(match unit {
            "KiB" => number * (ONE << 10),
            "MiB" => number * (ONE << 20),
            "GiB" => number * (ONE << 30),
            "ms" => number,
            _ => number * ONE,
        });
    }
    found
}

fn flags(text: &str) -> BTreeSet<String> {
    text.split('`').filter(|word| word.starts_with("--")).map(str::to_owned).collect()
}
