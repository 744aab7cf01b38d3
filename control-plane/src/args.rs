//! The command line. Every flag has an environment variable; `--flag value`, `--flag=value`, `--bool` and
//! `--bool=true` all work.

mod metrics;
pub mod original;
mod status;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{CommandFactory as _, Parser};
use shared::budget::{parse_bytes, parse_memory};
use shared::duration;
use shared::identity::Role;
use shared::name::ObjectName;
use shared::socket;
use shared::telemetry::LogArgs;

use crate::selector::Selector;

pub use metrics::{Buckets, MetricsArgs};
pub use status::StatusArgs;

/// A value that is absent if its text is empty, as charts and units pass it. An alias, so that clap takes it for one
/// value, and not for a flag that may be absent.
pub type OrNone<T> = Option<T>;

/// The ConfigMap with global settings, if no flag names another.
pub const DEFAULT_CONFIGMAP: &str = "ingress-nginx/ingress-nginx-controller";
/// Default of `--tcp-services-configmap`.
pub const DEFAULT_TCP_SERVICES: &str = "ingress-nginx/tcp-services";
/// Default of `--udp-services-configmap`.
pub const DEFAULT_UDP_SERVICES: &str = "ingress-nginx/udp-services";

/// Watch a cluster or a folder of manifests, and stream the resulting configuration to proxies
#[derive(Clone, Debug, Parser)]
// Of a flag that is given twice the last counts, as in ingress-nginx: charts append to what they set themselves.
#[command(name = "firth-control-plane", version, max_term_width = 110, args_override_self = true)]
pub struct Args {
    /// Folder of manifests (*.yaml, *.yml, *.json) to serve instead of a cluster
    #[arg(long, env = "FIRTH_MANIFESTS", value_name = "DIR", conflicts_with = "kubeconfig")]
    pub manifests: Option<PathBuf>,
    /// Kubeconfig of the cluster. Without it and without --manifests: the cluster that this pod runs in
    #[arg(long, env = "FIRTH_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Address for proxies, grpcurl and the CLI; port 0 takes a free one
    #[arg(long, env = "FIRTH_LISTEN", default_value = "127.0.0.1:15010", value_name = "ADDR", value_parser = socket::parse)]
    pub listen: SocketAddr,
    /// Use plaintext, without authentication: anyone who can reach the address may do everything. Only for loopback
    #[arg(
        long, env = "FIRTH_INSECURE", value_name = "BOOL",
        num_args = 0..=1, default_value = "false", default_missing_value = "true"
    )]
    pub insecure: bool,
    /// Private folder for the certificate authority of the planes, and for join tokens. Default: `authority` in --state-dir; without that, the authority is lost when the process ends
    #[arg(long, env = "FIRTH_CA_DIR", value_name = "DIR")]
    pub ca_dir: Option<PathBuf>,
    /// In a cluster: name of the Secret (and, for the public part, the ConfigMap) that stores that authority, in the namespace of this pod; created if missing
    #[arg(long, env = "FIRTH_CA_SECRET", value_name = "NAME", default_value = "firth-ca")]
    pub ca_secret: String,
    /// Secret with the TLS session ticket keys, in the namespace of this pod; created if missing when `ssl-session-tickets` is on
    #[arg(long, env = "FIRTH_TICKET_KEYS_SECRET", value_name = "NAME", default_value = "firth-ticket-keys")]
    pub ticket_keys_secret: String,
    /// In a cluster: the role (proxy, reader or operator) that tokens of a service account for the audience firth.dev grant; separate several with commas
    #[arg(long, env = "FIRTH_ACCOUNT", value_name = "ROLE=NS/NAME", value_delimiter = ',', value_parser = account)]
    pub account: Vec<(Role, ObjectName)>,
    /// Lifetime of the certificates between the planes, such as 24h; they are renewed after half of it
    #[arg(long, env = "FIRTH_CERTIFICATE_LIFE", value_name = "TIME", default_value = "24h", value_parser = life)]
    pub certificate_life: Duration,
    /// Addresses of the other replicas, such as firth-control-plane-peers.firth.svc:15010, so that answers cover the proxies of all replicas. All addresses of a name are used, except this replica itself; separate several with commas
    #[arg(long, env = "FIRTH_PEERS", value_name = "HOST:PORT", value_delimiter = ',', value_parser = peer)]
    pub peers: Vec<String>,
    /// How long after a start proxies may take to reconnect; until then no change is reported as live on all proxies
    #[arg(long, env = "FIRTH_SETTLE", value_name = "SPAN", default_value = "15s", value_parser = settle)]
    pub settle: Duration,
    /// Address for /metrics, /healthz, /readyz and /livez. Default: none
    #[arg(long, env = "FIRTH_ADMIN", value_name = "ADDR", value_parser = socket::parse)]
    pub admin: Option<SocketAddr>,
    /// Limit of simultaneous connections of proxies and tools. Default: as many as memory and file descriptors allow, at most 4096
    #[arg(long, env = "FIRTH_MAX_CONNECTIONS", value_name = "N")]
    pub max_connections: Option<NonZeroUsize>,
    /// Limit of simultaneous connections, and of streams, per client address; loopback is exempt
    #[arg(long, env = "FIRTH_MAX_CONNECTIONS_PER_PEER", value_name = "N", default_value = "256")]
    pub max_connections_per_peer: NonZeroUsize,
    /// Memory that the internal budgets are sized for, such as 1Gi. Default: the limit of the cgroup, else the memory of the machine
    #[arg(long, env = "FIRTH_MEMORY", value_name = "BYTES", value_parser = parse_memory)]
    pub memory: Option<u64>,
    /// Name of the fleet of proxies that this control plane serves; proxies of other groups are rejected
    #[arg(long, env = "FIRTH_GROUP", default_value = "default", value_name = "NAME")]
    pub group: String,
    /// Secret with the certificate for hosts that have none. Default: each proxy generates its own
    #[arg(
        long, env = "FIRTH_DEFAULT_SSL_CERTIFICATE", value_name = "NS/NAME",
        default_value = "", hide_default_value = true, value_parser = object_or_none
    )]
    pub default_ssl_certificate: OrNone<ObjectName>,
    /// Service whose first port answers requests that match no Ingress. Without it, or if it has no endpoints: 404
    #[arg(
        long, env = "FIRTH_DEFAULT_BACKEND_SERVICE", value_name = "NS/NAME",
        default_value = "", hide_default_value = true, value_parser = object_or_none
    )]
    pub default_backend_service: OrNone<ObjectName>,
    /// Do not write Events about objects that are rejected or that proxies refuse
    #[arg(
        long, env = "FIRTH_DISABLE_SYNC_EVENTS", value_name = "BOOL",
        num_args = 0..=1, default_value = "false", default_missing_value = "true"
    )]
    pub disable_sync_events: bool,
    /// Ignore Ingresses that have a spec.defaultBackend
    #[arg(
        long, env = "FIRTH_DISABLE_CATCH_ALL", value_name = "BOOL",
        num_args = 0..=1, default_value = "false", default_missing_value = "true"
    )]
    pub disable_catch_all: bool,
    /// Do not resolve Services of type ExternalName; they answer 503
    #[arg(
        long, env = "FIRTH_DISABLE_SVC_EXTERNAL_NAME", value_name = "BOOL",
        num_args = 0..=1, default_value = "false", default_missing_value = "true"
    )]
    pub disable_svc_external_name: bool,
    /// Prefix of annotation names, without the slash; annotations with other prefixes are ignored
    #[arg(
        long, env = "FIRTH_ANNOTATIONS_PREFIX", value_name = "NAME",
        default_value = "nginx.ingress.kubernetes.io", value_parser = prefix
    )]
    pub annotations_prefix: String,
    /// Pass TLS connections through to the backend for hosts whose Ingress has the annotation ssl-passthrough
    #[arg(
        long, env = "FIRTH_ENABLE_SSL_PASSTHROUGH", value_name = "BOOL",
        num_args = 0..=1, default_value = "false", default_missing_value = "true"
    )]
    pub enable_ssl_passthrough: bool,
    /// Serve Ingresses whose annotation kubernetes.io/ingress.class has this value
    #[arg(long, env = "FIRTH_INGRESS_CLASS", default_value = "nginx", value_name = "NAME")]
    pub ingress_class: String,
    /// Also serve Ingresses of the IngressClass named by --ingress-class, whatever its controller is
    #[arg(
        long, env = "FIRTH_INGRESS_CLASS_BY_NAME", value_name = "BOOL",
        num_args = 0..=1, default_value = "false", default_missing_value = "true"
    )]
    pub ingress_class_by_name: bool,
    /// Do not read IngressClasses, and ignore spec.ingressClassName: Ingresses are selected by the annotation kubernetes.io/ingress.class alone, or without it by --watch-ingress-without-class. ingress-nginx does this if it may not read IngressClasses
    #[arg(
        long, env = "FIRTH_IGNORE_INGRESS_CLASSES", value_name = "BOOL",
        num_args = 0..=1, default_value = "false", default_missing_value = "true"
    )]
    pub ignore_ingress_classes: bool,
    /// Serve Ingresses of the IngressClasses with this controller
    #[arg(long, env = "FIRTH_CONTROLLER_CLASS", default_value = "k8s.io/ingress-nginx", value_name = "NAME")]
    pub controller_class: String,
    /// Path at which proxies answer health checks on their public ports, for hosts that no Ingress declares
    #[arg(
        long, env = "FIRTH_HEALTH_CHECK_PATH", value_name = "PATH",
        default_value = "/healthz", value_parser = path
    )]
    pub health_check_path: String,
    /// Also serve Ingresses that name no class
    #[arg(
        long, env = "FIRTH_WATCH_INGRESS_WITHOUT_CLASS", value_name = "BOOL",
        num_args = 0..=1, default_value = "false", default_missing_value = "true"
    )]
    pub watch_ingress_without_class: bool,
    /// Watch only this namespace. Objects of other namespaces that an annotation refers to are treated as missing. Default: all namespaces
    #[arg(
        long, env = "FIRTH_WATCH_NAMESPACE", value_name = "NS",
        default_value = "", hide_default_value = true, value_parser = text_or_none
    )]
    pub watch_namespace: OrNone<String>,
    /// Serve only Ingresses in namespaces with these labels, such as `team=a,tier in (web, edge)`. Cannot be combined with --watch-namespace
    #[arg(
        long, env = "FIRTH_WATCH_NAMESPACE_SELECTOR", value_name = "SELECTOR",
        default_value = "", hide_default_value = true, value_parser = selector_or_none
    )]
    pub watch_namespace_selector: OrNone<Selector>,
    /// ConfigMap with global settings, with the keys of ingress-nginx
    #[arg(
        long, env = "FIRTH_CONFIGMAP", value_name = "NS/NAME",
        default_value = DEFAULT_CONFIGMAP, value_parser = object
    )]
    pub configmap: ObjectName,
    /// ConfigMap with TCP services: each key is a port, each value `NAMESPACE/SERVICE:PORT[:PROXY][:PROXY]`
    #[arg(
        long, env = "FIRTH_TCP_SERVICES_CONFIGMAP", value_name = "NS/NAME",
        default_value = DEFAULT_TCP_SERVICES, value_parser = object
    )]
    pub tcp_services_configmap: ObjectName,
    /// ConfigMap with UDP services: each key is a port, each value NAMESPACE/SERVICE:PORT
    #[arg(
        long, env = "FIRTH_UDP_SERVICES_CONFIGMAP", value_name = "NS/NAME",
        default_value = DEFAULT_UDP_SERVICES, value_parser = object
    )]
    pub udp_services_configmap: ObjectName,
    /// Address of the validating webhook (HTTPS), which API servers call before they accept an Ingress. Default: no webhook
    #[arg(
        long, env = "FIRTH_VALIDATING_WEBHOOK", value_name = "ADDR",
        default_value = "", hide_default_value = true, value_parser = address_or_none
    )]
    pub validating_webhook: OrNone<SocketAddr>,
    /// Certificate of the webhook, a PEM file; reloaded when it changes
    #[arg(long, env = "FIRTH_VALIDATING_WEBHOOK_CERTIFICATE", value_name = "FILE")]
    pub validating_webhook_certificate: Option<PathBuf>,
    /// Private key of the webhook, a PEM file; reloaded when it changes
    #[arg(long, env = "FIRTH_VALIDATING_WEBHOOK_KEY", value_name = "FILE")]
    pub validating_webhook_key: Option<PathBuf>,
    /// Instead of a certificate and a key: name of the ValidatingWebhookConfiguration, and of the Service in the namespace of this pod. The
    /// webhook then uses a certificate of the planes' own authority, and keeps the caBundle of the configuration up to date
    #[arg(
        long, env = "FIRTH_VALIDATING_WEBHOOK_CONFIGURATION", value_name = "NAME",
        default_value = "", hide_default_value = true, value_parser = label_or_none
    )]
    pub validating_webhook_configuration: OrNone<String>,
    /// Folder, used by this process alone, for the history and for pins and holds of a manifests folder. Default: they are lost when the process ends
    #[arg(long, env = "FIRTH_STATE_DIR", value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Limit of the configuration versions kept in the history: of the older half, those that were replaced soonest
    /// are dropped first; the newest two are always kept
    #[arg(long, env = "FIRTH_HISTORY_COUNT", value_name = "N", default_value = "1000")]
    pub history_count: usize,
    /// Limit of the memory for the history, such as 64Mi; each version counts with the size of its changes
    #[arg(
        long, env = "FIRTH_HISTORY_BYTES", value_name = "BYTES", default_value = "64Mi", value_parser = parse_bytes
    )]
    pub history_bytes: u64,
    /// How long a version is kept after a newer one replaced it: 90s, 15m, 24h, 7d
    #[arg(
        long, env = "FIRTH_HISTORY_AGE", value_name = "SPAN", default_value = "7d", value_parser = duration::parse
    )]
    pub history_age: Duration,
    /// Namespace in which decisions (pins and holds) are stored. Default: that of --configmap
    #[arg(long, env = "POD_NAMESPACE", value_name = "NS", hide = true)]
    pub pod_namespace: Option<String>,
    /// Flags about the status of Ingresses.
    #[command(flatten)]
    pub status: StatusArgs,
    /// Flags about what proxies export of requests.
    #[command(flatten)]
    pub metrics: MetricsArgs,
    /// Flags about logs.
    #[command(flatten)]
    pub log: LogArgs,
}

