//! Keeps the authority up to date in this process: re-reads its record, writes the changes that are due, renews the
//! certificate of the control plane itself, and hands all of it to the TLS handshakes.
//!
//! **Invariant:** a new authority would cut off everybody with a valid certificate. So an unreadable record changes
//! nothing, and a missing one is written again by every replica that has it. A replica without an authority creates one
//! only if no roots were ever published, or if no replica writes the missing record again; a replica that finds another
//! authority in place of its own keeps both. The certificate of this process is renewed in any case.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustls::{ClientConfig, ServerConfig};
use shared::clock;
use shared::identity::{self, Identity, IdentityError, Role};
use shared::telemetry::Seldom;
use shared::tls::{self, TlsError, Trust};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use super::Rotation;
use super::vault::{Revision, Vault, VaultError};
use crate::authority::{Authority, IssueError, Names, RecordError, SLACK};

/// Interval at which the record is read; shorter if certificates are short-lived.
const READ: Duration = Duration::from_secs(5);
/// How long replicas that have the record may take to write it again, if roots are published and the record is missing.
/// More than two intervals of an earlier release, which read it every 30 s.
const PATIENCE: Duration = Duration::from_secs(75);
/// Minimum interval of warnings.
const WARNINGS: Duration = Duration::from_secs(30);
/// Attempts that may lose to other writers before the next interval.
const TRIES: usize = 4;

/// The TLS configurations for handshakes.
#[derive(Debug)]
pub struct Current {
    /// The roots.
    pub authority: Arc<Authority>,
    /// For clients with a certificate.
    pub calls: Arc<ServerConfig>,
    /// For clients without one.
    pub enrolment: Arc<ServerConfig>,
    /// For connections to other replicas.
    pub as_peer: Arc<ClientConfig>,
    /// For API servers, which use HTTP and show no certificate.
    pub https: Arc<ServerConfig>,
    /// When the certificate of this process was issued.
    pub made: SystemTime,
    /// When it expires.
    pub until: SystemTime,
}

impl Current {
    /// Whether the certificate is valid now: if the clock was set back, it may not be valid yet.
    pub fn is_good(&self, now: SystemTime) -> bool {
        self.made <= now + SLACK && now < self.until
    }
}

/// The current TLS configurations, or why there are none yet.
pub type Standing = Result<Arc<Current>, Arc<str>>;

/// Why the authority cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeepError {
    /// The record cannot be read or written.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// The record is invalid.
    #[error("the record of the authority cannot be used: {0}")]
    Record(#[from] RecordError),
    /// Keys or signatures failed.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// The TLS configuration failed.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The group or the host is not valid in a certificate.
    #[error(transparent)]
    Name(#[from] IdentityError),
    /// The record of published roots is missing.
    #[error(
        "the record of the authority is missing, but its roots are published: another control plane may write it again. If \
         none does, a new authority, which nobody trusts yet, is created {} s after it was found missing",
        PATIENCE.as_secs()
    )]
    Lost,
    /// Other writers keep changing the record.
    #[error("other replicas keep changing the record of the authority")]
    Contended,
}

/// The time on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Wall-clock time: for the validity of roots and certificates.
    pub wall: SystemTime,
    /// Monotonic time: for waiting.
    pub steady: Instant,
}

impl Moment {
    /// Now.
    pub fn now() -> Self {
        Self { wall: clock::wall(), steady: clock::now() }
    }
}

/// The authority of one process.
#[derive(Debug)]
pub struct Keeper {
    vault: Vault,
    identity: Identity,
    names: Names,
    life: Duration,
    authority: Option<(Authority, Option<Revision>)>,
    /// When the record was last read or written.
    read: Option<SystemTime>,
    /// Since when this process has no authority although roots are published. On the monotonic clock: the wall clock of
    /// a machine that has just started may be set while the process waits.
    lost: Option<Instant>,
    /// When the certificate of this process must be renewed, and the root that signed it.
    renew: Option<(SystemTime, bytes::Bytes)>,
    current: watch::Sender<Standing>,
    /// Warnings about this clock, or that of the newest root's creator.
    doubts: Seldom,
    /// Warnings about another authority in the record.
    strangers: Seldom,
}

