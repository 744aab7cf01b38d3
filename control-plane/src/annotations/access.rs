//! Address lists (annotations.md 5.3, 6.9).

use shared::policy::TextList;

use super::row::{Act, Bad, Empty, Of, Reach, Risk, Row};
use super::value::CIDRS;

/// `allowlist-source-range`.
pub(crate) static ALLOWLIST_SOURCE_RANGE: Row = Row {
    name: "allowlist-source-range",
    alias: Some("whitelist-source-range"),
    risk: Risk::Medium,
    value: &Of(CIDRS, Act::Sets(|to, values| to.location.allowlist_source_range = Some(TextList { values }))),
    bad: Bad::Deny(Reach::Paths),
    empty: Empty::Bad,
    lines: true,
    doc: "Addresses that get in; all others get 403",
    ..Row::NEW
};

/// `denylist-source-range`.
pub(crate) static DENYLIST_SOURCE_RANGE: Row = Row {
    name: "denylist-source-range",
    risk: Risk::Medium,
    value: &Of(CIDRS, Act::Sets(|to, values| to.location.denylist_source_range = Some(TextList { values }))),
    bad: Bad::Deny(Reach::Paths),
    empty: Empty::Bad,
    lines: true,
    doc: "Addresses that get 403",
    ..Row::NEW
};

/// The ConfigMap's `block-cidrs`, which no annotation says.
pub(crate) static BLOCK_CIDRS: Row = Row {
    name: "block-cidrs",
    value: &Of(CIDRS, Act::Sets(|to, values| to.location.block_cidrs = Some(TextList { values }))),
    bad: Bad::Deny(Reach::Paths),
    doc: "Addresses that get 403 where a location has no list of its own",
    ..Row::NEW
};

pub(super) static ROWS: &[&Row] = &[&ALLOWLIST_SOURCE_RANGE, &DENYLIST_SOURCE_RANGE];
