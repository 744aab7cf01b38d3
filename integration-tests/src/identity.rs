//! Clients of a control plane with authentication: tokens from the real `firth`, certificates over the wire.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use shared::proto::identity::enrol_request::Proof;
use shared::proto::identity::{EnrolRequest, Issued};
use shared::secret;
use shared::tls::connect::Connector;
use shared::tls::join::JoinToken;
use shared::tls::{self, Credentials, Trust};
use tonic::Status;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint, Error};

use crate::grpc::call;
use crate::plane::binary;

/// Somebody with a certificate.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The certificate and its key.
    pub credentials: Credentials,
    /// Whom it believes.
    pub roots: Vec<Bytes>,
}

/// What `firth token` prints.
///
/// # Panics
/// If it fails.
pub async fn token(ca_dir: &Path, further: &[&str]) -> String {
    let mut command = Command::new(binary("firth"));
    command.arg("token").arg("--ca-dir").arg(ca_dir).args(further);
    let done = tokio::task::spawn_blocking(move || command.output()).await;
    let output = done.expect("no panic").expect("firth starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

/// A connection on which certificates are asked for.
///
/// # Errors
/// Why there is none.
///
/// # Panics
/// If the text is no token.
pub async fn enrolment(address: SocketAddr, token: &str) -> Result<Channel, Error> {
    let pin = JoinToken::parse(token).expect("a token").pin;
    open(address, tls::client(&Trust::Pinned(pin), None).expect("settings of TLS")).await
}

impl Peer {
    /// Joins with a token.
    ///
    /// # Errors
    /// What the control plane answers instead.
    ///
    /// # Panics
    /// If there is no connection.
    pub async fn join(address: SocketAddr, token: &str, name: &str) -> Result<Self, Status> {
        let pin = JoinToken::parse(token).expect("a token").pin;
        let proof = Proof::JoinToken(token.to_owned());
        Self::enrol(address, &Trust::Pinned(pin), proof, name).await
    }

    /// Shows a proof to a control plane that it believes.
    ///
    /// # Errors
    /// What the control plane answers instead.
    ///
    /// # Panics
    /// If there is no connection.
    pub async fn enrol(address: SocketAddr, trust: &Trust, proof: Proof, name: &str) -> Result<Self, Status> {
        let key = rcgen::KeyPair::generate().expect("a key");
        let asked = EnrolRequest {
            request: request(&key),
            group: "default".to_owned(),
            name: name.to_owned(),
            proof: Some(proof),
        };
        let config = tls::client(trust, None).expect("settings of TLS");
        let channel = open(address, config).await.expect("the control plane listens");
        let issued: Issued = call(Grpc::new(channel), "firth.identity.v1.Enrolment/Enrol", asked).await?;
        let credentials = Credentials { chain: issued.chain, key: secret::kept(key.serialized_der()) };
        Ok(Self { credentials, roots: issued.roots })
    }

    /// Connects with its certificate.
    ///
    /// # Errors
    /// Why there is no connection.
    ///
    /// # Panics
    /// If its certificate and its key are none.
    pub async fn channel(&self, address: SocketAddr) -> Result<Channel, Error> {
        let trust = Trust::Roots(self.roots.clone());
        open(address, tls::client(&trust, Some(&self.credentials)).expect("settings of TLS")).await
    }
}

/// A request for a certificate of a key, DER.
///
/// # Panics
/// Never, in a test.
pub fn request(key: &rcgen::KeyPair) -> Bytes {
    let request = rcgen::CertificateParams::default().serialize_request(key).expect("a request");
    Bytes::copy_from_slice(request.der())
}

async fn open(address: SocketAddr, config: rustls::ClientConfig) -> Result<Channel, Error> {
    let endpoint = Endpoint::from_shared(format!("https://{address}")).expect("an address");
    endpoint.connect_with_connector(Connector::from(config)).await
}
