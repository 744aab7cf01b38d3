//! Decides what to announce to the owners of objects: that a version is rejected, that proxies refuse it, and that
//! either has ended. Each replica announces what it compiles itself, and what its own proxies refuse.
//!
//! **Invariant:** pure, and bounded by the number of faults. Recovery is announced only if it was observed, never
//! because the proxies that refused have disconnected.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use bytes::Bytes;
use imbl::ordmap::DiffItem;
use shared::kind::{Kind, ResourceKey};
use shared::name::ObjectName;
use shared::resource::Resource;

use crate::annotations::row::Reach;
use crate::kube::events::{Announcement, EventReason};
use crate::objects::{ObjectKind, ObjectRef};
use crate::placement::Placements;
use crate::problem::{ANNOTATIONS, Problem, Problems, Severity, Subject};
use crate::serve::message::Refused;
use crate::serve::registry::Proxy;
use crate::store::Head;

pub mod edge;

/// Limit of the faults that are announced for one version.
const FAULTS: usize = 3;
/// Limit of the proxies that are remembered as refusing something of an object.
const REFUSERS: usize = 16;

/// What was announced and has not ended.
#[derive(Debug, Default)]
pub struct Announcer {
    /// The problems as of the previous call.
    problems: Problems,
    rejected: HashSet<ObjectRef>,
    /// Objects whose problems changed before it was known where the objects are.
    unplaced: BTreeSet<ObjectRef>,
    refused: HashMap<ObjectRef, Announced>,
}

/// The announced refusals of one object.
#[derive(Debug, Default)]
struct Announced {
    /// Hash of each version of a resource that was refused.
    seen: HashSet<u64>,
    /// Some of the proxies that refused.
    proxies: BTreeSet<Arc<str>>,
}

/// What proxies refuse of one object at this moment.
#[derive(Debug, Default)]
struct Refusing<'a> {
    resources: BTreeMap<(Kind, &'a str), &'a Refused>,
    seen: HashSet<u64>,
    proxies: BTreeSet<Arc<str>>,
}

impl Announcer {
    /// Announcements about objects that are, or were, rejected.
    pub fn rejected(&mut self, problems: &Problems, places: &Placements) -> Vec<Announcement> {
        let mut changed = std::mem::take(&mut self.unplaced);
        for item in self.problems.diff(problems) {
            let (DiffItem::Add(subject, _)
            | DiffItem::Update { new: (subject, _), .. }
            | DiffItem::Remove(subject, _)) = item;
            if let Subject::Object(object) = subject {
                changed.insert(object.clone());
            }
        }
        let before = std::mem::replace(&mut self.problems, problems.clone());
        let mut announcements = Vec::new();
        for object in changed {
            let (old, new) = (faults(&before, &object), faults(problems, &object));
            if new.is_empty() {
                // A deleted object is not announced: it was not accepted.
                if self.rejected.remove(&object) {
                    let note =
                        "its newest version is accepted, and served by all proxies that do not refuse it"
                            .to_owned();
                    announcements.extend(of(&object, places, EventReason::Accepted, note, String::new()));
                }
                continue;
            }
            if old == new && self.rejected.contains(&object) {
                continue;
            }
            let Some(placed) = places.get(&object) else {
                self.unplaced.insert(object);
                continue;
            };
            let (reason, note) = rejection(&new, placed.compiled.is_served);
            let same = new.iter().map(|fault| format!("{}: {}\n", fault.field, fault.reason)).collect();
            announcements.extend(of(&object, places, reason, note, same));
            self.rejected.insert(object);
        }
        announcements
    }

