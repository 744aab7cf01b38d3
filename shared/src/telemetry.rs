//! Logs: to standard error, one line an event, as text or JSON. Panics are logged and counted too.

mod lossy;
mod seldom;

use std::error::Error;
use std::fmt::Display;
use std::io;
use std::iter;
use std::panic::PanicHookInfo;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::{Args, ValueEnum};
use tracing::error;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use lossy::Lossy;
pub use seldom::Seldom;

/// How long the end of the process waits for its last lines: a reader that has stopped reading does not hold it up.
const FINISH: Duration = Duration::from_secs(1);

/// The one log of the process. The subscriber is the process' too.
static LOG: OnceLock<Lossy> = OnceLock::new();
static PANICS: AtomicU64 = AtomicU64::new(0);

/// An error with its causes, innermost last, as a line of a log has it.
pub fn chain(error: &dyn Error) -> String {
    iter::successors(error.source(), |&error| error.source())
        .fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// How logs look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// Flags about logs.
#[derive(Clone, Debug, Args)]
pub struct LogArgs {
    /// Log filter: error, warn, info, debug, trace, or with targets, such as `info,control_plane::index=debug`
    #[arg(long, env = "FIRTH_LOG", default_value = "info", value_name = "FILTER")]
    pub log: String,
    /// Format of log lines
    #[arg(long, env = "FIRTH_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    pub log_format: Format,
}

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// Of `--log`.
    #[error("--log: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// Of the thread that writes.
    #[error("cannot start the thread that writes the log: {0}")]
    Thread(#[from] io::Error),
}

/// The log of the process, until it ends.
#[derive(Debug)]
pub struct Logs(());

/// Starts logging to standard error. Later calls do nothing: the first decides.
///
/// # Errors
/// Where `--log` is no filter, or the system gives no thread.
pub fn init(args: &LogArgs) -> Result<Logs, LogError> {
    let filter = filter(&args.log)?;
    let log = Lossy::to(io::stderr())?;
    if LOG.set(log.clone()).is_err() {
        return Ok(Logs(()));
    }
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(log)
        .with_span_events(FmtSpan::NONE)
        .with_ansi(false);
    let _ = match args.log_format {
        Format::Text => builder.compact().try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
    // The usual one writes to standard error itself, and waits for its reader.
    std::panic::set_hook(Box::new(log_panic));
    Ok(Logs(()))
}

/// What is logged. Libraries that log what is no news here are heard where they are asked for by name.
fn filter(said: &str) -> Result<EnvFilter, LogError> {
    let mut filter = EnvFilter::builder().parse(said)?;
    for (library, directive) in [
        // Each failed try as an error: who tries says it once.
        ("kube_client", "kube_client=off"),
        // What peers do wrong, in a line each, with what they said in it: anybody could fill the log with it.
        ("rustls", "rustls=error"),
    ] {
        if !said.contains(library) {
            filter = filter.add_directive(directive.parse()?);
        }
    }
    Ok(filter)
}

/// Log lines that were lost so far.
pub fn lost() -> u64 {
    LOG.get().map_or(0, Lossy::lost)
}

/// Panics of this process so far, on whatever thread and in whatever task.
pub fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    PANICS.fetch_add(1, Ordering::Relaxed);
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let what = panic.payload_as_str().unwrap_or("no message");
    let thread = std::thread::current();
    error!(thread = thread.name().unwrap_or_default(), place, "panicked: {what:?}");
}

impl Logs {
    /// The end of the process: the last lines, then why it failed, if it did. The causes stand in one line; a backtrace
    /// of ours tells an operator nothing.
    pub fn conclude(self, outcome: Result<(), impl Display>) -> ExitCode {
        // Where nobody reads, saying more would wait for ever.
        let is_read = LOG.get().is_none_or(|log| log.finish(FINISH));
        let Err(error) = outcome else {
            return ExitCode::SUCCESS;
        };
        if is_read {
            eprintln!("error: {error:#}");
        }
        ExitCode::FAILURE
    }
}

/// What this build calls itself: version of the package.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::subscriber::with_default;
    use tracing::{info, warn};

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(said: &str) -> Vec<String> {
        let sink = Sink::default();
        let writer = sink.clone();
        let log = tracing_subscriber::fmt()
            .with_env_filter(filter(said).unwrap())
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .without_time()
            .finish();
        with_default(log, || {
            info!("ours");
            warn!(target: "rustls::msgs::handshake", "a peer's");
            error!(target: "rustls::conn", "its own");
            error!(target: "kube_client::client", "a try");
        });
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        text.lines().filter_map(|line| line.rsplit_once(": ")).map(|(_, said)| said.to_owned()).collect()
    }

    #[test]
    fn what_anybody_can_fill_a_log_with_is_asked_for_by_name() {
        assert_eq!(logged("info"), ["ours", "its own"]);
        assert_eq!(logged("debug"), ["ours", "its own"]);
        assert_eq!(logged("info,rustls=warn"), ["ours", "a peer's", "its own"]);
        assert_eq!(logged("warn,kube_client=error"), ["its own", "a try"]);
        assert!(filter("info,,=x").is_err());
    }
}
