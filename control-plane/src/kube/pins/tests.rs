use std::sync::Mutex;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};
use shared::entry::Entry;
use shared::kind::{Kind, ResourceKey};
use shared::snapshot::Snapshot;
use tokio::sync::mpsc;

use super::super::sink::Sender;
use super::super::tests::fake::{Asked, Fake, Reply, status};
use super::super::wire::{Decode as _, Whole};
use super::*;
use crate::event::{Arrivals, Input, Inputs, PinChange, PinRefused, PinRequest, Receivers};
use crate::freshness::Freshness;
use crate::objects::ObjectKind;
use crate::pin::How;

/// Secrets as an API server stores them.
#[derive(Clone, Default)]
struct Cluster {
    secrets: Arc<Mutex<BTreeMap<String, Value>>>,
    count: Arc<Mutex<u64>>,
}

impl Cluster {
    fn server(&self) -> Fake {
        let cluster = self.clone();
        Fake::new(move |asked| cluster.answer(asked))
    }

    fn answer(&self, asked: &Asked) -> Reply {
        let name = match asked.body["metadata"]["name"].as_str() {
            Some(name) => name.to_owned(),
            None => asked.path.rsplit('/').next().unwrap_or_default().to_owned(),
        };
        let there = self.secrets.lock().unwrap().get(&name).cloned();
        let version = |value: &Value| value["metadata"]["resourceVersion"].clone();
        match (asked.method.as_str(), there) {
            ("GET", _) if asked.path.ends_with("/secrets") => self.list(asked),
            ("GET", Some(there)) => Reply::Text(200, there.to_string()),
            ("POST", Some(_)) => status(409),
            ("POST", None) => self.keep(name, asked.body.clone(), None),
            ("PUT", Some(there)) if version(&there) != version(&asked.body) => status(409),
            ("PUT", Some(there)) => {
                self.keep(name, asked.body.clone(), Some(there["metadata"]["uid"].clone()))
            }
            ("DELETE", Some(there)) => {
                let expected = &asked.body["preconditions"]["resourceVersion"];
                if !expected.is_null() && *expected != version(&there) {
                    return status(409);
                }
                self.secrets.lock().unwrap().remove(&name);
                Reply::Text(200, json!({"kind": "Status"}).to_string())
            }
            _ => status(404),
        }
    }

    /// Of those that the selector takes what people may know, two at a time.
    fn list(&self, asked: &Asked) -> Reply {
        let (key, value) = asked.query["labelSelector"].split_once('=').unwrap();
        let secrets = self.secrets.lock().unwrap();
        let labelled = secrets.values().filter(|it| it["metadata"]["labels"][key] == value);
        let items: Vec<_> = labelled.map(|it| json!({"metadata": it["metadata"]})).collect();
        let from = asked.query.get("continue").map_or(0, |from| from.parse().unwrap());
        let page: Vec<_> = items.iter().skip(from).take(2).collect();
        let more = if from + 2 < items.len() { (from + 2).to_string() } else { String::new() };
        let metadata = json!({"resourceVersion": "1", "continue": more});
        Reply::Text(200, json!({"metadata": metadata, "items": page}).to_string())
    }

    fn keep(&self, name: String, mut secret: Value, uid: Option<Value>) -> Reply {
        let mut count = self.count.lock().unwrap();
        *count += 1;
        secret["metadata"]["resourceVersion"] = count.to_string().into();
        secret["metadata"]["uid"] = uid.unwrap_or_else(|| format!("uid-{count}").into());
        let text = secret.to_string();
        self.secrets.lock().unwrap().insert(name, secret);
        Reply::Text(200, text)
    }

    fn names(&self) -> Vec<String> {
        self.secrets.lock().unwrap().keys().cloned().collect()
    }

    /// The revision of the manifest.
    fn revision(&self) -> Arc<str> {
        self.secrets.lock().unwrap()[NAME]["metadata"]["resourceVersion"].as_str().unwrap().into()
    }

    fn manifest(&self) -> String {
        let secrets = self.secrets.lock().unwrap();
        let text = STANDARD.decode(secrets[NAME]["data"][MANIFEST].as_str().unwrap()).unwrap();
        String::from_utf8(text).unwrap()
    }

    fn edit(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut secret = self.secrets.lock().unwrap().remove(name).unwrap();
        change(&mut secret);
        let uid = secret["metadata"]["uid"].clone();
        self.keep(name.to_owned(), secret, Some(uid));
    }

    fn writes(&self) -> u64 {
        *self.count.lock().unwrap()
    }

