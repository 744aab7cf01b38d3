//! The same over HTTP/2, for gRPC. Bodies are streamed, so a call with one is retried elsewhere only if it was certainly not
//! processed: the connection failed, as in nginx, or the endpoint says that it has not processed it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;

use super::super::{failures, forwarded};
use super::{PASSED_BY, UNCOUNTED, is_grpc, link, may_again, pick, target};
use crate::codec::body::RequestBody;
use crate::codec::error::{Kind, ProxyError};
use crate::codec::head::{Framing, Known, Method, RequestHead, ResponseHead};
use crate::codec::hpack::encode;
use crate::http::pipeline::{self, Exchange, HeaderScope};
use crate::http::reply::{Reply, ReplyBody};
use crate::table::policy::retries::Retries;
use crate::table::{BackendCell, Endpoint, Protocol};
use crate::upstream::Tried;
use crate::upstream::call::{Body, Call, Failed, Heed, Request};
use crate::upstream::ejection;
use crate::upstream::multiplexed::{CallSlot, Multiplexed, Opening, Room};
use crate::upstream::observation::Observation;
use crate::upstream::payload::Payload;
use crate::upstream::transport::Transport;

/// Sends a request and returns the response, or an error page.
pub(super) async fn send<B: RequestBody>(
    exchange: &mut Exchange<'_>,
    body: &mut B,
    cell: &Arc<BackendCell>,
    transport: Transport,
) -> Reply {
    match attempt(exchange, body, cell, transport).await {
        Ok((head, call)) => {
            let body = ReplyBody::Call(Box::new(call));
            Reply { head, body, close: false, untold: None, is_said: false, read: exchange.timeouts.read }
        }
        Err(error) => {
            failures::of_backend(exchange, cell, &error);
            let local = &exchange.call.server.local;
            local.metrics.failed(error.kind);
            exchange.info.attempts.failed(error.kind.status());
            Reply::failure(local, &error)
        }
    }
}

async fn attempt<B: RequestBody>(
    exchange: &mut Exchange<'_>,
    body: &mut B,
    cell: &Arc<BackendCell>,
    transport: Transport,
) -> Result<(Box<ResponseHead>, Call), ProxyError> {
    let (local, timer) = (&exchange.call.server.local, exchange.call.timer);
    let (timeouts, sizes) = (exchange.timeouts, exchange.sizes);
    let target = target(exchange);
    let host = forwarded::host(exchange)?;
    let request = request(exchange.head, target.as_deref(), &host, transport.protocol);
    // The request of an HTTP/1.1 client is read to its end first, because its request and response share one
    // connection.
    let body = match body.detach() {
        Some(body) => body,
        None => {
            let whole = crate::table::Sizes { buffering: true, ..sizes };
            let (payload, _) = Payload::prepare(
                body,
                exchange.head.framing,
                whole,
                (timeouts.client_body, false),
                local,
                timer,
            )
            .await?;
            payload.detach().ok_or(Kind::ClientBody)?
        }
    };
    // The request now contains what is sent; the head is only needed for an error backend.
    if !may_be_sent_elsewhere(exchange) {
        exchange.head.let_go();
    }
    let permit = exchange.call.server.request_permit(cell).ok_or(Kind::NoRoom)?;
    let mut asking = Asking::new(exchange, cell, transport);
    let mut body = Body::new(body);
    loop {
        let place = asking.connect(exchange, cell).await?;
        let begun = Call::begin(place, &request, body, (sizes, &local.quota), (timer, timeouts)).await;
        let failed = match begun {
            Ok(call) => match call.head(timer, timeouts).await {
                Ok((mut head, mut call)) => {
                    call.observe(asking.observed.take());
                    call.keep(permit);
                    if let Some(endpoint) = &asking.endpoint {
                        ejection::responded(local, cell, endpoint);
                    }
                    // The application's response is passed on (as in ingress-nginx).
                    exchange.head.let_go();
                    exchange.info.attempts.answered(head.status);
                    if request.is_head || call.is_over() {
                        head.framing = Framing::None;
                    }
                    return Ok((head, call));
                }
                Err(failed) => failed,
            },
            Err(failed) => failed,
        };
        body = asking.again(exchange, cell, failed)?;
    }
}

/// Whether the location's error backend may respond instead of its endpoints.
fn may_be_sent_elsewhere(exchange: &Exchange<'_>) -> bool {
    let location = exchange.location();
    let is_page = exchange.header_scope == HeaderScope::Errors;
    location.is_some_and(|it| it.pages().is_some()) && !is_page && !is_grpc(exchange.head)
}

