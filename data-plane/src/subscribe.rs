//! The stream from the control plane, on the control thread: connects, feeds the [`Session`], and reconnects when it
//! ends.
//!
//! All decisions are made in [`session`]; this module does the waiting. Serving does not depend on it: without a
//! control plane the tables stay as they are.
//!
//! **Invariant:** reading never waits for writing, so the two ends cannot deadlock.

pub(crate) mod certificate;
pub(crate) mod session;

mod address;
mod disk;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
mod patience;
mod replicas;
mod retry;

/// Generated clients; their messages are those of `shared`.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::pedantic)]
mod client {
    tonic::include_proto!("firth.config.v1");
    tonic::include_proto!("firth.identity.v1");
}

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use shared::clock;
use shared::drain::{Phase, Watcher};
use shared::kind::Lane;
use shared::proto::config::{Goodbye, ProxyMessage, Receiving, proxy_message};
use shared::telemetry::{Seldom, chain, without_links};
use shared::tls::connect::Doubt;
use shared::version::{Root, Seq};
use thiserror::Error;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{self, Instant};
use tonic::Code;
use tonic::transport::Channel;
use tracing::{error, info, warn};

use crate::journal::{Binding, Journal, Loaded};
use crate::resolve::Names;
use crate::table::Writer;
use crate::table::apply::Audit;
use address::AddressError;
use certificate::{CertificateError, Enrolment, Holder};
use disk::{Disk, FromDisk, Opening};
use patience::{Patience, Verdict};
use replicas::{Failed, Replicas, Url, Way};
use retry::{End, Retry};
use session::{Close, Identity, Session};

/// Time limit for the Welcome.
const WELCOME: Duration = Duration::from_secs(15);
/// How often old tables are collected.
const COLLECT: Duration = Duration::from_millis(200);
/// Ports that could not be bound are retried after this many of those intervals.
const OPEN_AGAIN: u32 = 25;
/// One resource is at most half of it, which no object of an API server reaches.
const MESSAGE: usize = 2 * shared::entry::MAX_BODY;
/// How long a proxy that has everything else waits for the DNS names of Services before it first serves.
const NAMES: Duration = Duration::from_secs(2);
/// The same for one that found its complete state on disk, and may be the only one that could serve now: names that
/// take longer are resolved while it serves.
const NAMES_FROM_DISK: Duration = Duration::from_millis(50);
/// How often the log says that there is no connection to a control plane.
const UNREACHABLE: Duration = Duration::from_secs(30);
/// Number of queued replies at which reading pauses.
const ANSWERS: usize = 1024;

/// The state of the subscription, for readiness and metrics.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct View {
    /// A stream is open and was welcomed.
    pub(crate) connected: bool,
    /// Why there is none.
    pub(crate) failed: Option<Arc<str>>,
    /// Both lanes were complete once.
    pub(crate) complete: bool,
    /// It said goodbye.
    pub(crate) parted: bool,
    /// Number of streams that were welcomed so far.
    pub(crate) streams: u64,
    /// The position on CONFIG.
    pub(crate) config: Standing,
    /// The position on LIVE.
    pub(crate) live: Standing,
    /// Resources that the proxy has but cannot serve.
    pub(crate) refused: u64,
    /// What is served came from disk, and was not confirmed by a control plane yet.
    kept: Option<Arc<FromDisk>>,
    /// Time of the last CONFIG change, in seconds since 1970.
    pub(crate) applied: Option<u64>,
    /// Expiry of the proxy's own certificate, in seconds since 1970; 0: it has none.
    pub(crate) certificate_until: u64,
}

/// The state of one lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Standing {
    /// Position in the log of the control plane; 0 for none.
    pub(crate) seq: Seq,
    /// Root of the resources.
    pub(crate) root: Root,
    /// Number of resources.
    pub(crate) resources: u64,
}

