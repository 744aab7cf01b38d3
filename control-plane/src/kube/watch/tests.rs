use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use shared::clock;

use super::delays::FORBIDDEN;
use super::*;

mod beliefs;
mod failures;

/// Objects are numbers, values are revisions.
type World = BTreeMap<u8, u64>;

fn name(object: u8) -> ObjectName {
    ObjectName::new("n", format!("o{object}"))
}

fn revision(number: u64) -> Revision {
    Revision(number.to_string().into())
}

fn item(object: u8, number: u64) -> Item<u64> {
    Item { name: name(object), uid: "u".into(), revision: revision(number), value: number }
}

/// An API server with a history whose older part is compacted.
#[derive(Debug, Default)]
struct Server {
    revision: u64,
    world: World,
    /// (revision, object, whether it exists after).
    history: Vec<(u64, u8, bool)>,
    /// Watches from before this are too old.
    compacted: u64,
    streams: bool,
    /// What there was after each revision.
    past: BTreeMap<u64, World>,
}

impl Server {
    fn put(&mut self, object: u8) {
        self.revision += 1;
        self.world.insert(object, self.revision);
        self.history.push((self.revision, object, true));
        self.past.insert(self.revision, self.world.clone());
    }

    /// Restores an older state, and continues from its revision.
    fn restore(&mut self) {
        let before = self.revision.saturating_sub(7);
        let older = self.past.range(..=before).next_back().map(|(at, world)| (*at, world.clone()));
        (self.revision, self.world) = older.unwrap_or((10, World::new()));
        self.past.split_off(&(self.revision + 1));
        self.history.clear();
        self.compacted = self.revision;
    }

    fn remove(&mut self, object: u8) {
        if self.world.remove(&object).is_some() {
            self.revision += 1;
            self.history.push((self.revision, object, false));
            self.past.insert(self.revision, self.world.clone());
        }
    }
}

/// The edge, synchronous: executes the state machine's steps against a server, without passing of time.
struct Edge {
    server: Server,
    watch: Watch<u64>,
    now: Instant,
    /// Lines of the open stream, and up to where the server has put changes there.
    stream: Option<(VecDeque<WatchInput<u64>>, u64)>,
    /// A paged list under way is of one moment.
    pages: Option<(Vec<Item<u64>>, u64)>,
    seen: BTreeMap<String, u64>,
    synced: bool,
    gone_at_once: usize,
    /// Large removals without a deletion: how many, of how many.
    removed: Vec<(usize, usize)>,
}

impl Edge {
    fn new(streams: bool) -> Self {
        let now = Instant::now();
        Self {
            server: Server { revision: 10, streams, ..Server::default() },
            watch: Watch::new(false, now),
            now,
            stream: None,
            pages: None,
            seen: BTreeMap::new(),
            synced: false,
            gone_at_once: 0,
            removed: Vec::new(),
        }
    }

    /// Executes one step, and passes its result to the watch.
    fn step(&mut self) {
        let todo = self.watch.todo(self.now);
        if todo != Todo::Read {
            self.stream = None;
        }
        let input = match todo {
            Todo::Wait(until) => {
                self.now = until;
                return;
            }
            Todo::List { more } => self.list(more.as_deref()),
            Todo::ListWhole => self.list_whole(),
            Todo::Open { from } => self.open(from.map(|it| it.number())),
            Todo::Read => {
                self.pump();
                match self.stream.as_mut().and_then(|(lines, _)| lines.pop_front()) {
                    Some(line) => line,
                    None => {
                        self.now = self.watch.due();
                        WatchInput::Tick
                    }
                }
            }
        };
        self.hear(input);
    }

