use super::super::watch::Item;
use super::super::wire::{Decode as _, Whole};
use super::*;

fn held(kind: ObjectKind, host: &str) -> Object {
    let text = format!(
        r#"{{"metadata":{{"name":"a","namespace":"n","uid":"u"}},"spec":{{"rules":[{{"host":"{host}"}}]}},"data":{{"k":"{host}"}}}}"#
    );
    json::decode(kind, &text).unwrap()
}

/// A record as the API server would show it.
fn shown(object: &Object, change: impl Fn(String) -> String) -> Item<Decoded> {
    let name = record_name(&object.reference());
    Whole(record_kind(object.kind())).decode(&change(record(&name, "firth", object, Some("7")))).unwrap()
}

fn records() -> Records {
    use crate::event::Inputs;
    use crate::freshness::Freshness;
    use crate::kube::sink::Sender;

    let (endpoints, _) = mpsc::channel(1);
    let (objects, _) = mpsc::channel(1);
    let sender = Sender::new(Inputs { endpoints, objects }, Freshness::default());
    Records::new(Objects::new(sender, ObjectKind::ConfigMap, 1))
}

#[test]
fn a_record_reads_back_as_what_was_held() {
    for kind in [ObjectKind::Ingress, ObjectKind::Secret, ObjectKind::ConfigMap] {
        let object = held(kind, "a.test");
        let mut records = records();
        let item = shown(&object, |text| text);
        let expected = vec![Event::Held(Hold { object: object.clone() })];
        assert_eq!(records.events(Change::Put(item.clone())), expected);
        assert_eq!(records.events(Change::Gone(item.name)), [Event::Released(object.reference())]);
    }
}

#[test]
fn a_record_that_turns_bad_holds_nothing() {
    let object = held(ObjectKind::Ingress, "a.test");
    let mut records = records();
    records.events(Change::Put(shown(&object, |text| text)));
    let bad = shown(&object, |text| text.replace("networking.k8s.io", "nobody.io"));
    assert_eq!(records.events(Change::Put(bad.clone())), [Event::Released(object.reference())]);
    assert_eq!(records.events(Change::Put(bad)), []);
}

#[test]
fn a_record_holds_only_the_object_that_it_is_named_after() {
    let (object, other) = (held(ObjectKind::Ingress, "a.test"), held(ObjectKind::Service, "a.test"));
    let wrong = shown(&object, |text| {
        text.replace(&record_name(&object.reference()), &record_name(&other.reference()))
    });
    assert!(read(&wrong.value).unwrap_err().contains("expected the name"));
    assert_eq!(records().events(Change::Put(wrong)), []);
}

#[test]
fn the_source_of_a_secret_is_in_a_secret() {
    let secret = held(ObjectKind::Secret, "cGxhaW4=");
    let text = record("x", "firth", &secret, None);
    assert!(text.contains(r#""kind":"Secret""#) && !text.contains("cGxhaW4="), "{text}");
}
