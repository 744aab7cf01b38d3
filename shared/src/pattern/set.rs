//! Many patterns that are searched for at once, by a lazy DFA: the text is read once, however many there are.
//!
//! The automaton is built while it is used, in a cache of its own for each thread. A client that sends what it has not
//! seen, again and again, makes it grow: what it grows by is charged, and a search that fills the cache over and over is
//! given up rather than gone on with by a slower engine.

use std::fmt;

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson;
use regex_automata::util::pool::Pool;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchKind, PatternSet};

use super::{Exhausted, Pattern, Steps};

/// Memory of the automaton that one thread has built, in bytes. As much as a few of its states take where that is more.
const CACHE: usize = 2 << 20;
/// So often may the cache fill before it matters how much of the text that was for.
const CLEARS: usize = 2;
/// Octets of the text for a new state: below it the cache is of no use.
const OCTETS: usize = 10;
/// Octets of the text for which a step is charged where the automaton has all states, and bytes that it grows by.
const OCTETS_A_STEP: usize = 8;
const GROWTH_A_STEP: usize = 16;

/// Patterns that are matched in linear time, each found at the beginning of a text, in any case.
pub struct Set {
    dfa: DFA,
    caches: Pool<Cache, Box<dyn Fn() -> Cache + Send + Sync>>,
    len: usize,
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Set").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Set {
    /// Of patterns that were made by [`Pattern::path`], those of them that are linear; `None` where their program takes more
    /// than `size` bytes together.
    pub fn new<'p>(patterns: impl Iterator<Item = &'p Pattern>, size: usize) -> Option<Self> {
        let texts: Vec<&str> = patterns.filter_map(Pattern::linear).collect();
        let config = DFA::config()
            .match_kind(MatchKind::All)
            .cache_capacity(CACHE)
            .skip_cache_capacity_check(true)
            .minimum_cache_clear_count(Some(CLEARS))
            .minimum_bytes_per_state(Some(OCTETS));
        let dfa = DFA::builder()
            .configure(config)
            .syntax(syntax::Config::new().utf8(false).unicode(false).case_insensitive(true))
            .thompson(thompson::Config::new().utf8(false).nfa_size_limit(Some(size)))
            .build_many(&texts)
            .ok()?;
        let for_cache = dfa.clone();
        let caches: Box<dyn Fn() -> Cache + Send + Sync> = Box::new(move || for_cache.create_cache());
        Some(Self { dfa, caches: Pool::new(caches), len: texts.len() })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first of them that a text begins with.
    ///
    /// # Errors
    /// [`Exhausted`]: that takes longer than it may.
    pub fn first(&self, text: &[u8], steps: &Steps) -> Result<Option<usize>, Exhausted> {
        let mut cache = self.caches.get();
        let mut found = PatternSet::new(self.len);
        // As each of them begins with `^`.
        let input = Input::new(text).anchored(Anchored::Yes);
        loop {
            let (before, clears) = (cache.memory_usage(), cache.clear_count());
            let searched = self.dfa.try_which_overlapping_matches(&mut cache, &input, &mut found);
            let cleared = (cache.clear_count() - clears) * CACHE;
            let growth = (cache.memory_usage() + cleared).saturating_sub(before);
            steps.take(1 + text.len() / OCTETS_A_STEP + growth / GROWTH_A_STEP)?;
            if searched.is_ok() {
                return Ok(found.iter().next().map(|pattern| pattern.as_usize()));
            }
            // It has had the cache to itself from now on, and gives up again where that does not help.
            cache.reset(&self.dfa);
            found.clear();
            steps.take(CACHE / GROWTH_A_STEP)?;
        }
    }
}
