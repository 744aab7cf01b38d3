//! The command line. Every flag has an environment variable; the flag has precedence.

mod status;
mod texts;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use shared::telemetry::Format as LogFormat;
use shared::{duration, identity, socket};

pub(crate) use status::StatusArgs;

/// The longest life of a token, in minutes: a week.
const MINUTES_MAX: u64 = 10_080;

/// The control plane that is asked unless another one is named: the one of `firth up`, or of a port-forward.
pub(crate) const SERVER: &str = "https://127.0.0.1:15010";

/// Firth, an ingress for Kubernetes: run it on a folder of manifests, or query a control plane
#[derive(Debug, Parser)]
#[command(name = "firth", version, after_help = texts::ALL, max_term_width = 100)]
pub(crate) struct Args {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands: one that serves, one that checks, the others ask.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run both planes in one process from a folder of manifests, with no cluster
    #[command(after_help = texts::UP)]
    Up(UpArgs),
    /// Say what would be refused, ignored or served differently of manifests, or of the objects of a cluster
    #[command(after_help = texts::CHECK)]
    Check(CheckArgs),
    /// Create a one-time token with which a proxy joins a control plane outside Kubernetes
    #[command(after_help = texts::TOKEN)]
    Token(TokenArgs),
    /// Log in to a control plane: get a client certificate for firth and grpcurl
    #[command(after_help = texts::LOGIN)]
    Login(LoginArgs),
    /// A question to a control plane.
    #[command(flatten)]
    Ask(Question),
}

/// What can be asked, and decided.
#[derive(Debug, Subcommand)]
pub(crate) enum Question {
    /// List the proxies, and the version that each has acknowledged
    Proxies(AskArgs),
    /// Show how many proxies serve the newest version of an Ingress, a Service or a Secret, and why the others do not
    #[command(after_help = texts::STATUS)]
    Status(StatusArgs),
    /// List the resources of the configuration
    Resources(ResourcesArgs),
    /// Show one resource with its body; private keys are never shown
    Get(GetArgs),
    /// List the versions of the configuration, newest first, with the cause of each
    History(HistoryArgs),
    /// Show what differs between two versions: host, path, annotation, before and after
    Diff(DiffArgs),
    /// List what is wrong with objects: rejected, not supported, overridden by another object
    Problems(AskArgs),
    /// Pin the configuration to a version, on all replicas; endpoints and certificates keep changing
    #[command(after_help = texts::PIN)]
    Pin(PinArgs),
    /// Go back to an earlier version, and pin the configuration to it
    #[command(after_help = texts::PIN)]
    Rollback(RollbackArgs),
    /// Remove the pin and release all changes that it held back, in one step (`firth diff` shows them)
    Unpin(AskArgs),
    /// Show the certificate authority between the planes, or rotate it
    #[command(after_help = texts::AUTHORITY)]
    Authority(AuthorityArgs),
}

impl Question {
    /// The flags that each has.
    pub(crate) fn ask(&self) -> &AskArgs {
        match self {
            Self::Proxies(ask) | Self::Problems(ask) | Self::Unpin(ask) => ask,
            Self::Status(args) => &args.ask,
            Self::Resources(args) => &args.ask,
            Self::Get(args) => &args.ask,
            Self::History(args) => &args.ask,
            Self::Diff(args) => &args.ask,
            Self::Pin(args) => &args.decision.ask,
            Self::Rollback(args) => &args.decision.ask,
            Self::Authority(args) => &args.ask,
        }
    }
}

