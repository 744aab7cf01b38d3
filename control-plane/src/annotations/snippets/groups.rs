//! Named groups of an `if` and of a block, which nginx makes variables: `if ($host ~ ^(?<tenant>.+)[.]a[.]test$) { .. }`,
//! `location ~ ^/old/(?<rest>.*) { .. }`.

use std::collections::BTreeSet;

use shared::pattern::{Allowance, Pattern};
use shared::template::{Template, Variable};

use super::shortcuts::{Condition, Node, nodes};
use super::tokens::{self, Directive};

/// How the name of a group begins.
const SIGNS: [&str; 2] = ["(?<", "(?P<"];

/// A snippet with a `set` for each of these groups in the block of its `if`, before all others. Those that nothing asks for
/// are left out: a `set` ends what is known of headers in that block.
pub(super) fn spelled_out(directives: &[Directive], room: &mut Allowance) -> Vec<Directive> {
    let asked: BTreeSet<String> = used(directives).collect();
    let mut out = Vec::with_capacity(directives.len());
    for directive in directives {
        out.push(directive.clone());
        if directive.depth == 0 && directive.is_block && directive.name() == "if" {
            out.extend(Condition::of(directive).iter().flat_map(|it| sets(it, &asked, room)));
        }
    }
    out
}

/// The directives of a block of this pattern with `$1` in place of `$name`, where the last match is that of the block or of
/// the `if` that names the group. A `rewrite ^`, which matches whatever the block does, has the pattern of the block instead.
pub(super) fn numbered(
    pattern: &str,
    any_case: bool,
    inner: &[Directive],
    room: &mut Allowance,
) -> Vec<Directive> {
    let of_block = numbers(pattern, room);
    let mut out = Vec::with_capacity(inner.len());
    let mut is_rewritten = false;
    for Node { directive, inner } in nodes(inner) {
        is_rewritten |= inner.iter().any(|it| it.name() == "rewrite");
        let condition = Condition::of(directive).filter(|_| directive.name() == "if");
        let (directive, of_inner) = match condition {
            Some(condition) if condition.finds() => (directive.clone(), numbers(condition.value, room)),
            Some(_) => (directive.clone(), of_block.clone()),
            None if directive.name() == "rewrite" => {
                let whole = if any_case { format!("(?i){pattern}") } else { pattern.to_owned() };
                let moved = moved(directive, &whole, &of_block).filter(|_| !is_rewritten);
                is_rewritten = true;
                (moved.unwrap_or_else(|| directive.clone()), Vec::new())
            }
            None => (with_numbers(directive, &of_block), of_block.clone()),
        };
        out.push(directive);
        out.extend(inner.iter().map(|it| match it.name() {
            "rewrite" => it.clone(),
            _ => with_numbers(it, &of_inner),
        }));
    }
    out
}

/// `rewrite ^ TEXT` as one with groups of this pattern.
fn moved(directive: &Directive, pattern: &str, numbers: &[(String, u8)]) -> Option<Directive> {
    let [first, text, ..] = directive.arguments() else { return None };
    let has_numbers = Template::parse(text).variables().any(|it| matches!(it, Variable::Capture(_)));
    let moved = with_numbers(directive, numbers);
    let is_one = first == "^" && !has_numbers && moved != *directive;
    is_one.then(|| moved.with_argument(0, pattern.to_owned()))
}

fn with_numbers(directive: &Directive, numbers: &[(String, u8)]) -> Directive {
    let number =
        |name: &str| numbers.iter().find(|(own, _)| own == name).map(|(_, number)| format!("${number}"));
    let numbered = directive.replaced(|text| Some(Template::replaced(text, number)));
    numbered.unwrap_or_else(|| directive.clone())
}

/// The named groups of a pattern, in lower case, and their numbers.
fn numbers(pattern: &str, room: &mut Allowance) -> Vec<(String, u8)> {
    let names = names(pattern);
    if names.is_empty() {
        return Vec::new();
    }
    let Ok(compiled) = room.compile(|| Pattern::anywhere(pattern)) else { return Vec::new() };
    let is_free = |name: &&str| matches!(Variable::of(name), Variable::Named(_));
    let number = |name: &str| Some((name.to_ascii_lowercase(), compiled.group(name)?));
    names.into_iter().filter(is_free).filter_map(number).collect()
}

/// The variables in directives that have no meaning of their own.
pub(super) fn used<'d>(directives: impl IntoIterator<Item = &'d Directive>) -> impl Iterator<Item = String> {
    directives.into_iter().flat_map(Directive::arguments).flat_map(|text| named(text))
}

/// The same of a text.
pub(super) fn named(text: &str) -> Vec<String> {
    let template = Template::parse(text);
    let named = template.variables().filter_map(|it| match it {
        Variable::Named(name) => Some(name.to_string()),
        _ => None,
    });
    named.collect()
}

