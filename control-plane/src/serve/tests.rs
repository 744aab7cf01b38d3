//! The server over a real socket, with a client that speaks as a proxy does.

use std::time::Instant;

use bytes::Bytes;
use shared::clock;
use shared::delta::Delta;
use shared::entry::Entry;
use shared::kind::{Kind, Lane, ResourceKey};
use shared::proto::config;
use shared::proto::config::control_message::Message as Control;
use shared::proto::config::proxy_message::Message as FromProxy;
use shared::schema::COMPILE_REVISION;
use shared::version::{Lineage, Root};
use tokio_stream::StreamExt as _;
use tonic::Code;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};

use super::*;
use crate::store::{Changes, Store};

mod limits;

struct Bench {
    store: Store,
    registry: Arc<Registry>,
    leaving: watch::Sender<bool>,
    moving: watch::Sender<Option<Duration>>,
    newest: watch::Sender<u32>,
    address: String,
    _server: tokio::task::JoinSet<Result<(), ServeError>>,
}

async fn bench() -> Bench {
    bench_within(Limits::within(1 << 30, 1 << 20)).await
}

async fn bench_within(limits: Limits) -> Bench {
    let (store, published) = Store::new(Lineage([1; 16]), clock::now());
    let registry = Arc::new(Registry::default());
    let (leaving, leaves) = watch::channel(false);
    let (moving, moves) = watch::channel(None);
    let (newest, newest_seen) = watch::channel(0);
    let service =
        Service::new("default", published, Arc::clone(&registry), Arc::new(Metrics::new()), limits, leaves);
    let service = service.with_moves(moves).with_newest_revision(newest_seen);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let mut server = tokio::task::JoinSet::new();
    server.spawn(run(listener, service, Routes::default(), None));
    Bench { store, registry, leaving, moving, newest, address, _server: server }
}

/// A service that has nothing to hand out yet.
pub(super) fn service() -> Service {
    service_of(Store::new(Lineage([1; 16]), clock::now()).1, watch::channel(false).1)
}

/// A service that has something.
pub(super) fn offering(leaves: watch::Receiver<bool>) -> (Store, Service) {
    let (mut store, published) = Store::new(Lineage([1; 16]), clock::now());
    let entry = Entry::from_body(ResourceKey::new(Kind::Host, "_"), 1, Bytes::new());
    let config = Delta { up: vec![Arc::new(entry)], removed: Vec::new() };
    store.commit(Changes { config, ..Changes::default() }, clock::now(), clock::wall());
    (store, service_of(published, leaves))
}

fn service_of(published: Published, leaves: watch::Receiver<bool>) -> Service {
    let limits = Limits::within(1 << 30, 1 << 20);
    Service::new("default", published, Arc::default(), Arc::new(Metrics::new()), limits, leaves)
}

impl Bench {
    fn commit(&mut self, kind: Kind, key: &str, body: &[u8]) {
        let entry = Entry::from_body(ResourceKey::new(kind, key), 1, body.to_vec().into());
        let delta = Delta { up: vec![Arc::new(entry)], removed: Vec::new() };
        let mut changes = Changes::default();
        match kind.lane() {
            Lane::Config => changes.config = delta,
            Lane::Live => changes.live = delta,
        }
        self.store.commit(changes, clock::now(), clock::wall());
    }

    async fn connect(&self, id: &str) -> Result<Proxy, Status> {
        self.connect_with(id, Bytes::new()).await
    }

    async fn connect_with(&self, id: &str, claim: Bytes) -> Result<Proxy, Status> {
        self.say(hello_of(id, claim)).await
    }

    async fn say(&self, hello: config::Hello) -> Result<Proxy, Status> {
        let channel = Endpoint::from_shared(self.address.clone()).unwrap().connect().await.unwrap();
        self.say_on(channel, hello).await
    }

    async fn say_on(&self, channel: Channel, hello: config::Hello) -> Result<Proxy, Status> {
        let mut grpc = Grpc::new(channel.clone());
        grpc.ready().await.unwrap();
        let (say, said) = mpsc::channel(16);
        say.send(message(FromProxy::Hello(hello))).await.unwrap();
        let path = PathAndQuery::from_static("/firth.config.v1.ConfigStream/Connect");
        let codec = tonic_prost::ProstCodec::<ProxyMessage, config::ControlMessage>::default();
        let answer = grpc.streaming(Request::new(ReceiverStream::new(said)), path, codec).await?;
        Ok(Proxy { say, hear: answer.into_inner(), channel })
    }

