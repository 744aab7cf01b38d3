//! Distinguished names as text (RFC 2253), as OpenSSL formats them for nginx' `$ssl_client_s_dn`: the last part first,
//! with everything but printable ASCII escaped byte by byte.

use std::fmt::Write as _;

use x509_parser::prelude::{AttributeTypeAndValue, X509Name};

/// OpenSSL's short names of attribute types.
const SHORT: [(&str, &str); 19] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.13", "description"),
    ("2.5.4.17", "postalCode"),
    ("2.5.4.41", "name"),
    ("2.5.4.42", "GN"),
    ("2.5.4.43", "initials"),
    ("2.5.4.46", "dnQualifier"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// A name as one line of text.
pub(super) fn text(name: &X509Name<'_>) -> String {
    let mut text = String::new();
    for (place, part) in name.iter_rdn().collect::<Vec<_>>().into_iter().rev().enumerate() {
        if place > 0 {
            text.push(',');
        }
        for (place, attribute) in part.iter().collect::<Vec<_>>().into_iter().rev().enumerate() {
            if place > 0 {
                text.push('+');
            }
            put(&mut text, attribute);
        }
    }
    text
}

/// Appends a name in one line as old versions of nginx did (OpenSSL's `X509_NAME_oneline`): the first part first, each
/// behind a slash. A slash within a part is not escaped, so what is read from it can be forged; as in nginx.
pub(super) fn put_legacy(name: &X509Name<'_>, out: &mut Vec<u8>) {
    for attribute in name.iter_attributes() {
        out.push(b'/');
        let oid = attribute.attr_type().to_id_string();
        out.extend_from_slice(short(&oid).unwrap_or(&oid).as_bytes());
        out.push(b'=');
        for byte in attribute.attr_value().data {
            match byte {
                0x20..=0x7e => out.push(*byte),
                byte => out.extend_from_slice(format!("\\x{byte:02X}").as_bytes()),
            }
        }
    }
}

/// OpenSSL's short name of an attribute type.
fn short(oid: &str) -> Option<&'static str> {
    SHORT.iter().find(|(known, _)| *known == oid).map(|(_, short)| *short)
}

fn put(text: &mut String, attribute: &AttributeTypeAndValue<'_>) {
    let oid = attribute.attr_type().to_id_string();
    let short = short(&oid);
    text.push_str(short.unwrap_or(&oid));
    text.push('=');
    match attribute.as_str() {
        Ok(value) if short.is_some() => escape(text, value),
        // Unknown types are shown as they are encoded.
        _ => {
            text.push('#');
            for byte in attribute.attr_value().data {
                let _ = write!(text, "{byte:02X}");
            }
        }
    }
}

fn escape(text: &mut String, value: &str) {
    let last = value.len().saturating_sub(1);
    for (place, byte) in value.bytes().enumerate() {
        let is_at_end = (place == 0 && matches!(byte, b' ' | b'#')) || (place == last && byte == b' ');
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => {
                text.push('\\');
                text.push(char::from(byte));
            }
            _ if is_at_end => {
                text.push('\\');
                text.push(char::from(byte));
            }
            0x20..=0x7e => text.push(char::from(byte)),
            _ => {
                let _ = write!(text, "\\{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
    use x509_parser::prelude::{FromDer, X509Certificate};

    /// Its two texts.
    fn shown_both(parts: &[(DnType, &str)]) -> (String, String) {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in parts {
            params.distinguished_name.push(kind.clone(), *value);
        }
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let (_, certificate) = X509Certificate::from_der(certificate.der()).unwrap();
        let mut legacy = Vec::new();
        super::put_legacy(certificate.subject(), &mut legacy);
        (super::text(certificate.subject()), String::from_utf8(legacy).unwrap())
    }

    fn shown(parts: &[(DnType, &str)]) -> String {
        shown_both(parts).0
    }

    /// As OpenSSL says it: `openssl x509 -noout -subject -nameopt compat`.
    #[test]
    fn the_old_way_says_the_first_part_first_and_escapes_octets_alone() {
        let legacy = |parts: &[(DnType, &str)]| shown_both(parts).1;
        assert_eq!(legacy(&[]), "");
        let whole = [
            (DnType::CountryName, "DE"),
            (DnType::OrganizationName, "Acme, Inc./x"),
            (DnType::CommonName, "J\u{f6}rg\r\n"),
        ];
        assert_eq!(legacy(&whole), "/C=DE/O=Acme, Inc./x/CN=J\\xC3\\xB6rg\\x0D\\x0A");
        assert_eq!(legacy(&[(DnType::CustomDnType(vec![1, 2, 3, 4]), "x")]), "/1.2.3.4=x");
    }

    #[test]
    fn the_last_part_comes_first_and_is_escaped() {
        assert_eq!(shown(&[]), "");
        let whole = [
            (DnType::CountryName, "DE"),
            (DnType::OrganizationName, "Acme, Inc."),
            (DnType::CommonName, "alice"),
        ];
        assert_eq!(shown(&whole), "CN=alice,O=Acme\\, Inc.,C=DE");
        for (value, text) in [
            ("Jörg", "J\\C3\\B6rg"),
            (" x ", "\\ x\\ "),
            ("#1", "\\#1"),
            ("a\r\nb\0", "a\\0D\\0Ab\\00"),
            ("CN=admin,CN=x", "CN=admin\\,CN=x"),
            ("a+b\"c\\d<e>f;g", "a\\+b\\\"c\\\\d\\<e\\>f\\;g"),
        ] {
            assert_eq!(shown(&[(DnType::CommonName, value)]), format!("CN={text}"));
        }
        assert_eq!(shown(&[(DnType::CustomDnType(vec![1, 2, 3, 4]), "x")]), "1.2.3.4=#78");
    }
}
