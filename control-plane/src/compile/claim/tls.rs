//! `spec.tls` of one Ingress, host by host: a host never goes through a list of thousands of others.

use std::collections::HashMap;
use std::sync::Arc;

use shared::name::{HostName, ObjectName};

use crate::objects::IngressTls;

/// `spec.tls`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClaimedTls {
    /// Whether there is any entry.
    is_said: bool,
    /// The Secret, if there is one, of the first entry that lists a host, by the host in lower case.
    listed: HashMap<String, Option<ObjectName>>,
    /// All Secrets in order, each once.
    secrets: Vec<ObjectName>,
    /// Which entry is the first to name a Secret.
    entries: HashMap<ObjectName, usize>,
}

impl ClaimedTls {
    /// Of an Ingress of this namespace.
    pub fn of(namespace: &Arc<str>, entries: &[IngressTls]) -> Self {
        let mut tls = Self { is_said: !entries.is_empty(), ..Self::default() };
        for (i, entry) in entries.iter().enumerate() {
            let secret = (!entry.secret_name.is_empty())
                .then(|| ObjectName::new(Arc::clone(namespace), entry.secret_name.as_str()));
            for host in &entry.hosts {
                tls.listed.entry(host.to_ascii_lowercase()).or_insert_with(|| secret.clone());
            }
            if let Some(secret) = secret.filter(|secret| !tls.entries.contains_key(secret)) {
                tls.secrets.push(secret.clone());
                tls.entries.insert(secret, i);
            }
        }
        tls
    }

    /// Whether the Ingress asks for TLS at all.
    pub fn is_said(&self) -> bool {
        self.is_said
    }

    /// The Secrets of a host in order: an entry that lists the host decides alone, with or without a Secret; where none
    /// does, every Secret of the Ingress may cover the host (controller.md 6).
    pub fn secrets_of(&self, host: &HostName) -> &[ObjectName] {
        self.listed.get(host.as_str()).map_or(&self.secrets, Option::as_slice)
    }

    /// All Secrets in order, each once.
    pub fn secrets(&self) -> &[ObjectName] {
        &self.secrets
    }

    /// Path of the field that names a Secret.
    pub fn field(&self, secret: &ObjectName) -> String {
        format!("spec.tls[{}].secretName", self.entries.get(secret).copied().unwrap_or_default())
    }

    /// Whether a host that is told what [`Self::secrets`] come to can tell two of them apart.
    pub(super) fn is_same_for(&self, other: &Self, host: &HostName, are_all_same: bool) -> bool {
        match (self.listed.get(host.as_str()), other.listed.get(host.as_str())) {
            (None, None) => are_all_same,
            (Some(one), Some(other)) => one == other,
            _ => self.secrets_of(host) == other.secrets_of(host),
        }
    }
}
