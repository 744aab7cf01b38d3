//! What is still missing after a start from disk, as `/readyz` reports it.

use std::collections::BTreeSet;
use std::fmt;

use shared::kind::{Kind, ResourceKey};
use shared::resource::{Resource, SETTINGS_KEY};
use shared::snapshot::Snapshot;

/// Number of names that are listed; the others are only counted.
const SAID: usize = 10;

/// Secrets that the proxy had but could not store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Missing {
    /// Hosts that lack the key of a certificate.
    hosts: BTreeSet<String>,
    /// All others, by kind and key.
    others: Vec<String>,
    count: usize,
}

#[cfg(test)]
impl Missing {
    /// One arbitrary secret.
    pub(crate) fn one() -> Self {
        Self { others: vec!["material ns/a".to_owned()], count: 1, ..Self::default() }
    }
}

impl Missing {
    /// What these missing keys mean for a configuration.
    pub(super) fn of(keys: &[ResourceKey], config: &Snapshot) -> Self {
        let certificates: BTreeSet<&str> =
            keys.iter().filter(|key| key.kind == Kind::Certificate).map(|key| &*key.key).collect();
        let mut hosts = BTreeSet::new();
        let mut named = BTreeSet::new();
        let is_wanted = |kind| kind == Kind::Host || kind == Kind::Settings;
        // Nothing is decoded if nothing is missing: there may be very many hosts.
        let entries = config.iter().filter(|entry| !certificates.is_empty() && is_wanted(entry.kind()));
        for entry in entries {
            match Resource::decode(entry.kind(), &entry.body) {
                Ok(Resource::Host(host)) => {
                    let of_host = host.tls.into_iter().flat_map(|tls| tls.certificates);
                    for certificate in of_host {
                        if let Some(certificate) = certificates.get(&*certificate) {
                            hosts.insert(entry.key.key.to_string());
                            named.insert(*certificate);
                        }
                    }
                }
                Ok(Resource::Settings(settings)) if &*entry.key.key == SETTINGS_KEY => {
                    if let Some(certificate) = certificates.get(&*settings.default_certificate) {
                        hosts.insert("(default certificate)".to_owned());
                        named.insert(*certificate);
                    }
                }
                _ => {}
            }
        }
        let others = keys.iter().filter(|key| key.kind != Kind::Certificate || !named.contains(&*key.key));
        Self { hosts, others: others.map(ToString::to_string).collect(), count: keys.len() }
    }

    /// Number of secrets.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Whether nothing is missing.
    pub(crate) fn is_nothing(&self) -> bool {
        self.count == 0
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |names: &mut dyn Iterator<Item = &String>, count: usize| {
            let shown: Vec<&str> = names.take(SAID).map(String::as_str).collect();
            let more = count.saturating_sub(SAID);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{}{more}", shown.join(", "))
        };
        if !self.hosts.is_empty() {
            write!(f, "no private key for {}", list(&mut self.hosts.iter(), self.hosts.len()))?;
        }
        if !self.others.is_empty() {
            let and = if self.hosts.is_empty() { "" } else { "; " };
            write!(f, "{and}no {}", list(&mut self.others.iter(), self.others.len()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::world::{World, host};

    #[test]
    fn hosts_are_named_that_lack_a_key() {
        let mut world = World::default();
        world.config.insert(host("a.test", Some(&["ns/a", "ns/b"])));
        world.config.insert(host("b.test", Some(&["ns/c"])));
        let key = |kind, key: &str| ResourceKey::new(kind, key);
        let certificate = |name: &str| key(Kind::Certificate, name);
        let missing = Missing::of(&[certificate("ns/b"), key(Kind::Material, "ns/users")], &world.config);
        assert_eq!(missing.to_string(), "no private key for a.test; no material ns/users");
        assert_eq!(Missing::of(&[certificate("ns/x")], &world.config).to_string(), "no certificate ns/x");
        assert!(Missing::of(&[], &world.config).is_nothing());
        let many: Vec<_> = (0..13).map(|number| certificate(&format!("ns/{number:02}"))).collect();
        let shown = Missing::of(&many, &world.config).to_string();
        assert!(shown.ends_with("ns/09 and 3 more"), "{shown}");
    }
}
