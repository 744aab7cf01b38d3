//! Label selectors of Kubernetes, as written on a command line (`team=a,tier in (web, edge)`).
//!
//! **Invariant:** a text is parsed exactly as Kubernetes' `labels.Parse` does, or rejected.

use std::collections::BTreeSet;

use crate::objects::Texts;
use std::fmt;

/// Limit of the characters of a text that are shown.
const SHOWN: usize = 60;

/// A selector; all of its requirements must hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selector {
    rules: Vec<(String, Rule)>,
    text: String,
}

/// The requirement for one label.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Rule {
    Exists,
    IsMissing,
    /// The value is one of these.
    In(BTreeSet<String>),
    /// The value is none of these, or the label is absent.
    NotIn(BTreeSet<String>),
    Above(i64),
    Below(i64),
}

impl Rule {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value?.parse::<i64>().ok();
        match self {
            Self::Exists => value.is_some(),
            Self::IsMissing => value.is_none(),
            Self::In(values) => value.is_some_and(|value| values.contains(value)),
            Self::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Self::Above(least) => number().is_some_and(|number| number > *least),
            Self::Below(most) => number().is_some_and(|number| number < *most),
        }
    }
}

impl Selector {
    /// Parses a selector.
    ///
    /// # Errors
    /// What was expected, and what was found.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut tokens = Tokens { rest: text };
        let mut rules = Vec::new();
        loop {
            rules.push(rule(&mut tokens)?);
            match tokens.next() {
                None => return Ok(Self { rules, text: text.trim().to_owned() }),
                Some(",") => {}
                Some(other) => return Err(expected("a comma or the end", Some(other))),
            }
        }
    }

    /// Whether an object with these labels matches.
    pub fn takes(&self, labels: &Texts) -> bool {
        self.rules.iter().all(|(key, rule)| rule.holds(labels.get(key).map(String::as_str)))
    }
}

/// As it was written.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn rule(tokens: &mut Tokens<'_>) -> Result<(String, Rule), String> {
    let first = tokens.next();
    if first == Some("!") {
        return Ok((key(tokens.next())?, Rule::IsMissing));
    }
    let key = key(first)?;
    let rule = match tokens.peek() {
        None | Some(",") => return Ok((key, Rule::Exists)),
        Some(sign @ ("=" | "==" | "!=" | "in" | "notin" | ">" | "<")) => {
            tokens.next();
            sign
        }
        other => return Err(expected("one of =, ==, !=, in, notin, > and <", other)),
    };
    let rule = match rule {
        "=" | "==" => Rule::In([single(tokens)?].into()),
        "!=" => Rule::NotIn([single(tokens)?].into()),
        "in" => Rule::In(list(tokens)?),
        "notin" => Rule::NotIn(list(tokens)?),
        sign => {
            let text = single(tokens)?;
            let number = text.parse().map_err(|_| expected("a whole number", Some(&text)))?;
            if sign == ">" { Rule::Above(number) } else { Rule::Below(number) }
        }
    };
    Ok((key, rule))
}

/// One value, possibly empty.
fn single(tokens: &mut Tokens<'_>) -> Result<String, String> {
    match tokens.peek() {
        None | Some(",") => Ok(String::new()),
        Some(_) => value(tokens.next()),
    }
}

/// Values in parentheses, of which some may be empty.
fn list(tokens: &mut Tokens<'_>) -> Result<BTreeSet<String>, String> {
    match tokens.next() {
        Some("(") => {}
        other => return Err(expected("values in parentheses", other)),
    }
    if tokens.peek() == Some(")") {
        return Err(expected("a value", Some(")")));
    }
    let mut values = BTreeSet::new();
    loop {
        let one = match tokens.peek() {
            Some("," | ")") => String::new(),
            _ => value(tokens.next())?,
        };
        values.insert(one);
        match tokens.next() {
            Some(",") => {}
            Some(")") => return Ok(values),
            other => return Err(expected("a comma or a closing parenthesis", other)),
        }
    }
}

/// A label's name, optionally prefixed with `domain/`.
fn key(token: Option<&str>) -> Result<String, String> {
    let is_domain = |text: &str| {
        let is_part = |part: &str| {
            let inner = part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
            inner && !part.is_empty() && !part.starts_with('-') && !part.ends_with('-')
        };
        text.len() <= 253 && text.split('.').all(is_part)
    };
    let is_key = |text: &&str| match text.split_once('/') {
        Some((domain, name)) => is_domain(domain) && is_name(name),
        None => is_name(text),
    };
    token.filter(is_key).map(str::to_owned).ok_or_else(|| expected("the name of a label", token))
}

