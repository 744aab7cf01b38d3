//! The request and response of the webhook (AdmissionReview of admission.k8s.io/v1), as JSON.
//!
//! **Invariant:** the response always has the uid of the request.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;

use crate::index::Verdict;
use crate::objects::json::decode;
use crate::objects::{Ingress, Object, ObjectKind};

/// Limits of the warnings, and of the characters of each: an API server truncates more.
const WARNINGS: usize = 10;
const LONGEST: usize = 240;

/// A request.
#[derive(Debug)]
pub(super) struct Question {
    uid: String,
    /// The Ingress to review; `None`: nothing that could be refused.
    pub(super) ingress: Option<Result<Arc<Ingress>, String>>,
}

/// Why bytes are not a request.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum NoQuestion {
    #[error("expected an AdmissionReview of admission.k8s.io/v1: {0}")]
    Malformed(String),
    #[error("expected an Ingress of networking.k8s.io/v1, got {0}")]
    OtherKind(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    request: Request<'a>,
}

#[derive(Deserialize)]
struct Request<'a> {
    uid: String,
    #[serde(default)]
    operation: String,
    kind: Kind,
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Kind {
    #[serde(default)]
    group: String,
    version: String,
    kind: String,
}

impl Question {
    /// Parses a request.
    pub(super) fn read(body: &[u8]) -> Result<Self, NoQuestion> {
        let malformed = |error: serde_json::Error| NoQuestion::Malformed(error.to_string());
        let Review { api_version, request } = serde_json::from_slice(body).map_err(malformed)?;
        if api_version != "admission.k8s.io/v1" {
            return Err(NoQuestion::Malformed(format!("its apiVersion is {api_version:?}")));
        }
        let Request { uid, operation, kind: Kind { group, version, kind }, object } = request;
        if (&*group, &*version, &*kind) != ("networking.k8s.io", "v1", "Ingress") {
            return Err(NoQuestion::OtherKind(format!("{kind:?} of {group}/{version}")));
        }
        // Deletions are always admitted, and there is nothing to check about null.
        let object = object.filter(|object| operation != "DELETE" && object.get() != "null");
        // Nor about an object that is being deleted, as in ingress-nginx: if the update that removes its last finalizer
        // were refused, it would stay forever.
        let object = object.filter(|object| !is_going(object));
        let ingress = object.map(|object| match decode(ObjectKind::Ingress, object.get()) {
            Ok(Object::Ingress(ingress)) => Ok(ingress),
            Ok(_) => Err("expected an Ingress".to_owned()),
            Err(error) => Err(format!("{}: {error}", error.field)),
        });
        Ok(Self { uid, ingress })
    }

    /// The response.
    pub(super) fn answer(&self, verdict: &Verdict) -> String {
        let Verdict { refused, warnings } = verdict;
        let mut response = json!({"uid": self.uid, "allowed": refused.is_none()});
        if let Some(why) = refused {
            response["status"] = json!({"code": 400, "reason": "BadRequest", "message": why});
        }
        if !warnings.is_empty() {
            let told: Vec<_> = warnings.iter().take(WARNINGS).map(|warning| cut(warning)).collect();
            response["warnings"] = json!(told);
        }
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
            .to_string()
    }
}

/// Whether an object was deleted and waits for its finalizers.
fn is_going(object: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Going {
        metadata: Times,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Times {
        deletion_timestamp: Option<IgnoredAny>,
    }
    // An object without metadata is refused later, with a reason.
    serde_json::from_str::<Going>(object.get()).is_ok_and(|it| it.metadata.deletion_timestamp.is_some())
}

fn cut(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => Cow::Owned(format!("{}...", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn asked(operation: &str, kind: &str, object: &Value) -> Vec<u8> {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u1", "operation": operation, "object": object, "oldObject": {"spec": 1},
            "kind": {"group": "networking.k8s.io", "version": "v1", "kind": kind}}})
        .to_string()
        .into_bytes()
    }

    fn web() -> Value {
        json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {}})
    }

    #[test]
    fn a_review_has_an_ingress_unless_it_is_a_deletion() {
        let question = Question::read(&asked("CREATE", "Ingress", &web())).unwrap();
        assert_eq!(question.ingress.unwrap().unwrap().metadata.object_name().to_string(), "default/web");
        for (operation, object) in [("DELETE", web()), ("DELETE", Value::Null), ("UPDATE", Value::Null)] {
            assert!(Question::read(&asked(operation, "Ingress", &object)).unwrap().ingress.is_none());
        }
        let going = json!({"metadata": {"name": "web", "deletionTimestamp": "2026-01-02T03:04:05Z"}, "spec": {"rules": 7}});
        assert!(Question::read(&asked("UPDATE", "Ingress", &going)).unwrap().ingress.is_none());
        let stays = json!({"metadata": {"name": "web", "deletionTimestamp": null}, "spec": {}});
        assert!(Question::read(&asked("UPDATE", "Ingress", &stays)).unwrap().ingress.is_some());
        let odd = json!({"metadata": {"name": "web"}, "spec": {"rules": 7}});
        let error = Question::read(&asked("CREATE", "Ingress", &odd)).unwrap().ingress.unwrap().unwrap_err();
        assert!(error.starts_with("spec.rules: "), "{error}");
    }

    #[test]
    fn what_is_none_is_said_to_be() {
        let service = Question::read(&asked("CREATE", "Service", &web())).unwrap_err();
        assert_eq!(
            service.to_string(),
            "expected an Ingress of networking.k8s.io/v1, got \"Service\" of networking.k8s.io/v1"
        );
        let mut other: Value = serde_json::from_slice(&asked("CREATE", "Ingress", &web())).unwrap();
        other["apiVersion"] = "admission.k8s.io/v1beta1".into();
        let later = Question::read(other.to_string().as_bytes()).unwrap_err();
        assert!(later.to_string().ends_with("its apiVersion is \"admission.k8s.io/v1beta1\""), "{later}");
        for body in
            [&b""[..], b"{}", b"[", br#"{"apiVersion":"admission.k8s.io/v1beta1","request":{}}"#, b"\xff"]
        {
            assert!(matches!(Question::read(body), Err(NoQuestion::Malformed(_))), "{body:?}");
        }
    }

    #[test]
    fn an_answer_has_the_uid_and_few_warnings() {
        let question = Question::read(&asked("CREATE", "Ingress", &web())).unwrap();
        let told = |refused: Option<&str>, warnings: Vec<String>| -> Value {
            let verdict = Verdict { refused: refused.map(str::to_owned), warnings };
            serde_json::from_str::<Value>(&question.answer(&verdict)).unwrap()["response"].take()
        };
        assert_eq!(told(None, vec![]), json!({"uid": "u1", "allowed": true}));
        assert_eq!(
            told(Some("no"), vec![]),
            json!({"uid": "u1", "allowed": false, "status": {"code": 400, "reason": "BadRequest", "message": "no"}})
        );
        let many = told(None, vec!["ä".repeat(1_000); 50]);
        let warnings = many["warnings"].as_array().unwrap();
        assert_eq!((warnings.len(), warnings[0].as_str().unwrap().chars().count()), (10, 243));
    }
}
