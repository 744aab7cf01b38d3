//! The protocol of connections to the backend, and their TLS.

use rustls_pki_types::ServerName;
use shared::name::ObjectName;
use shared::policy::{BackendProtocol, BackendTls};

use super::ciphers;
use super::draft::Draft;
use super::row::{Bad, Effect, Reach, Risk, Row, Spec};
use super::value::{BASIC, Grammar, INT, PATTERN, SWITCH, trimmed};
use crate::problem::{Severity, shown};
use crate::reference::Use;

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "backend-protocol",
        value: &Spec(PROTOCOL, Effect::Sets(set_protocol)),
        default: "HTTP",
        doc: "`HTTP`, `HTTPS`, `AUTO_HTTP`, `GRPC`, `GRPCS` or `FCGI`, in any case",
        harmless: true,
        ..Row::NEW
    },
    &Row {
        name: "proxy-ssl-ciphers",
        on_canary: true,
        risk: Risk::Medium,
        value: &Spec(CIPHERS, Effect::Sets(set_ciphers)),
        needs: Some("proxy-ssl-secret"),
        default: "DEFAULT",
        doc: "Ciphers of TLS 1.2 towards the backend, in OpenSSL's words; only those with forward secrecy are known",
        ..Row::NEW
    },
    &Row {
        name: "proxy-ssl-name",
        on_canary: true,
        risk: Risk::High,
        value: &Spec(NAME, Effect::Sets(set_name)),
        needs: Some("proxy-ssl-secret"),
        doc: "Name that the backend's certificate must have, and that it is told",
        ..Row::NEW
    },
    &Row {
        name: "proxy-ssl-protocols",
        on_canary: true,
        value: &Spec(
            PROTOCOLS_OF_TLS,
            Effect::Sets(|to, it| backend_tls(to).versions = it.reported(to, "backends")),
        ),
        needs: Some("proxy-ssl-secret"),
        default: "TLSv1.2",
        doc: "Versions of TLS towards the backend",
        ..Row::NEW
    },
    &Row {
        name: "proxy-ssl-secret",
        on_canary: true,
        risk: Risk::Medium,
        value: &Spec(BASIC, Effect::Sets(|to, it| set_secret(to, &it))),
        bad: Bad::Deny(Reach::Paths),
        doc: "Secret with the CA of the backend's certificate, and with the proxy's own certificate",
        ..Row::NEW
    },
    &Row {
        name: "proxy-ssl-server-name",
        on_canary: true,
        value: &Spec(SWITCH, Effect::Sets(|to, it| backend_tls(to).tells_name = it)),
        needs: Some("proxy-ssl-secret"),
        default: "off",
        doc: "The backend is told the name",
        ..Row::NEW
    },
    &Row {
        name: "proxy-ssl-verify",
        on_canary: true,
        value: &Spec(SWITCH, Effect::Sets(set_verify)),
        needs: Some("proxy-ssl-secret"),
        default: "off",
        doc: "The backend's certificate is verified",
        ..Row::NEW
    },
    &Row {
        name: "proxy-ssl-verify-depth",
        on_canary: true,
        value: &Spec(INT, Effect::Sets(|to, it| backend_tls(to).verify_depth = depth(it))),
        needs: Some("proxy-ssl-secret"),
        default: "1",
        doc: "How many intermediate certificates may stand between the backend's and the CA; more than 6 never may",
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

fn backend_tls<'a>(to: &'a mut Draft<'_>) -> &'a mut BackendTls {
    to.location.backend_tls.get_or_insert_default()
}

/// The Secret is checked at the reference.
fn set_secret(to: &mut Draft<'_>, text: &str) {
    if ObjectName::parse(text).is_none() {
        let what = Reach::Paths.as_str();
        to.deny(Reach::Paths, "is no namespace/name");
        to.fault(Severity::Unsupported, format!("expected namespace/name, got {}: {what}", shown(text)));
        return;
    }
    to.refer_anywhere(Use::BackendTls, text);
    backend_tls(to);
}

fn set_name(to: &mut Draft<'_>, text: String) {
    if text.contains('$') {
        // The variable's value is unknown: nothing is sent to a backend whose name cannot be verified.
        let what = Reach::Paths.as_str();
        to.deny(Reach::Paths, "has a variable");
        to.fault(Severity::Unsupported, format!("expected a name without variables: {what}"));
    } else {
        backend_tls(to).name = text;
    }
}

fn set_verify(to: &mut Draft<'_>, is_on: bool) {
    if is_on && to.text("proxy-ssl-name").is_none() && to.tls_name.is_empty() {
        let reason = "expected the annotation proxy-ssl-name as well: without it no certificate is accepted, as in ingress-nginx, and all requests to the backend are answered 502";
        to.fault(Severity::Warning, reason);
    }
    backend_tls(to).verify = is_on;
}

fn set_ciphers(to: &mut Draft<'_>, text: String) {
    let ciphers = ciphers::chosen(&text);
    if ciphers.is_empty() {
        let reason =
            format!("{} names no cipher of TLS 1.2 that is known here: DEFAULT is used", shown(&text));
        to.fault(Severity::Warning, reason);
    } else {
        ciphers::report_unknown(to, &text, "backends");
    }
    backend_tls(to).ciphers = ciphers;
}

/// 0 means 1 (ingress-nginx), and so do negative numbers.
pub(super) fn depth(configured: i64) -> u32 {
    u32::try_from(configured).unwrap_or(if configured > 0 { u32::MAX } else { 0 }).max(1)
}

/// A name, or one with variables, which are not supported here.
const NAME: Grammar<String> = Grammar {
    words: "a DNS name or an address",
    read: |text| {
        let is_name = |text: &str| text.contains('$') || ServerName::try_from(text).is_ok();
        (PATTERN.read)(text).filter(|text| is_name(text))
    },
    good: &["internal.test", "10.0.0.1"],
    bad: &["*.a.test", "a b", "a;b"],
};

/// Versions of TLS.
pub(super) struct Versions {
    /// Those that are supported.
    pub known: Vec<u32>,
    /// Whether older ones are named, which are left out.
    has_older: bool,
}

impl Versions {
    /// Those that are supported; reports the older ones, which such peers may need.
    pub(super) fn reported(self, to: &mut Draft<'_>, peers: &str) -> Vec<u32> {
        if self.has_older {
            let reason = format!(
                "versions before TLSv1.2 are never used: {peers} that know nothing newer cannot be spoken to"
            );
            to.fault(Severity::Warning, reason);
        }
        self.known
    }
}

/// A list of versions, at least one of which is supported.
pub(super) const PROTOCOLS_OF_TLS: Grammar<Versions> = Grammar {
    words: "TLSv1.2, TLSv1.3 or both, with a space between",
    read: |text| {
        let number = |word: &str| match word {
            "SSLv2" | "SSLv3" | "TLSv1" | "TLSv1.1" => Some(0),
            "TLSv1.2" => Some(12),
            "TLSv1.3" => Some(13),
            _ => None,
        };
        let words = text.split(' ').filter(|word| !word.is_empty());
        let mut numbers: Vec<_> = words.map(number).collect::<Option<_>>()?;
        let all = numbers.len();
        numbers.retain(|number| *number > 0);
        let has_older = numbers.len() < all;
        numbers.sort_unstable();
        numbers.dedup();
        (!numbers.is_empty()).then_some(Versions { known: numbers, has_older })
    },
    good: &["TLSv1.2 TLSv1.3", "TLSv1.3"],
    bad: &["TLSv9", "TLSv1.2,TLSv1.3", "tlsv1.2", "TLSv1"],
};

const CIPHERS: Grammar<String> = Grammar {
    words: "an OpenSSL list of ciphers: letters, digits and + : _ - !",
    read: |text| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "+:_-!".contains(c);
        text.chars().all(is_allowed).then(|| text.to_owned())
    },
    good: &["ECDHE-RSA-AES128-GCM-SHA256:!aNULL", "HIGH"],
    bad: &["HIGH;x", "A B"],
};

