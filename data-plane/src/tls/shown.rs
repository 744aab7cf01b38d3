//! The certificate that a client has presented, as nginx' variables show it.

use std::cell::Cell;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use sha1::{Digest as _, Sha1};
use shared::clock;
use shared::template::OfCertificate;
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate};

use super::names;
use crate::table::ClientAuth;
use crate::table::trust::Untrusted;

/// Seconds per day.
const DAY: i64 = 24 * 60 * 60;

/// Characters of a line of PEM.
const PEM_LINE: usize = 64;

/// Number of no policy.
const NOBODY: u64 = 0;

/// A client's certificate.
#[derive(Debug)]
pub(crate) struct Shown {
    /// Whether it is valid, and if not, why; by the policy of this number.
    judged: Cell<(u64, Result<(), Untrusted>)>,
    /// Whether it cannot be parsed, so that it never is.
    is_malformed: bool,
    /// Its subject.
    pub(crate) subject: Bytes,
    /// Its issuer.
    pub(crate) issuer: Bytes,
    /// X.509, DER.
    leaf: CertificateDer<'static>,
    /// What came with it.
    rest: Box<[CertificateDer<'static>]>,
}

impl Shown {
    /// As a policy judges it; `None`: there is none.
    pub(super) fn new(auth: &ClientAuth, certificates: &[CertificateDer<'_>]) -> Option<Self> {
        let (leaf, rest) = certificates.split_first()?;
        let shown = Self::unjudged(leaf, rest);
        let _ = shown.verdict(auth);
        Some(shown)
    }

    fn unjudged(leaf: &CertificateDer<'_>, rest: &[CertificateDer<'_>]) -> Self {
        let names = X509Certificate::from_der(leaf)
            .map(|(_, it)| (names::text(it.subject()), names::text(it.issuer())));
        let is_malformed = names.is_err();
        // An unparsable certificate has no fields, and is not valid.
        let (subject, issuer) = names.unwrap_or_default();
        Self {
            judged: Cell::new((NOBODY, Err(Untrusted::Malformed))),
            is_malformed,
            subject: subject.into(),
            issuer: issuer.into(),
            leaf: leaf.clone().into_owned(),
            rest: rest.iter().map(|it| it.clone().into_owned()).collect(),
        }
    }

    fn judge(&self, auth: &ClientAuth) -> Result<(), Untrusted> {
        if self.is_malformed { Err(Untrusted::Malformed) } else { auth.verify(&self.leaf, &self.rest) }
    }

    /// Whether it is valid by a policy, and if not, why. Judged anew where that is not the one that judged it last: its
    /// authorities or revocation lists have changed.
    pub(crate) fn verdict(&self, auth: &ClientAuth) -> Result<(), Untrusted> {
        if self.judged.get().0 != auth.id {
            self.judged.set((auth.id, self.judge(auth)));
        }
        self.judged.get().1
    }

    /// Appends the value of a variable; `false`: it has none.
    pub(crate) fn tell(&self, what: OfCertificate, out: &mut Vec<u8>) -> bool {
        match what {
            OfCertificate::Verify => out.extend_from_slice(&self.verify()),
            OfCertificate::Subject => out.extend_from_slice(&self.subject),
            OfCertificate::Issuer => out.extend_from_slice(&self.issuer),
            OfCertificate::Fingerprint => hex(&Sha1::digest(&self.leaf), b"0123456789abcdef", out),
            OfCertificate::Escaped => out.extend_from_slice(self.escaped().as_bytes()),
            OfCertificate::Folded => folded(&self.leaf, out),
            OfCertificate::Serial
            | OfCertificate::SubjectLegacy
            | OfCertificate::IssuerLegacy
            | OfCertificate::Begins
            | OfCertificate::Ends
            | OfCertificate::Remains => return self.read(what, out).is_some(),
        }
        true
    }

    /// `$ssl_client_verify`.
    pub(crate) fn verify(&self) -> Bytes {
        match self.judged.get().1 {
            Ok(()) => Bytes::from_static(b"SUCCESS"),
            Err(why) => format!("FAILED:{}", why.as_str()).into(),
        }
    }

    /// PEM including line breaks, URL-encoded (nginx' `$ssl_client_escaped_cert`).
    pub(crate) fn escaped(&self) -> String {
        escaped(&self.leaf)
    }

