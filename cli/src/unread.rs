//! What is said of objects in manifests that are not read: kinds that Firth does not serve, and files of other tools.

/// The API group of kustomize.
const KUSTOMIZE: &str = "kustomize.config.k8s.io/";

/// One line about a kind: API version and kind. `instead`: what to do about manifests that kustomize changes.
pub(crate) fn line(kind: &str, instead: &str) -> String {
    match kind.starts_with(KUSTOMIZE) {
        true => format!("not read: {kind} (its patches are not applied: {instead})"),
        false => format!("not read: {kind}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_of_kustomize_are_not_applied() {
        let said = ["apps/v1 Deployment", "kustomize.config.k8s.io/v1beta1 Kustomization"]
            .map(|it| line(it, "build it"));
        let patched =
            "not read: kustomize.config.k8s.io/v1beta1 Kustomization (its patches are not applied: build it)";
        assert_eq!(said, ["not read: apps/v1 Deployment", patched]);
    }
}
