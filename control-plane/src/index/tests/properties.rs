//! Invariants under random events: there are few names, so that everything competes with everything.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

use super::fixture::*;
use crate::event::{Event, Hold, HoldRequest};
use crate::objects::{Object, ObjectKind, ObjectRef};
use crate::problem::{Problem, Severity};

const SERVICES: [&str; 6] = ["s0", "s0:http", "s1", "s1:81", "s2", "s2:http"];

pub(super) fn an_ingress(may_be_bad: bool) -> impl Strategy<Value = Object> {
    let path = (select(&["/", "", "/x", "=/x", "=/"][..]), select(&SERVICES[..]));
    let host = select(&["", "a.test", "b.test", "*.a.test"][..]);
    let rules = vec((host, vec(path, 0..3)), 0..3);
    let tls = vec((select(&["a.test", "b.test"][..]), select(&["", "c0", "c1"][..])), 0..2);
    let annotations = vec(
        select(
            &[
                ("canary", "true"),
                ("canary", "true"),
                ("canary-weight", "10"),
                ("canary-weight", "x"),
                ("ssl-redirect", "false"),
                ("auth-url", "https://auth.test"),
                ("auth-url", "http://s0.default.svc.cluster.local:81/x"),
                ("auth-tls-secret", "default/ca"),
                ("ssl-passthrough", "true"),
                ("server-alias", "c.test,b.test"),
                ("from-to-www-redirect", "true"),
                ("use-regex", "true"),
                ("rewrite-target", "/x"),
                ("affinity", "cookie"),
                ("affinity-mode", "persistent"),
                ("default-backend", "s2"),
                ("frobnicate", "1"),
            ][..],
        ),
        0..3,
    );
    let class = select(&["annotation", "annotation", "ours", "other", "none"][..]);
    let who = (select(&["i0", "i1", "i2", "i3"][..]), option::of(1..3_u32), select(&["", "u1", "u2"][..]));
    let bad = prop::bool::weighted(if may_be_bad { 0.3 } else { 0.0 });
    (who, class, rules, option::of(select(&SERVICES[..])), tls, annotations, bad).prop_map(
        |((name, at, uid), class, rules, default, tls, annotations, bad)| {
            let mut it = ingress(name).with(|it| match class {
                "annotation" => {}
                "none" => it["metadata"]["annotations"] = json!({}),
                class => it["spec"]["ingressClassName"] = json!(class),
            });
            it.0["metadata"]["uid"] = json!(uid);
            if let Some(at) = at {
                it = it.at(at);
            }
            for (host, paths) in &rules {
                it = it.rule(host, paths);
            }
            if let Some(default) = default {
                it = it.default_backend(default);
            }
            for (host, secret) in tls {
                it = it.tls(&[host], secret);
            }
            for (name, text) in annotations {
                it = it.annotation(name, text);
            }
            if bad {
                it = it.rule("a.test", &[("/etc/nginx", "s0")]);
            }
            it.into()
        },
    )
}

/// A main Ingress of several hosts, or a canary of some of them in any order: what attaches moves from rule to rule.
pub(super) fn a_split() -> impl Strategy<Value = Object> {
    let hosts = Just(vec!["a.test", "b.test", "c.test", ""]).prop_shuffle();
    let who = select(&[("i0", "s0"), ("i1", "s1"), ("i2", "s1"), ("i2", "s2")][..]);
    (who, hosts, 0..=4_usize).prop_map(|((name, service), hosts, count)| {
        let is_main = name == "i0";
        let hosts = hosts.into_iter().take(if is_main { 4 } else { count });
        let it = if is_main { ingress(name) } else { ingress(name).canary() };
        hosts.fold(it, |it, host| it.rule(host, &[("/", service)])).into()
    })
}

/// One of more Ingresses than are told who owns a path.
fn one_of_a_crowd() -> impl Strategy<Value = Object> {
    let paths = select(vec![vec!["/"], vec!["/"], vec!["/", "/"], vec!["/x", "=/x"], vec!["/x"]]);
    let host = select(&["a.test", "a.test", "a.test", ""][..]);
    let (is_default, is_canary) = (prop::bool::weighted(0.7), prop::bool::weighted(0.1));
    ((0..32_u32), option::of(1..30_u32), host, paths, is_default, is_canary).prop_map(
        |(i, at, host, paths, is_default, is_canary)| {
            let paths: Vec<_> = paths.iter().map(|path| (*path, "s0")).collect();
            let mut it = ingress(&format!("crowd-{i}")).rule(host, &paths);
            if let Some(at) = at {
                it = it.at(at);
            }
            if is_default {
                it = it.default_backend("s2");
            }
            if is_canary { it.canary() } else { it }.into()
        },
    )
}

fn a_service() -> impl Strategy<Value = Object> {
    let ports = select(vec![
        json!([{"name": "http", "port": 80, "targetPort": 8080}]),
        json!([{"port": 81}]),
        json!([{"name": "http", "port": 80, "targetPort": "web"}, {"name": "x", "port": 81, "protocol": "UDP"}]),
    ]);
    (select(&["s0", "s1", "s2"][..]), ports).prop_map(|(name, ports)| service_with(name, ports))
}

