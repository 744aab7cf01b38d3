//! Tokens of nginx' configuration language, split as its own reader (ngx_conf_read_token) does.
//!
//! **Invariant:** what nginx would take for a directive is never hidden: in quotes, behind a comment or an escape.

mod lua;

/// A directive, at any block level.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Directive {
    words: Vec<String>,
    /// It has a block; the directives in the block follow it.
    pub(super) is_block: bool,
    /// The number of blocks around it.
    pub(super) depth: usize,
}

impl Directive {
    pub(super) fn name(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// The same with other arguments; `None` if one of them has no replacement.
    pub(super) fn replaced(&self, replace: impl FnMut(&String) -> Option<String>) -> Option<Self> {
        let arguments: Option<Vec<_>> = self.arguments().iter().map(replace).collect();
        let name = self.words.first().cloned();
        Some(Self { words: name.into_iter().chain(arguments?).collect(), ..*self })
    }

    /// The same with another argument at this place.
    pub(super) fn with_argument(&self, at: usize, text: String) -> Self {
        let mut words = self.words.clone();
        words[at + 1] = text;
        Self { words, ..*self }
    }

    /// The same under another name.
    pub(super) fn renamed(mut self, name: &str) -> Self {
        if let Some(word) = self.words.first_mut() {
            *word = name.to_owned();
        }
        self
    }

    /// Its first argument.
    pub(super) fn argument(&self) -> Option<&str> {
        self.words.get(1).map(String::as_str)
    }

    /// All its arguments.
    pub(super) fn arguments(&self) -> &[String] {
        self.words.get(1..).unwrap_or_default()
    }
}

/// Takes the directive of this name out of a snippet, if it is said once, outside of blocks, and with one word that `read`
/// takes.
pub(super) fn take_one<T>(
    directives: &mut Vec<Directive>,
    name: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Option<T> {
    let is_one = |it: &Directive| it.name() == name && it.depth == 0 && !it.is_block;
    let mut said = directives.iter().filter(|it| is_one(it));
    let (Some(one), None) = (said.next(), said.next()) else { return None };
    let [word] = one.arguments() else { return None };
    let value = read(word)?;
    directives.retain(|it| !is_one(it));
    Some(value)
}

/// The value of a flag of nginx, which reads it in any case; `None`: it is none.
pub(super) fn switch(word: &str) -> Option<bool> {
    match word {
        word if word.eq_ignore_ascii_case("on") => Some(true),
        word if word.eq_ignore_ascii_case("off") => Some(false),
        _ => None,
    }
}

/// All directives of a text, including those in blocks, in order.
///
/// # Errors
/// Where quotes, blocks or directives are not closed.
///
/// Blocks of Lua are another language: the directive is returned, and what is in its block is not.
pub(super) fn directives(text: &str) -> Result<Vec<Directive>, String> {
    let mut rest = text.chars().peekable();
    read(&mut rest).map_err(|why| {
        let lines = |text: &str| text.matches('\n').count();
        format!("line {}: {why}", 1 + lines(text) - lines(&rest.collect::<String>()))
    })
}

fn read(chars: &mut Chars<'_>) -> Result<Vec<Directive>, &'static str> {
    let mut found = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut depth = 0_usize;
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' | '\r' | '\n' => {}
            ';' => {
                if words.is_empty() {
                    return Err("expected a directive before the semicolon");
                }
                found.push(Directive { words: std::mem::take(&mut words), is_block: false, depth });
            }
            '{' => {
                if words.is_empty() {
                    return Err("expected a directive before {");
                }
                found.push(Directive { words: std::mem::take(&mut words), is_block: true, depth });
                match found.last().is_some_and(|it| it.name().ends_with("_by_lua_block")) {
                    true => lua::skip(chars).ok_or("expected a closing } behind Lua")?,
                    false => depth += 1,
                }
            }
            '}' => {
                if !words.is_empty() {
                    return Err("expected a semicolon before }");
                }
                depth = depth.checked_sub(1).ok_or("} closes no block")?;
            }
            '#' => while chars.next_if(|c| *c != '\n').is_some() {},
            '"' | '\'' => {
                words.push(quoted(c, chars).ok_or("expected a closing quote, and a space behind it")?)
            }
            first => words.push(bare(first, chars)),
        }
    }
    if depth > 0 {
        return Err("expected a closing }");
    }
    // What is meant is clear. nginx would take what follows in its configuration for further arguments.
    if !words.is_empty() {
        found.push(Directive { words, is_block: false, depth });
    }
    Ok(found)
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// Up to the closing quote, which must end a word.
fn quoted(quote: char, chars: &mut Chars<'_>) -> Option<String> {
    let mut word = String::new();
    loop {
        match chars.next()? {
            c if c == quote => break,
            '\\' => escaped(chars, &mut word),
            c => word.push(c),
        }
    }
    let ends = chars.peek().is_none_or(|c| c.is_ascii_whitespace() || matches!(c, ';' | '{' | ')'));
    ends.then_some(word)
}

/// Up to a space, a semicolon or a block. `${name}` is part of a word.
fn bare(first: char, chars: &mut Chars<'_>) -> String {
    let mut word = String::new();
    match first {
        '\\' => escaped(chars, &mut word),
        c => word.push(c),
    }
    let mut is_variable = first == '$';
    while let Some(c) = chars.next_if(|c| {
        let is_end = c.is_ascii_whitespace() || *c == ';' || (*c == '{' && !is_variable);
        !is_end
    }) {
        is_variable = c == '$';
        match c {
            '\\' => escaped(chars, &mut word),
            c => word.push(c),
        }
    }
    word
}

fn escaped(chars: &mut Chars<'_>, word: &mut String) {
    match chars.next() {
        Some('t') => word.push('\t'),
        Some('r') => word.push('\r'),
        Some('n') => word.push('\n'),
        Some(c @ ('"' | '\'' | '\\')) => word.push(c),
        Some(c) => word.extend(['\\', c]),
        None => word.push('\\'),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(text: &str) -> Vec<Vec<String>> {
        directives(text).unwrap().into_iter().map(|it| it.words).collect()
    }

    #[test]
    fn directives_are_taken_apart_as_nginx_does() {
        assert_eq!(words("a b;c  d\te;"), [vec!["a", "b"], vec!["c", "d", "e"]]);
        assert_eq!(
            words("if ($x = \"a b\") { return 403; }"),
            [vec!["if", "($x", "=", "a b", ")"], vec!["return", "403"]]
        );
        assert_eq!(words("set $x ${host}a;"), [["set", "$x", "${host}a"]]);
        assert_eq!(words("a 'b\\'c;' \"\\\"\"; # no { end"), [["a", "b'c;", "\""]]);
        assert_eq!(words("a#b c;"), [["a#b", "c"]]);
        assert_eq!(words("a\\;b c;"), [["a\\;b", "c"]]);
    }

    #[test]
    fn what_does_not_end_is_an_error() {
        for text in ["a {", "}", "a; }", "a \"b;", "a 'b", "{ a; }", ";", "a { b }", "a \"b\"c;"] {
            assert!(directives(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_does_not_end_is_told_with_its_line() {
        for (text, why) in [
            ("location /a {\n  deny all\n}", "line 3: expected a semicolon before }"),
            ("location /a\n  return 403;\n}\n", "line 3: } closes no block"),
            ("a b;\nadd_header X-A \"b;\n", "line 3: expected a closing quote, and a space behind it"),
            ("if ($a) {\n  b c;\n", "line 3: expected a closing }"),
            ("if ($a) {\n  b c\n", "line 3: expected a closing }"),
        ] {
            assert_eq!(directives(text), Err(why.to_owned()), "{text}");
        }
    }

    #[test]
    fn the_last_directive_needs_no_semicolon() {
        for text in ["a b;\nc d", "a b; c d # e", "a b; c 'd'\n"] {
            assert_eq!(directives(text), directives("a b; c d;"), "{text}");
        }
    }

    #[test]
    fn flags_have_any_case() {
        let words = ["on", "ON", "Off", "off", "yes", ""];
        assert_eq!(words.map(switch), [Some(true), Some(true), Some(false), Some(false), None, None]);
    }

    proptest! {
        /// Whatever precedes a directive, it is found or the whole text is rejected.
        #[test]
        fn nothing_hides_a_directive(before in "[a-z;{} \"'\\\\#$\n]{0,12}", after in "[a-z;{} \"'\\\\#$\n]{0,12}") {
            let text = format!("{before}\n;deny all;{after}");
            if let (Ok(found), Ok(_)) = (directives(&text), directives(&format!("{before}\n;"))) {
                prop_assert!(found.iter().any(|it| it.name() == "deny"), "{text:?}: {found:?}");
            }
        }
    }
}
