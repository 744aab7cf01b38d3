//! Certificates of clients, as a host says who must show one (ingress-nginx behaviour, annotations.md 6.8).

use shared::pattern::{Pattern, Steps};
use shared::policy::{ClientCertificates, ClientVerification};

use super::Refused;

/// What happens to requests by the certificate of their client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Verification {
    /// None or a bad one does not pass.
    #[default]
    On,
    /// Nobody is asked.
    Off,
    /// A bad one does not pass.
    Optional,
    /// A bad one does not pass, unless nothing is wrong with it but its authority.
    OptionalNoCa,
}

/// Where those are sent who do not pass.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ErrorPage {
    /// Nowhere: 400.
    #[default]
    None,
    /// To this URL.
    Url(Box<str>),
    /// They are shown this path of the host.
    Path(Box<str>),
}

/// By which certificates are judged: what a connection is made for. Another one is another connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said {
    /// Key of the Material with the authorities.
    pub authorities: Box<str>,
    /// Whether clients are asked.
    pub asks: bool,
    /// How many intermediate certificates may stand between a client's and an authority's.
    pub depth: usize,
}

/// What a host says.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// `None`: what was asked for cannot be told. Nobody passes.
    pub said: Option<Said>,
    /// Who passes.
    pub verification: Verification,
    /// Where the others are sent.
    pub error_page: ErrorPage,
    /// Whether backends get the certificate.
    pub tells_certificate: bool,
    match_cn: Option<Pattern>,
}

impl Certificates {
    /// Whether who has none is shown a page of its own.
    pub fn has_page(&self) -> bool {
        !matches!(self.error_page, ErrorPage::None)
    }

    /// Reads what a host says.
    ///
    /// # Errors
    /// Where it cannot be served.
    pub fn compile(said: Option<&ClientCertificates>) -> Result<Option<Self>, Refused> {
        let Some(said) = said else {
            return Ok(None);
        };
        let refused = |field, problem: String| Refused { field, problem };
        let verification = match said.verification.map(ClientVerification::try_from) {
            None | Some(Ok(ClientVerification::On)) => Verification::On,
            Some(Ok(ClientVerification::Off)) => Verification::Off,
            Some(Ok(ClientVerification::Optional)) => Verification::Optional,
            Some(Ok(ClientVerification::OptionalNoCa)) => Verification::OptionalNoCa,
            Some(Ok(ClientVerification::Unspecified) | Err(_)) => {
                let problem = "expected a verification that this proxy does, got another one".into();
                return Err(refused("client_certificates.verification", problem));
            }
        };
        let match_cn = (!said.match_cn.is_empty()).then(|| Pattern::anywhere(&said.match_cn)).transpose();
        let match_cn =
            match_cn.map_err(|error| refused("client_certificates.match_cn", error.to_string()))?;
        let page = said.error_page.as_str();
        Ok(Some(Self {
            said: (!said.authorities.is_empty()).then(|| Said {
                authorities: said.authorities.as_str().into(),
                asks: verification != Verification::Off,
                depth: usize::try_from(said.depth.max(1)).unwrap_or(usize::MAX),
            }),
            verification,
            error_page: match page.starts_with('/') {
                _ if page.is_empty() => ErrorPage::None,
                true => ErrorPage::Path(page.into()),
                false => ErrorPage::Url(page.into()),
            },
            tells_certificate: said.tells_certificate == Some(true),
            match_cn,
        }))
    }

    /// Whether clients of this name pass. One that is not known to fit does not.
    pub fn lets_in(&self, subject: &[u8]) -> bool {
        self.match_cn.as_ref().is_none_or(|pattern| pattern.is_match(subject, &Steps::new()) == Ok(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said() -> ClientCertificates {
        ClientCertificates { authorities: "ns/ca/auth-tls".into(), ..ClientCertificates::default() }
    }

    fn compiled(said: ClientCertificates) -> Result<Certificates, &'static str> {
        Certificates::compile(Some(&said)).map(Option::unwrap).map_err(|refused| refused.field)
    }

    #[test]
    fn client_certificates_are_required_by_default() {
        let it = compiled(said()).unwrap();
        assert_eq!((it.verification, it.said.unwrap().depth), (Verification::On, 1));
        assert!(Certificates::compile(None).unwrap().is_none());
        assert_eq!(compiled(ClientCertificates::default()).unwrap().said, None, "nobody passes");
    }

    #[test]
    fn names_are_searched_with_regard_to_case() {
        let it = compiled(ClientCertificates { match_cn: "CN=(a|b)".into(), ..said() }).unwrap();
        for (subject, passes) in [("CN=a", true), ("O=x,CN=bcd", true), ("CN=A", false), ("", false)] {
            assert_eq!(it.lets_in(subject.as_bytes()), passes, "{subject}");
        }
        assert!(compiled(said()).unwrap().lets_in(b""));
    }

    #[test]
    fn what_cannot_be_served_is_refused() {
        for (it, field) in [
            (ClientCertificates { verification: Some(0), ..said() }, "client_certificates.verification"),
            (ClientCertificates { verification: Some(9), ..said() }, "client_certificates.verification"),
            (ClientCertificates { match_cn: "CN=(".into(), ..said() }, "client_certificates.match_cn"),
        ] {
            assert_eq!(compiled(it).err(), Some(field));
        }
    }
}
