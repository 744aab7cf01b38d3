//! Named groups of an `if`, which nginx makes variables: `if ($host ~ ^(?<tenant>.+)[.]a[.]test$) { .. }`.

use std::collections::BTreeSet;

use shared::pattern::{Allowance, Pattern};
use shared::template::{Template, Variable};

use super::shortcuts::Condition;
use super::tokens::{self, Directive};

/// How the name of a group begins.
const SIGNS: [&str; 2] = ["(?<", "(?P<"];

/// A snippet with a `set` for each of these groups in the block of its `if`, before all others. Those that nothing asks for
/// are left out: a `set` ends what is known of headers in that block.
pub(super) fn spelled_out(directives: &[Directive], room: &mut Allowance) -> Vec<Directive> {
    let texts = directives.iter().flat_map(Directive::arguments);
    let asked: BTreeSet<String> = texts.flat_map(|text| named(text)).collect();
    let mut out = Vec::with_capacity(directives.len());
    for directive in directives {
        out.push(directive.clone());
        if directive.depth == 0 && directive.is_block && directive.name() == "if" {
            out.extend(Condition::of(directive).iter().flat_map(|it| sets(it, &asked, room)));
        }
    }
    out
}

/// The variables of a text that have no meaning of their own.
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
}
