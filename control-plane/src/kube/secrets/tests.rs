use super::*;

fn name(name: &str) -> ObjectName {
    ObjectName::new("n", name)
}

fn put(object: &str, revision: u64) -> Change<()> {
    let revision = Revision(revision.to_string().into());
    Change::Put(Item { name: name(object), uid: "u".into(), revision, value: () })
}

fn found(object: &str, revision: u64) -> Option<Item<Decoded>> {
    let text =
        format!(r#"{{"metadata":{{"name":"{object}","namespace":"n","resourceVersion":"{revision}"}}}}"#);
    Whole(ObjectKind::Secret).decode(&text)
}

fn wants(names: &[&str]) -> OrdSet<ObjectName> {
    names.iter().map(|it| name(it)).collect()
}

fn is_applied(event: Option<Event>) -> bool {
    matches!(event, Some(Event::Applied { .. }))
}

#[test]
fn only_what_is_wanted_is_read_and_again_when_it_changes() {
    let mut ledger = Ledger::default();
    let now = clock::now();
    for change in [put("a", 1), put("b", 2)] {
        assert_eq!(ledger.change(change), None);
    }
    assert_eq!(ledger.next(), None);
    ledger.want(wants(&["b", "none"]), now);
    assert_eq!(ledger.next(), Some(name("b")));
    assert_eq!((ledger.next(), ledger.is_settled()), (None, false));
    assert!(is_applied(ledger.read(&name("b"), found("b", 2))));
    assert!(ledger.is_settled());
    ledger.change(put("b", 2));
    assert!(ledger.is_settled(), "the same version again");
    ledger.change(put("b", 5));
    assert_eq!(ledger.next(), Some(name("b")));
    assert!(is_applied(ledger.read(&name("b"), found("b", 7))), "a read is newer than the watch");
    ledger.change(put("b", 7));
    assert!(ledger.is_settled());
    ledger.change(put("none", 9));
    assert_eq!(ledger.next(), Some(name("none")));
}

#[test]
fn a_change_during_a_read_is_read_again() {
    let mut ledger = Ledger::default();
    ledger.want(wants(&["a"]), clock::now());
    ledger.change(put("a", 1));
    assert_eq!(ledger.next(), Some(name("a")));
    ledger.change(put("a", 3));
    assert_eq!(ledger.next(), None, "not twice at once");
    assert!(is_applied(ledger.read(&name("a"), found("a", 1))));
    assert_eq!(ledger.next(), Some(name("a")));
    assert!(is_applied(ledger.read(&name("a"), found("a", 3))));
    assert!(ledger.is_settled());
}

#[test]
fn what_goes_during_a_read_does_not_come_back() {
    let mut ledger = Ledger::default();
    ledger.want(wants(&["a"]), clock::now());
    ledger.change(put("a", 1));
    ledger.next();
    assert_eq!(ledger.change(Change::Gone(name("a"))), None, "the index never had it");
    assert_eq!(ledger.read(&name("a"), found("a", 1)), None);
    ledger.change(put("a", 4));
    assert_eq!(ledger.next(), Some(name("a")), "made again");
    assert!(is_applied(ledger.read(&name("a"), found("a", 4))));
    assert!(matches!(ledger.change(Change::Gone(name("a"))), Some(Event::Deleted(_))));
    assert!(ledger.had.is_empty() && ledger.is_settled());
}

#[test]
fn what_nobody_wants_is_forgotten_after_a_while() {
    let mut ledger = Ledger::default();
    let now = clock::now();
    ledger.want(wants(&["a"]), now);
    ledger.change(put("a", 1));
    ledger.next();
    ledger.read(&name("a"), found("a", 1));
    ledger.want(wants(&[]), now);
    assert!(ledger.expire(now + KEEP / 2).is_empty());
    ledger.want(wants(&["a"]), now);
    assert!(ledger.is_settled() && ledger.expire(now + 2 * KEEP).is_empty(), "wanted again, and still had");
    ledger.want(wants(&[]), now);
    assert_eq!(ledger.expire(now + KEEP).len(), 1);
    ledger.want(wants(&["a"]), now);
    assert_eq!(ledger.next(), Some(name("a")));
}

#[test]
fn after_a_step_back_all_is_read_again() {
    let mut ledger = Ledger::default();
    ledger.want(wants(&["a"]), clock::now());
    ledger.change(put("a", 8));
    ledger.next();
    ledger.read(&name("a"), found("a", 8));
    ledger.afresh();
    ledger.change(put("a", 3));
    assert_eq!(ledger.next(), Some(name("a")));
}

#[test]
fn what_fails_waits_alone_and_counts_as_settled() {
    let (mut ledger, now) = (Ledger::default(), clock::now());
    ledger.want(wants(&["a", "b"]), now);
    for change in [put("a", 1), put("b", 1)] {
        ledger.change(change);
    }
    assert_eq!(ledger.next(), Some(name("a")));
    assert!(ledger.failed(&name("a"), now));
    assert_eq!((ledger.next(), ledger.is_settled()), (Some(name("b")), false));
    ledger.read(&name("b"), found("b", 1));
    assert!(ledger.is_settled());
    assert_eq!(ledger.next(), None, "not before its time");
    let at = ledger.next_time().unwrap();
    assert!(at <= now + Duration::from_millis(100));
    ledger.wake(at);
    assert_eq!(ledger.next(), Some(name("a")));
    assert!(!ledger.failed(&name("a"), now), "said once");
    ledger.wake(now + Duration::from_secs(10));
    ledger.next();
    assert!(is_applied(ledger.read(&name("a"), found("a", 1))));
    assert!(ledger.failing.is_empty() && ledger.next_time().is_none());
}

#[test]
fn reads_that_hang_again_leave_room_for_others() {
    let (mut ledger, now) = (Ledger::default(), clock::now());
    let names: Vec<_> = (0..MAX_READS).map(|at| format!("a{at:02}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    ledger.want(wants(&[&names[..], &["z"]].concat()), now);
    for it in &names {
        ledger.change(put(it, 1));
    }
    while let Some(name) = ledger.next() {
        ledger.failed(&name, now);
    }
    ledger.wake(now + Duration::from_secs(10));
    assert_eq!(std::iter::from_fn(|| ledger.next()).count(), MAX_RETRIES);
    ledger.change(put("z", 1));
    assert_eq!(ledger.next(), Some(name("z")));
}

#[test]
fn a_want_ahead_of_the_watch_is_asked_for() {
    let (mut ledger, now) = (Ledger::default(), clock::now());
    ledger.listed = true;
    ledger.want(wants(&["a", "b"]), now);
    assert!(!ledger.is_settled());
    assert_eq!((ledger.next(), ledger.next(), ledger.next()), (Some(name("a")), Some(name("b")), None));
    assert_eq!(ledger.read(&name("b"), None), None);
    assert_eq!(ledger.read(&name("a"), found("a", 3)), None, "the watch has to tell of it");
    assert!(!ledger.is_settled());
    ledger.change(put("a", 3));
    assert_eq!(ledger.next(), Some(name("a")));
    assert!(is_applied(ledger.read(&name("a"), found("a", 3))));
    assert!(ledger.is_settled());
    ledger.want(wants(&["c"]), now);
    ledger.next();
    assert!(!ledger.failed(&name("c"), now), "one that may not exist is not insisted on");
    assert!(ledger.is_settled());
}

#[test]
fn a_start_waits_as_long_as_reads_succeed() {
    let now = clock::now();
    let mut start = Start::default();
    start.note(true, true, now);
    assert!(!start.is_over(true, now + PATIENCE), "not listed");
    start.listed = true;
    start.note(false, true, now);
    assert!(!start.is_over(true, now + PATIENCE), "the wants are not final, however long that takes");
    start.note(true, false, now);
    assert!(start.is_over(true, now));
    assert!(!start.is_over(false, now + PATIENCE / 2));
    assert!(start.is_over(false, now + PATIENCE));
    start.note(true, true, now + PATIENCE / 2);
    start.note(true, false, now + PATIENCE);
    assert!(!start.is_over(false, now + PATIENCE), "one was read");
    assert!(start.is_over(false, now + PATIENCE / 2 + PATIENCE));
}
