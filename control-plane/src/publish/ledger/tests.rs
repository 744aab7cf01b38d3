use shared::version::Seq;

use super::*;
use crate::placement::{Compiled, LogPositions, Report};
use crate::publish::addresses::{Address, sorted};

fn addresses(texts: &[&str]) -> Addresses {
    sorted(texts.iter().map(|text| Address::of(text)))
}

fn name(name: &str) -> ObjectName {
    ObjectName::new("shop", name)
}

fn status(revision: &str, texts: &[&str]) -> Option<Status> {
    Some(Status { revision: revision.into(), addresses: addresses(texts) })
}

fn places(served: &[&str]) -> Placements {
    let made = |name: &&str| {
        let object = ObjectRef { kind: ObjectKind::Ingress, name: self::name(name) };
        (object, Report::Compiled(Compiled { is_served: true, ..Compiled::default() }))
    };
    let mut places = Placements::default();
    places.settle(
        served.iter().map(made).collect(),
        LogPositions { config: Seq(1), live: Seq(1), ..LogPositions::default() },
    );
    places
}

/// Everything that is to be written now, done.
fn writes(ledger: &mut Ledger, now: Instant) -> Vec<String> {
    let mut names = Vec::new();
    while let Next::Write(write) = ledger.next(now) {
        names.push(write.name.name.to_string());
        ledger.done(write, Outcome::Written("9".into()), now);
    }
    names
}

fn ledger(served: &[&str], heard: &[&str]) -> Ledger {
    let mut ledger = Ledger::default();
    ledger.place(&places(served));
    for one in heard {
        ledger.hear(name(one), status("1", &[]));
    }
    ledger
}

#[test]
fn what_is_ours_and_differs_is_written_once() {
    let now = Instant::now();
    let mut ledger = ledger(&["a", "b"], &["a", "b", "foreign"]);
    assert_eq!(ledger.next(now), Next::Nothing, "nobody knows what it is to be");
    ledger.hear(name("b"), status("2", &["192.0.2.1"]));
    ledger.want(Some(addresses(&["192.0.2.1"])));
    let Next::Write(write) = ledger.next(now) else { panic!("one differs") };
    assert_eq!((&write.name, &*write.revision), (&name("a"), "1"), "over the version that was heard");
    ledger.done(write, Outcome::Written("3".into()), now);
    assert_eq!(ledger.next(now), Next::Nothing);
    // An older word of it, then its own echo.
    ledger.hear(name("a"), status("3", &["192.0.2.1"]));
    assert_eq!(ledger.next(now), Next::Nothing);
    ledger.want(Some(addresses(&["192.0.2.2"])));
    assert_eq!(writes(&mut ledger, now), ["a", "b"]);
    // One that becomes ours is written without another word of it; one that is not any more keeps what it has.
    ledger.place(&places(&["foreign"]));
    assert_eq!(writes(&mut ledger, now), ["foreign"]);
    ledger.want(Some(addresses(&["192.0.2.3"])));
    assert_eq!(writes(&mut ledger, now), ["foreign"]);
    ledger.hear(name("foreign"), None);
    ledger.want(Some(addresses(&["192.0.2.4"])));
    assert_eq!(ledger.next(now), Next::Nothing, "it is gone");
}

#[test]
fn an_address_that_is_not_known_is_not_an_empty_one() {
    let now = Instant::now();
    let mut ledger = ledger(&["a"], &[]);
    ledger.hear(name("a"), status("1", &["192.0.2.1"]));
    ledger.want(None);
    assert_eq!(ledger.next(now), Next::Nothing);
    ledger.want(Some(addresses(&[])));
    assert_eq!(writes(&mut ledger, now), ["a"], "but that there is none is an answer");
}

