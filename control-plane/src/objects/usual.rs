//! The names that ConfigMaps of ingress-nginx usually have: those of its manifests, of its chart and of MicroK8s.

/// Whether a ConfigMap of this name, in any namespace, most likely has settings or services of ingress-nginx.
pub fn is_usual(name: &str) -> bool {
    const NAMES: [&str; 9] = [
        "ingress-nginx-controller",
        "ingress-nginx-tcp",
        "ingress-nginx-udp",
        "nginx-configuration",
        "nginx-ingress-controller",
        "nginx-ingress-tcp-microk8s-conf",
        "nginx-ingress-udp-microk8s-conf",
        "nginx-load-balancer-conf",
        "nginx-load-balancer-microk8s-conf",
    ];
    // A release of the chart has another name.
    const ENDS: [&str; 4] = [
        "-ingress-nginx-controller",
        "-ingress-nginx-tcp",
        "-ingress-nginx-udp",
        "-nginx-ingress-controller",
    ];
    NAMES.contains(&name) || ENDS.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_releases_are_usual() {
        for name in [
            "nginx-configuration",
            "ingress-nginx-controller",
            "my-ingress-nginx-controller",
            "edge-ingress-nginx-udp",
        ] {
            assert!(is_usual(name), "{name}");
        }
        for name in ["app", "nginx", "ingress-nginx", "nginx-configuration-old"] {
            assert!(!is_usual(name), "{name}");
        }
    }
}
