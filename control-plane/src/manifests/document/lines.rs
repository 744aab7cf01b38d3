//! Finds the lines of fields in a YAML document, and what was written there. It is parsed once more for that, only if needed: for lists, and for
//! reports.

use std::cell::OnceCell;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Spanned};

use super::yaml;

/// The lines of a document's fields.
pub(super) struct Lines<'a> {
    document: &'a str,
    /// `None`: they cannot be determined.
    root: OnceCell<Option<Node>>,
}

impl<'a> Lines<'a> {
    pub(super) fn of(document: &'a str) -> Self {
        Self { document, root: OnceCell::new() }
    }

    pub(super) fn document(&self) -> &'a str {
        self.document
    }

    /// The line, from 1, of a field such as `items[2].spec.rules[0].host`, or of its innermost parent that exists.
    pub(super) fn of_field(&self, field: &str) -> Option<usize> {
        self.root()?.inside.find(field).filter(|line| *line > 0)
    }

    /// The text of a scalar; where a field is an alias, that of its anchor.
    pub(super) fn text_of(&self, field: &str) -> Option<&'a str> {
        let (start, end) = self.root()?.inside.node(field)?.scalar?;
        self.document.get(start..end)
    }

    fn root(&self) -> Option<&Node> {
        let read = || {
            let options = yaml::options(self.document, DuplicateKeyPolicy::LastWins);
            serde_saphyr::from_str_with_options(self.document, options).ok()
        };
        self.root.get_or_init(read).as_ref()
    }
}

/// Joins the path of a parent and of a field.
pub(super) fn joined(within: &str, field: &str) -> String {
    let dot = if within.is_empty() || field.is_empty() || field.starts_with('[') { "" } else { "." };
    format!("{within}{dot}{field}")
}

/// A value, and the line on which it begins.
struct Node {
    line: usize,
    /// The bytes of a scalar.
    scalar: Option<(usize, usize)>,
    inside: Inside,
}

/// The structure of a value.
enum Inside {
    Nothing,
    /// Each with the line of its name.
    Fields(Vec<(String, usize, Node)>),
    Items(Vec<Node>),
}

impl Inside {
    fn find(&self, field: &str) -> Option<usize> {
        let (line, node, rest) = self.step(field)?;
        Some(node.inside.find(rest).unwrap_or(line))
    }

    fn node(&self, field: &str) -> Option<&Node> {
        let (_, node, rest) = self.step(field)?;
        if rest.is_empty() { Some(node) } else { node.inside.node(rest) }
    }

    /// The value that the path begins with, its line, and the rest of the path. Of a key that occurs twice the last one
    /// counts.
    fn step<'f>(&self, field: &'f str) -> Option<(usize, &Node, &'f str)> {
        match self {
            Self::Nothing => None,
            Self::Fields(fields) => fields.iter().rev().find_map(|(name, line, inner)| {
                let rest = match name.contains('.') {
                    true => field.strip_prefix('[')?.strip_prefix(name)?.strip_prefix(']')?,
                    false => field.strip_prefix('.').unwrap_or(field).strip_prefix(name)?,
                };
                let is_whole = rest.is_empty() || rest.starts_with(['.', '[']);
                is_whole.then_some((*line, inner, rest))
            }),
            Self::Items(items) => {
                let (number, rest) = field.strip_prefix('[')?.split_once(']')?;
                let item = items.get(number.parse::<usize>().ok()?)?;
                Some((item.line, item, rest))
            }
        }
    }
}

fn line<T>(it: &Spanned<T>) -> usize {
    usize::try_from(it.referenced.line()).unwrap_or_default()
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = Spanned::<Inside>::deserialize(deserializer)?;
        let span = read.defined.span();
        let bytes = span.byte_offset().zip(span.byte_len()).filter(|_| matches!(read.value, Inside::Nothing));
        let scalar = bytes.and_then(|(start, length)| {
            let start = usize::try_from(start).ok()?;
            Some((start, start.checked_add(usize::try_from(length).ok()?)?))
        });
        Ok(Self { line: line(&read), scalar, inside: read.value })
    }
}

impl<'de> Deserialize<'de> for Inside {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Inside;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }

            fn visit_bool<E>(self, _: bool) -> Result<Inside, E> {
                Ok(Inside::Nothing)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Inside, E> {
                Ok(Inside::Nothing)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Inside, E> {
                Ok(Inside::Nothing)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Inside, E> {
                Ok(Inside::Nothing)
            }

            fn visit_str<E>(self, _: &str) -> Result<Inside, E> {
                Ok(Inside::Nothing)
            }

            fn visit_unit<E>(self) -> Result<Inside, E> {
                Ok(Inside::Nothing)
            }

            fn visit_none<E>(self) -> Result<Inside, E> {
                Ok(Inside::Nothing)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Inside, A::Error> {
                let mut all = Vec::new();
                while let Some(item) = items.next_element()? {
                    all.push(item);
                }
                Ok(Inside::Items(all))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Inside, A::Error> {
                let mut all = Vec::new();
                while let Some((name, inside)) = fields.next_entry::<Spanned<String>, Node>()? {
                    all.push((name.value.clone(), line(&name), inside));
                }
                Ok(Inside::Fields(all))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "apiVersion: v1\nkind: List\nitems:\n# one\n- kind: A\n  spec:\n    1: true\n    x.io/y:\n      - {a: b}\n\n-\n  kind: B\n  \
                        n: ~\n- *no\n";

    #[test]
    fn places() {
        let list = LIST.replace("- *no\n", "- &a [x]\n- *a\n");
        let lines = Lines::of(&list);
        for (field, line) in [
            ("kind", 2),
            ("items", 3),
            ("items[0]", 5),
            ("items[0].spec", 6),
            ("items[0].spec.1", 7),
            ("items[0].spec[x.io/y][0].a", 9),
            ("items[0].spec[x.io/y][0].missing", 9),
            ("items[1]", 12),
            ("items[1].n", 13),
            ("items[2][0]", 14),
            ("items[3]", 15),
        ] {
            assert_eq!(lines.of_field(field), Some(line), "{field}");
        }
        for field in ["", "kin", "kinds", "none"] {
            assert_eq!(lines.of_field(field), None, "{field}");
        }
    }

    #[test]
    fn what_was_written() {
        let text = "\u{e4}: &it 0x1F # \u{e4}\nb: {c: True, d.e: [010, *it]}\nb2: |\n  text\nf: 1\nf: 2\n";
        let lines = Lines::of(text);
        for (field, written) in
            [("\u{e4}", "0x1F"), ("b.c", "True"), ("b[d.e][0]", "010"), ("b[d.e][1]", "0x1F"), ("f", "2")]
        {
            assert_eq!(lines.text_of(field), Some(written), "{field}");
        }
        for field in ["b", "b.c.x", "b[d.e]", "x"] {
            assert_eq!(lines.text_of(field), None, "{field}");
        }
    }

    #[test]
    fn what_cannot_be_read_has_none() {
        assert_eq!(Lines::of(LIST).of_field("kind"), None, "an alias of nothing");
        assert_eq!(Lines::of("items: 7").of_field("items[0]"), Some(1));
    }

    #[test]
    fn fields_within() {
        for (within, field, whole) in [
            ("", "a", "a"),
            ("a", "", "a"),
            ("a", "b", "a.b"),
            ("a", "[b.c]", "a[b.c]"),
            ("a[0]", "b[1]", "a[0].b[1]"),
        ] {
            assert_eq!(joined(within, field), whole);
        }
    }
}
