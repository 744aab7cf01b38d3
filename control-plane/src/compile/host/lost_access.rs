//! Whether what an Ingress says of its host keeps clients out of its own paths, where another Ingress decides.
//!
//! ingress-nginx serves such paths as the other Ingress says, to everybody. Here they are open only to those whom the
//! Ingress itself would let in (docs/adr/006-deny-rather-than-drop.md).

use shared::policy::{
    ClientCertificates, ClientVerification, LocationPolicy, Shortcut, ShortcutBlock, ShortcutPath, Shortcuts,
    TextList,
};
use shared::resource::Path;

use crate::annotations::OfHosts;
use crate::compile::claim::{Claim, looks_like_pattern};
use crate::compile::snippets;

/// Whether a server-snippet keeps clients out of these paths that the first one lets in.
pub(super) fn of_snippet(claim: &Claim, first: &Claim, won: &[Path]) -> bool {
    let of_hosts = |it: &Claim| it.parsed.serving.of_hosts.as_ref().and_then(OfHosts::restrictions);
    let (own, firsts) = (of_hosts(claim), of_hosts(first));
    // As in nginx, a location with lists or limits of its own has none of its host's.
    let with = |of_hosts: Option<&OfHosts>| {
        let policy = snippets::put(claim.parsed.serving.location.clone(), claim, of_hosts);
        restrictions(policy)
    };
    let wanted = with(own.as_ref());
    let is_open = own.is_some() && wanted != with(firsts.as_ref()) && wanted != with(None);
    is_open || answers_lost(claim, first, won)
}

/// What keeps clients out.
fn restrictions(policy: LocationPolicy) -> LocationPolicy {
    // One that admits everybody is an empty list.
    let some = |list: Option<TextList>| list.filter(|list| !list.values.is_empty());
    LocationPolicy {
        allowlist_source_range: some(policy.allowlist_source_range),
        denylist_source_range: some(policy.denylist_source_range),
        limit_requests: policy.limit_requests,
        limit_in_progress: policy.limit_in_progress,
        satisfy_any: policy.satisfy_any.filter(|any| !any),
        ..LocationPolicy::default()
    }
}

/// Whether a response that keeps somebody out of these paths is not among the first one's.
fn answers_lost(claim: &Claim, first: &Claim, won: &[Path]) -> bool {
    let Some(own) = &claim.parsed.serving.host.shortcuts else {
        return false;
    };
    let none = Shortcuts::default();
    let firsts = first.parsed.serving.host.shortcuts.as_ref().unwrap_or(&none);
    let refuses = |it: &&Shortcut| it.status >= 400;
    let mut shortcuts = own.shortcuts.iter().filter(refuses);
    let mut blocks = own.blocks.iter().filter(|block| block.shortcuts.iter().any(|it| refuses(&it)));
    shortcuts.any(|it| !firsts.shortcuts.contains(it))
        || blocks.any(|block| !firsts.blocks.contains(block) && won.iter().any(|path| meet(block, path)))
}

/// Whether a block may take requests of a path. Hosts may compare paths in any case, and as patterns.
fn meet(block: &ShortcutBlock, path: &Path) -> bool {
    let is_pattern = matches!(block.kind(), ShortcutPath::Pattern | ShortcutPath::PatternAnyCase);
    let [one, other] = [&block.path, &path.path].map(|it| it.to_ascii_lowercase());
    is_pattern || looks_like_pattern(&path.path) || one.starts_with(&other) || other.starts_with(&one)
}

/// Whether an Ingress asks more of clients than the first one.
pub(super) fn of_certificates(claim: &Claim, first: &Claim) -> bool {
    let (Some(own), first) = (claim.client_certificates(), first.client_certificates()) else {
        return false;
    };
    let first = first.unwrap_or_default();
    // Below, nobody's certificate is refused.
    let refuses = strictness(&own) >= 2;
    let is_kept = strictness(&first) >= strictness(&own)
        && first.authorities == own.authorities
        && first.depth.max(1) <= own.depth.max(1)
        && (own.match_cn.is_empty() || own.match_cn == first.match_cn);
    refuses && !is_kept
}

/// How much is asked of clients, in ascending order.
pub(super) fn strictness(certificates: &ClientCertificates) -> u8 {
    match certificates.verification() {
        ClientVerification::Off => 0,
        ClientVerification::OptionalNoCa => 1,
        ClientVerification::Optional => 2,
        ClientVerification::On | ClientVerification::Unspecified => 3,
    }
}
