//! No private key remains in freed memory.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "wiped/freed.rs"]
mod freed;

use shared::entry::Entry;
use shared::kind::Kind;
use shared::pem;
use shared::resource::{Certificate, Resource};

#[test]
fn a_key_is_wiped_wherever_it_was() {
    let pair = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap().self_signed(&pair).unwrap();
    let (der, text) = (pair.serialize_der(), pair.serialize_pem());
    assert_eq!(freed::with_secret(&der, || drop(der.clone())), 1, "what is not wiped is seen");
    let found = freed::with_secret(&der, || {
        let key = pem::private_key(text.as_bytes()).unwrap();
        let certificate = Certificate { leaf: leaf.der().to_vec().into(), key, chain: None };
        let entry = Entry::encode("ns/a", &Resource::Certificate(certificate));
        let came = Entry::from_body(entry.key.clone(), entry.min_schema, entry.body.clone());
        let read = Resource::decode(Kind::Certificate, &came.body).unwrap();
        drop((entry, came));
        let Resource::Certificate(read) = read else { panic!("another kind") };
        assert_eq!(read.key, der);
    });
    assert_eq!(found, 0);
}
