//! The resources of an object, one by one: which are refused, held back, and reported to other replicas.

use super::*;
use crate::pin::{How, Pin};

const SECRET: &str = "default/c1";
const PARTS: [(Kind, &str); 9] = [
    (Kind::Route, "ingress/default/i1/a.test"),
    (Kind::Host, "a.test"),
    (Kind::Backend, "default/s1/80"),
    (Kind::Endpoints, "default/e0"),
    (Kind::Certificate, SECRET),
    (Kind::Chain, "chain"),
    (Kind::Material, "default/c1/auth-file"),
    (Kind::Listener, "tcp-9000"),
    (Kind::Settings, "default"),
];

/// A version of one of them. Hosts name the Secret, slices and ports the Service `s1`.
fn version((kind, key): (Kind, &str), value: u8) -> Arc<Entry> {
    let resource = match kind {
        Kind::Host => Resource::Host(Host {
            tls: Some(Tls { certificates: vec![SECRET.to_owned()] }),
            denied: Some(Denial { reason: value.to_string() }),
            ..Host::default()
        }),
        Kind::Endpoints => Resource::Endpoints(Endpoints {
            service: "default/s1".to_owned(),
            ipv4: vec![[10, 0, 0, value].into()],
            ..Endpoints::default()
        }),
        Kind::Listener => listener("s1", value > 1),
        Kind::Certificate => Resource::Certificate(Certificate {
            leaf: vec![value].into(),
            key: vec![1].into(),
            chain: Some("chain".to_owned()),
        }),
        _ => return Arc::new(Entry::from_body(ResourceKey::new(kind, key), 1, vec![value].into())),
    };
    Arc::new(Entry::encode(key, &resource))
}

struct Plane {
    store: Store,
    published: Published,
    places: Placements,
}

impl Plane {
    /// With all of them, and the objects that they are of.
    fn new() -> Self {
        let (store, published) = Store::new(Lineage([1; 16]), clock::now());
        let mut plane = Self { store, published, places: Placements::default() };
        plane.put(&PARTS, 1, None);
        let reports = objects().into_iter().map(|it| (it.clone(), Report::Compiled(made(&it)))).collect();
        let head = plane.published.head();
        plane.places.settle(reports, head.log_positions());
        plane
    }

    fn put(&mut self, parts: &[(Kind, &str)], value: u8, pin: Option<&Arc<Pin>>) {
        let mut changes = Changes { pin: pin.cloned(), ..Changes::default() };
        for part in parts {
            let delta = if part.0.lane() == Lane::Live { &mut changes.live } else { &mut changes.config };
            delta.up.push(version(*part, value));
        }
        self.store.commit(changes, clock::now(), clock::wall());
    }

    /// Asks of the objects `i1`, `i10`, `s1`, `s10`, `c1` and `c10`.
    fn all<T>(&self, ask: impl Fn(&Extent<'_>) -> T) -> Vec<T> {
        let (head, objects) = (self.published.head(), objects());
        let of = |object| Extent::of(object, self.places.get(object).map(|it| &**it), &head).unwrap();
        objects.iter().map(|object| ask(&of(object))).collect()
    }

    /// How they are on a proxy that has all, refuses this, and so many more on either lane.
    fn states(&self, refused: Option<(Kind, &str)>, more: [u32; 2]) -> Vec<ObjectState> {
        let (head, budget) = (self.published.head(), Budget::new(1 << 20));
        let standing = |lane: Lane, more: u32| {
            let list = refused.iter().filter(|(kind, _)| kind.lane() == lane).map(super::refused);
            let refused = Refusals::keep(list, &budget);
            let refused_total = refused.len() as u32 + more;
            Standing { root: Some(head.lane(lane).root), refused_total, refused, ..Standing::default() }
        };
        let registry = Arc::new(Registry::default());
        let seat = registry.enter(&Hello::of("p-1"), Claim::random(), "", clock::wall()).unwrap();
        seat.update(&standing(Lane::Config, more[0]), &standing(Lane::Live, more[1]));
        let proxy = registry.list().remove(0);
        self.all(|extent| extent.state(&proxy))
    }
}

/// Which of the objects a resource is a part of.
fn whose(states: &[ObjectState]) -> Vec<&'static str> {
    let names = ["i1", "i10", "s1", "s10", "c1", "c10"];
    let is_refused = |state: &ObjectState| matches!(state, ObjectState::Refused(_));
    names.into_iter().zip(states).filter(|(_, state)| is_refused(state)).map(|(name, _)| name).collect()
}

