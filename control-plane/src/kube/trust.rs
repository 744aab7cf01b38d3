//! What the authority between the planes needs of a cluster: a Secret for its record, a ConfigMap for its roots, and the API
//! server's word on the tokens of service accounts.
//!
//! **Invariant:** a record is written over the revision that was read, or not at all; and a token that was not made for us is
//! nobody's.

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use shared::name::ObjectName;
use thiserror::Error;
use zeroize::Zeroize as _;

use super::ask::{ANSWER, find, within};
pub use super::record::Found;
use super::record::{Record, put};
use crate::objects::{Object, ObjectKind};

/// Whom tokens have to be made for.
pub const AUDIENCE: &str = "firth.dev";
/// The key of the record.
pub const RECORD: &str = "authority.json";
/// The key of the roots, PEM.
pub(super) const ROOTS: &str = "ca.pem";
/// Which pod a token was made for (Kubernetes, bound service account tokens).
const POD: &str = "authentication.kubernetes.io/pod-name";

/// Where the authority is in a cluster.
#[derive(Clone)]
pub struct Trust {
    client: Client,
    /// Of the Secret, and of the ConfigMap.
    name: ObjectName,
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trust").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Whose a token is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The service account.
    pub account: ObjectName,
    /// The pod that it was made for, if it was for one.
    pub pod: Option<Box<str>>,
}

/// A token vouches for nobody.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ReviewError {
    /// The API server knows it not, or not for us.
    #[error("the API server does not accept the token for the audience {AUDIENCE:?}: {0}")]
    Refused(String),
    /// It is somebody's who is no service account.
    #[error("the token is not a service account's")]
    NoAccount,
    /// The API server does not say.
    #[error("the API server does not say whose the token is: {0}")]
    Unavailable(String),
}

impl Trust {
    pub(super) fn new(client: Client, name: ObjectName) -> Self {
        Self { client, name }
    }

    /// The name of the Secret.
    pub fn name(&self) -> &ObjectName {
        &self.name
    }

    /// The record, as far as there is one.
    ///
    /// # Errors
    /// Where the API server does not say, or what is there is not base64.
    pub async fn record(&self) -> Result<Found, String> {
        self.secret().load().await
    }

    /// Writes the record over a revision, or the first one. False: somebody else was quicker.
    ///
    /// # Errors
    /// Where the API server refuses it.
    pub async fn write(&self, text: &str, over: Option<&str>) -> Result<bool, String> {
        self.secret().store(text, over).await
    }

    /// Says which roots are believed. `replace`: in place of others that are there.
    ///
    /// # Errors
    /// Where the API server refuses it.
    pub async fn publish(&self, roots: &str, replace: bool) -> Result<(), String> {
        let there = match self.find(ObjectKind::ConfigMap).await? {
            Some(Object::ConfigMap(there)) => Some(there),
            _ => None,
        };
        if there.as_ref().is_some_and(|there| there.data.get(ROOTS).is_some_and(|it| !replace || it == roots))
        {
            return Ok(());
        }
        let over = there.map(|there| there.metadata.resource_version.to_string());
        // Another replica that was quicker wrote the same, or has something newer, which is looked at the next time.
        put(&self.client, &self.name, ObjectKind::ConfigMap, json!({ROOTS: roots}), over.as_deref())
            .await
            .map(|_| ())
    }

    /// Whether somebody said which roots are believed.
    ///
    /// # Errors
    /// Where the API server does not say.
    pub async fn is_published(&self) -> Result<bool, String> {
        Ok(match self.find(ObjectKind::ConfigMap).await? {
            Some(Object::ConfigMap(there)) => there.data.get(ROOTS).is_some_and(|roots| !roots.is_empty()),
            _ => false,
        })
    }

    /// Whose a token is.
    ///
    /// # Errors
    /// Where it is nobody's.
    pub async fn review(&self, token: &str) -> Result<Holder, ReviewError> {
        if token.is_empty() {
            // Not a question that the API server takes.
            return Err(ReviewError::Refused("there is none".to_owned()));
        }
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token, "audiences": [AUDIENCE]},
        });
        let mut body = review.to_string();
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let request = http::Request::builder().method(Method::POST).uri(path);
        let request = request.header("content-type", "application/json").body(body.clone().into_bytes());
        body.zeroize();
        let request = request.map_err(|error| ReviewError::Unavailable(error.to_string()))?;
        let answer = within(ANSWER, self.client.request::<Value>(request)).await;
        holder(&answer.map_err(|error| ReviewError::Unavailable(error.to_string()))?)
    }

    async fn find(&self, kind: ObjectKind) -> Result<Option<Object>, String> {
        Ok(find(&self.client, kind, &self.name.namespace, &self.name.name).await?)
    }

    fn secret(&self) -> Record {
        Record::new(self.client.clone(), self.name.clone(), RECORD)
    }
}