    /// Announcements about objects of which proxies refuse, or refused, something.
    pub fn refused(&mut self, proxies: &[Proxy], places: &Placements, head: &Head) -> Vec<Announcement> {
        let mut refusing = refusing(proxies, places, head);
        let mut announcements = Vec::new();
        for (object, now) in refusing.iter_mut().filter(|(object, _)| places.get(object).is_some()) {
            let before = self.refused.entry(object.clone()).or_default();
            let is_news = !now.seen.is_subset(&before.seen);
            before.seen = std::mem::take(&mut now.seen);
            before.proxies.append(&mut now.proxies);
            while before.proxies.len() > REFUSERS {
                before.proxies.pop_last();
            }
            if is_news && let Some(first) = now.resources.values().next() {
                let note = refusal(first, now.resources.len() - 1, object);
                let same = first.code.to_owned();
                announcements.extend(of(object, places, EventReason::Refused, note, same));
            }
        }
        let is_over = |object: &ObjectRef| !refusing.contains_key(object);
        let over: Vec<_> = self.refused.keys().filter(|object| is_over(object)).cloned().collect();
        for object in over {
            let Some(refusal) = self.refused.get(&object) else { continue };
            match end(refusal, proxies) {
                End::NotYet => continue,
                End::Gone => {}
                End::Served => {
                    let note = "no proxy of this control plane refuses any part of it any more".to_owned();
                    announcements.extend(of(&object, places, EventReason::Served, note, String::new()));
                }
            }
            self.refused.remove(&object);
        }
        announcements
    }
}

/// How a refusal ended.
enum End {
    /// The proxies that refused have not acknowledged the new version yet.
    NotYet,
    /// None of the proxies that refused is connected.
    Gone,
    /// The proxies that refused are connected, and refuse nothing of it any more.
    Served,
}

fn end(refusal: &Announced, proxies: &[Proxy]) -> End {
    let mut those = proxies.iter().filter(|proxy| refusal.proxies.contains(&proxy.id)).peekable();
    if those.peek().is_none() {
        return End::Gone;
    }
    let has_said = |proxy: &Proxy| {
        let begins = proxy.config.root.is_none() || proxy.live.root.is_none();
        let is_cut = proxy.refused_total() as usize > proxy.refused().count();
        !begins && !is_cut && !proxy.is_silent() && !proxy.is_diverged()
    };
    match those.all(has_said) {
        true => End::Served,
        false => End::NotYet,
    }
}

/// What proxies refuse, by the object that it was compiled from.
fn refusing<'a>(proxies: &'a [Proxy], places: &Placements, head: &Head) -> HashMap<ObjectRef, Refusing<'a>> {
    let mut owners: HashMap<(Kind, &str), Vec<ObjectRef>> = HashMap::new();
    let mut hosts = None;
    let mut objects: HashMap<ObjectRef, Refusing<'_>> = HashMap::new();
    for proxy in proxies {
        for refused in proxy.refused() {
            let key = (refused.kind, &*refused.key);
            let found = owners.entry(key).or_insert_with(|| match refused.kind {
                Kind::Host => {
                    let hosts = hosts.get_or_insert_with(|| by_host(places));
                    hosts.get(&*refused.key).cloned().unwrap_or_default()
                }
                _ => {
                    let key = ResourceKey::new(refused.kind, &*refused.key);
                    let body = |key: &ResourceKey| Some(head.live.snapshot.get(key)?.body.clone());
                    owner(&key, body).into_iter().collect()
                }
            });
            for object in found {
                let it = objects.entry(object.clone()).or_default();
                it.resources.entry(key).or_insert(refused);
                let mut hasher = DefaultHasher::new();
                (refused.kind, &refused.key, refused.version.0).hash(&mut hasher);
                it.seen.insert(hasher.finish());
                if it.proxies.len() < REFUSERS {
                    it.proxies.insert(Arc::clone(&proxy.id));
                }
            }
        }
    }
    objects
}

/// The object that a resource was compiled from. `body` gets that of a resource of the LIVE lane.
pub fn owner(key: &ResourceKey, body: impl FnOnce(&ResourceKey) -> Option<Bytes>) -> Option<ObjectRef> {
    let mut parts = key.key.split('/');
    let kind = match key.kind {
        Kind::Route => {
            let lower = parts.next()?;
            ObjectKind::ALL.into_iter().find(|kind| kind.lower() == lower)?
        }
        Kind::Backend => ObjectKind::Service,
        Kind::Certificate | Kind::Material => ObjectKind::Secret,
        Kind::Endpoints => {
            let Ok(Resource::Endpoints(endpoints)) = Resource::decode(key.kind, &body(key)?) else {
                return None;
            };
            return Some(ObjectRef {
                kind: ObjectKind::Service,
                name: ObjectName::parse(&endpoints.service)?,
            });
        }
        // These belong to the fleet, are shared by certificates, or have no known owner.
        Kind::Settings | Kind::Listener | Kind::Host | Kind::Chain | Kind::Later(_) => return None,
    };
    Some(ObjectRef { kind, name: ObjectName::new(parts.next()?, parts.next()?) })
}

