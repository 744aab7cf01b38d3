//! Determines on how many proxies an object is programmed.
//!
//! **Invariant:** `programmed` equals `total` only if every proxy that may serve was heard from, has the newest version
//! of the object, and refuses nothing of it. A proxy that was not heard from is unknown.

use std::sync::Arc;
use std::time::Duration;

use shared::clock;
use shared::name::ObjectName;
use shared::proto::inspect;
use tokio::sync::watch;
use tonic::{Code, Status};

use super::reading::Reading;
use super::share::words;
use super::{GAP, Inspect, OTHERS, convert};
use crate::compile::settings::ALL_PATHS;
use crate::objects::{ObjectKind, ObjectRef};
use crate::peers::fleet::{About, Fleet, Member, Other};
use crate::placement::{Placement, Placements};
use crate::problem::{Problem, Problems, Severity, Subject};
use crate::rollout::Extent;
use crate::serve::registry::Registry;
use crate::store::Head;

/// The state of an object that may exist and is not ours any more.
const NOT_SERVED: &str = "not-served";
/// Limit of the proxies that are listed for each state.
pub(super) const NAMED: usize = 100;
/// Limit of the problems in the error for an unknown object: they are returned in a header.
const TOLD: usize = 3;
/// Interval at which a watcher looks again in any case: the time that a proxy has been silent matters, too.
const LOOK: Duration = Duration::from_secs(5);

impl Inspect {
    /// # Errors
    /// If there is no such object, and nothing is remembered of it.
    pub(super) async fn status_of(
        &self,
        object: &ObjectRef,
        reading: &Reading,
    ) -> Result<inspect::StatusResponse, Status> {
        // Before it is looked at: what comes in between only makes the answer newer.
        let unread = reading.problem();
        let answer = self.status_now(object).await;
        let Some(unread) = unread else {
            return answer;
        };
        match answer {
            Ok(mut answer) => {
                answer.state = words::UNKNOWN.to_owned();
                answer.fleet.push(unread);
                Ok(answer)
            }
            Err(status) if status.code() == Code::NotFound => {
                Err(Status::not_found(format!("{}; the folder: {}", status.message(), unread.reason)))
            }
            Err(status) => Err(status),
        }
    }

    async fn status_now(&self, object: &ObjectRef) -> Result<inspect::StatusResponse, Status> {
        // Before other replicas are asked: an unknown object costs them nothing.
        let alone = self.local(object, &[])?;
        if self.peers.is_none() {
            return Ok(alone);
        }
        // The others first: what is known here afterwards is no older than their answers.
        let (kind, name) = (object.kind.as_str().to_owned(), &object.name);
        let (namespace, name) = (name.namespace.to_string(), name.name.to_string());
        let others = self.peers.ask(Some(inspect::StatusRequest { kind, namespace, name })).await;
        self.local(object, &others)
    }

