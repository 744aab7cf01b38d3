//! `spec.tls` of one Ingress, indexed by host, so that no host searches a list of thousands of others.
//!
//! Each Secret that is named is requested from the API server, whether it exists or not, and a replica that starts
//! waits for all responses. So the Secrets of one Ingress are limited: nobody who may create one can delay the others.

use std::collections::HashMap;
use std::sync::Arc;

use shared::name::{HostName, ObjectName};

use crate::objects::IngressTls;
use crate::problem::{Fault, Severity};

/// Limit of the Secrets of one Ingress that are used.
pub const MOST: usize = 1_000;

/// `spec.tls`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClaimedTls {
    /// Whether there is any entry.
    is_configured: bool,
    /// By host in lower case: the Secret, if any, of the first entry that lists the host.
    listed: HashMap<String, Option<ObjectName>>,
    /// All Secrets in order, each once.
    secrets: Vec<ObjectName>,
    /// Which entry is the first to name a Secret.
    entries: HashMap<ObjectName, usize>,
    /// The first entry whose Secret is beyond the limit.
    beyond: Option<usize>,
}

impl ClaimedTls {
    /// Parses the entries of an Ingress in this namespace.
    pub fn of(namespace: &Arc<str>, entries: &[IngressTls]) -> Self {
        let mut tls = Self { is_configured: !entries.is_empty(), ..Self::default() };
        for (i, entry) in entries.iter().enumerate() {
            let secret = (!entry.secret_name.is_empty())
                .then(|| ObjectName::new(Arc::clone(namespace), entry.secret_name.as_str()));
            let secret = secret.filter(|secret| tls.counts(secret, i));
            for host in &entry.hosts {
                tls.listed.entry(host.to_ascii_lowercase()).or_insert_with(|| secret.clone());
            }
        }
        tls
    }

    /// Whether a Secret is within the limit. Records the first entry that names it.
    fn counts(&mut self, secret: &ObjectName, entry: usize) -> bool {
        if self.entries.contains_key(secret) {
            return true;
        }
        if self.secrets.len() == MOST {
            self.beyond.get_or_insert(entry);
            return false;
        }
        self.secrets.push(secret.clone());
        self.entries.insert(secret.clone(), entry);
        true
    }

    /// The fault about Secrets beyond the limit.
    pub fn fault(&self) -> Option<Fault> {
        let reason = format!(
            "one Ingress may name {MOST} Secrets: hosts of this one and those after it get the default certificate; divide \
             them over several Ingresses"
        );
        let entry = self.beyond?;
        Some(Fault::new(Severity::Warning, format!("spec.tls[{entry}].secretName"), reason))
    }

    /// Whether the Ingress asks for TLS at all.
    pub fn is_configured(&self) -> bool {
        self.is_configured
    }

    /// The Secrets of a host in order: an entry that lists the host decides alone, with or without a Secret; if none
    /// does, every Secret of the Ingress may cover the host (ingress-nginx).
    pub fn secrets_of(&self, host: &HostName) -> &[ObjectName] {
        self.listed.get(host.as_str()).map_or(&self.secrets, Option::as_slice)
    }

    /// Whether an entry lists a host.
    pub fn lists(&self, host: &HostName) -> bool {
        self.listed.contains_key(host.as_str())
    }

    /// All Secrets in order, each once.
    pub fn secrets(&self) -> &[ObjectName] {
        &self.secrets
    }

    /// Path of the field that names a Secret.
    pub fn field(&self, secret: &ObjectName) -> String {
        format!("spec.tls[{}].secretName", self.entries.get(secret).copied().unwrap_or_default())
    }

    /// Whether the two are the same for a host. `are_all_same`: whether [`Self::secrets`] of both are.
    pub(super) fn is_same_for(&self, other: &Self, host: &HostName, are_all_same: bool) -> bool {
        match (self.listed.get(host.as_str()), other.listed.get(host.as_str())) {
            (None, None) => are_all_same,
            // Whether an entry lists the host is told as well.
            (one, other) => one == other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder may hold what an API server would refuse.
    #[test]
    fn hosts_are_listed_in_lower_case() {
        let entry =
            |host: &str, name: &str| IngressTls { hosts: vec![host.into()], secret_name: name.into() };
        let tls = ClaimedTls::of(&"default".into(), &[entry("A.Test", "one"), entry("b.test", "two")]);
        let names = tls.secrets_of(&HostName::from_rule("a.test")).iter().map(|it| &*it.name);
        assert_eq!(names.collect::<Vec<_>>(), ["one"]);
    }

    #[test]
    fn so_many_secrets_count_and_hosts_of_others_have_none() {
        let entry = |i: usize| IngressTls {
            hosts: vec![format!("{i}.test")],
            secret_name: format!("secret-{}", i % (MOST + 2)),
        };
        // Each is named twice, and is counted once.
        let entries: Vec<_> = (0..2 * (MOST + 2)).map(entry).collect();
        let of = |host: usize, tls: &ClaimedTls| {
            tls.secrets_of(&HostName::from_rule(&format!("{host}.test"))).len()
        };
        let all = ClaimedTls::of(&"default".into(), &entries[..MOST]);
        assert_eq!((all.secrets().len(), all.fault()), (MOST, None));
        let tls = ClaimedTls::of(&"default".into(), &entries);
        assert_eq!(tls.secrets(), all.secrets());
        assert_eq!([0, MOST - 1, MOST, MOST + 1, MOST + 2].map(|host| of(host, &tls)), [1, 1, 0, 0, 1]);
        let fault = tls.fault().unwrap();
        assert_eq!(
            (fault.severity, fault.field),
            (Severity::Warning, format!("spec.tls[{MOST}].secretName"))
        );
    }
}
