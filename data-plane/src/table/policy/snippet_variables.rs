//! Variables that snippets set: nginx' `set`, where the value differs between requests.

use shared::policy::{LocationPolicy, SnippetValue, SnippetVariable, SnippetVariables as Configured};
use shared::template::{Template, Variable};

use super::PolicyError;
use super::shortcuts::{Test, test};

/// All of a location: its own, then those of its host.
#[derive(Clone, Debug)]
pub struct SnippetVariables {
    list: Box<[Named]>,
}

/// A variable's name and its cases.
type Named = (Box<str>, Box<[Case]>);

/// A value for some requests.
#[derive(Clone, Debug)]
pub struct Case {
    /// All must hold.
    pub tests: Box<[Test]>,
    /// The value.
    pub value: Template,
    /// The test whose groups it holds.
    pub groups_of: Option<usize>,
}

impl SnippetVariables {
    /// Compiles them; `None` if there are none.
    ///
    /// # Errors
    /// A test or a value is not supported.
    pub fn compile(configured: &LocationPolicy) -> Result<Option<Box<Self>>, PolicyError> {
        let of = |list: &Option<Configured>| list.clone().into_iter().flat_map(|it| it.variables);
        let all = of(&configured.variables).chain(of(&configured.host_variables));
        let list = all.map(variable).collect::<Result<Box<[_]>, _>>()?;
        Ok((!list.is_empty()).then(|| Box::new(Self { list })))
    }

    /// The cases of a variable, of which the first that applies counts.
    pub fn cases(&self, name: &str) -> impl Iterator<Item = &Case> {
        self.list.iter().filter(move |(own, _)| **own == *name).flat_map(|(_, cases)| cases)
    }
}

fn variable(configured: SnippetVariable) -> Result<Named, PolicyError> {
    let cases = configured.cases.iter().map(case).collect::<Result<_, _>>()?;
    Ok((configured.name.into(), cases))
}

fn case(configured: &SnippetValue) -> Result<Case, PolicyError> {
    let refused = |what: &str| PolicyError { field: "variables", problem: format!("expected {what}") };
    let tests: Box<[Test]> = configured.tests.iter().map(test).collect::<Result<_, _>>()?;
    let value = Template::parse(&configured.value);
    // A value is never looked up in turn.
    let is_own = |template: &Template| template.variables().any(|it| matches!(it, Variable::Named(_)));
    if is_own(&value) || tests.iter().any(|it| is_own(&it.subject)) {
        return Err(refused("a value without variables of a snippet"));
    }
    let groups_of = configured.groups_of.map(|at| at as usize);
    if groups_of.is_some_and(|at| at >= tests.len()) {
        return Err(refused("groups of a test"));
    }
    Ok(Case { tests, value, groups_of })
}
