//! Logs: to standard error, one line an event, as text or JSON.

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

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
    /// What is logged: error, warn, info, debug, trace, or targets such as `info,control_plane::index=debug`
    #[arg(long, env = "FIRTH_LOG", default_value = "info", value_name = "FILTER")]
    pub log: String,
    /// How log lines look
    #[arg(long, env = "FIRTH_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    pub log_format: Format,
}

/// Starts logging to standard error. Later calls do nothing: the first decides.
///
/// # Errors
/// Where `--log` is no filter.
pub fn init(args: &LogArgs) -> Result<(), tracing_subscriber::filter::ParseError> {
    let mut filter = EnvFilter::builder().parse(&args.log)?;
    // A library that logs each failed try as an error: who tries says it once. Asked for by name it is heard.
    if !args.log.contains("kube_client") {
        filter = filter.add_directive("kube_client=off".parse()?);
    }
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_span_events(FmtSpan::NONE)
        .with_ansi(false);
    let _ = match args.log_format {
        Format::Text => builder.compact().try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
    Ok(())
}

/// What this build calls itself: version of the package.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
