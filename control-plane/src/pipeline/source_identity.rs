//! Identifies the source (cluster or folder) for the history: reported once, as soon as the source knows.

use std::future;
use std::sync::Arc;

use shared::version::Source;
use tokio::sync::watch;

/// The pending identity of the source.
#[derive(Debug, Default)]
pub(super) struct SourceIdentity(Option<(watch::Receiver<Option<Source>>, String)>);

impl SourceIdentity {
    pub(super) fn new(source: watch::Receiver<Option<Source>>, group: &str) -> Self {
        Self(Some((source, group.to_owned())))
    }

    /// Resolves to the identity, once.
    pub(super) async fn known(&mut self) -> Arc<str> {
        while let Some((source, group)) = &mut self.0 {
            let known = *source.borrow_and_update();
            if let Some(known) = known {
                let of = format!("{known}/{group}").into();
                self.0 = None;
                return of;
            }
            if source.changed().await.is_err() {
                self.0 = None;
            }
        }
        future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn it_is_told_once_and_differs_by_source_and_group() {
        let mut told = BTreeSet::new();
        for (id, group) in [(1, "a"), (2, "a"), (1, "b"), (2, "b")] {
            let (sender, source) = watch::channel(None);
            let mut identity = SourceIdentity::new(source, group);
            assert_eq!(identity.known().now_or_never(), None, "not known yet");
            sender.send_replace(Some(Source([id; 16])));
            told.insert(identity.known().now_or_never().unwrap());
            assert_eq!(identity.known().now_or_never(), None, "once");
        }
        assert_eq!(told.len(), 4, "{told:?}");
        let (sender, source) = watch::channel(None);
        drop(sender);
        assert_eq!(SourceIdentity::new(source, "a").known().now_or_never(), None);
    }
}
