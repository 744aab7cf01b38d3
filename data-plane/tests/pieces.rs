//! Memory held by body pieces that are not read: in proportion to their bytes, however small their sender makes them.

#![allow(unsafe_code, reason = "an allocator is; it is of tests alone")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
#![allow(dead_code, unused_imports, reason = "the harness has more than one test needs")]

#[path = "traffic/harness.rs"]
mod harness;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use harness::*;

/// Bytes in use by the whole process, and their maximum.
static LIVE: AtomicIsize = AtomicIsize::new(0);
static MOST: AtomicIsize = AtomicIsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Counting;

// SAFETY: memory is the system's, given and taken back as the system's allocator wants it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size() as isize, SeqCst) + layout.size() as isize;
        MOST.fetch_max(live, SeqCst);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, SeqCst);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

const STREAMS: u32 = 32;

/// Maximum bytes that one stream may hold, whatever its pieces: its buffers on both sides, and its task.
const EACH: usize = 256 * 1024;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[a, b, c, kind, flags], &stream.to_be_bytes()[..], payload].concat()
}

/// An HTTP/2 client with wide-open windows that reads nothing.
fn client(address: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&address.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    let settings = [&[0, 4][..], &0x7fff_ffff_u32.to_be_bytes()].concat();
    let begin = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(4, 0, 0, &settings),
        frame(8, 0, 0, &0x7fff_0000_u32.to_be_bytes()),
    ];
    stream.write_all(&begin.concat()).unwrap();
    stream
}

#[test]
fn an_answer_of_single_bytes_holds_no_more_than_any_other() {
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&begun);
    let chunks: Arc<[u8]> = b"1\r\nx\r\n".repeat(10_000).into();
    let origin = Origin::raw(move |mut stream, number, _| {
        if read_request(&mut stream, number).is_none() {
            return;
        }
        counted.fetch_add(1, SeqCst);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        while stream.write_all(&chunks).is_ok() {}
        counted.fetch_add(1, SeqCst);
        thread::sleep(PATIENCE);
    });
    let proxy = Proxy::serving(Default::default(), &[origin.address]);
    let mut client = client(proxy.http);
    MOST.store(0, SeqCst);
    let before = LIVE.load(SeqCst);
    let head = [&[0x82, 0x84, 0x86, 0x41, 6][..], b"a.test"].concat();
    for number in 0..STREAMS {
        client.write_all(&frame(1, 5, 2 * number + 1, &head)).unwrap();
    }
    eventually("no endpoint can send more", || begun.load(SeqCst) == 2 * STREAMS as usize);
    let held = usize::try_from(MOST.load(SeqCst) - before).unwrap_or(0);
    let each = held / STREAMS as usize;
    assert!(each <= EACH, "{each} bytes a stream");
}
