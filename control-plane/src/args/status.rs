//! Flags about the status of Ingresses: ingress-nginx' own, except for `--publish-nodes`.

use std::time::Duration;

use clap::Args;
use shared::duration;
use shared::name::ObjectName;

use super::{OrNone, object_or_none, text_or_none};

/// Minimum interval at which the addresses are read.
const INTERVAL: Duration = Duration::from_secs(1);

/// Where Ingresses say that they are to be reached, and who writes it.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// Service whose addresses are written to the status of Ingresses: those of its load balancer and its external IPs, its cluster IP, or its external name, depending on its type
    #[arg(
        long, env = "FIRTH_PUBLISH_SERVICE", value_name = "NS/NAME",
        default_value = "", hide_default_value = true, value_parser = object_or_none
    )]
    pub publish_service: OrNone<ObjectName>,
    /// Addresses and names to write to the status of Ingresses, separated by commas
    #[arg(long, env = "FIRTH_PUBLISH_STATUS_ADDRESS", value_name = "LIST", value_delimiter = ',')]
    pub publish_status_address: Vec<String>,
    /// Without --publish-service and --publish-status-address: labels of the proxies' pods in the namespace of this pod, such as app=edge. The addresses of the nodes where such a pod is ready are written to the status of Ingresses
    #[arg(
        long, env = "FIRTH_PUBLISH_NODES", value_name = "SELECTOR",
        default_value = "", hide_default_value = true, value_parser = text_or_none
    )]
    pub publish_nodes: OrNone<String>,
    /// Use the nodes' internal addresses even if they have external ones
    #[arg(
        long, env = "FIRTH_REPORT_NODE_INTERNAL_IP_ADDRESS", value_name = "BOOL",
        num_args = 0..=1, default_value = "false", default_missing_value = "true"
    )]
    pub report_node_internal_ip_address: bool,
    /// Write the status of Ingresses, if --publish-service, --publish-status-address or --publish-nodes says what to write
    #[arg(
        long, env = "FIRTH_UPDATE_STATUS", value_name = "BOOL",
        num_args = 0..=1, default_value = "true", default_missing_value = "true"
    )]
    pub update_status: bool,
    /// Clear the status when the last control plane ends, provided no proxy is left and the status has a single address
    #[arg(
        long, env = "FIRTH_UPDATE_STATUS_ON_SHUTDOWN", value_name = "BOOL",
        num_args = 0..=1, default_value = "true", default_missing_value = "true"
    )]
    pub update_status_on_shutdown: bool,
    /// How often the addresses are read, in seconds or as 5s; node addresses at most once a minute. An Ingress is written only if its status differs
    #[arg(long, env = "FIRTH_STATUS_UPDATE_INTERVAL", value_name = "SPAN", default_value = "5s", value_parser = interval)]
    pub status_update_interval: Duration,
    /// Lease, in the namespace of this pod, that elects the replica that writes the status
    #[arg(long, env = "FIRTH_ELECTION_ID", value_name = "NAME", default_value = "firth-leader", value_parser = name)]
    pub election_id: String,
    /// How long the writer may be silent before another replica takes over
    #[arg(long, env = "FIRTH_ELECTION_TTL", value_name = "SPAN", default_value = "30s", value_parser = ttl)]
    pub election_ttl: Duration,
    /// Hold no election; then no replica writes the status of Ingresses
    #[arg(
        long, env = "FIRTH_DISABLE_LEADER_ELECTION", value_name = "BOOL",
        num_args = 0..=1, default_value = "false", default_missing_value = "true"
    )]
    pub disable_leader_election: bool,
}

/// Maximum of the interval.
const MOST: Duration = Duration::from_secs(24 * 3600);

/// As in ingress-nginx, a number without a unit means seconds.
fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.bytes().all(|it| it.is_ascii_digit()).then(|| format!("{text}s"));
    let span = duration::within(seconds.as_deref().unwrap_or(text), Duration::ZERO, MOST)?;
    Ok(span.max(INTERVAL))
}

/// As in ingress-nginx, zero means half a minute.
fn ttl(text: &str) -> Result<Duration, String> {
    let (least, usual) = (Duration::from_secs(4), Duration::from_secs(30));
    if duration::parse(text) == Ok(Duration::ZERO) {
        return Ok(usual);
    }
    duration::within(text, least, MOST)
}

/// The name of an object.
fn name(text: &str) -> Result<String, String> {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b);
    let is_name = !text.is_empty() && text.len() <= 253 && text.bytes().all(is_plain);
    if is_name { Ok(text.to_owned()) } else { Err(format!("expected a name, got {text:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_as_in_the_original() {
        let seconds = Duration::from_secs;
        assert_eq!(
            (interval("60"), interval("90s"), interval("0")),
            (Ok(seconds(60)), Ok(seconds(90)), Ok(INTERVAL))
        );
        assert_eq!((ttl("0s"), ttl("15s")), (Ok(seconds(30)), Ok(seconds(15))));
        assert!(interval("soon").is_err() && interval("").is_err() && ttl("1s").is_err());
        for long in ["2d", "9999999999s"] {
            assert!(ttl(long).unwrap_err().contains("4s to 1d"), "{long}");
        }
        assert!(interval("18446744073709551616").is_err());
        for long in ["86401", "2d"] {
            assert!(interval(long).unwrap_err().contains("0s to 1d"), "{long}");
        }
        assert!(name("ingress-controller-leader").is_ok() && name("a/b").is_err() && name("").is_err());
    }
}
