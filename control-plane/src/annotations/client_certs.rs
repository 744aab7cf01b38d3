//! Client certificates. They apply to the whole host.

use shared::name::ObjectName;
use shared::pattern::Pattern;
use shared::policy::{ClientCertificates, ClientVerification};

use super::draft::Draft;
use super::row::{Bad, Effect, Risk, Row, Scope, Spec};
use super::upstream_tls::depth;
use super::value::{BASIC, BOOL, Grammar, INT, one_of};
use crate::problem::{Severity, shown};
use crate::reference::{FORBIDDEN, Use};

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "auth-tls-error-page",
        scope: Scope::Host,
        on_canary: true,
        risk: Risk::High,
        value: &Spec(ERROR_PAGE, Effect::Sets(set_page)),
        bad: Bad::Reject,
        needs: Some("auth-tls-secret"),
        behind: Some(("auth-tls-secret", is_name)),
        doc: "URL to which clients without a valid certificate are redirected",
        ..Row::NEW
    },
    &Row {
        name: "auth-tls-match-cn",
        scope: Scope::Host,
        on_canary: true,
        risk: Risk::High,
        value: &Spec(MATCH_CN, Effect::Sets(|to, it| certificates(to).match_cn = it)),
        bad: Bad::Reject,
        needs: Some("auth-tls-secret"),
        behind: Some(("auth-tls-secret", is_name)),
        doc: "Pattern that the common name of the certificate must match",
        ..Row::NEW
    },
    &Row {
        name: "auth-tls-pass-certificate-to-upstream",
        scope: Scope::Host,
        on_canary: true,
        value: &Spec(BOOL, Effect::Sets(|to, it| certificates(to).tells_certificate = Some(it))),
        bad: Bad::Reject,
        needs: Some("auth-tls-secret"),
        behind: Some(("auth-tls-secret", is_name)),
        default: "false",
        doc: "The certificate is sent to the backend",
        ..Row::NEW
    },
    &Row {
        name: "auth-tls-secret",
        scope: Scope::Host,
        on_canary: true,
        risk: Risk::Medium,
        value: &Spec(BASIC, Effect::Sets(|to, it| set_secret(to, &it))),
        bad: Bad::Reject,
        doc: "Secret with the CA of client certificates and, optionally, a revocation list",
        ..Row::NEW
    },
    &Row {
        name: "auth-tls-verify-client",
        scope: Scope::Host,
        on_canary: true,
        risk: Risk::Medium,
        value: &Spec(one_of!("on" | "off" | "optional" | "optional_no_ca"), Effect::Sets(set_verification)),
        needs: Some("auth-tls-secret"),
        default: "on",
        doc: "Whether clients must show a certificate",
        ..Row::NEW
    },
    &Row {
        name: "auth-tls-verify-depth",
        scope: Scope::Host,
        on_canary: true,
        value: &Spec(INT, Effect::Sets(|to, it| certificates(to).depth = depth(it))),
        needs: Some("auth-tls-secret"),
        default: "1",
        doc: "How many intermediate certificates are allowed between the client's and the CA; at most 6",
        ..Row::NEW
    },
];

fn certificates<'a>(to: &'a mut Draft<'_>) -> &'a mut ClientCertificates {
    to.host.client_certificates.get_or_insert_default()
}

fn is_name(text: &str) -> bool {
    ObjectName::parse(text).is_some()
}

/// The Secret is checked at the reference. Without one, nobody is let in, as in ingress-nginx.
fn set_secret(to: &mut Draft<'_>, text: &str) {
    certificates(to);
    if is_name(text) {
        to.refer_anywhere(Use::ClientAuthorities, text);
    } else {
        let reason = format!("expected namespace/name, got {}: {FORBIDDEN}", shown(text));
        to.fault(Severity::Unsupported, reason);
    }
}

fn set_page(to: &mut Draft<'_>, page: String) {
    if page.starts_with('@') {
        to.differs("there are no named locations: clients without a good certificate are answered 400");
    } else {
        certificates(to).error_page = page;
    }
}

