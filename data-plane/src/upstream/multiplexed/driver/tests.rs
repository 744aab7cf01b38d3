use std::cell::Cell;
use std::future::poll_fn;
use std::net::Ipv4Addr;
use std::task::Waker;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use super::super::{CallSlot, State};
use super::*;
use crate::table::policy::upstream_keepalive::ReuseLimits;

/// `GET / HTTP/2`.
const GET: &[u8] = &[0x82, 0x86, 0x84];
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0present?";
/// A response to the first call: 200, and a field.
const OK: &[u8] = b"\0\0\x06\x01\x05\0\0\0\x01\x88\0\x01a\x01b";

/// The task of a connection on which a call is made, and the endpoint, which reads nothing.
async fn called() -> (Driver, CallSlot, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let connecting = TcpStream::connect(listener.local_addr().unwrap());
    let (near, accepted) = tokio::join!(connecting, listener.accept());
    let mut endpoint = accepted.unwrap().0;
    let local = Rc::new(Local::for_tests());
    let shared = Multiplexed::opening(ReuseLimits::default(), &local.timers);
    shared.state.set(State::Open);
    let mut driver = Driver::new(&shared, Wire::Plain(near.unwrap()), &local);
    endpoint.write_all(SETTINGS).await.unwrap();
    until(&mut driver, |_| shared.most().is_some()).await;
    let call = shared.join(false);
    call.begin(GET, true, false).unwrap();
    until(&mut driver, |_| shared.connection.borrow().is_written()).await;
    (driver, call, endpoint)
}

/// Reads and writes until something has happened.
async fn until(driver: &mut Driver, has_happened: impl Fn(&mut Context<'_>) -> bool) {
    poll_fn(|cx| {
        assert!(driver.poll(cx).is_pending());
        if has_happened(cx) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[tokio::test]
async fn what_came_before_a_write_failed_is_taken() {
    let (mut driver, call, mut endpoint) = called().await;
    endpoint.write_all(&[&PING.repeat(300), OK].concat()).await.unwrap();
    // It has not read what it was sent: the kernel resets the connection.
    drop(endpoint);
    poll_fn(|cx| driver.wire.poll_readable(cx)).await.unwrap();
    driver.shared.probe();
    let ended = poll_fn(|cx| driver.poll(cx)).await;
    assert!(matches!(ended, Err(Broken::Io(_))), "{ended:?}");
    let head = call.poll_head(&Context::from_waker(Waker::noop()));
    assert_eq!(head.map_ok(|head| head.status), Poll::Ready(Ok(200)));
}

#[tokio::test]
async fn an_idle_connection_holds_no_buffer() {
    let (mut driver, call, mut endpoint) = called().await;
    endpoint.write_all(OK).await.unwrap();
    until(&mut driver, |cx| call.poll_head(cx).is_ready()).await;
    let room = |driver: &Driver| [driver.connection().room(), driver.fields.room(), driver.input.capacity()];
    assert!(room(&driver)[0] > 0 && room(&driver)[1] > 0, "the next call is probably soon");
    drop(call);
    until(&mut driver, |_| true).await;
    assert_eq!(room(&driver), [0; 3]);
    // It is woken for the next one.
    let call = driver.shared.join(false);
    let is_woken = Cell::new(false);
    poll_fn(|cx| {
        assert!(driver.poll(cx).is_pending());
        if !is_woken.replace(true) {
            call.begin(GET, true, false).unwrap();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
    assert!(driver.connection().is_written());
}
