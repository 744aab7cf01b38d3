//! The inspection service `firth.inspect.v1`: queries of people and tools. It reads the newest head, the registry and
//! the problems; it changes nothing but operators' decisions (`decide`).
//!
//! **Invariant:** no private key leaves this module, in whatever form.

mod body;
mod changes;
mod convert;
mod decide;
mod difference;
mod leaves;
mod page;
mod pick;
mod reach;
mod reading;
mod share;
mod status;
mod terms;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::Stream;
use shared::clock;
use shared::kind::Lane;
use shared::name::ObjectName;
use shared::proto::inspect;
use tokio::sync::{mpsc, watch};
use tonic::{Request, Response, Status};

use crate::barrier::Barrier;
use crate::event::PinRequest;
use crate::peers::Peers;
use crate::pin::How;
use crate::pipeline::Start;
use crate::placement::Placements;
use crate::problem::Problems;
use crate::serve::admission::{self, Call};
use crate::serve::registry::Registry;
use crate::store::{Head, Published};
use body::Bodies;
use changes::Changes;
pub use convert::problem as problem_message;
use decide::{Asked, Decider, Unpinned};
use difference::Differences;
use page::Page;
use status::Watcher;
use terms::Terms;

/// Generated code of `firth.inspect.v1`.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::pedantic)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/firth.inspect.v1.rs"));
}
use generated::inspect_server::{Inspect as Service, InspectServer};

/// Minimum interval between two lists of proxies to a watcher.
const GAP: Duration = Duration::from_millis(50);
/// How often a watcher's list asks the other replicas: they do not push.
const OTHERS: Duration = Duration::from_millis(500);

/// The inspection service. Clones share state.
#[derive(Clone, Debug)]
pub struct Inspect {
    published: Published,
    registry: Arc<Registry>,
    problems: watch::Receiver<Problems>,
    places: watch::Receiver<Placements>,
    leaving: watch::Receiver<bool>,
    /// Whether this replica is handing its proxies over.
    ending: watch::Receiver<bool>,
    /// For questions about a folder, where no API server gives objects a resource version; `None` for a cluster.
    folder: Option<Barrier>,
    /// The ConfigMap with the settings of the fleet.
    configmap: ObjectName,
    decider: Decider,
    peers: Peers,
    start: Start,
    bodies: Arc<Bodies>,
    /// Built at the first diff.
    terms: Arc<OnceLock<Terms>>,
}

impl Inspect {
    /// A service over the store, the connected proxies, and the problems. Its streams end once `leaving` is true.
    /// `configmap`: the one with the settings of the fleet.
    ///
    /// # Errors
    /// If the descriptors of this build are broken.
    pub fn new(
        published: Published,
        registry: Arc<Registry>,
        problems: watch::Receiver<Problems>,
        places: watch::Receiver<Placements>,
        pins: mpsc::Sender<PinRequest>,
        leaving: watch::Receiver<bool>,
        configmap: ObjectName,
    ) -> Result<Self, prost_reflect::DescriptorError> {
        let bodies = Arc::new(Bodies::new()?);
        let decider = Decider::new(published.clone(), pins);
        Ok(Self {
            published,
            registry,
            problems,
            places,
            ending: leaving.clone(),
            leaving,
            folder: None,
            configmap,
            decider,
            peers: Peers::none(),
            start: Start::default(),
            bodies,
            terms: Arc::default(),
        })
    }

    /// Includes other replicas in the answers.
    #[must_use]
    pub fn with_peers(self, peers: Peers) -> Self {
        Self { peers, ..self }
    }

    /// Says what is missing before anything is offered.
    #[must_use]
    pub fn starting(self, start: Start) -> Self {
        Self { start, ..self }
    }

    /// Tells other replicas that this one takes no proxies, once `ending` is true.
    #[must_use]
    pub fn with_shutdown(self, ending: watch::Receiver<bool>) -> Self {
        Self { ending, ..self }
    }

    /// Sets that objects come from a folder, and the barrier that questions wait for.
    #[must_use]
    pub fn of_folder(self, folder: Option<Barrier>) -> Self {
        Self { folder, ..self }
    }

