//! What a location makes of a request's path (ingress-nginx behaviour, annotations.md 3.5).

use std::ops::ControlFlow::{Break, Continue};

use shared::template::Template;

use super::variables::{self, Allowance};
use super::{Exchange, Step};
use crate::codec::path;
use crate::http::reply::Reply;
use crate::table::policy::rewrite::Rewritten;

/// Replaces the path that the backend is sent: all of it, by the target, whose captures are groups of the declared path in
/// the normal path of the request. The query stays. A target that is a URL is answered by a redirect.
pub(super) fn rewrite(exchange: &mut Exchange<'_>) -> Step {
    let Some(rewritten) = exchange.location.as_deref().and_then(|location| location.rewritten.as_ref())
    else {
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

/// Whether a client has put a step up together: `/a(.*)` and `/b/$1` make `/b/../c` of `/a../c`, which was none before. What
/// the target leads to is looked at by nobody any more (security.md 2: what is stripped after it was normalised).
fn climbs(rewritten: &Rewritten, text: &[u8], target: &[u8]) -> bool {
    // Most have nothing that could be one.
    let may = text.contains(&b'%') || memchr::memmem::find(text, b"..").is_some();
    may && rewritten.target.as_literal().is_none() && path::climbs(target)
}

/// `X-Forwarded-Prefix` of a request that is rewritten, where its location says one. Its captures are those of the rewrite.
pub(super) fn prefix(exchange: &Exchange<'_>, allowance: &mut Allowance) -> Step<Option<Vec<u8>>> {
    let location = exchange.location.as_deref();
    let Some((rewritten, prefix)) = location
        .and_then(|location| Some((location.rewritten.as_ref()?, location.policy.rewrite.prefix.as_ref()?)))
    else {
        return Continue(None);
    };
    // Most have nothing to be looked for.
    match prefix.as_literal() {
        Some(text) => Continue(Some(text.into())),
        None => filled(exchange, rewritten, prefix, allowance),
    }
}

/// A template with the groups of a rewrite's pattern; `None` where the path is none of it.
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
    match variables::filled(template, exchange, allowance, |group| found.get(group, exchange.path())) {
        Ok(text) => Continue(Some(text)),
        Err(overlong) => Break(variables::refused(exchange, overlong)),
    }
}
