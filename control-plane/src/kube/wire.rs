//! Decodes the API server's responses: lists and watch events, item by item, so that one bad object does not affect
//! others.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use shared::name::ObjectName;

use super::watch::{Item, Revision, WatchInput};
use crate::objects::json::{self, Identity};
use crate::objects::{Metadata, Object, ObjectKind, ObjectRef};
use crate::problem::{Problem, Severity};

/// The annotation of the bookmark that ends a streamed list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// How the objects of one watch are decoded.
pub(super) trait Decode: Send {
    /// The decoded value.
    type Value: Send;

    /// Decodes one object; `None` if it does not even have a name.
    fn decode(&self, text: &str) -> Option<Item<Self::Value>>;
}

/// An object, or why it could not be decoded.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Decoded {
    Good(Object),
    Bad(Problem),
}

/// Decodes complete objects of a kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole(pub(super) ObjectKind);

impl Decode for Whole {
    type Value = Decoded;

    fn decode(&self, text: &str) -> Option<Item<Decoded>> {
        let error = match json::decode(self.0, text) {
            Ok(object) if !object.metadata().name.is_empty() => {
                let Metadata { uid, resource_version, .. } = object.metadata();
                let (name, uid) = (object.metadata().object_name(), uid.clone());
                let revision = Revision(resource_version.clone());
                return Some(Item { name, uid, revision, value: Decoded::Good(object) });
            }
            Ok(_) => return None,
            Err(error) => error,
        };
        let Identity { name, uid, resource_version } = Identity::read(text)?;
        let problem = Problem {
            object: ObjectRef { kind: self.0, name: name.clone() }.into(),
            field: error.field,
            severity: Severity::Rejected,
            reason: error.reason,
            location: String::new(),
        };
        Some(Item { name, uid, revision: Revision(resource_version), value: Decoded::Bad(problem) })
    }
}

/// Decodes only the metadata that identifies an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct MetadataOnly;

impl Decode for MetadataOnly {
    type Value = ();

    fn decode(&self, text: &str) -> Option<Item<()>> {
        #[derive(Deserialize)]
        struct Bare {
            metadata: Names,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        #[derive(Default)]
        struct Names {
            namespace: String,
            name: String,
            uid: String,
            resource_version: String,
        }
        let Names { namespace, name, uid, resource_version } =
            serde_json::from_str::<Bare>(text).ok()?.metadata;
        let name = (!name.is_empty()).then(|| ObjectName::new(namespace, name))?;
        Some(Item { name, uid: uid.into(), revision: Revision(resource_version.into()), value: () })
    }
}

/// Decodes a page of a list. Also returns the number of objects without a name.
///
/// # Errors
/// If the response is not a list.
pub(super) fn page<D: Decode>(
    decode: &D,
    text: &str,
) -> Result<(WatchInput<D::Value>, usize), serde_json::Error> {
    #[derive(Deserialize)]
    struct List<'a> {
        #[serde(borrow)]
        metadata: ListMetadata<'a>,
        /// Missing or null if it is empty.
        #[serde(borrow, default)]
        items: Option<Vec<&'a RawValue>>,
    }
    let List { metadata, items } = serde_json::from_str(text)?;
    let raw = items.unwrap_or_default();
    let items: Vec<_> = raw.iter().filter_map(|item| decode.decode(item.get())).collect();
    let nameless = raw.len() - items.len();
    let more = Some(metadata.more.into_owned()).filter(|token| !token.is_empty());
    let revision = Revision(metadata.resource_version.into());
    Ok((WatchInput::Page { items, revision, more }, nameless))
}

/// The revision of a list.
///
/// # Errors
/// If the response is not a list.
pub(super) fn revision(text: &str) -> Result<Revision, serde_json::Error> {
    #[derive(Deserialize)]
    struct List<'a> {
        #[serde(borrow)]
        metadata: ListMetadata<'a>,
    }
    let list: List<'_> = serde_json::from_str(text)?;
    Ok(Revision(list.metadata.resource_version.into()))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata<'a> {
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    #[serde(borrow, default, rename = "continue")]
    more: Cow<'a, str>,
}

