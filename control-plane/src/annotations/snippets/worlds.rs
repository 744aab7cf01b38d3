//! Variables that a snippet sets, followed through its `if` blocks: nginx' rewrite phase, as far as it can be decided
//! before there is a request.
//!
//! A world is what a request may have come to at some point of the snippet: the tests that it passed, and the values of
//! variables. Any request is in exactly one world.
//!
//! **Invariant:** a value is that of nginx for every request of the world, or it is unknown.

use std::collections::{BTreeMap, BTreeSet};

use shared::pattern::{Allowance, Pattern, PatternError, Steps};
use shared::policy::{ShortcutComparison, ShortcutRewrite, ShortcutTest};
use shared::template::{Template, Variable};

use super::shortcuts::{self, Condition, Node, bytes, has_values, nodes};
use super::tokens::Directive;
use super::variables;

/// Limit of the worlds of a snippet. Two per `if` are usual.
const MOST: usize = 32;

/// Limits of the variables, and of the length of a value.
const MOST_VARIABLES: usize = 32;
const MOST_BYTES: usize = 1 << 10;

/// All worlds at one point of a snippet.
pub(super) struct Worlds {
    all: Vec<World>,
    /// Variables that are set later than in the rewrite phase, or not for all requests that go on.
    late: BTreeSet<String>,
    /// Whether a rewrite has ended the snippet for some requests.
    some_have_left: bool,
    /// The length of what may still be followed.
    left: usize,
}

/// One of them.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct World {
    /// What a request passed, all of it.
    pub(super) tests: Vec<ShortcutTest>,
    /// Variables that were set; `None`: to something unknown.
    values: BTreeMap<String, Option<String>>,
}

/// Whether a condition holds in a world.
pub(super) enum Outcome {
    Holds,
    Fails,
    /// It depends on the request.
    Asks(ShortcutTest),
}

impl Worlds {
    pub(super) fn new(snippet: &[Directive]) -> Self {
        let late = snippet.iter().filter(|it| it.name() == "auth_request_set").filter_map(variables::target);
        let first = World { tests: Vec::new(), values: BTreeMap::new() };
        let left = shortcuts::MOST_BYTES;
        Self { all: vec![first], late: late.collect(), some_have_left: false, left }
    }

    pub(super) fn all(&self) -> &[World] {
        &self.all
    }

