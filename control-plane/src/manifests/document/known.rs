//! The known fields of each kind: unknown ones in a manifest are reported. `kubectl` rejects them, and an API server
//! drops them with a warning; most often they are typos (`pathtype`), or at the wrong level.
//!
//! Values are neither checked nor stored: a document is parsed once more for names alone.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::walk::skip_scalars;
use crate::objects::ObjectKind;

/// Limit of the unknown fields of one object that are reported.
const MOST: usize = 10;
/// Limit of the characters of a name that are shown.
const SHOWN: usize = 60;

/// An unknown field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Unknown {
    /// Its path.
    pub(super) field: String,
    /// A similar known field at the same level.
    pub(super) meant: Option<&'static str>,
}

/// The unknown fields of an object; empty if the text does not have the kind's types, which is reported elsewhere.
pub(super) fn unknown(kind: ObjectKind, text: &str) -> Vec<Unknown> {
    let mut found = Found { path: String::new(), unknown: Vec::new() };
    let mut reader = serde_json::Deserializer::from_str(text);
    // Parsing ends early once there are enough.
    let _ = Walk { fields: &KNOWN[kind as usize], found: &mut found }.deserialize(&mut reader);
    found.unknown
}

/// Fields with their sub-fields in braces, for a list those of its items. A field without braces may contain anything:
/// it is a value, or its names are chosen by users.
const OBJECT: &str = "apiVersion kind metadata{annotations creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers \
                      generateName generation labels managedFields name namespace ownerReferences{apiVersion blockOwnerDeletion \
                      controller kind name uid} resourceVersion selfLink uid}";
const BACKEND: &str = "{resource{apiGroup kind name} service{name port{name number}}}";

fn own(kind: ObjectKind) -> String {
    let text = match kind {
        ObjectKind::Ingress => {
            "spec{ingressClassName defaultBackend=BACKEND rules{host http{paths{path pathType backend=BACKEND}}} \
             tls{hosts secretName}} status"
        }
        ObjectKind::IngressClass => "spec{controller parameters{apiGroup kind name namespace scope}}",
        ObjectKind::Service => {
            "spec{allocateLoadBalancerNodePorts clusterIP clusterIPs externalIPs externalName externalTrafficPolicy \
             healthCheckNodePort internalTrafficPolicy ipFamilies ipFamilyPolicy loadBalancerClass loadBalancerIP \
             loadBalancerSourceRanges ports{appProtocol name nodePort port protocol targetPort} publishNotReadyAddresses selector \
             sessionAffinity sessionAffinityConfig{clientIP{timeoutSeconds}} trafficDistribution type} status"
        }
        ObjectKind::EndpointSlice => {
            "addressType endpoints{addresses conditions{ready serving terminating} deprecatedTopology hints{forNodes{name} \
             forZones{name}} hostname nodeName targetRef{apiVersion fieldPath kind name namespace resourceVersion uid} zone} \
             ports{appProtocol name port protocol}"
        }
        ObjectKind::Secret => "data immutable stringData type",
        ObjectKind::ConfigMap => "binaryData data immutable",
        ObjectKind::Namespace => "spec{finalizers} status",
    };
    text.replace("=BACKEND", BACKEND)
}

/// Fields that existed once, and are still in exported objects.
const FORMER: [(ObjectKind, &str); 4] = [
    (ObjectKind::Ingress, "metadata{clusterName}"),
    (ObjectKind::Service, "metadata{clusterName} spec{ipFamily topologyKeys}"),
    (ObjectKind::EndpointSlice, "metadata{clusterName} endpoints{topology}"),
    (ObjectKind::Secret, "metadata{clusterName}"),
];

static KNOWN: LazyLock<[Fields; ObjectKind::ALL.len()]> = LazyLock::new(|| {
    ObjectKind::ALL.map(|kind| {
        let mut fields = Fields::default();
        fields.read(OBJECT);
        fields.read(own(kind).leak());
        for (_, former) in FORMER.into_iter().filter(|(of, _)| *of == kind) {
            fields.read(former);
        }
        fields
    })
});

/// The known fields at one level; `None`: anything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Fields(Option<BTreeMap<&'static str, Self>>);

impl Fields {
    /// Parses fields up to the closing brace, and returns the text after it.
    fn read(&mut self, mut text: &'static str) -> &'static str {
        let fields = self.0.get_or_insert_default();
        loop {
            text = text.trim_start();
            let end = text.find([' ', '{', '}']).unwrap_or(text.len());
            let (name, rest) = text.split_at(end);
            text = rest;
            let inside = if name.is_empty() { None } else { Some(fields.entry(name).or_default()) };
            match (text.as_bytes().first(), inside) {
                (Some(b'{'), Some(inside)) => text = inside.read(&text[1..]),
                (Some(b'}'), _) => return &text[1..],
                (Some(_), Some(_)) => {}
                (_, _) => return "",
            }
        }
    }
}

struct Found {
    /// The path of the current value.
    path: String,
    unknown: Vec<Unknown>,
}

struct Walk<'a> {
    fields: &'a Fields,
    found: &'a mut Found,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.fields.0 {
            None => deserializer.deserialize_ignored_any(IgnoredAny).map(drop),
            Some(_) => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    skip_scalars!();

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Self { fields, found } = self;
        let outer = found.path.len();
        for i in 0.. {
            found.path.push_str(&format!("[{i}]"));
            let more = items.next_element_seed(Walk { fields, found })?;
            found.path.truncate(outer);
            if more.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let Self { fields, found } = self;
        let known = fields.0.as_ref();
        let outer = found.path.len();
        while let Some(name) = entries.next_key::<Cow<'de, str>>()? {
            found.enter(&name);
            match known.and_then(|known| known.get(&*name)) {
                Some(fields) => entries.next_value_seed(Walk { fields, found })?,
                None => {
                    entries.next_value::<IgnoredAny>()?;
                    let mut names = known.into_iter().flat_map(BTreeMap::keys);
                    let meant = names.find(|known| is_near(&name, known)).copied();
                    found.unknown.push(Unknown { field: found.path.clone(), meant });
                    if found.unknown.len() == MOST {
                        return Err(A::Error::custom("enough"));
                    }
                }
            }
            found.path.truncate(outer);
        }
        Ok(())
    }
}

impl Found {
    fn enter(&mut self, name: &str) {
        let shown: String = name.chars().take(SHOWN).flat_map(char::escape_debug).collect();
        if name.contains('.') {
            // Formatted as the path of an annotation.
            self.path.push_str(&format!("[{shown}]"));
            return;
        }
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(&shown);
    }
}

/// Whether two names differ only by case, or by one inserted, missing, wrong or swapped letter.
fn is_near(name: &str, known: &str) -> bool {
    let lower = |text: &str| {
        text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
    };
    let (a, b): (Vec<char>, Vec<char>) = (lower(name), lower(known));
    let same = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[same..], &b[same..]);
    match (a, b) {
        ([], []) => true,
        // Short names are all similar.
        _ if known.len() < 4 => false,
        ([_, a @ ..], b) if a == b => true,
        (a, [_, b @ ..]) if a == b => true,
        ([_, a @ ..], [_, b @ ..]) if a == b => true,
        ([a1, a2, a @ ..], [b1, b2, b @ ..]) => a1 == b2 && a2 == b1 && a == b,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
