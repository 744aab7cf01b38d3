use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use shared::budget::Budget;
use shared::clock;
use shared::delta::{Delta, Removal};
use shared::name::ObjectName;
use shared::resource::{Certificate, Denial, Endpoints, Host, StreamService, Tls, Transport};
use shared::snapshot::Snapshot;
use shared::version::{Claim, Lineage, Version};

mod parts;

use super::*;
use crate::placement::{Compiled, Placements, Report};
use crate::serve::message::Hello;
use crate::serve::refusals::Refusals;
use crate::serve::registry::{Registry, Seat};
use crate::serve::session::Standing;
use crate::store::{Changes, Published, Store};

/// Names of which one begins with another: a prefix ends with its slash.
const KEYS: &[(Kind, &str)] = &[
    (Kind::Route, "ingress/default/i1/a.test"),
    (Kind::Route, "ingress/default/i1/b.test"),
    (Kind::Route, "ingress/default/i10/a.test"),
    (Kind::Host, "a.test"),
    (Kind::Host, "b.test"),
    (Kind::Backend, "default/s1/80"),
    (Kind::Backend, "default/s10/80"),
    (Kind::Listener, "tcp-9000"),
    (Kind::Endpoints, "default/e0"),
    (Kind::Certificate, "default/c1"),
    (Kind::Certificate, "default/c10"),
    (Kind::Material, "default/c1/auth-file"),
    (Kind::Settings, "default"),
];

/// What a proxy says that refuses a resource.
fn refused((kind, key): &(Kind, &str)) -> Refused {
    Refused {
        kind: *kind,
        key: (*key).into(),
        version: Version([0; 16]),
        code: "invalid",
        reason: "".into(),
        serving_last_good: false,
    }
}

fn objects() -> Vec<ObjectRef> {
    let named = |kind, name| ObjectRef { kind, name: ObjectName::new("default", name) };
    vec![
        named(ObjectKind::Ingress, "i1"),
        named(ObjectKind::Ingress, "i10"),
        named(ObjectKind::Service, "s1"),
        named(ObjectKind::Service, "s10"),
        named(ObjectKind::Secret, "c1"),
        named(ObjectKind::Secret, "c10"),
    ]
}

fn texts(texts: &[&str]) -> Arc<[Arc<str>]> {
    texts.iter().map(|text| Arc::from(*text)).collect()
}

fn made(object: &ObjectRef) -> Compiled {
    let (backends, materials): (&[&str], &[&str]) = match &*object.name.name {
        "i1" => (&["default/s1/80"], &["default/c1/auth-file"]),
        "i10" => (&["default/s10/80"], &[]),
        _ => (&[], &[]),
    };
    Compiled {
        is_served: true,
        backends: texts(backends),
        materials: texts(materials),
        ..Compiled::default()
    }
}

/// A port that leads to a Service.
fn listener(service: &str, takes_proxy_header: bool) -> Resource {
    Resource::Listener(Listener::Service(StreamService {
        transport: Transport::Tcp,
        port: 9_000,
        backend: format!("default/{service}/80"),
        takes_proxy_header,
        sends_proxy_header: false,
    }))
}

/// A recognisable version of a resource.
fn entry(at: usize, value: u8) -> Arc<Entry> {
    let (kind, key) = KEYS[at];
    let denied = Some(Denial { reason: value.to_string() });
    let resource = match kind {
        Kind::Host => {
            let tls = Tls {
                certificates: vec![format!("default/{}", if value.is_multiple_of(2) { "c1" } else { "c10" })],
            };
            Resource::Host(Host { tls: Some(tls), denied, ..Host::default() })
        }
        Kind::Endpoints => {
            let service = format!("default/{}", if value.is_multiple_of(2) { "s1" } else { "s10" });
            Resource::Endpoints(Endpoints {
                service,
                ipv4: vec![[10, 0, 0, value].into()],
                ..Endpoints::default()
            })
        }
        Kind::Listener => listener(if value.is_multiple_of(2) { "s1" } else { "s10" }, value > 1),
        Kind::Certificate => {
            Resource::Certificate(Certificate { leaf: vec![value].into(), key: vec![1].into(), chain: None })
        }
        _ => return Arc::new(Entry::from_body(ResourceKey::new(kind, key), 1, vec![value].into())),
    };
    Arc::new(Entry::encode(key, &resource))
}