    fn hear(&mut self, input: WatchInput<u64>) {
        for output in self.watch.on(input, self.now) {
            match output {
                WatchOutput::Changes(changes) => {
                    self.gone_at_once = changes.iter().filter(|it| matches!(it, Change::Gone(_))).count();
                    for change in changes {
                        match change {
                            Change::Put(item) => self.seen.insert(item.name.to_string(), item.value),
                            Change::Gone(name) => self.seen.remove(&name.to_string()),
                        };
                    }
                }
                WatchOutput::Synced => assert!(!std::mem::replace(&mut self.synced, true)),
                WatchOutput::Probe => {
                    let newest = revision(self.server.revision);
                    self.hear(WatchInput::Newest(newest));
                }
                WatchOutput::Fresh(round) => panic!("round {round} was not begun"),
                WatchOutput::Removed { gone, before, .. } => self.removed.push((gone, before)),
                WatchOutput::Afresh
                | WatchOutput::Listed
                | WatchOutput::Restored
                | WatchOutput::Forbidden { .. }
                | WatchOutput::Unread(_)
                | WatchOutput::Failing { .. }
                | WatchOutput::Works
                | WatchOutput::Warning(_) => {}
            }
        }
    }

    fn list(&mut self, more: Option<&str>) -> WatchInput<u64> {
        let (items, at) = match (more, self.pages.take()) {
            (Some(_), Some(rest)) => rest,
            (Some(_), None) => {
                return WatchInput::Refused { code: 410, reason: "expired".to_owned() };
            }
            (None, _) => (
                self.server.world.iter().map(|(object, number)| item(*object, *number)).collect(),
                self.server.revision,
            ),
        };
        let mut items = items;
        let rest = items.split_off(items.len().min(2));
        let more = (!rest.is_empty()).then(|| "next".to_owned());
        self.pages = more.is_some().then_some((rest, at));
        WatchInput::Page { items, revision: revision(at), more }
    }

    fn list_whole(&mut self) -> WatchInput<u64> {
        self.pages = None;
        let items = self.server.world.iter().map(|(object, number)| item(*object, *number)).collect();
        WatchInput::Page { items, revision: revision(self.server.revision), more: None }
    }

    fn open(&mut self, from: Option<u64>) -> WatchInput<u64> {
        let refused = |code| WatchInput::Refused { code, reason: String::new() };
        match from {
            None if !self.server.streams => return refused(422),
            Some(from) if from < self.server.compacted => return refused(410),
            Some(from) if from > self.server.revision => return refused(504),
            None => {
                let mut lines: VecDeque<_> = self
                    .server
                    .world
                    .iter()
                    .map(|(object, number)| WatchInput::Put(item(*object, *number)))
                    .collect();
                lines.push_back(WatchInput::Bookmark {
                    revision: revision(self.server.revision),
                    complete: true,
                });
                self.stream = Some((lines, self.server.revision));
            }
            Some(from) => self.stream = Some((VecDeque::new(), from)),
        }
        WatchInput::Opened
    }

    /// Puts into the open stream what happened since.
    fn pump(&mut self) {
        if let Some((lines, at)) = &mut self.stream {
            for (number, object, exists) in self.server.history.iter().filter(|(number, ..)| number > at) {
                lines.push_back(match exists {
                    true => WatchInput::Put(item(*object, *number)),
                    false => WatchInput::Gone(name(*object), revision(*number)),
                });
            }
            *at = self.server.revision;
        }
    }

    /// Continues until everything that the server has was reported, including second lists.
    fn settle(&mut self) {
        for _ in 0..400 {
            self.step();
            if self.synced
                && self.is_equal()
                && self.watch.doubted.is_empty()
                && self.watch.todo(self.now) == Todo::Read
            {
                return;
            }
        }
        panic!("not settled: {:?} is not {:?}, {:?}", self.seen, self.server.world, self.watch);
    }

    fn is_equal(&self) -> bool {
        let world: BTreeMap<_, _> =
            self.server.world.iter().map(|(object, number)| (name(*object).to_string(), *number)).collect();
        world == self.seen
    }
}

