//! The part of one Ingress on one host.

use std::borrow::Cow;
use std::sync::Arc;

use shared::few::FewOf;
use shared::name::{HostName, ObjectName};
use shared::policy::{HeaderList, LocationPolicy};
use shared::resource::{CATCH_ALL, Denial, Path, PathType, Route};
use shared::rewrites::makes_patterns;

use super::app_roots::AppRoot;
use super::dependents::NAMED;
use super::{Attachment, Claims};
use crate::annotations;
use crate::compile::claim::{Age, BackendKey, Claim};
use crate::compile::referred::Referred;
use crate::compile::snippets;
use crate::problem::{Fault, Severity};
use crate::reference::Use;

/// The compiled part of one Ingress on one host.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Part {
    /// Its Route, if it won a path.
    pub route: Option<Route>,
    /// The backends of won paths, or the canary's that are attached to others.
    pub used: FewOf<BackendKey>,
    /// Its backends that are attached to main ones.
    pub attachments: FewOf<Attachment>,
    /// Problems to report to its owner.
    pub faults: Vec<PartFault>,
    /// Whether it may change the Host.
    pub touches_host: bool,
    /// Number of paths that were examined.
    pub looked_at: usize,
}

impl Part {
    pub(super) fn attach(&mut self, attachment: Attachment) {
        self.used.insert(attachment.alternative.clone());
        self.attachments.insert(attachment);
    }
}

/// The spot of a fault on a host. Not a field path yet: the index of the host's rule may change without anything else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Spot {
    /// `spec.defaultBackend`.
    DefaultBackend,
    /// One of its paths there.
    Path(usize),
    /// The rule of its first path on the host.
    Rule,
    /// An annotation, by its name without the prefix.
    Annotation(&'static str),
    /// The entry of `spec.tls` that is the first to name a Secret.
    Certificate(ObjectName),
}

/// A [`Fault`] without a field path yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartFault {
    /// Where.
    pub spot: Spot,
    /// How bad it is.
    pub severity: Severity,
    /// One sentence.
    pub reason: String,
}

impl PartFault {
    /// Turns it into a fault of the Ingress as it is now.
    pub fn place(&self, claim: &Claim, host: &HostName) -> Fault {
        let paths = claim.paths(host);
        let field = match &self.spot {
            Spot::DefaultBackend => "spec.defaultBackend".to_owned(),
            Spot::Path(i) => paths.get(*i).map(|path| path.field()).unwrap_or_default(),
            Spot::Annotation(name) => annotations::field(name),
            Spot::Certificate(secret) => claim.tls.field(secret),
            Spot::Rule => format!("spec.rules[{}]", paths.first().map_or(0, |path| path.place.0)),
        };
        Fault::new(self.severity, field, self.reason.as_str())
    }
}

impl Claims {
    /// Compiles the part of a claim on this host, main or canary.
    pub fn part(&mut self, claim: &Claim) -> Part {
        match self.claim(&claim.age).map(Arc::clone) {
            None => Part::default(),
            Some(claim) if claim.is_canary() => self.canary(&claim),
            Some(claim) => self.main(&claim),
        }
    }

    fn main(&mut self, claim: &Arc<Claim>) -> Part {
        let mut part = Part::default();
        let won = self.won(claim, &mut part);
        let policy = policy(&self.host, claim);
        let has_patterns = won.iter().any(|path| makes_patterns(&policy, &path.path, path.kind));
        // Wildcard hosts have no `www.` counterpart (ingress-nginx).
        let is_name = !self.is_catch_all() && self.host.wildcard_suffix().is_none();
        let asks_for_www = is_name && claim.parsed.serving.host.www == Some(true);
        // ingress-nginx asks the declared paths, not the implicit "/".
        let has_declared = || won.len() > usize::from(self.owns_implicit_root(claim));
        let asks_for_www = asks_for_www && has_declared();
        let app_root = AppRoot::of(claim, &policy, &won);
        part.touches_host = self.extras.note(claim, has_patterns, asks_for_www, app_root);
        part.faults.extend(self.told_of_settings(claim));
        if !won.is_empty() {
            part.used.extend(claim.errors.clone());
            let mut policy = snippets::put(policy.into_owned(), claim, self.of_hosts().as_deref());
            if policy.issues_cookie == Some(true) && self.has_implicit_root(claim) {
                policy.root_issues_none = Some(true);
            }
            part.faults.extend(self.told_of_tls(claim, &policy));
            let of_host = self.leave_to_host(claim, &mut policy);
            let of_name = self.fill_name(claim, &mut policy);
            part.faults.extend(of_name.as_ref().map(|denial| self.told_of_name(denial)));
            part.route = Some(route(claim, policy, won, of_host.or(of_name)));
        }
        part.faults.extend(self.told_of_denial(claim));
        part.faults.extend(self.told_of_certificates(claim));
        part
    }

