//! Certificates of clients (annotations.md 5.2, 6.8). They are of the whole host.

use super::draft::Draft;
use super::row::{Act, Bad, Of, Reach, Risk, Row, Scope};
use super::value::{BASIC, BOOL, Grammar, INT, one_of};

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "auth-tls-error-page",
        scope: Scope::Host,
        risk: Risk::High,
        value: &Of(ERROR_PAGE, Act::Differs { unless: |_| false, without: "" }),
        bad: Bad::Reject,
        needs: Some("auth-tls-secret"),
        doc: "Where clients without a good certificate are sent",
        ..Row::NEW
    },
    &Row {
        name: "auth-tls-match-cn",
        scope: Scope::Host,
        risk: Risk::High,
        value: &Of(MATCH_CN, Act::Denies { unless: |_| false, reach: Reach::Hosts }),
        bad: Bad::Reject,
        needs: Some("auth-tls-secret"),
        doc: "Pattern that the name in the certificate must match",
        ..Row::NEW
    },
    &Row {
        name: "auth-tls-pass-certificate-to-upstream",
        scope: Scope::Host,
        value: &Of(BOOL, Act::Differs { unless: |_| false, without: "" }),
        bad: Bad::Reject,
        needs: Some("auth-tls-secret"),
        default: "false",
        doc: "The certificate is sent to the backend",
        ..Row::NEW
    },
    &Row {
        name: "auth-tls-secret",
        scope: Scope::Host,
        risk: Risk::Medium,
        value: &Of(BASIC, Act::Deferred(secret, Reach::Hosts)),
        bad: Bad::Reject,
        doc: "Secret with the CA of clients' certificates",
        ..Row::NEW
    },
    &Row {
        name: "auth-tls-verify-client",
        scope: Scope::Host,
        risk: Risk::Medium,
        value: &Of(
            one_of!("on" | "off" | "optional" | "optional_no_ca"),
            Act::Differs { unless: |_| false, without: "" },
        ),
        needs: Some("auth-tls-secret"),
        default: "on",
        doc: "Whether clients must show a certificate",
        ..Row::NEW
    },
    &Row {
        name: "auth-tls-verify-depth",
        scope: Scope::Host,
        value: &Of(INT, Act::Differs { unless: |_| false, without: "" }),
        needs: Some("auth-tls-secret"),
        default: "1",
        doc: "Longest chain",
        ..Row::NEW
    },
];

/// Without verification nobody is kept out: `off` is how people switch the feature off for a while.
fn secret(to: &mut Draft<'_>, _: String) {
    let is_off = to.said("auth-tls-verify-client") == Some("off") && to.said("auth-tls-match-cn").is_none();
    if is_off { to.differs("the headers ssl-client-* are not sent") } else { to.not_enforced(Reach::Hosts) }
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
    good: &["@denied", "https://a.test/denied.html", "/denied"],
    bad: &["ftp://x", "https://a.test/?x", "https://"],
};

const MATCH_CN: Grammar<regex::Regex> = Grammar {
    words: "CN= and a regular expression",
    read: |text| text.strip_prefix("CN=").and_then(|_| regex::Regex::new(text).ok()),
    good: &["CN=client", "CN=(a|b)\\.test"],
    bad: &["client", "CN=(", "cn=a"],
};
