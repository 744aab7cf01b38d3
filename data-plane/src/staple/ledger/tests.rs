use proptest::collection::vec;
use proptest::prelude::*;

use super::super::tests::Authority;
use super::*;

const PLACE: &str = "http://ocsp.test/";
const HOUR: u64 = 3600;
/// Seconds since 1970.
const WALL: u64 = 1_000_000_000;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Valid since an hour ago, for this many hours more.
fn good(hours: u64) -> Good {
    Good { since: WALL - HOUR, until: WALL + hours * HOUR }
}

fn stapled(certified: &Certified) -> Option<Vec<u8>> {
    certified.shown().ocsp.clone()
}

/// A ledger with one certificate, and its request.
fn ledger(start: Instant) -> (Ledger, Arc<Certified>, Id) {
    let mut ledger = Ledger::default();
    let certified = Authority::new("authority").certified(PLACE);
    ledger.shown(&certified, start);
    assert_eq!(ledger.wake(), Some(start));
    let question = ledger.next(start).unwrap();
    assert!(ledger.next(start).is_none() && ledger.wake().is_none(), "once at a time");
    (ledger, certified, question.id)
}

#[test]
fn good_ocsp_response_is_stapled_refreshed_and_expires() {
    let start = Instant::now();
    let (mut ledger, certified, id) = ledger(start);
    assert_eq!(stapled(&certified), None);
    ledger.answered(&id, b"one".to_vec(), good(10), (start, WALL));
    assert_eq!(stapled(&certified), Some(b"one".to_vec()));
    let again = ledger.wake().unwrap().duration_since(start);
    assert!(again >= seconds(5 * HOUR * 9 / 10) && again <= seconds(5 * HOUR * 11 / 10), "{again:?}");
    // There is no newer response.
    let now = start + seconds(6 * HOUR);
    assert_eq!(ledger.next(now).unwrap().id, id);
    assert!(ledger.failed(&id, false, now), "the first time");
    assert_eq!(stapled(&certified), Some(b"one".to_vec()), "it is still good");
    let over = start + seconds(10 * HOUR);
    while let Some(due) = ledger.wake().filter(|due| *due < over) {
        ledger.next(due).unwrap();
        assert!(!ledger.failed(&id, false, due));
    }
    assert_eq!((ledger.wake(), stapled(&certified).is_some(), ledger.stapled()), (Some(over), true, 1));
    ledger.next(over);
    assert_eq!((stapled(&certified), ledger.stapled(), ledger.bytes), (None, 0, 0));
}

#[test]
fn an_answer_that_comes_while_it_is_over_or_asked_for_is_taken() {
    let start = Instant::now();
    let (mut ledger, certified, id) = ledger(start);
    ledger.answered(&id, b"one".to_vec(), good(1), (start, WALL));
    let now = ledger.wake().unwrap();
    ledger.next(now).unwrap();
    // It expires before the next one has arrived.
    assert_eq!(ledger.wake(), Some(start + seconds(HOUR)));
    assert!(ledger.next(start + seconds(HOUR)).is_none());
    assert_eq!(stapled(&certified), None);
    let later = start + seconds(HOUR + 1);
    ledger.answered(&id, b"two".to_vec(), good(9), (later, WALL + HOUR + 1));
    assert_eq!(stapled(&certified), Some(b"two".to_vec()));
}

#[test]
fn revoked_certificate_is_served_without_a_staple() {
    let start = Instant::now();
    let (mut ledger, certified, id) = ledger(start);
    ledger.answered(&id, b"one".to_vec(), good(10), (start, WALL));
    let due = ledger.wake().unwrap();
    ledger.next(due).unwrap();
    ledger.failed(&id, true, due);
    assert_eq!((stapled(&certified), ledger.bytes), (None, 0));
    assert!(ledger.wake().is_some(), "it may have been a mistake");
}

