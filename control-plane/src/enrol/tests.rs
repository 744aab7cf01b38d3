//! Who gets a certificate, and who keeps it.

use std::net::Ipv4Addr;
use std::path::Path;

use rcgen::{CertificateParams, KeyPair};
use serde_json::json;
use shared::name::ObjectName;

use super::*;
use crate::kube::tests::fake::{Fake, Reply};
use crate::kube::trust::{AUDIENCE, Trust};
use keeper::{Keeper, Moment};
use vault::Vault;

const LIFE: Duration = Duration::from_secs(3_600);
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A registrar of the group `default`.
async fn registrar(dir: &Path, accounts: Option<Accounts>) -> Registrar {
    let folder = Folder::open(dir).unwrap();
    let mut keeper = Keeper::new(Vault::Folder(folder.clone()), "default", LIFE, &[HERE]).unwrap();
    keeper.look(Moment::now()).await.unwrap();
    let (rotations, _) = mpsc::channel(1);
    Registrar::new("default", LIFE, keeper.current(), Some(folder), accounts, rotations)
}

/// A cluster whose tokens say which account and pod they are of: `edge/edge-1`.
fn accounts() -> Accounts {
    let fake = Fake::new(|asked| {
        let token = asked.body["spec"]["token"].as_str().unwrap_or_default();
        let (account, pod) = token.split_once('/').unwrap_or_default();
        let extra = json!({"authentication.kubernetes.io/pod-name": [pod]});
        let user = json!({"username": format!("system:serviceaccount:firth:{account}"), "extra": extra});
        let status = json!({"authenticated": true, "audiences": [AUDIENCE], "user": user});
        Reply::Text(201, json!({"kind": "TokenReview", "status": status}).to_string())
    });
    let roles = [(Role::Proxy, "edge"), (Role::Reader, "view"), (Role::Operator, "run")];
    let of = |(role, name)| (role, ObjectName::new("firth", name));
    Accounts::new(Trust::of(&fake), roles.map(of).to_vec())
}

/// A signing request with a new key.
fn request() -> Vec<u8> {
    let params = CertificateParams::new(Vec::new()).unwrap();
    params.serialize_request(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
}

fn identity(role: Role, name: &str) -> Identity {
    Identity::new("default", role, name).unwrap()
}

#[tokio::test]
async fn what_cannot_be_granted_does_not_use_up_the_token() {
    let dir = tempfile::tempdir().unwrap();
    let registrar = registrar(dir.path(), None).await;
    let token = Folder::at(dir.path()).token(Role::Proxy, "default", LIFE, clock::wall()).unwrap().text();
    let enrol = |group, name, request: Vec<u8>| {
        let (registrar, proof) = (registrar.clone(), Proof::Join(token.to_string()));
        async move { registrar.enrol(proof, group, name, &request, HERE).await }
    };
    let other = enrol("other", "edge", request()).await;
    assert!(matches!(&other, Err(EnrolError::Group { .. })), "{other:?}");
    let long = "x".repeat(300);
    for name in ["", "a/b", "..", &long] {
        let unnamed = enrol("default", name, request()).await;
        assert!(matches!(&unnamed, Err(EnrolError::Name(_))), "{name:?} {unnamed:?}");
    }
    let unsigned = enrol("default", "edge", b"no request".to_vec()).await;
    assert!(matches!(&unsigned, Err(EnrolError::Issue(_))), "{unsigned:?}");
    let issued = enrol("default", "edge", request()).await.unwrap();
    assert_eq!(issued.identity, identity(Role::Proxy, "edge"));
    assert_eq!(Identity::of_certificate(&issued.chain[0]), Ok(issued.identity));
    let again = enrol("default", "edge", request()).await;
    assert!(matches!(&again, Err(EnrolError::Proof(_))), "used up: {again:?}");
}

#[tokio::test]
async fn a_certificate_is_renewed_with_a_token_of_the_same_pod_and_account() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = registrar(dir.path(), Some(accounts())).await;
    let met = cluster.enrol(Proof::Account("edge/edge-1".into()), "default", "other", &request(), HERE).await;
    assert_eq!(met.unwrap().identity, identity(Role::Proxy, "edge-1"), "whatever it calls itself");
    for (role, name, token, is_renewed) in [
        (Role::Proxy, "edge-1", "edge/edge-1", true),
        (Role::Proxy, "edge-1", "edge/edge-2", false),
        (Role::Proxy, "edge-1", "view/edge-1", false),
        (Role::Proxy, "edge-1", "unknown/edge-1", false),
        (Role::Proxy, "edge-1", "", false),
        // Whoever asks questions or gives commands logs in again.
        (Role::Reader, "see", "view/see", false),
        (Role::Operator, "see", "run/see", false),
        (Role::ControlPlane, "edge-1", "edge/edge-1", false),
    ] {
        let renewed = cluster.renew(&identity(role, name), token, &request()).await;
        assert_eq!(renewed.is_ok(), is_renewed, "{role} {name} by {token:?}: {renewed:?}");
        assert!(is_renewed || matches!(renewed, Err(EnrolError::Proof(_))), "{role} {token:?}");
    }
}

#[tokio::test]
async fn outside_a_cluster_proxies_alone_renew_and_no_account_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let registrar = registrar(dir.path(), None).await;
    for role in Role::ALL {
        let renewed = registrar.renew(&identity(role, "one"), "", &request()).await;
        assert_eq!(renewed.is_ok(), role == Role::Proxy, "{role}: {renewed:?}");
    }
    for proof in [Proof::Account("edge/edge-1".into()), Proof::None] {
        let refused = registrar.enrol(proof, "default", "edge", &request(), HERE).await;
        assert!(matches!(&refused, Err(EnrolError::Proof(_))), "{refused:?}");
    }
}
