//! What operators should read in the log, each thing once: problems that are new.

use imbl::ordmap::DiffItem;
use tracing::{info, warn};

use crate::problem::{Problem, Problems, Severity};

/// Logs the problems that were not there before.
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
