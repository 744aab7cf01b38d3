//! Requests that a snippet of their host or location answers directly, or whose path it rewrites: nginx' rewrite phase
//! (as in ingress-nginx).

use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;

use shared::pattern::{Exhausted, Groups};
use shared::template::{Overlong, Variable};

use super::exchange::Said;
use super::variables::{self, Allowance};
use super::{Exchange, HeaderScope, Step, cors, media, redirect, size};
use crate::codec::head::Known;
use crate::codec::path;
use crate::http::reply::Reply;
use crate::table::PathEntry;
use crate::table::policy::redirect::Redirect;
use crate::table::policy::rewrite::Rewritten;
use crate::table::policy::shortcuts::{Rewrite, Shortcut, Shortcuts, Test, Then, filled, found as find};

/// The last match of a pattern and the matched text: `$1` to `$9`.
type Found = Option<(Groups, Vec<u8>)>;

/// The path and the query that a rewrite leads to.
pub(super) struct Place {
    pub(super) path: Vec<u8>,
    pub(super) query: Vec<u8>,
}

/// A rewrite leads to no path, or to one that is too long: 500.
pub(super) struct Nowhere;

/// Rewrites a request as the host's snippet says, before a location is looked up for it. Returns whether it did.
pub(super) fn rewrite_by_host(exchange: &mut Exchange<'_>, of_host: &Shortcuts) -> Result<bool, Nowhere> {
    let mut from = 0;
    // What else it decides comes in its turn.
    while let Some(left) = of_host.plain.get(from..)
        && let Ok(Decided { end: Some((at, found)), .. }) = decided(exchange, left, &None)
        && let Some(rewrite) = &left[at].rewrite
    {
        let Place { path, query } = place(exchange, rewrite, &found)?;
        from += at + 1;
        let goes_on = rewrite.then == Then::GoesOn;
        exchange.go_on(path, query).of_host = goes_on.then_some(from);
        if !goes_on {
            break;
        }
    }
    Ok(from > 0)
}

/// What the host has not decided yet.
fn left_of_host<'s>(exchange: &Exchange<'_>, of_host: &'s Shortcuts) -> &'s [Shortcut] {
    let from = exchange.rewritten.as_ref().map_or(Some(0), |it| it.of_host);
    from.and_then(|from| of_host.plain.get(from..)).unwrap_or_default()
}

/// What rewrites a request in the place that was found for it.
pub(super) struct Leading<'s> {
    list: &'s [Shortcut],
    found: Found,
    /// The `rewrite-target` that follows.
    target: Option<&'s Rewritten>,
}

/// The directives of the location `entry`, or of a block that takes the request instead, if some of them may rewrite it.
/// `None`: none does, or the request is answered before.
pub(super) fn in_charge<'s>(
    exchange: &Exchange<'_>,
    entry: Option<&'s PathEntry>,
    of_host: Option<&'s Shortcuts>,
) -> Option<Leading<'s>> {
    let own = entry.and_then(|entry| entry.policy.shortcuts.as_deref());
    if !own.is_some_and(|own| own.moves) && !of_host.is_some_and(|of_host| of_host.blocks_move) {
        return None;
    }
    let declared = entry.map_or("", |entry| entry.declared());
    let block = |it: &'s Shortcuts| -> ControlFlow<Option<Leading<'s>>> {
        match it.block(exchange.path(), declared, exchange.in_patterns, &exchange.steps) {
            Ok(None) => Continue(()),
            Ok(Some((block, groups))) => Break(Some(Leading {
                list: &block.shortcuts,
                found: Some((groups, exchange.path().to_vec())),
                target: None,
            })),
            Err(Exhausted) => Break(None),
        }
    };
    if let Some(of_host) = of_host {
        let left = left_of_host(exchange, of_host);
        if !decided(exchange, left, &None).is_ok_and(|it| it.end.is_none()) {
            return None;
        }
        if let Break(leading) = block(of_host) {
            return leading;
        }
    }
    let (entry, own) = entry.zip(own)?;
    if entry.is_denied() || size::answers(exchange, entry) || cors::answers(exchange, entry) {
        return None;
    }
    match block(own) {
        Break(leading) => leading,
        Continue(()) => Some(Leading { list: &own.plain, found: None, target: entry.rewritten() }),
    }
}