    /// Combines what is known here with the answers of others.
    fn local(&self, object: &ObjectRef, others: &[Other]) -> Result<inspect::StatusResponse, Status> {
        // In this order, so that the object's placement is never ahead of the head.
        let (placed, is_known, is_foreign) = {
            let places = self.places.borrow();
            (places.get(object).cloned(), places.has_known(object), places.is_foreign(object))
        };
        let head = self.offered()?;
        let known = self.problems_of(object);
        let problems = known.as_deref().unwrap_or_default();
        let extent = Extent::of(object, placed.as_deref(), &head).filter(|_| is_known);
        let extent = extent.ok_or_else(|| missing(object, problems))?;
        let mut own = self.share_object(&extent, &head, clock::now());
        own.object_version = self.compiled_version(object, placed.as_deref(), &extent);
        let mut answer = count(Fleet::of(own, others.to_vec(), !self.peers.is_none()));
        answer.object = object.to_string();
        answer.uncounted = self.folder.is_some();
        answer.deleted = placed.is_none() && !is_foreign;
        if let Some(placed) = &placed {
            answer.resource_version = placed.compiled.resource_version.to_string();
            answer.version = placed.version.short();
        }
        answer.problems = problems.iter().map(convert::problem).collect();
        answer.fleet =
            of_fleet(&self.problems.borrow(), &self.configmap, object).map(convert::problem).collect();
        let forbidden = self.start.source.forbidden().into_iter();
        answer.fleet.extend(forbidden.map(|it| convert::forbidden(it, true)));
        answer.fleet.extend(self.start.source.failing().iter().map(|it| convert::failing(it, true)));
        answer.pin = convert::pin(&head);
        let is_rejected = placed.as_ref().is_some_and(|placed| is_rejected(placed, problems));
        answer.serves_earlier =
            is_rejected && placed.as_ref().is_some_and(|placed| placed.compiled.is_served);
        let is_held_back = extent.is_held_back();
        let is_stale = placed.as_ref().is_some_and(|placed| placed.compiled.is_stale);
        if is_rejected || is_held_back || is_stale {
            // Counts are about the newest version; an older one is served.
            answer.programmed = 0;
        }
        answer.state = match state(&answer, is_rejected, is_held_back) {
            // Whether all proxies know that already or not: the numbers say that.
            _ if is_foreign && !is_held_back => NOT_SERVED.to_owned(),
            words::PROGRAMMED if is_stale => words::UNKNOWN.to_owned(),
            state => state.to_owned(),
        };
        Ok(answer)
    }

    /// The problems of an object, including one that is not served.
    pub(super) fn problems_of(&self, object: &ObjectRef) -> Option<Arc<[Problem]>> {
        self.problems.borrow().get(&Subject::Object(object.clone())).cloned()
    }
}

/// The problems of the fleet's ConfigMap and of IngressClasses that concern every host, except those of the object
/// itself.
fn of_fleet<'a>(
    problems: &'a Problems,
    configmap: &ObjectName,
    object: &'a ObjectRef,
) -> impl Iterator<Item = &'a Problem> + use<'a> {
    let settings = ObjectRef { kind: ObjectKind::ConfigMap, name: configmap.clone() };
    let settings = problems.get_key_value(&Subject::Object(settings)).into_iter();
    let first = ObjectRef { kind: ObjectKind::IngressClass, name: ObjectName::new("", "") };
    let is_class =
        |it: &Subject| matches!(it, Subject::Object(other) if other.kind == ObjectKind::IngressClass);
    let classes = problems.range(Subject::from(first)..).take_while(move |(subject, _)| is_class(subject));
    let others = settings
        .chain(classes)
        .filter(move |(subject, _)| !matches!(subject, Subject::Object(it) if it == object));
    let concerns_all = |problem: &&Problem| {
        problem.severity == Severity::Rejected
            || problem.field.is_empty()
            || problem.reason.ends_with(ALL_PATHS)
    };
    others.flat_map(|(_, problems)| problems.iter()).filter(concerns_all).take(NAMED)
}

/// Counts the proxies by state, and lists some that are not programmed.
fn count(fleet: Fleet) -> inspect::StatusResponse {
    let mut answer = inspect::StatusResponse { settled: fleet.settled, ..Default::default() };
    for Member { shared, about, .. } in fleet.members.into_values() {
        answer.total += 1;
        let (list, total) = match (&*shared.state, about) {
            (words::PROGRAMMED, About::Same) => {
                answer.programmed += 1;
                continue;
            }
            (words::SILENT, _) => (&mut answer.silent, &mut answer.silent_total),
            (words::REFUSED, About::Same) => (&mut answer.refused, &mut answer.refused_total),
            (words::BEHIND, _) => (&mut answer.behind, &mut answer.behind_total),
            (words::UNKNOWN, About::Same) | (_, About::OtherBuild) => {
                (&mut answer.unknown, &mut answer.unknown_total)
            }
            // A replica that offers another version has sent its proxies something else.
            _ => (&mut answer.behind, &mut answer.behind_total),
        };
        *total += 1;
        if list.len() < NAMED {
            let named = inspect::ObjectProxy { id: shared.id, ..Default::default() };
            list.push(shared.of_object.unwrap_or(named));
        }
    }
    for proxy in fleet.lost.into_values() {
        answer.total += 1;
        answer.unknown_total += 1;
        if answer.unknown.len() < NAMED {
            answer.unknown.push(convert::lost(proxy));
        }
    }
    answer.replicas = fleet.replicas;
    answer
}

