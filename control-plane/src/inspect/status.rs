//! On how many proxies an object is.
//!
//! **Invariant:** `programmed` is all of `total` only where every proxy that may serve was heard, has the newest version of the
//! object, and refuses nothing of it. Nobody heard is unknown.

use std::sync::Arc;
use std::time::{Duration, Instant};

use shared::clock;
use shared::proto::inspect;
use tokio::sync::watch;
use tonic::Status;

use super::{GAP, Inspect, convert};
use crate::objects::ObjectRef;
use crate::placed::{Placed, Places};
use crate::problem::{Problem, Problems, Severity, Subject};
use crate::programmed::{Extent, State};
use crate::serve::registry::Registry;
use crate::store::Head;

/// Proxies that are named of each sort.
pub(super) const NAMED: usize = 100;
/// A watcher looks again after this time, whatever changed: for how long somebody is silent does, too.
const LOOK: Duration = Duration::from_secs(5);

impl Inspect {
    /// # Errors
    /// Where there is no such object, and nothing is left of one.
    pub(super) fn status_of(
        &self,
        object: &ObjectRef,
        now: Instant,
    ) -> Result<inspect::StatusResponse, Status> {
        // In this order: what is said of an object is never ahead of the head.
        let placed = self.places.borrow().get(object).cloned();
        let head = self.published.head();
        if !head.is_ready() {
            return Err(Status::unavailable("the first lists are not complete yet"));
        }
        let known = self.problems.borrow().get(&Subject::Object(object.clone())).cloned();
        let problems = known.as_deref().unwrap_or_default();
        let extent = Extent::of(object, placed.as_deref(), &head).ok_or_else(|| missing(object))?;
        let mut answer = self.count(&extent, &head, now);
        answer.object = object.to_string();
        answer.deleted = placed.is_none();
        if let Some(placed) = &placed {
            answer.resource_version = placed.made.resource_version.to_string();
            answer.version = placed.version.short();
        }
        answer.problems = problems.iter().map(convert::problem).collect();
        answer.pin = convert::pin(&head);
        let is_rejected = placed.as_ref().is_some_and(|placed| is_rejected(placed, problems));
        let is_held_back = extent.is_held_back();
        if is_rejected || is_held_back {
            // Of its newest version; what is served is an older one.
            answer.programmed = 0;
        }
        answer.state = state(&answer, is_rejected, is_held_back).to_owned();
        Ok(answer)
    }

    fn count(&self, extent: &Extent<'_>, head: &Head, now: Instant) -> inspect::StatusResponse {
        let mut answer =
            inspect::StatusResponse { settled: self.registry.is_settled(now), ..Default::default() };
        for proxy in self.registry.list() {
            answer.total += 1;
            let state = extent.state(&proxy);
            let refused: &[_] = match &state {
                State::Refused(refused) => refused,
                _ => &[],
            };
            let (list, total) = match &state {
                State::Programmed => {
                    answer.programmed += 1;
                    continue;
                }
                State::Behind | State::Diverged => (&mut answer.behind, &mut answer.behind_total),
                State::Refused(_) => (&mut answer.refused, &mut answer.refused_total),
                State::Silent => (&mut answer.silent, &mut answer.silent_total),
                State::Unknown => (&mut answer.unknown, &mut answer.unknown_total),
            };
            *total += 1;
            if list.len() < NAMED {
                list.push(convert::of_object(&proxy, refused, head, now));
            }
        }
        answer
    }
}

fn is_rejected(placed: &Placed, problems: &[Problem]) -> bool {
    placed.made.is_rejected || problems.iter().any(|problem| problem.severity == Severity::Rejected)
}

/// The worst that can be said.
fn state(answer: &inspect::StatusResponse, is_rejected: bool, is_held_back: bool) -> &'static str {
    let heard = answer.total - answer.silent_total;
    match answer {
        _ if is_rejected => "rejected",
        _ if is_held_back => "held-back",
        _ if heard == 0 => "unknown",
        it if it.refused_total > 0 => "refused",
        it if it.behind_total > 0 => "behind",
        it if it.silent_total > 0 => "silent",
        it if it.unknown_total > 0 || !it.settled => "unknown",
        it if it.deleted => "deleted",
        _ => "programmed",
    }
}

fn missing(object: &ObjectRef) -> Status {
    Status::not_found(format!(
        "no {object} here: there is none, nothing that is served refers to it, or it is of another class"
    ))
}

/// Somebody who waits for another answer.
#[derive(Debug)]
pub(super) struct Watcher {
    inspect: Inspect,
    object: ObjectRef,
    heads: watch::Receiver<Arc<Head>>,
    places: watch::Receiver<Places>,
    problems: watch::Receiver<Problems>,
    proxies: watch::Receiver<u64>,
    last: Option<Result<inspect::StatusResponse, String>>,
}

impl Watcher {
    pub(super) fn new(inspect: &Inspect, object: ObjectRef) -> Self {
        Self {
            heads: inspect.published.heads(),
            places: inspect.places.clone(),
            problems: inspect.problems.clone(),
            proxies: Registry::changes(&inspect.registry),
            inspect: inspect.clone(),
            object,
            last: None,
        }
    }

    /// The next answer that is another one; `None` when this process ends. That there is no such object is an answer without
    /// a state: it may come.
    pub(super) async fn next(&mut self) -> Option<inspect::StatusResponse> {
        loop {
            self.heads.mark_unchanged();
            self.places.mark_unchanged();
            self.problems.mark_unchanged();
            self.proxies.mark_unchanged();
            let status = self.inspect.status_of(&self.object, clock::now());
            let status = status.map_err(|status| status.message().to_owned());
            if self.last.as_ref() != Some(&status) {
                self.last = Some(status.clone());
                let absent =
                    || inspect::StatusResponse { object: self.object.to_string(), ..Default::default() };
                return Some(status.unwrap_or_else(|_| absent()));
            }
            tokio::select! {
                changed = self.heads.changed() => changed.ok()?,
                changed = self.places.changed() => changed.ok()?,
                changed = self.problems.changed() => changed.ok()?,
                changed = self.proxies.changed() => changed.ok()?,
                _ = self.inspect.leaving.wait_for(|leaving| *leaving) => return None,
                () = tokio::time::sleep(LOOK) => {}
            }
            tokio::time::sleep(GAP).await;
        }
    }
}