/// Rewrites a request as these directives say. Returns whether another location is looked up then; what else they decide
/// comes in its turn.
pub(super) fn rewrite_by_location(
    exchange: &mut Exchange<'_>,
    leading: Leading<'_>,
) -> Result<bool, Nowhere> {
    let Leading { list, found, target } = leading;
    let mut passed = 0;
    loop {
        let left = list.get(passed..).unwrap_or_default();
        let Ok(Decided { end, said }) = decided(exchange, left, &found) else {
            return Ok(false);
        };
        let Some((at, found)) = end else { break };
        let Some(rewrite) = left[at].rewrite.as_ref().filter(|it| it.then != Then::Stays) else {
            return Ok(false);
        };
        let Place { path, query } = place(exchange, rewrite, &found)?;
        passed += at + 1;
        let moves = rewrite.then == Then::Moves;
        match last(&left[at], said) {
            _ if moves => exchange.own_headers = None,
            Some(last) => exchange.own_headers = says(last, &found),
            None => {}
        }
        let rewritten = exchange.go_on(path, query);
        (rewritten.of_host, rewritten.passed) = (None, if moves { 0 } else { passed });
        if moves {
            return Ok(true);
        }
    }
    // In nginx a `rewrite-target` is one that breaks off.
    let is_target = |it: &Rewritten| !matches!(it.groups(exchange.path(), &exchange.steps), Ok(None));
    if passed == 0 || target.is_some_and(is_target) {
        return Ok(false);
    }
    if let Some(rewritten) = &mut exchange.rewritten {
        rewritten.passed = 0;
    }
    exchange.own_headers = None;
    Ok(true)
}

/// What a rewrite makes of the path and the query. In the query, nginx encodes groups of a path in which the client has
/// encoded something.
fn place(exchange: &Exchange<'_>, rewrite: &Rewrite, found: &Found) -> Result<Place, Nowhere> {
    let group = |group: usize| found.as_ref().map_or(&b""[..], |(groups, text)| groups.get(group, text));
    let path = variables::filled(&rewrite.path, exchange, &mut Allowance::default(), group);
    let path = path.ok().filter(|path| path.starts_with(b"/")).ok_or(Nowhere)?;
    let mut query = Vec::new();
    if let Some(text) = &rewrite.query {
        let asked = exchange.head.uncured_target().split(|byte| *byte == b'?').next().unwrap_or_default();
        let is_encoded = asked.iter().any(|byte| b"%+".contains(byte));
        let filled = text.fill(&mut query, Allowance::USUAL, |variable, out| match variable {
            Variable::Capture(number) if is_encoded => {
                path::encode_argument(group(usize::from(*number)), out);
            }
            Variable::Capture(number) => out.extend_from_slice(group(usize::from(*number))),
            variable => variables::append(exchange, variable, out),
        });
        filled.map_err(|_| Nowhere)?;
        query = redirect::unbroken(&query);
    }
    if let Some(old) = exchange.head.query().filter(|_| rewrite.keeps_query) {
        query.extend_from_slice(if rewrite.query.is_some() { b"&" } else { b"" });
        query.extend_from_slice(old);
    }
    // The next rewrite may append as much again.
    if query.len() > Allowance::USUAL { Err(Nowhere) } else { Ok(Place { path, query }) }
}

/// Direct responses of the host: its own, then those of its blocks.
pub(super) fn of_host(exchange: &mut Exchange<'_>, shortcuts: &Shortcuts) -> Step {
    if exchange.passed() > 0 {
        return Continue(());
    }
    let header_scope = std::mem::replace(&mut exchange.header_scope, HeaderScope::Host);
    before_blocks(exchange, shortcuts)?;
    of_block(exchange, shortcuts)?;
    exchange.header_scope = header_scope;
    Continue(())
}

