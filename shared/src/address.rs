//! Sets of IP addresses, parsed from lists of addresses and CIDR blocks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use thiserror::Error;

/// A list entry that is neither an address nor a block.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("expected an IP address or a block like 10.0.0.0/8, got {entry:?}")]
pub struct AddressError {
    /// The entry, truncated at 64 characters.
    pub entry: String,
}

/// A set of addresses of both families.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AddressSet {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
}

impl AddressSet {
    /// Parses addresses or blocks; bits beyond a block's prefix are ignored, as are white space around an entry and
    /// empty entries.
    ///
    /// # Errors
    /// The first entry that is neither.
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, AddressError> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for entry in entries.into_iter().map(str::trim).filter(|entry| !entry.is_empty()) {
            match block(entry).ok_or_else(|| AddressError { entry: entry.chars().take(64).collect() })? {
                IpNet::V4(net) => v4.push((net.network().to_bits(), net.broadcast().to_bits())),
                IpNet::V6(net) => v6.push((net.network().to_bits(), net.broadcast().to_bits())),
            }
        }
        Ok(Self { v4: Ranges::new(v4), v6: Ranges::new(v6) })
    }

    /// Whether it contains an address. An IPv4 address inside IPv6 (`::ffff:192.0.2.1`) is treated as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => self.v4.contains(address.to_bits()),
            IpAddr::V6(address) => self.v6.contains(address.to_bits()),
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.v4.0.is_empty() && self.v6.0.is_empty()
    }
}

/// Metadata services of clouds, which hand out identities and credentials, at addresses that are not link-local: AWS (all
/// of its local services), Google Cloud, Oracle, Scaleway, Alibaba Cloud, and Azure's WireServer. They answer any process on
/// the node.
const METADATA: [(IpAddr, u8); 6] = [
    (IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0)), 32),
    (IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)), 128),
    (IpAddr::V6(Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe)), 128),
    (IpAddr::V6(Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42)), 128),
    (IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)), 32),
    (IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)), 32),
];

/// What [`astray`] says of such an address.
pub const OF_METADATA: &str = "metadata";

/// Why an address is not connected to unless the operator names it: it leads to the own machine, to its link, or nowhere
/// (`loopback`, for example), or to a metadata service ([`OF_METADATA`]).
pub fn astray(address: IpAddr) -> Option<&'static str> {
    let address = embedded(address);
    let is_in = |(network, length): &(IpAddr, u8)| {
        IpNet::new(*network, *length).is_ok_and(|network| network.contains(&address))
    };
    no_endpoint(address).or_else(|| METADATA.iter().any(is_in).then_some(OF_METADATA))
}

/// Why no pod or remote server can have an address, as Kubernetes validates those of EndpointSlices.
fn no_endpoint(address: IpAddr) -> Option<&'static str> {
    match embedded(address) {
        it if it.is_loopback() => Some("loopback"),
        it if it.is_unspecified() => Some("unspecified"),
        it if it.is_multicast() => Some("multicast"),
        IpAddr::V4(it) if it.is_link_local() => Some("link-local"),
        IpAddr::V6(it) if it.is_unicast_link_local() => Some("link-local"),
        IpAddr::V4(it) if it.is_broadcast() => Some("broadcast"),
        _ => None,
    }
}

/// The IPv4 address embedded in an IPv6 address: mapped, or with the well-known prefix of translators (RFC 6052 section
/// 2.1), which connect to it.
fn embedded(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(it) if it.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0] => {
            let [.., a, b, c, d] = it.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        it => it,
    }
}

/// The blocks of what a block has and none of the others has; `None`: one of them is no block.
pub fn without(entry: &str, others: &[&str]) -> Option<Vec<String>> {
    let mut left = vec![block(entry)?.trunc()];
    for other in others {
        let other = block(other)?.trunc();
        left = left.into_iter().flat_map(|it| around(it, &other)).collect();
    }
    Some(left.iter().map(IpNet::to_string).collect())
}

