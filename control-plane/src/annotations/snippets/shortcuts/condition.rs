//! Conditions of `if`.

use shared::pattern::{Allowance, Pattern};
use shared::policy::{ShortcutComparison, ShortcutTest};
use shared::template::Template;

use super::ends::has_values;
use crate::annotations::snippets::tokens::Directive;

/// `if ($variable)`, `if ($variable OPERATOR VALUE)`.
pub(in super::super) struct Condition<'a> {
    /// One variable.
    pub(in super::super) subject: &'a str,
    pub(in super::super) comparison: ShortcutComparison,
    pub(in super::super) value: &'a str,
}

impl<'a> Condition<'a> {
    /// That of an `if`; `None`: it is not about a variable.
    pub(in super::super) fn of(directive: &'a Directive) -> Option<Self> {
        let mut words: Vec<&str> = directive.arguments().iter().map(String::as_str).collect();
        let first = words.first_mut()?;
        *first = first.strip_prefix('(')?;
        let last = words.last_mut()?;
        *last = last.strip_suffix(')')?;
        if words.first()?.is_empty() {
            words.remove(0);
        }
        if words.last()?.is_empty() {
            words.pop();
        }
        let (subject, comparison, value) = match words[..] {
            [subject] => (subject, ShortcutComparison::IsSet, ""),
            [subject, sign, value] => (subject, comparison(sign)?, value),
            _ => return None,
        };
        is_one_variable(subject).then_some(Self { subject, comparison, value })
    }

    /// Whether it captures groups.
    pub(in super::super) fn finds(&self) -> bool {
        matches!(self.comparison, ShortcutComparison::Finds | ShortcutComparison::FindsAnyCase)
    }

    /// As a test of a request, if it is supported as one.
    pub(in super::super) fn test(&self, room: &mut Allowance) -> Option<ShortcutTest> {
        let Self { subject, comparison, value } = *self;
        let is_fine =
            is_one_variable(subject) && has_values(subject, false) && can_compare(comparison, value, room);
        is_fine.then(|| ShortcutTest {
            subject: subject.into(),
            comparison: Some(comparison.into()),
            value: value.into(),
        })
    }
}

pub(super) fn is_one_variable(subject: &str) -> bool {
    subject.starts_with('$') && Template::parse(subject).parts().len() == 1
}

/// Whether a test captures groups.
pub(super) fn finds(test: &ShortcutTest) -> bool {
    matches!(test.comparison(), ShortcutComparison::Finds | ShortcutComparison::FindsAnyCase)
}

pub(super) fn can_compare(comparison: ShortcutComparison, value: &str, room: &mut Allowance) -> bool {
    use ShortcutComparison::{Finds, FindsAnyCase, Lacks, LacksAnyCase};
    match comparison {
        Finds | Lacks => room.compile(|| Pattern::anywhere(value)).is_ok(),
        FindsAnyCase | LacksAnyCase => room.compile(|| Pattern::anywhere_in_any_case(value)).is_ok(),
        // A value with a variable is not supported: it would be compared as plain text here.
        _ => Template::parse(value).as_literal().is_some(),
    }
}

fn comparison(sign: &str) -> Option<ShortcutComparison> {
    Some(match sign {
        "=" => ShortcutComparison::Equals,
        "!=" => ShortcutComparison::Differs,
        "~" => ShortcutComparison::Finds,
        "~*" => ShortcutComparison::FindsAnyCase,
        "!~" => ShortcutComparison::Lacks,
        "!~*" => ShortcutComparison::LacksAnyCase,
        _ => return None,
    })
}
