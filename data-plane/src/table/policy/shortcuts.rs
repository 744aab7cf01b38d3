//! Snippet directives that respond at once, before anything else of a host or location is evaluated, or change the
//! path first (docs/adr/034-shortcuts.md).

use std::sync::Arc;

use bytes::Bytes;
use shared::pattern::{Exhausted, Groups, Pattern, PatternError, Steps};
use shared::policy::{self, ShortcutComparison, ShortcutPath, ShortcutRewrite};
use shared::template::{Template, Variable};

use super::PolicyError;
use super::response_headers::OwnHeaders;
use crate::codec::path;

/// Maximum number of bytes of an expanded comparison.
const MOST: usize = 64 << 10;

/// Direct responses, in order, and blocks of them.
#[derive(Clone, Debug)]
pub struct Shortcuts {
    /// Outside of any block.
    pub plain: Box<[Shortcut]>,
    blocks: Box<[Block]>,
    /// Whether some of them rewrite the path.
    pub rewrites: bool,
    /// Whether some of them may choose another location, if they are a location's.
    pub moves: bool,
    /// Whether some in blocks do.
    pub blocks_move: bool,
}

/// One direct response.
#[derive(Clone, Debug)]
pub struct Shortcut {
    /// All must hold.
    pub tests: Box<[Test]>,
    /// Must match the path; the redirect target, or the rewritten path, is built from the match.
    pub pattern: Option<Pattern>,
    /// It sends no response: the request goes on with another path.
    pub rewrite: Option<Rewrite>,
    /// Its status.
    pub status: u16,
    /// The redirect target, or the body.
    pub text: Option<Template>,
    /// The media type of the body.
    pub media_type: Option<Bytes>,
    /// The default media type, if the path's extension determines none.
    pub default_type: Option<Bytes>,
    /// What it says of headers, if anything.
    pub headers: Option<Arc<OwnHeaders>>,
    /// It only says that: the request goes on.
    pub only_headers: bool,
}

impl Shortcut {
    /// Compiles one.
    ///
    /// # Errors
    /// It is not supported.
    pub fn compile(configured: &policy::Shortcut) -> Result<Self, PolicyError> {
        shortcut(configured)
    }
}

/// A change of the path.
#[derive(Clone, Debug)]
pub struct Rewrite {
    /// The path, not encoded.
    pub path: Template,
    /// The query in front of that of the request.
    pub query: Option<Template>,
    /// Whether the query of the request stays.
    pub keeps_query: bool,
    /// Where the request goes on.
    pub then: Then,
}

/// What follows a rewrite.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// The location, and nothing else of its rewrite phase (`break`).
    Stays,
    /// Another location (`last`).
    Moves,
    /// The next directive. Behind the last one of a location, or of a block, another location.
    GoesOn,
}

/// A condition.
#[derive(Clone, Debug)]
pub struct Test {
    /// The value that is tested.
    pub subject: Template,
    /// What it is compared with.
    pub comparison: Comparison,
}

/// A comparison, compiled.
#[derive(Clone, Debug)]
pub enum Comparison {
    /// Neither empty nor `0`.
    IsSet,
    /// Equality or inequality of texts.
    Text {
        /// The text to compare with.
        value: Box<str>,
        /// Whether it holds if they are equal.
        same: bool,
    },
    /// A pattern that must, or must not, match.
    Pattern {
        /// The pattern.
        pattern: Pattern,
        /// Whether it holds if the pattern matches.
        found: bool,
    },
}

/// The direct responses for some paths.
#[derive(Clone, Debug)]
pub struct Block {
    fits: Fits,
    /// Whether it refuses requests.
    keeps_out: bool,
    /// In order.
    pub shortcuts: Box<[Shortcut]>,
}

#[derive(Clone, Debug)]
enum Fits {
    Exact(Box<str>),
    Prefix { path: Box<str>, is_firm: bool },
    Pattern(Pattern),
}

impl Shortcuts {
    /// Compiles the policy; `None` if it is empty.
    ///
    /// # Errors
    /// It is not supported.
    pub fn compile(configured: Option<&policy::Shortcuts>) -> Result<Option<Self>, PolicyError> {
        let Some(configured) = configured else {
            return Ok(None);
        };
        let plain = configured.shortcuts.iter().map(shortcut).collect::<Result<_, _>>()?;
        let blocks = configured.blocks.iter().map(block).collect::<Result<_, _>>()?;
        Ok(Some(Self::of(plain, blocks)))
    }

