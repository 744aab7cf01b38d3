//! Groups of a path that `rewrite-target` asks for and the path does not have.

use shared::template::{Template, Variable};

use super::ClaimedPath;
use crate::problem::{Fault, Severity, shown};

/// The last group that a target asks for; `None`: it asks for none.
pub(super) fn last(target: &str) -> Option<usize> {
    let asked = Template::parse(target);
    let groups = asked.variables().filter_map(|it| match it {
        Variable::Capture(group) => Some(usize::from(*group)),
        _ => None,
    });
    groups.max()
}

impl ClaimedPath {
    /// What to tell of it, if a target asks for a group, the `last` one, that it does not have. nginx takes that for empty
    /// text, so that most often each request gets the same page.
    pub(super) fn group_fault(&self, target: &str, last: usize) -> Option<Fault> {
        let path = &*self.path;
        let known = count(path);
        if last <= known {
            return None;
        }
        let has = match known {
            0 => "no group",
            1 => "one group",
            _ => &format!("{known} groups"),
        };
        let base = path.trim_end_matches('/');
        let advice = match (known, last) {
            (0, 1 | 2) if base.is_empty() => ": write /(.*) and $1 for what is below".to_owned(),
            (0, 1) => format!(": write {base}/(.*) for what is below"),
            (0, 2) => format!(": write {base}(/|$)(.*) for what is below"),
            _ => String::new(),
        };
        let target = shown(target);
        let reason = format!(
            "rewrite-target {target} asks for ${last}, and {path} has {has}: it is empty, as in ingress-nginx{advice}"
        );
        Some(Fault::new(Severity::Warning, format!("{}.path", self.field()), reason))
    }
}

/// Number of the groups of a regular expression.
fn count(pattern: &str) -> usize {
    let (mut count, mut is_in_class) = (0, false);
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' => rest = rest.strip_prefix(|_: char| true).unwrap_or_default(),
            ']' => is_in_class = false,
            _ if is_in_class => {}
            '[' => {
                is_in_class = true;
                // As the first of a class it closes none.
                rest = rest.strip_prefix('^').unwrap_or(rest);
                rest = rest.strip_prefix(']').unwrap_or(rest);
            }
            '(' => count += usize::from(!rest.starts_with(['?', '*']) || is_named(rest)),
            _ => {}
        }
    }
    count
}

/// Whether what follows a parenthesis names its group.
fn is_named(rest: &str) -> bool {
    let looks_behind = rest.starts_with("?<=") || rest.starts_with("?<!");
    ["?<", "?P<", "?'"].iter().any(|start| rest.starts_with(start)) && !looks_behind
}

#[cfg(test)]
mod tests {
    use shared::name::ObjectName;
    use shared::resource::PathType;

    use super::*;
    use crate::compile::claim::BackendKey;

    #[test]
    fn groups_that_a_path_does_not_have_are_told_with_what_to_write() {
        let told = |path: &str, target: &str| {
            let backend = BackendKey { service: ObjectName::new("a", "b"), port: "80".into() };
            let claimed = ClaimedPath { path: path.into(), kind: PathType::Prefix, backend, place: (1, 2) };
            claimed.group_fault(target, last(target)?)
        };
        let fault = told("/", "/$2").unwrap();
        assert!(
            fault.reason.contains("no group")
                && fault.reason.ends_with("write /(.*) and $1 for what is below")
        );
        assert_eq!((fault.severity, &*fault.field), (Severity::Warning, "spec.rules[1].http.paths[2].path"));
        assert!(told("/api/", "/$1").unwrap().reason.contains("write /api/(.*) for"));
        assert!(told("/api/", "/$2").unwrap().reason.contains("write /api(/|$)(.*) for"));
        assert!(told("/(.*)", "/$2").unwrap().reason.contains("$2, and /(.*) has one group: it is empty"));
        for (path, target) in [
            ("/api(/|$)(.*)", "/$2"),
            ("/(.*)", "/$1"),
            ("/", "/"),
            ("/a", "https://b.test$request_uri"),
            ("/", "/a$"),
        ] {
            assert_eq!(told(path, target), None, "{path} {target}");
        }
    }

    #[test]
    fn groups_are_counted_as_nginx_counts_them() {
        for (pattern, groups) in [
            ("/a(b(c))", 2),
            ("/a\\(b", 0),
            ("/[(](b)", 1),
            ("/[^](](b)", 1),
            ("/(?:a)(?=b)(?<!c)(?<=d)(?i)", 0),
            ("/(?<a>b)(?P<c>d)(?'e'f)", 3),
            ("/é(ü)\\", 1),
        ] {
            assert_eq!(count(pattern), groups, "{pattern}");
        }
    }
}
