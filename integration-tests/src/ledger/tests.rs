use super::*;

fn answer(by: Option<&str>, status: u16) -> Answer {
    let headers = by.map(|name| ("X-Origin".to_owned(), name.to_owned())).into_iter().collect();
    Answer { status, headers, ..Answer::default() }
}

fn sent(ledger: &Ledger, host: &str) -> Number {
    ledger.send(host.to_owned(), host, b"", &[])
}

fn see(number: &Number, by: &str) {
    let headers = vec![(FIELD.to_lowercase(), number.to_string())];
    assert!(saw(&Seen { headers, ..Seen::default() }, by));
}

/// One request that an origin sees and answers.
fn ask(ledger: &Ledger, host: &str, by: &str) {
    let number = sent(ledger, host);
    see(&number, by);
    ledger.answered(&number, &answer(Some(by), 200));
}

fn problems(ledger: &Ledger) -> u64 {
    ledger.summary().problems_total
}

fn two() -> Ledger {
    let ledger = Ledger::new();
    ledger.routes("a", "one");
    ledger.endpoints("one", &["one/a", "one/b"]);
    ledger.endpoints("two", &["two/a"]);
    ledger
}

#[test]
fn what_an_answer_proves_cannot_be_taken_back() {
    let ledger = two();
    ask(&ledger, "a", "one/a");
    ledger.is_newest("a").unwrap();
    ledger.routes("a", "two");
    let before = sent(&ledger, "a");
    assert!(ledger.is_newest("a").is_err());
    ask(&ledger, "a", "one/b");
    ask(&ledger, "a", "two/a");
    ledger.is_newest("a").unwrap();
    // This one was on its way before.
    see(&before, "one/a");
    ledger.answered(&before, &answer(Some("one/a"), 200));
    ledger.clone().close().assert_clean();
    ask(&ledger, "a", "one/a");
    assert_eq!(problems(&ledger), 1);
}

#[test]
fn endpoints_that_left_are_gone_once_that_is_proved() {
    let ledger = two();
    ledger.endpoints("one", &["one/b"]);
    ledger.endpoints("one", &["one/c"]);
    ask(&ledger, "a", "one/a");
    ask(&ledger, "a", "one/c");
    assert_eq!(problems(&ledger), 0);
    ask(&ledger, "a", "one/b");
    assert_eq!(problems(&ledger), 1);
    assert_eq!(ledger.effects().len(), 3, "the route, the first endpoints, the last ones");
}

#[test]
fn the_two_lanes_may_come_in_any_order() {
    let ledger = two();
    ask(&ledger, "a", "one/a");
    ledger.routes("a", "two");
    ledger.endpoints("one", &["one/c"]);
    ask(&ledger, "a", "one/c");
    ask(&ledger, "a", "two/a");
    ledger.close().assert_clean();
}

#[test]
fn a_host_may_be_nobody_s() {
    let ledger = two();
    ask(&ledger, "a", "one/a");
    ledger.nobody("a");
    let number = sent(&ledger, "a");
    ledger.answered(&number, &answer(None, 404));
    ledger.is_newest("a").unwrap();
    ledger.clone().close().assert_clean();
    ask(&ledger, "a", "one/a");
    assert_eq!(problems(&ledger), 1);
}

#[test]
fn each_loss_is_noticed() {
    let lost = |happens: fn(&Ledger, Number)| {
        let ledger = two();
        let number = sent(&ledger, "a");
        happens(&ledger, number);
        let summary = ledger.close();
        assert_eq!(summary.problems_total, 1, "{summary:?}");
    };
    lost(|_, _| {});
    lost(|ledger, number| ledger.lost(&number, &"closed"));
    lost(|ledger, number| ledger.answered(&number, &answer(None, 503)));
    lost(|ledger, number| ledger.answered(&number, &answer(Some("one/a"), 200)));
    lost(|ledger, number| {
        see(&number, "one/a");
        ledger.answered(&number, &answer(Some("one/b"), 200));
    });
    lost(|ledger, number| {
        see(&number, "one/a");
        see(&number, "one/b");
        ledger.answered(&number, &answer(Some("one/b"), 200));
    });
    lost(|ledger, number| {
        see(&number, "one/a");
        ledger.answered(&number, &answer(Some("one/a"), 200));
        see(&number, "one/a");
    });
}

#[test]
fn a_body_must_arrive_as_it_was_sent() {
    let ledger = two();
    for (echoed, wrong) in [("0123456789", 0), ("01234", 1)] {
        let number = ledger.send("POST".into(), "a", b"0123456789", &[]);
        see(&number, "one/a");
        let body = serde_json::json!({ "body": echoed }).to_string().into_bytes();
        ledger.answered(&number, &Answer { body, ..answer(Some("one/a"), 200) });
        assert_eq!(problems(&ledger), wrong);
    }
}