    fn of(plain: Box<[Shortcut]>, blocks: Box<[Block]>) -> Self {
        let rewrites = plain.iter().any(|it| it.rewrite.is_some());
        let blocks_move = blocks.iter().any(|it| moves(&it.shortcuts));
        Self { rewrites, moves: blocks_move || moves(&plain), blocks_move, plain, blocks }
    }

    /// These, and then those of the fleet.
    pub fn joined(own: Option<Self>, fleets: Option<&Self>) -> Option<Self> {
        let Some((own, fleets)) = own.as_ref().zip(fleets) else {
            return own.or_else(|| fleets.cloned());
        };
        let plain = own.plain.iter().chain(&fleets.plain).cloned().collect();
        Some(Self::of(plain, own.blocks.iter().chain(&fleets.blocks).cloned().collect()))
    }

    /// The block for a path, and what its pattern captured (in nginx' order of locations). `declared`: the path of the
    /// location that the request would otherwise get. `in_patterns`: all locations of the host are patterns, so that no
    /// prefix is longer than one of a block.
    ///
    /// # Errors
    /// Could not be determined within `steps`.
    pub fn block(
        &self,
        path: &[u8],
        declared: &str,
        in_patterns: bool,
        steps: &Steps,
    ) -> Result<Option<(&Block, Groups)>, Exhausted> {
        let exact = |block: &&Block| matches!(&block.fits, Fits::Exact(exact) if exact.as_bytes() == path);
        if let Some(block) = self.blocks.iter().find(exact) {
            return Ok(Some((block, Groups::default())));
        }
        let least = taken(declared);
        let longest = self.longest_prefix(path);
        let takes = |block: &Block, length: usize| match block.keeps_out {
            // nginx refuses two locations of one name; here, what is to be shut stays shut.
            true => length >= least,
            false => length > least,
        };
        if let Some((block, length, true)) = longest
            && (in_patterns || takes(block, length))
        {
            return Ok(Some((block, Groups::default())));
        }
        let longest = longest.filter(|(block, length, _)| takes(block, *length));
        for block in &self.blocks {
            if let Fits::Pattern(pattern) = &block.fits
                && let Some(groups) = found(pattern, path, steps)?
            {
                return Ok(Some((block, groups)));
            }
        }
        // Among patterns nginx asks no other prefix. One that refuses is asked here, so that what was to be shut stays shut.
        let longest = longest.filter(|(block, ..)| !in_patterns || block.keeps_out);
        Ok(longest.map(|(block, ..)| (block, Groups::default())))
    }

    /// The block with the longest prefix of a path; of two with the same, one that refuses. With its length, and whether
    /// patterns are not asked after it.
    fn longest_prefix(&self, path: &[u8]) -> Option<(&Block, usize, bool)> {
        let prefixes = self.blocks.iter().filter_map(|block| match &block.fits {
            Fits::Prefix { path: prefix, is_firm } if path.starts_with(prefix.as_bytes()) => {
                Some((block, prefix.len(), *is_firm))
            }
            _ => None,
        });
        let rank = |it: &(&Block, usize, bool)| (it.1, it.0.keeps_out);
        prefixes.reduce(|longest, it| if rank(&it) > rank(&longest) { it } else { longest })
    }
}

impl Shortcuts {
    /// The conditions outside of blocks that depend on the path: for each, in order, whether it holds.
    ///
    /// # Errors
    /// Could not be determined within `steps`.
    pub fn asked(&self, path: &[u8], query: Option<&[u8]>, steps: &Steps) -> Result<Box<[bool]>, Exhausted> {
        let target = [path, if query.is_some() { b"?" } else { b"" }, query.unwrap_or_default()].concat();
        // Headers are those of whatever reading is served.
        let decisive = self.plain.iter().filter(|it| !it.only_headers);
        let holds = decisive.filter_map(|it| it.holds_of(path, &target, steps).transpose());
        holds.collect()
    }
}

impl Shortcut {
    /// Whether it refuses requests, rather than redirect them.
    pub fn keeps_out(&self) -> bool {
        self.status >= 400
    }