impl Args {
    /// The parsed command line of this process, and the flags that only ingress-nginx has. Exits with an error if it is
    /// invalid.
    pub fn of_process() -> (Self, original::Sorted) {
        let sorted = original::sort(std::env::args_os()).unwrap_or_else(|reason| {
            Self::command().error(clap::error::ErrorKind::InvalidValue, reason).exit()
        });
        (Self::parse_from(&sorted.rest), sorted)
    }

    /// The namespace in which decisions are stored.
    pub fn decisions_namespace(&self) -> String {
        let own = self.pod_namespace.clone().filter(|namespace| !namespace.is_empty());
        own.unwrap_or_else(|| self.configmap.namespace.to_string())
    }
}

/// Validates the lifetime of certificates: long enough to renew in time, short enough to limit the damage of a stolen
/// one.
fn life(text: &str) -> Result<Duration, String> {
    duration::within(text, Duration::from_secs(4), Duration::from_secs(365 * 24 * 3600))
}

/// Validates the settle time. Until it has passed, nothing is reported about the whole fleet, so it is limited.
fn settle(text: &str) -> Result<Duration, String> {
    duration::within(text, Duration::ZERO, Duration::from_secs(3600))
}

/// A host and a port; `None` for the empty text that charts and units pass.
fn peer(text: &str) -> Result<String, String> {
    let is_one = text
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|it| it > 0));
    if is_one || text.is_empty() {
        Ok(text.to_owned())
    } else {
        Err(format!("expected HOST:PORT, got {text:?}"))
    }
}

