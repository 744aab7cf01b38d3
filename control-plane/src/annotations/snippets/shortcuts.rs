//! Fixed responses of a snippet, parsed into types: nginx' `return`, `if`, a `rewrite` that redirects, and `location`
//! blocks of these; and a `rewrite` after which a request goes on (docs/adr/034-shortcuts.md).
//!
//! **Invariant:** a block is supported whole and exactly, or not at all: not with a directive that may matter to its
//! response, a variable without a value, or a pattern that does not compile.

mod around;
mod block;
mod condition;
pub(super) mod ends;

use shared::pattern::Allowance;
use shared::policy::{
    HeaderChange, Shortcut, ShortcutComparison, ShortcutRewrite, ShortcutTest, Shortcuts, SnippetVariable,
};
use shared::template::{Template, Variable};

use super::branches::{self, Branch};
use super::groups::{self, named};
use super::headers::{CHANGES_ANSWERS, SnippetContext};
use super::tokens::Directive;
use super::worlds::{Outcome, World, Worlds, depends_on_path};
pub(super) use around::Around;
use around::Last;
use block::{block, set_type};
pub(super) use condition::Condition;
use condition::{can_compare, finds};
pub(super) use ends::{counts_by, has_values, replaces_by};
use ends::{is_url, returned, rewritten};

/// Limit of the responses that are taken from one snippet, and of their bytes.
const MOST: usize = 64;
pub(super) const MOST_BYTES: usize = 16 << 10;
/// Limit of the memory of their patterns together, in a proxy, in bytes.
const MOST_OF_PATTERNS: usize = 1 << 20;

/// Directives about headers, which may use variables of the snippet.
const SETS_HEADERS: [&str; 4] =
    ["add_header", "more_set_headers", "more_set_input_headers", "proxy_set_header"];

/// Which rewrites that send no response are read.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Rewrites {
    #[default]
    None,
    /// Those with a flag.
    Flagged,
    All,
}

/// The shortcuts that were taken, and what might surprise the snippet's author.
#[derive(Default, Debug)]
pub(super) struct Taken {
    pub(super) shortcuts: Shortcuts,
    /// The snippet's own, whose values differ between requests, as far as headers use them.
    pub(super) variables: Vec<SnippetVariable>,
    /// Paths of blocks without a response.
    pub(super) empty: Vec<String>,
    rewrites: Rewrites,
    /// Where values change for the last time, and the directive that is looked at.
    last: Last,
    at: usize,
    /// Whether they answer in place of an authentication service.
    is_auth: bool,
    /// Whether they are of a host: nginx knows no headers in its `if` blocks.
    is_server: bool,
    count: usize,
    bytes: usize,
}

/// A directive with the directives in its block.
pub(super) struct Node<'a> {
    pub(super) directive: &'a Directive,
    pub(super) inner: &'a [Directive],
}

/// The directives of one level.
pub(super) fn nodes(directives: &[Directive]) -> impl Iterator<Item = Node<'_>> {
    let mut rest = directives;
    std::iter::from_fn(move || {
        let (directive, behind) = rest.split_first()?;
        let length = behind.iter().take_while(|it| it.depth > directive.depth).count();
        let (inner, after) = behind.split_at(length);
        rest = after;
        Some(Node { directive, inner })
    })
}

impl Taken {
    /// Takes what is supported from a snippet; what is left stays in order.
    pub(super) fn of(
        directives: &[Directive],
        place: SnippetContext,
        rewrites: Rewrites,
    ) -> (Self, Vec<Directive>) {
        Self::beside(directives, place, rewrites, Around::default())
    }

