//! From the text of one file to the objects in it. Pure.
//!
//! A file is a sequence of documents parted by `---`, each YAML or JSON. What begins with `{` goes to the JSON reader,
//! which is many times faster; only what is no JSON goes to the YAML reader. `List`s are taken apart.
//!
//! **Invariant:** a document that cannot be read costs the file that document alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use shared::name::ObjectName;

use super::{defaults, legacy};
use crate::objects::json::{self, DecodeError, Head, Identity};
use crate::objects::{Object, ObjectKind, ObjectRef, OfKind};

/// How deep lists may stand in lists.
const MAX_DEPTH: usize = 4;

/// A longer document of YAML, in bytes, is not read: that takes a second for each 8 MiB, and twenty times their memory.
/// JSON, which needs neither, may be as long as a file.
const MAX_YAML: usize = 8 << 20;

/// Nodes of one document of YAML.
const MAX_NODES: usize = 1_000_000;

/// A longer key is not repeated.
const MAX_KEY: usize = 100;

/// What all aliases of one document may come to, in bytes, each of them as long as the document at worst.
const MAX_ALIASED: usize = 64 << 20;

/// What a file says.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Parsed {
    /// Objects, in order, and the line on which each begins.
    pub(super) objects: Vec<(Object, usize)>,
    /// Objects that cannot be read, but can be named.
    pub(super) broken: Vec<(ObjectRef, Fault)>,
    /// Documents of which not even that can be said.
    pub(super) faults: Vec<Fault>,
    /// What the owners of good objects should know.
    pub(super) remarks: Vec<(ObjectRef, Fault)>,
    /// API version and kind of what is not read.
    pub(super) ignored: BTreeSet<String>,
}

/// Why a document cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fault {
    /// Line in the file, from 1.
    pub(super) line: usize,
    /// Path of the field, or empty.
    pub(super) field: String,
    /// What was expected and what came.
    pub(super) reason: String,
}

/// Whether there is no document in a file.
pub(super) fn is_void(text: &str) -> bool {
    split(text.strip_prefix('\u{feff}').unwrap_or(text)).next().is_none()
}

/// Reads a file.
pub(super) fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    for (document, line) in split(text.strip_prefix('\u{feff}').unwrap_or(text)) {
        parsed.read(document, line);
    }
    parsed
}

/// The documents of a file, and the line on which each begins.
fn split(text: &str) -> impl Iterator<Item = (&str, usize)> {
    let mut documents = Vec::new();
    let (mut start, mut start_line, mut at) = (0, 1, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if let Some(rest) = line.strip_prefix("---")
            && rest.chars().next().is_none_or(char::is_whitespace)
        {
            documents.push((&text[start..at], start_line));
            // A document may begin on the line of the mark.
            (start, start_line) = (at + 3, number + 1);
        }
        at += line.len();
    }
    documents.push((&text[start..], start_line));
    documents.into_iter().filter_map(|(document, line)| {
        let blank = || document.split_inclusive('\n').take_while(|line| is_blank(line));
        let body = &document[blank().map(str::len).sum()..];
        (!body.is_empty()).then(|| (body, line + blank().count()))
    })
}

/// Whether a line before a document says nothing: directives are of no use to what is read here.
fn is_blank(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#') || line.starts_with('%') || line == "..."
}

impl Parsed {
    /// Reads one document, which begins on `line`.
    fn read(&mut self, document: &str, line: usize) {
        if document.trim_start().starts_with('{') {
            self.read_json(document, line);
        } else {
            self.read_yaml(document, line, None);
        }
    }

    /// One or more JSON objects one after the other.
    fn read_json(&mut self, document: &str, line: usize) {
        let mut values = serde_json::Deserializer::from_str(document).into_iter::<&RawValue>();
        let mut lines = Lines { text: document, at: 0, line };
        let mut first = true;
        for value in &mut values {
            match value {
                Ok(value) => {
                    let text = value.get();
                    let line = lines.of(text);
                    self.read_value(text, &Place { line, yaml: None }, &Head::default(), 0);
                }
                // A flow mapping of YAML, perhaps.
                Err(error) if first => return self.read_yaml(document, line, Some(&error)),
                Err(error) => {
                    return self.faults.push(fault(&DecodeError::new(&error, document, true), line));
                }
            }
            first = false;
        }
    }