/// The subscription to a control plane.
#[derive(Debug)]
pub(crate) struct Subscription {
    replicas: Arc<Replicas>,
    /// `None`: plaintext.
    certificate: Option<Holder>,
    session: Session,
    disk: Disk,
    group: String,
    view: watch::Sender<View>,
    unreachable: Seldom,
    /// Since when the current stream is welcomed.
    welcome: Option<Instant>,
    /// Whether TLS failed on its connection.
    doubt: Option<Doubt>,
    /// When the control plane asked to connect elsewhere.
    asked: Option<Instant>,
    /// A port could be bound at last: less is refused than the control plane was told.
    opened: Arc<Notify>,
}

/// How a stream ended.
#[derive(Debug, Error)]
enum Ended {
    #[error("cannot connect: {}", chain(.0))]
    Connect(#[from] tonic::transport::Error),
    #[error("no certificate for {whose}: {error}")]
    Certificate { whose: String, error: CertificateError },
    #[error("{}: {}", .0.code(), without_links(.0.message().to_owned()))]
    Status(Box<tonic::Status>),
    #[error("the control plane ended the stream")]
    Finished,
    #[error("its address cannot be found: {0}")]
    Nowhere(String),
    #[error("nothing was heard for {0:?}")]
    Silent(Duration),
    #[error(transparent)]
    Close(#[from] Close),
}

impl Ended {
    /// Whether the control plane refused this proxy's identity.
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
    /// To the control plane at these URLs, each of which may stand for several replicas. `insecure` allows a plain
    /// connection; on any other the proxy presents a certificate.
    ///
    /// # Errors
    /// One of them cannot be used.
    pub(crate) fn new(
        urls: &[impl AsRef<str>],
        insecure: bool,
        identity: Identity,
        enrolment: Enrolment,
    ) -> Result<(Self, watch::Receiver<View>), AddressError> {
        let mut known = Vec::new();
        for url in urls {
            let (endpoint, is_plain) = address::endpoint(url.as_ref(), insecure)?;
            known.push(Url { endpoint, is_plain });
        }
        let encrypted = known.iter().find(|url| !url.is_plain).map(|url| url.endpoint.uri().to_string());
        let certificate = match encrypted {
            Some(url) => Some(
                Holder::new(enrolment)
                    .map_err(|reason| AddressError::Nobody { url, reason: reason.to_string() })?,
            ),
            None => None,
        };
        let certificate_until = certificate.as_ref().map_or(0, Holder::until);
        let (view, watcher) = watch::channel(View { certificate_until, ..View::default() });
        let subscription = Self {
            replicas: Arc::new(Replicas::new(known)),
            certificate,
            disk: Disk::default(),
            group: identity.group.clone(),
            session: Session::new(identity, clock::now),
            view,
            unreachable: Seldom::new(UNREACHABLE),
            welcome: None,
            doubt: None,
            asked: None,
            opened: Arc::default(),
        };
        Ok((subscription, watcher))
    }

    /// Stores its state in a journal, and continues from what was loaded of it; the tables are the writer's.
    #[must_use]
    pub(crate) fn with_journal(mut self, journal: Journal, loaded: Option<&Loaded>) -> Self {
        if let Some(loaded) = loaded {
            let whole = loaded.missing.is_nothing();
            self.session.resume(Lane::Config, loaded.config, whole);
            self.session.resume(Lane::Live, loaded.live, whole);
        }
        self.disk = Disk::new(journal, loaded);
        self
    }

    /// The binding that a stored state must match.
    pub(crate) fn binding(&self) -> Binding {
        bound(&self.replicas, self.group.clone(), self.certificate.as_ref())
    }

    /// Follows the control plane until dropped, and writes the tables. Calls `complete` when both lanes were complete
    /// for the first time, from disk or from the control plane, and names are resolved, before that is reported. Says
    /// goodbye when `leaving` accepts no more connections.
    pub(crate) async fn run(
        mut self,
        writer: Writer,
        leaving: Watcher,
        complete: impl FnOnce(),
    ) -> Infallible {
        let writer = RefCell::new(writer);
        let names = Names::of_system();
        let complete = Cell::new(Some(complete));
        let opened = Arc::clone(&self.opened);
        let collect = async {
            let mut tick = time::interval(COLLECT);
            let mut audit = Audit::default();
            loop {
                for _ in 0..OPEN_AGAIN {
                    tick.tick().await;
                    let mut writer = writer.borrow_mut();
                    writer.collect();
                    for (key, fault) in audit.step(&mut writer) {
                        error!(%key, "the tables differed from the state of this proxy and were repaired: {}", fault.as_str());
                    }
                }
                if writer.borrow_mut().open_again() {
                    opened.notify_one();
                }
            }
        };
        let (opening, shown, view) = (self.disk.opening(), self.seen(&writer.borrow()), self.view.clone());
        let open = async {
            match opening {
                Opening::Now => names.settled(&writer, NAMES_FROM_DISK).await,
                Opening::After(patience) => {
                    view.send_replace(shown.clone());
                    time::sleep(patience).await;
                }
                Opening::WhenComplete => view.send_modify(|view| view.kept = shown.kept.clone()),
            }
            if opening != Opening::WhenComplete
                && let Some(complete) = complete.take()
            {
                complete();
                if opening == Opening::Now {
                    view.send_replace(shown);
                }
            }
            std::future::pending().await
        };
        let certificate = self.certificate.take();
        let renew = async {
            match &certificate {
                Some(certificate) => certificate.keep().await,
                None => std::future::pending().await,
            }
        };
        let follow = self.follow(&writer, &names, certificate.as_ref(), leaving, &complete);
        let (never, ..): (Infallible, Infallible, Infallible, Infallible, Infallible) =
            futures::join!(follow, collect, names.keep(&writer), renew, open);
        never
    }

    async fn follow(
        &mut self,
        writer: &RefCell<Writer>,
        names: &Names,
        certificate: Option<&Holder>,
        mut leaving: Watcher,
        complete: &Cell<Option<impl FnOnce()>>,
    ) -> Infallible {
        let mut retry = Retry::default();
        let mut next = None;
        loop {
            let way = match next.take() {
                Some(way) => Ok(way),
                None => self.find(writer, certificate).await,
            };
            let ended = match way {
                Ok(way) => {
                    let from = way.address;
                    let streamed = self.stream(way, writer, names, certificate, &mut leaving, complete).await;
                    // A replica that sends this proxy elsewhere is about to end.
                    self.replicas.failed(from);
                    match streamed {
                        Ok(way) => {
                            info!(%from, to = %way.address, "moved to another replica of the control plane");
                            self.welcome = None;
                            if let Some(certificate) = certificate {
                                certificate.ended(certificate::End::Welcome);
                            }
                            next = Some(way);
                            continue;
                        }
                        Err(ended) => ended,
                    }
                }
                Err(ended) => ended,
            };
            let held = self.welcome.take().map(|welcome| welcome.elapsed());
            if let Some(certificate) = certificate {
                let is_doubted = self.doubt.take().is_some_and(|doubt| doubt.is_there());
                certificate.ended(match held {
                    Some(_) => certificate::End::Welcome,
                    None if is_doubted || ended.is_about_who() => certificate::End::Unwelcome,
                    None => certificate::End::Unheard,
                });
            }
            self.view.send_modify(|view| {
                (view.connected, view.failed) = (false, Some(ended.to_string().into()));
            });
            let end = match (&ended, self.asked.take()) {
                (Ended::Close(Close::Diverged { .. } | Close::Protocol(_)), _) => End::Wrong,
                (Ended::Finished, Some(at)) => End::Asked(at.saturating_duration_since(Instant::now())),
                _ => End::Failed,
            };
            if held.is_some() && end != End::Wrong {
                info!(reason = %ended, "the stream from the control plane ended; serving on");
            } else if self.unreachable.now(clock::now()).is_some() {
                warn!(control_plane = %self.replicas, reason = %ended, "no connection to the control plane; retrying");
            }
            time::sleep(retry.after(end, held)).await;
        }
    }

    /// A call that a replica accepts, with this proxy's Hello.
    async fn find(&mut self, writer: &RefCell<Writer>, certificate: Option<&Holder>) -> Result<Way, Ended> {
        let (replicas, view, session) = (Arc::clone(&self.replicas), &self.view, &mut self.session);
        let hello = || {
            if let Some(certificate) = certificate {
                view.send_modify(|view| view.certificate_until = certificate.until());
                if let Some(name) = certificate.name() {
                    session.called(&name);
                }
            }
            Some(session.hello(&*writer.borrow()))
        };
        replicas.open(certificate, hello, None).await.map_err(|Failed { ended, is_doubted }| {
            self.doubt = is_doubted.then(Doubt::raised);
            ended
        })
    }

    /// One stream, to its end, or until it moves elsewhere.
    async fn stream(
        &mut self,
        way: Way,
        writer: &RefCell<Writer>,
        names: &Names,
        certificate: Option<&Holder>,
        leaving: &mut Watcher,
        complete: &Cell<Option<impl FnOnce()>>,
    ) -> Result<Way, Ended> {
        let Way { address, channel, doubt, heard, answers, mut inbound, greeted } = way;
        self.doubt = doubt;
        let mut pending = VecDeque::new();
        if !greeted {
            pending.push_back(self.session.hello(&*writer.borrow()));
        }
        let mut patience = Patience::from(Instant::now(), WELCOME);
        let (mut is_parting, mut is_told) = (false, false);
        let mut moving = None;
        loop {
            tokio::select! {
                biased;
                permit = answers.reserve(), if !pending.is_empty() => match permit {
                    Ok(permit) => {
                        if let Some(answer) = pending.pop_front() {
                            permit.send(answer);
                        }
                    }
                    // The request side was dropped: the stream has ended, and reading it gives the reason.
                    Err(_) => pending.clear(),
                },
                told = answers.reserve_many(answers.max_capacity()), if is_parting && !is_told && pending.is_empty() => {
                    is_told = true;
                    if told.is_ok() {
                        // It may still be in the connection's task.
                        tokio::task::yield_now().await;
                        self.view.send_modify(|view| view.parted = true);
                    }
                }
                () = leaving.reached(Phase::Closing), if !is_parting => {
                    is_parting = true;
                    pending.push_back(message(proxy_message::Message::Goodbye(Goodbye {})));
                }
                way = elsewhere(&mut moving), if !is_parting => {
                    self.asked = None;
                    return Ok(way);
                }
                // Not before the Welcome: what changes before is told after it.
                () = self.opened.notified(), if self.session.is_welcome() => {
                    pending.extend(self.session.restate(Lane::Config, &*writer.borrow()));
                    self.show(&writer.borrow(), certificate);
                }
                message = inbound.message(), if pending.len() < ANSWERS => {
                    let message = message?.ok_or(Ended::Finished)?;
                    let was_welcome = self.session.is_welcome();
                    let actions = self.session.on(message, &mut *writer.borrow_mut());
                    if !was_welcome && self.session.is_welcome() {
                        self.welcomed(address, certificate.map(|it| (it, &channel)));
                    }
                    heard.take();
                    patience = Patience::from(Instant::now(), self.session.silence_limit().unwrap_or(WELCOME));
                    pending.extend(actions.say);
                    if let Some((after, reason)) = actions.moves
                        && moving.is_none()
                    {
                        info!(%address, ?after, %reason, "this replica sends its proxies to the others");
                        self.asked = Some(Instant::now() + after);
                        let replicas = Arc::clone(&self.replicas);
                        moving = Some(Box::pin(replicas.elsewhere(certificate, address, after)));
                    }
                    names.look();
                    if self.session.is_complete() && let Some(complete) = complete.take() {
                        names.settled(writer, NAMES).await;
                        complete();
                    }
                    self.show(&writer.borrow(), certificate);
                    if let Some(close) = actions.close {
                        part(&answers, pending).await;
                        return Err(close.into());
                    }
                }
                () = time::sleep_until(patience.due()) => match patience.judge(Instant::now(), heard.take()) {
                    Verdict::Wait => {}
                    Verdict::Arrives => pending.push_back(message(proxy_message::Message::Receiving(Receiving {}))),
                    Verdict::Silent => return Err(Ended::Silent(patience.limit())),
                }
            }
        }
    }

    /// A replica has accepted this proxy's Hello.
    fn welcomed(&mut self, address: SocketAddr, certificate: Option<(&Holder, &Channel)>) {
        self.unreachable.reset();
        self.welcome = Some(Instant::now());
        self.replicas.serves(address);
        info!(control_plane = %self.replicas, %address, "connected to the control plane");
        if let Some((certificate, channel)) = certificate {
            certificate.connected(Some(channel.clone()));
        }
        self.view.send_modify(|view| {
            (view.streams, view.failed) = (view.streams + 1, None);
        });
    }

    /// Updates readiness, metrics and the journal.
    fn show(&mut self, writer: &Writer, certificate: Option<&Holder>) {
        let known = || bound(&self.replicas, self.group.clone(), certificate);
        self.disk.keep(&self.session, writer, clock::now(), known);
        let certificate_until = certificate.map_or(0, Holder::until);
        let new = View { certificate_until, ..self.seen(writer) };
        self.view.send_if_modified(|view| {
            let changed = *view != new;
            *view = new;
            changed
        });
    }

    fn seen(&self, writer: &Writer) -> View {
        let standing = |lane| Standing {
            seq: self.session.seq(lane),
            root: writer.root(lane),
            resources: writer.has(lane).len() as u64,
        };
        let (before, config) = (self.view.borrow(), standing(Lane::Config));
        let is_other = config.root != before.config.root;
        let now = is_other.then(|| clock::wall().duration_since(UNIX_EPOCH).ok()).flatten();
        View {
            applied: now.map(|since| since.as_secs()).or(before.applied),
            connected: self.session.is_welcome(),
            failed: before.failed.clone(),
            complete: self.session.is_complete(),
            parted: before.parted,
            streams: before.streams,
            config,
            live: standing(Lane::Live),
            refused: Lane::ALL.iter().map(|lane| writer.refused(*lane).count() as u64).sum(),
            certificate_until: before.certificate_until,
            kept: self.disk.start().filter(|_| self.session.is_kept()).cloned(),
        }
    }
}

/// The identity of a control plane: its authority, or its address if it has none.
fn bound(replicas: &Replicas, group: String, certificate: Option<&Holder>) -> Binding {
    let plain = replicas.urls().iter().filter(|url| url.is_plain);
    let known = plain.map(|url| *blake3::hash(url.endpoint.uri().to_string().as_bytes()).as_bytes());
    let known = known.chain(certificate.map(Holder::known).into_iter().flatten()).collect();
    Binding { source: None, group, known }
}

/// The new stream, after the proxy was asked to move and found one.
async fn elsewhere<F: Future<Output = Way>>(moving: &mut Option<Pin<Box<F>>>) -> Way {
    match moving {
        Some(moving) => moving.await,
        None => std::future::pending().await,
    }
}

/// Sends the remaining replies before the stream is closed, so that the control plane learns why.
async fn part(answers: &mpsc::Sender<ProxyMessage>, pending: VecDeque<ProxyMessage>) {
    const FAREWELL: Duration = Duration::from_millis(500);
    let say = async {
        for answer in pending {
            if answers.send(answer).await.is_err() {
                break;
            }
        }
        // A reply that was taken out of the channel may still be in the connection's task.
        let _ = answers.reserve_many(answers.max_capacity()).await;
    };
    let _ = time::timeout(FAREWELL, say).await;
    tokio::task::yield_now().await;
}

fn message(message: proxy_message::Message) -> ProxyMessage {
    ProxyMessage { message: Some(message) }
}

#[cfg(test)]
mod tests;
