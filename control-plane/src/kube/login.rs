//! What a person needs from the cluster to log in: a token of the service account that stands for a role, and the
//! authority's roots.
//!
//! The API server authenticates the person by their kubeconfig, decides whether they get the token (create
//! `serviceaccounts/token`), and has it in its audit log. Their own credentials never reach the control plane.

use std::path::Path;

use http::Method;
use http::Request;
use serde_json::{Value, json};
use shared::name::ObjectName;

use super::ask::{ANSWER, within};
use super::trust::{AUDIENCE, ROOTS};
use super::{KubeError, client};

/// Lifetime of a token in seconds, the minimum of the API server; it is used at once.
const SECONDS: u64 = 600;

/// The API server's response. Never printed.
#[allow(missing_debug_implementations, reason = "a token is in it")]
pub struct Granted {
    /// The token of the account, for our audience.
    pub token: String,
    /// The roots of the planes' authority, PEM.
    pub roots: String,
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
    /// There are no roots.
    #[error("the ConfigMap {name} with the roots of the control plane cannot be read: {reason}")]
    Roots {
        /// Its name.
        name: ObjectName,
        /// The API server's message.
        reason: String,
    },
}

/// Requests a token of an account, and the roots in a ConfigMap, from the API server.
///
/// # Errors
/// If one of them is not available.
pub async fn grant(
    kubeconfig: Option<&Path>,
    account: ObjectName,
    roots: ObjectName,
) -> Result<Granted, GrantError> {
    let client = client(kubeconfig).await?;
    let ask = async |method: Method, path: String, body: Option<Value>| {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.body(body.map(|body| body.to_string().into_bytes()).unwrap_or_default());
        let request = request.map_err(|error| error.to_string())?;
        within(ANSWER, client.request::<Value>(request)).await.map_err(|error| error.to_string())
    };
    let path = format!("/api/v1/namespaces/{}/serviceaccounts/{}/token", account.namespace, account.name);
    let asked = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": [AUDIENCE], "expirationSeconds": SECONDS},
    });
    let token = ask(Method::POST, path, Some(asked)).await.and_then(|answer| {
        answer["status"]["token"].as_str().map(str::to_owned).ok_or_else(|| "its answer has none".to_owned())
    });
    let token = token.map_err(|reason| GrantError::Token { account, reason })?;
    let path = format!("/api/v1/namespaces/{}/configmaps/{}", roots.namespace, roots.name);
    let found = ask(Method::GET, path, None).await.and_then(|answer| {
        answer["data"][ROOTS].as_str().map(str::to_owned).ok_or_else(|| format!("expected a key {ROOTS}"))
    });
    let roots = found.map_err(|reason| GrantError::Roots { name: roots, reason })?;
    Ok(Granted { token, roots })
}