#[derive(Clone, Debug)]
enum Act {
    /// Resources that change or are removed, and objects that are reported: compiled or deleted.
    Commit(Vec<(Index, Option<u8>)>, Vec<(Index, bool)>),
    /// A proxy acknowledges a commit on a lane.
    Ack(usize, bool, Index),
    Refuse(usize, Vec<Index>, bool),
    Diverge(usize, bool),
    Connect(usize),
    Lose(usize),
    Leave(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let proxy = || 0..4_usize;
    let changes = vec((any::<Index>(), option::weighted(0.7, 0..4_u8)), 0..4);
    let act = prop_oneof![
        4 => (changes, vec((any::<Index>(), prop::bool::weighted(0.8)), 0..3)).prop_map(|(a, b)| Act::Commit(a, b)),
        6 => (proxy(), any::<bool>(), any::<Index>()).prop_map(|(a, b, c)| Act::Ack(a, b, c)),
        2 => (proxy(), vec(any::<Index>(), 0..3), prop::bool::weighted(0.2)).prop_map(|(a, b, c)| Act::Refuse(a, b, c)),
        1 => (proxy(), any::<bool>()).prop_map(|(a, b)| Act::Diverge(a, b)),
        3 => proxy().prop_map(Act::Connect),
        1 => select(vec![0, 1, 2, 3]).prop_map(Act::Lose),
        1 => proxy().prop_map(Act::Leave),
    ];
    vec(act, 1..60)
}

struct World {
    store: Store,
    published: Published,
    places: Placements,
    registry: Arc<Registry>,
    seats: Vec<Option<Seat>>,
    standing: Vec<[Standing; 2]>,
    budget: Budget,
    /// Every state so far, of both lanes.
    states: Vec<[Snapshot; 2]>,
    /// The positions of both lanes after the last commit that reported an object.
    told: Vec<Option<(Seq, Seq)>>,
}

fn lanes() -> [Lane; 2] {
    [Lane::Config, Lane::Live]
}

impl World {
    fn new() -> Self {
        let (mut store, published) = Store::new(Lineage([1; 16]), clock::now());
        store.commit(Changes::default(), clock::now(), clock::wall());
        let mut world = Self {
            store,
            published,
            places: Placements::default(),
            registry: Arc::default(),
            seats: (0..4).map(|_| None).collect(),
            standing: vec![Default::default(); 4],
            budget: Budget::new(1 << 20),
            states: Vec::new(),
            told: vec![None; objects().len()],
        };
        world.note();
        world
    }

    fn note(&mut self) {
        let head = self.published.head();
        for at in 0..2 {
            let state = head.lane(lanes()[at]);
            // Each place of a lane's log once.
            while self.states.len() <= state.seq.0 as usize {
                self.states.push(self.states.last().cloned().unwrap_or_default());
            }
            for later in &mut self.states[state.seq.0 as usize..] {
                later[at] = state.snapshot.clone();
            }
        }
    }

