//! Regular expressions of tenants, with PCRE's meaning as far as nginx' users write it (annotations.md 3.4).
//!
//! Most are matched in linear time. Look-around and back-references, which only backtracking can do, are allowed within a
//! bound of steps; a match that exceeds it is an error and not a mismatch, so that nobody gets past a rule by it.
//!
//! Bytes are matched, not characters, as nginx does without UTF mode: the path of a request need not be UTF-8.
//!
//! The control plane compiles a pattern to tell its owner what is wrong with it, the proxy to match.

mod pcre;
mod quick;
mod set;
mod steps;

use std::ops::Range;
use std::sync::Arc;

use fancy_regex::RegexBuilder as BacktrackingBuilder;
use regex_automata::meta::{BuildError, Config, Regex as Linear};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;
use smallvec::SmallVec;
use thiserror::Error;

use quick::Quick;
pub use set::Set;
pub use steps::Steps;

/// Longest pattern, in bytes.
pub const LENGTH: usize = 4096;
/// Largest program of a pattern, in bytes; it takes up to four times as much with all that makes it fast. Usual ones take
/// a thousand, and four thousand letters in any case two hundred thousand.
const SIZE: usize = 256 << 10;
/// Likewise, of the name of a host.
const HOST_SIZE: usize = 64 << 10;
/// Likewise, of each part of a pattern with look-around that is matched in linear time.
const PART_SIZE: usize = 64 << 10;
/// What a backtracking program takes for an octet of its text at most, and what a part of it takes where it is counted.
const FOR_OCTET: usize = 128;
const FOR_COUNT: usize = 2 * PART_SIZE;
/// What a class takes at most that has all of Unicode's letters.
const FOR_CLASS: usize = 32 << 10;
/// How often a part may be repeated at most, all in each other, in a pattern that backtracks: no turn of such a loop is a step.
const MOST_TURNS: usize = 1_000;
/// What a group takes for a state while it is matched.
const FOR_GROUP: usize = 16;
/// Steps that a backtracking match may take: usual ones end within the few of the first try.
const STEPS: [usize; 2] = [1_000, 100_000];
/// Ways that lead where another one of the same alternatives does, as those of `(|||)`, or by many states to the same octet, as
/// those of `x????`: each is looked at for each octet, and what an automaton grows by says nothing of them.
const MOST_REPEATED: usize = 256;
/// States that are looked at in the time of a step, and pairs of octets that parts of a backtracking match read.
const STATES_A_STEP: usize = 8;
const PAIRS_A_STEP: usize = 128;
/// Above so many states it is asked first whether there is a match at all, by an automaton that is charged what it takes.
const FEW_STATES: usize = 256;
/// Groups of a pattern: each is carried along by all states.
const MOST_GROUPS: usize = 100;
/// Groups that a template can name: `$1` to `$9`, and the whole.
const GROUPS: usize = 10;

/// What has a meaning in a regular expression that is not in a class or a group.
const SIGNS: &[u8] = br"\.+*?()|[]{}^$";

/// Whether a text as a regular expression stands for itself.
pub fn is_literal(text: &str) -> bool {
    !text.bytes().any(|byte| SIGNS.contains(&byte))
}

/// Why a text is no pattern.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PatternError {
    /// Longer than [`LENGTH`].
    #[error("a pattern of {length} bytes is longer than {LENGTH}")]
    Long {
        /// Its bytes.
        length: usize,
    },
    /// No regular expression, or one that grows too large.
    #[error("not a regular expression: {reason}")]
    Invalid {
        /// What is wrong with it, in one line.
        reason: String,
    },
    /// More groups than a pattern may have.
    #[error("{groups} groups are more than {MOST_GROUPS}")]
    Groups {
        /// Its groups.
        groups: usize,
    },
    /// With those before it, it takes more than is allowed together.
    #[error("this one and those before it take more than {most} bytes when compiled")]
    TooMuch {
        /// What is allowed.
        most: usize,
    },
}

/// The memory that patterns may take together. Each may be small and fine, and a thousand of them fill a machine.
#[derive(Clone, Debug)]
pub struct Allowance {
    most: usize,
    left: usize,
}