fn a_slice() -> impl Strategy<Value = Object> {
    let addresses = vec(select(&["10.0.0.1", "10.0.0.2", "127.0.0.1"][..]), 0..3);
    (select(&["e0", "e1", "e2"][..]), select(&["s0", "s1", "s2"][..]), addresses)
        .prop_map(|(name, service, addresses)| slice(name, service, &addresses))
}

fn a_secret(may_be_bad: bool) -> impl Strategy<Value = Object> {
    let bad = prop::bool::weighted(if may_be_bad { 0.4 } else { 0.0 });
    (select(&["c0", "c1"][..]), 0..2_usize, any::<bool>(), bad).prop_map(|(name, which, chained, bad)| {
        let (leaf, key) = pem(which);
        match (bad, chained) {
            (true, _) => secret_with(name, leaf, "no key"),
            (false, true) => secret_with(name, &format!("{leaf}{}", pem(0).0), key),
            (false, false) => secret(name, which),
        }
    })
}

fn a_class() -> impl Strategy<Value = Object> {
    (select(&["ours", "other"][..]), select(&["k8s.io/ingress-nginx", "example.com/x"][..]))
        .prop_map(|(name, controller)| class(name, controller))
}

fn a_configmap() -> impl Strategy<Value = Object> {
    let guarded = json!({"block-cidrs": "10.0.0.0/8", "x": "y"});
    select(vec![json!({}), json!({"ssl-redirect": "false"}), guarded]).prop_map(configmap)
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Apply(Object),
    Delete(Object),
    Break(Object),
    Commit,
}

fn steps(may_be_bad: bool) -> impl Strategy<Value = Vec<Step>> {
    steps_with(may_be_bad, 2)
}

/// With so many changes of slices for six of Ingresses.
pub(super) fn steps_with(may_be_bad: bool, slices: u32) -> impl Strategy<Value = Vec<Step>> {
    let object = prop_oneof![
        6 => an_ingress(may_be_bad),
        3 => a_split(),
        2 => a_service(),
        slices => a_slice(),
        2 => a_secret(may_be_bad),
        1 => a_class(),
        1 => a_configmap(),
    ];
    let step = (object, 0..10_u32).prop_map(move |(object, dice)| match dice {
        0 | 1 => Step::Delete(object),
        2 | 3 => Step::Commit,
        4 if may_be_bad => Step::Break(object),
        _ => Step::Apply(object),
    });
    vec(step, 0..40)
}

fn break_off(object: &Object) -> Event {
    Event::Broken {
        object: object.reference(),
        uid: object.metadata().uid.clone(),
        problem: Problem {
            object: object.reference().into(),
            field: String::new(),
            severity: Severity::Rejected,
            reason: "cannot be read".into(),
            location: String::new(),
        },
    }
}

/// The existing objects, as events, and the stored decisions.
#[derive(Default)]
pub(super) struct Truth {
    present: BTreeMap<ObjectRef, Event>,
    record: BTreeMap<ObjectRef, Hold>,
}

impl Truth {
    /// The event of a step, after it happened.
    pub(super) fn take(&mut self, step: Step) -> Option<Event> {
        let (key, event) = match step {
            Step::Commit => return None,
            Step::Delete(object) => {
                let key = object.reference();
                self.present.remove(&key);
                return Some(Event::Deleted(key));
            }
            Step::Apply(object) => (object.reference(), applied(object)),
            Step::Break(object) => (object.reference(), break_off(&object)),
        };
        self.present.insert(key, event.clone());
        Some(event)
    }

    /// Executes the index' requests, and returns what is read back.
    pub(super) fn obey(&mut self, requests: Vec<HoldRequest>) -> Vec<Event> {
        let obey = |request| match request {
            HoldRequest::Write(hold) => {
                self.record.insert(hold.object.reference(), hold.clone());
                Event::Held(hold)
            }
            HoldRequest::Erase(object) => {
                self.record.remove(&object);
                Event::Released(object)
            }
        };
        requests.into_iter().map(obey).collect()
    }

    pub(super) fn events(&self) -> Vec<Event> {
        let holds = self.record.values().cloned().map(Event::Held);
        self.present.values().cloned().chain(holds).collect()
    }
}

fn commit(world: &mut World, truth: &mut Truth, events: Vec<Event>) {
    let mut holds = world.events(events).holds;
    // It comes to rest: requests do not repeat forever.
    for _ in 0..3 {
        if holds.is_empty() {
            return;
        }
        let read_back = truth.obey(holds);
        holds = world.events(read_back).holds;
    }
    assert_eq!(holds, []);
}

