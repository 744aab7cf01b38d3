//! The async edge of the folder source: waits for notifications, scans, sends events to the index, and stores holds
//! (`decisions`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use shared::backoff::Backoff;
use shared::clock;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::backlog::{self, Backlog};
use super::disk::{Disk, Raw, Scan, ScannedFiles, Whole};
use super::folder::{self, Folder, Outcome};
use super::notice::Notice;
use super::pins::PinFile;
use super::record::Records;
use super::tree::Tree;
use super::{Companion, ESSENTIAL, FolderError};
use crate::barrier::Barrier;
use crate::event::Inputs;
use crate::event::{Event, HoldRequest, Input, PinRequest};
use crate::freshness::Freshness;
use crate::hold::Failures;
use crate::objects::{ObjectKind, ObjectRef};
use crate::removal::SECOND_LOOK;

mod decisions;
mod look;

/// Interval of comparing all stamps, with or without notifications.
pub(super) const PACE: Duration = Duration::from_secs(2);

/// The comparison takes at most one part in this many of the time.
const SHARE: u32 = 50;

/// Reads files and sends events.
#[derive(Debug)]
pub(super) struct Reader {
    dir: PathBuf,
    /// `None` while a blocking thread uses it.
    disk: Option<Disk>,
    notice: Notice,
    records: Records,
    /// Decisions could not be read the last time.
    are_decisions_lost: bool,
    folder: Folder,
    freshness: Freshness,
    inputs: Inputs,
    /// Files that a complete scan did not find, and from when on another scan confirms that.
    absent: BTreeMap<folder::Path, Instant>,
    backlog: Backlog,
    companion: Option<Companion>,
    pin: Option<PinFile>,
    /// The pin could not be read the last time.
    is_pin_lost: bool,
    /// Whether all of the folder could be read.
    is_whole: bool,
    /// When to compare stamps.
    poll: Option<Instant>,
    /// The walk for a comparison of stamps that has begun.
    walking: Option<JoinHandle<Walked>>,
    /// Ignored kinds that were logged.
    ignored: BTreeSet<String>,
    /// Until when a folder that is initially empty or partly unreadable is not trusted.
    empty_until: Option<Instant>,
    /// Requests that the disk failed, and when to retry.
    unfulfilled: BTreeMap<ObjectRef, HoldRequest>,
    /// What was said of them.
    failures: Failures,
    retry: Option<Instant>,
    backoff: Backoff,
    barrier: Barrier,
    /// A barrier round for which the folder is read again.
    round: Option<u64>,
    questions: Barrier,
    /// A round of questions for which changes are read.
    question: Option<u64>,
}

/// A walk that was made beside the disk, on a blocking thread: single files were looked at meanwhile.
#[derive(Debug)]
struct Walked {
    began: std::time::Instant,
    tree: io::Result<Tree>,
}

