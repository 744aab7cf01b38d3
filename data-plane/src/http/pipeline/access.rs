//! Access control (as in ingress-nginx): addresses, then passwords, then external authentication. With `satisfy: any`
//! one of them is enough; if all fail, a 401 has precedence over a 403, as in nginx.

use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use super::basic::{self, Credentials};
use super::variables::{self, Allowance};
use super::{Exchange, HeaderScope, Step, digest, external, redirect};
use crate::codec::head::Known;
use crate::http::reply::Reply;
use crate::local::passwords::Verdict;
use crate::table::PathEntry;
use crate::table::policy::access::Listed;
use crate::table::policy::auth::Basic;
use crate::table::users::UsersCell;

/// Time limit for a password check.
const PATIENCE: Duration = Duration::from_secs(20);

/// The result of one access rule for a request.
pub(super) enum AccessDecision {
    /// It passes this rule.
    Pass,
    /// It is refused, unless another rule is sufficient.
    Refuse(Reply),
    /// It fails whatever another rule says: the result could not be determined.
    Fail(Reply),
}

/// Refuses requests without access. Redirects and missing endpoints are handled earlier.
pub(super) async fn access(exchange: &mut Exchange<'_>) -> Step {
    let Some(location) = exchange.location().filter(|location| location.is_guarded()) else {
        exchange.is_let_in = true;
        return Continue(());
    };
    let any = location.policy.auth.satisfy_any;
    let mut refusal: Option<Reply> = None;
    match location.policy.addresses.say(exchange.client()) {
        Listed::Denied if any => refusal = Some(page(exchange, 403)),
        Listed::Denied => return Break(page(exchange, 403)),
        Listed::Allowed if any => return enter(exchange, location),
        Listed::Allowed | Listed::Unsaid => {}
    }
    if location.users().is_some() {
        let decision = password(exchange, location).await;
        exchange.has_password = matches!(decision, AccessDecision::Pass);
        match decision {
            AccessDecision::Pass if any => return enter(exchange, location),
            AccessDecision::Pass => {}
            AccessDecision::Refuse(reply) if any => refusal = Some(reply),
            AccessDecision::Refuse(reply) => return Break(signin(exchange, location, reply)),
            AccessDecision::Fail(reply) => return Break(reply),
        }
    }
    if let Some(external) = location.external() {
        // Boxed: most requests never get here, and would have to reserve room for its state.
        match Box::pin(external::ask(exchange, external)).await {
            AccessDecision::Pass if any => return enter(exchange, location),
            AccessDecision::Pass => {}
            AccessDecision::Refuse(reply) if any => refusal = Some(after(refusal, reply)),
            AccessDecision::Refuse(reply) => return Break(signin(exchange, location, reply)),
            AccessDecision::Fail(reply) => return Break(reply),
        }
    }
    match refusal {
        Some(reply) => Break(signin(exchange, location, reply)),
        None => enter(exchange, location),
    }
}

/// The refusal of a client that two rules refused, each of which would do. As in nginx, it is told of both ways in.
fn after(earlier: Option<Reply>, later: Reply) -> Reply {
    let Some(mut reply) = earlier.filter(|earlier| earlier.head.status == 401) else { return later };
    for challenge in later.head.fields.all(Known::WwwAuthenticate) {
        reply.head.fields.append(Known::WwwAuthenticate, challenge);
    }
    reply
}

/// Admits a request.
fn enter(exchange: &mut Exchange<'_>, location: &PathEntry) -> Step {
    take_away(exchange, location);
    external::tell_backend(exchange);
    exchange.is_let_in = true;
    Continue(())
}

/// Removes what backends must not get from a client: a password that is meant for this proxy, and headers that only
/// the auth service may set.
pub(super) fn take_away(exchange: &mut Exchange<'_>, location: &PathEntry) {
    if location.users().is_some() {
        exchange.head.fields.remove(Known::Authorization);
    }
    external::take_away(exchange, location);
}