    /// The same, where it is known what is around it.
    pub(super) fn beside(
        directives: &[Directive],
        place: SnippetContext,
        rewrites: Rewrites,
        around: Around,
    ) -> (Self, Vec<Directive>) {
        let is_auth = place == SnippetContext::Auth;
        let is_server = place == SnippetContext::Server;
        let mut taken = Self { rewrites, is_auth, is_server, ..Self::default() };
        let (mut rest, mut room) = (Vec::new(), Allowance::new(MOST_OF_PATTERNS));
        let spelled_out = groups::spelled_out(directives, &mut room);
        let directives = &spelled_out[..];
        let Around { mut used, set_before } = around;
        let mut worlds = Worlds::new(directives, set_before.as_ref());
        // nginx limits methods first: other methods have a configuration of their own, without what it rewrites.
        let (methods, others): (Vec<_>, Vec<_>) =
            nodes(directives).partition(|it| it.directive.name() == "limit_except");
        let all: Vec<_> = methods.into_iter().chain(others).collect();
        taken.last = Last::of(&all);
        for (at, node) in all.iter().enumerate() {
            taken.at = at;
            let before = taken.shortcuts.shortcuts.len();
            let is_unreachable = is_named(node.directive) && is_server;
            if is_unreachable || !taken.take(node, &worlds, &mut room) {
                rest.push(node.directive.clone());
                rest.extend_from_slice(if is_unreachable { &[] } else { node.inner });
            }
            let new = taken.shortcuts.shortcuts.get(before..).unwrap_or_default();
            new.iter().filter(|it| it.rewrite.is_some()).for_each(|it| worlds.rewrite(it.rewrite()));
            worlds.follow(node, &mut room);
        }
        // Headers are set when all of these are done.
        for it in rest.iter_mut().filter(|it| it.depth == 0 && SETS_HEADERS.contains(&it.name())) {
            *it = it.replaced(|text| Some(worlds.settled(text))).unwrap_or_else(|| it.clone());
            used.extend(groups::used([&*it]));
        }
        taken.variables = worlds.variables(&used);
        // Each is compiled where it stands.
        taken.variables.retain(|it| {
            let mut tests = it.cases.iter().flat_map(|it| &it.tests);
            tests.all(|it| can_compare(it.comparison(), &it.value, &mut room))
        });
        let configured = directives.iter().find(|it| it.depth == 0 && it.name() == "default_type");
        if let Some([configured]) = configured.map(Directive::arguments) {
            let Shortcuts { shortcuts, blocks } = &mut taken.shortcuts;
            let of_blocks = blocks.iter_mut().flat_map(|block| &mut block.shortcuts);
            shortcuts
                .iter_mut()
                .chain(of_blocks)
                .for_each(|it| set_type(it, configured, |it| &mut it.default_type));
        }
        (taken, rest)
    }

    /// Whether some of it acts only if the fleet allows snippets: it sends no response, changes headers, or lets requests
    /// in.
    pub(super) fn needs_snippets(&self) -> bool {
        let Shortcuts { shortcuts, blocks } = &self.shortcuts;
        let mut all = shortcuts.iter().chain(blocks.iter().flat_map(|it| &it.shortcuts));
        all.any(|it| goes_on(it) || it.header_changes.is_some() || self.is_auth && it.status < 400)
    }

    /// `None` if nothing was taken.
    pub(super) fn put(self) -> Option<Shortcuts> {
        (self.shortcuts != Shortcuts::default()).then_some(self.shortcuts)
    }