    /// Values that are needed so rarely that they are parsed on demand.
    fn read(&self, what: OfCertificate, out: &mut Vec<u8>) -> Option<()> {
        let (_, certificate) = X509Certificate::from_der(&self.leaf).ok()?;
        let validity = certificate.validity();
        match what {
            OfCertificate::SubjectLegacy => names::put_legacy(certificate.subject(), out),
            OfCertificate::IssuerLegacy => names::put_legacy(certificate.issuer(), out),
            OfCertificate::Begins => time(validity.not_before, out)?,
            OfCertificate::Ends => time(validity.not_after, out)?,
            OfCertificate::Remains => {
                let now = Timestamp::try_from(clock::wall()).ok()?.as_second();
                let days = (validity.not_after.timestamp() - now).max(0) / DAY;
                let _ = write!(out, "{days}");
            }
            _ => {
                // A non-negative number may begin with an octet for its sign.
                let serial = match certificate.raw_serial() {
                    [0, rest @ ..] if !rest.is_empty() => rest,
                    serial => serial,
                };
                hex(serial, b"0123456789ABCDEF", out);
            }
        }
        Some(())
    }
}

fn hex(octets: &[u8], digits: &[u8; 16], out: &mut Vec<u8>) {
    for octet in octets {
        out.extend([digits[usize::from(octet >> 4)], digits[usize::from(octet & 15)]]);
    }
}

/// In OpenSSL's time format: `Jan  2 03:04:05 2026 GMT`.
fn time(time: ASN1Time, out: &mut Vec<u8>) -> Option<()> {
    let time = Timestamp::from_second(time.timestamp()).ok()?;
    write!(out, "{}", time.strftime("%b %e %H:%M:%S %Y GMT")).ok()
}

fn folded(der: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"-----BEGIN CERTIFICATE-----");
    for line in STANDARD.encode(der).as_bytes().chunks(PEM_LINE) {
        out.push(b' ');
        out.extend_from_slice(line);
    }
    out.extend_from_slice(b" -----END CERTIFICATE-----");
}

fn escaped(der: &[u8]) -> String {
    let mut text = String::from("-----BEGIN%20CERTIFICATE-----%0A");
    let base64 = STANDARD.encode(der);
    for (place, character) in base64.chars().enumerate() {
        if place > 0 && place % PEM_LINE == 0 {
            text.push_str("%0A");
        }
        match character {
            '+' => text.push_str("%2B"),
            '/' => text.push_str("%2F"),
            '=' => text.push_str("%3D"),
            character => text.push(character),
        }
    }
    text.push_str("%0A-----END%20CERTIFICATE-----%0A");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_pem_in_a_url() {
        assert_eq!(
            escaped(&[0xfb; 50]),
            format!(
                "-----BEGIN%20CERTIFICATE-----%0A{}%0A{}%0A-----END%20CERTIFICATE-----%0A",
                "%2B/v7".replace('/', "%2F").repeat(16),
                "%2B%2Fs%3D"
            )
        );
    }

    #[test]
    fn a_certificate_is_pem_in_one_line() {
        let mut out = Vec::new();
        folded(&[0xfb; 50], &mut out);
        let (first, last) = ("+/v7".repeat(16), "+/s=");
        let expected = format!("-----BEGIN CERTIFICATE----- {first} {last} -----END CERTIFICATE-----");
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_certificate_tells_what_openssl_says_of_it() {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.serial_number = Some(vec![0xab, 0x01].into());
        params.not_before = rcgen::date_time_ymd(2025, 1, 2);
        params.not_after = rcgen::date_time_ymd(4000, 12, 31);
        let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let shown = Shown::unjudged(certificate.der(), &[]);
        shown.judged.set((1, Ok(())));
        let told = |what| {
            let mut out = Vec::new();
            assert!(shown.tell(what, &mut out), "{what:?}");
            String::from_utf8(out).unwrap()
        };
        assert_eq!(told(OfCertificate::Verify), "SUCCESS");
        assert_eq!(told(OfCertificate::Serial), "AB01");
        assert_eq!(told(OfCertificate::Begins), "Jan  2 00:00:00 2025 GMT");
        assert_eq!(told(OfCertificate::Ends), "Dec 31 00:00:00 4000 GMT");
        assert!(told(OfCertificate::Remains).parse::<u32>().unwrap() > 700_000);
        let print = told(OfCertificate::Fingerprint);
        assert!(
            print.len() == 40 && print.bytes().all(|it| it.is_ascii_digit() || (b'a'..=b'f').contains(&it))
        );
        assert!(told(OfCertificate::Escaped).starts_with("-----BEGIN%20CERTIFICATE-----%0A"));
    }

    #[test]
    fn unparsable_client_certificate_has_only_a_verify_result() {
        let shown = Shown::unjudged(&CertificateDer::from(vec![1, 2, 3]), &[]);
        let mut out = Vec::new();
        assert!(shown.tell(OfCertificate::Verify, &mut out) && out.starts_with(b"FAILED:"));
        assert!(!shown.tell(OfCertificate::Serial, &mut Vec::new()));
    }
}