impl Keeper {
    /// For a control plane of `group`, which is reached at `addresses` besides loopback.
    ///
    /// # Errors
    /// If the group is not valid in a certificate.
    pub fn new(vault: Vault, group: &str, life: Duration, addresses: &[IpAddr]) -> Result<Self, KeepError> {
        let host = std::env::var("POD_NAME").ok().map(|name| identity::fit(&name));
        let name = host.filter(|name| !name.is_empty()).unwrap_or_else(|| "control-plane".to_owned());
        let loopback = [IpAddr::from([127, 0, 0, 1]), IpAddr::from(std::net::Ipv6Addr::LOCALHOST)];
        let mut addresses: Vec<IpAddr> = addresses.iter().copied().chain(loopback).collect();
        addresses.retain(|address| !address.is_unspecified());
        addresses.sort_unstable();
        addresses.dedup();
        Ok(Self {
            vault,
            identity: Identity::new(group, Role::ControlPlane, &name)?,
            names: Names { hosts: vec!["localhost".to_owned()], addresses },
            life,
            authority: None,
            read: None,
            lost: None,
            renew: None,
            current: watch::Sender::new(Err("it was not read yet".into())),
            doubts: Seldom::new(WARNINGS),
            strangers: Seldom::new(WARNINGS),
        })
    }

    /// Adds a host name to the certificate.
    #[must_use]
    pub fn with_host(mut self, host: String) -> Self {
        self.names.hosts.push(host);
        self
    }

    /// The current TLS configurations; an error before the record was read.
    pub fn current(&self) -> watch::Receiver<Standing> {
        self.current.subscribe()
    }

    /// Where the record is stored.
    pub fn vault(&self) -> &Vault {
        &self.vault
    }