#[derive(Clone, Debug)]
enum Act {
    Put(u8),
    Remove(u8),
    Step(u8),
    Cut,
    End,
    Compact,
    Refuse(u16),
    Mark,
    Restored,
    Wait(u16),
    /// The store is taken back to a backup.
    Restore,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0..12_u8).prop_map(Act::Put),
        3 => (0..12_u8).prop_map(Act::Remove),
        8 => (1..6_u8).prop_map(Act::Step),
        1 => Just(Act::Cut),
        1 => Just(Act::End),
        1 => Just(Act::Compact),
        1 => prop_oneof![Just(410), Just(500), Just(429), Just(504)].prop_map(Act::Refuse),
        1 => Just(Act::Mark),
        1 => Just(Act::Restored),
        1 => (1..400_u16).prop_map(Act::Wait),
        1 => Just(Act::Restore),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_what_is_told_ends_as_what_there_is(
        streams in any::<bool>(),
        acts in prop::collection::vec(act(), 1..120),
    ) {
        let mut edge = Edge::new(streams);
        for act in acts {
            match act {
                Act::Put(object) => edge.server.put(object),
                Act::Remove(object) => edge.server.remove(object),
                Act::Step(times) => (0..times).for_each(|_| edge.step()),
                Act::Cut => {
                    edge.stream = None;
                    edge.hear(WatchInput::Failed("cut".to_owned()));
                }
                Act::End if edge.stream.is_some() => {
                    edge.stream = None;
                    edge.hear(WatchInput::Ended);
                }
                Act::Compact => edge.server.compacted = edge.server.revision,
                Act::Refuse(code) if edge.stream.is_some() => {
                    edge.hear(WatchInput::Refused { code, reason: String::new() });
                }
                Act::Mark if edge.stream.is_some() => {
                    edge.pump();
                    let at = revision(edge.server.revision);
                    let lines = edge.stream.as_mut().map(|(lines, _)| lines);
                    lines.unwrap().push_back(WatchInput::Bookmark { revision: at, complete: false });
                }
                Act::Restored => {
                    edge.stream = None;
                    edge.hear(WatchInput::Restored);
                }
                Act::Wait(seconds) => edge.now += Duration::from_secs(seconds.into()),
                Act::Restore => {
                    // Every watch ends when the servers restart.
                    edge.stream = None;
                    edge.pages = None;
                    edge.server.restore();
                    edge.hear(WatchInput::Failed("the server starts anew".to_owned()));
                    // Once the revisions have caught up, the two histories cannot be distinguished.
                    edge.settle();
                }
                Act::End | Act::Refuse(_) | Act::Mark => {}
            }
        }
        edge.settle();
        prop_assert!(edge.synced && edge.is_equal());
        // And it goes on from there.
        edge.server.put(3);
        edge.settle();
        edge.server.remove(3);
        edge.settle();
    }
}

#[test]
fn many_that_are_absent_wait_for_a_second_list() {
    for streams in [true, false] {
        let mut edge = Edge::new(streams);
        (0..40).for_each(|object| edge.server.put(object));
        edge.settle();
        edge.stream = None;
        (0..30).for_each(|object| edge.server.remove(object));
        edge.server.compacted = edge.server.revision;
        edge.hear(WatchInput::Ended);
        let began = edge.now;
        while edge.watch.doubted.is_empty() {
            edge.step();
        }
        assert_eq!(edge.seen.len(), 40, "the old state stays");
        edge.server.put(1);
        edge.settle();
        assert!(edge.now >= began + SECOND_LOOK);
        assert_eq!((edge.seen.len(), edge.gone_at_once), (11, 29));
        assert_eq!(edge.removed, [(29, 40)], "their owners are told");
    }
}

#[test]
fn a_delete_of_the_watch_applies_at_once() {
    let mut edge = Edge::new(true);
    (0..40).for_each(|object| edge.server.put(object));
    edge.settle();
    let began = edge.now;
    (0..40).for_each(|object| edge.server.remove(object));
    edge.settle();
    assert!(edge.seen.is_empty() && edge.now == began && edge.removed.is_empty());
}

