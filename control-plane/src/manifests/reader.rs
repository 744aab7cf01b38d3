//! The edge of the folder: waits for notices, looks, tells the index, and puts holds on record.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use shared::backoff::Backoff;
use shared::clock;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::FolderError;
use super::disk::{Disk, Found, Scan};
use super::document::Parsed;
use super::folder::{self, Content, Folder, Outcome};
use super::notice::{Notice, Pending, Touched};
use super::record::Records;
use crate::event::Inputs;
use crate::event::{Event, HoldRequest, Input};
use crate::freshness::Freshness;
use crate::objects::{ObjectKind, ObjectRef};
use crate::removal::SECOND_LOOK;

/// Kinds without which a folder counts as not there yet.
const ESSENTIAL: [ObjectKind; 3] = [ObjectKind::Ingress, ObjectKind::Service, ObjectKind::EndpointSlice];

/// Files that were not found, and when to look again.
type Absent = (BTreeSet<folder::Path>, Instant);

/// Who replaces a file without renaming (git, `cp`, some editors) removes or empties it first and writes it a moment
/// later. Only the clock can tell that from a file that goes: nothing says whether more will come.
const REPLACED: Duration = Duration::from_millis(20);

/// Carries files in and events out.
#[derive(Debug)]
pub(super) struct Reader {
    dir: PathBuf,
    /// Away while a thread that may block looks at files.
    disk: Option<Disk>,
    notice: Notice,
    records: Records,
    folder: Folder,
    freshness: Freshness,
    inputs: Inputs,
    /// Files that a scan of the whole folder did not find, and when to look again.
    absent: Option<Absent>,
    /// What was said to be ignored, once.
    ignored: BTreeSet<String>,
    /// Until when a folder that is empty at first is not believed.
    empty_until: Option<Instant>,
    /// Requests that the disk refused, and when to ask again.
    unfulfilled: BTreeMap<ObjectRef, HoldRequest>,
    retry: Option<Instant>,
    backoff: Backoff,
}

