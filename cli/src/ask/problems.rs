//! `firth problems`: problems of objects.

use serde::Serialize;
use shared::proto::inspect;

use crate::output::printable;

/// One problem; field names are the contract of `-o json`.
#[derive(Debug, Serialize)]
pub(crate) struct Problem {
    object: String,
    field: String,
    severity: String,
    reason: String,
    location: String,
    consequence: String,
}

/// Consequences, the worst first. What is about no object has none: it comes before, as it may concern all.
const CONSEQUENCES: [&str; 4] = ["", "fails", "differs", "no-effect"];

/// Sorts problems by what they mean for requests, the worst first. Otherwise they stay in their order.
pub(crate) fn sort(problems: &mut [inspect::Problem]) {
    problems.sort_by_key(|it| CONSEQUENCES.iter().position(|name| *name == it.consequence));
}

/// The printed form of the response.
pub(crate) fn views(problems: Vec<inspect::Problem>) -> Vec<Problem> {
    problems
        .into_iter()
        .map(|problem| Problem {
            object: problem.object,
            field: problem.field,
            severity: problem.severity,
            reason: problem.reason,
            location: problem.location,
            consequence: problem.consequence,
        })
        .collect()
}

/// For people: sentences do not fit into columns, so each problem is a short paragraph.
pub(crate) fn text(problems: &[Problem]) -> String {
    if problems.is_empty() {
        return "no problems\n".to_owned();
    }
    problems.iter().map(paragraph).collect()
}

fn paragraph(problem: &Problem) -> String {
    let mut text = format!("{}: {}\n", problem.severity, printable(&problem.object));
    for (label, value) in [("", &problem.reason), ("at ", &problem.field), ("in ", &problem.location)] {
        if !value.is_empty() {
            text.push_str("  ");
            text.push_str(label);
            text.push_str(&printable(value));
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_paragraphs() {
        let problem = inspect::Problem {
            object: "Ingress default/web".to_owned(),
            field: "metadata.annotations[nginx.ingress.kubernetes.io/auth-url]".to_owned(),
            severity: "unsupported".to_owned(),
            reason: "its paths answer 503 until it is honoured".to_owned(),
            location: "web.yaml:3".to_owned(),
            consequence: "fails".to_owned(),
        };
        let views = views(vec![problem]);
        let expected = "\
unsupported: Ingress default/web
  its paths answer 503 until it is honoured
  at metadata.annotations[nginx.ingress.kubernetes.io/auth-url]
  in web.yaml:3
";
        assert_eq!(text(&views), expected);
        assert_eq!(text(&[]), "no problems\n");
    }

    #[test]
    fn what_fails_comes_first() {
        let of = |object: &str, consequence: &str| inspect::Problem {
            object: object.to_owned(),
            consequence: consequence.to_owned(),
            ..Default::default()
        };
        let mut problems = [
            of("a", "no-effect"),
            of("b", "differs"),
            of("c", "fails"),
            of("folder", ""),
            of("d", "fails"),
            of("e", "later-word"),
        ];
        sort(&mut problems);
        assert_eq!(problems.map(|it| it.object), ["e", "folder", "c", "d", "b", "a"]);
    }
}
