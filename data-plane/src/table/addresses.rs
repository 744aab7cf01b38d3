//! The addresses of the proxy that clients may connect to (`bind-address` and `disable-ipv6`). Sockets listen where the
//! proxy's flags say; what arrives at another address is closed, or dropped, before anything of it is read.

use std::net::IpAddr;

use shared::policy::LocationPolicy;

use super::policy::PolicyError;

/// The fleet's addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Addresses {
    said: Vec<IpAddr>,
    lacks_ipv6: bool,
}

impl Addresses {
    /// Compiles the policy.
    ///
    /// # Errors
    /// A text is no address.
    pub fn compile(configured: &LocationPolicy) -> Result<Self, PolicyError> {
        let said = configured.bind_address.iter().flat_map(|list| &list.values).map(|text| {
            text.parse().map_err(|_| PolicyError {
                field: "bind_address",
                problem: format!("expected an IP address, got {text:?}"),
            })
        });
        Ok(Self { said: said.collect::<Result<_, _>>()?, lacks_ipv6: configured.disable_ipv6 == Some(true) })
    }

    /// Whether clients may connect to all addresses.
    pub fn are_all(&self) -> bool {
        *self == Self::default()
    }

    /// Whether clients may connect to an address. Only the addresses of its own family restrict it (as in ingress-nginx,
    /// which listens on all of the other family).
    pub fn admits(&self, local: IpAddr) -> bool {
        let local = local.to_canonical();
        let mut of_family = self.said.iter().filter(|said| said.is_ipv4() == local.is_ipv4()).peekable();
        let is_restricted = of_family.peek().is_some();
        let is_said = of_family.any(|said| said.is_unspecified() || *said == local);
        (is_said || !is_restricted) && !(self.lacks_ipv6 && local.is_ipv6())
    }
}

#[cfg(test)]
mod tests {
    use shared::policy::TextList;

    use super::*;

    #[test]
    fn each_family_is_restricted_by_its_own_addresses() {
        let locals = ["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::2"];
        for (said, disable_ipv6, admitted) in [
            (&[][..], None, [true; 5]),
            (&[], Some(false), [true; 5]),
            (&[], Some(true), [true, true, true, false, false]),
            (&["10.0.0.1"], None, [true, true, false, true, true]),
            (&["10.0.0.1"], Some(true), [true, true, false, false, false]),
            (&["0.0.0.0"], Some(true), [true, true, true, false, false]),
            (&["0.0.0.0", "2001:db8::2"], None, [true, true, true, false, true]),
            (&["2001:db8::1"], Some(true), [true, true, true, false, false]),
            (&["::", "10.0.0.2", "10.0.0.3"], None, [false, false, true, true, true]),
        ] {
            let values: Vec<_> = said.iter().map(|text| (*text).to_owned()).collect();
            let bind_address = (!said.is_empty()).then_some(TextList { values });
            let configured = LocationPolicy { bind_address, disable_ipv6, ..LocationPolicy::default() };
            let addresses = Addresses::compile(&configured).unwrap();
            assert_eq!(locals.map(|it| addresses.admits(it.parse().unwrap())), admitted, "{said:?}");
            assert_eq!(addresses.are_all(), said.is_empty() && disable_ipv6 != Some(true), "{said:?}");
        }
        let wrong = TextList { values: vec!["localhost".into()] };
        let configured = LocationPolicy { bind_address: Some(wrong), ..LocationPolicy::default() };
        assert_eq!(Addresses::compile(&configured).unwrap_err().field, "bind_address");
    }
}
