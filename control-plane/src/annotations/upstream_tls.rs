//! What is spoken with the backend, and TLS towards it (annotations.md 5.6, 6.11).

use shared::policy::BackendProtocol;

use super::draft::Draft;
use super::row::{Act, Bad, Of, Reach, Risk, Row};
use super::value::{ANY, BASIC, Grammar, INT, PATTERN, SWITCH};

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "backend-protocol",
        value: &Of(PROTOCOL, Act::Sets(set_protocol)),
        default: "HTTP",
        doc: "`HTTP`, `HTTPS`, `AUTO_HTTP`, `GRPC`, `GRPCS` or `FCGI`, in any case",
        ..Row::NEW
    },
    &Row {
        name: "proxy-ssl-ciphers",
        risk: Risk::Medium,
        value: &Of(ANY, Act::Differs { unless: |_| false, without: "" }),
        needs: Some("proxy-ssl-secret"),
        default: "DEFAULT",
        doc: "Ciphers towards the backend",
        ..Row::NEW
    },
    &Row {
        name: "proxy-ssl-name",
        risk: Risk::High,
        value: &Of(PATTERN, Act::Differs { unless: |_| false, without: "" }),
        needs: Some("proxy-ssl-secret"),
        doc: "Name that the backend's certificate must have",
        ..Row::NEW
    },
    &Row {
        name: "proxy-ssl-protocols",
        value: &Of(ANY, Act::Differs { unless: |_| false, without: "" }),
        needs: Some("proxy-ssl-secret"),
        default: "TLSv1.2",
        doc: "Versions of TLS towards the backend",
        ..Row::NEW
    },
    &Row {
        name: "proxy-ssl-secret",
        risk: Risk::Medium,
        value: &Of(BASIC, Act::Denies { unless: |_| false, reach: Reach::Paths }),
        bad: Bad::Deny(Reach::Paths),
        needs: Some("backend-protocol"),
        doc: "Secret with the CA of the backend's certificate, and with the proxy's own certificate",
        ..Row::NEW
    },
    &Row {
        name: "proxy-ssl-server-name",
        value: &Of(SWITCH, Act::Differs { unless: |_| false, without: "" }),
        needs: Some("proxy-ssl-secret"),
        default: "off",
        doc: "The backend is told the name",
        ..Row::NEW
    },
    &Row {
        name: "proxy-ssl-verify",
        value: &Of(SWITCH, Act::Differs { unless: |_| false, without: "" }),
        needs: Some("proxy-ssl-secret"),
        default: "off",
        doc: "The backend's certificate is verified",
        ..Row::NEW
    },
    &Row {
        name: "proxy-ssl-verify-depth",
        value: &Of(INT, Act::Differs { unless: |_| false, without: "" }),
        needs: Some("proxy-ssl-secret"),
        default: "1",
        doc: "Longest chain of the backend",
        ..Row::NEW
    },
];

fn set_protocol(to: &mut Draft<'_>, it: &'static str) {
    let protocol = match it {
        "HTTP" => BackendProtocol::Http,
        "HTTPS" => BackendProtocol::Https,
        "AUTO_HTTP" => BackendProtocol::AutoHttp,
        "GRPC" => BackendProtocol::Grpc,
        "GRPCS" => BackendProtocol::Grpcs,
        _ => BackendProtocol::Fcgi,
    };
    to.location.backend_protocol = Some(protocol.into());
}

/// In any case, as the original mostly takes it.
const PROTOCOL: Grammar<&'static str> = Grammar {
    words: "one of HTTP HTTPS GRPC GRPCS AUTO_HTTP FCGI",
    read: |text| PROTOCOLS.into_iter().find(|it| it.eq_ignore_ascii_case(text)),
    good: &["HTTPS", "grpc", "HTTP", "AUTO_HTTP", "FCGI"],
    bad: &["HTTP3", "HTTPS "],
};

const PROTOCOLS: [&str; 6] = ["HTTP", "HTTPS", "GRPC", "GRPCS", "AUTO_HTTP", "FCGI"];

#[cfg(test)]
mod tests {
    use shared::policy::LocationPolicy;

    use super::super::tests::location;
    use super::*;

    #[test]
    fn protocols_are_read_in_any_case() {
        for (text, protocol) in [
            ("HTTP", BackendProtocol::Http),
            ("http", BackendProtocol::Http),
            ("Https", BackendProtocol::Https),
            ("auto_http", BackendProtocol::AutoHttp),
            ("grpc", BackendProtocol::Grpc),
            ("GRPCS", BackendProtocol::Grpcs),
            ("fcgi", BackendProtocol::Fcgi),
        ] {
            let expected =
                LocationPolicy { backend_protocol: Some(protocol.into()), ..LocationPolicy::default() };
            assert_eq!(location(&[("backend-protocol", text)]), (expected, 0), "{text}");
        }
        assert_eq!(location(&[("backend-protocol", "SPDY")]), (LocationPolicy::default(), 1));
    }
}
