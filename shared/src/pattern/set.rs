//! Sets of patterns that are searched for together: the text is read once, however many there are.

use regex_automata::nfa::thompson;
use regex_automata::util::syntax;

use super::quick::Quick;
use super::{Exhausted, Pattern, Steps};

/// A set of linear patterns.
#[derive(Debug)]
pub struct Set {
    quick: Quick,
    len: usize,
}

impl Set {
    /// From the linear ones of patterns made by [`Pattern::path`]; `None` if their program takes more than `size` bytes
    /// together, or if one needs a slower engine (`(?u:\b)`).
    pub fn new<'p>(patterns: impl Iterator<Item = &'p Pattern>, size: usize) -> Option<Self> {
        let texts: Vec<&str> = patterns.filter_map(Pattern::linear).collect();
        let config = thompson::Config::new().utf8(false).nfa_size_limit(Some(size));
        let program = thompson::Compiler::new()
            .syntax(syntax::Config::new().utf8(false).unicode(false).case_insensitive(true))
            .configure(config.which_captures(thompson::WhichCaptures::None))
            .build_many(&texts)
            .ok()?;
        Some(Self { quick: Quick::new(program)?, len: texts.len() })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first of them that matches a text.
    ///
    /// # Errors
    /// [`Exhausted`]: the search exceeds its limit.
    pub fn first(&self, text: &[u8], steps: &Steps) -> Result<Option<usize>, Exhausted> {
        self.quick.first(text, steps)
    }
}
