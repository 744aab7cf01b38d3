use std::net::SocketAddr;

use super::*;
use prost_types::Struct;
use prost_types::value::Kind as Shape;
use shared::clock;
use shared::delta::Delta;
use shared::entry::Entry;
use shared::name::ObjectName;
use shared::resource::{Backend, Certificate, EndpointPort, Endpoints, Host, Resource, Settings};
use shared::version::{Claim, Lineage};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_stream::StreamExt as _;
use tonic::client::Grpc;
use tonic::service::Routes;
use tonic::transport::Endpoint;

use crate::freshness::{Failing, Forbidden, Unheard};
use crate::metrics::Metrics;
use crate::moment::Since;
use crate::objects::{ObjectKind, ObjectRef};
use crate::problem::{Problem, Severity};
use crate::serve::limits::Limits;
use crate::serve::message::Hello;
use crate::serve::session::Standing;
use crate::serve::{self, ServeError};
use crate::store::{Changes, Store};

mod decisions;
mod lists;

struct Bench {
    store: Store,
    registry: Arc<Registry>,
    problems: watch::Sender<Problems>,
    places: watch::Sender<Placements>,
    leaving: watch::Sender<bool>,
    decisions: mpsc::Receiver<PinRequest>,
    inspect: Inspect,
}

fn bench() -> Bench {
    let (store, published) = Store::new(Lineage([1; 16]), clock::now());
    let registry = Arc::new(Registry::default());
    let problems = watch::Sender::new(Problems::default());
    let places = watch::Sender::new(Placements::default());
    let leaving = watch::Sender::new(false);
    let (pins, decisions) = mpsc::channel(4);
    let inspect = Inspect::new(
        published,
        Arc::clone(&registry),
        problems.subscribe(),
        places.subscribe(),
        pins,
        leaving.subscribe(),
        ObjectName::new("fleet", "settings"),
    );
    Bench { store, registry, problems, places, leaving, decisions, inspect: inspect.unwrap() }
}

fn entry(key: &str, resource: &Resource) -> Arc<Entry> {
    Arc::new(Entry::encode(key, resource))
}

impl Bench {
    fn commit(&mut self, cause: &str, entries: Vec<Arc<Entry>>) {
        let (config, live) = entries.into_iter().partition(|entry| entry.kind().lane() == Lane::Config);
        let delta = |up| Delta { up, removed: Vec::new() };
        let changes = Changes {
            config: delta(config),
            live: delta(live),
            cause: cause.to_owned(),
            pin: self.inspect.published.head().pin.clone(),
            on_record: self.inspect.published.head().on_record.clone(),
            ..Changes::default()
        };
        self.store.commit(changes, clock::now(), clock::wall());
    }

    fn host(&mut self, denied: &str) {
        let denied = Some(shared::resource::Denial { reason: denied.to_owned() });
        let host = Resource::Host(Host { denied, ..Host::default() });
        self.commit("Ingress default/web: denied", vec![entry("a.test", &host)]);
    }

    async fn get(&self, kind: &str, key: &str, version: &str) -> Result<Struct, Status> {
        let request = inspect::GetResourceRequest {
            kind: kind.to_owned(),
            key: key.to_owned(),
            version: version.to_owned(),
        };
        let answer = self.inspect.get_resource(Request::new(request)).await?;
        Ok(answer.into_inner().body.unwrap())
    }

    async fn history(&self) -> Vec<inspect::HistoryEntry> {
        self.newest(0).await
    }

    async fn newest(&self, limit: u32) -> Vec<inspect::HistoryEntry> {
        let request = Request::new(inspect::HistoryRequest { limit });
        self.inspect.history(request).await.unwrap().into_inner().entries
    }

    fn problem(&self, object: &ObjectRef, reason: &str) {
        let problem = Problem {
            object: object.clone().into(),
            field: "spec.ingressClassName".to_owned(),
            severity: Severity::Warning,
            reason: reason.to_owned(),
            location: String::new(),
        };
        self.problems
            .send_modify(|problems| _ = problems.insert(object.clone().into(), vec![problem].into()));
    }

