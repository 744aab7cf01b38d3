//! What a watch trusts, step by step: when it accepts a list, and when it discards what it knows.

use super::*;

fn changes_of(watch: &mut Watch<u64>, input: WatchInput<u64>, at: Instant) -> Vec<Change<u64>> {
    let changes = watch.on(input, at).into_iter().filter_map(|output| match output {
        WatchOutput::Changes(changes) => Some(changes),
        _ => None,
    });
    changes.flatten().collect()
}

fn page(objects: impl Iterator<Item = u8>, number: u64, more: bool) -> WatchInput<u64> {
    let more = more.then(|| "next".to_owned());
    WatchInput::Page { items: objects.map(|it| item(it, 5)).collect(), revision: revision(number), more }
}

fn refused(code: u16) -> WatchInput<u64> {
    WatchInput::Refused { code, reason: "because".to_owned() }
}

/// One that knows so many objects at revision 5, and reads lists in pages.
fn knowing(objects: u8, now: Instant) -> Watch<u64> {
    let mut watch = Watch::new(false, now);
    watch.on(refused(422), now);
    assert_eq!(watch.todo(now), Todo::List { more: None });
    assert_eq!(changes_of(&mut watch, page(0..objects, 5, false), now).len(), usize::from(objects));
    watch
}

/// Does what it says until it asks something of the server.
fn next(watch: &Watch<u64>, now: Instant) -> Todo {
    match watch.todo(now) {
        Todo::Wait(until) => watch.todo(until),
        todo => todo,
    }
}

#[test]
fn a_revision_that_is_too_old_is_given_up_at_the_first_refusal() {
    let now = clock::now();
    let mut watch = knowing(3, now);
    assert_eq!(watch.todo(now), Todo::Open { from: Some(revision(5)) });
    watch.on(refused(410), now);
    assert_eq!(next(&watch, now), Todo::List { more: None }, "refused when it is opened");

    let mut watch = knowing(3, now);
    watch.on(WatchInput::Opened, now);
    watch.on(WatchInput::Put(item(1, 6)), now);
    watch.on(refused(410), now);
    assert_eq!(watch.todo(now), Todo::List { more: None }, "one that spoke lists at once");

    let mut watch = knowing(3, now);
    watch.on(WatchInput::Opened, now);
    watch.on(refused(410), now);
    assert!(
        matches!(watch.todo(now), Todo::Wait(_)),
        "one that never spoke waits first: it may go round for ever"
    );

    let mut watch = knowing(3, now);
    watch.on(WatchInput::Opened, now);
    watch.on(WatchInput::Put(item(1, 6)), now);
    watch.on(WatchInput::Ended, now);
    watch.on(refused(410), now);
    assert!(matches!(watch.todo(now), Todo::Wait(_)), "so does one that is refused after one that spoke");
}

#[test]
fn any_other_refusal_keeps_the_revision_until_it_is_stubborn() {
    let now = clock::now();
    for code in [401, 403, 429, 500, 503, 504] {
        let mut watch = knowing(3, now);
        for tries in 1..STUBBORN {
            watch.on(refused(code), now);
            assert_eq!(next(&watch, now), Todo::Open { from: Some(revision(5)) }, "{code} after {tries}");
        }
        watch.on(refused(code), now);
        assert_eq!(next(&watch, now), Todo::List { more: None }, "{code}");
    }
}

/// The rest of an expired list is from another moment than its beginning.
#[test]
fn nothing_of_a_list_is_used_whose_rest_expired() {
    let now = clock::now();
    for code in [410, 500, 429] {
        let mut watch = knowing(4, now);
        watch.on(WatchInput::Restored, now);
        assert_eq!(changes_of(&mut watch, page(0..2, 6, true), now), []);
        assert_eq!(watch.todo(now), Todo::List { more: Some("next".to_owned()) });
        watch.on(refused(code), now);
        let again = if code == 410 { Todo::ListWhole } else { Todo::List { more: None } };
        assert_eq!(next(&watch, now), again, "{code}: from the start");
        let changes = changes_of(&mut watch, page(1..4, 7, false), now);
        assert!(
            changes.contains(&Change::Gone(name(0))),
            "{code}: what went in between is gone: {changes:?}"
        );
        assert!(!changes.iter().any(|it| matches!(it, Change::Put(item) if item.name == name(0))), "{code}");
    }
}

