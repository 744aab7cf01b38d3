use std::pin::pin;

use futures::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

fn limits() -> Limits {
    Limits { connections: 2, ..Limits::within(1 << 30, 1 << 20) }
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

impl Admission {
    /// A caller from this address, whose connection has ended. Loopback clients are not counted, so it is simulated.
    pub(in crate::serve) async fn caller_at(&self, address: &str) -> Caller {
        let (listener, here) = listener().await;
        let (_client, accepted) = tokio::join!(TcpStream::connect(here), listener.accept());
        self.admit(accepted.unwrap().0, address.parse().unwrap()).unwrap().caller(None)
    }
}

/// How the connection of a guest ends who only reads.
async fn ends(guest: &mut Guest) -> io::ErrorKind {
    guest.read_u8().await.unwrap_err().kind()
}

#[tokio::test]
async fn who_has_waited_longest_without_a_call_makes_room() {
    let (listener, address) = listener().await;
    let admission = Admission::new(limits());
    let mut guests = pin!(admission.clone().guests(listener));
    let mut clients = Vec::new();
    let mut next = async || {
        clients.push(TcpStream::connect(address).await.unwrap());
        guests.next().await.unwrap().unwrap()
    };
    let (mut first, mut second) = (next().await, next().await);
    let call = first.caller(None).call();
    // The second is the only one without a call.
    let third = next().await;
    assert_eq!(ends(&mut second).await, io::ErrorKind::ConnectionAborted);
    drop(second);
    assert_eq!(admission.open(), 2);
    let other_call = third.caller(None).call();
    // None is idle any more: new connections are refused, and take nothing.
    clients.push(TcpStream::connect(address).await.unwrap());
    let mut refused = clients.pop().unwrap();
    let mut byte = [0];
    tokio::select! {
        _ = guests.next() => panic!("it was let in"),
        read = refused.read(&mut byte) => assert!(read.is_err() || read.unwrap() == 0),
    }
    assert_eq!(admission.open(), 2);
    drop(call);
    clients.push(TcpStream::connect(address).await.unwrap());
    let _fourth = guests.next().await.unwrap().unwrap();
    assert_eq!(ends(&mut first).await, io::ErrorKind::ConnectionAborted);
    drop((first, third, other_call));
    assert_eq!(admission.open(), 1);
    assert_eq!(admission.waiting().len(), 1, "who is gone is not remembered");
}

#[tokio::test]
async fn a_call_that_outlives_its_connection_leaves_nothing_behind() {
    let (listener, address) = listener().await;
    let admission = Admission::new(limits());
    let mut guests = pin!(admission.clone().guests(listener));
    let _client = TcpStream::connect(address).await.unwrap();
    let guest = guests.next().await.unwrap().unwrap();
    let call = guest.caller(None).call();
    drop(guest);
    assert_eq!(admission.open(), 0);
    drop(call);
    assert!(admission.waiting().is_empty());
}

/// Time stands still but for timers.
#[tokio::test(start_paused = true)]
async fn a_connection_without_a_call_has_its_time() {
    let (listener, address) = listener().await;
    let limits = limits();
    let admission = Admission::new(limits);
    let mut guests = pin!(admission.clone().guests(listener));
    let mut client = TcpStream::connect(address).await.unwrap();
    let mut guest = guests.next().await.unwrap().unwrap();
    let begun = Instant::now();
    assert_eq!(ends(&mut guest).await, io::ErrorKind::TimedOut);
    assert_eq!(begun.elapsed().as_secs(), limits.first_call.as_secs());
    drop(guest);
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);

    let mut client = TcpStream::connect(address).await.unwrap();
    let mut guest = guests.next().await.unwrap().unwrap();
    let call = guest.caller(None).call();
    tokio::time::sleep(10 * limits.idle).await;
    client.write_u8(7).await.unwrap();
    assert_eq!(guest.read_u8().await.unwrap(), 7, "with a call there is no limit");
    drop(call);
    let begun = Instant::now();
    assert_eq!(ends(&mut guest).await, io::ErrorKind::TimedOut);
    let waited = begun.elapsed();
    assert!(waited >= limits.idle && waited < 2 * limits.idle, "{waited:?}");
}

