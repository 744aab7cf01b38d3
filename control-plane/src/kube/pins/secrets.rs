//! The Secrets of the stored pin in the API server: one with the manifest, the others its parts.
//!
//! **Invariant:** Secrets are deleted or replaced only in the version that was seen, and no Secret without our label is
//! deleted.

use std::collections::BTreeSet;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use kube::Client;
use serde_json::{Value, json};

use super::super::ask::{self, ANSWER, Answer, AskError, within};
use super::super::collection::{self, Collection};
use super::super::watch::{Item, WatchInput};
use super::super::wire::{self, MetadataOnly};
use super::{LABEL, MANIFEST, NAME, PART, bytes, text_of};
use crate::objects::{Object, ObjectKind, Secret, json};
use crate::pin::{Manifest, Unreadable};

/// Prefix of parts' names.
pub(super) const PREFIX: &str = "firth-pin-";

/// Requests for the Secrets.
#[derive(Clone)]
pub(super) struct Secrets {
    pub(super) client: Client,
    pub(super) namespace: Arc<str>,
}

impl Secrets {
    pub(super) async fn find(&self, name: &str) -> Result<Option<Arc<Secret>>, AskError> {
        let found = ask::find(&self.client, ObjectKind::Secret, &self.namespace, name).await?;
        found.map(secret).transpose()
    }

    /// Creates a Secret, if there is none with that name.
    pub(super) async fn create(&self, body: &Value) -> Result<Answer, AskError> {
        ask::ask(&self.client, Method::POST, &self.path(""), Some(body.to_string())).await
    }

    /// Replaces a Secret in a given version.
    pub(super) async fn replace(
        &self,
        name: &str,
        mut body: Value,
        version: &str,
    ) -> Result<Answer, AskError> {
        body["metadata"]["resourceVersion"] = version.into();
        ask::ask(&self.client, Method::PUT, &self.path(name), Some(body.to_string())).await
    }

    /// Deletes a Secret in a given version.
    pub(super) async fn remove(&self, name: &str, version: &str) -> Result<Answer, AskError> {
        let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"resourceVersion": version}});
        ask::ask(&self.client, Method::DELETE, &self.path(name), Some(body.to_string())).await
    }

    /// Names and versions of all Secrets that are parts of any pin: by label and by name.
    pub(super) async fn parts(&self) -> Result<Vec<(Arc<str>, Arc<str>)>, AskError> {
        let (key, value) = LABEL;
        let all = Collection::all(ObjectKind::Secret, Some(&self.namespace));
        let all = all.labels(format!("{key}={value}")).metadata_only();
        let (mut parts, mut more) = (Vec::new(), None);
        loop {
            let request = all.list(more.as_deref()).map_err(unread)?;
            let text = within(ANSWER, self.client.request_text(request)).await?;
            let Ok((WatchInput::Page { items, more: next, .. }, _)) = wire::page(&MetadataOnly, &text) else {
                return Err(unread("expected a list"));
            };
            let items = items.into_iter().map(|Item { name, revision, .. }| (name.name, revision.0));
            parts.extend(items.filter(|(name, _)| name.starts_with(PREFIX)));
            match next {
                Some(_) => more = next,
                None => return Ok(parts),
            }
        }
    }

    /// The parts that the stored pin names; `None`: unknown, as it is damaged or of a newer build.
    pub(super) async fn named(&self) -> Result<Option<BTreeSet<String>>, AskError> {
        let Some(there) = self.find(NAME).await? else {
            return Ok(Some(BTreeSet::new()));
        };
        Ok(manifest_in(&there).ok().map(|manifest| manifest.parts.into_iter().collect()))
    }

    /// The Secret of a part. It is immutable: two writers of the same part may both rely on it.
    pub(super) fn part(&self, name: &str, part: &[u8]) -> Value {
        let mut body = self.body(name, PART, part);
        body["immutable"] = true.into();
        body
    }

    pub(super) fn manifest(&self, manifest: &Manifest) -> Value {
        self.body(NAME, MANIFEST, manifest.text().as_bytes())
    }

    fn body(&self, name: &str, key: &str, value: &[u8]) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": &*self.namespace, "labels": {LABEL.0: LABEL.1}},
            "data": {key: STANDARD.encode(value)},
        })
    }

    fn path(&self, name: &str) -> String {
        let all = collection::path(ObjectKind::Secret, Some(&self.namespace));
        if name.is_empty() { all } else { format!("{all}/{name}") }
    }
}

/// The manifest in a Secret, whether it is valid here or not.
pub(super) fn manifest_in(secret: &Secret) -> Result<Manifest, Unreadable> {
    Manifest::read(&text_of(secret)?)
}

/// Whether a Secret is this part.
pub(super) fn is_part(secret: &Secret, part: &[u8]) -> bool {
    is_labelled(secret) && bytes(secret, PART).is_some_and(|there| there == part)
}

pub(super) fn is_labelled(secret: &Secret) -> bool {
    secret.metadata.labels.get(LABEL.0).is_some_and(|value| value == LABEL.1)
}

/// The Secret in a response.
pub(super) fn secret_of(text: &str) -> Result<Arc<Secret>, AskError> {
    secret(json::decode(ObjectKind::Secret, text).map_err(unread)?)
}

fn secret(object: Object) -> Result<Arc<Secret>, AskError> {
    match object {
        Object::Secret(secret) => Ok(secret),
        other => Err(unread(format!("expected a Secret, got {}", other.reference()))),
    }
}

fn unread(why: impl std::fmt::Display) -> AskError {
    AskError::Unanswered(why.to_string())
}
