//! The proxy's own certificate: requested once with a proof of identity, renewed over the stream's connection at half
//! its lifetime, and kept across restarts if there is a folder for it.
//!
//! **Invariant:** a certificate that cannot be renewed is used until it expires; serving never depends on it.

mod doubt;
mod stored;

use std::cell::RefCell;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use shared::backoff::Backoff;
use shared::clock;
use shared::identity::{Identity, SLACK};
use shared::pem;
use shared::proto::identity::enrol_request::Proof as Shown;
use shared::proto::identity::{EnrolRequest, Issued, RenewRequest};
use shared::telemetry::chain;
use shared::tls::connect::Connector;
use shared::tls::join::JoinToken;
use shared::tls::request::{KeyError, request};
use shared::tls::{self, Credentials, TlsError, Trust};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{self, Instant};
use tonic::transport::{Channel, Endpoint};
use tracing::{info, warn};
use zeroize::Zeroizing;

use self::doubt::Doubts;
use super::Ended;
use super::client::enrolment_client::EnrolmentClient;
use super::client::identity_client::IdentityClient;

/// Time limit for obtaining a certificate.
const ANSWER: Duration = Duration::from_secs(10);
/// Delays between attempts to renew.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));

/// How a proxy obtains its certificate.
#[derive(Debug)]
pub(crate) struct Enrolment {
    /// The proof of identity. `None`: a stored certificate is required.
    pub(crate) proof: Option<Proof>,
    /// The fleet that it belongs to.
    pub(crate) group: String,
    /// The requested name.
    pub(crate) name: String,
    /// The folder where the certificate is kept across restarts.
    pub(crate) folder: Option<PathBuf>,
}

/// What a proxy proves its identity with for its first certificate.
#[derive(Debug)]
pub(crate) enum Proof {
    /// A token that can be used once.
    Join(JoinToken),
    /// A service account token, which Kubernetes rotates.
    Account {
        /// The token's file.
        token: PathBuf,
        /// The file of the roots that the server is verified by, in PEM.
        roots: PathBuf,
    },
}

