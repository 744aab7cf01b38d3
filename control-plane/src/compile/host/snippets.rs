//! What the first server-snippet of a host says to all of its locations, as in ingress-nginx.

use shared::policy::Shortcuts;

use super::Claims;
use crate::annotations::{Limits, Lists, OfHosts};
use crate::compile::snippets;

impl Claims {
    /// Response headers of the first server-snippet (ingress-nginx).
    pub(super) fn headers(&self) -> Option<&OfHosts> {
        let decides = self.decider(&self.deciders.snippets).filter(|claim| claim.fleet.allows_snippets)?;
        decides.parsed.serving.of_hosts.as_ref()
    }

    /// Lists of addresses of that snippet, whether the fleet allows snippets or not (docs/adr/034-shortcuts.md).
    pub(super) fn lists(&self) -> Option<&Lists> {
        self.decider(&self.deciders.snippets)?.parsed.serving.of_hosts.as_ref()?.lists.as_ref()
    }

    /// Limits of clients of that snippet, likewise.
    pub(super) fn limits(&self) -> Option<&Limits> {
        self.decider(&self.deciders.snippets)?.parsed.serving.of_hosts.as_ref()?.limits.as_ref()
    }

    /// Fixed responses of that snippet, whether the fleet allows snippets or not, and its rewrites if it does
    /// (docs/adr/034-shortcuts.md).
    pub(super) fn shortcuts(&self) -> Option<Shortcuts> {
        let claim = self.decider(&self.deciders.snippets)?;
        let shortcuts = claim.parsed.serving.host.shortcuts.clone()?;
        if claim.fleet.allows_snippets { Some(shortcuts) } else { snippets::answers(shortcuts) }
    }
}