    /// Maintains the authority forever, and rotates it on request.
    ///
    /// # Errors
    /// Never: failures are retried.
    pub async fn run(mut self, mut rotations: mpsc::Receiver<Rotation>) -> Result<(), KeepError> {
        let mut warning = Seldom::new(WARNINGS);
        let mut asked = true;
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.pause()) => {
                    if let Err(error) = self.look(Moment::now()).await
                        && let Some(before) = warning.now(clock::now())
                    {
                        warn!(before, "the authority between the planes cannot be checked: {error}");
                    }
                }
                rotation = rotations.recv(), if asked => match rotation {
                    Some(told) => {
                        let done = self.rotate(Moment::now()).await.map_err(|error| error.to_string());
                        // The requester may not be waiting any more.
                        let _ = told.send(done);
                    }
                    // No requests can arrive any more; the task lives as long as the process.
                    None => asked = false,
                },
            }
        }
    }

    /// Reads, writes and renews what is due.
    ///
    /// # Errors
    /// If a part of that fails; what was valid before stays in use.
    pub async fn look(&mut self, moment: Moment) -> Result<(), KeepError> {
        let now = moment.wall;
        let changed = self.change(moment, |authority, life| authority.due(now, life)).await;
        if let Some((authority, _)) = &self.authority
            && authority.is_of_the_future(now)
            && let Some(before) = self.doubts.now(clock::now())
        {
            warn!(
                before,
                "the newest root of the authority has a date in the future: the clock here is slow, or it was created by a \
                 fast one. It is not rotated automatically before then; if this clock is right, run firth authority rotate"
            );
        }
        // Whatever happened to the record: without a valid certificate no handshake succeeds.
        let renewed = self.renew(now);
        let published = self.publish(now, changed.is_ok()).await;
        let done = changed.and(renewed).and(published);
        if let Err(error) = &done {
            self.current.send_if_modified(|current| match current {
                Ok(_) => false,
                Err(why) => {
                    *why = error.to_string().into();
                    true
                }
            });
        }
        done
    }

    async fn rotate(&mut self, moment: Moment) -> Result<Duration, KeepError> {
        let now = moment.wall;
        self.change(moment, |authority, life| authority.rotate(now, life).map(Some)).await?;
        self.renew(now)?;
        self.publish(now, true).await?;
        let signs = self.authority.as_ref().map_or(now, |(authority, _)| authority.signs_from());
        let left = signs.duration_since(now).unwrap_or_default();
        info!(
            seconds = left.as_secs(),
            "a new root of the authority is trusted from now on, and will sign later"
        );
        Ok(left)
    }

    /// Reads the record, changes it and writes it, until no other writer was faster.
    async fn change(
        &mut self,
        moment: Moment,
        change: impl Fn(&Authority, Duration) -> Result<Option<Authority>, IssueError>,
    ) -> Result<(), KeepError> {
        let now = moment.wall;
        for _ in 0..TRIES {
            let found = match self.vault.load().await {
                // Somebody emptied the record: handled like a missing one, except that the object exists.
                Err(VaultError::Emptied { revision, .. }) if self.authority.is_some() => Err(Some(revision)),
                found => found?.ok_or(None),
            };
            // A requested change is made only to a record that contains the root which signs here.
            let (next, over, is_done) = match found {
                Ok((text, revision)) => {
                    let known = self.authority.as_ref().filter(|known| known.1.as_ref() == Some(&revision));
                    let authority = match known {
                        Some((authority, _)) => authority.clone(),
                        None => Authority::from_record(&text)?,
                    };
                    if let Some(both) = self.beside(&authority, now) {
                        (both, Some(revision), false)
                    } else {
                        let changed = change(&authority, self.life)?;
                        self.authority = Some((authority, Some(revision.clone())));
                        (self.read, self.lost) = (Some(now), None);
                        let Some(changed) = changed else { return Ok(()) };
                        (changed, Some(revision), true)
                    }
                }
                // Missing, or the first. The authority of this process is written again unchanged.
                Err(over) => match &self.authority {
                    Some((authority, _)) => {
                        warn!("the record of the authority between the planes is gone, and written again");
                        (authority.clone(), over, false)
                    }
                    None => (self.create(moment).await?, None, false),
                },
            };
            // Read back before it is used: the stored record may be another writer's.
            if !self.vault.store(&next.to_record(), over.as_ref()).await? {
                continue;
            }
            if is_done {
                // It is read back with its revision the next time; the change is done.
                self.authority = Some((next, None));
                return Ok(());
            }
        }
        Err(KeepError::Contended)
    }

    /// Creates the first authority, or a replacement for one that no replica has any more.
    async fn create(&mut self, moment: Moment) -> Result<Authority, KeepError> {
        if self.vault.is_published().await? {
            let since = *self.lost.get_or_insert(moment.steady);
            if moment.steady < since + PATIENCE {
                return Err(KeepError::Lost);
            }
            warn!(
                "the record of the authority between the planes is gone, and nobody has written it again: creating a new \
                 authority. Proxies reconnect once they have its roots; people need a new firth login"
            );
        }
        Ok(Authority::create(moment.wall)?)
    }

    /// The stored record has another authority than the one that signs here, which rotations do not explain: somebody
    /// created or restored one. Certificates signed by the own authority stay valid.
    fn beside(&mut self, found: &Authority, now: SystemTime) -> Option<Authority> {
        let (own, _) = self.authority.as_ref()?;
        if found.trusted().contains(&own.signs(now)) {
            return None;
        }
        let since = self.read.and_then(|read| now.duration_since(read).ok()).unwrap_or_default();
        let both = match Authority::may_have_passed(since, self.life) {
            true => None,
            false => own.beside(found, now, self.life),
        };
        if let Some(before) = self.strangers.now(clock::now()) {
            let what = match both {
                Some(_) => "both are trusted, and the new one signs once everybody knows it",
                None => {
                    "the new one is used: whoever has only certificates of the old one must enrol or log in again"
                }
            };
            warn!(before, "the authority between the planes was replaced by another one: {what}");
        }
        both
    }

    /// Builds the TLS configurations with the current roots, and renews the own certificate if it is due.
    fn renew(&mut self, now: SystemTime) -> Result<(), KeepError> {
        let Some((authority, _)) = &self.authority else { return Ok(()) };
        let signs = authority.signs(now);
        let is_young = self.renew.as_ref().is_some_and(|(at, root)| now < *at && *root == signs);
        let before = self.current.borrow().clone().ok();
        if is_young && before.is_some_and(|before| *before.authority == *authority && before.is_good(now)) {
            return Ok(());
        }
        let own = authority.credentials(&self.identity, now, self.life, &self.names)?;
        let roots = authority.trusted();
        let current = Current {
            authority: Arc::new(authority.clone()),
            calls: Arc::new(tls::server(&own, Some(&roots))?),
            enrolment: Arc::new(tls::server(&own, None)?),
            as_peer: Arc::new(tls::client(&Trust::Roots(roots), Some(&own))?),
            https: Arc::new(tls::https(&own)?),
            made: now,
            until: now + self.life,
        };
        self.renew = Some((now + self.life.mul_f64(0.4 + 0.2 * fastrand::f64()), signs));
        _ = self.current.send_replace(Ok(Arc::new(current)));
        Ok(())
    }

    /// Publishes the roots each time: they may have been deleted. If the record was not read, other replicas may know
    /// newer roots, and what they published stays.
    async fn publish(&self, now: SystemTime, is_read: bool) -> Result<(), KeepError> {
        if let Some((authority, _)) = &self.authority {
            self.vault.publish(&authority.trusted_pem(now), is_read).await?;
        }
        if let Some(folder) = self.vault.folder() {
            folder
                .sweep(now)
                .map_err(|source| VaultError::File { path: folder.path().to_owned(), source })?;
        }
        Ok(())
    }

    fn pause(&self) -> Duration {
        // Without an authority nothing can be served.
        let most = if self.authority.is_none() { Duration::from_secs(1) } else { READ };
        (self.life / 32).clamp(Duration::from_millis(100), most)
    }
}

#[cfg(test)]
mod tests;
