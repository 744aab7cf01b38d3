//! The proxy's own certificate: asked for with a proof once, renewed on the stream's connection at half its life, and kept over
//! restarts where there is a folder for it.
//!
//! **Invariant:** a certificate that cannot be renewed is used as long as it is good; what is served never depends on it.

mod doubt;
mod kept;

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
use super::client::enrolment_client::EnrolmentClient;
use super::client::identity_client::IdentityClient;

/// Until a certificate is there.
const ANSWER: Duration = Duration::from_secs(10);
/// Between tries to renew.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));

/// How a proxy comes to its certificate.
#[derive(Debug)]
pub(crate) struct Enrolment {
    /// What it shows. `None`: it has to have one.
    pub(crate) proof: Option<Proof>,
    /// The fleet that it belongs to.
    pub(crate) group: String,
    /// What it wants to be called.
    pub(crate) name: String,
    /// Where the certificate is kept over restarts.
    pub(crate) folder: Option<PathBuf>,
}

/// What a proxy shows for its first certificate.
#[derive(Debug)]
pub(crate) enum Proof {
    /// A token that serves once.
    Join(JoinToken),
    /// That of a service account, which Kubernetes writes anew now and then.
    Account {
        /// The token's file.
        token: PathBuf,
        /// That of the roots, PEM: whom it is shown to.
        roots: PathBuf,
    },
}

/// Why there is no certificate.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum CertificateError {
    /// Nobody answers where certificates are given.
    #[error("cannot enrol: {}", chain(.0))]
    Connect(#[from] tonic::transport::Error),
    /// It was refused.
    #[error("no certificate: {}: {}", .0.code(), .0.message())]
    Refused(Box<tonic::Status>),
    /// No answer.
    #[error("no certificate: no answer for {0:?}")]
    Silent(Duration),
    /// None was kept, or one that is over, and there is nothing to show for another one.
    #[error(
        "there is no valid certificate, and no token to get one with: pass --join with a token from `firth token`"
    )]
    Over,
    /// An answer that cannot be used.
    #[error("the control plane sent a certificate that cannot be used: {0}")]
    Unusable(&'static str),
    /// A file with what is shown.
    #[error("{}: {reason}", path.display())]
    File {
        /// Which.
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
    /// The connection of the present stream.
    channel: watch::Sender<Option<Channel>>,
    /// The key of the first request, and that request: who asks again has to have the same one.
    first: RefCell<Option<(Bytes, Bytes)>>,
    doubts: RefCell<Doubts>,
}

/// How a stream ended, as far as its certificate is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// It was welcome.
    Welcome,
    /// The control plane did not want this certificate, or had one that is not believed.
    Unwelcome,
    /// Nothing is known of that: nobody answered, or somebody who had other worries.
    Unheard,
}

impl Holder {
    /// With what was kept of an earlier run.
    ///
    /// # Errors
    /// Where there is nothing, and nothing to ask for it with.
    pub(super) fn new(enrolment: Enrolment) -> Result<Self, CertificateError> {
        let kept = enrolment.folder.as_deref().and_then(|dir| kept::read(dir, &enrolment));
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

    /// What a connection is made with; asks for a certificate where none is good.
    ///
    /// # Errors
    /// Where none is to be had.
    pub(super) async fn connector(&self, endpoint: &Endpoint) -> Result<Connector, CertificateError> {
        let now = clock::wall();
        let held = self.held.borrow().clone().filter(|held| held.until > now);
        let held = match held {
            Some(held) => self.assured(held, endpoint, now).await,
            None => self.enrol(endpoint).await?,
        };
        Ok(tls::client(&Trust::Roots(held.roots.clone()), Some(&held.credentials))?.into())
    }

    /// A certificate that is good by its dates, or another one in its place where it may be the reason that no stream is
    /// welcome. Asking is work for the control plane and its API server, and a whole fleet may come to doubt at once.
    async fn assured(&self, held: Arc<Held>, endpoint: &Endpoint, now: SystemTime) -> Arc<Held> {
        // One that is not good yet: a clock was set back, this one or the one of whoever signed it.
        let is_early = held.from > now + SLACK;
        let is_due = self.doubts.borrow_mut().is_due(is_early, Instant::now());
        if !is_due || self.enrolment.proof.is_none() {
            return held;
        }
        match is_early {
            true => warn!("by this clock the certificate is not valid yet: asking for another one"),
            false => warn!("the control plane may be rejecting the certificate: asking for another one"),
        }
        // The authority may be another one by now. If asking fails, too, it was something else, and the token may have
        // served: what is held comes to be good when the clock does.
        self.enrol(endpoint).await.unwrap_or_else(|error| {
            warn!("the certificate stays as it is: {error}");
            held
        })
    }

    /// The end of the certificate; 0: there is none.
    pub(super) fn until(&self) -> u64 {
        self.held.borrow().as_ref().map_or(0, |held| clock::unix(held.until))
    }

    /// What it is called in its certificate; whoever gave that may know it by another name than it does itself.
    pub(super) fn name(&self) -> Option<Box<str>> {
        let held = self.held.borrow();
        let leaf = held.as_ref()?.credentials.chain.first()?;
        Identity::of_certificate(leaf).ok().map(|identity| identity.name)
    }

    /// Digests of the roots by which a control plane is known: those that came with the certificate, and those that the
    /// proof names.
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

    /// A stream is open on this connection, or none is.
    pub(super) fn connected(&self, channel: Option<Channel>) {
        self.channel.send_replace(channel);
    }

    /// A stream ended.
    pub(super) fn ended(&self, end: End) {
        self.connected(None);
        self.doubts.borrow_mut().note(end, Instant::now());
    }

    /// Renews in time, for ever.
    pub(super) async fn keep(&self) -> Infallible {
        let mut held = self.held.subscribe();
        let mut channel = self.channel.subscribe();
        let mut retry = Backoff::new(RETRY.0, RETRY.1);
        loop {
            let renew = held.borrow_and_update().as_ref().map(|held| held.renew);
            tokio::select! {
                _ = held.changed() => continue,
                () = at(renew) => {}
            }
            // On the stream's own connection: it is that one which lasts on.
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
            // A fleet that was started at once does not renew at once.
            renew: Instant::now() + life.mul_f64(0.4 + 0.2 * fastrand::f64()),
        };
        // Before it is used: what cannot be, must not take the place of what can.
        tls::client(&Trust::Roots(held.roots.clone()), Some(&held.credentials))?;
        if let Some(folder) = &self.enrolment.folder
            && let Err(error) = kept::write(folder, &held)
        {
            warn!(folder = %folder.display(), "the certificate cannot be stored and will be lost at a restart: {error}");
        }
        let held = Arc::new(held);
        self.held.send_replace(Some(Arc::clone(&held)));
        Ok(held)
    }
}

/// A small file, read each time: who writes it replaces it.
fn text(path: &Path) -> Result<Zeroizing<String>, CertificateError> {
    let read = std::fs::read_to_string(path);
    let failed =
        |error: std::io::Error| CertificateError::File { path: path.to_owned(), reason: error.to_string() };
    read.map(Zeroizing::new).map_err(failed)
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
