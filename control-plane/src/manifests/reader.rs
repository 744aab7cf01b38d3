//! The edge of the folder: waits for notices, looks, tells the index, and puts holds on record (`decisions`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use shared::backoff::Backoff;
use shared::clock;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::backlog::{self, Backlog};
use super::disk::{Disk, Found, Raw, Scan, Whole};
use super::folder::{self, Folder, Outcome};
use super::notice::Notice;
use super::pins::PinFile;
use super::record::Records;
use super::{Companion, ESSENTIAL, FolderError};
use crate::barrier::Barrier;
use crate::event::Inputs;
use crate::event::{Event, HoldRequest, Input, PinRequest};
use crate::freshness::Freshness;
use crate::objects::{ObjectKind, ObjectRef};
use crate::removal::SECOND_LOOK;

mod decisions;
mod look;

/// How often all stamps are compared, told of changes or not. A folder of 10,000 files takes some 20 ms.
pub(super) const PACE: Duration = Duration::from_secs(2);

/// The comparison takes at most one part in so many of the time.
const SHARE: u32 = 50;

/// Carries files in and events out.
#[derive(Debug)]
pub(super) struct Reader {
    dir: PathBuf,
    /// Away while a thread that may block looks at files.
    disk: Option<Disk>,
    notice: Notice,
    records: Records,
    /// They could not be read at the last look.
    are_decisions_lost: bool,
    folder: Folder,
    freshness: Freshness,
    inputs: Inputs,
    /// Files that a look at the whole folder did not find, and from when on another such look is believed.
    absent: BTreeMap<folder::Path, Instant>,
    backlog: Backlog,
    companion: Option<Companion>,
    pin: Option<PinFile>,
    /// It could not be read at the last look.
    is_pin_lost: bool,
    /// Whether all of the folder could be read.
    is_whole: bool,
    /// When to compare stamps.
    poll: Option<Instant>,
    /// What was said to be ignored, once.
    ignored: BTreeSet<String>,
    /// Until when a folder that is empty at first, or cannot be read as a whole, is not believed.
    empty_until: Option<Instant>,
    /// Requests that the disk refused, and when to ask again.
    unfulfilled: BTreeMap<ObjectRef, HoldRequest>,
    retry: Option<Instant>,
    backoff: Backoff,
    barrier: Barrier,
    /// A round for which the folder is read anew.
    round: Option<u64>,
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
            are_decisions_lost: false,
            folder,
            freshness,
            inputs,
            absent: BTreeMap::new(),
            backlog: Backlog::default(),
            companion: None,
            pin: None,
            is_pin_lost: false,
            is_whole: false,
            poll: None,
            ignored: BTreeSet::new(),
            empty_until: None,
            unfulfilled: BTreeMap::new(),
            retry: None,
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(10)),
            barrier: Barrier::default(),
            round: None,
        }
    }

    /// Who hears what the folder says from now on.
    pub(super) fn set_companion(&mut self, companion: Option<Companion>) {
        self.companion = companion;
    }

    /// Where the pin is on record.
    pub(super) fn set_pin(&mut self, pin: PinFile) {
        self.pin = Some(pin);
    }

    /// For whose rounds all is read anew.
    pub(super) fn set_barrier(&mut self, barrier: Barrier) {
        self.barrier = barrier;
    }

    /// Reads everything for the first time.
    pub(super) async fn start(&mut self, on_record: Vec<Event>) -> Result<(), FolderError> {
        let scan = self
            .scan()
            .await?
            .map_err(|reason| FolderError::Unreadable { path: self.dir.clone(), reason })?;
        let scan = self.settled(scan).await?;
        // Holds first: an object that is rejected has its last good version at hand.
        self.send(on_record).await?;
        let parsed = blocking(move || backlog::parse(scan.found)).await?;
        self.tell(parsed).await?;
        self.note(scan.whole.unwrap_or_default()).await?;
        if self.companion.is_some() {
            let first = added(&mut self.companion).await;
            self.send(first).await?;
        }
        // A folder that is not mounted yet, or not filled yet, looks like one that has nothing, and proxies may have
        // more. It is filled as a whole, so it is doubted as a whole: one essential object and it is taken at its word.
        if self.is_whole && self.folder.has_any(&ESSENTIAL) {
            return self.say_synced().await;
        }
        if self.is_whole {
            tracing::info!(
                "the folder {} has no Ingress, Service or EndpointSlice: it is read again in 5 s",
                self.dir.display()
            );
        } else {
            tracing::error!(
                "a part of the folder {} cannot be read, and nothing is served until it can: trying again in 5 s",
                self.dir.display()
            );
        }
        self.empty_until = Some(Instant::now() + SECOND_LOOK);
        Ok(())
    }

    /// Looks, and does what is asked and due, for ever.
    pub(super) async fn follow(
        &mut self,
        mut holds: mpsc::Receiver<HoldRequest>,
        mut pins: mpsc::Receiver<PinRequest>,
        pace: Option<Duration>,
    ) -> Result<(), FolderError> {
        let (notice, barrier) = (self.notice.clone(), self.barrier.clone());
        let mut asked = true;
        self.poll = pace.map(|pace| Instant::now() + pace);
        loop {
            let due = [self.empty_until, self.absent.values().min().copied(), self.retry, self.poll];
            let due = due.into_iter().flatten().min();
            tokio::select! {
                () = notice.some() => self.look(notice.take()).await?,
                parsed = self.backlog.next() => self.tell(parsed).await?,
                added = added(&mut self.companion) => self.send(added).await?,
                request = holds.recv(), if asked => match request {
                    Some(request) => self.fulfil(request).await?,
                    None => asked = false,
                },
                Some(request) = pins.recv() => self.decide(request).await?,
                round = barrier.begin() => self.refresh(round).await?,
                () = sleep_until(due) => self.due(Instant::now(), pace).await?,
            }
            self.end_round().await?;
        }
    }

    /// Does what is due by the clock.
    async fn due(&mut self, now: Instant, pace: Option<Duration>) -> Result<(), FolderError> {
        if self.retry.is_some_and(|at| at <= now) {
            self.retry = None;
            for request in std::mem::take(&mut self.unfulfilled).into_values() {
                self.fulfil(request).await?;
            }
        }
        let empty = self.empty_until.is_some_and(|at| at <= now);
        if empty || self.absent.values().any(|at| *at <= now) {
            self.rescan(now).await?;
            if empty && self.is_whole {
                self.say_synced().await?;
            } else if empty {
                // Nobody knows what it has.
                self.empty_until = Some(now + SECOND_LOOK);
            }
        }
        if self.poll.is_some_and(|at| at <= now) {
            let began = clock::now();
            self.compare_stamps(now).await?;
            self.poll = pace.map(|pace| Instant::now() + pace.max(SHARE * began.elapsed()));
        }
        Ok(())
    }

    /// Finds what changed and nobody told of, decisions first: an object that is rejected has its last good version at
    /// hand.
    async fn compare_stamps(&mut self, now: Instant) -> Result<(), FolderError> {
        self.look_at_decisions().await?;
        self.look_at_pin().await?;
        match self.disk(Disk::poll).await? {
            Ok(scan) => {
                let scan = self.settled(scan).await?;
                self.compare(scan, now).await?;
            }
            Err(error) => self.lost_sight(&error).await?,
        }
        self.believe().await
    }

    /// Ends the doubt about a folder that has something.
    async fn believe(&mut self) -> Result<(), FolderError> {
        if self.empty_until.is_some() && self.is_whole && self.folder.has_any(&ESSENTIAL) {
            self.say_synced().await?;
        }
        Ok(())
    }

    /// Some notices were not heard.
    async fn lost(&mut self, reason: &str) -> Result<(), FolderError> {
        tracing::warn!("the folder {} is read anew: {reason}", self.dir.display());
        self.rescan(Instant::now()).await
    }

    /// Reads all of the folder that differs.
    async fn rescan(&mut self, now: Instant) -> Result<(), FolderError> {
        match self.scan().await? {
            Ok(scan) => {
                let scan = self.settled(scan).await?;
                self.compare(scan, now).await
            }
            Err(error) => {
                self.lost_sight(&error).await?;
                // Whoever doubts goes on doubting, and looks again.
                self.absent.values_mut().for_each(|at| *at = now + SECOND_LOOK);
                Ok(())
            }
        }
    }

    /// Reads all that differs, decisions first.
    async fn refresh(&mut self, round: u64) -> Result<(), FolderError> {
        self.round = Some(round);
        self.look_at_decisions().await?;
        self.look_at_pin().await?;
        self.rescan(Instant::now()).await
    }

    /// Says that a round is over, once all that there is was read, told and believed.
    async fn end_round(&mut self) -> Result<(), FolderError> {
        let is_told = self.is_whole && self.backlog.is_idle() && self.absent.is_empty();
        let is_decided = !self.are_decisions_lost && !self.is_pin_lost;
        if let Some(round) = self.round.filter(|_| is_told && is_decided) {
            self.round = None;
            self.inputs.fresh(round).await.map_err(|_| FolderError::Closed)?;
        }
        Ok(())
    }

    /// The folder itself cannot be read. Said in the log once, and among the problems until it can.
    async fn lost_sight(&mut self, error: &io::Error) -> Result<(), FolderError> {
        let dir = self.dir.display().to_string();
        if std::mem::replace(&mut self.is_whole, false) {
            tracing::error!("the folder {dir} cannot be read, what it had stays: {error}");
        }
        let events = self.folder.skip(BTreeMap::from([(dir.into(), unread(error))]));
        self.send(events).await
    }

    /// Takes in what a look found and, where it was at the whole folder, did not find. What is absent goes at once where
    /// it is little, and else when another look, a little later, does not find it either.
    async fn compare(&mut self, scan: Scan, now: Instant) -> Result<(), FolderError> {
        let Scan { mut found, whole } = scan;
        let Some(whole) = whole else {
            return self.take_in(found).await;
        };
        let mut absent = self.folder.absent(&whole.present);
        absent.retain(|file| !whole.is_unread(file) && !found.contains_key(file));
        let doubted = std::mem::take(&mut self.absent);
        let (mut gone, left): (Vec<_>, Vec<_>) =
            absent.into_iter().partition(|file| doubted.get(file).is_some_and(|at| *at <= now));
        if self.folder.is_doubtful(&left) {
            let is_news = left.iter().any(|file| !doubted.contains_key(file));
            if is_news {
                tracing::warn!(
                    "{} files are gone from {} all at once, {} the first: a second look in 5 s decides",
                    left.len(),
                    self.dir.display(),
                    left.first().map_or("", |path| path),
                );
            }
            let until = |file: &folder::Path| doubted.get(file).copied().unwrap_or(now + SECOND_LOOK);
            self.absent = left.into_iter().map(|file| (folder::Path::clone(&file), until(&file))).collect();
        } else {
            gone.extend(left);
        }
        if !gone.is_empty() {
            tracing::warn!(
                "{} files are gone from {}: their objects are removed",
                gone.len(),
                self.dir.display()
            );
        }
        found.extend(gone.into_iter().map(|path| (path, Raw::Gone)));
        self.take_in(found).await?;
        self.note(whole).await
    }

    /// Notes what of the folder is not read.
    async fn note(&mut self, whole: Whole) -> Result<(), FolderError> {
        let Whole { present: _, unread: folders, mut skipped } = whole;
        self.is_whole = folders.is_empty();
        skipped.extend(folders.into_iter().map(|(folder, error)| (folder, unread(&error))));
        let events = self.folder.skip(skipped);
        self.send(events).await
    }

    async fn take_in(&mut self, found: Found) -> Result<(), FolderError> {
        let Some(small) = self.backlog.take(found) else {
            return Ok(());
        };
        let parsed = blocking(move || backlog::parse(small)).await?;
        self.tell(parsed).await
    }

    async fn tell(&mut self, parsed: backlog::Parsed) -> Result<(), FolderError> {
        let Outcome { events, ignored } = self.folder.update(parsed);
        for ignored in ignored {
            if self.ignored.insert(ignored.clone()) {
                tracing::info!("objects of kind {ignored} are in the folder and are not read");
            }
        }
        for kind in ObjectKind::ALL {
            self.freshness.note_heard(kind);
        }
        // What was answered is taken first: so it always has room for an answer, and never waits for who waits for it.
        let mut answers = Vec::new();
        if let Some(companion) = &mut self.companion {
            while let Ok(added) = companion.added.try_recv() {
                answers.extend(added);
            }
            // It is gone only where the process is ending.
            let _ = companion.heard.send(events.clone()).await;
        }
        self.send(answers).await?;
        self.send(events).await?;
        self.believe().await
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
                Event::Deleted(object)
                | Event::Moved { object, .. }
                | Event::Dropped(object)
                | Event::Unreadable { object, .. } => object.kind == ObjectKind::EndpointSlice,
                Event::Held(_)
                | Event::Released(_)
                | Event::Noted { .. }
                | Event::Pinned(_)
                | Event::Unpinned
                | Event::PinUnreadable { .. } => false,
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

    async fn scan(&mut self) -> Result<io::Result<Scan>, FolderError> {
        for kind in ObjectKind::ALL {
            self.freshness.note_relist(kind);
        }
        let began = clock::now();
        let scan = self.disk(Disk::scan).await?;
        if let Ok(scan) = &scan {
            tracing::debug!(files = scan.found.len(), took = ?began.elapsed(), "the folder was read");
        }
        Ok(scan)
    }

    /// Lets a thread that may block look at the disk.
    async fn disk<T: Send + 'static>(
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

/// What is said of a folder that cannot be read, for this reason.
fn unread(error: &dyn Display) -> String {
    format!("the folder cannot be read, what it had stays: {error}")
}

/// What the companion adds next. Pending where there is none, and where it is gone.
async fn added(companion: &mut Option<Companion>) -> Vec<Event> {
    match companion {
        Some(companion) => match companion.added.recv().await {
            Some(events) => events,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

/// Lets a thread that may block do something.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, FolderError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| FolderError::Closed)
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
