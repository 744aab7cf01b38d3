//! The command line. Every flag has an environment variable; `--flag value`, `--flag=value`, `--bool` and
//! `--bool=true` all work.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Command, Parser};
use shared::admin::Local;
use shared::budget::{parse_bytes, parse_memory};
use shared::socket;
use shared::telemetry::LogArgs;
use shared::tls::join::{JoinToken, NoToken};

use crate::access_log::Target;

/// Serve traffic with the configuration of a control plane, and keep serving when it is down
#[derive(Clone, Debug, Parser)]
#[command(name = "firth-data-plane", version, max_term_width = 110)]
pub struct Args {
    /// URL of the control plane, such as https://firth-control-plane:15010; may be given several times. Every address of every URL counts as a replica; they are retried forever
    #[arg(long, env = "FIRTH_CONTROL_PLANE", value_name = "URL", value_delimiter = ',', required = true)]
    pub control_plane: Vec<String>,
    /// Allow an http:// URL, that is an unencrypted connection to a control plane with --insecure
    #[arg(
        long, env = "FIRTH_INSECURE", value_name = "BOOL",
        num_args = 0..=1, default_value = "false", default_missing_value = "true"
    )]
    pub insecure: bool,
    /// One-time token from `firth token`, to join a control plane outside Kubernetes; with --state-dir it is needed only once
    #[arg(long, env = "FIRTH_JOIN", value_name = "TOKEN", hide_env_values = true, value_parser = OneToken)]
    pub join: Option<JoinToken>,
    /// In a cluster, instead of --join: file with a token of this pod's service account for the audience firth.dev
    #[arg(long, env = "FIRTH_TOKEN_FILE", value_name = "FILE", requires = "ca", conflicts_with = "join")]
    pub token_file: Option<PathBuf>,
    /// PEM file with the certificates of the control plane's authority: the token is sent only to a server whose certificate this authority has issued
    #[arg(long, env = "FIRTH_CA", value_name = "FILE", requires = "token_file")]
    pub ca: Option<PathBuf>,
    /// Address for plain HTTP; may be given several times; port 0 takes a free one
    #[arg(long, env = "FIRTH_HTTP", value_name = "ADDR", value_delimiter = ',', value_parser = socket::parse)]
    pub http: Vec<SocketAddr>,
    /// Address for HTTPS; may be given several times; port 0 takes a free one
    #[arg(long, env = "FIRTH_HTTPS", value_name = "ADDR", value_delimiter = ',', value_parser = socket::parse)]
    pub https: Vec<SocketAddr>,
    /// IP address on which the ports of TCP and UDP services are opened. Default: all addresses
    #[arg(long, env = "FIRTH_STREAM_ADDRESS", value_name = "IP")]
    pub stream_address: Option<IpAddr>,
    /// Port on which clients reach plain HTTP; redirects include it unless it is 80
    #[arg(
        long, env = "FIRTH_PUBLIC_HTTP_PORT", value_name = "PORT", default_value = "80",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub public_http_port: u16,
    /// Port on which clients reach HTTPS; redirects include it unless it is 443
    #[arg(
        long, env = "FIRTH_PUBLIC_HTTPS_PORT", value_name = "PORT", default_value = "443",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub public_https_port: u16,
    /// Loopback address or unix:/PATH for /healthz, /readyz, /livez, /metrics, /nginx_status, /configuration/* and /debug/table?host=NAME. Default: none
    #[arg(long, env = "FIRTH_ADMIN", value_name = "ADDR")]
    pub admin: Option<Local>,
    /// Address for probes and scrapes: only /healthz, /readyz, /livez and /metrics. Default: none
    #[arg(long, env = "FIRTH_HEALTH", value_name = "ADDR", value_parser = socket::parse)]
    pub health: Option<SocketAddr>,
    /// Access log: stdout, off, or a file to append to
    #[arg(long, env = "FIRTH_ACCESS_LOG", value_name = "TARGET", default_value = "stdout")]
    pub access_log: Target,
    /// Folder for the last good state, created if missing: with it the proxy can start and serve without a control plane. It holds no private keys of hosts
    #[arg(long, env = "FIRTH_STATE_DIR", value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Folder on a tmpfs for private keys, mode 0700, created if missing. Without it, TLS hosts wait for the control plane after a restart
    #[arg(long, env = "FIRTH_KEY_DIR", value_name = "DIR", requires = "state_dir")]
    pub key_dir: Option<PathBuf>,
    /// Folder for bodies of requests and buffered responses that do not fit in memory, created if missing. Default: --state-dir, else the temporary folder of the system
    #[arg(long, env = "FIRTH_SPILL_DIR", value_name = "DIR")]
    pub spill_dir: Option<PathBuf>,
    /// Limit of the bytes in that folder, for all requests together; further requests get 503. Responses may have half of it
    #[arg(long, env = "FIRTH_SPILL_BYTES", value_name = "BYTES", default_value = "1Gi", value_parser = parse_bytes)]
    pub spill_bytes: u64,
    /// Memory that the internal budgets are sized for, such as 2Gi. Default: the limit of the cgroup, else the memory of the machine
    #[arg(long, env = "FIRTH_MEMORY", value_name = "BYTES", value_parser = parse_memory)]
    pub memory: Option<u64>,
    /// Threads that serve traffic. Default: as many as the CPU limit of the container allows, at least one
    #[arg(long, env = "FIRTH_WORKERS", value_name = "N", value_parser = workers)]
    pub workers: Option<NonZeroUsize>,
    /// Name of the node this proxy runs on. Default: $NODE_NAME, else the hostname
    #[arg(long, env = "FIRTH_NODE", value_name = "NAME")]
    pub node: Option<String>,
    /// Topology zone of the node
    #[arg(long, env = "FIRTH_ZONE", value_name = "ZONE", default_value = "")]
    pub zone: String,
    /// Name of the fleet this proxy belongs to; a control plane serves one fleet
    #[arg(long, env = "FIRTH_GROUP", value_name = "NAME", default_value = "default")]
    pub group: String,
    /// Limit of open client connections, over all workers; beyond it, those that have been idle longest are closed, or new ones if none is idle
    #[arg(long, env = "FIRTH_MAX_CONNECTIONS", value_name = "N", default_value = "65536")]
    pub max_connections: NonZeroUsize,
    /// Timeout of a whole request, from its head to the last byte of its response; 0: none, as in ingress-nginx. It applies to downloads and streams, but not to WebSockets and other tunnels
    #[arg(
        long, env = "FIRTH_REQUEST_TIMEOUT", value_name = "SECONDS", default_value = "0", value_parser = seconds
    )]
    pub request_timeout: Duration,
    /// Networks, such as `127.0.0.0/8`, where `auth-url` and `mirror-target` may point even though the address is loopback, link-local, unassigned or of a metadata service. All other addresses are always allowed
    #[arg(long, env = "FIRTH_AUTH_NETWORKS", value_name = "CIDR", value_delimiter = ',')]
    pub auth_networks: Vec<String>,
    /// Networks, such as `10.0.0.0/8`, where OCSP responders may be, in addition to public addresses
    #[arg(long, env = "FIRTH_OCSP_NETWORKS", value_name = "CIDR", value_delimiter = ',')]
    pub ocsp_networks: Vec<String>,
    /// Consecutive failures (cannot connect, or no response) after which an endpoint gets no requests for a while, provided that at least half of the backend's endpoints remain; 0: never, as in ingress-nginx
    #[arg(long, env = "FIRTH_EJECT_AFTER", value_name = "N", default_value = "5")]
    pub eject_after: u32,
    /// Retries of requests that an endpoint had received, per 100 requests and in addition to 10 a second, per backend and worker; 200: no limit with the default of 3 attempts, as in ingress-nginx
    #[arg(long, env = "FIRTH_RETRY_BUDGET", value_name = "N", default_value = "20")]
    pub retry_budget: u32,
    /// At shutdown: how long the proxy still accepts connections while /readyz already fails
    #[arg(
        long, env = "FIRTH_DRAIN_GRACE", value_name = "SECONDS", default_value = "10", value_parser = seconds
    )]
    pub drain_grace: Duration,
    /// At shutdown, after the grace: how long open connections may take before they are closed
    #[arg(
        long, env = "FIRTH_DRAIN_DEADLINE", value_name = "SECONDS", default_value = "240", value_parser = seconds
    )]
    pub drain_deadline: Duration,
    /// Flags about logs.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Reads a token. Clap repeats a value that it cannot read, and one with a typing error still has its secret: this error
