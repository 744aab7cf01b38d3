//! The stream from the control plane, on the control thread: connects, feeds the [`Session`], comes back when it ends.
//!
//! Everything that decides is in [`session`]; here is only what waits. What is served does not depend on it: without a
//! control plane the tables stay as they are.
//!
//! **Invariant:** reading never waits for writing, so the two ends cannot wait for each other.

pub(crate) mod certificate;
pub(crate) mod session;

mod retry;
mod throttle;

/// Generated clients; their messages are `shared`'s.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::pedantic)]
mod client {
    tonic::include_proto!("firth.config.v1");
    tonic::include_proto!("firth.identity.v1");
}

use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use shared::clock;
use shared::kind::Lane;
use shared::proto::config::ProxyMessage;
use shared::tls::connect::Doubt;
use shared::version::{Root, Seq};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::time::{self, Instant};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::transport::Endpoint;
use tracing::info;

use crate::resolve::Names;
use crate::table::Writer;
use certificate::{CertificateError, Enrolment, Holder};
use client::config_stream_client::ConfigStreamClient;
use retry::{End, Retry};
use session::{Close, Identity, Session};
use throttle::LogThrottle;

const CONNECT: Duration = Duration::from_secs(5);
/// Time to the Welcome.
const WELCOME: Duration = Duration::from_secs(15);
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const KEEP_ALIVE_ANSWER: Duration = Duration::from_secs(5);
/// Old tables are looked through this often.
const COLLECT: Duration = Duration::from_millis(200);
/// One resource is at most half of it, which no object of an API server reaches.
const MESSAGE: usize = 2 * shared::entry::MAX_BODY;
/// How long a proxy that has everything else waits for the names of Services before it serves for the first time.
const NAMES: Duration = Duration::from_secs(2);
/// Answers that wait to be sent before reading pauses.
const ANSWERS: usize = 1024;

/// Why a URL is no control plane.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub(crate) enum AddressError {
    /// It cannot be read.
    #[error("expected a URL such as https://firth-control-plane:15010, got {url:?}: {reason}")]
    Malformed {
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A plain connection that nobody asked for.
    #[error(
        "{0:?} is a plain connection: certificates' keys would cross the network readable; say --insecure to allow it"
    )]
    Plain(String),
    /// An encrypted one without anything to show.
    #[error("{url:?} asks who calls: {reason}")]
    Nobody {
        /// What was given.
        url: String,
        /// What is missing.
        reason: String,
    },
}

/// What the subscription has got to, for readiness and metrics.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct View {
    /// A stream is open and welcome.
    pub(crate) connected: bool,
    /// Both lanes were complete once.
    pub(crate) complete: bool,
    /// Streams that were welcome so far.
    pub(crate) streams: u64,
    /// Where the proxy is on CONFIG.
    pub(crate) config: Standing,
    /// Where the proxy is on LIVE.
    pub(crate) live: Standing,
    /// Resources that it has and cannot serve.
    pub(crate) refused: u64,
}

/// Where the proxy is on one lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Standing {
    /// Place in the log of the control plane; 0 for none.
    pub(crate) seq: Seq,
    /// Digest of what it has.
    pub(crate) root: Root,
    /// Resources that it has.
    pub(crate) resources: u64,
}

/// A control plane to follow.
#[derive(Debug)]
pub(crate) struct Subscription {
    endpoint: Endpoint,
    /// `None`: plaintext.
    certificate: Option<Holder>,
    session: Session,
    view: watch::Sender<View>,
    throttle: LogThrottle,
    /// Since when the present stream is welcome.
    welcome: Option<Instant>,
    /// Whether TLS failed on its connection.
    doubt: Option<Doubt>,
}

