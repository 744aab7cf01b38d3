//! What the first server-snippet of a host says to all of its locations, as in ingress-nginx.

use std::borrow::Cow;

use shared::policy::Shortcuts;

use super::Claims;
use crate::annotations::OfHosts;
use crate::compile::claim::Claim;
use crate::compile::snippets;

impl Claims {
    /// What the first server-snippet says, as far as it counts.
    pub(super) fn of_hosts(&self) -> Option<Cow<'_, OfHosts>> {
        of_hosts(self.decider(&self.extras.deciders.snippets)?)
    }

    /// Fixed responses of that snippet, whether the fleet allows snippets or not, and its rewrites if it does
    /// (docs/adr/034-shortcuts.md).
    pub(super) fn shortcuts(&self) -> Option<Shortcuts> {
        shortcuts(self.decider(&self.extras.deciders.snippets)?)
    }
}

/// Whether two server-snippets say the same, as far as they count.
pub(super) fn say_the_same(one: &Claim, other: &Claim) -> bool {
    of_hosts(one) == of_hosts(other) && shortcuts(one) == shortcuts(other)
}

/// Whether a server-snippet says anything that counts.
pub(super) fn says_something(claim: &Claim) -> bool {
    of_hosts(claim).is_some() || shortcuts(claim).is_some()
}

fn of_hosts(claim: &Claim) -> Option<Cow<'_, OfHosts>> {
    let of_hosts = claim.parsed.serving.of_hosts.as_ref().filter(|it| **it != OfHosts::default())?;
    match claim.fleet.allows_snippets {
        true => Some(Cow::Borrowed(of_hosts)),
        false => of_hosts.restrictions().map(Cow::Owned),
    }
}

fn shortcuts(claim: &Claim) -> Option<Shortcuts> {
    let shortcuts = claim.parsed.serving.host.shortcuts.clone()?;
    if claim.fleet.allows_snippets { Some(shortcuts) } else { snippets::answers(shortcuts) }
}