    /// Answers on a socket, on so many connections at once.
    async fn serve(&self, connections: usize) -> (SocketAddr, JoinSet<Result<(), ServeError>>) {
        let limits = Limits { connections, ..Limits::within(1 << 30, 1 << 20) };
        let (published, registry) = (self.inspect.published.clone(), Arc::clone(&self.registry));
        let metrics = Arc::new(Metrics::new());
        let leaves = self.leaving.subscribe();
        let service = serve::Service::new("default", published, registry, metrics, limits, leaves);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = Routes::new(self.inspect.clone().into_server());
        let mut server = JoinSet::new();
        server.spawn(serve::run(listener, service, routes, None));
        (address, server)
    }
}

pub(super) fn proxy(registry: &Arc<Registry>, id: &str) -> serve::registry::Seat {
    let hello = Hello { node: "node-1".into(), group: "default".to_owned(), ..Hello::of(id) };
    let seat = registry.enter(&hello, Claim::random(), "127.0.0.1:1", clock::wall()).unwrap();
    seat.update(&Standing::default(), &Standing::default());
    seat
}

fn standing(head: &Head, lane: Lane) -> Standing {
    Standing { seq: head.lane(lane).seq, root: Some(head.lane(lane).root), ..Standing::default() }
}

#[tokio::test]
async fn private_keys_are_never_shown() {
    let mut bench = bench();
    let certificate = Resource::Certificate(Certificate {
        leaf: b"leaf".as_slice().into(),
        key: b"SECRETSECRET".as_slice().into(),
        chain: None,
    });
    bench.commit("test", vec![entry("a/cert", &certificate)]);
    let body = bench.get("certificate", "a/cert", "").await.unwrap();
    let shown = format!("{body:?}");
    assert!(!shown.contains("SECRET") && !shown.contains("U0VDUkVU"), "{shown}");
    assert_eq!(body.fields["key"].kind, Some(Shape::StringValue("redacted".to_owned())));
    assert_eq!(body.fields["leaf"].kind, Some(Shape::StringValue("bGVhZg==".to_owned())));
}

#[tokio::test]
async fn addresses_are_written_as_people_do() {
    let mut bench = bench();
    let endpoints = Resource::Endpoints(Endpoints {
        service: "a/web".to_owned(),
        ports: vec![EndpointPort { name: String::new(), port: 80, udp: false }],
        ipv4: vec!["10.0.0.1".parse().unwrap()],
        ipv6: vec!["fd00::1".parse().unwrap()],
    });
    bench.commit("test", vec![entry("a/web-1", &endpoints)]);
    let body = bench.get("endpoints", "a/web-1", "").await.unwrap();
    for (field, address) in [("ipv4", "10.0.0.1"), ("ipv6", "fd00::1")] {
        let Some(Shape::ListValue(list)) = &body.fields[field].kind else {
            panic!("expected a list of addresses");
        };
        assert_eq!(list.values[0].kind, Some(Shape::StringValue(address.to_owned())));
    }

    for address in ["10.96.0.7:80", "[fd00::7]:80"] {
        let service: SocketAddr = address.parse().unwrap();
        let backend = Resource::Backend(Backend { service: Some(service), ..Backend::default() });
        bench.commit("test", vec![entry("a/web/80", &backend)]);
        let body = bench.get("backend", "a/web/80", "").await.unwrap();
        let Some(Shape::StructValue(shown)) = &body.fields["service"].kind else {
            panic!("expected the address of the Service");
        };
        assert_eq!(shown.fields["ip"].kind, Some(Shape::StringValue(service.ip().to_string())));
    }
}

#[tokio::test]
async fn old_versions_are_found_by_their_digits() {
    let mut bench = bench();
    bench.commit("start", vec![entry("default", &Resource::Settings(Settings::default()))]);
    bench.host("one");
    bench.host("two");
    let history = bench.history().await;
    assert_eq!(history.len(), 3);
    assert_eq!(bench.newest(1).await, history[..1]);
    let (newest, older) = (&history[0].version, &history[1].version);
    assert_eq!(newest.len(), 12);

    let denied = |body: &Struct| format!("{:?}", body.fields["denied"]);
    assert!(denied(&bench.get("host", "a.test", older).await.unwrap()).contains("one"));
    assert!(denied(&bench.get("host", "a.test", &older[..6]).await.unwrap()).contains("one"));
    assert!(denied(&bench.get("host", "a.test", &newest.to_uppercase()).await.unwrap()).contains("two"));
    assert!(denied(&bench.get("host", "a.test", "").await.unwrap()).contains("two"));

    use tonic::Code::{InvalidArgument, NotFound};
    for (kind, key, version, code) in [
        ("hosts", "a.test", "", InvalidArgument),
        ("host", "b.test", "", NotFound),
        ("host", "a.test", &history[2].version[..], NotFound),
        ("host", "a.test", &older[..5], InvalidArgument),
        ("host", "a.test", &"0".repeat(33), InvalidArgument),
        ("host", "a.test", &"0".repeat(32), NotFound),
        ("host", "a.test", "not hex!", InvalidArgument),
        ("host", "a.test", "000000000000", NotFound),
        ("endpoints", "a/b", older, InvalidArgument),
    ] {
        let status = bench.get(kind, key, version).await.unwrap_err();
        assert_eq!(status.code(), code, "{kind} {key} {version}: {}", status.message());
    }
}

