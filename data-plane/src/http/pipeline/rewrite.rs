//! Rewrites the path of a request (`rewrite-target`, as in ingress-nginx).

use std::ops::ControlFlow::{Break, Continue};

use shared::pattern::Groups;
use shared::template::{Template, Variable};

use super::variables::{self, Allowance};
use super::{Exchange, Step};
use crate::codec::path;
use crate::http::reply::Reply;
use crate::table::policy::rewrite::Rewritten;

/// Replaces the whole path that the backend gets by the target, in which captures are groups of the declared path
/// matched against the normalised path of the request. The query stays. If the target is a URL, the response is a
/// redirect.
pub(super) fn rewrite(exchange: &mut Exchange<'_>) -> Step {
    let location = exchange.location().filter(|_| !exchange.has_broken_off());
    let Some(rewritten) = location.and_then(|location| location.rewritten()) else {
        return Continue(());
    };
    let local = &exchange.call.server.local;
    let Some(text) = filled(exchange, rewritten, &rewritten.target, &mut Allowance::default())? else {
        return Continue(());
    };
    if rewritten.is_redirect {
        let mut url = path::re_encode(&text);
        if let Some(query) = exchange.head.query() {
            url.push(b'?');
            url.extend_from_slice(query);
        }
        return Break(Reply::redirect(local, 302, url));
    }
    let mut target = path::re_encode(&text);
    if !target.starts_with(b"/") {
        target.insert(0, b'/');
    }
    if climbs(rewritten, &text, &target) {
        local.metrics.refusals.add(1);
        return Break(Reply::refusal(local, 400));
    }
    exchange.target = Some(target);
    Continue(())
}

/// The groups of the pattern by which a request was rewritten: nginx' `$1` to `$9` from then on.
pub(super) fn groups(exchange: &Exchange<'_>) -> Option<Groups> {
    let location = exchange.location().filter(|_| !exchange.has_broken_off())?;
    location.rewritten()?.groups(exchange.path(), &exchange.steps).ok()?
}

/// Whether a client has composed a `..` step: `/a(.*)` and `/b/$1` turn `/a../c` into `/b/../c`, which was not a step
/// before. The rewritten target is not checked by anything else, since it was normalised before the rewrite.
fn climbs(rewritten: &Rewritten, text: &[u8], target: &[u8]) -> bool {
    // Most contain nothing that could become one.
    let may = text.contains(&b'%') || memchr::memmem::find(text, b"..").is_some();
    may && rewritten.target.as_literal().is_none() && path::climbs(target)
}

/// `X-Forwarded-Prefix` of a rewritten request, if configured. Its captures are those of the rewrite.
pub(super) fn prefix(exchange: &Exchange<'_>, allowance: &mut Allowance) -> Step<Option<Vec<u8>>> {
    let location = exchange.location();
    let Some((rewritten, prefix)) =
        location.and_then(|location| Some((location.rewritten()?, location.policy.rewrite.prefix.as_ref()?)))
    else {
        return Continue(None);
    };
    // Most contain no variables.
    match prefix.as_literal() {
        Some(text) => Continue(Some(text.into())),
        None => filled(exchange, rewritten, prefix, allowance),
    }
}

/// A template filled with the groups of the rewrite's pattern; `None` if the path does not match.
fn filled(
    exchange: &Exchange<'_>,
    rewritten: &Rewritten,
    template: &Template,
    allowance: &mut Allowance,
) -> Step<Option<Vec<u8>>> {
    let found = match rewritten.groups(exchange.path(), &exchange.steps) {
        Ok(Some(found)) => found,
        Ok(None) => return Continue(None),
        Err(_) => return Break(Reply::page(&exchange.call.server.local, 500)),
    };
    let group = |variable: &Variable| match variable {
        Variable::Capture(group) => Some(*group),
        // In nginx a named group is a variable.
        Variable::Named(name) => rewritten.pattern().and_then(|pattern| pattern.group(name)),
        _ => None,
    };
    let own = |variable: &Variable| {
        group(variable).map(|group| found.get(usize::from(group), exchange.path()).into())
    };
    match variables::filled_by(template, exchange, allowance, own) {
        Ok(text) => Continue(Some(text)),
        Err(overlong) => Break(variables::refused(exchange, overlong)),
    }
}