/// Those of the host outside of blocks.
pub(super) fn before_blocks(exchange: &mut Exchange<'_>, shortcuts: &Shortcuts) -> Step {
    let left = left_of_host(exchange, shortcuts);
    first(exchange, left, &None)
}

/// Those of the location. A block in it is chosen before any of them is evaluated.
pub(super) fn of_location(exchange: &mut Exchange<'_>) -> Step {
    let Some(location) = exchange.location() else {
        return Continue(());
    };
    let Some(shortcuts) = location.policy.shortcuts.as_deref() else {
        return Continue(());
    };
    let passed = exchange.passed();
    if passed == 0 {
        of_block(exchange, shortcuts)?;
    }
    first(exchange, shortcuts.plain.get(passed..).unwrap_or_default(), &None)?;
    let stays = exchange.has_broken_off() || location.rewritten().is_some();
    if passed > 0 && !stays {
        // It was to be answered here, by fields that have changed since: it belongs to another location.
        return Break(Reply::page(&exchange.call.server.local, 500));
    }
    Continue(())
}

/// The status that a snippet answers in place of the auth service. One that lets a request in has to be that of its target
/// as it was sent and of the normal form, since a backend decodes it.
pub(super) fn of_auth(exchange: &Exchange<'_>, answers: &Shortcuts) -> Result<Option<u16>, Exhausted> {
    for shortcut in answers.plain.iter().filter(|it| !it.only_headers) {
        let holds = |target: &[u8]| holds(exchange, shortcut, target, &mut None);
        let asked = holds(exchange.head.uncured_target())?;
        let is_it = match exchange.normal.is_some() && shortcut.asks_target() && asked != shortcut.keeps_out()
        {
            true => holds(&normal_target(exchange))?,
            false => asked,
        };
        if is_it {
            return Ok(Some(shortcut.status));
        }
    }
    Ok(None)
}

/// What a snippet answers in place of an error.
pub(super) fn in_place(exchange: &mut Exchange<'_>, shortcut: &Shortcut) -> Reply {
    exchange.own_headers = says(shortcut, &None).or_else(|| exchange.own_headers.take());
    let reply = answer(exchange, shortcut, &None);
    reply.unwrap_or_else(|overlong| variables::refused(exchange, overlong))
}

fn of_block(exchange: &mut Exchange<'_>, shortcuts: &Shortcuts) -> Step {
    let declared = exchange.location().map_or("", |it| it.declared());
    let (block, groups) =
        match shortcuts.block(exchange.path(), declared, exchange.in_patterns, &exchange.steps) {
            Ok(Some(found)) => found,
            Ok(None) => return Continue(()),
            Err(Exhausted) => return Break(Reply::page(&exchange.call.server.local, 500)),
        };
    step_aside(exchange);
    first(exchange, &block.shortcuts, &Some((groups, exchange.path().to_vec())))?;
    // nginx would look for a file here, and find none.
    Break(Reply::page(&exchange.call.server.local, 404))
}

/// An `if` or a block of the location responds, and not the location itself.
fn step_aside(exchange: &mut Exchange<'_>) {
    if exchange.header_scope == HeaderScope::Location {
        exchange.header_scope = HeaderScope::WithoutCors;
    }
}

/// The response of the first one whose tests all hold, or its rewrite.
fn first(exchange: &mut Exchange<'_>, shortcuts: &[Shortcut], found: &Found) -> Step {
    // Refused, so that nobody gets past a rule that way.
    let Ok(Decided { end, said }) = decided(exchange, shortcuts, found) else {
        return Break(Reply::page(&exchange.call.server.local, 500));
    };
    let Some((at, captures)) = end else {
        if let Some(said) = said {
            step_aside(exchange);
            exchange.own_headers = says(said, &None);
        }
        return Continue(());
    };
    let shortcut = &shortcuts[at];
    match last(shortcut, said) {
        Some(last) => {
            step_aside(exchange);
            exchange.own_headers = says(last, &captures);
        }
        None if exchange.own_headers.is_none() => exchange.own_headers = says(shortcut, &captures),
        None => {}
    }
    if let Some(rewrite) = &shortcut.rewrite {
        return break_off(exchange, rewrite, &captures);
    }
    let reply = answer(exchange, shortcut, &captures);
    let mut reply = reply.unwrap_or_else(|overlong| variables::refused(exchange, overlong));
    if reply.head.status == 204 {
        // As in nginx, unless a snippet adds one.
        reply.head.fields.remove(Known::ContentType);
    }
    Break(reply)
}

