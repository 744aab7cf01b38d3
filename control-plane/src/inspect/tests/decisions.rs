//! Pins, rollbacks and their end.

use super::*;
use crate::event::{PinChange, PinRefused};
use crate::pin;

#[allow(clippy::disallowed_methods, reason = "it ends with the test")]
fn spawn<F: Future<Output: Send> + Send + 'static>(future: F) -> tokio::task::JoinHandle<F::Output> {
    tokio::spawn(future)
}

fn asked(version: &str) -> Asked {
    Asked {
        how: How::Rollback,
        version: version.to_owned(),
        lasts: None,
        note: "bad canary".to_owned(),
        replace: false,
    }
}

impl Bench {
    /// A pin is stored and in force, or none is.
    fn put_on_record(&mut self, pin: Option<Arc<pin::Pin>>) {
        let on_record = pin.as_ref().map(|pin| Arc::clone(&pin.revision));
        let changes = Changes { pin, on_record, ..Changes::default() };
        self.store.commit(changes, clock::now(), clock::wall());
    }

    /// Executes the request, as a source would, and returns it.
    async fn obey(&mut self, revision: &str) -> PinChange {
        let PinRequest { change, reply } = self.decisions.recv().await.unwrap();
        let pin = match &change {
            PinChange::Write { pin, .. } => {
                Some(Arc::new(pin::Pin { revision: revision.into(), ..pin::Pin::clone(pin) }))
            }
            PinChange::Mend { .. } | PinChange::Erase { .. } | PinChange::Expire { .. } => None,
        };
        self.put_on_record(pin);
        reply.send(Ok(revision.into())).unwrap();
        change
    }
}

#[tokio::test]
async fn a_rollback_is_on_record_before_it_is_answered_and_shown_everywhere() {
    let mut bench = bench();
    bench.host("one");
    bench.host("two");
    let versions: Vec<_> = bench.history().await.into_iter().map(|entry| entry.version).collect();
    let [newest, older] = &versions[..] else { panic!("{versions:?}") };

    let decider = bench.inspect.decider.clone();
    let older_too = older.clone();
    let answer = spawn(async move { decider.pin(asked(&older_too)).await });
    let PinChange::Write { pin, replaces } = bench.obey("7").await else { panic!("it is written") };
    assert_eq!((replaces, pin.until - pin.at, &*pin.note), (None, 24 * 3600, "bad canary"));
    let pin = answer.await.unwrap().unwrap();
    assert_eq!((&pin.version, &pin.compiled, pin.unreleased), (older, newest, 1));
    assert_eq!(&*pin.how, "rollback");

    let request = Request::new(inspect::WatchChangesRequest {});
    let mut changes = bench.inspect.watch_changes(request).await.unwrap().into_inner();
    bench.host("three");
    let change = changes.next().await.unwrap().unwrap();
    assert_eq!((change.config, change.changed, change.held_back), (false, 0, 1), "no proxy is waited for");
    let answer = bench.inspect.list_proxies(Request::new(inspect::ListProxiesRequest::default()));
    let answer = answer.await.unwrap().into_inner();
    assert_eq!((&answer.version, answer.pin.as_ref().map(|pin| &pin.version)), (older, Some(older)));
    let history = bench.history().await;
    let told: Vec<_> = history.iter().map(|it| (it.held_back, &it.cause[..8])).collect();
    assert_eq!(told[..2], [(true, "Ingress "), (false, "rollback")], "{told:?}");
    let request = Request::new(inspect::DiffRequest::default());
    let diff = bench.inspect.diff(request).await.unwrap().into_inner();
    assert_eq!((&diff.from, &diff.to), (older, &history[0].version), "what unpin would bring");

    let decider = bench.inspect.decider.clone();
    let answer = spawn(async move { decider.unpin().await });
    assert_eq!(bench.obey("").await, PinChange::Erase { revision: Some("7".into()) });
    let ended = answer.await.unwrap().unwrap();
    assert_eq!((ended.head.config.root.short(), ended.nothing), (history[0].version.clone(), false));

    let decider = bench.inspect.decider.clone();
    let answer = spawn(async move { decider.unpin().await });
    assert_eq!(bench.obey("").await, PinChange::Erase { revision: None });
    assert!(answer.await.unwrap().unwrap().nothing, "it was over");
}