    async fn until(&self, done: impl Fn(&Registry) -> bool) {
        let mut changes = self.registry.changes();
        while !done(&self.registry) {
            changes.changed().await.unwrap();
        }
    }
}

fn hello_of(id: &str, claim: Bytes) -> config::Hello {
    config::Hello { proxy_id: id.to_owned(), group: "default".to_owned(), claim, ..config::Hello::default() }
}

struct Proxy {
    channel: Channel,
    say: mpsc::Sender<ProxyMessage>,
    hear: Streaming<config::ControlMessage>,
}

fn message(message: FromProxy) -> ProxyMessage {
    ProxyMessage { message: Some(message) }
}

impl Proxy {
    async fn next(&mut self) -> Control {
        self.hear.next().await.unwrap().unwrap().message.unwrap()
    }

    async fn batch(&mut self) -> config::Batch {
        match self.next().await {
            Control::Batch(batch) => batch,
            other => panic!("expected a batch, got {other:?}"),
        }
    }

    async fn ack(&self, batch: &config::Batch) {
        let ack = config::Ack {
            lane: batch.lane,
            seq: batch.to,
            root: batch.root_after.clone(),
            ..config::Ack::default()
        };
        self.say.send(message(FromProxy::Ack(ack))).await.unwrap();
    }
}

/// A proxy that is in sync sends no message for hours.
#[tokio::test]
async fn anything_on_the_connection_of_a_proxy_is_heard_from_it() {
    let mut bench = bench().await;
    bench.commit(Kind::Host, "_", b"");
    let mut proxy = bench.connect("a").await.unwrap();
    assert!(matches!(proxy.next().await, Control::Welcome(_)));
    bench.until(|registry| !registry.list().is_empty()).await;
    let heard = |now: Instant| now - bench.registry.list()[0].unheard(now);
    let before = heard(clock::now());
    // Any other call: the transport's pings are as good.
    let _ = bench.say_on(proxy.channel.clone(), hello_of("b", Bytes::new())).await.unwrap();
    assert!(heard(clock::now()) > before);
}

#[tokio::test]
async fn nobody_is_served_before_there_is_a_state() {
    let mut bench = bench().await;
    let refused = bench.connect("a").await.err().unwrap();
    assert_eq!(refused.code(), Code::Unavailable);
    bench.commit(Kind::Host, "_", b"");
    assert!(bench.connect("a").await.is_ok());
}

#[tokio::test]
async fn a_proxy_gets_everything_acknowledges_and_follows() {
    let mut bench = bench().await;
    bench.commit(Kind::Endpoints, "a/b", b"1");
    bench.commit(Kind::Host, "_", b"");
    let mut proxy = bench.connect("proxy-1").await.unwrap();
    let Control::Welcome(welcome) = proxy.next().await else {
        panic!("expected a welcome first");
    };
    assert_eq!(welcome.lineage[..], [1; 16]);
    let (live, host) = (proxy.batch().await, proxy.batch().await);
    assert_eq!((live.lane, host.lane), (Lane::Live.to_wire(), Lane::Config.to_wire()));
    assert_eq!((live.from, host.from), (0, 0));
    for batch in [&live, &host] {
        proxy.ack(batch).await;
    }
    let root = Root::from_slice(&host.root_after);
    bench.until(|registry| registry.list().first().is_some_and(|proxy| proxy.config.root == root)).await;

    bench.commit(Kind::Endpoints, "a/b", b"2");
    let next = proxy.batch().await;
    assert_eq!((next.from, next.to, next.up.len()), (live.to, live.to + 1, 1));
    drop(proxy);
    bench.until(|registry| registry.len() == 0).await;
}

#[tokio::test]
async fn only_the_same_proxy_takes_over() {
    let mut bench = bench().await;
    bench.commit(Kind::Host, "_", b"");
    let mut first = bench.connect("twin").await.unwrap();
    let Control::Welcome(welcome) = first.next().await else {
        panic!("expected a welcome first");
    };
    let refused = async |claim| {
        let mut stranger = bench.connect_with("twin", claim).await.unwrap();
        stranger.hear.next().await.unwrap().unwrap_err().code()
    };
    let refused = tokio::join!(refused(Bytes::new()), refused(vec![7; 16].into()));
    assert_eq!(refused, (Code::AlreadyExists, Code::AlreadyExists));
    bench.commit(Kind::Host, "_", b"2");
    let mut second = bench.connect_with("twin", welcome.claim).await.unwrap();
    assert!(matches!(second.next().await, Control::Welcome(_)));
    let ended = loop {
        match first.hear.next().await {
            Some(Ok(_)) => {}
            ended => break ended,
        }
    };
    assert_eq!(ended.unwrap().unwrap_err().code(), Code::Aborted);
    assert_eq!(bench.registry.len(), 1);
}