fn value(token: Option<&str>) -> Result<String, String> {
    token
        .filter(|text| is_name(text))
        .map(str::to_owned)
        .ok_or_else(|| expected("the value of a label", token))
}

/// Up to 63 letters, digits, `-`, `_` and `.`, the first and the last a letter or digit.
fn is_name(text: &str) -> bool {
    let is_outer = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let is_inner = |b: &u8| b.is_ascii_alphanumeric() || b"-_.".contains(b);
    bytes.len() <= 63 && is_outer(bytes.first()) && is_outer(bytes.last()) && bytes.iter().all(is_inner)
}

fn expected(what: &str, got: Option<&str>) -> String {
    match got {
        Some(got) => {
            let got: String = got.chars().take(SHOWN).collect();
            format!("expected {what}, got {got:?}")
        }
        None => format!("expected {what}, got nothing"),
    }
}

/// The tokens: operators, and the text between them.
#[derive(Clone, Copy)]
struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let is_end = |c: char| " \t\r\n!=<>,()".contains(c);
        let length = match rest.as_bytes() {
            [] => return None,
            [b'=', b'=', ..] | [b'!', b'=', ..] => 2,
            [b'=' | b'!' | b'<' | b'>' | b',' | b'(' | b')', ..] => 1,
            _ => rest.find(is_end).unwrap_or(rest.len()),
        };
        let (token, rest) = rest.split_at(length);
        self.rest = rest;
        Some(token)
    }

    fn peek(&self) -> Option<&'a str> {
        Self { ..*self }.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Selector::parse(selector).unwrap_or_else(|why| panic!("{selector}: {why}")).takes(&labels)
    }

    #[test]
    fn all_rules_have_to_hold() {
        let labels = [("team", "a"), ("tier", "web"), ("size", "12"), ("example.com/odd", "")];
        for (selector, expected) in [
            ("team=a", true),
            ("team==a", true),
            (" team = a , tier in (edge, web) ", true),
            ("team=b", false),
            ("team!=b", true),
            ("team!=a", false),
            ("none!=a", true),
            ("none=", false),
            ("example.com/odd=", true),
            ("example.com/odd", true),
            ("none", false),
            ("!none", true),
            ("! team", false),
            ("tier in (edge)", false),
            ("tier notin (edge,)", true),
            ("none notin (edge)", true),
            ("example.com/odd in (,x)", true),
            ("size>11,size<13", true),
            ("size > 12", false),
            ("team>1", false),
            ("none<1", false),
            ("team in (a),tier=web,!none", true),
            ("in in (a)", false),
        ] {
            assert_eq!(takes(selector, &labels), expected, "{selector}");
        }
        assert_eq!(Selector::parse(" team = a ").unwrap().to_string(), "team = a");
    }

    #[test]
    fn what_is_no_selector_is_refused_in_words() {
        for (selector, why) in [
            ("", "expected the name of a label, got nothing"),
            ("team=a,", "expected the name of a label, got nothing"),
            ("!", "expected the name of a label, got nothing"),
            ("team=a tier=b", "expected a comma or the end, got \"tier\""),
            ("team is a", "expected one of =, ==, !=, in, notin, > and <, got \"is\""),
            ("team in a", "expected values in parentheses, got \"a\""),
            ("team in ()", "expected a value, got \")\""),
            ("team in (a b)", "expected a comma or a closing parenthesis, got \"b\""),
            ("team in (a", "expected a comma or a closing parenthesis, got nothing"),
            ("team=-a", "expected the value of a label, got \"-a\""),
            ("A.b/team=a", "expected the name of a label, got \"A.b/team\""),
            ("/team", "expected the name of a label, got \"/team\""),
            ("size>x", "expected a whole number, got \"x\""),
            ("team==!a", "expected the value of a label, got \"!\""),
        ] {
            assert_eq!(Selector::parse(selector), Err(why.to_owned()), "{selector}");
        }
        let domain = |more: usize| format!("{}{}/team", "a.".repeat(100), "b".repeat(53 + more));
        for (most, over) in [
            (format!("team={}", "a".repeat(63)), format!("team={}", "a".repeat(64))),
            ("a".repeat(63), "a".repeat(64)),
            (domain(0), domain(1)),
        ] {
            assert_eq!(
                (Selector::parse(&most).is_ok(), Selector::parse(&over).is_ok()),
                (true, false),
                "{over}"
            );
        }
    }
}
