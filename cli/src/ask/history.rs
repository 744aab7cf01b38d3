//! `firth history`: versions of the configuration, the newest first.

use serde::Serialize;
use shared::proto::inspect;

use crate::columns::Columns;
use crate::moment;

/// One version; field names are the contract of `-o json`.
#[derive(Debug, Serialize)]
pub(super) struct Entry {
    version: String,
    time: String,
    cause: String,
    changed: u32,
    acked: u32,
    proxies: u32,
}

/// The answer as it is printed.
pub(super) fn views(answer: inspect::HistoryResponse) -> Vec<Entry> {
    let entries = answer.entries.into_iter();
    entries
        .map(|entry| Entry {
            time: moment::rfc3339(entry.time.as_ref()),
            version: entry.version,
            cause: entry.cause,
            changed: entry.changed,
            acked: entry.acked,
            proxies: entry.proxies,
        })
        .collect()
}

/// For people.
pub(super) fn text(entries: &[Entry]) -> String {
    if entries.is_empty() {
        return "no version was made yet\n".to_owned();
    }
    let mut columns = Columns::new(["VERSION", "TIME", "ACKED", "CHANGED", "CAUSE"]);
    for entry in entries {
        columns.push([
            entry.version.clone(),
            entry.time.clone(),
            format!("{} of {}", entry.acked, entry.proxies),
            entry.changed.to_string(),
            entry.cause.clone(),
        ]);
    }
    columns.render(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_columns_with_the_cause_last() {
        let entry = inspect::HistoryEntry {
            version: "1f3a92c04d7e".to_owned(),
            time: Some(prost_types::Timestamp { seconds: 1_795_287_838, nanos: 0 }),
            cause: "Ingress default/web: canary-weight 10 -> 50".to_owned(),
            changed: 1,
            acked: 1,
            proxies: 1,
        };
        let views = views(inspect::HistoryResponse { entries: vec![entry] });
        let expected = "\
VERSION       TIME                      ACKED   CHANGED  CAUSE
1f3a92c04d7e  2026-11-21T19:03:58.000Z  1 of 1  1        Ingress default/web: canary-weight 10 -> 50
";
        assert_eq!(text(&views), expected);
        assert_eq!(serde_json::to_value(&views).unwrap()[0]["time"], "2026-11-21T19:03:58.000Z");
    }
}
