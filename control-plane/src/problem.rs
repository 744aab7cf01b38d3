//! Problems of objects, as values: a user's bad configuration is never an error of ours.

mod consequence;

use std::fmt;
use std::sync::Arc;

use imbl::OrdMap;

pub use self::consequence::Consequence;
use crate::objects::ObjectRef;

/// Field paths of annotations begin with this.
pub const ANNOTATIONS: &str = "metadata.annotations[";

/// Reasons that are about the version that is served of an object whose newest one is rejected begin with this.
pub const OF_LAST_GOOD: &str = "of the last good version, which is served: ";

/// How bad a problem is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// This version of the object is not served; its last good one stays, if there is one.
    Rejected,
    /// The object asks for something that this build does not support.
    Unsupported,
    /// An older object has precedence.
    Overridden,
    /// Served, but probably not as meant.
    Warning,
}

impl Severity {
    /// Lower-case name, also the label of the metric.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Unsupported => "unsupported",
            Self::Overridden => "overridden",
            Self::Warning => "warning",
        }
    }
}

/// Limits of a field's path, and of a reason, in bytes.
const FIELD_MAX: usize = 512;
const REASON_MAX: usize = 1024;

/// A problem of one field of an object, without the object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Fault {
    /// How bad it is.
    pub severity: Severity,
    /// Path of the field. Empty: the object as a whole.
    pub field: String,
    /// One sentence: lower case, no full stop, what was expected and what came. Never a secret value.
    pub reason: String,
}

impl Fault {
    /// A fault of a field.
    pub fn new(severity: Severity, field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            severity,
            field: sanitised(field.into(), FIELD_MAX),
            reason: sanitised(reason.into(), REASON_MAX),
        }
    }
}

/// What a problem is about.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Subject {
    /// An object.
    Object(ObjectRef),
    /// The pin: a decision of an operator.
    Pin,
    /// A file of a folder, by its relative path, whose objects cannot be determined.
    File(Arc<str>),
}

impl From<ObjectRef> for Subject {
    fn from(object: ObjectRef) -> Self {
        Self::Object(object)
    }
}

/// `Ingress default/web`, `file web.yaml`.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(object) => object.fmt(f),
            Self::Pin => f.write_str("pin"),
            Self::File(path) => write!(f, "file {}", path.escape_debug()),
        }
    }
}

/// Sanitises text that tenants wrote parts of: on one line, not longer than `most`, and without the password of a URL.
fn sanitised(text: String, most: usize) -> String {
    let is_hidden = |character| !is_shown(character);
    let is_clean = text.len() <= most && !text.contains(is_hidden) && !text.contains("://");
    if is_clean {
        return text;
    }
    let mut kept = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("://") {
        kept.push_str(before);
        kept.push_str("://");
        // RFC 3986 3.2.1: user information precedes the last @ of an authority.
        let end = after.find(['/', '?', '#', '"', ' ']).unwrap_or(after.len());
        let host = after[..end].rfind('@').map_or(0, |at| at + 1);
        if host > 0 {
            kept.push_str("...@");
        }
        rest = &after[host..];
    }
    kept.push_str(rest);
    let mut kept = kept.replace(is_hidden, " ");
    if kept.len() > most {
        kept.truncate(kept.floor_char_boundary(most - 3));
        kept.push_str("...");
    }
    kept
}

/// One problem, for the owner of an object.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Problem {
    /// The object that it is about.
    pub object: Subject,
    /// Path of the field: `metadata.annotations[nginx.ingress.kubernetes.io/auth-url]`. Empty: the object as a whole.
    pub field: String,
    /// How bad it is.
    pub severity: Severity,
    /// One sentence: lower case, no full stop, what was expected and what came. Never a secret value.
    pub reason: String,
    /// `file:line` in a folder of manifests, else empty.
    pub location: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, field, severity, reason, location } = self;
        write!(f, "{object}")?;
        if !field.is_empty() {
            write!(f, ", {field}")?;
        }
        write!(f, ": {} ({})", reason, severity.as_str())?;
        if location.is_empty() { Ok(()) } else { write!(f, " [{location}]") }
    }
}

