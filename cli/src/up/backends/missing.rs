//! Why a folder has no Ingress.

use control_plane::event::Event;
use control_plane::problem::{Problem, Severity};

/// What came in place of one.
pub(in crate::up) struct Missing {
    /// What is wrong with the first file or object that cannot be read, if there is one.
    pub(in crate::up) unread: Option<String>,
}

impl Missing {
    pub(super) fn among(events: &[Event]) -> Self {
        Self { unread: events.iter().find_map(problem).map(ToString::to_string) }
    }
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
