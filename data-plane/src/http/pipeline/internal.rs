//! nginx' internal redirects: a request that goes on as another one for a path of the same host, in place of an error
//! (`error_page` of a snippet) or because its backend says so (`X-Accel-Redirect`).
//!
//! **Invariant:** all rules of the location of that path apply, as to any request for it.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::errors::{self, Challenges, Replaced};
use super::{Exchange, phases, response_rewrite};
use crate::codec::body::RequestBody;
use crate::codec::head::Known;
use crate::codec::path;
use crate::http::reply::{Reply, ReplyBody};
use crate::table::policy::errors::Place;

/// Limit of the redirects of a request, as in nginx.
const MOST: usize = 10;

/// Why a request goes on elsewhere.
pub(super) enum Way<'t> {
    /// In place of this error, a place is served.
    InPlace(&'t Place, Reply),
    /// A backend says so.
    Asked(Reply),
}

/// Whether a backend sends a request elsewhere.
pub(super) fn is_asked(reply: &Reply) -> bool {
    matches!(reply.body, ReplyBody::Relay(_)) && reply.head.fields.has(Known::XAccelRedirect)
}

/// What is served where a request is sent. As in nginx (`recursive_error_pages off`), what goes wrong in place of an error
/// has the default page.
pub(super) async fn follow<'a, B: RequestBody>(
    exchange: &mut Exchange<'a>,
    body: &mut B,
    mut way: Way<'a>,
) -> Reply {
    let mut kept = Kept::default();
    let (mut place, mut close, mut left) = (None, false, MOST);
    let mut reply = loop {
        let went = match way {
            Way::InPlace(to, error) => {
                (place, close) = (Some(to), close | error.close);
                kept.challenges = Some(Challenges::of(error));
                exchange.begin_again(to.path.to_vec(), to.query.to_vec());
                Ok(())
            }
            Way::Asked(mut reply) => match left.checked_sub(1) {
                None => Err(500),
                Some(fewer) => {
                    left = fewer;
                    rewrite(exchange, &mut reply);
                    kept.add(&reply);
                    go(exchange, reply)
                }
            },
        };
        let reply = match went {
            Ok(()) => match phases(exchange, body).await {
                ControlFlow::Break(reply) | ControlFlow::Continue(reply) => reply,
            },
            Err(status) => Reply::page(&exchange.call.server.local, status),
        };
        let reply = match place {
            None => match errors::replace(exchange, body, reply).await {
                Replaced::By(reply) => reply,
                Replaced::Elsewhere(place, error) => {
                    way = Way::InPlace(place, error);
                    continue;
                }
            },
            Some(_) if errors::is_second(exchange, &reply) => {
                Reply::page(&exchange.call.server.local, reply.head.status)
            }
            Some(_) => reply,
        };
        if !is_asked(&reply) {
            break reply;
        }
        way = Way::Asked(reply);
    };
    // Another error, or a redirect, has a status of its own.
    if let Some(status) =
        place.and_then(|it| it.status).filter(|_| !(reply.is_usual() && reply.head.status >= 300))
    {
        reply.head.restate(status);
    }
    reply.close |= close;
    if !kept.fields.is_empty() {
        rewrite(exchange, &mut reply);
        exchange.is_rewritten = true;
    }
    kept.put(&mut reply);
    reply
}

/// As its own location says: each cookie is of one response (nginx).
fn rewrite(exchange: &Exchange<'_>, reply: &mut Reply) {
    if let Some(location) = exchange.location() {
        response_rewrite::apply(exchange, location, reply);
    }
}

/// Goes where a backend says; an error if that is no path, or one of those that nginx deems unsafe.
fn go(exchange: &mut Exchange<'_>, reply: Reply) -> Result<(), u16> {
    let to = reply.head.fields.get(Known::XAccelRedirect).unwrap_or_default().to_vec();
    drop(reply);
    // The name of a location, which nginx does not find.
    if to.starts_with(b"@") {
        return Err(500);
    }
    let mut parts = to.splitn(2, |byte| *byte == b'?');
    let (path, query) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let normal = path::normalise(path).ok().filter(|_| !path::climbs(path)).ok_or(404u16)?;
    exchange.begin_again(normal.path.into_owned(), query.to_vec());
    Ok(())
}

/// What a client gets of the responses on the way.
#[derive(Default)]
struct Kept {
    challenges: Option<Challenges>,
    media_type: Option<Bytes>,
    fields: Vec<(&'static str, Bytes)>,
}

/// Fields of a response that sends its request elsewhere, in addition to those of the one that is served (nginx).
const ADDED: [&str; 2] = ["Set-Cookie", "Cache-Control"];
/// Those that count more.
const FIRST: [&str; 3] = ["Expires", "Accept-Ranges", "Content-Disposition"];

impl Kept {
    fn add(&mut self, reply: &Reply) {
        let fields = &reply.head.fields;
        for name in ADDED.into_iter().chain(FIRST) {
            self.fields.extend(fields.all(name).map(|value| (name, Bytes::copy_from_slice(value))));
        }
        self.media_type = fields.get_bytes(Known::ContentType).or_else(|| self.media_type.take());
    }

    fn put(self, reply: &mut Reply) {
        let fields = &mut reply.head.fields;
        for (name, value) in &self.fields {
            if FIRST.contains(name) {
                fields.remove(*name);
            }
            fields.append(name, value);
        }
        if let Some(media_type) = self.media_type.filter(|_| !fields.has(Known::ContentType)) {
            fields.add(Known::ContentType, media_type);
        }
        if let Some(challenges) = self.challenges {
            challenges.put(reply);
        }
    }
}
