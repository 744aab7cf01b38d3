//! What happens at each limit of the stream's address, and just below it.

use futures::poll;
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::*;

fn defaults() -> Limits {
    Limits::within(1 << 30, 1 << 20)
}

/// A Hello whose message has so many bytes: its capabilities are long.
fn hello_of_size(id: &str, bytes: usize) -> config::Hello {
    let hello = |last: usize| {
        let mut capabilities = vec!["x".repeat(1_100); bytes / 1_103 - 1];
        capabilities.push("x".repeat(last));
        config::Hello { capabilities, ..hello_of(id, Bytes::new()) }
    };
    let size = |last: &usize| message(FromProxy::Hello(hello(*last))).encoded_len();
    hello((0..2_000).find(|last| size(last) == bytes).unwrap())
}

/// The status with which an open stream ends.
async fn ends(proxy: &mut Proxy) -> Status {
    loop {
        match proxy.hear.next().await.unwrap() {
            Ok(_) => {}
            Err(status) => return status,
        }
    }
}

#[tokio::test]
async fn messages_have_their_size_to_the_byte() {
    let mut bench = bench().await;
    bench.commit(Kind::Host, "_", b"");
    let mut proxy = bench.say(hello_of_size("a", Limits::HELLO)).await.unwrap();
    assert!(matches!(proxy.next().await, Control::Welcome(_)));
    let mut longer = bench.say(hello_of_size("b", Limits::HELLO + 1)).await.unwrap();
    let status = ends(&mut longer).await;
    assert_eq!(
        (status.code(), status.message()),
        (Code::InvalidArgument, "expected a hello of at most 65536 bytes, got 65537")
    );

    // After it a message may be longer, here with a reason that is.
    let batch = proxy.batch().await;
    let ack = |bytes: usize| {
        let ack = |reason: usize| {
            let reason = "x".repeat(reason);
            let refused = vec![config::Refusal { reason, ..config::Refusal::default() }];
            let (lane, seq, root) = (batch.lane, batch.to, batch.root_after.clone());
            message(FromProxy::Ack(config::Ack { lane, seq, root, refused, ..config::Ack::default() }))
        };
        ack((bytes - 200..bytes).find(|reason| ack(*reason).encoded_len() == bytes).unwrap())
    };
    proxy.say.send(ack(Limits::MESSAGE)).await.unwrap();
    let root = Root::from_slice(&batch.root_after);
    let is_known = |proxy: &registry::Proxy| proxy.config.root == root || proxy.live.root == root;
    bench.until(|registry| registry.list().first().is_some_and(is_known)).await;
    proxy.say.send(ack(Limits::MESSAGE + 1)).await.unwrap();
    assert_eq!(ends(&mut proxy).await.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_connection_has_so_many_calls_at_once() {
    let mut bench = bench().await;
    bench.commit(Kind::Host, "_", b"");
    let channel = Endpoint::from_shared(bench.address.clone()).unwrap().connect().await.unwrap();
    let mut open = Vec::new();
    for number in 0..defaults().calls {
        let hello = hello_of(&format!("proxy-{number}"), Bytes::new());
        let mut proxy = bench.say_on(channel.clone(), hello).await.unwrap();
        assert!(matches!(proxy.next().await, Control::Welcome(_)));
        open.push(proxy);
    }
    let mut one_more = Box::pin(bench.say_on(channel.clone(), hello_of("late", Bytes::new())));
    assert!(poll!(&mut one_more).is_pending());
    // Somebody else is served meanwhile, and it still waits.
    let mut other = bench.connect("other").await.unwrap();
    assert!(matches!(other.next().await, Control::Welcome(_)));
    assert!(poll!(&mut one_more).is_pending());
    assert_eq!(bench.registry.len(), open.len() + 1);
    open.pop();
    assert!(matches!(one_more.await.unwrap().next().await, Control::Welcome(_)));
}

#[tokio::test]
async fn a_header_list_has_its_size() {
    let mut bench = bench().await;
    bench.commit(Kind::Host, "_", b"");
    let most = defaults().header_list as usize;
    // All other fields together have some hundred bytes.
    for (bytes, taken) in [(most - 1_024, true), (most, false)] {
        let channel = Endpoint::from_shared(bench.address.clone()).unwrap().connect().await.unwrap();
        let mut grpc = Grpc::new(channel);
        grpc.ready().await.unwrap();
        let (say, said) = mpsc::channel(1);
        say.send(message(FromProxy::Hello(hello_of("a", Bytes::new())))).await.unwrap();
        let mut request = Request::new(ReceiverStream::new(said));
        request.metadata_mut().insert("x-long", "x".repeat(bytes).parse().unwrap());
        let path = PathAndQuery::from_static("/firth.config.v1.ConfigStream/Connect");
        let codec = tonic_prost::ProstCodec::<ProxyMessage, config::ControlMessage>::default();
        // An HTTP status is reported with the first message.
        let heard = async { grpc.streaming(request, path, codec).await?.into_inner().message().await };
        assert_eq!(heard.await.is_ok(), taken, "{bytes}");
    }
}

/// A client of bytes that has made a call and never says anything again, whatever it is asked. Time stands still but for
/// timers.
#[tokio::test(start_paused = true)]
async fn a_peer_that_is_gone_without_a_word_is_seen_in_time() {
    let bench = bench().await;
    let mut client = TcpStream::connect(bench.address.trim_start_matches("http://")).await.unwrap();
    let begun = Instant::now();
    // `GET /` over HTTP/2, after a greeting.
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    client.write_all(b"\0\0\x06\x01\x05\0\0\0\x01\x82\x84\x86\x01\x01a").await.unwrap();
    let mut said = Vec::new();
    let _ = client.read_to_end(&mut said).await;
    assert!(!said.is_empty(), "it was served before");
    let (waited, limit) = (begun.elapsed(), KEEP_ALIVE + KEEP_ALIVE_ANSWER);
    assert!(waited >= limit && waited < limit + Duration::from_secs(2), "{waited:?}");
}

/// Only those without a call make room, and end after a while: a stream has nothing to say for hours.
#[tokio::test]
async fn the_connection_of_a_stream_makes_no_room_for_another() {
    let mut bench = bench_within(Limits { connections: 1, ..defaults() }).await;
    bench.commit(Kind::Host, "_", b"");
    let mut proxy = bench.connect("a").await.unwrap();
    assert!(matches!(proxy.next().await, Control::Welcome(_)));
    let (live, config) = (proxy.batch().await, proxy.batch().await);
    for batch in [&live, &config] {
        proxy.ack(batch).await;
    }
    let mut other = TcpStream::connect(bench.address.trim_start_matches("http://")).await.unwrap();
    assert_eq!(other.read(&mut [0]).await.unwrap_or(0), 0, "it is refused");
    bench.commit(Kind::Host, "_", b"2");
    let next = proxy.batch().await;
    assert_eq!((next.from, next.to), (config.to, config.to + 1));
}

#[tokio::test]
async fn an_address_has_so_many_streams() {
    let limits = Limits { per_peer: 1, ..defaults() };
    let (_, published) = Store::new(Lineage([1; 16]), clock::now());
    let service = Service::new(
        "default",
        published,
        Arc::default(),
        Arc::new(Metrics::new()),
        limits,
        watch::channel(false).1,
    );
    let caller = async |address: &str| service.admission.caller_at(address).await;
    let (first, again) = (caller("192.0.2.1:1").await, caller("192.0.2.1:2").await);
    let place = service.place(Some(&first), None).unwrap();
    let refused = service.place(Some(&again), None).unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::ResourceExhausted, "this address has the maximum number of streams")
    );
    assert!(service.place(Some(&caller("192.0.2.2:1").await), None).is_ok(), "another one has its own");
    drop(place);
    assert!(service.place(Some(&again), None).is_ok());
}

#[tokio::test]
async fn a_full_sync_waits_for_a_slot() {
    use shared::proto::config::lane_start::Mode;
    assert_eq!(defaults().full_syncs, 64);
    let mut bench = bench_within(Limits { full_syncs: 1, ..defaults() }).await;
    bench.commit(Kind::Endpoints, "a/b", b"1");
    bench.commit(Kind::Host, "_", b"");
    let begins = async |proxy: &mut Proxy| {
        let Control::Welcome(welcome) = proxy.next().await else { panic!("expected a welcome first") };
        let config = welcome.lanes.iter().find(|lane| lane.lane == Lane::Config.to_wire()).unwrap();
        config.mode()
    };
    let mut first = bench.connect("first").await.unwrap();
    assert_eq!(begins(&mut first).await, Mode::Full);
    let mut second = bench.connect("second").await.unwrap();
    assert_eq!(begins(&mut second).await, Mode::Wait);
    let live = second.batch().await;
    assert_eq!(live.lane, Lane::Live.to_wire(), "endpoints wait for nobody");
    second.ack(&live).await;
    for _ in Lane::ALL {
        let batch = first.batch().await;
        first.ack(&batch).await;
    }
    assert_eq!(second.batch().await.lane, Lane::Config.to_wire());
}
