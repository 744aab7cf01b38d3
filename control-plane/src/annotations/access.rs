//! Address lists (annotations.md 5.3, 6.9).

use super::row::{Act, Bad, Empty, Of, Reach, Risk, Row};
use super::value::{self, CIDRS};

/// `allowlist-source-range`.
pub(crate) static ALLOWLIST_SOURCE_RANGE: Row = Row {
    name: "allowlist-source-range",
    alias: Some("whitelist-source-range"),
    risk: Risk::Medium,
    value: &Of(CIDRS, Act::Denies { unless: |it| value::is_everybody(it), reach: Reach::Paths }),
    bad: Bad::Deny(Reach::Paths),
    empty: Empty::Bad,
    doc: "Addresses that get in; all others get 403",
    ..Row::NEW
};

/// `denylist-source-range`.
pub(crate) static DENYLIST_SOURCE_RANGE: Row = Row {
    name: "denylist-source-range",
    risk: Risk::Medium,
    value: &Of(CIDRS, Act::Denies { unless: |_| false, reach: Reach::Paths }),
    bad: Bad::Deny(Reach::Paths),
    empty: Empty::Bad,
    doc: "Addresses that get 403",
    ..Row::NEW
};

pub(super) static ROWS: &[&Row] = &[&ALLOWLIST_SOURCE_RANGE, &DENYLIST_SOURCE_RANGE];
