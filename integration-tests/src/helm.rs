//! Renders the chart. `HELM` names a helm; else the one that `charts/test.sh` puts into its cache is used.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::api::Api;
use crate::cache;
use crate::cluster::{Authorization, Cluster};
use crate::objects;

/// The chart's objects for a release `firth` in the namespace `firth`, with values set.
///
/// # Panics
/// If there is no helm, or it fails.
pub fn render(values: &[&str]) -> Vec<Value> {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/firth");
    let mut command = Command::new(helm());
    command.args(["template", "firth"]).arg(chart).args(["--namespace", "firth"]);
    for value in values {
        command.args(["--set", value]);
    }
    let output = command.output().expect("helm starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "helm template: {said}");
    let text = String::from_utf8(output.stdout).expect("YAML is UTF-8");
    let documents: Vec<Option<Value>> = serde_saphyr::from_multiple(&text).expect("helm renders YAML");
    documents.into_iter().flatten().filter(Value::is_object).collect()
}

/// What the chart grants, with values set, and whom.
///
/// # Panics
/// As [`render`].
pub fn rights(values: &[&str]) -> Vec<Value> {
    const KINDS: [&str; 5] = ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
    let mut rendered = render(values);
    rendered.retain(|it| it["kind"].as_str().is_some_and(|kind| KINDS.contains(&kind)));
    rendered
}

/// A cluster where the chart's rights, with values set, are all that its account has, and a client that may do everything.
///
/// # Panics
/// As [`render`], and where there is no cluster.
pub async fn cluster(values: &[&str]) -> (Cluster, Api) {
    let cluster = Cluster::start(Authorization::Rbac).await;
    let api = cluster.api().await;
    for namespace in ["firth", "ingress-nginx"] {
        api.apply(&objects::namespace(namespace)).await;
    }
    api.apply_all(&rights(values)).await;
    (cluster, api)
}

fn helm() -> PathBuf {
    if let Some(helm) = env::var_os("HELM").filter(|helm| !helm.is_empty()) {
        return helm.into();
    }
    let cached = cache::user().map(|user| user.join("firth-charts"));
    let found = cached.into_iter().flat_map(fs::read_dir).flatten().flatten();
    let mut found: Vec<PathBuf> =
        found.map(|entry| entry.path().join("helm")).filter(|it| it.is_file()).collect();
    found.sort();
    found.pop().expect("no helm: run charts/test.sh, which obtains one, or set HELM")
}