    fn commit(&mut self, changes: Vec<(Index, Option<u8>)>, told: Vec<(Index, bool)>) {
        let changes: std::collections::BTreeMap<_, _> =
            changes.into_iter().map(|(at, value)| (at.index(KEYS.len()), value)).collect();
        let mut deltas = [Delta::default(), Delta::default()];
        for (at, value) in changes {
            let key = ResourceKey::new(KEYS[at].0, KEYS[at].1);
            let delta = &mut deltas[usize::from(key.kind.lane() == Lane::Live)];
            match value {
                Some(value) => delta.up.push(entry(at, value)),
                None => delta.removed.push(Removal { key, gone: true }),
            }
        }
        let [config, live] = deltas;
        self.store.commit(Changes { config, live, ..Changes::default() }, clock::now(), clock::wall());
        self.note();
        let head = self.published.head();
        let mut reports = std::collections::BTreeMap::new();
        for (at, is_there) in told {
            let (at, all) = (at.index(objects().len()), objects());
            self.told[at] = is_there.then_some((head.config.seq, head.live.seq));
            reports.insert(
                all[at].clone(),
                if is_there { Report::Compiled(made(&all[at])) } else { Report::Deleted },
            );
        }
        let reports = reports.into_iter().collect();
        self.places.settle(reports, head.log_positions());
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Commit(changes, told) => return self.commit(changes, told),
            Act::Ack(proxy, is_live, which) => {
                let (at, lane) = (usize::from(is_live), lanes()[usize::from(is_live)]);
                let newest = self.published.head().lane(lane).seq.0;
                let seq = 1 + which.index(newest as usize) as u64;
                let standing = &mut self.standing[proxy][at];
                if seq >= standing.seq.0 {
                    (standing.seq, standing.root) = (Seq(seq), Some(self.states[seq as usize][at].root()));
                }
            }
            Act::Refuse(proxy, which, is_cut) => {
                for (at, lane) in lanes().into_iter().enumerate() {
                    let keys = which.iter().map(|which| &KEYS[which.index(KEYS.len())]);
                    let list = keys.filter(|(kind, _)| kind.lane() == lane).map(refused);
                    let kept = Refusals::keep(list, &self.budget);
                    self.standing[proxy][at].refused_total = kept.len() as u32 + u32::from(is_cut);
                    self.standing[proxy][at].refused = kept;
                }
            }
            Act::Diverge(proxy, diverged) => self.standing[proxy][0].diverged = diverged,
            Act::Connect(proxy) => {
                let hello = Hello::of(&format!("host{proxy}-{proxy:016x}"));
                if self.seats[proxy].is_none() {
                    self.standing[proxy] = Default::default();
                    let seat = self.registry.enter(&hello, Claim::random(), "", clock::wall());
                    self.seats[proxy] = Some(seat.unwrap());
                }
            }
            Act::Lose(proxy) => self.seats[proxy] = None,
            Act::Leave(proxy) => {
                if let Some(seat) = self.seats[proxy].take() {
                    seat.leave();
                }
            }
        }
        for (seat, [config, live]) in self.seats.iter().zip(&self.standing) {
            if let Some(seat) = seat {
                seat.update(config, live);
            }
        }
    }

    /// Whether a resource is the object's, by looking at all that there is.
    fn is_part(&self, object: &ObjectRef, (kind, key): (Kind, &str)) -> bool {
        let head = self.states.last().unwrap();
        let name = object.name.to_string();
        let there = |kind: Kind, key: &str| {
            head.iter().flat_map(Snapshot::iter).find(|it| it.kind() == kind && *it.key.key == *key)
        };
        let decoded = |kind, key: &str| Resource::decode(kind, &there(kind, key)?.body).ok();
        let hosts: Vec<&str> = ["a.test", "b.test"]
            .into_iter()
            .filter(|host| there(Kind::Route, &format!("ingress/{name}/{host}")).is_some())
            .collect();
        let service = || match decoded(Kind::Endpoints, key) {
            Some(Resource::Endpoints(it)) => it.service,
            _ => String::new(),
        };
        let made = self.places.get(object).map(|placed| placed.compiled.clone()).unwrap_or_default();
        match (object.kind, kind) {
            (ObjectKind::Ingress, Kind::Route) => key.split('/').nth(2) == Some(&*object.name.name),
            (ObjectKind::Ingress, Kind::Settings) => self.places.get(object).is_some(),
            (ObjectKind::Ingress, Kind::Host) => hosts.contains(&key),
            (ObjectKind::Ingress, Kind::Backend) => made.backends.iter().any(|it| **it == *key),
            (ObjectKind::Ingress, Kind::Material) => made.materials.iter().any(|it| **it == *key),
            (ObjectKind::Ingress, Kind::Endpoints) => {
                let service = service();
                made.backends.iter().any(|it| **it == *format!("{service}/80"))
            }
            (ObjectKind::Ingress, Kind::Certificate) => hosts.iter().any(|host| {
                let host = decoded(Kind::Host, host);
                matches!(host, Some(Resource::Host(it)) if it.tls.as_ref().unwrap().certificates[0] == key)
            }),
            (ObjectKind::Service, Kind::Endpoints) => service() == name,
            (ObjectKind::Service, Kind::Listener) => match decoded(kind, key) {
                Some(Resource::Listener(Listener::Service(it))) => it.backend == format!("{name}/80"),
                _ => false,
            },
            (ObjectKind::Service, Kind::Backend) => key.split('/').nth(1) == Some(&*object.name.name),
            (ObjectKind::Secret, Kind::Certificate) => key == name,
            (ObjectKind::Secret, Kind::Material) => key.split('/').nth(1) == Some(&*object.name.name),
            _ => false,
        }
    }

