//! Mirrored requests, whose responses are ignored (as in ingress-nginx).
//!
//! **Invariant:** a request never waits for its copy, and copies never take resources from requests: they have a
//! budget of their own ([`crate::local::MirrorBudget`]). When it is exhausted, no copy is made, and a counter says so.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::spawn_local;

use super::elsewhere::{self, Room, Url, Word};
use super::loops::Purpose;
use super::variables::{self, Allowance};
use super::{Exchange, HeaderScope, forwarded};
use crate::codec::body::RequestBody;
use crate::codec::guard::Limits;
use crate::codec::h1::{Body, BodyReader, ResponseReader, write_request};
use crate::codec::head::{Framing, Method};
use crate::http::server::Server;
use crate::local::isolated::isolated;
use crate::local::mirror_budget::MirrorPermit;
use crate::table::policy::forwarding::Connection;
use crate::table::policy::mirror::Mirror;
use crate::upstream::payload::Payload;

/// Time limit for a copy: nginx' default timeouts, as for the auth service.
const PATIENCE: Duration = Duration::from_secs(60);

/// Maximum bytes of a response that are read and discarded; a longer one is cut off.
const LISTENED: usize = 256 * 1024;

/// The mirror of a request's location; none for an error page.
pub(super) fn of<'e>(exchange: &'e Exchange<'_>) -> Option<&'e Mirror> {
    let location = exchange.location().filter(|_| exchange.header_scope != HeaderScope::Errors)?;
    location.policy.mirror.as_deref()
}

/// Sends the location's mirror a copy of the request that its endpoints are about to get.
pub(super) fn copy<B: RequestBody>(exchange: &mut Exchange<'_>, payload: &Payload<'_, B>, framing: Framing) {
    let server = Rc::clone(exchange.call.server);
    match prepare(exchange, payload, framing) {
        Some(copy) => drop(spawn_local(async move {
            let timer = server.local.timers.timer();
            let delivered = isolated(timer.limit(PATIENCE, copy.deliver(&server))).await;
            let metrics = &server.local.metrics;
            match delivered {
                Ok(Ok(Ok(()))) => metrics.copied.add(1),
                Ok(Ok(Err(error))) => {
                    tracing::debug!(%error, "a copy was lost");
                    metrics.copies_lost.add(1);
                }
                Ok(Err(_)) => metrics.copies_lost.add(1),
                Err(panic) => {
                    metrics.panics.add(1);
                    tracing::error!(%panic, "a copy panicked");
                }
            }
        })),
        None => server.local.metrics.copies_lost.add(1),
    }
}

/// A request for the mirror.
struct Copy {
    owner: Box<str>,
    url: Url,
    head: Vec<u8>,
    body: Option<Box<dyn RequestBody>>,
    to_head: bool,
    _permit: MirrorPermit,
}

/// The copy, if there is room for it.
fn prepare<B: RequestBody>(
    exchange: &mut Exchange<'_>,
    payload: &Payload<'_, B>,
    framing: Framing,
) -> Option<Copy> {
    let location = exchange.location()?;
    let mirror = location.policy.mirror.as_deref()?;
    let local = &exchange.call.server.local;
    if exchange.came.is_copied() {
        tracing::debug!(
            ingress = location.owner(),
            "mirror-target leads back here: no copy of this copy is made"
        );
        return None;
    }
    let url =
        Url::parse(&variables::filled(&mirror.target, exchange, &mut Allowance::default(), |_| &[]).ok()?)?;
    let with_body = mirror.with_body && !framing.is_empty();
    let (memory, disk) = if with_body { payload.held()? } else { (0, 0) };
    let size = exchange.head.size();
    let permit = local.mirror_budget.take(memory + size, disk)?;
    let share = local.quota.open(memory + size)?;
    let body = if with_body { Some(payload.again(share)?) } else { None };
    let host = mirror
        .host
        .as_ref()
        .map(|host| variables::filled(host, exchange, &mut Allowance::of_host(), |_| &[]));
    let host = host.transpose().ok()?;
    let host = host.filter(|host| !host.is_empty() && host.iter().all(u8::is_ascii_graphic));
    let host = host.unwrap_or_else(|| url.host_field().into());
    let mut target = if url.has_target { url.target.clone() } else { exchange.head.target().to_vec() };
    if url.has_target
        && mirror.is_fixed
        && let Some(query) = exchange.head.query().filter(|_| !target.contains(&b'?'))
    {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    let framing = if with_body { framing } else { Framing::None };
    let told = forwarded::be_client(exchange, location);
    let text = &mut *exchange.head;
    exchange.came.mark(&mut text.fields, Purpose::Other, &host);
    // A single HTTP exchange on the connection.
    let (connection, upgrade) = (text.connection.replace(Connection::Close.as_str()), text.upgrade.take());
    let mut head = Vec::with_capacity(size + 256);
    let _ = write_request(&mut head, text, &target, &host, framing);
    text.fields = told;
    (text.connection, text.upgrade) = (connection, upgrade);
    let to_head = exchange.head.method == Method::Head;
    let owner = location.owner().into();
    Some(Copy { owner, url, head, body, to_head, _permit: permit })
}

impl Copy {
    async fn deliver(self, server: &Server) -> io::Result<()> {
        let Self { owner, url, head, body, to_head, _permit } = self;
        let word = Word { owner: &owner, field: "mirror-target", room: Room::Found };
        let mut connection = elsewhere::connect(server, word, &url).await?;
        let wire = &mut connection.wire;
        wire.write_all(&head).await?;
        if let Some(mut body) = body {
            // It has a length, so no chunked coding is needed.
            while let Some(piece) =
                std::future::poll_fn(|cx| body.poll_piece(cx)).await.map_err(io::Error::other)?
            {
                wire.write_all(&piece).await?;
            }
        }
        wire.flush().await?;
        // A server whose client disconnects early may abort its work, so the response is awaited.
        let mut input = BytesMut::with_capacity(4096);
        let mut answer = Answer::Head(ResponseReader::new(Limits::RESPONSE));
        let mut heard = 0;
        while !answer.is_over(&mut input, to_head)? && heard < LISTENED {
            match wire.read_buf(&mut input).await? {
                0 if matches!(answer, Answer::Head(_)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                0 => break,
                more => heard += more,
            }
        }
        Ok(())
    }
}

/// The state of reading a response.
enum Answer {
    Head(ResponseReader),
    Body(BodyReader),
}

impl Answer {
    /// Processes received bytes; returns whether the response is complete.
    fn is_over(&mut self, input: &mut BytesMut, to_head: bool) -> io::Result<bool> {
        loop {
            *self = match self {
                Self::Head(reader) => match reader.feed(input, to_head).map_err(io::Error::other)? {
                    Some(head) if head.is_interim() => continue,
                    Some(head) => Self::Body(BodyReader::of_answer(head.framing)),
                    None => return Ok(false),
                },
                Self::Body(reader) => match reader.next(input).map_err(io::Error::other)? {
                    Body::Data(_) => continue,
                    Body::End => return Ok(true),
                    Body::Need => return Ok(false),
                },
            };
        }
    }
}