/// A version that was offered repeatedly is in the history as often.
/// A process that starts while a version is pinned offers one that its history does not have.
#[test]
fn what_is_offered_is_found_whether_it_is_remembered_or_not() {
    let (_store, published) = Store::new(Lineage([1; 16]), clock::now());
    let head = published.head();
    assert_eq!(head.history.newest_first().count(), 0);
    let digits = head.config.root.to_string();
    for length in [6, 12, digits.len()] {
        assert_eq!(pick::version(&head, &digits[..length]).unwrap().root, head.config.root);
    }
    let other = digits.replace(|digit: char| digit != '0', "0");
    assert!(pick::version(&head, &other).is_err());
}

#[tokio::test]
async fn a_version_is_named_once_to_who_asks_for_one_that_is_not_there() {
    let mut bench = bench();
    for denied in ["one", "two", "one", "two", "one"] {
        bench.host(denied);
    }
    let said = bench.get("host", "a.test", "000000000000").await.unwrap_err();
    let history = bench.history().await;
    let [newest, older] = [&history[0].version, &history[1].version];
    assert!(said.message().ends_with(&format!("it has {newest}, {older}")), "{}", said.message());
    for i in 0..10 {
        bench.host(&format!("other {i}"));
    }
    let said = bench.get("host", "a.test", "000000000000").await.unwrap_err();
    let there = said.message().split("it has ").nth(1).unwrap();
    assert!(there.ends_with(" and 2 older ones") && there.matches(", ").count() == 9, "{there}");
}

#[tokio::test]
async fn resources_are_listed_by_kind_and_key() {
    let mut bench = bench();
    let endpoints = Resource::Endpoints(Endpoints::default());
    bench.commit(
        "start",
        vec![
            entry("default", &Resource::Settings(Settings::default())),
            entry("b/x", &endpoints),
            entry("a/x", &endpoints),
        ],
    );
    let list = async |kind: &str| {
        let request = inspect::ListResourcesRequest { kind: kind.to_owned(), ..Default::default() };
        let answer = bench.inspect.list_resources(Request::new(request)).await.unwrap();
        let resources = answer.into_inner().resources;
        resources.into_iter().map(|summary| summary.key).collect::<Vec<_>>()
    };
    assert_eq!(list("").await, ["default", "a/x", "b/x"]);
    assert_eq!(list("endpoints").await, ["a/x", "b/x"]);
    assert!(list("host").await.is_empty());
}

#[tokio::test]
async fn proxies_and_history_say_who_has_what() {
    let mut bench = bench();
    bench.host("one");
    let seat = proxy(&bench.registry, "proxy-1");
    let first = bench.inspect.published.head();
    seat.update(&standing(&first, Lane::Config), &standing(&first, Lane::Live));
    bench.host("two");
    let answer = bench.inspect.list_proxies(Request::new(inspect::ListProxiesRequest::default()));
    let answer = answer.await.unwrap().into_inner();
    let one = &answer.proxies[0];
    assert_eq!((one.id.as_str(), one.node.as_str()), ("proxy-1", "node-1"));
    assert_eq!(one.acked, first.config.root.short());
    assert_eq!((one.in_sync, one.config_behind, one.live_behind), (false, 1, 0));
    let acked: Vec<_> = bench.history().await.iter().map(|entry| (entry.acked, entry.proxies)).collect();
    assert_eq!(acked, [(0, 1), (1, 1)]);
    // As in its status: one that disappeared may serve something older.
    drop(seat);
    let acked: Vec<_> = bench.history().await.iter().map(|entry| (entry.acked, entry.proxies)).collect();
    assert_eq!(acked, [(0, 1), (0, 1)]);
}

