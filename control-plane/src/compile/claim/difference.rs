//! The difference between two versions of a claim: which hosts it affects, and which of their paths.
//!
//! What all hosts have in common is compared once, however many they are.

use std::sync::Arc;

use shared::name::HostName;

use super::{Claim, ClaimedPath};

/// Two versions of a claim; either may be missing.
#[derive(Clone, Copy, Debug)]
pub struct Difference<'a> {
    /// The version that was in use before.
    pub before: Option<&'a Arc<Claim>>,
    /// The version that is in use now.
    pub after: Option<&'a Arc<Claim>>,
    /// Apart from paths and certificates of hosts, the two are the same.
    is_same_beside: bool,
    /// The Secrets of hosts that no entry of `spec.tls` lists are the same.
    are_secrets_same: bool,
}

impl<'a> Difference<'a> {
    /// Compares two versions.
    pub fn new(before: Option<&'a Arc<Claim>>, after: Option<&'a Arc<Claim>>) -> Self {
        let both = before.zip(after);
        Self {
            before,
            after,
            is_same_beside: both.is_some_and(|(before, after)| is_same_beside(before, after)),
            are_secrets_same: both.is_some_and(|(before, after)| before.tls.secrets() == after.tls.secrets()),
        }
    }

    /// Every host that one of the two applies to.
    pub fn hosts(&self) -> impl Iterator<Item = &'a HostName> {
        let (before, after) = (self.before, self.after);
        let old = before.into_iter().flat_map(|claim| claim.hosts());
        let new = after.into_iter().flat_map(|claim| claim.hosts());
        old.chain(new.filter(move |host| !before.is_some_and(|claim| claim.counts_for(host))))
    }

    /// Whether the difference affects a host.
    pub fn is_seen_by(&self, host: &HostName) -> bool {
        let counts = |claim: Option<&Arc<Claim>>| claim.is_some_and(|claim| claim.counts_for(host));
        let (Some(before), Some(after)) = (self.before, self.after) else {
            return true;
        };
        counts(self.before) != counts(self.after)
            || !self.is_same_beside
            || !before.tls.is_same_for(&after.tls, host, self.are_secrets_same)
            || !self.are_paths_same(before.paths(host), after.paths(host))
    }

    /// The paths of a host that only the first claim has, and those that only the second has, each with its index among
    /// those of the host. A path that moved is in both.
    pub fn paths(&self, host: &HostName) -> (Vec<Numbered<'a>>, Vec<Numbered<'a>>) {
        let paths_of = |claim: Option<&'a Arc<Claim>>| claim.map_or(&[][..], |claim| claim.paths(host));
        let (before, after) = (paths_of(self.before), paths_of(self.after));
        let keeps_its_place = self.before.zip(self.after).is_some_and(|(before, after)| {
            before.age == after.age && before.is_canary() == after.is_canary()
        });
        let is_in = |list: &[ClaimedPath], i: usize, path: &ClaimedPath| {
            keeps_its_place && list.get(i).is_some_and(|it| self.is_path_same(it, path))
        };
        let old = before.iter().enumerate().filter(|(i, path)| !is_in(after, *i, path));
        let new = after.iter().enumerate().filter(|(i, path)| !is_in(before, *i, path));
        (old.collect(), new.collect())
    }

    fn are_paths_same(&self, before: &[ClaimedPath], after: &[ClaimedPath]) -> bool {
        let mut pairs = before.iter().zip(after);
        before.len() == after.len() && pairs.all(|(before, after)| self.is_path_same(before, after))
    }

    /// The rule's index only matters for canaries, whose backends are attached in that order. So adding a rule does not
    /// affect the hosts of all rules after it.
    fn is_path_same(&self, before: &ClaimedPath, after: &ClaimedPath) -> bool {
        let is_canary = self.after.is_some_and(|claim| claim.is_canary());
        let ClaimedPath { path, kind, backend, place } = before;
        *path == after.path
            && *kind == after.kind
            && *backend == after.backend
            && (!is_canary || *place == after.place)
    }
}

/// A path and its index among those of its host.
pub type Numbered<'a> = (usize, &'a ClaimedPath);

fn is_same_beside(before: &Claim, after: &Claim) -> bool {
    let Claim {
        name,
        age,
        hosts: _,
        default_backend,
        errors,
        has_rules,
        tls,
        parsed,
        referred,
        fleet,
        uses_zones: _, // of its annotations
        faults: _,
    } = before;
    *name == after.name
        && *age == after.age
        && *default_backend == after.default_backend
        && *errors == after.errors
        && *has_rules == after.has_rules
        && tls.is_configured() == after.tls.is_configured()
        // Compared as a whole: everything that hosts are compiled from.
        && parsed.serving == after.parsed.serving
        && *referred == after.referred
        && *fleet == after.fleet
}
