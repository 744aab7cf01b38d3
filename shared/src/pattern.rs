//! Regular expressions of tenants, with PCRE's meaning as far as they are used with nginx.
//!
//! Most are matched in linear time. Look-around and back-references, which require backtracking, are allowed within a
//! limit of steps; a match that exceeds it is an error and not a mismatch, so that it cannot be used to bypass a rule.
//!
//! Bytes are matched, not characters, as nginx does without UTF mode: the path of a request need not be UTF-8.
//!
//! The control plane compiles a pattern to report its errors, the proxy to match.

mod caches;
mod host;
mod pcre;
mod quick;
mod set;
mod steps;

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use fancy_regex::RegexBuilder as BacktrackingBuilder;
use regex_automata::meta::{BuildError, Cache, Config, Regex};
use regex_automata::nfa::thompson::{self, NFA};
use regex_automata::util::captures::Captures;
use regex_automata::util::syntax;
use regex_automata::{Input, PatternID};
use smallvec::SmallVec;
use thiserror::Error;

use caches::{Caches, Id};
pub use host::HostPattern;
use quick::Quick;
pub use set::Set;
pub use steps::Steps;

/// Maximum length of a pattern in bytes.
pub const LENGTH: usize = 4096;
/// Maximum size of a compiled pattern in bytes; it takes up to four times as much with all acceleration structures.
/// Usual ones take a thousand, and four thousand case-insensitive letters two hundred thousand.
const SIZE: usize = 256 << 10;
/// The same for each part of a pattern with look-around that is matched in linear time.
const PART_SIZE: usize = 64 << 10;
/// Upper bounds for the size of a backtracking program: per byte of its text, and per counted part.
const FOR_OCTET: usize = 128;
const FOR_COUNT: usize = 2 * PART_SIZE;
/// Maximum size of a class with all of Unicode's letters.
const FOR_CLASS: usize = 32 << 10;
/// Limit of the nested repetitions of a part in a pattern that backtracks: the turns of such a loop are not counted as
/// steps.
const MOST_TURNS: usize = 1_000;
/// Memory of a group per state during a match.
const FOR_GROUP: usize = 16;
/// Limits of the steps of a backtracking match: usual ones end within the first, lower limit.
const STEPS: [usize; 2] = [1_000, 100_000];
/// Limit of redundant branches: alternatives that lead to the same state, as in `(|||)`, or many states before the same
/// byte, as in `x????`. Each is visited for each byte, but does not add to the automaton's size.
const MOST_REPEATED: usize = 256;
/// States that are visited in the time of a step, and pairs of bytes that parts of a backtracking match read.
const STATES_A_STEP: usize = 8;
const PAIRS_A_STEP: usize = 128;
/// With more states than this, an automaton checks first whether there is a match at all, and is charged its cost.
const FEW_STATES: usize = 256;
/// Limit of the groups of a pattern: all states carry them along.
const MOST_GROUPS: usize = 100;
/// Maximum size of the automaton that a search builds while it reads, forwards and backwards each; and of those of the
/// parts of a pattern that backtracks, whose caches belong to the library.
const AUTOMATON: usize = 256 << 10;
const PART_AUTOMATON: usize = 16 << 10;
/// Memory of what a thread keeps of all patterns that are searched for one by one.
const KEPT: usize = 4 << 20;
/// Groups that a template can name: `$1` to `$9`, and the whole match.
const GROUPS: usize = 10;

/// Characters with a meaning in regular expressions outside of classes and groups.
const SIGNS: &[u8] = br"\.+*?()|[]{}^$";

/// Whether a text as a regular expression matches only itself.
pub fn is_literal(text: &str) -> bool {
    !text.bytes().any(|byte| SIGNS.contains(&byte))
}

