//! Who gets in (ingress-nginx behaviour, annotations.md 4, 6.6, 6.7 and 6.9): addresses, passwords, then whoever else is asked. With `satisfy: any`
//! one of them is enough; where none is, a 401 comes before a 403, as in nginx.

use std::ops::ControlFlow::{Break, Continue};
use std::sync::Arc;
use std::time::Duration;

use super::basic::{self, Credentials};
use super::variables::{self, Allowance};
use super::{Exchange, Step, Voice, digest, external};
use crate::codec::head::Known;
use crate::http::reply::Reply;
use crate::local::passwords::Verdict;
use crate::table::PathEntry;
use crate::table::policy::access::Listed;
use crate::table::policy::auth::Basic;
use crate::table::users::UsersCell;

/// A password that was not compared by then is not waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// What one of the rules says of a request.
pub(super) enum Said {
    /// It gets in, as far as this rule goes.
    Pass,
    /// It does not, unless another rule is enough.
    Refuse(Reply),
    /// It does not, whatever another rule says: nobody knows.
    Fail(Reply),
}

/// Answers who may not get in. Whatever redirects, and a backend without endpoints, came first.
pub(super) async fn access(exchange: &mut Exchange<'_>) -> Step {
    let Some(location) = exchange.location.as_ref().filter(|location| location.is_guarded()).cloned() else {
        exchange.is_let_in = true;
        return Continue(());
    };
    let any = location.policy.auth.satisfy_any;
    let mut refusal: Option<Reply> = None;
    match location.policy.addresses.say(exchange.client()) {
        Listed::Denied if any => refusal = Some(page(exchange, 403)),
        Listed::Denied => return Break(page(exchange, 403)),
        Listed::Allowed if any => return enter(exchange, &location),
        Listed::Allowed | Listed::Unsaid => {}
    }
    if location.users.is_some() {
        let said = password(exchange, &location).await;
        exchange.has_password = matches!(said, Said::Pass);
        match said {
            Said::Pass if any => return enter(exchange, &location),
            Said::Pass => {}
            Said::Refuse(reply) if any => refusal = Some(reply),
            Said::Refuse(reply) => return Break(signin(exchange, &location, reply)),
            Said::Fail(reply) => return Break(reply),
        }
    }
    if let Some(external) = location.external() {
        // Boxed: most requests never get here, and all of them have room for what they wait for.
        match Box::pin(external::ask(exchange, external)).await {
            Said::Pass if any => return enter(exchange, &location),
            Said::Pass => {}
            Said::Refuse(reply) if any => {
                refusal = refusal.filter(|earlier| earlier.head.status == 401).or(Some(reply));
            }
            Said::Refuse(reply) => return Break(signin(exchange, &location, reply)),
            Said::Fail(reply) => return Break(reply),
        }
    }
    match refusal {
        Some(reply) => Break(signin(exchange, &location, reply)),
        None => enter(exchange, &location),
    }
}

/// Lets a request in.
fn enter(exchange: &mut Exchange<'_>, location: &PathEntry) -> Step {
    take_away(exchange, location);
    external::tell_backend(exchange);
    exchange.is_let_in = true;
    Continue(())
}

/// Takes away what no backend gets from a client: a password that this proxy asks for is none of its business, and what
/// only who is asked may say is said by nobody else.
pub(super) fn take_away(exchange: &mut Exchange<'_>, location: &PathEntry) {
    if location.users.is_some() {
        exchange.head.fields.remove(Known::Authorization);
    }
    external::take_away(exchange, location);
}

/// Sends a client that is answered 401 to where it can sign in, where the location says where. As in nginx the challenge
/// stays with it.
pub(super) fn signin(exchange: &mut Exchange<'_>, location: &PathEntry, reply: Reply) -> Reply {
    let signin = location.external().and_then(|external| external.signin.as_ref());
    let Some(url) = signin.filter(|_| reply.head.status == 401) else { return reply };
    exchange.voice = Voice::SignIn;
    match variables::filled(url, exchange, &mut Allowance::default(), |_| &[]) {
        Ok(url) => {
            let mut redirect = Reply::redirect(&exchange.call.server.local, 302, url);
            for challenge in reply.head.fields.all(Known::WwwAuthenticate) {
                redirect.head.fields.append(Known::WwwAuthenticate, challenge);
            }
            redirect
        }
        Err(overlong) => variables::refused(exchange, overlong),
    }
}

async fn password(exchange: &mut Exchange<'_>, location: &Arc<PathEntry>) -> Said {
    let (Some(cell), Some(asked)) = (&location.users, &location.policy.auth.basic) else {
        return Said::Fail(page(exchange, 503));
    };
    if let Some(realm) = &asked.realm {
        return digested(exchange, cell, asked, realm);
    }
    let credentials = Credentials::of(exchange.head);
    exchange.info.user = credentials.as_ref().map(|credentials| credentials.user().to_vec());
    let local = &exchange.call.server.local;
    let checking = Box::pin(basic::check(local, cell, credentials.as_ref()));
    match exchange.call.timer.limit(PATIENCE, checking).await {
        Ok(Some(Verdict::Fits)) => Said::Pass,
        Ok(Some(Verdict::Wrong)) => {
            let mut reply = page(exchange, 401);
            reply.head.fields.append(Known::WwwAuthenticate, &asked.challenge);
            Said::Refuse(reply)
        }
        Ok(None | Some(Verdict::Busy)) | Err(_) => Said::Fail(page(exchange, 503)),
    }
}

/// Likewise, of who has a digest of a password to show.
fn digested(exchange: &mut Exchange<'_>, cell: &UsersCell, asked: &Basic, realm: &str) -> Said {
    let local = &exchange.call.server.local;
    let Some(users) = cell.get() else {
        return Said::Fail(page(exchange, 503));
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
        // A nonce grows old by itself. To the original that is a wrong try, too, and a browser makes several at once.
        digest::Verdict::Stale | digest::Verdict::Unsaid | digest::Verdict::Unheard => {}
    }
    match verdict {
        digest::Verdict::Right(proof) => {
            exchange.proof = Some(proof);
            Said::Pass
        }
        // Without a challenge, as in the original: there is nothing to be tried.
        digest::Verdict::Unheard => Said::Refuse(page(exchange, 401)),
        digest::Verdict::Stale | digest::Verdict::Wrong | digest::Verdict::Unsaid => {
            let challenge = digest::challenge(local, &asked.challenge, verdict == digest::Verdict::Stale);
            let Some(challenge) = challenge else { return Said::Fail(page(exchange, 503)) };
            let mut reply = page(exchange, 401);
            reply.head.fields.append(Known::WwwAuthenticate, challenge);
            Said::Refuse(reply)
        }
    }
}

fn page(exchange: &Exchange<'_>, status: u16) -> Reply {
    Reply::page(&exchange.call.server.local, status)
}
