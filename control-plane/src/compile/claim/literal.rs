//! Paths that look like patterns. On a host without regular expressions they are compared as they are written.

use super::ClaimedPath;
use crate::problem::{Fault, Severity};

impl ClaimedPath {
    /// Whether it looks like a pattern.
    pub fn looks_like_pattern(&self) -> bool {
        // No client sends these in a path as they are.
        let is_odd = self.path.contains(['[', '^', '|', '\\']);
        let is_any = [".*", ".+", "("].iter().any(|it| self.path.contains(it));
        is_odd || is_any || self.path.ends_with("/*") || self.path.ends_with('$')
    }

    /// What to tell of it, if no path of its host is a regular expression.
    pub fn literal_fault(&self) -> Option<Fault> {
        let path = &*self.path;
        self.looks_like_pattern().then(|| {
            let reason = match path.strip_suffix("/*") {
                Some(before) => {
                    let meant = if before.is_empty() { "/" } else { before };
                    format!(
                        "the asterisk is taken literally, as in ingress-nginx, so {path} matches next to nothing: for all paths \
                         below, write {meant} with pathType Prefix"
                    )
                }
                None => format!(
                    "{path} is taken literally, as in ingress-nginx, so it matches next to nothing: to make it a regular \
                     expression, set the annotation use-regex to \"true\""
                ),
            };
            Fault::new(Severity::Warning, format!("{}.path", self.field()), reason)
        })
    }
}

#[cfg(test)]
mod tests {
    use shared::name::ObjectName;
    use shared::resource::PathType;

    use super::*;
    use crate::compile::claim::BackendKey;

    #[test]
    fn what_looks_like_a_pattern_is_told_with_what_to_write() {
        let told = |path: &str| {
            let backend = BackendKey { service: ObjectName::new("a", "b"), port: "80".into() };
            let claimed = ClaimedPath { path: path.into(), kind: PathType::Prefix, backend, place: (1, 2) };
            claimed.literal_fault()
        };
        let fault = told("/*").unwrap();
        assert!(fault.reason.ends_with("write / with pathType Prefix"), "{fault:?}");
        assert_eq!(fault.field, "spec.rules[1].http.paths[2].path");
        assert!(told("/api/*").unwrap().reason.contains("write /api with"));
        for pattern in
            ["/api/.*", "/api(/|$)(.*)", "/(a|b)", "/v[0-9]/", "^/api", "/a.+", "/img$", "/v\\d", "/a|/b"]
        {
            assert!(told(pattern).unwrap().reason.contains("use-regex"), "{pattern}");
        }
        for plain in ["/", "/api", "/a*", "/*/b", "/a.b", "/~a/$b+c"] {
            assert_eq!(told(plain), None, "{plain}");
        }
    }
}
