//! Translates PCRE syntax that our regex engines read differently.
//!
//! Most patterns need no translation. Syntax without an equivalent is left unchanged: the engines reject it.

use std::borrow::Cow;

/// Spaces and tabs of PCRE without UTF mode: `\h`.
const BLANKS: &str = r"\t \xA0";
/// Ends of lines: `\v`.
const BREAKS: &str = r"\n\x0B\f\r\x85";

/// Translates a pattern.
pub(super) fn read(text: &str) -> Cow<'_, str> {
    if !text.contains(['\\', '[']) {
        return text.into();
    }
    let mut reader = Reader { rest: text, out: String::with_capacity(text.len() + 16), in_class: false };
    while let Some(next) = reader.take() {
        match next {
            '\\' => reader.escape(),
            '[' if !reader.in_class => reader.open(),
            ']' if reader.in_class => {
                reader.in_class = false;
                reader.out.push(']');
            }
            sign if reader.in_class => reader.in_class(sign),
            sign => reader.out.push(sign),
        }
    }
    match reader.out == text {
        true => text.into(),
        false => reader.out.into(),
    }
}

/// Why one is not read.
pub(super) const POSSESSIVE: &str = "expected no possessive quantifier such as `*+`";

/// Whether a quantifier of a translated pattern is possessive (`a*+`, `a{1,2}+`): what it has taken is not given back.
/// Linear engines read it as the repetition of a repetition, which takes more.
pub(super) fn is_possessive(text: &str) -> bool {
    if !["*+", "++", "?+", "}+"].iter().any(|signs| text.contains(signs)) {
        return false;
    }
    let (mut signs, mut in_class, mut is_counted) = (text.chars().peekable(), false, false);
    while let Some(sign) = signs.next() {
        let was_counted = std::mem::take(&mut is_counted);
        match sign {
            '\\' => {
                // What follows in braces may belong to it (`\x{62}`).
                let named = |sign| matches!(sign, 'x' | 'o' | 'u' | 'p' | 'P' | 'g' | 'k' | 'N');
                if signs.next().is_some_and(named) && signs.peek() == Some(&'{') {
                    signs.by_ref().take_while(|sign| *sign != '}').for_each(drop);
                }
            }
            ']' => in_class = false,
            _ if in_class => {}
            '[' => {
                in_class = true;
                signs.next_if_eq(&'^');
                signs.next_if_eq(&']');
            }
            // What follows says the kind of a group.
            '(' => drop(signs.next_if_eq(&'?')),
            '+' if was_counted => return true,
            // A lazy one.
            '?' if was_counted => {}
            '*' | '+' | '?' | '}' => is_counted = true,
            _ => {}
        }
    }
    false
}

struct Reader<'a> {
    rest: &'a str,
    out: String,
    in_class: bool,
}

impl Reader<'_> {
    fn take(&mut self) -> Option<char> {
        let mut rest = self.rest.chars();
        let next = rest.next()?;
        self.rest = rest.as_str();
        Some(next)
    }

    /// Copies a text unchanged if it comes next.
    fn copies(&mut self, text: &str) {
        if let Some(rest) = self.rest.strip_prefix(text) {
            self.out.push_str(text);
            self.rest = rest;
        }
    }

    /// Translates an escape sequence.
    fn escape(&mut self) {
        let Some(next) = self.take() else { return self.out.push('\\') };
        match next {
            'Q' => {
                let (quoted, rest) = self.rest.split_once("\\E").unwrap_or((self.rest, ""));
                quoted.chars().for_each(|it| plain(it, &mut self.out));
                self.rest = rest;
            }
            // The end of a quotation that has not begun.
            'E' => {}
            'h' => self.class("", BLANKS),
            'H' => self.class("^", BLANKS),
            'v' => self.class("", BREAKS),
            'V' => self.class("^", BREAKS),
            'N' if !self.in_class && !self.rest.starts_with('{') => self.class("^", r"\n"),
            'R' if !self.in_class => {
                self.out.push_str(r"(?:\r\n|[");
                self.out.push_str(BREAKS);
                self.out.push_str("])");
            }
            'e' => self.out.push_str(r"\x1B"),
            other => self.out.extend(['\\', other]),
        }
    }

    /// A class of these members, or its complement; inside a class, a part of it.
    fn class(&mut self, sign: &str, members: &str) {
        let is_own = !self.in_class || !sign.is_empty();
        let (begin, end) = if is_own { ("[", "]") } else { ("", "") };
        for part in [begin, sign, members, end] {
            self.out.push_str(part);
        }
    }

    /// Begins a class: a bracket right after the start is a member.
    fn open(&mut self) {
        self.in_class = true;
        self.out.push('[');
        self.copies("^");
        self.copies("]");
    }

    /// A character in a class. The engines support nested classes and set operators, which PCRE does not have.
    fn in_class(&mut self, sign: char) {
        if sign == '[' {
            let named = self.rest.strip_prefix(':').and_then(|name| name.find(":]"));
            return match named {
                Some(end) => {
                    let (name, rest) = self.rest.split_at(end + 3);
                    self.out.push('[');
                    self.out.push_str(name);
                    self.rest = rest;
                }
                None => self.out.push_str(r"\["),
            };
        }
        if matches!(sign, '&' | '~') && self.rest.starts_with(sign) {
            self.out.push('\\');
        }
        self.out.push(sign);
    }
}

