//! Recognises documents with a misspelt kind or apiVersion that were probably meant for us.
//!
//! **Invariant:** kinds of other systems, such as a Knative `Service` or an OpenShift `Ingress`, are not among them.

use crate::objects::ObjectKind;

/// The kind that was probably meant, the wrong field, and why.
pub(super) fn correction(api_version: &str, kind: &str) -> Option<(ObjectKind, &'static str, String)> {
    let meant = ObjectKind::ALL.into_iter().find(|it| it.as_str().eq_ignore_ascii_case(kind))?;
    if !is_ours(api_version) {
        return None;
    }
    if meant.as_str() != kind {
        return Some((meant, "kind", format!("expected {}, got {kind}", meant.as_str())));
    }
    let came = if api_version.is_empty() { "none" } else { api_version };
    Some((meant, "apiVersion", format!("expected {}, got {came}", meant.api_version())))
}

/// Whether an API version is one of Kubernetes, or a misspelt one: other projects have domains of their own.
fn is_ours(api_version: &str) -> bool {
    let (group, _) = api_version.split_once('/').unwrap_or(("", api_version));
    !group.contains('.') || ["networking.k8s.io", "discovery.k8s.io"].contains(&group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_told_from_what_others_have() {
        for (api_version, kind, field, reason) in [
            ("", "Ingress", "apiVersion", "expected networking.k8s.io/v1, got none"),
            ("v1", "Ingress", "apiVersion", "expected networking.k8s.io/v1, got v1"),
            ("networking/v1", "Ingress", "apiVersion", "expected networking.k8s.io/v1, got networking/v1"),
            (
                "networking.k8s.io/v2",
                "Ingress",
                "apiVersion",
                "expected networking.k8s.io/v1, got networking.k8s.io/v2",
            ),
            ("networking.k8s.io/v1", "ingress", "kind", "expected Ingress, got ingress"),
            ("apps/v1", "Service", "apiVersion", "expected v1, got apps/v1"),
            ("v1", "configmap", "kind", "expected ConfigMap, got configmap"),
        ] {
            let (_, at, said) = correction(api_version, kind).unwrap();
            assert_eq!((at, said.as_str()), (field, reason));
        }
        for (api_version, kind) in [
            ("serving.knative.dev/v1", "Service"),
            ("config.openshift.io/v1", "Ingress"),
            ("networking.internal.knative.dev/v1alpha1", "Ingress"),
            ("networking.k8s.io/v1", "NetworkPolicy"),
            ("apps/v1", "Deployment"),
            ("", "Config"),
        ] {
            assert_eq!(correction(api_version, kind), None, "{api_version} {kind}");
        }
    }
}
