//! When it is said that lists and watches fail, and that they work again.

use super::super::trouble::SAID;
use super::*;

fn refused(code: u16) -> WatchInput<u64> {
    WatchInput::Refused { code, reason: "no".to_owned() }
}

fn page() -> WatchInput<u64> {
    WatchInput::Page { items: vec![item(1, 3)], revision: revision(5), more: None }
}

fn mark() -> WatchInput<u64> {
    WatchInput::Bookmark { revision: revision(5), complete: false }
}

/// A watch that follows, on a server without streamed lists.
fn following(now: Instant) -> Watch<u64> {
    let mut watch = Watch::new(false, now);
    watch.on(refused(400), now);
    watch.on(page(), now);
    watch.on(WatchInput::Opened, now);
    watch.on(mark(), now);
    watch
}

/// A watch and its time.
struct Bench {
    watch: Watch<u64>,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        let now = clock::now();
        Self { watch: following(now), now }
    }

    /// Answers whatever is asked for, for so long; returns what was said.
    fn pass(&mut self, time: Duration, answer: impl Fn(&Todo) -> WatchInput<u64>) -> Vec<WatchOutput<u64>> {
        let until = self.now + time;
        let mut said = Vec::new();
        while self.now < until {
            let input = match self.watch.todo(self.now) {
                Todo::Wait(at) => {
                    self.now = at;
                    continue;
                }
                todo => answer(&todo),
            };
            if input == WatchInput::Tick {
                self.now = self.watch.due();
            }
            said.extend(self.watch.on(input, self.now));
        }
        said
    }
}

/// Since when it is said to fail, and why.
fn failing(outputs: &[WatchOutput<u64>]) -> Vec<(Instant, &str)> {
    let failing = outputs.iter().filter_map(|output| match output {
        WatchOutput::Failing { since, reason } => Some((*since, reason.as_str())),
        _ => None,
    });
    failing.collect()
}

fn warnings(outputs: &[WatchOutput<u64>]) -> Vec<&str> {
    let warnings = outputs.iter().filter_map(|output| match output {
        WatchOutput::Warning(text) => Some(text.as_str()),
        _ => None,
    });
    warnings.collect()
}

/// Errors for hours were in no answer, and of two reasons the second was not logged.
#[test]
fn what_fails_for_long_is_said_with_its_reason_until_a_watch_works() {
    let mut bench = Bench::new();
    let began = bench.now;
    bench.watch.on(WatchInput::Failed("a watch broke off".to_owned()), began);
    let said = bench.pass(SAID - AGAIN.1, |_| refused(500));
    assert_eq!(failing(&said), [], "it may be a moment");
    let said = bench.pass(AGAIN.1 * 3, |_| refused(500));
    let [(since, reason)] = failing(&said)[..] else { panic!("{said:?}") };
    assert_eq!(since, began);
    assert!(reason.ends_with("was refused with 500: no"), "{reason}");
    let logged = warnings(&said);
    assert!(logged.len() == 1 && logged[0].starts_with(reason), "{logged:?}");
    let said = bench.pass(SAID * 100, |_| refused(500));
    assert!(failing(&said).len() < 3 && warnings(&said).len() < 3, "{said:?}");
    let said = bench.pass(SAID, |_| refused(429));
    assert_eq!(failing(&said), [(began, "a list was refused with 429: no")]);

    // Lists alone do not end it.
    let said = bench.pass(SAID, |todo| match todo {
        Todo::List { .. } => page(),
        _ => refused(403),
    });
    assert!(!said.contains(&WatchOutput::Works));
    assert_eq!(failing(&said).last(), Some(&(began, "a watch was refused with 403: no")));
    bench.watch.on(page(), bench.now);
    bench.watch.on(WatchInput::Opened, bench.now);
    assert_eq!(bench.watch.on(mark(), bench.now), [WatchOutput::Works]);
    assert_eq!(bench.watch.on(mark(), bench.now), [], "once");
}

/// Nothing need happen on a watch that works.
#[test]
fn a_watch_that_stays_open_works() {
    let mut bench = Bench::new();
    bench.watch.on(WatchInput::Ended, bench.now);
    bench.pass(SAID * 2, |_| refused(503));
    let said = bench.pass(STREAM_SILENCE * 3, |todo| match todo {
        Todo::List { .. } => page(),
        Todo::Open { .. } => WatchInput::Opened,
        _ => WatchInput::Tick,
    });
    assert!(said.contains(&WatchOutput::Works), "{said:?}");
    let mut bench = Bench::new();
    let said = bench.pass(SAID * 2, |todo| match todo {
        Todo::List { .. } => page(),
        Todo::Open { .. } => WatchInput::Opened,
        _ => refused(410),
    });
    assert!(
        failing(&said).len() == 1 && warnings(&said).len() == 1,
        "one that ends at once does not: {said:?}"
    );
}

/// A request may have no answer for long.
#[test]
fn what_fails_did_so_from_when_it_was_asked_for() {
    let mut bench = Bench::new();
    let began = bench.now;
    bench.watch.on(WatchInput::Ended, began);
    let later = began + SAID * 3;
    let said = bench.watch.on(WatchInput::Failed("no answer".to_owned()), later);
    assert_eq!(failing(&said), [(began, "no answer")]);
    // An open watch was no request that nobody answered.
    let mut bench = Bench::new();
    let said = bench.watch.on(WatchInput::Failed("broke off".to_owned()), bench.now + SAID * 3);
    assert_eq!((failing(&said).len(), warnings(&said).len()), (0, 1));
}

/// Else two things would be said of one list.
#[test]
fn what_is_forbidden_is_said_as_that_alone() {
    let mut bench = Bench::new();
    bench.watch.on(WatchInput::Restored, bench.now);
    let said = bench.pass(FORBIDDEN * 2, |_| refused(403));
    let at = |is: fn(&WatchOutput<u64>) -> bool| said.iter().position(is);
    let forbidden = at(|it| matches!(it, WatchOutput::Forbidden { .. }));
    let fails = at(|it| matches!(it, WatchOutput::Failing { .. }));
    let ends = at(|it| *it == WatchOutput::Works);
    assert!(fails.is_some() && fails < ends && ends < forbidden, "{said:?}");
    assert_eq!(failing(&said).len(), 1);
}
