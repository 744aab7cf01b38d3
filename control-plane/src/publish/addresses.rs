//! The addresses at which hosts are reachable, determined as ingress-nginx does.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

/// An entry of a status: an IP address as written, the name of a load balancer, or both.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Address {
    ip: Option<Arc<str>>,
    hostname: Option<Arc<str>>,
}

/// All addresses, each once: names alone first, then by IP address, as ingress-nginx writes them.
pub type Addresses = Arc<[Address]>;

impl Address {
    /// An IP address if it is one, else a host name.
    pub fn of(text: &str) -> Self {
        match text.parse::<IpAddr>() {
            Ok(_) => Self { ip: Some(text.into()), hostname: None },
            Err(_) => Self { ip: None, hostname: Some(text.into()) },
        }
    }

    fn json(&self) -> Value {
        let fields = [("hostname", &self.hostname), ("ip", &self.ip)];
        let said = fields
            .into_iter()
            .filter_map(|(name, text)| Some((name.to_owned(), Value::from(text.as_deref()?))));
        Value::Object(said.collect())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.ip, &self.hostname) {
            (Some(ip), Some(name)) => write!(f, "{ip} ({name})"),
            (Some(text), None) | (None, Some(text)) => f.write_str(text),
            (None, None) => Ok(()),
        }
    }
}