/// Why there is no certificate.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum CertificateError {
    /// The certificate service cannot be reached.
    #[error("cannot enrol: {}", chain(.0))]
    Connect(#[from] tonic::transport::Error),
    /// The request was refused.
    #[error("refused: {}", .0.message())]
    Refused(Box<tonic::Status>),
    /// There was no response.
    #[error("no answer for {0:?}")]
    Silent(Duration),
    /// No certificate was stored, or an expired one, and there is no proof to request another one with.
    #[error(
        "there is no valid certificate, and no token to get one with: pass --join with a token from `firth token`"
    )]
    Over,
    /// An unusable response.
    #[error("the control plane sent a certificate that cannot be used: {0}")]
    Unusable(&'static str),
    /// A file with the proof cannot be read.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Keys.
    #[error("cannot generate a key: {0}")]
    Key(#[from] KeyError),
    /// TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl From<tonic::Status> for CertificateError {
    fn from(status: tonic::Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

/// A certificate in use.
#[derive(Debug)]
struct Held {
    credentials: Credentials,
    roots: Vec<Bytes>,
    /// By the wall clock.
    from: SystemTime,
    /// By the wall clock.
    until: SystemTime,
    renew: Instant,
}

/// Holds the certificate.
#[derive(Debug)]
pub(super) struct Holder {
    enrolment: Enrolment,
    held: watch::Sender<Option<Arc<Held>>>,
    /// The connection of the current stream.
    channel: watch::Sender<Option<Channel>>,
    /// The key and contents of the first request: a repeated request must use the same ones.
    first: RefCell<Option<(Bytes, Bytes)>>,
    doubts: RefCell<Doubts>,
}

/// How a stream ended, as far as its certificate is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// It was welcomed.
    Welcome,
    /// The control plane refused this certificate, or had one that is not trusted.
    Unwelcome,
    /// Unknown: there was no response, or an unrelated error.
    Unheard,
}

impl Holder {
    /// With the certificate stored by an earlier run.
    ///
    /// # Errors
    /// There is none, and no proof to request one with.
    pub(super) fn new(enrolment: Enrolment) -> Result<Self, CertificateError> {
        let kept = enrolment.folder.as_deref().and_then(|dir| stored::read(dir, &enrolment));
        if kept.is_none() && enrolment.proof.is_none() {
            return Err(CertificateError::Over);
        }
        Ok(Self {
            enrolment,
            held: watch::Sender::new(kept.map(Arc::new)),
            channel: watch::Sender::new(None),
            first: RefCell::default(),
            doubts: RefCell::default(),
        })
    }

    /// The TLS connector for a connection; requests a certificate if there is no valid one.
    ///
    /// # Errors
    /// None can be obtained.
    pub(super) async fn connector(&self, endpoint: &Endpoint) -> Result<Connector, CertificateError> {
        let now = clock::wall();
        let held = self.held.borrow().clone().filter(|held| held.until > now);
        let held = match held {
            Some(held) => self.assured(held, endpoint, now).await,
            None => self.enrol(endpoint).await?,
        };
        Ok(tls::client(&Trust::Roots(held.roots.clone()), Some(&held.credentials))?.into())
    }

    /// A certificate that is valid by its dates, or a new one if it may be the reason that streams are refused.
    /// Requests are work for the control plane and its API server, and a whole fleet may start to doubt at once.
    async fn assured(&self, held: Arc<Held>, endpoint: &Endpoint, now: SystemTime) -> Arc<Held> {
        // If it is not valid yet, a clock was set back, here or at the signer.
        let is_early = held.from > now + SLACK;
        let is_due = self.doubts.borrow_mut().is_due(is_early, Instant::now());
        if !is_due || self.enrolment.proof.is_none() {
            return held;
        }
        match is_early {
            true => warn!("by this clock the certificate is not valid yet: asking for another one"),
            false => warn!("the control plane may be rejecting the certificate: asking for another one"),
        }
        // The authority may have changed. If the request fails, too, the cause is something else, and the token may be
        // used up: the current certificate becomes valid when the clock is right.
        self.enrol(endpoint).await.unwrap_or_else(|error| {
            warn!("the certificate stays as it is: {error}");
            held
        })
    }

    /// Why there is no stream: no certificate can be obtained.
    pub(super) fn lacks(&self, error: CertificateError) -> Ended {
        let Enrolment { name, group, .. } = &self.enrolment;
        Ended::Certificate { whose: format!("proxy {name} of group {group}"), error }
    }

    /// Expiry of the certificate; 0: there is none.
    pub(super) fn until(&self) -> u64 {
        self.held.borrow().as_ref().map_or(0, |held| clock::unix(held.until))
    }

    /// The proxy's name in its certificate; the issuer may have given another name than requested.
    pub(super) fn name(&self) -> Option<Box<str>> {
        let held = self.held.borrow();
        let leaf = held.as_ref()?.credentials.chain.first()?;
        Identity::of_certificate(leaf).ok().map(|identity| identity.name)
    }

    /// Digests of the roots that identify a control plane: those that came with the certificate, and those that belong
    /// to the proof.
    pub(super) fn known(&self) -> Vec<[u8; 32]> {
        let held = self.held.borrow();
        let mut known: Vec<_> = held.iter().flat_map(|held| &held.roots).map(|root| tls::pin(root)).collect();
        match &self.enrolment.proof {
            Some(Proof::Join(token)) => known.push(token.pin),
            Some(Proof::Account { roots, .. }) => {
                let read = text(roots).ok().and_then(|text| pem::certificates(text.as_bytes()).ok());
                known.extend(read.iter().flatten().map(|root| tls::pin(root)));
            }
            None => {}
        }
        known.sort_unstable();
        known.dedup();
        known
    }

    /// Sets the connection of the current stream, if there is one.
    pub(super) fn connected(&self, channel: Option<Channel>) {
        self.channel.send_replace(channel);
    }

    /// Records that a stream ended.
    pub(super) fn ended(&self, end: End) {
        self.connected(None);
        self.doubts.borrow_mut().note(end, Instant::now());
    }

    /// Renews in time, forever.
    pub(super) async fn keep(&self) -> Infallible {
        let mut held = self.held.subscribe();
        let mut channel = self.channel.subscribe();
        let mut retry = Backoff::new(RETRY.0, RETRY.1);
        loop {
            let renew = held.borrow_and_update().as_ref().map(|held| held.renew);
            tokio::select! {
                _ = held.changed() => continue,
                () = clock::sleep_until(renew) => {}
            }
            // On the stream's own connection, because that is the one that lasts.
            let Ok(open) = channel.wait_for(Option::is_some).await.map(|open| open.clone()) else { continue };
            let Some(open) = open else { continue };
            match time::timeout(ANSWER, self.renew(open))
                .await
                .unwrap_or(Err(CertificateError::Silent(ANSWER)))
            {
                Ok(()) => retry.reset(),
                Err(error) => {
                    warn!("the certificate is not renewed, and asked for again: {error}");
                    time::sleep(RETRY.0 + retry.next_delay()).await;
                }
            }
        }
    }

    async fn renew(&self, channel: Channel) -> Result<(), CertificateError> {
        let (key, request) = request()?;
        let account_token = match &self.enrolment.proof {
            Some(Proof::Account { token, .. }) => text(token)?.trim().to_owned(),
            _ => String::new(),
        };
        let asked = RenewRequest { request, account_token };
        let issued = IdentityClient::new(channel).renew(asked).await?.into_inner();
        self.accept(issued, key).map(|_| ())
    }

    async fn enrol(&self, endpoint: &Endpoint) -> Result<Arc<Held>, CertificateError> {
        let (trust, shown) = match &self.enrolment.proof {
            Some(Proof::Join(token)) => {
                (Trust::Pinned(token.pin), Shown::JoinToken(token.text().to_string()))
            }
            Some(Proof::Account { token, roots }) => {
                let shown = Shown::AccountToken(text(token)?.trim().to_owned());
                let believed = pem::certificates(text(roots)?.as_bytes());
                let bad = |error: pem::PemError| CertificateError::File {
                    path: roots.clone(),
                    reason: error.to_string(),
                };
                (Trust::Roots(believed.map_err(bad)?), shown)
            }
            None => return Err(CertificateError::Over),
        };
        let first = self.first.borrow().clone();
        let (key, request) = match first {
            Some(first) => first,
            None => self.first.borrow_mut().insert(request()?).clone(),
        };
        let asked = EnrolRequest {
            request,
            group: self.enrolment.group.clone(),
            name: self.enrolment.name.clone(),
            proof: Some(shown),
        };
        let ask = async {
            let connector = Connector::from(tls::client(&trust, None)?);
            let channel = endpoint.connect_with_connector(connector).await?;
            Ok::<_, CertificateError>(EnrolmentClient::new(channel).enrol(asked).await?.into_inner())
        };
        let issued = time::timeout(ANSWER, ask).await.map_err(|_| CertificateError::Silent(ANSWER))??;
        let held = self.accept(issued, key)?;
        *self.first.borrow_mut() = None;
        info!("enrolled with the control plane");
        Ok(held)
    }

    fn accept(&self, issued: Issued, key: Bytes) -> Result<Arc<Held>, CertificateError> {
        let Issued { chain, roots, seconds } = issued;
        if chain.is_empty() || roots.is_empty() || seconds == 0 {
            return Err(CertificateError::Unusable("it is incomplete"));
        }
        let life = Duration::from_secs(seconds.min(10 * 365 * 24 * 3600));
        let now = clock::wall();
        let held = Held {
            credentials: Credentials { chain, key },
            roots,
            from: now,
            until: now + life,
            // Proxies that were started together do not all renew at once.
            renew: Instant::now() + life.mul_f64(0.4 + 0.2 * fastrand::f64()),
        };
        // Checked before use: an unusable certificate must not replace a usable one.
        tls::client(&Trust::Roots(held.roots.clone()), Some(&held.credentials))?;
        if let Some(folder) = &self.enrolment.folder
            && let Err(error) = stored::write(folder, &held)
        {
            warn!(folder = %folder.display(), "the certificate cannot be stored and will be lost at a restart: {error}");
        }
        let held = Arc::new(held);
        self.held.send_replace(Some(Arc::clone(&held)));
        Ok(held)
    }
}

/// Reads a small file, each time anew, because it may be replaced.
fn text(path: &Path) -> Result<Zeroizing<String>, CertificateError> {
    let read = std::fs::read_to_string(path);
    let failed =
        |error: std::io::Error| CertificateError::File { path: path.to_owned(), reason: error.to_string() };
    read.map(Zeroizing::new).map_err(failed)
}

#[cfg(test)]
mod tests;
