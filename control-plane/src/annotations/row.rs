//! The row that defines one annotation.
//!
//! **Invariant:** everything about an annotation is defined in its row and nowhere else.

use super::draft::Draft;
use super::value::Grammar;

/// One annotation of ingress-nginx.
pub struct Row {
    /// Its name without the prefix.
    pub name: &'static str,
    /// An alias, read if the first name is absent or empty.
    pub alias: Option<&'static str>,
    /// What it acts on.
    #[cfg_attr(not(test), allow(dead_code, reason = "for docs/compatibility.md, which a test writes"))]
    pub scope: Scope,
    /// ingress-nginx' risk level of the annotation.
    pub risk: Risk,
    /// How its value is parsed, and what effect it has.
    pub value: &'static dyn ValueSpec,
    /// What a value that the grammar rejects does.
    pub bad: Bad,
    /// What an empty value does.
    pub empty: Empty,
    /// It has no effect unless this other annotation is set and not empty.
    pub needs: Option<&'static str>,
    /// A bad value counts all the same: ingress-nginx reads it before it looks for the other one.
    pub checked_alone: bool,
    /// Beside this other one it is not read, not even to reject a bad value (ingress-nginx).
    pub unread_beside: Option<&'static str>,
    /// It is read after the Secret that this other one names (ingress-nginx), in such a way: where that is no name, or of a
    /// Secret that cannot be used, access is denied, and a bad value rejects nothing.
    pub behind: Option<(&'static str, IsName)>,
    /// The feature it belongs to, for [`Bad::DropGroup`].
    pub group: &'static str,
    /// Whether its list may have several lines; any other value has one.
    pub lines: bool,
    /// Whether it is read on a canary Ingress too; other annotations have no effect there (ingress-nginx).
    pub on_canary: bool,
    /// Its values are numbers, switches, times, sizes or one of a few words: they are shown in the history. All others may
    /// hold a credential: a URL with a password, a key, the value of a header.
    pub harmless: bool,
    /// As a key of the ConfigMap it is a Go number of base 0, which may say its base; all other numbers are decimal.
    pub go_number: bool,
    /// The default.
    pub default: &'static str,
    /// What it does, for its owner.
    pub doc: &'static str,
}

impl Row {
    /// Defaults of most rows: low risk, about a location; a bad value is ignored.
    pub const NEW: Self = Self {
        name: "",
        alias: None,
        scope: Scope::Location,
        risk: Risk::Low,
        value: &DEAD,
        bad: Bad::Fallback,
        empty: Empty::NotSaid,
        needs: None,
        checked_alone: false,
        unread_beside: None,
        behind: None,
        group: "",
        lines: false,
        on_canary: false,
        harmless: false,
        go_number: false,
        default: "",
        doc: "",
    };
}

/// Whether a value names a Secret.
pub type IsName = fn(&str) -> bool;

/// What an annotation acts on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The paths of its Ingress.
    Location,
    /// The hosts of its Ingress, whichever Ingress owns their paths.
    Host,
    /// The Service ports that its Ingress refers to.
    Backend,
}

impl Scope {
    /// A name for people.
    #[cfg_attr(not(test), allow(dead_code, reason = "for docs/compatibility.md, which a test writes"))]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Location => "location",
            Self::Host => "host",
            Self::Backend => "backend",
        }
    }
}

/// ingress-nginx' risk levels, ascending.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs, reason = "ingress-nginx' names")]
pub enum Risk {
    Low,
    Medium,
    High,
    Critical,
}

impl Risk {
    /// A name for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// What a bad value does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bad {
    /// The Ingress is rejected; its last good version stays.
    Reject,
    /// What it would guard answers 503.
    Deny(Reach),
    /// All annotations of its group are ignored.
    DropGroup,
    /// It is ignored.
    Fallback,
}

/// What an empty value does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Empty {
    /// It is ignored.
    NotSaid,
    /// It is a bad value.
    Bad,
    /// It is read like any other value.
    Read,
    /// All annotations of its group are ignored, unless it is not read beside the other one.
    DropsGroup,
}

/// What answers 503.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// The paths of the Ingress.
    Paths,
    /// All paths of its hosts, whichever Ingress owns them.
    Hosts,
}

impl Reach {
    /// A name for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Paths => "all paths of this Ingress answer 503",
            Self::Hosts => "all paths of its hosts answer 503",
        }
    }
}