    /// What a watch shows of what was written after so many writes, in the order of those.
    fn shown_since(&self, count: u64) -> Vec<Change<Decoded>> {
        let secrets = self.secrets.lock().unwrap();
        let number = |it: &Value| it["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
        let mut newer: Vec<_> = secrets.values().filter(|it| number(it) > count).collect();
        newer.sort_by_key(|it| number(it));
        let decoded = newer.into_iter().map(|it| Whole(ObjectKind::Secret).decode(&it.to_string()).unwrap());
        decoded.map(Change::Put).collect()
    }

    /// All Secrets as a watch reports them, in an order that a list may have.
    fn shown(&self, before: &[String]) -> Vec<Change<Decoded>> {
        let secrets = self.secrets.lock().unwrap();
        let put = secrets
            .values()
            .rev()
            .map(|secret| Whole(ObjectKind::Secret).decode(&secret.to_string()).unwrap());
        let gone = before.iter().filter(|name| !secrets.contains_key(*name));
        let gone = gone.map(|name| Change::Gone(shared::name::ObjectName::new("firth", name.as_str())));
        put.map(Change::Put).chain(gone).collect()
    }
}

/// A replica: its reader and its writer.
struct Replica {
    sink: Pins,
    told: Arrivals,
    asks: mpsc::Sender<PinRequest>,
    before: Vec<String>,
    cluster: Cluster,
}

impl Replica {
    fn of(cluster: &Cluster) -> Self {
        let (inputs, Receivers { objects: told, .. }) = Inputs::channel(8);
        let sender = Sender::new(inputs, Freshness::default());
        let sink = Pins::new(Objects::new(sender, ObjectKind::ConfigMap));
        let (asks, requests) = mpsc::channel(8);
        let writing = write(cluster.server().client(), "firth".into(), requests);
        #[allow(clippy::disallowed_methods, reason = "it ends with the test")]
        tokio::spawn(writing);
        Self { sink, told, asks, before: Vec::new(), cluster: cluster.clone() }
    }

    async fn ask(&self, change: PinChange) -> Result<Arc<str>, PinRefused> {
        let (request, outcome) = PinRequest::new(change);
        self.asks.send(request).await.unwrap();
        outcome.await.unwrap()
    }

    async fn write(&self, pin: &Arc<Pin>, replaces: Option<&Arc<str>>) -> Result<Arc<str>, PinRefused> {
        self.ask(PinChange::Write { pin: Arc::clone(pin), replaces: replaces.cloned() }).await
    }

    /// Reads all Secrets; returns the resulting event, if there is news.
    async fn read(&mut self) -> Option<Event> {
        let changes = self.cluster.shown(&self.before);
        self.before = self.cluster.names();
        self.sink.changes(changes, false).await.unwrap();
        match self.told.try_recv() {
            Ok(Input::Events(mut events)) => {
                assert_eq!(events.len(), 1);
                events.pop()
            }
            _ => None,
        }
    }
}

/// A pin whose resources take two parts.
fn a_pin(seed: u64) -> Arc<Pin> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut config = Snapshot::default();
    config.extend((0..10).map(|i| {
        let body: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(100 << 10).collect();
        Arc::new(Entry::from_body(ResourceKey::new(Kind::Route, format!("{i}")), 1, body.into()))
    }));
    let lasts = Duration::from_secs(60);
    Arc::new(Pin::new(How::Rollback, config.root(), config, UNIX_EPOCH, lasts, ""))
}

fn version(event: Option<Event>) -> shared::version::Root {
    match event {
        Some(Event::Pinned(pin)) => pin.version,
        other => panic!("expected a pin, got {other:?}"),
    }
}

fn unreadable(event: Option<Event>) -> Unreadable {
    match event {
        Some(Event::PinUnreadable { why, .. }) => why,
        other => panic!("expected a record that cannot be read, got {other:?}"),
    }
}

#[tokio::test]
async fn what_one_replica_writes_every_replica_reads() {
    let cluster = Cluster::default();
    let (mut one, mut other) = (Replica::of(&cluster), Replica::of(&cluster));
    assert_eq!(one.read().await, None);
    let pin = a_pin(1);
    let revision = one.write(&pin, None).await.unwrap();
    assert_eq!(cluster.names().len(), 3, "a manifest and two parts: {:?}", cluster.names());
    for replica in [&mut one, &mut other] {
        let Some(Event::Pinned(read)) = replica.read().await else { panic!("it is on record") };
        assert_eq!((read.version, &read.revision), (pin.version, &revision));
        assert_eq!(read.config, pin.config);
        assert_eq!(replica.read().await, None, "once");
    }
    other.ask(PinChange::Erase { revision: Some(revision) }).await.unwrap();
    assert!(cluster.names().is_empty(), "{:?}", cluster.names());
    for replica in [&mut one, &mut other] {
        assert_eq!(replica.read().await, Some(Event::Unpinned));
        assert_eq!(replica.read().await, None);
    }
}

