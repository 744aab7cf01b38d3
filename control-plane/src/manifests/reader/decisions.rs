//! Decisions stored beside the folder: stores what is requested, and applies what others changed there.

use tokio::time::Instant;

use super::{Reader, blocking};
use crate::event::{Event, HoldRequest, PinRequest};
use crate::manifests::FolderError;
use crate::manifests::pins::PinFile;
use crate::manifests::record::Loaded;
use crate::objects::ObjectKind;

impl Reader {
    /// Reads decisions that others stored or removed.
    pub(super) async fn look_at_decisions(&mut self) -> Result<(), FolderError> {
        let records = self.records.clone();
        match blocking(move || records.look()).await? {
            Ok(Loaded { mut events, by_file }) => {
                self.are_decisions_lost = false;
                for event in &events {
                    if let Some(object) = event.object() {
                        tracing::info!("the stored hold of {object} was changed by somebody else");
                    }
                }
                // Holds first, so that a rejected object has its last good version.
                events.extend(self.folder.remember(by_file));
                self.send(events).await
            }
            Err(error) => {
                if !std::mem::replace(&mut self.are_decisions_lost, true) {
                    tracing::error!(
                        "the stored decisions cannot be read; the last known ones stay in force: {error}"
                    );
                }
                Ok(())
            }
        }
    }

    /// Stores or deletes a hold, and reads that back.
    pub(super) async fn fulfil(&mut self, request: HoldRequest) -> Result<(), FolderError> {
        let object = match &request {
            HoldRequest::Write(hold) => hold.object.reference(),
            HoldRequest::Erase(object) => object.clone(),
        };
        // A later request replaces one that still waits.
        self.unfulfilled.remove(&object);
        let (records, file) = (self.records.clone(), self.folder.file_of(&object).cloned());
        let asked = request.clone();
        let done = tokio::task::spawn_blocking(move || records.fulfil(asked, file.as_ref())).await;
        match done.map_err(|_| FolderError::Closed)? {
            Ok(event) => {
                self.backoff.reset();
                self.failures.done(&object);
                if let Event::Held(hold) = &event {
                    let kept = self.records.are_kept() && hold.object.kind() != ObjectKind::Secret;
                    let how = if kept { "stored" } else { "in memory only" };
                    tracing::warn!("{object} is held at its last good version, {how}");
                }
                self.send(vec![event]).await
            }
            Err(error) => {
                let (is_write, reason) = (matches!(request, HoldRequest::Write(_)), error.to_string());
                if let Some(tries) = self.failures.failed(&object, &reason) {
                    let what = if is_write { "stored" } else { "removed" };
                    tracing::error!(
                        tries,
                        "the hold of {object} cannot be {what}, which is tried again: {reason}"
                    );
                }
                self.unfulfilled.insert(object.clone(), request);
                self.retry = Some(Instant::now() + self.backoff.next_delay());
                let unstored = Event::Unstored { object, reason: reason.into() };
                self.send(if is_write { vec![unstored] } else { Vec::new() }).await
            }
        }
    }

    /// Reads a pin that others stored or removed.
    pub(super) async fn look_at_pin(&mut self) -> Result<(), FolderError> {
        match self.pin(PinFile::look).await? {
            Ok(event) => {
                self.is_pin_lost = false;
                self.send(event.into_iter().collect()).await
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_pin_lost, true) {
                    tracing::error!("the pin cannot be read; the last known one stays in force: {error}");
                }
                Ok(())
            }
        }
    }

    /// Stores or deletes a pin, reads that back, and answers the request.
    pub(super) async fn decide(&mut self, request: PinRequest) -> Result<(), FolderError> {
        let PinRequest { change, reply } = request;
        let outcome = match self.pin(move |pin| pin.fulfil(&change)).await? {
            Ok((event, revision)) => {
                self.send(vec![event]).await?;
                Ok(revision)
            }
            Err(refused) => Err(refused),
        };
        // The requester may not be waiting any more.
        let _ = reply.send(outcome);
        Ok(())
    }

    /// Runs a pin operation on a blocking thread.
    async fn pin<T: Send + 'static>(
        &mut self,
        look: impl FnOnce(&mut PinFile) -> T + Send + 'static,
    ) -> Result<T, FolderError> {
        // It is only absent while this function runs.
        let mut pin = self.pin.take().ok_or(FolderError::Closed)?;
        let (pin, found) = blocking(move || {
            let found = look(&mut pin);
            (pin, found)
        })
        .await?;
        self.pin = Some(pin);
        Ok(found)
    }
}
