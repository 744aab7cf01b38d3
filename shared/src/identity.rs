//! Who is at the other end of a connection between the planes: a role in a group, and a name.
//!
//! It stands in a certificate as its one URI, `spiffe://firth/GROUP/ROLE/NAME`, in the manner of SPIFFE (SPIFFE-ID, section
//! 2): nothing else of a certificate says who its holder is.
//!
//! **Invariant:** what was parsed is written again with the same bytes, so that two identities are equal where their
//! texts are.

use std::fmt;
use std::time::{Duration, SystemTime};

use thiserror::Error;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate};

/// What every identity begins with.
const TRUST_DOMAIN: &str = "spiffe://firth/";
/// Bytes of a group or a name at most.
pub const PART_MAX: usize = 253;

/// What a peer may do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Hands out configuration and certificates.
    ControlPlane,
    /// Follows the stream.
    Proxy,
    /// Asks.
    Reader,
    /// Asks, and changes what is served: rolls back, pins, rotates.
    Operator,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::ControlPlane, Self::Proxy, Self::Reader, Self::Operator];

    /// As it stands in an identity.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ControlPlane => "control-plane",
            Self::Proxy => "proxy",
            Self::Reader => "reader",
            Self::Operator => "operator",
        }
    }

    /// The role of this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who a peer is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    /// The fleet that it belongs to.
    pub group: Box<str>,
    /// What it may do there.
    pub role: Role,
    /// Which one it is: a pod, a host, a person's account.
    pub name: Box<str>,
}

/// Why something names nobody.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// A group or a name that cannot stand in a URI.
    #[error("{what}: expected 1 to {PART_MAX} of letters, digits, `.`, `_` and `-`, got {got:?}")]
    Part {
        /// Which of the two.
        what: &'static str,
        /// What was there.
        got: String,
    },
    /// A text of another form.
    #[error("expected {TRUST_DOMAIN}GROUP/ROLE/NAME, got {0:?}")]
    Form(String),
    /// No certificate.
    #[error("the certificate is not X.509")]
    NotX509,
    /// One that says nothing, or several things.
    #[error("the certificate has {0} URIs instead of one")]
    Uris(usize),
}

impl Identity {
    /// A role in a group, and a name.
    ///
    /// # Errors
    /// Where the group or the name cannot stand in a URI.
    pub fn new(group: &str, role: Role, name: &str) -> Result<Self, IdentityError> {
        Ok(Self { group: part("group", group)?, role, name: part("name", name)? })
    }

    /// Reads the text that [`Display`](fmt::Display) writes.
    ///
    /// # Errors
    /// Where it has another form.
    pub fn parse(text: &str) -> Result<Self, IdentityError> {
        let form = || IdentityError::Form(text.to_owned());
        let mut parts = text.strip_prefix(TRUST_DOMAIN).ok_or_else(form)?.split('/');
        let (Some(group), Some(role), Some(name), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(form());
        };
        Self::new(group, Role::parse(role).ok_or_else(form)?, name)
    }

    /// Who a certificate says its holder is. Whether it may say so is for whoever verifies it.
    ///
    /// # Errors
    /// Where it says nothing, or several things.
    pub fn of_certificate(der: &[u8]) -> Result<Self, IdentityError> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|_| IdentityError::NotX509)?;
        let names = certificate.subject_alternative_name().map_err(|_| IdentityError::NotX509)?;
        let names = names.map(|extension| extension.value.general_names.as_slice()).unwrap_or_default();
        let uris = names.iter().filter_map(|name| match name {
            GeneralName::URI(uri) => Some(*uri),
            _ => None,
        });
        match uris.collect::<Vec<_>>()[..] {
            [uri] => Self::parse(uri),
            ref uris => Err(IdentityError::Uris(uris.len())),
        }
    }

    /// Whether a proxy of this identity may call itself so: its name and a suffix, which is another one in each process.
    pub fn covers_proxy(&self, id: &str) -> bool {
        let suffix = id.strip_prefix(&*self.name).and_then(|rest| rest.strip_prefix('-'));
        suffix.is_some_and(|suffix| !suffix.is_empty() && suffix.bytes().all(|b| b.is_ascii_hexdigit()))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{TRUST_DOMAIN}{}/{}/{}", self.group, self.role, self.name)
    }
}

