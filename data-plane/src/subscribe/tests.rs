//! Addresses of control planes. The stream itself is tested with both planes.

use super::*;

fn refused(url: &str, insecure: bool) -> AddressError {
    Subscription::new(url, insecure, Identity::default()).map(|_| ()).unwrap_err()
}

#[test]
fn addresses() {
    assert!(Subscription::new("http://127.0.0.1:15010", true, Identity::default()).is_ok());
    assert_eq!(
        refused("http://127.0.0.1:15010", false),
        AddressError::Plain("http://127.0.0.1:15010".into())
    );
    assert!(matches!(refused("https://a.test", true), AddressError::Encrypted(_)));
    for url in ["127.0.0.1:15010", "", "http://", "http://a b", "ftp://a.test"] {
        assert!(matches!(refused(url, true), AddressError::Malformed { .. }), "{url}");
    }
}