fn account(text: &str) -> Result<(Role, ObjectName), String> {
    let read = text
        .split_once('=')
        .and_then(|(role, account)| Some((Role::parse(role)?, ObjectName::parse(account)?)));
    let read = read.filter(|(role, _)| *role != Role::ControlPlane);
    read.ok_or_else(|| format!("expected ROLE=NAMESPACE/NAME with proxy, reader or operator, got {text:?}"))
}

/// An annotation prefix: a DNS name, as Kubernetes requires.
fn prefix(text: &str) -> Result<String, String> {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b);
    let is_name = !text.is_empty() && text.len() <= 253 && text.bytes().all(is_plain);
    if is_name { Ok(text.to_owned()) } else { Err(format!("expected a DNS name, got {text:?}")) }
}

fn path(text: &str) -> Result<String, String> {
    let is_plain = |b: u8| b.is_ascii_graphic() && !b"?#%\\".contains(&b);
    let is_path = text.starts_with('/') && text.bytes().all(is_plain) && !text.contains("//");
    let climbs = text.split('/').any(|part| part == "." || part == "..");
    match is_path && !climbs {
        true => Ok(text.to_owned()),
        false => Err(format!("expected a path such as /healthz, got {text:?}")),
    }
}

fn object_or_none(text: &str) -> Result<OrNone<ObjectName>, String> {
    text_or_none(text)?.as_deref().map(object).transpose()
}