#[tokio::test]
async fn watchers_of_proxies_hear_of_changes() {
    let bench = bench();
    let request = Request::new(inspect::WatchProxiesRequest {});
    let mut answers = bench.inspect.watch_proxies(request).await.unwrap().into_inner();
    assert!(answers.next().await.unwrap().unwrap().proxies.is_empty());
    let _seat = proxy(&bench.registry, "proxy-1");
    assert_eq!(answers.next().await.unwrap().unwrap().proxies.len(), 1);
    bench.leaving.send_replace(true);
    assert!(answers.next().await.is_none());
}

/// At the limit of connections those without a call make room, and all of them end after a while.
#[tokio::test]
async fn the_connection_of_a_watcher_makes_no_room_for_another() {
    let object = ObjectRef { kind: ObjectKind::Ingress, name: ObjectName::new("default", "web") };
    for (method, begins_at_once) in [("WatchProxies", true), ("WatchStatus", true), ("WatchChanges", false)] {
        let mut bench = bench();
        bench.host("one");
        let (address, _server) = bench.serve(1).await;
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        let mut client = Grpc::new(channel);
        client.ready().await.unwrap();
        // The other two ask for nothing, and ignore it.
        let asked = inspect::StatusRequest {
            kind: "ingress".to_owned(),
            namespace: "default".to_owned(),
            name: "web".to_owned(),
        };
        let asked = Request::new(inspect::WatchStatusRequest { object: Some(asked) });
        let path = format!("/firth.inspect.v1.Inspect/{method}").parse().unwrap();
        let codec = tonic_prost::ProstCodec::<_, ()>::default();
        let mut answers = client.server_streaming(asked, path, codec).await.unwrap().into_inner();
        if begins_at_once {
            assert_eq!(answers.message().await.unwrap(), Some(()), "{method}");
        }

        let mut other = TcpStream::connect(address).await.unwrap();
        assert_eq!(other.read(&mut [0]).await.unwrap_or(0), 0, "{method}: it is refused");
        let seat = proxy(&bench.registry, "a-1");
        bench.host("two");
        let head = bench.inspect.published.head();
        seat.update(&standing(&head, Lane::Config), &standing(&head, Lane::Live));
        bench.problem(&object, "it is odd");
        assert_eq!(answers.message().await.unwrap(), Some(()), "{method}");
    }
}

#[tokio::test]
async fn a_change_is_told_once_all_have_acknowledged_it() {
    let mut bench = bench();
    bench.host("one");
    let seats = [proxy(&bench.registry, "a"), proxy(&bench.registry, "b")];
    let request = Request::new(inspect::WatchChangesRequest {});
    let mut answers = bench.inspect.watch_changes(request).await.unwrap().into_inner();
    bench.host("two");
    let head = bench.inspect.published.head();
    let mut next = stepped(answers.next());
    for seat in &seats {
        assert!(next.is_pending());
        seat.update(&standing(&head, Lane::Config), &standing(&head, Lane::Live));
    }
    let change = next.ready().unwrap().unwrap();
    assert_eq!(change.version, head.config.root.short());
    assert_eq!((change.config, change.acked, change.proxies), (true, 2, 2));
}

/// A future that is polled step by step.
struct Stepped<F>(Pin<Box<F>>);

fn stepped<F: Future>(future: F) -> Stepped<F> {
    Stepped(Box::pin(future))
}

impl<F: Future> Stepped<F> {
    fn poll(&mut self) -> std::task::Poll<F::Output> {
        self.0.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
    }

    fn is_pending(&mut self) -> bool {
        self.poll().is_pending()
    }

    fn ready(&mut self) -> F::Output {
        match self.poll() {
            std::task::Poll::Ready(output) => output,
            std::task::Poll::Pending => panic!("expected an answer, got none"),
        }
    }
}

#[tokio::test]
async fn problems_are_listed_by_object() {
    let mut bench = bench();
    bench.host("one");
    let object = ObjectRef { kind: ObjectKind::Ingress, name: ObjectName::new("default", "web") };
    let problem = Problem {
        object: object.clone().into(),
        field: "spec.rules".to_owned(),
        severity: Severity::Rejected,
        reason: "odd".to_owned(),
        location: "a.yaml:3".to_owned(),
    };
    bench.problems.send_modify(|problems| drop(problems.insert(object.into(), vec![problem].into())));
    let request = Request::new(inspect::ListProblemsRequest::default());
    let answer = bench.inspect.list_problems(request).await.unwrap().into_inner();
    assert_eq!(answer.problems[0].object, "Ingress default/web");
    assert_eq!(answer.problems[0].severity, "rejected");
}

