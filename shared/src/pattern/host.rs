//! Patterns for names of hosts: searched for in any name that a client sends, all of them.
//!
//! **Invariant:** a search reads each byte of a name once and remembers nothing. So the automaton has all its states
//! from the start, and a pattern with too many is refused.

use std::sync::Arc;

use regex_automata::dfa::dense::{Builder, Config, DFA};
use regex_automata::dfa::{Automaton, StartKind};
use regex_automata::{Input, MatchKind};

use super::{Exhausted, LENGTH, PatternError, Steps, escaped, few, pcre, program, quick, reason};

/// Maximum size of the program in bytes.
const SIZE: usize = 64 << 10;
/// Maximum size of the automaton in bytes, and of what it is made from meanwhile: it also bounds the time that making it
/// takes, in both planes. Usual ones take a few thousand.
const AUTOMATON: usize = 40 << 10;
/// Bytes of a name that are read in the time of a step.
const OCTETS_A_STEP: usize = 8;

/// A pattern for names of hosts: case-insensitive, matched anywhere. Clones share their memory.
#[derive(Clone, Debug)]
pub struct HostPattern {
    automaton: Arc<DFA<Vec<u32>>>,
}

impl HostPattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        if text.len() > LENGTH {
            return Err(PatternError::Long { length: text.len() });
        }
        let text = pcre::read(text);
        if pcre::is_possessive(&text) {
            return Err(PatternError::Invalid { reason: pcre::POSSESSIVE.to_owned() });
        }
        let program = program(&escaped(&text), true, Some(SIZE))
            .map_err(|error| PatternError::Invalid { reason: reason(error.size_limit(), &error) })?;
        few(quick::idle(&program))?;
        let config = Config::new()
            .match_kind(MatchKind::All)
            .start_kind(StartKind::Unanchored)
            .accelerate(false)
            .dfa_size_limit(Some(AUTOMATON))
            .determinize_size_limit(Some(AUTOMATON));
        let automaton = Builder::new().configure(config).build_from_nfa(&program);
        let automaton = automaton.map_err(|error| match error.is_size_limit_exceeded() {
            true => PatternError::Automaton { most: AUTOMATON },
            false => PatternError::Invalid { reason: error.to_string() },
        })?;
        Ok(Self { automaton: Arc::new(automaton) })
    }

    /// Memory that it takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.automaton.memory_usage()
    }

    /// Whether it matches in a name.
    ///
    /// # Errors
    /// [`Exhausted`]: that is not known.
    pub fn is_match(&self, name: &[u8], steps: &Steps) -> Result<bool, Exhausted> {
        steps.take(1 + name.len() / OCTETS_A_STEP)?;
        let found = self.automaton.try_search_fwd(&Input::new(name).earliest(true));
        // It has no bytes at which it gives up.
        found.map(|found| found.is_some()).map_err(|_| Exhausted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(pattern: &str, name: &str) -> bool {
        HostPattern::new(pattern).unwrap().is_match(name.as_bytes(), &Steps::new()).unwrap()
    }

    #[test]
    fn it_is_found_anywhere_and_in_any_case() {
        for (pattern, name, expected) in [
            (r"^A[0-9]+\.test$", "a12.test", true),
            (r"^a[0-9]+\.test$", "xa12.test", false),
            (r"^a[0-9]+\.test$", "a12.test.example", false),
            ("test$", "a.test", true),
            (r"\bshop\b", "my-shop.test", true),
            (r"\bshop\b", "myshop.test", false),
            ("^[[:alpha:]]+$", "abc", true),
            ("", "a.test", true),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn usual_ones_are_small() {
        for pattern in [
            r"^www\d+\.example\.(com|org)$",
            r"^(.+\.)?shop-[a-z0-9-]+\.example\.com$",
            r"^[a-z0-9-]{1,63}\.x\.com$",
            r"^[a-z0-9-]{1,63}\.[a-z0-9-]{1,63}\.example\.com$",
            r"(www|api|shop|blog)[0-9]*\.(de|fr|it|es)\.shop\.example\.(com|net|org)$",
            r"^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+example\.com$",
            r"[a-z0-9]+(-[a-z0-9]+)*\.dev$",
            r"^.+\.example\.com$",
            r".*\.example\.com$",
            r"^(www|api)\.(a|b|c)\.example\.com$",
            r"^(?<user>.+)\.example\.net$",
            r"^([a-z]{2})\.example\.com$",
            r"^pr-\d{1,6}\.preview\.example\.com$",
            r"^[a-f0-9]{40}\.deploy\.example\.com$",
            r"^[a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{12}\.example\.com$",
            r"^(de|fr|it|es|pt|nl|pl|cz|sk|hu|ro|bg|gr|hr|si)\.shop\.example\.(com|net|org|eu|co\.uk)$",
            r"^(?:www\.)?example\.[a-z.]{2,6}$",
            r"^\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}\.nip\.example\.io$",
            r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?\.apps\.cluster-[0-9]+\.example\.com$",
            r"(stage|staging|preprod|prod)-?\d*\.internal\.example\.com$",
            r"^([a-z0-9-]+\.){1,3}tenant\.example\.com$",
        ] {
            let compiled = HostPattern::new(pattern).unwrap();
            assert!(compiled.bytes() <= AUTOMATON, "{pattern}: {}", compiled.bytes());
        }
    }

    /// A hundred bytes of pattern took two megabytes of each thread, and each name that it was searched for in was new
    /// to its automaton.
    #[test]
    fn one_whose_automaton_explodes_is_refused() {
        for pattern in ["[a-m][a-z0-9]{24}[n-z][^a-z0-9.][n-z]", "[ab].{20}c", "[ab].{9}c", "(?:[a-z]?){300}"]
        {
            let error = HostPattern::new(pattern).unwrap_err().to_string();
            assert!(error.contains("automaton takes more than 40960 bytes"), "{error}");
        }
    }

    #[test]
    fn what_is_no_pattern_of_names_is_refused() {
        assert!(matches!(HostPattern::new(&"a".repeat(5000)), Err(PatternError::Long { .. })));
        for text in ["(", "(?=a)a", r"(a)\1", r"(?u:\b)a", "(a{1000}){1000}"] {
            assert!(matches!(HostPattern::new(text), Err(PatternError::Invalid { .. })), "{text}");
        }
        let idle = format!("a(?:{})", "|".repeat(super::super::MOST_REPEATED + 1));
        assert!(HostPattern::new(&idle).is_err());
    }

    #[test]
    fn a_search_takes_its_steps() {
        let (pattern, steps) = (HostPattern::new("test$").unwrap(), Steps::of(9));
        assert_eq!(pattern.is_match(b"some.long.name.test", &steps), Ok(true));
        assert_eq!(pattern.is_match(b"some.long.name.test", &steps), Ok(true));
        assert_eq!(pattern.is_match(b"some.long.name.test", &steps), Ok(true));
        assert_eq!(pattern.is_match(b"some.long.name.test", &steps), Err(Exhausted));
    }
}