#[allow(clippy::unnecessary_wraps, reason = "the shape of a value parser")]
fn text_or_none(text: &str) -> Result<OrNone<String>, String> {
    Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
}

fn selector_or_none(text: &str) -> Result<OrNone<Selector>, String> {
    text_or_none(text)?.map(|text| Selector::parse(&text)).transpose()
}

/// A valid Service name (RFC 1035).
fn label_or_none(text: &str) -> Result<OrNone<String>, String> {
    let is_inner = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
    let is_label = text.len() <= 63
        && text.bytes().all(is_inner)
        && text.starts_with(|it: char| it.is_ascii_lowercase())
        && !text.ends_with('-');
    match text_or_none(text)? {
        Some(_) if !is_label => Err(format!("expected the name of a Service, got {text:?}")),
        name => Ok(name),
    }
}

/// An address; as in ingress-nginx, `:8443` means all interfaces.
fn address_or_none(text: &str) -> Result<OrNone<SocketAddr>, String> {
    let bad = |_| format!("expected ADDRESS:PORT or :PORT, got {text:?}");
    let whole = if text.starts_with(':') { format!("[::]{text}") } else { text.to_owned() };
    text_or_none(&whole)?.as_deref().map(str::parse).transpose().map_err(bad)
}

fn object(text: &str) -> Result<ObjectName, String> {
    ObjectName::parse(text).ok_or_else(|| format!("expected NAMESPACE/NAME, got {text:?}"))
}

