//! Configuration that waits for the Secrets it names.
//!
//! A host that is given another certificate must not be offered before that certificate is: the source has to read it
//! first. New LIVE resources go ahead, CONFIG and what it no longer needs of LIVE wait together.
//!
//! **Invariant:** what was passed on and what is stashed, one after the other, are all changes; a key of LIVE that was
//! put anew is not removed by an older change.

use std::collections::HashSet;
use std::time::Duration;

use shared::delta::Delta;
use shared::kind::Kind;
use tokio::time::Instant;

use crate::store::Changes;

/// A source that has not read the Secrets by then is not waited for any longer.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// Causes are joined up to this length, in bytes.
const MAX_CAUSE: usize = 200;

/// Changes that wait.
#[derive(Debug)]
pub(super) struct Stash {
    changes: Changes,
    /// The number of the wants that are to be settled.
    awaited: u64,
    until: Instant,
}

impl Stash {
    /// Nothing yet, waiting for wants of this number.
    pub(super) fn new(awaited: u64, now: Instant) -> Self {
        Self { changes: Changes::default(), awaited, until: now + PATIENCE }
    }

    /// Waits for newer wants too, but no longer than it would have.
    pub(super) fn also_await(&mut self, wants: u64) {
        self.awaited = wants;
    }

    /// When it is over, whatever was read.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Whether it is over.
    pub(super) fn is_over(&self, settled: u64, now: Instant) -> bool {
        settled >= self.awaited || now >= self.until
    }

    /// Keeps what has to wait, and gives what goes ahead: what is new in LIVE, and endpoints that are no more.
    pub(super) fn keep(&mut self, changes: Changes) -> Changes {
        let Changes { config, live, cause } = changes;
        let (now, later) =
            live.removed.into_iter().partition(|removal| removal.gone && removal.key.kind == Kind::Endpoints);
        let ahead = Delta { up: live.up, removed: now };
        self.overtaken_by(&ahead);
        let removals = Delta { up: Vec::new(), removed: later };
        let ahead = Changes {
            config: Delta::default(),
            live: ahead,
            cause: match config.is_empty() {
                true => cause.clone(),
                false => format!("ahead of {cause}"),
            },
        };
        let stashed = std::mem::take(&mut self.changes);
        self.changes = squash(stashed, Changes { config, live: removals, cause });
        ahead
    }

    /// LIVE changes were offered meanwhile: what they put is there to stay.
    pub(super) fn overtaken_by(&mut self, live: &Delta) {
        if self.changes.live.removed.is_empty() {
            return;
        }
        let up: HashSet<_> = live.up.iter().map(|entry| &entry.key).collect();
        let removed = &mut self.changes.live.removed;
        removed.retain(|removal| !up.contains(&removal.key));
    }

    /// Everything that waited, with what comes after.
    pub(super) fn release(self, then: Changes) -> Changes {
        squash(self.changes, then)
    }
}

/// Both as one.
pub(super) fn squash(first: Changes, then: Changes) -> Changes {
    let cause = match (first.cause.is_empty(), then.cause.is_empty()) {
        (true, _) => then.cause,
        (_, true) => first.cause,
        // A version's cause is what changed its configuration.
        _ if then.config.is_empty() => first.cause,
        _ if first.config.is_empty() || first.cause.len() + then.cause.len() > MAX_CAUSE => then.cause,
        _ => format!("{}; {}", first.cause, then.cause),
    };
    Changes { config: first.config.squash(then.config), live: first.live.squash(then.live), cause }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shared::delta::Removal;
    use shared::entry::Entry;
    use shared::kind::ResourceKey;
    use shared::resource::{Listener, Protocol, Resource};

    use super::*;

    fn up(key: &str) -> Delta {
        let resource = Resource::Listener(Listener { protocol: Protocol::Http });
        Delta { up: vec![Arc::new(Entry::encode(key, &resource))], removed: Vec::new() }
    }

    fn removed(kind: Kind, key: &str, gone: bool) -> Delta {
        let key = ResourceKey::new(kind, key);
        Delta { up: Vec::new(), removed: vec![Removal { key, gone }] }
    }

    fn changes(config: Delta, live: Delta, cause: &str) -> Changes {
        Changes { config, live, cause: cause.to_owned() }
    }

    #[test]
    fn what_is_new_goes_ahead_and_what_is_unused_waits() {
        let mut stash = Stash::new(1, Instant::now());
        let live = up("new")
            .squash(removed(Kind::Endpoints, "a/unused", false))
            .squash(removed(Kind::Endpoints, "a/dead", true))
            .squash(removed(Kind::Certificate, "a/old", true));
        let ahead = stash.keep(changes(up("config"), live, "one"));
        assert!(ahead.config.is_empty());
        assert_eq!((ahead.live.up.len(), ahead.live.removed.len()), (1, 1));
        let all = stash.release(changes(up("more"), Delta::default(), "two"));
        assert_eq!((all.config.up.len(), all.live.removed.len()), (2, 2));
        assert_eq!((all.live.up.len(), &*all.cause), (0, "one; two"));
    }

    #[test]
    fn what_came_back_is_not_removed() {
        let mut stash = Stash::new(1, Instant::now());
        let key = up("k").up[0].key.clone();
        stash.keep(changes(up("c"), removed(key.kind, "k", false), "one"));
        stash.overtaken_by(&up("k"));
        assert!(stash.release(Changes::default()).live.is_empty());
    }

    #[test]
    fn it_ends_with_the_newest_wants_or_with_patience() {
        let now = Instant::now();
        let mut stash = Stash::new(1, now);
        assert!(!stash.is_over(0, now) && stash.is_over(1, now));
        stash.also_await(2);
        assert!(!stash.is_over(1, now) && stash.is_over(1, now + PATIENCE));
    }
}
