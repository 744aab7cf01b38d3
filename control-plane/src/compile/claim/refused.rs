//! Hosts of rules that a folder of manifests may have, and that are served, but that a cluster would not take.

use std::net::IpAddr;

/// Why an API server refuses an object with this host in a rule. It is served here as ingress-nginx would.
pub(super) fn host(host: &str) -> Option<String> {
    let name = host.strip_prefix("*.").unwrap_or(host);
    if host.parse::<IpAddr>().is_ok() {
        return Some(format!(
            "expected a DNS name, got the address {host}: an API server refuses the object"
        ));
    }
    let odd = name.chars().find(|it| it.is_ascii_uppercase() || *it == '_')?;
    Some(format!(
        "expected lower-case letters, digits, hyphens and dots, got {odd:?} in {host:?}: an API server refuses the object"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_an_api_server_refuses() {
        for odd in ["KEYCLOAK_HOST", "a_b.test", "Shop.test", "*.Shop.test", "85.211.200.60", "10.0.0.1"] {
            assert!(host(odd).is_some_and(|why| why.contains("an API server refuses")), "{odd}");
        }
        for fine in ["", "shop.test", "*.shop.test", "a-b.shop-1.test", "4.test"] {
            assert_eq!(host(fine), None, "{fine}");
        }
    }
}