#[test]
fn thousands_are_written_at_a_pace() {
    let now = Instant::now();
    let names: Vec<String> = (0..1_000).map(|at| format!("i{at:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut ledger = ledger(&names, &names);
    ledger.want(Some(addresses(&["192.0.2.1"])));
    let at_once = writes(&mut ledger, now).len();
    assert!((BURST as usize..=BURST as usize + 1).contains(&at_once), "{at_once}");
    let Next::Wait(wait) = ledger.next(now) else { panic!("there are more") };
    assert!(wait <= GAP, "{wait:?}");
    assert_eq!(writes(&mut ledger, now + Duration::from_secs(1)).len(), 50);
    let mut seconds = 1;
    while ledger.next(now + Duration::from_secs(seconds)) != Next::Nothing {
        writes(&mut ledger, now + Duration::from_secs(seconds));
        seconds += 1;
    }
    assert_eq!(seconds, 20);
}

/// The writes within a number of seconds, in order, if the server answers `says` for the `bad` ones.
fn tried(names: &[&str], bad: &[&str], says: &Outcome, seconds: u64) -> Vec<(u64, String)> {
    let mut ledger = ledger(names, names);
    ledger.want(Some(addresses(&["192.0.2.1"])));
    let (begin, mut passed, mut tried) = (Instant::now(), Duration::ZERO, Vec::new());
    loop {
        match ledger.next(begin + passed) {
            Next::Write(write) => {
                let name = write.name.name.to_string();
                let outcome = if bad.contains(&&*name) { says.clone() } else { Outcome::Written("9".into()) };
                ledger.done(write, outcome, begin + passed);
                tried.push((passed.as_secs(), name));
            }
            Next::Wait(wait) => passed += wait,
            Next::Nothing => return tried,
        }
        if passed > Duration::from_secs(seconds) {
            return tried;
        }
    }
}

fn named(tried: &[(u64, String)], name: &str) -> Vec<u64> {
    tried.iter().filter(|it| it.1 == name).map(|it| it.0).collect()
}

#[test]
fn one_that_cannot_be_written_keeps_no_other_waiting() {
    let (names, good) = (["a", "b", "c", "d", "e", "f"], ["c", "d", "e", "f"]);
    for (says, expected) in [
        (Outcome::Failed, [0, 10, 30, 70].as_slice()),
        (Outcome::Refused, &[0, 10, 30, 70]),
        (Outcome::Overtaken, &[0, 10, 30, 70]),
        (Outcome::Forbidden, &[0, 60]),
    ] {
        let tried = tried(&names, &["a", "b"], &says, 100);
        for name in good {
            let at = named(&tried, name);
            assert!(matches!(at[..], [..=4]), "{says:?}: {name} at {at:?}");
        }
        // To the second, and the pauses that both make.
        let a = named(&tried, "a");
        assert_eq!(a.len(), expected.len(), "{says:?}: {a:?}");
        let is_near = a.iter().zip(expected).all(|(at, expected)| (*expected..=expected + 4).contains(at));
        assert!(is_near, "{says:?}: {a:?}");
    }
    // Even if nothing else is written meanwhile, one that comes late is, whatever else may not be.
    let mut alone = ledger(&["a", "late"], &["a", "late"]);
    alone.hear(name("late"), None);
    alone.want(Some(addresses(&["192.0.2.1"])));
    let mut now = Instant::now();
    for _ in 0..5 {
        let Next::Write(write) = alone.next(now) else { panic!("a is tried each minute") };
        alone.done(write, Outcome::Forbidden, now);
        now += SHUT;
    }
    alone.hear(name("late"), status("1", &[]));
    assert_eq!(writes(&mut alone, now), ["late", "a"]);
    let ever = tried(&names, &["a", "b"], &Outcome::Failed, 3_600);
    assert!((50..70).contains(&named(&ever, "a").len()), "once a minute");
    let ever = tried(&names, &["a", "b"], &Outcome::Refused, 36_000);
    assert!((60..70).contains(&named(&ever, "a").len()), "every ten minutes");
}

#[test]
fn what_failed_is_tried_again_and_a_server_that_is_down_is_asked_ever_more_seldom() {
    let now = Instant::now();
    let mut ledger = ledger(&["a", "b"], &["a", "b"]);
    ledger.want(Some(addresses(&["192.0.2.1"])));
    let Next::Write(write) = ledger.next(now) else { panic!() };
    ledger.done(write, Outcome::Failed, now);
    assert_eq!(ledger.next(now), Next::Wait(PAUSE));
    assert_eq!(writes(&mut ledger, now + PAUSE), ["b"]);
    assert_eq!(writes(&mut ledger, now + AGAIN), ["a"]);
    let names: Vec<String> = (0..1_000).map(|at| format!("i{at:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let down = tried(&names, &names, &Outcome::Failed, 60);
    assert!((5..12).contains(&down.len()), "{down:?}");
}

#[test]
fn what_is_refused_or_overtaken_is_tried_as_soon_as_there_is_another_version() {
    let now = Instant::now();
    for outcome in [Outcome::Overtaken, Outcome::Refused] {
        let mut ledger = ledger(&["a"], &["a"]);
        ledger.want(Some(addresses(&["192.0.2.1"])));
        let Next::Write(write) = ledger.next(now) else { panic!() };
        ledger.done(write, outcome.clone(), now);
        assert_eq!(ledger.next(now), Next::Wait(AGAIN));
        ledger.hear(name("a"), status("2", &[]));
        let Next::Write(write) = ledger.next(now) else { panic!() };
        assert_eq!(&*write.revision, "2");
        // However many versions there are.
        ledger.done(write, outcome, now);
        ledger.hear(name("a"), status("3", &[]));
        assert_eq!(ledger.next(now), Next::Wait(AGAIN));
        assert_eq!(writes(&mut ledger, now + AGAIN), ["a"]);
    }
}

#[test]
fn a_namespace_where_nothing_may_be_written_is_left_alone_and_no_other() {
    let now = Instant::now();
    let names = ["a", "b", "c", "d"];
    let mut ledger = ledger(&names, &names);
    ledger.want(Some(addresses(&["192.0.2.1"])));
    for expected in ["a", "b", "c"] {
        let Next::Write(write) = ledger.next(now) else { panic!() };
        assert_eq!(&*write.name.name, expected);
        ledger.done(write, Outcome::Forbidden, now);
    }
    assert_eq!(ledger.next(now), Next::Wait(SHUT));
    let object = ObjectRef { kind: ObjectKind::Ingress, name: ObjectName::new("other", "e") };
    let mut both = places(&names);
    let made = Report::Compiled(Compiled { is_served: true, ..Compiled::default() });
    both.settle(
        vec![(object.clone(), made)],
        LogPositions { config: Seq(2), live: Seq(2), ..LogPositions::default() },
    );
    ledger.place(&both);
    ledger.hear(object.name, status("1", &[]));
    assert_eq!(writes(&mut ledger, now), ["e"]);
    // The one without an answer so far is tried first: the others may be forbidden individually.
    let Next::Write(write) = ledger.next(now + SHUT) else { panic!() };
    assert_eq!(&*write.name.name, "d");
    ledger.done(write, Outcome::Forbidden, now + SHUT);
    assert_eq!(ledger.next(now + SHUT), Next::Wait(SHUT), "one is enough to know");
    assert_eq!(writes(&mut ledger, now + SHUT * 2), ["a", "b", "c", "d"]);
    assert!(ledger.shut.is_empty());
}

/// Said of one alone, and of another one later, it is not said of all.
#[test]
fn a_namespace_where_one_was_written_is_open() {
    let now = Instant::now();
    let names = ["a", "b", "c", "d", "e"];
    let mut ledger = ledger(&names, &names);
    ledger.want(Some(addresses(&["192.0.2.1"])));
    for name in names {
        let Next::Write(write) = ledger.next(now) else { panic!("{name}") };
        assert_eq!(&*write.name.name, name);
        let is_one = name == "c";
        ledger.done(write, if is_one { Outcome::Written("9".into()) } else { Outcome::Forbidden }, now);
    }
}

#[test]
fn what_is_heard_while_it_is_written_counts() {
    let now = Instant::now();
    let mut ledger = ledger(&["a", "b"], &["a", "b"]);
    ledger.want(Some(addresses(&["192.0.2.1"])));
    let Next::Write(write) = ledger.next(now) else { panic!() };
    ledger.hear(name("a"), status("5", &["198.51.100.1"]));
    ledger.done(write, Outcome::Written("3".into()), now);
    assert_eq!(writes(&mut ledger, now), ["b"]);
    let Next::Write(write) = ledger.next(now + AGAIN) else { panic!("somebody else wrote it since") };
    assert_eq!((&*write.name.name, &*write.revision), ("a", "5"));
    // One that was rejected comes after the others, even if it has changed.
    let mut ledger = self::ledger(&["a", "b"], &["a", "b"]);
    ledger.want(Some(addresses(&["192.0.2.1"])));
    let Next::Write(write) = ledger.next(now) else { panic!() };
    ledger.hear(name("a"), status("5", &[]));
    ledger.done(write, Outcome::Refused, now);
    assert_eq!(writes(&mut ledger, now), ["b", "a"]);
}

#[test]
fn a_server_that_answers_between_two_failures_is_asked_as_soon_again_as_after_one() {
    let now = Instant::now();
    let names = ["a", "b", "c", "d"];
    let mut ledger = ledger(&names, &names);
    ledger.want(Some(addresses(&["192.0.2.1"])));
    for (outcome, at, waits) in [
        (Outcome::Failed, now, true),
        (Outcome::Written("9".into()), now + PAUSE, false),
        (Outcome::Failed, now + PAUSE, true),
    ] {
        let Next::Write(write) = ledger.next(at) else { panic!() };
        ledger.done(write, outcome, at);
        if waits {
            assert_eq!(ledger.next(at), Next::Wait(PAUSE));
        }
    }
}

/// What is made again under a name has no past, and what is gone takes no room.
/// One of the same name is another one, which has not failed.
#[test]
fn one_that_failed_and_is_gone_is_forgotten() {
    for outcome in [Outcome::Forbidden, Outcome::Failed, Outcome::Overtaken, Outcome::Refused] {
        let now = Instant::now();
        let mut ledger = ledger(&["a"], &["a"]);
        ledger.want(Some(addresses(&["192.0.2.1"])));
        let Next::Write(write) = ledger.next(now) else { panic!("it differs") };
        ledger.done(write, outcome, now);
        ledger.hear(name("a"), None);
        assert!(ledger.aside.is_empty() && ledger.statuses.is_empty(), "{ledger:?}");
    }
}

#[test]
fn one_that_is_gone_is_forgotten() {
    let now = Instant::now();
    let mut ledger = ledger(&["a"], &["a"]);
    ledger.want(Some(addresses(&["192.0.2.1"])));
    assert_eq!(writes(&mut ledger, now), ["a"]);
    ledger.hear(name("a"), None);
    assert!(ledger.written.is_empty());
    ledger.hear(name("a"), status("7", &[]));
    assert_eq!(writes(&mut ledger, now), ["a"], "at once");
    ledger.hear(name("a"), status("8", &[]));
    ledger.hear(name("a"), None);
    assert!(ledger.ready.is_empty() && ledger.doubtful.is_empty() && ledger.aside.is_empty());
}

#[test]
fn whoever_undoes_it_is_answered_ever_more_seldom_and_told_of_once() {
    let mut now = Instant::now();
    let mut ledger = ledger(&["a"], &["a"]);
    ledger.want(Some(addresses(&["192.0.2.1"])));
    let (mut waits, mut told) = (Vec::new(), 0);
    for round in 0..10 {
        ledger.hear(name("a"), status(&format!("{round}"), &["198.51.100.1"]));
        let mut next = ledger.next(now);
        if let Next::Wait(wait) = next {
            waits.push(wait.as_secs());
            now += wait;
            next = ledger.next(now);
        }
        let Next::Write(write) = next else { panic!("it differs") };
        told += u32::from(write.fought.is_some());
        ledger.done(write, Outcome::Written("9".into()), now);
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
    assert_eq!(told, 1);
    // Who has left it alone for long enough is met as if for the first time.
    now += AGAIN_MOST * 2 + AGAIN;
    for expected in [Next::Nothing, Next::Wait(AGAIN)] {
        ledger.hear(name("a"), status("99", &["198.51.100.1"]));
        match expected {
            Next::Nothing => assert_eq!(writes(&mut ledger, now), ["a"]),
            expected => assert_eq!(ledger.next(now), expected),
        }
    }
    // Another address is no matter of theirs.
    ledger.want(Some(addresses(&["192.0.2.2"])));
    assert_eq!(writes(&mut ledger, now), ["a"]);
}

#[test]
fn at_the_end_what_was_ours_to_say_is_taken_back() {
    let mut ledger = ledger(&["a", "b"], &[]);
    ledger.hear(name("a"), status("1", &["192.0.2.1"]));
    ledger.hear(name("b"), status("2", &["198.51.100.1"]));
    assert!(ledger.farewell().is_empty(), "nobody knows what was ours");
    ledger.want(Some(addresses(&["192.0.2.1"])));
    let last = ledger.farewell();
    let told: Vec<_> = last.iter().map(|write| (&*write.name.name, write.addresses.len())).collect();
    assert_eq!(told, [("a", 0)]);
}
