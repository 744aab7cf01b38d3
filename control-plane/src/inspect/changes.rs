//! Reports each change once every connected proxy has acknowledged it, or after 10 s.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shared::clock;
use shared::proto::inspect;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};

use crate::serve::registry::Registry;
use crate::store::{Note, Published};

/// How long a change waits for the last proxy.
const PATIENCE: Duration = Duration::from_secs(10);
/// Limit of waiting changes; beyond it the oldest is reported as it is.
const WAITING: usize = 1_024;

/// One watcher of changes.
#[derive(Debug)]
pub(super) struct Changes {
    notes: broadcast::Receiver<Arc<Note>>,
    registry: Arc<Registry>,
    proxies: watch::Receiver<u64>,
    leaving: watch::Receiver<bool>,
    waiting: VecDeque<Arc<Note>>,
}

impl Changes {
    pub(super) fn new(
        published: &Published,
        registry: Arc<Registry>,
        leaving: watch::Receiver<bool>,
    ) -> Self {
        Self {
            notes: published.notes(),
            proxies: registry.changes(),
            registry,
            leaving,
            waiting: VecDeque::new(),
        }
    }

    /// The next change, in the order of commits; `None` when the process ends.
    pub(super) async fn next(&mut self) -> Option<inspect::WatchChangesResponse> {
        loop {
            self.proxies.mark_unchanged();
            if let Some(change) = self.due(clock::now()) {
                return Some(change);
            }
            let patience = self.waiting.front().map(|note| note.at + PATIENCE);
            tokio::select! {
                note = self.notes.recv() => match note {
                    Ok(note) => self.waiting.push_back(note),
                    // Changes lost by lagging; later ones are reported.
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                },
                changed = self.proxies.changed() => changed.ok()?,
                () = until(patience) => {}
                _ = self.leaving.wait_for(|leaving| *leaving) => return None,
            }
        }
    }

    fn due(&mut self, now: Instant) -> Option<inspect::WatchChangesResponse> {
        let note = self.waiting.front()?;
        let (mut proxies, mut acked) = (0, 0);
        self.registry.for_each(|proxy| {
            proxies += 1;
            acked += u32::from(proxy.config.seq >= note.config_seq && proxy.live.seq >= note.live_seq);
        });
        let took = now.saturating_duration_since(note.at);
        let complete = !note.is_offered() || (proxies > 0 && acked == proxies);
        if !complete && took < PATIENCE && self.waiting.len() < WAITING {
            return None;
        }
        let change = inspect::WatchChangesResponse {
            version: note.version.short(),
            config: note.config,
            cause: note.cause.to_string(),
            changed: note.changed as u32,
            acked,
            proxies,
            took_us: took.as_micros() as u64,
            held_back: note.held_back as u32,
        };
        self.waiting.pop_front();
        Some(change)
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use shared::version::{Lineage, Root, Seq};

    use super::*;
    use crate::inspect::tests::proxy;
    use crate::store::Store;

    fn note(at: Instant) -> Arc<Note> {
        let (config_seq, live_seq, version) = (Seq(1), Seq(1), Root([1; 16]));
        Arc::new(Note {
            config_seq,
            live_seq,
            version,
            config: true,
            cause: "an edit".into(),
            changed: 1,
            held_back: 0,
            heard: at,
            at,
        })
    }

    #[test]
    fn a_change_waits_for_so_long_and_with_so_many_behind_it() {
        let now = clock::now();
        let (_, published) = Store::new(Lineage([1; 16]), now);
        let registry = Arc::new(Registry::default());
        let _never_answers = proxy(&registry, "a");
        let mut changes = Changes::new(&published, registry, watch::channel(false).1);
        changes.waiting.push_back(note(now));
        assert!(changes.due(now + PATIENCE - Duration::from_millis(1)).is_none());
        let told = changes.due(now + PATIENCE).unwrap();
        assert_eq!((told.acked, told.proxies), (0, 1));

        changes.waiting.extend((1..WAITING).map(|_| note(now)));
        assert!(changes.due(now).is_none());
        changes.waiting.push_back(note(now));
        assert!(changes.due(now).is_some(), "the oldest, as it stands");
        assert!(changes.due(now).is_none());
    }
}