fn set_verification(to: &mut Draft<'_>, it: &'static str) {
    let verification = match it {
        "off" => ClientVerification::Off,
        "optional" => ClientVerification::Optional,
        "optional_no_ca" => ClientVerification::OptionalNoCa,
        _ => ClientVerification::On,
    };
    certificates(to).verification = Some(verification.into());
}

/// `@name`, or a URL or path of harmless characters.
const ERROR_PAGE: Grammar<String> = Grammar {
    words: "@name, a path, or a URL of http or https",
    read: |text| {
        let rest = text.strip_prefix('@').or_else(|| text.strip_prefix("http://"));
        let rest = rest.or_else(|| text.strip_prefix("https://")).unwrap_or(text);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
        let is_absolute = rest.len() < text.len() || text.starts_with('/');
        (is_absolute && !rest.is_empty() && rest.chars().all(is_plain)).then(|| text.to_owned())
    },
    good: &["https://a.test/denied.html", "/denied"],
    bad: &["ftp://x", "https://a.test/?x", "https://"],
};

const MATCH_CN: Grammar<String> = Grammar {
    words: "CN= and a regular expression",
    read: |text| (text.starts_with("CN=") && Pattern::anywhere(text).is_ok()).then(|| text.to_owned()),
    good: &["CN=client", "CN=(a|b)\\.test"],
    bad: &["client", "CN=(", "cn=a"],
};

#[cfg(test)]
mod tests {
    use super::super::{PREFIX, Parsed, read};
    use super::*;

    fn parsed(configured: &[(&str, &str)]) -> Parsed {
        let configured =
            configured.iter().map(|(name, text)| (format!("{PREFIX}auth-tls-{name}"), (*text).to_owned()));
        read(&ObjectName::new("default", "web"), &configured.collect())
    }

    #[test]
    fn all_of_it_needs_the_secret() {
        let all = [("verify-client", "optional"), ("verify-depth", "2"), ("match-cn", "CN=a")];
        let alone = parsed(&all);
        assert_eq!((alone.serving.host.client_certificates, alone.faults.len()), (None, 3));
        let whole = parsed(&[&all[..], &[("secret", "default/ca"), ("error-page", "/no")]].concat());
        let expected = ClientCertificates {
            verification: Some(ClientVerification::Optional.into()),
            depth: 2,
            match_cn: "CN=a".into(),
            error_page: "/no".into(),
            ..ClientCertificates::default()
        };
        assert_eq!((whole.serving.host.client_certificates, whole.faults), (Some(expected), vec![]));
        assert_eq!(whole.refs.len(), 1);
    }

    #[test]
    fn what_is_wrong_counts_as_not_said() {
        for (name, text) in [("verify-client", "maybe"), ("verify-depth", "deep"), ("error-page", "@no")] {
            let it = parsed(&[("secret", "default/ca"), (name, text)]);
            assert_eq!(it.serving.host.client_certificates, Some(ClientCertificates::default()), "{name}");
            assert_eq!(it.faults.len(), 1, "{name}");
        }
        let depth = |text| {
            let it = parsed(&[("secret", "default/ca"), ("verify-depth", text)]);
            it.serving.host.client_certificates.unwrap().depth
        };
        assert_eq!([depth("0"), depth("-1"), depth("3")], [1, 1, 3]);
    }

    /// It would, with one: the last good version stays, which may have asked for no certificate.
    #[test]
    fn what_is_read_after_the_secret_rejects_nothing_without_a_name_of_one() {
        for (name, text) in
            [("match-cn", "x"), ("error-page", "ftp://x"), ("pass-certificate-to-upstream", "x")]
        {
            let is_rejected = |secret| {
                let it = parsed(&[("secret", secret), (name, text)]);
                assert!(it.serving.host.client_certificates.is_some());
                it.faults.iter().any(|it| it.severity == Severity::Rejected)
            };
            assert!(is_rejected("default/ca") && !is_rejected("ca"), "{name}");
        }
    }

    #[test]
    fn a_secret_that_is_no_name_lets_nobody_in() {
        let it = parsed(&[("secret", "ca")]);
        assert_eq!(it.serving.host.client_certificates, Some(ClientCertificates::default()));
        assert_eq!((it.refs.len(), it.faults.len()), (0, 1));
    }
}
