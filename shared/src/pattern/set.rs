//! Many patterns that are searched for at once: the text is read once, however many there are.

use regex_automata::nfa::thompson;
use regex_automata::util::syntax;

use super::quick::Quick;
use super::{Exhausted, Pattern, Steps};

/// Patterns that are matched in linear time.
#[derive(Debug)]
pub struct Set {
    quick: Quick,
    len: usize,
}

impl Set {
    /// Of patterns that were made by [`Pattern::path`], those of them that are linear; `None` where their program takes more
    /// than `size` bytes together, and where one of them asks what only slower engines can tell (`(?u:\b)`).
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

    /// The first of them that fits a text.
    ///
    /// # Errors
    /// [`Exhausted`]: that takes longer than it may.
    pub fn first(&self, text: &[u8], steps: &Steps) -> Result<Option<usize>, Exhausted> {
        self.quick.first(text, steps)
    }
}