impl Reader {
    /// Over an open folder of which nothing was read yet.
    pub(super) fn new(
        dir: PathBuf,
        disk: Disk,
        notice: Notice,
        records: Records,
        folder: Folder,
        freshness: Freshness,
        inputs: Inputs,
    ) -> Self {
        Self {
            dir,
            disk: Some(disk),
            notice,
            records,
            folder,
            freshness,
            inputs,
            absent: None,
            ignored: BTreeSet::new(),
            empty_until: None,
            unfulfilled: BTreeMap::new(),
            retry: None,
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(10)),
        }
    }

    /// Reads everything for the first time.
    pub(super) async fn start(&mut self, on_record: Vec<Event>) -> Result<(), FolderError> {
        let scan = self
            .scan()
            .await?
            .map_err(|source| FolderError::Unreadable { path: self.dir.clone(), source })?;
        let Outcome { events, .. } = self.take_in(scan.found);
        // Holds first: an object that is rejected has its last good version at hand.
        self.send([on_record, events].concat()).await?;
        // A folder that is not mounted yet, or not filled yet, looks like one that has nothing, and proxies may have
        // more. It is filled as a whole, so it is doubted as a whole: one essential object and it is taken at its word.
        if self.folder.has_any(&ESSENTIAL) {
            return self.say_synced().await;
        }
        tracing::info!(
            "the folder {} has no Ingress, Service or EndpointSlice: it is read again in 5 s",
            self.dir.display()
        );
        self.empty_until = Some(Instant::now() + SECOND_LOOK);
        Ok(())
    }

    /// Looks, and does what is asked and due, for ever.
    pub(super) async fn follow(&mut self, mut holds: mpsc::Receiver<HoldRequest>) -> Result<(), FolderError> {
        let notice = self.notice.clone();
        let mut asked = true;
        loop {
            let due = [self.empty_until, self.absent.as_ref().map(|(_, at)| *at), self.retry];
            let due = due.into_iter().flatten().min();
            tokio::select! {
                () = notice.some() => self.look(notice.take()).await?,
                request = holds.recv(), if asked => match request {
                    Some(request) => self.fulfil(request).await?,
                    None => asked = false,
                },
                () = sleep_until(due) => self.due(Instant::now()).await?,
            }
        }
    }

    /// Does what is due by the clock.
    async fn due(&mut self, now: Instant) -> Result<(), FolderError> {
        if self.retry.is_some_and(|at| at <= now) {
            self.retry = None;
            for request in std::mem::take(&mut self.unfulfilled).into_values() {
                self.fulfil(request).await?;
            }
        }
        let empty = self.empty_until.is_some_and(|at| at <= now);
        if empty || self.absent.as_ref().is_some_and(|(_, at)| *at <= now) {
            let is_whole = self.rescan(now).await?;
            if empty && (is_whole || self.folder.has_any(&ESSENTIAL)) {
                self.say_synced().await?;
            } else if empty {
                // Nobody knows whether it is empty.
                self.empty_until = Some(now + SECOND_LOOK);
            }
        }
        Ok(())
    }

    /// Looks at what has been touched.
    async fn look(&mut self, pending: Pending) -> Result<(), FolderError> {
        if let Some(reason) = pending.lost {
            return self.lost(&reason).await;
        }
        let mut paths = pending.paths;
        let touched = paths.clone();
        let mut found = self.blocking(move |disk| disk.look(&touched)).await?;
        // A file that was renamed goes here and comes there, in two events, and one that is replaced is gone or empty for
        // a moment. What is known a little later counts as one change, so that its objects do not go in between.
        if found.values().any(is_void) {
            tokio::time::sleep(REPLACED).await;
            let more = self.notice.take();
            if let Some(reason) = more.lost {
                return self.lost(&reason).await;
            }
            paths.extend(more.paths);
            // All of it, for a folder may have come or gone over what was found before.
            paths.values_mut().for_each(|touched| *touched = Touched::Content);
            found = self.blocking(move |disk| disk.look(&paths)).await?;
        }
        let Outcome { events, .. } = self.take_in(found);
        self.send(events).await?;
        if self.empty_until.is_some() && self.folder.has_any(&ESSENTIAL) {
            self.say_synced().await?;
        }
        Ok(())
    }

    /// Some notices were not heard.
    async fn lost(&mut self, reason: &str) -> Result<(), FolderError> {
        tracing::warn!("the folder {} is read anew: {reason}", self.dir.display());
        self.rescan(Instant::now()).await.map(|_| ())
    }

    /// Reads the whole folder; true where that was possible for all of it. What is absent from it goes at once where it is little, and else when a second look, a
    /// little later, does not find it either.
    async fn rescan(&mut self, now: Instant) -> Result<bool, FolderError> {
        let doubted = self.absent.take().filter(|(_, at)| *at <= now);
        match self.scan().await? {
            Ok(scan) => self.compare(scan, doubted, now).await,
            Err(error) => {
                tracing::error!(
                    "the folder {} cannot be read, what it had stays: {error}",
                    self.dir.display()
                );
                self.absent = Some((BTreeSet::new(), now + SECOND_LOOK));
                Ok(false)
            }
        }
    }

    /// Takes in what a scan found and did not find; `doubted` are files that one a little earlier did not find.
    async fn compare(
        &mut self,
        mut scan: Scan,
        doubted: Option<Absent>,
        now: Instant,
    ) -> Result<bool, FolderError> {
        let present = scan.found.keys().cloned().collect();
        let mut absent = self.folder.absent(&present);
        absent.retain(|file| !scan.is_unread(file));
        let doubted_before =
            |path: &folder::Path| doubted.as_ref().is_some_and(|(paths, _)| paths.contains(path));
        let (mut gone, fresh): (Vec<_>, Vec<_>) = absent.into_iter().partition(doubted_before);
        if self.folder.is_doubtful(&fresh) {
            tracing::warn!(
                "{} files are gone from {} all at once, {} the first: a second look in 5 s decides",
                fresh.len(),
                self.dir.display(),
                fresh.first().map_or("", |path| path),
            );
            self.absent = Some((fresh.into_iter().collect(), now + SECOND_LOOK));
        } else {
            gone.extend(fresh);
        }
        if !gone.is_empty() {
            tracing::warn!(
                "{} files are gone from {}: their objects are removed",
                gone.len(),
                self.dir.display()
            );
        }
        let gone = gone.into_iter().map(|path| (path, Content::Gone));
        scan.found.extend(gone);
        let Outcome { events, .. } = self.take_in(scan.found);
        self.send(events).await?;
        Ok(scan.unread.is_empty())
    }

    fn take_in(&mut self, found: Found) -> Outcome {
        let outcome = self.folder.update(found);
        for warning in &outcome.warnings {
            tracing::warn!("{warning}");
        }
        for ignored in &outcome.ignored {
            if self.ignored.insert(ignored.clone()) {
                tracing::info!("objects of kind {ignored} are in the folder and are not read");
            }
        }
        for kind in ObjectKind::ALL {
            self.freshness.note_heard(kind);
        }
        outcome
    }

    async fn send(&mut self, events: Vec<Event>) -> Result<(), FolderError> {
        let (mut endpoints, mut objects) = (Vec::new(), Vec::new());
        for event in events {
            let slice = match &event {
                Event::Applied { object, .. } => object.kind() == ObjectKind::EndpointSlice,
                Event::Broken { object, .. } => {
                    self.freshness.note_broken(object.kind);
                    object.kind == ObjectKind::EndpointSlice
                }
                Event::Deleted(object) => object.kind == ObjectKind::EndpointSlice,
                Event::Held(_) | Event::Released(_) => false,
            };
            if slice { endpoints.push(event) } else { objects.push(event) }
        }
        for (sender, events) in [(&self.inputs.endpoints, endpoints), (&self.inputs.objects, objects)] {
            if !events.is_empty() {
                sender.send(Input::Events(events)).await.map_err(|_| FolderError::Closed)?;
            }
        }
        Ok(())
    }

    async fn say_synced(&mut self) -> Result<(), FolderError> {
        self.empty_until = None;
        for kind in ObjectKind::ALL {
            let to =
                if kind == ObjectKind::EndpointSlice { &self.inputs.endpoints } else { &self.inputs.objects };
            to.send(Input::Synced(kind)).await.map_err(|_| FolderError::Closed)?;
            self.freshness.note_synced(kind);
        }
        Ok(())
    }

    /// Puts a hold on record or takes it off, and reads that back.
    async fn fulfil(&mut self, request: HoldRequest) -> Result<(), FolderError> {
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
                if let Event::Held(hold) = &event {
                    let kept = self.records.are_kept() && hold.object.kind() != ObjectKind::Secret;
                    let how = if kept { "on record" } else { "in memory alone" };
                    tracing::warn!("{object} is held at its last good version, {how}");
                }
                self.send(vec![event]).await
            }
            Err(error) => {
                tracing::error!("the hold of {object} cannot be put on record, and is tried again: {error}");
                self.unfulfilled.insert(object, request);
                self.retry = Some(Instant::now() + self.backoff.next_delay());
                Ok(())
            }
        }
    }

    async fn scan(&mut self) -> Result<io::Result<Scan>, FolderError> {
        for kind in ObjectKind::ALL {
            self.freshness.note_relist(kind);
        }
        let began = clock::now();
        let scan = self.blocking(Disk::scan).await?;
        if let Ok(scan) = &scan {
            tracing::debug!(files = scan.found.len(), took = ?began.elapsed(), "the folder was read");
        }
        Ok(scan)
    }

    /// Lets a thread that may block look at the disk.
    async fn blocking<T: Send + 'static>(
        &mut self,
        look: impl FnOnce(&mut Disk) -> T + Send + 'static,
    ) -> Result<T, FolderError> {
        // It is away only while this function runs, and comes back unless the look panicked or the process ends.
        let mut disk = self.disk.take().ok_or(FolderError::Closed)?;
        let (disk, found) = tokio::task::spawn_blocking(move || {
            let found = look(&mut disk);
            (disk, found)
        })
        .await
        .map_err(|_| FolderError::Closed)?;
        self.disk = Some(disk);
        Ok(found)
    }
}

/// Whether it may be a file that is about to be replaced: it is gone, or has no documents.
fn is_void(content: &Content) -> bool {
    match content {
        Content::Gone => true,
        Content::Text(parsed) => *parsed == Parsed::default(),
        Content::Unreadable(_) => false,
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