    /// Whether it depends on the raw target, which backends may interpret differently.
    pub fn asks_target(&self) -> bool {
        self.tests.iter().any(|test| test.subject.variables().any(is_target))
    }

    /// Whether all its conditions on the path hold for this one; `None`: it has none.
    fn holds_of(&self, path: &[u8], target: &[u8], steps: &Steps) -> Result<Option<bool>, Exhausted> {
        let mut all = None;
        for test in &self.tests {
            if test.subject.variables().any(|it| *it == Variable::Uri || is_target(it)) {
                let text = filled(&test.subject, target, |variable, out| {
                    if *variable == Variable::Uri {
                        out.extend_from_slice(path);
                    }
                })?;
                all = Some(all.unwrap_or(true) && test.comparison.holds(&text, steps)?.0);
            }
        }
        if let Some(pattern) = &self.pattern {
            all = Some(all.unwrap_or(true) && found(pattern, path, steps)?.is_some());
        }
        Ok(all)
    }
}

fn is_target(variable: &Variable) -> bool {
    matches!(variable, Variable::RequestUri | Variable::EscapedRequestUri)
}

/// The value to compare, for a request with this target; `value` appends the values of other variables.
///
/// # Errors
/// The value is too long.
pub fn filled(
    subject: &Template,
    target: &[u8],
    mut value: impl FnMut(&Variable, &mut Vec<u8>),
) -> Result<Vec<u8>, Exhausted> {
    let mut text = Vec::new();
    let filled = subject.fill(&mut text, MOST, |variable, out| match variable {
        Variable::RequestUri => out.extend_from_slice(target),
        Variable::EscapedRequestUri => path::escape(target, out),
        variable => value(variable, out),
    });
    filled.map(|()| text).map_err(|_| Exhausted)
}

impl Comparison {
    /// Whether it holds for a text, and what its pattern captured.
    ///
    /// # Errors
    /// Could not be determined within `steps`.
    pub fn holds(&self, text: &[u8], steps: &Steps) -> Result<(bool, Option<Groups>), Exhausted> {
        Ok(match self {
            Self::IsSet => (!text.is_empty() && text != b"0", None),
            Self::Text { value, same } => ((text == value.as_bytes()) == *same, None),
            Self::Pattern { pattern, found: wanted } => {
                let groups = found(pattern, text, steps)?;
                (groups.is_some() == *wanted, groups)
            }
        })
    }
}

/// What a pattern captures. In PCRE `$` also matches before a final line break, so that a client cannot bypass a rule
/// by appending one.
///
/// # Errors
/// Could not be determined within `steps`.
pub fn found(pattern: &Pattern, text: &[u8], steps: &Steps) -> Result<Option<Groups>, Exhausted> {
    match (pattern.groups(text, steps)?, text.strip_suffix(b"\n")) {
        (None, Some(line)) => pattern.groups(line, steps),
        (found, _) => Ok(found),
    }
}

/// The length of the prefix that a declared path occupies: nginx has a location for what is below it, with a trailing
/// slash. A regular expression occupies none, because it has no length to compare prefixes with.
fn taken(declared: &str) -> usize {
    if declared.contains(|c: char| "\\^$|?*+()[]{}".contains(c)) {
        return 0;
    }
    let bare = declared.trim_end_matches('/');
    if declared.is_empty() { 0 } else { bare.len() + 1 }
}

fn block(configured: &policy::ShortcutBlock) -> Result<Block, PolicyError> {
    let path = configured.path.as_str();
    let fits = match configured.kind() {
        ShortcutPath::Exact => Fits::Exact(path.into()),
        ShortcutPath::Prefix => Fits::Prefix { path: path.into(), is_firm: false },
        ShortcutPath::Firm => Fits::Prefix { path: path.into(), is_firm: true },
        ShortcutPath::Pattern => Fits::Pattern(Pattern::anywhere(path).map_err(no_pattern)?),
        ShortcutPath::PatternAnyCase => {
            Fits::Pattern(Pattern::anywhere_in_any_case(path).map_err(no_pattern)?)
        }
        ShortcutPath::Unspecified => return Err(refused("a block without a kind".into())),
    };
    let shortcuts: Box<[_]> = configured.shortcuts.iter().map(shortcut).collect::<Result<_, _>>()?;
    // What a rewrite would stay for is a file, of which there is none; and nothing answers for a path that has changed.
    let mut behind = shortcuts.iter().skip_while(|it| then(it) != Some(Then::GoesOn));
    let responds = |it: &Shortcut| it.rewrite.is_none() && !it.only_headers;
    if shortcuts.iter().any(|it| then(it) == Some(Then::Stays)) || behind.any(responds) {
        return Err(refused(
            "expected responses in a block, and rewrites that choose a location behind them".into(),
        ));
    }
    let keeps_out = shortcuts.iter().any(Shortcut::keeps_out);
    Ok(Block { fits, keeps_out, shortcuts })
}

