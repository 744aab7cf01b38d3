//! Variables that a snippet sets, followed through its `if` blocks: nginx' rewrite phase, as far as it can be decided
//! before there is a request.
//!
//! A world is what a request may have come to at some point of the snippet: the tests that it passed, and the values of
//! variables. Any request is in exactly one world.
//!
//! **Invariant:** a value is that of nginx for every request of the world, or it is unknown.

use std::collections::{BTreeMap, BTreeSet};

use shared::pattern::{Allowance, Pattern, PatternError, Steps};
use shared::policy::{ShortcutComparison, ShortcutRewrite, ShortcutTest, SnippetValue, SnippetVariable};
use shared::template::{Template, Variable};

use super::groups;
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
    /// Whether some have another path than before.
    some_are_rewritten: bool,
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
    /// Those of the unknown ones that have a value once there is a request.
    found: BTreeMap<String, Found>,
}

/// The value of a variable that nothing is decided by beforehand.
#[derive(Clone, PartialEq, Debug)]
enum Found {
    /// A text that holds the groups of this test.
    Groups(String, usize),
    /// What it was before the snippet: that of the host, or nothing.
    Before,
    /// The same, where nothing around this snippet is known to set it: conditions see an empty text. A variable that is
    /// set by the host of another Ingress has that value in headers. Not in a snippet that refuses requests by such a
    /// variable: somebody else may set what refuses them.
    Nothing,
}

/// Whether a condition holds in a world.
pub(super) enum Outcome {
    Holds,
    Fails,
    /// It depends on the request.
    Asks(ShortcutTest),
}

/// Whether a snippet refuses requests by one of these variables.
fn refuses_by(snippet: &[Directive], variables: &BTreeSet<String>) -> bool {
    let refuses = |it: &Directive| {
        let status = it.arguments().first().and_then(|status| status.parse().ok());
        it.name() == "return" && status.is_some_and(|status: u16| status >= 400)
    };
    let asks = |it: &Directive| groups::used([it]).any(|name| variables.contains(&name));
    nodes(snippet).any(|Node { directive, inner }| {
        directive.name() == "if" && asks(directive) && inner.iter().any(refuses)
    })
}

