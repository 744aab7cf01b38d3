use std::os::fd::AsFd as _;
use std::pin::pin;

use shared::budget::Budget;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, duplex};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::codec::stream::read_a_little;

#[tokio::test]
async fn one_direction_copies_and_ends() {
    let buffers = Buffers::new();
    let (mut source, mut from) = duplex(7);
    let (mut to, mut sink) = duplex(5);
    let mut direction = Direction::new(BytesMut::from(&b"left over, "[..]));
    let writing = async {
        source.write_all(b"and what follows").await.unwrap();
        drop(source);
    };
    let (quota, pipes) = (Quota::new(Budget::new(1 << 20)), Pipes::new(Budget::new(0)));
    let lent = Lent { buffers: &buffers, quota: &quota, pipes: &pipes };
    let copying = poll_fn(|cx| direction.step(&mut from, &mut to, lent, cx));
    let mut seen = String::new();
    let reading = sink.read_to_string(&mut seen);
    let ((), copied, read) = tokio::join!(writing, copying, reading);
    copied.unwrap();
    read.unwrap();
    assert_eq!(seen, "left over, and what follows");
    assert_eq!(direction.moved, seen.len() as u64);
    assert_eq!(direction.buffer.capacity(), 0);
}

/// The runtime's budget counts calls: without a limit this would move 4 MiB at once.
#[tokio::test]
async fn a_fast_stream_gives_way() {
    let buffers = Buffers::new();
    let (quota, pipes) = (Quota::new(Budget::new(1 << 20)), Pipes::new(Budget::new(0)));
    let lent = Lent { buffers: &buffers, quota: &quota, pipes: &pipes };
    let (mut source, mut from) = duplex(8 << 20);
    let (mut to, _sink) = duplex(8 << 20);
    source.write_all(&vec![b'x'; 6 << 20]).await.unwrap();
    drop(source);
    let mut direction = Direction::new(BytesMut::new());
    let (mut before, mut polls) = (0, 0);
    poll_fn(|cx| {
        let polled = direction.step(&mut from, &mut to, lent, cx);
        assert!(direction.moved - before <= STINT + (64 << 10), "{} at once", direction.moved - before);
        (before, polls) = (direction.moved, polls + 1);
        polled
    })
    .await
    .unwrap();
    assert!(direction.moved == 6 << 20 && polls >= 6, "{polls}");
}

#[tokio::test]
async fn untaken_relay_bytes_are_charged_and_without_memory_the_relay_ends() {
    let buffers = Buffers::new();
    for room in [1 << 20, 100] {
        let (quota, pipes) = (Quota::new(Budget::new(room)), Pipes::new(Budget::new(0)));
        let lent = Lent { buffers: &buffers, quota: &quota, pipes: &pipes };
        let (mut source, mut from) = duplex(64 * 1024);
        let (mut to, mut sink) = duplex(5);
        let mut direction = Direction::new(BytesMut::new());
        source.write_all(&[b'x'; 1_000]).await.unwrap();
        let step = poll_fn(|cx| Poll::Ready(direction.step(&mut from, &mut to, lent, cx))).await;
        if room < ROOM {
            let Poll::Ready(Err(error)) = step else { panic!("it goes on without room: {step:?}") };
            assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
            continue;
        }
        assert!(step.is_pending());
        assert!(quota.held() >= 995, "{} bytes are held", quota.held());
        drop(source);
        let mut seen = Vec::new();
        let copying = poll_fn(|cx| direction.step(&mut from, &mut to, lent, cx));
        let (copied, read) = tokio::join!(copying, sink.read_to_end(&mut seen));
        copied.unwrap();
        read.unwrap();
        assert_eq!((seen.len(), quota.held()), (1_000, 0));
    }
}

/// However much of a buffer was written, it is in memory.
#[tokio::test]
async fn a_buffer_of_which_a_part_was_taken_is_reckoned_whole() {
    let buffers = Buffers::new();
    let (quota, pipes) = (Quota::new(Budget::new(1 << 20)), Pipes::new(Budget::new(0)));
    let lent = Lent { buffers: &buffers, quota: &quota, pipes: &pipes };
    let (mut source, mut from) = duplex(64 * 1024);
    let (mut to, _sink) = duplex(ROOM - 100);
    let mut direction = Direction::new(BytesMut::new());
    source.write_all(&[b'x'; ROOM]).await.unwrap();
    let step = poll_fn(|cx| Poll::Ready(direction.step(&mut from, &mut to, lent, cx))).await;
    assert!(step.is_pending());
    assert!(quota.held() >= ROOM, "{} bytes are held", quota.held());
}