impl Allowance {
    /// Of so many bytes.
    pub fn new(most: usize) -> Self {
        Self { most, left: most }
    }

    /// Compiles what is asked for, if anything is left, and takes its memory.
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

    /// Whether nothing more is compiled.
    pub fn is_spent(&self) -> bool {
        self.left == 0
    }
}

/// A match took more steps than it may: whether it fits is not known.
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
    Linear {
        text: Box<str>,
        regex: Linear,
        states: usize,
        quick: Option<Box<Quick>>,
    },
    /// The same with few steps and with all of them: what a match took is not told, so what it may take is charged.
    Backtracking(Arc<Backtracking>),
}

/// A pattern that looks around or back.
#[derive(Clone, Debug)]
struct Backtracking {
    /// With few steps, and with all of them.
    regexes: [fancy_regex::Regex; 2],
    unicode: bool,
    /// What its parts may read for a step.
    reads: Reads,
}

/// How often a part that is matched in linear time, and is no step, begins anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reads {
    /// For each step at most.
    Each,
    /// For each turn of a group that is repeated, too.
    Turns,
    /// And from each octet on, since the steps within it are forgotten: `(?>..)`, `..*+`.
    All,
}

/// Where the groups of a match lie; the whole match first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Groups(SmallVec<[Option<Range<usize>>; GROUPS]>);

impl Groups {
    /// Of a match that has no groups: so many bytes from the beginning.
    pub fn of_beginning(length: usize) -> Self {
        Self(SmallVec::from_iter([Some(0..length)]))
    }

    /// What a group took of the text that was matched; empty where it took no part.
    pub fn get<'t>(&self, group: usize, text: &'t [u8]) -> &'t [u8] {
        let range = self.0.get(group).cloned().flatten().unwrap_or_default();
        text.get(range).unwrap_or_default()
    }
}

impl Pattern {
    /// A path of a location in regex mode: found at the beginning, in any case (annotations.md 3.4).
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn path(text: &str) -> Result<Self, PatternError> {
        Self::new(&format!("^{text}"), true)
    }

