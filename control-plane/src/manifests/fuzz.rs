//! Fuzz targets for the contents of a file: see [`crate::fuzz`].

use super::document::parse;

/// A Service on a line of its own.
fn service(name: &str) -> String {
    format!(
        "{{\"apiVersion\": \"v1\", \"kind\": \"Service\", \"metadata\": {{\"name\": \"{name}\"}}, \"spec\": {{}}}}\n"
    )
}

/// Any file: faults have a valid line and a reason, parsing is deterministic, and documents before and after an invalid
/// one are parsed.
///
/// # Panics
/// If that is not so.
pub fn document(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let parsed = parse(&text);
    let lines = text.split(['\n', '\r']).count();
    let faults = parsed.broken.iter().map(|(_, fault)| fault).chain(&parsed.faults);
    for fault in faults {
        assert!((1..=lines).contains(&fault.line), "{fault:?} of {lines} lines");
        assert!(!fault.reason.is_empty(), "{fault:?}");
    }
    assert_eq!(parse(&text), parsed, "read in two ways");
    let whole = parse(&format!("{}---\n{text}\n---\n{}", service("first"), service("last")));
    for name in ["first", "last"] {
        let is_it = |object: &crate::objects::Object| &*object.metadata().name == name;
        assert!(whole.objects.iter().any(|(object, _)| is_it(object)), "{name} is lost: {whole:?}");
    }
}