/// Flags of every question.
#[derive(Debug, clap::Args)]
pub(crate) struct AskArgs {
    /// How the answer is printed: text for people, json for programs
    #[arg(short, long, env = "FIRTH_OUTPUT", default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Format,
    /// Address of the control plane; http:// for one with --insecure
    #[arg(long, env = "FIRTH_SERVER", default_value = SERVER, value_name = "URL")]
    pub(crate) server: String,
    /// Folder written by `firth login` or `firth up`. Default: the one for the address in --server, in ~/.config/firth
    #[arg(long, env = "FIRTH_IDENTITY", value_name = "DIR")]
    pub(crate) identity: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AuthorityArgs {
    /// Show the authority, or begin a rotation
    #[arg(value_name = "ACTION", default_value = "show")]
    pub(crate) action: AuthorityAction,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

/// What can be done about the authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AuthorityAction {
    /// Say which roots there are
    Show,
    /// Begin a rotation, and say how it goes on
    Rotate,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TokenArgs {
    /// The folder of the control plane's authority: its --ca-dir, or `authority` in its --state-dir
    #[arg(long, env = "FIRTH_CA_DIR", value_name = "DIR")]
    pub(crate) ca_dir: PathBuf,
    /// Role of whoever joins with the token: proxy, reader or operator
    #[arg(long, env = "FIRTH_ROLE", default_value = "proxy", value_name = "ROLE", value_parser = ["proxy", "reader", "operator"])]
    pub(crate) role: String,
    /// Name of the fleet to join
    #[arg(long, env = "FIRTH_GROUP", default_value = "default", value_name = "NAME", value_parser = group)]
    pub(crate) group: String,
    /// Lifetime of the token, in minutes
    #[arg(long, env = "FIRTH_MINUTES", default_value_t = 60, value_name = "COUNT", value_parser = minutes)]
    pub(crate) minutes: u64,
    /// How the token is printed: text for people, json for programs
    #[arg(short, long, env = "FIRTH_OUTPUT", default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LoginArgs {
    /// Address of the control plane
    #[arg(long, env = "FIRTH_SERVER", default_value = "https://127.0.0.1:15010", value_name = "URL")]
    pub(crate) server: String,
    /// Kubeconfig to authenticate with. Default: the one that kubectl would use
    #[arg(long, env = "FIRTH_KUBECONFIG", value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Default: its current one
    #[arg(long, env = "FIRTH_CONTEXT", value_name = "NAME", conflicts_with = "ca_dir")]
    pub(crate) context: Option<String>,
    /// Namespace that Firth is installed in
    #[arg(long, env = "FIRTH_NAMESPACE", default_value = "firth", value_name = "NS", value_parser = object)]
    pub(crate) namespace: String,
    /// Service account whose role you want: the chart creates RELEASE-reader and RELEASE-operator
    #[arg(long, env = "FIRTH_LOGIN_ACCOUNT", default_value = "firth-reader", value_name = "NAME", value_parser = object)]
    pub(crate) account: String,
    /// ConfigMap with the certificates of the control plane's authority: its --ca-secret
    #[arg(long, env = "FIRTH_CA_SECRET", default_value = "firth-ca", value_name = "NAME", value_parser = object)]
    pub(crate) ca_secret: String,
    /// Outside a cluster: the folder of the control plane's authority
    #[arg(long, env = "FIRTH_CA_DIR", value_name = "DIR", conflicts_with = "kubeconfig")]
    pub(crate) ca_dir: Option<PathBuf>,
    /// With --ca-dir: reader or operator
    #[arg(long, env = "FIRTH_ROLE", default_value = "operator", value_name = "ROLE", value_parser = ["reader", "operator"])]
    pub(crate) role: String,
    /// The fleet that the control plane serves
    #[arg(long, env = "FIRTH_GROUP", default_value = "default", value_name = "NAME", value_parser = group)]
    pub(crate) group: String,
    /// Folder to write the client certificate and its key to. Default: the one for the address in --server, in ~/.config/firth
    #[arg(long, env = "FIRTH_IDENTITY", value_name = "DIR")]
    pub(crate) identity: Option<PathBuf>,
    /// How the outcome is printed: text for people, json for programs
    #[arg(short, long, env = "FIRTH_OUTPUT", default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Format,
}

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns
    Text,
    /// An array where there may be several, else one object
    Json,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ResourcesArgs {
    /// Only this kind
    #[arg(long, env = "FIRTH_KIND", value_name = "KIND", value_parser = kind())]
    pub(crate) kind: Option<String>,
    /// A version of the history instead of the newest: its 12 hex digits, or at least 6
    #[arg(long, visible_alias = "version", env = "FIRTH_CONFIG_VERSION", value_name = "VERSION")]
    pub(crate) at: Option<String>,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    /// Kind of the resource
    #[arg(value_name = "KIND", value_parser = kind())]
    pub(crate) kind: String,
    /// Key of the resource, as `firth resources` lists it
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// A version of the history instead of the newest: its 12 hex digits, or at least 6
    #[arg(long, visible_alias = "version", env = "FIRTH_CONFIG_VERSION", value_name = "VERSION")]
    pub(crate) at: Option<String>,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct HistoryArgs {
    /// Show at most this many; 0: all
    #[arg(long, env = "FIRTH_LIMIT", default_value_t = 20, value_name = "COUNT")]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DiffArgs {
    /// The older version: at least 6 of its hex digits. Default: the one before TO
    #[arg(value_name = "FROM")]
    pub(crate) from: Option<String>,
    /// The newer version. Default: the newest
    #[arg(value_name = "TO")]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PinArgs {
    /// The version: at least 6 of its hex digits. Default: the one that is offered now
    #[arg(value_name = "VERSION")]
    pub(crate) version: Option<String>,
    #[command(flatten)]
    pub(crate) decision: DecisionArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RollbackArgs {
    /// The version, as `firth history` lists it: 6 of its hex digits or more
    #[arg(value_name = "VERSION")]
    pub(crate) version: String,
    #[command(flatten)]
    pub(crate) decision: DecisionArgs,
}

/// How long, and why.
#[derive(Debug, clap::Args)]
pub(crate) struct DecisionArgs {
    /// How long the pin lasts: 90s, 15m, 24h, 7d
    #[arg(long = "for", env = "FIRTH_FOR", value_name = "SPAN", default_value = "24h", value_parser = lasts)]
    pub(crate) lasts: Duration,
    /// Reason, shown to others; at most 200 characters. Without one, a pin that is extended keeps its own
    #[arg(long, env = "FIRTH_NOTE", value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) note: String,
    /// Replace an existing pin of another version, or one that lasts longer
    #[arg(
        long, env = "FIRTH_REPLACE", value_name = "BOOL",
        num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true"
    )]
    pub(crate) replace: bool,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

/// Which Ingresses of manifests are served: the same for whoever checks them and for whoever serves them.
#[derive(Debug, clap::Args)]
pub(crate) struct ClassArgs {
    /// Serve Ingresses of this class if the folder has no IngressClass, and those whose annotation kubernetes.io/ingress.class has this value
    #[arg(long, env = "FIRTH_INGRESS_CLASS", default_value = "nginx", value_name = "NAME")]
    pub(crate) ingress_class: String,
    /// Also serve Ingresses that name no class, unless an IngressClass is the default
    #[arg(
        long, env = "FIRTH_WATCH_INGRESS_WITHOUT_CLASS", value_name = "BOOL",
        num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true"
    )]
    pub(crate) watch_ingress_without_class: bool,
}

impl ClassArgs {
    /// The flags of the control plane.
    pub(crate) fn words(&self) -> [OsString; 2] {
        [
            format!("--ingress-class={}", self.ingress_class).into(),
            format!("--watch-ingress-without-class={}", self.watch_ingress_without_class).into(),
        ]
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Folder of manifests (*.yaml, *.yml, *.json), or files; - for standard input
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) classes: ClassArgs,
    /// Exit with code 1 for any problem, warnings included
    #[arg(
        long, env = "FIRTH_STRICT", value_name = "BOOL",
        num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true"
    )]
    pub(crate) strict: bool,
    /// How problems are printed: text for people, json for programs
    #[arg(short, long, env = "FIRTH_OUTPUT", default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UpArgs {
    /// Folder of manifests (*.yaml, *.yml, *.json): Ingresses, Services, EndpointSlices, Secrets, ConfigMaps
    #[arg(value_name = "DIR", env = "FIRTH_MANIFESTS")]
    pub(crate) dir: PathBuf,
    /// Where HTTP is served; port 0 takes a free one
    #[arg(long, env = "FIRTH_HTTP", default_value = "127.0.0.1:8080", value_name = "ADDR", value_parser = socket::parse)]
    pub(crate) http: SocketAddr,
    /// Where HTTPS is served
    #[arg(long, env = "FIRTH_HTTPS", default_value = "127.0.0.1:8443", value_name = "ADDR", value_parser = socket::parse)]
    pub(crate) https: SocketAddr,
    /// Where the control plane listens, for the proxy, `firth` and grpcurl; loopback only
    #[arg(long, env = "FIRTH_LISTEN", default_value = "127.0.0.1:15010", value_name = "ADDR", value_parser = socket::parse)]
    pub(crate) listen: SocketAddr,
    /// Start no demo backends: Services without EndpointSlices answer 503, and so do endpoints marked as demos
    #[arg(
        long, env = "FIRTH_NO_DEMO", value_name = "BOOL",
        num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true"
    )]
    pub(crate) no_demo: bool,
    #[command(flatten)]
    pub(crate) classes: ClassArgs,
    /// Networks where `auth-url` and `mirror-target` may point even though the address is loopback, link-local, unassigned or of a metadata service. `firth up` allows loopback; firth-data-plane allows none by default
    #[arg(
        long,
        env = "FIRTH_AUTH_NETWORKS",
        value_name = "CIDR",
        value_delimiter = ',',
        default_value = "127.0.0.0/8,::1"
    )]
    pub(crate) auth_networks: Vec<String>,
    /// Access log: stdout, off or a file
    #[arg(long, env = "FIRTH_ACCESS_LOG", default_value = "off", value_name = "WHERE")]
    pub(crate) access_log: String,
    /// Folder for all state that outlives the process. Default: only the authority between the planes is kept, in ~/.local/state/firth
    #[arg(long, env = "FIRTH_STATE_DIR", value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Log filter: error, warn, info or debug, or with targets, such as `warn,data_plane=debug`
    #[arg(long, env = "FIRTH_LOG", default_value = "error", value_name = "FILTER")]
    pub(crate) log: String,
    /// Format of log lines
    #[arg(long, env = "FIRTH_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
}

