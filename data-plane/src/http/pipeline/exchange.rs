//! A request in the pipeline, and what the phases have found out about it.

use std::borrow::Cow;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use shared::pattern::{Groups, Steps};

use super::affinity::Session;
use super::certificates::Passes;
use super::claims::{self, Claims};
use super::log::{Entered, InPlace, RequestInfo, RequestRecord};
use super::loops::Came;
use crate::codec::body::RequestBody;
use crate::codec::head::{Framing, RequestHead};
use crate::codec::host::Host;
use crate::codec::path;
use crate::http::peer::Peer;
use crate::http::server::Server;
use crate::local::auth_cache::AuthResponse;
use crate::local::timer::Timer;
use crate::rate::Permit;
use crate::table::policy::response_headers::OwnHeaders;
use crate::table::{PathEntry, Sizes, Timeouts, Upstream};
use crate::upstream::Turn;

/// Where a request came from, and the resources that it may use.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) server: &'a Rc<Server>,
    pub(crate) timer: &'a Timer,
    pub(crate) peer: &'a Peer,
}

/// Which configured headers a response gets. nginx adds those of the place in its configuration that a request has
/// reached when it is answered. HSTS belongs to the location there, even if the fleet configures it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum HeaderScope {
    /// All of the location's.
    #[default]
    Location,
    /// The location's without CORS: its own rules were not reached yet, or an `if` or a block of a snippet responds.
    WithoutCors,
    /// Those of a sign-in redirect: the location's CORS headers, and the cookies of the auth service.
    SignIn,
    /// Those of its host: the response was made before a location was looked up, or by a snippet of the host.
    Host,
    /// Those of an error page: only headers that are configured for all responses.
    Errors,
}

/// Headers that a snippet says for some requests, and what their pattern matched.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) headers: Arc<OwnHeaders>,
    pub(super) found: Option<(Groups, Vec<u8>)>,
}

/// A request whose path snippets have rewritten, so that it is no longer the one that the client asked for.
#[derive(Debug)]
pub(super) struct Rewritten {
    /// The path that was asked for, normalised.
    pub(super) asked: Vec<u8>,
    /// The number of fixed responses of the host that were decided; `None`: all of them.
    pub(super) of_host: Option<usize>,
    /// The number of fixed responses of its location that were decided: a rewrite of it stays there.
    pub(super) passed: usize,
    /// Whether a snippet of its location did, and ended there.
    pub(super) in_location: bool,
}

