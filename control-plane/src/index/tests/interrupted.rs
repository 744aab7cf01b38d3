//! Compiles that are interrupted and continued, with endpoints that change meanwhile.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use shared::kind::Kind;
use shared::resource::Resource;

use super::fixture::*;
use super::properties::{Step, Truth, assert_same, steps_with};
use crate::compile::endpoints;
use crate::event::Event;
use crate::index::Commit;
use crate::objects::ObjectKind;

impl World {
    /// Continues for this many pieces; returns whether that was all.
    fn pieces(&mut self, mut pieces: usize) -> bool {
        self.index.compile(|| {
            pieces = pieces.saturating_sub(1);
            pieces == 0
        })
    }

    /// The Endpoints that the committed configuration needs, from the current slices.
    fn needed(&self) -> BTreeMap<String, Resource> {
        let backends = self.keys(Kind::Backend).into_iter();
        let services = backends.filter_map(|key| Some(key.rsplit_once('/')?.0.to_owned()));
        let services: std::collections::BTreeSet<_> = services.collect();
        let slices = ["e0", "e1", "e2"].map(name);
        let needed = slices.iter().filter_map(|name| {
            let slice = self.index.objects.slice(name)?;
            let is_needed = services.contains(&slice.service()?.to_string());
            let endpoints = is_needed.then(|| endpoints::compile(slice, false).0)??;
            Some((name.to_string(), Resource::Endpoints(endpoints)))
        });
        needed.collect()
    }

    fn has_what_is_needed(&self) {
        let published: BTreeMap<_, _> = self.all(Kind::Endpoints).into_iter().collect();
        assert_eq!(published, self.needed());
    }

    /// As [`World::events`], in pieces: endpoints change in between.
    fn interrupted(&mut self, events: Vec<Event>, cuts: &mut impl Iterator<Item = usize>) -> Commit {
        let mut cut = || cuts.next().unwrap_or_default();
        let (endpoints, objects): (Vec<_>, Vec<_>) = (events.into_iter())
            .partition(|event| event.object().is_some_and(|it| it.kind == ObjectKind::EndpointSlice));
        let mut endpoints = endpoints.into_iter();
        for event in endpoints.by_ref().take(cut() % 2).chain(objects) {
            self.index.apply(event);
        }
        loop {
            let is_done = self.pieces(cut());
            for event in endpoints.by_ref().take((cut() % 3).max(usize::from(is_done))) {
                self.index.apply(event);
            }
            if cut() % 4 > 0 {
                self.early();
                self.has_what_is_needed();
            }
            if is_done && endpoints.len() == 0 {
                break;
            }
        }
        let commit = self.events([]);
        self.has_what_is_needed();
        commit
    }
}

proptest! {
    /// An interruption does not affect the result; meanwhile LIVE has exactly what the committed configuration needs.
    #[test]
    fn interruptions_do_not_show(steps in steps_with(true, 8), cuts in vec(0..12_usize, 1..40)) {
        let mut cuts = cuts.into_iter().cycle();
        let (mut whole, mut cut) = (World::default(), World::default());
        let (mut truth, mut events) = (Truth::default(), Vec::new());
        for step in steps.into_iter().chain([Step::Commit, Step::Commit, Step::Commit]) {
            if let Some(event) = truth.take(step) {
                events.push(event);
                continue;
            }
            let now = std::mem::take(&mut events);
            let commit = whole.events(now.clone());
            let other = cut.interrupted(now, &mut cuts);
            assert_same(&cut, &whole);
            prop_assert_eq!(&other.config, &commit.config);
            prop_assert_eq!(&other.holds, &commit.holds);
            events = truth.obey(commit.holds);
        }
    }
}

/// The class of `web` changes, which takes its Backend away, and the compile is nearly done with it.
fn leaving() -> World {
    let mut world = World::default();
    world.events([
        applied(class("ours", "k8s.io/ingress-nginx")),
        applied(
            ingress("web")
                .rule("a.test", &[("/", "s0")])
                .with(|it| it["spec"]["ingressClassName"] = "ours".into()),
        ),
        applied(slice("e0", "s0", &["10.0.0.1"])),
        applied(slice("e1", "s0", &["10.0.0.2"])),
    ]);
    assert_eq!(world.keys(Kind::Endpoints), ["default/e0", "default/e1"]);
    world.index.apply(applied(class("ours", "example.com/other")));
    while !world.pieces(1) {
        if world.index.published.has(Kind::Endpoints, "default/e0") {
            continue;
        }
        return world;
    }
    panic!("the slice goes before the end")
}

#[test]
fn what_the_committed_configuration_needs_stays_while_the_next_one_is_compiled() {
    let mut world = leaving();
    assert!(world.early().live.is_empty(), "nothing that the compile takes away");

    world.index.apply(applied(slice("e0", "s0", &["10.0.0.3"])));
    let commit = world.early();
    assert_eq!((commit.live.up.len(), commit.live.removed.len()), (1, 0));
    assert_eq!(commit.cause, "endpoints of default/s0: 1 of 2 changed");
    world.has_what_is_needed();

    let commit = world.events([]);
    assert!(world.live.is_empty() && world.routes().is_empty());
    assert_eq!(commit.live.removed.len(), 2);
    assert!(commit.live.removed.iter().all(|removal| !removal.gone));
    assert_eq!(commit.cause, "IngressClass ours: changed");
}

#[test]
fn what_is_gone_goes_at_once() {
    let mut world = leaving();
    world.index.apply(Event::Deleted(reference(ObjectKind::EndpointSlice, "e0")));
    let commit = world.early();
    assert_eq!(commit.live.removed.len(), 1);
    assert!(commit.live.removed[0].gone);
    assert_eq!(commit.cause, "endpoints of default/s0: 2 -> 1");
    assert_eq!(world.events([]).live.removed.len(), 1);
}

#[test]
fn what_only_the_next_configuration_needs_waits_for_it() {
    let mut world = World::default();
    world.events([applied(slice("e0", "s0", &["10.0.0.1"]))]);
    world.index.apply(applied(ingress("web").rule("a.test", &[("/", "s0")])));
    while !world.pieces(1) {
        world.index.apply(applied(slice("e0", "s0", &["10.0.0.2"])));
        assert!(world.early().live.is_empty());
    }
    let commit = world.events([]);
    assert_eq!(commit.live.up.len(), 1);
    assert_eq!(commit.cause, "2 changes, first: Ingress default/web: created");
}

#[test]
fn each_piece_is_small_and_nothing_is_compiled_twice() {
    let mut world = World::default();
    let many = (0..100).map(|i| {
        let host = format!("h{i}.test");
        let web = ingress(&format!("web-{i}")).rule(&host, &[("/", "s0")]);
        applied(web.with(|it| it["spec"]["ingressClassName"] = "ours".into()))
    });
    world.events(many.chain([applied(slice("e0", "s0", &["10.0.0.1"]))]));
    world.index.apply(applied(class("ours", "k8s.io/ingress-nginx")));
    let mut pieces = 0;
    while !world.pieces(1) {
        pieces += 1;
        world.early();
    }
    assert!(pieces > 300, "{pieces}");
    let commit = world.events([]);
    assert_eq!((commit.config.len(), commit.live.len()), (201, 1));
    assert_eq!(commit.compiled, 202);
}