pub(super) fn is_rejected(placed: &Placement, problems: &[Problem]) -> bool {
    placed.compiled.is_rejected || problems.iter().any(|problem| problem.severity == Severity::Rejected)
}

/// The worst state that applies.
fn state(answer: &inspect::StatusResponse, is_rejected: bool, is_held_back: bool) -> &'static str {
    let heard = answer.total - answer.silent_total - answer.unknown_total;
    let is_whole = answer.replicas.iter().all(|replica| replica.unreachable.is_empty());
    match answer {
        _ if is_rejected => "rejected",
        _ if is_held_back => "held-back",
        it if heard == 0 && it.unknown_total == 0 => "unknown",
        it if it.refused_total > 0 => "refused",
        it if it.behind_total > 0 => "behind",
        it if it.silent_total > 0 => "silent",
        it if it.unknown_total > 0 || !it.settled || !is_whole => "unknown",
        it if it.deleted => "deleted",
        _ => "programmed",
    }
}

/// Why the object is not known: the actual reason, or possible ones.
fn missing(object: &ObjectRef, problems: &[Problem]) -> Status {
    let told = |Problem { field, reason, .. }: &Problem| match &**field {
        "" => reason.clone(),
        field => format!("{reason} (at {field})"),
    };
    let why: Vec<_> = problems.iter().take(TOLD).map(told).collect();
    let or = match object.kind {
        ObjectKind::Ingress => ", or it has another class",
        ObjectKind::Secret => ", or nothing that is served refers to it",
        _ => "",
    };
    Status::not_found(match why.is_empty() {
        true => format!(
            "{object} is not served here: it does not exist, or not in a namespace that is watched{or}"
        ),
        false => format!("{object} is not served: {}", why.join("; ")),
    })
}

/// A watcher of an object's status.
#[derive(Debug)]
pub(super) struct Watcher {
    inspect: Inspect,
    object: ObjectRef,
    heads: watch::Receiver<Arc<Head>>,
    places: watch::Receiver<Placements>,
    problems: watch::Receiver<Problems>,
    proxies: watch::Receiver<u64>,
    /// What was in the folder when it came.
    reading: Reading,
    last: Option<Result<inspect::StatusResponse, String>>,
}

impl Watcher {
    pub(super) fn new(inspect: &Inspect, object: ObjectRef) -> Self {
        Self {
            heads: inspect.published.heads(),
            places: inspect.places.clone(),
            problems: inspect.problems.clone(),
            proxies: Registry::changes(&inspect.registry),
            reading: inspect.reading(),
            inspect: inspect.clone(),
            object,
            last: None,
        }
    }