/// Why a text is not a valid pattern.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PatternError {
    /// Longer than [`LENGTH`].
    #[error("a pattern of {length} bytes is longer than {LENGTH}")]
    Long {
        /// Its length.
        length: usize,
    },
    /// Not a regular expression, or one that becomes too large.
    #[error("not a regular expression: {reason}")]
    Invalid {
        /// The reason, in one line.
        reason: String,
    },
    /// Its automaton is too large.
    #[error("its automaton takes more than {most} bytes: smaller are counts, and what begins with `^`")]
    Automaton {
        /// The limit.
        most: usize,
    },
    /// Too many groups.
    #[error("{groups} groups are more than {MOST_GROUPS}")]
    Groups {
        /// Their number.
        groups: usize,
    },
    /// Together with earlier patterns, it exceeds the limit.
    #[error("this one and those before it take more than {most} bytes when compiled")]
    TooMuch {
        /// The limit.
        most: usize,
    },
}

/// Limits the memory of several patterns together: each may be small, but a thousand of them fill a machine.
#[derive(Clone, Debug)]
pub struct Allowance {
    most: usize,
    left: usize,
}

impl Allowance {
    /// A limit in bytes.
    pub fn new(most: usize) -> Self {
        Self { most, left: most }
    }

    /// Compiles a pattern, if anything is left, and deducts its memory.
    ///
    /// # Errors
    /// What is wrong with it, or [`PatternError::TooMuch`]; from then on nothing is compiled.
    pub fn compile(
        &mut self,
        compile: impl FnOnce() -> Result<Pattern, PatternError>,
    ) -> Result<Pattern, PatternError> {
        let too_much = PatternError::TooMuch { most: self.most };
        if self.left == 0 {
            return Err(too_much);
        }
        let pattern = compile()?;
        let left = self.left.checked_sub(pattern.bytes());
        self.left = left.unwrap_or(0);
        left.map(|_| pattern).ok_or(too_much)
    }

    /// Whether the limit was reached.
    pub fn is_spent(&self) -> bool {
        self.left == 0
    }
}

/// A match exceeded its limit of steps: the result is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the pattern takes too long on this text")]
pub struct Exhausted;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub struct Pattern {
    engine: Engine,
}

#[derive(Clone, Debug)]
enum Engine {
    Linear(Arc<Linear>),
    /// With both limits of steps: the steps taken are not reported, so the limit is charged.
    Backtracking(Arc<Backtracking>),
}

/// A pattern that is matched in linear time.
#[derive(Debug)]
struct Linear {
    text: Box<str>,
    regex: Regex,
    id: Id,
    states: usize,
    quick: Option<Quick>,
}

thread_local! {
    static CACHES: RefCell<Caches<Cache>> = RefCell::new(Caches::new(KEPT, Cache::memory_usage));
}

impl Linear {
    fn is_match(&self, text: &[u8]) -> bool {
        let input = Input::new(text).earliest(true);
        self.search(|cache| self.regex.search_half_with(cache, &input).is_some())
    }

    fn captures(&self, text: &[u8]) -> Captures {
        let mut found = self.regex.create_captures();
        self.search(|cache| self.regex.search_captures_with(cache, &Input::new(text), &mut found));
        found
    }

    fn search<T>(&self, search: impl FnOnce(&mut Cache) -> T) -> T {
        caches::search(&CACHES, self.id, || self.regex.create_cache(), search)
    }
}

/// A pattern with look-around or back-references.
#[derive(Clone, Debug)]
struct Backtracking {
    /// With the lower and the upper limit of steps.
    regexes: [fancy_regex::Regex; 2],
    unicode: bool,
    /// How often its linear parts may be read for a step.
    reads: Reads,
}

/// How often a linear part, which is not counted as a step, is started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reads {
    /// At most once for each step.
    Each,
    /// Also for each turn of a repeated group.
    Turns,
    /// Also from each byte on, since atomic groups forget the steps inside: `(?>..)`, `..*+`.
    All,
}

/// The positions of the groups of a match; the whole match first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Groups(SmallVec<[Option<Range<usize>>; GROUPS]>);

impl Groups {
    /// A match without groups, of this length from the beginning.
    pub fn of_beginning(length: usize) -> Self {
        Self(SmallVec::from_iter([Some(0..length)]))
    }

