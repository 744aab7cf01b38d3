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
    assert!(ledger.stapled() == 1 && ledger.bytes > 500 && ledger.bytes < 5_000, "{}", ledger.bytes);
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