/// The support status of an annotation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// It works as in ingress-nginx.
    Honoured,
    /// It has no effect, and nobody can tell: no client, no backend, no attacker.
    Unnoticed(&'static str),
    /// It has no effect. The text says what is different; no access rule is bypassed by that, no request goes to
    /// another place, and nothing is sent in plaintext that was to be sent over TLS.
    Differs(&'static str),
    /// It is not supported yet. What depends on it answers 503.
    Denies(Reach),
    /// Raw nginx configuration: what can be parsed into types takes effect, the rest never. What it could restrict
    /// answers 503.
    Snippet,
    /// It has no effect in the newest version of ingress-nginx either.
    Dead,
}

/// The effect of a value of type `T`.
pub enum Effect<T: 'static> {
    /// Supported: sets fields of the policies.
    Sets(fn(&mut Draft<'_>, T)),
    /// Not supported, and nobody can tell.
    Unnoticed(&'static str),
    /// Not supported yet, with a visible difference: see [`Status::Differs`].
    Differs {
        /// Values that ask for the default behaviour.
        unless: fn(&T) -> bool,
        /// What is different.
        without: &'static str,
    },
    /// Supported in part, with a visible difference: see [`Status::Differs`].
    Partly {
        /// Sets what is supported.
        sets: fn(&mut Draft<'_>, T),
        /// Values that ask for nothing else.
        unless: fn(&T) -> bool,
        /// What is different.
        without: &'static str,
    },
    /// Not supported yet: what depends on it answers 503.
    Denies {
        /// Sets what the values say.
        sets: fn(&mut Draft<'_>, &T),
        /// Values that ask for the default behaviour.
        unless: fn(&T) -> bool,
        /// What answers 503.
        reach: Reach,
    },
    /// Raw nginx configuration, and how it is handled.
    Snippet(fn(&mut Draft<'_>, T)),
    /// It has no effect in the newest version of ingress-nginx either.
    Dead,
}

/// A grammar, and the effect of its values. The type of the value is known to these two alone.
pub struct Spec<T: 'static>(pub Grammar<T>, pub Effect<T>);

/// Applies a value that was parsed.
pub type Apply = Box<dyn FnOnce(&mut Draft<'_>)>;

/// How a value is parsed, and what effect it has.
pub trait ValueSpec: Sync {
    /// Parses a value that is not empty. `None`: it is invalid.
    fn read(&'static self, text: &str) -> Option<Apply>;
    /// The support status of the annotation.
    fn status(&self) -> Status;
    /// The expected values, in words.
    fn words(&self) -> &'static str;
    /// Samples of valid and invalid values.
    #[cfg_attr(not(test), allow(dead_code, reason = "what tests say of every grammar"))]
    fn samples(&self) -> (&'static [&'static str], &'static [&'static str]);
}

/// The value of a dead annotation.
pub const DEAD: Spec<String> = Spec(super::value::ANY, Effect::Dead);

impl<T> ValueSpec for Spec<T> {
    fn read(&'static self, text: &str) -> Option<Apply> {
        let value = (self.0.read)(text)?;
        Some(Box::new(move |draft| match &self.1 {
            Effect::Sets(set) | Effect::Snippet(set) => set(draft, value),
            Effect::Unnoticed(why) => draft.unnoticed(why),
            Effect::Differs { unless, without } if !unless(&value) => draft.differs(*without),
            Effect::Partly { sets, unless, without } => {
                if !unless(&value) {
                    draft.differs(*without);
                }
                sets(draft, value);
            }
            Effect::Denies { sets, unless, reach } => {
                sets(draft, &value);
                if !unless(&value) {
                    draft.not_enforced(*reach);
                }
            }
            Effect::Differs { .. } => {}
            Effect::Dead => draft.dead(),
        }))
    }

    fn status(&self) -> Status {
        match &self.1 {
            Effect::Sets(_) => Status::Honoured,
            Effect::Unnoticed(why) => Status::Unnoticed(why),
            Effect::Differs { without, .. } | Effect::Partly { without, .. } => Status::Differs(without),
            Effect::Denies { reach, .. } => Status::Denies(*reach),
            Effect::Snippet(_) => Status::Snippet,
            Effect::Dead => Status::Dead,
        }
    }

    fn words(&self) -> &'static str {
        self.0.words
    }

    fn samples(&self) -> (&'static [&'static str], &'static [&'static str]) {
        (self.0.good, self.0.bad)
    }
}