    /// The text that a group matched; empty if it took no part.
    pub fn get<'t>(&self, group: usize, text: &'t [u8]) -> &'t [u8] {
        let range = self.0.get(group).cloned().flatten().unwrap_or_default();
        text.get(range).unwrap_or_default()
    }
}

impl Pattern {
    /// The path of a location in regex mode: matched at the beginning, case-insensitive (ingress-nginx).
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn path(text: &str) -> Result<Self, PatternError> {
        Self::new(&format!("^{text}"), true)
    }

    /// Matched anywhere, case-sensitive.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn anywhere(text: &str) -> Result<Self, PatternError> {
        Self::new(text, false)
    }

    /// Matched anywhere, case-insensitive.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn anywhere_in_any_case(text: &str) -> Result<Self, PatternError> {
        Self::new(text, true)
    }

    fn new(text: &str, any_case: bool) -> Result<Self, PatternError> {
        if text.len() > LENGTH {
            return Err(PatternError::Long { length: text.len() });
        }
        let text = &*pcre::read(text);
        let refused = match linear(text, any_case) {
            Ok(_) if pcre::is_possessive(text) => None,
            Ok((linear, idle)) => {
                few(idle)?;
                bounded(linear.all_groups())?;
                return Ok(linear);
            }
            Err(refused) => Some(refused),
        };
        let latin = latin(text.as_bytes());
        let build = |unicode, steps| {
            BacktrackingBuilder::new(&latin)
                .unicode_mode(unicode)
                .case_insensitive(any_case)
                .backtrack_limit(steps)
                .delegate_size_limit(PART_SIZE)
                .delegate_dfa_size_limit(PART_AUTOMATON)
                .build()
        };
        if turns(text) > MOST_TURNS {
            let reason =
                format!("parts are repeated more than {MOST_TURNS} times beside what looks around or back");
            return Err(PatternError::Invalid { reason });
        }
        // Without Unicode the crate rejects a dot in a part that it matches in linear time. With Unicode, letters of
        // Latin-1 are word characters, too.
        let modes = [false, true].into_iter().filter(|unicode| *unicode || text.is_ascii());
        let mut compiled = modes.filter_map(|unicode| match STEPS.map(|steps| build(unicode, steps)) {
            [Ok(quick), Ok(patient)] => {
                Some(Backtracking { regexes: [quick, patient], unicode, reads: Reads::of(text) })
            }
            _ => None,
        });
        let Some(backtracking) = compiled.next() else {
            let reason = match refused {
                Some(refused) => reason(refused.size_limit(), &refused),
                None => pcre::POSSESSIVE.to_owned(),
            };
            return Err(PatternError::Invalid { reason });
        };
        bounded(backtracking.regexes[0].captures_len())?;
        Ok(Self { engine: Engine::Backtracking(Arc::new(backtracking)) })
    }

    /// Memory that it takes, in bytes: measured if it is linear, else an upper bound. Matching takes more temporarily.
    pub fn bytes(&self) -> usize {
        match &self.engine {
            Engine::Linear(it) => {
                let groups = it.states * it.regex.captures_len() * FOR_GROUP;
                it.text.len() + it.regex.memory_usage() + groups + it.quick.as_ref().map_or(0, Quick::bytes)
            }
            Engine::Backtracking(it) => 2 * it.bytes(),
        }
    }

    fn all_groups(&self) -> usize {
        match &self.engine {
            Engine::Linear(it) => it.regex.captures_len(),
            Engine::Backtracking(it) => it.regexes[0].captures_len(),
        }
    }

    /// The number of the group with this name, in any case (as nginx' variables), if a template could name it.
    pub fn group(&self, name: &str) -> Option<u8> {
        let is_it = |it: Option<&str>| it.is_some_and(|it| it.eq_ignore_ascii_case(name));
        let place = match &self.engine {
            Engine::Linear(it) => {
                it.regex.group_info().pattern_names(PatternID::ZERO).take(GROUPS).position(is_it)
            }
            Engine::Backtracking(it) => it.regexes[0].capture_names().take(GROUPS).position(is_it),
        };
        place.and_then(|place| u8::try_from(place).ok())
    }

    /// The expression, if it is linear; such patterns can be searched for together.
    pub fn linear(&self) -> Option<&str> {
        match &self.engine {
            Engine::Linear(it) => Some(&it.text),
            Engine::Backtracking(_) => None,
        }
    }

    /// Whether it matches in `text`.
    ///
    /// # Errors
    /// [`Exhausted`]: that is not known.
    pub fn is_match(&self, text: &[u8], steps: &Steps) -> Result<bool, Exhausted> {
        match &self.engine {
            Engine::Linear(it) => match &it.quick {
                Some(quick) => Ok(quick.first(text, steps)?.is_some()),
                None => {
                    steps.take(work(it.states, text, 0))?;
                    Ok(it.is_match(text))
                }
            },
            Engine::Backtracking(it) => {
                let latin = latin(text);
                it.patiently(text, steps, |regex| regex.is_match(&latin))
            }
        }
    }

    /// The groups of the first match in `text`.
    ///
    /// # Errors
    /// [`Exhausted`]: that is not known.
    pub fn groups(&self, text: &[u8], steps: &Steps) -> Result<Option<Groups>, Exhausted> {
        match &self.engine {
            Engine::Linear(it) => {
                if let Some(quick) = &it.quick
                    && quick.first(text, steps)?.is_none()
                {
                    return Ok(None);
                }
                steps.take(work(it.states, text, it.regex.captures_len()))?;
                let found = it.captures(text);
                let range = |group: Option<regex_automata::Span>| group.map(|group| group.range());
                Ok(found.is_match().then(|| Groups(found.iter().take(GROUPS).map(range).collect())))
            }
            Engine::Backtracking(it) => {
                let latin = latin(text);
                let found = it.patiently(text, steps, |regex| regex.captures(&latin))?;
                let bytes = |at: usize| latin[..at].chars().count();
                let range = |group: fancy_regex::Match<'_>| bytes(group.start())..bytes(group.end());
                Ok(found
                    .map(|found| Groups(found.iter().take(GROUPS).map(|group| group.map(range)).collect())))
            }
        }
    }
}

