//! The values of variables that a snippet sets (nginx' `set`), found when something asks for them.

use shared::pattern::{Exhausted, Groups};
use shared::template::Variable;

use super::Exchange;
use super::shortcuts::all_hold;
use super::variables::{self, Allowance};
use crate::table::policy::snippet_variables::Case;

/// What a pattern found, and where.
type Found = Option<(Groups, Vec<u8>)>;

/// Appends the value of a variable of the location or its host. One that cannot be determined in time is empty. Returns
/// whether a snippet sets it for this request.
pub(super) fn append(exchange: &Exchange<'_>, name: &str, out: &mut Vec<u8>) -> bool {
    let variables = exchange.location().and_then(|it| it.policy.variables.as_deref());
    for case in variables.into_iter().flat_map(|it| it.cases(name)) {
        match applies(exchange, case) {
            Ok(Some(found)) => {
                fill(exchange, case, &found, out);
                return true;
            }
            Ok(None) => {}
            Err(Exhausted) => return true,
        }
    }
    false
}

/// What the test has found whose groups a case holds; `None`: some test does not hold.
fn applies(exchange: &Exchange<'_>, case: &Case) -> Result<Option<Found>, Exhausted> {
    let mut found = None;
    let holds = all_hold(exchange, &case.tests, exchange.head.uncured_target(), |at, groups, text| {
        if case.groups_of == Some(at) {
            found = Some((groups, text));
        }
    });
    Ok(holds?.then_some(found))
}

fn fill(exchange: &Exchange<'_>, case: &Case, found: &Found, out: &mut Vec<u8>) {
    let most = out.len() + Allowance::USUAL;
    let filled = case.value.fill(out, most, |variable, out| match (variable, found) {
        (Variable::Capture(number), Some((groups, text))) => {
            out.extend_from_slice(groups.get(usize::from(*number), text));
        }
        (variable, _) => variables::append(exchange, variable, out),
    });
    // What it is a part of has the same limit, and is refused then.
    _ = filled;
}
