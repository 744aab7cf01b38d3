//! What the block of an `if`, or of a `location`, says of the headers of its answers.
//!
//! Where several blocks of `if` pass their tests, nginx answers with the headers of the last one alone: what it adds stands
//! in place of what its location adds, what it sets is set beside.

use shared::policy::{HeaderChange, HeaderChangeList, HeaderOperation, Shortcut};
use shared::template::Template;

use super::headers::{CHANGES_ANSWERS, Headers};
use super::tokens::Directive;
use super::variables;

/// Directives about the log: no client can tell.
pub(super) const LOGS: [&str; 3] = ["access_log", "error_log", "log_not_found"];

/// The directives of a block of an `if`, sorted.
#[derive(Default)]
pub(super) struct Branch<'a> {
    /// About headers.
    pub(super) headers: Vec<&'a Directive>,
    /// Values for variables of the snippet, before what ends it.
    pub(super) sets: Vec<&'a Directive>,
    /// The answer, or the rewrite.
    pub(super) end: Option<&'a Directive>,
}

impl<'a> Branch<'a> {
    /// `None`: some of them are others.
    pub(super) fn of(inner: &'a [Directive]) -> Option<Self> {
        let mut branch = Self::default();
        let mut is_logged_otherwise = false;
        for it in inner {
            match it.name() {
                _ if it.is_block => return None,
                "return" | "rewrite" if branch.end.is_none() => branch.end = Some(it),
                "set" if branch.end.is_none() && variables::sets_its_own(it) => branch.sets.push(it),
                name if CHANGES_ANSWERS.contains(&name) => branch.headers.push(it),
                name if LOGS.contains(&name) => is_logged_otherwise = true,
                _ => return None,
            }
        }
        // It goes on for some requests, whose log is told to be as it is.
        let is_whole = branch.end.is_some() || !branch.headers.is_empty() && !is_logged_otherwise;
        is_whole.then_some(branch)
    }
}

/// Puts the changes of directives on what is answered; whether all of them are supported. `has_groups`: their values may
/// have groups of a pattern.
pub(super) fn put<'a>(
    directives: impl Iterator<Item = &'a Directive>,
    has_groups: bool,
    to: &mut Shortcut,
) -> bool {
    // A response without a body has no length, and one of which it is known has no other.
    let directives = directives.filter(|it| !is_length(it));
    let Some(mut changes) = Headers::of_answers(directives, has_groups) else {
        return false;
    };
    if to.text.is_some() {
        // Instead of a second header of that name.
        let is_type = |it: &HeaderChange| is_added(it) && it.name.eq_ignore_ascii_case("content-type");
        let types: Vec<_> = changes.extract_if(.., |it| is_type(it)).map(|it| it.value).collect();
        if types.iter().any(|it| Template::parse(it).as_literal().is_none()) {
            return false;
        }
        to.media_type = types.into_iter().last().or_else(|| to.media_type.take());
    }
    to.header_changes = (!changes.is_empty()).then_some(HeaderChangeList { changes });
    true
}

/// Whether a directive about headers has an effect on answers that went wrong.
pub(super) fn shows_on_errors(directive: &Directive) -> bool {
    match directive.name() {
        "add_header" => directive.arguments().len() > 2,
        name => name != "expires",
    }
}

fn is_length(directive: &Directive) -> bool {
    let [name, value, ..] = directive.arguments() else { return false };
    directive.name() == "add_header" && name.eq_ignore_ascii_case("content-length") && value == "0"
}

fn is_added(it: &HeaderChange) -> bool {
    matches!(it.operation(), HeaderOperation::Add | HeaderOperation::AddAlways)
}

/// Adds what the block around says, as the outer level.
pub(super) fn inherit(to: &mut Shortcut, around: &[HeaderChange]) {
    let own = to.header_changes.take().unwrap_or_default().changes;
    let adds = own.iter().any(is_added);
    let inherited = around.iter().filter(|it| !(adds && is_added(it))).cloned();
    let changes: Vec<_> = inherited.chain(own).collect();
    to.header_changes = (!changes.is_empty()).then_some(HeaderChangeList { changes });
}
