//! What snippets say, where the fleet allows them (`allow-snippet-annotations`).

use shared::policy::LocationPolicy;

use super::claim::Claim;
use crate::annotations::OfHosts;

/// What a claim says of its locations on a host where `of_host` counts. As in nginx a location that says something of the
/// kind itself inherits nothing of it.
pub fn put(mut policy: LocationPolicy, claim: &Claim, of_host: Option<&OfHosts>) -> LocationPolicy {
    // No annotation but snippets says these.
    if !claim.fleet.allows_snippets {
        policy.header_changes = None;
        policy.request_headers = None;
        policy.hide_headers = None;
        if let Some(external) = &mut policy.external_auth {
            external.proxy_set_headers.clear();
            external.told_headers.clear();
        }
    }
    if let Some(OfHosts { changes, hidden }) = of_host {
        policy.header_changes = policy.header_changes.or_else(|| changes.clone());
        policy.hide_headers = policy.hide_headers.or_else(|| hidden.clone());
    }
    policy
}
