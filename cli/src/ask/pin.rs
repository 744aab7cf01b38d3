//! `firth pin`, `firth rollback`, `firth unpin`: an operator's decisions, and the pin as shown by all queries.

use serde::Serialize;
use shared::proto::inspect;

use crate::moment;
use crate::output::printable;

/// The pin in force; field names are the contract of `-o json`.
#[derive(Debug, Serialize)]
pub(super) struct Pin {
    version: String,
    how: String,
    at: String,
    until: String,
    note: String,
    compiled: String,
    unreleased: u32,
}

impl Pin {
    /// The pinned version.
    pub(super) fn version(&self) -> &str {
        &self.version
    }
}

/// What is offered after a pin was removed.
#[derive(Debug, Serialize)]
pub(super) struct Unpinned {
    version: String,
    was_pinned: bool,
}

/// The pin in a response.
pub(super) fn view(pin: inspect::Pin) -> Pin {
    Pin {
        at: moment::rfc3339(pin.at.as_ref()),
        until: moment::rfc3339(pin.until.as_ref()),
        version: pin.version,
        how: pin.how,
        note: pin.note,
        compiled: pin.compiled,
        unreleased: pin.unreleased,
    }
}

/// The response to `firth unpin`.
pub(super) fn unpinned(answer: inspect::UnpinResponse) -> Unpinned {
    Unpinned { version: answer.version, was_pinned: !answer.nothing }
}

/// For people, one line: `PINNED at 1f3a92c04d7e until ... (rollback: bad canary); 4da065400f66 is not released: 2 resources differ`.
pub(super) fn text(pin: &Pin) -> String {
    let why = match pin.note.is_empty() {
        true => pin.how.clone(),
        false => format!("{}: {}", pin.how, pin.note),
    };
    let waits = match pin.unreleased {
        0 => "no changes are held back".to_owned(),
        1 => format!("{} is not released: 1 resource differs", pin.compiled),
        count => format!("{} is not released: {count} resources differ", pin.compiled),
    };
    printable(&format!("PINNED at {} until {} ({why}); {waits}", pin.version, pin.until)) + "\n"
}

/// For people.
pub(super) fn unpinned_text(answer: &Unpinned) -> String {
    let what = if answer.was_pinned { "unpinned" } else { "nothing was pinned" };
    printable(&format!("{what}; version {} is offered", answer.version)) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_of_nothing_is_told_from_that_of_a_pin() {
        let said = |nothing| {
            let answer = inspect::UnpinResponse { version: "1f3a92c04d7e".to_owned(), nothing };
            unpinned_text(&unpinned(answer))
        };
        assert_eq!(said(false), "unpinned; version 1f3a92c04d7e is offered\n");
        assert_eq!(said(true), "nothing was pinned; version 1f3a92c04d7e is offered\n");
    }

    #[test]
    fn a_pin_is_one_line() {
        let time = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
        let pin = inspect::Pin {
            version: "1f3a92c04d7e".to_owned(),
            how: "rollback".to_owned(),
            at: time(1_795_287_838),
            until: time(1_795_374_238),
            note: "bad\ncanary".to_owned(),
            compiled: "4da065400f66".to_owned(),
            unreleased: 2,
        };
        let expected = "PINNED at 1f3a92c04d7e until 2026-11-22T19:03:58.000Z (rollback: bad\\ncanary); 4da065400f66 is not \
                        released: 2 resources differ\n";
        assert_eq!(text(&view(pin.clone())), expected);
        let quiet = view(inspect::Pin { note: String::new(), unreleased: 0, ..pin });
        assert!(text(&quiet).ends_with("(rollback); no changes are held back\n"));
        assert_eq!(serde_json::to_value(&quiet).unwrap()["until"], "2026-11-22T19:03:58.000Z");
    }
}