/// Accepts everything that is written and does not send it, as TLS does with a socket that accepts nothing.
struct Unsent(usize);

impl AsyncRead for Unsent {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Unsent {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0 += bytes.len();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

#[tokio::test]
async fn bytes_held_by_tls_are_charged_and_stop_reading() {
    let buffers = Buffers::new();
    let (quota, pipes) = (Quota::new(Budget::new(1 << 20)), Pipes::new(Budget::new(0)));
    let lent = Lent { buffers: &buffers, quota: &quota, pipes: &pipes };
    let (mut source, mut from) = duplex(64 * 1024);
    let mut to = Unsent(0);
    let mut direction = Direction::new(BytesMut::new());
    source.write_all(&[b'x'; 2 * ROOM]).await.unwrap();
    for _ in 0..2 {
        let step = poll_fn(|cx| Poll::Ready(direction.step(&mut from, &mut to, lent, cx))).await;
        assert!(step.is_pending() && direction.is_held());
        assert!(to.0 <= ROOM && quota.held() >= to.0, "{} of {} bytes are held", quota.held(), to.0);
    }
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (near, far) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    (near.unwrap(), far.unwrap().0)
}

/// A connection that becomes a tunnel and then stays silent is not held longer than others.
#[tokio::test]
async fn a_relay_on_which_nothing_is_ever_said_ends() {
    let local = Rc::new(Local::for_tests());
    let timer = local.timers.timer();
    let ((_near, mut client), (mut endpoint, _far)) = (pair().await, pair().await);
    let client = End { stream: &mut client, input: BytesMut::new() };
    let endpoint = End { stream: &mut endpoint, input: BytesMut::new() };
    let mut relaying =
        pin!(relay((&local, &timer), client, endpoint, Idle::of(Duration::from_secs(60)), |_| {}));
    assert!(futures::poll!(relaying.as_mut()).is_pending());
    local.timers.tick(shared::clock::now() + Duration::from_secs(62));
    let Poll::Ready(Err(error)) = futures::poll!(relaying.as_mut()) else { panic!("it goes on") };
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

/// Whoever pauses a download is not silent: the endpoint would go on.
#[tokio::test]
async fn a_client_that_takes_nothing_has_a_time_of_its_own() {
    let local = Rc::new(Local::for_tests());
    let timer = local.timers.timer();
    let ((mut near, mut client), (mut endpoint, mut far)) = (pair().await, pair().await);
    let client = End { stream: &mut client, input: BytesMut::new() };
    let endpoint = End { stream: &mut endpoint, input: BytesMut::new() };
    let idle = Idle { silent: Duration::from_secs(3), untaken: Duration::from_secs(60) };
    let mut relaying = pin!(relay((&local, &timer), client, endpoint, idle, |_| {}));
    let sending = async {
        let filling = async { while far.write_all(&[b'x'; 64 * 1024]).await.is_ok() {} };
        tokio::time::timeout(Duration::from_millis(200), filling).await.unwrap_err();
    };
    let start = shared::clock::now();
    tokio::select! {
        _ = &mut relaying => panic!("it ends"),
        () = sending => {}
    }
    local.timers.tick(start + Duration::from_secs(50));
    assert!(futures::poll!(relaying.as_mut()).is_pending(), "it was not silent");
    near.read_exact(&mut vec![0; 1 << 20]).await.unwrap();
    // What it has taken is seen later, and the kernel may still be sending.
    let clock = async {
        for minute in 2..60 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            local.timers.tick(start + Duration::from_secs(61 * minute));
        }
    };
    let outcome = tokio::select! {
        outcome = relaying => outcome,
        () = clock => panic!("it is waited for"),
    };
    assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::TimedOut);
}

/// A peer that takes a little of what the kernel keeps for it is not given up, though its socket has no room meanwhile.
#[tokio::test]
async fn who_reads_slowly_is_waited_for() {
    // Of what the client takes each moment counts. The endpoint has the time of silence, within which it is looked twice.
    for (is_client, seconds) in [(true, [62, 124, 186]), (false, [30, 85, 140])] {
        let local = Rc::new(Local::for_tests());
        let timer = local.timers.timer();
        let ((near, mut client), (mut endpoint, far)) = (pair().await, pair().await);
        let sends = if is_client { client.as_fd() } else { endpoint.as_fd() }.try_clone_to_owned().unwrap();
        let (mut reads, mut writes) = if is_client { (near, far) } else { (far, near) };
        let client = End { stream: &mut client, input: BytesMut::new() };
        let endpoint = End { stream: &mut endpoint, input: BytesMut::new() };
        let idle = Idle::of(Duration::from_secs(60));
        let mut relaying = pin!(relay((&local, &timer), client, endpoint, idle, |_| {}));
        let filling = async { while writes.write_all(&[b'x'; 64 * 1024]).await.is_ok() {} };
        let start = shared::clock::now();
        tokio::select! {
            _ = &mut relaying => panic!("it ends"),
            _ = tokio::time::timeout(Duration::from_millis(200), filling) => {}
        }
        for second in seconds {
            read_a_little(&mut reads, sends.as_fd()).await;
            local.timers.tick(start + Duration::from_secs(second));
            assert!(futures::poll!(relaying.as_mut()).is_pending(), "{second}");
        }
    }
}

/// Like TLS, a sink may accept bytes and hold them back for more.
#[tokio::test]
async fn held_back_bytes_are_flushed_when_nothing_follows() {
    let buffers = Buffers::new();
    let (quota, pipes) = (Quota::new(Budget::new(1 << 20)), Pipes::new(Budget::new(0)));
    let lent = Lent { buffers: &buffers, quota: &quota, pipes: &pipes };
    let (mut source, mut from) = duplex(64);
    let (to, mut sink) = duplex(64);
    let mut to = tokio::io::BufStream::new(to);
    source.write_all(b"hello").await.unwrap();
    let mut direction = Direction::new(BytesMut::new());
    let step = poll_fn(|cx| Poll::Ready(direction.step(&mut from, &mut to, lent, cx))).await;
    assert!(step.is_pending());
    let mut seen = [0; 5];
    let Poll::Ready(read) = futures::poll!(pin!(sink.read_exact(&mut seen))) else {
        panic!("it waits for more")
    };
    assert_eq!((read.unwrap(), &seen), (5, b"hello"));
}

/// The same bytes in the same order, first read and then spliced, with a sink that stalls.
#[tokio::test]
async fn relayed_bytes_keep_content_and_order_when_spliced() {
    let local = Rc::new(Local::for_tests());
    let timer = local.timers.timer();
    let (mut near, mut client) = pair().await;
    let (mut endpoint, mut far) = pair().await;
    let bytes: Vec<u8> = (0..40 * PLENTY as u32).map(|at| (at / 7 + at / 1_000) as u8).collect();
    let moved = std::cell::Cell::new(Moved::default());
    let relaying = async {
        let client = End { stream: &mut client, input: BytesMut::from(&bytes[..10]) };
        let endpoint = End { stream: &mut endpoint, input: BytesMut::new() };
        let tell = |more: Moved| {
            let so_far = moved.get();
            moved.set(Moved { up: so_far.up + more.up, down: so_far.down + more.down });
        };
        relay((&local, &timer), client, endpoint, Idle::of(Duration::from_secs(60)), tell).await
    };
    let speaking = async {
        let (mut reads, mut writes) = near.split();
        let writing = async {
            writes.write_all(&bytes[10..]).await.unwrap();
            writes.shutdown().await.unwrap();
        };
        let mut heard = Vec::new();
        let (_, read) = tokio::join!(writing, reads.read_to_end(&mut heard));
        read.unwrap();
        heard
    };
    let answering = async {
        let mut heard = vec![0; bytes.len() / 2];
        far.read_exact(&mut heard).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        far.write_all(&bytes).await.unwrap();
        far.read_to_end(&mut heard).await.unwrap();
        far.shutdown().await.unwrap();
        heard
    };
    let (relayed, answered, heard) = tokio::join!(relaying, speaking, answering);
    relayed.unwrap();
    assert!(answered == bytes && heard == bytes);
    let all = bytes.len() as u64;
    assert_eq!((moved.get(), local.quota.held()), (Moved { up: all, down: all }, 0));
}