/// The endpoints that a call was tried on, and the remaining attempts.
struct Asking {
    transport: Transport,
    retries: Retries,
    begun: Instant,
    tries: usize,
    tried: Tried,
    /// Endpoints that were unroutable.
    passed_by: usize,
    /// The endpoint of the current attempt.
    endpoint: Option<Arc<Endpoint>>,
    /// The timing of the current attempt.
    observed: Option<Box<Observation>>,
    has_body: bool,
    /// An endpoint may get it twice.
    is_safe: bool,
    /// The number of the newest connection when the current attempt began.
    newest: u64,
    /// The same, of an attempt on a shared connection that turned out closed: no connection that is as old is joined
    /// any more.
    after: Option<u64>,
    /// It opens its own connection.
    is_alone: bool,
}

/// What a failure counts against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Counts {
    /// Nothing, and it is retried whatever the location has configured.
    Free,
    /// Nothing.
    None,
    /// The tries of the call. Whoever opened the connection reports its endpoint, once.
    Try,
    /// The tries of the call, and the endpoint.
    Endpoint,
}

impl Asking {
    fn new(exchange: &Exchange<'_>, cell: &BackendCell, transport: Transport) -> Self {
        let retries = exchange.location().map(|location| location.policy.retries);
        Self {
            transport,
            retries: retries.unwrap_or_default(),
            begun: exchange.call.server.local.timers.now(),
            tries: match exchange.timeouts.tries {
                0 => cell.endpoints().list.len().max(UNCOUNTED),
                tries => tries,
            },
            tried: Tried::default(),
            passed_by: 0,
            endpoint: None,
            observed: None,
            has_body: !exchange.head.framing.is_empty(),
            is_safe: exchange.head.framing.is_empty() && exchange.head.method.is_retriable(),
            newest: 0,
            after: None,
            is_alone: false,
        }
    }

    /// A place on a connection to an endpoint; tries the next endpoint on failure.
    async fn connect(
        &mut self,
        exchange: &mut Exchange<'_>,
        cell: &Arc<BackendCell>,
    ) -> Result<CallSlot, ProxyError> {
        loop {
            let how = (exchange.session.as_mut(), exchange.turn);
            let picked = pick(exchange.call.server, cell, how, &mut self.tried);
            let Some(endpoint) = picked else {
                let kind = if self.tried.is_empty() { Kind::NoEndpoints } else { Kind::ConnectFailed };
                return Err(kind.into());
            };
            exchange.info.attempts.asked(&endpoint);
            self.observed = Observation::begin(exchange.turn, &endpoint);
            let mut left = exchange.timeouts.connect;
            let (server, to) = (exchange.call.server, (&*endpoint, &self.transport));
            self.newest = server.upstreams.borrow().begun();
            let joined = match self.is_alone {
                true => Ok(None),
                false => join(exchange.call, &mut left, cell, to, (self.has_body, self.after)).await,
            };
            let (connected, counts) = match joined {
                Ok(Some(place)) => {
                    server.local.metrics.reused.add(1);
                    (Ok(place), Counts::None)
                }
                Ok(None) => (open(exchange.call, left, cell, to, self.is_alone).await, Counts::Endpoint),
                Err(error) => (Err(error), Counts::Try),
            };
            self.endpoint = Some(endpoint);
            match connected {
                Ok(place) => {
                    exchange.info.attempts.connected(place.reused);
                    if let Some(observed) = self.observed.as_mut().filter(|_| !place.reused) {
                        observed.connected();
                    }
                    return Ok(place);
                }
                Err(error) => self.failed(exchange, cell, error, (counts, true))?,
            }
        }
    }

    /// The body to send again, if that is allowed.
    fn again(
        &mut self,
        exchange: &mut Exchange<'_>,
        cell: &Arc<BackendCell>,
        failed: Failed,
    ) -> Result<Body, ProxyError> {
        let Failed { error, reused, heed, body } = failed;
        let untouched = heed != Heed::Unknown;
        let Some(body) = body.filter(|_| untouched || self.is_safe) else {
            return Err(error.within(exchange.call.timer.is_over()));
        };
        let counts = match (reused, heed, self.after) {
            // That calls share a connection must not cost any of them an answer: nginx gives each its own. So it goes on
            // whatever is configured, the first time on a newer connection, then on its own.
            (true, Heed::None, before) => {
                self.is_alone = before.is_some();
                Counts::Free
            }
            // As for a reused connection that was closed: once, a newer connection follows, and no endpoint is blamed.
            (true, _, None) => Counts::None,
            (true, _, Some(_)) => Counts::Try,
            (false, ..) => Counts::Endpoint,
        };
        if reused {
            self.after = Some(self.newest);
        }
        self.failed(exchange, cell, error, (counts, untouched))?;
        Ok(body)
    }

