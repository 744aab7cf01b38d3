//! Metric families with ingress-nginx' names that the control plane can fill: reviews of its webhook, and whether it is
//! the leader.
//!
//! **Invariant:** callers of the webhook choose the names of Ingresses: a limited number have series of their own, all
//! others share one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use shared::name::ObjectName;

/// Limit of the Ingresses with series of their own.
const NAMED: usize = 1_000;
/// The label of all others.
const OVERFLOW: &str = "_overflow";
/// Limit of a name in bytes: longer ones are no valid object names (RFC 1123).
const NAME: usize = 253;

/// Labels of all series, and values that are known elsewhere.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Original {
    /// `--controller-class`.
    pub class: String,
    /// The namespace of this pod.
    pub namespace: String,
    /// This pod.
    pub pod: String,
    /// The name of the Lease, and whether this replica holds it.
    pub leads: Option<(String, bool)>,
}

impl Original {
    fn labels(&self) -> String {
        let Self { class, namespace, pod, .. } = self;
        let [class, namespace, pod] = [class, namespace, pod].map(|text| escaped(text));
        format!("controller_class=\"{class}\",controller_namespace=\"{namespace}\",controller_pod=\"{pod}\"")
    }
}

/// A family: its name, its help, and its value in [`Counts`].
type Counted = (&'static str, &'static str, fn(&Counts) -> u64);

#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    allowed: u64,
    refused: u64,
}

/// The reviews of each Ingress.
#[derive(Default, Debug)]
pub(super) struct Checks(Mutex<BTreeMap<ObjectName, Counts>>);

impl Checks {
    pub(super) fn count(&self, of: &ObjectName, allowed: bool) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_name = |text: &str| !text.is_empty() && text.len() <= NAME;
        let is_named = is_name(&of.namespace) && is_name(&of.name);
        let has_place = is_named && (all.len() < NAMED || all.contains_key(of));
        let of = if has_place { of.clone() } else { ObjectName::new(OVERFLOW, OVERFLOW) };
        let counts = all.entry(of).or_default();
        *(if allowed { &mut counts.allowed } else { &mut counts.refused }) += 1;
    }

    /// Appends OpenMetrics text. Counters there end in `_total`, which ingress-nginx' do not: so their type is left
    /// out.
    pub(super) fn append(&self, original: &Original, text: &mut String) {
        let constant = original.labels();
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let families: [Counted; 2] = [
            ("check_success", "Reviews of an Ingress that allowed it", |it| it.allowed),
            ("check_errors", "Reviews of an Ingress that refused it", |it| it.refused),
        ];
        for (name, help, of) in families {
            head(text, name, "unknown", help);
            for (object, counts) in all.iter().filter(|(_, counts)| of(counts) > 0) {
                let (namespace, ingress) = (escaped(&object.namespace), escaped(&object.name));
                // Writing into a String does not fail.
                let _ = writeln!(
                    text,
                    "nginx_ingress_controller_{name}{{{constant},ingress=\"{ingress}\",namespace=\"{namespace}\"}} {}",
                    of(counts)
                );
            }
        }
        if let Some((lease, leads)) = &original.leads {
            let (name, lease) = ("leader_election_status", escaped(lease));
            head(text, name, "gauge", "Whether this replica writes the status of Ingresses");
            let value = u8::from(*leads);
            let _ = writeln!(text, "nginx_ingress_controller_{name}{{{constant},name=\"{lease}\"}} {value}");
        }
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP nginx_ingress_controller_{name} {help}.");
    let _ = writeln!(text, "# TYPE nginx_ingress_controller_{name} {kind}");
}

/// Escapes a label value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(checks: &Checks, original: &Original) -> String {
        let mut text = String::new();
        checks.append(original, &mut text);
        text
    }

    #[test]
    fn reviews_are_counted_by_ingress_under_the_original_s_names() {
        let checks = Checks::default();
        let original = Original {
            class: "k8s.io/ingress-nginx".into(),
            namespace: "edge".into(),
            pod: "a\"b".into(),
            leads: Some(("leader".into(), true)),
        };
        let web = ObjectName::new("shop", "web");
        checks.count(&web, true);
        checks.count(&web, true);
        checks.count(&web, false);
        let text = text(&checks, &original);
        let constant =
            r#"controller_class="k8s.io/ingress-nginx",controller_namespace="edge",controller_pod="a\"b""#;
        for line in [
            format!(
                r#"nginx_ingress_controller_check_success{{{constant},ingress="web",namespace="shop"}} 2"#
            ),
            format!(
                r#"nginx_ingress_controller_check_errors{{{constant},ingress="web",namespace="shop"}} 1"#
            ),
            format!(r#"nginx_ingress_controller_leader_election_status{{{constant},name="leader"}} 1"#),
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is missing:\n{text}");
        }
    }

    #[test]
    fn whoever_asks_makes_so_many_series() {
        let checks = Checks::default();
        for at in 0..3 * NAMED {
            checks.count(&ObjectName::new("shop", format!("i{at}")), false);
        }
        checks.count(&ObjectName::new("shop", "x".repeat(254)), false);
        checks.count(&ObjectName::new("shop", "i0"), false);
        let text = text(&checks, &Original::default());
        assert_eq!(text.lines().filter(|line| line.contains("check_errors{")).count(), NAMED + 1);
        assert!(text.contains(&format!(r#"ingress="_overflow",namespace="_overflow"}} {}"#, 2 * NAMED + 1)));
        assert!(text.contains(r#"ingress="i0",namespace="shop"} 2"#), "who has a place keeps it");
    }
}
