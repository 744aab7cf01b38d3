//! Converts our types to the messages of `firth.inspect.v1`.

use std::time::{Duration, Instant, SystemTime};

use prost_types::Timestamp;
use shared::clock;
use shared::entry::Entry;
use shared::kind::Lane;
use shared::proto::inspect;

use super::reach::Reach;
use crate::freshness::{Failing, Forbidden, Unheard};
use crate::pipeline::Start;
use crate::problem::{Consequence, Problem, Severity};
use crate::serve::message::{REFUSALS_MAX, Refused};
use crate::serve::registry::Proxy;
use crate::store::{Head, PastVersion};

/// What the problems of a cluster as a whole are about.
const API_SERVER: &str = "API server";

/// The newest version as users see it; empty before the first.
pub(super) fn version(head: &Head) -> String {
    if head.is_ready() { head.config.root.short() } else { String::new() }
}

pub(super) fn proxy(proxy: &Proxy, head: &Head, now: Instant) -> inspect::Proxy {
    let since = |it: Instant| duration(now.saturating_duration_since(it));
    let behind = |lane| head.lane(lane).seq.0.saturating_sub(proxy.standing(lane).seq.0);
    let refusals = proxy.config.refused.iter().chain(proxy.live.refused.iter());
    let answered = if proxy.live.apply > proxy.config.apply { &proxy.live } else { &proxy.config };
    inspect::Proxy {
        id: proxy.id.to_string(),
        node: proxy.node.to_string(),
        zone: proxy.zone.to_string(),
        address: proxy.address.to_string(),
        acked: proxy.config.root.map(|root| root.short()).unwrap_or_default(),
        in_sync: proxy.is_in_sync(head),
        config_behind: behind(Lane::Config),
        live_behind: behind(Lane::Live),
        refused: refusals.take(REFUSALS_MAX).map(refused).collect(),
        refused_total: proxy.refused_total(),
        diverged: proxy.is_diverged(),
        connected: Some(timestamp(proxy.connected)),
        heard: clock::wall().checked_sub(proxy.unheard(now)).map(timestamp),
        apply_us: answered.apply.as_micros() as u64,
        silent: proxy.silent_since().map(since),
        behind: proxy.behind_since(head).map(since),
        replica: String::new(),
        in_sync_elsewhere: false,
        lost: false,
    }
}

/// A proxy as shared with another replica: its position, and when it was heard from.
pub(super) fn shared(proxy: &Proxy, now: Instant) -> inspect::SharedProxy {
    inspect::SharedProxy {
        id: proxy.id.to_string(),
        unheard: Some(duration(proxy.unheard(now))),
        connected: !proxy.is_silent(),
        ..inspect::SharedProxy::default()
    }
}

/// A proxy of a replica that does not answer.
pub(super) fn lost(proxy: inspect::Proxy) -> inspect::ObjectProxy {
    let inspect::Proxy { id, node, zone, acked, .. } = proxy;
    inspect::ObjectProxy { id, node, zone, acked, ..inspect::ObjectProxy::default() }
}

fn refused(refused: &Refused) -> inspect::Refused {
    inspect::Refused {
        kind: refused.kind.as_str().to_owned(),
        key: refused.key.to_string(),
        version: refused.version.to_string(),
        code: refused.code.to_owned(),
        reason: refused.reason.to_string(),
        serving_last_good: refused.serving_last_good,
    }
}

pub(super) fn summary(entry: &Entry) -> inspect::ResourceSummary {
    inspect::ResourceSummary {
        lane: entry.kind().lane().as_str().to_owned(),
        kind: entry.kind().as_str().to_owned(),
        key: entry.key.key.to_string(),
        version: entry.version.to_string(),
        size: entry.body.len() as u32,
    }
}

/// The pin in force.
pub(super) fn pin(head: &Head) -> Option<inspect::Pin> {
    let pin = head.pin.as_ref()?;
    Some(inspect::Pin {
        version: pin.version.short(),
        how: pin.how.as_str().to_owned(),
        at: Some(timestamp(pin.at())),
        until: Some(timestamp(pin.until())),
        note: pin.note.clone(),
        compiled: head.compiled.root().short(),
        unreleased: head.unreleased() as u32,
    })
}

