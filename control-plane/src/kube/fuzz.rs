//! Fuzz targets for what an API server sends: see [`crate::fuzz`].

#![allow(clippy::panic, reason = "a fuzz body fails by panicking")]

use serde_json::value::RawValue;

use super::watch::WatchInput;
use super::wire::{Whole, event, page};
use crate::objects::ObjectKind;

const GOOD: &str = r#"{"metadata":{"name":"good","namespace":"n","uid":"u","resourceVersion":"3"}}"#;

/// A line of a watch is decoded the same each time, for each kind; an invalid item of a list does not affect other
/// items.
///
/// # Panics
/// If that is not so.
pub fn watch_event(data: &[u8]) {
    for kind in ObjectKind::ALL {
        let decode = Whole(kind);
        match (event(&decode, data), event(&decode, data)) {
            (Ok(one), Ok(other)) => assert!(one == other, "{kind:?}: read in two ways"),
            (Err(_), Err(_)) => {}
            _ => panic!("{kind:?}: read once of two times"),
        }
        let Some(item) =
            std::str::from_utf8(data).ok().filter(|it| serde_json::from_str::<&RawValue>(it).is_ok())
        else {
            continue;
        };
        let text = format!(r#"{{"metadata":{{"resourceVersion":"12"}},"items":[{GOOD},{item},{GOOD}]}}"#);
        let Ok((WatchInput::Page { items, .. }, nameless)) = page(&decode, &text) else {
            panic!("{kind:?}: one bad item costs the list");
        };
        assert_eq!(items.len() + nameless, 3, "{kind:?}");
        let named = |item: Option<&super::watch::Item<_>>| item.is_some_and(|it| &*it.name.name == "good");
        assert!(named(items.first()) && named(items.last()), "{kind:?}: the neighbours are read");
    }
}
