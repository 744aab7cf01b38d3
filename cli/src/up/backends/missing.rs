//! Why a folder has no Ingress.

use control_plane::ESSENTIAL;
use control_plane::event::Event;
use control_plane::problem::{Problem, Severity};

/// What was found instead of an Ingress.
pub(in crate::up) struct Missing {
    /// The problem of the first file or object that cannot be decoded, if there is one.
    pub(in crate::up) unread: Option<String>,
    /// Whether the folder has none of the essential kinds, so that the control plane reads it again before it trusts
    /// that.
    pub(in crate::up) is_bare: bool,
}

impl Missing {
    pub(super) fn among(events: &[Event]) -> Self {
        let unread = events.iter().find_map(problem).map(ToString::to_string);
        Self { unread, is_bare: !events.iter().any(is_essential) }
    }
}

/// Whether an event is about one of the essential kinds, with which the control plane trusts the folder.
fn is_essential(event: &Event) -> bool {
    event.object().is_some_and(|object| ESSENTIAL.contains(&object.kind))
}

fn problem(event: &Event) -> Option<&Problem> {
    match event {
        Event::Broken { problem, .. } => Some(problem),
        Event::Noted { problems, .. } => {
            problems.iter().find(|problem| problem.severity != Severity::Warning)
        }
        _ => None,
    }
}
