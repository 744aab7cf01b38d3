//! Which demo backends a manifest asks for: EndpointSlices with the annotation or label `firth.dev/demo: "true"`.

use std::net::SocketAddr;
use std::sync::Arc;

use control_plane::objects::EndpointSlice;
use serde::Deserialize as _;
use serde_json::Value;

const MARK: &str = "firth.dev/demo";

/// A backend that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Demo {
    /// `namespace/name` of the Service that it plays.
    pub(super) service: Arc<str>,
    /// Where it answers.
    pub(super) addr: SocketAddr,
}

/// The backends of a file's text, in its order.
///
/// # Errors
/// Where the text is no YAML; where the control plane finds it bad too, it says so with the line.
pub(super) fn parse(text: &str) -> Result<Vec<Demo>, serde_saphyr::Error> {
    // Most files have none: nothing is parsed for them.
    if !text.contains(MARK) {
        return Ok(Vec::new());
    }
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    let mut demos = Vec::new();
    for document in &documents {
        let items = match document["kind"].as_str() {
            Some("List" | "EndpointSliceList") => document["items"].as_array().map_or(&[][..], Vec::as_slice),
            _ => std::slice::from_ref(document),
        };
        for item in items.iter().filter(|item| item["kind"] == "EndpointSlice") {
            // One that does not fit is reported by the control plane.
            if let Ok(slice) = EndpointSlice::deserialize(item) {
                demos.extend(of_slice(&slice));
            }
        }
    }
    Ok(demos)
}

fn of_slice(slice: &EndpointSlice) -> Vec<Demo> {
    let metadata = &slice.metadata;
    let marked = [&metadata.annotations, &metadata.labels]
        .iter()
        .any(|map| map.get(MARK).is_some_and(|value| value == "true"));
    let Some(service) = slice.service().filter(|_| marked) else {
        return Vec::new();
    };
    let namespace = match &*service.namespace {
        "" => "default",
        namespace => namespace,
    };
    let service: Arc<str> = format!("{namespace}/{}", service.name).into();
    let mut demos = Vec::new();
    for address in slice.endpoints.iter().flat_map(|endpoint| &endpoint.addresses) {
        let Ok(ip) = address.parse() else { continue };
        let ports = slice.ports.iter().filter_map(|port| port.port);
        for port in ports.filter_map(|port| u16::try_from(port).ok()) {
            demos.push(Demo { service: Arc::clone(&service), addr: SocketAddr::new(ip, port) });
        }
    }
    demos
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(metadata: &str) -> String {
        format!(
            "kind: EndpointSlice\napiVersion: discovery.k8s.io/v1\nmetadata:\n  name: web-1\n  labels: {{kubernetes.io/service-name: web}}\n{metadata}\
             addressType: IPv4\nports:\n- name: http\n  port: 19001\nendpoints:\n- addresses: [127.0.0.1]\n- addresses: [127.0.0.2]\n"
        )
    }

    #[test]
    fn every_endpoint_has_every_port() {
        let demos = parse(&slice("  annotations: {firth.dev/demo: \"true\"}\n")).unwrap();
        let addrs: Vec<_> = demos.iter().map(|demo| demo.addr.to_string()).collect();
        assert_eq!(addrs, ["127.0.0.1:19001", "127.0.0.2:19001"]);
        assert_eq!(&*demos[0].service, "default/web");
    }

    #[test]
    fn only_marked_slices_count() {
        assert_eq!(parse(&slice("")).unwrap(), []);
        assert_eq!(parse(&slice("  annotations: {firth.dev/demo: \"false\"}\n")).unwrap(), []);
        assert_eq!(parse("kind: Service # firth.dev/demo\n").unwrap(), []);
    }

    #[test]
    fn lists_and_several_documents_are_read() {
        let json = r#"{"kind": "List", "items": [{"kind": "EndpointSlice", "metadata": {"name": "a", "namespace": "shop",
            "labels": {"kubernetes.io/service-name": "a"}, "annotations": {"firth.dev/demo": "true"}},
            "ports": [{"port": 1}], "endpoints": [{"addresses": ["::1"]}]}]}"#;
        let text = format!("{json}\n---\n{}", slice("  annotations: {firth.dev/demo: \"true\"}\n"));
        let demos = parse(&text).unwrap();
        assert_eq!(demos.len(), 3);
        assert_eq!(demos[0].addr.to_string(), "[::1]:1");
        assert_eq!(&*demos[0].service, "shop/a");
    }
}