/// goes into the log of the container.
#[derive(Clone, Copy)]
struct OneToken;

impl TypedValueParser for OneToken {
    type Value = JoinToken;

    fn parse_ref(&self, command: &Command, _: Option<&Arg>, value: &OsStr) -> clap::error::Result<JoinToken> {
        let token = value.to_str().ok_or(NoToken).and_then(JoinToken::parse);
        token.map_err(|error| {
            let message =
                format!("invalid value for --join (FIRTH_JOIN), which is not repeated here: {error}\n");
            clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
        })
    }
}

/// Each is a thread with sockets and pools of its own.
fn workers(text: &str) -> Result<NonZeroUsize, String> {
    let count = text.parse::<NonZeroUsize>().ok().filter(|count| count.get() <= 1_024);
    count.ok_or_else(|| format!("expected 1 to 1024, got {text:?}"))
}

/// A year. Unlimited is written as 0.
const MOST_SECONDS: Duration = Duration::from_secs(365 * 24 * 3600);

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .strip_suffix('s')
        .unwrap_or(text)
        .parse()
        .map_err(|_| format!("expected seconds such as 10 or 0.5, got {text:?}"))?;
    // A time plus such a duration is still a valid time.
    let span = Duration::try_from_secs_f64(seconds).ok().filter(|span| *span <= MOST_SECONDS);
    span.ok_or_else(|| format!("expected 0 to {} seconds, got {text:?}", MOST_SECONDS.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::Spill;

    fn parse(words: &[&str]) -> Args {
        let base = ["firth-data-plane", "--control-plane", "http://127.0.0.1:15010"];
        Args::try_parse_from(base.iter().chain(words)).unwrap()
    }

    #[test]
    fn every_way_to_say_a_flag() {
        for words in [&["--insecure"][..], &["--insecure=true"], &["--insecure", "true"]] {
            assert!(parse(words).insecure, "{words:?}");
        }
        assert!(!parse(&["--insecure=false"]).insecure);
        assert!(!parse(&[]).insecure);
        let two = parse(&["--http", "127.0.0.1:80", "--http=[::1]:80", "--insecure", "--workers=3"]);
        assert_eq!(two.http.len(), 2);
        assert_eq!(two.workers.map(NonZeroUsize::get), Some(3));
        assert!(two.insecure);
        assert_eq!(parse(&["--https", "0.0.0.0:443,[::]:443"]).https.len(), 2);
    }

    #[test]
    fn values() {
        assert_eq!(parse(&[]).access_log, Target::Stdout);
        assert_eq!(parse(&["--access-log=off"]).access_log, Target::Off);
        assert_eq!(parse(&["--drain-grace", "0.5"]).drain_grace, Duration::from_millis(500));
        assert_eq!(parse(&["--drain-grace", "3s"]).drain_grace, Duration::from_secs(3));
        let admin = |address| Args::try_parse_from(["it", "--control-plane=http://a:1", "--admin", address]);
        assert!(admin("127.0.0.1:1").is_ok() && admin("unix:/run/a.sock").is_ok());
        assert!(admin("0.0.0.0:1").unwrap_err().to_string().contains("--health"));
        assert_eq!((parse(&[]).spill_bytes, parse(&[]).memory), (Spill::TOTAL as u64, None));
        assert_eq!(parse(&["--spill-bytes=3Mi", "--memory", "2Gi"]).spill_bytes, 3 << 20);
        for text in ["-1", "1e9", "31536001", "inf", "NaN", "1e308"] {
            assert_eq!(seconds(text), Err(format!("expected 0 to 31536000 seconds, got {text:?}")));
        }
        assert!(seconds("31536000").is_ok() && seconds("soon").is_err());
        let error =
            Args::try_parse_from(["it", "--control-plane=http://a:1", "--workers=1000000"]).unwrap_err();
        assert!(error.to_string().contains("1 to 1024"), "{error}");
    }

    #[test]
    fn a_token_with_a_typing_error_is_not_repeated() {
        let text = JoinToken::new([7; 32]).text();
        let secret = text.split('.').nth(2).unwrap();
        let join = |token: &str| Args::try_parse_from(["it", "--control-plane=https://a:1", "--join", token]);
        for bad in [&text[..text.len() - 1], &text["firth-".len()..], secret] {
            let error = join(bad).unwrap_err();
            for message in [error.to_string(), format!("{error:?}")] {
                assert!(message.contains("--join") && message.contains("FIRTH_JOIN"), "{message}");
                assert!(message.contains("firth-join.ID.SECRET.PIN"), "{message}");
                assert!(!message.contains(secret), "{message}");
            }
        }
        assert_eq!(join(&text).unwrap().join, JoinToken::parse(&text).ok());
    }

    #[test]
    fn the_command_is_sound() {
        use clap::CommandFactory as _;
        Args::command().debug_assert();
    }
}
