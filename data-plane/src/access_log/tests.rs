use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use proptest::prelude::*;
use shared::log_format::{Escape, LogFormat, Value};

use super::*;

/// The written lines, shared with the test.
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

/// A request all of whose values are these bytes.
struct TestSource<'a>(&'a [u8], Captured);

impl Source for TestSource<'_> {
    fn value(&self, value: &Value, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(self.0);
        *value != Value::Missing
    }

    fn captured(&self) -> &Captured {
        &self.1
    }
}

fn source(said: &[u8]) -> TestSource<'_> {
    TestSource(said, Captured::default())
}

fn format(text: &str, escape: Escape) -> Format {
    Format::new(&LogFormat::parse(text).unwrap(), escape)
}

/// The log line of one request, without its end.
fn line(format: &Format, source: &TestSource<'_>) -> String {
    let text = written(|lines| lines.write(source, Some(format)));
    let line = text.strip_suffix('\n').unwrap();
    assert!(!line.contains('\n'), "{line:?}");
    line.to_owned()
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

#[test]
fn values_are_escaped_as_nginx_does() {
    const SAID: &[u8] = b"a\" \\x\n\r\t\x08\x0c\x00\x1b\x7f\xc3\xa4";
    for (escape, shown) in [
        (Escape::Default, &br#"a\x22 \x5Cx\x0A\x0D\x09\x08\x0C\x00\x1B\x7F\xC3\xA4"#[..]),
        (Escape::Json, b"a\\\" \\\\x\\n\\r\\t\\b\\f\\u0000\\u001B\x7f\xc3\xa4"),
        (Escape::None, b"a\" \\x\\x0A\\x0D\t\x08\x0c\x00\x1b\x7f\xc3\xa4"),
    ] {
        let shown = std::str::from_utf8(shown).unwrap();
        assert_eq!(line(&format("<$status>", escape), &source(SAID)), format!("<{shown}>"));
    }
}

#[test]
fn missing_log_value_is_a_dash_or_empty() {
    for (escape, shown) in [(Escape::Default, "<->"), (Escape::Json, "<>"), (Escape::None, "<>")] {
        assert_eq!(line(&format("<$geoip2_city>", escape), &source(b"")), shown);
        // A value that exists but is empty stays empty.
        assert_eq!(line(&format("<$status>", escape), &source(b"")), "<>");
    }
}

#[test]
fn a_line_of_json_is_json() {
    let format = format(r#"{"at": "$time_iso8601", "a": "$status", "b": "$http_x"}"#, Escape::Json);
    let mut source = source(b"\" \\ \x01 }, {\n");
    source.1.put(|out| {
        out.extend_from_slice(b"\"kept\"");
        true
    });
    let line: serde_json::Value = serde_json::from_str(&line(&format, &source)).unwrap();
    assert_eq!((&line["a"], &line["b"]), (&"\" \\ \u{1} }, {\n".into(), &"\"kept\"".into()));
}

#[test]
fn log_values_are_captured_in_the_order_of_phases() {
    let format = format("$sent_http_b|$http_a|$upstream_http_b|$uri|$http_a|$status", Escape::Default);
    let names: Vec<_> = format.asks().iter().map(|ask| format!("{ask:?}")).collect();
    let expected = [r#"OfHead(Header("a"))"#, r#"Came("b")"#, "OfAnswer(Uri)", r#"Sent("b")"#];
    assert_eq!(names, expected);
    let mut source = source(b"200");
    for value in ["head", "came"] {
        source.1.put(|out| {
            out.extend_from_slice(value.as_bytes());
            true
        });
    }
    source.1.put(|_| false);
    assert_eq!(line(&format, &source), "-|head|came|-|head|200");
    assert_eq!(Format::default().asks(), [], "the usual line keeps nothing");
}

proptest! {
    /// Whatever a client sends and however it is escaped, a request is one line; if it is escaped, quoted values do
    /// not end their quotes.
    #[test]
    fn nothing_that_a_client_says_forges_a_line(said in prop::collection::vec(any::<u8>(), 0..40)) {
        for escape in [Escape::Default, Escape::Json, Escape::None] {
            let format = format("\"$http_user_agent\" $request", escape);
            let mut out = Vec::new();
            format.line(&source(&said), &mut Default::default(), (&mut out, &mut Vec::new()));
            prop_assert_eq!(out.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count(), 1);
            if escape == Escape::Default {
                prop_assert_eq!(out.iter().filter(|byte| **byte == b'"').count(), 2);
                prop_assert!(out[..out.len() - 1].iter().all(|byte| (b' '..0x7f).contains(byte)));
            }
        }
    }
}

#[test]
fn formats_follow_the_fleet() {
    let said = Arc::new(format("$status", Escape::Default));
    let text = written(|lines| {
        lines.follow(Some(&said));
        lines.write(&source(b"1"), None);
        lines.follow(None);
        lines.write(&source(b"2"), None);
    });
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "1");
    assert!(lines[1].starts_with("2 - 2 [") && lines[1].ends_with(" [2] [2] 2 2 2 2 2"), "{text}");
}

/// Whoever looks after lines every tick may be late; a busy worker needs no more memory then.
#[test]
fn lines_that_fill_a_piece_are_written_at_once() {
    let (handle, _writer) = write_to(Sink::default()).unwrap();
    let metrics: Arc<WorkerMetrics> = Arc::default();
    let mut lines = handle.lines(Arc::clone(&metrics));
    let long = format(&"x".repeat(1_000), Escape::Default);
    for _ in 0..CHUNK / 1_000 {
        lines.write(&source(b""), Some(&long));
        assert!(lines.buffer.len() < CHUNK && metrics.log_lines.value() == 0);
    }
    lines.write(&source(b""), Some(&long));
    assert_eq!((lines.buffer.len(), metrics.log_lines.value()), (0, (CHUNK / 1_000 + 1) as u64));
}

#[test]
fn a_writer_that_is_behind_costs_lines_and_no_time() {
    let metrics: Arc<WorkerMetrics> = Arc::default();
    let (chunks, waiting) = sync_channel(1);
    let mut lines = Handle { chunks: Some(chunks) }.lines(Arc::clone(&metrics));
    for _ in 0..3 {
        lines.write(&source(b"x"), None);
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
    lines.write(&source(b"x"), None);
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
    // Also without a further line.
    is(&path, "");
    lines(b"three\n");
    is(&path, "three\n");
    is(&old, "one\ntwo\n");
    // Once: until it is asked for again, lines go to that file whatever its name is.
    let other = folder.path().join("access.log.2");
    std::fs::rename(&path, &other).unwrap();
    lines(b"four\n");
    is(&other, "three\nfour\n");
    assert!(!path.exists());
}

#[test]
fn targets() {
    assert_eq!("stdout".parse(), Ok(Target::Stdout));
    assert_eq!("off".parse(), Ok(Target::Off));
    assert_eq!("/var/log/a".parse(), Ok(Target::File("/var/log/a".into())));
}

/// Where a pipe is written to, whoever reads it sees a line when there is one.
#[test]
fn lines_do_not_wait_in_the_sink() {
    let sink = Sink::default();
    let (handle, _writer) = write_to(io::BufWriter::new(sink.clone())).unwrap();
    let mut lines = handle.lines(Arc::default());
    lines.write(&source(b"x"), None);
    lines.flush();
    let until = shared::clock::now() + Duration::from_secs(30);
    while sink.text().is_empty() {
        assert!(shared::clock::now() < until, "it is not written");
        std::thread::yield_now();
    }
}