#[test]
fn an_empty_first_list_is_read_twice_where_it_is_doubted() {
    let mut edge = Edge::new(true);
    edge.watch = Watch::new(true, edge.now);
    let began = edge.now;
    edge.settle();
    assert!(edge.now >= began + SECOND_LOOK && edge.now < began + 2 * SECOND_LOOK);

    let mut edge = Edge::new(true);
    edge.watch = Watch::new(true, edge.now);
    let began = edge.now;
    (0..2).for_each(|_| edge.step());
    assert!(!edge.synced);
    edge.server.put(1);
    edge.settle();
    assert!(edge.now < began + SECOND_LOOK, "one object is enough");
}

#[test]
fn a_store_that_went_back_unseen_is_found_by_the_probe() {
    let mut edge = Edge::new(true);
    (0..5).for_each(|object| edge.server.put(object));
    edge.settle();
    // The stream stays open and says nothing.
    edge.server.revision = 11;
    edge.server.history.clear();
    edge.server.world = World::from([(1, 11)]);
    edge.settle();
    assert!(edge.is_equal());
}

#[test]
fn a_watch_that_lags_is_opened_anew() {
    let mut edge = Edge::new(true);
    edge.server.put(1);
    edge.settle();
    edge.server.put(2);
    // A stream that lost events without noticing.
    if let Some((_, at)) = &mut edge.stream {
        *at = edge.server.revision;
    }
    let began = edge.now;
    edge.settle();
    assert!(edge.now <= began + 5 * PROBE);
}

#[test]
fn a_watch_that_says_nothing_is_opened_anew_at_the_next_probe() {
    let began = clock::now();
    let open = || {
        let mut watch = Watch::new(false, began);
        watch.on(WatchInput::Opened, began);
        watch.on(WatchInput::<u64>::Bookmark { revision: revision(5), complete: true }, began);
        watch
    };
    let probe = |watch: &mut Watch<u64>, at: Instant, newest| {
        assert!(watch.on(WatchInput::Tick, at).contains(&WatchOutput::Probe));
        watch.on(WatchInput::Newest(revision(newest)), at);
        watch.todo(at)
    };
    let (first, second) = (began + PROBE, began + 2 * PROBE);
    let reopened = Todo::Open { from: Some(revision(5)) };
    let mut watch = open();
    assert_eq!(probe(&mut watch, first, 9), Todo::Read, "not yet");
    assert_eq!(probe(&mut watch, second, 9), reopened);
    let mut watch = open();
    probe(&mut watch, first, 5);
    assert_eq!(probe(&mut watch, second, 5), Todo::Read, "there is nothing to say");
    let mut watch = open();
    probe(&mut watch, first, 9);
    let line = WatchInput::Bookmark { revision: revision(6), complete: false };
    watch.on(line, first + PROBE / 2);
    assert_eq!(probe(&mut watch, second, 9), Todo::Read, "it speaks");
}

/// A server's bookmarks come each 60 s and a little more, and a probe just before one finds the last one older than the probe before.
#[test]
fn a_bookmark_that_comes_a_little_later_than_a_probe_is_waited_for() {
    let began = clock::now();
    let late = Duration::from_millis(30);
    for comes in [true, false] {
        let mut watch = Watch::new(false, began);
        watch.on(WatchInput::Opened, began);
        watch.on(WatchInput::<u64>::Bookmark { revision: revision(5), complete: true }, began);
        let probe = |at: Instant, watch: &mut Watch<u64>| {
            assert!(watch.on(WatchInput::Tick, at).contains(&WatchOutput::Probe), "{at:?}");
            let outputs = watch.on(WatchInput::Newest(revision(9)), at);
            (outputs.len(), watch.todo(at) == Todo::Read)
        };
        let bookmark = began + PROBE - late;
        watch.on(WatchInput::Bookmark { revision: revision(6), complete: false }, bookmark);
        assert_eq!(probe(began + PROBE, &mut watch), (0, true));
        assert_eq!(probe(began + 2 * PROBE, &mut watch), (0, true), "60.03 s are no silence");
        let over = bookmark + SILENCE;
        assert_eq!(watch.due(), over, "nobody waits for the next but one");
        if comes {
            watch.on(
                WatchInput::Bookmark { revision: revision(9), complete: false },
                bookmark + PROBE + 2 * late,
            );
        }
        assert_eq!(probe(over, &mut watch), (usize::from(!comes), comes));
    }
}