/// How a stream ended.
#[derive(Debug, Error)]
enum Ended {
    #[error("cannot connect: {}", chain(.0))]
    Connect(#[from] tonic::transport::Error),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("{}: {}", .0.code(), .0.message())]
    Status(Box<tonic::Status>),
    #[error("the control plane ended the stream")]
    Finished,
    #[error("nothing was heard for {0:?}")]
    Silent(Duration),
    #[error(transparent)]
    Close(#[from] Close),
}

impl Ended {
    /// Whether the control plane said that it does not want whoever we are.
    fn is_about_who(&self) -> bool {
        let Self::Status(status) = self else { return false };
        matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied)
    }
}

impl From<tonic::Status> for Ended {
    fn from(status: tonic::Status) -> Self {
        Self::Status(Box::new(status))
    }
}

impl Subscription {
    /// To the control plane at a URL. `insecure` allows a plain connection; on another one the proxy shows a certificate.
    ///
    /// # Errors
    /// Where the URL cannot be used.
    pub(crate) fn new(
        url: &str,
        insecure: bool,
        identity: Identity,
        enrolment: Enrolment,
    ) -> Result<(Self, watch::Receiver<View>), AddressError> {
        let malformed = |reason: String| AddressError::Malformed { url: url.to_owned(), reason };
        let is_plain = url.starts_with("http://");
        if !is_plain && !url.starts_with("https://") {
            return Err(malformed("it does not begin with https:// or http://".to_owned()));
        }
        let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|error| malformed(chain(&error)))?;
        if is_plain && !insecure {
            return Err(AddressError::Plain(url.to_owned()));
        }
        let nobody = |reason: CertificateError| AddressError::Nobody {
            url: url.to_owned(),
            reason: reason.to_string(),
        };
        let certificate = if is_plain { None } else { Some(Holder::new(enrolment).map_err(nobody)?) };
        let endpoint = endpoint
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE_ANSWER)
            .keep_alive_while_idle(true);
        let (view, watcher) = watch::channel(View::default());
        let subscription = Self {
            endpoint,
            certificate,
            session: Session::new(identity, clock::now),
            view,
            throttle: LogThrottle::default(),
            welcome: None,
            doubt: None,
        };
        Ok((subscription, watcher))
    }

    /// Follows the control plane until dropped, and writes the tables. Calls `complete` when both lanes were complete
    /// for the first time and names are answered, before anybody is told.
    pub(crate) async fn run(mut self, writer: Writer, complete: impl FnOnce()) -> Infallible {
        let writer = RefCell::new(writer);
        let names = Names::of_system();
        let mut complete = Some(complete);
        let collect = async {
            let mut tick = time::interval(COLLECT);
            loop {
                tick.tick().await;
                writer.borrow_mut().collect();
            }
        };
        let certificate = self.certificate.take();
        let renew = async {
            match &certificate {
                Some(certificate) => certificate.keep().await,
                None => std::future::pending().await,
            }
        };
        let follow = self.follow(&writer, &names, certificate.as_ref(), &mut complete);
        let (never, ..): (Infallible, Infallible, Infallible, Infallible) =
            futures::join!(follow, collect, names.keep(&writer), renew);
        never
    }

    async fn follow(
        &mut self,
        writer: &RefCell<Writer>,
        names: &Names,
        certificate: Option<&Holder>,
        complete: &mut Option<impl FnOnce()>,
    ) -> Infallible {
        let mut retry = Retry::default();
        loop {
            let Err(ended) = self.stream(writer, names, certificate, complete).await;
            let held = self.welcome.take().map(|welcome| welcome.elapsed());
            if let Some(certificate) = certificate {
                let is_doubted = self.doubt.take().is_some_and(|doubt| doubt.is_there());
                certificate.ended(match held {
                    Some(_) => certificate::End::Welcome,
                    None if is_doubted || ended.is_about_who() => certificate::End::Unwelcome,
                    None => certificate::End::Unheard,
                });
            }
            self.view.send_modify(|view| view.connected = false);
            let end = match &ended {
                Ended::Close(Close::Diverged { .. } | Close::Protocol(_)) => End::Wrong,
                Ended::Close(Close::Redirect { after, .. }) => End::Asked(*after),
                _ => End::Failed,
            };
            if held.is_some() && end != End::Wrong {
                info!(reason = %ended, "the stream from the control plane ended; serving on");
            } else {
                self.throttle.say(self.endpoint.uri(), &ended, clock::now());
            }
            time::sleep(retry.after(end, held)).await;
        }
    }

    /// One stream, from the connection to its end.
    async fn stream(
        &mut self,
        writer: &RefCell<Writer>,
        names: &Names,
        certificate: Option<&Holder>,
        complete: &mut Option<impl FnOnce()>,
    ) -> Result<Infallible, Ended> {
        let (answers, outbound) = mpsc::channel(16);
        let channel = match certificate {
            Some(certificate) => {
                let connector = certificate.connector(&self.endpoint).await?;
                self.doubt = Some(connector.doubt());
                if let Some(name) = certificate.name() {
                    self.session.called(&name);
                }
                self.endpoint.connect_with_connector(connector).await?
            }
            None => self.endpoint.connect().await?,
        };
        let opened = channel.clone();
        let mut pending = VecDeque::from([self.session.hello(&writer.borrow())]);
        let mut client = ConfigStreamClient::new(channel).max_decoding_message_size(MESSAGE);
        // The Hello goes with the request: the control plane may wait for it before it answers at all.
        push(&answers, &mut pending);
        let mut deadline = Instant::now() + WELCOME;
        let answered = time::timeout_at(deadline, client.connect(ReceiverStream::new(outbound))).await;
        let mut inbound = answered.map_err(|_| Ended::Silent(WELCOME))??.into_inner();
        loop {
            tokio::select! {
                biased;
                permit = answers.reserve(), if !pending.is_empty() => match permit {
                    Ok(permit) => {
                        if let Some(answer) = pending.pop_front() {
                            permit.send(answer);
                        }
                    }
                    // The request's side was dropped: the stream is over, and says why when it is read.
                    Err(_) => pending.clear(),
                },
                message = inbound.message(), if pending.len() < ANSWERS => {
                    let message = message?.ok_or(Ended::Finished)?;
                    let was_welcome = self.session.is_welcome();
                    let actions = self.session.on(message, &mut writer.borrow_mut());
                    if !was_welcome && self.session.is_welcome() {
                        self.throttle.over();
                        self.welcome = Some(Instant::now());
                        info!(control_plane = %self.endpoint.uri(), "connected to the control plane");
                        if let Some(certificate) = certificate {
                            certificate.connected(Some(opened.clone()));
                        }
                        self.view.send_modify(|view| view.streams += 1);
                    }
                    deadline = Instant::now() + self.session.silence_limit().unwrap_or(WELCOME);
                    pending.extend(actions.say);
                    names.look();
                    if self.session.is_complete() && let Some(complete) = complete.take() {
                        names.settled(writer, NAMES).await;
                        complete();
                    }
                    self.show(&writer.borrow());
                    if let Some(close) = actions.close {
                        part(&answers, pending).await;
                        return Err(close.into());
                    }
                }
                () = time::sleep_until(deadline) => {
                    return Err(Ended::Silent(self.session.silence_limit().unwrap_or(WELCOME)));
                }
            }
        }
    }

    fn show(&self, writer: &Writer) {
        let standing = |lane| Standing {
            seq: self.session.seq(lane),
            root: writer.root(lane),
            resources: writer.has(lane).len() as u64,
        };
        self.view.send_if_modified(|view| {
            let new = View {
                connected: self.session.is_welcome(),
                complete: self.session.is_complete(),
                streams: view.streams,
                config: standing(Lane::Config),
                live: standing(Lane::Live),
                refused: Lane::ALL.iter().map(|lane| writer.refused(*lane).count() as u64).sum(),
            };
            let changed = *view != new;
            *view = new;
            changed
        });
    }
}

/// Says what is left to say before the stream is closed, so that the control plane learns why.
async fn part(answers: &mpsc::Sender<ProxyMessage>, pending: VecDeque<ProxyMessage>) {
    const FAREWELL: Duration = Duration::from_millis(500);
    let say = async {
        for answer in pending {
            if answers.send(answer).await.is_err() {
                break;
            }
        }
        // Taken out of the channel is not yet on the wire, but in the hands of the connection's task.
        let _ = answers.reserve_many(answers.max_capacity()).await;
    };
    let _ = time::timeout(FAREWELL, say).await;
    tokio::task::yield_now().await;
}

fn push(answers: &mpsc::Sender<ProxyMessage>, pending: &mut VecDeque<ProxyMessage>) {
    while let Some(answer) = pending.pop_front() {
        if let Err(mpsc::error::TrySendError::Full(answer)) = answers.try_send(answer) {
            pending.push_front(answer);
            return;
        }
    }
}

/// An error with its causes: transport errors say nothing by themselves.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