    /// The newest head, once it says anything.
    fn offered(&self) -> Result<Arc<Head>, Status> {
        let head = self.published.head();
        if head.is_ready() { Ok(head) } else { Err(Status::unavailable(self.start.missing())) }
    }

    pub(crate) fn into_server(self) -> InspectServer<Self> {
        InspectServer::new(self)
    }
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Service for Inspect {
    type WatchProxiesStream = Answers<inspect::WatchProxiesResponse>;
    type WatchStatusStream = Answers<inspect::WatchStatusResponse>;
    type WatchChangesStream = Answers<inspect::WatchChangesResponse>;

    async fn list_proxies(
        &self,
        request: Request<inspect::ListProxiesRequest>,
    ) -> Result<Response<inspect::ListProxiesResponse>, Status> {
        let asked = request.into_inner();
        let page = Page::new(asked.page_size, asked.page_token)?;
        let after = page.after(Some)?;
        let (proxies, replicas) = self.fleet().await;
        let head = self.published.head();
        let listed = proxies.into_iter().filter(|proxy| after.is_none_or(|id| proxy.id.as_str() > id));
        let (proxies, last) = page.fill(listed.map(|proxy| (proxy.id.clone(), proxy)));
        Ok(Response::new(inspect::ListProxiesResponse {
            proxies,
            version: convert::version(&head),
            next_page_token: last.unwrap_or_default(),
            pin: convert::pin(&head),
            replicas,
        }))
    }

    async fn watch_proxies(
        &self,
        request: Request<inspect::WatchProxiesRequest>,
    ) -> Result<Response<Self::WatchProxiesStream>, Status> {
        struct Watcher {
            inspect: Inspect,
            heads: watch::Receiver<Arc<Head>>,
            changes: watch::Receiver<u64>,
            first: bool,
            _call: Option<Arc<Call>>,
        }
        let watcher = Watcher {
            inspect: self.clone(),
            heads: self.published.heads(),
            changes: self.registry.changes(),
            first: true,
            _call: admission::call(&request),
        };
        let answers = futures::stream::unfold(watcher, async |mut it| {
            if !std::mem::take(&mut it.first) {
                tokio::select! {
                    changed = it.heads.changed() => changed.ok()?,
                    changed = it.changes.changed() => changed.ok()?,
                    _ = it.inspect.leaving.wait_for(|leaving| *leaving) => return None,
                    () = tokio::time::sleep(OTHERS), if !it.inspect.peers.is_none() => {}
                }
                tokio::time::sleep(GAP).await;
            }
            it.changes.mark_unchanged();
            let head = Arc::clone(&it.heads.borrow_and_update());
            let (proxies, replicas) = it.inspect.fleet().await;
            let (version, pin) = (convert::version(&head), convert::pin(&head));
            let answer = inspect::WatchProxiesResponse { proxies, version, pin, replicas };
            Some((Ok(answer), it))
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn status(
        &self,
        request: Request<inspect::StatusRequest>,
    ) -> Result<Response<inspect::StatusResponse>, Status> {
        let object = pick::object(&request.into_inner())?;
        let reading = self.read().await;
        Ok(Response::new(self.status_of(&object, &reading).await?))
    }

    async fn share(
        &self,
        request: Request<inspect::ShareRequest>,
    ) -> Result<Response<inspect::ShareResponse>, Status> {
        let asked = request.into_inner();
        if !asked.ends.is_empty() {
            self.peers.note_end(&asked.ends);
        }
        Ok(Response::new(self.known(&asked, clock::now())?))
    }

    async fn watch_status(
        &self,
        request: Request<inspect::WatchStatusRequest>,
    ) -> Result<Response<Self::WatchStatusStream>, Status> {
        let call = admission::call(&request);
        let object = pick::object(&request.into_inner().object.unwrap_or_default())?;
        let answers = futures::stream::unfold((Watcher::new(self, object), call), async |(mut it, call)| {
            let status = it.next().await?;
            Some((Ok(inspect::WatchStatusResponse { status: Some(status) }), (it, call)))
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn list_resources(
        &self,
        request: Request<inspect::ListResourcesRequest>,
    ) -> Result<Response<inspect::ListResourcesResponse>, Status> {
        let asked = request.into_inner();
        let kind = pick::optional_kind(&asked.kind)?;
        let page = Page::new(asked.page_size, asked.page_token)?;
        let after = page.after(pick::place)?;
        if after.is_none() {
            self.read_quickly().await;
        }
        let head = self.offered()?;
        let picked = pick::version(&head, &asked.version)?;
        let mut listed = Vec::new();
        for lane in [Lane::Config, Lane::Live] {
            let Some(snapshot) = picked.snapshot(lane, kind)? else {
                continue;
            };
            let entries = snapshot.iter().map(|entry| ((entry.kind(), &*entry.key.key), entry));
            listed.extend(entries.filter(|(place, _)| {
                kind.is_none_or(|kind| kind == place.0) && after.is_none_or(|after| *place > after)
            }));
        }
        let listed = page.first(listed, |(a, _), (b, _)| a.cmp(b));
        let (resources, last) =
            page.fill(listed.into_iter().map(|(place, it)| (place, convert::summary(it))));
        Ok(Response::new(inspect::ListResourcesResponse {
            resources,
            version: picked.root.short(),
            next_page_token: last.map(|(kind, key)| format!("{kind} {key}")).unwrap_or_default(),
        }))
    }

    async fn get_resource(
        &self,
        request: Request<inspect::GetResourceRequest>,
    ) -> Result<Response<inspect::GetResourceResponse>, Status> {
        let asked = request.into_inner();
        let kind = pick::kind(&asked.kind)?;
        self.read_quickly().await;
        let head = self.offered()?;
        let picked = pick::version(&head, &asked.version)?;
        let entry = picked.entry(kind, &asked.key)?;
        Ok(Response::new(inspect::GetResourceResponse {
            resource: Some(convert::summary(entry)),
            body: Some(self.bodies.show(entry)?),
        }))
    }

    async fn history(
        &self,
        request: Request<inspect::HistoryRequest>,
    ) -> Result<Response<inspect::HistoryResponse>, Status> {
        let limit = match request.into_inner().limit {
            0 => usize::MAX,
            limit => limit as usize,
        };
        self.read_quickly().await;
        self.offered()?;
        let (reach, head, replicas) = self.reach().await;
        let versions = head.history.newest_first().zip(reach::offered(&head)).take(limit);
        let entries = versions.map(|(version, offered)| convert::history(version, offered, &reach)).collect();
        Ok(Response::new(inspect::HistoryResponse { entries, pin: convert::pin(&head), replicas }))
    }

    async fn diff(
        &self,
        request: Request<inspect::DiffRequest>,
    ) -> Result<Response<inspect::DiffResponse>, Status> {
        let asked = request.into_inner();
        let page = Page::new(asked.page_size, asked.page_token)?;
        if page.after(pick::place)?.is_none() {
            self.read_quickly().await;
        }
        let head = self.offered()?;
        let (from, to) = pick::two(&head, &asked.from, &asked.to)?;
        let (from, to) = (from.into_version(), to.into_version());
        let Self { bodies, terms, .. } = self.clone();
        // The paths that lead to a backend are looked for among all.
        let compare = move || {
            let terms = terms.get_or_init(|| Terms::new(&bodies));
            let after = page.after(pick::place)?;
            let differences = Differences::new(&from.1, &to.1, &bodies, terms, after);
            let listed = differences.changes().map(|(place, change)| change.map(|change| (place, change)));
            let (changes, last) = page.try_fill(listed)?;
            Ok(Response::new(inspect::DiffResponse {
                from: from.0.short(),
                to: to.0.short(),
                changes,
                next_page_token: last.map(|(kind, key)| format!("{kind} {key}")).unwrap_or_default(),
            }))
        };
        tokio::task::spawn_blocking(compare).await.map_err(|error| Status::internal(error.to_string()))?
    }

    async fn watch_changes(
        &self,
        request: Request<inspect::WatchChangesRequest>,
    ) -> Result<Response<Self::WatchChangesStream>, Status> {
        let changes = Changes::new(&self.published, Arc::clone(&self.registry), self.leaving.clone());
        let state = (changes, admission::call(&request));
        let answers = futures::stream::unfold(state, async |(mut changes, call)| {
            let change = changes.next().await?;
            Some((Ok(change), (changes, call)))
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn list_problems(
        &self,
        request: Request<inspect::ListProblemsRequest>,
    ) -> Result<Response<inspect::ListProblemsResponse>, Status> {
        let asked = request.into_inner();
        let page = Page::new(asked.page_size, asked.page_token)?;
        let after = page.after(Some)?;
        let unread = if after.is_none() { self.read().await.problem() } else { None };
        let by_object = self.problems.borrow().clone();
        let is_ready = self.published.head().is_ready();
        let mut of_kinds: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for forbidden in self.start.source.forbidden() {
            let problem = convert::forbidden(forbidden, is_ready);
            of_kinds.entry(problem.object.clone()).or_default().push(problem);
        }
        for failing in self.start.source.failing() {
            let problem = convert::failing(&failing, is_ready);
            of_kinds.entry(problem.object.clone()).or_default().push(problem);
        }
        let unheard = self.start.source.unheard().map(|it| convert::unheard(&it, is_ready));
        let starting = (!is_ready).then(|| convert::starting(&self.start, self.folder.is_some()));
        for problem in unread.into_iter().chain(unheard).chain(starting) {
            of_kinds.entry(problem.object.clone()).or_default().push(problem);
        }
        let objects = by_object.iter().map(|(object, problems)| (object.to_string(), Some(problems)));
        let listed = objects.chain(of_kinds.keys().map(|kind| (kind.clone(), None)));
        let behind = listed.filter(|(object, _)| after.is_none_or(|after| object.as_str() > after)).collect();
        let first = page.first(behind, |(a, _), (b, _)| a.cmp(b));
        let listed = first.into_iter().flat_map(|(object, problems)| {
            let mut problems: Vec<_> = problems.into_iter().flat_map(|problems| problems.iter()).collect();
            problems.sort();
            let of_kind = of_kinds.get(&object).into_iter().flatten().cloned();
            let all = problems.into_iter().map(convert::problem).chain(of_kind);
            all.map(|problem| (object.clone(), problem)).collect::<Vec<_>>()
        });
        let (problems, last) = page.fill(listed);
        Ok(Response::new(inspect::ListProblemsResponse {
            problems,
            next_page_token: last.unwrap_or_default(),
        }))
    }

    async fn pin(
        &self,
        request: Request<inspect::PinRequest>,
    ) -> Result<Response<inspect::PinResponse>, Status> {
        decide::may_decide(&request)?;
        let inspect::PinRequest { version, lasts, note, replace } = request.into_inner();
        let pin = self.decider.pin(Asked { how: How::Pin, version, lasts, note, replace }).await?;
        Ok(Response::new(inspect::PinResponse { pin: Some(pin) }))
    }

    async fn rollback(
        &self,
        request: Request<inspect::RollbackRequest>,
    ) -> Result<Response<inspect::RollbackResponse>, Status> {
        decide::may_decide(&request)?;
        let inspect::RollbackRequest { version, lasts, note, replace } = request.into_inner();
        let pin = self.decider.pin(Asked { how: How::Rollback, version, lasts, note, replace }).await?;
        Ok(Response::new(inspect::RollbackResponse { pin: Some(pin) }))
    }

    async fn unpin(
        &self,
        request: Request<inspect::UnpinRequest>,
    ) -> Result<Response<inspect::UnpinResponse>, Status> {
        decide::may_decide(&request)?;
        let Unpinned { head, nothing } = self.decider.unpin().await?;
        Ok(Response::new(inspect::UnpinResponse { version: convert::version(&head), nothing }))
    }
}

#[cfg(test)]
mod tests;