#[cfg(test)]
mod tests {
    use shared::policy::{RequestMetrics, TextList};

    use super::*;

    #[test]
    fn metrics_are_told_as_they_are_asked_for() {
        let told = |words: &[&str]| parse(words).unwrap().metrics.to_policy("its/class");
        let usual = RequestMetrics { class: Some("its/class".into()), ..RequestMetrics::default() };
        assert_eq!(told(&["--enable-metrics"]), usual);
        let original = parse(&[]).unwrap().metrics.to_policy("k8s.io/ingress-nginx");
        assert_eq!(original, RequestMetrics::default(), "nothing that proxies do anyway");
        let words = ["--metrics-per-host=false", "--time-buckets=0.1,2", "--exclude-socket-metrics=a, b"];
        let list = |texts: [&str; 2]| Some(TextList { values: texts.map(Into::into).to_vec() });
        assert_eq!(
            told(&words),
            RequestMetrics {
                per_host: Some(false),
                time_buckets: list(["0.1", "2"]),
                excluded: list(["a", "b"]),
                ..usual
            }
        );
        assert!(parse(&["--time-buckets=2,1"]).is_err());
    }

    fn parse(words: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from(["firth-control-plane"].iter().chain(words))
    }

    #[test]
    fn the_last_of_two_counts() {
        let twice = ["--configmap=a/b", "--configmap=c/d", "--insecure", "--insecure=false"];
        let args = parse(&twice).unwrap();
        assert_eq!((args.configmap.to_string(), args.insecure), ("c/d".to_owned(), false));
        let accounts = ["--account=proxy=a/b,reader=c/d", "--account=operator=e/f"];
        assert_eq!(parse(&accounts).unwrap().account.len(), 3, "of a list all count");
    }

    #[test]
    fn flags_are_written_in_every_way() {
        for insecure in [
            &["--insecure"] as &[_],
            &["--insecure=true"],
            &["--insecure", "true"],
            &["--insecure", "--group=x"],
        ] {
            assert!(parse(insecure).unwrap().insecure, "{insecure:?}");
        }
        assert!(!parse(&["--insecure=false"]).unwrap().insecure);
        assert!(!parse(&[]).unwrap().insecure);
        let both = [&["--configmap=a/b"] as &[_], &["--configmap", "a/b"]];
        for words in both {
            assert_eq!(parse(words).unwrap().configmap, ObjectName::new("a", "b"));
        }
    }

    #[test]
    fn what_is_empty_is_not_given() {
        for words in
            [&[] as &[_], &["--watch-namespace=", "--default-ssl-certificate=", "--default-backend-service="]]
        {
            let args = parse(words).unwrap();
            assert_eq!((args.watch_namespace, args.default_ssl_certificate), (None, None));
            assert_eq!(args.default_backend_service, None);
        }
        let args = parse(&["--watch-namespace", "a", "--default-ssl-certificate=a/b"]).unwrap();
        assert_eq!(args.watch_namespace.as_deref(), Some("a"));
        assert_eq!(args.default_ssl_certificate, Some(ObjectName::new("a", "b")));
        assert!(parse(&["--default-ssl-certificate=a"]).is_err());
        assert!(parse(&["--default-backend-service=a"]).is_err());
    }

