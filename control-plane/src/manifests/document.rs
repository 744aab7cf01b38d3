//! Parses the text of one file into objects. Pure.
//!
//! A file is a sequence of documents separated by `---`, each YAML or JSON. What begins with `{` is parsed as JSON
//! first, which is many times faster, and as YAML only if it is not JSON. `List`s are expanded.
//!
//! **Invariant:** an invalid document does not affect the other documents of its file.

mod duplicate_keys;
mod known;
mod lines;
mod position;
mod unquoted;
mod walk;
mod yaml;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use serde_saphyr::DuplicateKeyPolicy;
use shared::name::ObjectName;

use self::lines::{Lines, joined};
use self::position::{Along, Position, Yaml};
use self::unquoted::Quoted;
use super::{defaults, legacy, misspelt};
use crate::objects::json::{self, DecodeError, Head, Identity};
use crate::objects::{Object, ObjectKind, ObjectRef, OfKind};

/// Limit of the nesting of lists.
const MAX_DEPTH: usize = 4;

/// Longer YAML documents, in bytes, are not parsed: that takes a second for each 8 MiB, and twenty times their memory.
/// JSON needs neither, and may be as long as a file.
const MAX_YAML: usize = 8 << 20;

/// What is said of documents without a kind that are not meant to have one.
const NO_KIND: &str = "none (values of a chart, or settings of another tool)";

/// What kustomize takes a file of this name for, with a kind or without one.
const KUSTOMIZATION: &str = "kustomize.config.k8s.io/v1beta1 Kustomization";

/// The contents of a file.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Parsed {
    /// Objects, in order, with the line on which each begins.
    pub(super) objects: Vec<(Object, usize)>,
    /// Invalid objects whose name is known.
    pub(super) broken: Vec<(ObjectRef, Fault)>,
    /// Faults of other invalid documents.
    pub(super) faults: Vec<Fault>,
    /// Warnings for the owners of valid objects.
    pub(super) remarks: Vec<(ObjectRef, Fault)>,
    /// API version and kind of ignored objects.
    pub(super) ignored: BTreeSet<String>,
}

/// Why a document is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fault {
    /// Line in the file, from 1.
    pub(super) line: usize,
    /// Path of the field, or empty.
    pub(super) field: String,
    /// What was expected, and what was found.
    pub(super) reason: String,
}

/// Whether a file has no document.
pub(super) fn is_void(text: &str) -> bool {
    split(&content(text)).next().is_none()
}

/// Parses a file.
pub(super) fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    for (document, line) in split(&content(text)) {
        parsed.read(document, line);
    }
    parsed
}

/// A file without its byte order mark, each line ended by a newline: for YAML a carriage return alone ends one, too (YAML
/// 1.2.2, section 5.4), and the parser would count more lines than are counted here.
fn content(text: &str) -> Cow<'_, str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let is_alone = |&(at, _): &(usize, &str)| !text[at..].starts_with("\r\n");
    if !text.match_indices('\r').any(|it| is_alone(&it)) {
        return Cow::Borrowed(text);
    }
    let mut content = String::with_capacity(text.len());
    let mut from = 0;
    for (at, _) in text.match_indices('\r').filter(is_alone) {
        content.push_str(&text[from..at]);
        content.push('\n');
        from = at + 1;
    }
    content.push_str(&text[from..]);
    Cow::Owned(content)
}