impl Args {
    /// Parses the command line of this process; prints help or an error and exits if needed.
    /// `variable`: the one that stands for a flag of the planes, given the command and the flag.
    pub(crate) fn of_process(variable: impl Fn(&str, &str) -> Option<String>) -> Self {
        let words: Vec<OsString> = std::env::args_os().collect();
        Self::parse_words(&words).unwrap_or_else(|error| pointed(error, &words, variable).exit())
    }

    /// Parses arguments, the first of which is the name of the program.
    fn parse_words(words: &[OsString]) -> Result<Self, clap::Error> {
        let called = words.first().map(Path::new).and_then(Path::file_stem);
        // kubectl runs plugins with this name; the help then shows what users actually type.
        let command = if called.is_some_and(|name| name == "kubectl-firth") {
            Self::command().bin_name("kubectl firth")
        } else {
            Self::command().bin_name("firth")
        };
        Self::from_arg_matches(&command.no_binary_name(true).try_get_matches_from(words.iter().skip(1))?)
    }
}

/// The error about an unknown flag, with the variable that stands for it in place of advice that leads nowhere.
fn pointed(
    mut error: clap::Error,
    words: &[OsString],
    variable: impl Fn(&str, &str) -> Option<String>,
) -> clap::Error {
    let unknown = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) if error.kind() == ErrorKind::UnknownArgument => flag.clone(),
        _ => return error,
    };
    let command = words.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    if let Some(variable) = variable(command, &unknown) {
        // A similar flag of this command is another one.
        error.remove(ContextKind::SuggestedArg);
        let tip = format!("set {variable} in the environment instead");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// The range that control planes accept.
fn lasts(text: &str) -> Result<Duration, String> {
    duration::within(text, Duration::from_secs(1), Duration::from_secs(366 * 24 * 3600))
}

/// The life of a token.
fn minutes(text: &str) -> Result<u64, String> {
    let count = text.parse().ok().filter(|count| (1..=MINUTES_MAX).contains(count));
    count.ok_or_else(|| {
        format!("expected a number of minutes from 1 to {MINUTES_MAX}, which is a week, got {text:?}")
    })
}

/// A group as it can stand in a certificate.
fn group(text: &str) -> Result<String, String> {
    match identity::group(text) {
        Ok(group) => Ok(group.into()),
        Err(error) => Err(error.to_string()),
    }
}

/// A name that an object can have: it becomes part of a path.
fn object(text: &str) -> Result<String, String> {
    match shared::name::is_subdomain(text) {
        true => Ok(text.to_owned()),
        false => Err(format!("expected the name of an object (a-z, 0-9, - and .), got {text:?}")),
    }
}

fn kind() -> clap::builder::PossibleValuesParser {
    shared::kind::Kind::ALL.map(shared::kind::Kind::as_str).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        Args::parse_words(&words)
    }

    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn what_stands_below_help_fits_a_terminal_of_80_columns() {
        let all = Args::command();
        let texts =
            std::iter::once(&all).chain(all.get_subcommands()).filter_map(clap::Command::get_after_help);
        let texts: Vec<_> = texts.map(ToString::to_string).collect();
        assert!(texts.len() > 6);
        for line in texts.iter().flat_map(|text| text.lines()).filter(|line| line.starts_with(' ')) {
            assert!(line.len() <= 80, "{line}");
        }
        // Prose is one line, which the terminal wraps.
        for lines in texts.iter().map(|text| text.lines().collect::<Vec<_>>()) {
            let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
            assert!(!lines.windows(2).any(|two| two.iter().all(|line| is_prose(line))), "{lines:?}");
        }
    }

    #[test]
    fn every_flag_has_an_environment_variable_and_help() {
        for command in Args::command().get_subcommands() {
            for arg in command.get_arguments().filter(|arg| arg.get_long().is_some()) {
                if arg.get_id() == "help" {
                    continue;
                }
                assert!(arg.get_env().is_some(), "{}", arg.get_id());
                assert!(arg.get_help().is_some(), "{}", arg.get_id());
            }
        }
    }

    #[test]
    fn names_of_a_login_become_parts_of_a_path_and_of_nothing_else() {
        for (flag, name) in
            [("account", "../../x"), ("account", "a?b"), ("namespace", ""), ("ca-secret", "A")]
        {
            let error = parse(&format!("firth login --{flag}={name}")).unwrap_err().to_string();
            assert!(
                error.contains(&format!("--{flag}")) && error.contains("expected the name of an object"),
                "{error}"
            );
        }
        assert!(parse("firth login --account=firth.edge-reader --context=a/b").is_ok());
        assert!(parse("firth login --context=a --ca-dir=b").is_err());
    }

    #[test]
    fn questions_have_a_server_and_a_format() {
        let args = parse("firth proxies -o json --server=http://10.0.0.1:15010").unwrap();
        let Command::Ask(Question::Proxies(ask)) = args.command else {
            panic!("expected proxies");
        };
        assert_eq!(ask.output, Format::Json);
        assert_eq!(ask.server, "http://10.0.0.1:15010");
    }

    #[test]
    fn up_listens_on_loopback_unless_told() {
        let Command::Up(args) = parse("firth up examples/canary").unwrap().command else {
            panic!("expected up");
        };
        assert_eq!(args.http, "127.0.0.1:8080".parse().unwrap());
        assert_eq!(args.https, "127.0.0.1:8443".parse().unwrap());
        assert_eq!(args.listen, "127.0.0.1:15010".parse().unwrap());
    }

    #[test]
    fn a_flag_of_a_plane_is_told_its_variable() {
        let told = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let variable = |command: &str, flag: &str| {
                (command == "up" && flag == "--configmap").then(|| "FIRTH_CONFIGMAP".to_owned())
            };
            pointed(parse(line).unwrap_err(), &words, variable).to_string()
        };
        for line in ["firth up it --configmap a/b", "firth up it --configmap=a/b", "firth up --configmap"] {
            let error = told(line);
            assert!(error.contains("tip: set FIRTH_CONFIGMAP in the environment instead\n"), "{error}");
            assert!(!error.contains("to pass"), "{error}");
        }
        for line in ["firth up it --no-such-flag", "firth diff --configmap a/b"] {
            assert!(!told(line).contains("in the environment"), "{}", told(line));
        }
        assert!(told("firth up it --htttp 127.0.0.1:1").contains("similar argument exists: '--http'"));
    }

    #[test]
    fn an_address_that_is_none_is_told_what_one_is() {
        for address in ["8080", ":8080", "localhost:8080"] {
            let error = parse(&format!("firth up a --http {address}")).unwrap_err().to_string();
            let expected = format!("expected ADDRESS:PORT, such as 127.0.0.1:8080, got \"{address}\"");
            assert!(error.contains(&expected), "{error}");
        }
    }

    #[test]
    fn decisions_last_a_day_unless_said_otherwise() {
        let Command::Ask(Question::Pin(args)) = parse("firth pin").unwrap().command else {
            panic!("expected pin");
        };
        assert_eq!((args.version, args.decision.lasts), (None, Duration::from_secs(86_400)));
        let Command::Ask(Question::Rollback(args)) =
            parse("firth rollback 1f3a92 --for 90s --replace").unwrap().command
        else {
            panic!("expected rollback");
        };
        assert_eq!((&*args.version, args.decision.lasts), ("1f3a92", Duration::from_secs(90)));
        assert!(args.decision.replace);
        assert!(parse("firth rollback").is_err() && parse("firth pin --for soon").is_err());
        for span in ["0s", "367d", "18446744073709551615s"] {
            let error = parse(&format!("firth pin --for {span}")).unwrap_err().to_string();
            assert!(error.contains("--for <SPAN>") && error.contains(" to 36"), "{error}");
        }
    }

    #[test]
    fn the_authority_is_shown_unless_it_is_to_be_rotated() {
        for (line, action) in [
            ("firth authority", AuthorityAction::Show),
            ("firth authority show", AuthorityAction::Show),
            ("firth authority rotate -o json", AuthorityAction::Rotate),
        ] {
            let Command::Ask(Question::Authority(args)) = parse(line).unwrap().command else {
                panic!("expected authority");
            };
            assert_eq!(args.action, action);
        }
        assert!(parse("firth authority drop").is_err());
    }

    #[test]
    fn a_token_is_a_proxy_s_for_an_hour_unless_told() {
        let Command::Token(args) = parse("firth token --ca-dir state/authority").unwrap().command else {
            panic!("expected token");
        };
        assert_eq!((args.role.as_str(), args.minutes), ("proxy", 60));
        assert!(parse("firth token --ca-dir a --role control-plane").is_err());
        assert!(parse("firth token --ca-dir a --minutes 10080").is_ok());
        for minutes in ["0", "10081", "soon"] {
            let error =
                parse(&format!("firth token --ca-dir a --minutes {minutes}")).unwrap_err().to_string();
            assert!(error.contains("expected a number of minutes from 1 to 10080"), "{error}");
        }
    }

    #[test]
    fn a_group_is_one_that_a_certificate_can_name() {
        assert!(parse("firth token --ca-dir a --group edge-1.b_C").is_ok());
        for command in ["token --ca-dir a", "login"] {
            for group in ["", " ", "a b", "a/b", "..", "\u{1b}[2J", "a\n", "\u{e4}"] {
                let words =
                    format!("firth {command} --group").split(' ').map(OsString::from).collect::<Vec<_>>();
                let error = Args::parse_words(&[words, vec![group.into()]].concat()).unwrap_err().to_string();
                assert!(error.contains("--group <NAME>") && error.contains("1 to 253"), "{error}");
            }
        }
    }

    /// What follows a switch is not its value.
    #[test]
    fn a_switch_may_come_before_what_it_is_about() {
        for line in [
            "firth up --no-demo manifests",
            "firth check --strict -",
            "firth check --watch-ingress-without-class=false --strict=true manifests",
            "firth status --wait ingress default/web",
            "firth rollback --replace 1f3a92",
        ] {
            assert!(parse(line).is_ok(), "{line}: {:?}", parse(line).err());
        }
    }

    #[test]
    fn kinds_are_checked() {
        assert!(parse("firth get route a/b/c").is_ok());
        assert!(parse("firth get pod a/b").is_err());
    }

    #[test]
    fn a_plugin_of_kubectl_says_so() {
        let error = parse("/usr/local/bin/kubectl-firth proxies --help").unwrap_err();
        assert!(error.to_string().contains("Usage: kubectl firth proxies"), "{error}");
    }
}
