//! Issues certificates, and checks the proof that a requester has to give.
//!
//! Join tokens are checked against a folder ([`folder`]), service account tokens by the cluster ([`accounts`]).
//! [`vault`] stores the authority, [`keeper`] keeps it fresh.
//!
//! **Invariant:** nothing is signed before the proof is verified, and a certificate contains what the proof says, never
//! what the request asks for in addition.

pub mod accounts;
pub mod folder;
pub mod keeper;
pub mod vault;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rustls::ClientConfig;
use shared::clock;
use shared::identity::{Identity, IdentityError, Role, validity};
use shared::tls::join::JoinToken;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};

use crate::authority::{Authority, IssueError};
use accounts::Accounts;
use folder::{Folder, TokenError};
use keeper::Standing;

/// The proof of a requester that has no certificate yet. Never printed.
pub enum Proof {
    /// The text of a join token.
    Join(String),
    /// The token of a service account.
    Account(String),
    /// No known kind of proof.
    None,
}

/// A certificate was not issued.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EnrolError {
    /// The proof is invalid, or does not permit this.
    #[error("{0}")]
    Proof(String),
    /// The requester belongs to another group.
    #[error("this control plane serves group {served:?}, not {asked:?}")]
    Group {
        /// The group that is served.
        served: Box<str>,
        /// The group that was asked for.
        asked: String,
    },
    /// The signing request is at fault.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// The name is not valid in a certificate.
    #[error(transparent)]
    Name(#[from] IdentityError),
    /// The proof could not be checked yet.
    #[error("{0}")]
    Unavailable(String),
}

/// An issued certificate.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The identity that it certifies.
    pub identity: Identity,
    /// The certificate first; DER.
    pub chain: Vec<Bytes>,
    /// All trusted roots; DER.
    pub roots: Vec<Bytes>,
    /// Its lifetime.
    pub life: Duration,
}

/// A request for a new root, answered with the time until it signs.
pub type Rotation = oneshot::Sender<Result<Duration, String>>;

/// Issues certificates. Clones share state.
#[derive(Clone, Debug)]
pub struct Registrar(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    group: Box<str>,
    life: Duration,
    current: watch::Receiver<Standing>,
    tokens: Option<Folder>,
    accounts: Option<Accounts>,
    rotations: mpsc::Sender<Rotation>,
}

impl Registrar {
    /// For one group, with certificates that live for `life`. `tokens` is the folder that join tokens are checked
    /// against, `accounts` the cluster that checks service account tokens.
    pub fn new(
        group: &str,
        life: Duration,
        current: watch::Receiver<Standing>,
        tokens: Option<Folder>,
        accounts: Option<Accounts>,
        rotations: mpsc::Sender<Rotation>,
    ) -> Self {
        Self(Arc::new(Inner { group: group.into(), life, current, tokens, accounts, rotations }))
    }

    /// The group that is served.
    pub fn group(&self) -> &str {
        &self.0.group
    }

    /// How long certificates live.
    pub fn life(&self) -> Duration {
        self.0.life
    }

    /// The TLS configuration for handshakes, updated as it changes.
    pub fn current(&self) -> watch::Receiver<Standing> {
        self.0.current.clone()
    }

    /// The TLS configuration for connections to other replicas.
    ///
    /// # Errors
    /// If there is none yet, the reason.
    pub fn as_peer(&self) -> Result<Arc<ClientConfig>, String> {
        match &*self.0.current.borrow() {
            Ok(current) => Ok(Arc::clone(&current.as_peer)),
            Err(why) => Err(format!("the authority is not read yet: {why}")),
        }
    }

    /// When the own certificate and the signing root expire; `None` if there is none.
    pub fn ends(&self, now: SystemTime) -> (Option<SystemTime>, Option<SystemTime>) {
        match &*self.0.current.borrow() {
            Err(_) => (None, None),
            Ok(current) => {
                let root = validity(&current.authority.signs(now));
                (Some(current.until), root.map(|(_, until)| until))
            }
        }
    }