impl Worlds {
    /// `set_before`: what may be set around the snippet; `None`: anything.
    pub(super) fn new(snippet: &[Directive], set_before: Option<&BTreeSet<String>>) -> Self {
        let late = snippet.iter().filter(|it| it.name() == "auth_request_set").filter_map(variables::target);
        let own = snippet.iter().filter(|it| it.name() == "set" && variables::sets_its_own(it));
        let own: BTreeSet<_> = own.filter_map(variables::target).take(MOST_VARIABLES).collect();
        let is_guard = refuses_by(snippet, &own);
        let found = |name: &String| match set_before {
            Some(names) if !is_guard && !names.contains(name) => Found::Nothing,
            _ => Found::Before,
        };
        let first = World {
            tests: Vec::new(),
            found: own.iter().map(|name| (name.clone(), found(name))).collect(),
            values: own.into_iter().map(|name| (name, None)).collect(),
        };
        let (left, all) = (shortcuts::MOST_BYTES, vec![first]);
        Self { all, late: late.collect(), some_have_left: false, some_are_rewritten: false, left }
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
        (self.some_have_left, self.some_are_rewritten) = (true, true);
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
            "set" if !directive.is_block => self.all.iter_mut().for_each(|world| world.set(directive, None)),
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
            && others.iter().all(|other| other.values == first.values && other.found == first.found)
            && !first.found.values().any(|it| matches!(it, Found::Groups(..)))
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
        let condition = Condition::of(node.directive);
        let has_groups = condition.as_ref().is_some_and(Condition::finds);
        for world in &self.all {
            let mut inside = world.clone();
            let groups = has_groups.then_some(world.tests.len());
            sets.iter().for_each(|it| inside.set(it, groups));
            if inside == *world {
                now.push(inside);
                continue;
            }
            match condition.as_ref().and_then(|it| world.outcome(it, room)) {
                Some(Outcome::Fails) => now.push(world.clone()),
                Some(Outcome::Holds) => {
                    // The groups are of a test that is no new one.
                    let known = inside.tests.len();
                    inside.found.retain(|_, it| !matches!(it, Found::Groups(_, of) if *of >= known));
                    now.push(inside);
                }
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
        if now.len() > MOST {
            return self.forget(node.inner);
        }
        self.all = now;
    }

    /// No variable has a known value any more.
    fn give_up(&mut self) {
        for world in &mut self.all {
            world.values.values_mut().for_each(|value| *value = None);
            world.found.clear();
        }
        self.merge();
    }

    /// Variables that are set here have an unknown value from now on.
    fn forget(&mut self, directives: &[Directive]) {
        let set: Vec<_> =
            directives.iter().filter(|it| it.name() == "set").filter_map(variables::target).collect();
        for world in &mut self.all {
            world.values.extend(set.iter().map(|name| (name.clone(), None)));
            world.found.retain(|name, _| !set.contains(name));
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

    /// The variables of this list that have a value at the end, which differs between requests.
    pub(super) fn variables(&self, names: &BTreeSet<String>) -> Vec<SnippetVariable> {
        let mut left = shortcuts::MOST_BYTES;
        let is_early = |name: &&String| !self.late.contains(*name);
        let values = names.iter().filter(is_early).filter_map(|name| {
            let cases: Option<Vec<_>> = self.all.iter().map(|world| world.value(name)).collect();
            let cases: Option<Vec<_>> = cases.map(|all| all.into_iter().flatten().collect());
            let cases = cases.filter(|it| !(self.some_are_rewritten && follow_path(it)))?;
            let tests = cases.iter().flat_map(|it| &it.tests).map(|it| it.subject.len() + it.value.len());
            let bytes = tests.sum::<usize>() + cases.iter().map(|it| it.value.len()).sum::<usize>();
            left = left.checked_sub(bytes)?;
            Some(SnippetVariable { name: name.clone(), cases })
        });
        values.collect()
    }
}

/// Whether a rewrite behind the snippet changes what a variable is then.
pub(super) fn follow_path(cases: &[SnippetValue]) -> bool {
    let depends = |it: &SnippetValue| {
        depends_on_path(&it.value) || it.tests.iter().any(|it| depends_on_path(&it.subject))
    };
    cases.iter().any(depends)
}

/// Whether a rewrite changes the value of a text.
pub(super) fn depends_on_path(text: &str) -> bool {
    use Variable::{Args, Argument, IsArgs, Uri};
    Template::parse(text).variables().any(|it| matches!(it, Args | Argument(_) | IsArgs | Uri))
}

impl World {
    /// `groups`: the test that was passed last, if its pattern has them.
    fn set(&mut self, directive: &Directive, groups: Option<usize>) {
        let Some(name) = variables::target(directive).filter(|_| variables::sets_its_own(directive)) else {
            return;
        };
        let value = directive.arguments().get(1).and_then(|text| self.filled_by(text, groups));
        // In braces, a name cannot go on with what it is put in front of.
        let value = value.map(|text| Template::replaced(&text, |name| Some(format!("${{{name}}}"))));
        let value = value.filter(|text| text.len() <= MOST_BYTES);
        // One that is not among them has no value anywhere.
        if self.values.len() >= MOST_VARIABLES && !self.values.contains_key(&name) {
            return;
        }
        self.found.remove(&name);
        match value {
            Some(text) if !has_values(&text, false) => {
                if let Some(of) = groups.filter(|_| has_values(&text, true)) {
                    self.found.insert(name.clone(), Found::Groups(text, of));
                }
                self.values.insert(name, None);
            }
            value => _ = self.values.insert(name, value),
        }
    }

    /// What a variable is in this world, if it has a value of the snippet there; `None`: that is unknown.
    fn value(&self, name: &str) -> Option<Option<SnippetValue>> {
        let (value, groups_of) = match self.found.get(name) {
            Some(Found::Before | Found::Nothing) => return Some(None),
            Some(Found::Groups(text, of)) => (text.clone(), Some(u32::try_from(*of).ok()?)),
            None => (self.values.get(name)?.clone()?, None),
        };
        Some(Some(SnippetValue { tests: self.tests.clone(), value, groups_of }))
    }

    /// The same behind these directives. `groups`: the test that was passed last, if its pattern has them.
    pub(super) fn behind(&self, sets: &[&Directive], groups: Option<usize>) -> Self {
        let mut world = self.clone();
        sets.iter().for_each(|it| world.set(it, groups));
        world
    }

    /// The text with the values of variables, which may hold the groups of this test; `None` if one is unknown.
    pub(super) fn filled_by(&self, text: &str, groups: Option<usize>) -> Option<String> {
        let text = Template::replaced(text, |name| match self.found.get(name)? {
            Found::Groups(text, of) => Some(text.clone()).filter(|_| groups == Some(*of)),
            Found::Before | Found::Nothing => None,
        });
        self.filled(&text)
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
            is_known &= value.is_some() || self.found.get(name) == Some(&Found::Nothing);
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
