//! Logging to standard error, one line per event, as text or JSON. Panics are logged and counted, too.

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

/// How long the end of the process waits for the last lines: a reader that has stopped reading does not delay it.
const FINISH: Duration = Duration::from_secs(1);

/// The process' log; the subscriber is global, too.
static LOG: OnceLock<Lossy> = OnceLock::new();
static PANICS: AtomicU64 = AtomicU64::new(0);

/// tracing may be built to speak to `log`, too, and then asks for each span whether that listens, unless its level is
/// cut.
const _: () = assert!(
    cfg!(debug_assertions) || log::STATIC_MAX_LEVEL as usize <= log::LevelFilter::Debug as usize,
    "`log` is cut in releases like tracing (Cargo.toml)"
);

/// What links to the manual of a library begin with, in its errors.
const LINK: &str = ": https://docs.rs/";

/// An error with its causes, innermost last, on one line. Some errors repeat their cause: each text is there once. What
/// they say to programmers is left out.
pub fn chain(error: &dyn Error) -> String {
    let text =
        iter::successors(error.source(), |&error| error.source()).fold(error.to_string(), |text, cause| {
            let cause = cause.to_string();
            if text.contains(&cause) { text } else { format!("{text}: {cause}") }
        });
    without_links(text)
}

/// The text of an error without a link to the manual of a library.
pub fn without_links(text: String) -> String {
    let Some((before, link)) = text.split_once(LINK) else {
        return text;
    };
    let end = link.find([' ', ':', ',', ';', ')', '"']).unwrap_or(link.len());
    format!("{before}{}", &link[end..])
}

/// The format of logs.
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
    /// Log filter: error, warn, info or debug, or with targets, such as `info,control_plane::index=debug`
    #[arg(long, env = "FIRTH_LOG", default_value = "info", value_name = "FILTER")]
    pub log: String,
    /// Format of log lines
    #[arg(long, env = "FIRTH_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    pub log_format: Format,
}

/// Why logging cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// `--log` is invalid.
    #[error("--log: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// The writing thread cannot be started.
    #[error("cannot start the thread that writes the log: {0}")]
    Thread(#[from] io::Error),
}

/// The process' log, until its end.
#[derive(Debug)]
pub struct Logs(());

/// Starts logging to standard error. Later calls have no effect.
///
/// # Errors
/// If `--log` is invalid, or the thread cannot be started.
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
    // The default hook writes to standard error itself, and waits for its reader.
    std::panic::set_hook(Box::new(log_panic));
    Ok(Logs(()))
}

/// What is logged. Noisy libraries are logged only if they are named.
fn filter(said: &str) -> Result<EnvFilter, LogError> {
    let mut filter = EnvFilter::builder().parse(said)?;
    for (library, directive) in [
        // It logs each failed retry as an error; the caller reports that once.
        ("kube_client", "kube_client=off"),
        // It logs what peers do wrong, including what they sent: anybody could fill the log.
        ("rustls", "rustls=error"),
    ] {
        if !said.contains(library) {
            filter = filter.add_directive(directive.parse()?);
        }
    }
    Ok(filter)
}

/// Number of lost log lines.
pub fn lost() -> u64 {
    LOG.get().map_or(0, Lossy::lost)
}

/// Number of panics in this process, on any thread and in any task.
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
    /// Ends the process: writes the last lines, then the error, if there is one, with its causes on one line; a
    /// backtrace would not help an operator.
    pub fn conclude(self, outcome: Result<(), impl Display>) -> ExitCode {
        // If nobody reads, writing more would block forever.
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

/// The version of this build's package.
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
    fn a_cause_that_an_error_repeats_is_told_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("{text}")]
        struct Failed {
            text: &'static str,
            source: io::Error,
        }
        let failed = |text| Failed { text, source: io::ErrorKind::ConnectionRefused.into() };
        assert_eq!(
            chain(&failed("cannot connect: connection refused")),
            "cannot connect: connection refused"
        );
        assert_eq!(chain(&failed("cannot connect")), "cannot connect: connection refused");
    }

    #[test]
    fn nobody_is_sent_to_the_manual_of_a_library() {
        let said = |text: &str| chain(&io::Error::other(text.to_owned()));
        let ended = "peer closed connection without sending TLS close_notify";
        let link = "https://docs.rs/rustls/latest/rustls/manual/_03_howto/index.html#unexpected-eof";
        assert_eq!(said(&format!("transport error: {ended}: {link}")), format!("transport error: {ended}"));
        assert_eq!(said(&format!("lost ({ended}: {link}); again")), format!("lost ({ended}); again"));
        assert_eq!(said("expected https://docs.rs/"), "expected https://docs.rs/");
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