/// Operators looked for the effect in `firth problems`, which was empty: `firth status` alone told them.
#[tokio::test]
async fn what_may_not_be_read_is_among_the_problems() {
    let mut bench = bench();
    let problem = |name: &str| Problem {
        object: ObjectRef { kind: ObjectKind::Ingress, name: ObjectName::new("default", name) }.into(),
        field: String::new(),
        severity: Severity::Warning,
        reason: "odd".to_owned(),
        location: String::new(),
    };
    bench.problems.send_modify(|problems| {
        for it in ["a", "b"].map(problem) {
            problems.insert(it.object.clone(), vec![it].into());
        }
    });
    let source = bench.inspect.start.source.clone();
    for (kind, reason) in [
        (ObjectKind::Service, "services is forbidden"),
        (ObjectKind::EndpointSlice, "endpointslices is forbidden in a"),
        (ObjectKind::EndpointSlice, "endpointslices is forbidden in b"),
    ] {
        source.note_forbidden(Forbidden { kind, reason: reason.into() });
    }
    let listed = async |bench: &Bench| {
        let (mut listed, mut page_token) = (Vec::new(), String::new());
        loop {
            let request = inspect::ListProblemsRequest { page_size: 1, page_token };
            let answer = bench.inspect.list_problems(Request::new(request)).await.unwrap().into_inner();
            listed.extend(answer.problems.into_iter().map(|it| (it.object, it.reason)));
            page_token = answer.next_page_token;
            if page_token.is_empty() {
                return listed;
            }
        }
    };
    let told = listed(&bench).await;
    let objects: Vec<_> = told.iter().map(|(object, _)| &**object).collect();
    assert_eq!(
        objects,
        ["API server", "EndpointSlice", "EndpointSlice", "Ingress default/a", "Ingress default/b", "Service"]
    );
    assert_eq!(told[0].1, "nothing is offered by this replica yet: nothing was read yet");
    assert!(told[5].1.ends_with("nothing is offered until it may: services is forbidden"), "{told:?}");

    bench.commit("start", vec![entry("default", &Resource::Settings(Settings::default()))]);
    let told = listed(&bench).await;
    assert!(told[4].1.contains("what was read before stays in use"), "{told:?}");
    source.note_allowed(&Forbidden { kind: ObjectKind::Service, reason: "services is forbidden".into() });
    assert_eq!(listed(&bench).await.len(), 4);

    let since = Since { at: clock::now(), wall: std::time::UNIX_EPOCH };
    let unheard = Unheard { since, reason: "no answer for 5 s".into() };
    source.note_unheard(Some(unheard));
    let told = listed(&bench).await;
    assert_eq!((&*told[0].0, told.len()), ("API server", 5));
    assert!(told[0].1.contains("has not heard the API server since 1970-01-01T00:00:00Z"), "{told:?}");
    let (_, replicas) = bench.inspect.fleet().await;
    assert!(
        replicas[0].unread.contains("(no answer for 5 s): what it knew then stays in use"),
        "{replicas:?}"
    );
}

/// Errors of one kind for hours were said nowhere.
#[tokio::test]
async fn lists_that_fail_are_said_of_kinds_objects_and_replicas() {
    let mut bench = bench();
    bench.host("one");
    let since = Since { at: clock::now(), wall: std::time::UNIX_EPOCH };
    let reason = "a list was refused with 500: no";
    for (kind, list) in [
        (ObjectKind::Secret, "secrets in the namespace firth (decisions)"),
        (ObjectKind::Secret, "the names of secrets in all namespaces"),
    ] {
        let failing = Failing { kind, list: list.into(), since, reason: reason.into() };
        bench.inspect.start.source.note_failing(failing);
    }
    let asked = || Request::new(inspect::ListProblemsRequest::default());
    let listed = async || bench.inspect.list_problems(asked()).await.unwrap().into_inner().problems;
    let said = "reading the names of secrets in all namespaces fails since 1970-01-01T00:00:00Z (a list was refused with 500: no): what was \
                read before stays in use, and what changes is seen late or not at all";
    let told = listed().await;
    assert_eq!((told.len(), &*told[1].object, &*told[1].reason), (2, "Secret", said));
    let (_, replicas) = bench.inspect.fleet().await;
    assert!(replicas[0].unread.ends_with(said), "{replicas:?}");
    bench.inspect.start.source.note_working("the names of secrets in all namespaces");
    assert_eq!(listed().await.len(), 1);
}

