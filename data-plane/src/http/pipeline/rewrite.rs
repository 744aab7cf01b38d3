//! What a location makes of a request's path (ingress-nginx behaviour, annotations.md 3.5).

use std::ops::ControlFlow::{Break, Continue};

use super::variables::{self, Allowance};
use super::{Exchange, Step};
use crate::codec::path;
use crate::http::reply::Reply;

/// Replaces the path that the backend is sent: all of it, by the target, whose captures are groups of the declared path in
/// the normal path of the request. The query stays. A target that is a URL is answered by a redirect.
pub(super) fn rewrite(exchange: &mut Exchange<'_>) -> Step {
    let Some(rewritten) = exchange.location.as_deref().and_then(|location| location.rewritten.as_ref())
    else {
        return Continue(());
    };
    let local = &exchange.call.server.local;
    let found = match rewritten.pattern.groups(exchange.path(), &exchange.steps) {
        Ok(Some(found)) => found,
        Ok(None) => return Continue(()),
        Err(_) => return Break(Reply::page(local, 500)),
    };
    let group = |group| found.get(group, exchange.path());
    let text = match variables::filled(&rewritten.target, exchange, &mut Allowance::default(), group) {
        Ok(text) => text,
        Err(overlong) => return Break(variables::refused(exchange, overlong)),
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
    exchange.target = Some(target);
    Continue(())
}