/// Where pages take longer than the server keeps a version, a list in pages would never end.
#[test]
fn a_list_whose_pages_expire_is_read_in_one_piece() {
    let now = clock::now();
    let mut watch = knowing(4, now);
    let restarts = |watch: &mut Watch<u64>| {
        watch.on(WatchInput::Restored, now);
        watch.on(page(0..2, 6, true), now);
        watch.on(refused(410), now);
    };
    restarts(&mut watch);
    assert_eq!(next(&watch, now), Todo::ListWhole);
    watch.on(refused(504), now);
    assert_eq!(next(&watch, now), Todo::List { more: None }, "that is too much for it");
    restarts(&mut watch);
    assert_eq!(changes_of(&mut watch, page(0..3, 7, false), now).len(), 4);
    watch.on(WatchInput::Restored, now);
    assert_eq!(next(&watch, now), Todo::List { more: None }, "the next one may be quicker");
}

/// Another kind noticed it: what this kind knows may be from the discarded history.
#[test]
fn a_history_that_went_back_is_listed_again_as_new() {
    let now = clock::now();
    for (opened, newest) in [(false, 9), (true, 9), (false, 2), (true, 2)] {
        let mut watch = knowing(3, now);
        if opened {
            watch.on(WatchInput::Opened, now);
            assert_eq!(watch.todo(now), Todo::Read);
        }
        assert_eq!(watch.on(WatchInput::Restored, now), []);
        assert_eq!(watch.todo(now), Todo::List { more: None });
        let outputs = watch.on(page(0..3, newest, false), now);
        assert!(outputs.contains(&WatchOutput::Afresh), "a revision of before means nothing: {outputs:?}");
        let all = WatchOutput::Changes((0..3).map(|it| Change::Put(item(it, 5))).collect());
        assert!(outputs.contains(&all), "the same revision may be another version: {outputs:?}");
        assert!(!outputs.contains(&WatchOutput::Restored), "the others know");
    }
}

#[test]
fn the_first_list_after_its_time_decides() {
    let began = clock::now();
    let again = |watch: &mut Watch<u64>, at: Instant| {
        watch.on(WatchInput::Restored, at);
        changes_of(watch, page(0..10, 6, false), at).iter().filter(|it| matches!(it, Change::Gone(_))).count()
    };
    let early = SECOND_LOOK - Duration::from_millis(1);
    let mut watch = knowing(40, began);
    assert_eq!(again(&mut watch, began), 0, "the first list");
    assert_eq!(again(&mut watch, began + early), 0, "one that comes too early decides nothing");
    assert_eq!(again(&mut watch, began + SECOND_LOOK), 30, "two lists agree, and one in between");
    assert_eq!(again(&mut watch, began + early + SECOND_LOOK), 0, "once");
}

/// Each proxy that comes with another state asks for a list: objects stayed, and none of them got an answer, for as long
/// as one came every few seconds.
#[test]
fn lists_that_follow_one_another_quickly_decide_as_well() {
    let began = clock::now();
    let mut watch = knowing(40, began);
    let mut told = Vec::new();
    for (round, second) in (0..=SECOND_LOOK.as_secs()).enumerate() {
        let at = began + Duration::from_secs(second);
        watch.on(WatchInput::Refresh(round as u64), at);
        // One more is missing from each list.
        let outputs = watch.on(page(0..10 - second as u8, 6, false), at);
        let warns = outputs.iter().any(|it| matches!(it, WatchOutput::Warning(_)));
        let gone = outputs.iter().find_map(|it| match it {
            WatchOutput::Changes(changes) => {
                Some(changes.iter().filter(|it| matches!(it, Change::Gone(_))).count()).filter(|it| *it > 0)
            }
            _ => None,
        });
        told.push((warns, gone, outputs.iter().any(|it| matches!(it, WatchOutput::Fresh(_)))));
    }
    let doubts = [(true, None, false); 5];
    assert_eq!(told[..5], doubts, "each has one more to doubt");
    assert_eq!(
        told[5],
        (false, Some(35), true),
        "those that no list of five seconds had, and five more, which are few"
    );
}