#[tokio::test]
async fn an_address_has_so_many_connections() {
    let (listener, address) = listener().await;
    let admission = Admission::new(Limits { per_peer: 2, ..Limits::within(1 << 30, 1 << 20) });
    // Loopback clients are not counted, so the peer addresses are simulated.
    let admit = async |peer: &str| {
        let (_client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        admission.admit(accepted.unwrap().0, peer.parse().unwrap())
    };
    let two = [admit("192.0.2.1:1").await, admit("192.0.2.1:2").await];
    assert!(two.iter().all(Result::is_ok));
    let why = admit("192.0.2.1:3").await.err().unwrap();
    assert!(why.contains("--max-connections-per-peer"), "{why}");
    assert!(admit("192.0.2.2:1").await.is_ok(), "another one has its own");
    drop(two);
    assert!(admit("192.0.2.1:4").await.is_ok());
}

/// Time stands still but for timers.
#[tokio::test(start_paused = true)]
async fn an_accept_that_fails_makes_room_and_is_tried_again_after_a_pause() {
    let (listener, address) = listener().await;
    let admission = Admission::new(limits());
    let mut guests = pin!(admission.clone().guests(listener));
    let _clients = [TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()];
    let mut waiting = [guests.next().await.unwrap().unwrap(), guests.next().await.unwrap().unwrap()];
    // A socket that is readable, but cannot accept.
    let broken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    broken.set_nonblocking(true).unwrap();
    let said = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    said.send_to(b"here", broken.local_addr().unwrap()).unwrap();
    let broken = std::net::TcpListener::from(std::os::fd::OwnedFd::from(broken));
    let mut guests = pin!(admission.clone().guests(TcpListener::from_std(broken).unwrap()));
    let begun = Instant::now();
    for (number, guest) in waiting.iter_mut().enumerate() {
        tokio::select! {
            _ = guests.next() => panic!("somebody was let in"),
            kind = ends(guest) => assert_eq!(kind, io::ErrorKind::ConnectionAborted),
        }
        let pauses = number as u32;
        let waited = begun.elapsed();
        assert!(waited >= pauses * PAUSE && waited < (pauses + 1) * PAUSE, "{number}: {waited:?}");
    }
}

/// As long as it has calls: a stream is one, and goes on for days.
#[tokio::test(start_paused = true)]
async fn a_connection_lasts_as_long_as_the_certificate_that_it_was_opened_with_or_the_next_one() {
    let (listener, address) = listener().await;
    let admission = Admission::new(limits());
    let mut guests = pin!(admission.clone().guests(listener));
    let _client = TcpStream::connect(address).await.unwrap();
    let mut guest = guests.next().await.unwrap().unwrap();
    let caller = guest.caller(None);
    caller.lasts(Duration::from_secs(100));
    let (begun, _call) = (Instant::now(), caller.call());
    let renewal = async {
        tokio::time::sleep(Duration::from_secs(50)).await;
        caller.lasts(Duration::from_secs(100));
        std::future::pending::<()>().await;
    };
    let ended = tokio::select! {
        ended = ends(&mut guest) => ended,
        () = renewal => unreachable!(),
    };
    assert_eq!(ended, io::ErrorKind::TimedOut);
    assert_eq!(begun.elapsed().as_secs(), 150);
}

/// The others say that there are no descriptors, or no memory: then somebody has to leave.
#[test]
fn what_concerns_one_connection_sends_nobody_away() {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, TimedOut};
    for kind in [ConnectionAborted, ConnectionReset, Interrupted, TimedOut] {
        assert!(concerns_one(&kind.into()), "{kind}");
    }
    for code in [24, 23, 12] {
        assert!(!concerns_one(&io::Error::from_raw_os_error(code)), "{code}");
    }
}
