//! The authority's storage in a cluster: a Secret for its record, a ConfigMap for its roots, and reviews of service
//! account tokens by the API server.
//!
//! **Invariant:** a record is written over the revision that was read, or not at all; and a token that was not issued
//! for our audience is rejected.

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use shared::name::ObjectName;
use thiserror::Error;
use zeroize::Zeroize as _;

use super::ask::{ANSWER, find, within};
pub use super::record::StoredRecord;
use super::record::{Record, put};
use crate::objects::{Object, ObjectKind};

/// The required audience of tokens.
pub const AUDIENCE: &str = "firth.dev";
/// The Secret's key with the record.
pub const RECORD: &str = "authority.json";
/// The ConfigMap's key with the roots, PEM.
pub(super) const ROOTS: &str = "ca.pem";
/// The pod that a token was issued for (Kubernetes, bound service account tokens).
const POD: &str = "authentication.kubernetes.io/pod-name";

/// The authority's storage in a cluster.
#[derive(Clone)]
pub struct Trust {
    client: Client,
    /// Name of both the Secret and the ConfigMap.
    name: ObjectName,
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trust").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The holder of a token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The service account.
    pub account: ObjectName,
    /// The pod that it was issued for, if any.
    pub pod: Option<Box<str>>,
}

/// A token was not accepted.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ReviewError {
    /// The API server rejects it, or it has another audience.
    #[error("the API server does not accept the token for the audience {AUDIENCE:?}: {0}")]
    Refused(String),
    /// It does not belong to a service account.
    #[error("the token is not a service account's")]
    NoAccount,
    /// The API server could not be asked.
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

    /// Reads the record.
    ///
    /// # Errors
    /// If the API server cannot be reached, or the value is not base64.
    pub async fn record(&self) -> Result<StoredRecord, String> {
        self.secret().load().await
    }

    /// Writes the record over a revision, or the first one. Returns false if another writer was faster.
    ///
    /// # Errors
    /// If the API server rejects it.
    pub async fn write(&self, text: &str, over: Option<&str>) -> Result<bool, String> {
        self.secret().store(text, over).await
    }

    /// Publishes the trusted roots. `replace`: also if others are published.
    ///
    /// # Errors
    /// If the API server rejects it.
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
        // A faster replica wrote the same, or something newer, which is read the next time.
        put(&self.client, &self.name, ObjectKind::ConfigMap, json!({ROOTS: roots}), over.as_deref())
            .await
            .map(|_| ())
    }

    /// Whether roots are published.
    ///
    /// # Errors
    /// If the API server cannot be reached.
    pub async fn is_published(&self) -> Result<bool, String> {
        Ok(match self.find(ObjectKind::ConfigMap).await? {
            Some(Object::ConfigMap(there)) => there.data.get(ROOTS).is_some_and(|roots| !roots.is_empty()),
            _ => false,
        })
    }

    /// The holder of a token.
    ///
    /// # Errors
    /// If it is not accepted.
    pub async fn review(&self, token: &str) -> Result<Holder, ReviewError> {
        if token.is_empty() {
            // The API server does not accept an empty token.
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

/// Evaluates the response to a TokenReview.
fn holder(review: &Value) -> Result<Holder, ReviewError> {
    let status = &review["status"];
    if status["authenticated"] != true {
        let why = status["error"].as_str().unwrap_or("no reason is given");
        return Err(ReviewError::Refused(why.chars().take(200).collect()));
    }
    // A server without support for audiences returns none; its answer would hold for tokens of any audience
    // (TokenReview, `status.audiences`).
    let audiences = status["audiences"].as_array();
    if !audiences.is_some_and(|all| all.iter().any(|it| it == AUDIENCE)) {
        return Err(ReviewError::Refused("it was issued for another audience".to_owned()));
    }
    let user = status["user"]["username"].as_str().unwrap_or_default();
    let account = user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    let (namespace, name) = account.ok_or(ReviewError::NoAccount)?;
    let pod = status["user"]["extra"][POD][0].as_str().map(Into::into);
    Ok(Holder { account: ObjectName::new(namespace, name), pod })
}

#[cfg(test)]
impl Trust {
    /// With an in-memory API server.
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

    /// A replica that has not read the record must not replace what others published.
    #[tokio::test]
    async fn roots_are_replaced_by_who_has_read_the_record_alone() {
        for (there, replace, expected) in [
            (None, false, Some(Method::POST)),
            (None, true, Some(Method::POST)),
            (Some("old"), false, None),
            (Some("old"), true, Some(Method::PUT)),
            (Some("new"), false, None),
            (Some("new"), true, None),
        ] {
            let fake = Fake::new(move |asked| match (&asked.method, there) {
                (&Method::GET, Some(roots)) => {
                    let metadata = json!({"namespace": "firth", "name": "firth-ca", "resourceVersion": "7"});
                    Reply::Text(200, json!({"metadata": metadata, "data": {ROOTS: roots}}).to_string())
                }
                (&Method::GET, None) => status_of(404),
                _ => status_of(200),
            });
            trust(&fake).publish("new", replace).await.unwrap();
            let writes: Vec<_> = fake.asked().into_iter().filter(|it| it.method != Method::GET).collect();
            let methods: Vec<_> = writes.iter().map(|it| it.method.clone()).collect();
            assert_eq!(methods, Vec::from_iter(expected), "{there:?} {replace}");
            for write in writes {
                assert_eq!(write.body["data"][ROOTS], "new");
                assert_eq!(write.body["metadata"]["resourceVersion"].as_str(), there.map(|_| "7"));
            }
        }
    }

    /// As the API server sends it: the code is in the body, too.
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
                trust(&fake).record().await.is_ok_and(|found| found == StoredRecord::Nothing),
                absent,
                "{status}"
            );
        }
    }
}
