//! Decides what to announce to the owners of objects: that a version is rejected, that proxies refuse it, and that either is over.
//! Each replica announces what it compiles itself, and what its own proxies refuse.
//!
//! **Invariant:** pure, and bounded by the number of faults. Recovery is announced only if it was observed, never because the proxies
//! that refused have disconnected.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use imbl::ordmap::DiffItem;
use shared::kind::Kind;
use shared::name::ObjectName;
use shared::resource::Resource;

use crate::annotations::row::Reach;
use crate::kube::events::{Announcement, Said};
use crate::objects::{ObjectKind, ObjectRef};
use crate::placed::Places;
use crate::problem::{Problem, Problems, Severity, Subject};
use crate::serve::message::Refused;
use crate::serve::registry::Proxy;
use crate::store::Head;

pub mod edge;

/// Annotations are what stands there.
const ANNOTATIONS: &str = "metadata.annotations[";
/// Faults that are told of one version.
const FAULTS: usize = 3;
/// Proxies that are remembered of those that refuse something of an object.
const REFUSERS: usize = 16;

/// What was said and is not over.
#[derive(Debug, Default)]
pub struct Announcer {
    /// As of the last look.
    problems: Problems,
    rejected: HashSet<ObjectRef>,
    /// Something changed about them, and nobody knew where they are yet.
    unplaced: BTreeSet<ObjectRef>,
    refused: HashMap<ObjectRef, Refusal>,
}

/// That proxies refuse what was made of an object.
#[derive(Debug, Default)]
struct Refusal {
    /// Each version of a resource that was refused, in short.
    seen: HashSet<u64>,
    /// Some of those that did.
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
    /// What is new about objects that are rejected, or were.
    pub fn rejected(&mut self, problems: &Problems, places: &Places) -> Vec<Announcement> {
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
                // Of one that is no more nothing is said: it was not accepted.
                if self.rejected.remove(&object) {
                    let note =
                        "its newest version is accepted, and served by all proxies that do not refuse it"
                            .to_owned();
                    announcements.extend(of(&object, places, Said::Accepted, note, String::new()));
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
            let (said, note) = rejection(&new, placed.made.is_served);
            let same = new.iter().map(|fault| format!("{}: {}\n", fault.field, fault.reason)).collect();
            announcements.extend(of(&object, places, said, note, same));
            self.rejected.insert(object);
        }
        announcements
    }

    /// What is new about objects of which proxies refuse something, or did.
    pub fn refused(&mut self, proxies: &[Proxy], places: &Places, head: &Head) -> Vec<Announcement> {
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
                announcements.extend(of(object, places, Said::Refused, note, same));
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
                    announcements.extend(of(&object, places, Said::Served, note, String::new()));
                }
            }
            self.refused.remove(&object);
        }
        announcements
    }
}

/// How a refusal ended.
enum End {
    /// Those that refused are on their way.
    NotYet,
    /// Nobody is left who did.
    Gone,
    /// Those that did are here, and refuse nothing of it.
    Served,
}

fn end(refusal: &Refusal, proxies: &[Proxy]) -> End {
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

/// What proxies refuse, by whose it is.
fn refusing<'a>(proxies: &'a [Proxy], places: &Places, head: &Head) -> HashMap<ObjectRef, Refusing<'a>> {
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
                _ => owner(refused, head).into_iter().collect(),
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

/// Whose a resource is.
fn owner(refused: &Refused, head: &Head) -> Option<ObjectRef> {
    let mut parts = refused.key.split('/');
    let kind = match refused.kind {
        Kind::Route => {
            let lower = parts.next()?;
            ObjectKind::ALL.into_iter().find(|kind| kind.lower() == lower)?
        }
        Kind::Backend => ObjectKind::Service,
        Kind::Certificate | Kind::Material => ObjectKind::Secret,
        Kind::Endpoints => {
            let key = shared::kind::ResourceKey::new(refused.kind, &*refused.key);
            let entry = head.live.snapshot.get(&key)?;
            let Ok(Resource::Endpoints(endpoints)) = Resource::decode(refused.kind, entry.body.clone())
            else {
                return None;
            };
            return Some(ObjectRef {
                kind: ObjectKind::Service,
                name: ObjectName::parse(&endpoints.service)?,
            });
        }
        // The fleet's, shared by certificates, or nobody's that is known.
        Kind::Settings | Kind::Listener | Kind::Host | Kind::Chain | Kind::Later(_) => return None,
    };
    Some(ObjectRef { kind, name: ObjectName::new(parts.next()?, parts.next()?) })
}

/// The Ingresses that name a host.
fn by_host(places: &Places) -> HashMap<&str, Vec<ObjectRef>> {
    let mut hosts: HashMap<&str, Vec<ObjectRef>> = HashMap::new();
    for (object, placed) in places.iter() {
        for host in placed.made.hosts.iter() {
            hosts.entry(host).or_default().push(object.clone());
        }
    }
    hosts
}

/// Why a version is not served, or why what one of its annotations guards is not; the faults in order.
fn faults<'a>(problems: &'a Problems, object: &ObjectRef) -> Vec<&'a Problem> {
    let all = problems.get(&Subject::Object(object.clone())).map(|problems| problems.iter());
    let mut faults: Vec<_> = all.into_iter().flatten().filter(|problem| is_told(problem)).collect();
    faults.sort();
    faults
}

/// As in the original what is rejected is told, and what is denied for an annotation: its paths answer 503.
fn is_told(problem: &Problem) -> bool {
    let denies = [Reach::Paths, Reach::Hosts].iter().any(|reach| problem.reason.ends_with(reach.as_str()));
    match problem.severity {
        Severity::Rejected => true,
        Severity::Unsupported => denies,
        Severity::Overridden | Severity::Warning => false,
    }
}

/// As ingress-nginx says it where it is an annotation (controller.md 7.4).
fn rejection(faults: &[&Problem], is_served: bool) -> (Said, String) {
    let is_annotation = faults.iter().all(|fault| fault.field.starts_with(ANNOTATIONS));
    let (said, begin) = match is_annotation {
        true => (Said::AnnotationParsingFailed, "Error parsing annotations: "),
        false => (Said::Rejected, ""),
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
    // What is served meanwhile is the end, and is not to be cut off.
    let room = NOTE - begin.len() - more.len() - meanwhile.len() - 2;
    let told = &told[..told.floor_char_boundary(room)];
    (said, format!("{begin}{told}{more}. {meanwhile}"))
}

/// Bytes of a note at most (validation of events.k8s.io/v1).
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

fn of(object: &ObjectRef, places: &Places, said: Said, note: String, same: String) -> Option<Announcement> {
    let made = &places.get(object)?.made;
    // An Event is about one object for ever: without knowing which it would be about any of its name.
    if made.uid.is_empty() {
        return None;
    }
    let (uid, resource_version) = (Arc::clone(&made.uid), Arc::clone(&made.resource_version));
    Some(Announcement { object: object.clone(), uid, resource_version, said, note, same })
}

#[cfg(test)]
mod tests;
