//! Follows the rewrites of snippets to the location of the last path: first the host's, then those of each location on
//! the way (as in nginx).
//!
//! **Invariant:** the location of a rewritten path is that which a request for this path gets, with all of its rules;
//! and its backend is not sent one that it might take for another location's.

use std::borrow::Cow;

use super::route_outcome::{Own, RouteOutcome};
use super::{Ask, find};
use crate::codec::path::{self, Normalised};
use crate::http::pipeline::Exchange;
use crate::http::pipeline::shortcuts::{self, Nowhere};
use crate::table::HostTable;
use crate::table::policy::shortcuts::Shortcuts;

/// Limit of the locations that send a request to another one, as in nginx.
const MOST: usize = 10;

/// What a request leads to, after all rewrites. `found`: what it leads to without one.
pub(super) fn follow(
    table: &HostTable,
    exchange: &mut Exchange<'_>,
    found: RouteOutcome,
    of_host: Option<&Shortcuts>,
) -> RouteOutcome {
    match last(table, exchange, found, of_host) {
        Ok(found) if exchange.rewritten.is_some() => unambiguous(table, exchange, found),
        Ok(found) => found,
        Err(Nowhere) => RouteOutcome::Own(Own::Unknown),
    }
}

fn last(
    table: &HostTable,
    exchange: &mut Exchange<'_>,
    mut found: RouteOutcome,
    of_host: Option<&Shortcuts>,
) -> Result<RouteOutcome, Nowhere> {
    if let Some(of_host) = of_host.filter(|it| it.rewrites) {
        cure(exchange, &found);
        if shortcuts::rewrite_by_host(exchange, of_host)? {
            found = find_again(table, exchange);
        }
    }
    let mut left = MOST;
    while leads(exchange, &found, of_host)? {
        left = left.checked_sub(1).ok_or(Nowhere)?;
        found = find_again(table, exchange);
    }
    Ok(found)
}

/// Rewrites a request as the location says that was found for it, or a block that takes it instead. Returns whether
/// another location is looked up then.
fn leads(
    exchange: &mut Exchange<'_>,
    found: &RouteOutcome,
    of_host: Option<&Shortcuts>,
) -> Result<bool, Nowhere> {
    let entry = match found {
        RouteOutcome::Location { entry, .. } => Some(&**entry),
        RouteOutcome::AddSlash(..) | RouteOutcome::DefaultBackend { .. } => None,
        RouteOutcome::Www(..) | RouteOutcome::AppRoot(..) | RouteOutcome::Own(_) => return Ok(false),
    };
    match shortcuts::in_charge(exchange, entry, of_host) {
        Some(leading) => {
            cure(exchange, found);
            shortcuts::rewrite_by_location(exchange, leading)
        }
        None => Ok(false),
    }
}

/// Others are still told of the path that was asked for.
fn cure(exchange: &mut Exchange<'_>, found: &RouteOutcome) {
    if let RouteOutcome::Location { target: Some(cured), .. }
    | RouteOutcome::DefaultBackend { target: Some(cured), .. } = found
    {
        exchange.cure(cured);
    }
}

/// Only the last path is sent to anybody.
fn find_again(table: &HostTable, exchange: &Exchange<'_>) -> RouteOutcome {
    find(table, &Ask::of(table, exchange), &as_read(exchange, false))
}

/// The same, unless a reader could take the rewritten path for another one.
fn unambiguous(table: &HostTable, exchange: &Exchange<'_>, found: RouteOutcome) -> RouteOutcome {
    let ask = Ask::of(table, exchange);
    // An auth service is told of the path that was asked for.
    let asks = found.location().is_some_and(|entry| entry.external().is_some());
    if asks && path::climbs(exchange.head.path()) {
        return RouteOutcome::Own(Own::Ambiguous);
    }
    if exchange.passed() > 0 {
        // It stays where it is, whatever its path is now.
        return found;
    }
    match path::normalise(ask.raw) {
        Ok(normal) if !normal.suspicious => found,
        Ok(_) if !path::climbs(ask.raw) => match find(table, &ask, &as_read(exchange, true)) {
            RouteOutcome::Location { target: Some(_), .. }
            | RouteOutcome::DefaultBackend { target: Some(_), .. } => RouteOutcome::Own(Own::Ambiguous),
            found => found,
        },
        _ => RouteOutcome::Own(Own::Ambiguous),
    }
}

fn as_read<'e>(exchange: &'e Exchange<'_>, suspicious: bool) -> Normalised<'e> {
    Normalised { path: Cow::Borrowed(exchange.path()), suspicious }
}
