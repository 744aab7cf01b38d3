//! `Pin`, `Rollback` and `Unpin`: an operator's decisions. They are stored, and answered once this replica acts on what
//! it reads back.
//!
//! **Invariant:** a decision takes effect only because it is stored, never because it was requested here.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use prost_types::Duration as Span;
use shared::clock;
use shared::proto::inspect;
use tokio::sync::mpsc;
use tonic::{Request, Status};

use super::{convert, pick};
use crate::event::{PinChange, PinRefused, PinRequest};
use crate::pin::{How, NOTE_MAX, Pin};
use crate::serve::admission::Caller;
use crate::store::{Head, Published};

/// Default duration of a pin.
const USUAL: Duration = Duration::from_secs(24 * 3600);
/// Maximum duration of a pin; it can be extended later.
const MOST: Duration = Duration::from_secs(366 * 24 * 3600);
/// Timeout for storing a decision.
const RECORD: Duration = Duration::from_secs(20);
/// Timeout for this replica to act on it after that.
const FORCE: Duration = Duration::from_secs(8);

/// Handles decisions.
#[derive(Clone, Debug)]
pub(super) struct Decider {
    published: Published,
    pins: mpsc::Sender<PinRequest>,
}

/// What an operator requests.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) how: How,
    pub(super) version: String,
    pub(super) lasts: Option<Span>,
    pub(super) note: String,
    pub(super) replace: bool,
}

impl Asked {
    /// The command and the reason to store, beside those of a pin of the same version: a longer `firth pin` does not
    /// change why it was pinned, unless it says why.
    fn reason(&self, there: Option<&Pin>) -> (How, String) {
        match there.filter(|_| !self.replace) {
            Some(there) if self.how == How::Pin => {
                let note = if self.note.is_empty() { &there.note } else { &self.note };
                (there.how, note.clone())
            }
            _ => (self.how, self.note.clone()),
        }
    }
}

/// Result of an `Unpin`.
#[derive(Debug)]
pub(super) struct Unpinned {
    /// The head after it.
    pub(super) head: Arc<Head>,
    /// No pin was stored.
    pub(super) nothing: bool,
}

impl Decider {
    pub(super) fn new(published: Published, pins: mpsc::Sender<PinRequest>) -> Self {
        Self { published, pins }
    }

    /// Pins a version.
    pub(super) async fn pin(&self, asked: Asked) -> Result<inspect::Pin, Status> {
        let lasts = span(asked.lasts)?;
        let length = asked.note.chars().count();
        if length > NOTE_MAX {
            let reason = format!("expected a note of at most {NOTE_MAX} characters, got {length}");
            return Err(Status::invalid_argument(reason));
        }
        let head = self.published.head();
        if !head.is_ready() {
            return Err(starting());
        }
        if asked.how == How::Rollback && asked.version.is_empty() {
            return Err(Status::invalid_argument(
                "expected the version to go back to, as `firth history` lists it",
            ));
        }
        let (version, config) = pick::version(&head, &asked.version)?.into_version();
        let now = clock::wall();
        let (how, note) = asked.reason(head.pin.as_deref().filter(|there| there.version == version));
        // Looks at every resource of the version, so it runs on a blocking thread.
        let pin =
            tokio::task::spawn_blocking(move || Pin::new(how, version, config, now, lasts, &note)).await;
        let pin = Arc::new(pin.map_err(|error| Status::internal(error.to_string()))?);
        let replaces = match &head.pin {
            Some(there) if asked.replace => Some(Arc::clone(&there.revision)),
            // What is held back would be released earlier than somebody relies on.
            Some(there) if there.version == version && pin.until < there.until => {
                return Err(Status::failed_precondition(format!(
                    "it is pinned for longer already: {there}; use --replace to end it earlier"
                )));
            }
            Some(there) if there.version == version => Some(Arc::clone(&there.revision)),
            Some(there) => {
                return Err(Status::failed_precondition(format!(
                    "another version is pinned: {there}; use --replace, or unpin it first"
                )));
            }
            None => None,
        };
        let revision = self.decide(PinChange::Write { pin, replaces }).await?;
        let is_it = |head: &Head| head.pin.as_ref().is_some_and(|pin| pin.revision == revision);
        let head = self.wait(is_it, "the Secrets that it needs are being read").await?;
        convert::pin(&head).ok_or_else(|| Status::internal("the pin was removed before it could be reported"))
    }