/// In any case, as ingress-nginx mostly accepts it.
const PROTOCOL: Grammar<&'static str> = Grammar {
    words: "one of HTTP HTTPS GRPC GRPCS AUTO_HTTP FCGI",
    read: |text| PROTOCOLS.into_iter().find(|it| it.eq_ignore_ascii_case(trimmed(text))),
    good: &["HTTPS", "grpc", "HTTP", "AUTO_HTTP", "FCGI", "HTTPS "],
    bad: &["HTTP3", "H T T P"],
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

    /// The settings next to a Secret, and the number of faults.
    fn configured(annotations: &[(&str, &str)]) -> (BackendTls, usize) {
        let secret = ("proxy-ssl-secret", "default/ca");
        let all: Vec<_> = annotations.iter().copied().chain([secret]).collect();
        let (policy, faults) = location(&all);
        (policy.backend_tls.unwrap(), faults)
    }

    #[test]
    fn all_of_it_needs_the_secret() {
        let all =
            [("proxy-ssl-name", "a.test"), ("proxy-ssl-verify", "on"), ("proxy-ssl-protocols", "TLSv1.3")];
        let (policy, faults) = location(&all);
        assert_eq!((policy.backend_tls, faults), (None, 3));
        let tls =
            BackendTls { name: "a.test".into(), verify: true, versions: vec![13], ..BackendTls::default() };
        assert_eq!(configured(&all), (tls, 0));
    }

    #[test]
    fn what_is_wrong_counts_as_not_said() {
        let nothing = BackendTls::default();
        assert_eq!(configured(&[]), (nothing.clone(), 0));
        for (name, text) in [
            ("proxy-ssl-verify", "true"),
            ("proxy-ssl-server-name", "yes"),
            ("proxy-ssl-protocols", "TLSv9"),
            ("proxy-ssl-verify-depth", "deep"),
            ("proxy-ssl-ciphers", "a b"),
            ("proxy-ssl-ciphers", "AES256-SHA"),
            ("proxy-ssl-name", "*.a.test"),
        ] {
            assert_eq!(configured(&[(name, text)]), (nothing.clone(), 1), "{name}: {text}");
        }
        let depth = |text| configured(&[("proxy-ssl-verify-depth", text)]).0.verify_depth;
        assert_eq!([depth("0"), depth("-3"), depth("2"), depth("99999999999")], [1, 1, 2, u32::MAX]);
        assert_eq!(configured(&[("proxy-ssl-verify", "on")]).1, 1, "without a name nothing is good");
    }

    #[test]
    fn what_nobody_can_tell_is_not_served() {
        for (name, text) in
            [("proxy-ssl-secret", "ca"), ("proxy-ssl-secret", "a;b"), ("proxy-ssl-name", "$host")]
        {
            let annotations = [("proxy-ssl-secret", "default/ca"), (name, text)];
            let annotations =
                annotations.map(|(name, text)| (format!("{}{name}", super::super::PREFIX), text.to_owned()));
            let parsed = super::super::read(&ObjectName::new("default", "web"), &annotations.into());
            assert!(parsed.serving.denied.is_some(), "{name}: {text}");
        }
    }
}
