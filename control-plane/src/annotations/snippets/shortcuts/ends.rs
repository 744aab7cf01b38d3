//! What ends the processing of a request in a snippet: `return`, and a `rewrite` that redirects or leads elsewhere.

use shared::pattern::{Allowance, Pattern};
use shared::policy::{Shortcut, ShortcutRewrite};
use shared::template::{Template, Variable};

/// `return CODE;`, `return CODE TEXT;`, `return URL;`.
pub(in super::super) fn returned(arguments: &[String], has_groups: bool) -> Option<Shortcut> {
    let (status, text) = match arguments {
        [url] if is_url(url) => (302, Some(url)),
        [code] => (status(code)?, None),
        // An error without a text has nginx' page.
        [code, text] => {
            (status(code)?, Some(text).filter(|text| !text.is_empty() || status(code) < Some(400)))
        }
        _ => return None,
    };
    let leads = is_redirect(status);
    let is_fine = match text {
        Some(text) => has_values(text, has_groups) && (!leads || is_place(text)),
        None => !leads,
    };
    is_fine.then(|| Shortcut { status, text: text.cloned(), ..Shortcut::default() })
}

/// `rewrite PATTERN TEXT [redirect | permanent | last | break];`.
pub(super) fn rewritten(arguments: &[String], room: &mut Allowance) -> Option<Shortcut> {
    let (pattern, text, flag) = match arguments {
        [pattern, text] => (pattern, text, ""),
        [pattern, text, flag] => (pattern, text, flag.as_str()),
        _ => return None,
    };
    let (status, rewrite) = match flag {
        "permanent" => (301, None),
        "redirect" => (302, None),
        _ if is_url(text) => (302, None),
        "last" => (0, Some(ShortcutRewrite::Last)),
        "break" => (0, Some(ShortcutRewrite::Break)),
        "" => (0, Some(ShortcutRewrite::Next)),
        _ => return None,
    };
    let mut is_pattern = || room.compile(|| Pattern::anywhere(pattern)).is_ok();
    let is_text = is_place(text) && (rewrite.is_none() || is_target(text));
    let is_fine = has_values(text, true) && is_text && is_pattern();
    is_fine.then(|| Shortcut {
        status,
        text: Some(text.clone()),
        pattern: Some(pattern.clone()),
        rewrite: rewrite.map(Into::into),
        ..Shortcut::default()
    })
}

/// Whether a text is a path, with at most one query: behind a second `?` nginx takes the first one for a part of the
/// path. A `?` at its end only drops the query of the request.
fn is_target(text: &str) -> bool {
    let text = text.strip_suffix('?').unwrap_or(text);
    ["/", "$1", "$uri"].iter().any(|start| text.starts_with(start)) && text.matches('?').count() <= 1
}

pub(in super::super) fn status(code: &str) -> Option<u32> {
    code.parse().ok().filter(|status| (200..=599).contains(status))
}

pub(in super::super) fn is_redirect(status: u32) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// Whether nginx redirects there, whatever else a directive says.
pub(in super::super) fn is_url(text: &str) -> bool {
    ["http://", "https://", "$scheme"].iter().any(|start| text.starts_with(start))
}

/// Whether a text may be the value of `Location`.
fn is_place(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| ('!'..='~').contains(&c))
}

/// Whether all its variables have a value before a location is chosen, and there are not too many.
pub(in super::super) fn has_values(text: &str, has_groups: bool) -> bool {
    let has_value = |variable: &Variable| match variable {
        Variable::Capture(_) => has_groups,
        Variable::Named(_) | Variable::User => false,
        // These depend on the location and its backend.
        Variable::Namespace
        | Variable::Ingress
        | Variable::Service
        | Variable::ServicePort
        | Variable::LocationPath
        | Variable::UpstreamName => false,
        _ => true,
    };
    is_filled(text, has_value)
}

/// Whether a text can stand in an answer: all its variables have a value there.
pub(in super::super) fn replaces_by(text: &str) -> bool {
    is_filled(text, |it| !matches!(it, Variable::Capture(_) | Variable::Named(_) | Variable::User))
}

/// Whether requests can be counted by a text: all its variables have a value in a location. A user is who a request says.
pub(in super::super) fn counts_by(text: &str) -> bool {
    is_filled(text, |it| !matches!(it, Variable::Capture(_) | Variable::Named(_)))
}

fn is_filled(text: &str, has_value: impl Fn(&Variable) -> bool) -> bool {
    let template = Template::parse(text);
    template.is_moderate() && template.variables().all(has_value)
}
