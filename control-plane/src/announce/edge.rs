//! The timing: when to look for new announcements.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::Announcer;
use crate::kube::events::Announcement;
use crate::placed::Places;
use crate::problem::Problems;
use crate::serve::registry::Registry;
use crate::store::Published;

/// Looks are at least so far apart: a look costs as much as is wrong.
const GAP: Duration = Duration::from_secs(1);
/// What was not to be told then may be now.
const LOOK: Duration = Duration::from_secs(10);

/// What an [`Announcer`] looks at.
#[derive(Debug)]
pub struct Seen {
    /// What is offered.
    pub published: Published,
    /// Where objects are.
    pub places: watch::Receiver<Places>,
    /// What is wrong with them.
    pub problems: watch::Receiver<Problems>,
    /// Who is connected, and refuses what.
    pub registry: Arc<Registry>,
}

/// Tells what is new, as long as somebody listens.
///
/// # Errors
/// Never.
pub async fn run(mut seen: Seen, to: mpsc::Sender<Announcement>) -> Result<(), Infallible> {
    let mut announcer = Announcer::default();
    let mut proxies = seen.registry.changes();
    loop {
        seen.problems.mark_unchanged();
        proxies.mark_unchanged();
        let head = seen.published.head();
        // Before the first lists are complete what is missing may be on its way.
        if head.is_ready() {
            // Problems first: what is wrong with an object is published before where it is.
            let problems = seen.problems.borrow().clone();
            let places = seen.places.borrow().clone();
            let mut told = announcer.rejected(&problems, &places);
            told.extend(announcer.refused(&seen.registry.list(), &places, &head));
            for announcement in told {
                if to.send(announcement).await.is_err() {
                    return std::future::pending().await;
                }
            }
        }
        tokio::time::sleep(GAP).await;
        tokio::select! {
            changed = seen.problems.changed() => if changed.is_err() { return std::future::pending().await },
            changed = proxies.changed() => if changed.is_err() { return std::future::pending().await },
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}