    /// An attempt failed, and may be repeated; `untouched`: it cost the endpoint nothing. Returns an error if it is not
    /// repeated.
    fn failed(
        &mut self,
        exchange: &mut Exchange<'_>,
        cell: &Arc<BackendCell>,
        error: ProxyError,
        (counts, untouched): (Counts, bool),
    ) -> Result<(), ProxyError> {
        let local = &exchange.call.server.local;
        let error = error.within(exchange.call.timer.is_over());
        let may = error.kind.condition().is_some_and(|condition| self.retries.after(condition, false));
        let is_counted = !matches!(counts, Counts::Free | Counts::None);
        if is_counted {
            let no_way = self.passed_by < PASSED_BY && error.is_no_way();
            self.passed_by += usize::from(no_way);
            self.tries = self.tries.saturating_sub(usize::from(!no_way));
            if let Some(endpoint) = &self.endpoint {
                self.tried.add(endpoint);
                if may && counts == Counts::Endpoint {
                    ejection::attempt_failed(local, cell, endpoint, &error);
                }
            }
        }
        let is_late = || !self.retries.is_in_time(local.timers.now().duration_since(self.begun));
        if counts != Counts::Free && (self.tries == 0 || !may || is_late()) {
            return Err(error);
        }
        if is_counted && !untouched && !may_again(exchange.call.server, cell) {
            return Err(error);
        }
        Observation::forget(&mut self.observed);
        local.metrics.failed(error.kind);
        exchange.info.attempts.failed(error.kind.status());
        local.metrics.retries.add(1);
        Ok(())
    }
}

/// A place for a call on a new connection to an endpoint, which others may join unless the call is to be alone.
async fn open(
    call: pipeline::Call<'_>,
    limit: Duration,
    cell: &BackendCell,
    (endpoint, transport): (&Endpoint, &Transport),
    is_alone: bool,
) -> Result<CallSlot, ProxyError> {
    let server = call.server;
    let opening = Opening(Multiplexed::opening(transport.reuse, &server.local.timers));
    if is_alone || !server.upstreams.borrow_mut().share(cell.id, endpoint, transport.key(), &opening.0) {
        opening.0.keep_not();
    }
    match link(call, limit, cell, (endpoint, transport), true, true).await {
        Ok(link) => opening.0.open(*link, &server.local),
        Err(error) => {
            let error = error.within(call.timer.is_over());
            opening.0.fail(&error, limit);
            return Err(error);
        }
    }
    let place = opening.done();
    // A connection on which nothing was received until then still has the response timeout.
    let _ = call.timer.limit(limit, place.admitted()).await;
    if place.is_held_off() {
        place.spoil();
        return Err(Kind::ConnectTimeout.into());
    }
    Ok(place)
}

/// A place on an existing connection, of a number beyond `after`, for a call with or without a body; `None`: the call
/// opens its own. Waiting for one that is being opened takes from what is `left` of the connect timeout.
///
/// # Errors
/// The endpoint cannot be connected to, or not within that time: a further attempt would not differ.
async fn join(
    call: pipeline::Call<'_>,
    left: &mut Duration,
    cell: &BackendCell,
    (endpoint, transport): (&Endpoint, &Transport),
    (has_body, after): (bool, Option<u64>),
) -> Result<Option<CallSlot>, ProxyError> {
    let timers = &call.server.local.timers;
    loop {
        let now = timers.now();
        let joined = {
            let mut upstreams = call.server.upstreams.borrow_mut();
            upstreams.join(cell.id, endpoint, transport.key(), has_body, after, now)
        };
        let shared = match joined {
            Some((shared, Room::Now)) => return Ok(Some(shared.join(true))),
            Some((shared, Room::Soon)) => shared,
            _ => return Ok(None),
        };
        let outcome = call.timer.limit(*left, shared.opened(now)).await;
        if let Some(error) = shared.failure(*left) {
            return Err(error);
        }
        match outcome {
            Ok(()) => *left = left.saturating_sub(timers.now().duration_since(now)),
            Err(_) if shared.is_opening() => return Err(Kind::ConnectTimeout.into()),
            // It is connected, but its endpoint does not say how many calls it allows: each has its own then.
            Err(_) => return Ok(None),
        }
    }
}

/// Encodes a request head for any connection.
fn request(head: &RequestHead, target: Option<&[u8]>, host: &[u8], protocol: Protocol) -> Request {
    let mut out = BytesMut::new();
    let (is_https, target) = (protocol == Protocol::Grpcs, target.unwrap_or_else(|| head.target()));
    encode::request(&mut out, head.method_bytes(), is_https, host, target);
    for (known, name, value) in head.fields.entries() {
        if !(known.is_framing() || known.is_hop_by_hop()) {
            encode::field(&mut out, known, name, value);
        }
    }
    if is_grpc(head) {
        // Without it gRPC servers do not send their status.
        encode::field(&mut out, Known::Te, b"te", b"trailers");
    }
    if let Framing::Length(length) = head.framing {
        encode::number(&mut out, Known::ContentLength, length);
    }
    Request { fields: out.freeze(), is_head: head.method == Method::Head, ended: head.framing.is_empty() }
}