#[tokio::test]
async fn why_an_object_is_not_served_is_said_to_who_asks_for_it() {
    let mut bench = bench();
    bench.host("one");
    let object = ObjectRef { kind: ObjectKind::Ingress, name: ObjectName::new("default", "web") };
    let asked = || {
        let (kind, namespace, name) = ("ingress".to_owned(), "default".to_owned(), "web".to_owned());
        Request::new(inspect::StatusRequest { kind, namespace, name })
    };
    let said = async || bench.inspect.status(asked()).await.unwrap_err();
    assert!(said().await.message().starts_with("Ingress default/web is not served here: it does not exist"));

    bench.problem(&object, "names class x, no such IngressClass");
    let expected =
        "Ingress default/web is not served: names class x, no such IngressClass (at spec.ingressClassName)";
    let told = said().await;
    assert_eq!((told.code(), told.message()), (tonic::Code::NotFound, expected));
    let watched = Watcher::new(&bench.inspect, object).next().await.unwrap();
    assert_eq!((&*watched.state, watched.problems.len()), ("", 1));
}

#[tokio::test]
async fn before_anything_is_offered_it_is_said_what_is_missing() {
    let bench = bench();
    let object = inspect::StatusRequest { kind: "ingress".into(), namespace: "a".into(), name: "b".into() };
    let missing = bench.inspect.status(Request::new(object)).await.unwrap_err();
    assert_eq!((missing.code(), missing.message()), (tonic::Code::Unavailable, "nothing was read yet"));
}

/// It has no version, and no pin that it knows of: that is no answer.
#[tokio::test]
async fn who_has_read_nothing_says_so_whatever_is_asked() {
    let bench = bench();
    let it = &bench.inspect;
    let resource =
        inspect::GetResourceRequest { kind: "host".into(), key: "web.test".into(), ..Default::default() };
    let refused = [
        it.list_resources(Request::new(Default::default())).await.err(),
        it.get_resource(Request::new(resource)).await.err(),
        it.history(Request::new(Default::default())).await.err(),
        it.diff(Request::new(Default::default())).await.err(),
    ];
    for refused in refused.map(Option::unwrap) {
        assert_eq!(
            (refused.code(), refused.message()),
            (tonic::Code::Unavailable, "nothing was read yet"),
            "{refused:?}"
        );
    }
    assert_eq!(it.decider.unpin().await.unwrap_err().code(), tonic::Code::Unavailable);
    let problems = it.list_problems(Request::new(Default::default())).await.unwrap().into_inner().problems;
    let told: Vec<_> = problems.iter().map(|it| (&*it.object, &*it.reason)).collect();
    assert_eq!(told, [("API server", "nothing is offered by this replica yet: nothing was read yet")]);
}