/// Clocks may differ by so much: a certificate is good before it was made.
pub const SLACK: Duration = Duration::from_secs(5 * 60);

/// From when and until when a certificate is good. `None`: it is none, or says so of a time before 1970.
pub fn validity(der: &[u8]) -> Option<(SystemTime, SystemTime)> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let time = |time: ASN1Time| {
        let seconds = u64::try_from(time.timestamp()).ok()?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
    };
    let validity = certificate.validity();
    Some((time(validity.not_before)?, time(validity.not_after)?))
}

/// What of a name can stand in an identity.
pub fn fit(name: &str) -> String {
    let fits = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    name.chars().filter(fits).take(PART_MAX).collect()
}

fn part(what: &'static str, text: &str) -> Result<Box<str>, IdentityError> {
    // A dot segment would be another path (RFC 3986, section 5.2.4).
    if text.is_empty() || matches!(text, "." | "..") || fit(text) != text {
        return Err(IdentityError::Part { what, got: text.chars().take(PART_MAX).collect() });
    }
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    fn certificate(uris: &[&str]) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["control-plane.firth".to_owned()]).unwrap();
        params.subject_alt_names.extend(uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn a_certificate_names_its_holder_by_one_uri() {
        let uri = "spiffe://firth/default/proxy/edge-1";
        let named = Identity::of_certificate(&certificate(&[uri])).unwrap();
        assert_eq!(named, Identity::new("default", Role::Proxy, "edge-1").unwrap());
        assert_eq!(named.to_string(), uri);
        assert_eq!(Identity::of_certificate(&certificate(&[])), Err(IdentityError::Uris(0)));
        assert_eq!(Identity::of_certificate(&certificate(&[uri, uri])), Err(IdentityError::Uris(2)));
        assert_eq!(Identity::of_certificate(b"nothing"), Err(IdentityError::NotX509));
    }

    #[test]
    fn what_is_no_identity_is_refused() {
        for text in [
            "",
            "spiffe://firth/default/proxy",
            "spiffe://firth/default/proxy/a/b",
            "spiffe://firth/default/proxy/",
            "spiffe://firth//proxy/a",
            "spiffe://firth/default/root/a",
            "spiffe://firth/default/Proxy/a",
            "spiffe://other/default/proxy/a",
            "SPIFFE://firth/default/proxy/a",
            "spiffe://firth/../proxy/a",
            "spiffe://firth/default/proxy/a\n",
            "spiffe://firth/default/proxy/a%2f",
        ] {
            assert!(Identity::parse(text).is_err(), "{text:?}");
        }
        assert!(Identity::new(&"x".repeat(PART_MAX + 1), Role::Reader, "a").is_err());
    }

    #[test]
    fn a_proxy_calls_itself_by_its_name_and_a_number() {
        let pod = Identity::new("default", Role::Proxy, "edge").unwrap();
        assert!(pod.covers_proxy("edge-0123456789abcdef"));
        for id in ["edge", "edge-", "edge-1-0123", "edge-2.x", "other-0123", "", "-0123", "edge0123"] {
            assert!(!pod.covers_proxy(id), "{id:?}");
        }
    }

    #[test]
    fn a_certificate_says_until_when() {
        let (from, until) = validity(&certificate(&[])).unwrap();
        assert!(from < until);
        assert_eq!(validity(b"nothing"), None);
    }

    proptest! {
        #[test]
        fn whatever_fits_is_read_as_it_was_written(group in ".{1,40}", name in ".{1,40}") {
            for role in Role::ALL {
                if let Ok(identity) = Identity::new(&fit(&group), role, &fit(&name)) {
                    prop_assert_eq!(Identity::parse(&identity.to_string()), Ok(identity));
                }
            }
        }

        #[test]
        fn whatever_is_read_is_written_as_it_was(text in "spiffe://firth/[a-z./]{0,12}(proxy|reader)[a-z./]{0,12}") {
            if let Ok(identity) = Identity::parse(&text) {
                prop_assert_eq!(identity.to_string(), text);
            }
        }
    }
}