fn shortcut(configured: &policy::Shortcut) -> Result<Shortcut, PolicyError> {
    let rewrite = rewrite(configured)?;
    let status = u16::try_from(configured.status).ok();
    let only_headers = configured.only_headers == Some(true);
    if only_headers && (rewrite.is_some() || configured.text.is_some() || configured.pattern.is_some()) {
        return Err(refused("expected only headers, got a response or a rewrite".into()));
    }
    let goes_on = rewrite.is_some() || only_headers;
    let status = status.filter(|status| if *status == 0 { goes_on } else { (200..=599).contains(status) });
    if only_headers && status != Some(0) {
        return Err(refused(format!("expected no status beside only headers, got {}", configured.status)));
    }
    let status = status
        .ok_or_else(|| refused(format!("expected a status of 200 to 599, got {}", configured.status)))?;
    let text = configured.text.as_deref().filter(|_| rewrite.is_none());
    Ok(Shortcut {
        tests: configured.tests.iter().map(test).collect::<Result<_, _>>()?,
        pattern: configured.pattern.as_deref().map(Pattern::anywhere).transpose().map_err(no_pattern)?,
        rewrite,
        status,
        text: text.map(Template::parse),
        media_type: configured.media_type.clone().map(Bytes::from),
        default_type: configured.default_type.clone().map(Bytes::from),
        headers: match &configured.header_changes {
            None => None,
            list => Some(Arc::new(OwnHeaders::compile(list.as_ref())?)),
        },
        only_headers,
    })
}

fn then(shortcut: &Shortcut) -> Option<Then> {
    shortcut.rewrite.as_ref().map(|it| it.then)
}

fn moves(shortcuts: &[Shortcut]) -> bool {
    shortcuts.iter().filter_map(then).any(|then| then != Then::Stays)
}

fn rewrite(configured: &policy::Shortcut) -> Result<Option<Rewrite>, PolicyError> {
    if configured.rewrite.is_none() {
        return Ok(None);
    }
    let then = match configured.rewrite() {
        ShortcutRewrite::Last => Then::Moves,
        ShortcutRewrite::Break => Then::Stays,
        ShortcutRewrite::Next => Then::GoesOn,
        ShortcutRewrite::Unspecified => return Err(refused("a rewrite of no kind".into())),
    };
    let (Some(text), Some(_), 0) = (&configured.text, &configured.pattern, configured.status) else {
        return Err(refused("expected a pattern, a text and no status in a rewrite".into()));
    };
    let (text, keeps_query) = text.strip_suffix('?').map_or((&**text, true), |text| (text, false));
    let (path, query) = text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)));
    if query.is_some_and(|query| query.contains('?')) {
        return Err(refused(format!("expected one query, got {text:?}")));
    }
    let (path, query) = (Template::parse(path), query.map(Template::parse));
    Ok(Some(Rewrite { path, query, keeps_query, then }))
}

pub(super) fn test(configured: &policy::ShortcutTest) -> Result<Test, PolicyError> {
    use ShortcutComparison::{Differs, Equals, Finds, FindsAnyCase, IsSet, Lacks, LacksAnyCase, Unspecified};
    let value = configured.value.as_str();
    let comparison = match configured.comparison() {
        IsSet => Comparison::IsSet,
        it @ (Equals | Differs) => Comparison::Text { value: value.into(), same: it == Equals },
        it @ (Finds | Lacks) => {
            Comparison::Pattern { pattern: Pattern::anywhere(value).map_err(no_pattern)?, found: it == Finds }
        }
        it @ (FindsAnyCase | LacksAnyCase) => Comparison::Pattern {
            pattern: Pattern::anywhere_in_any_case(value).map_err(no_pattern)?,
            found: it == FindsAnyCase,
        },
        Unspecified => return Err(refused("a test without a comparison".into())),
    };
    Ok(Test { subject: Template::parse(&configured.subject), comparison })
}