    /// The paths that an Ingress owns, in its order; the implicit "/" first.
    fn won(&self, claim: &Claim, part: &mut Part) -> Vec<Path> {
        let path = |text: &str, kind, backend: Option<&BackendKey>, after_exact| Path {
            path: text.to_owned(),
            kind,
            backend: backend.map(ToString::to_string),
            after_exact,
        };
        let is_mine = |owner: Option<&Age>| owner == Some(&claim.age);
        let mut won = Vec::new();
        part.looked_at += 1;
        let root = self.location(&"/".into(), PathType::Prefix).filter(|it| it.index.is_none());
        if let Some(root) = root.as_ref().filter(|root| is_mine(root.owner.as_ref())) {
            won.push(path("/", PathType::Prefix, root.backend.as_ref(), false));
            part.used.extend(root.backend.clone());
        }
        part.faults.extend(self.told_of_root(claim));
        for (i, wanted) in claim.paths(&self.host).iter().enumerate() {
            part.looked_at += 1;
            let Some(location) = self.location(&wanted.path, wanted.kind) else { continue };
            if is_mine(location.owner.as_ref()) && location.index == Some(i) {
                let after_exact = self.is_after_exact(&location, &wanted.path, wanted.kind);
                won.push(path(&wanted.path, wanted.kind, Some(&wanted.backend), after_exact));
                part.used.insert(wanted.backend.clone());
            } else if let Some(winner) = location.owner.and_then(|owner| self.mains.get(&owner)) {
                let is_named = self.named(&wanted.path, wanted.kind).any(|age| *age == claim.age);
                part.faults.push(match winner.age == claim.age {
                    true => self.repeated(i, claim, location.index),
                    false => {
                        let winner = Some(&**winner).filter(|_| is_named);
                        self.overridden(Spot::Path(i), &wanted.path, winner)
                    }
                });
            }
        }
        won
    }

    /// Whether it owns the implicit "/" without declaring it: the affinity cookie is for declared paths only
    /// (ingress-nginx).
    fn has_implicit_root(&self, claim: &Claim) -> bool {
        self.owns_implicit_root(claim) && claim.paths(&self.host).iter().all(|path| &*path.path != "/")
    }

    fn owns_implicit_root(&self, claim: &Claim) -> bool {
        let root = self.location(&"/".into(), PathType::Prefix).filter(|it| it.index.is_none());
        root.is_some_and(|root| root.owner.as_ref() == Some(&claim.age))
    }

    /// The fault of a `spec.defaultBackend` that claims the host's "/", which belongs to the first Ingress.
    fn told_of_root(&self, claim: &Claim) -> Option<PartFault> {
        let first = self.first_at_root().filter(|_| self.extras.deciders.roots.contains(&claim.age))?;
        let path = if self.is_catch_all() { "/" } else { "" };
        let winner = self.named_at_root().any(|age| *age == claim.age).then_some(&**first);
        (first.age != claim.age).then(|| self.overridden(Spot::DefaultBackend, path, winner))
    }

    /// The fault of a path that its own Ingress declares before.
    fn repeated(&self, i: usize, claim: &Claim, first: Option<usize>) -> PartFault {
        let paths = claim.paths(&self.host);
        let path = paths.get(i).map_or("", |path| &*path.path);
        let host = &self.host;
        let reason = match first {
            Some(_) => {
                format!("{path} of host {host} is declared twice by this Ingress: the first one counts")
            }
            // As the implicit one of the catch-all.
            None => format!("{path} of host {host} belongs to spec.defaultBackend of this Ingress"),
        };
        PartFault { spot: Spot::Path(i), severity: Severity::Overridden, reason }
    }

    /// The fault of a path that belongs to another Ingress; without its name for those who are not told it.
    fn overridden(&self, spot: Spot, path: &str, winner: Option<&Claim>) -> PartFault {
        let host = &self.host;
        let what = if path.is_empty() { format!("host {host}") } else { format!("{path} of host {host}") };
        let effect = if path.is_empty() { ": unmatched paths are its own" } else { "" };
        let reason = match winner {
            Some(winner) => {
                format!("{what} belongs to Ingress {}, which comes first{effect}", winner.name)
            }
            None => format!(
                "{what} belongs to an Ingress that comes first{effect}; more than {NAMED} claim it, and the problems of the first of them name it"
            ),
        };
        PartFault { spot, severity: Severity::Overridden, reason }
    }
}

fn route(claim: &Claim, policy: LocationPolicy, paths: Vec<Path>, of_host: Option<Denial>) -> Route {
    let (mut policy, denied) = claim.location(policy);
    let mut denied = denied.or(of_host);
    match custom_headers(claim) {
        Ok(headers) => policy.custom_headers = headers,
        Err(denial) => denied = denied.or(Some(denial)),
    }
    Route { paths, denied, policy }
}

/// The policy of a claim's locations on a host. One without rules gets the catch-all without its redirects and rewrites, and
/// without those to https that the fleet says for locations (ingress-nginx: nothing at all is read for them).
fn policy<'a>(host: &HostName, claim: &'a Claim) -> Cow<'a, LocationPolicy> {
    let configured = &claim.parsed.serving.location;
    if claim.has_rules || host.as_str() != CATCH_ALL {
        return Cow::Borrowed(configured);
    }
    Cow::Owned(LocationPolicy {
        app_root: None,
        force_ssl_redirect: Some(false),
        permanent_redirect: None,
        permanent_redirect_code: None,
        preserve_trailing_slash: None,
        relative_redirects: None,
        rewrite_target: None,
        ssl_redirect: Some(false),
        temporal_redirect: None,
        temporal_redirect_code: None,
        use_regex: None,
        ..configured.clone()
    })
}

/// Its custom response headers. If the ConfigMap is unusable, its paths answer 503 (ingress-nginx).
fn custom_headers(claim: &Claim) -> Result<Option<HeaderList>, Denial> {
    match claim.referred.get(&Use::CustomHeaders) {
        None => Ok(None),
        Some(Referred::Headers(list)) => Ok(Some(list.clone())),
        Some(_) => {
            let name = &claim.name;
            let reason =
                format!("Ingress {name}: the ConfigMap of custom-headers does not exist or cannot be used");
            Err(Denial { reason })
        }
    }
}
