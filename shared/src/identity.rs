//! The identity of a peer between the planes: a role in a group, and a name.
//!
//! A certificate has it as its only URI, `spiffe://firth/GROUP/ROLE/NAME`, in the style of SPIFFE (SPIFFE-ID, section
//! 2): nothing else in a certificate identifies its holder.
//!
//! **Invariant:** an identity that was parsed is formatted to the same bytes, so two identities are equal if and only
//! if their texts are.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use thiserror::Error;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate};

/// The prefix of every identity.
const TRUST_DOMAIN: &str = "spiffe://firth/";
/// Limit of a group or a name in bytes.
pub const PART_MAX: usize = 253;

/// The role of a peer, which determines what it may do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Serves configuration and issues certificates.
    ControlPlane,
    /// Follows the stream.
    Proxy,
    /// Runs queries.
    Reader,
    /// Runs queries, and changes what is served: rolls back, pins, rotates.
    Operator,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::ControlPlane, Self::Proxy, Self::Reader, Self::Operator];

    /// The text in an identity.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ControlPlane => "control-plane",
            Self::Proxy => "proxy",
            Self::Reader => "reader",
            Self::Operator => "operator",
        }
    }

    /// The role with this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The identity of a peer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    /// The fleet that it belongs to.
    pub group: Box<str>,
    /// Its role.
    pub role: Role,
    /// Its name: a pod, a host, a person's account.
    pub name: Box<str>,
}

/// Why there is no identity.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The group or the name is not valid in a URI.
    #[error("{what}: expected 1 to {PART_MAX} of letters, digits, `.`, `_` and `-`, got {got:?}")]
    Part {
        /// Which of the two.
        what: &'static str,
        /// Its value.
        got: String,
    },
    /// The text has another form.
    #[error("expected {TRUST_DOMAIN}GROUP/ROLE/NAME, got {0:?}")]
    Form(String),
    /// Not a certificate.
    #[error("the certificate is not X.509")]
    NotX509,
    /// A certificate without a URI, or with several.
    #[error("the certificate has {0} URIs instead of one")]
    Uris(usize),
}

impl Identity {
    /// A role in a group, and a name.
    ///
    /// # Errors
    /// If the group or the name is not valid in a URI.
    pub fn new(group: &str, role: Role, name: &str) -> Result<Self, IdentityError> {
        Ok(Self { group: self::group(group)?, role, name: part("name", name)? })
    }

    /// Parses the text that [`Display`](fmt::Display) writes.
    ///
    /// # Errors
    /// If it has another form.
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

    /// The identity in a certificate. Verifying the certificate is up to the caller.
    ///
    /// # Errors
    /// If it has none, or several.
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

    /// Whether a proxy with this identity may use this id: its name and a suffix that differs in each process.
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

/// Tolerated difference of clocks: a certificate is valid from this long before it was issued.
pub const SLACK: Duration = Duration::from_secs(5 * 60);

/// From when a certificate is valid that is issued now. Not before 1970, as nobody accepts such a date: that is where the
/// clock of a machine without a battery starts.
pub fn valid_from(now: SystemTime) -> SystemTime {
    now.checked_sub(SLACK).map_or(UNIX_EPOCH, |from| from.max(UNIX_EPOCH))
}

/// The validity period of a certificate. `None` if it is invalid, or has a time before 1970.
pub fn validity(der: &[u8]) -> Option<(SystemTime, SystemTime)> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let time = |time: ASN1Time| {
        let seconds = u64::try_from(time.timestamp()).ok()?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
    };
    let validity = certificate.validity();
    Some((time(validity.not_before)?, time(validity.not_after)?))
}

/// A name reduced to the characters that are valid in an identity.
pub fn fit(name: &str) -> String {
    let fits = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    name.chars().filter(fits).take(PART_MAX).collect()
}

/// A group, if it is valid in an identity.
///
/// # Errors
/// If it is not.
pub fn group(text: &str) -> Result<Box<str>, IdentityError> {
    part("group", text)
}

fn part(what: &'static str, text: &str) -> Result<Box<str>, IdentityError> {
    // A dot segment would change the path (RFC 3986, section 5.2.4).
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
