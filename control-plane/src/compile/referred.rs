//! Referenced objects, in the form that policies are compiled from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use shared::policy::{HeaderList, LocationPolicy};
use shared::resource::Material;

use super::size::COPIES;
use super::{headers, material};
use crate::annotations::row::Reach;
use crate::objects::Object;
use crate::problem::{Fault, Severity, shown};
use crate::reference::{FORBIDDEN, Reference, Use};

/// Limit of what a ConfigMap adds to one Route in bytes: no request head, and no FastCGI record, has room for more.
const MOST_OF_A_MAP: usize = 64 << 10;

/// The references of an Ingress, or of the fleet, by use.
pub type AllReferred = BTreeMap<Use, Referred>;

/// The current target of a reference.
#[derive(Clone, PartialEq, Debug)]
pub enum Referred {
    /// The name is not a valid object name.
    Misnamed,
    /// The object is in another namespace.
    Foreign,
    /// The object is outside of the only namespace that is watched.
    Outside(Arc<str>),
    /// Not read yet, and there is no earlier target.
    Awaited,
    /// The object does not exist.
    Absent,
    /// The object exists and is unusable; why.
    Faulty(String),
    /// The key of a Material. It is sent to proxies before resources that name it.
    Material(String),
    /// The key of a Material for TLS towards backends.
    BackendTls {
        /// The key.
        key: String,
        /// Whether it has authorities to verify with.
        verifies: bool,
    },
    /// Headers of a ConfigMap.
    Headers(HeaderList),
    /// The entries of a ConfigMap.
    Entries(Arc<BTreeMap<String, String>>),
}

/// Resolves a reference to an object; `None`: it does not exist. `allowed_headers`: the response headers that Ingresses
/// may set.
pub fn referred(
    reference: &Reference,
    object: Option<&Object>,
    allowed_headers: &BTreeSet<String>,
) -> Referred {
    match object {
        None => Referred::Absent,
        Some(Object::ConfigMap(map)) if reference.what == Use::CustomHeaders => {
            headers::custom(&map.data, allowed_headers).map_or_else(Referred::Faulty, Referred::Headers)
        }
        Some(Object::ConfigMap(map)) => Referred::Entries(Arc::new(map.data.clone())),
        Some(Object::Secret(secret)) => match material::compile(secret, reference.what) {
            Ok(material) => match (reference.what.material(&reference.name), material) {
                (Some(key), Material::BackendIdentity(it)) => {
                    Referred::BackendTls { key, verifies: it.authorities.is_some() }
                }
                (Some(key), _) => Referred::Material(key),
                (None, _) => Referred::Faulty("this kind of object cannot be used here".into()),
            },
            Err(Fault { field, reason, .. }) => Referred::Faulty(format!("{field}: {reason}")),
        },
        Some(_) => Referred::Faulty("this kind of object cannot be used here".into()),
    }
}

/// A policy with its references filled in, and why it cannot be served, if so.
pub fn filled(
    mut policy: LocationPolicy,
    refs: &BTreeMap<Reference, String>,
    referred: &AllReferred,
) -> (LocationPolicy, Option<String>) {
    let mut failed = None;
    for (reference, field) in refs {
        let found = referred.get(&reference.what).unwrap_or(&Referred::Awaited);
        if let Err(reason) = found.fill(&mut policy, reference, field) {
            failed.get_or_insert(reason);
        }
    }
    (policy, failed)
}

impl Referred {
    /// Whether it is known that there is nothing to be used.
    pub fn is_unusable(&self) -> bool {
        match self {
            Self::Misnamed | Self::Foreign | Self::Outside(_) | Self::Absent | Self::Faulty(_) => true,
            Self::Awaited
            | Self::Material(_)
            | Self::BackendTls { .. }
            | Self::Headers(_)
            | Self::Entries(_) => false,
        }
    }

    /// Why a ConfigMap that an Ingress names is too large: its entries are copied into the Route of each of the Ingress'
    /// hosts.
    ///
    /// The last good version does not help here: what is too much for one Ingress may not be for another.
    pub fn excess(&self, hosts: usize) -> Option<String> {
        let bytes = match self {
            Self::Headers(list) => {
                list.headers.iter().map(|it| it.name.len() + it.value.len()).sum::<usize>()
            }
            Self::Entries(entries) => entries.iter().map(|(name, text)| name.len() + text.len()).sum(),
            _ => return None,
        };
        if bytes > MOST_OF_A_MAP {
            return Some(format!("its entries take {bytes} bytes, and may take {MOST_OF_A_MAP}"));
        }
        let on_all = bytes * hosts;
        (on_all > COPIES).then(|| {
            format!(
                "its entries take {on_all} bytes for {hosts} hosts, and may take {COPIES}: divide the hosts over several Ingresses"
            )
        })
    }

