//! Which addresses an OCSP responder may have. A tenant's certificate names it, but the proxy connects to it, from
//! networks that the tenant cannot reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use shared::address::{self, AddressSet};

/// Networks that are allowed in addition to public ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(AddressSet);

impl Places {
    /// Public addresses, and these.
    pub(crate) fn new(further: AddressSet) -> Self {
        Self(further)
    }

    /// Whether a responder at this address may be contacted.
    pub(super) fn may(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.contains(address)
            || match address {
                IpAddr::V4(address) => is_public(address),
                IpAddr::V6(address) => is_public6(address),
            }
    }
}

/// Addresses that belong to no private or special-purpose network (IANA's registry of special-purpose addresses).
fn is_public(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !(address::astray(address.into()).is_some()
        || address.is_private()
        || address.is_documentation()
        || a == 0
        || a >= 240
        // Shared address space of carriers (CGN), and of some clusters.
        || (a == 100 && (64..128).contains(&b))
        || (a == 198 && (18..20).contains(&b))
        || (a, b, c) == (192, 0, 0)
        || (a, b, c) == (192, 88, 99))
}

/// Global unicast, except for ranges that embed IPv4 addresses, which are not checked here.
fn is_public6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    let is_global = a & 0xe000 == 0x2000;
    let is_tunnel = a == 0x2002 || (a == 0x2001 && b < 0x0200);
    let is_documentation = (a == 0x2001 && b == 0x0db8) || a == 0x3fff;
    is_global && !is_tunnel && !is_documentation
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(places: &Places, address: &str) -> bool {
        places.may(address.parse().unwrap())
    }

    #[test]
    fn public_addresses_and_what_was_said() {
        let public = Places::default();
        for address in ["1.1.1.1", "8.8.4.4", "172.15.0.1", "172.32.0.1", "100.128.0.1", "2606:4700::1"] {
            assert!(may(&public, address), "{address}");
        }
        for address in [
            "127.0.0.1",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "240.0.0.1",
            "192.0.0.8",
            "203.0.113.1",
            "168.63.129.16",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
        ] {
            assert!(!may(&public, address), "{address}");
        }
        let own = Places::new(AddressSet::parse(["10.1.0.0/16", "fd00::/8"]).unwrap());
        for address in ["10.1.2.3", "::ffff:10.1.2.3", "fd00::1", "1.1.1.1"] {
            assert!(may(&own, address), "{address}");
        }
        assert!(!may(&own, "10.2.0.1") && !may(&own, "127.0.0.1"));
    }
}
