//! A pin: an operator's decision that CONFIG stays at one version until a given time.
//!
//! A pin contains all that it needs: the bytes of every resource of its version. So a replica that never had that
//! version in its history, or that starts now, offers the same bytes under the same root. Endpoints, certificates and
//! secret material are not part of it: they keep changing, and the pin says which of them are needed.
//!
//! **Invariant:** the resources of a pin have the root that it names.

mod record;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use shared::clock::unix;
use shared::name::ObjectName;
use shared::policy::LocationPolicy;
use shared::resource::Resource;
use shared::snapshot::Snapshot;
use shared::version::Root;

use crate::moment::utc;
use crate::reference::{Reference, Use};
pub use record::{Manifest, PARTS, Packed, Unreadable, pack, unpack};

/// Limit of a note in characters.
pub const NOTE_MAX: usize = 200;

/// Which of the two commands the operator used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// `Pin`: the version that was offered stays.
    Pin,
    /// `Rollback`: an earlier version was restored.
    Rollback,
}

impl How {
    /// Lower-case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pin => "pin",
            Self::Rollback => "rollback",
        }
    }
}

/// A pin.
#[derive(Clone, PartialEq, Debug)]
pub struct Pin {
    /// The version that is pinned.
    pub version: Root,
    /// The command that created it.
    pub how: How,
    /// When it was created, and when it expires: seconds since 1970.
    pub at: u64,
    /// See `at`.
    pub until: u64,
    /// Why, in the operator's words. May be empty.
    pub note: String,
    /// Schema revision, and revision of the canonical bytes, of the build that created it.
    pub schema: u32,
    /// See `schema`.
    pub compile_revision: u32,
    /// The resources of that version.
    pub config: Snapshot,
    /// What they need from LIVE.
    pub needs: Arc<Needs>,
    /// Revision of the stored record, in the source's format: a request to replace or end the pin names it. Empty
    /// before the pin is stored.
    pub revision: Arc<str>,
}

impl Pin {
    /// A pin that is not stored yet.
    pub fn new(
        how: How,
        version: Root,
        config: Snapshot,
        at: SystemTime,
        lasts: Duration,
        note: &str,
    ) -> Self {
        let at = unix(at);
        let note = note.chars().take(NOTE_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
        Self {
            version,
            how,
            at,
            until: at.saturating_add(lasts.as_secs()),
            note,
            schema: shared::schema::CURRENT,
            compile_revision: shared::schema::COMPILE_REVISION,
            needs: Arc::new(Needs::of(&config)),
            config,
            revision: "".into(),
        }
    }

    /// When it expires; a time that the clock cannot represent is capped.
    pub fn until(&self) -> SystemTime {
        time(self.until)
    }

    /// When it was created.
    pub fn at(&self) -> SystemTime {
        time(self.at)
    }

    /// Whether it was created by a later build, whose resources this one may not understand.
    pub fn is_of_later_build(&self) -> bool {
        self.schema > shared::schema::CURRENT || self.compile_revision > shared::schema::COMPILE_REVISION
    }
}

/// `rollback to 1f3a92c04d7e, until 2026-11-23T15:00:00Z: bad canary`.
impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let preposition = match self.how {
            How::Pin => "at",
            How::Rollback => "to",
        };
        write!(
            f,
            "{} {preposition} {}, until {}",
            self.how.as_str(),
            self.version.short(),
            utc(self.until()).unwrap_or_else(|| "for ever".to_owned())
        )?;
        if self.note.is_empty() { Ok(()) } else { write!(f, ": {}", self.note) }
    }
}

/// The latest time that is shown: the year 9999. Anything later means forever.
const LAST: u64 = 253_402_300_799;

fn time(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds.min(LAST))
}

/// What CONFIG resources need from LIVE.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Needs {
    /// Services whose endpoints get requests.
    pub services: BTreeSet<ObjectName>,
    /// The one of them that is the default backend of the fleet.
    pub default_backend: Option<ObjectName>,
    /// Secrets, and what each is used for.
    pub secrets: BTreeSet<Reference>,
    /// Number of resources that this build does not understand, because a later one made them.
    pub unknown: usize,
}

impl Needs {
    fn of(config: &Snapshot) -> Self {
        let mut needs = Self::default();
        for entry in config.iter() {
            match Resource::decode(entry.kind(), &entry.body) {
                Ok(resource) => needs.add(&entry.key.key, resource),
                Err(_) => needs.unknown += 1,
            }
        }
        needs
    }

    fn add(&mut self, key: &str, resource: Resource) {
        match resource {
            Resource::Settings(settings) => {
                self.secret(Use::DefaultCertificate, &settings.default_certificate);
                self.default_backend = service_of(&settings.default_backend);
                self.location(settings.defaults);
            }
            Resource::Host(host) => {
                for secret in host.tls.into_iter().flat_map(|tls| tls.certificates) {
                    self.secret(Use::Certificate, &secret);
                }
                self.material(host.policy.backend_tls.map(|it| it.material));
                self.material(host.policy.client_certificates.map(|it| it.authorities));
            }
            Resource::Route(route) => self.location(route.policy),
            Resource::Backend(_) => self.services.extend(service_of(key)),
            Resource::Listener(_)
            | Resource::Endpoints(_)
            | Resource::Certificate(_)
            | Resource::Chain(_)
            | Resource::Material(_) => {}
        }
    }

    fn secret(&mut self, what: Use, secret: &str) {
        self.secrets.extend(ObjectName::parse(secret).map(|name| Reference::new(what, name)));
    }

    fn location(&mut self, policy: LocationPolicy) {
        self.material(policy.basic_auth.map(|it| it.users));
        self.material(policy.backend_tls.map(|it| it.material));
    }

    fn material(&mut self, key: Option<String>) {
        self.secrets.extend(key.and_then(|key| Reference::of_material(&key)));
    }
}

/// The Service of a Backend's key: `default/web` of `default/web/80`.
fn service_of(key: &str) -> Option<ObjectName> {
    let (service, _port) = key.rsplit_once('/')?;
    ObjectName::parse(service)
}

#[cfg(test)]
mod tests;
