//! The command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use integration_tests::load::Scale;
use shared::duration;
use shared::tls::join::JoinToken;

const HOLD: &str = "\
Each proxy is the session of a real one over a connection of its own: it says Hello, hashes what it is sent, compares roots,
answers every chunk and heartbeat, and comes back with jitter when its stream ends. It has no tables and takes no requests,
and what many of them have in common is in memory once.

With --edit the fleet is timed: the addresses of EndpointSlices in that folder, which has to be one that the control plane
reads, are changed, and it is measured until each proxy, and the last one, has applied the change and answered it.

Ctrl-c, or the end of --for: every proxy says goodbye, and the report is printed. A second ctrl-c ends it at once.
It ends with status 1 where proxies were refused, cut or wrong, or where an edit did not arrive everywhere.

Examples:
  firth-load hold http://127.0.0.1:15010 --insecure --proxies 1000
  firth-load hold https://192.0.2.1:15010 --join \"$(firth token --ca-dir state/authority)\" --proxies 1000 --pace 200
  firth-load hold http://127.0.0.1:15010 --insecure --for 30s --edit manifests --rate 200 --pid $(pidof firth-control-plane) -o json";

const BENCH: &str = "\
It starts firth-control-plane itself, from beside its own binary, over a folder of manifests that it makes, and a fleet in this process
as `hold` has it, in plaintext without --tls. What it measures has the goal beside it; goals are those of s0, from 5,000 Services on
those of s1.

  1 start        from exec until ready, memory
  2 sync         one proxy, then all at once, with nothing; memory of a connection
  3 quiet        an EndpointSlice changed 5 times a second: from the rename to the first proxy, each, and the last
  4 churn        the same 200 times a second
  5 recompiling  the same 20 times a second, while changes of the ConfigMap have everything compiled anew, one after another
  6 storm        all streams are cut at once
  7 restart      the control plane is killed and started again
  8 failover     two control planes over one folder; one is killed, quietly and under 200 edits a second
  9 rollback     a changed route, all routes changed; back to the version before, and on again

1 and 2 always run. An edit begins with the rename of its file and ends when a proxy has applied and answered it, so what the kernel
takes to tell of the file, and what the fleet itself takes on its one thread, is in it.
Processes and folders are gone when it ends, however it does. It ends with status 1 where an edit did not arrive everywhere.

Examples:
  firth-load bench
  firth-load bench --scale s1 --seconds 30s -o json
  firth-load bench --scale s1 --proxies 1 --phases 3,4,5
  firth-load bench --tls --certificates 1000 --phases 3,6
  firth-load bench --services 200 --endpoints 2000 --proxies 50 --phases 3,5";

/// Puts a control plane under load: as many proxies as it should hold, without their traffic
#[derive(Debug, Parser)]
#[command(name = "firth-load", version, max_term_width = 110)]
pub(crate) struct Args {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Connect proxies to a control plane, hold them, and say what that takes
    #[command(after_help = HOLD)]
    Hold(HoldArgs),
    /// Start control planes over a folder that is made, and measure what happens to them beside the goals
    #[command(after_help = BENCH)]
    Bench(BenchArgs),
}

/// Of `firth-load bench`.
#[derive(Debug, Parser)]
pub(crate) struct BenchArgs {
    /// A reference: s0 is 1,000 Services, 10,000 endpoints and 100 proxies, s1 ten times that
    #[arg(long, value_name = "SCALE", default_value = "s0")]
    pub(crate) scale: Preset,
    /// Services in place of the reference's, each with an Ingress of its own host
    #[arg(long, value_name = "N")]
    pub(crate) services: Option<NonZeroUsize>,
    /// Endpoints of all Services together, in place of the reference's
    #[arg(long, value_name = "N")]
    pub(crate) endpoints: Option<NonZeroUsize>,
    /// Proxies in place of the reference's
    #[arg(long, value_name = "N")]
    pub(crate) proxies: Option<NonZeroUsize>,
    /// Ingresses that have a certificate of their own
    #[arg(long, value_name = "N", default_value = "0")]
    pub(crate) certificates: usize,
    /// Encrypt the streams, as the chart does: all proxies show one certificate, got with a token. Without 9, which asks who calls
    #[arg(long)]
    pub(crate) tls: bool,
    /// Phases to run after the first two, such as 3,5; without it all
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=9))]
    pub(crate) phases: Vec<u8>,
    /// How long edits go on in a phase
    #[arg(long, value_name = "SPAN", default_value = "20s", value_parser = duration::parse)]
    pub(crate) seconds: Duration,
    /// Folder of firth-control-plane, and with --tls of firth; without it that of this program
    #[arg(long, value_name = "DIR")]
    pub(crate) bin: Option<PathBuf>,
    /// How the report is printed: text for people, json for programs
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