    /// Whether a directive uses a variable that was set.
    pub(super) fn concern<'a>(&self, directives: impl Iterator<Item = &'a Directive>) -> bool {
        let mut texts = directives.flat_map(Directive::arguments);
        // All worlds have the same variables: see `follow`.
        texts.any(|text| self.all.first().is_some_and(|world| world.uses(text)))
    }

    /// Behind a rewrite. From here on some requests are not concerned, although they reach the location, or have another
    /// path than they were told apart by.
    pub(super) fn rewrite(&mut self, rewrite: ShortcutRewrite) {
        self.some_have_left = true;
        if rewrite == ShortcutRewrite::Next {
            return self.give_up();
        }
        for value in self.all.iter_mut().flat_map(|world| world.values.values_mut()) {
            *value = value.take().filter(|text| !depends_on_path(text));
        }
    }

    /// Goes on behind a directive.
    pub(super) fn follow(&mut self, node: &Node<'_>, room: &mut Allowance) {
        let Node { directive, inner } = node;
        if self.some_have_left {
            let sets = inner.iter().chain([*directive]).filter(|it| it.name() == "set");
            self.late.extend(sets.filter_map(variables::target));
        }
        let left = self.left.checked_sub(bytes(directive) + inner.iter().map(bytes).sum::<usize>());
        self.left = left.unwrap_or(0);
        if left.is_none() {
            return self.give_up();
        }
        match directive.name() {
            "set" if !directive.is_block => self.all.iter_mut().for_each(|world| world.set(directive)),
            "if" if directive.is_block => self.branch(node, room),
            _ => {}
        }
        // A block of another kind sets variables who knows when.
        if directive.is_block && directive.name() != "if" && directive.name() != "location" {
            self.forget(inner);
        }
        self.merge();
    }

    /// Worlds that differ in no value are one, which any request is in.
    fn merge(&mut self) {
        if let [first, others @ ..] = &mut *self.all
            && others.iter().all(|other| other.values == first.values)
        {
            first.tests.clear();
            self.all.truncate(1);
        }
    }

    /// Goes on behind an `if`, whose block may set variables.
    fn branch(&mut self, node: &Node<'_>, room: &mut Allowance) {
        let sets: Vec<_> = nodes(node.inner).map(|it| it.directive).filter(|it| it.name() == "set").collect();
        if sets.is_empty() {
            return;
        }
        let mut now = Vec::new();
        for world in &self.all {
            let mut inside = world.clone();
            sets.iter().for_each(|it| inside.set(it));
            if inside == *world {
                now.push(inside);
                continue;
            }
            match Condition::of(node.directive).and_then(|it| world.outcome(&it, room)) {
                Some(Outcome::Fails) => now.push(world.clone()),
                Some(Outcome::Holds) => now.push(inside),
                Some(Outcome::Asks(test)) => {
                    let others = opposites(&test);
                    inside.tests.push(test);
                    now.push(inside);
                    now.extend(others.into_iter().map(|test| {
                        let mut outside = world.clone();
                        outside.tests.push(test);
                        outside
                    }));
                }
                None => return self.forget(node.inner),
            }
        }
        // One that was set in some of them only is empty in the others, unless a map gives it a value.
        let names: BTreeSet<_> = now.iter().flat_map(|world| world.values.keys().cloned()).collect();
        for world in &mut now {
            names.iter().for_each(|name| _ = world.values.entry(name.clone()).or_default());
        }
        if now.len() > MOST {
            return self.forget(node.inner);
        }
        self.all = now;
    }

    /// No variable has a known value any more.
    fn give_up(&mut self) {
        let values = self.all.iter_mut().flat_map(|world| world.values.values_mut());
        values.for_each(|value| *value = None);
        self.merge();
    }

    /// Variables that are set here have an unknown value from now on.
    fn forget(&mut self, directives: &[Directive]) {
        let set: Vec<_> =
            directives.iter().filter(|it| it.name() == "set").filter_map(variables::target).collect();
        for world in &mut self.all {
            world.values.extend(set.iter().map(|name| (name.clone(), None)));
        }
    }

    /// The text with the values that variables have at the end, if they have the same in all worlds.
    pub(super) fn settled(&self, text: &str) -> String {
        let Some((first, others)) = self.all.split_first() else { return text.to_owned() };
        Template::replaced(text, |name| {
            let value = first.values.get(name)?;
            let is_same = others.iter().all(|other| other.values.get(name) == Some(value));
            value.clone().filter(|_| is_same && !self.late.contains(name))
        })
    }
}

/// Whether a rewrite changes the value of a text.
pub(super) fn depends_on_path(text: &str) -> bool {
    use Variable::{Args, Argument, IsArgs, Uri};
    Template::parse(text).variables().any(|it| matches!(it, Args | Argument(_) | IsArgs | Uri))
}

impl World {
    fn set(&mut self, directive: &Directive) {
        let Some(name) = variables::target(directive).filter(|_| variables::sets_its_own(directive)) else {
            return;
        };
        let value = directive.arguments().get(1).and_then(|text| self.filled(text));
        // In braces, a name cannot go on with what it is put in front of.
        let value = value.map(|text| Template::replaced(&text, |name| Some(format!("${{{name}}}"))));
        let value = value.filter(|text| has_values(text, false) && text.len() <= MOST_BYTES);
        // One that is not among them has no value anywhere.
        if self.values.len() < MOST_VARIABLES || self.values.contains_key(&name) {
            self.values.insert(name, value);
        }
    }

    /// The same behind these directives.
    pub(super) fn behind(&self, sets: &[&Directive]) -> Self {
        let mut world = self.clone();
        sets.iter().for_each(|it| world.set(it));
        world
    }