#[test]
fn a_server_without_streamed_lists_is_read_in_pages_from_then_on() {
    let refuse = |edge: &mut Edge, code| edge.hear(WatchInput::Refused { code, reason: String::new() });
    for code in [400, 403, 404, 422] {
        let mut edge = Edge::new(true);
        refuse(&mut edge, code);
        assert_eq!(edge.watch.todo(edge.now), Todo::List { more: None }, "{code}");
    }
    for code in [401, 429, 500, 503] {
        let mut edge = Edge::new(true);
        refuse(&mut edge, code);
        assert!(matches!(edge.watch.todo(edge.now), Todo::Wait(_) | Todo::Open { from: None }), "{code}");
        assert!(edge.watch.streams);
    }
    // An old server treats it as an ordinary watch: the list never ends.
    let mut edge = Edge::new(true);
    edge.server.put(1);
    edge.step();
    if let Some((lines, _)) = &mut edge.stream {
        lines.pop_back();
    }
    edge.settle();
    assert!(!edge.watch.streams);
}

#[test]
fn what_is_forbidden_is_asked_for_again() {
    let mut edge = Edge::new(false);
    edge.step();
    let outputs = edge.watch.on(WatchInput::Refused { code: 403, reason: "no".to_owned() }, edge.now);
    assert_eq!(outputs, [WatchOutput::Forbidden { reason: "no".to_owned(), read_to: None }]);
    assert_eq!(
        edge.watch.todo(edge.now),
        Todo::Wait(edge.now + AGAIN.1),
        "a right that is given is noticed soon"
    );
    edge.server.put(1);
    edge.settle();
}

/// Two replicas that know the same say so, whatever each heard last, and in whatever order.
#[test]
fn what_is_known_is_told_by_its_content() {
    let known = |items: Vec<Item<u64>>, at: u64| {
        let mut watch = Watch::<u64>::new(false, clock::now());
        watch.on(WatchInput::Page { items, revision: revision(at), more: None }, clock::now());
        watch.read_to()
    };
    let [one, other] = [known(vec![item(1, 3), item(2, 4)], 8), known(vec![item(2, 4), item(1, 3)], 9)];
    assert_eq!((one.content, one.revision, other.revision), (other.content, 8, 9));
    for items in [vec![], vec![item(1, 3)], vec![item(1, 3), item(2, 5)]] {
        assert_ne!(known(items, 8).content, one.content);
    }
    assert_ne!(known(vec![], 8), ReadTo::default(), "one that was read and is empty");
}

/// An API server that has just started forbids what it allows a moment later. Nothing is forgotten because of that, no
/// round ends, and it is retried sooner than after half a minute.
#[test]
fn what_was_allowed_is_not_forbidden_at_once() {
    let mut edge = Edge::new(true);
    edge.server.put(1);
    edge.settle();
    let forbid = |edge: &mut Edge| {
        let outputs = edge.watch.on(WatchInput::Refused { code: 403, reason: "no".to_owned() }, edge.now);
        let silent = |output: &WatchOutput<u64>| matches!(output, WatchOutput::Warning(_));
        assert!(outputs.iter().all(silent), "{outputs:?}");
        match edge.watch.todo(edge.now) {
            Todo::Wait(until) => until - edge.now,
            _ => Duration::ZERO,
        }
    };
    edge.watch.on(WatchInput::Refresh(7), edge.now);
    for _ in 0..19 {
        edge.now += Duration::from_secs(1);
        assert!(forbid(&mut edge) <= AGAIN.1, "and a round waits for it");
    }
    assert!(edge.watch.streams, "whether it streams lists is not known from that");
    edge.watch.on(WatchInput::Opened, edge.now);
    edge.watch.on(WatchInput::Put(item(1, 11)), edge.now);
    let end = WatchInput::Bookmark { revision: revision(12), complete: true };
    assert!(edge.watch.on(end, edge.now).contains(&WatchOutput::Fresh(7)));
    // If it lasts, it is trusted.
    edge.watch.on(WatchInput::Refresh(8), edge.now);
    forbid(&mut edge);
    edge.now += FORBIDDEN;
    edge.watch.on(WatchInput::Refused { code: 403, reason: "no".to_owned() }, edge.now);
    let outputs = edge.watch.on(WatchInput::Refused { code: 403, reason: "no".to_owned() }, edge.now);
    let read_to = Some(edge.watch.read_to());
    let forbidden = || WatchOutput::Forbidden { reason: "no".to_owned(), read_to };
    assert_eq!(read_to.map(|it| it.revision), Some(12));
    assert_eq!(outputs, [forbidden(), WatchOutput::Unread(8)], "another one may know more of it");
    edge.now += AGAIN.1;
    let outputs = edge.watch.on(WatchInput::Refused { code: 403, reason: "no".to_owned() }, edge.now);
    assert_eq!(outputs, [forbidden()], "once");
    let page = WatchInput::Page { items: vec![item(1, 11)], revision: revision(12), more: None };
    assert!(edge.watch.on(page, edge.now).contains(&WatchOutput::Fresh(8)), "it is allowed again");
}

