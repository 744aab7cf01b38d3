//! Storing a certificate. Enrolment itself is tested with both planes.

use std::cell::Cell;

use rcgen::{CertificateParams, Issuer, KeyPair, SanType};
use shared::secret;

use super::*;

/// A certificate of a new authority, as a response, and its key.
fn issued(uri: &str) -> (Issued, Bytes) {
    issued_from(uri, SystemTime::UNIX_EPOCH)
}

fn issued_from(uri: &str, from: SystemTime) -> (Issued, Bytes) {
    let root_key = KeyPair::generate().unwrap();
    let root = CertificateParams::default();
    let authority = root.self_signed(&root_key).unwrap();
    let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::default());
    params.not_before = from.into();
    params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
    let leaf = params.signed_by(&key, &Issuer::new(root, root_key)).unwrap();
    let [leaf, root] = [leaf.der(), authority.der()].map(|der| Bytes::copy_from_slice(der));
    let issued = Issued { chain: vec![leaf, root.clone()], roots: vec![root], seconds: 100 };
    (issued, secret::kept(key.serialized_der()))
}

fn enrolment(folder: &Path, group: &str) -> Enrolment {
    let proof = Some(Proof::Join(JoinToken::new([0; 32])));
    Enrolment { proof, group: group.into(), name: "edge".into(), folder: Some(folder.to_owned()) }
}

#[tokio::test]
async fn a_restart_goes_on_with_the_certificate_of_the_process_before() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("identity");
    let first = Holder::new(enrolment(&folder, "default")).unwrap();
    assert!(first.held.borrow().is_none());
    let (answer, key) = issued("spiffe://firth/default/proxy/edge");
    first.accept(answer, key.clone()).unwrap();
    let file = folder.join("certificate.pem");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    let second = Holder::new(Enrolment { proof: None, ..enrolment(&folder, "default") }).unwrap();
    let held = second.held.borrow().clone().unwrap();
    assert_eq!((&held.credentials.key, held.roots.len()), (&key, 1));
    assert_eq!(held.credentials.chain, first.held.borrow().as_ref().unwrap().credentials.chain);

    let other = Holder::new(enrolment(&folder, "other")).unwrap();
    assert!(other.held.borrow().is_none(), "that of another group is not used");
    std::fs::write(&file, "nothing").unwrap();
    let error = Holder::new(Enrolment { proof: None, ..enrolment(&folder, "default") }).unwrap_err();
    assert!(matches!(error, CertificateError::Over));
    assert!(error.to_string().contains("firth token"), "{error}");
}

/// Whether a proxy restarted with this certificate requests another one before using it.
async fn asks_first(from: SystemTime) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let (answer, key) = issued_from("spiffe://firth/default/proxy/edge", from);
    Holder::new(enrolment(dir.path(), "default")).unwrap().accept(answer, key).unwrap();
    let holder = Holder::new(enrolment(dir.path(), "default")).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let asked = Cell::new(false);
    let answers = async {
        loop {
            // The request gets no response.
            drop(listener.accept().await.unwrap());
            asked.set(true);
        }
    };
    tokio::select! {
        connector = holder.connector(&endpoint) => {
            // The current certificate is used if no other can be obtained.
            connector.unwrap();
        }
        () = answers => {}
    }
    let renew = holder.held.borrow().as_ref().unwrap().renew;
    assert_eq!(renew <= Instant::now(), asked.get(), "it is renewed on the first stream");
    asked.get()
}

#[tokio::test]
async fn a_certificate_that_is_not_good_yet_is_used_if_nothing_else_is_to_be_had() {
    let now = clock::wall();
    assert!(asks_first(now + 2 * SLACK).await);
    assert!(!asks_first(now + SLACK / 2).await, "clocks differ");
    assert!(!asks_first(now - SLACK).await);
}

#[tokio::test]
async fn an_answer_that_cannot_be_used_takes_nothing_s_place() {
    let dir = tempfile::tempdir().unwrap();
    let holder = Holder::new(enrolment(dir.path(), "default")).unwrap();
    let (good, key) = issued("spiffe://firth/default/proxy/edge");
    let (_, other) = issued("spiffe://firth/default/proxy/edge");
    for bad in [
        Issued { chain: Vec::new(), ..good.clone() },
        Issued { roots: Vec::new(), ..good.clone() },
        Issued { seconds: 0, ..good.clone() },
    ] {
        assert!(holder.accept(bad, key.clone()).is_err());
    }
    assert!(holder.accept(good, other).is_err(), "another one's key");
    assert!(holder.held.borrow().is_none());
}