/// It waits for the list after the one that lacked something, whatever was seen in between.
#[test]
fn a_round_ends_though_all_that_was_doubted_shows_itself() {
    let began = clock::now();
    let mut watch = knowing(1, began);
    watch.on(WatchInput::Refresh(3), began);
    assert!(!watch.on(page(0..0, 6, false), began).contains(&WatchOutput::Fresh(3)), "that may be wrong");
    watch.on(WatchInput::Opened, began);
    watch.on(WatchInput::Put(item(0, 7)), began);
    assert_eq!(watch.due(), began + SECOND_LOOK);
    watch.on(WatchInput::Tick, began + SECOND_LOOK);
    let outputs = watch.on(page(0..1, 7, false), began + SECOND_LOOK);
    assert!(outputs.contains(&WatchOutput::Fresh(3)), "{outputs:?}");
}

/// An object that exists in between is not one that both lists lacked.
#[test]
fn what_shows_itself_between_two_lists_is_doubted_anew() {
    let began = clock::now();
    let mut watch = knowing(40, began);
    watch.on(WatchInput::Restored, began);
    assert_eq!(
        changes_of(&mut watch, page(0..10, 6, false), began),
        (0..10).map(|it| Change::Put(item(it, 5))).collect::<Vec<_>>()
    );
    watch.on(WatchInput::Opened, began);
    (10..25).for_each(|it| drop(watch.on(WatchInput::Put(item(it, 7)), began)));
    let later = began + SECOND_LOOK;
    assert_eq!(watch.due(), later, "nobody has to speak first");
    watch.on(WatchInput::Tick, later);
    let changes = changes_of(&mut watch, page(0..10, 8, false), later);
    let gone: Vec<_> = changes.iter().filter(|it| matches!(it, Change::Gone(_))).collect();
    assert_eq!(gone.len(), 15, "15 that two lists lack; the other 15 wait: {gone:?}");
}

#[test]
fn an_empty_first_list_is_no_answer_before_its_time() {
    let began = clock::now();
    let list = |watch: &mut Watch<u64>, at: Instant| {
        watch.on(WatchInput::Restored, at);
        watch.on(page(0..0, 5, false), at).contains(&WatchOutput::Synced)
    };
    let mut doubting = Watch::new(true, began);
    doubting.on(refused(422), began);
    assert!(!list(&mut doubting, began));
    assert!(!list(&mut doubting, began + SECOND_LOOK - Duration::from_millis(1)));
    assert!(list(&mut doubting, began + SECOND_LOOK));
    let mut trusting = Watch::new(false, began);
    trusting.on(refused(422), began);
    assert!(list(&mut trusting, began));
}

/// A bookmark moves the resume position, and one that goes back means that the history did.
#[test]
fn bookmarks_are_believed_forwards_alone() {
    let now = clock::now();
    let mark = |number, complete| WatchInput::Bookmark { revision: revision(number), complete };
    let mut watch = knowing(3, now);
    watch.on(WatchInput::Opened, now);
    watch.on(mark(8, false), now);
    watch.on(WatchInput::Ended, now);
    assert_eq!(watch.todo(now), Todo::Open { from: Some(revision(8)) });
    watch.on(WatchInput::Opened, now);
    watch.on(mark(7, false), now);
    assert_eq!(next(&watch, now), Todo::List { more: None });

    let mut streaming = Watch::new(false, now);
    streaming.on(WatchInput::Opened, now);
    streaming.on(WatchInput::Put(item(1, 3)), now);
    assert_eq!(streaming.on(mark(4, false), now), [], "the list is not at its end");
    assert!(streaming.on(mark(4, true), now).contains(&WatchOutput::Synced));
}

