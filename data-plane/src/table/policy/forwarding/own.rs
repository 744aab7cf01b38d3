//! Headers that the proxy sets itself, set once more to what they would be: `proxy_set_header X-Forwarded-Proto $scheme`.
//! nginx sends both lines, the one of ingress-nginx first, which knows of forwarded headers what `$scheme` does not. Most
//! backends read that one, and two lines that say the same help nobody: it stays alone.

use shared::template::{OfConnection, Part, Template, Variable};

use crate::table::policy::headers::Header;

/// The headers that replace others, and a list of addresses that goes on behind the proxy's own `X-Forwarded-For`.
pub(super) fn left(fields: Vec<Header>) -> (Vec<Header>, Option<Template>) {
    let mut list = None;
    let replacing = fields.into_iter().filter_map(|field| match said(&field) {
        Said::Another => Some(field),
        Said::Own => None,
        Said::List => {
            list = Some(field.value);
            None
        }
    });
    (replacing.collect(), list)
}

/// What a header says of a request.
enum Said {
    /// What the proxy says anyway, or what it would say if it believed nobody.
    Own,
    /// The addresses that a request came past. A backend that trusts some of them reads both lines as one list.
    List,
    /// Something else.
    Another,
}

fn said(Header { name, value }: &Header) -> Said {
    let [Part::Variable(variable)] = value.parts() else { return Said::Another };
    let name = name.to_ascii_lowercase();
    match (&name[..], variable) {
        (b"x-forwarded-for", Variable::ForwardedFor) => Said::List,
        (b"x-forwarded-for" | b"x-real-ip", Variable::ClientAddress)
        | (b"x-forwarded-host", Variable::Host | Variable::BestHost)
        | (
            b"x-forwarded-proto" | b"x-forwarded-scheme" | b"x-scheme",
            Variable::AccessScheme | Variable::OfConnection(OfConnection::Scheme),
        )
        | (b"x-forwarded-port", Variable::AccessPort | Variable::OfConnection(OfConnection::ServerPort)) => {
            Said::Own
        }
        (b"x-forwarded-host", Variable::Header(header)) if **header == *"host" => Said::Own,
        _ => Said::Another,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_proxy_says_anyway_is_left_to_it() {
        let left = |name: &'static str, value: &str| {
            let (fields, list) = left(vec![Header { name: name.into(), value: Template::parse(value) }]);
            (fields.len(), list.is_some())
        };
        for (name, values) in [
            ("X-Forwarded-Proto", &["$scheme", "${scheme}", "$pass_access_scheme"][..]),
            ("x-forwarded-host", &["$host", "$http_host", "$best_http_host"]),
            ("X-Real-IP", &["$remote_addr"]),
            ("X-Forwarded-For", &["$remote_addr"]),
            ("X-Forwarded-Port", &["$server_port", "$pass_port"]),
        ] {
            values.iter().for_each(|value| assert_eq!(left(name, value), (0, false), "{name} {value}"));
        }
        assert_eq!(left("X-Forwarded-For", "$proxy_add_x_forwarded_for"), (0, true));
        for (name, value) in [
            ("X-Forwarded-Proto", "https"),
            ("X-Forwarded-Proto", "$http_x_forwarded_proto"),
            ("X-Forwarded-Host", "$server_name"),
            ("X-Forwarded-Host", "$host:8443"),
            ("X-Real-IP", "$http_cf_connecting_ip"),
            ("X-Client", "$remote_addr"),
            ("X-Client-List", "$proxy_add_x_forwarded_for"),
        ] {
            assert_eq!(left(name, value), (1, false), "{name} {value}");
        }
    }
}
