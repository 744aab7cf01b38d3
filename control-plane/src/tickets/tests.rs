//! The record in a minimal API server, and in a folder.

use std::sync::Mutex;
use std::time::UNIX_EPOCH;

use http::Method;
use serde_json::{Value, json};

use super::record::PERIOD;
use super::*;
use crate::kube::tests::fake::{Asked, Fake, Reply, status};

const START: u64 = 1_000_000_000;

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(START + seconds)
}

fn name() -> ObjectName {
    ObjectName::new("firth", "firth-ticket-keys")
}

/// A Secret behind an API server that numbers its revisions; what was there before is written by `rival` once, just before
/// the first write.
#[derive(Clone, Default)]
struct Server {
    there: Arc<Mutex<Option<(u64, Value)>>>,
    rival: Arc<Mutex<Option<Value>>>,
}

impl Server {
    fn fake(&self) -> Fake {
        let server = self.clone();
        Fake::new(move |asked| server.answer(asked))
    }

    fn answer(&self, asked: &Asked) -> Reply {
        let mut there = self.there.lock().unwrap();
        let shown = |revision: u64, data: &Value| {
            let metadata = json!({"namespace": "firth", "name": "firth-ticket-keys",
                "resourceVersion": revision.to_string()});
            Reply::Text(
                200,
                json!({"kind": "Secret", "apiVersion": "v1", "metadata": metadata, "data": data}).to_string(),
            )
        };
        if asked.method == Method::GET {
            return there.as_ref().map_or_else(|| status(404), |(revision, data)| shown(*revision, data));
        }
        if let Some(data) = self.rival.lock().unwrap().take() {
            let revision = there.as_ref().map_or(1, |(revision, _)| revision + 1);
            *there = Some((revision, data));
        }
        let over = asked.body["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        match (&*there, over) {
            (Some((revision, _)), Some(over)) if over == revision.to_string() => {}
            (None, None) => {}
            _ => return status(409),
        }
        let revision = there.as_ref().map_or(1, |(revision, _)| revision + 1);
        *there = Some((revision, asked.body["data"].clone()));
        shown(revision, &asked.body["data"])
    }

    fn record(&self) -> Record {
        let there = self.there.lock().unwrap();
        let text = there.as_ref().unwrap().1[RECORD].as_str().unwrap();
        Record::parse(&STANDARD.decode(text).unwrap()).unwrap()
    }
}

fn data(record: &Record) -> Value {
    json!({RECORD: STANDARD.encode(&*record.to_text())})
}

fn vault(fake: &Fake) -> Vault {
    Vault::Cluster(SecretRecord::of(fake, name(), RECORD))
}

/// A replica that sees nothing twice.
trait Looks {
    async fn look_at(&mut self, now: SystemTime) -> Result<(), String>;
}

impl Looks for Vault {
    async fn look_at(&mut self, now: SystemTime) -> Result<(), String> {
        self.look(now, &mut Seen::default(), clock::now()).await
    }
}

/// A clock that is wrong made each replica rotate what the other had just rotated.
#[tokio::test]
async fn replicas_whose_clocks_differ_by_years_rotate_as_seldom_as_one() {
    let server = Server::default();
    let fake = server.fake();
    let start = clock::now();
    let mut replicas = [0, 10 * 365 * 86_400].map(|ahead| (ahead, vault(&fake), Seen::default()));
    let (mut records, hours) = (Vec::new(), 36);
    for minute in 0..hours * 60 {
        for (ahead, vault, seen) in &mut replicas {
            let steady = start + Duration::from_secs(minute * 60);
            vault.look(at(minute * 60 + *ahead), seen, steady).await.unwrap();
            records.push(server.record());
        }
    }
    records.dedup();
    // The first one, that of the clock that is ahead, and one each 12 hours after that.
    assert_eq!(records.len(), 4);
    for pair in records.windows(2) {
        assert_eq!(pair[1].keys()[0], pair[0].keys()[1], "what was next seals");
    }
}

/// What a record says of its age counts for the one that was there at the start. One that comes later is as old as it is
/// here, whatever its writer's clock says.
#[test]
fn a_record_that_comes_while_a_process_looks_is_new() {
    let (start, mut seen) = (clock::now(), Seen::default());
    let mut age =
        |record: &Record, now, after| seen.age(record, at(now), start + Duration::from_secs(after)).as_secs();
    let [first, second, third] = [(); 3].map(|()| Record::create(at(0), random));
    assert_eq!([age(&first, 7, 0), age(&first, 90, 60)], [7, 90], "it is what it says");
    let ten_years = 10 * 365 * 86_400;
    assert_eq!([age(&second, ten_years, 120), age(&second, ten_years, 180)], [0, 60]);
    assert_eq!(age(&third, ten_years, 200), 0);
}

#[tokio::test]
async fn what_is_missing_is_made_once_and_rotated_when_it_is_time() {
    let server = Server::default();
    let fake = server.fake();
    let mut vault = vault(&fake);
    vault.look_at(at(0)).await.unwrap();
    let first = server.record();
    vault.look_at(at(60)).await.unwrap();
    assert_eq!(server.record(), first);
    vault.look_at(at(PERIOD.as_secs())).await.unwrap();
    let second = server.record();
    assert_eq!(second.keys()[0], first.keys()[1], "what was next seals");
    assert_eq!(second.keys()[2], first.keys()[0], "what sealed opens");
    let writes = fake.asked().into_iter().filter(|asked| asked.method != Method::GET).count();
    assert_eq!(writes, 2);
}

