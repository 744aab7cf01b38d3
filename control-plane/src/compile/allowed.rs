//! Restrictions that the fleet's ConfigMap puts on annotations (as ingress-nginx' keys of the same names do). An
//! Ingress that violates them is rejected: its last good version stays.
//!
//! The default level is High, as in ingress-nginx: snippets are above it. The default also applies if there is no
//! ConfigMap, in a cluster or in a folder of manifests.

use crate::annotations::row::{Risk, Status};
use crate::annotations::{self, PREFIX, table, value};
use crate::objects::{ConfigMap, Texts};
use crate::problem::{Fault, Severity, shown};

/// `annotations-risk-level`.
pub(crate) const RISK_LEVEL: &str = "annotations-risk-level";

/// `annotation-value-word-blocklist`.
pub(crate) const WORDS: &str = "annotation-value-word-blocklist";

/// How a fault ends whose Ingress is rejected because snippets are not allowed.
pub const WITHOUT_SNIPPETS: &str = ", and allow-snippet-annotations to true, to allow this annotation";

/// The restrictions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allowed {
    /// Annotations of a higher risk are rejected.
    risk: Risk,
    /// Values that contain one of these are rejected.
    words: Vec<String>,
}

impl Default for Allowed {
    fn default() -> Self {
        Self { risk: Risk::High, words: Vec::new() }
    }
}

impl Allowed {
    /// The restrictions of a ConfigMap; its keys are compared without regard to case.
    pub fn of(configmap: Option<&ConfigMap>) -> Self {
        let mut allowed = Self::default();
        for (key, text) in configmap.iter().flat_map(|map| &map.data) {
            let text = text.trim();
            if key.eq_ignore_ascii_case(RISK_LEVEL) && !text.is_empty() {
                // As in ingress-nginx, a misspelt level means the strictest one.
                allowed.risk = risk(text).unwrap_or(Risk::Low);
            } else if key.eq_ignore_ascii_case(WORDS) {
                allowed.words.extend(value::list(text).map(str::to_owned));
            }
        }
        allowed
    }

    /// The first annotation with a forbidden word, and the word.
    pub fn forbidden<'a>(&'a self, annotations: &'a Texts) -> Option<(&'a str, &'a str)> {
        let mut ours = annotations.iter().filter(|(key, _)| key.starts_with(PREFIX));
        ours.find_map(|(key, text)| {
            let word = self.words.iter().find(|word| text.contains(word.as_str()))?;
            Some((key.as_str(), word.as_str()))
        })
    }

    /// Violations in an Ingress' annotations.
    pub fn faults(&self, annotations: &Texts) -> Vec<Fault> {
        let (risk, words) = (self.risk, &self.words);
        if risk == Risk::Critical && words.is_empty() {
            return Vec::new();
        }
        let ours = annotations.iter().filter_map(|(key, text)| Some((key.strip_prefix(PREFIX)?, text)));
        let fault = |(name, text): (&str, &String)| {
            let row = table::find(name).filter(|row| row.value.status() != Status::Dead);
            let too_risky = row.filter(|row| row.risk > risk).map(|row| {
                let (is, most) = (row.risk.as_str(), risk.as_str());
                let end = match row.name.ends_with("-snippet") {
                    true => WITHOUT_SNIPPETS,
                    false => " to allow this annotation",
                };
                format!("has {is} risk, and {RISK_LEVEL} in the ConfigMap allows {most} at most: set it to {is}{end}")
            });
            let forbidden = || {
                let word = words.iter().find(|word| text.contains(word.as_str()))?;
                Some(format!("contains {}, which {WORDS} forbids", shown(word)))
            };
            let reason = too_risky.or_else(forbidden)?;
            Some(Fault::new(Severity::Rejected, annotations::field(name), reason))
        };
        ours.filter_map(fault).collect()
    }
}

/// What is wrong with the value of one of the restricting keys.
pub(super) fn complaint(key: &str, text: &str) -> Option<String> {
    let is_bad = key.eq_ignore_ascii_case(RISK_LEVEL) && risk(text).is_none();
    is_bad.then(|| format!("expected Low, Medium, High or Critical, got {}: Low is used", shown(text)))
}