#[expect(clippy::needless_pass_by_value, reason = "as map_err has it")]
fn no_pattern(error: PatternError) -> PolicyError {
    refused(error.to_string())
}

fn refused(problem: String) -> PolicyError {
    PolicyError { field: "shortcuts", problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shortcuts(blocks: &[(ShortcutPath, &str)]) -> Shortcuts {
        let blocks = blocks.iter().enumerate().map(|(number, (kind, path))| policy::ShortcutBlock {
            kind: Some((*kind).into()),
            path: (*path).into(),
            shortcuts: vec![policy::Shortcut { status: 400 + number as u32, ..Default::default() }],
        });
        let configured = policy::Shortcuts { shortcuts: Vec::new(), blocks: blocks.collect() };
        Shortcuts::compile(Some(&configured)).unwrap().unwrap()
    }

    fn status(shortcuts: &Shortcuts, path: &str, declared: &str) -> Option<u16> {
        status_in(false, shortcuts, path, declared)
    }

    fn status_in(in_patterns: bool, shortcuts: &Shortcuts, path: &str, declared: &str) -> Option<u16> {
        let found = shortcuts.block(path.as_bytes(), declared, in_patterns, &Steps::new()).unwrap();
        found.map(|(block, _)| block.shortcuts[0].status)
    }

    #[test]
    fn blocks_are_chosen_as_nginx_chooses_locations() {
        use ShortcutPath::{Exact, Firm, Pattern, PatternAnyCase, Prefix};
        let all = shortcuts(&[
            (Prefix, "/a"),
            (Prefix, "/a/b"),
            (Firm, "/firm/"),
            (Pattern, "^/(A|a)/x"),
            (PatternAnyCase, r"\.bak$"),
            (Exact, "/a/b/exact.bak"),
        ]);
        for (path, expected) in [
            ("/", None),
            ("/a", Some(400)),
            ("/a/b/c", Some(401)),
            ("/firm/old.bak", Some(402)),
            ("/a/x", Some(403)),
            ("/a/b/old.BAK", Some(404)),
            ("/a/b/exact.bak", Some(405)),
            ("/other.bak", Some(404)),
            ("/other.bak\n", Some(404)),
            ("/other.bak\n\n", None),
        ] {
            assert_eq!(status(&all, path, "/"), expected, "{path}");
        }
    }

    #[test]
    fn a_prefix_takes_no_requests_of_a_longer_path() {
        let shortcuts = shortcuts(&[(ShortcutPath::Prefix, "/api"), (ShortcutPath::Prefix, "/api/admin")]);
        for (path, declared, expected) in [
            ("/api/x", "/api/x", None),
            ("/api/x", "/api", None),
            ("/api", "/api", None),
            ("/api/admin/y", "/api", Some(401)),
            ("/api/admin/y", "/api/admin/", None),
            ("/api/x", "/", Some(400)),
            ("/api/x", "/api(/|$)(.*)", Some(400)),
            ("/api/x", "", Some(400)),
        ] {
            assert_eq!(status(&shortcuts, path, declared), expected, "{path} of {declared}");
        }
    }

    /// Where all locations are patterns, the longest prefix is a block's, and a firm one ends the search.
    #[test]
    fn among_patterns_a_firm_prefix_takes_requests_of_longer_paths() {
        use ShortcutPath::{Firm, Prefix};
        let all = shortcuts(&[(Firm, "/foo/"), (Prefix, "/foo/soft/"), (Firm, "/foo/soft/firm/")]);
        for (path, declared, in_texts, in_patterns) in [
            ("/foo/bar", "/foo/bar", None, Some(400)),
            ("/foo/bar/x", "/foo/bar", None, Some(400)),
            ("/foo/x", "/", Some(400), Some(400)),
            ("/foo/soft/x", "/foo/soft/x", None, None),
            ("/foo/soft/x", "/", Some(401), Some(401)),
            ("/foo/soft/firm/x", "/foo/soft/firm/x", None, Some(402)),
            ("/fo", "/", None, None),
        ] {
            assert_eq!(status_in(false, &all, path, declared), in_texts, "{path} of {declared}");
            assert_eq!(status_in(true, &all, path, declared), in_patterns, "{path} of {declared}");
        }
    }

    /// nginx does not start with such a configuration.
    #[test]
    fn of_two_locations_of_one_name_the_one_counts_that_refuses() {
        let refuses = shortcuts(&[(ShortcutPath::Prefix, "/admin/")]);
        let answer = policy::ShortcutBlock {
            kind: Some(ShortcutPath::Prefix.into()),
            path: "/admin/".into(),
            shortcuts: vec![policy::Shortcut { status: 200, ..Default::default() }],
        };
        let configured = policy::Shortcuts { shortcuts: Vec::new(), blocks: vec![answer] };
        let answers = Shortcuts::compile(Some(&configured)).unwrap().unwrap();
        for declared in ["/admin", "/admin/"] {
            assert_eq!(status(&refuses, "/admin/x", declared), Some(400), "{declared}");
            assert_eq!(status(&answers, "/admin/x", declared), None, "{declared}");
        }
        assert_eq!(status(&answers, "/admin/x", "/"), Some(200));
        assert_eq!(status_in(true, &answers, "/admin/x", "/"), None, "the pattern of / comes first");
        assert_eq!(status_in(true, &refuses, "/admin/x", "/"), Some(400));
        assert_eq!(status(&refuses, "/admin/x", "/admin/x"), None);
        assert_eq!(status(&shortcuts(&[(ShortcutPath::Prefix, "/")]), "/x", "/"), Some(400));
    }

    #[test]
    fn invalid_settings_are_refused() {
        let with = |it: policy::Shortcut| policy::Shortcuts { shortcuts: vec![it], blocks: Vec::new() };
        let test = policy::ShortcutTest { subject: "$host".into(), ..Default::default() };
        let rewrite = |kind, text: &str| policy::Shortcut {
            pattern: Some("^/a".into()),
            text: Some(text.into()),
            rewrite: Some(kind),
            ..Default::default()
        };
        let in_block = |shortcuts| policy::Shortcuts {
            shortcuts: Vec::new(),
            blocks: vec![policy::ShortcutBlock {
                kind: Some(ShortcutPath::Exact.into()),
                path: "/a".into(),
                shortcuts,
            }],
        };
        for configured in [
            with(policy::Shortcut::default()),
            with(policy::Shortcut { status: 600, ..Default::default() }),
            with(policy::Shortcut { status: 302, pattern: Some("(".into()), ..Default::default() }),
            with(policy::Shortcut { status: 403, tests: vec![test], ..Default::default() }),
            with(rewrite(7, "/b")),
            with(rewrite(1, "/b?c?d")),
            with(policy::Shortcut { status: 200, ..rewrite(1, "/b") }),
            with(policy::Shortcut { status: 200, only_headers: Some(true), ..Default::default() }),
            with(policy::Shortcut { only_headers: Some(true), ..rewrite(1, "/b") }),
            with(policy::Shortcut { pattern: None, ..rewrite(1, "/b") }),
            with(policy::Shortcut { text: None, ..rewrite(2, "/b") }),
            in_block(vec![rewrite(1, "/b")]),
            in_block(vec![rewrite(3, "/b"), policy::Shortcut { status: 403, ..Default::default() }]),
            policy::Shortcuts { shortcuts: Vec::new(), blocks: vec![policy::ShortcutBlock::default()] },
        ] {
            assert!(Shortcuts::compile(Some(&configured)).is_err(), "{configured:?}");
        }
        assert!(Shortcuts::compile(None).unwrap().is_none());
        assert!(Shortcuts::compile(Some(&with(rewrite(2, "/b?c")))).is_ok());
        let headers = policy::Shortcut { only_headers: Some(true), ..Default::default() };
        assert!(Shortcuts::compile(Some(&with(headers))).is_ok());
        assert!(Shortcuts::compile(Some(&in_block(vec![rewrite(3, "/b"), rewrite(2, "/c")]))).is_ok());
    }
}
