use super::*;

fn name(name: &str) -> ObjectName {
    ObjectName::new("n", name)
}

fn put(object: &str, revision: u64) -> Change<()> {
    let revision = Revision(revision.to_string().into());
    Change::Put(Item {
        name: name(object),
        uid: "u".into(),
        revision,
        value: (),
    })
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
    assert!(
        is_applied(ledger.read(&name("b"), found("b", 7))),
        "a read is newer than the watch"
    );
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
    assert_eq!(
        ledger.change(Change::Gone(name("a"))),
        None,
        "the index never had it"
    );
    assert_eq!(ledger.read(&name("a"), found("a", 1)), None);
    ledger.change(put("a", 4));
    assert_eq!(ledger.next(), Some(name("a")), "made again");
    assert!(is_applied(ledger.read(&name("a"), found("a", 4))));
    assert!(matches!(
        ledger.change(Change::Gone(name("a"))),
        Some(Event::Deleted(_))
    ));
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
    assert!(
        ledger.is_settled() && ledger.expire(now + 2 * KEEP).is_empty(),
        "wanted again, and still had"
    );
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
    ledger.failed(&name("a"));
    assert_eq!(ledger.next(), Some(name("a")), "a failed read is due again");
}

#[test]
fn a_start_waits_for_wants_and_their_reads_but_not_for_ever() {
    let now = clock::now();
    let start = |listed, taken, published| Start {
        listed,
        taken,
        published,
    };
    assert!(!start(true, None, None).is_over(true, now + PATIENCE));
    assert!(!start(false, Some(now), None).is_over(true, now + PATIENCE));
    assert!(!start(true, Some(now), None).is_over(true, now + QUIET / 2));
    assert!(start(true, Some(now), None).is_over(true, now + QUIET));
    assert!(start(true, Some(now), Some(now)).is_over(true, now));
    assert!(!start(true, Some(now), Some(now)).is_over(false, now + QUIET));
    assert!(start(true, Some(now), Some(now)).is_over(false, now + PATIENCE));
}
