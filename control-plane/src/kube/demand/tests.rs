use shared::name::ObjectName;

use super::super::tests::fake::{Fake, Reply, status};
use super::*;
use crate::event::Inputs;

fn secret(name: &str) -> ObjectRef {
    ObjectRef { kind: ObjectKind::Secret, name: ObjectName::new("n", name) }
}

fn put(object: &str, revision: u64) -> Change<()> {
    let revision = Revision(revision.to_string().into());
    Change::Put(Item { name: ObjectName::new("n", object), uid: "u".into(), revision, value: () })
}

fn found(object: &str, revision: u64) -> Option<Item<Decoded>> {
    let text =
        format!(r#"{{"metadata":{{"name":"{object}","namespace":"n","resourceVersion":"{revision}"}}}}"#);
    Whole(ObjectKind::Secret).decode(&text)
}

fn is_applied(event: Option<Event>) -> bool {
    matches!(event, Some(Event::Applied { .. }))
}

fn is_deleted(event: Option<Event>) -> bool {
    matches!(event, Some(Event::Deleted(_)))
}

/// A ledger and its time.
struct Bench {
    ledger: Ledger,
    now: Instant,
}

impl Bench {
    /// Whose Secrets are listed: none so far.
    fn new() -> Self {
        let mut ledger = Ledger::default();
        ledger.list_complete(ObjectKind::Secret);
        Self { ledger, now: clock::now() }
    }

    /// One Secret, `a`, which is wanted and was read.
    fn with_one() -> Self {
        let mut bench = Self::new();
        bench.change(put("a", 1));
        bench.want(&["a"]);
        bench.next();
        bench.read("a", 1);
        bench
    }

    fn change(&mut self, change: Change<()>) -> Option<Event> {
        self.ledger.change(ObjectKind::Secret, change)
    }

    fn gone(&mut self, name: &str) -> Option<Event> {
        self.change(Change::Gone(ObjectName::new("n", name)))
    }

    fn want(&mut self, names: &[&str]) {
        self.ledger.want(names.iter().map(|name| secret(name)).collect(), self.now);
    }

    fn next(&mut self) -> Option<String> {
        self.ledger.next().map(|object| object.name.name.to_string())
    }

    fn read(&mut self, name: &str, revision: u64) -> Option<Event> {
        self.ledger.read(&secret(name), found(name, revision), self.now)
    }

    fn absent(&mut self, name: &str) -> Option<Event> {
        self.ledger.read(&secret(name), None, self.now)
    }

    fn failed(&mut self, name: &str, reason: &str) -> Option<(Event, bool)> {
        self.ledger.failed(&secret(name), reason.to_owned(), self.now)
    }

    fn pass(&mut self, time: Duration) -> Vec<Event> {
        self.now += time;
        self.ledger.wake(self.now)
    }
}

#[test]
fn only_what_is_wanted_is_read_and_again_when_it_changes() {
    let mut bench = Bench::new();
    for change in [put("a", 1), put("b", 2)] {
        assert_eq!(bench.change(change), None);
    }
    assert_eq!(bench.next(), None);
    bench.want(&["b"]);
    assert_eq!(bench.next().as_deref(), Some("b"));
    assert_eq!(bench.next(), None);
    assert!(is_applied(bench.read("b", 2)));
    bench.change(put("b", 2));
    assert_eq!(bench.next(), None, "the same version again");
    bench.change(put("b", 5));
    assert_eq!(bench.next().as_deref(), Some("b"));
    assert!(is_applied(bench.read("b", 7)), "a read is newer than the watch");
    bench.change(put("b", 7));
    assert_eq!(bench.next(), None);
}

/// Without being asked for: the index tells whether one of them is meant.
#[test]
fn configmaps_with_usual_names_are_read() {
    let map = |name: &str| ObjectRef { kind: ObjectKind::ConfigMap, name: ObjectName::new("n", name) };
    let mut bench = Bench::new();
    bench.ledger.fixed.insert(map("nginx-configuration"));
    let kind = ObjectKind::ConfigMap;
    for name in ["app", "nginx-configuration", "a-ingress-nginx-controller"] {
        bench.ledger.change(kind, put(name, 1));
    }
    bench.change(put("b-ingress-nginx-controller", 1));
    assert_eq!(bench.next().as_deref(), Some("a-ingress-nginx-controller"));
    assert_eq!(bench.next(), None);
    bench.want(&["x"]);
    assert_eq!(bench.next().as_deref(), Some("x"));
    let read = bench.ledger.read(
        &map("a-ingress-nginx-controller"),
        found("a-ingress-nginx-controller", 1),
        bench.now,
    );
    assert!(is_applied(read), "it stays wanted");
    let gone = Change::Gone(ObjectName::new("n", "a-ingress-nginx-controller"));
    assert!(is_deleted(bench.ledger.change(kind, gone)));
    assert!(!bench.ledger.wanted.contains(&map("a-ingress-nginx-controller")));

    for i in 0..2 * MAX_ALIKE {
        bench.ledger.change(kind, put(&format!("{i}-ingress-nginx-controller"), 1));
    }
    assert_eq!(std::iter::from_fn(|| bench.next()).count(), MAX_ALIKE, "nobody fills the memory with them");
}

#[test]
fn absence_is_what_the_server_says_to_a_request() {
    let mut bench = Bench { ledger: Ledger::default(), now: clock::now() };
    bench.want(&["a", "b"]);
    assert_eq!(bench.next(), None, "the list is on its way");
    bench.ledger.list_complete(ObjectKind::Secret);
    assert_eq!((bench.next().as_deref(), bench.next().as_deref()), (Some("a"), Some("b")));
    assert!(is_deleted(bench.absent("a")));
    assert_eq!(
        bench.pass(10 * KEEP),
        [Event::Late(secret("b"))],
        "the watch tells when the other one is made"
    );
    assert_eq!(bench.next(), None);
    bench.change(put("a", 4));
    assert_eq!(bench.next().as_deref(), Some("a"));
    assert!(is_applied(bench.read("a", 4)));
}

#[test]
fn a_read_that_is_ahead_of_the_watch_counts_and_is_confirmed() {
    let mut bench = Bench::new();
    bench.want(&["a", "b"]);
    assert_eq!((bench.next().as_deref(), bench.next().as_deref()), (Some("a"), Some("b")));
    assert!(is_applied(bench.read("a", 3)));
    assert!(is_applied(bench.read("b", 3)));
    // The watch comes to one of them.
    bench.change(put("a", 3));
    bench.pass(2 * AGAIN.0);
    assert_eq!(bench.next().as_deref(), Some("b"));
    assert_eq!(bench.next(), None);
    assert_eq!(bench.read("b", 3), None, "nothing new");
    bench.pass(AGAIN.1);
    assert_eq!(bench.next().as_deref(), Some("b"), "no watch tells of it, so it is asked for for ever");
    assert!(is_deleted(bench.absent("b")));
    bench.pass(AGAIN.1);
    assert_eq!(bench.next(), None);
}

#[test]
fn a_namespace_that_is_not_watched_is_asked_for() {
    let mut bench = Bench::new();
    bench.ledger.namespace = Some("other".into());
    bench.want(&["a"]);
    assert_eq!(bench.next().as_deref(), Some("a"));
    assert!(is_deleted(bench.absent("a")));
    bench.pass(AGAIN.1);
    assert_eq!(bench.next().as_deref(), Some("a"), "nobody would tell that it was made");
    assert!(is_applied(bench.read("a", 1)));
    bench.pass(AGAIN.1);
    assert_eq!(bench.next().as_deref(), Some("a"), "nor that it changed");
    assert!(is_applied(bench.read("a", 2)));
}

#[test]
fn a_kind_that_may_not_be_listed_is_asked_for() {
    let mut bench = Bench { ledger: Ledger::default(), now: clock::now() };
    let map = ObjectRef { kind: ObjectKind::ConfigMap, name: ObjectName::new("n", "a") };
    bench.ledger.want([map.clone()].into_iter().collect(), bench.now);
    assert_eq!(bench.ledger.next(), None);
    bench.ledger.list_forbidden(ObjectKind::ConfigMap);
    assert_eq!(bench.ledger.next(), Some(map.clone()));
    assert!(is_deleted(bench.ledger.read(&map, None, bench.now)));
    bench.pass(AGAIN.1);
    assert_eq!(bench.ledger.next(), Some(map));
}

/// A list that was allowed shows nothing any more, so what it showed is asked for as well, until it is allowed again.
#[test]
fn what_was_listed_before_is_asked_for_where_listing_is_forbidden() {
    let mut bench = Bench::with_one();
    bench.pass(AGAIN.1);
    assert_eq!(bench.next(), None, "the watch tells of it");
    bench.ledger.list_forbidden(ObjectKind::Secret);
    for revision in 2..4 {
        assert_eq!(bench.next().as_deref(), Some("a"));
        assert!(is_applied(bench.read("a", revision)));
        bench.pass(AGAIN.1);
    }
    bench.change(put("a", 4));
    bench.ledger.list_complete(ObjectKind::Secret);
    assert_eq!(bench.next().as_deref(), Some("a"));
    assert!(is_applied(bench.read("a", 4)));
    bench.pass(AGAIN.1);
    assert_eq!(bench.next(), None, "the watch tells of it");
}

/// Whether all is read for a round is known where it may be listed.
#[test]
fn a_round_is_not_whole_where_a_list_may_not_be_read() {
    let mut bench = Bench::new();
    bench.ledger.note_fresh(ObjectKind::Secret, 5, true);
    bench.ledger.note_fresh(ObjectKind::ConfigMap, 5, false);
    assert_eq!(bench.ledger.round_over(), Some((5, false)));
    bench.ledger.note_fresh(ObjectKind::ConfigMap, 5, true);
    assert_eq!(bench.ledger.round_over(), Some((5, true)), "now it may be");
    for (secrets, configmaps) in [(false, true), (true, true)] {
        let round = if configmaps && secrets { 7 } else { 6 };
        bench.ledger.note_fresh(ObjectKind::Secret, round, secrets);
        bench.ledger.note_fresh(ObjectKind::ConfigMap, round, configmaps);
        assert_eq!(bench.ledger.round_over(), Some((round, secrets)));
    }
}

#[test]
fn a_change_during_a_read_is_read_again() {
    let mut bench = Bench::new();
    bench.change(put("a", 1));
    bench.want(&["a"]);
    assert_eq!(bench.next().as_deref(), Some("a"));
    bench.change(put("a", 3));
    assert_eq!(bench.next(), None, "not twice at once");
    assert!(is_applied(bench.read("a", 1)));
    assert_eq!(bench.next().as_deref(), Some("a"));
    assert!(is_applied(bench.read("a", 3)));
    assert_eq!(bench.next(), None);
}

#[test]
fn what_goes_during_a_read_does_not_come_back() {
    let mut bench = Bench::new();
    bench.change(put("a", 1));
    bench.want(&["a"]);
    bench.next();
    assert!(is_deleted(bench.gone("a")), "whoever waits for it hears that it is gone");
    assert_eq!(bench.read("a", 1), None);
    assert_eq!(bench.next().as_deref(), Some("a"), "what was read says nothing of now");
    bench.change(put("a", 4));
    assert!(is_applied(bench.read("a", 4)), "made again");
    assert!(is_deleted(bench.gone("a")));
}

#[test]
fn what_nobody_wants_is_dropped_after_a_while() {
    let mut bench = Bench::with_one();
    bench.want(&[]);
    assert_eq!(bench.pass(KEEP / 2), []);
    bench.want(&["a"]);
    assert_eq!(bench.next(), None, "wanted again, and still had");
    assert_eq!(bench.pass(2 * KEEP), []);
    bench.want(&[]);
    assert_eq!(bench.pass(KEEP), [Event::Dropped(secret("a"))]);
    bench.want(&["a"]);
    assert_eq!(bench.next().as_deref(), Some("a"));
}

#[test]
fn what_is_watched_by_name_is_never_taken_back() {
    let mut bench = Bench::new();
    bench.ledger.fixed = [secret("a")].into();
    bench.change(put("a", 1));
    bench.want(&["a"]);
    bench.next();
    bench.read("a", 1);
    bench.want(&[]);
    assert_eq!(bench.pass(2 * KEEP), []);
    assert_eq!(bench.gone("a"), None);
    bench.want(&["a"]);
    assert_eq!(bench.gone("a"), None, "its own watch tells");
}

#[test]
fn what_nobody_wants_is_kept_from_when_it_was_wanted_last() {
    let mut bench = Bench::with_one();
    bench.want(&[]);
    assert_eq!(bench.pass(KEEP / 2), []);
    bench.want(&["a"]);
    bench.want(&[]);
    assert_eq!(bench.pass(KEEP / 2), []);
    assert_eq!(bench.pass(KEEP / 2), [Event::Dropped(secret("a"))]);
}

/// Delays are random: one that is over by now is tried until it would have been the earlier one.
#[test]
fn what_failed_again_waits_from_then() {
    let is_seen = (0..200).any(|_| {
        let mut bench = Bench::new();
        bench.change(put("a", 1));
        for _ in 0..2 {
            bench.want(&["a"]);
            assert_eq!(bench.next().as_deref(), Some("a"));
            bench.failed("a", "503");
            bench.want(&[]);
        }
        bench.want(&["a"]);
        assert_eq!(bench.next().as_deref(), Some("a"));
        bench.failed("a", "503");
        let (stale, valid) = (bench.ledger.next_time().unwrap(), bench.ledger.again[&secret("a")].at);
        bench.ledger.wake(stale);
        assert_eq!(bench.next().is_some(), stale == valid);
        stale < valid
    });
    assert!(is_seen);
}

#[test]
fn after_a_step_back_all_is_read_again() {
    let mut bench = Bench::new();
    bench.change(put("a", 8));
    bench.want(&["a"]);
    bench.next();
    bench.read("a", 8);
    bench.ledger.afresh(ObjectKind::Secret);
    bench.change(put("a", 3));
    assert_eq!(bench.next().as_deref(), Some("a"));
}

/// Else it would be said to be unreadable until it changes.
#[test]
fn what_can_be_read_again_is_told_though_it_did_not_change() {
    let mut bench = Bench::new();
    bench.ledger.namespace = Some("other".into());
    bench.want(&["a"]);
    bench.next();
    assert!(is_applied(bench.read("a", 1)));
    for expected in [None, Some("403"), None] {
        bench.pass(AGAIN.1);
        assert_eq!(bench.next().as_deref(), Some("a"));
        match expected {
            None => assert_eq!(bench.read("a", 1), None, "nothing new"),
            Some(reason) => {
                assert!(bench.failed("a", reason).is_some());
                bench.pass(AGAIN.1);
                bench.next();
                assert!(is_applied(bench.read("a", 1)));
            }
        }
    }
}

#[test]
fn an_error_says_so_once_and_settles_nothing() {
    let mut bench = Bench::new();
    for change in [put("a", 1), put("b", 1)] {
        bench.change(change);
    }
    bench.want(&["a", "b"]);
    assert_eq!(bench.next().as_deref(), Some("a"));
    let said = bench.failed("a", "503").unwrap();
    assert_eq!(said, (Event::Unreadable { object: secret("a"), reason: "503".into() }, true));
    assert_eq!(bench.next().as_deref(), Some("b"), "others go on");
    assert!(is_applied(bench.read("b", 1)));
    assert_eq!(bench.next(), None, "not before its time");
    assert!(bench.ledger.next_time().unwrap() <= bench.now + 2 * AGAIN.0);
    for _ in 0..20 {
        bench.pass(AGAIN.1);
        assert_eq!(bench.next().as_deref(), Some("a"));
        assert_eq!(bench.failed("a", "503"), None, "said once");
    }
    bench.pass(AGAIN.1);
    bench.next();
    assert!(matches!(bench.failed("a", "no answer"), Some((Event::Unreadable { .. }, false))));
    bench.pass(AGAIN.1);
    bench.next();
    assert!(is_applied(bench.read("a", 1)));
    assert_eq!(bench.ledger.again.len(), 0);
}

#[test]
fn reads_that_hang_again_leave_room_for_others() {
    let mut bench = Bench::new();
    let names: Vec<_> = (0..MAX_READS).map(|at| format!("a{at:02}")).collect();
    let mut names: Vec<_> = names.iter().map(String::as_str).collect();
    for it in &names {
        bench.change(put(it, 1));
    }
    bench.want(&names);
    while let Some(name) = bench.next() {
        bench.failed(&name, "503");
    }
    bench.pass(AGAIN.1);
    assert_eq!(std::iter::from_fn(|| bench.next()).count(), MAX_RETRIES);
    bench.change(put("z", 1));
    names.push("z");
    bench.want(&names);
    assert_eq!(bench.next().as_deref(), Some("z"));
}

#[test]
fn a_round_is_over_when_what_its_lists_showed_was_read() {
    let mut bench = Bench::new();
    bench.want(&["a", "b", "c"]);
    for name in ["a", "b", "c"] {
        bench.change(put(name, 1));
        bench.next();
        bench.read(name, 1);
    }
    assert_eq!(bench.ledger.round_over(), None, "there is none");
    bench.change(put("a", 2));
    bench.change(put("b", 2));
    bench.ledger.note_fresh(ObjectKind::Secret, 5, true);
    assert_eq!(bench.ledger.round_over(), None, "ConfigMaps are not listed yet");
    bench.ledger.note_fresh(ObjectKind::ConfigMap, 5, true);
    assert_eq!(bench.ledger.round_over(), None);
    while bench.next().is_some() {}
    bench.read("a", 2);
    assert_eq!(bench.ledger.round_over(), None, "one is under way");
    // Later changes are not part of the round, and unreadable objects do not delay it.
    bench.change(put("c", 2));
    bench.failed("b", "500");
    assert_eq!(bench.ledger.round_over(), Some((5, true)));
    assert_eq!(bench.ledger.round_over(), None, "told once");
}

/// A read under way may have been answered before the round; an object that could not be read before delays it no more
/// than others.
#[test]
fn a_round_waits_for_what_is_being_read_and_for_nothing_that_fails() {
    let mut bench = Bench::new();
    for name in ["a", "b"] {
        bench.change(put(name, 1));
    }
    bench.want(&["a", "b"]);
    let fresh = |bench: &mut Bench, round| {
        for kind in [ObjectKind::Secret, ObjectKind::ConfigMap] {
            bench.ledger.note_fresh(kind, round, true);
        }
    };
    while bench.next().is_some() {}
    bench.failed("b", "503");
    fresh(&mut bench, 5);
    assert_eq!(bench.next(), None, "what fails is not read sooner for it");
    assert_eq!(bench.ledger.round_over(), None);
    bench.read("a", 1);
    assert_eq!(bench.ledger.round_over(), Some((5, true)));
    bench.pass(AGAIN.1);
    assert_eq!(bench.next().as_deref(), Some("b"), "once more");
    fresh(&mut bench, 6);
    assert_eq!(bench.ledger.round_over(), Some((6, true)));

    let mut bench = Bench::new();
    bench.ledger.namespace = Some("other".into());
    bench.want(&["a"]);
    bench.next();
    bench.failed("a", "503");
    fresh(&mut bench, 5);
    assert_eq!(
        (bench.next(), bench.ledger.round_over()),
        (None, Some((5, true))),
        "nor where no list tells of it"
    );
}

#[test]
fn a_round_reads_what_no_list_tells_of() {
    for (is_elsewhere, is_blind) in [(true, false), (false, true), (false, false)] {
        let mut bench = Bench::new();
        bench.ledger.namespace = is_elsewhere.then(|| "other".into());
        if is_blind {
            bench.ledger.list_forbidden(ObjectKind::Secret);
        }
        bench.want(&["a", "b"]);
        while bench.next().is_some() {}
        // If everything except Helm's Secrets is watched, this is one of those.
        bench.read("a", 1);
        bench.absent("b");
        bench.pass(AGAIN.1);
        bench.next();
        for kind in [ObjectKind::Secret, ObjectKind::ConfigMap] {
            bench.ledger.note_fresh(kind, 5, true);
        }
        assert_eq!(bench.ledger.round_over(), None, "a read is under way that may have been answered before");
        bench.read("a", 1);
        assert_eq!(bench.ledger.round_over(), None);
        let again: Vec<_> = std::iter::from_fn(|| bench.next()).collect();
        assert_eq!(again, if is_elsewhere || is_blind { vec!["a", "b"] } else { vec!["a"] });
        assert!(is_applied(bench.read("a", 2)), "as others know it");
        bench.failed("b", "500");
        assert_eq!(bench.ledger.round_over(), Some((5, true)));
    }
}

#[tokio::test(start_paused = true)]
async fn what_no_object_can_be_called_is_absent_and_not_asked_for() {
    // An error for each that is asked for.
    let server = Fake::new(|_| status(500));
    let absent = async |namespace: &str, name: &str| {
        let object = ObjectRef { kind: ObjectKind::Secret, name: ObjectName::new(namespace, name) };
        matches!(read(server.client(), object).await, (_, Ok(None)))
    };
    for name in ["my secret", "..", "../../nodes/a", "a/b", "a?b", "a%2fb", "A", "", "-a", "a\nb", "\u{e4}"] {
        assert!(absent("n", name).await, "{name:?}");
        assert!(absent(name, "n").await, "{name:?}");
    }
    for name in ["a", "a.b-c", "0", &"a".repeat(253)] {
        assert!(!absent("n", name).await, "{name:?}");
    }
}

/// An unresponsive server is not asked sooner because more is wanted.
#[test]
fn what_cannot_be_read_waits_for_its_time_though_it_changes() {
    let mut bench = Bench::new();
    bench.change(put("a", 1));
    bench.want(&["a"]);
    bench.next();
    bench.failed("a", "503");
    bench.change(put("a", 2));
    assert_eq!(bench.next(), None);
    bench.pass(AGAIN.1);
    assert_eq!(bench.next().as_deref(), Some("a"));
}

#[test]
fn what_no_watch_tells_of_is_read_anew_when_it_is_wanted_again() {
    for is_watched in [false, true] {
        let mut bench = Bench::new();
        bench.ledger.namespace = (!is_watched).then(|| "other".into());
        bench.change(put("b", 1));
        bench.want(&["a"]);
        bench.next();
        bench.read("a", 1);
        bench.want(&[]);
        bench.want(&["a"]);
        assert_eq!(bench.next().as_deref(), (!is_watched).then_some("a"));
    }
}

#[test]
fn a_kind_that_may_be_listed_again_is_watched() {
    let mut bench = Bench::new();
    bench.ledger.list_forbidden(ObjectKind::Secret);
    bench.ledger.list_complete(ObjectKind::Secret);
    bench.want(&["a"]);
    bench.next();
    assert!(is_deleted(bench.absent("a")));
    bench.pass(AGAIN.1);
    assert_eq!(bench.next(), None, "the watch tells when it is made");
}

/// Everything in memory is wanted, or was a minute ago.
#[test]
fn what_nobody_wants_any_more_when_it_comes_is_not_kept() {
    let mut bench = Bench::new();
    bench.change(put("a", 1));
    bench.want(&["a"]);
    bench.next();
    bench.want(&[]);
    assert_eq!(bench.read("a", 1), None);
    assert!(bench.ledger.had.is_empty());
}

/// However many are wanted at once, as when a replica starts.
#[tokio::test(start_paused = true)]
async fn so_many_are_read_at_a_time_and_the_others_wait() {
    let server = Fake::new(|_| Reply::Nothing);
    let all = (0..100).map(|at| secret(&format!("s{at}"))).collect();
    let (_wants, wanted) = watch::channel(all);
    let (seen, heard) = mpsc::channel(8);
    seen.send(Seen::Blind(ObjectKind::Secret)).await.unwrap();
    let (inputs, _receivers) = Inputs::channel(8);
    let rounds = Rounds::new(inputs.clone());
    let scope = Scope { namespace: None, fixed: BTreeSet::new() };
    let sender = Sender::new(inputs, crate::freshness::Freshness::default());
    let running = run(server.client(), sender, scope, (heard, wanted), rounds);
    assert!(tokio::time::timeout(Duration::from_millis(10), running).await.is_err());
    assert_eq!(server.asked().len(), MAX_READS);
}

/// The index does not wait for ever for what it is to do without.
#[test]
fn what_is_not_read_in_time_is_told_once() {
    let mut bench = Bench::new();
    bench.change(put("a", 1));
    bench.want(&["a", "b"]);
    assert!(bench.next().is_some() && bench.next().is_some());
    assert_eq!(bench.pass(IN_TIME / 2), []);
    assert!(is_deleted(bench.absent("b")));
    assert_eq!(bench.pass(IN_TIME / 2), [Event::Late(secret("a"))], "the read is under way still");
    assert_eq!(bench.pass(IN_TIME), []);
    assert!(is_applied(bench.read("a", 1)));

    // What failed was told, and what nobody wants needs no answer; what was read before is there.
    bench.want(&["b", "c"]);
    bench.failed("c", "503");
    bench.want(&["c", "a"]);
    assert_eq!(bench.pass(IN_TIME), []);

    // Nothing is read before the list of what there is.
    let mut bench = Bench { ledger: Ledger::default(), now: clock::now() };
    bench.want(&["a"]);
    assert_eq!(bench.pass(IN_TIME), []);
    bench.ledger.list_complete(ObjectKind::Secret);
    assert_eq!(bench.pass(IN_TIME), [Event::Late(secret("a"))]);
}