/// A version of the history, and the place at which it was offered.
pub(super) fn history(version: &PastVersion, offered: Option<usize>, reach: &Reach) -> inspect::HistoryEntry {
    let acked = offered.map_or(0, |place| reach.acked(place));
    inspect::HistoryEntry {
        version: version.root.short(),
        time: Some(timestamp(version.time)),
        cause: version.cause.to_string(),
        changed: version.changed as u32,
        acked: acked as u32,
        proxies: reach.proxies as u32,
        object: version.origin.object.clone(),
        resource_version: version.origin.resource_version.clone(),
        manager: version.origin.manager.clone(),
        bytes: version.bytes as u64,
        resources: version.snapshot.len() as u32,
        held_back: offered.is_none(),
        skipped: version.skipped as u32,
    }
}

/// The message about a problem.
pub fn problem(problem: &Problem) -> inspect::Problem {
    inspect::Problem {
        object: problem.object.to_string(),
        field: problem.field.clone(),
        severity: problem.severity.as_str().to_owned(),
        reason: problem.reason.clone(),
        location: problem.location.clone(),
        consequence: Consequence::of(problem).as_str().to_owned(),
    }
}

/// Objects that may not be read. `is_ready`: anything is offered, so they were read before.
pub(super) fn forbidden(Forbidden { kind, reason }: Forbidden, is_ready: bool) -> inspect::Problem {
    let reason = match is_ready {
        true => format!("may not be read any more, and what was read before stays in use: {reason}"),
        false => format!("may not be read, and nothing is offered until it may: {reason}"),
    };
    inspect::Problem {
        object: kind.as_str().to_owned(),
        severity: Severity::Warning.as_str().to_owned(),
        reason,
        ..Default::default()
    }
}

/// Objects whose lists or watches fail. `is_ready`: anything is offered.
pub(super) fn failing(failing: &Failing, is_ready: bool) -> inspect::Problem {
    let reason = match is_ready {
        true => failing.stays(),
        false => format!("{failing}: nothing is offered until it was read"),
    };
    inspect::Problem {
        object: failing.kind.as_str().to_owned(),
        severity: Severity::Warning.as_str().to_owned(),
        reason,
        ..Default::default()
    }
}

/// That the API server does not answer. `is_ready`: anything is offered.
pub(super) fn unheard(unheard: &Unheard, is_ready: bool) -> inspect::Problem {
    let reason = match is_ready {
        true => format!("this replica {}", unheard.stays()),
        false => format!("this replica {unheard}: nothing is offered until it answers"),
    };
    inspect::Problem {
        object: API_SERVER.to_owned(),
        severity: Severity::Warning.as_str().to_owned(),
        reason,
        ..Default::default()
    }
}

/// That nothing is offered yet: no problem of any object may be known.
pub(super) fn starting(start: &Start, is_folder: bool) -> inspect::Problem {
    let object = if is_folder { "folder" } else { API_SERVER };
    inspect::Problem {
        object: object.to_owned(),
        severity: Severity::Warning.as_str().to_owned(),
        reason: format!("nothing is offered by this replica yet: {}", start.awaited()),
        ..Default::default()
    }
}

/// A proxy that does not serve the newest version of an object, with the resources of it that the proxy refuses.
pub(super) fn of_object(
    proxy: &Proxy,
    refusals: &[Refused],
    head: &Head,
    now: Instant,
) -> inspect::ObjectProxy {
    let since = |it: Instant| duration(now.saturating_duration_since(it));
    inspect::ObjectProxy {
        id: proxy.id.to_string(),
        node: proxy.node.to_string(),
        zone: proxy.zone.to_string(),
        acked: proxy.config.root.map(|root| root.short()).unwrap_or_default(),
        behind: proxy.behind_since(head).map(since),
        silent: proxy.silent_since().map(since),
        diverged: proxy.is_diverged(),
        refused: refusals.iter().map(refused).collect(),
    }
}

/// Spans that do not fit are capped.
fn duration(span: Duration) -> prost_types::Duration {
    span.try_into().unwrap_or_default()
}

fn timestamp(time: SystemTime) -> Timestamp {
    time.into()
}