/// What a list of directives leads to.
struct Decided<'s> {
    /// What ends it, and what was captured then.
    end: Option<(usize, Found)>,
    /// The last one before that only changes headers.
    said: Option<&'s Shortcut>,
}

/// The last `if` that has passed its tests.
fn last<'s>(end: &'s Shortcut, said: Option<&'s Shortcut>) -> Option<&'s Shortcut> {
    if end.tests.is_empty() { said } else { Some(end) }
}

fn says(shortcut: &Shortcut, found: &Found) -> Option<Box<Said>> {
    let headers = Arc::clone(shortcut.headers.as_ref()?);
    let found = found.clone().filter(|_| headers.has_groups);
    Some(Box::new(Said { headers, found }))
}

/// The first one whose tests all hold, and that does more than to change headers. If it refuses a target, it is tested
/// against the normal form of the target as well as against the original spelling, because a backend decodes it.
fn decided<'s>(
    exchange: &Exchange<'_>,
    shortcuts: &'s [Shortcut],
    found: &Found,
) -> Result<Decided<'s>, Exhausted> {
    let mut said = None;
    for (at, shortcut) in shortcuts.iter().enumerate() {
        let asked = exchange.head.uncured_target();
        let mut captures = found.clone();
        let mut is_it = holds(exchange, shortcut, asked, &mut captures)?;
        if !is_it && exchange.normal.is_some() && shortcut.keeps_out() && shortcut.asks_target() {
            captures.clone_from(found);
            is_it = holds(exchange, shortcut, &normal_target(exchange), &mut captures)?;
        }
        if is_it && shortcut.only_headers {
            said = Some(shortcut);
        } else if is_it {
            return Ok(Decided { end: Some((at, captures)), said });
        }
    }
    Ok(Decided { end: None, said })
}

/// The request goes on in its location with another path. As with `rewrite-target`, no client makes a `..` step of it; one
/// that its owner has written is sent.
fn break_off(exchange: &mut Exchange<'_>, rewrite: &Rewrite, found: &Found) -> Step {
    let local = &exchange.call.server.local;
    // Others were followed when the location was looked up.
    let place = if rewrite.then == Then::Stays { place(exchange, rewrite, found) } else { Err(Nowhere) };
    let Ok(Place { path, query }) = place else {
        return Break(Reply::page(local, 500));
    };
    if rewrite.path.as_literal().is_none() && path::climbs(&path::re_encode(&path)) {
        local.metrics.refusals.add(1);
        return Break(Reply::refusal(local, 400));
    }
    exchange.go_on(path, query).in_location = true;
    Continue(())
}

