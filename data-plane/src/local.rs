//! What a worker provides to the tasks on its thread: timers, buffers, limits, the date, counters and log lines.
//!
//! **Invariant:** a `RefCell` here is borrowed for one call and never across an await.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use shared::budget::Budget;
use shared::drain::Phase;

use crate::access_log;
use crate::metrics::{Requests, WorkerMetrics};
use crate::rate::TryTable;
use buffers::Buffers;
use date::HttpDate;
use handshake_queue::HandshakeQueue;
use ids::Ids;
use log_limiter::LogLimiter;
use pipes::Pipes;
use pipes::bodies::BodyPipes;
use quota::Quota;
use timer::Timers;

pub use auth_cache::AuthCache;
pub use budgets::Budgets;
pub use limits::Limits;
pub use mirror_budget::MirrorBudget;
pub use names::{Addresses, KnownNames};
pub use nonces::Nonces;
pub use passwords::Passwords;
pub use reach::Reach;
pub use reserve::Reserve;
pub use spill::Spill;
pub use upstream_shares::UpstreamShares;

pub(crate) mod auth_cache;
pub(crate) mod boxed;
pub(crate) mod budgets;
pub(crate) mod buffers;
pub(crate) mod date;
pub(crate) mod handshake_queue;
pub(crate) mod ids;
pub(crate) mod isolated;
pub(crate) mod limits;
pub(crate) mod log_limiter;
pub(crate) mod mirror_budget;
pub(crate) mod names;
pub(crate) mod nonces;
pub(crate) mod opening;
pub(crate) mod passwords;
pub(crate) mod pipes;
pub(crate) mod quota;
pub(crate) mod reach;
pub(crate) mod relay;
pub(crate) mod reserve;
pub(crate) mod session;
pub(crate) mod shares;
pub(crate) mod spill;
pub(crate) mod stall;
pub(crate) mod stint;
pub(crate) mod timer;
pub(crate) mod upstream_shares;

/// The resources of one worker; nothing in it is shared with other threads except the counters, which others read.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) timers: Rc<Timers>,
    /// Whether, since the last tick, more connections came than it could serve.
    pub(crate) is_behind: Cell<bool>,
    pub(crate) buffers: Buffers,
    pub(crate) pipes: Pipes,
    /// Those that keep request bodies.
    pub(crate) body_pipes: BodyPipes,
    /// The queue of handshakes with clients.
    pub(crate) handshake_queue: Rc<HandshakeQueue>,
    pub(crate) limits: Limits,
    pub(crate) quota: Rc<Quota>,
    pub(crate) spill: Spill,
    pub(crate) passwords: Passwords,
    pub(crate) nonces: Nonces,
    pub(crate) tries: Arc<TryTable>,
    pub(crate) auth_cache: AuthCache,
    pub(crate) mirror_budget: MirrorBudget,
    pub(crate) names: names::Names,
    /// Which addresses tenants may have it connect to.
    pub(crate) reach: Reach,
    pub(crate) refusals: LogLimiter,
    /// Backends and auth services that did not respond.
    pub(crate) failures: LogLimiter,
    /// Budget for descriptors of connections.
    pub(crate) descriptors: Budget,
    pub(crate) upstream_shares: UpstreamShares,
    pub(crate) reserve: Reserve,
    /// Budget for sessions of UDP services.
    pub(crate) sessions: Budget,
    pub(crate) date: RefCell<HttpDate>,
    pub(crate) ids: Ids,
    pub(crate) metrics: Arc<WorkerMetrics>,
    pub(crate) log: RefCell<access_log::Lines>,
    /// Request counters by place.
    pub(crate) requests: RefCell<Requests>,
}

impl Local {
    /// The resources of a new worker.
    pub(crate) fn new(
        limits: Limits,
        budgets: &Budgets,
        (names, reach): (KnownNames, Reach),
        metrics: Arc<WorkerMetrics>,
        log: access_log::Lines,
    ) -> Self {
        let mut date = HttpDate::default();
        date.update(shared::clock::wall());
        Self {
            timers: Timers::new(shared::clock::now()),
            is_behind: Cell::new(false),
            buffers: Buffers::new(),
            pipes: Pipes::new(budgets.descriptors.clone()),
            body_pipes: BodyPipes::new(budgets.body_pipes.clone(), budgets.descriptors.clone()),
            handshake_queue: Rc::default(),
            limits,
            quota: Quota::counted(budgets.bytes.clone(), Arc::clone(&metrics)),
            spill: budgets.spill.clone(),
            passwords: budgets.passwords.clone(),
            nonces: budgets.nonces.clone(),
            tries: Arc::clone(&budgets.tries),
            auth_cache: budgets.auth_cache.clone(),
            mirror_budget: budgets.mirror_budget.clone(),
            names: names::Names::new(names),
            reach,
            refusals: LogLimiter::default(),
            failures: LogLimiter::default(),
            descriptors: budgets.descriptors.clone(),
            upstream_shares: budgets.upstream_shares.clone(),
            reserve: budgets.reserve.clone(),
            sessions: budgets.sessions.clone(),
            date: RefCell::new(date),
            ids: Ids::default(),
            requests: RefCell::new(Requests::new(Arc::clone(&metrics))),
            metrics,
            log: RefCell::new(log),
        }
    }

    /// Whether connections have to close after the current request.
    pub(crate) fn closing(&self) -> bool {
        self.timers.phase() >= Phase::Closing
    }

    /// Without a worker: default limits, and a log that is discarded.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        let metrics: Arc<WorkerMetrics> = Arc::default();
        let (handle, _) = access_log::write_to(std::io::sink()).unwrap();
        let lines = handle.lines(Arc::clone(&metrics));
        Self::new(Limits::default(), &Budgets::default(), Default::default(), metrics, lines)
    }
}
