//! The row that defines one annotation.
//!
//! **Invariant:** everything about an annotation is defined in its row and nowhere else.

use super::draft::Draft;
use super::value::Grammar;

/// One annotation of ingress-nginx.
pub struct Row {
    /// Its name without the prefix.
    pub name: &'static str,
    /// Another name, read where the first one is absent or empty.
    pub alias: Option<&'static str>,
    /// What it acts on.
    #[cfg_attr(not(test), allow(dead_code, reason = "for docs/compatibility.md, which a test writes"))]
    pub scope: Scope,
    /// How ingress-nginx rates the harm that it can do.
    pub risk: Risk,
    /// How its value is read, and what comes of it.
    pub value: &'static dyn Says,
    /// What a value that is none of the grammar does.
    pub bad: Bad,
    /// What an empty value does.
    pub empty: Empty,
    /// It has no effect unless this other one is said, and says something.
    pub needs: Option<&'static str>,
    /// Which feature it belongs to, for [`Bad::DropGroup`].
    pub group: &'static str,
    /// Whether its list may go over several lines; any other value is text of one.
    pub lines: bool,
    /// Whether it is read on a canary Ingress too (annotations.md 6.16); the rest has no effect there.
    pub on_canary: bool,
    /// What holds where nobody says anything.
    pub default: &'static str,
    /// What it does, for its owner.
    pub doc: &'static str,
}

impl Row {
    /// What most rows are: of low risk, about a location; a bad value counts as not said.
    pub const NEW: Self = Self {
        name: "",
        alias: None,
        scope: Scope::Location,
        risk: Risk::Low,
        value: &DEAD,
        bad: Bad::Fallback,
        empty: Empty::NotSaid,
        needs: None,
        group: "",
        lines: false,
        on_canary: false,
        default: "",
        doc: "",
    };
}

/// What an annotation acts on (annotations.md 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The paths of its Ingress.
    Location,
    /// The hosts of its Ingress, whoever has their paths.
    Host,
    /// The Service ports that its Ingress refers to.
    Backend,
}

impl Scope {
    /// For people.
    #[cfg_attr(not(test), allow(dead_code, reason = "for docs/compatibility.md, which a test writes"))]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Location => "location",
            Self::Host => "host",
            Self::Backend => "backend",
        }
    }
}

/// Risk levels of annotations.md 1.5, ascending.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs, reason = "ingress-nginx' names")]
pub enum Risk {
    Low,
    Medium,
    High,
    Critical,
}

impl Risk {
    /// For people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// What a bad value does (annotations.md 1.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bad {
    /// R: the Ingress is rejected, its last good version stays.
    Reject,
    /// D: what it would guard answers 503.
    Deny(Reach),
    /// G: all of its group count as not said.
    DropGroup,
    /// F: it counts as not said.
    Fallback,
}

/// What an empty value does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Empty {
    /// It counts as not said.
    NotSaid,
    /// It is a bad value.
    Bad,
}

/// What answers 503.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// The paths of the Ingress.
    Paths,
    /// All paths of its hosts, whoever has them.
    Hosts,
}

impl Reach {
    /// For people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Paths => "all paths of this Ingress answer 503",
            Self::Hosts => "all paths of its hosts answer 503",
        }
    }
}

/// What becomes of an annotation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// It acts as in ingress-nginx.
    Honoured,
    /// It does not act, and nobody can tell: no client, no backend, no attacker.
    Unnoticed(&'static str),
    /// It does not act. What is different stands in the text; nobody gets past a rule of access by it, nothing goes to
    /// another place, and nothing is sent in plain that was to be sent over TLS.
    Differs(&'static str),
    /// It does not act yet. What depends on it answers 503.
    Denies(Reach),
    /// Raw nginx configuration: what is read into types acts, the rest never. What it could restrict answers 503.
    Snippet,
    /// It has no effect in ingress-nginx' newest version either (annotations.md 7).
    Dead,
}

/// What comes of a value of type `T`.
pub enum Act<T: 'static> {
    /// Honoured: it is put into the policies.
    Sets(fn(&mut Draft<'_>, T)),
    /// Not honoured, and nobody can tell.
    Unnoticed(&'static str),
    /// Not honoured yet, and somebody can tell what: see [`Status::Differs`].
    Differs {
        /// Values that ask for what happens anyway.
        unless: fn(&T) -> bool,
        /// What is different.
        without: &'static str,
    },
    /// It acts in part, and somebody can tell what does not: see [`Status::Differs`].
    Partly {
        /// What acts.
        sets: fn(&mut Draft<'_>, T),
        /// Values that ask for nothing else.
        unless: fn(&T) -> bool,
        /// What is different.
        without: &'static str,
    },
    /// Not honoured yet: until it is, what depends on it answers 503.
    Denies {
        /// Values that ask for what happens anyway.
        unless: fn(&T) -> bool,
        /// What answers 503.
        reach: Reach,
    },
    /// Raw nginx configuration, and what becomes of it here.
    Snippet(fn(&mut Draft<'_>, T)),
    /// It has no effect in ingress-nginx' newest version either.
    Dead,
}

/// A grammar, and what comes of its values. The type of the value is known to these two alone.
pub struct Of<T: 'static>(pub Grammar<T>, pub Act<T>);

/// What is yet to be done with a value that was read.
pub type Saying = Box<dyn FnOnce(&mut Draft<'_>)>;

/// How a value is read, and what comes of it.
pub trait Says: Sync {
    /// Reads a value that is not empty. `None`: it is none.
    fn read(&'static self, text: &str) -> Option<Saying>;
    /// What becomes of the annotation.
    fn status(&self) -> Status;
    /// What is expected of a value.
    fn words(&self) -> &'static str;
    /// Texts that are values, and such that are none.
    #[cfg_attr(not(test), allow(dead_code, reason = "what tests say of every grammar"))]
    fn samples(&self) -> (&'static [&'static str], &'static [&'static str]);
}

/// What a dead annotation says.
pub const DEAD: Of<String> = Of(super::value::ANY, Act::Dead);

impl<T> Says for Of<T> {
    fn read(&'static self, text: &str) -> Option<Saying> {
        let value = (self.0.read)(text)?;
        Some(Box::new(move |draft| match &self.1 {
            Act::Sets(set) | Act::Snippet(set) => set(draft, value),
            Act::Unnoticed(why) => draft.unnoticed(why),
            Act::Differs { unless, without } if !unless(&value) => draft.differs(*without),
            Act::Partly { sets, unless, without } => {
                if !unless(&value) {
                    draft.differs(*without);
                }
                sets(draft, value);
            }
            Act::Denies { unless, reach } if !unless(&value) => draft.not_enforced(*reach),
            Act::Differs { .. } | Act::Denies { .. } => {}
            Act::Dead => draft.dead(),
        }))
    }

    fn status(&self) -> Status {
        match &self.1 {
            Act::Sets(_) => Status::Honoured,
            Act::Unnoticed(why) => Status::Unnoticed(why),
            Act::Differs { without, .. } | Act::Partly { without, .. } => Status::Differs(without),
            Act::Denies { reach, .. } => Status::Denies(*reach),
            Act::Snippet(_) => Status::Snippet,
            Act::Dead => Status::Dead,
        }
    }

    fn words(&self) -> &'static str {
        self.0.words
    }

    fn samples(&self) -> (&'static [&'static str], &'static [&'static str]) {
        (self.0.good, self.0.bad)
    }
}