#[test]
fn what_is_refused_is_told_to_all_who_cannot_do_without_it() {
    let plane = Plane::new();
    for (part, expected) in PARTS.into_iter().zip([
        &["i1"][..],
        &["i1"],
        &["i1", "s1"],
        &["i1", "s1"],
        &["i1", "c1"],
        &["i1", "c1"],
        &["i1", "c1"],
        &["s1"],
        // They hold for all paths: for want of them a proxy denies all, or has an older list of who is let in.
        &["i1", "i10"],
    ]) {
        assert_eq!(whose(&plane.states(Some(part), [0, 0])), expected, "{part:?}");
    }
}

/// More is refused than is named, on either lane: perhaps something of this.
#[test]
fn what_is_refused_without_a_name_may_be_anybody_s() {
    let plane = Plane::new();
    assert!(plane.states(None, [0, 0]).iter().all(|state| *state == ObjectState::Programmed));
    for more in [[1, 0], [0, 1]] {
        assert!(plane.states(None, more).iter().all(|state| *state == ObjectState::Unknown), "{more:?}");
    }
}

#[test]
fn what_a_pin_keeps_back_is_told_to_whom_it_is_of() {
    for (part, expected) in [
        (PARTS[0], [true, false, false, false, false, false]),
        (PARTS[1], [true, false, false, false, false, false]),
        (PARTS[2], [true, false, true, false, false, false]),
        (PARTS[4], [false; 6]),
        (PARTS[7], [false, false, true, false, false, false]),
    ] {
        let mut plane = Plane::new();
        let config = plane.published.head().config.snapshot.clone();
        let lasts = std::time::Duration::from_secs(60);
        let pin = Arc::new(Pin::new(How::Pin, config.root(), config, clock::wall(), lasts, ""));
        plane.put(&[], 1, Some(&pin));
        assert!(plane.all(|extent| extent.is_held_back()).iter().all(|is| !is));
        plane.put(&[part], 2, Some(&pin));
        assert_eq!(plane.all(|extent| extent.is_held_back()), expected, "{part:?}");
    }
}

/// Nothing of it is offered, or ever was.
#[test]
fn what_came_after_a_pin_did_is_kept_back_too() {
    let mut plane = Plane::new();
    let config = plane.published.head().config.snapshot.clone();
    let lasts = std::time::Duration::from_secs(60);
    let pin = Arc::new(Pin::new(How::Pin, config.root(), config, clock::wall(), lasts, ""));
    plane.put(&[(Kind::Backend, "default/s10/80")], 1, Some(&pin));
    // The Ingress that names it, too.
    let expected = [false, true, false, true, false, false];
    assert_eq!(plane.all(|extent| extent.is_held_back()), expected);
}

/// Two replicas speak of the same where all of it is the same.
#[test]
fn the_digest_of_an_object_is_over_each_of_its_parts() {
    for (part, expected) in PARTS.into_iter().zip([
        [true, false, false, false, false, false],
        [true, false, false, false, false, false],
        [true, false, true, false, false, false],
        [false, false, true, false, false, false],
        [false, false, false, false, true, false],
        [false; 6],
        [false, false, false, false, true, false],
        [false, false, true, false, false, false],
        [false; 6],
    ]) {
        let mut plane = Plane::new();
        let before = plane.all(|extent| extent.digest());
        plane.put(&[part], 2, None);
        let differs: Vec<_> =
            before.iter().zip(plane.all(|extent| extent.digest())).map(|(a, b)| *a != b).collect();
        assert_eq!(differs, expected, "{part:?}");
    }
}
