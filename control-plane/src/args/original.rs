//! The flags of ingress-nginx' controller, and how each is handled.
//!
//! A migrated Deployment passes them all. Flags that Firth has, too, are parsed as usual. Those without a meaning here
//! are dropped with a notice. Those that would change what is served, and are not supported, fail the start with a
//! reason.
//!
//! **Invariant:** no flag is ignored silently.

use std::ffi::OsString;

use crate::annotations::value::boolean;

/// How a flag of ingress-nginx is handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Here {
    /// Firth has the same flag.
    Same,
    /// Accepted and dropped.
    Nothing(&'static str),
    /// Another flag replaces it: accepted with a warning.
    Elsewhere(&'static str),
    /// Not supported: rejected, unless its value asks for the default behaviour.
    Refused(&'static str),
}

use Here::{Elsewhere, Nothing, Refused, Same};

/// A flag of ingress-nginx, with its default, and whether it is a switch.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Without dashes.
    pub name: &'static str,
    /// The default; `true` or `false` for a switch, which needs no value.
    pub usual: &'static str,
    /// How it is handled.
    pub here: Here,
}

const fn flag(name: &'static str, usual: &'static str, here: Here) -> Flag {
    Flag { name, usual, here }
}

const NO_NGINX: &str = "no nginx runs here";
const GO_LOGS: &str = "logs are --log and --log-format, on standard error";
const GEO: &str = "addresses are not looked up in GeoIP databases";

/// All of them.
pub const FLAGS: &[Flag] = &[
    flag("annotations-prefix", "nginx.ingress.kubernetes.io", Same),
    flag("apiserver-host", "", Refused("give a --kubeconfig")),
    flag(
        "bucket-factor",
        "0",
        Elsewhere(
            "only classic histograms are supported: see --time-buckets, --length-buckets and --size-buckets",
        ),
    ),
    flag("certificate-authority", "", Refused("give a --kubeconfig")),
    flag("configmap", "", Same),
    flag("controller-class", "k8s.io/ingress-nginx", Same),
    flag("deep-inspect", "true", Nothing("objects are always inspected")),
    flag("default-backend-service", "", Same),
    flag("default-server-port", "8181", Nothing(NO_NGINX)),
    flag("default-ssl-certificate", "", Same),
    flag("disable-catch-all", "false", Same),
    flag("disable-full-test", "false", Nothing("the webhook checks only the Ingress that is submitted")),
    flag("disable-leader-election", "false", Same),
    flag("disable-svc-external-name", "false", Same),
    flag("disable-sync-events", "false", Same),
    flag("dynamic-configuration-retries", "15", Nothing("changes are acknowledged by each proxy")),
    flag("election-id", "ingress-controller-leader", Same),
    flag("election-ttl", "30s", Same),
    flag("enable-annotation-validation", "true", Nothing("annotations are always validated")),
    flag("enable-metrics", "false", Same),
    flag(
        "enable-ssl-chain-completion",
        "false",
        Elsewhere("chains are served as they are in the Secret: add the intermediate certificates there"),
    ),
    flag("enable-ssl-passthrough", "false", Same),
    flag("enable-topology-aware-routing", "false", Elsewhere("endpoints of all zones are used")),
    flag("exclude-socket-metrics", "", Same),
    flag("health-check-path", "/healthz", Same),
    flag("health-check-timeout", "10", Nothing("health is answered from memory")),
    flag("healthz-host", "", Elsewhere("--admin, and proxies' --health")),
    flag("healthz-port", "10254", Elsewhere("--admin, and proxies' --health")),
    flag("http-port", "80", Elsewhere("proxies' --http")),
    flag("https-port", "443", Elsewhere("proxies' --https")),
    flag("ingress-class", "nginx", Same),
    flag("ingress-class-by-name", "false", Same),
    flag("internal-logger-address", "127.0.0.1:11514", Nothing(NO_NGINX)),
    flag("kubeconfig", "", Same),
    flag("length-buckets", "", Same),
    flag("max-buckets", "100", Nothing("histograms are classic")),
    flag("maxmind-edition-ids", "GeoLite2-City,GeoLite2-ASN", Nothing(GEO)),
    flag("maxmind-license-key", "", Elsewhere(GEO)),
    flag("maxmind-mirror", "", Elsewhere(GEO)),
    flag("maxmind-retries-count", "1", Nothing(GEO)),
    flag("maxmind-retries-timeout", "0s", Nothing(GEO)),
    flag("metrics-per-host", "true", Same),
    flag("metrics-per-undefined-host", "false", Same),
    flag("monitor-max-batch-size", "10000", Nothing("requests are counted where they are served")),
    flag("post-shutdown-grace-period", "10", Elsewhere("proxies' --drain-deadline")),
    flag("profiler-address", "127.0.0.1", Nothing("there is no pprof")),
    flag("profiler-port", "10245", Nothing("there is no pprof")),
    flag("profiling", "true", Nothing("there is no pprof")),
    flag("publish-service", "", Same),
    flag("publish-status-address", "", Same),
    flag("report-node-internal-ip-address", "false", Same),
    flag("report-status-classes", "false", Same),
    flag("shutdown-grace-period", "0", Elsewhere("proxies' --drain-grace")),
    flag("size-buckets", "", Same),
    flag("ssl-passthrough-proxy-port", "442", Nothing("passthrough needs no port of its own")),
    flag("status-port", "10246", Elsewhere("proxies' --admin has /nginx_status and /configuration/")),
    flag("status-update-interval", "60", Same),
    flag("stream-port", "10247", Nothing(NO_NGINX)),
    flag("sync-period", "0s", Nothing("watches are checked and repaired every minute")),
    flag("sync-rate-limit", "0.3", Nothing("changes are sent at once")),
    flag("tcp-services-configmap", "", Same),
    flag("time-buckets", "", Same),
    flag("udp-services-configmap", "", Same),
    flag("update-status", "true", Same),
    flag("update-status-on-shutdown", "true", Same),
    flag("validating-webhook", "", Same),
    flag("validating-webhook-certificate", "", Same),
    flag("validating-webhook-key", "", Same),
    flag("version", "false", Same),
    flag("watch-ingress-without-class", "false", Same),
    flag("watch-namespace", "", Same),
    flag("watch-namespace-selector", "", Same),
    // klog's.
    flag("v", "0", Elsewhere("--log, such as --log=debug")),
    flag("vmodule", "", Elsewhere("--log, such as --log=info,control_plane::index=debug")),
    flag("logtostderr", "true", Nothing(GO_LOGS)),
    flag("alsologtostderr", "false", Nothing(GO_LOGS)),
    flag("stderrthreshold", "2", Nothing(GO_LOGS)),
    flag("log_dir", "", Nothing(GO_LOGS)),
    flag("log_file", "", Nothing(GO_LOGS)),
    flag("log_file_max_size", "1800", Nothing(GO_LOGS)),
    flag("log_backtrace_at", ":0", Nothing(GO_LOGS)),
    flag("add_dir_header", "false", Nothing(GO_LOGS)),
    flag("one_output", "false", Nothing(GO_LOGS)),
    flag("skip_headers", "false", Nothing(GO_LOGS)),
    flag("skip_log_headers", "false", Nothing(GO_LOGS)),
];

impl Flag {
    fn is_switch(&self) -> bool {
        matches!(self.usual, "true" | "false")
    }
}

/// A command line without the flags that only ingress-nginx has, and the messages about those.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sorted {
    /// The remaining arguments.
    pub rest: Vec<OsString>,
    /// Messages for the log.
    pub notices: Vec<String>,
    /// Warnings about flags that behave differently.
    pub warnings: Vec<String>,
}

