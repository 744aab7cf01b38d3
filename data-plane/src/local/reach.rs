//! Which addresses a proxy may connect to on behalf of a tenant's annotation, whose URL may contain text from clients.
//!
//! **Invariant:** the check is on the address that is about to be connected to, never on a name: a name may resolve
//! differently the next time.

use std::net::IpAddr;

use shared::address::{self, AddressSet};

/// Exceptions: networks that may be connected to although they are loopback, link-local or unassigned.
#[derive(Clone, Debug, Default)]
pub struct Reach(AddressSet);

impl Reach {
    /// With these networks as exceptions.
    pub fn with(networks: AddressSet) -> Self {
        Self(networks)
    }

    /// Why an address may not be connected to; `None` if it may.
    pub(crate) fn refuses(&self, address: IpAddr) -> Option<&'static str> {
        address::astray(address).filter(|_| !self.0.contains(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_its_own_machine_are_refused_unless_somebody_says_so() {
        let refused = |reach: &Reach, address: &str| reach.refuses(address.parse().unwrap());
        let none = Reach::default();
        for (address, what) in [
            ("127.0.0.1", "loopback"),
            ("127.255.0.9", "loopback"),
            ("::1", "loopback"),
            ("::ffff:127.0.0.1", "loopback"),
            ("0.0.0.0", "unspecified"),
            ("::", "unspecified"),
            ("::ffff:0.0.0.0", "unspecified"),
            ("169.254.169.254", "link-local"),
            ("::ffff:169.254.169.254", "link-local"),
            ("fe80::1", "link-local"),
            ("febf::1", "link-local"),
            ("224.0.0.1", "multicast"),
            ("ff02::1", "multicast"),
            ("255.255.255.255", "broadcast"),
            ("fd00:ec2::254", "metadata"),
            ("100.100.100.200", "metadata"),
            ("64:ff9b::a9fe:a9fe", "link-local"),
        ] {
            assert_eq!(refused(&none, address), Some(what), "{address}");
        }
        for address in
            ["10.0.0.1", "192.168.0.1", "172.16.0.1", "100.64.0.1", "1.1.1.1", "fd00::1", "2606:4700::1"]
        {
            assert_eq!(refused(&none, address), None, "{address}");
        }
        let some = Reach::with(AddressSet::parse(["127.0.0.0/8", "fe80::/10"]).unwrap());
        for address in ["127.0.0.1", "::ffff:127.0.0.1", "fe80::1", "10.0.0.1"] {
            assert_eq!(refused(&some, address), None, "{address}");
        }
        assert_eq!(refused(&some, "169.254.169.254"), Some("link-local"));
    }
}
