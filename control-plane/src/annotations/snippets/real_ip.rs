//! Whom a client's address is taken from: nginx' `real_ip_header`, `set_real_ip_from` and `real_ip_recursive`.
//!
//! **Invariant:** they are taken all together or not at all.

use shared::policy::RealIp;

use super::tokens::{Directive, switch};
use crate::annotations::value::{self, CIDRS};

/// Takes the directives out of a snippet, if they are supported.
pub(super) fn take(directives: &mut Vec<Directive>) -> Option<RealIp> {
    let is_one = |it: &Directive| {
        let names = ["real_ip_header", "real_ip_recursive", "set_real_ip_from"];
        names.contains(&it.name()) && it.depth == 0 && !it.is_block
    };
    let found = directives.iter().filter(|it| is_one(it));
    let mut said = None;
    for it in found {
        let RealIp { header, trusted, recursive } = said.get_or_insert_with(RealIp::default);
        match (it.name(), it.arguments()) {
            // The PROXY protocol's is `use-proxy-protocol`.
            ("real_ip_header", [name]) if value::is_header_name(name) && name != "proxy_protocol" => {
                // nginx refuses a second one.
                if !header.is_empty() {
                    return None;
                }
                header.clone_from(name);
            }
            ("real_ip_recursive", [word]) if recursive.is_none() => *recursive = Some(switch(word)?),
            ("set_real_ip_from", [network]) if !network.contains(',') => {
                trusted.extend((CIDRS.read)(network)?);
            }
            _ => return None,
        }
    }
    directives.retain(|it| !is_one(it));
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::snippets::tokens;

    fn taken(text: &str) -> Option<RealIp> {
        let mut directives = tokens::directives(text).unwrap();
        let said = take(&mut directives)?;
        assert_eq!(directives.len(), 0, "{text}");
        Some(said)
    }

    #[test]
    fn all_of_it_is_read() {
        let text = "set_real_ip_from 173.245.48.0/20; set_real_ip_from 2400:cb00::/32; real_ip_header CF-Connecting-IP;
            real_ip_recursive on;";
        let expected = RealIp {
            header: "CF-Connecting-IP".into(),
            trusted: vec!["173.245.48.0/20".into(), "2400:cb00::/32".into()],
            recursive: Some(true),
        };
        assert_eq!(taken(text), Some(expected));
        for text in [
            "real_ip_header proxy_protocol;",
            "real_ip_header $http_x;",
            "real_ip_header A; real_ip_header B;",
            "real_ip_recursive maybe;",
            "set_real_ip_from unix:;",
            "set_real_ip_from lb.example.test;",
            "set_real_ip_from 10.0.0.0/8,10.1.0.0/16;",
            "gzip on;",
        ] {
            assert_eq!(taken(text), None, "{text}");
        }
    }
}