    fn read_yaml(&mut self, document: &str, line: usize, json: Option<&serde_json::Error>) {
        if document.len() > MAX_YAML {
            let reason = format!(
                "expected a document of at most {MAX_YAML} bytes of YAML, got {}: part it by `---`, or write it as JSON",
                document.len()
            );
            return self.faults.push(Fault { line, field: String::new(), reason });
        }
        let (within, reason) = match serde_saphyr::from_str_with_options::<Value>(
            document,
            yaml_options(document),
        ) {
            Ok(Value::Null) => return,
            Ok(value) => {
                let place = Place { line, yaml: Some(document) };
                return self.read_value(&value.to_string(), &place, &Head::default(), 0);
            }
            Err(error) => match (template_line(document), json) {
                (Some(at), _) => (
                    at,
                    "expected a manifest, got a template with `{{`: render it first, as `helm template` does"
                        .to_owned(),
                ),
                (None, Some(json)) => {
                    (json.line(), "expected JSON, or YAML in braces, got neither".to_owned())
                }
                (None, None) => (yaml_line_of(&error), format!("expected YAML, {}", yaml_words(&error))),
            },
        };
        // A fault at the very end is told of a line that is not there.
        let within = within.clamp(1, document.split('\n').count());
        self.faults.push(Fault { line: line + within - 1, field: String::new(), reason });
    }

    /// One object, or a list of them. `outer` is what the list around it says.
    fn read_value(&mut self, text: &str, place: &Place<'_>, outer: &Head<'_>, depth: usize) {
        if !text.starts_with('{') {
            let reason = "expected a mapping with apiVersion and kind, got something else".to_owned();
            return self.faults.push(Fault { line: place.line, field: String::new(), reason });
        }
        let head: Head<'_> = match serde_json::from_str(text) {
            Ok(head) => head,
            Err(error) => {
                return self.faults.push(fault(&DecodeError::new(&error, text, true), place.line));
            }
        };
        let api_version = if head.api_version.is_empty() { &outer.api_version } else { &head.api_version };
        let kind = if head.kind.is_empty() { &outer.kind } else { &head.kind };
        if kind.is_empty() {
            let (line, field) = (place.line, "kind".to_owned());
            return self.faults.push(Fault { line, field, reason: "expected a kind, got none".to_owned() });
        }
        if let Some(of) = kind.strip_suffix("List") {
            let outer = Head { api_version: api_version.clone(), kind: of.to_owned().into() };
            return self.read_list(text, place, &outer, depth);
        }
        match ObjectKind::parse(api_version, kind) {
            Some(kind) => self.read_object(kind, text, place),
            None if legacy::kind(api_version, kind).is_some() => {
                self.read_old(api_version, kind, text, place)
            }
            // Namespaces are in most folders, and nothing is missing without them.
            None if kind == "Namespace" => {}
            None => {
                self.ignored.insert(format!("{api_version} {kind}"));
            }
        }
    }

    fn read_list(&mut self, text: &str, place: &Place<'_>, outer: &Head<'_>, depth: usize) {
        #[derive(Deserialize)]
        struct List<'a> {
            #[serde(borrow, default)]
            items: Vec<&'a RawValue>,
        }
        let list: List<'_> = match serde_json::from_str(text) {
            Ok(list) if depth < MAX_DEPTH => list,
            Ok(_) => {
                let reason = format!("expected lists at most {MAX_DEPTH} deep");
                return self.faults.push(Fault { line: place.line, field: "items".to_owned(), reason });
            }
            Err(error) => {
                return self.faults.push(fault(&DecodeError::new(&error, text, true), place.line));
            }
        };
        let mut lines = Lines { text, at: 0, line: place.line };
        for item in list.items {
            let line = lines.of(item.get());
            self.read_value(item.get(), &Place { line, yaml: None }, outer, depth + 1);
        }
    }

    /// An object of a version that is no more.
    fn read_old(&mut self, api_version: &str, kind: &str, text: &str, place: &Place<'_>) {
        let Some(kind) = legacy::kind(api_version, kind) else { return };
        let known = self.objects.len();
        match legacy::convert(kind, text) {
            // It is another text now, and only its first line is known.
            Some(text) => self.read_object(kind, &text, &Place { line: place.line, yaml: place.yaml }),
            None => self.read_object(kind, text, place),
        }
        if let Some((object, line)) = self.objects.get(known) {
            let (line, field) = (*line, "apiVersion".to_owned());
            let reason = legacy::remark(api_version, kind);
            self.remarks.push((object.reference(), Fault { line, field, reason }));
        }
    }

    fn read_object(&mut self, kind: ObjectKind, text: &str, place: &Place<'_>) {
        let decoded = match (kind, legacy::old_backend(text)) {
            (ObjectKind::Ingress, Some(field)) => Err(DecodeError {
                field,
                reason: "expected service.name and service.port, got serviceName and servicePort, which only v1beta1 had"
                    .to_owned(),
                line: 1,
            }),
            _ => json::decode(kind, text),
        };
        let error = match decoded.and_then(|object| defaults::fill(object, text)) {
            Ok(object) => return self.objects.push((object, place.line)),
            Err(error) => error,
        };
        let line = match place.yaml {
            Some(document) => {
                let old = || {
                    line_with(document, |line| line.contains("serviceName") || line.contains("servicePort"))
                };
                place.line + yaml_line(kind, document).or_else(old).unwrap_or(1) - 1
            }
            None => place.line + error.line - 1,
        };
        let fault = Fault { line, field: error.field, reason: error.reason };
        match Identity::read(text) {
            Some(Identity { name, .. }) => {
                let name = ObjectName { namespace: defaults::namespace(kind, name.namespace), ..name };
                self.broken.push((ObjectRef { kind, name }, fault));
            }
            None => self.faults.push(fault),
        }
    }
}