/// Older states are never accepted, from any event: neither an older version nor an older deletion of an object, and a
/// list decides.
#[test]
fn events_are_believed_forwards_alone() {
    let now = clock::now();
    for past in [WatchInput::Put(item(1, 5)), WatchInput::Gone(name(1), revision(7))] {
        let mut watch = knowing(3, now);
        watch.on(WatchInput::Opened, now);
        let event =
            |watch: &mut Watch<u64>, number| changes_of(watch, WatchInput::Put(item(1, number)), now).len();
        assert_eq!((event(&mut watch, 8), event(&mut watch, 8)), (1, 1), "twice the same is no step back");
        let mut delays = Vec::new();
        for _ in 0..20 {
            let outputs = watch.on(past.clone(), now);
            assert!(matches!(&outputs[..], [WatchOutput::Warning(_)]), "{outputs:?}");
            let Todo::Wait(until) = watch.todo(now) else { panic!("it may go round for ever") };
            delays.push(until - now);
            assert_eq!(next(&watch, now), Todo::List { more: None });
            let list = WatchInput::Page { items: vec![item(1, 8)], revision: revision(8), more: None };
            assert_eq!(
                changes_of(&mut watch, list, now).iter().filter(|it| matches!(it, Change::Put(_))).count(),
                0
            );
            watch.on(WatchInput::Opened, now);
        }
        assert!(delays.iter().max() > Some(&Duration::from_secs(1)), "{delays:?}");
        assert!(delays.iter().all(|delay| *delay <= AGAIN.1), "{delays:?}");
        assert_eq!(event(&mut watch, 9), 1, "what is new is");
    }
    // Who says no revision says nothing of its place.
    let mut watch = knowing(3, now);
    watch.on(WatchInput::Opened, now);
    assert_eq!(changes_of(&mut watch, WatchInput::Put(item(1, 0)), now).len(), 1);
}

/// One that follows and is at revision 5.
fn following(now: Instant) -> Watch<u64> {
    let mut watch = knowing(3, now);
    watch.on(WatchInput::Opened, now);
    assert_eq!(watch.todo(now), Todo::Read);
    watch
}

fn mark(number: u64) -> WatchInput<u64> {
    WatchInput::Bookmark { revision: revision(number), complete: false }
}

#[test]
fn a_server_whose_newest_revision_is_older_than_what_was_seen_is_listed_anew() {
    let began = clock::now();
    let probed = |after: Option<u64>, newest: u64| {
        let mut watch = following(began);
        let at = began + PROBE;
        assert!(watch.on(WatchInput::Tick, at).contains(&WatchOutput::Probe));
        after.map(|number| watch.on(mark(number), at));
        watch.on(WatchInput::Newest(revision(newest)), at);
        watch.todo(at)
    };
    assert_eq!(probed(None, 4), Todo::List { more: None });
    assert_eq!(probed(None, 5), Todo::Read);
    assert_eq!(probed(Some(8), 6), Todo::Read, "what came since the question says nothing of the answer");
}

/// A store may be slow to report its progress to the API server: reconnecting does not help then, and is done less and
/// less often.
#[test]
fn a_watch_that_lags_is_given_twice_as_long_each_time() {
    let mut now = clock::now();
    let mut watch = following(now);
    // It speaks all the time, and says nothing new.
    let minute = |watch: &mut Watch<u64>, now: &mut Instant, at: u64, newest: u64| {
        *now += PROBE;
        watch.on(mark(at), *now);
        watch.on(WatchInput::Ended, *now);
        watch.on(WatchInput::Opened, *now);
        assert!(watch.on(WatchInput::Tick, *now).contains(&WatchOutput::Probe));
        watch.on(WatchInput::Newest(revision(newest)), *now);
        watch.todo(*now) != Todo::Read
    };
    let mut waits = |watch: &mut Watch<u64>, times: usize| {
        let mut waits = Vec::new();
        while waits.len() < times {
            assert!(!minute(watch, &mut now, 5, 9), "from here on it is known what is to be reached");
            let since = now;
            while !minute(watch, &mut now, 5, 9) {}
            waits.push(now - since);
            watch.on(WatchInput::Opened, now);
        }
        waits
    };
    assert_eq!(waits(&mut watch, 6), [LAG, 2 * LAG, 4 * LAG, 8 * LAG, 16 * LAG, MAX_LAG]);
    assert_eq!(waits(&mut watch, 1), [MAX_LAG]);
    // One that has caught up is trusted as before.
    assert!(!minute(&mut watch, &mut now, 9, 9) && !minute(&mut watch, &mut now, 9, 9));
    assert!(!minute(&mut watch, &mut now, 9, 20));
    let since = now;
    while !minute(&mut watch, &mut now, 9, 20) {}
    assert_eq!(now - since, LAG);
}