/// The documents of a file, with the line on which each begins.
fn split(text: &str) -> impl Iterator<Item = (&str, usize)> {
    let mut documents = Vec::new();
    let (mut start, mut start_line, mut at) = (0, 1, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if let Some(rest) = line.strip_prefix("---")
            && rest.chars().next().is_none_or(char::is_whitespace)
        {
            documents.push((&text[start..at], start_line));
            // A document may begin on the line of the separator.
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

/// Whether a line before a document has no content: directives are ignored.
fn is_blank(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#') || line.starts_with('%') || line == "..."
}

impl Parsed {
    /// Knows the kind of a file by its name where the name decides it.
    pub(super) fn named(mut self, path: &str) -> Self {
        let is_kustomization =
            matches!(path.rsplit('/').next(), Some("kustomization.yaml" | "kustomization.yml"));
        if is_kustomization && self.ignored.remove(NO_KIND) {
            self.ignored.insert(KUSTOMIZATION.to_owned());
        }
        self
    }

    /// Parses one document, which begins on `line`.
    fn read(&mut self, document: &str, line: usize) {
        if document.trim_start().starts_with('{') {
            self.read_json(document, line);
        } else {
            self.read_yaml(document, line, None);
        }
    }

    /// One or more concatenated JSON objects.
    fn read_json(&mut self, document: &str, line: usize) {
        let mut values = serde_json::Deserializer::from_str(document).into_iter::<&RawValue>();
        let mut lines = Along { text: document, at: 0, line };
        let mut first = true;
        for value in &mut values {
            match value {
                Ok(value) => {
                    let text = value.get();
                    let line = lines.of(text);
                    self.read_value(text, &Position::of_json(line), &Head::default(), 0);
                }
                // It may be a flow mapping of YAML.
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
                "expected a document of at most {MAX_YAML} bytes of YAML, got {}: split it with `---`, or write it as JSON",
                document.len()
            );
            return self.faults.push(Fault { line, field: String::new(), reason });
        }
        let read =
            |keys| serde_saphyr::from_str_with_options::<Value>(document, yaml::options(document, keys));
        let (mut read_once, known) = (read(DuplicateKeyPolicy::Error), self.objects.len());
        let twice = read_once.as_ref().err().filter(|error| yaml::is_twice(error));
        let twice = twice.map(|error| (yaml::line_of(error), yaml::words(error)));
        if twice.is_some() {
            read_once = read(DuplicateKeyPolicy::LastWins);
        }
        let (within, reason) = match read_once {
            Ok(Value::Null) => return,
            Ok(value) => {
                let yaml = Yaml { lines: Lines::of(document), line };
                let position = Position { line, yaml: Some(&yaml), within: String::new() };
                self.read_value(&value.to_string(), &position, &Head::default(), 0);
                if let Some((within, words)) = twice {
                    let reason = yaml::last_counts(&words);
                    let fault = Fault { line: line + within - 1, field: String::new(), reason };
                    let objects = self.objects[known..].iter();
                    self.remarks.extend(objects.map(|(object, _)| (object.reference(), fault.clone())));
                }
                return;
            }
            Err(error) => match (template_line(document), json) {
                (Some(at), _) => (
                    at,
                    "expected a manifest, got a template with `{{`: render it first, as `helm template` does"
                        .to_owned(),
                ),
                (None, Some(json)) => {
                    let cause = json::cause(json);
                    (json.line(), format!("expected JSON, or YAML in braces, got neither: as JSON, {cause}"))
                }
                (None, None) => (yaml::line_of(&error), format!("expected YAML, {}", yaml::words(&error))),
            },
        };
        // A fault at the very end has a line number beyond the last line.
        let within = within.clamp(1, document.split('\n').count());
        self.faults.push(Fault { line: line + within - 1, field: String::new(), reason });
    }

    /// One object, or a list. `outer` is the head of the surrounding list.
    fn read_value(&mut self, text: &str, position: &Position<'_>, outer: &Head<'_>, depth: usize) {
        if !text.starts_with('{') {
            let reason = "expected a mapping with apiVersion and kind, got something else".to_owned();
            return self.faults.push(position.fault("", reason));
        }
        let head: Head<'_> = match serde_json::from_str(text) {
            Ok(head) => head,
            Err(error) => {
                return self.faults.push(fault(&DecodeError::new(&error, text, true), position.line));
            }
        };
        let api_version = if head.api_version.is_empty() { &outer.api_version } else { &head.api_version };
        let kind = if head.kind.is_empty() { &outer.kind } else { &head.kind };
        if kind.is_empty() && !is_manifest(text) {
            self.ignored.insert(NO_KIND.to_owned());
            return;
        }
        if kind.is_empty() {
            return self.faults.push(position.fault("kind", "expected a kind, got none".to_owned()));
        }
        if let Some(of) = kind.strip_suffix("List") {
            let outer = Head { api_version: api_version.clone(), kind: of.to_owned().into() };
            return self.read_list(text, position, &outer, depth);
        }
        let known = self.objects.len();
        match ObjectKind::parse(api_version, kind) {
            Some(kind) => self.read_object(kind, text, position),
            None if legacy::kind(api_version, kind).is_some() => {
                self.read_old(api_version, kind, text, position)
            }
            None => match misspelt::correction(api_version, kind) {
                Some((kind, field, reason)) => {
                    let fault = Fault { line: position.line_of(field), field: field.to_owned(), reason };
                    self.blame(kind, text, fault, position);
                }
                None => {
                    self.ignored.insert(format!("{api_version} {kind}"));
                }
            },
        }
        // Of YAML only one of two is left in the text.
        if let (None, Some((object, _))) = (position.yaml, self.objects.get(known))
            && let Some(fault) = duplicate_keys::find(text, position.line)
        {
            self.remarks.push((object.reference(), fault));
        }
    }

    fn read_list(&mut self, text: &str, position: &Position<'_>, outer: &Head<'_>, depth: usize) {
        #[derive(Deserialize)]
        struct List<'a> {
            #[serde(borrow, default)]
            items: Vec<&'a RawValue>,
        }
        let list: List<'_> = match serde_json::from_str(text) {
            Ok(list) if depth < MAX_DEPTH => list,
            Ok(_) => {
                let reason = format!("expected lists at most {MAX_DEPTH} deep");
                return self.faults.push(position.fault("items", reason));
            }
            Err(error) => {
                return self.faults.push(fault(&DecodeError::new(&error, text, true), position.line));
            }
        };
        let mut lines = Along { text, at: 0, line: position.line };
        for (i, item) in list.items.into_iter().enumerate() {
            let inner = format!("items[{i}]");
            let line = match position.yaml {
                // The text was converted from YAML and has only one line.
                Some(_) => position.line_of(&inner),
                None => lines.of(item.get()),
            };
            let within = joined(&position.within, &inner);
            self.read_value(item.get(), &Position { line, yaml: position.yaml, within }, outer, depth + 1);
        }
    }

    /// Parses an object of a removed API version.
    fn read_old(&mut self, api_version: &str, kind: &str, text: &str, position: &Position<'_>) {
        let Some(kind) = legacy::kind(api_version, kind) else { return };
        let known = self.objects.len();
        match legacy::convert(kind, text) {
            // The text was converted, and only its first line is known.
            Some(text) => self.read_object(kind, &text, position),
            None => self.read_object(kind, text, position),
        }
        if let Some((object, line)) = self.objects.get(known) {
            let (line, field) = (*line, "apiVersion".to_owned());
            let reason = legacy::remark(api_version, kind);
            self.remarks.push((object.reference(), Fault { line, field, reason }));
        }
    }

    fn read_object(&mut self, kind: ObjectKind, text: &str, position: &Position<'_>) {
        let Some(Quoted { text, remarks }) = unquoted::quoted(kind, text, position) else {
            return self.read_typed(kind, text, position);
        };
        let known = self.objects.len();
        self.read_typed(kind, &text, position);
        if let Some((object, _)) = self.objects.get(known) {
            let object = object.reference();
            self.remarks.extend(remarks.into_iter().map(|fault| (object.clone(), fault)));
        }
    }

    fn read_typed(&mut self, kind: ObjectKind, text: &str, position: &Position<'_>) {
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
            Ok(object) => {
                self.remark_unknown(kind, text, position, &object.reference());
                return self.objects.push((object, position.line));
            }
            Err(error) => error,
        };
        let line = match position.yaml {
            Some(yaml) if position.within.is_empty() => {
                let document = yaml.lines.document();
                let old = || {
                    line_with(document, |line| line.contains("serviceName") || line.contains("servicePort"))
                };
                position.line + yaml_line(kind, document).or_else(old).unwrap_or(1) - 1
            }
            Some(_) => position.line_of(&error.field),
            None => position.line + error.line - 1,
        };
        self.blame(kind, text, Fault { line, field: error.field, reason: error.reason }, position);
    }

    /// Unknown fields are ignored with a warning, as in an API server.
    fn remark_unknown(&mut self, kind: ObjectKind, text: &str, position: &Position<'_>, object: &ObjectRef) {
        let unknown = known::unknown(kind, text).into_iter().map(|known::Unknown { field, meant }| {
            let meant = meant.map_or_else(String::new, |meant| format!(": did you mean {meant}?"));
            let reason =
                format!("expected a field of {}, got an unknown one, which is ignored{meant}", kind.as_str());
            Fault { line: position.line_of(&field), field, reason }
        });
        let mut unknown: Vec<_> = unknown.collect();
        // Text converted from YAML has its fields in another order.
        unknown.sort_by_key(|fault| fault.line);
        self.remarks.extend(unknown.into_iter().map(|fault| (object.clone(), fault)));
    }

    /// Assigns a fault to its object, if the text names one.
    fn blame(&mut self, kind: ObjectKind, text: &str, fault: Fault, position: &Position<'_>) {
        match Identity::read(text) {
            Some(Identity { name, .. }) => {
                let name = ObjectName { namespace: defaults::namespace(kind, name.namespace), ..name };
                self.broken.push((ObjectRef { kind, name }, fault));
            }
            None => self.faults.push(Fault { field: joined(&position.within, &fault.field), ..fault }),
        }
    }
}