    fn take(&mut self, node: &Node<'_>, worlds: &Worlds, room: &mut Allowance) -> bool {
        self.bytes += bytes(node.directive) + node.inner.iter().map(bytes).sum::<usize>();
        if self.bytes > MOST_BYTES || self.count > MOST {
            return false;
        }
        if node.directive.name() == "limit_except" && self.is_auth {
            return false;
        }
        let has_headers = || node.inner.iter().any(|it| CHANGES_ANSWERS.contains(&it.name()));
        if self.is_server && node.directive.name() == "if" && has_headers() {
            return false;
        }
        if node.directive.name() != "location" {
            let is_concerned = worlds.concern(node.inner.iter().chain([node.directive]))
                || node.inner.iter().any(|it| it.name() == "set");
            let found = match is_concerned {
                true => answers(node, worlds, |name| self.last.is_behind(self.at, name), room),
                false => answer(node, false, room).map(|it| vec![it]),
            };
            let found = found.filter(|it| it.iter().all(|it| self.may_take(it)));
            let Some(found) = found.filter(|it| self.has_room(it.len())) else {
                self.note_branch(node, worlds, room);
                return false;
            };
            if is_concerned {
                // Those of worlds say the same several times.
                let tests = found.iter().flat_map(|it| &it.tests);
                self.bytes += tests.map(|it| it.subject.len() + it.value.len()).sum::<usize>();
                if self.bytes > MOST_BYTES {
                    return false;
                }
            }
            if self.is_auth {
                // Only the status counts.
                let bare = |it| Shortcut { text: None, header_changes: None, ..it };
                self.shortcuts.shortcuts.extend(found.into_iter().map(bare));
            } else {
                let is_if = node.directive.name() == "if";
                for it in found {
                    let missed = if is_if { self.missed(&it) } else { None };
                    self.shortcuts.shortcuts.extend(missed.into_iter().chain([it]));
                }
            }
            return true;
        }
        if self.is_auth {
            return false;
        }
        let block = block(node, room).filter(|(it, _)| it.shortcuts.iter().all(|it| self.may_take(it)));
        let Some((block, answers)) = block.filter(|(it, _)| self.has_room(it.shortcuts.len())) else {
            return false;
        };
        if !answers {
            self.empty.push(node.directive.arguments().join(" "));
        }
        self.shortcuts.blocks.push(block);
        true
    }

    /// Where an `if` that only sets variables passes its test, nginx forgets the headers of those before.
    fn note_branch(&mut self, node: &Node<'_>, worlds: &Worlds, room: &mut Allowance) {
        let is_if = node.directive.name() == "if" && node.directive.is_block;
        if !is_if || !self.shortcuts.shortcuts.iter().any(|it| it.only_headers == Some(true)) {
            return;
        }
        let tests = worlds.all().iter().filter_map(|world| tests(world, node.directive, room)?);
        let forgets: Vec<_> =
            tests.map(|tests| Shortcut { tests, only_headers: Some(true), ..Shortcut::default() }).collect();
        if self.has_room(forgets.len()) {
            self.shortcuts.shortcuts.extend(forgets);
        }
    }

    /// What an `if` says of headers where its test holds and the pattern of its rewrite does not match: its own, or that
    /// those of the ones before are forgotten.
    fn missed(&mut self, it: &Shortcut) -> Option<Shortcut> {
        let forgets = || self.shortcuts.shortcuts.iter().any(|it| it.only_headers == Some(true));
        let changes = it.header_changes.iter().flat_map(|list| &list.changes);
        let has_groups = |it: &HeaderChange| Template::parse(&it.value).variables().any(is_group);
        if it.pattern.is_none()
            || it.header_changes.is_none() && !forgets()
            || changes.clone().any(has_groups)
        {
            return None;
        }
        let missed = Shortcut {
            tests: it.tests.clone(),
            header_changes: it.header_changes.clone(),
            only_headers: Some(true),
            ..Shortcut::default()
        };
        self.has_room(1).then_some(missed)
    }

    fn may_take(&self, it: &Shortcut) -> bool {
        match self.rewrites {
            _ if self.is_auth => is_verdict(it),
            _ if it.rewrite.is_none() => true,
            Rewrites::None => false,
            Rewrites::Flagged => it.rewrite() != ShortcutRewrite::Next,
            Rewrites::All => true,
        }
    }

    fn has_room(&mut self, count: usize) -> bool {
        self.count += count.max(1);
        self.count <= MOST
    }
}

/// Whether a response is one of those by which an authentication service decides. The request to it has a path of its own,
/// and no query.
fn is_verdict(it: &Shortcut) -> bool {
    let asks_path = it.tests.iter().any(|test| depends_on_path(&test.subject));
    matches!(it.status, 200..=299 | 401 | 403) && it.pattern.is_none() && !asks_path
}

