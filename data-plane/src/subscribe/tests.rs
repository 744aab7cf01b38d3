//! Addresses of control planes. The stream itself is tested with both planes.

use super::*;

fn nobody() -> Enrolment {
    Enrolment { proof: None, group: "default".into(), name: "edge".into(), folder: None }
}

fn refused(url: &str, insecure: bool) -> AddressError {
    Subscription::new(&[url], insecure, Identity::default(), nobody()).map(|_| ()).unwrap_err()
}

#[test]
fn addresses() {
    let plain = Subscription::new(&["http://127.0.0.1:15010"], true, Identity::default(), nobody());
    assert!(plain.is_ok_and(|(it, _)| it.certificate.is_none()));
    assert_eq!(
        refused("http://127.0.0.1:15010", false),
        AddressError::Plain("http://127.0.0.1:15010".into())
    );
    assert!(matches!(refused("https://a.test", true), AddressError::Nobody { .. }));
    let proof = Some(certificate::Proof::Join(shared::tls::join::JoinToken::new([0; 32])));
    let joins =
        Subscription::new(&["https://a.test"], true, Identity::default(), Enrolment { proof, ..nobody() });
    assert!(joins.is_ok_and(|(it, _)| it.certificate.is_some()), "--insecure takes nothing away");
    for url in ["127.0.0.1:15010", "", "http://", "http://a b", "ftp://a.test"] {
        assert!(matches!(refused(url, true), AddressError::Malformed { .. }), "{url}");
    }
}
