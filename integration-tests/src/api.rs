//! Writes to an API server as `kubectl` does: create or replace, delete, by kind and name.

use http::{Method, Request, StatusCode, header};
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use std::path::Path;

/// A client of one API server, for one async runtime.
#[derive(Clone)]
pub struct Api {
    client: Client,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Api")
    }
}

impl Api {
    /// A client for a kubeconfig.
    ///
    /// # Panics
    /// If the file is not a kubeconfig.
    pub async fn new(kubeconfig: &Path) -> Self {
        crate::client::tls::install_crypto();
        let file = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        let client = Client::try_from(config.expect("a kubeconfig that names a server"));
        Self { client: client.expect("a client") }
    }

    /// Creates an object or replaces it.
    ///
    /// # Panics
    /// If the server refuses it.
    pub async fn apply(&self, object: &Value) {
        if let Err(error) = self.try_apply(object).await {
            panic!("the API server refuses {object}: {error}");
        }
    }

    /// Creates an object or replaces it.
    ///
    /// # Errors
    /// The server's error.
    pub async fn try_apply(&self, object: &Value) -> Result<(), kube::Error> {
        let created = self.send(Method::POST, &Self::path(object, false), Some(object)).await;
        match created {
            Err(error) if status(&error) == Some(StatusCode::CONFLICT) => {
                self.send(Method::PUT, &Self::path(object, true), Some(object)).await?;
                Ok(())
            }
            other => other.map(|_| ()),
        }
    }

    /// Applies several objects, in order.
    ///
    /// # Panics
    /// If the server rejects one.
    pub async fn apply_all(&self, objects: &[Value]) {
        for object in objects {
            self.apply(object).await;
        }
    }

    /// Deletes an object.
    ///
    /// # Panics
    /// If the server refuses that, or has none.
    pub async fn delete(&self, object: &Value) {
        let path = format!("{}?gracePeriodSeconds=0", Self::path(object, true));
        let deleted = self.send(Method::DELETE, &path, None).await;
        deleted.unwrap_or_else(|error| panic!("cannot delete {path}: {error}"));
    }

    /// Reads an object.
    ///
    /// # Errors
    /// The server's error, including 404.
    pub async fn read(&self, object: &Value) -> Result<Value, kube::Error> {
        self.send(Method::GET, &Self::path(object, true), None).await
    }

    /// Merges a patch into what is at a path.
    ///
    /// # Panics
    /// If the server rejects it.
    pub async fn patch(&self, path: &str, with: &Value) {
        let request = Request::patch(path).header(header::CONTENT_TYPE, "application/merge-patch+json");
        let request = request.body(with.to_string().into_bytes()).expect("a request");
        let patched = self.client.request_text(request).await;
        patched.unwrap_or_else(|error| panic!("cannot patch {path}: {error}"));
    }

    /// One page.
    ///
    /// # Errors
    /// What the server says, or why it cannot be asked.
    pub async fn text(&self, path: &str) -> Result<String, kube::Error> {
        let request = Request::get(path).body(Vec::new()).expect("a request");
        self.client.request_text(request).await
    }

    /// The items of a list.
    ///
    /// # Errors
    /// What the server says.
    pub async fn list(&self, path: &str) -> Result<Vec<Value>, kube::Error> {
        let list = self.send(Method::GET, path, None).await?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// A token of a service account for an audience, bound to a pod.
    ///
    /// # Panics
    /// If the server gives none.
    pub async fn token(&self, namespace: &str, account: &str, audience: &str, pod: Option<&str>) -> String {
        let mut spec = serde_json::json!({"audiences": [audience], "expirationSeconds": 600});
        if let Some(pod) = pod {
            spec["boundObjectRef"] = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "name": pod});
        }
        let request = serde_json::json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec,
        });
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let answer = self.send(Method::POST, &path, Some(&request)).await.expect("a token");
        answer["status"]["token"].as_str().expect("a token").to_owned()
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, kube::Error> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(body.map(|body| body.to_string().into_bytes()).unwrap_or_default())
            .expect("a request");
        self.client.request(request).await
    }

    fn path(object: &Value, named: bool) -> String {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let version = text("/apiVersion").expect("an apiVersion");
        let kind = text("/kind").expect("a kind").to_lowercase();
        let plural = match kind.strip_suffix("s") {
            Some(_) => format!("{kind}es"),
            None => format!("{kind}s"),
        };
        let group = if version.contains('/') { "apis" } else { "api" };
        let namespace = text("/metadata/namespace").map(|it| format!("/namespaces/{it}"));
        let name = text("/metadata/name").filter(|_| named).map(|it| format!("/{it}"));
        format!("/{group}/{version}{}/{plural}{}", namespace.unwrap_or_default(), name.unwrap_or_default())
    }
}

fn status(error: &kube::Error) -> Option<StatusCode> {
    match error {
        kube::Error::Api(status) => StatusCode::from_u16(status.code).ok(),
        _ => None,
    }
}
