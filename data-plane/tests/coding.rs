//! Memory held by responses while they are compressed: no more than the process budget was charged for.

#![allow(unsafe_code, reason = "an allocator is; it is of tests alone")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
#![allow(dead_code, unused_imports, reason = "the harness has more than one test needs")]

#[path = "traffic/harness.rs"]
mod harness;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::sync::atomic::{AtomicIsize, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

use data_plane::local::{Budgets, Limits};
use harness::*;
use shared::policy::LocationPolicy;
use shared::resource::{PathType, Resource, SETTINGS_KEY, Settings};

/// Bytes in use, of the whole process.
static LIVE: AtomicIsize = AtomicIsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Counting;

// SAFETY: memory is the system's, given and taken back as the system's allocator wants it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, SeqCst);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, SeqCst);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Number of concurrent responses.
const ANSWERS: usize = 8;

/// Memory apart from compression: a request, a connection on both sides, buffers, the test itself.
const BESIDE: usize = 320 * 1024;

/// An origin that sends much text for each response, without an end.
fn endless() -> Origin {
    Origin::raw(|mut stream, number, _| {
        while read_request(&mut stream, number).is_some() {
            let text: String = (0..40_000).map(|line| format!("{} of {line}\n", line * line)).collect();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).unwrap();
        }
    })
}

fn proxy(origin: &Origin, budgets: Budgets, brotli: u32) -> Proxy {
    let mut proxy = Proxy::within(Limits::default(), budgets);
    proxy.host("a.test", false, &[("/", PathType::Prefix, "echo")]);
    proxy.endpoints("echo", &[origin.address]);
    let defaults = LocationPolicy {
        use_gzip: Some(true),
        gzip_level: Some(9),
        enable_brotli: Some(true),
        brotli_level: Some(brotli),
        ..LocationPolicy::default()
    };
    proxy.config(vec![(SETTINGS_KEY, Resource::Settings(Settings { defaults, ..Settings::default() }))]);
    proxy
}

/// Sends a request, and reads the response head and the body that arrives: half a megabyte of text.
fn begun(proxy: &Proxy, coding: &str) -> (Client, bool) {
    let mut client = Client::new(proxy.http);
    client.send(format!("GET / HTTP/1.1\r\nHost: a.test\r\nAccept-Encoding: {coding}\r\n\r\n"));
    let mut came = Vec::new();
    let mut some = [0; 64 * 1024];
    client.stream.set_read_timeout(Some(std::time::Duration::from_millis(500))).unwrap();
    let begun = std::time::Instant::now();
    // Until nothing more arrives, however long the first bytes take.
    loop {
        match std::io::Read::read(&mut client.stream, &mut some) {
            Ok(0) => break,
            Ok(count) => came.extend_from_slice(&some[..count]),
            Err(_) if came.len() > 10_000 || begun.elapsed() > PATIENCE => break,
            Err(_) => {}
        }
    }
    let head = String::from_utf8_lossy(&came).into_owned();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head:.100}");
    assert!(came.len() > 10_000, "{}", came.len());
    (client, head.contains("Content-Encoding"))
}

/// The counts are per process: one test at a time.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn compressing_holds_no_more_than_was_set_apart() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let origin = endless();
    let mebibyte = 1024 * 1024;
    for (coding, level, most) in
        [("gzip", 4, 448 * 1024), ("br", 4, 2 * mebibyte), ("br", 5, 7 * mebibyte), ("br", 11, 7 * mebibyte)]
    {
        let budgets = Budgets::default();
        let proxy = proxy(&origin, budgets.clone(), level);
        // Everything that is kept permanently has been allocated.
        drop(begun(&proxy, coding));
        eventually("the first is let go", || budgets.bytes.used() == 0);
        let before = LIVE.load(SeqCst);
        let clients: Vec<_> = (0..ANSWERS).map(|_| begun(&proxy, coding)).collect();
        assert!(clients.iter().all(|(_, is_coded)| *is_coded), "{coding}");
        let each = usize::try_from(LIVE.load(SeqCst) - before).unwrap_or(0) / ANSWERS;
        assert!(each <= most + BESIDE, "{coding}: {each} bytes an answer, {most} are set apart");
        assert!(each >= most / 4, "{coding}: {each} bytes an answer, and {most} are set apart");
    }
}

#[test]
fn without_room_answers_go_as_they_are() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let origin = endless();
    let budgets = Budgets { bytes: shared::budget::Budget::new(650 * 1024), ..Budgets::default() };
    let proxy = proxy(&origin, budgets, 4);
    let (first, is_coded) = begun(&proxy, "br");
    assert!(!is_coded, "2 MiB are not there");
    drop(first);
    let (_first, is_coded) = begun(&proxy, "gzip");
    assert!(is_coded);
    let (_second, is_coded) = begun(&proxy, "gzip");
    assert!(!is_coded, "for one there was room");
}
