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
    object: String,
    resource_version: String,
    manager: String,
    bytes: u64,
    resources: u32,
    held_back: bool,
    /// Versions between the previous one and this that are not kept any more.
    skipped: u32,
    pinned: bool,
}

/// The printed form, with the pinned version marked.
pub(super) fn views(answer: inspect::HistoryResponse, mut pinned: Option<&str>) -> Vec<Entry> {
    let entries = answer.entries.into_iter();
    entries
        .map(|entry| Entry {
            time: moment::rfc3339(entry.time.as_ref()),
            // Of several entries with this version, the newest is the one in force.
            pinned: pinned.take_if(|version| **version == *entry.version && !entry.held_back).is_some(),
            version: entry.version,
            cause: entry.cause,
            changed: entry.changed,
            acked: entry.acked,
            proxies: entry.proxies,
            object: entry.object,
            resource_version: entry.resource_version,
            manager: entry.manager,
            bytes: entry.bytes,
            resources: entry.resources,
            held_back: entry.held_back,
            skipped: entry.skipped,
        })
        .collect()
}

/// For people.
pub(super) fn text(entries: &[Entry]) -> String {
    if entries.is_empty() {
        return "no version was made yet\n".to_owned();
    }
    let mut columns = Columns::new(["VERSION", "TIME", "ACKED", "CHANGED", "SIZE", "BY", "CAUSE"]);
    for entry in entries {
        columns.push([
            entry.version.clone(),
            entry.time.clone(),
            match entry.held_back {
                true => "held back".to_owned(),
                false => format!("{} of {}", entry.acked, entry.proxies),
            },
            entry.changed.to_string(),
            size(entry.bytes),
            entry.manager.clone(),
            match entry.skipped {
                0 => entry.cause.clone(),
                1 => format!("{}; the version before it is not kept", entry.cause),
                count => format!("{}; {count} versions before it are not kept", entry.cause),
            },
        ]);
    }
    columns.render(0)
}

/// In the unit that suits it: `812 B`, `14 kB`.
fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{} kB", bytes / 1_000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
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
            object: "Ingress default/web".to_owned(),
            resource_version: "812".to_owned(),
            manager: "helm".to_owned(),
            bytes: 214,
            resources: 12,
            held_back: false,
            skipped: 0,
        };
        let held_back = inspect::HistoryEntry { held_back: true, ..entry.clone() };
        let pinned = views(
            inspect::HistoryResponse {
                entries: vec![held_back, entry.clone(), entry.clone()],
                ..Default::default()
            },
            Some("1f3a92c04d7e"),
        );
        assert_eq!(pinned.iter().map(|entry| entry.pinned).collect::<Vec<_>>(), [false, true, false]);
        assert!(text(&pinned).contains("  held back  "));
        for (skipped, said) in [
            (1, "10 -> 50; the version before it is not kept\n"),
            (7, "; 7 versions before it are not kept\n"),
        ] {
            let entry = inspect::HistoryEntry { skipped, ..entry.clone() };
            let views = views(inspect::HistoryResponse { entries: vec![entry], ..Default::default() }, None);
            assert!(text(&views).ends_with(said), "{}", text(&views));
        }
        let views = views(inspect::HistoryResponse { entries: vec![entry], ..Default::default() }, None);
        let expected = "\
VERSION       TIME                      ACKED   CHANGED  SIZE   BY    CAUSE
1f3a92c04d7e  2026-11-21T19:03:58.000Z  1 of 1  1        214 B  helm  Ingress default/web: canary-weight 10 -> 50
";
        assert_eq!(text(&views), expected);
        let json = serde_json::to_value(&views).unwrap();
        assert_eq!(json[0]["time"], "2026-11-21T19:03:58.000Z");
        assert_eq!(json[0]["resource_version"], "812");
        assert_eq!([size(9_999), size(10_000), size(12_345_678)], ["9999 B", "10 kB", "12 MB"]);
    }
}
