//! The access log: a worker formats lines into a buffer of its own, a thread writes them out.
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

pub use kept::Kept;
pub use line::{Ask, Format, Source, seconds};
pub use stamp::Time;

mod kept;
mod line;
mod stamp;

/// A worker hands its lines over when there are so many bytes of them, or at its next tick.
const CHUNK: usize = 32 * 1024;

/// Chunks that wait for the writer at most, of all workers together.
const WAITING: usize = 256;

/// How often an idle writer looks whether its file was renamed.
const LOOK: Duration = Duration::from_millis(200);

/// How long the end of the process waits for the last lines: a reader that has stopped reading does not hold it up.
const FINISH: Duration = Duration::from_secs(2);

/// Where lines go.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Target {
    /// Standard output.
    #[default]
    Stdout,
    /// Nowhere.
    Off,
    /// The end of a file, made when missing.
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

/// The writing end of all workers; gives each its [`Lines`].
#[derive(Clone, Debug)]
pub struct Handle {
    chunks: Option<SyncSender<Vec<u8>>>,
}

/// Has the file opened again by its name, after log rotation gave the old one another.
#[derive(Clone, Debug)]
pub struct Reopen(Arc<AtomicBool>);

impl Reopen {
    /// Lines go to a file of the old name from the next moment on. Nothing happens where lines go elsewhere.
    pub fn reopen(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The thread that writes. It ends when every [`Handle`] and [`Lines`] is gone.
#[derive(Debug)]
pub struct Writer {
    /// Closed by the thread when it ends.
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

    /// Opens the file's name anew. Where that fails, lines go on to where they went.
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
/// When the file cannot be opened or the thread not started.
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
/// When the thread cannot be started.
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
        // Without lines too: whoever rotated the file may want its space back.
        if reopen.0.swap(false, Ordering::Relaxed) {
            sink.reopen();
        }
        let Some(chunk) = chunk else { continue };
        // A reader that went, or a full disk: requests are served all the same, and writing is tried again.
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
    /// For whoever hears of log rotation.
    pub fn reopen(&self) -> Reopen {
        self.reopen.clone()
    }

    /// Waits until everything is written, for two seconds at most. All handles have to be gone.
    pub fn finish(self) {
        if !self.finish_within(FINISH) {
            warn!("the access log cannot be written in time; its last lines are lost");
        }
    }

    fn finish_within(self, limit: Duration) -> bool {
        let Some(ended) = self.ended else { return true };
        // A panic there has been reported by the thread itself.
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
            said: None,
        }
    }
}

/// One worker's lines.
#[derive(Debug)]
pub struct Lines {
    chunks: Option<SyncSender<Vec<u8>>>,
    metrics: Arc<WorkerMetrics>,
    buffer: Vec<u8>,
    /// Lines in the buffer.
    count: u64,
    stamp: stamp::Stamp,
    scratch: Vec<u8>,
    usual: Format,
    /// What the fleet says in its place.
    said: Option<Arc<Format>>,
}

impl Lines {
    /// Whether anybody reads them.
    pub fn wanted(&self) -> bool {
        self.chunks.is_some()
    }

    /// Lines are of this format from now on; `None`: of ingress-nginx' own.
    pub fn follow(&mut self, said: Option<&Arc<Format>>) {
        if self.said.as_ref().map(Arc::as_ptr) != said.map(Arc::as_ptr) {
            self.said = said.cloned();
        }
    }

    /// Adds a line: of this format, else of the one that is followed.
    pub fn write(&mut self, source: &impl Source, format: Option<&Format>) {
        if self.chunks.is_none() {
            return;
        }
        let Self { buffer, stamp, scratch, usual, said, .. } = self;
        stamp.set(shared::clock::wall());
        format.or(said.as_deref()).unwrap_or(usual).line(source, stamp, (buffer, scratch));
        self.count += 1;
        if self.buffer.len() >= CHUNK {
            self.flush();
        }
    }

    /// Hands what there is to the writer.
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