/// What an answered TokenReview says.
fn holder(review: &Value) -> Result<Holder, ReviewError> {
    let status = &review["status"];
    if status["authenticated"] != true {
        let why = status["error"].as_str().unwrap_or("no reason is given");
        return Err(ReviewError::Refused(why.chars().take(200).collect()));
    }
    // A server that does not know audiences says none; its word would be about any token for anybody (TokenReview,
    // `status.audiences`).
    let audiences = status["audiences"].as_array();
    if !audiences.is_some_and(|all| all.iter().any(|it| it == AUDIENCE)) {
        return Err(ReviewError::Refused("it was made for somebody else".to_owned()));
    }
    let user = status["user"]["username"].as_str().unwrap_or_default();
    let account = user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    let (namespace, name) = account.ok_or(ReviewError::NoAccount)?;
    let pod = status["user"]["extra"][POD][0].as_str().map(Into::into);
    Ok(Holder { account: ObjectName::new(namespace, name), pod })
}

#[cfg(test)]
impl Trust {
    /// Over an API server in memory.
    pub(crate) fn of(fake: &super::tests::fake::Fake) -> Self {
        Self::new(fake.client(), ObjectName::new("firth", "firth-ca"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::tests::fake::{Fake, Reply};

    fn trust(fake: &Fake) -> Trust {
        Trust::of(fake)
    }

    fn review(status: &Value) -> Result<Holder, ReviewError> {
        holder(&json!({"kind": "TokenReview", "status": status}))
    }

    #[test]
    fn a_token_is_an_account_s_that_was_made_for_us() {
        let user = json!({"username": "system:serviceaccount:firth:edge", "extra": {POD: ["edge-x7"]}});
        let good = json!({"authenticated": true, "audiences": [AUDIENCE], "user": user});
        let account = ObjectName::new("firth", "edge");
        assert_eq!(review(&good), Ok(Holder { account, pod: Some("edge-x7".into()) }));
        for (field, value) in [
            ("authenticated", json!(false)),
            ("authenticated", json!("true")),
            ("audiences", json!([])),
            ("audiences", json!(["https://kubernetes.default.svc"])),
            ("audiences", Value::Null),
        ] {
            let mut bad = good.clone();
            bad[field] = value;
            assert!(matches!(review(&bad), Err(ReviewError::Refused(_))), "{bad}");
        }
        for name in ["admin", "system:serviceaccount:x", "system:node:serviceaccount:a:b", ""] {
            let mut bad = good.clone();
            bad["user"]["username"] = name.into();
            assert_eq!(review(&bad), Err(ReviewError::NoAccount), "{name}");
        }
        assert!(review(&Value::Null).is_err());
    }

    #[tokio::test]
    async fn without_a_token_nobody_is_asked() {
        let fake = Fake::new(|_| Reply::Text(500, "{}".to_owned()));
        assert!(matches!(trust(&fake).review("").await, Err(ReviewError::Refused(_))));
        assert!(matches!(trust(&fake).review("x").await, Err(ReviewError::Unavailable(_))));
        assert_eq!(fake.asked().len(), 1);
    }

    /// As the API server says it: the code stands in the body, too.
    fn status_of(code: u16) -> Reply {
        let status = if code < 300 { "Success" } else { "Failure" };
        Reply::Text(
            code,
            json!({"kind": "Status", "apiVersion": "v1", "status": status, "code": code}).to_string(),
        )
    }

    #[tokio::test]
    async fn who_is_second_is_told_and_what_is_not_said_is_no_absence() {
        for (status, expected) in [(201, Ok(true)), (409, Ok(false))] {
            let fake = Fake::new(move |_| status_of(status));
            assert_eq!(trust(&fake).write("{}", None).await, expected);
            let asked = fake.asked().remove(0);
            assert_eq!(
                (asked.method, asked.path.as_str()),
                (Method::POST, "/api/v1/namespaces/firth/secrets")
            );
        }
        let fake = Fake::new(|_| status_of(409));
        assert_eq!(trust(&fake).write("{}", Some("7")).await, Ok(false));
        let asked = fake.asked().remove(0);
        assert_eq!(
            (asked.method, asked.body["metadata"]["resourceVersion"].as_str()),
            (Method::PUT, Some("7"))
        );
        for (status, absent) in [(404, true), (403, false), (500, false)] {
            let fake = Fake::new(move |_| status_of(status));
            assert_eq!(
                trust(&fake).record().await.is_ok_and(|found| found == Found::Nothing),
                absent,
                "{status}"
            );
        }
    }
}
