//! The table of all annotations that ingress-nginx knows or once knew: the features' rows, merged and sorted.
//!
//! **Invariant:** one row for one name, aliases included.

use std::sync::LazyLock;

pub(crate) use super::dead::FAMILIES;
use super::row::Row;
use super::*;

/// The rows of each feature. Register a new file of rows here.
static FEATURES: &[&[&Row]] = &[
    access::ROWS,
    affinity::ROWS,
    auth::ROWS,
    balancing::ROWS,
    buffering::ROWS,
    canary::ROWS,
    client_certs::ROWS,
    cors::ROWS,
    dead::ROWS,
    errors::ROWS,
    fastcgi::ROWS,
    headers::ROWS,
    hosts::ROWS,
    limits::ROWS,
    log::ROWS,
    mirror::ROWS,
    redirect::ROWS,
    retries::ROWS,
    response_rewrite::ROWS,
    rewrite::ROWS,
    snippets::ROWS,
    timeouts::ROWS,
    tracing::ROWS,
    upstream_tls::ROWS,
    waf::ROWS,
];

/// All rows, by name.
pub static ROWS: LazyLock<Vec<&'static Row>> = LazyLock::new(|| {
    let mut rows: Vec<_> = FEATURES.iter().flat_map(|rows| rows.iter().copied()).collect();
    rows.sort_by_key(|row| row.name);
    rows
});

/// All names and aliases, sorted, each with its row.
static NAMES: LazyLock<Vec<(&'static str, &'static Row)>> = LazyLock::new(|| {
    let names = |row: &&'static Row| {
        [Some(row.name), row.alias].into_iter().flatten().map(|name| (name, *row)).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = ROWS.iter().flat_map(names).collect();
    all.sort_by_key(|(name, _)| *name);
    all
});

/// The row of an annotation, by one of its names without the prefix; `None`: it never existed.
pub fn find(name: &str) -> Option<&'static Row> {
    match NAMES.binary_search_by_key(&name, |(name, _)| name) {
        Ok(place) => Some(NAMES[place].1),
        Err(_) => FAMILIES.iter().any(|family| name.starts_with(family)).then_some(&dead::FAMILY),
    }
}

/// Every name that is known.
pub fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::row::Status;
    use super::*;

    #[test]
    fn a_name_stands_for_one_row() {
        assert!(NAMES.is_sorted_by(|a, b| a.0 < b.0));
        for feature in FEATURES {
            assert!(feature.is_sorted_by_key(|row| row.name), "{:?}", feature[0].name);
        }
        assert!(NAMES.len() >= 155);
        assert_eq!(find("whitelist-source-range").unwrap().name, "allowlist-source-range");
        assert!(find("frobnicate").is_none());
    }

    /// The annotation that a row needs exists, is read before it, and needs no third one.
    #[test]
    fn needs_are_met_by_rows() {
        for row in ROWS.iter() {
            if let Some(needed) = row.needs {
                assert!(find(needed).is_some_and(|it| it.name == needed), "{} needs {needed}", row.name);
            }
        }
    }

    /// Samples are valid, or invalid, as declared: setters and reports are tried with them over the whole table.
    #[test]
    fn good_samples_parse_and_bad_samples_do_not() {
        for row in ROWS.iter() {
            let (good, bad) = row.value.samples();
            assert!(!good.is_empty(), "{}", row.name);
            for text in good {
                assert!(row.value.read(text).is_some(), "{}: {text:?} is a value", row.name);
            }
            for text in bad {
                assert!(row.value.read(text).is_none(), "{}: {text:?} is none", row.name);
            }
            let is_documented = !row.doc.is_empty() || row.value.status() == Status::Dead;
            assert!(is_documented, "{} says what it does", row.name);
        }
    }
}
