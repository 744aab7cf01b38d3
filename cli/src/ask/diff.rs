//! `firth diff [FROM] [TO]`: the differences between two versions.

use std::fmt::Write as _;

use serde::Serialize;
use shared::proto::inspect;

use crate::columns::Columns;
use crate::output::printable;

/// Limit of the characters of a value in a column.
const VALUE: usize = 48;

/// The response; field names are the contract of `-o json`.
#[derive(Debug, Serialize)]
pub(super) struct Diff {
    from: String,
    to: String,
    changes: Vec<Change>,
}

/// One difference.
#[derive(Debug, Serialize)]
struct Change {
    kind: String,
    key: String,
    change: String,
    object: String,
    places: Vec<Place>,
    places_total: u32,
    field: String,
    before: Option<String>,
    after: Option<String>,
}

/// Where it takes effect.
#[derive(Debug, Serialize)]
struct Place {
    host: String,
    path: String,
}

/// The printed form of the response.
pub(super) fn view(answer: inspect::DiffResponse) -> Diff {
    let change = |it: inspect::Change| Change {
        kind: it.kind,
        key: it.key,
        change: it.change,
        object: it.object,
        places: it.places.into_iter().map(|it| Place { host: it.host, path: it.path }).collect(),
        places_total: it.places_total,
        field: it.field,
        before: it.before,
        after: it.after,
    };
    Diff { from: answer.from, to: answer.to, changes: answer.changes.into_iter().map(change).collect() }
}

/// For people.
pub(super) fn text(diff: &Diff) -> String {
    let mut text = String::new();
    if diff.changes.is_empty() {
        let _ = writeln!(text, "{} and {} are the same", printable(&diff.from), printable(&diff.to));
        return text;
    }
    let _ = writeln!(text, "from {} to {}", printable(&diff.from), printable(&diff.to));
    let mut columns = Columns::new(["HOST", "PATH", "WHAT", "BEFORE", "AFTER", "OF"]);
    for change in &diff.changes {
        let (host, path) = places(change);
        let of = match change.object.is_empty() {
            true => format!("{} {}", change.kind, change.key),
            false => change.object.clone(),
        };
        let what = if change.field.is_empty() { change.change.clone() } else { change.field.clone() };
        columns.push([host, path, what, value(change.before.as_ref()), value(change.after.as_ref()), of]);
    }
    text.push_str(&columns.render(0));
    text
}

/// The first place, and how many more there are.
fn places(change: &Change) -> (String, String) {
    let Some(first) = change.places.first() else {
        return (String::new(), String::new());
    };
    match change.places_total {
        0 | 1 => (first.host.clone(), first.path.clone()),
        all => (first.host.clone(), format!("{} and {} more", first.path, all - 1)),
    }
}

fn value(value: Option<&String>) -> String {
    let Some(value) = value else {
        return String::new();
    };
    match value.char_indices().nth(VALUE) {
        Some((end, _)) => format!("{}...", &value[..end]),
        None if value.is_empty() => "\"\"".to_owned(),
        None => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shown_short_and_told_from_none() {
        let shown = |text: &str| value(Some(&text.to_owned()));
        assert_eq!((value(None).as_str(), shown("").as_str(), shown("x").as_str()), ("", "\"\"", "x"));
        let long = "\u{e4}".repeat(VALUE);
        assert_eq!((shown(&long), shown(&(long.clone() + "b"))), (long.clone(), format!("{long}...")));
    }

    #[test]
    fn a_change_is_a_line_with_host_path_and_both_values() {
        let place = |path: &str| inspect::Place { host: "a.test".to_owned(), path: path.to_owned() };
        let route = inspect::Change {
            kind: "route".to_owned(),
            key: "ingress/default/web/a.test".to_owned(),
            change: "changed".to_owned(),
            object: "Ingress default/web".to_owned(),
            places: vec![place("/x")],
            places_total: 1,
            field: "backend".to_owned(),
            before: None,
            after: Some("default/web/80".to_owned()),
        };
        let canary = inspect::Change {
            kind: "backend".to_owned(),
            key: "default/next/80".to_owned(),
            object: String::new(),
            places: vec![place("/")],
            places_total: 3,
            field: "canary-weight".to_owned(),
            before: Some("10".to_owned()),
            after: Some("50".to_owned()),
            ..route.clone()
        };
        let answer = inspect::DiffResponse {
            from: "1f3a92c04d7e".to_owned(),
            to: "4da065400f66".to_owned(),
            changes: vec![route, canary],
            next_page_token: String::new(),
        };
        let expected = "\
from 1f3a92c04d7e to 4da065400f66
HOST    PATH          WHAT           BEFORE  AFTER           OF
a.test  /x            backend        -       default/web/80  Ingress default/web
a.test  / and 2 more  canary-weight  10      50              backend default/next/80
";
        assert_eq!(text(&view(answer.clone())), expected);
        let json = serde_json::to_value(view(answer)).unwrap();
        assert_eq!(json["changes"][1]["before"], "10");
        assert_eq!(json["changes"][0]["before"], serde_json::Value::Null);
    }
}
