//! Bodies of resources as JSON: field names as in `proto/`, only the fields that are set.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::Bytes;
use prost_reflect::{
    DescriptorError, DescriptorPool, DynamicMessage, FieldDescriptor, MessageDescriptor, SerializeOptions,
};
use prost_types::value::Kind as Shape;
use prost_types::{ListValue, Struct, Value};
use serde_json::{Value as Json, json};
use shared::entry::Entry;
use shared::kind::Kind;
use shared::proto::DESCRIPTORS;
use tonic::Status;

/// Replaces a secret.
const REDACTED: &str = "redacted";

/// Knows the message type of each kind.
#[derive(Debug)]
pub(super) struct Bodies {
    pool: DescriptorPool,
}

impl Bodies {
    pub(super) fn new() -> Result<Self, DescriptorError> {
        Ok(Self { pool: DescriptorPool::decode(DESCRIPTORS)? })
    }

    /// The body of a resource, without its secrets.
    pub(super) fn show(&self, entry: &Entry) -> Result<Struct, Status> {
        self.json(entry).map(to_struct)
    }

    /// The same as JSON.
    pub(super) fn json(&self, entry: &Entry) -> Result<Json, Status> {
        let hidden = || Ok(json!({ "body": REDACTED }));
        let Some(descriptor) = self.message_of(entry.kind()) else {
            // The message is not known, so secrets cannot be recognised.
            return hidden();
        };
        let secrets: Vec<_> = descriptor.fields().filter(|field| self.is_secret(field)).collect();
        if entry.kind().is_secret() && secrets.is_empty() {
            return hidden();
        }
        let undecodable = |error: &dyn std::fmt::Display| Status::internal(format!("{}: {error}", entry.key));
        let mut message =
            DynamicMessage::decode(descriptor, entry.body.clone()).map_err(|error| undecodable(&error))?;
        for field in &secrets {
            message.clear_field(field);
        }
        let mut body = serialize(&message).map_err(|error| undecodable(&error))?;
        for field in &secrets {
            body[field.name()] = REDACTED.into();
        }
        match entry.kind() {
            Kind::Endpoints => show_addresses(&mut body, &message),
            Kind::Backend => show_service(&mut body, &message),
            _ => {}
        }
        Ok(body)
    }

    /// A message of `firth.config.v1` without secrets; `None` if this build does not know it.
    pub(super) fn message(&self, name: &str, bytes: Bytes) -> Option<Json> {
        let descriptor = self.pool.get_message_by_name(&format!("firth.config.v1.{name}"))?;
        serialize(&DynamicMessage::decode(descriptor, bytes).ok()?).ok()
    }

    fn message_of(&self, kind: Kind) -> Option<MessageDescriptor> {
        self.pool.get_message_by_name(&format!("firth.config.v1.{}", kind.message()?))
    }

    /// Whether a field has the option `(firth.secret)`.
    fn is_secret(&self, field: &FieldDescriptor) -> bool {
        let extension = self.pool.get_extension_by_name("firth.secret");
        extension.is_some_and(|it| field.options().get_extension(&it).as_bool() == Some(true))
    }
}

/// Field names as in `proto/`, numbers as numbers.
fn serialize(message: &DynamicMessage) -> serde_json::Result<Json> {
    let options = SerializeOptions::new().use_proto_field_name(true).stringify_64_bit_integers(false);
    message.serialize_with_options(serde_json::value::Serializer, &options)
}

/// Formats packed addresses as text.
fn show_addresses(body: &mut Json, message: &DynamicMessage) {
    if let Some(packed) = body.get("ipv4").and_then(Json::as_array) {
        let address = |bits: &Json| Ipv4Addr::from(bits.as_u64().unwrap_or_default() as u32).to_string();
        body["ipv4"] = packed.iter().map(address).collect();
    }
    if body.get("ipv6").is_some()
        && let Some(packed) = message.get_field_by_name("ipv6")
        && let Some(bytes) = packed.as_bytes()
    {
        let addresses = bytes.as_chunks::<16>().0.iter();
        body["ipv6"] = addresses.map(|address| Ipv6Addr::from(*address).to_string()).collect();
    }
}

/// Formats the address of a Backend's Service as text.
fn show_service(body: &mut Json, message: &DynamicMessage) {
    let service = message.get_field_by_name("service");
    let ip = service.as_deref().and_then(|it| it.as_message()?.get_field_by_name("ip"));
    let Some(bytes) = ip.as_deref().and_then(|it| it.as_bytes()) else {
        return;
    };
    let address = match (<[u8; 4]>::try_from(&**bytes), <[u8; 16]>::try_from(&**bytes)) {
        (Ok(octets), _) => IpAddr::from(octets),
        (_, Ok(octets)) => IpAddr::from(octets),
        _ => return,
    };
    if let Some(shown) = body.pointer_mut("/service/ip") {
        *shown = address.to_string().into();
    }
}

fn to_struct(json: Json) -> Struct {
    match json {
        Json::Object(fields) => {
            Struct { fields: fields.into_iter().map(|(name, value)| (name, to_value(value))).collect() }
        }
        _ => Struct { fields: BTreeMap::new() },
    }
}

fn to_value(json: Json) -> Value {
    let kind = match json {
        Json::Null => Shape::NullValue(0),
        Json::Bool(value) => Shape::BoolValue(value),
        Json::Number(value) => Shape::NumberValue(value.as_f64().unwrap_or_default()),
        Json::String(value) => Shape::StringValue(value),
        Json::Array(values) => {
            Shape::ListValue(ListValue { values: values.into_iter().map(to_value).collect() })
        }
        object @ Json::Object(_) => Shape::StructValue(to_struct(object)),
    };
    Value { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use prost_types::FileDescriptorSet;
    use shared::kind::ResourceKey;

    use super::*;

    #[test]
    fn a_secret_kind_of_which_no_field_is_known_as_secret_is_shown_as_nothing() {
        // Simulates missing `(firth.secret)` options: decoding as this type drops extensions.
        let files = FileDescriptorSet::decode(DESCRIPTORS).unwrap();
        let bodies = Bodies { pool: DescriptorPool::from_file_descriptor_set(files).unwrap() };
        let mut kinds = Kind::ALL.iter().filter(|kind| kind.is_secret()).peekable();
        assert!(kinds.peek().is_some());
        for kind in kinds {
            let message = bodies.message_of(*kind).unwrap();
            assert!(!message.fields().any(|field| bodies.is_secret(&field)), "{kind:?}");
            let body = b"\x12\x05knock".to_vec().into();
            let shown = bodies.show(&Entry::from_body(ResourceKey::new(*kind, "ns/a"), 1, body)).unwrap();
            assert_eq!(shown, to_struct(json!({ "body": REDACTED })), "{kind:?}");
        }
    }
}