#[tokio::test]
async fn all_is_said_only_where_all_were_heard() {
    let mut bench = bench();
    bench.host("one");
    let head = bench.inspect.published.head();
    use crate::placement::Compiled;
    let made = Compiled { resource_version: "7".into(), is_served: true, ..Default::default() };
    let object = ObjectRef { kind: ObjectKind::Ingress, name: ObjectName::new("default", "web") };
    let news = vec![(object.clone(), crate::placement::Report::Compiled(made.clone()))];
    bench.places.send_modify(|places| {
        places.settle(news, head.log_positions());
    });
    let asked = || inspect::StatusRequest {
        kind: "ingress".to_owned(),
        namespace: "default".to_owned(),
        name: "web".to_owned(),
    };
    let said = async || bench.inspect.status(Request::new(asked())).await.unwrap().into_inner();
    let nobody = said().await;
    assert_eq!((&*nobody.state, nobody.total, &*nobody.resource_version), ("unknown", 0, "7"));
    assert_eq!(nobody.fleet, []);

    let settings = ObjectRef { kind: ObjectKind::ConfigMap, name: ObjectName::new("fleet", "settings") };
    let deleted = Problem {
        object: settings.clone().into(),
        field: String::new(),
        severity: Severity::Warning,
        reason: "was deleted".to_owned(),
        location: String::new(),
    };
    bench.problems.send_modify(|problems| _ = problems.insert(settings.into(), vec![deleted].into()));
    let told = said().await;
    assert_eq!((told.problems.len(), told.fleet.len()), (0, 1), "it concerns every host");
    let reason = "services is forbidden: User \"u\" cannot list resource \"services\"";
    let services = Forbidden { kind: ObjectKind::Service, reason: reason.into() };
    bench.inspect.start.source.note_forbidden(services.clone());
    let told = said().await.fleet;
    assert_eq!((&*told[1].object, told[1].reason.ends_with(reason)), ("Service", true), "{told:?}");
    bench.inspect.start.source.note_allowed(&services);
    let since = Since { at: clock::now(), wall: std::time::UNIX_EPOCH };
    let failing = Failing { kind: ObjectKind::Service, list: "services".into(), since, reason: "503".into() };
    bench.inspect.start.source.note_failing(failing);
    let told = said().await.fleet;
    assert!(told[1].reason.starts_with("reading services fails since 1970"), "{told:?}");
    bench.inspect.start.source.note_working("services");

    let [one, two] = ["a-1", "b-2"].map(|id| proxy(&bench.registry, id));
    let reached = [Lane::Config, Lane::Live].map(|lane| standing(&head, lane));
    one.update(&reached[0], &reached[1]);
    let behind = said().await;
    assert_eq!((&*behind.state, behind.programmed, behind.total), ("behind", 1, 2));
    assert_eq!(behind.behind[0].id, "b-2");
    drop(two);
    let silent = said().await;
    assert_eq!((&*silent.state, silent.programmed, silent.total, silent.silent_total), ("silent", 1, 2, 1));
    drop(one);
    assert_eq!(said().await.state, "unknown", "nobody is heard");

    let back = ["a-1", "b-2"].map(|id| proxy(&bench.registry, id));
    back.iter().for_each(|seat| seat.update(&reached[0], &reached[1]));
    assert_eq!(said().await.state, "programmed");

    let news = vec![(object, crate::placement::Report::Compiled(Compiled { is_stale: true, ..made }))];
    bench.places.send_modify(|places| {
        places.settle(news, head.log_positions());
    });
    let stale = said().await;
    assert_eq!((&*stale.state, stale.programmed), ("unknown", 0), "there may be a newer version of it");

    let many = (0..status::NAMED + 5).map(|at| proxy(&bench.registry, &format!("m{at}-1")));
    let _many: Vec<_> = many.collect();
    let behind = said().await;
    assert_eq!((behind.behind.len(), behind.behind_total), (status::NAMED, 105), "some are named");

    for (kind, namespace, name) in [("host", "a", "b"), ("ingress", "", "b"), ("ingress", "a", "b/c")] {
        let asked =
            inspect::StatusRequest { kind: kind.into(), namespace: namespace.into(), name: name.into() };
        let refused = bench.inspect.status(Request::new(asked)).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{kind} {namespace}/{name}");
    }
    let other = inspect::StatusRequest { name: "other".to_owned(), ..asked() };
    assert_eq!(bench.inspect.status(Request::new(other)).await.unwrap_err().code(), tonic::Code::NotFound);
}

#[tokio::test]
async fn another_replica_is_told_whether_this_one_takes_proxies_and_what_none_of_its_has() {
    let mut bench = bench();
    bench.host("one");
    let head = bench.inspect.published.head();
    let seat = proxy(&bench.registry, "a-1");
    seat.update(&standing(&head, Lane::Config), &standing(&head, Lane::Live));
    let known = |object: Option<inspect::StatusRequest>| {
        let asked = inspect::ShareRequest { object, ..Default::default() };
        bench.inspect.known(&asked, clock::now()).unwrap()
    };
    let all = known(None);
    assert!(all.ready && !all.state.is_empty() && all.proxies[0].proxy.is_some(), "{all:?}");
    let (kind, namespace, name) = ("ingress".to_owned(), "default".to_owned(), "web".to_owned());
    let none = known(Some(inspect::StatusRequest { kind, namespace, name }));
    assert!(none.state.is_empty(), "whoever knows the object is of another state: {none:?}");
    let [it] = &none.proxies[..] else { panic!("{none:?}") };
    assert_eq!((&*it.state, it.proxy.is_some()), ("behind", false));
    bench.leaving.send_replace(true);
    assert!(!known(None).ready, "it ends");
}

