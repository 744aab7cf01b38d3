//! Logs new problems for operators, each once.

use imbl::ordmap::DiffItem;
use tracing::{info, warn};

use crate::problem::{Problem, Problems, Severity};

/// Logs the problems that are new.
pub(super) fn log_new(before: &Problems, now: &Problems) {
    for item in before.diff(now) {
        let (old, new): (&[Problem], &[Problem]) = match item {
            DiffItem::Add(_, new) => (&[], new),
            DiffItem::Update { old: (_, old), new: (_, new) } => (old, new),
            DiffItem::Remove(object, _) => {
                info!(%object, "no problem any more");
                continue;
            }
        };
        for problem in new.iter().filter(|problem| !old.contains(problem)) {
            match problem.severity {
                Severity::Rejected | Severity::Unsupported => warn!("{problem}"),
                Severity::Overridden | Severity::Warning => info!("{problem}"),
            }
        }
    }
}