pub(super) fn live_through(steps: Vec<Step>) -> (World, Truth) {
    let (mut world, mut truth, mut events) = (World::default(), Truth::default(), Vec::new());
    for step in steps {
        match truth.take(step) {
            Some(event) => events.push(event),
            None => commit(&mut world, &mut truth, std::mem::take(&mut events)),
        }
    }
    commit(&mut world, &mut truth, events);
    (world, truth)
}

pub(super) fn assert_same(world: &World, fresh: &World) {
    assert_eq!(world.config.root(), fresh.config.root(), "{:#?}\n{:#?}", world.dump(), fresh.dump());
    assert_eq!(world.live.root(), fresh.live.root(), "{:#?}\n{:#?}", world.dump(), fresh.dump());
    assert_eq!(world.config, fresh.config);
    assert_eq!(world.live, fresh.live);
    assert_eq!(world.index.problems(), fresh.index.problems());
    assert_eq!(world.index.wants(), fresh.index.wants());
}

impl World {
    fn dump(&self) -> Vec<String> {
        let kinds = shared::kind::Kind::ALL.into_iter();
        kinds.flat_map(|kind| self.all(kind)).map(|(key, resource)| format!("{key}: {resource:?}")).collect()
    }
}

proptest! {
    /// An index that was changed repeatedly equals one built afresh, problems included.
    #[test]
    fn incremental_equals_from_scratch(steps in steps(false)) {
        let (world, truth) = live_through(steps);
        let mut fresh = World::default();
        fresh.events(truth.events());
        assert_same(&world, &fresh);
    }

    /// The same if so many claim a path that not all are told who owns it.
    #[test]
    fn incremental_crowds_equal_those_from_scratch(
        steps in vec((one_of_a_crowd(), 0..16_u32), 100)
    ) {
        let steps = steps.into_iter().flat_map(|(object, dice)| match dice {
            0 => vec![Step::Delete(object), Step::Commit],
            1 | 2 => vec![Step::Apply(object), Step::Commit],
            _ => vec![Step::Apply(object)],
        });
        let (world, truth) = live_through(steps.collect());
        let mut fresh = World::default();
        fresh.events(truth.events());
        assert_same(&world, &fresh);
    }

    /// The same if only canaries change, each change committed.
    #[test]
    fn incremental_canaries_equal_those_from_scratch(splits in vec(a_split(), 0..12)) {
        let steps = splits.into_iter().flat_map(|split| [Step::Apply(split), Step::Commit]);
        let (world, truth) = live_through(steps.collect());
        let mut fresh = World::default();
        fresh.events(truth.events());
        assert_same(&world, &fresh);
    }

    /// The same if versions are rejected or cannot be decoded: the stored holds decide.
    #[test]
    fn what_counts_is_on_record(steps in steps(true)) {
        let (world, truth) = live_through(steps);
        let mut fresh = World::default();
        let commit = fresh.events(truth.events());
        prop_assert_eq!(commit.holds, vec![]);
        assert_same(&world, &fresh);
    }

    /// Neither the order of events nor the position of commits matters.
    #[test]
    fn any_order_of_events_is_the_same(
        (sorted, shuffled, commits) in steps(true)
            .prop_map(|steps| live_through(steps).1.events())
            .prop_flat_map(|events| (Just(events.clone()), Just(events).prop_shuffle(), any::<u64>()))
    ) {
        let mut world = World::default();
        world.events(sorted);
        let mut other = World::default();
        for (i, event) in shuffled.into_iter().enumerate() {
            other.index.apply(event);
            if commits >> (i % 64) & 1 == 1 {
                other.events([]);
            }
        }
        other.events([]);
        assert_same(&world, &other);
    }

    /// Nothing remains of deleted objects.
    #[test]
    fn nothing_leaks(steps in steps(true)) {
        let (mut world, mut truth) = live_through(steps);
        // The values of a deleted ConfigMap stay in use: one without any does not.
        let empty = truth.take(Step::Apply(configmap(json!({}))));
        commit(&mut world, &mut truth, empty.into_iter().collect());
        let all: Vec<_> = truth.present.keys().cloned().map(Event::Deleted).collect();
        commit(&mut world, &mut truth, all);
        prop_assert_eq!(world.config.len(), 4);
        prop_assert!(world.live.is_empty());
        prop_assert!(truth.record.is_empty(), "{:?}", truth.record);
        prop_assert!(world.index.problems().is_empty());
        prop_assert!(world.index.wants().is_empty());
        prop_assert!(world.index.backends.is_empty() && world.index.services.is_empty());
        prop_assert_eq!(world.index.hosts.len(), 1);
        prop_assert!(world.index.is_void());
    }
}

impl super::super::Index {
    fn is_void(&self) -> bool {
        if !(self.aliases.is_void() && self.callers.is_empty()) {
            return false;
        }
        ObjectKind::ALL.iter().all(|kind| {
            let names = ["i0", "i1", "i2", "i3", "s0", "s1", "s2", "e0", "e1", "e2", "c0", "c1"];
            names.iter().all(|name| self.objects.get(&reference(*kind, name)).is_none())
        })
    }
}