#[test]
fn silent_ocsp_responder_is_queried_at_growing_intervals() {
    let start = Instant::now();
    let (mut ledger, _certified, id) = ledger(start);
    let mut now = start;
    for times in 0..20 {
        assert_eq!(ledger.failed(&id, false, now), times == 0);
        let due = ledger.wake().unwrap();
        let (wait, wanted) = (due.duration_since(now), FIRST.saturating_mul(1 << times.min(16)).min(LAST));
        assert!(wait >= wanted.mul_f64(0.89) && wait <= wanted.mul_f64(1.11), "{times}: {wait:?}");
        now = due;
        ledger.next(now).unwrap();
    }
}

#[test]
fn the_same_certificate_is_asked_for_once_and_forgotten_with_the_last_who_has_it() {
    let start = Instant::now();
    let (mut ledger, certified, id) = ledger(start);
    ledger.answered(&id, b"one".to_vec(), good(10), (start, WALL));
    // As after a change of its Secret, or in another Secret.
    ledger.shown(&certified, start);
    assert!(ledger.next(start).is_none());
    assert_eq!(ledger.known.len(), 1);
    drop(certified);
    let due = ledger.wake().unwrap();
    assert!(ledger.next(due).is_none());
    assert_eq!((ledger.known.len(), ledger.due.len(), ledger.bytes), (0, 0, 0));
}

/// A Secret that is written again and again, with the same certificate.
#[test]
fn holders_that_are_gone_count_no_more() {
    let start = Instant::now();
    let (authority, mut ledger) = (Authority::new("authority"), Ledger::default());
    let holder = authority.holders("", PLACE);
    let mut certified = holder();
    ledger.shown(&certified, start);
    let id = ledger.next(start).unwrap().id;
    ledger.answered(&id, b"one".to_vec(), good(10), (start, WALL));
    for _ in 0..3 {
        certified = holder();
        ledger.shown(&certified, start);
        assert_eq!((stapled(&certified), ledger.bytes), (Some(b"one".to_vec()), 6));
    }
    let other = holder();
    ledger.shown(&other, start);
    assert_eq!((stapled(&other), ledger.bytes), (Some(b"one".to_vec()), 9), "it is held for two");
    drop((certified, other));
    ledger.forget_unused();
    assert_eq!((ledger.bytes, ledger.known.len()), (0, 0));
}

#[test]
fn so_many_are_asked_at_once_and_so_much_is_held() {
    let start = Instant::now();
    let (authority, mut ledger) = (Authority::new("authority"), Ledger::default());
    let of = |at| authority.certified_of(&format!("ns-{at}/s"), &format!("http://ocsp-{at}.test/"));
    let all: Vec<_> = (0..AT_ONCE + 3).map(of).collect();
    all.iter().for_each(|it| ledger.shown(it, start));
    let asked: Vec<_> = std::iter::from_fn(|| ledger.next(start)).collect();
    assert_eq!(asked.len(), AT_ONCE);
    assert_eq!(ledger.wake(), Some(start + TURN), "the others look again");
    ledger.failed(&asked[0].id, false, start);
    assert!(ledger.next(start + TURN).is_some() && ledger.next(start + TURN).is_none());
    ledger.answered(&asked[1].id, vec![0; BYTES], good(10), (start, WALL));
    assert_eq!((ledger.stapled(), ledger.bytes), (0, 0), "it is more than may be held");
    ledger.answered(&asked[2].id, b"one".to_vec(), good(10), (start, WALL));
    assert_eq!((ledger.stapled(), ledger.bytes), (1, 6), "here, and with the certificate");
    ledger.clear();
    assert!(all.iter().all(|it| stapled(it).is_none()));
    assert!(all.iter().all(|it| it.is_first_shown()), "each is told again");
    ledger.answered(&asked[3].id, b"late".to_vec(), good(10), (start, WALL));
    assert_eq!(ledger.asked.len(), AT_ONCE - 3);
}