#[tokio::test]
async fn a_secret_of_somebody_else_is_no_part_and_is_not_deleted() {
    let cluster = Cluster::default();
    Replica::of(&cluster).write(&a_pin(1), None).await.unwrap();
    let name = cluster.names().into_iter().find(|name| name != NAME).unwrap();
    let part = cluster.secrets.lock().unwrap()[&name].clone();
    for (label, data, expected) in [
        (json!(""), part["data"].clone(), false),
        (json!(""), json!({PART: STANDARD.encode("else")}), false),
        (json!("else"), json!({}), false),
        (json!(LABEL.1), part["data"].clone(), true),
        (json!(LABEL.1), json!({PART: STANDARD.encode("else")}), true),
    ] {
        let cluster = Cluster::default();
        let secret = json!({"metadata": {"name": &name, "labels": {LABEL.0: &label}}, "data": data});
        cluster.keep(name.clone(), secret, None);
        let written = Replica::of(&cluster).write(&a_pin(1), None).await;
        assert_eq!(written.is_ok(), expected, "{label} {data}: {written:?}");
        assert!(expected || cluster.names() == [&*name], "{:?}", cluster.names());
    }
}

/// A user who may write Secrets may fill etcd, but must not fill the memory of every replica.
#[tokio::test]
async fn what_nobody_names_is_not_kept_and_what_is_written_now_is() {
    let cluster = Cluster::default();
    let mut replica = Replica::of(&cluster);
    let pin = a_pin(1);
    let revision = replica.write(&pin, None).await.unwrap();
    for number in 0..100 {
        let name = if number % 2 == 0 { format!("firth-pin-{number}") } else { format!("a-{number}") };
        let secret = json!({"metadata": {"name": &name, "labels": {LABEL.0: LABEL.1}}, "data": {}});
        cluster.keep(name, secret, None);
    }
    assert_eq!(version(replica.read().await), pin.version);
    assert_eq!(replica.sink.there.len(), 1 + 2 + SPARE);
    let newer = a_pin(2);
    let changes = cluster.writes();
    replica.write(&newer, Some(&revision)).await.unwrap();
    // As a watch tells it: one by one, parts before the manifest that names them.
    let mut told = None;
    for change in cluster.shown_since(changes) {
        replica.sink.changes(vec![change], false).await.unwrap();
        told = replica.told.try_recv().ok().or(told);
    }
    let Some(Input::Events(mut events)) = told else { panic!("{told:?}") };
    assert_eq!(version(events.pop()), newer.version);
}

#[tokio::test]
async fn of_two_who_decide_at_once_one_is_told() {
    let cluster = Cluster::default();
    let (mut one, other) = (Replica::of(&cluster), Replica::of(&cluster));
    let (first, second) = (a_pin(1), a_pin(2));
    let revision = one.write(&first, None).await.unwrap();
    let refused = other.write(&second, None).await.unwrap_err();
    assert!(refused.to_string().contains(&first.version.short()), "it says what there is: {refused}");
    let newer = other.write(&second, Some(&revision)).await.unwrap();
    let late = one.ask(PinChange::Erase { revision: Some(revision.clone()) }).await;
    assert!(matches!(late, Err(PinRefused::Overtaken { .. })), "it ends what it has not seen");
    assert!(one.write(&first, Some(&revision)).await.is_err());
    assert_eq!(version(one.read().await), second.version);
    assert_eq!(cluster.names().len(), 3, "nothing is left of the others: {:?}", cluster.names());
    assert_eq!(other.ask(PinChange::Erase { revision: Some(newer) }).await.unwrap(), "".into());
    assert!(one.write(&first, Some(&revision)).await.unwrap_err().to_string().contains("nothing is pinned"));
}

