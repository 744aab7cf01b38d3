//! The access log: each worker formats lines into its own buffer, and one thread writes them out.
//!
//! **Invariant:** a worker never waits for the log. When the writer is behind, lines are dropped and counted.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use tracing::{error, warn};

use crate::metrics::WorkerMetrics;

pub use captured::Captured;
pub use line::{Ask, Format, Source, seconds};
pub use stamp::Time;

mod captured;
mod line;
mod stamp;

/// A worker hands its lines over when it has this many bytes, or at its next tick.
const CHUNK: usize = 32 * 1024;

/// Maximum number of chunks queued for the writer, of all workers together.
const WAITING: usize = 256;

/// How often an idle writer checks whether the log should be reopened.
const LOOK: Duration = Duration::from_millis(200);

/// How long the end of the process waits for the last lines: a reader that has stopped reading does not block it.
const FINISH: Duration = Duration::from_secs(2);

/// Where lines are written to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Target {
    /// Standard output.
    #[default]
    Stdout,
    /// Nowhere.
    Off,
    /// Appended to a file, which is created if missing.
    File(PathBuf),
}

/// `stdout`, `off`, or the path of a file.
impl FromStr for Target {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "stdout" => Self::Stdout,
            "off" => Self::Off,
            path => Self::File(path.into()),
        })
    }
}

/// The sending end for all workers; gives each its [`Lines`].
#[derive(Clone, Debug)]
pub struct Handle {
    chunks: Option<SyncSender<Vec<u8>>>,
}

/// Has the log file reopened by name, after log rotation has renamed the old one.
#[derive(Clone, Debug)]
pub struct Reopen(Arc<AtomicBool>);

