//! Whether the API server answers. A watch on which nothing happens and one on which nobody is left look the same for
//! minutes, so the cheapest list is asked for every few seconds, and what is not answered is told to people. It may be
//! that list alone that fails: while watches are heard, so is the API server. What fails is said by each watch.
//!
//! **Invariant:** nothing that is served depends on it.

use std::time::Duration;

use kube::Client;
use tokio::time::sleep;
use tracing::{info, warn};

use super::ask::{AskError, within};
use super::collection::Collection;
use super::{KubeError, now};
use crate::freshness::{Freshness, Unheard};
use crate::moment::Since;

/// Interval of the questions.
const EVERY: Duration = Duration::from_secs(5);
/// Timeout of an answer.
const ANSWER: Duration = Duration::from_secs(5);
/// What has not been heard for this long is said to be unheard: an API server that is replaced is away for a moment.
const SILENCE: Duration = Duration::from_secs(10);

/// Asks forever.
///
/// # Errors
/// Never.
pub(super) async fn keep(client: Client, probe: Collection, freshness: Freshness) -> Result<(), KubeError> {
    let mut heard = Since::new(now());
    let mut looked = (heard, freshness.times_heard());
    loop {
        sleep(EVERY).await;
        let asked = Since::new(now());
        let answer = ask(&client, &probe).await;
        let (before, times) = std::mem::replace(&mut looked, (asked, freshness.times_heard()));
        let is_any = looked.1 != times;
        match answer {
            Ok(()) => {
                heard = asked;
                said(&freshness, None);
            }
            // Not before that, and perhaps later.
            Err(_) if is_any => {
                heard = before;
                said(&freshness, None);
            }
            Err(reason) if heard.span(now()) >= SILENCE => {
                said(&freshness, Some(Unheard { since: heard, reason: reason.into() }));
            }
            Err(_) => {}
        }
    }
}

async fn ask(client: &Client, probe: &Collection) -> Result<(), String> {
    let request = probe.probe().map_err(|error| error.to_string())?;
    match within(ANSWER, client.request_text(request)).await {
        // Who lacks a right is heard; which one is said elsewhere.
        Ok(_) | Err(AskError::Refused { code: 403, .. }) => Ok(()),
        Err(AskError::Unanswered(reason)) => Err(reason),
        Err(refused) => Err(refused.to_string()),
    }
}

/// Notes it, and logs it when it begins and ends.
fn said(freshness: &Freshness, unheard: Option<Unheard>) {
    match (freshness.unheard(), &unheard) {
        (None, Some(begins)) => warn!("this replica {}", begins.stays()),
        (Some(before), None) => {
            info!(seconds = before.since.span(now()).as_secs(), "the API server answers again");
        }
        _ => {}
    }
    freshness.note_unheard(unheard);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU16, Ordering};

    use super::super::tests::fake::{Fake, Reply, status};
    use super::*;
    use crate::objects::ObjectKind;

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_does_not_answer_is_said_to_be_unheard_since_it_last_did() {
        let says = Arc::new(AtomicU16::new(200));
        let code = Arc::clone(&says);
        let server = Fake::new(move |_| match code.load(Ordering::Relaxed) {
            0 => Reply::Nothing,
            200 => Reply::Text(200, "{}".to_owned()),
            code => status(code),
        });
        let freshness = Freshness::default();
        let probe = Collection::all(ObjectKind::Ingress, None).metadata_only();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(keep(server.client(), probe, freshness.clone()));
        let answers = |code| says.store(code, Ordering::Relaxed);
        for (code, reason) in [(0, "no answer for 5 s"), (503, "503: no"), (401, "401: no")] {
            sleep(EVERY * 3).await;
            assert_eq!(freshness.unheard(), None, "it answers");
            answers(code);
            let begins = now();
            sleep(SILENCE / 2).await;
            assert_eq!(freshness.unheard(), None, "{code}: it may be a moment");
            sleep(SILENCE * 2).await;
            let unheard = freshness.unheard().expect("that is said");
            assert!(unheard.since.at <= begins && unheard.since.span(begins) <= EVERY, "{code}");
            assert!(unheard.reason.ends_with(reason), "{unheard}");
            let since = unheard.since;
            sleep(SILENCE * 9).await;
            assert_eq!(freshness.unheard().map(|it| it.since), Some(since), "{code}: as long as it lasts");
            answers(if code == 0 { 403 } else { 200 });
        }
    }

    /// What is heard is not unheard, though one list of it fails.
    #[tokio::test(start_paused = true)]
    async fn who_is_told_of_changes_hears_the_api_server() {
        let server = Fake::new(|_| status(503));
        let freshness = Freshness::default();
        let probe = Collection::all(ObjectKind::Ingress, None).metadata_only();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(keep(server.client(), probe, freshness.clone()));
        for _ in 0..9 {
            freshness.note_heard(ObjectKind::Service);
            sleep(EVERY).await;
            assert_eq!(freshness.unheard(), None);
        }
        let last = now();
        sleep(SILENCE * 3).await;
        let unheard = freshness.unheard().expect("nothing is heard any more");
        assert!(unheard.since.at <= last && unheard.since.span(last) <= EVERY * 2, "{unheard:?}");
    }
}