/// Where a value stands.
struct Place<'a> {
    /// Its first line in the file.
    line: usize,
    /// For what was YAML: the document, which begins there.
    yaml: Option<&'a str>,
}

/// Counts lines along a text, each byte once.
struct Lines<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl Lines<'_> {
    /// The line of a part of the text. Parts are asked for in order.
    fn of(&mut self, part: &str) -> usize {
        let offset = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        if let Some(between) = self.text.as_bytes().get(self.at..offset) {
            self.line += between.iter().filter(|byte| **byte == b'\n').count();
            self.at = offset;
        }
        self.line
    }
}

fn fault(error: &DecodeError, line: usize) -> Fault {
    let DecodeError { field, reason, line: within } = error.clone();
    Fault { line: line + within - 1, field, reason }
}

/// The line of the first value in a YAML document that is not what the kind has there, from 1.
fn yaml_line(kind: ObjectKind, document: &str) -> Option<usize> {
    struct Document<'a>(&'a str);
    impl OfKind for Document<'_> {
        type Output = Option<usize>;

        fn of<T: DeserializeOwned>(self, _: fn(Arc<T>) -> Object) -> Option<usize> {
            let Self(text) = self;
            let error = serde_saphyr::from_str_with_options::<T>(text, yaml_options(text)).err()?;
            usize::try_from(error.location()?.line()).ok().filter(|line| *line > 0)
        }
    }
    kind.with(Document(document))
}

/// The first line, from 1, of which that is so.
fn line_with(document: &str, is_it: impl Fn(&str) -> bool) -> Option<usize> {
    document.lines().position(is_it).map(|at| at + 1)
}

/// The line of a template's first action, if it is one.
fn template_line(document: &str) -> Option<usize> {
    line_with(document, |line| line.contains("{{") && !line.trim_start().starts_with('#'))
}

/// The reader's budgets, for the files of an operator and against those of a tenant: what a document costs is a
/// multiple of its length, aliases included.
fn yaml_options(document: &str) -> serde_saphyr::Options {
    let aliased = (MAX_ALIASED / document.len().max(1)).clamp(16, 50_000);
    serde_saphyr::options! {
        // As in YAML 1.2 and for `y` and `n` as in kubectl: a Service may be called that.
        strict_booleans: true,
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: aliased,
            max_replay_stack_depth: 16,
        },
        budget: serde_saphyr::budget! {
            max_events: 4 * MAX_NODES,
            max_nodes: MAX_NODES,
            max_aliases: aliased,
            max_total_scalar_bytes: MAX_YAML + MAX_ALIASED,
        },
    }
}

fn yaml_line_of(error: &serde_saphyr::Error) -> usize {
    error.location().map_or(1, |it| usize::try_from(it.line()).unwrap_or(1))
}

/// What is wrong with a document, without any of its text: that may be a Secret's.
fn yaml_words(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error;
    let told = match error.without_snippet() {
        Error::DuplicateMappingKey { key: Some(key), .. } if key.len() <= MAX_KEY => {
            return format!("got the key {key:?} twice in one mapping");
        }
        Error::DuplicateMappingKey { .. } => "got a key twice in one mapping",
        Error::Eof { .. } => "and it ends too early",
        Error::UnknownAnchor { .. } => {
            "got an alias (`*name`) of an anchor that is not there: text that begins with `*` needs quotes"
        }
        Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasError { .. } => "got more aliases (`*name`) than a document of its length may have",
        Error::Budget { .. } => "got more values or aliases (`*name`) than a document may have",
        Error::InvalidUtf8Input => "got text that is not UTF-8",
        Error::MergeValueNotMapOrSeqOfMaps { .. } => "got a merge (`<<`) of what is no mapping",
        _ => "got what is none: an indentation, a quote or a bracket does not fit",
    };
    told.to_owned()
}

#[cfg(test)]
mod tests;