/// The target that was asked for, re-encoded from its normalised path.
fn normal_target(exchange: &Exchange<'_>) -> Vec<u8> {
    let asked = exchange.rewritten.as_ref().map_or_else(|| exchange.path(), |it| &it.asked);
    let mut target = path::re_encode(asked);
    if let Some(query) = exchange.head.asked_query() {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    target
}

fn holds(
    exchange: &Exchange<'_>,
    shortcut: &Shortcut,
    target: &[u8],
    found: &mut Found,
) -> Result<bool, Exhausted> {
    if !all_hold(exchange, &shortcut.tests, target, |_, groups, text| *found = Some((groups, text)))? {
        return Ok(false);
    }
    if let Some(pattern) = &shortcut.pattern {
        let Some(groups) = find(pattern, exchange.path(), &exchange.steps)? else {
            return Ok(false);
        };
        *found = Some((groups, exchange.path().to_vec()));
    }
    Ok(true)
}

/// Whether all of these hold. `seen` is given what the pattern of one captured, with its place and the text.
pub(super) fn all_hold(
    exchange: &Exchange<'_>,
    tests: &[Test],
    target: &[u8],
    mut seen: impl FnMut(usize, Groups, Vec<u8>),
) -> Result<bool, Exhausted> {
    for (at, Test { subject, comparison }) in tests.iter().enumerate() {
        let text = filled(subject, target, |variable, out| variables::append(exchange, variable, out))?;
        let (holds, groups) = comparison.holds(&text, &exchange.steps)?;
        if !holds {
            return Ok(false);
        }
        if let Some(groups) = groups {
            seen(at, groups, text);
        }
    }
    Ok(true)
}

fn answer(exchange: &Exchange<'_>, shortcut: &Shortcut, found: &Found) -> Result<Reply, Overlong> {
    let local = &exchange.call.server.local;
    let is_redirect = redirect::is_redirect(shortcut.status);
    let media_type = || {
        let media_type = shortcut.media_type.clone();
        media_type.unwrap_or_else(|| media::of(exchange, shortcut.default_type.as_ref()))
    };
    let Some(text) = &shortcut.text else {
        return Ok(match shortcut.status {
            // An empty text, as in nginx.
            status if status < 400 && !is_redirect => {
                Reply::configured_page(local, status, media_type(), Vec::new())
            }
            status => Reply::of_status(local, status),
        });
    };
    let group = |group: usize| found.as_ref().map_or(&b""[..], |(groups, text)| groups.get(group, text));
    if !is_redirect {
        // Without a text, whatever a variable makes of it, the status alone is said.
        let is_said = text.as_literal().is_none_or(|text| !text.is_empty());
        let text = variables::filled(text, exchange, &mut Allowance::default(), group)?;
        let reply = Reply::configured_page(local, shortcut.status, media_type(), text);
        return Ok(Reply { is_said, ..reply });
    }
    let mut place = Vec::new();
    text.fill(&mut place, Allowance::USUAL, |variable, out| match variable {
        // Captures are decoded.
        Variable::Capture(number) => out.extend(path::re_encode(group(usize::from(*number)))),
        Variable::Uri => out.extend(path::re_encode(&exchange.uri())),
        variable => variables::append(exchange, variable, out),
    })?;
    let mut place = redirect::unbroken(&place);
    if shortcut.pattern.is_some() {
        add_query(&mut place, exchange.head.query());
    }
    if place.starts_with(b"/") {
        let usual = Redirect::default();
        let settings = exchange.location().map_or(&usual, |it| &it.policy.redirect);
        place = redirect::on_this_host(exchange.call, settings, &exchange.head.host, &place);
    }
    Ok(Reply::redirect(local, shortcut.status, place))
}

/// Appends the query, after one that the text contains; not if the text ends with `?`.
fn add_query(place: &mut Vec<u8>, query: Option<&[u8]>) {
    if place.last() == Some(&b'?') {
        place.pop();
        return;
    }
    let Some(query) = query.filter(|query| !query.is_empty()) else {
        return;
    };
    place.push(if place.contains(&b'?') { b'&' } else { b'?' });
    place.extend_from_slice(query);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_goes_on() {
        for (place, query, expected) in [
            ("/a", None, "/a"),
            ("/a", Some("x=1"), "/a?x=1"),
            ("/a?b=2", Some("x=1"), "/a?b=2&x=1"),
            ("/a?", Some("x=1"), "/a"),
            ("/a?b=2?", Some("x=1"), "/a?b=2"),
            ("/a", Some(""), "/a"),
        ] {
            let mut place = place.as_bytes().to_vec();
            add_query(&mut place, query.map(str::as_bytes));
            assert_eq!(String::from_utf8(place).unwrap(), expected);
        }
    }

    #[test]
    fn line_breaks_in_a_location_are_escaped() {
        assert_eq!(redirect::unbroken(b"/a b\r\nX: y\xff"), b"/a%20b%0D%0AX:%20y%FF");
    }
}
