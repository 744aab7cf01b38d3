//! Parses entries of a ConfigMap as headers.

use std::collections::{BTreeMap, BTreeSet};

use shared::policy::{Header, HeaderList};
use shared::template::{MOST_VARIABLES, Template};

use crate::problem::shown;

/// Whether nginx accepts this as a header name.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
}

/// The entries that are headers, sorted by name, and the faults of the others. One without a value removes the header
/// of its name: nginx does not send empty headers.
pub fn usable(entries: &BTreeMap<String, String>) -> (HeaderList, Vec<String>) {
    let (mut headers, mut wrong) = (Vec::new(), Vec::new());
    for (name, value) in entries {
        match header(name, value) {
            Ok(header) => headers.push(header),
            Err(what) => wrong.push(what),
        }
    }
    (HeaderList { headers }, wrong)
}

/// All entries, if all are headers that the fleet allows.
///
/// # Errors
/// The fault of the first invalid one.
pub fn custom(entries: &BTreeMap<String, String>, allowed: &BTreeSet<String>) -> Result<HeaderList, String> {
    let headers = entries.iter().map(|(name, value)| {
        let header = header(name, value)?;
        match allowed.contains(name) {
            true if header.value.is_empty() => Err(format!("expected a value for {name}, got none")),
            true => Ok(header),
            false => {
                Err(format!("{} is not among the ConfigMap's global-allowed-response-headers", shown(name)))
            }
        }
    });
    Ok(HeaderList { headers: headers.collect::<Result<_, _>>()? })
}

/// All entries, if all are FastCGI parameters.
///
/// # Errors
/// The fault of the first invalid one.
pub fn params(entries: &BTreeMap<String, String>) -> Result<HeaderList, String> {
    let params = entries.iter().map(|(name, value)| {
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(format!("expected the name of a parameter, got {}", shown(name)));
        }
        let value = value.strip_suffix('\n').unwrap_or(value);
        if value.chars().any(char::is_control) {
            return Err(format!("expected a value of one line for {name}, got {}", shown(value)));
        }
        moderate(name, value)?;
        Ok(Header { name: name.to_owned(), value: value.to_owned() })
    });
    Ok(HeaderList { headers: params.collect::<Result<_, _>>()? })
}

/// A trailing line break, as YAML blocks have, is dropped; any other would begin another header.
fn header(name: &str, value: &str) -> Result<Header, String> {
    if !is_name(name) {
        return Err(format!("expected the name of a header, got {}", shown(name)));
    }
    let value = value.strip_suffix('\n').unwrap_or(value);
    if !value.chars().all(|c| (' '..='~').contains(&c)) {
        let value = shown(value);
        return Err(format!("expected a value of one line of printable ASCII for {name}, got {value}"));
    }
    moderate(name, value)?;
    Ok(Header { name: name.to_owned(), value: value.to_owned() })
}

/// Limits variables: each may expand to as much as a client sends.
fn moderate(name: &str, value: &str) -> Result<(), String> {
    match Template::parse(value).is_moderate() {
        true => Ok(()),
        false => Err(format!("expected at most {MOST_VARIABLES} variables in the value of {name}, got more")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(list: &[(&str, &str)]) -> BTreeMap<String, String> {
        list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn entries_of_no_use_are_left_out() {
        let entries = entries(&[
            ("X-A", "two words\n"),
            ("X-B", "a\r\nX-C: 1"),
            ("X:D", "1"),
            ("X-E", ""),
            ("X-F", "\u{e4}"),
        ]);
        let (list, wrong) = usable(&entries);
        let header = |name: &str, value: &str| Header { name: name.into(), value: value.into() };
        assert_eq!(list.headers, [header("X-A", "two words"), header("X-E", "")]);
        assert_eq!(wrong.len(), 3);
        assert!(wrong.iter().all(|it| !it.contains('\n')));
    }

    #[test]
    fn a_value_has_so_many_variables() {
        let value = "$host".repeat(MOST_VARIABLES);
        assert_eq!(usable(&entries(&[("X-A", &value)])).0.headers.len(), 1);
        assert!(params(&entries(&[("A", &value)])).is_ok());
        let value = value + "$1";
        let (list, wrong) = usable(&entries(&[("X-A", &value)]));
        assert_eq!(list.headers, []);
        assert_eq!(wrong, ["expected at most 64 variables in the value of X-A, got more"]);
        assert!(params(&entries(&[("A", &value)])).is_err());
    }

    #[test]
    fn parameters_are_of_one_line() {
        let read = |name, value| params(&entries(&[("A", ""), (name, value)])).map(|list| list.headers.len());
        assert_eq!(read("SCRIPT_FILENAME", "$document_root$fastcgi_script_name\n"), Ok(2));
        for (name, value) in [("X-A", "1"), ("", "1"), ("B", "a\nb")] {
            assert!(read(name, value).is_err(), "{name} {value:?}");
        }
    }

    #[test]
    fn one_that_is_not_allowed_spoils_all() {
        let allowed = BTreeSet::from(["X-A".to_owned()]);
        assert_eq!(custom(&entries(&[("X-A", "1")]), &allowed).unwrap().headers.len(), 1);
        for bad in [("x-a", "1"), ("X-B", "1"), ("X-A", "a\nb"), ("X-A", "")] {
            assert!(custom(&entries(&[("X-A", "1"), bad]), &allowed).is_err(), "{bad:?}");
        }
    }
}