/// Decodes a line of a watch; `None` for an object without a name, and for unknown types of events.
///
/// # Errors
/// If the line is not an event: the stream is broken.
pub(super) fn event<D: Decode>(
    decode: &D,
    line: &[u8],
) -> Result<Option<WatchInput<D::Value>>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    #[derive(Deserialize)]
    struct Bookmark {
        metadata: BookmarkMetadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct BookmarkMetadata {
        resource_version: String,
        #[serde(default)]
        annotations: Option<BTreeMap<String, String>>,
    }
    #[derive(Deserialize)]
    struct Status {
        #[serde(default)]
        code: u16,
        #[serde(default)]
        message: String,
    }
    let Line { kind, object } = serde_json::from_slice(line)?;
    let text = object.get();
    Ok(match &*kind {
        "ADDED" | "MODIFIED" => decode.decode(text).map(WatchInput::Put),
        "DELETED" => decode.decode(text).map(|item| WatchInput::Gone(item.name, item.revision)),
        "BOOKMARK" => {
            let BookmarkMetadata { resource_version, annotations } =
                serde_json::from_str::<Bookmark>(text)?.metadata;
            let complete =
                annotations.unwrap_or_default().get(INITIAL_EVENTS_END).is_some_and(|it| it == "true");
            Some(WatchInput::Bookmark { revision: Revision(resource_version.into()), complete })
        }
        "ERROR" => {
            let Status { code, message } = serde_json::from_str(text)?;
            Some(WatchInput::Refused { code, reason: message })
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICES: Whole = Whole(ObjectKind::Service);

    #[test]
    fn one_bad_object_in_a_list_is_one_bad_object() {
        let text = r#"{"kind":"ServiceList","metadata":{"resourceVersion":"12","continue":"abc"},"items":[
            {"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"3"},"spec":{"ports":[{"port":80}]}},
            {"metadata":{"name":"b","namespace":"n","uid":"v","resourceVersion":"4"},"spec":{"ports":"none"}},
            {"metadata":7}]}"#;
        let (input, nameless) = page(&SERVICES, text).unwrap();
        assert_eq!(nameless, 1);
        let WatchInput::Page { items, revision, more } = input else { panic!("a page") };
        assert_eq!((revision.number(), more.as_deref()), (12, Some("abc")));
        assert!(matches!(&items[0].value, Decoded::Good(_)));
        let Decoded::Bad(problem) = &items[1].value else { panic!("a bad one") };
        assert_eq!(
            (problem.field.as_str(), problem.object.to_string().as_str()),
            ("spec.ports", "Service n/b")
        );
        assert_eq!((&*items[1].uid, items[1].revision.number()), ("v", 4));
        let (empty, _) = page(&SERVICES, r#"{"metadata":{"resourceVersion":"1"},"items":null}"#).unwrap();
        assert!(matches!(empty, WatchInput::Page { items, more: None, .. } if items.is_empty()));
        assert_eq!(super::revision(text).unwrap().number(), 12);
        assert!(page(&SERVICES, "<html>").is_err());
    }

    #[test]
    fn events() {
        let read = |line: &str| event(&SERVICES, line.as_bytes()).unwrap();
        let object = r#"{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"3"}}"#;
        assert!(matches!(
            read(&format!(r#"{{"type":"ADDED","object":{object}}}"#)),
            Some(WatchInput::Put(_))
        ));
        assert!(matches!(
            read(&format!(r#"{{"type":"MODIFIED","object":{object}}}"#)),
            Some(WatchInput::Put(_))
        ));
        let gone = read(&format!(r#"{{"type":"DELETED","object":{object}}}"#));
        assert_eq!(gone, Some(WatchInput::Gone(ObjectName::new("n", "a"), Revision("3".into()))));
        let mark = |end: &str| {
            read(&format!(r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"9"{end}}}}}}}"#))
        };
        let bookmark = |complete| Some(WatchInput::Bookmark { revision: Revision("9".into()), complete });
        assert_eq!(mark(""), bookmark(false));
        assert_eq!(mark(r#","annotations":{"k8s.io/initial-events-end":"true"}"#), bookmark(true));
        let error = read(r#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}"#);
        assert_eq!(error, Some(WatchInput::Refused { code: 410, reason: "too old".to_owned() }));
        assert_eq!(read(r#"{"type":"LATER","object":{}}"#), None);
        assert!(event(&SERVICES, b"{\"type\":\"ADD").is_err());
    }

    #[test]
    fn metadata_alone() {
        let item = MetadataOnly
            .decode(r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"3"},"data":{"k":"v"}}"#);
        assert_eq!(item.map(|it| (it.name, it.revision.number())), Some((ObjectName::new("n", "a"), 3)));
        assert_eq!(MetadataOnly.decode(r#"{"metadata":{}}"#), None);
    }
}