fn sets(condition: &Condition<'_>, asked: &BTreeSet<String>, room: &mut Allowance) -> Vec<Directive> {
    let is_asked = |name: &&str| asked.contains(&name.to_ascii_lowercase());
    let names: Vec<_> = names(condition.value).into_iter().filter(is_asked).collect();
    if !condition.finds() || names.is_empty() {
        return Vec::new();
    }
    let Ok(pattern) = room.compile(|| Pattern::anywhere(condition.value)) else { return Vec::new() };
    let set = |name: &str| {
        let set = format!("set ${name} ${};", pattern.group(name)?);
        let mut set = tokens::directives(&set).ok()?.pop()?;
        set.depth = 1;
        Some(set)
    };
    names.into_iter().filter_map(set).collect()
}

/// What a condition may name, in lower case.
pub(super) fn names_of(condition: &Condition<'_>) -> Vec<String> {
    let names = if condition.finds() { names(condition.value) } else { Vec::new() };
    names.into_iter().map(str::to_ascii_lowercase).collect()
}

/// What may be names of groups; the pattern knows.
fn names(pattern: &str) -> Vec<&str> {
    let behind = SIGNS.iter().flat_map(|sign| pattern.split(sign).skip(1));
    behind.filter_map(|rest| rest.split_once('>')).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(text: &str) -> Vec<String> {
        let directives = tokens::directives(text).unwrap();
        let all = spelled_out(&directives, &mut Allowance::new(1 << 20));
        let text = |it: &Directive| format!("{} {} {}", it.depth, it.name(), it.arguments().join(" "));
        all.iter().map(text).collect()
    }

    #[test]
    fn groups_that_something_asks_for_are_set_by_their_numbers() {
        let text =
            "if ($host ~* ^(www[.])?(?<Sub>[a-z]+)[.](?P<rest>.+)$) { set $x 1; } add_header X-A $sub$REST;";
        let condition = "0 if ($host ~* ^(www[.])?(?<Sub>[a-z]+)[.](?P<rest>.+)$)";
        let expected =
            [condition, "1 set $Sub $2", "1 set $rest $3", "1 set $x 1", "0 add_header X-A $sub$REST"];
        assert_eq!(spelled(text), expected);
        for text in [
            "if ($host ~ ^(?<sub>.)$) { set $x 1; } add_header X-A $x;",
            "if ($host = ^(?<sub>.)$) { set $x 1; } add_header X-A $sub;",
            "if ($host ~ ^[(?<sub>.]$) { set $x 1; } add_header X-A $sub;",
            "if ($host ~ ^(?<=sub>.)$) { set $x 1; } add_header X-A $sub;",
            "if ($host ~ ^(?<sub>.$) { set $x 1; } add_header X-A $sub;",
            "location ~ ^(?<sub>.)$ { return 200 $sub; }",
        ] {
            let plain = tokens::directives(text).unwrap();
            assert_eq!(spelled(text).len(), plain.len(), "{text}");
        }
    }

    #[test]
    fn groups_of_a_block_have_numbers_where_nothing_else_has_matched() {
        let path = "^/(?<Sub>[a-z]+)/(x|y)/(?<rest>.*)$";
        for (text, expected) in [
            ("return 301 /$rest?$sub;", "return 301 /$3?$1;"),
            ("add_header X-A ${SUB}1 always; return 204;", "add_header X-A $11 always; return 204;"),
            ("if ($arg_a) { return 302 /$rest; }", "if ($arg_a) { return 302 /$3; }"),
            (
                "if ($arg_a ~ (?<of_a>.)) { return 302 /$of_a$rest; }",
                "if ($arg_a ~ (?<of_a>.)) { return 302 /$1$rest; }",
            ),
            ("rewrite ^ /a/$rest last;", "rewrite ^/(?<Sub>[a-z]+)/(x|y)/(?<rest>.*)$ /a/$3 last;"),
            ("rewrite ^ /a/$rest/$1 last;", "rewrite ^ /a/$rest/$1 last;"),
            ("rewrite ^/(.) /a/$rest last;", "rewrite ^/(.) /a/$rest last;"),
            ("rewrite ^/a /b; rewrite ^ /a/$rest last;", "rewrite ^/a /b; rewrite ^ /a/$rest last;"),
            (
                "if ($arg_a) { rewrite ^/a /b; } rewrite ^ /a/$rest last;",
                "if ($arg_a) { rewrite ^/a /b; } rewrite ^ /a/$rest last;",
            ),
            ("return 301 /$other;", "return 301 /$other;"),
        ] {
            let read = |text: &str| tokens::directives(text).unwrap();
            let found = numbered(path, false, &read(text), &mut Allowance::new(1 << 20));
            assert_eq!(found, read(expected), "{text}");
        }
        let rewrite = tokens::directives("rewrite ^ /a/$rest last;").unwrap();
        let found = numbered(path, true, &rewrite, &mut Allowance::new(1 << 20));
        assert_eq!(found[0].argument(), Some(&*format!("(?i){path}")));
    }
}
