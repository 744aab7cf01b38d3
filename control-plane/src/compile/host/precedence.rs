//! Settings of a host of which one Ingress decides, the first that has them (ingress-nginx), and what the others are told.
//!
//! A change of who decides, or of what, costs as many looks as there are Ingresses that say something of it; any other change
//! costs one.
//!
//! What an Ingress says and does not get because of another one is a problem of the one that loses it. It is not denied
//! for that, whatever it would keep out: in ingress-nginx it never did (docs/adr/006-deny-rather-than-drop.md).

use std::sync::Arc;

use shared::few::FewOf;
use shared::policy::{ClientCertificates, ClientVerification, Shortcut};

use super::part::{PartFault, Spot};
use super::{Claims, snippets};
use crate::annotations::OfHosts;
use crate::compile::claim::{Age, Claim};
use crate::problem::Severity;

/// From this strictness on some certificates are refused.
const REFUSING: u8 = 2;

/// A setting of a whole host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Setting {
    Aliases,
    /// The Secrets of `spec.tls`.
    Certificates,
    CipherOrder,
    Ciphers,
    /// Canaries included.
    ClientCertificates,
    Passthrough,
    Snippet,
}

/// Who decides on each setting, in the order of [`Setting::ALL`].
pub(super) type Decided = [Option<Arc<Claim>>; Setting::ALL.len()];

impl Setting {
    pub(super) const ALL: [Self; 7] = [
        Self::Aliases,
        Self::Certificates,
        Self::CipherOrder,
        Self::Ciphers,
        Self::ClientCertificates,
        Self::Passthrough,
        Self::Snippet,
    ];

    /// Where an Ingress says it.
    fn spot(self, claims: &Claims, claim: &Claim, first: &Claim) -> Spot {
        Spot::Annotation(match self {
            Self::Certificates => {
                let host = &claims.host;
                let used = first.tls.secrets_of(host);
                let lost = claim.tls.secrets_of(host).iter().find(|secret| !used.contains(secret));
                return lost.map_or(Spot::Rule, |secret| Spot::Certificate(secret.clone()));
            }
            Self::Aliases => "server-alias",
            Self::CipherOrder => "ssl-prefer-server-ciphers",
            Self::Ciphers => "ssl-ciphers",
            Self::ClientCertificates => "auth-tls-secret",
            Self::Passthrough => "ssl-passthrough",
            Self::Snippet => "server-snippet",
        })
    }

    /// What the first Ingress decides on.
    fn words(self) -> &'static str {
        match self {
            Self::Aliases => "the aliases",
            Self::Certificates => "the certificates",
            Self::CipherOrder => "the order of ciphers",
            Self::Ciphers => "the ciphers",
            Self::ClientCertificates => "client certificates",
            Self::Passthrough => "TLS passthrough",
            Self::Snippet => "the server-snippet",
        }
    }

    /// What the first Ingress says otherwise, where one setting has several annotations.
    fn details(self, claim: &Claim, first: &Claim) -> String {
        match self {
            Self::ClientCertificates => {
                let names = differing(claim.client_certificates(), first.client_certificates());
                format!(", with another {}", listed(&names))
            }
            _ => String::new(),
        }
    }

    /// Whether two Ingresses say the same of it, whoever decides.
    fn is_same(self, claims: &Claims, one: &Claim, other: &Claim) -> bool {
        let (a, b) = (&one.parsed.serving.host, &other.parsed.serving.host);
        match self {
            Self::Aliases => a.aliases == b.aliases,
            Self::Certificates => one.tls.secrets_of(&claims.host) == other.tls.secrets_of(&claims.host),
            Self::CipherOrder => a.ssl_prefer_server_ciphers == b.ssl_prefer_server_ciphers,
            Self::Ciphers => a.ssl_ciphers == b.ssl_ciphers,
            Self::ClientCertificates => {
                differing(one.client_certificates(), other.client_certificates()).is_empty()
            }
            // Who says nothing of it says no.
            Self::Passthrough => (a.passthrough == Some(true)) == (b.passthrough == Some(true)),
            Self::Snippet => snippets::say_the_same(one, other),
        }
    }

    /// Whether an Ingress refuses some clients by it.
    fn keeps_out(self, claim: &Claim) -> bool {
        let serving = &claim.parsed.serving;
        match self {
            Self::ClientCertificates => {
                claim.client_certificates().is_some_and(|asked| strictness(&asked) >= REFUSING)
            }
            Self::Snippet => {
                let refuses = |it: &Shortcut| it.status >= 400;
                serving.of_hosts.as_ref().and_then(OfHosts::restrictions).is_some()
                    || serving.host.shortcuts.iter().any(|all| {
                        let blocks = all.blocks.iter().flat_map(|block| &block.shortcuts);
                        all.shortcuts.iter().chain(blocks).any(refuses)
                    })
            }
            _ => false,
        }
    }

    /// Whether an Ingress loses something against the first one.
    fn is_lost(self, claims: &Claims, claim: &Claim, first: &Claim) -> bool {
        match self {
            Self::Aliases => {
                let list = |it: &Claim| it.parsed.serving.host.aliases.clone().unwrap_or_default().values;
                let known = list(first);
                list(claim).iter().any(|alias| **alias != *claims.host.as_str() && !known.contains(alias))
            }
            // Without a Secret it only asks for TLS, which the host has; one of an entry for other hosts is not lost here.
            Self::Certificates => {
                let used = first.tls.secrets_of(&claims.host);
                claim.tls.lists(&claims.host)
                    && claim.tls.secrets_of(&claims.host).iter().any(|secret| !used.contains(secret))
            }
            Self::Snippet => snippets::says_something(claim) && !self.is_same(claims, claim, first),
            _ => !self.is_same(claims, claim, first),
        }
    }
}

