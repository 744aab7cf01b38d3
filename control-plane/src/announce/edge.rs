//! The timing of announcements: when to look for new ones.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::Announcer;
use crate::kube::events::Announcement;
use crate::placement::Placements;
use crate::problem::Problems;
use crate::serve::registry::Registry;
use crate::store::Published;

/// Minimum interval: a look costs as much as there are problems.
const GAP: Duration = Duration::from_secs(1);
/// Interval at which postponed announcements are tried again.
const LOOK: Duration = Duration::from_secs(10);

/// The inputs of an [`Announcer`].
#[derive(Debug)]
pub struct Seen {
    /// The offered configuration.
    pub published: Published,
    /// The placement of objects.
    pub places: watch::Receiver<Placements>,
    /// Problems of objects.
    pub problems: watch::Receiver<Problems>,
    /// Connected proxies and their refusals.
    pub registry: Arc<Registry>,
}

/// Sends announcements, as long as they are received.
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
        // Before the first lists are complete, an object that seems missing may not have been listed yet.
        if head.is_ready() {
            // Problems first: they are published before the placement of objects.
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
