//! The same over HTTP/2, for gRPC. Bodies are streamed, so only a connection that failed is tried elsewhere, as in nginx.

use std::sync::Arc;

use bytes::Bytes;
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderName, HeaderValue, Method, Request, Response, Uri, header};

use super::super::forwarded;
use super::{UNCOUNTED, is_grpc, link, pick, protocol, target};
use crate::codec::body::RequestBody;
use crate::codec::error::{Kind, ProxyError};
use crate::codec::head::{Framing, Known, RequestHead, ResponseHead};
use crate::http::pipeline::Exchange;
use crate::http::reply::{Reply, ReplyBody};
use crate::table::{BackendCell, Protocol};
use crate::upstream::Tried;
use crate::upstream::call::Call;
use crate::upstream::link::Link;
use crate::upstream::payload::Payload;

/// Sends a request and gives the answer, or the page that stands for none.
pub(super) async fn send<B: RequestBody>(
    exchange: &mut Exchange<'_>,
    body: &mut B,
    cell: &Arc<BackendCell>,
) -> Reply {
    match attempt(exchange, body, cell).await {
        Ok((head, call)) => {
            let body = ReplyBody::Call(Box::new(call));
            Reply { head, body, close: false, untold: None, timeouts: exchange.timeouts }
        }
        Err(error) => {
            tracing::debug!(kind = error.kind.as_str(), source = ?error.source, "call failed");
            let local = &exchange.call.server.local;
            local.metrics.failed(error.kind);
            exchange.tally.answered(error.kind.status(), true);
            Reply::failure(local, &error)
        }
    }
}

async fn attempt<B: RequestBody>(
    exchange: &mut Exchange<'_>,
    body: &mut B,
    cell: &Arc<BackendCell>,
) -> Result<(Box<ResponseHead>, Call), ProxyError> {
    let (local, timer) = (&exchange.call.server.local, exchange.call.timer);
    let (timeouts, sizes) = (exchange.timeouts, exchange.sizes);
    let target = target(exchange);
    let host = forwarded::host(exchange);
    let request = request(exchange.head, target.as_deref(), &host, protocol(exchange))?;
    let ended = exchange.head.framing.is_empty();
    // A client of HTTP/1.1 is read to its end first: what it sends and what it gets are one connection.
    let body = match body.detach() {
        Some(body) => body,
        None => {
            let whole = crate::table::Sizes { buffering: true, ..sizes };
            let (payload, _) =
                Payload::prepare(body, exchange.head.framing, whole, timeouts.client_body, local, timer)
                    .await?;
            payload.detach().ok_or(Kind::ClientBody)?
        }
    };
    let link = connect(exchange, cell).await?;
    let mut call = Call::begin(link, request, ended, body, sizes).await?;
    let response = call.head(timer, timeouts).await?;
    exchange.tally.answered(response.status().as_u16(), false);
    let to_head = exchange.head.method == crate::codec::head::Method::Head;
    Ok((Box::new(answer(response, to_head || call.is_over())), call))
}

/// A new connection to an endpoint, the next one where that fails.
async fn connect(exchange: &mut Exchange<'_>, cell: &Arc<BackendCell>) -> Result<Link, ProxyError> {
    let server = exchange.call.server;
    let protocol = protocol(exchange);
    let location = exchange.location.as_deref();
    let retries = location.map(|location| location.policy.retries).unwrap_or_default();
    let begun = server.local.timers.now();
    let mut tries = match exchange.timeouts.tries {
        0 => cell.endpoints().list.len().max(UNCOUNTED),
        tries => tries,
    };
    let mut tried = Tried::default();
    loop {
        let Some(endpoint) = pick(server, cell, exchange.session.as_mut(), &mut tried) else {
            return Err(if tried.is_empty() { Kind::NoEndpoints } else { Kind::ConnectFailed }.into());
        };
        exchange.tally.asked(&endpoint);
        let connecting =
            link(exchange.call, exchange.timeouts.connect, cell, (&endpoint, protocol), true, true);
        let error = match connecting.await {
            Ok(link) => return Ok(link),
            Err(error) => error,
        };
        tries -= 1;
        tried.add(&endpoint);
        let may = error.kind.condition().is_some_and(|condition| retries.after(condition, false));
        if tries == 0 || !may || !retries.is_in_time(server.local.timers.now().duration_since(begun)) {
            return Err(error);
        }
        server.local.metrics.failed(error.kind);
        exchange.tally.answered(error.kind.status(), true);
        server.local.metrics.retries.add(1);
    }
}

/// The head of a request as h2 knows it.
fn request(
    head: &RequestHead,
    target: Option<&[u8]>,
    host: &[u8],
    protocol: Protocol,
) -> Result<Request<()>, ProxyError> {
    let bad = |error: http::Error| ProxyError::of(Kind::ClientBody, error);
    let scheme = if protocol == Protocol::Grpcs { Scheme::HTTPS } else { Scheme::HTTP };
    let target = target.unwrap_or_else(|| head.target());
    let path = PathAndQuery::try_from(target).map_err(|error| bad(error.into()))?;
    let uri = Uri::builder().scheme(scheme).authority(host).path_and_query(path).build();
    let method = Method::from_bytes(head.method_name().as_bytes()).map_err(|error| bad(error.into()))?;
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = uri.map_err(bad)?;
    let fields = request.headers_mut();
    for (name, value) in head.fields.iter() {
        let known = Known::of(name);
        if known.is_framing() || known.is_hop_by_hop() {
            continue;
        }
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            fields.append(name, value);
        }
    }
    if is_grpc(head) {
        // Without it no server sends its status.
        fields.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    if let Framing::Length(length) = head.framing {
        fields.insert(header::CONTENT_LENGTH, length.into());
    }
    Ok(request)
}

/// The head of an answer as the pipeline knows it; `over`: no body follows.
fn answer(response: Response<()>, over: bool) -> ResponseHead {
    let mut head = ResponseHead::new(response.status().as_u16());
    for (name, value) in response.headers() {
        let known = Known::of(name.as_str().as_bytes());
        if known == Known::ContentLength {
            head.declared_length = value.to_str().ok().and_then(|text| text.parse().ok());
        } else if !known.is_framing() && !known.is_hop_by_hop() {
            let name = Bytes::copy_from_slice(name.as_str().as_bytes());
            head.fields.append(name, Bytes::copy_from_slice(value.as_bytes()));
        }
    }
    head.framing = match head.declared_length {
        _ if over => Framing::None,
        Some(length) if length > 0 => Framing::Length(length),
        _ => Framing::Chunked,
    };
    head
}