fn bounded(groups: usize) -> Result<(), PatternError> {
    if groups > MOST_GROUPS { Err(PatternError::Groups { groups }) } else { Ok(()) }
}

/// Rejects too many redundant branches.
fn few(idle: usize) -> Result<(), PatternError> {
    let reason = || format!("{idle} alternatives that say nothing are more than {MOST_REPEATED}");
    if idle > MOST_REPEATED { Err(PatternError::Invalid { reason: reason() }) } else { Ok(()) }
}

/// The worst-case steps of a match: each state is visited for each byte, and carries its groups.
fn work(states: usize, text: &[u8], groups: usize) -> usize {
    1 + states.saturating_mul(text.len() + 1).saturating_mul(2 + groups) / (2 * STATES_A_STEP)
}

/// Each unescaped `{..}` of a pattern: its position and its maximum count, if it has one.
fn counts(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let is_escaped = |at: usize| text[..at].bytes().rev().take_while(|it| *it == b'\\').count() % 2 == 1;
    text.match_indices('{').filter(move |(at, _)| !is_escaped(*at)).filter_map(|(at, _)| {
        let inner = text[at + 1..].split('}').next().unwrap_or_default();
        let digits = |it: &&str| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit());
        let numbers = inner.split(',').map(str::trim).filter(digits);
        // A number that overflows is too large anyway.
        numbers.map(|number| number.parse().unwrap_or(usize::MAX)).max().map(|most| (at, most))
    })
}

/// Upper bound for the repetitions of a part: counts are multiplied if groups are counted.
fn turns(text: &str) -> usize {
    let of_groups = counts(text).filter(|(at, _)| text[..*at].trim_end().ends_with(')'));
    let together = of_groups.fold(1_usize, |all, (_, most)| all.saturating_mul(most.max(1)));
    counts(text).map(|(_, most)| most).max().unwrap_or(1).max(together)
}