#[tokio::test]
async fn a_proxy_of_another_group_is_turned_away_and_not_missed() {
    let mut bench = bench().await;
    bench.commit(Kind::Host, "_", b"");
    let hello = config::Hello { group: "other".to_owned(), ..hello_of("edge", Bytes::new()) };
    let mut stranger = bench.say(hello).await.unwrap();
    let refused = stranger.hear.next().await.unwrap().unwrap_err();
    assert!(refused.message().contains("group"), "{refused:?}");
    assert!(bench.registry.list().is_empty(), "{:?}", bench.registry.list());
}

/// In a rolling upgrade it would get an older state back.
#[tokio::test]
async fn who_was_served_by_a_newer_build_is_sent_to_it_while_there_is_one() {
    let mut bench = bench().await;
    bench.commit(Kind::Host, "_", b"");
    let hello = || config::Hello { compile_revision: COMPILE_REVISION + 1, ..hello_of("edge", Bytes::new()) };
    let mut alone = bench.say(hello()).await.unwrap();
    assert!(matches!(alone.next().await, Control::Welcome(_)), "there is no other replica");
    drop(alone);
    bench.newest.send_replace(COMPILE_REVISION + 1);
    let mut refused = bench.say(hello()).await.unwrap();
    assert_eq!(refused.hear.next().await.unwrap().unwrap_err().code(), Code::Unavailable);
    let mut of_this_build = bench.connect("other").await.unwrap();
    assert!(matches!(of_this_build.next().await, Control::Welcome(_)));
}

/// It was reported as programmed until its next acknowledgement, which may be hours later.
#[tokio::test]
async fn a_proxy_that_comes_back_in_sync_still_refuses_what_it_says() {
    let mut bench = bench().await;
    bench.commit(Kind::Endpoints, "a/b", b"1");
    bench.commit(Kind::Route, "ingress/a/b/c", b"");
    bench.commit(Kind::Route, "ingress/a/b/d", b"");
    let mut proxy = bench.connect("a").await.unwrap();
    assert!(matches!(proxy.next().await, Control::Welcome(_)));
    let batches = [proxy.batch().await, proxy.batch().await];
    let refusal = config::Refusal {
        kind: Kind::Route.to_wire(),
        key: "ingress/a/b/c".to_owned(),
        version: vec![7; 16].into(),
        code: config::refusal::Code::Invalid.into(),
        ..config::Refusal::default()
    };
    let resume = batches.into_iter().map(|batch| config::Resume {
        lane: batch.lane,
        root: batch.root_after,
        refused: if batch.lane == Lane::Config.to_wire() { vec![refusal.clone()] } else { vec![] },
        // It has no room for the other one.
        refused_total: if batch.lane == Lane::Config.to_wire() { 2 } else { 0 },
        ..config::Resume::default()
    });
    let hello = config::Hello { resume: resume.collect(), ..hello_of("b", Bytes::new()) };
    let mut back = bench.say(hello).await.unwrap();
    assert!(matches!(back.next().await, Control::Welcome(_)));
    bench.until(|registry| registry.list().iter().any(|proxy| &*proxy.id == "b")).await;
    let proxies = bench.registry.list();
    let config = &proxies.iter().find(|proxy| &*proxy.id == "b").unwrap().config;
    let keys: Vec<_> = config.refused.iter().map(|it| (&*it.key, it.code)).collect();
    assert_eq!((keys, config.refused_total), (vec![("ingress/a/b/c", "invalid")], 2));
}

#[tokio::test]
async fn a_process_that_ends_sends_its_proxies_away() {
    let mut bench = bench().await;
    bench.commit(Kind::Host, "_", b"");
    let mut proxy = bench.connect("a").await.unwrap();
    proxy.next().await;
    bench.leaving.send_replace(true);
    let mut heard = Vec::new();
    while let Some(Ok(message)) = proxy.hear.next().await {
        heard.push(message.message.unwrap());
    }
    assert!(matches!(heard.last(), Some(Control::Redirect(_))), "{heard:?}");
}