#[test]
fn who_does_not_answer_or_refuses_is_asked_again_within_three_seconds() {
    let longest = |input: fn() -> WatchInput<u64>| {
        let mut edge = Edge::new(true);
        edge.server.put(1);
        edge.settle();
        edge.watch.on(WatchInput::Ended, edge.now);
        let mut longest = Duration::ZERO;
        for _ in 0..300 {
            edge.watch.on(input(), edge.now);
            let Todo::Wait(until) = edge.watch.todo(edge.now) else { continue };
            longest = longest.max(until - edge.now);
            edge.now = until;
        }
        longest
    };
    fn refused(code: u16) -> WatchInput<u64> {
        WatchInput::Refused { code, reason: String::new() }
    }
    let inputs: [fn() -> WatchInput<u64>; 4] = [
        || WatchInput::Failed("nobody is there".to_owned()),
        || refused(410),
        || refused(429),
        || refused(503),
    ];
    for input in inputs {
        let longest = longest(input);
        assert!(longest > Duration::from_secs(2) && longest <= AGAIN.1, "{:?}: {longest:?}", input());
    }
}

/// A round of the barrier waits for a list that began after it, and is trusted.
#[test]
fn a_round_is_told_with_the_next_list_and_what_it_lacks_is_doubted_first() {
    let now = Instant::now();
    let mut watch = Watch::new(false, now);
    let list = |watch: &mut Watch<u64>, objects: std::ops::Range<u8>, at: u64, now: Instant| {
        assert!(matches!(watch.todo(now), Todo::Open { from: None }));
        watch.on(WatchInput::Opened, now);
        for object in objects {
            watch.on(WatchInput::Put(item(object, 1)), now);
        }
        watch.on(WatchInput::Bookmark { revision: revision(at), complete: true }, now)
    };
    let is_fresh = |outputs: &[WatchOutput<u64>]| outputs.contains(&WatchOutput::Fresh(7));
    list(&mut watch, 0..30, 5, now);
    assert_eq!(watch.on(WatchInput::Refresh(7), now), []);
    // A list that had begun before is no longer read; the watch is known as before meanwhile.
    watch.on(WatchInput::Opened, now);
    watch.on(WatchInput::Refresh(7), now);
    let outputs = list(&mut watch, 0..10, 6, now);
    assert!(
        !is_fresh(&outputs) && !outputs.iter().any(|output| matches!(output, WatchOutput::Changes(_))),
        "{outputs:?}"
    );
    let later = now + SECOND_LOOK;
    watch.on(WatchInput::Tick, later);
    let outputs = list(&mut watch, 0..10, 6, later);
    let gone =
        outputs.iter().position(|output| matches!(output, WatchOutput::Changes(gone) if gone.len() == 20));
    let told = outputs.iter().position(|output| *output == WatchOutput::Fresh(7));
    assert!(gone.is_some() && told > gone, "{outputs:?}");
}
