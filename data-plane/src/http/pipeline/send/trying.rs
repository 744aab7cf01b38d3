//! What the attempts of one request have in common: the endpoints that were tried, and whether another one follows.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use super::{PASSED_BY, UNCOUNTED, may_again, may_retry};
use crate::codec::error::{Kind, ProxyError};
use crate::http::pipeline::affinity::Session;
use crate::http::pipeline::log::RequestInfo;
use crate::http::pipeline::{Exchange, HeaderScope};
use crate::http::server::Server;
use crate::local::timer::Timer;
use crate::table::policy::retries::Retries;
use crate::table::{BackendCell, Endpoint};
use crate::upstream::ejection;
use crate::upstream::observation::Observation;
use crate::upstream::send::Failed;
use crate::upstream::{Tried, Turn};

/// The attempts of one request.
pub(super) struct Trying<'a> {
    server: &'a Rc<Server>,
    timer: &'a Timer,
    cell: &'a Arc<BackendCell>,
    retries: Retries,
    begun: Instant,
    /// How many are left.
    left: usize,
    tried: Tried,
    /// Set after a reused connection turned out dead: its endpoint has probably restarted, so the others are dead too.
    pub(super) fresh: bool,
    /// Unroutable endpoints so far.
    passed_by: usize,
    /// Whether the request may be repeated after an endpoint may have received it.
    idempotent: bool,
    /// Whether its body is buffered.
    is_kept: bool,
}

impl<'a> Trying<'a> {
    /// Before the first attempt.
    pub(super) fn new<'e: 'a>(exchange: &Exchange<'e>, cell: &'a Arc<BackendCell>, is_kept: bool) -> Self {
        let server = exchange.call.server;
        // nginx' configuration has the location's conditions there, and none for error pages.
        let location = exchange.location().filter(|_| exchange.header_scope != HeaderScope::Errors);
        Self {
            server,
            timer: exchange.call.timer,
            cell,
            retries: location.map(|location| location.policy.retries).unwrap_or_default(),
            begun: server.local.timers.now(),
            left: match exchange.timeouts.tries {
                0 => cell.endpoints().list.len().max(UNCOUNTED),
                tries => tries,
            },
            tried: Tried::default(),
            fresh: false,
            passed_by: 0,
            idempotent: exchange.head.method.is_retriable(),
            is_kept,
        }
    }

    /// Whether the request cannot be sent twice: then the kernel is asked first whether a reused connection is still
    /// open.
    pub(super) fn once(&self) -> bool {
        !self.idempotent || !self.is_kept
    }

    /// The endpoint for the next attempt.
    ///
    /// # Errors
    /// There is none. A client whose affinity requires another endpoint has none left: 502, whatever failed before (as
    /// in ingress-nginx).
    pub(super) fn pick(
        &mut self,
        session: Option<&mut Session>,
        turn: Turn,
    ) -> Result<Arc<Endpoint>, ProxyError> {
        let picked = super::pick(self.server, self.cell, (session, turn), &mut self.tried);
        picked.ok_or_else(|| {
            let kind = if self.tried.is_empty() { Kind::NoEndpoints } else { Kind::ConnectFailed };
            kind.into()
        })
    }

    /// Whether a response with this status is not passed on, and another endpoint tried. The last response is passed on,
    /// whatever it is.
    pub(super) fn passes_over(&mut self, endpoint: &Endpoint, status: u16) -> bool {
        let local = &self.server.local;
        let is_listed = self.retries.after_status(status, !self.idempotent);
        if is_listed {
            ejection::retried_status(local, self.cell, endpoint, status);
        } else {
            ejection::responded(local, self.cell, endpoint);
        }
        let passes = self.left > 1
            && is_listed
            && self.is_kept
            && self.is_in_time()
            && may_again(self.server, self.cell);
        if passes {
            self.left -= 1;
            self.tried.add(endpoint);
            local.metrics.retries.add(1);
        }
        passes
    }

    /// After an attempt failed, over a new connection or a `reused` one.
    ///
    /// # Errors
    /// That error, if no other attempt follows.
    pub(super) fn after(
        &mut self,
        endpoint: &Endpoint,
        (mut failed, reused): (Failed, bool),
        mut observed: Option<Box<Observation>>,
        info: &mut RequestInfo,
        is_replayable: bool,
    ) -> Result<(), ProxyError> {
        let local = &self.server.local;
        failed.error = failed.error.within(self.timer.is_over());
        let kind = failed.error.kind;
        if matches!(kind, Kind::NoRoom | Kind::NoDisk | Kind::OutOfTime) {
            // The endpoint was not even asked, or is not to blame.
            Observation::forget(&mut observed);
        }
        local.metrics.failed(kind);
        info.attempts.failed(kind.status());
        // nginx does not count it as an attempt, once, when a kept-alive connection was closed under it: a new
        // connection follows. Nor does it count against the endpoint.
        let dead = reused && kind == Kind::Closed && !failed.answered;
        let counts = !dead || self.fresh;
        let no_way = self.passed_by < PASSED_BY && failed.error.is_no_way();
        self.passed_by += usize::from(no_way);
        let elsewhere = may_retry(&self.retries, &failed, self.idempotent);
        if counts {
            self.left = self.left.saturating_sub(usize::from(!no_way));
            self.tried.add(endpoint);
            if elsewhere {
                ejection::attempt_failed(local, self.cell, endpoint, &failed.error);
            }
        }
        if self.left == 0 || !elsewhere || !is_replayable || !self.is_in_time() {
            return Err(failed.error);
        }
        // A request that was not sent cost the endpoint nothing.
        if failed.sent && counts && !may_again(self.server, self.cell) {
            return Err(failed.error);
        }
        Observation::forget(&mut observed);
        self.fresh |= dead;
        local.metrics.retries.add(1);
        Ok(())
    }

    /// Whether there is time for another attempt.
    fn is_in_time(&self) -> bool {
        self.retries.is_in_time(self.server.local.timers.now().duration_since(self.begun))
    }
}
