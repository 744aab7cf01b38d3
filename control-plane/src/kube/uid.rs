//! Identifies the cluster by the uid of the namespace that holds our decisions. A cluster has no name that a client with few rights
//! could read, and this uid is unique.
//!
//! **Invariant:** while the uid has not been read, no identity is reported: unknown must not look like another cluster.

use std::time::Duration;

use http::Request;
use kube::Client;
use serde_json::Value;
use shared::backoff::Backoff;
use shared::version::Source;
use tokio::sync::watch;
use tokio::time;
use tracing::{info, warn};

use super::KubeError;
use super::ask::{ANSWER, within};

/// Bounds of the retry interval.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Reports it once, then stays idle.
pub(super) async fn tell(
    client: Client,
    namespace: String,
    told: watch::Sender<Option<Source>>,
) -> Result<(), KubeError> {
    let mut retry = Backoff::new(RETRY.0, RETRY.1);
    let mut complained = false;
    loop {
        match uid(&client, &namespace).await {
            Ok(uid) => {
                told.send_replace(Some(Source::of("cluster", uid.as_bytes())));
                if complained {
                    info!("the cluster is identified");
                }
                return std::future::pending().await;
            }
            Err(error) if !complained => {
                complained = true;
                warn!(
                    namespace,
                    "proxies are not told which cluster this is, as its namespace cannot be read: {error}"
                );
            }
            Err(_) => {}
        }
        time::sleep(RETRY.0 + retry.next_delay()).await;
    }
}

async fn uid(client: &Client, namespace: &str) -> Result<String, String> {
    let request = Request::get(format!("/api/v1/namespaces/{namespace}")).body(Vec::new());
    let request = request.map_err(|error| error.to_string())?;
    of(&within(ANSWER, client.request_text(request)).await?)
}

fn of(text: &str) -> Result<String, String> {
    let object: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let uid = object.pointer("/metadata/uid").and_then(Value::as_str).filter(|uid| !uid.is_empty());
    uid.map(ToOwned::to_owned).ok_or_else(|| "the answer has no metadata.uid".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_a_uid_is_no_cluster() {
        assert_eq!(of(r#"{"metadata": {"uid": "0-1"}}"#), Ok("0-1".to_owned()));
        for text in ["", "{}", r#"{"metadata": {"uid": ""}}"#, r#"{"metadata": {"uid": 7}}"#] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