/// Sorts a command line, including the program's name.
///
/// # Errors
/// If a flag asks for something that is not supported.
pub fn sort(words: impl IntoIterator<Item = OsString>) -> Result<Sorted, String> {
    let mut sorted = Sorted::default();
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let Some((found, given)) = word.to_str().and_then(known) else {
            sorted.rest.push(word.to_str().and_then(switch).map_or(word, OsString::from));
            continue;
        };
        let value = match given {
            Some(value) if found.is_switch() => boolean(&value).map_or(value, |it| it.to_string()),
            Some(value) => value,
            // As in Go, a switch has its value after an equals sign or not at all.
            None if found.is_switch() => "true".to_owned(),
            None => words.next().and_then(|value| value.into_string().ok()).unwrap_or_default(),
        };
        let (name, is_usual) = (found.name, value == found.usual);
        match found.here {
            Nothing(why) => {
                sorted.notices.push(format!("--{name} of ingress-nginx has no effect here: {why}"))
            }
            Elsewhere(what) if !is_usual => {
                sorted.warnings.push(format!("--{name}={value} of ingress-nginx has no effect here: {what}"));
            }
            Refused(what) if !is_usual => {
                return Err(format!("--{name}={value} of ingress-nginx is not supported: {what}"));
            }
            Same | Elsewhere(_) | Refused(_) => {}
        }
    }
    Ok(sorted)
}