/// One request. Each phase reads what earlier ones wrote here, and writes its own results.
pub(crate) struct Exchange<'a> {
    pub(super) call: Call<'a>,
    pub(super) head: &'a mut RequestHead,
    /// Where `locate` puts the location: into the log record, which outlives the phases.
    ///
    /// A request that is the last to hold a location of an old table frees it: that is one path, never a table.
    pub(super) entered: &'a Entered,
    /// The location whose headers the response gets, as far as `header_scope` allows, although the request does not
    /// enter it: it is redirected there because of a missing trailing slash, or to the `app-root` instead.
    pub(super) redirecting: Option<Arc<PathEntry>>,
    /// Facts for the log.
    pub(super) info: &'a mut RequestInfo,
    /// Its slots among the requests in progress, if those are limited.
    pub(super) permits: &'a mut Vec<Permit>,
    /// Whether it has passed limits of its client.
    pub(super) is_counted: bool,
    /// Whether all access rules of its location have been passed.
    pub(super) is_let_in: bool,
    /// Its user has presented the password that this proxy requires.
    pub(super) has_password: bool,
    /// Whether the headers for backends have been set.
    pub(super) is_forwarded: bool,
    /// Whether the cookies and redirects of its response are already those that clients see.
    pub(super) is_rewritten: bool,
    /// The fleet's default backend, if it has one with endpoints.
    pub(super) fallback: Option<Arc<Upstream>>,
    /// Whether an error backend takes the place of the location's, which has no endpoints.
    pub(super) stands_in: bool,
    /// Whether its host uses the fleet's error pages.
    pub(super) has_pages_of_fleet: bool,
    /// Whether the locations of its host are patterns.
    pub(super) in_patterns: bool,
    /// Which configured headers its response gets.
    pub(super) header_scope: HeaderScope,
    /// What the last `if` of a snippet, or a block, says of them.
    pub(super) own_headers: Option<Box<Said>>,
    /// Which requests of the proxy's own it comes from.
    pub(super) came: Came,
    /// What is trusted about it, if that differs from its connection.
    pub(super) claims: Option<Box<Claims>>,
    /// The normalised path, if it differs from the original one.
    pub(super) normal: Option<Vec<u8>>,
    /// The path for the backend instead of the request's own, already encoded.
    pub(super) target: Option<Vec<u8>>,
    /// What rewrites of snippets made of it.
    pub(super) rewritten: Option<Box<Rewritten>>,
    /// Whether the host has TLS. Known only for plain requests whose location needs it.
    pub(super) has_tls: bool,
    /// The affinity of the client, from `pick` on.
    pub(super) session: Option<Session>,
    /// Whether that client gets the cookie of its endpoint.
    pub(super) issues_cookie: bool,
    /// How the endpoint is chosen without affinity, from `pick` on.
    pub(super) turn: Turn,
    /// The client certificate.
    pub(super) certificate: Option<Box<Passes>>,
    /// The `Authentication-Info` for a client that sent a correct digest.
    pub(super) proof: Option<Bytes>,
    /// The response of external authentication.
    pub(super) auth_response: Option<Arc<AuthResponse>>,
    /// The location's, else the worker's.
    pub(super) timeouts: Timeouts,
    /// The location's, else the worker's.
    pub(super) sizes: Sizes,
    /// The remaining budget for pattern matching.
    pub(super) steps: Steps,
    /// Whether its body was read, or as much of it as there was.
    pub(super) is_body_read: bool,
    /// That body and its framing, once a backend was sent it, if an error page may need it.
    pub(super) kept_body: Option<Box<(Box<dyn RequestBody>, Framing)>>,
}

impl<'a> Exchange<'a> {
    /// A request of which only the head is known; `None` if that could not be parsed.
    pub(crate) fn new(call: Call<'a>, record: &'a mut RequestRecord) -> Option<Self> {
        let RequestRecord { head, location, info, permits, .. } = record;
        let head = head.as_deref_mut()?;
        let (timeouts, sizes) = (call.server.local.limits.timeouts, call.server.local.limits.sizes);
        Some(Self {
            call,
            came: Came::to(head.host.raw(), &head.fields),
            head,
            entered: location,
            redirecting: None,
            info,
            permits,
            is_counted: false,
            is_let_in: false,
            has_password: false,
            is_forwarded: false,
            is_rewritten: false,
            fallback: None,
            stands_in: false,
            has_pages_of_fleet: true,
            in_patterns: false,
            header_scope: HeaderScope::default(),
            own_headers: None,
            claims: None,
            normal: None,
            target: None,
            rewritten: None,
            has_tls: false,
            certificate: None,
            proof: None,
            auth_response: None,
            session: None,
            issues_cookie: false,
            turn: Turn::default(),
            timeouts,
            sizes,
            steps: Steps::new(),
            is_body_read: false,
            kept_body: None,
        })
    }