#[tokio::test]
async fn what_cannot_be_decided_is_said() {
    use tonic::Code::{Aborted, FailedPrecondition, InvalidArgument, NotFound, Unavailable};
    let mut bench = bench();
    let decider = bench.inspect.decider.clone();
    let refused = async |asked: Asked| decider.pin(asked).await.unwrap_err();
    assert_eq!(refused(asked("")).await.code(), Unavailable, "nothing is offered yet");
    bench.host("one");
    bench.host("two");
    let history = bench.history().await;
    let older = &history[1].version;

    assert_eq!(refused(asked("")).await.code(), InvalidArgument);
    let status = refused(asked("0123456789ab")).await;
    assert_eq!(status.code(), NotFound);
    assert!(status.message().contains(older), "it lists what is there: {}", status.message());
    for seconds in [0, -1, 400 * 86_400] {
        let lasts = Some(prost_types::Duration { seconds, nanos: 0 });
        assert_eq!(refused(Asked { lasts, ..asked(older) }).await.code(), InvalidArgument);
    }
    // An operator's reason is stored completely, or rejected.
    let status = refused(Asked { note: "ä".repeat(201), ..asked(older) }).await;
    assert_eq!(status.code(), InvalidArgument);
    assert!(status.message().contains("at most 200 characters, got 201"), "{}", status.message());

    // Another operator was faster.
    let (decider, version) = (bench.inspect.decider.clone(), older.clone());
    let answer = spawn(async move { decider.pin(asked(&version)).await });
    let request = bench.decisions.recv().await.unwrap();
    let there = "rollback, version 0123456789ab".to_owned();
    request.reply.send(Err(PinRefused::Overtaken { there: there.clone() })).unwrap();
    let status = answer.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Aborted);
    assert!(status.message().contains(&there), "{}", status.message());

    // Replacing another pinned version must be explicit; extending the same pin need not.
    let pin = bench.inspect.published.head().history.find(older).cloned().unwrap();
    let pin =
        pin::Pin::new(How::Pin, pin.root, pin.snapshot.clone(), clock::wall(), Duration::from_secs(60), "");
    bench.put_on_record(Some(Arc::new(pin::Pin { revision: "7".into(), ..pin })));
    let sooner = Some(prost_types::Duration { seconds: 30, nanos: 0 });
    let status = refused(Asked { lasts: sooner, ..asked(older) }).await;
    assert_eq!(status.code(), FailedPrecondition, "what it holds back would be released earlier");
    assert!(
        status.message().contains("for longer already") && status.message().contains("--replace"),
        "{status}"
    );
    let status = refused(asked(&history[0].version)).await;
    assert_eq!(status.code(), FailedPrecondition);
    assert!(status.message().contains(older), "{}", status.message());
    for (version, replace) in [(older, false), (&history[0].version, true)] {
        let (decider, version) = (bench.inspect.decider.clone(), version.clone());
        let answer = spawn(async move { decider.pin(Asked { replace, ..asked(&version) }).await });
        let revision = bench.inspect.published.head().pin.as_ref().unwrap().revision.clone();
        let change = bench.obey(&format!("{revision}+")).await;
        let PinChange::Write { replaces, .. } = change else { panic!("it is written") };
        assert_eq!(replaces, Some(revision));
        answer.await.unwrap().unwrap();
    }
}

/// Whoever extended a rollback by an hour made it a pin without a reason.
#[tokio::test]
async fn a_pin_that_is_extended_keeps_its_reason() {
    let mut bench = bench();
    bench.host("one");
    let version = bench.history().await[0].version.clone();
    let decide = async |bench: &mut Bench, asked: Asked| {
        let decider = bench.inspect.decider.clone();
        let answer = spawn(async move { decider.pin(asked).await });
        let PinChange::Write { pin, .. } = bench.obey("7").await else { panic!("it is written") };
        answer.await.unwrap().unwrap();
        (pin.how, pin.note.clone())
    };
    let pin = |note: &str, replace| Asked { how: How::Pin, note: note.to_owned(), replace, ..asked("") };
    let kept = |how, note: &str| (how, note.to_owned());
    assert_eq!(decide(&mut bench, asked(&version)).await, kept(How::Rollback, "bad canary"));
    assert_eq!(decide(&mut bench, pin("", false)).await, kept(How::Rollback, "bad canary"));
    assert_eq!(decide(&mut bench, pin("still bad", false)).await, kept(How::Rollback, "still bad"));
    assert_eq!(decide(&mut bench, pin("", true)).await, kept(How::Pin, ""), "it replaces all of it");
    assert_eq!(decide(&mut bench, asked(&version)).await, kept(How::Rollback, "bad canary"));
}

/// Removing a pin refers to the pin that the operator saw.
#[tokio::test]
async fn what_is_on_record_and_not_in_force_can_be_ended_and_what_was_not_seen_cannot() {
    let mut bench = bench();
    bench.host("one");
    for (on_record, expected) in [(Some("9"), Some("9")), (None, None)] {
        let on_record = on_record.map(Arc::from);
        bench.store.commit(Changes { on_record, ..Changes::default() }, clock::now(), clock::wall());
        let decider = bench.inspect.decider.clone();
        let answer = spawn(async move { decider.unpin().await });
        let revision = expected.map(Arc::from);
        assert_eq!(bench.obey("").await, PinChange::Erase { revision });
        assert!(answer.await.unwrap().unwrap().head.on_record.is_none());
    }
}

/// Without authentication.
#[tokio::test]
async fn decisions_are_taken_from_this_machine_alone() {
    let bench = bench();
    let pin = bench.inspect.pin(Request::new(inspect::PinRequest::default())).await.unwrap_err();
    let rollback =
        bench.inspect.rollback(Request::new(inspect::RollbackRequest::default())).await.unwrap_err();
    let unpin = bench.inspect.unpin(Request::new(inspect::UnpinRequest {})).await.unwrap_err();
    for status in [pin, rollback, unpin] {
        assert_eq!(status.code(), tonic::Code::PermissionDenied);
    }
}