/// Whether it is a `location @NAME`: no request reaches one where `error_page` is left out.
pub(super) fn is_named(directive: &Directive) -> bool {
    let is_one = matches!(directive.arguments(), [name] if name.starts_with('@'));
    directive.name() == "location" && directive.is_block && directive.depth == 0 && is_one
}

/// What a `location @NAME` answers, if that is one response for all requests.
pub(super) fn named_answer(node: &Node<'_>, room: &mut Allowance) -> Option<Shortcut> {
    // As a block of another name, of which it is known what it may hold.
    let directive = &node.directive.with_argument(0, "/".to_owned());
    let denies = node.inner.iter().any(|it| ["allow", "deny"].contains(&it.name()));
    let (block, answers) = block(&Node { directive, inner: without_internal(node.inner).as_slice() }, room)?;
    let [answer] = &*block.shortcuts else { return None };
    let is_plain = answer.tests.is_empty() && answer.pattern.is_none() && !goes_on(answer);
    (answers && is_plain && !denies).then(|| answer.clone())
}

/// Only redirects of nginx itself lead to such a location.
fn without_internal(inner: &[Directive]) -> Vec<Directive> {
    inner.iter().filter(|it| it.name() != "internal").cloned().collect()
}

/// The length of what a directive says.
pub(super) fn bytes(directive: &Directive) -> usize {
    directive.arguments().iter().map(String::len).sum()
}

/// The response of a directive, or of its block. `has_groups`: a pattern was matched before, so there are captures.
fn answer(node: &Node<'_>, has_groups: bool, room: &mut Allowance) -> Option<Shortcut> {
    let Node { directive, inner } = node;
    match (directive.name(), directive.is_block) {
        ("return", false) => returned(directive.arguments(), has_groups),
        ("rewrite", false) => rewritten(directive.arguments(), room),
        ("if", true) => {
            let test = Condition::of(directive)?.test(room)?;
            let has_groups = has_groups || finds(&test);
            // A block without a response might switch on other directives: it stays with the unknown ones.
            let Branch { headers, sets, end } = Branch::of(inner)?;
            if !sets.is_empty() {
                return None;
            }
            let mut found = ended(end, has_groups, room)?;
            found.tests.insert(0, test);
            let has_groups = has_groups && end.is_some();
            branches::put(headers.into_iter(), has_groups, &mut found).then_some(found)
        }
        ("limit_except", true) => methods_only(node),
        _ => None,
    }
}

/// What ends the block of an `if`. Without that it only changes headers.
fn ended(end: Option<&Directive>, has_groups: bool, room: &mut Allowance) -> Option<Shortcut> {
    match end {
        Some(end) => answer(&Node { directive: end, inner: &[] }, has_groups, room),
        None => Some(Shortcut { only_headers: Some(true), ..Shortcut::default() }),
    }
}

/// `limit_except METHOD ... { deny all; }`: other methods get 403; who may GET may HEAD.
fn methods_only(node: &Node<'_>) -> Option<Shortcut> {
    let Node { directive, inner } = node;
    let [only] = inner else {
        return None;
    };
    let is_denial = only.name() == "deny" && only.arguments() == ["all"] && !only.is_block;
    let methods = directive.arguments();
    let is_known = |it: &String| METHODS.contains(&it.to_ascii_uppercase().as_str());
    if !is_denial || methods.is_empty() || !methods.iter().all(is_known) {
        return None;
    }
    let methods = methods.join("|").to_ascii_uppercase();
    let test = ShortcutTest {
        subject: "$request_method".into(),
        comparison: Some(ShortcutComparison::Lacks.into()),
        value: format!("^({})$", methods.replace("GET", "GET|HEAD")),
    };
    Some(Shortcut { tests: vec![test], status: 403, ..Shortcut::default() })
}