impl Reader {
    /// For an opened folder of which nothing was read yet.
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
            walking: None,
            ignored: BTreeSet::new(),
            empty_until: None,
            unfulfilled: BTreeMap::new(),
            failures: Failures::default(),
            retry: None,
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(10)),
            barrier: Barrier::default(),
            round: None,
            questions: Barrier::default(),
            question: None,
        }
    }

    /// Sets the companion, which receives the folder's events.
    pub(super) fn set_companion(&mut self, companion: Option<Companion>) {
        self.companion = companion;
    }

    /// Sets where the pin is stored.
    pub(super) fn set_pin(&mut self, pin: PinFile) {
        self.pin = Some(pin);
    }

    /// Sets the barriers: for the rounds of one the whole folder is read again, for those of the other what has changed.
    pub(super) fn set_barriers(&mut self, barrier: Barrier, questions: Barrier) {
        self.barrier = barrier;
        self.questions = questions;
    }

    /// Reads everything for the first time.
    pub(super) async fn start(&mut self, on_record: Vec<Event>) -> Result<(), FolderError> {
        let scan = self
            .scan()
            .await?
            .map_err(|reason| FolderError::Unreadable { path: self.dir.clone(), reason })?;
        let scan = self.settled_first(scan).await?;
        // Holds first, so that a rejected object has its last good version.
        self.send(on_record).await?;
        let parsed = blocking(move || backlog::parse(scan.found)).await?;
        self.tell(parsed).await?;
        self.note(scan.whole.unwrap_or_default()).await?;
        if self.companion.is_some() {
            let first = added(&mut self.companion).await;
            self.send(first).await?;
        }
        // A folder that is not mounted or filled yet looks empty, while proxies may still have objects. Folders are
        // filled as a whole, so one object of an essential kind is enough to trust it.
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

    /// Reads changes and executes requests, forever.
    pub(super) async fn follow(
        &mut self,
        mut holds: mpsc::Receiver<HoldRequest>,
        mut pins: mpsc::Receiver<PinRequest>,
        pace: Option<Duration>,
    ) -> Result<(), FolderError> {
        let (notice, barrier, questions) =
            (self.notice.clone(), self.barrier.clone(), self.questions.clone());
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
                round = questions.begin() => self.catch_up(round).await?,
                walked = walked(&mut self.walking) => self.compare_stamps(walked?, pace).await?,
                () = clock::sleep_until(due) => self.due(Instant::now()).await?,
            }
            self.end_rounds().await?;
        }
    }

    /// Does what is due.
    async fn due(&mut self, now: Instant) -> Result<(), FolderError> {
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
                // Its contents are unknown.
                self.empty_until = Some(now + SECOND_LOOK);
            }
        }
        if self.poll.take_if(|at| *at <= now).is_some() {
            self.walk()?;
        }
        Ok(())
    }

    /// Begins a comparison of stamps.
    fn walk(&mut self) -> Result<(), FolderError> {
        let (walk, began) = (self.disk.as_mut().ok_or(FolderError::Closed)?.begin_poll(), clock::now());
        self.walking = Some(tokio::task::spawn_blocking(move || Walked { began, tree: walk() }));
        Ok(())
    }

    /// Finds changes without a notification, decisions first, so that a rejected object has its last good version.
    async fn compare_stamps(&mut self, walked: Walked, pace: Option<Duration>) -> Result<(), FolderError> {
        let Walked { began, tree } = walked;
        self.look_at_decisions().await?;
        self.look_at_pin().await?;
        let scan = match tree {
            Ok(tree) => self.disk(|disk| disk.end_poll(tree)).await?,
            Err(error) => Err(error),
        };
        match scan {
            Ok(scan) => {
                let scan = self.settled(scan).await?;
                self.compare(scan, Instant::now()).await?;
            }
            Err(error) => self.lost_sight(&error).await?,
        }
        self.poll = pace.map(|pace| Instant::now() + pace.max(SHARE * began.elapsed()));
        self.believe().await
    }

    /// Completes the first reading once the folder is trusted.
    async fn believe(&mut self) -> Result<(), FolderError> {
        if self.empty_until.is_some() && self.is_whole && self.folder.has_any(&ESSENTIAL) {
            self.say_synced().await?;
        }
        Ok(())
    }

    /// Notifications were lost.
    async fn lost(&mut self, reason: &str) -> Result<(), FolderError> {
        tracing::warn!("the folder {} is read anew: {reason}", self.dir.display());
        self.rescan(Instant::now()).await
    }

    /// Reads all changes of the folder.
    async fn rescan(&mut self, now: Instant) -> Result<(), FolderError> {
        match self.scan().await? {
            Ok(scan) => {
                let scan = self.settled(scan).await?;
                self.compare(scan, now).await
            }
            Err(error) => {
                self.lost_sight(&error).await?;
                // Absent files stay unconfirmed until another scan.
                self.absent.values_mut().for_each(|at| *at = now + SECOND_LOOK);
                Ok(())
            }
        }
    }

    /// Reads all changes, decisions first.
    async fn refresh(&mut self, round: u64) -> Result<(), FolderError> {
        self.round = Some(round);
        self.look_at_decisions().await?;
        self.look_at_pin().await?;
        self.rescan(Instant::now()).await
    }

    /// Reads what has changed until now.
    async fn catch_up(&mut self, round: u64) -> Result<(), FolderError> {
        self.question = Some(round);
        if !self.disk(Disk::sync).await? {
            return self.rescan(Instant::now()).await;
        }
        let pending = self.notice.take();
        if pending.is_empty() { Ok(()) } else { self.look(pending).await }
    }

    /// Ends the rounds of the barrier, once everything was read, reported and trusted, and of questions: what cannot be
    /// read is among the answers.
    async fn end_rounds(&mut self) -> Result<(), FolderError> {
        let is_told = self.backlog.is_idle() && self.absent.is_empty();
        let is_decided = !self.are_decisions_lost && !self.is_pin_lost;
        if let Some(round) = self.round.take_if(|_| is_told && self.is_whole && is_decided) {
            self.inputs.fresh(round, true).await.map_err(|_| FolderError::Closed)?;
        }
        if let Some(round) = self.question.take_if(|_| is_told) {
            self.inputs.caught_up(round).await.map_err(|_| FolderError::Closed)?;
        }
        Ok(())
    }

    /// The folder itself cannot be read. Logged once, and reported as a problem until it can.
    async fn lost_sight(&mut self, error: &io::Error) -> Result<(), FolderError> {
        let dir = self.dir.display().to_string();
        if std::mem::replace(&mut self.is_whole, false) {
            tracing::error!("the folder {dir} cannot be read, what it had stays: {error}");
        }
        let events = self.folder.skip(BTreeMap::from([(dir.into(), unread(&error.to_string()))]));
        self.send(events).await
    }

    /// Applies the results of a scan and, if it was complete, handles absent files: few are removed at once, many only
    /// when another scan, a little later, does not find them either.
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

    /// Reports files that are not read.
    async fn note(&mut self, whole: Whole) -> Result<(), FolderError> {
        self.is_whole = whole.unread.is_empty();
        let events = self.folder.skip(whole.not_read(unread));
        self.send(events).await
    }

    async fn take_in(&mut self, found: ScannedFiles) -> Result<(), FolderError> {
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
        // Pending answers are taken first, so that the companion can always send, and the two never wait for each
        // other.
        let mut answers = Vec::new();
        if let Some(companion) = &mut self.companion {
            companion.ignored.send_if_modified(|told| {
                let is_news = *told != self.ignored;
                told.clone_from(&self.ignored);
                is_news
            });
            while let Ok(added) = companion.added.try_recv() {
                answers.extend(added);
            }
            // It has only ended if the process is ending.
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
                | Event::Late(object)
                | Event::Dropped(object)
                | Event::Unreadable { object, .. } => object.kind == ObjectKind::EndpointSlice,
                Event::Held(_)
                | Event::Released(_)
                | Event::Unstored { .. }
                | Event::HoldsListed
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

    /// Runs a disk operation on a blocking thread.
    async fn disk<T: Send + 'static>(
        &mut self,
        look: impl FnOnce(&mut Disk) -> T + Send + 'static,
    ) -> Result<T, FolderError> {
        // It is only absent while this function runs, and returns unless the operation panicked or the process ends.
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

/// The message about a folder that cannot be read.
fn unread(error: &str) -> String {
    format!("the folder cannot be read, what it had stays: {error}")
}

/// The next objects of the companion. Pending if there is none, or it has ended.
async fn added(companion: &mut Option<Companion>) -> Vec<Event> {
    match companion {
        Some(companion) => match companion.added.recv().await {
            Some(events) => events,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

/// The result of the walk. Pending if there is none.
async fn walked(walking: &mut Option<JoinHandle<Walked>>) -> Result<Walked, FolderError> {
    match walking {
        Some(walk) => {
            let walked = walk.await.map_err(|_| FolderError::Closed);
            *walking = None;
            walked
        }
        None => std::future::pending().await,
    }
}

/// Runs a closure on a blocking thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, FolderError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| FolderError::Closed)
}

#[cfg(test)]
mod tests;
