//! Builds the OCSP request for a certificate (RFC 6960 section 4.1) and finds its responder. The certificate was
//! written by a tenant: nothing in it is trusted until it was parsed here.

use std::sync::Arc;

use http::Uri;
use rustls_pki_types::CertificateDer;
use sha1::{Digest as _, Sha1};
use x509_parser::prelude::{FromDer, GeneralName, ParsedExtension, X509Certificate};

use crate::der::{INTEGER, NULL, OCTETS, OID, SEQUENCE, write};

/// Maximum length of a responder URL.
const ADDRESS: usize = 1024;

/// 1.3.6.1.5.5.7.48.1: the OCSP access method.
const OCSP: [u8; 8] = [0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01];
/// 1.3.14.3.2.26: the one hash that all responders support (RFC 5019 section 2.1.1).
pub(super) const SHA1: [u8; 5] = [0x2b, 0x0e, 0x03, 0x02, 0x1a];

/// An OCSP request, and where to send it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Question {
    /// The same for the same certificate of the same authority.
    pub(super) id: [u8; 32],
    /// The owner of the certificate, `namespace/..`.
    pub(super) owner: Arc<str>,
    /// Without the brackets of an IPv6 address.
    pub(super) host: String,
    pub(super) port: u16,
    /// The HTTP request, head and body.
    pub(super) text: Vec<u8>,
    pub(super) certificate: Named,
    /// The certificate of the issuer.
    pub(super) issuer: CertificateDer<'static>,
}

/// An OCSP CertID.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Named {
    pub(super) issuer_name: [u8; 20],
    pub(super) issuer_key: [u8; 20],
    pub(super) serial: Vec<u8>,
}

impl Question {
    /// For the first certificate of a chain; `None` if it names no usable responder, or its issuer's certificate is
    /// not included.
    pub(super) fn of(chain: &[CertificateDer<'static>]) -> Option<Self> {
        let (der, rest) = chain.split_first()?;
        let (_, leaf) = X509Certificate::from_der(der).ok()?;
        let issuer = rest.iter().find(|der| {
            let read = X509Certificate::from_der(der).ok();
            read.is_some_and(|(_, it)| it.subject().as_raw() == leaf.issuer().as_raw())
        })?;
        let (_, authority) = X509Certificate::from_der(issuer).ok()?;
        let certificate = Named {
            issuer_name: Sha1::digest(leaf.issuer().as_raw()).into(),
            issuer_key: Sha1::digest(&*authority.public_key().subject_public_key.data).into(),
            serial: leaf.raw_serial().to_vec(),
        };
        let (host, port, text) = places(&leaf).find_map(|place| request(place, &certificate.asked()))?;
        let id = *blake3::Hasher::new().update(der).update(issuer).finalize().as_bytes();
        Some(Self { id, owner: Arc::default(), host, port, text, certificate, issuer: issuer.clone() })
    }
}

#[cfg(any(test, feature = "fuzz"))]
impl Question {
    /// For an arbitrary certificate of an issuer.
    pub(super) fn about(certificate: Named, issuer: CertificateDer<'static>) -> Self {
        Self {
            id: [0; 32],
            owner: Arc::default(),
            host: String::new(),
            port: 80,
            text: Vec::new(),
            certificate,
            issuer,
        }
    }
}

/// The responder URLs in a certificate.
fn places<'a>(leaf: &'a X509Certificate<'_>) -> impl Iterator<Item = &'a str> {
    let access = leaf.extensions().iter().filter_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityInfoAccess(access) => Some(access),
        _ => None,
    });
    access.flat_map(|access| access.iter()).filter(|it| it.access_method.as_bytes() == OCSP).filter_map(
        |it| match &it.access_location {
            GeneralName::URI(place) => Some(*place),
            _ => None,
        },
    )
}

/// Host, port and HTTP request for a usable URL: only plain HTTP, because responses are signed.
fn request(place: &str, body: &[u8]) -> Option<(String, u16, Vec<u8>)> {
    let place: Uri = Some(place).filter(|place| place.len() <= ADDRESS)?.parse().ok()?;
    let authority = place.authority().filter(|it| !it.as_str().contains('@'))?;
    if place.scheme_str() != Some("http") || authority.host().is_empty() {
        return None;
    }
    let target = place.path_and_query().map_or("/", |target| target.as_str());
    let mut text = format!(
        "POST {target} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/ocsp-request\r\n\
         Accept: application/ocsp-response\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )
    .into_bytes();
    text.extend_from_slice(body);
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    Some((host, authority.port_u16().unwrap_or(80), text))
}

impl Named {
    /// Its serial number as text.
    pub(super) fn text(&self) -> String {
        self.serial.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// An OCSPRequest for it. Without a nonce, so that responders may reply with a pre-signed response.
    fn asked(&self) -> Vec<u8> {
        let hash = write(SEQUENCE, &[write(OID, &SHA1), write(NULL, &[])].concat());
        let parts = [
            hash,
            write(OCTETS, &self.issuer_name),
            write(OCTETS, &self.issuer_key),
            write(INTEGER, &self.serial),
        ];
        // A request containing a list of one single request.
        (0..5).fold(parts.concat(), |inner, _| write(SEQUENCE, &inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_http_without_credentials_is_asked() {
        let asked = |place: &str| request(place, b"body").map(|(host, port, _)| (host, port));
        let at = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(asked("http://ocsp.test"), at("ocsp.test", 80));
        assert_eq!(asked("http://ocsp.test:8080/a?b"), at("ocsp.test", 8080));
        assert_eq!(asked("http://[2001:db8::1]:81/"), at("2001:db8::1", 81));
        for place in [
            "https://ocsp.test/",
            "ldap://ocsp.test/",
            "file:///etc/passwd",
            "/path",
            "ocsp.test",
            "",
            "http://user@ocsp.test/",
            "http:///path",
            "http://a b/",
            "http://ocsp.test/a\r\nX: y",
            &format!("http://ocsp.test/{}", "a".repeat(ADDRESS)),
        ] {
            assert_eq!(asked(place), None, "{place}");
        }
        let (.., text) = request("http://ocsp.test:8080/a?b", b"body").unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("POST /a?b HTTP/1.1\r\nHost: ocsp.test:8080\r\n"), "{text}");
        assert!(text.ends_with("Content-Length: 4\r\nConnection: close\r\n\r\nbody"), "{text}");
    }

    #[test]
    fn certificate_without_responder_or_issuer_is_not_queried() {
        let certificate = crate::table::world::certificate(&["a.test"]);
        let leaf = CertificateDer::from(certificate.leaf.to_vec());
        assert_eq!(Question::of(&[]), None);
        assert_eq!(Question::of(std::slice::from_ref(&leaf)), None);
        assert_eq!(Question::of(&[leaf.clone(), leaf.clone()]), None);
        assert_eq!(Question::of(&[CertificateDer::from(vec![0x30, 0]), leaf]), None);
    }
}
