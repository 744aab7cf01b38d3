//! Client certificates: which requests pass, and what backends are told about the certificate (as in ingress-nginx).
//!
//! The certificate of a connection is valid for the host that the handshake was made for, and judged anew after a change
//! of the settings. For another host that asks for certificates, and after such a change where none was shown, the client
//! has to reconnect (RFC 9110 section 15.5.20).
//!
//! **Invariant:** the `ssl-client-*` fields that a backend gets are ours; those sent by a client never pass
//! (`forwarded`).

use std::ops::ControlFlow::{Break, Continue};

use bytes::Bytes;

use super::{Exchange, Step};
use crate::codec::head::{Fields, Framing, Known};
use crate::http::peer::Peer;
use crate::http::reply::{Bad, Reply, ReplyBody};
use crate::listen::Scheme;
use crate::local::Local;
use crate::table::HostEntry;
use crate::table::host::HostCertificates;
use crate::table::policy::certificates::{ErrorPage, Verification};
use crate::tls::negotiated::{Negotiated, Shown};

/// The result of checking the client certificate of a request.
#[derive(Debug)]
pub(super) enum Judged {
    /// Its host does not ask for one.
    NotAsked,
    /// It passes, as far as its connection allows.
    Passes(Box<Passes>),
    /// It gets this path of the host instead of what it requested. The backend is told why.
    Page(Box<str>, Box<Passes>),
    /// It is refused.
    Refused(ClientRefusal),
}

/// Why a client is refused.
#[derive(Debug)]
pub(super) enum ClientRefusal {
    /// It is redirected to this URL.
    Elsewhere(Box<str>),
    /// It has no certificate, or no valid one.
    Certificate(Bad),
    /// Its certificate's name is not allowed.
    Name,
    /// The required verification cannot be determined.
    Untold,
    /// The required verification is not available yet.
    Unknown,
    /// Its connection was made for another host or policy.
    Misdirected,
}

impl ClientRefusal {
    /// Whether it is its host's fault, and not the client's.
    pub(super) fn is_hosts(&self) -> bool {
        matches!(self, Self::Untold)
    }
}

/// A client that passes, or gets a page of the host.
#[derive(Debug, Default)]
pub(super) struct Passes {
    /// The headers for backends.
    headers: Vec<(&'static str, Bytes)>,
    /// It came in plain text, where only certificates give access: it may be redirected to TLS, and nothing else.
    is_blind: bool,
}

/// Checks the client certificate of a request for a host.
pub(super) fn judge(host: &HostEntry, peer: &Peer) -> Judged {
    let Some(asked) = host.certificates() else {
        return Judged::NotAsked;
    };
    let policy = &asked.policy;
    if policy.client_auth.is_none() {
        return Judged::Refused(ClientRefusal::Untold);
    }
    let Some(auth) = asked.auth() else {
        return Judged::Refused(ClientRefusal::Unknown);
    };
    if peer.scheme() == Scheme::Http {
        let is_blind = policy.verification == Verification::On;
        return if policy.lets_in(b"") {
            Judged::Passes(Box::new(Passes { headers: Vec::new(), is_blind }))
        } else {
            Judged::Refused(ClientRefusal::Name)
        };
    }
    let negotiated = peer.negotiated();
    let is_for = |it: &&Negotiated| it.is_for(host.name(), &auth);
    if policy.verification != Verification::Off && negotiated.is_some_and(|it| it.is_named() && !is_for(&it))
    {
        return Judged::Refused(ClientRefusal::Misdirected);
    }
    // A client that sent no SNI has presented nothing for this host.
    let shown = negotiated.filter(is_for).and_then(|it| it.shown.as_ref());
    let passes = match (policy.verification, shown.map(|it| it.verdict(&auth))) {
        (Verification::Off, _) | (_, Some(Ok(()))) => true,
        (Verification::On, None) => false,
        (Verification::Optional | Verification::OptionalNoCa, None) => true,
        (Verification::OptionalNoCa, Some(Err(why))) => why.is_of_others(),
        (Verification::On | Verification::Optional, Some(Err(_))) => false,
    };
    let lets_in = policy.lets_in(shown.map_or(&b""[..], |it| &it.subject[..]));
    let told = || Box::new(Passes { headers: backend_headers(asked, shown), is_blind: false });
    match &policy.error_page {
        _ if passes => {}
        ErrorPage::Url(url) => return Judged::Refused(ClientRefusal::Elsewhere(url.clone())),
        // nginx asks for the page as for any other path of the host, so that it is subject to the same name rule.
        ErrorPage::Path(path) if lets_in => return Judged::Page(path.clone(), told()),
        ErrorPage::Path(_) => {}
        ErrorPage::None => {
            let bad = if shown.is_some() { Bad::Certificate } else { Bad::NoCertificate };
            return Judged::Refused(ClientRefusal::Certificate(bad));
        }
    }
    if !lets_in {
        return Judged::Refused(ClientRefusal::Name);
    }
    Judged::Passes(told())
}

/// The headers for a backend, with the values of nginx' variables.
fn backend_headers(asked: &HostCertificates, shown: Option<&Shown>) -> Vec<(&'static str, Bytes)> {
    let verify = shown.map_or(Bytes::from_static(b"NONE"), Shown::verify);
    let mut headers = vec![("ssl-client-verify", verify)];
    if let Some(shown) = shown {
        if asked.policy.tells_certificate {
            headers.push(("ssl-client-cert", shown.escaped().into()));
        }
        let (subject, issuer) = (shown.subject.clone(), shown.issuer.clone());
        headers.extend([("ssl-client-subject-dn", subject), ("ssl-client-issuer-dn", issuer)]);
    }
    headers
}

/// The response for a refused client.
pub(super) fn answer(refused: &ClientRefusal, local: &Local) -> Reply {
    match refused {
        ClientRefusal::Elsewhere(url) => Reply::redirect(local, 302, url.as_bytes().to_vec()),
        ClientRefusal::Certificate(bad) => Reply::bad(local, *bad),
        ClientRefusal::Name => unauthorized(local),
        ClientRefusal::Untold => Reply::page(local, 403),
        ClientRefusal::Unknown => Reply::page(local, 503),
        ClientRefusal::Misdirected => Reply::refusal(local, 421),
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

/// Refuses plain-text requests where only certificates give access: they get at most a redirect to TLS.
pub(super) fn over_tls(exchange: &Exchange<'_>) -> Step {
    match &exchange.certificate {
        Some(passes) if passes.is_blind => Break(Reply::page(&exchange.call.server.local, 403)),
        _ => Continue(()),
    }
}

/// Adds the headers for a backend, or for the auth service.
pub(super) fn set_headers(passes: Option<&Passes>, fields: &mut Fields) {
    for (name, value) in passes.into_iter().flat_map(|passes| &passes.headers) {
        // As in nginx: no header with an empty value.
        if !value.is_empty() {
            fields.append(name, value);
        }
    }
}