    /// Whether all states of a lane from a position on have the same of the object, which was reported before.
    fn is_acknowledged(&self, at: usize, which: usize, standing: &Standing) -> bool {
        let lane = lanes()[at];
        let head = self.published.head();
        let newest = head.lane(lane);
        if standing.root == Some(newest.root) {
            return true;
        }
        if standing.root.is_none() {
            return false;
        }
        let told = self.told[which].map_or(Seq(0), |(config, live)| if at == 0 { config } else { live });
        // What is refused at a LIVE Secret or slice is looked up; what must have come is what stands under the object's name.
        let counts = |kind: Kind| match objects()[which].kind {
            ObjectKind::Ingress => matches!(kind, Kind::Route | Kind::Host | Kind::Backend),
            ObjectKind::Service => matches!(kind, Kind::Backend | Kind::Listener),
            _ => matches!(kind, Kind::Certificate | Kind::Material),
        };
        let mut own = KEYS.iter().filter(|it| counts(it.0) && it.0.lane() == lane);
        standing.seq >= told
            && own.all(|(kind, key)| {
                let key = ResourceKey::new(*kind, *key);
                let is_same =
                    |state: &[Snapshot; 2]| state[at].version(&key) == newest.snapshot.version(&key);
                !self.is_part(&objects()[which], (*kind, &key.key))
                    || self.states[standing.seq.0 as usize..].iter().all(is_same)
            })
    }

    fn expected(&self, which: usize, proxy: &Proxy) -> ObjectState {
        let object = &objects()[which];
        let both = [&proxy.config, &proxy.live];
        if proxy.is_silent() {
            return ObjectState::Silent;
        }
        if both.iter().any(|it| it.diverged) {
            return ObjectState::Diverged;
        }
        if !(0..2).all(|at| self.is_acknowledged(at, which, both[at])) {
            return ObjectState::Behind;
        }
        let refused: Vec<_> = both
            .iter()
            .flat_map(|it| it.refused.iter())
            .filter(|it| self.is_part(object, (it.kind, &it.key)))
            .cloned()
            .collect();
        match both.iter().any(|it| it.refused_total as usize > it.refused.len()) {
            _ if !refused.is_empty() => ObjectState::Refused(refused),
            true => ObjectState::Unknown,
            false => ObjectState::Programmed,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn where_an_object_is_equals_what_all_states_say(acts in acts()) {
        let mut world = World::new();
        for act in acts {
            world.act(act);
            let head = world.published.head();
            for (which, object) in objects().iter().enumerate() {
                let placed = world.places.get(object).map(|it| &**it);
                let Some(extent) = Extent::of(object, placed, &head) else {
                    prop_assert!(placed.is_none());
                    continue;
                };
                prop_assert!(!extent.is_held_back(), "nothing is pinned");
                for proxy in world.registry.list() {
                    let expected = world.expected(which, &proxy);
                    prop_assert_eq!(extent.state(&proxy), expected, "{} on {}", object, proxy.id);
                }
            }
        }
    }
}