/// For people: `lb.test, 192.0.2.1`.
pub fn listed(addresses: &[Address]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Each once. Names keep the order that they have: scripts read the first one.
pub fn sorted(addresses: impl IntoIterator<Item = Address>) -> Addresses {
    let mut all: Vec<Address> = Vec::new();
    for address in addresses {
        if !all.contains(&address) {
            all.push(address);
        }
    }
    all.sort_by(|one, other| one.ip.cmp(&other.ip));
    all.into()
}

/// As JSON for the status of an Ingress.
pub fn json_of(addresses: &[Address]) -> Value {
    json!({"loadBalancer": {"ingress": addresses.iter().map(Address::json).collect::<Vec<_>>()}})
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Balanced {
    status: Option<Status>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    load_balancer: Option<LoadBalancer>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct LoadBalancer {
    ingress: Option<Vec<Entry>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Entry {
    ip: Option<String>,
    hostname: Option<String>,
}

impl Entry {
    fn address(&self) -> Option<Address> {
        let filled = |text: &Option<String>| text.as_deref().filter(|text| !text.is_empty()).map(Arc::from);
        let address = Address { ip: filled(&self.ip), hostname: filled(&self.hostname) };
        (address.ip.is_some() || address.hostname.is_some()).then_some(address)
    }
}

/// The addresses in `status.loadBalancer` of an Ingress or a Service; none if that cannot be decoded.
pub fn of_status(text: &str) -> Addresses {
    let Balanced { status } = serde_json::from_str(text).unwrap_or_default();
    let entries = status.and_then(|it| it.load_balancer).and_then(|it| it.ingress).unwrap_or_default();
    sorted(entries.iter().filter_map(Entry::address))
}

/// The addresses of a Service. An error if its type is unknown.
pub fn of_service(text: &str) -> Result<Addresses, String> {
    #[derive(Deserialize)]
    struct Service {
        spec: Spec,
    }
    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Spec {
        #[serde(rename = "type")]
        kind: Option<String>,
        external_name: Option<String>,
        #[serde(rename = "clusterIP")]
        cluster_ip: Option<String>,
        #[serde(rename = "externalIPs")]
        external_ips: Option<Vec<String>>,
    }
    let Service { spec } = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let externals: Vec<Address> =
        spec.external_ips.unwrap_or_default().iter().map(|ip| Address::of(ip)).collect();
    // The clusterIP of a headless Service is "None".
    let own = spec.cluster_ip.filter(|ip| ip.parse::<IpAddr>().is_ok()).map(|ip| Address::of(&ip));
    Ok(match spec.kind.as_deref().unwrap_or("ClusterIP") {
        "ExternalName" => sorted(spec.external_name.as_deref().map(Address::of)),
        "ClusterIP" => sorted(own),
        "NodePort" if externals.is_empty() => sorted(own),
        "NodePort" => sorted(externals),
        "LoadBalancer" => {
            let balanced = of_status(text);
            let more = externals.into_iter().filter(|more| balanced.iter().all(|it| it.ip != more.ip));
            sorted(balanced.iter().cloned().chain(more))
        }
        other => return Err(format!("expected a type that is known, got {other}")),
    })
}

/// The nodes of the running and ready pods in a list, each once.
pub fn nodes_of(text: &str) -> Result<Vec<String>, String> {
    let list: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let pods = list["items"].as_array().ok_or("expected a list of pods")?;
    let is_ready = |pod: &&Value| {
        let conditions = pod["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        pod["status"]["phase"] == "Running"
            && conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
    };
    let nodes = pods.iter().filter(is_ready).filter_map(|pod| pod["spec"]["nodeName"].as_str());
    let mut nodes: Vec<String> = nodes.map(str::to_owned).collect();
    nodes.sort();
    nodes.dedup();
    Ok(nodes)
}

/// The address of a node: the external one if it has one, unless `internal`.
pub fn of_node(text: &str, internal: bool) -> Result<Option<Address>, String> {
    let node: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let of = |kind: &str| {
        let all = node["status"]["addresses"].as_array().into_iter().flatten();
        let mut those = all.filter(|it| it["type"] == kind).filter_map(|it| it["address"].as_str());
        those.find(|address| !address.is_empty()).map(Address::of)
    };
    let (external, inner) = (of("ExternalIP"), of("InternalIP"));
    Ok(if internal { inner.or(external) } else { external.or(inner) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(addresses: &[Address]) -> Vec<String> {
        addresses.iter().map(ToString::to_string).collect()
    }

    fn service(spec: &Value, status: &Value) -> Vec<String> {
        let found = of_service(&json!({"spec": spec, "status": status}).to_string()).unwrap();
        texts(&found)
    }

    #[test]
    fn a_service_has_its_addresses_by_its_type() {
        let none = json!({});
        let lb = json!({"loadBalancer": {"ingress": [{"hostname": "lb.test"}, {"ip": "192.0.2.7", "hostname": "b.test"}]}});
        let spec = |kind: &str| json!({"type": kind, "clusterIP": "10.0.0.1", "externalIPs": ["192.0.2.9", "192.0.2.7"], "externalName": "x.test"});
        assert_eq!(service(&spec("LoadBalancer"), &lb), ["lb.test", "192.0.2.7 (b.test)", "192.0.2.9"]);
        assert_eq!(service(&spec("NodePort"), &lb), ["192.0.2.7", "192.0.2.9"]);
        assert_eq!(service(&spec("ClusterIP"), &lb), ["10.0.0.1"]);
        assert_eq!(service(&spec("ExternalName"), &lb), ["x.test"]);
        assert_eq!(service(&json!({"type": "NodePort", "clusterIP": "10.0.0.1"}), &none), ["10.0.0.1"]);
        assert!(service(&json!({"type": "LoadBalancer", "clusterIP": "10.0.0.1"}), &none).is_empty());
        assert!(service(&json!({"clusterIP": "None"}), &none).is_empty());
        assert!(of_service("{}").is_err() && of_service(r#"{"spec": {"type": "Later"}}"#).is_err());
    }

    #[test]
    fn a_status_is_read_as_it_is_written() {
        let addresses = sorted(["lb.test", "2001:db8::1", "a.test", "192.0.2.1", "lb.test"].map(Address::of));
        assert_eq!(texts(&addresses), ["lb.test", "a.test", "192.0.2.1", "2001:db8::1"]);
        let text = json!({"status": json_of(&addresses)}).to_string();
        assert_eq!(of_status(&text), addresses);
        let both = json!({"loadBalancer": {"ingress": [{"hostname": "a.test", "ip": "192.0.2.1"}]}});
        assert_eq!(json_of(&of_status(&json!({"status": both}).to_string())), both, "one entry");
        for nothing in ["{}", r#"{"status": null}"#, r#"{"status": {"loadBalancer": {}}}"#, "<html>"] {
            assert!(of_status(nothing).is_empty(), "{nothing}");
        }
    }

    #[test]
    fn nodes_of_pods_that_are_ready() {
        let pod = |node: &str, phase: &str, ready: &str| json!({"spec": {"nodeName": node}, "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}});
        let list = json!({"items": [
            pod("b", "Running", "True"), pod("a", "Running", "True"), pod("a", "Running", "True"),
            pod("c", "Running", "False"), pod("d", "Succeeded", "True")]});
        assert_eq!(nodes_of(&list.to_string()).unwrap(), ["a", "b"]);
        assert!(nodes_of("{}").is_err());
        let node = json!({"status": {"addresses": [
            {"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "10.0.0.1"},
            {"type": "ExternalIP", "address": ""}, {"type": "ExternalIP", "address": "192.0.2.1"}]}})
        .to_string();
        assert_eq!(of_node(&node, false).unwrap(), Some(Address::of("192.0.2.1")));
        assert_eq!(of_node(&node, true).unwrap(), Some(Address::of("10.0.0.1")));
        let inner = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}});
        assert_eq!(of_node(&inner.to_string(), false).unwrap(), Some(Address::of("10.0.0.1")));
        assert_eq!(of_node("{}", false).unwrap(), None);
    }
}
