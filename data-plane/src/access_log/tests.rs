use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::*;

/// What was written, shared with the test.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        String::from_utf8(bytes).unwrap()
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn record<'a>(attempts: &'a [Attempt]) -> Record<'a> {
    Record {
        client: "10.0.0.9".parse().unwrap(),
        user: None,
        request: [b"GET", b"/a?b=\"c\"", b"HTTP/1.1"],
        status: 200,
        sent: 12,
        referer: None,
        user_agent: Some(b"curl/8\n"),
        received: 78,
        took: Duration::from_micros(1_234_567),
        upstream: "ns-echo-80",
        alternative: "",
        attempts,
        request_id: b"0123456789abcdef0123456789abcdef",
    }
}

fn written(push: impl FnOnce(&mut Lines)) -> String {
    let sink = Sink::default();
    let (handle, writer) = write_to(sink.clone()).unwrap();
    let mut lines = handle.lines(Arc::default());
    drop(handle);
    push(&mut lines);
    drop(lines);
    writer.finish();
    sink.text()
}

/// The line without its time.
fn timeless(line: &str) -> String {
    let (before, rest) = line.split_once('[').unwrap();
    let (_, after) = rest.split_once(']').unwrap();
    format!("{before}[]{after}")
}

#[test]
fn a_line_of_one_try() {
    let attempts = [Attempt {
        address: "10.1.2.3:8080".parse().unwrap(),
        length: 12,
        took: Duration::from_millis(5),
        status: 200,
    }];
    let text = written(|lines| lines.push(&record(&attempts)));
    assert_eq!(
        timeless(&text),
        "10.0.0.9 - - [] \"GET /a?b=\\x22c\\x22 HTTP/1.1\" 200 12 \"-\" \"curl/8\\x0A\" 78 1.234 \
         [ns-echo-80] [] 10.1.2.3:8080 12 0.005 200 0123456789abcdef0123456789abcdef\n"
    );
}

/// What a client says ends neither its quotes nor the line, wherever it stands.
#[test]
fn nothing_that_a_client_says_forges_a_line() {
    const SAID: &[u8] = b"a\" \\x\n\r\t\x00\x1b\x7f\x80\xff";
    let shown = "a\\x22 \\x5Cx\\x0A\\x0D\\x09\\x00\\x1B\\x7F\\x80\\xFF";
    let places: [fn(&mut Record<'static>); 7] = [
        |it| it.user = Some(SAID),
        |it| it.request[0] = SAID,
        |it| it.request[1] = SAID,
        |it| it.request[2] = SAID,
        |it| it.referer = Some(SAID),
        |it| it.user_agent = Some(SAID),
        |it| it.request_id = SAID,
    ];
    for (number, place) in places.into_iter().enumerate() {
        let mut hostile = record(&[]);
        place(&mut hostile);
        let text = written(|lines| lines.push(&hostile));
        assert!(text.contains(shown), "{number}: {text}");
        let line = text.strip_suffix('\n').unwrap();
        assert!(line.bytes().all(|byte| (b' '..0x7f).contains(&byte)), "{number}: {text}");
    }
}

#[test]
fn tries_are_listed_and_none_is_a_dash() {
    let attempt = |host: &str, status| Attempt {
        address: host.parse().unwrap(),
        length: 0,
        took: Duration::ZERO,
        status,
    };
    let attempts = [attempt("10.1.2.3:80", 502), attempt("[fd00::1]:80", 200)];
    let text = written(|lines| {
        lines.push(&record(&attempts));
        lines.push(&record(&[]));
    });
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains(" [] 10.1.2.3:80, [fd00::1]:80 0, 0 0.000, 0.000 502, 200 0"), "{text}");
    assert!(lines[1].contains(" [] - - - - 0"), "{text}");
}

#[test]
fn a_writer_that_is_behind_costs_lines_and_no_time() {
    let metrics: Arc<WorkerMetrics> = Arc::default();
    let (chunks, waiting) = sync_channel(1);
    let mut lines = Handle { chunks: Some(chunks) }.lines(Arc::clone(&metrics));
    for _ in 0..3 {
        lines.push(&record(&[]));
        lines.flush();
    }
    assert_eq!((metrics.log_lines.value(), metrics.log_dropped.value()), (1, 2));
    drop(waiting);
}

#[test]
fn a_sink_that_hangs_does_not_hold_up_the_end() {
    struct Hanging(Receiver<()>);

    impl Write for Hanging {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let (go, wait) = sync_channel(0);
    let (handle, writer) = write_to(Hanging(wait)).unwrap();
    let mut lines = handle.lines(Arc::default());
    lines.push(&record(&[]));
    drop((lines, handle));
    assert!(!writer.finish_within(Duration::from_millis(1)));
    drop(go);
}

#[test]
fn a_file_that_was_renamed_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let (path, old) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let (handle, writer) = start(&Target::File(path.clone())).unwrap();
    let lines = |line: &[u8]| handle.chunks.as_ref().unwrap().send(line.to_vec()).unwrap();
    let is = |path: &std::path::Path, expected: &str| {
        let until = shared::clock::now() + Duration::from_secs(30);
        while std::fs::read_to_string(path).ok().as_deref() != Some(expected) {
            assert!(shared::clock::now() < until, "{}: not {expected:?}", path.display());
            std::thread::yield_now();
        }
    };
    lines(b"one\n");
    is(&path, "one\n");
    std::fs::rename(&path, &old).unwrap();
    lines(b"two\n");
    is(&old, "one\ntwo\n");
    writer.reopen().reopen();
    // Without a further line, too.
    is(&path, "");
    lines(b"three\n");
    is(&path, "three\n");
    is(&old, "one\ntwo\n");
}

#[test]
fn targets() {
    assert_eq!("stdout".parse(), Ok(Target::Stdout));
    assert_eq!("off".parse(), Ok(Target::Off));
    assert_eq!("/var/log/a".parse(), Ok(Target::File("/var/log/a".into())));
}
