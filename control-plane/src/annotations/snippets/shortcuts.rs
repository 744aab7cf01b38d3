//! Fixed responses of a snippet, parsed into types: nginx' `return`, `if`, a `rewrite` that redirects, and `location`
//! blocks of these; and a `rewrite` after which a request goes on (docs/adr/034-shortcuts.md).
//!
//! **Invariant:** a block is supported whole and exactly, or not at all: not with a directive that may matter to its
//! response, a variable without a value, or a pattern that does not compile.

use shared::pattern::{Allowance, Pattern};
use shared::policy::{
    Shortcut, ShortcutBlock, ShortcutComparison, ShortcutPath, ShortcutRewrite, ShortcutTest, Shortcuts,
};
use shared::template::{Template, Variable};

use super::branches::{self, Branch, LOGS};
use super::headers::{CHANGES_ANSWERS, Headers, SnippetContext};
use super::tokens::Directive;
use super::worlds::{Outcome, World, Worlds, depends_on_path};

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
    /// Paths of blocks without a response.
    pub(super) empty: Vec<String>,
    rewrites: Rewrites,
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
        let is_auth = place == SnippetContext::Auth;
        let is_server = place == SnippetContext::Server;
        let mut taken = Self { rewrites, is_auth, is_server, ..Self::default() };
        let (mut rest, mut room) = (Vec::new(), Allowance::new(MOST_OF_PATTERNS));
        let mut worlds = Worlds::new(directives);
        for node in nodes(directives) {
            let before = taken.shortcuts.shortcuts.len();
            let is_unreachable = is_named(node.directive) && is_server;
            if is_unreachable || !taken.take(&node, &worlds, &mut room) {
                rest.push(node.directive.clone());
                rest.extend_from_slice(if is_unreachable { &[] } else { node.inner });
            }
            let new = taken.shortcuts.shortcuts.get(before..).unwrap_or_default();
            new.iter().filter(|it| it.rewrite.is_some()).for_each(|it| worlds.rewrite(it.rewrite()));
            worlds.follow(&node, &mut room);
        }
        // Headers are set when all of these are done.
        for it in rest.iter_mut().filter(|it| it.depth == 0 && SETS_HEADERS.contains(&it.name())) {
            *it = it.replaced(|text| Some(worlds.settled(text))).unwrap_or_else(|| it.clone());
        }
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
        if node.directive.name() == "limit_except" && !self.may_limit_methods() {
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
                true => answers(node, worlds, room),
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
                self.shortcuts.shortcuts.extend(found);
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

    fn may_take(&self, it: &Shortcut) -> bool {
        match self.rewrites {
            _ if self.is_auth => is_verdict(it),
            _ if it.rewrite.is_none() => true,
            Rewrites::None => false,
            Rewrites::Flagged => it.rewrite() != ShortcutRewrite::Next,
            Rewrites::All => true,
        }
    }

    /// nginx limits methods after it has rewritten: what follows a rewrite is not reached here.
    fn may_limit_methods(&self) -> bool {
        !self.is_auth && !self.shortcuts.shortcuts.iter().any(|it| it.rewrite.is_some())
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
fn answers(node: &Node<'_>, worlds: &Worlds, room: &mut Allowance) -> Option<Vec<Shortcut>> {
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
        // The values that headers have in the end may be others, unless it ends here.
        if end.is_none() && (!sets.is_empty() || worlds.concern(headers.iter().copied())) {
            return None;
        }
        let world = world.behind(&sets);
        let end = end.map(|it| filled(it, &world)).map_or(Some(None), |it| it.map(Some))?;
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
fn filled(directive: &Directive, world: &World) -> Option<Directive> {
    let at = match directive.name() {
        "rewrite" => 1,
        _ => directive.arguments().len().checked_sub(1)?,
    };
    let text = world.filled(directive.arguments().get(at)?)?;
    // Without a status, nginx decides by the text as it stands whether it is a redirect.
    let says_status = matches!(directive.arguments(), [_, _, flag] if ["redirect", "permanent"].contains(&flag.as_str()))
        || directive.name() == "return" && at == 1;
    let is_same = || is_url(&text) == is_url(&directive.arguments()[at]);
    (says_status || is_same()).then(|| directive.with_argument(at, text))
}

/// `location [= | ~ | ~* | ^~] PATH { .. }`, and whether anything in it answers.
fn block(node: &Node<'_>, room: &mut Allowance) -> Option<(ShortcutBlock, bool)> {
    let (kind, path) = match node.directive.arguments() {
        [path] if !path.starts_with(['@', '=', '~', '^']) => (ShortcutPath::Prefix, path),
        [sign, path] => (kind(sign)?, path),
        _ => return None,
    };
    let is_pattern = matches!(kind, ShortcutPath::Pattern | ShortcutPath::PatternAnyCase);
    let is_fine = match kind {
        ShortcutPath::Pattern => room.compile(|| Pattern::anywhere(path)).is_ok(),
        ShortcutPath::PatternAnyCase => room.compile(|| Pattern::anywhere_in_any_case(path)).is_ok(),
        _ => path.starts_with('/'),
    };
    if !is_fine {
        return None;
    }
    let (mut shortcuts, mut headers) = (Vec::new(), Vec::new());
    let (mut is_open, mut is_refusal, mut knows_no_types) = (None, false, false);
    let mut default_type = None;
    for it in nodes(node.inner) {
        match (it.directive.name(), it.directive.arguments()) {
            // The first match is used, and these match all clients.
            (access @ ("allow" | "deny"), [all]) if all == "all" => {
                _ = is_open.get_or_insert(access == "allow")
            }
            ("default_type", [configured]) => default_type = Some(configured.clone()),
            // Then no file extension determines the type.
            ("types", []) if it.directive.is_block && it.inner.is_empty() => knows_no_types = true,
            (name, _) if CHANGES_ANSWERS.contains(&name) && is_supported(it.directive, is_pattern) => {
                headers.push(it.directive);
            }
            (name, _) if LOGS.contains(&name) || name == "internal" => {}
            (name, configured) if !it.directive.is_block && is_idle(name, configured) => is_refusal = true,
            _ => shortcuts.push(in_block(answer(&it, is_pattern, room)?, &shortcuts)?),
        }
    }
    let responds = |it: &Shortcut| !goes_on(it) && it.status < 400;
    let has_answers = !shortcuts.is_empty();
    let is_internal = node.inner.iter().any(|it| it.name() == "internal");
    if is_internal && !shortcuts.is_empty() || is_refusal && shortcuts.iter().any(responds) {
        return None;
    }
    if is_open == Some(false) && !is_internal {
        // nginx checks access after all of these, but `internal` (404) before that.
        shortcuts.push(in_block(Shortcut { status: 403, ..Shortcut::default() }, &shortcuts)?);
    } else if !shortcuts.last().is_some_and(answers_all)
        && headers.iter().any(|it| branches::shows_on_errors(it))
        && !shortcuts.iter().any(|it: &Shortcut| it.rewrite() == ShortcutRewrite::Next)
    {
        // Where none of these answers, nginx looks for a file and finds none.
        shortcuts.push(Shortcut { status: 404, ..Shortcut::default() });
    }
    let media_type = if knows_no_types { default_type.take() } else { None };
    for it in &mut shortcuts {
        let mut around = Shortcut { text: it.text.clone(), ..Shortcut::default() };
        if !branches::put(headers.iter().copied(), is_pattern, &mut around) {
            return None;
        }
        it.media_type = it.media_type.take().or(around.media_type);
        branches::inherit(it, &around.header_changes.unwrap_or_default().changes);
        media_type.iter().for_each(|configured| set_type(it, configured, |it| &mut it.media_type));
        default_type.iter().for_each(|configured| set_type(it, configured, |it| &mut it.default_type));
    }
    let answers = has_answers || is_open == Some(false);
    Some((ShortcutBlock { kind: Some(kind.into()), path: path.clone(), shortcuts }, answers))
}

/// Whether no request gets past it.
fn answers_all(it: &Shortcut) -> bool {
    !goes_on(it) && it.tests.is_empty() && it.pattern.is_none()
}

/// Whether a directive about headers can be exactly what it is.
fn is_supported(directive: &Directive, has_groups: bool) -> bool {
    Headers::of_answers(std::iter::once(directive), has_groups).is_some()
}

/// A response or a rewrite as one of a block, in which it follows these. Where a `break` would stay, nginx looks for a
/// file and finds none. What would answer behind a rewrite without a flag is not followed.
fn in_block(it: Shortcut, before: &[Shortcut]) -> Option<Shortcut> {
    let is_behind = before.iter().any(|it| it.rewrite() == ShortcutRewrite::Next);
    let it = match it.rewrite() {
        ShortcutRewrite::Break => Shortcut { status: 404, text: None, rewrite: None, ..it },
        _ => it,
    };
    (it.rewrite.is_some() || !is_behind).then_some(it)
}

/// Whether a directive of a block does not matter if the block denies: it only affects successful responses, or a
/// backend that is never reached, since nothing in the block names one.
fn is_idle(name: &str, arguments: &[String]) -> bool {
    match name {
        "add_header" => arguments.len() == 2,
        "proxy_pass" => false,
        name => name.starts_with("proxy_") || IDLE.contains(&name),
    }
}

/// The others, apart from those about backends.
const IDLE: [&str; 7] = [
    "client_body_buffer_size",
    "client_body_timeout",
    "client_max_body_size",
    "etag",
    "expires",
    "send_timeout",
    "tcp_nodelay",
];

/// A text has the innermost type that is set.
fn set_type(to: &mut Shortcut, configured: &str, field: fn(&mut Shortcut) -> &mut Option<String>) {
    let is_text = to.text.is_some() && configured.chars().all(|c| (' '..='~').contains(&c));
    let to = field(to);
    if is_text && to.is_none() {
        *to = Some(configured.to_owned());
    }
}

fn kind(sign: &str) -> Option<ShortcutPath> {
    Some(match sign {
        "=" => ShortcutPath::Exact,
        "^~" => ShortcutPath::Firm,
        "~" => ShortcutPath::Pattern,
        "~*" => ShortcutPath::PatternAnyCase,
        _ => return None,
    })
}

/// `return CODE;`, `return CODE TEXT;`, `return URL;`.
fn returned(arguments: &[String], has_groups: bool) -> Option<Shortcut> {
    let (status, text) = match arguments {
        [url] if is_url(url) => (302, Some(url)),
        [code] => (status(code)?, None),
        [code, text] => (status(code)?, Some(text)),
        _ => return None,
    };
    let leads = is_redirect(status);
    let is_fine = match text {
        Some(text) => has_values(text, has_groups) && (!leads || is_place(text)),
        None => !leads,
    };
    is_fine.then(|| Shortcut { status, text: text.cloned(), ..Shortcut::default() })
}

/// Whether it sends no response.
fn goes_on(shortcut: &Shortcut) -> bool {
    shortcut.rewrite.is_some() || shortcut.only_headers == Some(true)
}

/// `rewrite PATTERN TEXT [redirect | permanent | last | break];`.
fn rewritten(arguments: &[String], room: &mut Allowance) -> Option<Shortcut> {
    let (pattern, text, flag) = match arguments {
        [pattern, text] => (pattern, text, ""),
        [pattern, text, flag] => (pattern, text, flag.as_str()),
        _ => return None,
    };
    let (status, rewrite) = match flag {
        "permanent" => (301, None),
        "redirect" => (302, None),
        _ if is_url(text) => (302, None),
        "last" => (0, Some(ShortcutRewrite::Last)),
        "break" => (0, Some(ShortcutRewrite::Break)),
        "" => (0, Some(ShortcutRewrite::Next)),
        _ => return None,
    };
    let mut is_pattern = || room.compile(|| Pattern::anywhere(pattern)).is_ok();
    let is_text = is_place(text) && (rewrite.is_none() || is_target(text));
    let is_fine = has_values(text, true) && is_text && is_pattern();
    is_fine.then(|| Shortcut {
        status,
        text: Some(text.clone()),
        pattern: Some(pattern.clone()),
        rewrite: rewrite.map(Into::into),
        ..Shortcut::default()
    })
}

/// Whether a text is a path, with at most one query: behind a second `?` nginx takes the first one for a part of the
/// path. A `?` at its end only drops the query of the request.
fn is_target(text: &str) -> bool {
    let text = text.strip_suffix('?').unwrap_or(text);
    ["/", "$1", "$uri"].iter().any(|start| text.starts_with(start)) && text.matches('?').count() <= 1
}

/// `if ($variable)`, `if ($variable OPERATOR VALUE)`.
pub(super) struct Condition<'a> {
    /// One variable.
    pub(super) subject: &'a str,
    pub(super) comparison: ShortcutComparison,
    pub(super) value: &'a str,
}

impl<'a> Condition<'a> {
    /// That of an `if`; `None`: it is not about a variable.
    pub(super) fn of(directive: &'a Directive) -> Option<Self> {
        let mut words: Vec<&str> = directive.arguments().iter().map(String::as_str).collect();
        let first = words.first_mut()?;
        *first = first.strip_prefix('(')?;
        let last = words.last_mut()?;
        *last = last.strip_suffix(')')?;
        if words.first()?.is_empty() {
            words.remove(0);
        }
        if words.last()?.is_empty() {
            words.pop();
        }
        let (subject, comparison, value) = match words[..] {
            [subject] => (subject, ShortcutComparison::IsSet, ""),
            [subject, sign, value] => (subject, comparison(sign)?, value),
            _ => return None,
        };
        is_one_variable(subject).then_some(Self { subject, comparison, value })
    }

    /// As a test of a request, if it is supported as one.
    pub(super) fn test(&self, room: &mut Allowance) -> Option<ShortcutTest> {
        let Self { subject, comparison, value } = *self;
        let is_fine =
            is_one_variable(subject) && has_values(subject, false) && can_compare(comparison, value, room);
        is_fine.then(|| ShortcutTest {
            subject: subject.into(),
            comparison: Some(comparison.into()),
            value: value.into(),
        })
    }
}

fn is_one_variable(subject: &str) -> bool {
    subject.starts_with('$') && Template::parse(subject).parts().len() == 1
}

/// Whether a test captures groups.
fn finds(test: &ShortcutTest) -> bool {
    matches!(test.comparison(), ShortcutComparison::Finds | ShortcutComparison::FindsAnyCase)
}

fn can_compare(comparison: ShortcutComparison, value: &str, room: &mut Allowance) -> bool {
    use ShortcutComparison::{Finds, FindsAnyCase, Lacks, LacksAnyCase};
    match comparison {
        Finds | Lacks => room.compile(|| Pattern::anywhere(value)).is_ok(),
        FindsAnyCase | LacksAnyCase => room.compile(|| Pattern::anywhere_in_any_case(value)).is_ok(),
        // A value with a variable is not supported: it would be compared as plain text here.
        _ => Template::parse(value).as_literal().is_some(),
    }
}

fn comparison(sign: &str) -> Option<ShortcutComparison> {
    Some(match sign {
        "=" => ShortcutComparison::Equals,
        "!=" => ShortcutComparison::Differs,
        "~" => ShortcutComparison::Finds,
        "~*" => ShortcutComparison::FindsAnyCase,
        "!~" => ShortcutComparison::Lacks,
        "!~*" => ShortcutComparison::LacksAnyCase,
        _ => return None,
    })
}

fn status(code: &str) -> Option<u32> {
    code.parse().ok().filter(|status| (200..=599).contains(status))
}

fn is_redirect(status: u32) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// Whether nginx redirects there, whatever else a directive says.
fn is_url(text: &str) -> bool {
    ["http://", "https://", "$scheme"].iter().any(|start| text.starts_with(start))
}

/// Whether a text may be the value of `Location`.
fn is_place(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| ('!'..='~').contains(&c))
}

/// Whether all its variables have a value before a location is chosen, and there are not too many.
pub(super) fn has_values(text: &str, has_groups: bool) -> bool {
    let has_value = |variable: &Variable| match variable {
        Variable::Capture(_) => has_groups,
        Variable::Named(_) | Variable::User => false,
        // These depend on the location and its backend.
        Variable::Namespace
        | Variable::Ingress
        | Variable::Service
        | Variable::ServicePort
        | Variable::LocationPath
        | Variable::UpstreamName => false,
        _ => true,
    };
    let template = Template::parse(text);
    template.is_moderate() && template.variables().all(has_value)
}

/// Whether requests can be counted by a text: all its variables have a value in a location. A user is who a request says.
pub(super) fn counts_by(text: &str) -> bool {
    let has_value = |it: &Variable| !matches!(it, Variable::Capture(_) | Variable::Named(_));
    let template = Template::parse(text);
    template.is_moderate() && template.variables().all(has_value)
}

#[cfg(test)]
mod tests;