/// A literal character.
fn plain(it: char, out: &mut String) {
    // These two are not escaped: the escapes mean word boundaries.
    if it.is_ascii_punctuation() && !matches!(it, '<' | '>') {
        out.push('\\');
    }
    out.push(it);
}

#[cfg(test)]
mod tests {
    use super::super::{Pattern, Steps};
    use super::*;

    #[test]
    fn most_patterns_stay_as_they_are() {
        for text in ["/a(/|$)(.*)", r"/v\d+/[a-z_-]+", "/[[:alpha:]]+", "/[^]]", "/[]a]", r"/\[x\]", r"/a\"] {
            assert!(matches!(read(text), Cow::Borrowed(it) if it == text), "{text} {}", read(text));
        }
    }

    #[test]
    fn possessive_quantifiers_are_known() {
        for text in [
            "a++",
            "a*+b",
            "a?+",
            "a{1,2}+",
            "[a-c]++x",
            "(a|b)*+",
            r"\d++",
            r"\d{2}+",
            "[[:alpha:]]*+",
            "[]+]++",
        ] {
            assert!(is_possessive(text), "{text}");
        }
        for text in [
            "a+", r"\++", "[*+]", "[a*+]+", "a+?", "(?:a+)+", "(+)", r"\*+", r"\}+", "a*|+", r"\x{62}+",
            r"\pL+",
        ] {
            assert!(!is_possessive(text), "{text}");
        }
    }

    /// As PCRE2 10.42 does.
    #[test]
    fn what_a_possessive_quantifier_took_is_not_given_back() {
        for (text, fits, others) in [
            ("/[^a]*+a$", "/ba", "/bab"),
            ("/a{1,2}+$", "/aa", "/aaa"),
            ("/(a{1,2}+)b", "/aab", "/aaab"),
            (r"/\w++-", "/a_-", "/a_"),
            ("/a?+a", "/aa", "/a"),
        ] {
            let pattern = Pattern::path(text).unwrap();
            let is_match = |path: &str| pattern.is_match(path.as_bytes(), &Steps::new()).unwrap();
            assert!(is_match(fits) && !is_match(others), "{text}");
        }
        let long = format!("/{}/x", "a".repeat(100));
        assert_eq!(Pattern::path("/[^/]++/x").unwrap().is_match(long.as_bytes(), &Steps::new()), Ok(true));
    }

    #[test]
    fn what_pcre_says_otherwise_is_said_in_other_words() {
        for (text, fits, others) in [
            (r"/\Qa.b(c\E/\d", "/a.b(c/1", "/axb(c/1"),
            (r"/\Qa.b", "/a.b", "/axb"),
            (r"/[\Q^]\E]x", "/]x", "/ax"),
            (r"/a\Eb", "/ab", "/a"),
            (r"/\Q<a>\E", "/<a>", "/a"),
            (r"/a\hb", "/a b", "/aab"),
            (r"/a[x\h]b", "/a\tb", "/ahb"),
            (r"/a\Hb", "/axb", "/a b"),
            (r"/a[\H]b", "/axb", "/a b"),
            (r"/a\vb", "/a\rb", "/avb"),
            (r"/a\Nb", "/axb", "/a\nb"),
            (r"/a\Rb", "/a\r\nb", "/aRb"),
            (r"/a\Vb", "/axb", "/a\nb"),
            (r"/[[a]x", "/[x", "/bx"),
            (r"/[a&&b]x", "/&x", "/cx"),
            (r"/[a~~b]x", "/ax", "/cx"),
            (r"/[[:digit:][]x", "/[x", "/ax"),
            (r"/\h(?!x)", "/ y", "/a"),
        ] {
            let pattern = Pattern::path(text).unwrap();
            let is_match = |path: &str| pattern.is_match(path.as_bytes(), &Steps::new()).unwrap();
            assert!(is_match(fits) && !is_match(others), "{text}: {}", read(text));
        }
    }
}
