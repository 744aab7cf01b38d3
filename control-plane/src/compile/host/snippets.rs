//! What the first server-snippet of a host says to all of its locations, as in ingress-nginx.

use std::borrow::Cow;

use shared::policy::Shortcuts;

use super::Claims;
use crate::annotations::OfHosts;
use crate::compile::snippets;

impl Claims {
    /// What the first server-snippet says, as far as it counts.
    pub(super) fn of_hosts(&self) -> Option<Cow<'_, OfHosts>> {
        let decides = self.decider(&self.extras.deciders.snippets)?;
        let of_hosts = decides.parsed.serving.of_hosts.as_ref()?;
        match decides.fleet.allows_snippets {
            true => Some(Cow::Borrowed(of_hosts)),
            false => of_hosts.restrictions().map(Cow::Owned),
        }
    }

    /// Fixed responses of that snippet, whether the fleet allows snippets or not, and its rewrites if it does
    /// (docs/adr/034-shortcuts.md).
    pub(super) fn shortcuts(&self) -> Option<Shortcuts> {
        let claim = self.decider(&self.extras.deciders.snippets)?;
        let shortcuts = claim.parsed.serving.host.shortcuts.clone()?;
        if claim.fleet.allows_snippets { Some(shortcuts) } else { snippets::answers(shortcuts) }
    }
}
