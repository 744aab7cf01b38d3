//! Single requests to the API server, for everything other than watches.
//!
//! **Invariant:** each request has a timeout; and a request without a response is distinguished from a rejected one,
//! because it may have taken effect.

use std::future::Future;
use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use kube::core::Status;
use serde_json::Value;

use super::collection;
use crate::objects::{Object, ObjectKind, json};

/// kube's reason for a response that is no Status.
const UNREAD: &str = "Failed to parse error data";

/// Timeout of a request.
pub(super) const ANSWER: Duration = Duration::from_secs(10);

/// The API server's response to a change.
#[derive(Debug)]
pub(super) enum Answer {
    /// The resulting object, as JSON; after a DELETE a Status or the previous object.
    Done(String),
    /// The object exists, or has another version than expected.
    Conflict,
    Absent,
}

/// Why there is no usable response.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum AskError {
    /// The API server rejected the request.
    #[error("{code}: {message}")]
    Refused {
        /// The HTTP status.
        code: u16,
        /// The message of the API server.
        message: String,
    },
    /// There was no response, or an unreadable one.
    #[error("no usable answer of the API server: {0}")]
    Unanswered(String),
}

impl AskError {
    /// Whether it is certain that nothing was changed. A server error may have come after the change.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { code: ..500, .. })
    }
}

impl From<kube::Error> for AskError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => match is_believed(&status) {
                true => Self::Refused { code: status.code, message: status.message },
                false => Self::Unanswered(format!("not an answer of an API server: {}", status.message)),
            },
            error => {
                let chain = shared::telemetry::chain(&error);
                // What kube calls everything that its HTTP client says.
                Self::Unanswered(chain.strip_prefix("ServiceError: ").unwrap_or(&chain).to_owned())
            }
        }
    }
}

/// Whether the error really comes from the API server. A load balancer in front of it may be broken and respond in its
/// place: with a page, or other JSON. It cannot know whether an object is missing, forbidden or deleted.
fn is_believed(status: &Status) -> bool {
    let is_its_own = status.is_failure() && status.reason != UNREAD;
    is_its_own || !matches!(status.code, 0 | 403 | 404 | 410)
}

impl From<AskError> for String {
    fn from(error: AskError) -> Self {
        error.to_string()
    }
}

/// Waits for a response with the timeout.
pub(super) async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = kube::Result<T>>,
) -> Result<T, AskError> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(AskError::Unanswered(format!("no answer for {} s", limit.as_secs()))),
    }
}

/// One object; `None` if there is none with that name.
pub(super) async fn find(
    client: &Client,
    kind: ObjectKind,
    namespace: &str,
    name: &str,
) -> Result<Option<Object>, AskError> {
    let request = collection::get(kind, namespace, name).map_err(unsaid)?;
    match within(ANSWER, client.request_text(request)).await {
        Ok(text) => json::decode(kind, &text).map(Some).map_err(unsaid),
        Err(AskError::Refused { code: 404, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The object, as JSON.
pub(super) async fn get(client: &Client, path: &str) -> Result<String, AskError> {
    let request = Request::get(path).body(Vec::new()).map_err(unsaid)?;
    within(ANSWER, client.request_text(request)).await
}

/// Merges a part into an object (RFC 7396); returns the result as JSON.
pub(super) async fn merge(client: &Client, path: &str, part: &Value) -> Result<String, AskError> {
    patch(client, path, "application/merge-patch+json", part).await
}

/// The same as a strategic merge, which merges lists by the names of items.
pub(super) async fn strategic(client: &Client, path: &str, part: &Value) -> Result<String, AskError> {
    patch(client, path, "application/strategic-merge-patch+json", part).await
}

async fn patch(client: &Client, path: &str, way: &str, part: &Value) -> Result<String, AskError> {
    let request = Request::patch(path).header("content-type", way);
    let request = request.body(part.to_string().into_bytes()).map_err(unsaid)?;
    within(ANSWER, client.request_text(request)).await
}

/// Requests a change.
pub(super) async fn ask(
    client: &Client,
    method: Method,
    path: &str,
    body: Option<String>,
) -> Result<Answer, AskError> {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let request = request.body(body.unwrap_or_default().into_bytes()).map_err(unsaid)?;
    match within(ANSWER, client.request_text(request)).await {
        Ok(text) => Ok(Answer::Done(text)),
        Err(AskError::Refused { code: 409, .. }) => Ok(Answer::Conflict),
        Err(AskError::Refused { code: 404, .. }) => Ok(Answer::Absent),
        Err(error) => Err(error),
    }
}

/// The request could not be sent, or has no valid response.
fn unsaid(error: impl std::fmt::Display) -> AskError {
    AskError::Unanswered(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::tests::fake::{Fake, Reply, status};
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_was_refused_is_told_apart_from_what_was_not_answered() {
        let put = async |server: &Fake| ask(&server.client(), Method::PUT, "/x", None).await;
        assert!(matches!(put(&Fake::new(|_| status(409))).await, Ok(Answer::Conflict)));
        assert!(matches!(put(&Fake::new(|_| status(404))).await, Ok(Answer::Absent)));
        let refused = put(&Fake::new(|_| status(403))).await.unwrap_err();
        assert!(refused.is_refusal());
        assert!(!put(&Fake::new(|_| status(503))).await.unwrap_err().is_refusal());
        assert_eq!(refused, AskError::Refused { code: 403, message: "no".to_owned() });
        let silent = put(&Fake::new(|_| Reply::Nothing)).await.unwrap_err();
        assert_eq!(silent, AskError::Unanswered("no answer for 10 s".to_owned()));
        assert_eq!(silent.to_string(), "no usable answer of the API server: no answer for 10 s");
        let unreachable = kube::Error::Service("connection refused".into());
        assert_eq!(AskError::from(unreachable), AskError::Unanswered("connection refused".to_owned()));
        assert!(!silent.is_refusal());
    }

    #[tokio::test]
    async fn only_the_api_server_s_word_is_an_absence() {
        let look = async |server: &Fake| find(&server.client(), ObjectKind::Secret, "a", "b").await;
        assert_eq!(look(&Fake::new(|_| status(404))).await, Ok(None));
        let said = |code, text: &str| Reply::Text(code, text.to_owned());
        for bad in [status(500), status(403), said(200, "{")] {
            let server = Fake::new(move |_| bad.clone());
            assert!(look(&server).await.is_err());
        }
        // Responses of something in front of the API server: a page, a router's JSON, another program's.
        let others = ["404 page not found\n", "<html></html>", "{}", r#"{"code":404,"message":"no route"}"#];
        for (code, text) in [404, 403, 410].into_iter().flat_map(|code| others.map(|text| (code, text))) {
            let server = Fake::new(move |_| said(code, text));
            let found = look(&server).await;
            assert!(matches!(found, Err(AskError::Unanswered(_))), "{code} {text}: {found:?}");
        }
        let busy = Fake::new(move |_| said(429, "Too many requests, please try again later.\n"));
        assert!(matches!(look(&busy).await, Err(AskError::Refused { code: 429, .. })));
    }
}
