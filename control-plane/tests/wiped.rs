//! No private key of a Secret remains in freed memory.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../shared/tests/wiped/freed.rs"]
mod freed;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use control_plane::certificate;
use control_plane::objects::{Metadata, Secret};
use shared::entry::Entry;
use shared::resource::Resource;

#[test]
fn a_secret_and_what_is_made_of_it_are_wiped() {
    let pair = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap().self_signed(&pair).unwrap();
    let (der, text) = (pair.serialize_der(), STANDARD.encode(pair.serialize_pem()));
    let leaf = STANDARD.encode(leaf.pem());
    for secret in [der.as_slice(), text.as_bytes()] {
        let found = freed::with_secret(secret, || {
            let data = [("tls.crt", &leaf), ("tls.key", &text)];
            let data = data.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
            let secret = Secret { metadata: Metadata::default(), data };
            let compiled = certificate::compile(&secret).unwrap();
            let entry = Entry::encode("ns/a", &Resource::Certificate(compiled.certificate));
            drop((secret.clone(), secret, entry));
        });
        assert_eq!(found, 0);
    }
}
