//! OCSP stapling: fetches the OCSP responses of the certificates in use, in the background, for handshakes to send
//! along (docs/adr/026-each-proxy-asks.md).
//!
//! The first use of a certificate is reported here. From then on its responder is asked periodically, for as long as
//! the certificate is configured.
//!
//! **Invariant:** no handshake waits for it. It runs on the service thread, not on the control thread.

mod answer;
mod fetch;
mod ledger;
mod places;
mod question;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use futures::stream::{FuturesUnordered, StreamExt as _};
use shared::clock;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use crate::local::KnownNames;
use crate::local::log_limiter::LogLimiter;
use crate::local::names::Names;
use crate::table::Tables;
use crate::table::certified::Certified;
use answer::{Good, Unusable, judge};
use fetch::fetch;
use ledger::{Ledger, Lost};
pub(crate) use places::Places;
use question::Question;

/// Statistics.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    /// Certificates that are sent with an OCSP response.
    pub(crate) stapled: AtomicU64,
    /// Number of valid responses.
    pub(crate) answers: AtomicU64,
    /// Requests without a valid response.
    pub(crate) failures: AtomicU64,
    /// Valid responses for which there was no memory.
    pub(crate) lost: AtomicU64,
}

/// A request and its result.
type Outcome = (Arc<Question>, Result<(Vec<u8>, Good), Failed>);

/// Why a request has no valid response.
#[derive(Debug)]
struct Failed {
    is_revoked: bool,
    reason: String,
}

/// Fetches responses until dropped.
pub(crate) async fn keep(
    tables: Arc<Tables>,
    mut shown: mpsc::Receiver<Weak<Certified>>,
    (places, names): (Places, KnownNames),
    stats: Arc<Stats>,
) {
    let (names, mut ledger, mut asking) = (Names::new(names), Ledger::default(), FuturesUnordered::new());
    let logged = LogLimiter::default();
    loop {
        if !tables.current().client_tls().staples {
            ledger.clear();
        }
        while let Some(question) = ledger.next(clock::now()) {
            asking.push(ask(&names, &places, question));
        }
        report(&ledger.lost(), &logged, &stats);
        stats.stapled.store(ledger.stapled() as u64, Ordering::Relaxed);
        let due = ledger.wake();
        tokio::select! {
            Some(outcome) = asking.next(), if !asking.is_empty() => take_in(&mut ledger, outcome, &stats),
            certified = shown.recv() => match certified {
                Some(certified) => {
                    if let Some(certified) = certified.upgrade() {
                        ledger.shown(&certified, clock::now());
                    }
                }
                // There are no more handshakes.
                None => return std::future::pending().await,
            },
            () = clock::sleep_until(due) => {}
        }
    }
}

async fn ask(names: &Names, places: &Places, question: Arc<Question>) -> Outcome {
    let asked = fetch(names, places, &question).await;
    let judged =
        asked.map_err(|error| Failed { is_revoked: false, reason: error.to_string() }).and_then(|der| {
            match judge(&der, &question, clock::unix(clock::wall())) {
                Ok(good) => Ok((der, good)),
                Err(error) => {
                    Err(Failed { is_revoked: error == Unusable::Revoked, reason: error.to_string() })
                }
            }
        });
    (question, judged)
}

fn take_in(ledger: &mut Ledger, (question, outcome): Outcome, stats: &Stats) {
    match outcome {
        Ok((der, good)) => {
            stats.answers.fetch_add(1, Ordering::Relaxed);
            ledger.answered(&question.id, der, good, (clock::now(), clock::unix(clock::wall())));
        }
        Err(Failed { is_revoked, reason }) => {
            stats.failures.fetch_add(1, Ordering::Relaxed);
            let (responder, serial) = (&question.host, question.certificate.text());
            if ledger.failed(&question.id, is_revoked, clock::now()) {
                warn!(responder, serial, reason, "a certificate is used without an OCSP response");
            } else {
                debug!(responder, serial, reason, "an OCSP responder failed again");
            }
        }
    }
}

/// Counts the responses for which there was no memory. One line a minute for each namespace.
fn report(lost: &Lost, logged: &LogLimiter, stats: &Stats) {
    stats.lost.fetch_add(lost.number, Ordering::Relaxed);
    let namespace = &*lost.namespace;
    if lost.number > 0 && logged.allows(namespace, clock::now()) {
        warn!(
            namespace,
            "OCSP responses of this namespace are not sent: the memory for all is full, and it holds most"
        );
    }
}

/// A certificate and an OCSP response, both arbitrary bytes: nothing unsigned is trusted.
#[cfg(any(test, feature = "fuzz"))]
pub fn fuzz(data: &[u8]) {
    let der = rustls_pki_types::CertificateDer::from(data.to_vec());
    let asked = Question::of(&[der.clone(), der.clone()]);
    let unasked = || Question::about(question::Named::default(), der);
    let question = asked.unwrap_or_else(unasked);
    assert!(judge(data, &question, 1_780_272_000).is_err());
}