    /// The location of the request, from `locate` on. It is not borrowed from the exchange, which can be changed
    /// meanwhile.
    pub(super) fn location(&self) -> Option<&'a PathEntry> {
        self.entered.get()
    }

    /// The Ingress of its location, `namespace/name`; empty if it has none.
    pub(super) fn owner(&self) -> &str {
        self.location().map_or("", |location| location.owner())
    }

    /// The client's address for access rules.
    pub(super) fn client(&self) -> IpAddr {
        self.claims.as_ref().map_or_else(|| self.call.peer.address().ip(), |claims| claims.address)
    }

    /// The same as text.
    pub(super) fn client_text(&self) -> Cow<'_, [u8]> {
        match &self.claims {
            Some(claims) if claims.address != self.call.peer.address().ip() => {
                Cow::Owned(claims.address.to_string().into_bytes())
            }
            _ => Cow::Borrowed(self.call.peer.address_text()),
        }
    }

    /// The scheme that the client uses: any text, if reported by a trusted peer.
    pub(super) fn scheme(&self) -> Bytes {
        let claimed = self.claims.as_ref().and_then(|claims| claims.scheme.clone());
        claimed.unwrap_or_else(|| Bytes::from_static(self.call.peer.client_scheme().as_str().as_bytes()))
    }

    /// Whether it uses plain HTTP.
    pub(super) fn is_plain(&self) -> bool {
        claims::is_plain(self.claims.as_deref(), self.call.peer)
    }

    /// The port that it connected to.
    pub(super) fn port(&self) -> Bytes {
        let claimed = self.claims.as_ref().and_then(|claims| claims.port.clone());
        claimed.unwrap_or_else(|| self.call.peer.public_port_text())
    }

    /// The requested host, as reported to others; which host serves it depends only on its own Host header.
    pub(super) fn host(&self) -> &Host {
        let claimed = self.claims.as_ref().and_then(|claims| claims.host.as_ref());
        claimed.unwrap_or(&self.head.host)
    }

    /// Continues with this spelling of the path, already encoded, for everybody who comes later.
    pub(super) fn cure(&mut self, target: &[u8]) {
        // It was routed by the normal form, which may differ from the original spelling.
        if self.normal.is_none() {
            self.normal = Some(self.head.path().to_vec());
        }
        self.head.cure(target);
    }

    /// Continues as if the client had asked for another path of the same host, not encoded: nginx' internal redirect. Only
    /// what counts once for a client stays: its limits, its id, and the budget of its patterns.
    pub(super) fn begin_again(&mut self, path: Vec<u8>, query: Vec<u8>) {
        self.head.redirect();
        let rewritten = self.go_on(path, query);
        // Snippets of the host are evaluated anew.
        (rewritten.of_host, rewritten.passed, rewritten.in_location) = (Some(0), 0, false);
        self.entered = self.entered.next();
        let limits = &self.call.server.local.limits;
        (self.timeouts, self.sizes) = (limits.timeouts, limits.sizes);
        (self.redirecting, self.fallback, self.own_headers, self.kept_body) = (None, None, None, None);
        (self.claims, self.certificate, self.proof, self.auth_response) = (None, None, None, None);
        (self.is_let_in, self.has_password, self.is_forwarded, self.stands_in) = (false, false, false, false);
        (self.has_tls, self.issues_cookie, self.has_pages_of_fleet) = (false, false, true);
        (self.session, self.turn, self.header_scope) = (None, Turn::default(), HeaderScope::default());
        let info = &mut *self.info;
        (info.alternative, info.user, info.unclaimed) = (None, None, None);
        (info.default_backend, info.in_place) = (false, InPlace::Nobody);
        info.attempts.redirected();
    }

    /// Continues with another path, not encoded, and another query: nginx' `rewrite`.
    pub(super) fn go_on(&mut self, path: Vec<u8>, query: Vec<u8>) -> &mut Rewritten {
        self.target = Some(path::re_encode(&path));
        let rewritten = self.rewritten.take();
        let asked = rewritten.unwrap_or_else(|| {
            Box::new(Rewritten { asked: self.path().to_vec(), of_host: None, passed: 0, in_location: false })
        });
        self.normal = Some(path);
        self.head.set_query(query);
        self.rewritten.insert(asked)
    }

    /// The number of fixed responses of its location that were decided when it was found.
    pub(super) fn passed(&self) -> usize {
        self.rewritten.as_ref().map_or(0, |it| it.passed)
    }

    /// Whether a snippet of its location has rewritten it, and nothing that follows the snippet in nginx' configuration
    /// is reached.
    pub(super) fn has_broken_off(&self) -> bool {
        self.rewritten.as_ref().is_some_and(|it| it.in_location)
    }

    /// The path that its backend gets, decoded: nginx' `$uri`. Before it is rewritten, the one that it is routed by.
    pub(super) fn uri(&self) -> Cow<'_, [u8]> {
        match self.target.as_deref().map(path::normalise) {
            Some(Ok(sent)) => Cow::Owned(sent.path.to_vec()),
            Some(Err(_)) | None => Cow::Borrowed(self.path()),
        }
    }

    /// The path that it is routed by: decoded, without dot segments and repeated slashes.
    pub(super) fn path(&self) -> &[u8] {
        self.normal.as_deref().unwrap_or_else(|| self.head.path())
    }
}
