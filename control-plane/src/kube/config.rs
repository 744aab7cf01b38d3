//! Which cluster is asked, and as whom: what a kubeconfig says, as kubectl reads it, or the service account of this pod.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::kube::client::{AuthError, Client};
use ::kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};
use shared::telemetry::chain;

use super::KubeError;

/// Timeout of a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// A client for the cluster that a kubeconfig names; `None`: what the environment says, else the service account of
/// this pod.
pub(super) async fn client(kubeconfig: Option<&Path>) -> Result<Client, KubeError> {
    connect(config(kubeconfig, None).await?)
}

/// The configuration of that client, by the context of that name; `None`: by the current one.
pub(super) async fn config(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Config, KubeError> {
    let read = match kubeconfig {
        Some(path) => Some((path.display().to_string(), read(path)?)),
        None => of_environment()?,
    };
    // An empty one says nothing.
    let read = read.filter(|(_, it)| !it.contexts.is_empty() || kubeconfig.is_some() || context.is_some());
    let Some((path, kubeconfig)) = read else {
        return Config::infer().await.map_err(|error| KubeError::Unconfigured(Box::new(error)));
    };
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..Default::default() };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    config.map_err(|error| KubeError::Kubeconfig { path, reason: reason(&error) })
}

/// The client.
pub(super) fn connect(mut config: Config) -> Result<Client, KubeError> {
    // The watches retry by themselves: they know what is urgent.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    Client::try_from(config).map_err(|error| {
        KubeError::Client(match error {
            // Standard output, and the command's arguments, may hold a token.
            ::kube::Error::Auth(AuthError::AuthExecRun { out, .. }) => format!(
                "the command by which the kubeconfig authenticates ended with {}: {}",
                out.status,
                String::from_utf8_lossy(&out.stderr).trim()
            ),
            error => chain(&error),
        })
    })
}

/// What `KUBECONFIG` or the home folder say; `None`: nothing. As kubectl, which leaves files of the list out that do not
/// exist.
fn of_environment() -> Result<Option<(String, Kubeconfig)>, KubeError> {
    let listed = files(std::env::var_os("KUBECONFIG").as_deref());
    let listed = match listed.is_empty() {
        true => std::env::home_dir().map(|home| home.join(".kube/config")).into_iter().collect(),
        false => listed,
    };
    merged(&listed)
}

/// The files of a list as in `KUBECONFIG`.
fn files(list: Option<&OsStr>) -> Vec<PathBuf> {
    let split = list.map(|list| std::env::split_paths(list).collect::<Vec<_>>()).unwrap_or_default();
    split.into_iter().filter(|path| !path.as_os_str().is_empty()).collect()
}

fn merged(listed: &[PathBuf]) -> Result<Option<(String, Kubeconfig)>, KubeError> {
    let mut merged: Option<(String, Kubeconfig)> = None;
    for path in listed.iter().filter(|path| path.exists()) {
        let next = read(path)?;
        merged = Some(match merged {
            None => (path.display().to_string(), next),
            Some((before, kubeconfig)) => {
                let paths = format!("{before}, {}", path.display());
                let both = kubeconfig.merge(next);
                let both = both
                    .map_err(|error| KubeError::Kubeconfig { path: paths.clone(), reason: reason(&error) })?;
                (paths, both)
            }
        });
    }
    Ok(merged)
}

fn read(path: &Path) -> Result<Kubeconfig, KubeError> {
    let unusable = |error| KubeError::Kubeconfig { path: path.display().to_string(), reason: reason(&error) };
    Kubeconfig::read_from(path).map_err(unusable)
}

/// The error, once: it repeats its causes. A parser's also shows the lines around, which may hold a token.
fn reason(error: &KubeconfigError) -> String {
    chain(error).lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn kubeconfig(name: &str) -> String {
        format!(
            "clusters: [{{name: {name}, cluster: {{server: 'https://{name}.test:1'}}}}]\n\
             users: [{{name: {name}, user: {{token: of-{name}}}}}]\n\
             contexts: [{{name: {name}, context: {{cluster: {name}, user: {name}}}}}]\n\
             current-context: {name}\n"
        )
    }

    #[test]
    fn files_that_do_not_exist_are_left_out_of_a_list() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| write(dir.path(), name, &kubeconfig(name)));
        let nowhere = dir.path().join("nowhere");
        let list = std::env::join_paths([&nowhere, &one, Path::new(""), &two]).unwrap();
        let (paths, found) = merged(&files(Some(&list))).unwrap().unwrap();
        assert_eq!(paths, format!("{}, {}", one.display(), two.display()));
        assert_eq!((found.contexts.len(), found.current_context.as_deref()), (2, Some("one")));
        assert!(merged(&[nowhere]).unwrap().is_none());
        assert!(files(None).is_empty() && files(Some(OsStr::new(""))).is_empty());
    }

    #[tokio::test]
    async fn a_context_is_the_current_one_or_the_named_one() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (kubeconfig("one"), kubeconfig("two"));
        let joined = one.lines().zip(two.lines()).map(|(one, two)| match one.ends_with(']') {
            true => format!("{}, {}", one.trim_end_matches(']'), two.split_once('[').unwrap().1),
            false => one.to_owned(),
        });
        let path = write(dir.path(), "both", &joined.collect::<Vec<_>>().join("\n"));
        for (context, server) in [(None, "one.test"), (Some("two"), "two.test")] {
            let config = config(Some(&path), context).await.unwrap();
            assert_eq!(config.cluster_url.host(), Some(server));
        }
        let error = config(Some(&path), Some("three")).await.unwrap_err().to_string();
        assert!(error.contains("both cannot be used") && error.contains("three"), "{error}");
    }

    #[tokio::test]
    async fn what_is_wrong_is_said_once_and_without_what_is_secret() {
        let dir = tempfile::tempdir().unwrap();
        let said = async |text: &str| {
            let path = write(dir.path(), "it", text);
            let error = match config(Some(&path), None).await {
                Ok(config) => connect(config).err().unwrap(),
                Err(error) => error,
            };
            chain(&error)
        };
        let broken = said("users:\n- name: a\n  user: {token: hunter2\n").await;
        assert!(
            broken.contains("it cannot be used: failed to parse") && !broken.contains("hunter2"),
            "{broken}"
        );
        let missing = kubeconfig("a")
            .replace("https://a.test:1'", "https://a.test:1', certificate-authority: nowhere.pem");
        let missing = said(&missing).await;
        assert_eq!(missing.matches("No such file").count(), 1, "{missing}");
        let exec = kubeconfig("a").replace(
            "token: of-a",
            "exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: sh, args: [-c, 'echo hunter2; echo please log in >&2; exit 3']}",
        );
        let exec = said(&exec).await;
        assert!(exec.ends_with("ended with exit status: 3: please log in"), "{exec}");
        assert!(!exec.contains("hunter2"), "{exec}");
    }
}