#[tokio::test]
async fn who_is_second_takes_what_the_first_wrote() {
    let server = Server::default();
    let other = Record::create(at(0), random);
    *server.rival.lock().unwrap() = Some(data(&other));
    vault(&server.fake()).look_at(at(0)).await.unwrap();
    assert_eq!(server.record(), other);
    let rotated = other.due(at(PERIOD.as_secs()), PERIOD, random).unwrap();
    *server.rival.lock().unwrap() = Some(data(&rotated));
    vault(&server.fake()).look_at(at(PERIOD.as_secs())).await.unwrap();
    assert_eq!(server.record(), rotated);
}

#[tokio::test]
async fn a_read_that_fails_is_not_a_read_that_found_nothing() {
    for code in [403, 500] {
        let fake = Fake::new(move |_| status(code));
        assert!(vault(&fake).look_at(at(0)).await.is_err());
        assert_eq!(fake.asked().len(), 1, "nothing is written");
    }
    let server = Server::default();
    for damaged in [json!({}), json!({RECORD: STANDARD.encode("{")})] {
        *server.there.lock().unwrap() = Some((7, damaged));
        vault(&server.fake()).look_at(at(0)).await.unwrap();
        assert_eq!(server.record().keys().len(), 2, "read, and none");
    }
}

/// The Secret that was sent to the index.
async fn told(arrivals: &mut crate::event::Receivers) -> Secret {
    let Ok(Input::Events(events)) = arrivals.objects.try_recv() else { panic!("nothing was said") };
    match events.into_iter().next() {
        Some(Event::Applied { object: Object::Secret(secret), .. }) => (*secret).clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn with_a_folder_it_outlives_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Some(dir.path().to_owned());
    let (inputs, mut arrivals) = Inputs::channel(4);
    let mut vault = Vault::process(name(), folder.clone(), inputs.clone());
    vault.look_at(at(0)).await.unwrap();
    let first = told(&mut arrivals).await;
    assert_eq!(first.metadata.object_name(), name());
    vault.look_at(at(60)).await.unwrap();
    assert!(arrivals.objects.try_recv().is_err(), "it is said once");
    Vault::process(name(), folder.clone(), inputs.clone()).look_at(at(120)).await.unwrap();
    assert_eq!(told(&mut arrivals).await.data, first.data, "another process, the same keys");
    fs::write(dir.path().join(FILE), "{").unwrap();
    Vault::process(name(), folder, inputs.clone()).look_at(at(120)).await.unwrap();
    assert_ne!(told(&mut arrivals).await.data, first.data);
    let missing = dir.path().join("missing");
    let mut vault = Vault::process(name(), Some(missing.clone()), inputs.clone());
    vault.look_at(at(0)).await.unwrap_err();
    told(&mut arrivals).await;
    fs::create_dir(&missing).unwrap();
    vault.look_at(at(5)).await.unwrap();
    assert!(
        arrivals.objects.try_recv().is_err() && missing.join(FILE).exists(),
        "said once, and written when it can be"
    );
    Vault::process(name(), None, inputs).look_at(at(0)).await.unwrap();
    told(&mut arrivals).await;
}

#[tokio::test]
async fn a_file_that_cannot_be_read_keeps_nobody_waiting_and_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(FILE);
    // Like a file of another user: it cannot be read, but could be replaced. A link to itself, as root can read
    // anything else.
    std::os::unix::fs::symlink(&file, &file).unwrap();
    let (inputs, mut arrivals) = Inputs::channel(4);
    let mut vault = Vault::process(name(), Some(dir.path().to_owned()), inputs);
    vault.look_at(at(0)).await.unwrap_err();
    let own = told(&mut arrivals).await;
    vault.look_at(at(5)).await.unwrap_err();
    assert!(arrivals.objects.try_recv().is_err(), "it is said once");
    assert!(fs::symlink_metadata(&file).unwrap().is_symlink());
    vault.look_at(at(PERIOD.as_secs())).await.unwrap_err();
    assert_ne!(told(&mut arrivals).await.data, own.data, "and rotated");
    assert!(fs::symlink_metadata(&file).unwrap().is_symlink());
    // It can be read.
    let record = Record::create(at(PERIOD.as_secs()), random);
    fs::remove_file(&file).unwrap();
    fs::write(&file, record.to_text().as_bytes()).unwrap();
    vault.look_at(at(PERIOD.as_secs() + 5)).await.unwrap();
    assert_eq!(told(&mut arrivals).await.data, secret_data(&record));
    vault.look_at(at(PERIOD.as_secs() + 10)).await.unwrap();
    assert!(arrivals.objects.try_recv().is_err());
    assert_eq!(Record::parse(&fs::read(&file).unwrap()), Ok(record));
}

fn secret_data(record: &Record) -> std::collections::BTreeMap<String, String> {
    match secret(&name(), record) {
        Object::Secret(secret) => secret.data.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_before_somebody_asks_for_tickets() {
    let server = Server::default();
    let fake = server.fake();
    let (wants, wanted) = watch::channel(Wants::default());
    let mut looking = std::pin::pin!(run(vault(&fake), wanted));
    assert!(tokio::time::timeout(Duration::from_secs(600), &mut looking).await.is_err());
    assert_eq!(fake.asked().len(), 0);
    wants.send_replace(Wants::unit(ObjectRef { kind: ObjectKind::Secret, name: name() }));
    assert!(tokio::time::timeout(Duration::from_secs(1), &mut looking).await.is_err());
    assert_eq!(server.record().keys().len(), 2);
}
