//! What a watch says to others of what it may read, and what it does with what a server breaks off.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::super::tests::fake::{Asked, Fake, Reply, status};
use super::super::wire::MetadataOnly;
use super::*;
use crate::event::Inputs;
use crate::objects::ObjectKind;

/// What was reported.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Heard {
    Put(String),
    Listed,
    Fresh(u64, bool),
    Forbidden,
}

struct Record {
    without: Without,
    heard: mpsc::Sender<Heard>,
}

impl Sink<()> for Record {
    async fn changes(&mut self, changes: Vec<Change<()>>, _: bool) -> Result<(), KubeError> {
        for change in changes {
            if let Change::Put(item) = change {
                let _ = self.heard.send(Heard::Put(item.name.name.to_string())).await;
            }
        }
        Ok(())
    }

    async fn listed(&mut self) -> Result<(), KubeError> {
        let _ = self.heard.send(Heard::Listed).await;
        Ok(())
    }

    async fn synced(&mut self) -> Result<(), KubeError> {
        Ok(())
    }

    async fn fresh(&mut self, round: u64, whole: bool) -> Result<(), KubeError> {
        let _ = self.heard.send(Heard::Fresh(round, whole)).await;
        Ok(())
    }

    async fn forbidden(&mut self) -> Result<Without, KubeError> {
        let _ = self.heard.send(Heard::Forbidden).await;
        Ok(self.without)
    }
}

/// A watch under way.
struct Bench {
    task: tokio::task::JoinHandle<Result<(), KubeError>>,
    heard: mpsc::Receiver<Heard>,
    freshness: Freshness,
    round: watch::Sender<u64>,
    _inputs: crate::event::Receivers,
}

impl Bench {
    fn new(server: &Fake, without: Without) -> Self {
        let (sender, heard) = mpsc::channel(64);
        let (round, newest) = watch::channel(0);
        let (inputs, receivers) = Inputs::channel(8);
        let freshness = Freshness::default();
        let follow = Follow {
            client: server.client(),
            collection: Collection::all(ObjectKind::Secret, None),
            decode: MetadataOnly,
            sink: Record { without, heard: sender },
            freshness: freshness.clone(),
            restored: watch::channel(0).0,
            round: newest,
            rounds: Rounds::new(inputs).part(),
            events: None,
            confirm_empty_list: false,
        };
        #[allow(clippy::disallowed_methods, reason = "a test's own task")]
        let task = tokio::spawn(follow.run());
        Self { task, heard, freshness, round, _inputs: receivers }
    }