/// A switch that both have, with its value as clap reads it.
fn switch(word: &str) -> Option<String> {
    let (name, value) = word.strip_prefix("--")?.split_once('=')?;
    let found = FLAGS.iter().find(|flag| flag.name == name && flag.here == Same && flag.is_switch())?;
    Some(format!("--{}={}", found.name, boolean(value)?))
}

/// A flag that only ingress-nginx has, and the value after its equals sign.
fn known(word: &str) -> Option<(&'static Flag, Option<String>)> {
    let text = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    let found = FLAGS.iter().find(|flag| flag.name == name && flag.here != Same)?;
    // Single letters are Firth's own flags, except for klog's `-v`.
    (word.starts_with("--") || name == "v").then_some((found, value))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::super::Args;
    use super::*;

    fn sorted(words: &[&str]) -> Result<Sorted, String> {
        sort(words.iter().map(OsString::from))
    }

    #[test]
    fn what_is_the_same_is_a_flag_of_ours_and_nothing_else_is() {
        let mut command = Args::command();
        command.build();
        for flag in FLAGS {
            let is_ours = command.get_arguments().any(|it| it.get_long() == Some(flag.name));
            assert_eq!(is_ours, flag.here == Same, "{}", flag.name);
        }
    }

    #[test]
    fn switches_have_the_words_of_go() {
        let words = [
            "firth-control-plane",
            "--update-status=0",
            "--enable-ssl-passthrough=T",
            "--enable-ssl-chain-completion=F",
        ];
        let found = sorted(&words).unwrap();
        assert!(found.warnings.is_empty(), "{found:?}");
        let args = Args::try_parse_from(&found.rest).unwrap();
        assert!(args.enable_ssl_passthrough && !args.status.update_status);
        let odd = sorted(&["firth-control-plane", "--update-status=no"]).unwrap();
        assert!(Args::try_parse_from(&odd.rest).is_err());
    }

    #[test]
    fn a_deployment_of_the_original_starts_ours() {
        // What its chart renders, with everything that users add to it in public repositories.
        let words = [
            "firth-control-plane",
            "--publish-service=ingress-nginx/ingress-nginx-controller",
            "--election-id=ingress-nginx-leader",
            "--controller-class=k8s.io/ingress-nginx",
            "--ingress-class=nginx",
            "--configmap=ingress-nginx/ingress-nginx-controller",
            "--validating-webhook=:8443",
            "--validating-webhook-certificate=/usr/local/certificates/cert",
            "--validating-webhook-key=/usr/local/certificates/key",
            "--watch-ingress-without-class=true",
            "--enable-ssl-passthrough",
            "--enable-metrics=false",
            "--v=2",
            "-v",
            "3",
            "--http-port",
            "8080",
            "--https-port=443",
            "--healthz-port=10254",
            "--shutdown-grace-period=30",
            "--profiling=false",
            "--tcp-services-configmap=a/tcp",
            "--ingress-class-by-name",
            "--update-status=false",
            "--logtostderr",
            "--sync-period=10h",
            "--status-update-interval=60",
            "--watch-namespace-selector=",
        ];
        let sorted = sorted(&words).unwrap();
        let args = Args::try_parse_from(&sorted.rest).unwrap();
        assert!(args.ingress_class_by_name && args.enable_ssl_passthrough && !args.status.update_status);
        assert_eq!(args.status.election_id, "ingress-nginx-leader");
        let names = |given: &[String]| -> Vec<String> {
            given.iter().map(|it| it.split([' ', '=']).next().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&sorted.warnings), ["--v", "--v", "--http-port", "--shutdown-grace-period"]);
        assert_eq!(names(&sorted.notices), ["--profiling", "--logtostderr", "--sync-period"]);
    }

    #[test]
    fn what_would_serve_others_is_refused_in_words() {
        let refused = sorted(&["a", "--apiserver-host", "https://a"]).unwrap_err();
        assert!(
            refused.contains("--apiserver-host=https://a") && refused.contains("--kubeconfig"),
            "{refused}"
        );
        assert!(sorted(&["a", "--certificate-authority=/ca"]).is_err());
    }

    #[test]
    fn our_own_words_stay() {
        let words = ["a", "--log=debug", "--admin", "127.0.0.1:1", "-V", "--listen", "--v-else", "x"];
        assert_eq!(sorted(&words).unwrap().rest, words.map(OsString::from));
    }
}
