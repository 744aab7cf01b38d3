use http::Method;
use serde_json::Value;
use shared::version::Seq;

use super::super::tests::fake::{Asked, Fake, Reply, status};
use super::*;
use crate::objects::ObjectRef;
use crate::placement::{Compiled, LogPositions, Report};
use crate::publish::election::Election;
use crate::publish::ledger::Status;

const INTERVAL: Duration = Duration::from_secs(5);

fn name() -> ObjectName {
    ObjectName::new("shop", "web")
}

/// The status of an Ingress without an address.
fn nothing(revision: &str) -> Status {
    Status { revision: revision.into(), addresses: Arc::new([]) }
}

/// A writer under way, and what it looks at.
struct Running {
    statuses: Statuses,
    _places: watch::Sender<Placements>,
    hold: watch::Sender<Option<Instant>>,
    farewell: oneshot::Sender<Farewell>,
    task: tokio::task::JoinHandle<Result<(), Infallible>>,
}

fn start(server: &Fake) -> Running {
    start_with(server, &[name()], Published::Service(ObjectName::new("edge", "edge")))
}

fn start_with(server: &Fake, served: &[ObjectName], published: Published) -> Running {
    let lease = ObjectName::new("edge", "leader");
    let options = StatusOptions { published, interval: INTERVAL, lease, ttl: Duration::from_secs(30) };
    let mut places = Placements::default();
    let made = |name: &ObjectName| {
        let object = ObjectRef { kind: ObjectKind::Ingress, name: name.clone() };
        (object, Report::Compiled(Compiled { is_served: true, ..Compiled::default() }))
    };
    places.settle(
        served.iter().map(made).collect(),
        LogPositions { config: Seq(1), live: Seq(1), ..LogPositions::default() },
    );
    let statuses = Statuses::default();
    let ((places, placed), (hold, held)) = (watch::channel(places), watch::channel(None));
    let (farewell, told) = oneshot::channel();
    let seen = Seen { statuses: statuses.clone(), places: placed, hold: held, farewell: told };
    #[allow(clippy::disallowed_methods, reason = "a test's own task")]
    let task = tokio::spawn(run(server.client(), options, seen));
    Running { statuses, _places: places, hold, farewell, task }
}

impl Running {
    fn hear(&self, revision: &str) {
        self.statuses.observe([(name(), Some(nothing(revision)))].into_iter());
    }

    fn may_write_for(&self, seconds: u64) {
        self.hold.send_replace(Some(now() + Duration::from_secs(seconds)));
    }
}

fn service(ip: &str) -> Reply {
    service_of(&[ip])
}

fn service_of(ips: &[&str]) -> Reply {
    let ips: Vec<_> = ips.iter().map(|ip| json!({"ip": ip})).collect();
    let service = json!({"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": ips}}});
    Reply::Text(200, service.to_string())
}

fn written(server: &Fake) -> Vec<Asked> {
    server.asked().into_iter().filter(|asked| asked.method == Method::PATCH).collect()
}

