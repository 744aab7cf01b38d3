//! Client certificates: which ones a host requires (as in ingress-nginx).

use shared::pattern::{Pattern, Steps};
use shared::policy::{ClientCertificates, ClientVerification};

use super::PolicyError;

/// How client certificates are verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Verification {
    /// A valid certificate is required.
    #[default]
    On,
    /// No certificate is requested.
    Off,
    /// A certificate must be valid if there is one.
    Optional,
    /// A certificate must be valid if there is one, except that its issuer need not be trusted.
    OptionalNoCa,
}

/// What a client that fails the verification gets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ErrorPage {
    /// A 400.
    #[default]
    None,
    /// A redirect to this URL.
    Url(Box<str>),
    /// This path of the host.
    Path(Box<str>),
}

/// The settings that a connection's verification depends on. With other settings a new connection is needed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientAuthConfig {
    /// Key of the Material with the authorities.
    pub authorities: Box<str>,
    /// Whether clients are asked for a certificate.
    pub asks: bool,
    /// Maximum number of intermediate certificates.
    pub depth: usize,
}

/// The client certificate policy of a host.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// `None`: it cannot be determined what is required, and every client is refused.
    pub client_auth: Option<ClientAuthConfig>,
    /// Which clients pass.
    pub verification: Verification,
    /// What the others get.
    pub error_page: ErrorPage,
    /// Whether backends get the certificate.
    pub tells_certificate: bool,
    match_cn: Option<Pattern>,
}

impl Certificates {
    /// Whether clients without a valid certificate get an error page.
    pub fn has_page(&self) -> bool {
        !matches!(self.error_page, ErrorPage::None)
    }

    /// Compiles the policy of a host.
    ///
    /// # Errors
    /// It is not supported.
    pub fn compile(configured: Option<&ClientCertificates>) -> Result<Option<Self>, PolicyError> {
        let Some(configured) = configured else {
            return Ok(None);
        };
        let refused = |field, problem: String| PolicyError { field, problem };
        let verification = match configured.verification.map(ClientVerification::try_from) {
            None | Some(Ok(ClientVerification::On)) => Verification::On,
            Some(Ok(ClientVerification::Off)) => Verification::Off,
            Some(Ok(ClientVerification::Optional)) => Verification::Optional,
            Some(Ok(ClientVerification::OptionalNoCa)) => Verification::OptionalNoCa,
            Some(Ok(ClientVerification::Unspecified) | Err(_)) => {
                let problem = "expected a verification that this proxy does, got another one".into();
                return Err(refused("client_certificates.verification", problem));
            }
        };
        let match_cn =
            (!configured.match_cn.is_empty()).then(|| Pattern::anywhere(&configured.match_cn)).transpose();
        let match_cn =
            match_cn.map_err(|error| refused("client_certificates.match_cn", error.to_string()))?;
        let page = configured.error_page.as_str();
        Ok(Some(Self {
            client_auth: (!configured.authorities.is_empty()).then(|| ClientAuthConfig {
                authorities: configured.authorities.as_str().into(),
                asks: verification != Verification::Off,
                depth: usize::try_from(configured.depth.max(1)).unwrap_or(usize::MAX),
            }),
            verification,
            error_page: match page.starts_with('/') {
                _ if page.is_empty() => ErrorPage::None,
                true => ErrorPage::Path(page.into()),
                false => ErrorPage::Url(page.into()),
            },
            tells_certificate: configured.tells_certificate == Some(true),
            match_cn,
        }))
    }

    /// Whether clients with this subject pass. One that cannot be matched does not.
    pub fn lets_in(&self, subject: &[u8]) -> bool {
        self.match_cn.as_ref().is_none_or(|pattern| pattern.is_match(subject, &Steps::new()) == Ok(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured() -> ClientCertificates {
        ClientCertificates { authorities: "ns/ca/auth-tls".into(), ..ClientCertificates::default() }
    }

    fn compiled(configured: ClientCertificates) -> Result<Certificates, &'static str> {
        Certificates::compile(Some(&configured)).map(Option::unwrap).map_err(|refused| refused.field)
    }

    #[test]
    fn client_certificates_are_required_by_default() {
        let it = compiled(configured()).unwrap();
        assert_eq!((it.verification, it.client_auth.unwrap().depth), (Verification::On, 1));
        assert!(Certificates::compile(None).unwrap().is_none());
        assert_eq!(compiled(ClientCertificates::default()).unwrap().client_auth, None, "nobody passes");
    }

    #[test]
    fn names_are_searched_with_regard_to_case() {
        let it = compiled(ClientCertificates { match_cn: "CN=(a|b)".into(), ..configured() }).unwrap();
        for (subject, passes) in [("CN=a", true), ("O=x,CN=bcd", true), ("CN=A", false), ("", false)] {
            assert_eq!(it.lets_in(subject.as_bytes()), passes, "{subject}");
        }
        assert!(compiled(configured()).unwrap().lets_in(b""));
    }

    #[test]
    fn invalid_settings_are_refused() {
        for (it, field) in [
            (
                ClientCertificates { verification: Some(0), ..configured() },
                "client_certificates.verification",
            ),
            (
                ClientCertificates { verification: Some(9), ..configured() },
                "client_certificates.verification",
            ),
            (ClientCertificates { match_cn: "CN=(".into(), ..configured() }, "client_certificates.match_cn"),
        ] {
            assert_eq!(compiled(it).err(), Some(field));
        }
    }
}
