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
