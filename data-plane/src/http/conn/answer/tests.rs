use std::os::fd::AsFd as _;
use std::pin::pin;
use std::rc::Rc;

use bytes::Bytes;
use futures::poll;
use shared::policy::LocationPolicy;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::codec::head::{Framing, Version};
use crate::codec::stream::read_a_little;
use crate::http::peer::Peer;
use crate::http::pipeline::log::RequestRecord;
use crate::http::reply::Paced;
use crate::listen::Scheme;
use crate::table::policy::pace::Pace;

/// A backend may be silent for a second; the client reads part of the response and then stops.
#[tokio::test]
async fn stalled_client_has_the_send_timeout_not_the_backends_read_timeout() {
    const BYTES: usize = 5_000;
    let said = LocationPolicy { limit_rate: Some(1), ..LocationPolicy::default() };
    let pace = Pace::compile(&said).unwrap();
    // At first everything that may be sent at once is accepted; afterwards exactly that much, and not a byte more.
    let mut room = 64 * 1024;
    for is_full in [false, true] {
        let local = Rc::new(Local::for_tests());
        let (start, timer) = (local.timers.now(), local.timers.timer());
        let peer = Peer::new(([127, 0, 0, 1], 1).into(), Scheme::Http, 80);
        let mut record = RequestRecord::new(&local, &peer, None);
        let page = ReplyBody::Page(vec![b'x'; BYTES].into());
        let mut reply = Reply::page(&local, 200);
        reply.head.framing = Framing::Length(BYTES as u64);
        reply.head.declared_length = Some(BYTES as u64);
        reply.body = ReplyBody::Paced(Box::new(Paced::new(&local, page, pace)));
        reply.read = Duration::from_secs(1);
        let client = Client { version: Version::Http11, to_head: false, keep_alive: true };
        let (mut near, mut far) = tokio::io::duplex(room);
        let (mut input, mut unread) = (BytesMut::new(), Unread::nothing());
        let connection = (&mut near, &mut input, &mut unread);
        let mut writing = pin!(write(&local, &timer, connection, reply, client, &mut record.info));
        assert!(poll!(&mut writing).is_pending());
        if !is_full {
            room = far.read(&mut vec![0; room]).await.unwrap();
            assert!(room > 1024 && room < BYTES, "{room}");
            continue;
        }
        let at = |seconds: f64| local.timers.tick(start + Duration::from_secs_f64(seconds));
        for seconds in [0.5, 2.0, 59.0] {
            at(seconds);
            assert!(poll!(&mut writing).is_pending(), "{seconds}");
        }
        at(0.5 + 60.2);
        let outcome = writing.await;
        assert_eq!(outcome.err().map(|cut| cut.error.kind), Some(Kind::ClientTimeout));
    }
}

/// The kernel keeps megabytes for a client, and says that there is room when a third of that was taken.
#[tokio::test]
async fn a_client_that_reads_slowly_is_waited_for() {
    const BYTES: usize = 32 << 20;
    let local = Rc::new(Local::for_tests());
    let (start, timer) = (local.timers.now(), local.timers.timer());
    let peer = Peer::new(([127, 0, 0, 1], 1).into(), Scheme::Http, 80);
    let mut record = RequestRecord::new(&local, &peer, None);
    let mut reply = Reply::page(&local, 200);
    reply.head.framing = Framing::Length(BYTES as u64);
    reply.head.declared_length = Some(BYTES as u64);
    reply.body = ReplyBody::Page(vec![b'x'; BYTES].into());
    let client = Client { version: Version::Http11, to_head: false, keep_alive: true };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (far, near) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    let (mut far, (mut near, _)) = (far.unwrap(), near.unwrap());
    let sends = near.as_fd().try_clone_to_owned().unwrap();
    let (mut input, mut unread) = (BytesMut::new(), Unread::nothing());
    let connection = (&mut near, &mut input, &mut unread);
    let mut writing = pin!(write(&local, &timer, connection, reply, client, &mut record.info));
    let all = tokio::time::timeout(Duration::from_millis(100), writing.as_mut()).await;
    assert!(all.is_err(), "nobody has taken it");
    for minute in 1..4 {
        read_a_little(&mut far, sends.as_fd()).await;
        local.timers.tick(start + Duration::from_secs(62 * minute));
        assert!(poll!(&mut writing).is_pending(), "{minute}");
    }
    local.timers.tick(start + Duration::from_secs(62 * 10));
    let outcome = match poll!(&mut writing) {
        Poll::Ready(outcome) => outcome,
        // The kernel has sent more since it was asked.
        Poll::Pending => {
            local.timers.tick(start + Duration::from_secs(62 * 20));
            writing.await
        }
    };
    assert_eq!(outcome.err().map(|cut| cut.error.kind), Some(Kind::ClientTimeout));
}

#[tokio::test]
async fn of_what_waits_all_is_reckoned_and_the_head_is_gone() {
    const BYTES: usize = 5_000;
    let local = Rc::new(Local::for_tests());
    let (timer, peer) = (local.timers.timer(), Peer::new(([127, 0, 0, 1], 1).into(), Scheme::Https, 443));
    let mut record = RequestRecord::new(&local, &peer, None);
    let mut reply = Reply::page(&local, 200);
    let head = Bytes::from(vec![b'h'; 100]);
    reply.head.upgrade = Some(head.clone());
    reply.head.framing = Framing::Length(BYTES as u64);
    reply.body = ReplyBody::Page(vec![b'x'; BYTES].into());
    let client = Client { version: Version::Http11, to_head: false, keep_alive: true };
    let (mut near, _far) = tokio::io::duplex(1_000);
    let (mut input, mut unread) = (BytesMut::new(), Unread::nothing());
    let connection = (&mut near, &mut input, &mut unread);
    let mut writing = pin!(write(&local, &timer, connection, reply, client, &mut record.info));
    assert!(poll!(&mut writing).is_pending());
    assert!(head.is_unique());
    assert!(local.quota.held() >= BYTES + 1_000, "{}", local.quota.held());
}
