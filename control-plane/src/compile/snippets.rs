//! Merges snippets into policies, if the fleet allows them (`allow-snippet-annotations`).

use shared::policy::{LocationPolicy, Shortcut, Shortcuts};

use super::claim::Claim;
use crate::annotations::{OfHosts, substitutions};

/// The policy of a claim's locations on a host whose server-snippet says `of_host`. As in nginx, a location that hides
/// headers itself inherits none of those, one that lists addresses none of those, and one that limits clients none of
/// those.
pub fn put(mut policy: LocationPolicy, claim: &Claim, of_host: Option<&OfHosts>) -> LocationPolicy {
    // Only snippets set these fields.
    if !claim.fleet.allows_snippets {
        policy.header_changes = None;
        policy.request_headers = None;
        policy.hide_headers = None;
        policy.proxy_cookie_flags = None;
        policy.own_real_ip = None;
        policy.error_answers = None;
        policy.intercept_errors = None;
        policy.variables = None;
        policy.substitutions = None;
        policy.chunked_transfer_encoding = None;
        policy.client_body_timeout = None;
        policy.shortcuts = policy.shortcuts.and_then(answers);
        policy.backend_tls = policy.backend_tls.filter(|_| claim.has_secret_for_tls());
        if let Some(external) = &mut policy.external_auth {
            external.proxy_set_headers.clear();
            external.told_headers.clear();
            external.told_within.clear();
            external.answers = external.answers.take().and_then(refusals);
        }
    }
    let vhost = &claim.parsed.serving.vhost;
    if claim.fleet.allows_snippets && !vhost.is_empty() {
        policy.upstream_vhost = Some(vhost.clone());
    }
    let tls_name = &claim.parsed.serving.tls_name;
    if let Some(tls) =
        policy.backend_tls.as_mut().filter(|_| claim.fleet.allows_snippets && !tls_name.is_empty())
    {
        tls.name.clone_from(tls_name);
    }
    let around = of_host.and_then(|it| it.substitutions.as_ref());
    policy.substitutions = substitutions::inherit(policy.substitutions, around);
    if let Some(OfHosts {
        changes,
        hidden,
        lists,
        tls,
        cookie_flags,
        limits,
        real_ip,
        error_answers,
        intercept_errors,
        variables,
        client_body_timeout,
        ..
    }) = of_host
    {
        if let Some(lists) = lists {
            lists.put_unless_own(&mut policy);
        }
        if let Some(limits) = limits {
            limits.put_unless_own(&mut policy);
        }
        policy.backend_tls = policy.backend_tls.or_else(|| tls.clone());
        policy.host_header_changes = changes.clone();
        policy.host_real_ip = real_ip.clone();
        policy.host_error_answers = error_answers.clone();
        policy.host_intercept_errors = *intercept_errors;
        policy.host_variables = variables.clone();
        policy.hide_headers = policy.hide_headers.or_else(|| hidden.clone());
        policy.proxy_cookie_flags = policy.proxy_cookie_flags.or_else(|| cookie_flags.clone());
        policy.client_body_timeout = policy.client_body_timeout.or(*client_body_timeout);
    }
    policy
}

/// Those that keep somebody out.
fn refusals(mut all: Shortcuts) -> Option<Shortcuts> {
    all.shortcuts.retain(|it| it.status >= 400);
    (all != Shortcuts::default()).then_some(all)
}

/// Those that send a response: they act whether the fleet allows snippets or not (docs/adr/034-shortcuts.md), without
/// headers of their own.
pub fn answers(mut all: Shortcuts) -> Option<Shortcuts> {
    let answers = |it: &mut Shortcut| {
        it.header_changes = None;
        it.rewrite.is_none() && it.only_headers != Some(true)
    };
    all.shortcuts.retain_mut(answers);
    all.blocks.retain_mut(|block| {
        let had = block.shortcuts.len();
        block.shortcuts.retain_mut(answers);
        // One that keeps nobody out takes no requests from others.
        had == 0 || !block.shortcuts.is_empty()
    });
    (all != Shortcuts::default()).then_some(all)
}

#[cfg(test)]
mod tests {
    use shared::policy::{HeaderChangeList, ShortcutBlock, ShortcutRewrite};

    use super::*;

    /// In nginx a location without directives takes its requests from the one around it.
    #[test]
    fn what_answers_stays_and_so_does_a_block_that_says_nothing() {
        let answer = || Shortcut {
            status: 403,
            header_changes: Some(HeaderChangeList::default()),
            ..Shortcut::default()
        };
        let rewrite = || Shortcut { rewrite: Some(ShortcutRewrite::default().into()), ..Shortcut::default() };
        let block = |path: &str, shortcuts| ShortcutBlock {
            path: path.into(),
            shortcuts,
            ..ShortcutBlock::default()
        };
        let all = Shortcuts {
            shortcuts: vec![answer(), rewrite()],
            blocks: vec![
                block("/open", vec![]),
                block("/moved", vec![rewrite()]),
                block("/shut", vec![answer(), rewrite()]),
            ],
        };
        let left = answers(all).unwrap();
        let paths = left.blocks.iter().map(|it| (it.path.as_str(), it.shortcuts.len()));
        assert_eq!(paths.collect::<Vec<_>>(), [("/open", 0), ("/shut", 1)]);
        assert_eq!(left.shortcuts.len(), 1);
        assert!(
            left.shortcuts.iter().all(|it| it.header_changes.is_none()),
            "headers are for who may set them"
        );
        let moved = Shortcuts { shortcuts: vec![rewrite()], blocks: Vec::new() };
        assert_eq!(answers(moved), None);
    }
}
