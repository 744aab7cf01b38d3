//! Finds a key that occurs twice in one mapping of a JSON text. The JSON parser takes the last one silently where keys
//! are chosen by users (annotations, the `data` of a ConfigMap), and rejects the object elsewhere.

use std::collections::HashSet;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::walk::skip_scalars;
use super::{Fault, fault, yaml};
use crate::objects::json::DecodeError;

/// The first such key of an object that begins on `line`.
pub(super) fn find(text: &str, line: usize) -> Option<Fault> {
    let mut found = None;
    let mut reader = serde_json::Deserializer::from_str(text);
    let error = Walk(&mut found).deserialize(&mut reader).err()?;
    let reason = yaml::last_counts(&yaml::twice(Some(&found?)));
    // The parser stopped right after the key.
    Some(Fault { reason, ..fault(&DecodeError::new(&error, text, true), line) })
}

struct Walk<'a>(&'a mut Option<String>);

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    skip_scalars!();

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Walk(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            if seen.contains(&key) {
                *self.0 = Some(key);
                return Err(A::Error::custom("a key twice"));
            }
            seen.insert(key);
            entries.next_value_seed(Walk(self.0))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_key_that_is_there_twice() {
        let text = "{\"kind\":\"X\",\n\"metadata\":{\"labels\":{\"a\":\"1\",\"b\":\"1\"},\"annotations\":{\n\"x.io/a\":\"1\",\"b\":\"2\",\n\"x.io/a\":\"3\"}}}";
        let fault = find(text, 7).unwrap();
        assert_eq!((fault.line, &*fault.field), (10, "metadata.annotations[x.io/a]"));
        assert_eq!(
            fault.reason,
            "got the key \"x.io/a\" twice in one mapping: the last one is used, as with kubectl"
        );
        assert_eq!(find(r#"{"a":[{"b":1},{"b":2}],"b":3,"c":{"a":{"a":{}}}}"#, 1), None);
        assert_eq!(find(r#"{"a":[0,{"b":1,"c":"2","b":{}}]}"#, 1).unwrap().field, "a[1].b");
        assert_eq!(find(r#"{"a":1,"a""#, 1).unwrap().field, "a", "the rest is judged elsewhere");
        assert_eq!(find("{\"a\"", 1), None);
    }
}
