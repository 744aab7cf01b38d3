//! Which clients may see the connection status page (nginx' `stub_status`, as in ingress-nginx).

use shared::address::AddressSet;
use shared::policy::{LocationPolicy, TextList};

use super::PolicyError;

/// The addresses that may see the page, if configured.
pub(super) fn compile(configured: &LocationPolicy) -> Result<Option<Box<AddressSet>>, PolicyError> {
    let (ipv4, ipv6) = (&configured.nginx_status_ipv4_whitelist, &configured.nginx_status_ipv6_whitelist);
    if ipv4.is_none() && ipv6.is_none() {
        return Ok(None);
    }
    let of = |list: &Option<TextList>, usual: &str| match list {
        Some(list) => list.values.clone(),
        None => vec![usual.to_owned()],
    };
    let all = [of(ipv4, "127.0.0.1"), of(ipv6, "::1")].concat();
    let set = AddressSet::parse(all.iter().map(String::as_str));
    set.map(|set| Some(Box::new(set)))
        .map_err(|error| PolicyError { field: "nginx_status_ipv4_whitelist", problem: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_has_a_list_of_its_own() {
        let list =
            |texts: &[&str]| Some(TextList { values: texts.iter().map(ToString::to_string).collect() });
        let configured = LocationPolicy {
            nginx_status_ipv4_whitelist: list(&["10.0.0.0/8"]),
            ..LocationPolicy::default()
        };
        let shown = compile(&configured).unwrap().unwrap();
        for (address, is_shown) in
            [("10.1.1.1", true), ("127.0.0.1", false), ("::1", true), ("fd00::1", false)]
        {
            assert_eq!(shown.contains(address.parse().unwrap()), is_shown, "{address}");
        }
        assert!(compile(&LocationPolicy::default()).unwrap().is_none());
        let bad =
            LocationPolicy { nginx_status_ipv6_whitelist: list(&["nobody"]), ..LocationPolicy::default() };
        assert!(compile(&bad).is_err());
    }
}
