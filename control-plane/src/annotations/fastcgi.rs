//! Parameters of FastCGI applications.

use super::row::{Bad, Effect, Risk, Row, Spec};
use super::value::{BASIC, Grammar};
use super::{Severity, shown};
use crate::reference::Use;

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "fastcgi-index",
        risk: Risk::Medium,
        value: &Spec(INDEX, Effect::Sets(|to, it| to.location.fastcgi_index = Some(it))),
        bad: Bad::Reject,
        doc: "Appended to script names that end in a slash",
        ..Row::NEW
    },
    &Row {
        name: "fastcgi-params-configmap",
        risk: Risk::Medium,
        value: &Spec(
            BASIC,
            Effect::Sets(|to, it| {
                if !to.refer(Use::FastCgiParams, &it) {
                    let reason =
                        format!("expected a ConfigMap of this namespace, got {}: not used", shown(&it));
                    to.fault(Severity::Warning, reason);
                }
            }),
        ),
        doc: "ConfigMap with parameters beside the usual ones; values may hold variables",
        ..Row::NEW
    },
];

/// Letters, digits and three more; spaces are ignored.
const INDEX: Grammar<String> = Grammar {
    words: "letters, digits and . - _",
    read: |text| {
        let index = text.replace(' ', "");
        let is_index = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        (!index.is_empty() && index.chars().all(is_index)).then_some(index)
    },
    good: &["index.php", " index.php "],
    bad: &["index/index.php", "a;b", "x\n"],
};

#[cfg(test)]
mod tests {
    use shared::policy::LocationPolicy;

    use super::super::tests::location;

    #[test]
    fn an_index_is_a_name() {
        let expected =
            LocationPolicy { fastcgi_index: Some("index.php".into()), ..LocationPolicy::default() };
        assert_eq!(location(&[("fastcgi-index", "index. php")]), (expected, 0));
        assert_eq!(location(&[("fastcgi-index", "a/b")]), (LocationPolicy::default(), 1));
    }
}
