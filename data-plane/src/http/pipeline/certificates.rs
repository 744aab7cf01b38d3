//! Certificates of clients: who passes, and what backends are told of them (annotations.md 6.8).
//!
//! What a connection has shown counts for the host that it was made for, as that was then. For another host that asks for
//! certificates, and for the same after a change, the client has to come again (RFC 9110 section 15.5.20).
//!
//! **Invariant:** the fields `ssl-client-*` that a backend gets are ours; a client's own never pass (`forwarded`).

use std::ops::ControlFlow::{Break, Continue};

use bytes::Bytes;

use super::{Exchange, Step};
use crate::codec::head::{Fields, Framing, Known, Method, RequestHead};
use crate::http::peer::Peer;
use crate::http::reply::{Bad, Reply, ReplyBody};
use crate::listen::Scheme;
use crate::local::Local;
use crate::table::HostEntry;
use crate::table::host::HostCertificates;
use crate::table::policy::certificates::{ErrorPage, Verification};
use crate::tls::negotiated::{Negotiated, Shown};

/// What is known of a request's client by its certificate.
#[derive(Debug)]
pub(super) enum Judged {
    /// Its host asks for none.
    NotAsked,
    /// It passes, as far as its connection goes.
    Passes(Box<Passes>),
    /// It is shown this path of the host instead of what it asked for.
    Page(Box<str>),
    /// It does not pass.
    Refused(Refusal),
}

/// Why a client does not pass.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It is sent to this URL.
    Elsewhere(Box<str>),
    /// It has none, or none that is good.
    Certificate(Bad),
    /// It has one of another name than may pass.
    Name,
    /// What is asked of it cannot be told.
    Untold,
    /// What is asked of it is not known yet.
    Unknown,
    /// Its connection was made for something else.
    Misdirected,
}

impl Refusal {
    /// Whether it is its host's fault, and not the client's.
    pub(super) fn is_hosts(&self) -> bool {
        matches!(self, Self::Untold)
    }
}

/// A client that passes.
#[derive(Debug, Default)]
pub(super) struct Passes {
    /// What backends are told.
    told: Vec<(&'static str, Bytes)>,
    /// It came in plain, where only certificates let in: it may be sent to TLS, and no further.
    is_blind: bool,
}

/// Judges the client of a request for a host.
pub(super) fn judge(host: &HostEntry, head: &RequestHead, peer: &Peer) -> Judged {
    let Some(asked) = host.certificates() else {
        return Judged::NotAsked;
    };
    let policy = &asked.policy;
    if policy.said.is_none() {
        return Judged::Refused(Refusal::Untold);
    }
    let Some(auth) = asked.auth() else {
        return Judged::Refused(Refusal::Unknown);
    };
    if peer.scheme() == Scheme::Http {
        let is_blind = policy.verification == Verification::On;
        return if policy.lets_in(b"") {
            Judged::Passes(Box::new(Passes { told: Vec::new(), is_blind }))
        } else {
            Judged::Refused(Refusal::Name)
        };
    }
    let negotiated = peer.negotiated();
    let is_for = |it: &&Negotiated| it.is_for(host.name(), &auth);
    if policy.verification != Verification::Off && negotiated.is_some_and(|it| it.is_named() && !is_for(&it))
    {
        return Judged::Refused(Refusal::Misdirected);
    }
    // Who named no host has shown nothing to this one.
    let shown = negotiated.filter(is_for).and_then(|it| it.shown.as_ref());
    let passes = match (policy.verification, shown.map(|it| it.verdict)) {
        (Verification::Off, _) | (_, Some(Ok(()))) => true,
        (Verification::On, None) => false,
        (Verification::Optional | Verification::OptionalNoCa, None) => true,
        (Verification::OptionalNoCa, Some(Err(why))) => why.is_of_others(),
        (Verification::On | Verification::Optional, Some(Err(_))) => false,
    };
    let lets_in = policy.lets_in(shown.map_or(&b""[..], |it| &it.subject[..]));
    match &policy.error_page {
        _ if passes => {}
        ErrorPage::Url(url) => return Judged::Refused(Refusal::Elsewhere(url.clone())),
        // The page is behind the same rule of names.
        ErrorPage::Path(path) if is_bare(head) && lets_in => return Judged::Page(path.clone()),
        ErrorPage::Path(_) | ErrorPage::None => {
            let bad = if shown.is_some() { Bad::Certificate } else { Bad::NoCertificate };
            return Judged::Refused(Refusal::Certificate(bad));
        }
    }
    if !lets_in {
        return Judged::Refused(Refusal::Name);
    }
    Judged::Passes(Box::new(Passes { told: told(asked, shown), is_blind: false }))
}

/// Whether a request can be shown another page: nginx makes a GET of it, without what it brings.
fn is_bare(head: &RequestHead) -> bool {
    matches!(head.method, Method::Get | Method::Head) && head.framing == Framing::None
}

/// What a backend is told, as nginx' variables have it.
fn told(asked: &HostCertificates, shown: Option<&Shown>) -> Vec<(&'static str, Bytes)> {
    let verify = shown.map_or(Bytes::from_static(b"NONE"), Shown::verify);
    let mut told = vec![("ssl-client-verify", verify)];
    if let Some(shown) = shown {
        if asked.policy.tells_certificate {
            told.push(("ssl-client-cert", shown.escaped().into()));
        }
        let (subject, issuer) = (shown.subject.clone(), shown.issuer.clone());
        told.extend([("ssl-client-subject-dn", subject), ("ssl-client-issuer-dn", issuer)]);
    }
    told
}

/// The answer to who does not pass.
pub(super) fn answer(refused: &Refusal, local: &Local) -> Reply {
    match refused {
        Refusal::Elsewhere(url) => Reply::redirect(local, 302, url.as_bytes().to_vec()),
        Refusal::Certificate(bad) => Reply::bad(local, *bad),
        Refusal::Name => unauthorized(local),
        Refusal::Untold => Reply::page(local, 403),
        Refusal::Unknown => Reply::page(local, 503),
        Refusal::Misdirected => Reply::refusal(local, 421),
    }
}

fn unauthorized(local: &Local) -> Reply {
    const TEXT: &[u8] = b"client certificate unauthorized";
    let mut reply = Reply::page(local, 403);
    reply.head.framing = Framing::Length(TEXT.len() as u64);
    reply.head.declared_length = Some(TEXT.len() as u64);
    reply.head.fields.set(Known::ContentType, "text/html");
    reply.body = ReplyBody::Page(Bytes::from_static(TEXT));
    reply
}

/// Keeps requests out that came in plain, where only certificates let in: a redirect to TLS is all that they get.
pub(super) fn over_tls(exchange: &Exchange<'_>) -> Step {
    match &exchange.certificate {
        Some(passes) if passes.is_blind => Break(Reply::page(&exchange.call.server.local, 403)),
        _ => Continue(()),
    }
}

/// Tells a backend, or who is asked in its place.
pub(super) fn tell(passes: Option<&Passes>, fields: &mut Fields) {
    for (name, value) in passes.into_iter().flat_map(|passes| &passes.told) {
        // As nginx: none without a value.
        if !value.is_empty() {
            fields.append(name, value);
        }
    }
}
