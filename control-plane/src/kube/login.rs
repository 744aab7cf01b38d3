//! What a person needs from the cluster to log in: a token of the service account that stands for a role, and the
//! authority's roots.
//!
//! The API server authenticates the person by their kubeconfig, decides whether they get the token (create
//! `serviceaccounts/token`), and has it in its audit log. Their own credentials never reach the control plane.

use std::path::Path;

use bytes::Bytes;
use http::Method;
use http::Request;
use kube::Client;
use serde_json::{Value, json};
use shared::name::ObjectName;
use shared::pem;

use super::ask::{ANSWER, AskError, within};
use super::trust::{AUDIENCE, ROOTS};
use super::{KubeError, config};

/// Lifetime of a token in seconds, the minimum of the API server; it is used at once.
const SECONDS: u64 = 600;

/// What a 401 means to a person: the API server says no more.
const STRANGER: &str = "401: it does not accept the credentials of the kubeconfig; they may have expired";

/// The API server's response. Never printed.
#[allow(missing_debug_implementations, reason = "a token is in it")]
pub struct Granted {
    /// The token of the account, for our audience.
    pub token: String,
    /// The roots of the planes' authority.
    pub roots: Vec<Bytes>,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrantError {
    /// The kubeconfig is invalid.
    #[error(transparent)]
    Cluster(#[from] KubeError),
    /// There is no token.
    #[error("the API server gives no token for the service account {account}: {reason}")]
    Token {
        /// The account.
        account: ObjectName,
        /// The API server's message.
        reason: String,
    },
    /// The API server does not answer.
    #[error("cannot reach the API server at {server}: {reason}")]
    Unreachable {
        /// Its URL.
        server: String,
        /// Why not.
        reason: String,
    },
    /// There are no roots.
    #[error("the ConfigMap {name} with the roots of the control plane cannot be read: {reason}")]
    Roots {
        /// Its name.
        name: ObjectName,
        /// The API server's message.
        reason: String,
    },
}

/// Whom to ask, and as whom.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// The kubeconfig; `None`: that of the environment.
    pub kubeconfig: Option<&'a Path>,
    /// Its context; `None`: the current one.
    pub context: Option<&'a str>,
}

/// Requests a token of an account, and the roots in a ConfigMap, from the API server.
///
/// # Errors
/// If one of them is not available.
pub async fn grant(
    Access { kubeconfig, context }: Access<'_>,
    account: ObjectName,
    roots: ObjectName,
) -> Result<Granted, GrantError> {
    let config = config::config(kubeconfig, context).await?;
    let server = config.cluster_url.to_string();
    granted(&config::connect(config)?, &server, account, roots).await
}

async fn granted(
    client: &Client,
    server: &str,
    account: ObjectName,
    roots: ObjectName,
) -> Result<Granted, GrantError> {
    let ask = async |method: Method, path: String, body: Option<Value>| {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.body(body.map(|body| body.to_string().into_bytes()).unwrap_or_default());
        let request = request.map_err(|error| AskError::Unanswered(error.to_string()))?;
        within(ANSWER, client.request::<Value>(request)).await
    };
    let unreachable = |reason| GrantError::Unreachable { server: server.to_owned(), reason };
    let path = format!("/api/v1/namespaces/{}/serviceaccounts/{}/token", account.namespace, account.name);
    let asked = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": [AUDIENCE], "expirationSeconds": SECONDS},
    });
    let none = |reason: String| GrantError::Token { account: account.clone(), reason };
    let token = ask(Method::POST, path, Some(asked)).await.map_err(|error| match error {
        AskError::Refused { code: 401, .. } => none(STRANGER.to_owned()),
        AskError::Refused { .. } => none(error.to_string()),
        AskError::Unanswered(reason) => unreachable(reason),
    })?;
    let token = token["status"]["token"].as_str().ok_or_else(|| none("its answer has none".to_owned()))?;
    let path = format!("/api/v1/namespaces/{}/configmaps/{}", roots.namespace, roots.name);
    let none = |reason: String| GrantError::Roots { name: roots.clone(), reason };
    let found = ask(Method::GET, path, None).await.map_err(|error| match error {
        AskError::Refused { .. } => none(error.to_string()),
        AskError::Unanswered(reason) => unreachable(reason),
    })?;
    let text = found["data"][ROOTS].as_str().ok_or_else(|| none(format!("expected a key {ROOTS}")))?;
    let certificates =
        pem::certificates(text.as_bytes()).map_err(|error| none(format!("{ROOTS}: {error}")))?;
    Ok(Granted { token: token.to_owned(), roots: certificates })
}

#[cfg(test)]
mod tests {
    use super::super::tests::fake::{Fake, Reply, status};
    use super::*;

    async fn ask(server: &Fake) -> Result<Granted, String> {
        let [account, roots] = ["firth-reader", "firth-ca"].map(|name| ObjectName::new("firth", name));
        granted(&server.client(), "https://a.test/", account, roots).await.map_err(|error| error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_missing_is_named() {
        let token = Reply::Text(201, json!({"status": {"token": "it"}}).to_string());
        let roots = |text: &str| Reply::Text(200, json!({"data": {"ca.pem": text}}).to_string());
        let account = "the API server gives no token for the service account firth/firth-reader: ";
        let name = "the ConfigMap firth/firth-ca with the roots of the control plane cannot be read: ";
        for (first, second, said) in [
            (
                Reply::Nothing,
                roots(""),
                "cannot reach the API server at https://a.test/: no answer for 10 s".to_owned(),
            ),
            (status(401), roots(""), format!("{account}{STRANGER}")),
            (status(403), roots(""), format!("{account}403: no")),
            (token.clone(), status(403), format!("{name}403: no")),
            (
                token.clone(),
                Reply::Nothing,
                "cannot reach the API server at https://a.test/: no answer for 10 s".to_owned(),
            ),
            (token.clone(), Reply::Text(200, "{}".to_owned()), format!("{name}expected a key ca.pem")),
            (token.clone(), roots("nothing"), format!("{name}ca.pem: no certificate found")),
        ] {
            let server = Fake::new(move |asked| match asked.path.ends_with("/token") {
                true => first.clone(),
                false => second.clone(),
            });
            assert_eq!(ask(&server).await.err().unwrap(), said);
        }
        let made = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let (text, token) = (made.cert.pem(), token.clone());
        let server = Fake::new(move |asked| match asked.path.ends_with("/token") {
            true => token.clone(),
            false => roots(&text),
        });
        let all = ask(&server).await.unwrap();
        assert_eq!((&*all.token, all.roots.len()), ("it", 1));
    }
}
