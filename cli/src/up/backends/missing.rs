//! Why a folder has no Ingress.

use control_plane::ESSENTIAL;
use control_plane::event::Event;
use control_plane::problem::{Problem, Severity};

/// What came in place of one.
pub(in crate::up) struct Missing {
    /// What is wrong with the first file or object that cannot be read, if there is one.
    pub(in crate::up) unread: Option<String>,
    /// Whether it has nothing that requests could be led by or to, so that the control plane doubts it first.
    pub(in crate::up) is_bare: bool,
}

impl Missing {
    pub(super) fn among(events: &[Event]) -> Self {
        let unread = events.iter().find_map(problem).map(ToString::to_string);
        Self { unread, is_bare: !events.iter().any(is_essential) }
    }
}

/// Whether the control plane takes a folder that has it at its word.
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