/// `a`, `a and b`, `a, b and c`.
fn listed(names: &[&str]) -> String {
    match names {
        [before @ .., last] if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => names.concat(),
    }
}

/// Names of the annotations for client certificates that differ.
fn differing(one: Option<ClientCertificates>, other: Option<ClientCertificates>) -> Vec<&'static str> {
    let (one, other) = (one.unwrap_or_default(), other.unwrap_or_default());
    let tells = |it: &ClientCertificates| it.tells_certificate == Some(true);
    let all = [
        ("auth-tls-secret", one.authorities != other.authorities),
        ("auth-tls-verify-client", strictness(&one) != strictness(&other)),
        ("auth-tls-verify-depth", one.depth.max(1) != other.depth.max(1)),
        ("auth-tls-match-cn", one.match_cn != other.match_cn),
        ("auth-tls-error-page", one.error_page != other.error_page),
        ("auth-tls-pass-certificate-to-upstream", tells(&one) != tells(&other)),
    ];
    all.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

/// How much is asked of clients, in ascending order.
fn strictness(certificates: &ClientCertificates) -> u8 {
    match certificates.verification() {
        ClientVerification::Off => 0,
        ClientVerification::OptionalNoCa => 1,
        ClientVerification::Optional => REFUSING,
        ClientVerification::On | ClientVerification::Unspecified => 3,
    }
}

impl Claims {
    /// Who decides on each setting.
    pub(super) fn decided(&self) -> Decided {
        Setting::ALL.map(|setting| self.decider_of(setting).map(Arc::clone))
    }

    /// The settings about which others are to be told something else.
    pub(super) fn redecided(&self, before: &Decided, now: &Decided) -> impl Iterator<Item = Setting> {
        let pairs = Setting::ALL.into_iter().zip(before.iter().zip(now));
        pairs.filter_map(move |(setting, pair)| {
            let is_same = match pair {
                (None, None) => true,
                (Some(before), Some(now)) => before.age == now.age && setting.is_same(self, before, now),
                _ => false,
            };
            (!is_same).then_some(setting)
        })
    }

    /// The Ingresses that say something of a setting.
    pub(super) fn saying(&self, setting: Setting) -> &FewOf<Age> {
        let deciders = &self.extras.deciders;
        match setting {
            Setting::Aliases => &deciders.aliases,
            Setting::Certificates => &self.tls,
            Setting::CipherOrder => &deciders.order,
            Setting::Ciphers => &deciders.ciphers,
            Setting::ClientCertificates => &deciders.client_certificates,
            Setting::Passthrough => &deciders.passthrough,
            Setting::Snippet => &deciders.snippets,
        }
    }

    fn decider_of(&self, setting: Setting) -> Option<&Arc<Claim>> {
        match setting {
            // The catch-all always shows the default certificate.
            Setting::Certificates if self.is_catch_all() => None,
            // The first Ingress of the host, whether it says something of it or not.
            Setting::Passthrough => self.first(),
            _ => self.claim(self.saying(setting).first()?),
        }
    }

    /// The faults of an Ingress that says what another one decides.
    pub(super) fn told_of_settings(&self, claim: &Claim) -> impl Iterator<Item = PartFault> {
        Setting::ALL.into_iter().filter_map(move |setting| {
            if !self.saying(setting).contains(&claim.age) {
                return None;
            }
            let first = self.decider_of(setting).filter(|first| first.age != claim.age)?;
            let is_moot = setting == Setting::ClientCertificates && self.forbids().is_some();
            if is_moot || !setting.is_lost(self, claim, first) {
                return None;
            }
            let effect = match setting.keeps_out(claim) {
                true => "does not count there, and whom it would keep out is let in, as in ingress-nginx",
                false => "does not count there",
            };
            let reason = format!("{}: this one {effect}", self.decides(setting, claim, first));
            Some(PartFault { spot: setting.spot(self, claim, first), severity: Severity::Overridden, reason })
        })
    }

    fn decides(&self, setting: Setting, claim: &Claim, first: &Claim) -> String {
        let (what, details) = (setting.words(), setting.details(claim, first));
        format!("Ingress {} comes first and decides on {what} of host {}{details}", first.name, self.host)
    }
}