/// What is wrong with objects. A clone is cheap.
pub type Problems = OrdMap<Subject, Arc<[Problem]>>;

/// Limit of the characters of a tenant's text that are shown.
const SHOWN: usize = 120;

/// Whether a character shows what it is, wherever it stands. Control characters do not, nor do those without a width, or
/// that change the order of what follows them.
pub fn is_shown(character: char) -> bool {
    if character.is_ascii() {
        return !character.is_ascii_control();
    }
    // Behind a letter, an accent of its own is one.
    let mut text = [b'a'; 1 + char::MAX_LEN_UTF8];
    let length = character.encode_utf8(&mut text[1..]).len();
    let text = std::str::from_utf8(&text[..=length]).unwrap_or_default();
    text.escape_debug().count() == 2
}

/// The first `most` characters of a text, on one line.
pub(crate) fn line(text: &str, most: usize) -> String {
    let mut line: String = text.chars().take(most).map(|c| if is_shown(c) { c } else { ' ' }).collect();
    if text.chars().nth(most).is_some() {
        line.push_str("...");
    }
    line
}

/// A tenant's text in quotes: on one line, and short whatever it contains.
pub fn shown(text: &str) -> String {
    let end = text.char_indices().nth(SHOWN).map(|(end, _)| end);
    match end {
        None => format!("{text:?}"),
        Some(end) => format!("{:?}.. ({} bytes)", &text[..end], text.len()),
    }
}

/// At most `most` faults, the worst ones; the last says how many are left out.
pub fn bounded(mut faults: Vec<Fault>, most: usize) -> Vec<Fault> {
    if faults.len() > most {
        faults.sort_by_key(|fault| fault.severity);
        let kept = most.saturating_sub(1);
        let reason = format!("{} more like these are not listed", faults.len() - kept);
        let severity = faults[kept].severity;
        faults.truncate(kept);
        faults.push(Fault::new(severity, "", reason));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_text_is_short_and_on_one_line() {
        assert_eq!(shown("a\nb\u{1b}[31m\u{202e}"), r#""a\nb\u{1b}[31m\u{202e}""#);
        let long = "\n".repeat(1 << 20);
        assert!(shown(&long).len() < 300);
        assert!(shown(&long).ends_with(".. (1048576 bytes)"));
        assert!(shown(&"\u{202e}".repeat(1 << 10)).len() < 1200);
    }

    #[test]
    fn the_worst_faults_are_kept() {
        let fault = |i: usize| {
            let severity = if i == 99 { Severity::Rejected } else { Severity::Warning };
            Fault::new(severity, i.to_string(), "")
        };
        let faults = bounded((0..100).map(fault).collect(), 10);
        assert_eq!(faults.len(), 10);
        assert_eq!(faults[0].field, "99");
        assert_eq!(faults[9].reason, "91 more like these are not listed");
        assert_eq!(bounded((0..10).map(fault).collect(), 10).len(), 10);
    }

    fn reason(text: &str) -> String {
        Fault::new(Severity::Warning, "", text).reason
    }

    #[test]
    fn a_tenants_text_is_short_and_on_one_line() {
        let long = reason(&"ä".repeat(200_000));
        assert!(long.len() <= REASON_MAX && long.ends_with("..."));
        assert_eq!(reason("a\nb\u{1b}[2Jc"), "a b [2Jc");
        assert_eq!(reason("a\u{202e}b\u{200b}c\u{2028}d"), "a b c d");
        assert_eq!(reason("größe\u{301}, \"it's\" c:\\d"), "größe\u{301}, \"it's\" c:\\d");
        assert_eq!(Fault::new(Severity::Warning, "x".repeat(9_999), "").field.len(), FIELD_MAX);
    }

    #[test]
    fn the_password_of_a_url_is_not_told() {
        assert_eq!(
            reason("expected a host, got \"http://user:pa@ss@a.test/b@c\""),
            "expected a host, got \"http://...@a.test/b@c\""
        );
        assert_eq!(reason("http://a.test, ftp://u@b?x=y@z"), "http://a.test, ftp://...@b?x=y@z");
        assert_eq!(reason("://"), "://");
    }
}