    fn uses(&self, text: &str) -> bool {
        let is_set = |variable: &Variable| matches!(variable, Variable::Named(name) if self.values.contains_key(&**name));
        Template::parse(text).variables().any(is_set)
    }

    /// The text with the values of variables; `None` if one is unknown.
    pub(super) fn filled(&self, text: &str) -> Option<String> {
        let mut is_known = true;
        let filled = Template::replaced(text, |name| {
            let value = self.values.get(name)?;
            is_known &= value.is_some();
            Some(value.clone().unwrap_or_default())
        });
        is_known.then_some(filled)
    }

    /// Whether a condition holds; `None`: that is unknown.
    pub(super) fn outcome(&self, condition: &Condition<'_>, room: &mut Allowance) -> Option<Outcome> {
        use ShortcutComparison::{Differs, Equals};
        let mut subject = self.filled(condition.subject)?;
        if let Some(name) =
            subject.strip_prefix("${").and_then(|it| it.strip_suffix('}')).filter(|it| !it.contains('}'))
        {
            // As it is usually written, so that it is the same test.
            subject = format!("${name}");
        }
        let value = match condition.comparison {
            Equals | Differs => self.filled(condition.value)?,
            _ => condition.value.to_owned(),
        };
        let filled = Condition { subject: &subject, comparison: condition.comparison, value: &value };
        if let Some(text) = Template::parse(&subject).as_literal() {
            return filled
                .holds_of(text, room)
                .map(|holds| if holds { Outcome::Holds } else { Outcome::Fails });
        }
        let test = filled.test(room)?;
        Some(match () {
            () if self.tests.contains(&test) => Outcome::Holds,
            () if opposites(&test).iter().any(|it| self.tests.contains(it)) => Outcome::Fails,
            () => Outcome::Asks(test),
        })
    }
}

/// Tests of which exactly one passes where this one does not.
fn opposites(test: &ShortcutTest) -> Vec<ShortcutTest> {
    use ShortcutComparison::{Differs, Equals, Finds, FindsAnyCase, IsSet, Lacks, LacksAnyCase, Unspecified};
    let with = |comparison: ShortcutComparison, value: &str| ShortcutTest {
        subject: test.subject.clone(),
        comparison: Some(comparison.into()),
        value: value.into(),
    };
    let other = match test.comparison() {
        IsSet => return vec![with(Equals, ""), with(Equals, "0")],
        Equals => Differs,
        Differs => Equals,
        Finds => Lacks,
        Lacks => Finds,
        FindsAnyCase => LacksAnyCase,
        LacksAnyCase => FindsAnyCase,
        Unspecified => return Vec::new(),
    };
    vec![with(other, &test.value)]
}

impl Condition<'_> {
    /// Whether it holds of a subject that is known; `None`: it takes too long.
    fn holds_of(&self, text: &str, room: &mut Allowance) -> Option<bool> {
        use ShortcutComparison::{
            Differs, Equals, Finds, FindsAnyCase, IsSet, Lacks, LacksAnyCase, Unspecified,
        };
        let mut finds = |compile: fn(&str) -> Result<Pattern, PatternError>| {
            let pattern = room.compile(|| compile(self.value)).ok()?;
            pattern.is_match(text.as_bytes(), &Steps::new()).ok()
        };
        match self.comparison {
            IsSet => Some(!text.is_empty() && text != "0"),
            // A request decides what a value with a variable is.
            Equals | Differs => {
                let is_same = Template::parse(self.value).as_literal()? == text;
                Some(is_same == (self.comparison == Equals))
            }
            Finds => finds(Pattern::anywhere),
            Lacks => finds(Pattern::anywhere).map(|found| !found),
            FindsAnyCase => finds(Pattern::anywhere_in_any_case),
            LacksAnyCase => finds(Pattern::anywhere_in_any_case).map(|found| !found),
            Unspecified => None,
        }
    }
}

#[cfg(test)]
mod tests;