fn risk(text: &str) -> Option<Risk> {
    let levels = [Risk::Low, Risk::Medium, Risk::High, Risk::Critical];
    levels.into_iter().find(|risk| risk.as_str().eq_ignore_ascii_case(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(data: &[(&str, &str)], annotations: &[(&str, &str)]) -> Vec<String> {
        let data = data.iter().map(|(key, text)| ((*key).into(), (*text).into())).collect();
        let allowed = Allowed::of(Some(&ConfigMap { data, ..ConfigMap::default() }));
        let annotations: Texts =
            annotations.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        allowed.faults(&annotations).into_iter().map(|fault| fault.field).collect()
    }

    fn ours(name: &str) -> String {
        format!("{PREFIX}{name}")
    }

    #[test]
    fn nothing_said_allows_everything_but_snippets() {
        let annotations = [(&*ours("configuration-snippet"), "x"), (&*ours("server-alias"), "b.test")];
        let snippet = [annotations::field("configuration-snippet")];
        assert_eq!(fields(&[], &annotations), snippet);
        assert_eq!(fields(&[(RISK_LEVEL, ""), (WORDS, " , ")], &annotations), snippet);
        assert_eq!(Allowed::of(None), Allowed::of(Some(&ConfigMap::default())));
    }

    #[test]
    fn a_level_allows_what_is_not_above_it() {
        let (low, medium) = (ours("upstream-vhost"), ours("denylist-source-range"));
        let (high, critical) = (ours("server-alias"), ours("server-snippet"));
        let alias = ours("whitelist-source-range");
        let dead = ours("influxdb-host");
        let all = [&low, &medium, &high, &critical, &alias, &dead].map(|name| (&**name, "x"));
        for (level, rejected) in [
            ("Critical", vec![]),
            ("HIGH", vec!["server-snippet"]),
            ("medium", vec!["server-alias", "server-snippet"]),
            (
                "Low",
                vec!["denylist-source-range", "server-alias", "server-snippet", "whitelist-source-range"],
            ),
            (
                "enormous",
                vec!["denylist-source-range", "server-alias", "server-snippet", "whitelist-source-range"],
            ),
        ] {
            let expected: Vec<_> = rejected.into_iter().map(annotations::field).collect();
            assert_eq!(fields(&[("Annotations-Risk-Level", level)], &all), expected, "{level}");
        }
    }

    #[test]
    fn who_is_rejected_is_told_what_would_take_it() {
        let annotations = [("server-snippet", "x"), ("server-alias", "b.test")];
        let annotations: Texts =
            annotations.map(|(name, text)| (ours(name), text.to_owned())).into_iter().collect();
        let data = [(RISK_LEVEL.into(), "Medium".into())].into_iter().collect();
        let faults = Allowed::of(Some(&ConfigMap { data, ..ConfigMap::default() })).faults(&annotations);
        let configured: Vec<_> = faults.iter().map(|fault| fault.reason.as_str()).collect();
        let start = "risk, and annotations-risk-level in the ConfigMap allows medium at most: set it to";
        assert_eq!(
            configured,
            [
                format!("has high {start} high to allow this annotation"),
                format!(
                    "has critical {start} critical, and allow-snippet-annotations to true, to allow this annotation"
                ),
            ]
        );
    }

    #[test]
    fn words_are_looked_for_in_every_value_of_ours() {
        let path = ours("proxy-cookie-path");
        let configured = [(&*path, "/ /something_forbidden"), ("example.com/note", "forbidden")];
        assert_eq!(
            fields(&[(WORDS, "x{, forbidden ,")], &configured),
            [annotations::field("proxy-cookie-path")]
        );
        assert!(fields(&[(WORDS, "Forbidden")], &configured).is_empty(), "in this case");
        let unknown = ours("frobnicate");
        assert_eq!(fields(&[(WORDS, "{")], &[(&*unknown, "a{b")]).len(), 1);
    }

    #[test]
    fn a_level_that_is_none_is_reported() {
        assert!(complaint(RISK_LEVEL, "enormous").is_some_and(|it| it.ends_with("Low is used")));
        assert_eq!((complaint(RISK_LEVEL, "hIgH"), complaint(WORDS, "x")), (None, None));
    }
}