fn done(version: &str) -> Reply {
    Reply::Text(200, json!({"metadata": {"resourceVersion": version}}).to_string())
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn it_writes_over_what_it_heard_while_it_holds_the_lease_and_what_it_read_since() {
    let ip = Arc::new(std::sync::Mutex::new("192.0.2.1".to_owned()));
    let says = Arc::clone(&ip);
    let server = Fake::new(move |asked| match asked.method {
        Method::GET => service(&says.lock().unwrap()),
        _ => done("8"),
    });
    let writer = start(&server);
    writer.hear("7");
    pass(60).await;
    assert!(server.asked().is_empty(), "not its business: {:?}", server.asked());

    writer.may_write_for(7);
    pass(1).await;
    let [first] = &written(&server)[..] else { panic!("{:?}", server.asked()) };
    assert_eq!(first.path, "/apis/networking.k8s.io/v1/namespaces/shop/ingresses/web/status");
    assert_eq!(first.body["metadata"]["resourceVersion"], "7");
    assert_eq!(first.body["status"]["loadBalancer"]["ingress"], json!([{"ip": "192.0.2.1"}]));

    // It sleeps past the end of its hold, and the world goes on.
    "192.0.2.2".clone_into(&mut ip.lock().unwrap());
    pass(60).await;
    let before = server.asked().len();
    writer.hear("9");
    pass(60).await;
    assert_eq!(server.asked().len(), before, "its hold is over");
    writer.may_write_for(60);
    pass(1).await;
    let last = written(&server).pop().unwrap();
    assert_eq!(
        last.body["status"]["loadBalancer"]["ingress"],
        json!([{"ip": "192.0.2.2"}]),
        "never the old one"
    );
    assert_eq!(last.body["metadata"]["resourceVersion"], "9");
    assert!(!writer.task.is_finished());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_changes_nothing_and_what_is_not_answered_is_tried_again() {
    let broken = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_broken = Arc::clone(&broken);
    let server =
        Fake::new(move |asked| match (&asked.method, is_broken.load(std::sync::atomic::Ordering::Relaxed)) {
            (&Method::GET, false) => service("192.0.2.1"),
            (&Method::GET, true) => status(404),
            (_, true) => Reply::Nothing,
            (_, false) => done("8"),
        });
    let writer = start(&server);
    writer.may_write_for(3_600);
    pass(1).await;
    broken.store(true, std::sync::atomic::Ordering::Relaxed);
    pass(30).await;
    writer.hear("7");
    pass(35).await;
    let tries = written(&server);
    assert!(tries.len() >= 2, "10 s without an answer, and again: {tries:?}");
    let ip = |asked: &Asked| asked.body["status"]["loadBalancer"]["ingress"][0]["ip"].clone();
    assert!(tries.iter().all(|asked| ip(asked) == "192.0.2.1"), "{tries:?}");
    // Who tells of statuses never waits for that.
    for revision in 8..1_000 {
        writer.hear(&revision.to_string());
    }
    broken.store(false, std::sync::atomic::Ordering::Relaxed);
    pass(30).await;
    assert_eq!(written(&server).last().unwrap().body["metadata"]["resourceVersion"], "999");
}

#[tokio::test(start_paused = true)]
async fn no_pod_that_is_ready_is_no_news_of_where_ingresses_are() {
    let ready = Arc::new(std::sync::Mutex::new(vec!["a"]));
    let nodes = Arc::clone(&ready);
    let server = Fake::new(move |asked| match (&asked.method, asked.path.as_str()) {
        (&Method::GET, path) if path.contains("/pods") => {
            let pod = |node: &&str| {
                json!({"spec": {"nodeName": node}, "status": {
                    "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})
            };
            let pods: Vec<_> = nodes.lock().unwrap().iter().map(pod).collect();
            Reply::Text(200, json!({"kind": "PodList", "metadata": {}, "items": pods}).to_string())
        }
        (&Method::GET, path) => {
            let ip = if path.ends_with("/a") { "192.0.2.1" } else { "192.0.2.2" };
            let address = json!({"type": "ExternalIP", "address": ip});
            Reply::Text(200, json!({"status": {"addresses": [address]}}).to_string())
        }
        _ => done("8"),
    });
    let selector = "app=proxy".to_owned();
    let nodes = Published::Nodes { namespace: "edge".to_owned(), selector, internal: false };
    let names = ["old", "new", "newest"].map(|name| ObjectName::new("shop", name));
    let writer = start_with(&server, &names, nodes);
    let hear = |at: usize| writer.statuses.observe([(names[at].clone(), Some(nothing("7")))].into_iter());
    let told = || {
        let body = |asked: Asked| asked.body["status"]["loadBalancer"]["ingress"].clone();
        written(&server).into_iter().map(body).collect::<Vec<_>>()
    };
    let [first, second] = ["192.0.2.1", "192.0.2.2"].map(|ip| json!([{"ip": ip}]));
    writer.may_write_for(3_600);
    hear(0);
    pass(1).await;
    assert_eq!(told(), std::slice::from_ref(&first));
    let pods = server.asked().into_iter().find(|asked| asked.path.contains("/pods")).unwrap();
    assert_eq!((&*pods.path, &*pods.query["labelSelector"]), ("/api/v1/namespaces/edge/pods", "app=proxy"));
    ready.lock().unwrap().clear();
    let looks = || server.asked().iter().filter(|asked| asked.path.contains("/pods")).count();
    let before = looks();
    pass(300).await;
    assert_eq!(looks() - before, 5, "of all nodes there may be many Pods: each minute");
    assert_eq!(told(), std::slice::from_ref(&first), "it stays");
    hear(1);
    pass(1).await;
    assert_eq!(told(), [first.clone(), first], "one that is new has what the others have");
    *ready.lock().unwrap() = vec!["b"];
    pass(61).await;
    assert_eq!(told()[2..], [second.clone(), second], "another node is news");

    // Who begins then knows of nothing to write.
    ready.lock().unwrap().clear();
    writer.may_write_for(0);
    pass(1).await;
    writer.may_write_for(3_600);
    hear(2);
    pass(300).await;
    assert_eq!(told().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn one_that_the_server_never_takes_keeps_no_other_waiting() {
    for (code, tries) in [(422, 6..9), (409, 6..9), (403, 11..14), (500, 12..17)] {
        let server = Fake::new(move |asked| match &asked.method {
            &Method::GET => service("192.0.2.1"),
            _ if asked.path.contains("/bad/") => status(code),
            _ => done("8"),
        });
        let names = ["bad", "good", "later"].map(|name| ObjectName::new("shop", name));
        let writer = start_with(&server, &names, Published::Service(ObjectName::new("edge", "edge")));
        writer.may_write_for(3_600);
        let heard = |name: &ObjectName| (name.clone(), Some(nothing("7")));
        writer.statuses.observe(names[..2].iter().map(heard));
        pass(10).await;
        let of = |name: &str| written(&server).iter().filter(|it| it.path.contains(name)).count();
        assert_eq!(of("/good/"), 1, "{code}: {:?}", written(&server));
        pass(700).await;
        writer.statuses.observe(names[2..].iter().map(heard));
        pass(5).await;
        assert_eq!((of("/good/"), of("/later/")), (1, 1), "{code}");
        assert!(tries.contains(&of("/bad/")), "{code}: {}", of("/bad/"));
    }
}

#[tokio::test(start_paused = true)]
async fn at_the_end_it_is_emptied_where_nobody_is_left_and_else_stays() {
    let (one, two) = (&["192.0.2.1"][..], &["192.0.2.1", "192.0.2.2"][..]);
    for (clears, holds, ips, is_emptied) in [
        (true, true, one, true),
        (false, true, one, false),
        (true, false, one, false),
        (true, true, two, false),
    ] {
        let server = Fake::new(move |asked| match asked.method {
            Method::GET => service_of(ips),
            _ => done("8"),
        });
        let writer = start(&server);
        writer.may_write_for(3_600);
        writer.hear("7");
        pass(1).await;
        if !holds {
            writer.hold.send_replace(None);
        }
        let (done, ended) = oneshot::channel();
        writer.farewell.send(Farewell { clears, done }).unwrap();
        ended.await.unwrap();
        let bodies: Vec<Value> = written(&server).into_iter().map(|asked| asked.body).collect();
        let count = 1 + usize::from(is_emptied);
        assert_eq!(bodies.len(), count, "{clears} {holds} {ips:?}: {bodies:?}");
        if is_emptied {
            assert_eq!(bodies[1]["status"]["loadBalancer"]["ingress"], json!([]));
            assert_eq!(bodies[1]["metadata"]["resourceVersion"], "8");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_cannot_be_renewed_ends_and_one_that_is_given_up_is_free() {
    let broken = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_broken = Arc::clone(&broken);
    let record = Arc::new(std::sync::Mutex::new(None::<Value>));
    let store = Arc::clone(&record);
    let server = Fake::new(move |asked| {
        if is_broken.load(std::sync::atomic::Ordering::Relaxed) {
            return Reply::Nothing;
        }
        let mut store = store.lock().unwrap();
        if asked.method != Method::GET {
            let mut lease = asked.body.clone();
            lease["metadata"]["resourceVersion"] = "1".into();
            *store = Some(lease);
        }
        store.as_ref().map_or_else(|| status(404), |lease| Reply::Text(200, lease.to_string()))
    });
    let (held, hold) = watch::channel(None);
    let (resigns, leaving) = oneshot::channel();
    let election = Election::new("us".to_owned(), Duration::from_secs(30));
    let lease = ObjectName::new("edge", "leader");
    #[allow(clippy::disallowed_methods, reason = "a test's own task")]
    let task = tokio::spawn(elect(server.client(), lease, election, held, leaving));
    pass(1).await;
    assert!(hold.borrow().is_some());
    broken.store(true, std::sync::atomic::Ordering::Relaxed);
    let until = hold.borrow().unwrap();
    pass(60).await;
    assert!(until <= now() && hold.borrow().is_none(), "whoever has the Lease now");
    broken.store(false, std::sync::atomic::Ordering::Relaxed);
    pass(30).await;
    assert!(hold.borrow().is_some_and(|until| until > now()), "it is had again");
    let (done, ended) = oneshot::channel();
    resigns.send(done).unwrap();
    ended.await.unwrap();
    assert_eq!(record.lock().unwrap().as_ref().unwrap()["spec"]["holderIdentity"], "");
    assert!(hold.borrow().is_none() && !task.is_finished());
}

/// Others wait that long from the request on, which is all that they know of.
#[tokio::test(start_paused = true)]
async fn a_hold_is_counted_from_when_it_was_asked_for() {
    let server = Fake::new(|asked| match asked.method {
        Method::GET => status(404),
        _ => Reply::Late(Duration::from_secs(4), asked.body.to_string()),
    });
    let (held, hold) = watch::channel(None);
    let (_resigns, leaving) = oneshot::channel();
    let election = Election::new("us".to_owned(), Duration::from_secs(30));
    let until = now() + election.good_for();
    let mut elected =
        std::pin::pin!(elect(server.client(), ObjectName::new("edge", "leader"), election, held, leaving));
    let ended = tokio::time::timeout(Duration::from_secs(5), &mut elected).await;
    assert!(ended.is_err() && *hold.borrow() == Some(until));
}