impl Reads {
    fn of(text: &str) -> Self {
        let has = |signs: &[&str]| signs.iter().any(|sign| text.contains(sign));
        if has(&["(?>", "*+", "++", "?+", "}+"]) {
            Self::All
        } else if has(&[")*", ")+", "){", ") "]) {
            Self::Turns
        } else {
            Self::Each
        }
    }
}

impl Backtracking {
    /// Upper bound for the memory of both.
    fn bytes(&self) -> usize {
        let text = self.regexes[0].as_str();
        let counted = |(at, most): (usize, usize)| most.saturating_mul(at * FOR_OCTET).min(FOR_COUNT);
        let counted: usize = counts(text).map(counted).sum();
        let classes = ["\\w", "\\W", "\\b", "\\B", "\\p", "\\P", "\\d", "\\D", "\\s", "\\S"];
        let classes: usize = classes.iter().map(|it| text.matches(it).count()).sum();
        FOR_OCTET * text.len() + counted + if self.unicode { classes * FOR_CLASS } else { 0 }
    }

    /// Tries the lower limit of steps first, and only then the upper one.
    fn patiently<'t, T>(
        &'t self,
        text: &[u8],
        steps: &Steps,
        find: impl Fn(&'t fancy_regex::Regex) -> fancy_regex::Result<T>,
    ) -> Result<T, Exhausted> {
        let length = text.len();
        for (regex, most) in self.regexes.iter().zip(STEPS) {
            let begins = match self.reads {
                Reads::Each => most.min(length),
                Reads::Turns => most + length,
                Reads::All => (most + length).saturating_mul(most.min(length)),
            };
            steps.take(most + begins.saturating_mul(length) / PAIRS_A_STEP)?;
            if let Ok(found) = find(regex) {
                return Ok(found);
            }
        }
        Err(Exhausted)
    }
}

/// A linear pattern over bytes, configured like `regex::bytes` without Unicode; and its number of redundant branches.
fn linear(text: &str, any_case: bool) -> Result<(Pattern, usize), Box<BuildError>> {
    let text = escaped(text);
    let config = Config::new().utf8_empty(false).nfa_size_limit(Some(SIZE)).hybrid_cache_capacity(AUTOMATON);
    let regex = Regex::builder().syntax(syntax(any_case)).configure(config).build(&text)?;
    // It was just built with groups, so this cannot fail.
    let program = program(&text, any_case, None);
    let states = program.as_ref().map_or(SIZE, quick::weight);
    let idle = program.as_ref().map_or(0, quick::idle);
    let quick = program.ok().filter(|_| states > FEW_STATES).and_then(Quick::new);
    let linear = Linear { text: text.into(), regex, id: Id::new(), states, quick };
    Ok((Pattern { engine: Engine::Linear(Arc::new(linear)) }, idle))
}

/// How patterns are read: as bytes.
fn syntax(any_case: bool) -> syntax::Config {
    syntax::Config::new().utf8(false).unicode(false).case_insensitive(any_case)
}

/// The automaton of an escaped text, without groups, of at most `size` bytes.
fn program(text: &str, any_case: bool, size: Option<usize>) -> Result<NFA, Box<thompson::BuildError>> {
    let config = thompson::Config::new().utf8(false).which_captures(thompson::WhichCaptures::None);
    let nfa =
        thompson::Compiler::new().syntax(syntax(any_case)).configure(config.nfa_size_limit(size)).build(text);
    nfa.map_err(Box::new)
}

/// Each byte as the character with its number: how backtracking sees bytes.
fn latin(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// A pattern whose bytes above ASCII are escaped, so that they are not read as characters.
fn escaped(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii() {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "\\x{byte:02X}");
        }
    }
    out
}

/// The reason in one line: the last line of the parser's message; the others draw the pattern.
fn reason(size_limit: Option<usize>, error: &dyn std::error::Error) -> String {
    if let Some(limit) = size_limit {
        return format!("compiled it takes more than {limit} bytes");
    }
    let said = error.source().unwrap_or(error).to_string();
    let sentence = said.lines().last().unwrap_or_default().trim();
    sentence.strip_prefix("error: ").unwrap_or(sentence).to_owned()
}

#[cfg(test)]
mod tests;
