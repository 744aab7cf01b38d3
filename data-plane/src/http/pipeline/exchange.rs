//! A request on its way through the phases, and what they have found out about it.

use std::borrow::Cow;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use shared::pattern::Steps;

use super::affinity::Session;
use super::certificates::Passes;
use super::claims::{self, Claims};
use super::log::{RequestInfo, RequestRecord};
use crate::codec::head::RequestHead;
use crate::codec::host::Host;
use crate::http::peer::Peer;
use crate::http::server::Server;
use crate::local::timer::Timer;
use crate::local::verdicts::Verdict;
use crate::rate::Permit;
use crate::table::{PathEntry, Sizes, Timeouts, Upstream};
use crate::upstream::Turn;

/// Where a request came from, and what it may use.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) server: &'a Rc<Server>,
    pub(crate) timer: &'a Timer,
    pub(crate) peer: &'a Peer,
}

/// Whose word an answer carries beside its own. nginx puts in what is said where a request has got to when it is answered. HSTS
/// is among what a location says there, be it of the fleet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Voice {
    /// The location's, all of it.
    #[default]
    Location,
    /// The location's but for what it says across origins: its own rules were not asked yet, or an `if` or a block of a snippet
    /// answers.
    Apart,
    /// That of who sends clients to sign in: what the location says across origins, and the cookies of who was asked.
    SignIn,
    /// Its host's: the answer came before a location was looked for, or from a block of a snippet of the host.
    Host,
    /// That of a page for an error: what is said of all answers.
    Errors,
}

/// One request. Each phase reads what those before it wrote here, and writes its own.
pub(crate) struct Exchange<'a> {
    pub(super) call: Call<'a>,
    pub(super) head: &'a mut RequestHead,
    /// What takes the request, from `locate` on. It is the log's too, which outlives the phases.
    ///
    /// A request that is the last one to hold a location of an old table frees it: one path's, never a table.
    pub(super) location: &'a mut Option<Arc<PathEntry>>,
    /// The location that it is sent to because it lacks the slash of its path, or that it would have got to: what the answer
    /// says is that one's, as far as its voice goes.
    pub(super) redirecting: Option<Arc<PathEntry>>,
    /// What the log is told.
    pub(super) info: &'a mut RequestInfo,
    /// Its place among the requests in progress, where those are limited.
    pub(super) permit: &'a mut Option<Permit>,
    /// Whether nothing that guards its location is left to pass.
    pub(super) is_let_in: bool,
    /// Its user has shown the password that this proxy asks for.
    pub(super) has_password: bool,
    /// Whether backends' fields are put in.
    pub(super) is_forwarded: bool,
    /// The fleet's default backend, where it has one that anybody would answer for.
    pub(super) fallback: Option<Arc<Upstream>>,
    /// Whether another backend answers than the location's, for an error.
    pub(super) stands_in: bool,
    /// Whether its host has the fleet's pages for errors.
    pub(super) has_pages_of_fleet: bool,
    /// What its answer says beside what who answers it says.
    pub(super) voice: Voice,
    /// What is believed of it, where that is not what its connection says.
    pub(super) claims: Option<Box<Claims>>,
    /// The path in its normal form, where that is not the path as it came.
    pub(super) normal: Option<Vec<u8>>,
    /// Path that the backend is sent in place of the request's own, already encoded.
    pub(super) target: Option<Vec<u8>>,
    /// Whether the host has TLS. Known of plain requests alone, where the location goes by it.
    pub(super) has_tls: bool,
    /// The client of a backend with affinity, from `pick` on.
    pub(super) session: Option<Session>,
    /// Whether that client is given the cookie of its endpoint.
    pub(super) issues_cookie: bool,
    /// How its endpoint is chosen without one, from `pick` on.
    pub(super) turn: Turn,
    /// What is known of its client by a certificate.
    pub(super) certificate: Option<Box<Passes>>,
    /// What the client is told that showed a digest of its password.
    pub(super) proof: Option<Bytes>,
    /// What external authentication said of it.
    pub(super) verdict: Option<Arc<Verdict>>,
    /// Its location's, else the worker's.
    pub(super) timeouts: Timeouts,
    /// Likewise.
    pub(super) sizes: Sizes,
    /// What it may still spend on patterns.
    pub(super) steps: Steps,
}

impl<'a> Exchange<'a> {
    /// A request that nothing is known of but its head; `None` where that could not be read.
    pub(crate) fn new(call: Call<'a>, record: &'a mut RequestRecord) -> Option<Self> {
        let RequestRecord { head, location, info, permit, .. } = record;
        let head = head.as_deref_mut()?;
        let (timeouts, sizes) = (call.server.local.limits.timeouts, call.server.local.limits.sizes);
        Some(Self {
            call,
            head,
            location,
            redirecting: None,
            info,
            permit,
            is_let_in: false,
            has_password: false,
            is_forwarded: false,
            fallback: None,
            stands_in: false,
            has_pages_of_fleet: true,
            voice: Voice::default(),
            claims: None,
            normal: None,
            target: None,
            has_tls: false,
            certificate: None,
            proof: None,
            verdict: None,
            session: None,
            issues_cookie: false,
            turn: Turn::default(),
            timeouts,
            sizes,
            steps: Steps::new(),
        })
    }

    /// The address by which rules of access know the client.
    pub(super) fn client(&self) -> IpAddr {
        self.claims.as_ref().map_or_else(|| self.call.peer.address().ip(), |claims| claims.address)
    }

    /// Its text.
    pub(super) fn client_text(&self) -> Cow<'_, [u8]> {
        match &self.claims {
            Some(claims) if claims.address != self.call.peer.address().ip() => {
                Cow::Owned(claims.address.to_string().into_bytes())
            }
            _ => Cow::Borrowed(self.call.peer.address_text()),
        }
    }

    /// The scheme by which the client asks: any word, where one is believed.
    pub(super) fn scheme(&self) -> Bytes {
        let said = self.claims.as_ref().and_then(|claims| claims.scheme.clone());
        said.unwrap_or_else(|| Bytes::from_static(self.call.peer.client_scheme().as_str().as_bytes()))
    }

    /// Whether it asks without TLS.
    pub(super) fn is_plain(&self) -> bool {
        claims::is_plain(self.claims.as_deref(), self.call.peer)
    }

    /// The port that it asks.
    pub(super) fn port(&self) -> Bytes {
        let said = self.claims.as_ref().and_then(|claims| claims.port.clone());
        said.unwrap_or_else(|| self.call.peer.public_port_text())
    }

    /// The host that it asks for, to be told to others; which host serves it is decided by its own Host alone.
    pub(super) fn host(&self) -> &Host {
        let said = self.claims.as_ref().and_then(|claims| claims.host.as_ref());
        said.unwrap_or(&self.head.host)
    }

    /// The path by which it is routed: decoded, without dot segments and repeated slashes.
    pub(super) fn path(&self) -> &[u8] {
        self.normal.as_deref().unwrap_or_else(|| self.head.path())
    }
}
