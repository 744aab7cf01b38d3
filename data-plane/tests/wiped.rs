//! No private key is left in memory that a proxy has freed.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../shared/tests/wiped/freed.rs"]
mod freed;

use std::sync::Arc;

use data_plane::table::Writer;
use shared::delta::Removal;
use shared::entry::Entry;
use shared::kind::{Kind, ResourceKey};
use shared::resource::{Certificate, Host, Resource, Tls};

#[test]
fn a_certificate_that_left_is_wiped_with_its_key() {
    let pair = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap().self_signed(&pair).unwrap();
    let der = pair.serialize_der();
    let key = shared::secret::kept(der.clone());
    let certificate = Certificate { leaf: leaf.der().to_vec().into(), key, chain: None };
    let certificate = Arc::new(Entry::encode("ns/a", &Resource::Certificate(certificate)));
    let tls = Some(Tls { certificates: vec!["ns/a".to_owned()] });
    let host = Arc::new(Entry::encode("a.test", &Resource::Host(Host { tls, ..Host::default() })));
    let found = freed::with_secret(&der, || {
        let mut writer = Writer::new();
        writer.apply_live(vec![certificate], &[]);
        writer.replace_config(vec![host]);
        assert!(writer.tables().current().certificate(Some("a.test")).is_some());
        let removal = Removal { key: ResourceKey::new(Kind::Certificate, "ns/a"), gone: true };
        writer.apply_live(Vec::new(), &[removal]);
        assert!(writer.tables().current().certificate(Some("a.test")).is_none());
    });
    assert_eq!(found, 0);
}