    #[test]
    fn a_prefix_is_a_name() {
        assert_eq!(parse(&[]).unwrap().annotations_prefix, "nginx.ingress.kubernetes.io");
        assert_eq!(parse(&["--annotations-prefix=a.test"]).unwrap().annotations_prefix, "a.test");
        for bad in ["", "a.test/", "A.test"] {
            assert!(parse(&["--annotations-prefix", bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn health_is_asked_for_at_a_path() {
        let path = |text: &str| parse(&["--health-check-path", text]).map(|args| args.health_check_path);
        assert_eq!(parse(&[]).unwrap().health_check_path, "/healthz");
        assert_eq!(path("/up/is-it").unwrap(), "/up/is-it");
        for bad in ["", "up", "/a b", "/a?b", "/%61", "//a", "/a/../b"] {
            assert!(path(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_webhook_s_certificate_may_be_the_authority_s() {
        let name = |text: &str| {
            let args = parse(&["--validating-webhook-configuration", text]);
            args.map(|args| args.validating_webhook_configuration)
        };
        assert_eq!(name("firth-webhook").unwrap(), Some("firth-webhook".to_owned()));
        assert_eq!(name("").unwrap(), None);
        for bad in ["Firth", "a.b", "-a", "a-", "1a", "a b", &"x".repeat(64)] {
            assert!(name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_webhook_has_an_address() {
        let address = |text: &str| parse(&["--validating-webhook", text]).map(|args| args.validating_webhook);
        assert_eq!(address("").unwrap(), None);
        assert_eq!(
            address(":8443").unwrap(),
            Some(SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 8443)))
        );
        assert_eq!(address("127.0.0.1:9443").unwrap(), Some(SocketAddr::from(([127, 0, 0, 1], 9443))));
        assert!(address("8443").is_err());
    }

    #[test]
    fn peers_have_a_port() {
        let args = parse(&["--peers=a.test:15010,[::1]:7", "--peers", "10.0.0.1:1"]).unwrap();
        assert_eq!(args.peers, ["a.test:15010", "[::1]:7", "10.0.0.1:1"]);
        for bad in ["a.test", "a.test:", ":15010", "a.test:0", "https://a.test"] {
            assert!(parse(&["--peers", bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_history_is_bounded() {
        let args = parse(&["--history-count=5", "--history-bytes", "1Mi", "--history-age", "36h"]).unwrap();
        assert_eq!((args.history_count, args.history_bytes), (5, 1 << 20));
        assert_eq!(args.history_age, Duration::from_secs(36 * 3600));
        assert!(parse(&["--history-age", "soon"]).is_err());
    }

    #[test]
    fn accounts_have_roles() {
        let args =
            parse(&["--account=proxy=firth/edge,reader=firth/r", "--account", "operator=firth/o"]).unwrap();
        let roles: Vec<Role> = args.account.iter().map(|(role, _)| *role).collect();
        assert_eq!(roles, [Role::Proxy, Role::Reader, Role::Operator]);
        assert_eq!(args.account[0].1, ObjectName::new("firth", "edge"));
        for bad in ["proxy", "proxy=edge", "admin=a/b", "control-plane=a/b", "=a/b"] {
            assert!(account(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_life_has_a_unit_and_bounds() {
        assert_eq!(parse(&[]).unwrap().certificate_life, Duration::from_secs(86_400));
        assert_eq!(life("90m"), Ok(Duration::from_secs(5_400)));
        for bad in ["", "24", "1s", "366d", "-1h"] {
            assert!(life(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn one_source_and_whole_names() {
        assert!(parse(&["--manifests", "a", "--kubeconfig", "b"]).is_err());
        assert!(parse(&["--configmap", "a"]).is_err());
        assert!(parse(&["--configmap", "a/b/c"]).is_err());
    }

    #[test]
    fn decisions_live_where_the_pod_does() {
        let args = parse(&["--configmap", "shore/settings"]).unwrap();
        assert_eq!(args.decisions_namespace(), "shore");
        let args = parse(&["--configmap", "shore/settings", "--pod-namespace", "own"]).unwrap();
        assert_eq!(args.decisions_namespace(), "own");
    }

    #[test]
    fn the_command_line_is_well_formed() {
        let command = Args::command();
        for flag in command.get_arguments() {
            assert!(flag.get_env().is_some(), "{} has no variable", flag.get_id());
            assert!(flag.get_help().is_some(), "{} has no sentence of help", flag.get_id());
        }
        command.debug_assert();
    }
}