/// The Ingresses that name a host.
fn by_host(places: &Placements) -> HashMap<&str, Vec<ObjectRef>> {
    let mut hosts: HashMap<&str, Vec<ObjectRef>> = HashMap::new();
    for (object, placed) in places.iter() {
        for host in placed.compiled.hosts.iter() {
            hosts.entry(host).or_default().push(object.clone());
        }
    }
    hosts
}

/// Why a version, or what one of its annotations guards, is not served; the faults in order.
fn faults<'a>(problems: &'a Problems, object: &ObjectRef) -> Vec<&'a Problem> {
    let all = problems.get(&Subject::Object(object.clone())).map(|problems| problems.iter());
    let mut faults: Vec<_> = all.into_iter().flatten().filter(|problem| is_told(problem)).collect();
    faults.sort();
    faults
}

/// As in ingress-nginx: rejections are announced, and denials caused by an annotation, whose paths answer 503.
pub fn is_told(problem: &Problem) -> bool {
    let denies = [Reach::Paths, Reach::Hosts].iter().any(|reach| problem.reason.ends_with(reach.as_str()));
    match problem.severity {
        Severity::Rejected => true,
        Severity::Unsupported | Severity::Warning => denies,
        Severity::Overridden => false,
    }
}

/// For an annotation, worded as ingress-nginx does.
fn rejection(faults: &[&Problem], is_served: bool) -> (EventReason, String) {
    let is_annotation = faults.iter().all(|fault| fault.field.starts_with(ANNOTATIONS));
    let (reason, begin) = match is_annotation {
        true => (EventReason::AnnotationParsingFailed, "Error parsing annotations: "),
        false => (EventReason::Rejected, ""),
    };
    let told = faults.iter().take(FAULTS).map(|fault| match fault.field.is_empty() {
        true => fault.reason.clone(),
        false => format!("{}: {}", fault.field, fault.reason),
    });
    let told = told.collect::<Vec<_>>().join("; ");
    let more = match faults.len().saturating_sub(FAULTS) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let is_rejected = faults.iter().any(|fault| fault.severity == Severity::Rejected);
    let meanwhile = match (is_rejected, is_served) {
        (true, true) => "Its last good version is served",
        (true, false) => "No version of it is served",
        (false, _) => "This version is in force",
    };
    // The note ends with what is served meanwhile; that part must not be cut off.
    let room = NOTE - begin.len() - more.len() - meanwhile.len() - 2;
    let told = &told[..told.floor_char_boundary(room)];
    (reason, format!("{begin}{told}{more}. {meanwhile}"))
}

/// Limit of a note in bytes (validation of events.k8s.io/v1).
const NOTE: usize = 1_024;

fn refusal(first: &Refused, more: usize, object: &ObjectRef) -> String {
    let Refused { kind, key, code, reason, serving_last_good, .. } = first;
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    let meanwhile = match serving_last_good {
        true => "They serve the previous version",
        false => "They serve nothing instead",
    };
    let (lower, name) = (object.kind.lower(), &object.name);
    let end = format!(" ({code}){more}. {meanwhile}; `firth status {lower} {name}` lists them");
    let begin = format!("proxies cannot serve {} {key}: ", kind.as_str());
    let begin = &begin[..begin.floor_char_boundary(NOTE / 2)];
    let room = NOTE.saturating_sub(begin.len() + end.len());
    format!("{begin}{}{end}", &reason[..reason.floor_char_boundary(room)])
}

fn of(
    object: &ObjectRef,
    places: &Placements,
    reason: EventReason,
    note: String,
    same: String,
) -> Option<Announcement> {
    let compiled = &places.get(object)?.compiled;
    // An Event refers to one object by uid; without the uid it would be about any object of that name.
    if compiled.uid.is_empty() {
        return None;
    }
    let (uid, resource_version) = (Arc::clone(&compiled.uid), Arc::clone(&compiled.resource_version));
    Some(Announcement { object: object.clone(), uid, resource_version, reason, note, same })
}

#[cfg(test)]
mod tests;
