//! The last look at an answer before it is written: what a backend says to a proxy stays here, every answer is dated, and
//! gets the headers that somebody said.

use std::sync::Arc;

use shared::clock;
use shared::template::Overlong;
use tracing::warn;

use super::variables::{self, Allowance};
use super::{Exchange, Voice, affinity, compress, cors, external, forwarded, log, returned};
use crate::codec::guard::HeadError;
use crate::codec::head::Known;
use crate::http::reply::{Bad, Paced, Reply, ReplyBody};
use crate::listen::Scheme;
use crate::local::Local;
use crate::table::PathEntry;
use crate::table::policy::answers::{Added, Answers, Beside, By, Server};
use crate::table::policy::pace::Pace;

/// What we call ourselves.
const OURS: &str = "firth";

/// A backend's fields that are not meant for clients (controller.md 9), and one that old servers made heads longer with.
const FOR_PROXIES: u128 = Known::XAccelRedirect.bit()
    | Known::XAccelExpires.bit()
    | Known::XAccelLimitRate.bit()
    | Known::XAccelBuffering.bit()
    | Known::XAccelCharset.bit()
    | Known::XPad.bit();

/// Makes an answer the one that the client gets.
pub(super) fn respond(exchange: &mut Exchange<'_>, mut reply: Reply) -> Reply {
    let server = exchange.call.server;
    log::asked::of_backend(exchange, &reply);
    match speaker(exchange).cloned() {
        Some(location) => {
            tell_of_unfollowed(&server.local, &location.owner, &reply);
            finish(&server.local, &location.policy.answers, &mut reply);
            returned::mend(exchange, &location, &mut reply);
            affinity::say(exchange, &mut reply);
            put(exchange, &location.policy.answers, &mut reply);
        }
        None => server.with_table(|table| {
            let answers = &table.policy().answers;
            finish(&server.local, answers, &mut reply);
            put(exchange, answers, &mut reply);
        }),
    }
    cors::say(exchange, &mut reply);
    if let Some(proof) = exchange.proof.take() {
        // The proxy's own word (RFC 7616 section 3.5), whatever a backend says.
        reply.head.fields.replace("Authentication-Info", proof);
    }
    external::tell_client(exchange, &mut reply);
    // As nginx' filters: by what is said of the answer, and what goes out is what has its pace.
    compress::compress(exchange, &mut reply);
    log::asked::of_answer(exchange, &reply);
    if let Some(it) = exchange.location.as_deref().and_then(|location| location.policy.pace) {
        pace(&server.local, it, &mut reply.body);
    }
    reply
}

/// The location in whose words an answer is.
fn speaker<'e>(exchange: &'e Exchange<'_>) -> Option<&'e Arc<PathEntry>> {
    exchange.location.as_ref().or(exchange.redirecting.as_ref())
}

/// Tells the log of an answer that nginx would replace by what lies elsewhere: who has moved here waits for it in vain.
fn tell_of_unfollowed(local: &Local, ingress: &str, reply: &Reply) {
    if reply.head.fields.has(Known::XAccelRedirect) && local.unfollowed.is_news(ingress, clock::now()) {
        warn!(
            ingress,
            "X-Accel-Redirect of a backend is not followed: the client gets the backend's own answer"
        );
    }
}

/// Has a body go no faster than its location says.
fn pace(local: &Local, pace: Pace, body: &mut ReplyBody) {
    if !matches!(body, ReplyBody::Empty | ReplyBody::Tunnel(_)) {
        let whole = std::mem::replace(body, ReplyBody::Empty);
        *body = ReplyBody::Paced(Box::new(Paced::new(local, whole, pace)));
    }
}

/// The answer to what is no request. Nothing more is read from its connection.
pub(crate) fn refusal(local: &Local, status: u16) -> Reply {
    unrouted(local, Reply::refusal(local, status))
}

/// The answer to a head that cannot be taken.
pub(crate) fn unread(local: &Local, error: HeadError) -> Reply {
    match error {
        HeadError::HeadTooLong => unrouted(local, Reply::bad(local, Bad::TooLarge)),
        error => refusal(local, error.status()),
    }
}

/// The answer to what is not even looked at.
pub(crate) fn unrouted(local: &Local, mut reply: Reply) -> Reply {
    local.metrics.refusals.add(1);
    finish(local, &Answers::default(), &mut reply);
    reply
}

fn finish(local: &Local, answers: &Answers, reply: &mut Reply) {
    let fields = &mut reply.head.fields;
    let relayed = matches!(reply.body, ReplyBody::Relay(_) | ReplyBody::Call(_) | ReplyBody::Tunnel(_));
    if relayed {
        let is_hidden = answers.server != Server::Backends;
        fields.remove_any(FOR_PROXIES | if is_hidden { Known::Server.bit() } else { 0 });
        for name in &answers.hidden {
            fields.remove(&**name);
        }
    }
    if answers.server != Server::Unsaid && !fields.has(Known::Server) {
        fields.add(Known::Server, OURS);
    }
    // As nginx: the date is ours, whatever the backend says.
    if relayed || !fields.has(Known::Date) {
        fields.remove(Known::Date);
        fields.put(local.date.borrow().line());
    }
}

/// Adds the configured headers; if they are too long, the answer is replaced by an error.
fn put(exchange: &mut Exchange<'_>, answers: &Answers, reply: &mut Reply) {
    if let Err(overlong) = say(exchange, answers, reply) {
        *reply = variables::refused(exchange, overlong);
        finish(&exchange.call.server.local, answers, reply);
    }
}

/// Puts in what somebody said, in place of the backend's (annotations.md 4, 6.13).
fn say(exchange: &mut Exchange<'_>, answers: &Answers, reply: &mut Reply) -> Result<(), Overlong> {
    let fields = &mut reply.head.fields;
    // The connection decides, whatever is believed of the client's.
    if exchange.call.peer.scheme() == Scheme::Https
        && matches!(exchange.voice, Voice::Location | Voice::Apart)
        && let Some(hsts) = &answers.hsts
    {
        fields.set(Known::StrictTransportSecurity, hsts);
    }
    if answers.tells_id {
        forwarded::identify(exchange, true);
    }
    let allowance = &mut Allowance::default();
    // In nginx' file what a location says stands within it, and a location that is denied has nothing but that.
    let is_denied = speaker(exchange).is_some_and(|it| it.is_denied());
    let has_own = matches!(exchange.voice, Voice::Location | Voice::Apart) && !is_denied;
    for Added { header, .. } in answers.added.iter().filter(|it| has_own || it.by == By::All) {
        let value = variables::filled(&header.value, exchange, allowance, |_| b"")?;
        fields.replace(&header.name, value);
    }
    let status = reply.head.status;
    // nginx looks for those that are added in one place: in the location, else around it. The cookies of who is asked for
    // authentication are some; who sends clients to sign in adds them, too.
    let asks = || speaker(exchange).is_some_and(|it| it.external().is_some());
    let by = if has_own && (answers.adds_own || asks()) { By::Location } else { By::All };
    let is_said = |it: &&Beside| it.by == by && exchange.voice != Voice::SignIn && it.is_on(status);
    for Beside { header, .. } in answers.beside.iter().filter(is_said) {
        let value = variables::filled(&header.value, exchange, allowance, |_| b"")?;
        // As nginx: none without a value.
        if !value.is_empty() {
            fields.append(&header.name, value);
        }
    }
    Ok(())
}
