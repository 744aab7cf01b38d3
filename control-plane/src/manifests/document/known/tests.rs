use std::marker::PhantomData;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use serde::Deserialize;
use serde::de::value::{Error, StrDeserializer};
use serde::de::{Deserializer, IntoDeserializer as _};
use serde::forward_to_deserialize_any;

use super::*;

fn fields(kind: ObjectKind, text: &str) -> Vec<String> {
    let shown = |it: Unknown| match it.meant {
        Some(meant) => format!("{} ({meant})", it.field),
        None => it.field,
    };
    unknown(kind, text).into_iter().map(shown).collect()
}

#[test]
fn slips_are_found_with_what_was_meant() {
    let text = r#"{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"a","label":{"x":"y"}},
        "spec":{"rulez":[{"host":"a"}],"rules":[{"host":"a"},{"host":"b","http":{"paths":[{"path":"/","pathtype":"Exact",
        "backend":{"service":{"name":"a","port":{"number":80,"protocol":"TCP"}}},"rewrite.io/x":{"y":[1]}}]}}],"tsl":[]},"specs":1}"#;
    assert_eq!(
        fields(ObjectKind::Ingress, text),
        [
            "metadata.label (labels)",
            "spec.rulez (rules)",
            "spec.rules[1].http.paths[0].pathtype (pathType)",
            "spec.rules[1].http.paths[0].backend.service.port.protocol",
            "spec.rules[1].http.paths[0][rewrite.io/x]",
            "spec.tsl",
            "specs (spec)",
        ]
    );
    assert_eq!(
        fields(ObjectKind::Service, r#"{"spec":{"ports":[{"prot":80,"targetport":"a"}]}}"#),
        ["spec.ports[0].prot (port)", "spec.ports[0].targetport (targetPort)"]
    );
    assert_eq!(
        fields(ObjectKind::Secret, r#"{"data":{"a":""},"tls.crt":"","stringdata":{}}"#),
        ["[tls.crt]", "stringdata (stringData)"]
    );
}

#[test]
fn names_that_owners_choose_are_theirs_and_whatever_stands_there_is_walked() {
    let text = r#"{"metadata":{"labels":{"a":"b"},"annotations":{"x.io/y":"z"},"managedFields":[{"fieldsV1":{"f:spec":{}}}]},
        "spec":{"selector":{"app":"web"},"ports":null},"status":{"loadBalancer":{"ingress":[{"ip":"x"}]}}}"#;
    assert_eq!(fields(ObjectKind::Service, text), [""; 0]);
    for odd in [
        "",
        "7",
        "[]",
        "[[[{\"a\":1}]]]",
        "{\"spec\":[1,\"a\",true,null,-1,1.5]}",
        "{\"metadata\":\"x\"}",
        "{\"spec\":",
    ] {
        unknown(ObjectKind::Service, odd);
    }
    let many = format!("{{{}}}", (0..1_000).map(|i| format!("\"a{i}\":{i}")).collect::<Vec<_>>().join(","));
    assert_eq!(unknown(ObjectKind::ConfigMap, &many).len(), MOST);
    let long = format!(r#"{{"{}\u001b":1}}"#, "x".repeat(1 << 16));
    assert!(unknown(ObjectKind::ConfigMap, &long)[0].field.len() <= SHOWN);
    assert_eq!(fields(ObjectKind::ConfigMap, r#"{"\u001b[31m":1}"#), ["\\u{1b}[31m"]);
}

#[test]
fn what_is_near() {
    for (name, known) in [
        ("pathtype", "pathType"),
        ("path_type", "pathType"),
        ("rulez", "rules"),
        ("rule", "rules"),
        ("ruless", "rules"),
        ("rlues", "rules"),
        ("tLS", "tls"),
    ] {
        assert!(is_near(name, known), "{name}");
    }
    for (name, known) in
        [("tsl", "tls"), ("host", "http"), ("backends", "rules"), ("", "rules"), ("uidx", "uid")]
    {
        assert!(!is_near(name, known), "{name}");
    }
}

/// What Kubernetes' own types have, read from how they are deserialised: each names its fields, and asks for the value of each.
#[test]
fn they_are_those_that_kubernetes_has() {
    fn of<'de, T: Deserialize<'de>>(kind: ObjectKind) {
        let mut theirs = Fields::default();
        let _whatever_it_makes_of_them: Result<T, Error> =
            T::deserialize(Ask { fields: &mut theirs, depth: 0 });
        let mut ours = Fields::default();
        ours.read(OBJECT);
        ours.read(own(kind).leak());
        trim(&mut theirs, &ours);
        assert_eq!(ours, theirs, "{}", kind.as_str());
    }
    of::<Ingress>(ObjectKind::Ingress);
    of::<IngressClass>(ObjectKind::IngressClass);
    of::<Service>(ObjectKind::Service);
    of::<EndpointSlice>(ObjectKind::EndpointSlice);
    of::<Secret>(ObjectKind::Secret);
    of::<ConfigMap>(ObjectKind::ConfigMap);
    of::<Namespace>(ObjectKind::Namespace);
}

/// Takes out what is inside of that may be anything: only servers write it.
fn trim(theirs: &mut Fields, ours: &Fields) {
    for (name, inside) in theirs.0.iter_mut().flatten() {
        match ours.0.as_ref().and_then(|ours| ours.get(name)) {
            Some(Fields(None)) if ["managedFields", "status"].contains(name) => inside.0 = None,
            Some(ours) => trim(inside, ours),
            None => {}
        }
    }
}

/// Notes the fields that are asked for.
struct Ask<'a> {
    fields: &'a mut Fields,
    depth: usize,
}

impl<'de> Deserializer<'de> for Ask<'_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let known = self.fields.0.get_or_insert_default();
        for name in names {
            known.entry(name).or_default();
        }
        // What an object says that it is has to be right, and may be missing.
        let names = names.iter().filter(|name| self.depth > 0 || !["apiVersion", "kind"].contains(name));
        visitor.visit_map(Each { names: names.copied().collect(), known, depth: self.depth + 1 })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Once(Some(self), PhantomData))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor
            .visit_map(serde::de::value::MapDeserializer::<_, Error>::new(std::iter::empty::<(&str, &str)>()))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(false)
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i32(0)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i64(0)
    }

    /// A text that is good as a time, too: who does not like it ends there, and is not asked for the rest.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str("1970-01-01T00:00:00Z")
    }

    forward_to_deserialize_any! {
        i8 i16 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct tuple tuple_struct enum identifier
        ignored_any
    }
}

struct Each<'a> {
    names: std::collections::VecDeque<&'static str>,
    known: &'a mut BTreeMap<&'static str, Fields>,
    depth: usize,
}

impl<'de> MapAccess<'de> for Each<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(name) = self.names.front() else { return Ok(None) };
        let name: StrDeserializer<'_, Error> = name.into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let name = self.names.pop_front().unwrap();
        let fields = self.known.get_mut(name).unwrap();
        seed.deserialize(Ask { fields, depth: self.depth })
    }
}

struct Once<'a, 'de>(Option<Ask<'a>>, PhantomData<&'de ()>);

impl<'de> SeqAccess<'de> for Once<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.0.take().map(|ask| seed.deserialize(ask)).transpose()
    }
}