    /// Found anywhere, in exactly this case.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn anywhere(text: &str) -> Result<Self, PatternError> {
        Self::new(text, false)
    }

    /// Found anywhere, in any case.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn anywhere_in_any_case(text: &str) -> Result<Self, PatternError> {
        Self::new(text, true)
    }

    /// A name of hosts, in lower case: found anywhere. It is asked about any name that comes, so it is small, and matched
    /// in linear time.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn host(text: &str) -> Result<Self, PatternError> {
        if text.len() > LENGTH {
            return Err(PatternError::Long { length: text.len() });
        }
        let linear = linear(&pcre::read(text), true, HOST_SIZE);
        few(linear.map_err(|refused| PatternError::Invalid { reason: reason(&refused) })?)
    }

    fn new(text: &str, any_case: bool) -> Result<Self, PatternError> {
        if text.len() > LENGTH {
            return Err(PatternError::Long { length: text.len() });
        }
        let text = &*pcre::read(text);
        let refused = match linear(text, any_case, SIZE) {
            Ok(linear) => {
                let linear = few(linear)?;
                bounded(linear.all_groups())?;
                return Ok(linear);
            }
            Err(refused) => refused,
        };
        let latin = latin(text.as_bytes());
        let build = |unicode, steps| {
            BacktrackingBuilder::new(&latin)
                .unicode_mode(unicode)
                .case_insensitive(any_case)
                .backtrack_limit(steps)
                .delegate_size_limit(PART_SIZE)
                .build()
        };
        if turns(text) > MOST_TURNS {
            let reason =
                format!("parts are repeated more than {MOST_TURNS} times beside what looks around or back");
            return Err(PatternError::Invalid { reason });
        }
        // Without Unicode the crate refuses a dot in a part that it matches in linear time. With it, letters of Latin-1 are
        // letters of words, too.
        let modes = [false, true].into_iter().filter(|unicode| *unicode || text.is_ascii());
        let mut compiled = modes.filter_map(|unicode| match STEPS.map(|steps| build(unicode, steps)) {
            [Ok(quick), Ok(patient)] => {
                Some(Backtracking { regexes: [quick, patient], unicode, reads: Reads::of(text) })
            }
            _ => None,
        });
        let Some(backtracking) = compiled.next() else {
            return Err(PatternError::Invalid { reason: reason(&refused) });
        };
        bounded(backtracking.regexes[0].captures_len())?;
        Ok(Self { engine: Engine::Backtracking(Arc::new(backtracking)) })
    }

    /// Memory that it takes, in bytes: measured where it is matched in linear time, else a bound. Matching takes more, for
    /// as long as it lasts.
    pub fn bytes(&self) -> usize {
        match &self.engine {
            Engine::Linear { text, regex, states, quick } => {
                let groups = states * regex.captures_len() * FOR_GROUP;
                text.len() + regex.memory_usage() + groups + quick.as_ref().map_or(0, |quick| quick.bytes())
            }
            Engine::Backtracking(it) => 2 * it.bytes(),
        }
    }

    fn all_groups(&self) -> usize {
        match &self.engine {
            Engine::Linear { regex, .. } => regex.captures_len(),
            Engine::Backtracking(it) => it.regexes[0].captures_len(),
        }
    }

    /// The expression, where it is matched in linear time; such ones can be searched for together.
    pub fn linear(&self) -> Option<&str> {
        match &self.engine {
            Engine::Linear { text, .. } => Some(text),
            Engine::Backtracking(_) => None,
        }
    }

    /// Whether it is found in `text`.
    ///
    /// # Errors
    /// [`Exhausted`]: that is not known.
    pub fn is_match(&self, text: &[u8], steps: &Steps) -> Result<bool, Exhausted> {
        match &self.engine {
            Engine::Linear { quick: Some(quick), .. } => Ok(quick.first(text, steps)?.is_some()),
            Engine::Linear { regex, states, .. } => {
                steps.take(work(*states, text, 0))?;
                Ok(regex.is_match(text))
            }
            Engine::Backtracking(it) => {
                let latin = latin(text);
                it.patiently(text, steps, |regex| regex.is_match(&latin))
            }
        }
    }

    /// Where its groups lie in the first match, if it is found in `text`.
    ///
    /// # Errors
    /// [`Exhausted`]: that is not known.
    pub fn groups(&self, text: &[u8], steps: &Steps) -> Result<Option<Groups>, Exhausted> {
        match &self.engine {
            Engine::Linear { regex, states, quick, .. } => {
                if let Some(quick) = quick
                    && quick.first(text, steps)?.is_none()
                {
                    return Ok(None);
                }
                steps.take(work(*states, text, regex.captures_len()))?;
                let mut found = regex.create_captures();
                regex.captures(text, &mut found);
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

/// A pattern with so many ways that say nothing.
fn few((pattern, idle): (Pattern, usize)) -> Result<Pattern, PatternError> {
    let reason = || format!("{idle} alternatives that say nothing are more than {MOST_REPEATED}");
    if idle > MOST_REPEATED { Err(PatternError::Invalid { reason: reason() }) } else { Ok(pattern) }
}

/// Steps that a match takes at worst: each state is looked at for each octet, and carries its groups.
fn work(states: usize, text: &[u8], groups: usize) -> usize {
    1 + states.saturating_mul(text.len() + 1).saturating_mul(2 + groups) / (2 * STATES_A_STEP)
}

/// Each `{..}` of a pattern that is not escaped: where it stands, and the most that it counts; nothing where it counts none.
fn counts(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let is_escaped = |at: usize| text[..at].bytes().rev().take_while(|it| *it == b'\\').count() % 2 == 1;
    text.match_indices('{').filter(move |(at, _)| !is_escaped(*at)).filter_map(|(at, _)| {
        let inner = text[at + 1..].split('}').next().unwrap_or_default();
        let digits = |it: &&str| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit());
        let numbers = inner.split(',').map(str::trim).filter(digits);
        // One that is too large for a number is too large for all.
        numbers.map(|number| number.parse().unwrap_or(usize::MAX)).max().map(|most| (at, most))
    })
}

/// How often a part is repeated at most: once for each count, and in each other where groups are counted.
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
    /// Memory of one of the two, at most.
    fn bytes(&self) -> usize {
        let text = self.regexes[0].as_str();
        let counted = |(at, most): (usize, usize)| most.saturating_mul(at * FOR_OCTET).min(FOR_COUNT);
        let counted: usize = counts(text).map(counted).sum();
        let classes = ["\\w", "\\W", "\\b", "\\B", "\\p", "\\P", "\\d", "\\D", "\\s", "\\S"];
        let classes: usize = classes.iter().map(|it| text.matches(it).count()).sum();
        FOR_OCTET * text.len() + counted + if self.unicode { classes * FOR_CLASS } else { 0 }
    }

    /// With few steps, and only then with all.
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

/// Bytes matched in linear time, by the configuration that [`regex::bytes`] has without Unicode; and how many of its ways say
/// nothing.
fn linear(text: &str, any_case: bool, size: usize) -> Result<(Pattern, usize), Box<BuildError>> {
    let text = escaped(text);
    let syntax = syntax::Config::new().utf8(false).unicode(false).case_insensitive(any_case);
    let config = Config::new().utf8_empty(false).nfa_size_limit(Some(size));
    let regex = Linear::builder().syntax(syntax).configure(config).build(&text)?;
    let config = thompson::Config::new().utf8(false).which_captures(thompson::WhichCaptures::None);
    let program = thompson::Compiler::new().syntax(syntax).configure(config).build(&text);
    // It was built just now, with groups: that cannot fail.
    let states = program.as_ref().map_or(size, quick::weight);
    let idle = program.as_ref().map_or(0, quick::idle);
    let quick = program.ok().filter(|_| states > FEW_STATES).and_then(Quick::new).map(Box::new);
    Ok((Pattern { engine: Engine::Linear { text: text.into(), regex, states, quick } }, idle))
}

/// Each byte as the character of its number: what backtracking sees of bytes.
fn latin(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// A pattern whose bytes above ASCII are written as bytes, so that they are no characters.
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

/// What is wrong, in one line: of what the parser says the last line is its sentence; the others draw the pattern.
fn reason(error: &BuildError) -> String {
    if let Some(limit) = error.size_limit() {
        return format!("compiled it takes more than {limit} bytes");
    }
    let said = error.syntax_error().map_or_else(|| error.to_string(), ToString::to_string);
    let sentence = said.lines().last().unwrap_or_default().trim();
    sentence.strip_prefix("error: ").unwrap_or(sentence).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(pattern: &str, text: &[u8]) -> Option<Vec<String>> {
        let pattern = Pattern::path(pattern).unwrap();
        let found = pattern.groups(text, &Steps::new()).unwrap()?;
        Some((0..4).map(|group| String::from_utf8_lossy(found.get(group, text)).into_owned()).collect())
    }

    #[test]
    fn a_path_is_a_prefix_in_any_case() {
        for (pattern, text, fits) in [
            ("/foo", "/FOObar", true),
            ("/foo", "/x/foo", false),
            ("/[A-Z]{3}", "/abcdef", true),
            (r"/a\.b", "/a.b", true),
            (r"/a\.b", "/axb", false),
            (r"/\d+$", "/123", true),
            (r"/\d+$", "/123x", false),
            (r"\/api\/v1", "/api/v1/x", true),
            ("/foo.*", "/foo", true),
        ] {
            assert_eq!(
                Pattern::path(pattern).unwrap().is_match(text.as_bytes(), &Steps::new()),
                Ok(fits),
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn groups_are_found() {
        let all = |texts: [&str; 4]| Some(texts.map(str::to_owned).to_vec());
        assert_eq!(groups("/something(/|$)(.*)", b"/something/new"), all(["/something/new", "/", "new", ""]));
        assert_eq!(groups("/something(/|$)(.*)", b"/something"), all(["/something", "", "", ""]));
        assert_eq!(groups("/a(x)?(y)", b"/ay"), all(["/ay", "", "y", ""]));
        assert_eq!(groups("/a", b"/b"), None);
    }

    #[test]
    fn look_around_and_references_are_matched_by_backtracking() {
        let pattern = Pattern::path("/((?!admin).*)").unwrap();
        assert!(pattern.linear().is_none());
        assert_eq!(pattern.is_match(b"/public", &Steps::new()), Ok(true));
        assert_eq!(pattern.is_match(b"/ADMIN/x", &Steps::new()), Ok(false));
        assert_eq!(groups("/((?!admin).*)", b"/public/x").unwrap()[1], "public/x");
        assert_eq!(Pattern::path(r"/(a+)-\1$").unwrap().is_match(b"/aa-aa", &Steps::new()), Ok(true));
    }

    #[test]
    fn bytes_that_are_no_characters_are_matched() {
        let text = b"/caf\xc3\xa9/\xff\xfe";
        for pattern in ["/caf\u{e9}/(.+)", "/caf\u{e9}/(?=.)(.+)"] {
            let pattern = Pattern::path(pattern).unwrap();
            assert_eq!(pattern.groups(text, &Steps::new()).unwrap().unwrap().get(1, text), b"\xff\xfe");
        }
    }

    #[test]
    fn a_match_that_takes_too_long_is_not_a_mismatch() {
        let pattern = Pattern::path(r"/(?:(a+)\1?)+b").unwrap();
        let text = [b"/".as_slice(), &b"a".repeat(64), b"!"].concat();
        assert_eq!(pattern.is_match(&text, &Steps::new()), Err(Exhausted));
    }

    /// Four hundred such, in 10 kB of text, took 615 MB.
    #[test]
    fn together_they_take_what_is_allowed_and_no_more() {
        for part in ["", "(?!x)"] {
            let mut all = Allowance::new(2 << 20);
            let texts = (0..400).map(|i| format!("/p{i}{part}([a-z0-9]{{1,200}})"));
            let compiled: Vec<_> = texts.map(|text| all.compile(|| Pattern::path(&text))).collect();
            let fine = compiled.iter().take_while(|it| it.is_ok()).count();
            assert!((5..200).contains(&fine), "{fine}");
            assert!(compiled[fine..].iter().all(|it| matches!(it, Err(PatternError::TooMuch { .. }))));
            assert!(all.is_spent());
        }
        let mut all = Allowance::new(2 << 20);
        let usual = (0..100).map(|i| format!("/api/v{i}(/|$)((?!admin).*)"));
        assert!(
            usual.map(|text| all.compile(|| Pattern::path(&text))).all(|it| it.is_ok()),
            "usual ones fit"
        );
    }

    /// 7,000 octets and three hundred groups took a worker for eight seconds, and eighteen octets with five hundred patterns
    /// that look ahead for 25.
    #[test]
    fn what_one_request_may_cost_is_bounded() {
        let path = [&b"/"[..], &b"a".repeat(7000)].concat();
        let groups = |count: usize| Pattern::path(&format!("/{}", "(.*)".repeat(count)));
        assert_eq!(groups(90).unwrap().groups(&path, &Steps::new()), Err(Exhausted));
        assert!(matches!(groups(300), Err(PatternError::Groups { groups: 301 })));
        assert!(groups(3).unwrap().groups(&path, &Steps::new()).unwrap().is_some(), "a usual one fits");

        let slow = Pattern::path("/(?:(a|aa)(?!c))+b0001$").unwrap();
        let (steps, text) = (Steps::new(), b"/aaaaaaaaaaaaaaaaaa");
        let asked = (0..500).take_while(|_| slow.is_match(text, &steps).is_ok()).count();
        assert!(asked <= 10, "{asked}");
        // No step of backtracking fails in it; what it delegates reads the text again at each octet.
        for slow in ["/(?>(?:a(?=.*))*)x0001", "/.*?(?>(?:a(?=.*))*)x0001"] {
            let (slow, steps) = (Pattern::path(slow).unwrap(), Steps::new());
            let asked = (0..500).take_while(|_| slow.is_match(&path, &steps).is_ok()).count();
            assert!(asked <= 5, "{asked}");
        }
        // Neither pushed nor failed: no step at all, for ever.
        for endless in [
            "/((?=a)){999999999999}",
            "/((((?=a)){9999}){9999}){9999}",
            "/(?=a)(?:(?!b)c){0,18446744073709551615}",
        ] {
            assert!(matches!(Pattern::path(endless), Err(PatternError::Invalid { .. })), "{endless}");
        }
        assert!(Pattern::path("/(?!a)(?:bb){9999999999999999999}").is_err());
        let literal = Pattern::path(r"/(?=a)\{18446744073709551615}");
        assert!(literal.is_ok_and(|literal| literal.bytes() < 1 << 20));
        let (steps, usual) = (Steps::new(), Pattern::path("/((?!admin).*)").unwrap());
        let long = [&b"/public/"[..], &b"a".repeat(8000)].concat();
        assert!((0..10).all(|_| usual.is_match(&long, &steps).is_ok()), "also with a long path");
        let steps = Steps::new();
        assert!((0..500).all(|_| usual.is_match(b"/public/page", &steps).is_ok()), "usual ones fit");
    }

    /// Beside a thousand states that nothing leads to, 3,500 of them took ten times as long as none, and were charged three
    /// times as much: a second of a worker for one request.
    #[test]
    fn alternatives_that_say_nothing_are_few() {
        let of = |empty: usize, rest: &str| {
            Pattern::path(&format!("/(?:[ab](?:{}))*a[ab]{{14}}x{rest}", "|".repeat(empty)))
        };
        for (empty, rest) in [(4_000, ""), (3_500, "|c{1000}x"), (MOST_REPEATED + 1, "")] {
            let error = of(empty, rest).unwrap_err().to_string();
            assert!(error.contains("alternatives that say nothing"), "{error}");
        }
        assert!(
            Pattern::path(&format!("/(?:[ab](?:{})){{40}}", "|".repeat(100))).is_err(),
            "each turn has its own"
        );
        assert!(Pattern::host(&format!("a(?:{})", "|".repeat(MOST_REPEATED + 1))).is_err());
        let most = of(MOST_REPEATED, "|c{1000}x").unwrap();
        assert!(most.bytes() < 1 << 20, "{}", most.bytes());
        // Each path is new to the automaton.
        let (steps, mut random) = (Steps::new(), 1_u32);
        let mut next = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b"ab"[(random >> 31) as usize]
        };
        let mut path = || std::iter::once(b'/').chain((0..7000).map(|_| next())).collect::<Vec<_>>();
        let asked = (0..500).take_while(|_| most.is_match(&path(), &steps).is_ok()).count();
        assert!(asked <= 20, "{asked}");
        assert!(Pattern::path("/(a|)(/|$)(|b)(?:c||d|)(.*)").is_ok(), "usual ones are taken");
    }

    /// Nested, each says nothing by a state of its own, and thousands of them stood around thirty that take an octet: 7,000
    /// octets took a worker 300 ms and were charged as 50.
    #[test]
    fn optional_parts_of_optional_parts_are_few() {
        for (deep, times) in [(250, 8), (100, 30), (40, 60)] {
            let error = Pattern::path(&format!("/(?:[ab]*x{}){{{times}}}y", "?".repeat(deep)))
                .unwrap_err()
                .to_string();
            assert!(error.contains("alternatives that say nothing"), "{error}");
        }
        let optional = "(?:[a-z]{2}(?:-[A-Z]{2})?/)?".repeat(100);
        for usual in [&*optional, "/a????", "(?:(?:(?:a?b)?c)?d)?/x", &"(?:a|b|c|)".repeat(100)] {
            Pattern::path(usual).unwrap();
        }
    }

    /// A dot in a part that is matched in linear time was no pattern.
    #[test]
    fn parts_around_what_looks_ahead_are_patterns() {
        for (pattern, text, fits) in [
            ("/(?!api)[a-z]{2}/(.*)", "/de/x", true),
            ("/(?!api)(.*)", "/apis", false),
            (r"/(?!internal/)(.+\.css)$", "/a/b.css", true),
            (r"/(?=.*\d).{3}$", "/ab1", true),
        ] {
            let pattern = Pattern::path(pattern).unwrap();
            assert_eq!(pattern.is_match(text.as_bytes(), &Steps::new()), Ok(fits), "{text}");
        }
    }

    #[test]
    fn usual_long_ones_are_taken_and_answer_long_texts() {
        let words: Vec<_> = (0..400).map(|i| format!("crawler{i:03}")).collect();
        let list =
            Pattern::anywhere_in_any_case(&format!("({})", words.join("|")[..3990].trim_end_matches('|')));
        let (list, steps) = (list.unwrap(), Steps::new());
        let referer = [&b"https://www.example.com/callback?state="[..], &b"crawl3".repeat(350)].concat();
        assert_eq!(list.groups(&referer, &steps), Ok(None));
        assert!(list.groups(b"CRAWLER123", &steps).unwrap().is_some());
        let rewritten = Pattern::path("/([a-z0-9-]{1,253})/(.*)").unwrap();
        let path = [&b"/some-tenant/"[..], &b"deep/".repeat(200)].concat();
        assert!(rewritten.groups(&path, &Steps::new()).unwrap().is_some());
        let host = Pattern::host(r"^[a-z0-9.-]{1,253}\.example\.com$").unwrap();
        assert_eq!(host.is_match(b"a.b.example.com", &Steps::new()), Ok(true));
        // Few are counted, and a placeholder of an API's description counts nothing.
        let mut all = Allowance::new(1 << 20);
        let texts = (0..40).map(|i| format!("/(?!api)[a-z]{{2}}/v{i}/(.*)"));
        let texts = texts.chain((0..40).map(|i| format!("/users/{{id}}/v{i}")));
        assert!(texts.map(|text| all.compile(|| Pattern::path(&text))).all(|it| it.is_ok()));
    }

    /// The program of each state of the automaton is as large as the set: a path that always asks for new ones is given up.
    #[test]
    fn a_set_gives_up_rather_than_thrash() {
        let texts: Vec<_> = (0..60)
            .map(|i| format!("/(?:[ab]*{}[ab]{{300}}x{i})", if i % 2 == 0 { "a" } else { "b" }))
            .collect();
        let patterns: Vec<_> = texts.iter().map(|text| Pattern::path(text).unwrap()).collect();
        let set = Set::new(patterns.iter(), 4 << 20).unwrap();
        let mut random = 1_u32;
        let mut next = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b"ab"[(random >> 31) as usize]
        };
        let path: Vec<u8> = std::iter::once(b'/').chain((0..8000).map(|_| next())).collect();
        assert_eq!(set.first(&path, &Steps::new()), Err(Exhausted));
        assert_eq!(set.first(b"/none", &Steps::new()), Ok(None), "others are served");

        let usual: Vec<_> =
            (0..2000).map(|i| Pattern::path(&format!("/api/v{i}(/|$)(.*)")).unwrap()).collect();
        let set = Set::new(usual.iter(), 4 << 20).unwrap();
        let matches: Vec<_> = (0..2000).map(|i| Pattern::path(&format!("/(?:.*|x{i})")).unwrap()).collect();
        let many = Set::new(matches[1..].iter(), 4 << 20).unwrap();
        assert_eq!(many.first(&path, &Steps::new()), Ok(Some(0)), "the first ends it");
        for (path, found) in [("/API/v7/x", Some(7)), ("/api/v1999", Some(1999)), ("/api/v", None)] {
            assert_eq!(set.first(path.as_bytes(), &Steps::new()), Ok(found), "{path}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_said() {
        let error = Pattern::path("/a(b").unwrap_err();
        assert_eq!(error.to_string(), "not a regular expression: unclosed group");
        assert!(matches!(Pattern::path(&"a".repeat(5000)), Err(PatternError::Long { .. })));
        assert!(Pattern::path("/(a{1000}){1000}").is_err(), "one that grows too large");
        let error = Pattern::path("/(a{1000}){1000}").unwrap_err().to_string();
        assert_eq!(error, "not a regular expression: compiled it takes more than 262144 bytes");
        for text in ["/*a", "/[", r"/\", "/(?P<", "/a{2,1}", "/**"] {
            let _ = Pattern::path(text);
        }
    }
}