/// A streamed list arrives at once. A server that treats it as an ordinary watch sends nothing, or no end.
#[test]
fn a_streamed_list_that_falls_silent_or_never_ends_is_read_in_pages() {
    let began = clock::now();
    let second = Duration::from_secs(1);
    let mut watch = Watch::<u64>::new(false, began);
    watch.on(WatchInput::Opened, began);
    assert_eq!(watch.due(), began + STREAM_SILENCE);
    let spoke = began + STREAM_SILENCE - second;
    watch.on(WatchInput::Tick, spoke);
    watch.on(WatchInput::Put(item(1, 3)), spoke);
    watch.on(WatchInput::Tick, spoke + STREAM_SILENCE - second);
    assert_eq!(watch.todo(spoke), Todo::Read, "it is silent since it spoke");
    watch.on(WatchInput::Tick, spoke + STREAM_SILENCE);
    assert_eq!(watch.todo(spoke), Todo::List { more: None });

    let mut watch = Watch::<u64>::new(false, began);
    watch.on(WatchInput::Opened, began);
    let mut now = began;
    while watch.todo(now) == Todo::Read {
        assert!(now < began + STREAMED_LIST, "it has so long in all");
        now += 5 * second;
        watch.on(WatchInput::Tick, now);
        watch.on(WatchInput::Put(item(1, 3)), now);
    }
    assert_eq!((now, watch.todo(now)), (began + STREAMED_LIST, Todo::List { more: None }));
}

fn warns(outputs: &[WatchOutput<u64>]) -> bool {
    outputs.iter().any(|output| matches!(output, WatchOutput::Warning(_)))
}

fn failed() -> WatchInput<u64> {
    WatchInput::Failed("no answer".to_owned())
}

#[test]
fn that_there_is_no_way_through_is_said_once_until_there_is() {
    let now = clock::now();
    let mut watch = knowing(3, now);
    assert!(warns(&watch.on(failed(), now)));
    assert!(!warns(&watch.on(failed(), now)) && !warns(&watch.on(refused(500), now)));
    watch.on(WatchInput::Restored, now);
    watch.on(page(0..3, 5, false), now);
    watch.on(WatchInput::Opened, now);
    watch.on(mark(5), now);
    assert!(warns(&watch.on(failed(), now)));
    // Normal operation is not logged.
    let mut watch = knowing(3, now);
    for (code, is_told) in [(410, false), (500, true)] {
        watch.on(WatchInput::Restored, now);
        watch.on(page(0..2, 6, true), now);
        assert_eq!(warns(&watch.on(refused(code), now)), is_told, "{code}");
    }
}

#[test]
fn a_round_is_begun_at_once_whatever_failed() {
    let now = clock::now();
    let mut watch = knowing(3, now);
    watch.on(failed(), now);
    assert!(matches!(watch.todo(now), Todo::Wait(_)));
    watch.on(WatchInput::Refresh(7), now);
    assert_eq!(watch.todo(now), Todo::List { more: None });
}

/// A server that ends each watch immediately is not asked in a busy loop.
#[test]
fn a_watch_that_ends_without_a_word_is_opened_again_later() {
    let now = clock::now();
    let mut watch = following(now);
    watch.on(WatchInput::Ended, now + STREAM_SILENCE / 2);
    assert!(matches!(watch.todo(now + STREAM_SILENCE / 2), Todo::Wait(_)));
    let mut watch = following(now);
    watch.on(WatchInput::Ended, now + STREAM_SILENCE);
    assert_eq!(watch.todo(now + STREAM_SILENCE), Todo::Open { from: Some(revision(5)) }, "it was silent");
    let mut watch = following(now);
    watch.on(mark(5), now);
    watch.on(WatchInput::Ended, now);
    assert_eq!(watch.todo(now), Todo::Open { from: Some(revision(5)) }, "it spoke");
}

#[test]
fn a_streamed_list_that_ends_in_its_middle_is_read_in_pages() {
    let now = clock::now();
    let mut watch = Watch::<u64>::new(false, now);
    watch.on(WatchInput::Opened, now);
    watch.on(WatchInput::Put(item(1, 3)), now);
    assert!(warns(&watch.on(WatchInput::Ended, now)));
    assert_eq!(next(&watch, now), Todo::List { more: None });
}