    /// The fault of the reference; `field` is its field path.
    pub fn fault(&self, reference: &Reference, field: &str) -> Option<Fault> {
        let object = reference.object();
        let reason = match self {
            Self::Misnamed => format!(
                "expected the name of a {}, of lower-case letters, digits, hyphens and dots, got {}",
                object.kind.as_str(),
                shown(&object.name.to_string())
            ),
            Self::Outside(watched) => format!(
                "{object} is outside namespace {watched}, the only one that is watched (--watch-namespace), and is treated as missing: name one in that namespace"
            ),
            Self::Foreign => format!(
                "{object} is in another namespace, and is used only with allow-cross-namespace-resources: \"true\" in the ConfigMap"
            ),
            Self::Awaited => format!("{object} was not read yet"),
            Self::Absent => format!("{object} does not exist"),
            Self::Faulty(reason) => format!("{object} cannot be used: {reason}"),
            Self::BackendTls { verifies: false, .. } => {
                let reason = format!(
                    "{object} has no ca.crt: nothing is verified by it, and as in ingress-nginx its certificate is not shown"
                );
                return Some(Fault::new(Severity::Warning, field, reason));
            }
            Self::BackendTls { .. } | Self::Material(_) | Self::Entries(_) | Self::Headers(_) => return None,
        };
        let what = match reference.what {
            Use::ClientAuthorities => Some(FORBIDDEN),
            // As in ingress-nginx.
            Use::CustomHeaders => Some(Reach::Paths.as_str()),
            what => what.guards().then(|| Reach::Paths.as_str()),
        };
        Some(match what {
            // Whoever checks a folder has its Secrets elsewhere; in a cluster it is being created, perhaps.
            Some(what) if *self == Self::Absent => {
                Fault::new(Severity::Warning, field, format!("{reason}: until it does, {what}"))
            }
            Some(what) => Fault::new(Severity::Unsupported, field, format!("{reason}: {what}")),
            None => Fault::new(Severity::Warning, field, reason),
        })
    }

    /// Fills it into a policy.
    ///
    /// # Errors
    /// Why the policy cannot be served without it.
    fn fill(&self, policy: &mut LocationPolicy, reference: &Reference, field: &str) -> Result<(), String> {
        if let (Self::Material(key), Some(basic)) = (self, &mut policy.basic_auth)
            && reference.what.is_of_users()
        {
            basic.users.clone_from(key);
        }
        if let (Self::Entries(entries), Some(external), Use::AuthProxySetHeaders) =
            (self, &mut policy.external_auth, reference.what)
        {
            let (list, wrong) = headers::usable(entries);
            if let Some(wrong) = wrong.first() {
                return Err(format!("{field}: {}: {wrong}", reference.object()));
            }
            // Headers of a snippet come after these.
            external.proxy_set_headers.splice(0..0, list.headers);
        }
        if let (Self::Entries(entries), Use::FastCgiParams) = (self, reference.what) {
            let params = headers::params(entries);
            policy.fastcgi_params =
                Some(params.map_err(|wrong| format!("{field}: {}: {wrong}", reference.object()))?);
        }
        if reference.what == Use::BackendTls {
            return self.fill_tls(policy, reference, field);
        }
        let fault = self.fault(reference, field).filter(|_| reference.what.guards());
        fault.map_or(Ok(()), |fault| Err(format!("{}: {}", fault.field, fault.reason)))
    }

    /// Fills in the TLS identity towards backends. Nothing is sent to a backend that cannot be verified.
    fn fill_tls(
        &self,
        policy: &mut LocationPolicy,
        reference: &Reference,
        field: &str,
    ) -> Result<(), String> {
        let Some(tls) = &mut policy.backend_tls else {
            return Ok(());
        };
        match self {
            Self::BackendTls { verifies: false, .. } if tls.verify => {
                policy.backend_tls = None;
                Err(format!("{field}: {} has no ca.crt to verify by", reference.object()))
            }
            Self::BackendTls { key, .. } => {
                tls.material.clone_from(key);
                Ok(())
            }
            _ => {
                policy.backend_tls = None;
                let fault = self.fault(reference, field);
                Err(fault.map_or_else(String::new, |fault| format!("{}: {}", fault.field, fault.reason)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configmap_counts_on_each_host() {
        let entries =
            |bytes| Referred::Entries(Arc::new(BTreeMap::from([("A".into(), "x".repeat(bytes - 1))])));
        for (bytes, hosts, is_fine) in [
            (MOST_OF_A_MAP, 1, true),
            (MOST_OF_A_MAP + 1, 1, false),
            (MOST_OF_A_MAP, COPIES / MOST_OF_A_MAP, true),
            (MOST_OF_A_MAP, COPIES / MOST_OF_A_MAP + 1, false),
            (200, 20_000, true),
        ] {
            let found = entries(bytes).excess(hosts);
            assert_eq!(found.is_none(), is_fine, "{bytes} on {hosts}: {found:?}");
        }
    }
}