/// How many of these are requested at once.
fn asked(certified: &[Arc<Certified>]) -> usize {
    let (start, mut ledger) = (Instant::now(), Ledger::default());
    certified.iter().for_each(|it| ledger.shown(it, start));
    std::iter::from_fn(|| ledger.next(start)).count()
}

#[test]
fn one_responder_and_one_owner_leave_places_to_others() {
    let authority = Authority::new("authority");
    let of_one: Vec<_> = (0..AT_ONCE)
        .map(|at| {
            authority.certified_of(&format!("ns-{at}/s"), ["http://ocsp.test/", "http://OCSP.test/"][at % 2])
        })
        .collect();
    assert_eq!(asked(&of_one), OF_ONE);
    let of_owner = |at| authority.certified_of(&format!("evil/{at}"), &format!("http://ocsp-{at}.test/"));
    let mut all: Vec<_> = (0..2 * AT_ONCE).map(of_owner).collect();
    assert_eq!(asked(&all), 13, "four fifths");
    all.push(authority.certified_of("shop/tls", PLACE));
    let (start, mut ledger) = (Instant::now(), Ledger::default());
    all.iter().for_each(|it| ledger.shown(it, start));
    let asked: Vec<_> = std::iter::from_fn(|| ledger.next(start)).collect();
    assert!(asked.iter().any(|question| &*question.owner == "shop/tls"));
    for question in asked {
        ledger.failed(&question.id, false, start);
    }
    assert!(ledger.next(start + TURN).is_some(), "their places are free again");
}

#[test]
fn a_question_that_outlives_what_was_known_is_not_asked_twice() {
    let start = Instant::now();
    let (mut ledger, certified, id) = ledger(start);
    ledger.clear();
    ledger.shown(&certified, start);
    assert!(ledger.next(start).is_none());
    ledger.answered(&id, b"one".to_vec(), good(10), (start, WALL));
    assert_eq!((stapled(&certified), ledger.asked.len()), (Some(b"one".to_vec()), 0));
}

/// Certificates of these owners, and a ledger that has requested them all.
fn requested(owners: &[&str]) -> (Ledger, Vec<(Arc<Certified>, Id)>) {
    let (authority, mut ledger, start) = (Authority::new("authority"), Ledger::default(), Instant::now());
    let of = |(at, owner): (usize, &&str)| {
        let certified = authority.certified_of(owner, &format!("http://ocsp-{at}.test/"));
        ledger.shown(&certified, start);
        let id = Question::of(&certified.shown().cert).unwrap().id;
        (certified, id)
    };
    let all = owners.iter().enumerate().map(of).collect();
    (ledger, all)
}

#[test]
fn namespace_with_most_ocsp_responses_makes_room_for_others() {
    const PART: usize = BYTES / 16;
    let owners: Vec<_> = (0..9).map(|at| format!("evil/{at}")).chain(["shop/tls".to_owned()]).collect();
    let (mut ledger, all) = requested(&owners.iter().map(|owner| &**owner).collect::<Vec<_>>());
    let now = Instant::now();
    let (shop, evil) = all.split_last().unwrap();
    for (_, id) in evil {
        ledger.answered(id, vec![1; PART], good(10), (now, WALL));
    }
    let lost = |number, namespace: &str| Lost { number, namespace: namespace.into() };
    assert_eq!((ledger.stapled(), ledger.bytes, ledger.lost()), (8, BYTES, lost(1, "evil")));
    ledger.answered(&shop.1, vec![2; 2_000], good(10), (now, WALL));
    assert_eq!(stapled(&shop.0), Some(vec![2; 2_000]));
    assert_eq!((ledger.stapled(), ledger.lost()), (8, lost(1, "evil")));
    for (_, id) in evil {
        ledger.answered(id, vec![3; PART], good(10), (now, WALL));
    }
    assert!(stapled(&shop.0).is_some() && ledger.stapled() == 8, "it holds less");
    assert_eq!((ledger.lost(), ledger.lost()), (lost(2, "evil"), lost(0, "")));
    // Two more Secrets with the same certificate.
    let (sent, _) = evil.iter().find(|(it, _)| stapled(it).is_some()).unwrap();
    ledger.shown(sent, now);
    assert_eq!(ledger.lost(), lost(0, ""), "what was dropped had room for two");
    ledger.shown(sent, now);
    assert_eq!((ledger.stapled(), ledger.lost()), (8, lost(1, "evil")));
    // What finds no room replaces nothing.
    ledger.answered(&shop.1, vec![4; BYTES], good(10), (now, WALL));
    assert_eq!((stapled(&shop.0), ledger.lost()), (Some(vec![2; 2_000]), lost(1, "shop")));
}