impl Reopen {
    /// From the next moment on, lines go to a file of the original name. Has no effect on other targets.
    pub fn reopen(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The writing thread. It ends when every [`Handle`] and [`Lines`] was dropped.
#[derive(Debug)]
pub struct Writer {
    /// Closed when the thread ends.
    ended: Option<Receiver<Infallible>>,
    reopen: Reopen,
}

/// Where the thread writes to.
enum Sink {
    File { path: PathBuf, file: File },
    Other(Box<dyn Write + Send>),
}

impl Sink {
    fn file(path: PathBuf) -> io::Result<Self> {
        let file = File::options().append(true).create(true).open(&path)?;
        Ok(Self::File { path, file })
    }

    fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        match self {
            Self::File { file, .. } => file.write_all(chunk),
            Self::Other(sink) => sink.write_all(chunk).and_then(|()| sink.flush()),
        }
    }

    /// Reopens the file by name. If that fails, lines continue to go to the old one.
    fn reopen(&mut self) {
        let Self::File { path, .. } = self else { return };
        let (path, shown) = (path.clone(), path.display().to_string());
        match Self::file(path) {
            Ok(sink) => *self = sink,
            Err(error) => error!(path = shown, %error, "the access log cannot be opened again"),
        }
    }
}

/// Opens the target and starts its thread.
///
/// # Errors
/// The file cannot be opened or the thread cannot be started.
pub fn start(target: &Target) -> io::Result<(Handle, Writer)> {
    match target {
        Target::Off => Ok((Handle { chunks: None }, Writer { ended: None, reopen: Reopen(Arc::default()) })),
        Target::Stdout => write_to(io::stdout()),
        Target::File(path) => write_into(Sink::file(path.clone())?),
    }
}

/// Starts a thread that writes the lines to `sink`.
///
/// # Errors
/// The thread cannot be started.
pub fn write_to(sink: impl Write + Send + 'static) -> io::Result<(Handle, Writer)> {
    write_into(Sink::Other(Box::new(sink)))
}

fn write_into(sink: Sink) -> io::Result<(Handle, Writer)> {
    let (chunks, waiting) = sync_channel(WAITING);
    let (ending, ended) = sync_channel(0);
    let reopen = Reopen(Arc::default());
    let asked = reopen.clone();
    std::thread::Builder::new().name("access-log".to_owned()).spawn(move || {
        let _ending = ending;
        drain(&waiting, sink, &asked);
    })?;
    let handle = Handle { chunks: Some(chunks) };
    Ok((handle, Writer { ended: Some(ended), reopen }))
}

fn drain(waiting: &Receiver<Vec<u8>>, mut sink: Sink, reopen: &Reopen) {
    let mut broken = false;
    loop {
        let chunk = match waiting.recv_timeout(LOOK) {
            Ok(chunk) => Some(chunk),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        // Even without lines: whoever rotated the file may want its space back.
        if reopen.0.swap(false, Ordering::Relaxed) {
            sink.reopen();
        }
        let Some(chunk) = chunk else { continue };
        // If the reader is gone or the disk is full, requests are served all the same, and writing is retried.
        match sink.write(&chunk) {
            Ok(()) => broken = false,
            Err(failure) if !broken => {
                error!(error = %failure, "the access log cannot be written");
                broken = true;
            }
            Err(_) => {}
        }
    }
}

impl Writer {
    /// For the handler of log rotation.
    pub fn reopen(&self) -> Reopen {
        self.reopen.clone()
    }

    /// Waits until everything is written, for two seconds at most. All handles must have been dropped.
    pub fn finish(self) {
        if !self.finish_within(FINISH) {
            warn!("the access log cannot be written in time; its last lines are lost");
        }
    }

    fn finish_within(self, limit: Duration) -> bool {
        let Some(ended) = self.ended else { return true };
        // A panic in the thread has been reported by the thread itself.
        matches!(ended.recv_timeout(limit), Err(RecvTimeoutError::Disconnected))
    }
}

impl Handle {
    /// The buffer of one worker.
    pub fn lines(&self, metrics: Arc<WorkerMetrics>) -> Lines {
        Lines {
            chunks: self.chunks.clone(),
            metrics,
            buffer: Vec::new(),
            count: 0,
            stamp: stamp::Stamp::default(),
            scratch: Vec::new(),
            usual: Format::default(),
            configured: None,
        }
    }
}

/// The lines of one worker.
#[derive(Debug)]
pub struct Lines {
    chunks: Option<SyncSender<Vec<u8>>>,
    metrics: Arc<WorkerMetrics>,
    buffer: Vec<u8>,
    /// Number of lines in the buffer.
    count: u64,
    stamp: stamp::Stamp,
    scratch: Vec<u8>,
    usual: Format,
    /// The fleet's format, if there is one.
    configured: Option<Arc<Format>>,
}

impl Lines {
    /// Whether they are written anywhere.
    pub fn wanted(&self) -> bool {
        self.chunks.is_some()
    }

    /// Sets the format of further lines; `None`: ingress-nginx' default.
    pub fn follow(&mut self, configured: Option<&Arc<Format>>) {
        if self.configured.as_ref().map(Arc::as_ptr) != configured.map(Arc::as_ptr) {
            self.configured = configured.cloned();
        }
    }

    /// Adds a line in this format, else in the one that was set.
    pub fn write(&mut self, source: &impl Source, format: Option<&Format>) {
        if self.chunks.is_none() {
            return;
        }
        let Self { buffer, stamp, scratch, usual, configured, .. } = self;
        stamp.set(shared::clock::wall());
        format.or(configured.as_deref()).unwrap_or(usual).line(source, stamp, (buffer, scratch));
        self.count += 1;
        if self.buffer.len() >= CHUNK {
            self.flush();
        }
    }

    /// Hands the buffered lines to the writer.
    pub fn flush(&mut self) {
        let Some(chunks) = &self.chunks else { return };
        if self.buffer.is_empty() {
            return;
        }
        let capacity = self.buffer.len().next_power_of_two().min(CHUNK * 2);
        let chunk = std::mem::replace(&mut self.buffer, Vec::with_capacity(capacity));
        let outcome = match chunks.try_send(chunk) {
            Ok(()) => &self.metrics.log_lines,
            Err(_) => &self.metrics.log_dropped,
        };
        outcome.add(self.count);
        self.count = 0;
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests;