/// What was to be reached is of the history that is no more.
#[test]
fn after_a_step_back_nothing_of_before_is_waited_for() {
    let began = clock::now();
    let mut watch = following(began);
    let probe = |watch: &mut Watch<u64>, at: Instant, newest: u64| {
        watch.on(mark(5), at);
        watch.on(WatchInput::Tick, at);
        watch.on(WatchInput::Newest(revision(newest)), at);
        watch.todo(at)
    };
    assert_eq!(probe(&mut watch, began + PROBE, 9), Todo::Read);
    let back = began + PROBE;
    watch.on(WatchInput::Restored, back);
    watch.on(page(0..3, 5, false), back);
    watch.on(WatchInput::Opened, back);
    assert_eq!(probe(&mut watch, back + LAG, 5), Todo::Read, "it has all that there is");
}

/// An API server that starts forbids what it allows later; so it does the next time it starts.
#[test]
fn what_was_allowed_since_is_again_not_forbidden_at_once() {
    let began = clock::now();
    let mut watch = Watch::<u64>::new(false, began);
    let list = |watch: &mut Watch<u64>, at: Instant| {
        watch.on(WatchInput::Opened, at);
        watch.on(WatchInput::Bookmark { revision: revision(5), complete: true }, at);
    };
    list(&mut watch, began);
    for round in 1..4 {
        let at = began + FORBIDDEN * round;
        watch.on(WatchInput::Refresh(round.into()), at);
        watch.on(refused(403), at);
        assert!(matches!(watch.todo(at), Todo::Wait(_)) && watch.streams, "{round}");
        list(&mut watch, at);
    }
}

#[test]
fn what_was_not_known_is_not_said_to_be_gone() {
    let now = clock::now();
    let mut watch = knowing(3, now);
    watch.on(WatchInput::Opened, now);
    let gone = |object, number| WatchInput::Gone(name(object), revision(number));
    assert_eq!(changes_of(&mut watch, gone(9, 100), now), []);
    assert_eq!(changes_of(&mut watch, gone(1, 101), now), [Change::Gone(name(1))]);
    assert_eq!(changes_of(&mut watch, gone(1, 102), now), []);
}

#[test]
fn what_works_in_between_makes_refusals_few_and_delays_short_again() {
    let now = clock::now();
    let mut watch = knowing(3, now);
    for _ in 0..3 {
        for _ in 1..STUBBORN {
            watch.on(refused(503), now);
        }
        assert_eq!(next(&watch, now), Todo::Open { from: Some(revision(5)) }, "not stubborn yet");
        watch.on(WatchInput::Opened, now);
        watch.on(mark(5), now);
        watch.on(WatchInput::Ended, now);
    }
    watch.on(refused(503), now);
    let Todo::Wait(until) = watch.todo(now) else { panic!("{:?}", watch.todo(now)) };
    assert!(until - now <= AGAIN.0, "{:?}", until - now);
}

/// A server without streamed lists refuses them for ever; one that is not ready does so for a while.
#[test]
fn a_streamed_list_is_given_up_where_it_is_refused_for_good_or_in_its_middle() {
    let now = clock::now();
    for (opened, code, gives_up) in
        [(false, 422, true), (false, 400, true), (false, 503, false), (true, 503, true), (true, 422, true)]
    {
        let mut watch = Watch::<u64>::new(false, now);
        assert_eq!(watch.todo(now), Todo::Open { from: None });
        if opened {
            watch.on(WatchInput::Opened, now);
        }
        watch.on(refused(code), now);
        match gives_up {
            true => assert_eq!(watch.todo(now), Todo::List { more: None }, "{opened} {code}"),
            false => assert_eq!(next(&watch, now), Todo::Open { from: None }, "{opened} {code}"),
        }
    }
}

/// A server, or something between, that does not close it.
#[test]
fn a_watch_that_outlives_its_time_is_opened_again_from_where_it_is() {
    let now = clock::now();
    let mut watch = knowing(3, now);
    watch.on(WatchInput::Opened, now);
    let over = now + WATCH_LIFE + MARGIN;
    let before = over - Duration::from_millis(1);
    watch.on(WatchInput::Put(item(1, 6)), before);
    watch.on(WatchInput::Tick, before);
    assert_eq!(watch.todo(before), Todo::Read);
    assert!(warns(&watch.on(WatchInput::Tick, over)));
    assert_eq!(watch.todo(over), Todo::Open { from: Some(revision(6)) });
}