    /// The next status that differs from the last one; `None` when the process ends. A missing object is reported
    /// without a state, since it may be created.
    pub(super) async fn next(&mut self) -> Option<inspect::StatusResponse> {
        let look = if self.inspect.peers.is_none() { LOOK } else { OTHERS };
        if self.last.is_none() && self.inspect.published.head().is_ready() {
            tokio::select! {
                () = self.reading.wait() => {}
                _ = self.inspect.leaving.wait_for(|leaving| *leaving) => return None,
            }
        }
        loop {
            self.heads.mark_unchanged();
            self.places.mark_unchanged();
            self.problems.mark_unchanged();
            self.proxies.mark_unchanged();
            let status = self.inspect.status_of(&self.object, &self.reading).await;
            let status = status.map_err(|status| status.message().to_owned());
            if self.last.as_ref() != Some(&status) {
                self.last = Some(status.clone());
                let known = || self.inspect.problems_of(&self.object).unwrap_or_default();
                let absent = || inspect::StatusResponse {
                    object: self.object.to_string(),
                    uncounted: self.inspect.folder.is_some(),
                    problems: known().iter().map(convert::problem).collect(),
                    ..Default::default()
                };
                return Some(status.unwrap_or_else(|_| absent()));
            }
            tokio::select! {
                changed = self.heads.changed() => changed.ok()?,
                changed = self.places.changed() => changed.ok()?,
                changed = self.problems.changed() => changed.ok()?,
                changed = self.proxies.changed() => changed.ok()?,
                () = self.reading.over() => {}
                _ = self.inspect.leaving.wait_for(|leaving| *leaving) => return None,
                () = tokio::time::sleep(look) => {}
            }
            tokio::time::sleep(GAP).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Fault;

    /// In a rolling upgrade all proxies of one build were "behind" for the other one, whatever they served.
    #[test]
    fn proxies_of_another_build_are_behind_only_with_another_version() {
        let share = |replica, compile_revision, version: &str, state: &str| inspect::ShareResponse {
            replica: vec![replica; 16].into(),
            object: vec![replica; 16].into(),
            settled: true,
            compile_revision,
            object_version: version.to_owned(),
            proxies: vec![inspect::SharedProxy {
                id: replica.to_string(),
                state: state.to_owned(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let counted = |revision, version, state| {
            let at = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
            let other = Other::answered(at, share(2, revision, version, state));
            let answer = count(Fleet::of(share(1, 1, "12", words::PROGRAMMED), vec![other], true));
            let of_all = (answer.programmed, answer.behind_total, answer.refused_total, answer.unknown_total);
            assert_eq!(answer.total, 2);
            of_all
        };
        assert_eq!(counted(2, "12", words::PROGRAMMED), (2, 0, 0, 0));
        assert_eq!(counted(2, "12", words::REFUSED), (1, 0, 1, 0));
        assert_eq!(counted(2, "12", words::BEHIND), (1, 1, 0, 0));
        assert_eq!(counted(2, "11", words::PROGRAMMED), (1, 1, 0, 0));
        assert_eq!(
            counted(2, "", words::PROGRAMMED),
            (1, 0, 0, 1),
            "it rejects it, or is older than this field"
        );
        assert_eq!(counted(2, "", words::BEHIND), (1, 1, 0, 0));
        assert_eq!(counted(1, "12", words::PROGRAMMED), (1, 1, 0, 0), "the same build makes the same of it");
    }

    #[test]
    fn what_concerns_every_host_is_told_of_each_object() {
        let named =
            |kind, namespace: &str, name: &str| ObjectRef { kind, name: ObjectName::new(namespace, name) };
        let settings = named(ObjectKind::ConfigMap, "fleet", "settings");
        let class = named(ObjectKind::IngressClass, "", "nginx");
        let of_app = named(ObjectKind::ConfigMap, "default", "app");
        let web = named(ObjectKind::Ingress, "default", "web");
        let problem = |object: &ObjectRef, fault: Fault| Problem {
            object: object.clone().into(),
            field: fault.field,
            severity: fault.severity,
            reason: fault.reason,
            location: String::new(),
        };
        let guards =
            Fault::new(Severity::Unsupported, "data.enable-modsecurity", format!("until then {ALL_PATHS}"));
        let tunes = Fault::new(Severity::Unsupported, "data.worker-processes", "has no effect here");
        let deleted = Fault::new(Severity::Warning, "", "was deleted");
        let unreadable = Fault::new(Severity::Rejected, "data.port", "expected a string, got a number");
        let mut problems = Problems::new();
        for (object, faults) in [
            (&web, vec![Fault::new(Severity::Warning, "", "its own")]),
            (&class, vec![deleted]),
            (&of_app, vec![unreadable.clone()]),
            (&settings, vec![guards, tunes, unreadable]),
        ] {
            let all: Vec<_> = faults.into_iter().map(|fault| problem(object, fault)).collect();
            problems.insert(object.clone().into(), all.into());
        }
        let told = |object| {
            of_fleet(&problems, &settings.name, object).map(|it| it.reason.clone()).collect::<Vec<_>>()
        };
        let expected = ["until then all paths answer 503", "expected a string, got a number", "was deleted"];
        assert_eq!(
            told(&web),
            expected,
            "what is wrong with the ConfigMap of an application is not among it"
        );
        assert_eq!(told(&settings), ["was deleted"], "its own are among its problems");
    }
}