/// What is left of a block around another one: of each half that has it the other half.
fn around(net: IpNet, hole: &IpNet) -> Vec<IpNet> {
    if hole.contains(&net) {
        return Vec::new();
    }
    if !net.contains(hole) {
        return vec![net];
    }
    let (mut out, mut rest) = (Vec::new(), net);
    while rest != *hole {
        // It is larger than what it contains, so it has two halves.
        for half in rest.subnets(rest.prefix_len() + 1).into_iter().flatten() {
            if half.contains(hole) {
                rest = half;
            } else {
                out.push(half);
            }
        }
    }
    out
}

/// An address is the block of itself; blocks of mapped IPv4 addresses become blocks of IPv4.
fn block(entry: &str) -> Option<IpNet> {
    let net = match entry.split_once('/') {
        // The address is parsed apart: the crate for blocks takes `010.0.0.0/8`, which some read as octal. Go does not.
        Some((address, prefix)) if prefix.bytes().all(|it| it.is_ascii_digit()) => {
            IpNet::new(address.parse().ok()?, prefix.parse().ok()?).ok()?
        }
        Some(_) => return None,
        None => IpNet::from(entry.parse::<IpAddr>().ok()?),
    };
    let IpNet::V6(v6) = net else { return Some(net) };
    // The mark of mapped addresses ends at bit 96, so a block with a shorter prefix is not taken for one.
    Some(match v6.network().to_ipv4_mapped() {
        Some(v4) => IpNet::new(IpAddr::V4(v4), v6.prefix_len() - 96).ok()?,
        None => net,
    })
}

/// Inclusive ranges, ascending, with a gap between any two.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Ranges<T>(Box<[(T, T)]>);

impl<T: Copy + Ord + Next> Ranges<T> {
    fn new(mut ranges: Vec<(T, T)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(T, T)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(before) if before.1.next().is_none_or(|next| first <= next) => {
                    before.1 = before.1.max(last)
                }
                _ => merged.push((first, last)),
            }
        }
        Self(merged.into())
    }

    fn contains(&self, value: T) -> bool {
        let at = self.0.partition_point(|(first, _)| *first <= value);
        at > 0 && value <= self.0[at - 1].1
    }
}

/// The next number; `None` after the greatest.
trait Next: Sized {
    fn next(self) -> Option<Self>;
}

impl Next for u32 {
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
}

impl Next for u128 {
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(text: &str) -> AddressSet {
        AddressSet::parse(text.split(',')).unwrap()
    }

    fn has(set: &AddressSet, address: &str) -> bool {
        set.contains(address.parse().unwrap())
    }

    #[test]
    fn addresses_and_blocks_of_both_families() {
        let set = set("10.0.0.0/8, 192.0.2.7 ,2001:db8::/32,,::1");
        for inside in
            ["10.0.0.0", "10.255.255.255", "192.0.2.7", "2001:db8:ffff::1", "::1", "::ffff:10.1.2.3"]
        {
            assert!(has(&set, inside), "{inside}");
        }
        for outside in ["9.255.255.255", "11.0.0.0", "192.0.2.8", "2001:db9::", "::2", "::ffff:11.0.0.0"] {
            assert!(!has(&set, outside), "{outside}");
        }
    }

    #[test]
    fn bits_behind_the_prefix_do_not_count() {
        assert_eq!(set("10.1.2.3/8"), set("10.0.0.0/8"));
        assert_eq!(set("::ffff:10.0.0.0/104"), set("10.0.0.0/8"));
    }

    /// Only mapped addresses are IPv4: not a larger block that contains them, nor the deprecated IPv4-compatible
    /// addresses, which begin with zeros.
    #[test]
    fn addresses_of_version_6_are_none_of_version_4() {
        for text in ["::/0", "::/95", "::/96", "::10.1.2.3", "::ffff:0:0/95"] {
            let set = set(text);
            assert!(!has(&set, "10.1.2.3") && !has(&set, "::ffff:10.1.2.3"), "{text}");
        }
        assert!(has(&set("::10.1.2.3"), "::10.1.2.3") && has(&set("::ffff:0:0/96"), "10.1.2.3"));
    }

