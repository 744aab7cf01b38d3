//! Non-blocking log output to standard error: a bounded queue, and a thread that writes.
//!
//! **Invariant:** logging never blocks. A reader that has stopped reading costs log lines, which are counted, and
//! nothing else: no commit, no stream, no request.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use tracing::warn;
use tracing_subscriber::fmt::MakeWriter;

use crate::budget::{Budget, Held};
use crate::clock;

/// Limit of queued lines.
const LINES: usize = 4_096;
/// Limit of queued bytes.
const BYTES: usize = 4 * 1024 * 1024;

/// Accepts lines. Clones share the thread.
#[derive(Clone, Debug)]
pub(super) struct Lossy {
    lines: SyncSender<Line>,
    waiting: Budget,
    lost: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Line {
    text: Box<[u8]>,
    _held: Held,
}

impl Lossy {
    /// Starts the thread, which writes to `sink`, reports losses once it can write again, and ends when every clone of
    /// this was dropped.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn to(sink: impl Write + Send + 'static) -> io::Result<Self> {
        let (lines, waiting) = sync_channel(LINES);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&lost);
        std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || write_all(&waiting, sink, &counted))?;
        Ok(Self { lines, waiting: Budget::new(BYTES), lost })
    }

    /// Waits until everything is written, at most for that long. Returns whether it is.
    pub(super) fn finish(&self, patience: Duration) -> bool {
        const LOOK: Duration = Duration::from_millis(1);
        let until = clock::now() + patience;
        // A line occupies the budget until it is written.
        while self.waiting.used() > 0 {
            if clock::now() >= until {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    }

    /// Number of lost lines.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn send(&self, text: &[u8]) {
        let line = self.waiting.take(text.len()).map(|held| Line { text: text.into(), _held: held });
        if line.is_none_or(|line| self.lines.try_send(line).is_err()) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn write_all(waiting: &Receiver<Line>, mut sink: impl Write, lost: &AtomicU64) {
    let mut told = 0;
    while let Ok(line) = waiting.recv() {
        // The reader has gone, or the disk is full: there is nowhere to report that.
        let _ = sink.write_all(&line.text).and_then(|()| sink.flush());
        let now = lost.load(Ordering::Relaxed);
        if now > told {
            warn!(lines = now - told, "log lines were lost: standard error was not read fast enough");
            told = now;
        }
    }
}

/// The subscriber writes one whole line at a time.
impl Write for &Lossy {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.send(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lossy {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> &'a Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, pipe};
    use std::sync::mpsc::channel;

    use super::*;

    /// Longer than any test.
    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn a_pipe_that_is_never_read_holds_nobody_up() {
        let (mut reader, writer) = pipe().unwrap();
        let log = Lossy::to(writer).unwrap();
        let (done, is_done) = channel();
        let count = 3 * LINES as u64;
        std::thread::spawn(move || {
            for number in 0..count {
                // Three times what fits into the pipe and the queue together.
                log.send(format!("{number:1023}\n").as_bytes());
            }
            done.send(log).unwrap();
        });
        let log = is_done.recv_timeout(LONG).expect("who logs does not wait");
        assert!(!log.finish(Duration::ZERO), "the thread waits for its reader");
        let lost = log.lost();
        assert!(lost > 0 && lost < count, "{lost} of {count} lost");
        assert!(log.waiting.used() <= BYTES);

        // The thread ends with the last line, and closes the pipe.
        drop(log);
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        let numbers = read.lines().map(|line| line.trim().parse::<u64>().unwrap());
        let numbers: Vec<_> = numbers.collect();
        assert_eq!(numbers.len() as u64, count - lost, "what was not lost is whole");
        assert!(numbers.is_sorted(), "and in order");
    }

    #[test]
    fn bytes_are_bounded_too() {
        let (reader, writer) = pipe().unwrap();
        let log = Lossy::to(writer).unwrap();
        for _ in 0..8 {
            log.send(&vec![b'x'; BYTES / 4]);
        }
        assert!(log.waiting.used() <= BYTES);
        assert!(log.lost() >= 3, "{}", log.lost());
        drop(reader);
    }

    #[test]
    fn a_reader_that_is_gone_is_no_error() {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let log = Lossy::to(writer).unwrap();
        log.send(b"nobody reads this\n");
        assert!(log.finish(LONG));
    }
}
