//! Creates and rotates the session ticket keys while the fleet uses tickets. Every replica tries to; compare-and-swap
//! lets one win, and all read what it wrote.
//!
//! In a cluster the keys are in a Secret, which is read like any referenced Secret. With a folder they are in memory,
//! and in a file for the next start.
//!
//! **Invariant:** a record that cannot be read is left alone; one that was read and is invalid is created again. That
//! interrupts nobody: a client with an old ticket makes a full handshake.

pub mod record;

use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use shared::clock;
use shared::name::ObjectName;
use shared::private;
use shared::telemetry::Seldom;
use shared::tls::random;
use tokio::sync::watch;
use tracing::{info, warn};
use zeroize::Zeroizing;

use crate::event::{Event, Input, Inputs, Wants};
use crate::kube::record::{Record as SecretRecord, StoredRecord};
use crate::objects::{Metadata, Object, ObjectKind, ObjectRef, Secret};
use record::{RECORD, Record};

/// Interval at which the record is checked.
const LOOK: Duration = Duration::from_secs(60);
/// Interval of retries while that fails.
const AGAIN: Duration = Duration::from_secs(5);
/// Minimum interval of warnings.
const WARNINGS: Duration = Duration::from_secs(60);
/// Attempts that may lose to other writers before the next check.
const TRIES: usize = 4;
/// Name of the file.
const FILE: &str = "ticket-keys.json";

/// The record as this process saw it last.
///
/// A record's time is that of its writer's clock. If it is compared with the clock here, two replicas of which one has a
/// wrong clock rotate in turn, at every look, and no ticket lasts for two minutes. So that time counts for the record
/// that is found at the start, and this process' monotonic clock for those that come after it.
#[derive(Debug, Default)]
struct Seen(Option<There>);

#[derive(Debug)]
struct There {
    record: Record,
    since: Instant,
    /// It came while this process looked.
    is_new: bool,
}

impl Seen {
    /// How old the record is that is there now.
    fn age(&mut self, record: &Record, now: SystemTime, steady: Instant) -> Duration {
        let There { since, is_new, .. } = match &mut self.0 {
            Some(there) if there.record == *record => there,
            before => {
                let is_new = before.is_some();
                before.insert(There { record: record.clone(), since: steady, is_new })
            }
        };
        let stated = record.age(now).filter(|_| !*is_new);
        stated.unwrap_or_else(|| steady.saturating_duration_since(*since))
    }
}

/// Where the record is stored.
#[derive(Debug)]
pub enum Vault {
    /// In a cluster.
    Cluster(SecretRecord),
    /// In this process.
    Process {
        /// Name of the Secret that is reported to the index.
        name: ObjectName,
        /// A private folder for the next start, if there is one.
        folder: Option<PathBuf>,
        /// Receives the Secret.
        inputs: Inputs,
        /// The record that was reported last.
        sent: Option<Record>,
        /// That record is not written to the folder yet.
        is_unwritten: bool,
        /// The file could not be read: it is left alone until it can be.
        is_unread: bool,
    },
}

impl Vault {
    /// In this process, with a folder for the next start.
    pub fn process(name: ObjectName, folder: Option<PathBuf>, inputs: Inputs) -> Self {
        Self::Process { name, folder, inputs, sent: None, is_unwritten: false, is_unread: false }
    }

    fn object(&self) -> ObjectRef {
        let name = match self {
            Self::Cluster(place) => place.name().clone(),
            Self::Process { name, .. } => name.clone(),
        };
        ObjectRef { kind: ObjectKind::Secret, name }
    }