/// Redirects a client that would get a 401 to the sign-in page, if the location has one. As in nginx, the challenge
/// header stays in the response.
pub(super) fn signin(exchange: &mut Exchange<'_>, location: &PathEntry, reply: Reply) -> Reply {
    let signin = location.external().and_then(|external| external.signin.as_ref());
    let Some(url) = signin.filter(|_| reply.head.status == 401) else { return reply };
    exchange.header_scope = HeaderScope::SignIn;
    match variables::filled(url, exchange, &mut Allowance::default(), |_| &[]) {
        Ok(url) => {
            let url = if url.starts_with(b"/") { redirect::from_elsewhere(exchange, &url) } else { url };
            let mut redirect = Reply::redirect(&exchange.call.server.local, 302, url);
            for challenge in reply.head.fields.all(Known::WwwAuthenticate) {
                redirect.head.fields.append(Known::WwwAuthenticate, challenge);
            }
            redirect
        }
        Err(overlong) => variables::refused(exchange, overlong),
    }
}

async fn password(exchange: &mut Exchange<'_>, location: &PathEntry) -> AccessDecision {
    let (Some(cell), Some(asked)) = (location.users(), &location.policy.auth.basic) else {
        return AccessDecision::Fail(page(exchange, 503));
    };
    if let Some(realm) = &asked.realm {
        return digested(exchange, cell, asked, realm);
    }
    let credentials = Credentials::of(exchange.head);
    exchange.info.user = credentials.as_ref().map(|credentials| credentials.user().to_vec());
    let local = &exchange.call.server.local;
    let checking = Box::pin(basic::check(local, cell, credentials.as_ref()));
    match exchange.call.timer.limit(PATIENCE, checking).await {
        Ok(Some(Verdict::Fits)) => AccessDecision::Pass,
        Ok(Some(Verdict::Wrong)) => {
            let mut reply = page(exchange, 401);
            reply.head.fields.append(Known::WwwAuthenticate, &asked.challenge);
            AccessDecision::Refuse(reply)
        }
        Ok(None | Some(Verdict::Busy)) | Err(_) => AccessDecision::Fail(page(exchange, 503)),
    }
}

/// The same for digest authentication.
fn digested(exchange: &mut Exchange<'_>, cell: &UsersCell, asked: &Basic, realm: &str) -> AccessDecision {
    let local = &exchange.call.server.local;
    let Some(users) = cell.get() else {
        return AccessDecision::Fail(page(exchange, 503));
    };
    let (client, list, now) = (exchange.client(), &*cell.key, shared::clock::now());
    let answer = digest::Answer::of(exchange.head);
    let verdict = match &answer {
        _ if local.tries.keeps_out(client, list, now) => digest::Verdict::Unheard,
        Some(answer) => answer.check(local, (&cell.key, &users), realm, exchange.head),
        None => digest::Verdict::Unsaid,
    };
    exchange.info.user = answer.map(|answer| answer.user.into_bytes());
    match &verdict {
        digest::Verdict::Right(_) => local.tries.right(client, list),
        digest::Verdict::Wrong => local.tries.wrong(client, list, now),
        // Nonces expire on their own. ingress-nginx' module counts that as a failed attempt, but a browser makes
        // several at once.
        digest::Verdict::Stale | digest::Verdict::Unsaid | digest::Verdict::Unheard => {}
    }
    match verdict {
        digest::Verdict::Right(proof) => {
            exchange.proof = Some(proof);
            AccessDecision::Pass
        }
        // Without a challenge, as in ingress-nginx' module: there is nothing to try.
        digest::Verdict::Unheard => AccessDecision::Refuse(page(exchange, 401)),
        digest::Verdict::Stale | digest::Verdict::Wrong | digest::Verdict::Unsaid => {
            let challenge = digest::challenge(local, &asked.challenge, verdict == digest::Verdict::Stale);
            let Some(challenge) = challenge else { return AccessDecision::Fail(page(exchange, 503)) };
            let mut reply = page(exchange, 401);
            reply.head.fields.append(Known::WwwAuthenticate, challenge);
            AccessDecision::Refuse(reply)
        }
    }
}

fn page(exchange: &Exchange<'_>, status: u16) -> Reply {
    Reply::page(&exchange.call.server.local, status)
}