/// Whether a document without a kind was probably meant to have one: not so a `Chart.yaml`, though it has an
/// apiVersion.
fn is_manifest(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Parts<'a> {
        #[serde(borrow)]
        metadata: Option<&'a RawValue>,
        #[serde(borrow)]
        spec: Option<&'a RawValue>,
    }
    serde_json::from_str(text).is_ok_and(|Parts { metadata, spec }| metadata.is_some() || spec.is_some())
}

fn fault(error: &DecodeError, line: usize) -> Fault {
    let DecodeError { field, reason, line: within } = error.clone();
    Fault { line: line + within - 1, field, reason }
}

/// The first line of a YAML document, from 1, whose value has the wrong type for the kind.
fn yaml_line(kind: ObjectKind, document: &str) -> Option<usize> {
    struct Document<'a>(&'a str);
    impl OfKind for Document<'_> {
        type Output = Option<usize>;

        fn of<T: DeserializeOwned>(self, _: fn(Arc<T>) -> Object) -> Option<usize> {
            let Self(text) = self;
            let error = serde_saphyr::from_str_with_options::<T>(
                text,
                yaml::options(text, DuplicateKeyPolicy::LastWins),
            )
            .err()?;
            usize::try_from(error.location()?.line()).ok().filter(|line| *line > 0)
        }
    }
    kind.with(Document(document))
}

/// The first line, from 1, for which `is_it` holds.
fn line_with(document: &str, is_it: impl Fn(&str) -> bool) -> Option<usize> {
    document.lines().position(is_it).map(|at| at + 1)
}

/// The line of the first template action, if the document is a template.
fn template_line(document: &str) -> Option<usize> {
    line_with(document, |line| line.contains("{{") && !line.trim_start().starts_with('#'))
}

#[cfg(test)]
mod tests;
