//! `location` blocks of a snippet that answer requests themselves.

use shared::pattern::{Allowance, Pattern};
use shared::policy::{Shortcut, ShortcutBlock, ShortcutPath, ShortcutRewrite};

use super::{Node, answer, goes_on, nodes};
use crate::annotations::snippets::branches::{self, LOGS};
use crate::annotations::snippets::groups;
use crate::annotations::snippets::headers::{CHANGES_ANSWERS, Headers};
use crate::annotations::snippets::tokens::Directive;

/// `location [= | ~ | ~* | ^~] PATH { .. }`, and whether anything in it answers.
pub(super) fn block(node: &Node<'_>, room: &mut Allowance) -> Option<(ShortcutBlock, bool)> {
    let (kind, path) = match node.directive.arguments() {
        [path] if !path.starts_with(['@', '=', '~', '^']) => (ShortcutPath::Prefix, path),
        [sign, path] => (kind(sign)?, path),
        _ => return None,
    };
    let is_pattern = matches!(kind, ShortcutPath::Pattern | ShortcutPath::PatternAnyCase);
    let is_fine = match kind {
        ShortcutPath::Pattern => room.compile(|| Pattern::anywhere(path)).is_ok(),
        ShortcutPath::PatternAnyCase => room.compile(|| Pattern::anywhere_in_any_case(path)).is_ok(),
        _ => path.starts_with('/'),
    };
    if !is_fine {
        return None;
    }
    let (mut shortcuts, mut headers) = (Vec::new(), Vec::new());
    let (mut is_open, mut is_refusal, mut has_list, mut knows_no_types) = (None, false, false, false);
    let mut default_type = None;
    let inner = match is_pattern {
        true => groups::numbered(path, kind == ShortcutPath::PatternAnyCase, node.inner, room),
        false => node.inner.to_vec(),
    };
    for it in nodes(&inner) {
        match (it.directive.name(), it.directive.arguments()) {
            // The first match is used, and these match all clients.
            (access @ ("allow" | "deny"), [all]) if all == "all" => {
                _ = is_open.get_or_insert(access == "allow")
            }
            ("allow" | "deny", [_]) if !it.directive.is_block => has_list = true,
            // Nobody is asked where nothing is served; and there is no such page here.
            ("auth_basic" | "auth_request", [off]) if off == "off" => {}
            ("stub_status", _) if !it.directive.is_block => {}
            ("default_type", [configured]) => default_type = Some(configured.clone()),
            // Then no file extension determines the type.
            ("types", []) if it.directive.is_block && it.inner.is_empty() => knows_no_types = true,
            (name, _) if CHANGES_ANSWERS.contains(&name) && is_supported(it.directive, is_pattern) => {
                headers.push(it.directive);
            }
            (name, _) if LOGS.contains(&name) || name == "internal" => {}
            (name, configured) if !it.directive.is_block && is_idle(name, configured) => is_refusal = true,
            _ => shortcuts.push(in_block(answer(&it, is_pattern, room)?, &shortcuts)?),
        }
    }
    let responds = |it: &Shortcut| !goes_on(it) && it.status < 400;
    let has_answers = !shortcuts.is_empty();
    let is_internal = inner.iter().any(|it| it.name() == "internal");
    // nginx asks no list where a `return` comes first, whoever is refused by it. Where nothing answers, who is let in gets
    // the 404 of a file that there is not: here all get what the list ends with.
    if has_list && !shortcuts.is_empty() && !shortcuts.iter().any(answers_all) {
        return None;
    }
    if is_internal && !shortcuts.is_empty() || is_refusal && shortcuts.iter().any(responds) {
        return None;
    }
    if is_open == Some(false) && !is_internal {
        // nginx checks access after all of these, but `internal` (404) before that.
        shortcuts.push(in_block(Shortcut { status: 403, ..Shortcut::default() }, &shortcuts)?);
    } else if !shortcuts.last().is_some_and(answers_all)
        && headers.iter().any(|it| branches::shows_on_errors(it))
        && !shortcuts.iter().any(|it: &Shortcut| it.rewrite() == ShortcutRewrite::Next)
    {
        // Where none of these answers, nginx looks for a file and finds none.
        shortcuts.push(Shortcut { status: 404, ..Shortcut::default() });
    }
    let media_type = if knows_no_types { default_type.take() } else { None };
    for it in &mut shortcuts {
        let mut around = Shortcut { text: it.text.clone(), ..Shortcut::default() };
        if !branches::put(headers.iter().copied(), is_pattern, &mut around) {
            return None;
        }
        it.media_type = it.media_type.take().or(around.media_type);
        branches::inherit(it, &around.header_changes.unwrap_or_default().changes);
        media_type.iter().for_each(|configured| set_type(it, configured, |it| &mut it.media_type));
        default_type.iter().for_each(|configured| set_type(it, configured, |it| &mut it.default_type));
    }
    let answers = has_answers || is_open == Some(false);
    Some((ShortcutBlock { kind: Some(kind.into()), path: path.clone(), shortcuts }, answers))
}

/// Whether no request gets past it.
fn answers_all(it: &Shortcut) -> bool {
    !goes_on(it) && it.tests.is_empty() && it.pattern.is_none()
}

/// Whether a directive about headers can be exactly what it is.
fn is_supported(directive: &Directive, has_groups: bool) -> bool {
    Headers::of_answers(std::iter::once(directive), has_groups).is_some()
}

/// A response or a rewrite as one of a block, in which it follows these. Where a `break` would stay, nginx looks for a
/// file and finds none. What would answer behind a rewrite without a flag is not followed.
fn in_block(it: Shortcut, before: &[Shortcut]) -> Option<Shortcut> {
    let is_behind = before.iter().any(|it| it.rewrite() == ShortcutRewrite::Next);
    let it = match it.rewrite() {
        ShortcutRewrite::Break => Shortcut { status: 404, text: None, rewrite: None, ..it },
        _ => it,
    };
    (it.rewrite.is_some() || !is_behind).then_some(it)
}

/// Whether a directive of a block does not matter if the block denies: it only affects successful responses, or a
/// backend that is never reached, since nothing in the block names one.
fn is_idle(name: &str, arguments: &[String]) -> bool {
    match name {
        "add_header" => arguments.len() == 2,
        "proxy_pass" => false,
        name => name.starts_with("proxy_") || IDLE.contains(&name),
    }
}

/// The others, apart from those about backends.
const IDLE: [&str; 7] = [
    "client_body_buffer_size",
    "client_body_timeout",
    "client_max_body_size",
    "etag",
    "expires",
    "send_timeout",
    "tcp_nodelay",
];

/// A text has the innermost type that is set.
pub(super) fn set_type(to: &mut Shortcut, configured: &str, field: fn(&mut Shortcut) -> &mut Option<String>) {
    let is_text = to.text.is_some() && configured.chars().all(|c| (' '..='~').contains(&c));
    let to = field(to);
    if is_text && to.is_none() {
        *to = Some(configured.to_owned());
    }
}

fn kind(sign: &str) -> Option<ShortcutPath> {
    Some(match sign {
        "=" => ShortcutPath::Exact,
        "^~" => ShortcutPath::Firm,
        "~" => ShortcutPath::Pattern,
        "~*" => ShortcutPath::PatternAnyCase,
        _ => return None,
    })
}