#[tokio::test]
async fn a_process_that_is_to_end_serves_on_until_its_proxies_have_gone_elsewhere_and_takes_no_more() {
    let mut bench = bench().await;
    bench.commit(Kind::Host, "_", b"");
    let mut proxy = bench.connect("a").await.unwrap();
    bench.until(|registry| registry.len() == 1).await;
    bench.moving.send_replace(Some(Duration::from_secs(3)));
    let after = loop {
        if let Control::Redirect(redirect) = proxy.next().await {
            break redirect.after_ms;
        }
    };
    assert!(after <= 3_000, "{after} ms");
    assert_eq!(bench.connect("b").await.err().unwrap().code(), Code::Unavailable);
    bench.commit(Kind::Host, "later", b"");
    loop {
        if let Control::Batch(batch) = proxy.next().await
            && batch.up.iter().any(|up| up.key == "later")
        {
            break;
        }
    }
    drop(proxy);
    let emptied = tokio::time::timeout(Duration::from_secs(10), bench.registry.emptied()).await;
    assert!(emptied.is_ok());
    let [moved] = &bench.registry.list()[..] else { panic!("{:?}", bench.registry.list()) };
    assert!(!moved.is_silent(), "it is on its way, and serves what it has");
}

#[tokio::test]
async fn who_sends_its_proxies_away_for_a_while_takes_them_again() {
    let mut bench = bench().await;
    bench.commit(Kind::Host, "_", b"");
    let mut proxy = bench.connect("a").await.unwrap();
    bench.until(|registry| registry.len() == 1).await;
    bench.moving.send_replace(Some(Duration::ZERO));
    while !matches!(proxy.next().await, Control::Redirect(_)) {}
    assert_eq!(bench.connect("b").await.err().unwrap().code(), Code::Unavailable);

    bench.moving.send_replace(None);
    bench.connect("c").await.unwrap();
    // Its stream hears of the commit together with that.
    bench.commit(Kind::Host, "later", b"");
    let is_later = |heard: &Control| match heard {
        Control::Batch(batch) => batch.up.iter().any(|up| up.key == "later"),
        _ => false,
    };
    while !is_later(&proxy.next().await) {}
    bench.moving.send_replace(Some(Duration::ZERO));
    while !matches!(proxy.next().await, Control::Redirect(_)) {}
}

#[tokio::test]
async fn what_is_no_proxy_message_ends_the_stream_alone() {
    let mut bench = bench().await;
    bench.commit(Kind::Host, "_", b"");
    let mut proxy = bench.connect("a").await.unwrap();
    proxy.next().await;
    let ack = config::Ack { lane: 77, ..config::Ack::default() };
    proxy.say.send(message(FromProxy::Ack(ack))).await.unwrap();
    let ended = loop {
        match proxy.hear.next().await {
            Some(Ok(_)) => {}
            ended => break ended,
        }
    };
    assert_eq!(ended.unwrap().unwrap_err().code(), Code::InvalidArgument);
    assert!(bench.connect("b").await.is_ok());
}

/// A connection that is cut is seen by its proxy before it is seen here.
#[tokio::test]
async fn a_proxy_without_a_claim_waits_for_its_old_stream_to_end() {
    let mut bench = bench().await;
    bench.commit(Kind::Host, "_", b"");
    let mut first = bench.connect("again").await.unwrap();
    first.next().await;
    let mut second = bench.connect("again").await.unwrap();
    let (welcome, ()) = tokio::join!(second.next(), async { drop(first) });
    assert!(matches!(welcome, Control::Welcome(_)), "{welcome:?}");
}

#[tokio::test]
async fn a_message_that_is_too_much_ends_its_stream_before_it_is_decoded() {
    let mut bench = bench().await;
    bench.commit(Kind::Host, "_", b"");
    let many = config::Hello { resume: vec![config::Resume::default(); 9], ..config::Hello::default() };
    let large = config::Hello { zone: "x".repeat(Limits::HELLO), ..config::Hello::default() };
    let huge = config::Hello { zone: "x".repeat(Limits::MESSAGE), ..config::Hello::default() };
    for (hello, code) in
        [(many, Code::InvalidArgument), (large, Code::InvalidArgument), (huge, Code::InvalidArgument)]
    {
        let mut proxy = bench.say(hello).await.unwrap();
        assert_eq!(proxy.hear.next().await.unwrap().unwrap_err().code(), code);
    }
    assert!(bench.connect("b").await.is_ok());
}

#[tokio::test]
async fn there_are_only_so_many_streams() {
    let limits = Limits { connections: 2, ..Limits::within(1 << 30, 1 << 20) };
    let mut bench = bench_within(limits).await;
    bench.commit(Kind::Host, "_", b"");
    let mut first = bench.connect("a").await.unwrap();
    first.next().await;
    let channel = first.channel.clone();
    let mut second = bench.say_on(channel.clone(), hello_of("b", Bytes::new())).await.unwrap();
    second.next().await;
    let refused = bench.say_on(channel, hello_of("c", Bytes::new())).await.err().unwrap();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(bench.registry.len(), 2);
}
