//! Rewrites redirects and cookies in an endpoint's response, if the location asks for it.

use super::variables::{self, Allowance};
use super::{Exchange, HeaderScope, redirect};
use crate::codec::head::Known;
use crate::http::reply::{Reply, ReplyBody};
use crate::table::PathEntry;
use crate::table::policy::response_rewrite::Asked;

const REFRESH: &str = "Refresh";

/// Rewrites a response of the location's endpoints, or of those in place of them, and no error page; only for HTTP, as
/// in nginx.
pub(super) fn apply(exchange: &Exchange<'_>, location: &PathEntry, reply: &mut Reply) {
    let Some(rewrite) = location.policy.response_rewrite.as_deref() else { return };
    let is_endpoints = matches!(reply.body, ReplyBody::Relay(_) | ReplyBody::Tunnel(_))
        && exchange.header_scope != HeaderScope::Errors;
    if !is_endpoints || !location.spoken().is_http() {
        return;
    }
    let asked = &Asked {
        // All fields together share the remaining matching budget of the request.
        steps: &exchange.steps,
        fill: &|template, found| {
            let group = |group: usize| found.map_or(&b""[..], |(groups, text)| groups.get(group, text));
            variables::filled(template, exchange, &mut Allowance::default(), group).ok()
        },
    };
    let fields = &mut reply.head.fields;
    if rewrite.has_cookies() && fields.has(Known::SetCookie) {
        let rewritten = |cookie: &[u8]| rewrite.cookie(cookie, asked).unwrap_or_else(|| cookie.to_vec());
        // In their order, which matters to clients.
        let cookies: Vec<_> = fields.all(Known::SetCookie).map(rewritten).collect();
        fields.remove(Known::SetCookie);
        cookies.into_iter().for_each(|cookie| fields.add(Known::SetCookie, cookie));
    }
    if let Some(new) = fields.get(Known::Location).and_then(|value| rewrite.location(value, asked)) {
        // As in nginx' own redirects: a path gets a scheme and host.
        let Exchange { call, head, .. } = exchange;
        let new = match new.starts_with(b"/") {
            true => redirect::on_this_host(*call, &location.policy.redirect, &head.host, &new),
            false => new,
        };
        fields.set(Known::Location, new);
    }
    if let Some(new) = fields.get(REFRESH).and_then(|value| rewrite.refresh(value, asked)) {
        fields.set(REFRESH, new);
    }
}
