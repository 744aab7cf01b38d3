//! Finds which of several patterns matches in a text, with a lazy DFA.
//!
//! The automaton is built while it is used, in a cache of the thread. A client that keeps sending new text makes it
//! grow: growth is charged, and a search that keeps filling the cache is given up instead of continued with a slower engine.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::hybrid::{CacheError, LazyStateID};
use regex_automata::nfa::thompson::{NFA, State};
use regex_automata::{Input, MatchKind};

use super::caches::{self, Caches, Id};
use super::{Exhausted, Steps};

/// Memory of the automaton of one thread, in bytes; at least that of a few of its states.
const CACHE: usize = 2 << 20;
/// Memory of all automatons of one thread: three times what the largest one takes, and its room to search in.
pub(super) const KEPT: usize = 8 << 20;
/// How often the cache may fill before the progress in the text matters.
const CLEARS: usize = 2;
/// Bytes of text per new state: below this the cache is useless.
const OCTETS: usize = 10;
/// Amounts that are charged as one step: bytes of text if the automaton has all states, patterns that match in one
/// state, and bytes of growth.
const OCTETS_A_STEP: usize = 8;
const FITS_A_STEP: usize = 8;
const GROWTH_A_STEP: usize = 16;
/// Branches that are justified: this many per state that consumes a byte, plus a constant.
const WAYS_AN_OCTET: usize = 4;
const WAYS: usize = 768;

/// Patterns, ready to be searched for.
pub(super) struct Quick {
    dfa: DFA,
    id: Id,
    /// Branches that are visited per state of the program, at most.
    breadth: usize,
}

thread_local! {
    static CACHES: RefCell<Caches<Cache>> = RefCell::new(Caches::new(KEPT, Cache::memory_usage));
}

/// Bytes that this thread keeps.
#[cfg(test)]
pub(super) fn kept() -> usize {
    CACHES.with_borrow(Caches::kept)
}

/// The branches from all states of a program: the worst-case work for each byte.
pub(super) fn weight(program: &NFA) -> usize {
    let ways = |state: &State| match state {
        State::Union { alternates } => alternates.len(),
        State::BinaryUnion { .. } => 2,
        State::Sparse(ways) => ways.transitions.len(),
        _ => 1,
    };
    program.states().iter().map(ways).sum()
}

/// The number of redundant branches: those that lead where another one of the same alternatives does, and those that
/// exceed what the consuming states justify, as in `x????` a hundred deep.
pub(super) fn idle(program: &NFA) -> usize {
    let repeated = |state: &State| match state {
        State::Union { alternates } => alternates.len() - alternates.iter().collect::<HashSet<_>>().len(),
        State::BinaryUnion { alt1, alt2 } => usize::from(alt1 == alt2),
        _ => 0,
    };
    let ways = |state: &State| match state {
        State::Union { alternates } => alternates.len(),
        State::BinaryUnion { .. } => 2,
        _ => 0,
    };
    let takes = |state: &&State| {
        matches!(state, State::ByteRange { .. } | State::Sparse { .. } | State::Dense { .. })
    };
    let states = program.states();
    let reason = WAYS_AN_OCTET * states.iter().filter(takes).count() + WAYS;
    let detours = states.iter().map(ways).sum::<usize>().saturating_sub(reason);
    states.iter().map(repeated).sum::<usize>() + detours
}

impl fmt::Debug for Quick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quick").field("patterns", &self.dfa.pattern_len()).finish_non_exhaustive()
    }
}

/// Why a search ended early.
enum Ended {
    /// The cache is useless.
    GaveUp,
    /// The steps are exhausted.
    Exhausted,
}

impl From<CacheError> for Ended {
    fn from(_: CacheError) -> Self {
        Self::GaveUp
    }
}

impl Quick {
    /// From a program; `None` if it needs what a DFA cannot decide.
    pub(super) fn new(program: NFA) -> Option<Self> {
        let config = DFA::config()
            .match_kind(MatchKind::All)
            .cache_capacity(CACHE)
            .skip_cache_capacity_check(true)
            .minimum_cache_clear_count(Some(CLEARS))
            .minimum_bytes_per_state(Some(OCTETS));
        DFA::builder().configure(config).build_from_nfa(program).ok().map(Self::of)
    }

    fn of(dfa: DFA) -> Self {
        let program = dfa.get_nfa();
        let breadth = weight(program).div_ceil(program.states().len().max(1));
        Self { dfa, id: Id::new(), breadth }
    }

    /// Memory of its program, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.dfa.get_nfa().memory_usage()
    }

    /// The first of its patterns, in the order of the program, that matches in a text.
    ///
    /// # Errors
    /// [`Exhausted`]: the search exceeds its limit.
    pub(super) fn first(&self, text: &[u8], steps: &Steps) -> Result<Option<usize>, Exhausted> {
        steps.take(1 + text.len() / OCTETS_A_STEP)?;
        let search = |cache: &mut Cache| self.patiently(cache, text, steps);
        caches::search(&CACHES, self.id, || self.dfa.create_cache(), search)
    }

    fn patiently(&self, cache: &mut Cache, text: &[u8], steps: &Steps) -> Result<Option<usize>, Exhausted> {
        loop {
            let (before, clears) = (cache.memory_usage(), cache.clear_count());
            let searched = self.search(cache, text, steps);
            let cleared = (cache.clear_count() - clears) * CACHE;
            let growth = (cache.memory_usage() + cleared).saturating_sub(before);
            steps.take(growth.saturating_mul(self.breadth) / GROWTH_A_STEP)?;
            match searched {
                Ok(found) => return Ok(found),
                Err(Ended::Exhausted) => return Err(Exhausted),
                // With an empty cache; if that does not help, it gives up again.
                Err(Ended::GaveUp) => {
                    cache.reset(&self.dfa);
                    steps.take(CACHE / GROWTH_A_STEP)?;
                }
            }
        }
    }

    fn search(&self, cache: &mut Cache, text: &[u8], steps: &Steps) -> Result<Option<usize>, Ended> {
        let start = self.dfa.start_state_forward(cache, &Input::new(text));
        let mut state = start.map_err(|_| Ended::GaveUp)?;
        let mut best = None;
        cache.search_start(0);
        for (at, octet) in text.iter().enumerate() {
            cache.search_update(at);
            state = self.dfa.next_state(cache, state, *octet)?;
            if state.is_tagged() {
                best = self.better(cache, state, best, steps)?;
                if state.is_dead() || best == Some(0) {
                    cache.search_finish(at);
                    return Ok(best);
                }
            }
        }
        cache.search_finish(text.len());
        state = self.dfa.next_eoi_state(cache, state)?;
        self.better(cache, state, best, steps)
    }

    /// The least pattern of a matching state and of earlier ones.
    fn better(
        &self,
        cache: &Cache,
        state: LazyStateID,
        best: Option<usize>,
        steps: &Steps,
    ) -> Result<Option<usize>, Ended> {
        if !state.is_match() {
            return Ok(best);
        }
        let count = self.dfa.match_len(cache, state);
        steps.take(count / FITS_A_STEP).map_err(|Exhausted| Ended::Exhausted)?;
        let found = (0..count).map(|place| self.dfa.match_pattern(cache, state, place).as_usize());
        Ok(found.chain(best).min())
    }
}