    /// What is reported until this is.
    async fn until(&mut self, last: Heard) -> Vec<Heard> {
        let mut all = Vec::new();
        let heard = async {
            while all.last() != Some(&last)
                && let Some(next) = self.heard.recv().await
            {
                all.push(next);
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(20), heard).await;
        assert_eq!(all.last(), Some(&last), "{all:?}");
        all
    }

    /// The lists that others may know more of.
    fn unread(&self) -> usize {
        self.freshness.unread().iter().count()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn is_watch(asked: &Asked) -> bool {
    asked.query.contains_key("watch")
}

fn list(revision: u64) -> Reply {
    let items = r#"[{"metadata":{"namespace":"n","name":"a","uid":"u","resourceVersion":"3"}}]"#;
    let text = format!(r#"{{"kind":"List","metadata":{{"resourceVersion":"{revision}"}},"items":{items}}}"#);
    Reply::Text(200, text)
}

fn line(name: &str, revision: u64) -> String {
    let metadata = format!(r#"{{"namespace":"n","name":"{name}","uid":"u","resourceVersion":"{revision}"}}"#);
    format!("{{\"type\":\"ADDED\",\"object\":{{\"metadata\":{metadata}}}}}\n")
}

/// Each answer once to the watches of a list that is known, then silence; lists have these revisions in turn.
fn server(watches: Vec<Reply>, revisions: Vec<u64>) -> Fake {
    let watches = Mutex::new(VecDeque::from(watches));
    let revisions = Mutex::new(VecDeque::from(revisions));
    Fake::new(move |asked| {
        if asked.query.contains_key("sendInitialEvents") {
            return status(422);
        }
        if is_watch(asked) {
            return watches.lock().unwrap().pop_front().unwrap_or(Reply::Silence);
        }
        let mut revisions = revisions.lock().unwrap();
        let next = if revisions.len() > 1 { revisions.pop_front() } else { revisions.front().copied() };
        list(next.unwrap_or_default())
    })
}

/// The rest of a line does not come any more: the event comes again, on the next stream.
#[tokio::test]
async fn half_a_line_is_no_part_of_the_next_stream() {
    let broken = line("b", 6) + &line("c", 7)[..20];
    let server = server(vec![Reply::Text(200, broken), Reply::Text(200, line("c", 7))], vec![5]);
    let mut bench = Bench::new(&server, Without::Waits);
    let put = |name: &str| Heard::Put(name.to_owned());
    assert_eq!(bench.until(put("c")).await, [put("a"), Heard::Listed, put("b"), put("c")]);
}

/// The others list again then; the one that noticed it has just done so.
#[tokio::test]
async fn who_notices_that_the_history_went_back_does_not_tell_itself() {
    let server = server(vec![status(410)], vec![9, 4]);
    let mut bench = Bench::new(&server, Without::Waits);
    bench.until(Heard::Listed).await;
    bench.until(Heard::Listed).await;
    let watches = || server.asked().iter().filter(|it| is_watch(it)).count();
    let lists = || server.asked().len() - watches();
    while watches() < 3 {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(lists(), 2, "{:?}", server.asked());
}

/// What is read object by object needs no list; of all else, others may know more.
#[tokio::test]
async fn a_list_that_may_not_be_read_is_one_that_others_may_know_better() {
    for (without, is_whole) in
        [(Without::Waits, false), (Without::DecisionsStay, false), (Without::Polls, true)]
    {
        let is_allowed = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let allowed = Arc::clone(&is_allowed);
        let server = Fake::new(move |asked| match allowed.load(std::sync::atomic::Ordering::Relaxed) {
            false => status(403),
            true if asked.query.contains_key("sendInitialEvents") => status(422),
            true if is_watch(asked) => Reply::Silence,
            true => list(5),
        });
        let mut bench = Bench::new(&server, without);
        bench.until(Heard::Forbidden).await;
        bench.round.send_replace(1);
        bench.until(Heard::Fresh(1, is_whole)).await;
        assert_eq!(bench.unread(), usize::from(!is_whole), "{without:?}");
        assert_eq!(bench.freshness.forbidden().len(), usize::from(!is_whole), "{without:?}");

        is_allowed.store(true, std::sync::atomic::Ordering::Relaxed);
        bench.round.send_replace(2);
        bench.until(Heard::Fresh(2, true)).await;
        assert_eq!((bench.unread(), bench.freshness.forbidden().len()), (0, 0), "{without:?}");
    }
}

/// The API server lists, and refuses to watch for good: nothing but the log named it.
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_is_known_to_fail_until_it_is_not() {
    let is_refused = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let refused = Arc::clone(&is_refused);
    let server = Fake::new(move |asked| match refused.load(std::sync::atomic::Ordering::Relaxed) {
        true if is_watch(asked) => status(403),
        false if is_watch(asked) => Reply::Silence,
        _ => list(5),
    });
    let mut bench = Bench::new(&server, Without::Waits);
    bench.until(Heard::Listed).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let failing = bench.freshness.failing();
    let [failing] = &failing[..] else { panic!("{failing:?}") };
    assert_eq!((failing.kind, &*failing.list), (ObjectKind::Secret, "secrets in all namespaces"));
    assert_eq!(&*failing.reason, "a watch was refused with 403: no");
    assert_eq!(bench.freshness.forbidden(), [], "the list may be read");
    is_refused.store(false, std::sync::atomic::Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.freshness.failing(), []);
}