    #[test]
    fn everything_and_nothing() {
        assert_eq!(set("0.0.0.0/1,128.0.0.0/1,::/0"), set("0.0.0.0/0,::/0"), "neighbours are joined");
        assert!(set("").is_empty() && set(" , ").is_empty());
        assert!(!has(&set(""), "127.0.0.1"));
    }

    #[test]
    fn a_block_without_others_is_the_blocks_around_them() {
        for (entry, others, left) in [
            ("10.0.0.0/30", &["10.0.0.1"][..], &["10.0.0.2/31", "10.0.0.0/32"][..]),
            ("10.9.9.9/8", &["10.0.0.0/9", "10.128.0.0/10"], &["10.192.0.0/10"]),
            ("10.0.0.1", &["10.0.0.0/8"], &[]),
            ("10.0.0.0/8", &["10.0.0.0/8"], &[]),
            ("10.0.0.0/8", &["11.0.0.0/8", "::/0"], &["10.0.0.0/8"]),
            ("::/126", &["::3"], &["::/127", "::2/128"]),
        ] {
            let left: Vec<_> = left.iter().map(ToString::to_string).collect();
            assert_eq!(without(entry, others), Some(left), "{entry}");
        }
        assert_eq!(without("::/0", &["::1"]).map(|it| it.len()), Some(128));
        assert_eq!((without("x", &[]), without("::", &["x"])), (None, None));
    }

    #[test]
    fn metadata_services_are_astray() {
        let of = |address: &str| {
            let address = address.parse().unwrap();
            (astray(address), no_endpoint(address))
        };
        for address in [
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd00:c1::a9fe:a9fe",
            "fd00:42::42",
            "fd20:ce::254",
            "100.100.100.200",
            "168.63.129.16",
            "64:ff9b::a83f:8110",
        ] {
            assert_eq!(of(address), (Some("metadata"), None), "{address}");
        }
        for (address, what) in [
            ("169.254.169.254", "link-local"),
            ("64:ff9b::a9fe:a9fe", "link-local"),
            ("64:ff9b::7f00:1", "loopback"),
            ("64:ff9b::", "unspecified"),
            ("64:ff9b::ffff:ffff", "broadcast"),
        ] {
            assert_eq!(of(address), (Some(what), Some(what)), "{address}");
        }
        for address in [
            "fd00:ec3::254",
            "fd20:ce::1",
            "100.100.100.100",
            "168.63.129.17",
            "64:ff9b::a00:1",
            "64:ff9b:0:0:0:1:7f00:1",
        ] {
            assert_eq!(of(address), (None, None), "{address}");
        }
    }

    #[test]
    fn what_is_no_address_is_named() {
        for entry in [
            "10.0.0.0/33",
            "010.0.0.0/8",
            "10.0.0.0/+8",
            "10.0.0",
            "host",
            "10.0.0.0-10.0.0.9",
            "fe80::1%eth0",
            "1.2.3.4/",
            "::/129",
        ] {
            let error = AddressSet::parse(["10.0.0.1", entry]).unwrap_err();
            assert_eq!(error.entry, entry);
        }
    }

    proptest! {
        /// Merged ranges contain exactly what one of the blocks contains.
        #[test]
        fn a_set_is_its_blocks(
            blocks in prop::collection::vec((any::<u32>(), 0u8..=32), 0..12),
            address in any::<u32>(),
            near in any::<prop::sample::Index>(),
        ) {
            let nets: Vec<IpNet> =
                blocks.iter().map(|(bits, prefix)| IpNet::new(IpAddr::from(bits.to_be_bytes()), *prefix).unwrap()).collect();
            let texts: Vec<String> = nets.iter().map(ToString::to_string).collect();
            let set = AddressSet::parse(texts.iter().map(String::as_str)).unwrap();
            let mut addresses = vec![IpAddr::from(address.to_be_bytes())];
            if !nets.is_empty() {
                addresses.push(nets[near.index(nets.len())].broadcast());
            }
            for address in addresses {
                prop_assert_eq!(set.contains(address), nets.iter().any(|net| net.contains(&address)));
            }
        }
    }
}