/// Those that nginx knows there.
const METHODS: [&str; 15] = [
    "COPY",
    "DELETE",
    "GET",
    "HEAD",
    "LOCK",
    "MKCOL",
    "MOVE",
    "OPTIONS",
    "PATCH",
    "POST",
    "PROPFIND",
    "PROPPATCH",
    "PUT",
    "TRACE",
    "UNLOCK",
];

/// The responses of a directive, or of its block, that uses variables of the snippet: one for each world that gets it.
/// `changes`: whether a variable may have another value behind it.
fn answers(
    node: &Node<'_>,
    worlds: &Worlds,
    changes: impl Fn(&str) -> bool,
    room: &mut Allowance,
) -> Option<Vec<Shortcut>> {
    let Node { directive, inner } = node;
    let mut all = Vec::new();
    for world in worlds.all() {
        let (tests, branch) = match (directive.name(), inner) {
            ("if", [_, ..]) => match tests(world, directive, room)? {
                Some(tests) => (tests, Branch::of(inner)?),
                None => continue,
            },
            (_, []) => (world.tests.clone(), Branch { end: Some(*directive), ..Branch::default() }),
            _ => return None,
        };
        let Branch { headers, sets, end } = branch;
        // Those before may be of another request's.
        let has_groups = tests[world.tests.len()..].iter().any(finds);
        // Headers have the values of the end of the snippet, unless it ends here.
        let mut texts = headers.iter().flat_map(|it| it.arguments());
        if end.is_none() && texts.any(|text| named(text).iter().any(|name| changes(name))) {
            return None;
        }
        // Those of a test that was passed before are of no pattern of this one.
        let groups = if has_groups { tests.len().checked_sub(1) } else { None };
        let world = world.behind(&sets, groups);
        let end = end.map(|it| filled(it, &world, groups)).map_or(Some(None), |it| it.map(Some))?;
        let mut found = ended(end.as_ref(), has_groups, room)?;
        // Each is compiled where it stands.
        if !tests.iter().all(|it| can_compare(it.comparison(), &it.value, room)) {
            return None;
        }
        found.tests = tests;
        let headers: Option<Vec<_>> =
            headers.into_iter().map(|it| it.replaced(|text| world.filled(text))).collect();
        if !branches::put(headers?.iter(), has_groups && end.is_some(), &mut found) {
            return None;
        }
        all.push(found);
    }
    Some(all)
}

/// What a request of a world passes that passes the test of this `if`, too; `None` inside: none does. `None`: that is
/// unknown.
fn tests(world: &World, directive: &Directive, room: &mut Allowance) -> Option<Option<Vec<ShortcutTest>>> {
    let mut tests = world.tests.clone();
    match world.outcome(&Condition::of(directive)?, room)? {
        Outcome::Holds => {}
        Outcome::Fails => return Some(None),
        Outcome::Asks(test) => tests.push(test),
    }
    Some(Some(tests))
}

/// A directive with the values of variables in its text; nginx takes its pattern or status as they stand.
fn filled(directive: &Directive, world: &World, groups: Option<usize>) -> Option<Directive> {
    let (at, groups) = match directive.name() {
        // It has groups of its own.
        "rewrite" => (1, None),
        _ => (directive.arguments().len().checked_sub(1)?, groups),
    };
    let text = world.filled_by(directive.arguments().get(at)?, groups)?;
    // Without a status, nginx decides by the text as it stands whether it is a redirect.
    let says_status = matches!(directive.arguments(), [_, _, flag] if ["redirect", "permanent"].contains(&flag.as_str()))
        || directive.name() == "return" && at == 1;
    let is_same = || is_url(&text) == is_url(&directive.arguments()[at]);
    (says_status || is_same()).then(|| directive.with_argument(at, text))
}

fn is_group(variable: &Variable) -> bool {
    matches!(variable, Variable::Capture(_))
}

/// Whether it sends no response.
fn goes_on(shortcut: &Shortcut) -> bool {
    shortcut.rewrite.is_some() || shortcut.only_headers == Some(true)
}

#[cfg(test)]
mod tests;