/// A chain may be of any length, and tenants choose it.
#[test]
fn a_chain_is_held_once_and_counts_nothing() {
    let start = Instant::now();
    let (mut ledger, certified, id) = ledger(start);
    let before = Arc::downgrade(&certified.shown());
    ledger.answered(&id, b"one".to_vec(), good(10), (start, WALL));
    assert!(before.upgrade().is_none() && stapled(&certified).is_some());
    assert_eq!((ledger.bytes, certified.unstapled().ocsp.is_none()), (6, true));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Responses of all sizes come, are revoked, and are shown in further Secrets.
    #[test]
    fn a_namespace_lacks_memory_only_beyond_its_share(
        steps in vec((0_usize..8, 0_usize..4, 1..BYTES / 6), 1..60)
    ) {
        const SHARE: usize = BYTES / 4;
        let owners = ["a/0", "a/1", "a/2", "a/3", "b/0", "b/1", "c/0", "d/0"];
        let (mut ledger, mut all) = requested(&owners);
        let now = Instant::now();
        for (at, step, size) in steps {
            let ((certified, id), own) = (&all[at], namespace(owners[at]));
            let before = by_namespace(&ledger);
            match step {
                0 => drop(ledger.failed(id, true, now)),
                1 => ledger.shown(certified, now),
                _ => ledger.answered(id, vec![7; size], good(10), (now, WALL)),
            }
            let (lost, after) = (ledger.lost(), by_namespace(&ledger));
            let had = |of: &HashMap<_, _>, namespace: &str| of.get(namespace).copied().unwrap_or_default();
            let is_refused = lost.number > 0 && *lost.namespace == *own;
            for other in ["a", "b", "c", "d"].into_iter().filter(|it| *it != own) {
                let (before, after, own) = (had(&before, other), had(&after, other), had(&after, own));
                prop_assert!(after == before || !is_refused && after < before && own < before);
            }
            if is_refused {
                prop_assert_eq!(had(&before, own), had(&after, own));
                let known = &ledger.known[id];
                let held = known.held.as_ref().map_or(0, |held| held.bytes);
                let more = if step == 1 { held } else { size * (1 + known.holders().count()) };
                prop_assert!(had(&before, own) + more > SHARE);
            }
            prop_assert!(ledger.bytes == after.values().sum::<usize>() && ledger.bytes <= BYTES);
            for (certified, id) in &all {
                let held = ledger.known[id].held.as_ref().map(|held| held.der.clone());
                prop_assert_eq!(stapled(certified), held);
            }
        }
        all.clear();
        ledger.forget_unused();
        prop_assert_eq!((ledger.bytes, ledger.known.len()), (0, 0));
    }
}

/// The memory that each namespace holds.
fn by_namespace(ledger: &Ledger) -> HashMap<String, usize> {
    let mut all = HashMap::new();
    for known in ledger.known.values() {
        let held = known.held.as_ref().map_or(0, |held| held.bytes);
        *all.entry(namespace(&known.question.owner).to_owned()).or_default() += held;
    }
    all
}
