//! Short constructors for Kubernetes objects as JSON.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

/// The IngressClass that everything here belongs to.
pub fn ingress_class() -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "nginx"},
        "spec": {"controller": "k8s.io/ingress-nginx"},
    })
}

/// A namespace.
pub fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// A Service without selector; port 80, named `http`.
pub fn service(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name},
        "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]},
    })
}

/// An EndpointSlice `SERVICE-SUFFIX` of a Service. All addresses must have one port; none: nobody is there.
///
/// # Panics
/// If the ports differ.
pub fn slice(namespace: &str, service: &str, suffix: &str, endpoints: &[SocketAddr]) -> Value {
    let port = endpoints.first().map_or(8080, SocketAddr::port);
    assert!(endpoints.iter().all(|endpoint| endpoint.port() == port), "one slice, one port: {endpoints:?}");
    let v6 = endpoints.first().is_some_and(SocketAddr::is_ipv6);
    let endpoint = |endpoint: &SocketAddr| json!({"addresses": [endpoint.ip().to_string()], "conditions": {"ready": true}});
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "namespace": namespace, "name": format!("{service}-{suffix}"),
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": if v6 { "IPv6" } else { "IPv4" },
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
        "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
    })
}

/// An Ingress of class `nginx` with one host and paths of type Prefix, each to port 80 of a Service.
pub fn ingress(namespace: &str, name: &str, host: &str, paths: &[(&str, &str)]) -> Value {
    let path = |(path, service): &(&str, &str)| {
        json!({
            "path": path, "pathType": "Prefix",
            "backend": {"service": {"name": service, "port": {"number": 80}}},
        })
    };
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "ingressClassName": "nginx",
            "rules": [{"host": host, "http": {"paths": paths.iter().map(path).collect::<Vec<_>>()}}],
        },
    })
}

/// One Ingress, Service and EndpointSlice that are not served: a control plane reads a list again before it trusts that
/// it is empty, or that all objects of a kind are gone, and tests should not wait for that.
pub fn ballast(namespace: &str) -> Vec<Value> {
    let ingress = ingress(namespace, "ballast", "ballast.test", &[("/", "ballast")]);
    vec![
        service(namespace, "ballast"),
        slice(namespace, "ballast", "1", &[]),
        ingress.with("/spec/ingressClassName", "nobody-s".into()),
    ]
}

/// A TLS Secret.
pub fn tls_secret(namespace: &str, name: &str, certificate_pem: &str, key_pem: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"namespace": namespace, "name": name},
        "data": {"tls.crt": BASE64_STANDARD.encode(certificate_pem), "tls.key": BASE64_STANDARD.encode(key_pem)},
    })
}

/// A ConfigMap.
pub fn config_map(namespace: &str, name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}, "data": data})
}

/// Changes to an object, in the order in which they are said.
pub trait Edit: Sized {
    /// With an annotation; a name without a slash is one of `nginx.ingress.kubernetes.io`.
    #[must_use]
    fn annotated(self, name: &str, value: &str) -> Self;
    /// With something else at a JSON pointer, whose parents must exist.
    #[must_use]
    fn with(self, pointer: &str, value: Value) -> Self;
}

impl Edit for Value {
    fn annotated(mut self, name: &str, value: &str) -> Self {
        let name =
            if name.contains('/') { name.to_owned() } else { format!("nginx.ingress.kubernetes.io/{name}") };
        self["metadata"]["annotations"][name] = value.into();
        self
    }

    fn with(mut self, pointer: &str, value: Value) -> Self {
        let (parent, field) = pointer.rsplit_once('/').expect("a JSON pointer");
        let parent = self.pointer_mut(parent).expect("the parent exists");
        match (parent, field.parse::<usize>()) {
            (Self::Array(items), Ok(index)) => items[index] = value,
            (parent, _) => parent[field] = value,
        }
        self
    }
}