    /// Removes the pin that this replica knows of: also one that cannot be read or is not in force yet, but none that
    /// was stored in the meantime. Returns the head after that.
    pub(super) async fn unpin(&self) -> Result<Unpinned, Status> {
        let head = self.published.head();
        let revision = head.on_record.clone();
        // Whether there is a pin is not known yet.
        if !head.is_ready() && revision.is_none() {
            return Err(starting());
        }
        self.decide(PinChange::Erase { revision: revision.clone() }).await?;
        let is_over = |head: &Head| match &revision {
            None => true,
            ended => head.on_record != *ended && head.pin.as_ref().map(|pin| &pin.revision) != ended.as_ref(),
        };
        let head = self.wait(is_over, "this replica has not seen its removal yet").await?;
        Ok(Unpinned { head, nothing: revision.is_none() })
    }

    async fn decide(&self, change: PinChange) -> Result<Arc<str>, Status> {
        let (request, outcome) = PinRequest::new(change);
        let busy = || Status::unavailable("too many decisions wait to be stored");
        self.pins.try_send(request).map_err(|_| busy())?;
        let late = "the decision is not stored yet; it may be a little later: ask again";
        let outcome = tokio::time::timeout(RECORD, outcome).await;
        let outcome = outcome.map_err(|_| Status::deadline_exceeded(late))?;
        outcome.map_err(|_| Status::unavailable("this replica is shutting down"))?.map_err(|refused| {
            match refused {
                PinRefused::Overtaken { .. } => Status::aborted(refused.to_string()),
                PinRefused::TooLarge { .. } => Status::resource_exhausted(refused.to_string()),
                PinRefused::Early { .. } | PinRefused::Unknown { .. } | PinRefused::Failed { .. } => {
                    Status::unavailable(refused.to_string())
                }
            }
        })
    }

    /// Waits until the head is as decided.
    async fn wait(&self, is_so: impl Fn(&Head) -> bool, why: &str) -> Result<Arc<Head>, Status> {
        let mut heads = self.published.heads();
        let waited = tokio::time::timeout(FORCE, heads.wait_for(|head| is_so(head))).await;
        match waited {
            Ok(Ok(head)) => Ok(Arc::clone(&head)),
            Ok(Err(_)) => Err(Status::unavailable("this replica is shutting down")),
            Err(_) => Err(Status::deadline_exceeded(format!("it is stored and not in force yet: {why}"))),
        }
    }
}

fn starting() -> Status {
    Status::unavailable("nothing is offered yet: this replica is starting")
}

/// Whether the caller may decide. A caller with a certificate is an operator: the guard admits no other role to these
/// calls. Without authentication, only local callers may.
pub(super) fn may_decide<T>(request: &Request<T>) -> Result<(), Status> {
    let caller = request.extensions().get::<Caller>();
    if caller.is_some_and(|caller| caller.identity().is_some()) {
        return Ok(());
    }
    let peer = caller.map(Caller::address);
    if peer.is_some_and(is_of_this_machine) {
        return Ok(());
    }
    let peer = peer.map_or_else(|| "an unknown address".to_owned(), |peer| peer.to_string());
    Err(Status::permission_denied(format!(
        "without encryption, decisions are accepted only from loopback, got {peer}"
    )))
}

fn is_of_this_machine(peer: SocketAddr) -> bool {
    peer.ip().to_canonical().is_loopback()
}

fn span(span: Option<Span>) -> Result<Duration, Status> {
    let Some(span) = span else {
        return Ok(USUAL);
    };
    let bad = || {
        Status::invalid_argument(format!("expected a span between 1 s and {} days", MOST.as_secs() / 86_400))
    };
    let lasts = Duration::try_from(span).map_err(|_| bad())?;
    let is_fine = lasts >= Duration::from_secs(1) && lasts <= MOST;
    is_fine.then_some(lasts).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_lasts_a_second_to_a_year() {
        let of = |seconds, nanos| span(Some(Span { seconds, nanos })).ok();
        assert_eq!(span(None).ok(), Some(USUAL));
        for (seconds, nanos, is_fine) in [
            (1_i64, 0_i32, true),
            (0, 999_999_999, false),
            (0, 0, false),
            (-1, 0, false),
            (366 * 86_400, 0, true),
            (366 * 86_400, 1, false),
        ] {
            let expected = is_fine.then(|| Duration::new(seconds.unsigned_abs(), nanos.unsigned_abs()));
            assert_eq!(of(seconds, nanos), expected, "{seconds} {nanos}");
        }
    }

    #[test]
    fn who_decides_without_encryption_is_on_this_machine() {
        for (peer, is_here) in [
            ("127.0.0.1:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("10.0.0.1:1", false),
            ("[::ffff:10.0.0.1]:1", false),
        ] {
            assert_eq!(is_of_this_machine(peer.parse().unwrap()), is_here, "{peer}");
        }
    }
}
