//! When names are resolved, and what becomes of the responses, on a simulated clock.

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn user(name: &str) -> Arc<str> {
    name.into()
}

fn found(last: &[u8], ttl: u64) -> Answer {
    let addresses = last.iter().map(|last| IpAddr::from([10, 0, 0, *last])).collect();
    Answer::Found { addresses, ttl: Duration::from_secs(ttl) }
}

/// The last octets of a name's addresses.
fn last(names: &Names, name: &str) -> Option<Vec<u8>> {
    let last = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets()[3],
        IpAddr::V6(_) => panic!("IPv4 alone"),
    };
    names.addresses(name).map(|addresses| addresses.iter().map(last).collect())
}

/// One name that was just resolved with this result.
fn answered(answer: Answer) -> (Names, Instant) {
    let (mut names, now) = (Names::default(), Instant::now());
    names.want("a.test", &user("ns/a/80"));
    assert_eq!(names.wake(), Some(None), "at once");
    assert_eq!(names.next(now).as_deref(), Some("a.test"));
    assert_eq!((names.next(now), names.wake()), (None, None), "once");
    names.answered("a.test", answer, now);
    (names, now)
}

#[test]
fn an_answer_is_used_for_its_time_and_neither_too_short_nor_for_ever() {
    for (ttl, seconds) in [(0, 1), (1, 1), (30, 30), (3600, 3600), (u64::from(u32::MAX), 3600)] {
        let (mut names, now) = answered(found(&[1], ttl));
        let due = now + SECOND * seconds;
        assert_eq!(names.wake(), Some(Some(due)), "{ttl}");
        assert_eq!(names.next(due - Duration::from_millis(1)), None);
        assert_eq!(names.next(due).as_deref(), Some("a.test"));
    }
}

#[test]
fn a_failure_keeps_what_was_known_and_an_answer_of_nothing_ends_it() {
    let (mut names, now) = answered(found(&[1, 2], 5));
    let failed = names.answered("a.test", Answer::Failed, now);
    assert_eq!(failed, Learnt { users: vec![], turned: true });
    assert_eq!(last(&names, "a.test"), Some(vec![1, 2]));
    assert!(!names.answered("a.test", Answer::Failed, now).turned, "it is said once");
    let again = names.answered("a.test", found(&[2, 1], 5), now);
    assert_eq!(again, Learnt { users: vec![], turned: true }, "the same in another order");
    let later = now + TOLD;
    let gone = names.answered("a.test", Answer::Nothing, later);
    assert_eq!(gone, Learnt { users: vec![user("ns/a/80")], turned: true });
    assert_eq!(last(&names, "a.test"), Some(vec![]));
    let empty = Answer::Found { addresses: vec![], ttl: SECOND };
    assert_eq!(names.answered("a.test", empty, later), Learnt::default());
}

/// A name that alternates with each response, once a second for an hour.
#[test]
fn a_name_that_comes_and_goes_is_told_of_once_in_a_while() {
    let (mut names, start) = answered(found(&[1], 1));
    let mut told = Vec::new();
    for second in 1..=3600 {
        let answer = if second % 2 == 0 { found(&[1], 1) } else { Answer::Nothing };
        if names.answered("a.test", answer, start + SECOND * second).turned {
            told.push(second);
        }
    }
    assert_eq!(told[..4], [1, 2, 61, 62], "each time that it fails and that it is back");
    assert_eq!(told.len(), 120);
}

/// What was not logged at once is logged later, if it is still true.
#[test]
fn the_last_thing_told_of_a_name_becomes_true() {
    let (mut names, start) = answered(found(&[1], 1));
    let mut answer = |answer, second| names.answered("a.test", answer, start + SECOND * second).turned;
    assert!(answer(Answer::Failed, 1));
    assert!(answer(found(&[1], 1), 2));
    assert!(!answer(Answer::Failed, 3));
    assert!(!answer(Answer::Nothing, 60), "it fails otherwise, and was told of a moment ago");
    assert!(answer(Answer::Failed, 61), "a minute after it was told of last");
    assert!(!answer(Answer::Failed, 200));
    assert!(answer(found(&[1], 1), 201));
}

#[test]
fn name_without_any_answer_has_no_address_after_a_failure() {
    let (names, _) = answered(Answer::Failed);
    assert_eq!(last(&names, "a.test"), Some(vec![]), "who waits for it waits no longer");
}

#[test]
fn vain_questions_come_ever_later_up_to_a_limit() {
    for answer in [Answer::Failed, Answer::Nothing] {
        let (mut names, mut now) = answered(answer.clone());
        for seconds in [1, 2, 4, 8, 8, 8] {
            let due = now + SECOND * seconds;
            assert_eq!(names.wake(), Some(Some(due)), "{answer:?}");
            now = due;
            assert!(names.next(now).is_some());
            names.answered("a.test", answer.clone(), now);
        }
        names.answered("a.test", found(&[1], 1), now);
        names.answered("a.test", answer.clone(), now);
        assert_eq!(names.wake(), Some(Some(now + SECOND)), "a good answer forgives");
    }
}

#[test]
fn addresses_of_a_dns_answer_are_limited() {
    let all = (0..60_000_u32).rev().map(|n| IpAddr::from((0x0a00_0000 + n).to_be_bytes()));
    let (names, _) = answered(Answer::Found { addresses: all.collect(), ttl: SECOND });
    let addresses = names.addresses("a.test").unwrap();
    assert_eq!(addresses.len(), MOST_ADDRESSES);
    assert!(addresses.is_sorted());
    assert_eq!(addresses[0], IpAddr::from([10, 0, 0, 0]), "always the same ones");
}