impl BenchArgs {
    /// The size that is asked for.
    pub(crate) fn scale(&self) -> Scale {
        let preset = match self.scale {
            Preset::S0 => Scale::S0,
            Preset::S1 => Scale::S1,
        };
        let or = |said: Option<NonZeroUsize>, preset| said.map_or(preset, NonZeroUsize::get);
        Scale {
            services: or(self.services, preset.services),
            endpoints: or(self.endpoints, preset.endpoints),
            proxies: or(self.proxies, preset.proxies),
            certificates: self.certificates,
        }
    }
}

/// Reference scales.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Preset {
    /// 1,000 Services, 10,000 endpoints, 100 proxies.
    S0,
    /// Ten times that.
    S1,
}

/// Of `firth-load hold`.
#[derive(Debug, Parser)]
pub(crate) struct HoldArgs {
    /// Control planes, such as https://192.0.2.1:15010: each proxy takes any one of them
    #[arg(value_name = "URL", required = true, num_args = 1..)]
    pub(crate) urls: Vec<String>,
    /// Allow URLs that begin with http://: plaintext, to a control plane with --insecure
    #[arg(long)]
    pub(crate) insecure: bool,
    /// One-time token that `firth token` printed: one certificate is got with it, which all proxies show
    #[arg(long, value_name = "TOKEN", value_parser = token, conflicts_with = "insecure", env = "FIRTH_JOIN", hide_env_values = true)]
    pub(crate) join: Option<JoinToken>,
    /// Proxies
    #[arg(long, short = 'n', value_name = "N", default_value = "1000")]
    pub(crate) proxies: usize,
    /// Proxies that start in a second; without it all of them at once
    #[arg(long, value_name = "N")]
    pub(crate) pace: Option<f64>,
    /// How long to hold them once all are in sync, such as 30s; without it until ctrl-c
    #[arg(long = "for", value_name = "SPAN", value_parser = duration::parse)]
    pub(crate) hold: Option<Duration>,
    /// How long they may take until all are in sync
    #[arg(long, value_name = "SPAN", default_value = "2m", value_parser = duration::parse)]
    pub(crate) patience: Duration,
    /// Folder of manifests that the control plane reads, in which EndpointSlices are changed meanwhile; one object a file
    #[arg(long, value_name = "DIR")]
    pub(crate) edit: Option<PathBuf>,
    /// Changes in a second
    #[arg(long, value_name = "N", default_value = "10", requires = "edit")]
    pub(crate) rate: f64,
    /// Process of the control plane on this machine: its memory and processor time are in the report
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// The fleet that the proxies belong to
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) group: String,
    /// How the report is printed: text for people, json for programs
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

/// How a report is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Format {
    /// Lines.
    Text,
    /// One object.
    Json,
}

/// A token is a secret: what cannot be read is not repeated.
fn token(text: &str) -> Result<JoinToken, &'static str> {
    JoinToken::parse(text).map_err(|_| "expected what `firth token` prints")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_is_sound() {
        Args::command().debug_assert();
        let parse = |words: &str| Args::try_parse_from(words.split(' '));
        assert!(parse("firth-load hold http://a:1 --insecure -n 3 --for 2s -o json").is_ok());
        assert!(parse("firth-load hold").is_err(), "a control plane is needed");
        assert!(parse("firth-load hold http://a:1 --insecure --rate 5").is_err(), "nothing is edited");
        let Ok(Args { command: Command::Bench(args) }) =
            parse("firth-load bench --scale s1 --proxies 7 --phases 3,5")
        else {
            panic!("a benchmark");
        };
        assert_eq!(args.scale(), Scale { proxies: 7, ..Scale::S1 });
        assert_eq!(args.phases, [3, 5]);
        assert!(
            parse("firth-load bench --phases 10").is_err() && parse("firth-load bench --services 0").is_err()
        );
        let error = parse("firth-load hold https://a:1 --join firth-join.a.secret").unwrap_err();
        assert!(error.to_string().contains("firth token"), "{error}");
    }
}
