use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const NODES: [&str; 4] = ["10.184.7.40:8080", "10.184.7.41:8080", "10.184.7.42:8080", "10.184.7.43:8080"];

impl Member for &'static str {
    type Order = Self;

    fn order(&self) -> Self {
        self
    }

    fn name(&self) -> String {
        (*self).to_owned()
    }
}

impl Member for u32 {
    type Order = Self;

    fn order(&self) -> Self {
        *self
    }

    fn name(&self) -> String {
        format!("10.1.{}.{}:80", self / 256, self % 256)
    }
}

/// The algorithm as specified, without optimisations.
fn slow(members: &BTreeSet<u32>) -> impl Fn(u32) -> Option<u32> {
    let mut points: Vec<(u32, u32)> = Vec::new();
    for member in members {
        points.extend(hashes(&member.name()).map(|hash| (hash, *member)));
    }
    points.sort_unstable();
    move |hash| {
        points.iter().find(|(point, _)| *point >= hash).or_else(|| points.first()).map(|(_, member)| *member)
    }
}

fn all<T: Clone>(ring: &Ring<T>) -> Vec<u32> {
    ring.buckets.iter().flat_map(|bucket| bucket.iter().map(|point| point.hash())).collect()
}

#[test]
fn points_are_chained() {
    let ring = Ring::new([NODES[0]]);
    let points = all(&ring);
    assert_eq!((points.len(), ring.points), (160, 160));
    assert_eq!((points[0], points[159]), (49_829_803, 4_262_490_280));
    for point in [3_930_598_503, 93_426_226, 1_456_291_591, 2_767_514_545] {
        assert!(points.contains(&point), "{point}");
    }
}

#[test]
fn keys_lead_where_they_led() {
    let ring = Ring::new(NODES[..3].iter().copied());
    let known =
        [("/alma/armud", 0), ("/", 2), ("/index.html", 0), ("user-2", 1), ("192.168.1.1", 2), ("", 1)];
    for (key, place) in known {
        assert_eq!(ring.find(crc32fast::hash(key.as_bytes())), Some(&NODES[place]), "{key}");
    }
    assert_eq!(Ring::<u32>::default().find(7), None);
    assert_eq!(Ring::<u32>::default().walk(7).next(), None);
}

#[test]
fn a_new_member_takes_its_share_and_nothing_else_moves() {
    let before = Ring::new(NODES[..3].iter().copied());
    let after = before.changed([], [NODES[3]]);
    let keys: Vec<u32> = (0..200).map(|i| crc32fast::hash(format!("k{i}").as_bytes())).collect();
    let places = keys.iter().map(|key| (before.find(*key), after.find(*key)));
    let moved: Vec<_> = places.filter(|(before, after)| before != after).collect();
    assert_eq!(moved.len(), 50);
    assert!(moved.iter().all(|(_, after)| *after == Some(&NODES[3])));
}

#[test]
fn members_with_the_same_point_are_told_apart() {
    // Two different members have no point in common here, so they are given one.
    let mut ring = Ring::new([7u32, 3]);
    change(&mut ring.buckets, &[], &[Point::new(1, 0), Point::new(1, 1)]);
    assert_eq!(ring.find(1), Some(&3), "whatever their numbers");
    assert_eq!(ring.number(1, &7), Some(0));
}

#[test]
fn a_member_may_leave_and_come_at_once() {
    let ring = Ring::new([3u32, 7]);
    let after = ring.changed([7], [7]);
    assert_eq!((all(&after), after.points), (all(&ring), ring.points));
}

#[test]
fn a_change_of_many_touches_few_buckets() {
    let ring = Ring::new(0..20_000u32);
    let after = ring.changed([77], []);
    let copied = ring.buckets.iter().zip(&after.buckets).filter(|(a, b)| !Arc::ptr_eq(a, b)).count();
    assert!(copied <= POINTS, "{copied} of {}", ring.buckets.len());
    assert!(ring.buckets.len() > 10 * POINTS, "{}", ring.buckets.len());
    let points = |buckets: &[Arc<[Point]>]| buckets.iter().map(|it| it.len()).max();
    assert!(points(&ring.buckets) < Some(1_000), "{:?}", points(&ring.buckets));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// However members are added and removed, keys map as for the whole set, and a walk meets all members from there
    /// on.
    #[test]
    fn as_if_made_anew(
        steps in prop::collection::vec(prop::collection::btree_set(0..40_u32, 0..12), 1..8),
        keys in prop::collection::vec(any::<u32>(), 1..20),
    ) {
        let mut ring = Ring::default();
        let mut has = BTreeSet::new();
        for toggled in steps {
            let left: Vec<u32> = toggled.intersection(&has).copied().collect();
            let come: Vec<u32> = toggled.difference(&has).copied().collect();
            ring = ring.changed(left, come);
            has = has.symmetric_difference(&toggled).copied().collect();
            prop_assert_eq!(ring.points, has.len() * POINTS);
            prop_assert!(all(&ring).is_sorted());
            let (made, slow) = (Ring::new(has.iter().copied()), slow(&has));
            prop_assert_eq!(all(&ring), all(&made));
            for key in keys.iter().copied().chain([0, u32::MAX]) {
                prop_assert_eq!(ring.find(key).copied(), slow(key));
                prop_assert_eq!(made.find(key), ring.find(key));
                prop_assert_eq!(ring.walk(key).count(), ring.points);
                prop_assert_eq!(&ring.walk(key).copied().collect::<BTreeSet<_>>(), &has);
                prop_assert_eq!(ring.walk(key).next(), ring.find(key));
            }
        }
        ring = ring.changed(has, []);
        prop_assert_eq!((ring.points, ring.find(1)), (0, None));
    }
}

/// Endpoints come and go for as long as a proxy runs.
#[test]
fn nothing_is_left_of_members_that_have_gone() {
    let mut ring = Ring::new(0..4u32);
    for round in 0..50 {
        ring = ring.changed(0..2, 10 + round..12 + round);
        ring = ring.changed(10 + round..12 + round, 0..2);
    }
    assert_eq!(ring.members.iter().flatten().copied().collect::<BTreeSet<_>>(), (0..4).collect());
    assert!(ring.members.len() <= 6, "numbers are given again: {}", ring.members.len());
    ring = ring.changed(0..4, []);
    assert_eq!(ring.members.iter().flatten().count(), 0);
}

/// Of two names with the same digest all points are the same.
#[test]
fn who_leaves_takes_nothing_of_who_has_the_same_points() {
    let mut seen = std::collections::HashMap::new();
    let mut pair = None;
    for number in 0..1_000_000u32 {
        let name = format!("10.0.0.1:{:08x}", number.wrapping_mul(0x9e37_79b1));
        if let Some(other) = seen.insert(crc32fast::hash(name.as_bytes()), name.clone()) {
            pair = Some([other, name]);
            break;
        }
    }
    let [one, two] = pair.unwrap().map(|name| &*Box::leak(name.into_boxed_str()));
    assert_eq!(hashes(one), hashes(two));
    for (left, stays) in [(one, two), (two, one)] {
        let ring = Ring::new([one, two]).changed([left], []);
        assert_eq!((ring.find(0), ring.points), (Some(&stays), POINTS));
        assert!(ring.walk(0).all(|it| *it == stays));
    }
}