    /// Why handshakes fail at present, if they do.
    pub fn closed(&self, now: SystemTime) -> Option<String> {
        match &*self.0.current.borrow() {
            Err(why) => Some(format!("the authority is not read yet: {why}")),
            Ok(current) if !current.is_good(now) => {
                Some("the certificate of this control plane has expired, or is not valid yet".to_owned())
            }
            Ok(_) => None,
        }
    }

    /// Issues a first certificate to the holder of `request`'s key, at this address. `name` is the name that it asks
    /// for.
    ///
    /// # Errors
    /// If the proof is not valid.
    pub async fn enrol(
        &self,
        proof: Proof,
        group: &str,
        name: &str,
        request: &[u8],
        address: IpAddr,
    ) -> Result<Issued, EnrolError> {
        let it = &*self.0;
        if group != &*it.group {
            return Err(EnrolError::Group {
                served: it.group.clone(),
                asked: group.chars().take(64).collect(),
            });
        }
        let identity = match proof {
            Proof::Join(text) => {
                let unknown = || EnrolError::Proof(TokenError::Unknown.to_string());
                let tokens = it.tokens.as_ref().ok_or_else(unknown)?;
                let token = JoinToken::parse(&text).map_err(|error| EnrolError::Proof(error.to_string()))?;
                let holder = Authority::holder(request)?;
                // A request that cannot be granted must not use up the token.
                Identity::new(&it.group, Role::Proxy, name)?;
                let role =
                    tokens.redeem(&token, &it.group, &holder, clock::wall()).map_err(
                        |error| match error {
                            TokenError::Io(error) => EnrolError::Unavailable(format!("cannot look: {error}")),
                            other => EnrolError::Proof(other.to_string()),
                        },
                    )?;
                Identity::new(&it.group, role, name)?
            }
            Proof::Account(token) => {
                let (role, name) = self.accounts()?.meet(&token, address).await?;
                Identity::new(&it.group, role, &name)?
            }
            Proof::None => {
                return Err(EnrolError::Proof("expected a join token or a service account's token".into()));
            }
        };
        self.issue(identity, request)
    }

    /// Renews the certificate of a known identity.
    ///
    /// # Errors
    /// If the identity may not be renewed.
    pub async fn renew(
        &self,
        identity: &Identity,
        token: &str,
        request: &[u8],
    ) -> Result<Issued, EnrolError> {
        if identity.role != Role::Proxy {
            return Err(EnrolError::Proof(format!(
                "certificates of the role {} are not renewed: log in again",
                identity.role
            )));
        }
        // The proof is checked again: the certificate of a deleted pod or account is not renewed.
        if let Some(accounts) = &self.0.accounts {
            let (role, name) = accounts.meet_again(token).await?;
            if (role, name.as_str()) != (identity.role, &*identity.name) {
                return Err(EnrolError::Proof(format!(
                    "the token is of {role} {name}, and the certificate of {identity}"
                )));
            }
        }
        self.issue(identity.clone(), request)
    }

    /// Adds a root. Returns the time until it signs.
    ///
    /// # Errors
    /// The reason in words, if it cannot.
    pub async fn rotate(&self) -> Result<Duration, String> {
        let (done, told) = oneshot::channel();
        let over = || "this control plane is shutting down".to_owned();
        self.0.rotations.send(done).await.map_err(|_| over())?;
        told.await.map_err(|_| over())?
    }

    fn accounts(&self) -> Result<&Accounts, EnrolError> {
        let none = || {
            EnrolError::Proof(
                "this control plane does not run in a cluster, so it accepts no tokens of service accounts"
                    .to_owned(),
            )
        };
        self.0.accounts.as_ref().ok_or_else(none)
    }

    fn issue(&self, identity: Identity, request: &[u8]) -> Result<Issued, EnrolError> {
        let current = self.0.current.borrow().clone();
        let current = current.map_err(|_| EnrolError::Unavailable("the authority is not read yet".into()))?;
        let life = self.0.life;
        let chain = current.authority.issue(request, &identity, clock::wall(), life)?;
        Ok(Issued { identity, chain, roots: current.authority.trusted(), life })
    }
}

#[cfg(test)]
mod tests;