#[tokio::test]
async fn a_record_that_is_damaged_is_mended_once_and_one_that_is_gone_stays_away() {
    let cluster = Cluster::default();
    let mut replica = Replica::of(&cluster);
    let pin = a_pin(1);
    replica.write(&pin, None).await.unwrap();
    let part = cluster.names().into_iter().find(|name| name != NAME).unwrap();
    assert_eq!(version(replica.read().await), pin.version);

    cluster.secrets.lock().unwrap().remove(&part);
    assert_eq!(unreadable(replica.read().await), Unreadable::Missing { name: part });
    let of_pin = |replaces| PinChange::Mend { pin: Arc::clone(&pin), replaces };
    let mend = || of_pin(cluster.revision());
    let damaged = cluster.revision();
    let mended = replica.ask(of_pin(damaged.clone())).await.unwrap();
    assert_eq!(version(replica.read().await), pin.version);
    for seen in [mended.clone(), damaged] {
        assert_eq!(replica.ask(of_pin(seen)).await.unwrap(), mended, "another replica was quicker");
    }

    let part = cluster.names().into_iter().find(|name| name != NAME).unwrap();
    cluster.edit(&part, |it| it["data"][PART] = STANDARD.encode("else").into());
    assert!(unreadable(replica.read().await).may_be_mended());
    cluster.edit(NAME, |it| it["data"][MANIFEST] = STANDARD.encode("{").into());
    assert!(unreadable(replica.read().await).may_be_mended());
    replica.ask(mend()).await.unwrap();
    assert_eq!(version(replica.read().await), pin.version);

    let late = mend();
    cluster.secrets.lock().unwrap().remove(NAME);
    assert_eq!(replica.read().await, Some(Event::Unpinned), "whoever deletes it unpins");
    replica.ask(late).await.unwrap();
    assert!(!cluster.names().contains(&NAME.to_owned()));
}

/// A replica that was cut off knows the pin of before. Those that have this one write it again.
#[tokio::test]
async fn a_damaged_record_is_not_mended_with_another_pin() {
    let cluster = Cluster::default();
    let (cut_off, replica) = (Replica::of(&cluster), Replica::of(&cluster));
    let (before, newer) = (a_pin(1), a_pin(2));
    let revision = cut_off.write(&before, None).await.unwrap();
    replica.write(&newer, Some(&revision)).await.unwrap();
    let part = cluster.names().into_iter().find(|name| name != NAME).unwrap();
    cluster.secrets.lock().unwrap().remove(&part);
    let there = cluster.manifest();
    let mend = |pin: &Arc<Pin>| PinChange::Mend { pin: Arc::clone(pin), replaces: cluster.revision() };
    assert_eq!(cut_off.ask(mend(&before)).await.unwrap(), cluster.revision());
    // Nor with one of the same version that ends at another time.
    let shorter =
        Pin::new(How::Rollback, newer.version, newer.config.clone(), UNIX_EPOCH, Duration::from_secs(9), "");
    assert_eq!(cut_off.ask(mend(&Arc::new(shorter))).await.unwrap(), cluster.revision());
    assert_eq!(cluster.manifest(), there);
    replica.ask(mend(&newer)).await.unwrap();
    assert_eq!(version(Replica::of(&cluster).read().await), newer.version);
}

/// A replica of an older build is asked to repair what it cannot read: that is not damaged.
#[tokio::test]
async fn a_record_of_a_newer_build_a_copy_and_one_that_is_being_made_are_no_damage() {
    let cluster = Cluster::default();
    let replica = Replica::of(&cluster);
    let pin = a_pin(1);
    replica.write(&pin, None).await.unwrap();
    let written = cluster.manifest();
    for (of, is) in
        [("\"format\": 1", "\"format\": 2"), ("\"uid-", "\"uid-of-another-"), ("\"uid-3\"", "\"\"")]
    {
        assert!(written.contains(of), "{written}");
        cluster.edit(NAME, |it| it["data"][MANIFEST] = STANDARD.encode(written.replace(of, is)).into());
        let there = cluster.manifest();
        let mend = PinChange::Mend { pin: Arc::clone(&pin), replaces: cluster.revision() };
        assert_eq!(replica.ask(mend).await.unwrap(), cluster.revision());
        assert_eq!(cluster.manifest(), there, "it is left as it is");
    }
}

#[tokio::test]
async fn nothing_is_ended_that_was_not_seen() {
    let cluster = Cluster::default();
    let replica = Replica::of(&cluster);
    replica.ask(PinChange::Erase { revision: None }).await.unwrap();
    let pin = a_pin(1);
    replica.write(&pin, None).await.unwrap();
    let unseen = replica.ask(PinChange::Erase { revision: None }).await.unwrap_err();
    assert!(unseen.to_string().contains(&pin.version.short()), "it says what there is: {unseen}");
    assert_eq!(cluster.names().len(), 3);
}

#[tokio::test]
async fn a_copy_in_another_cluster_decides_nothing() {
    let (cluster, other) = (Cluster::default(), Cluster::default());
    Replica::of(&cluster).write(&a_pin(1), None).await.unwrap();
    for (name, mut secret) in cluster.secrets.lock().unwrap().clone() {
        secret["metadata"]["uid"] = "restored".into();
        other.secrets.lock().unwrap().insert(name, secret);
    }
    assert_eq!(unreadable(Replica::of(&other).read().await), Unreadable::Elsewhere);
}

mod failures;
mod times;