    /// Reads the record, and writes what is due.
    async fn look(&mut self, now: SystemTime, seen: &mut Seen, steady: Instant) -> Result<(), String> {
        let mut age = |there: &Record| seen.age(there, now, steady);
        match self {
            Self::Cluster(place) => in_cluster(place, now, age).await,
            Self::Process { name, folder, inputs, sent, is_unwritten, is_unread } => {
                let file = folder.as_ref().map(|folder| folder.join(FILE));
                let mut unread = None;
                let there = match &file {
                    Some(file) if sent.is_none() || *is_unread => read(file).unwrap_or_else(|error| {
                        unread = Some(format!("{error}: the keys in use are known to this process only"));
                        None
                    }),
                    _ => None,
                };
                *is_unread = unread.is_some();
                let there = there.or_else(|| sent.clone());
                let due = match &there {
                    Some(there) => there.due(now, age(there), random),
                    None => Some(Record::create(now, random)),
                };
                *is_unwritten |= due.is_some();
                let Some(newest) = due.or(there) else { return Ok(()) };
                if sent.as_ref() != Some(&newest) {
                    let event = Event::Applied { object: secret(name, &newest), location: "".into() };
                    // A closed channel means that the process is ending.
                    let _ = inputs.objects.send(Input::Events(vec![event])).await;
                }
                let newest = sent.insert(newest);
                // Reported after the keys, since the start waits for those.
                if let Some(error) = unread {
                    return Err(error);
                }
                // Written after the keys were reported: the start waits for them, and must not wait for a full disk.
                if let Some(file) = file.filter(|_| *is_unwritten) {
                    private::replace(&file, newest.to_text().as_bytes())
                        .map_err(|error| format!("{}: {error}", file.display()))?;
                }
                *is_unwritten = false;
                Ok(())
            }
        }
    }
}

/// Maintains the record forever, while the index wants it.
///
/// # Errors
/// Never: failures are retried.
pub async fn run(mut vault: Vault, mut wants: watch::Receiver<Wants>) -> Result<(), Infallible> {
    let object = vault.object();
    let (mut warning, mut seen) = (Seldom::new(WARNINGS), Seen::default());
    loop {
        if wants.wait_for(|wants| wants.contains(&object)).await.is_err() {
            // The pipeline has ended, and the process with it.
            return std::future::pending().await;
        }
        let pause = match vault.look(clock::wall(), &mut seen, clock::now()).await {
            Ok(()) => LOOK,
            Err(error) => {
                if let Some(before) = warning.now(clock::now()) {
                    warn!(before, "the session ticket keys cannot be checked: {error}");
                }
                AGAIN
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn in_cluster(
    place: &SecretRecord,
    now: SystemTime,
    mut age: impl FnMut(&Record) -> Duration,
) -> Result<(), String> {
    for _ in 0..TRIES {
        let (next, over) = match place.load().await? {
            StoredRecord::Nothing => (Record::create(now, random), None),
            StoredRecord::Emptied(revision) => (Record::create(now, random), Some(revision)),
            StoredRecord::Record(text, revision) => match Record::parse(&text) {
                Ok(there) => match there.due(now, age(&there), random) {
                    Some(next) => (next, Some(revision)),
                    None => return Ok(()),
                },
                Err(error) => {
                    warn!("the record of the session ticket keys is invalid and is created again: {error}");
                    (Record::create(now, random), Some(revision))
                }
            },
        };
        if place.store(&next.to_text(), over.as_deref()).await? {
            info!(secret = %place.name(), "new keys of session tickets are stored");
            return Ok(());
        }
    }
    Err("other replicas keep changing the record".to_owned())
}

/// Reads a file; `None`: it does not exist, or is not a record.
fn read(file: &Path) -> Result<Option<Record>, String> {
    match fs::read(file) {
        Ok(text) => match Record::parse(&Zeroizing::new(text)) {
            Ok(record) => Ok(Some(record)),
            Err(error) => {
                warn!(file = %file.display(), "the session ticket keys cannot be read and are created again: {error}");
                Ok(None)
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", file.display())),
    }
}

fn secret(name: &ObjectName, record: &Record) -> Object {
    let metadata = Metadata {
        namespace: Arc::clone(&name.namespace),
        name: Arc::clone(&name.name),
        ..Metadata::default()
    };
    let text = STANDARD.encode(&*record.to_text());
    Object::Secret(Arc::new(Secret { metadata, data: [(RECORD.to_owned(), text)].into() }))
}

#[cfg(test)]
mod tests;
