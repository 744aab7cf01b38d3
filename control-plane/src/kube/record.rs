//! A text in a Secret of its own, written by compare-and-swap: over the revision that was read, or not at all.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use kube::Client;
use serde_json::{Value, json};
use shared::name::ObjectName;
use zeroize::Zeroizing;

use super::ask::{Answer, ask, find};
use super::collection;
use crate::objects::{Object, ObjectKind};

/// The place of a record.
#[derive(Clone)]
pub struct Record {
    client: Client,
    name: ObjectName,
    key: &'static str,
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Record").field("name", &self.name).field("key", &self.key).finish_non_exhaustive()
    }
}

/// The result of reading it.
#[derive(PartialEq, Eq)]
pub enum StoredRecord {
    /// There is no Secret.
    Nothing,
    /// The Secret at this revision has no record.
    Emptied(String),
    /// The record, and the revision of its Secret.
    Record(Zeroizing<Vec<u8>>, String),
}

impl Record {
    /// Under this key of a Secret.
    pub(super) fn new(client: Client, name: ObjectName, key: &'static str) -> Self {
        Self { client, name, key }
    }

    /// The name of the Secret.
    pub fn name(&self) -> &ObjectName {
        &self.name
    }

    /// Reads the record.
    ///
    /// # Errors
    /// If the API server cannot be reached, or the value is not base64.
    pub async fn load(&self) -> Result<StoredRecord, String> {
        let ObjectName { namespace, name } = &self.name;
        let found = find(&self.client, ObjectKind::Secret, namespace, name).await?;
        let Some(Object::Secret(secret)) = found else {
            return Ok(StoredRecord::Nothing);
        };
        let revision = secret.metadata.resource_version.to_string();
        let Some(text) = secret.data.get(self.key).filter(|text| !text.is_empty()) else {
            return Ok(StoredRecord::Emptied(revision));
        };
        let text =
            STANDARD.decode(text).map_err(|_| format!("Secret {}: {} is not base64", self.name, self.key))?;
        Ok(StoredRecord::Record(Zeroizing::new(text), revision))
    }

    /// Writes the record over a revision, or the first one. Returns false if another writer was faster.
    ///
    /// # Errors
    /// If the API server rejects it.
    pub async fn store(&self, text: &str, over: Option<&str>) -> Result<bool, String> {
        let data = Zeroizing::new(STANDARD.encode(text));
        put(&self.client, &self.name, ObjectKind::Secret, json!({self.key: *data}), over).await
    }
}

/// Writes an object that has only data over a revision, or the first one. Returns false if another writer was faster.
pub(super) async fn put(
    client: &Client,
    ObjectName { namespace, name }: &ObjectName,
    kind: ObjectKind,
    data: Value,
    over: Option<&str>,
) -> Result<bool, String> {
    let mut metadata = json!({"namespace": &**namespace, "name": &**name});
    let collection = collection::path(kind, Some(namespace));
    let (method, path) = match over {
        Some(revision) => {
            metadata["resourceVersion"] = revision.into();
            (Method::PUT, format!("{collection}/{name}"))
        }
        None => (Method::POST, collection),
    };
    let body = json!({"apiVersion": "v1", "kind": kind.as_str(), "metadata": metadata, "data": data});
    match ask(client, method, &path, Some(body.to_string())).await? {
        Answer::Done(_) => Ok(true),
        Answer::Conflict => Ok(false),
        // On creation: the namespace does not exist. On replacement: the object was deleted meanwhile, and is read
        // again.
        Answer::Absent if over.is_none() => Err(format!("there is no namespace {namespace}")),
        Answer::Absent => Ok(false),
    }
}

#[cfg(test)]
impl Record {
    /// With an in-memory API server.
    pub(crate) fn of(fake: &super::tests::fake::Fake, name: ObjectName, key: &'static str) -> Self {
        Self::new(fake.client(), name, key)
    }
}