/// An Ingress names a Service: the Backend is there, whether the Service is or not.
#[tokio::test]
async fn what_never_was_is_not_taken_for_what_is_gone() {
    use crate::placement::{Compiled, Report};

    let mut bench = bench();
    bench.commit("test", vec![entry("default/web/80", &Resource::Backend(Backend::default()))]);
    let head = bench.inspect.published.head();
    let seat = proxy(&bench.registry, "a-1");
    seat.update(&standing(&head, Lane::Config), &standing(&head, Lane::Live));
    let said = async |kind: &str| {
        let (kind, namespace, name) = (kind.to_owned(), "default".to_owned(), "web".to_owned());
        let asked = inspect::StatusRequest { kind, namespace, name };
        bench.inspect.status(Request::new(asked)).await.map(Response::into_inner)
    };
    for kind in ["service", "ingress", "secret"] {
        let missing = said(kind).await.unwrap_err();
        assert_eq!(missing.code(), tonic::Code::NotFound, "{kind}");
        assert!(missing.message().contains("default/web is not served here: it does not exist"), "{missing}");
    }
    let object = ObjectRef { kind: ObjectKind::Service, name: ObjectName::new("default", "web") };
    let mut watcher = Watcher::new(&bench.inspect, object.clone());
    assert_eq!(watcher.next().await.unwrap().state, "", "whoever waits goes on waiting");

    let settle =
        |news| bench.places.send_modify(|places| _ = places.settle(vec![news], head.log_positions()));
    settle((object.clone(), Report::Compiled(Compiled::default())));
    assert_eq!(watcher.next().await.unwrap().state, "programmed");
    // It exists, and whoever waits for it to be served must not be told that all is well.
    settle((object.clone(), Report::Foreign));
    let left = watcher.next().await.unwrap();
    assert_eq!((&*left.state, left.deleted, left.programmed), ("not-served", false, 1));
    settle((object, Report::Deleted));
    assert_eq!(watcher.next().await.unwrap().state, "deleted");
    let gone = said("service").await.unwrap();
    assert_eq!((gone.deleted, gone.programmed, gone.total), (true, 1, 1));
}

/// Whoever edits a file and asks is not told of the version before.
#[tokio::test(start_paused = true)]
async fn questions_about_a_folder_share_a_reading_and_say_if_it_is_not_over() {
    let mut bench = bench();
    bench.host("one");
    let folder = Barrier::of_cheap_rounds();
    bench.inspect = bench.inspect.clone().of_folder(Some(folder.clone()));
    let head = bench.inspect.published.head();
    let object = ObjectRef { kind: ObjectKind::Ingress, name: ObjectName::new("default", "web") };
    let made = crate::placement::Compiled { is_served: true, ..Default::default() };
    bench.places.send_modify(|places| {
        places.settle(vec![(object.clone(), crate::placement::Report::Compiled(made))], head.log_positions());
    });
    let seat = proxy(&bench.registry, "a-1");
    seat.update(&standing(&head, Lane::Config), &standing(&head, Lane::Live));
    let asked = || {
        let (kind, namespace, name) = ("ingress".to_owned(), "default".to_owned(), "web".to_owned());
        bench.inspect.status(Request::new(inspect::StatusRequest { kind, namespace, name }))
    };
    let mut watchers: Vec<_> = (0..64).map(|_| Watcher::new(&bench.inspect, object.clone())).collect();
    let round = folder.begin().await;

    // Nobody reads it in time.
    let late = asked().await.unwrap().into_inner();
    assert_eq!((&*late.state, &*late.fleet[0].object), ("unknown", "folder"), "{late:?}");
    let mut watcher = watchers.pop().unwrap();
    assert_eq!(watcher.next().await.unwrap().state, "unknown");
    let all = Request::new(inspect::ListProblemsRequest::default());
    let problems = bench.inspect.list_problems(all).await.unwrap().into_inner().problems;
    assert_eq!(problems.iter().map(|it| &*it.object).collect::<Vec<_>>(), ["folder"]);

    folder.pass(round);
    let then = watcher.next().await.unwrap();
    assert_eq!((&*then.state, then.fleet.len()), ("programmed", 0), "it is told when it is");
    for mut watcher in watchers {
        assert_eq!(watcher.next().await.unwrap().state, "programmed");
    }
    let (status, second) = tokio::join!(asked(), async {
        let second = folder.begin().await;
        folder.pass(second);
        second
    });
    assert_eq!(status.unwrap().into_inner().state, "programmed");
    assert_eq!((round, second), (1, 2), "two readings for 67 questions");
}
