//! An API server that rejects a request, does not respond, or executes a request without responding.

use http::Method;
use tokio::time;

use super::*;

/// A writer to an API server that answers as `answer` says; `None`: as the cluster does.
pub(super) fn writer(
    cluster: &Cluster,
    answer: impl Fn(&Cluster, &Asked) -> Option<Reply> + Send + Sync + 'static,
) -> (Fake, mpsc::Sender<PinRequest>) {
    let keeps = cluster.clone();
    let server = Fake::new(move |asked| answer(&keeps, asked).unwrap_or_else(|| keeps.answer(asked)));
    let (asks, requests) = mpsc::channel(8);
    #[allow(clippy::disallowed_methods, reason = "it ends with the test")]
    tokio::spawn(write(server.client(), "firth".into(), requests));
    (server, asks)
}

pub(super) async fn ask(asks: &mpsc::Sender<PinRequest>, change: PinChange) -> Result<Arc<str>, PinRefused> {
    let (request, outcome) = PinRequest::new(change);
    asks.send(request).await.unwrap();
    outcome.await.unwrap()
}

fn first(pin: &Arc<Pin>) -> PinChange {
    PinChange::Write { pin: Arc::clone(pin), replaces: None }
}

/// How often the manifest was to be replaced.
fn replacements(server: &Fake) -> usize {
    server.asked().iter().filter(|asked| asked.method == Method::PUT).count()
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_being_made_decides_nothing_and_the_next_takes_its_place() {
    let cluster = Cluster::default();
    let pin = a_pin(1);
    // The API server becomes unavailable between the two writes of the manifest.
    let (_, asks) = writer(&cluster, |_, asked| (asked.method == Method::PUT).then(|| status(503)));
    assert!(matches!(ask(&asks, first(&pin)).await, Err(PinRefused::Unknown { .. })));
    let mut replica = Replica::of(&cluster);
    assert_eq!(unreadable(replica.read().await), Unreadable::Unfinished);
    replica.write(&pin, None).await.unwrap();
    assert_eq!(version(replica.read().await), pin.version);
    assert_eq!(cluster.names().len(), 3, "nothing is left of the other: {:?}", cluster.names());
}

/// Once, each retry created new parts, until etcd was full.
#[tokio::test(start_paused = true)]
async fn whoever_tries_again_uses_the_parts_of_before() {
    let cluster = Cluster::default();
    let replica = Replica::of(&cluster);
    let pin = a_pin(1);
    replica.write(&pin, None).await.unwrap();
    cluster.edit(NAME, |it| it["data"][MANIFEST] = STANDARD.encode("{").into());
    let (server, asks) = writer(&cluster, |_, asked| (asked.method == Method::PUT).then_some(Reply::Nothing));
    let mend = PinChange::Mend { pin: Arc::clone(&pin), replaces: cluster.revision() };
    assert!(matches!(ask(&asks, mend).await, Err(PinRefused::Unknown { .. })));
    while replacements(&server) < 10 {
        time::sleep(Duration::from_secs(1)).await;
    }
    let names = cluster.names();
    assert_eq!(names.len(), 5, "the damaged record's two and its own two: {names:?}");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_done_and_not_answered_is_done() {
    for answer in [status(500), Reply::Nothing, Reply::Text(200, "{".to_owned())] {
        for method in [Method::POST, Method::PUT] {
            let cluster = Cluster::default();
            let pin = a_pin(1);
            let (answer, of) = (answer.clone(), method.clone());
            let (_, asks) = writer(&cluster, move |cluster, asked| {
                let is_meant = asked.method == of && asked.body["metadata"]["name"] == NAME;
                is_meant.then(|| {
                    cluster.answer(asked);
                    answer.clone()
                })
            });
            let revision = ask(&asks, first(&pin)).await.unwrap();
            assert_eq!(revision, cluster.revision());
            assert_eq!(version(Replica::of(&cluster).read().await), pin.version, "{method}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_done_later_finds_its_parts() {
    let cluster = Cluster::default();
    let mut replica = Replica::of(&cluster);
    let (before, pin) = (a_pin(1), a_pin(2));
    let revision = replica.write(&before, None).await.unwrap();
    let late: Arc<Mutex<Option<Asked>>> = Arc::default();
    let keeps = Arc::clone(&late);
    let (_, asks) = writer(&cluster, move |_, asked| {
        (asked.method == Method::PUT).then(|| {
            *keeps.lock().unwrap() = Some(asked.clone());
            Reply::Nothing
        })
    });
    let change = PinChange::Write { pin: Arc::clone(&pin), replaces: Some(revision) };
    let unknown = ask(&asks, change).await.unwrap_err();
    assert!(unknown.to_string().contains("not known") && unknown.to_string().contains("10 s"), "{unknown}");
    assert_eq!(version(replica.read().await), before.version);
    cluster.answer(&late.lock().unwrap().take().unwrap());
    assert_eq!(version(replica.read().await), pin.version);
}

#[tokio::test]
async fn who_is_refused_or_overtaken_leaves_nothing() {
    let pin = a_pin(1);
    // One part too many for a quota.
    let cluster = Cluster::default();
    let (_, asks) = writer(&cluster, |cluster, asked| {
        let is_full = asked.method == Method::POST && cluster.names().len() == 1;
        is_full.then(|| status(403))
    });
    let refused = ask(&asks, first(&pin)).await.unwrap_err();
    assert!(matches!(&refused, PinRefused::Failed { reason } if reason.contains("403")), "{refused}");
    assert_eq!(cluster.names(), [""; 0]);

    // Another replica writes its own while the parts are on their way.
    let elsewhere = Cluster::default();
    Replica::of(&elsewhere).write(&a_pin(2), None).await.unwrap();
    let quicker = elsewhere.secrets.lock().unwrap()[NAME].clone();
    let cluster = Cluster::default();
    let (_, asks) = writer(&cluster, move |cluster, asked| {
        if asked.method == Method::POST && asked.body["metadata"]["name"] == NAME {
            cluster.keep(NAME.to_owned(), quicker.clone(), None);
        }
        None
    });
    assert!(matches!(ask(&asks, first(&pin)).await, Err(PinRefused::Overtaken { .. })));
    assert_eq!(cluster.names(), [NAME]);
}

/// A user who may write the manifest must not be able to delete what they could not delete themselves.
#[tokio::test]
async fn a_secret_that_is_no_part_stays_whatever_a_manifest_names() {
    let cluster = Cluster::default();
    let replica = Replica::of(&cluster);
    replica.write(&a_pin(1), None).await.unwrap();
    let label = json!({LABEL.0: LABEL.1});
    for (name, labels) in [("password", &Value::Null), ("firth-pin-mine", &Value::Null), ("firth-ca", &label)]
    {
        let secret = json!({"metadata": {"name": name, "labels": labels}, "data": {}});
        cluster.keep(name.to_owned(), secret, None);
    }
    let text = cluster.manifest();
    let named = text.replacen("\"parts\": [", r#""parts": ["password", "firth-pin-mine", "firth-ca", "#, 1);
    assert_ne!(text, named);
    cluster.edit(NAME, |it| it["data"][MANIFEST] = STANDARD.encode(named).into());
    replica.ask(PinChange::Erase { revision: Some(cluster.revision()) }).await.unwrap();
    assert_eq!(cluster.names(), ["firth-ca", "firth-pin-mine", "password"]);
}

/// A process that ended halfway deletes nothing.
#[tokio::test(start_paused = true)]
async fn what_nothing_names_is_swept_and_what_is_being_written_is_not() {
    let cluster = Cluster::default();
    let replica = Replica::of(&cluster);
    let revision = replica.write(&a_pin(1), None).await.unwrap();
    let kept = cluster.names();
    let label = json!({LABEL.0: LABEL.1});
    let leave = |name: &str, labels: &Value| {
        let secret = json!({"metadata": {"name": name, "labels": labels}, "data": {}});
        cluster.keep(name.to_owned(), secret, None);
    };
    leave("firth-pin-left", &label);
    leave("firth-pin-foreign", &Value::Null);
    time::sleep(Duration::from_secs(900)).await;
    leave("firth-pin-new", &label);
    time::sleep(Duration::from_secs(600)).await;
    let mut expected = [kept, vec!["firth-pin-foreign".to_owned(), "firth-pin-new".to_owned()]].concat();
    expected.sort();
    assert_eq!(cluster.names(), expected);

    // A record that only a newer build understands may name anything.
    let text = cluster.manifest().replace("\"format\": 1", "\"format\": 2");
    cluster.edit(NAME, |it| it["data"][MANIFEST] = STANDARD.encode(text).into());
    time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(cluster.names(), expected);
    cluster.secrets.lock().unwrap().remove(NAME);
    time::sleep(Duration::from_secs(1800)).await;
    assert_eq!(cluster.names(), ["firth-pin-foreign"], "{revision}: whoever deletes the record unpins");
}

#[tokio::test(start_paused = true)]
async fn an_end_that_was_not_answered_is_read_back() {
    for is_done in [true, false] {
        let cluster = Cluster::default();
        let replica = Replica::of(&cluster);
        let revision = replica.write(&a_pin(1), None).await.unwrap();
        let (_, asks) = writer(&cluster, move |cluster, asked| {
            (asked.method == Method::DELETE && asked.path.ends_with(NAME)).then(|| {
                if is_done {
                    cluster.answer(asked);
                }
                Reply::Nothing
            })
        });
        let ended = ask(&asks, PinChange::Erase { revision: Some(revision) }).await;
        match is_done {
            true => assert_eq!((ended.is_ok(), cluster.names().len()), (true, 0)),
            false => assert_eq!((ended.is_ok(), cluster.names().len()), (false, 3), "it is in force"),
        }
    }
}