#[test]
fn failing_names_leave_room_for_those_that_were_never_asked_for() {
    let (mut names, now) = (Names::default(), Instant::now());
    for number in 0..200 {
        names.want(&format!("slow-{number}.test"), &user("ns/slow/80"));
    }
    for _ in 0..200 {
        let name = names.next(now).unwrap();
        names.answered(&name, Answer::Failed, now);
    }
    let later = now + SECOND * 60;
    let asked: Vec<_> = std::iter::from_fn(|| names.next(later)).collect();
    assert_eq!(asked.len(), ASKED_FAILING);
    assert_eq!(names.wake(), None, "an answer is waited for");
    names.want("new.test", &user("ns/new/80"));
    assert_eq!(names.next(later).as_deref(), Some("new.test"));
    names.answered(&asked[0], Answer::Failed, later);
    assert!(names.next(later).is_some_and(|name| name.starts_with("slow-")), "its place is taken by another");
}

#[test]
fn so_many_are_asked_for_at_a_time() {
    let (mut names, now) = (Names::default(), Instant::now());
    for number in 0..200 {
        names.want(&format!("{number}.test"), &user("ns/a/80"));
    }
    let asked: Vec<_> = std::iter::from_fn(|| names.next(now)).collect();
    assert_eq!((asked.len(), names.wake()), (ASKED, None));
    names.answered(&asked[0], found(&[1], 1), now);
    assert!(names.next(now).is_some());
}

#[test]
fn a_name_is_asked_for_as_long_as_somebody_uses_it() {
    let (mut names, now) = answered(found(&[1], 5));
    names.want("a.test", &user("ns/b/80"));
    names.leave("a.test", "ns/a/80");
    assert_eq!(last(&names, "a.test"), Some(vec![1]));
    let learnt = names.answered("a.test", found(&[2], 5), now);
    assert_eq!(learnt.users, [user("ns/b/80")]);
    names.leave("a.test", "ns/b/80");
    assert_eq!((last(&names, "a.test"), names.wake()), (None, None));
    // In progress while its users leave and return: one lookup, whose result is used.
    names.want("a.test", &user("ns/a/80"));
    assert!(names.next(now).is_some() && !names.is_settled());
    names.leave("a.test", "ns/a/80");
    assert!(names.is_settled());
    names.want("a.test", &user("ns/c/80"));
    assert_eq!(names.next(now), None);
    assert_eq!(names.answered("a.test", found(&[3], 5), now).users, [user("ns/c/80")]);
    // A result that nobody waits for.
    names.leave("a.test", "ns/c/80");
    assert_eq!(names.answered("a.test", found(&[3], 5), now), Learnt::default());
    assert_eq!(names.wake(), None);
}

#[derive(Clone, Debug)]
enum Step {
    Want(u8, u8),
    Leave(u8, u8),
    Pass(u64),
    Ask,
    Answer(usize, u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..8_u8, 0..3_u8).prop_map(|(name, user)| Step::Want(name, user)),
        1 => (0..8_u8, 0..3_u8).prop_map(|(name, user)| Step::Leave(name, user)),
        2 => (0..20_u64).prop_map(Step::Pass),
        4 => Just(Step::Ask),
        3 => (any::<usize>(), 0..4_u8).prop_map(|(which, what)| Step::Answer(which, what)),
    ]
}

proptest! {
    /// No name is looked up twice at a time, none is forgotten, and the results agree with a simple model.
    #[test]
    fn every_name_in_use_is_asked_for_again(steps in prop::collection::vec(step(), 0..80)) {
        let (mut names, mut now) = (Names::default(), Instant::now());
        let mut users: BTreeMap<String, BTreeSet<u8>> = BTreeMap::new();
        let mut model: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut asked: Vec<Arc<str>> = Vec::new();
        for step in steps {
            match step {
                Step::Want(name, by) => {
                    names.want(&format!("n{name}"), &user(&format!("u{by}")));
                    users.entry(format!("n{name}")).or_default().insert(by);
                }
                Step::Leave(name, by) => {
                    names.leave(&format!("n{name}"), &format!("u{by}"));
                    let name = format!("n{name}");
                    if users.get_mut(&name).is_some_and(|of| of.remove(&by) && of.is_empty()) {
                        users.remove(&name);
                        model.remove(&name);
                    }
                }
                Step::Pass(seconds) => now += SECOND * u32::try_from(seconds).unwrap(),
                Step::Ask => if let Some(name) = names.next(now) {
                    prop_assert!(!asked.contains(&name));
                    asked.push(name);
                },
                Step::Answer(which, what) if !asked.is_empty() => {
                    let name = asked.swap_remove(which % asked.len());
                    let answer = match what {
                        0 => Answer::Failed,
                        1 => Answer::Nothing,
                        number => found(&[number], 2),
                    };
                    let known = model.get(&*name).cloned();
                    let learnt = names.answered(&name, answer, now);
                    if !users.contains_key(&*name) {
                        prop_assert_eq!(learnt, Learnt::default());
                        continue;
                    }
                    let after = match what {
                        0 => known.clone().unwrap_or_default(),
                        1 => vec![],
                        number => vec![number],
                    };
                    prop_assert_eq!(learnt.users.is_empty(), known.as_ref() == Some(&after));
                    model.insert(name.to_string(), after);
                }
                Step::Answer(..) => {}
            }
            for name in users.keys() {
                prop_assert_eq!(last(&names, name), model.get(name).cloned());
            }
        }
        for name in asked.drain(..) {
            names.answered(&name, Answer::Nothing, now);
        }
        let later = now + SECOND * 3600;
        let again: BTreeSet<_> = std::iter::from_fn(|| names.next(later)).map(|it| it.to_string()).collect();
        prop_assert_eq!(again, users.keys().cloned().collect::<BTreeSet<_>>());
    }
}
