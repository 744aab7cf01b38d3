//! Manifests as people write them: `examples/real`, read and compiled as by the folder source.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path as FilePath;

use shared::kind::Kind;
use shared::name::ObjectName;

use crate::event::Event;
use crate::index::{Index, Options};
use crate::manifests::backlog;
use crate::manifests::disk::Disk;
use crate::manifests::folder::Folder;
use crate::manifests::watches::Watches;
use crate::objects::{Ingress, Object, ObjectKind, ObjectRef, Texts};
use crate::problem::{Severity, Subject};

/// The events of a folder.
fn read(dir: &FilePath) -> Vec<Event> {
    let found = Disk::new(dir.to_owned(), Watches::none()).scan().unwrap().found;
    Folder::default().update(backlog::parse(found)).events
}

fn examples() -> Vec<Event> {
    read(&FilePath::new(env!("CARGO_MANIFEST_DIR")).join("../examples/real"))
}

/// The Ingresses that have a route, and the reports, including warnings.
struct Outcome {
    routed: BTreeSet<ObjectName>,
    /// Keys of the Backends.
    backends: BTreeSet<String>,
    said: BTreeMap<String, Vec<(Severity, String)>>,
}

fn compile(events: &[Event], watch_without_class: bool) -> Outcome {
    let mut index = Index::new(Options { watch_without_class, folder: true, ..Options::usual() });
    events.iter().cloned().for_each(|event| index.apply(event));
    let commit = index.commit();
    let routes = commit.config.up.iter().filter(|entry| entry.kind() == Kind::Route);
    let routed = routes.filter_map(|entry| {
        let parts: Vec<_> = entry.key.key.split('/').collect();
        // The host comes last, before it the name and the namespace.
        let [.., namespace, name, _] = parts[..] else { return None };
        Some(ObjectName::new(namespace, name))
    });
    let mut said: BTreeMap<String, Vec<(Severity, String)>> = BTreeMap::new();
    for problem in index.problems().values().flat_map(|problems| problems.iter()) {
        let about = said.entry(problem.object.to_string()).or_default();
        about.push((problem.severity, problem.reason.clone()));
    }
    let backends = commit.config.up.iter().filter(|entry| entry.kind() == Kind::Backend);
    let backends = backends.map(|entry| entry.key.key.to_string()).collect();
    Outcome { routed: routed.collect(), backends, said }
}

impl Outcome {
    /// Whether it has a route, or is a canary with a Backend.
    fn serves(&self, ingress: &Ingress) -> bool {
        let name = ingress.metadata.object_name();
        let is_canary = ingress.metadata.annotations.contains_key("nginx.ingress.kubernetes.io/canary");
        let paths = ingress.spec.rules.iter().flat_map(|rule| &rule.http).flat_map(|http| &http.paths);
        let takes_requests = || {
            paths.clone().any(|path| {
                let service = path.backend.service.as_ref();
                service.is_some_and(|it| {
                    self.backends.contains(&format!("{}/{}/{}", name.namespace, it.name, it.port))
                })
            })
        };
        self.routed.contains(&name) || is_canary && takes_requests()
    }
}

fn ingresses(events: &[Event]) -> Vec<&Ingress> {
    let ingress = |event| match event {
        &Event::Applied { object: Object::Ingress(ref ingress), .. } => Some(&**ingress),
        _ => None,
    };
    events.iter().filter_map(ingress).collect()
}

/// Each Ingress that is ours is routed, or the reason is reported; nothing is reported about others.
fn nothing_vanishes(events: &[Event], outcome: &Outcome, foreign: &[&str]) {
    for ingress in ingresses(events) {
        let name = ingress.metadata.object_name();
        let object = ObjectRef { kind: ObjectKind::Ingress, name: name.clone() };
        let is_said = outcome.said.contains_key(&Subject::Object(object.clone()).to_string());
        let is_foreign = foreign.contains(&name.to_string().as_str());
        let is_routed = outcome.serves(ingress);
        assert_eq!(is_routed || is_said, !is_foreign, "{object}: routed {is_routed}, said {is_said}");
    }
}

#[test]
fn every_ingress_is_served_or_says_why_not() {
    let events = examples();
    assert!(ingresses(&events).len() >= 30);
    let is_bad = |event: &&Event| match event {
        Event::Broken { .. } => true,
        Event::Noted { problems, .. } => problems.iter().any(|it| it.severity != Severity::Warning),
        _ => false,
    };
    assert_eq!(events.iter().filter(is_bad).collect::<Vec<_>>(), [] as [&Event; 0], "they are all sound");
    let outcome = compile(&events, false);
    nothing_vanishes(&events, &outcome, &["team/internal-status"]);
    let unserved = ingresses(&events).into_iter().filter(|ingress| !outcome.serves(ingress));
    let unserved: Vec<_> = unserved.map(|ingress| ingress.metadata.object_name().to_string()).collect();
    assert_eq!(unserved, ["team/internal-status"]);
}

#[test]
fn without_any_class_they_are_served_all_the_same() {
    let mut events = examples();
    events.retain(|event| !matches!(event, Event::Applied { object: Object::IngressClass(_), .. }));
    let outcome = compile(&events, false);
    nothing_vanishes(&events, &outcome, &[]);
    assert!(!outcome.routed.contains(&ObjectName::new("home", "home-assistant")), "it names no class");
    let class = &outcome.said["IngressClass nginx"];
    assert!(class.len() == 1 && class[0].1.contains("served as if it existed"), "{class:?}");
    let outcome = compile(&events, true);
    assert!(outcome.routed.contains(&ObjectName::new("home", "home-assistant")));
}

#[test]
fn what_is_old_is_served_and_said() {
    let outcome = compile(&examples(), false);
    assert!(outcome.routed.contains(&ObjectName::new("legacy", "ledger")));
    let said = &outcome.said["Ingress legacy/ledger"];
    assert!(said.iter().any(|(_, reason)| reason.contains("extensions/v1beta1")), "{said:?}");
}

/// Services lose fields, Ingresses lose classes, backends and rules: none may disappear without a report.
#[test]
fn damaged_ones_do_not_vanish_either() {
    let whole = examples();
    type Damage = fn(&mut Ingress);
    let damages: [Damage; 6] = [
        |it| it.spec.ingress_class_name = Some("nowhere".into()),
        |it| it.spec.ingress_class_name = None,
        |it| it.metadata.annotations = Texts::default(),
        |it| it.spec.rules.clear(),
        |it| it.spec.rules.iter_mut().for_each(|rule| rule.http = None),
        |it| {
            let https = it.spec.rules.iter_mut().flat_map(|rule| &mut rule.http);
            https.flat_map(|http| &mut http.paths).for_each(|path| path.backend.service = None);
        },
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let events = whole.iter().cloned().map(|event| match event {
            Event::Applied { object: Object::Ingress(mut ingress), location } => {
                damage(std::sync::Arc::make_mut(&mut ingress));
                Event::Applied { object: Object::Ingress(ingress), location }
            }
            event => event,
        });
        let events: Vec<_> = events.collect();
        let outcome = compile(&events, false);
        for ingress in ingresses(&events) {
            let name = ingress.metadata.object_name();
            let is_foreign = ingress.spec.ingress_class_name.as_deref() == Some("internal");
            let object = ObjectRef { kind: ObjectKind::Ingress, name: name.clone() };
            let is_told = outcome.serves(ingress) || outcome.said.contains_key(&object.to_string());
            assert!(is_told || is_foreign, "{name} after damage {number}");
        }
    }
}
