use super::super::tests::fake::{Fake, Reply, status};
use super::super::watch::Item;
use super::super::wire::{Decode as _, Whole};
use super::source::KEY;
use super::*;
use crate::zlib;

fn held(kind: ObjectKind, host: &str) -> Object {
    let text = format!(
        r#"{{"metadata":{{"name":"a","namespace":"n","uid":"u"}},"spec":{{"rules":[{{"host":"{host}"}}]}},"data":{{"k":"{host}"}}}}"#
    );
    json::decode(kind, &text).unwrap()
}

/// A record as the API server returns it.
fn shown(object: &Object, change: impl Fn(String) -> String) -> Item<Decoded> {
    let name = record_name(&object.reference());
    Whole(record_kind(object.kind())).decode(&change(record(&name, "firth", object, Some("7")))).unwrap()
}

#[test]
fn a_record_reads_back_as_what_was_held() {
    for kind in [ObjectKind::Ingress, ObjectKind::Secret, ObjectKind::ConfigMap] {
        let object = held(kind, "a.test");
        let mut records = Holding::default();
        let item = shown(&object, |text| text);
        let expected = vec![Event::Held(Hold { object: object.clone() })];
        for _ in ["when it is made", "when it is renewed"] {
            assert_eq!(records.events(Change::Put(item.clone())), expected);
        }
        assert_eq!(records.events(Change::Gone(item.name)), [Event::Released(object.reference())]);
    }
}

/// An API server takes an Ingress of 1.5 MB, and no ConfigMap or Secret of more than 1 MiB.
#[test]
fn a_large_object_has_a_record_that_an_api_server_takes() {
    let hosts: Vec<_> = (0..20_000)
        .map(|it| format!("host-{it}.of-a-name-that-is-rather-long-so-that-it-has-a-size"))
        .collect();
    for kind in [ObjectKind::Ingress, ObjectKind::Secret, ObjectKind::ConfigMap] {
        let object = held(kind, &hosts.join("."));
        assert!(json::source(&object).len() > 1 << 20);
        let text = record(&record_name(&object.reference()), "firth", &object, Some("7"));
        assert!(text.len() < 1 << 20, "{kind:?}: {}", text.len());
        let item = shown(&object, |text| text);
        assert_eq!(read(&item.value), Ok(object));
    }
}

#[test]
fn what_is_packed_and_cannot_be_unpacked_holds_nothing() {
    let object = held(ObjectKind::ConfigMap, "a.test");
    let bomb = zlib::pack(&vec![b' '; 17 << 20]);
    for (value, why) in [
        ("?".to_owned(), "Invalid symbol"),
        (STANDARD.encode("text"), "expected zlib"),
        (STANDARD.encode(bomb), "expected zlib"),
        (STANDARD.encode(zlib::pack(&[0xff])), "expected text"),
    ] {
        let item = shown(&object, |text| {
            let mut record: serde_json::Value = serde_json::from_str(&text).unwrap();
            record["data"] = json!({"object.zlib": value});
            record.to_string()
        });
        let told = read(&item.value).unwrap_err();
        assert!(told.starts_with("object.zlib: ") && told.contains(why), "{told}");
    }
}

#[test]
fn a_record_that_turns_bad_holds_nothing() {
    let object = held(ObjectKind::Ingress, "a.test");
    let mut records = Holding::default();
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
    assert_eq!(Holding::default().events(Change::Put(wrong)), []);
}

/// A user who may write ConfigMaps cannot decide which certificate is shown.
#[test]
fn a_secret_alone_holds_a_secret_and_nothing_else() {
    for kind in [ObjectKind::Secret, ObjectKind::Ingress, ObjectKind::ConfigMap] {
        let object = held(kind, "a.test");
        let text = record(&record_name(&object.reference()), "firth", &object, Some("7"));
        let mut record: serde_json::Value = serde_json::from_str(&text).unwrap();
        let source = record["data"][KEY].as_str().unwrap();
        let (place, source) = match kind {
            ObjectKind::Secret => {
                (ObjectKind::ConfigMap, String::from_utf8(STANDARD.decode(source).unwrap()).unwrap())
            }
            _ => (ObjectKind::Secret, STANDARD.encode(source)),
        };
        record["data"][KEY] = source.into();
        record["kind"] = place.as_str().into();
        let wrong = Whole(place).decode(&record.to_string()).unwrap();
        let why = read(&wrong.value).unwrap_err();
        assert!(why.contains("expected a Secret to be held by a Secret"), "{kind:?}: {why}");
        assert_eq!(Holding::default().events(Change::Put(wrong)), []);
    }
}

#[test]
fn the_source_of_a_secret_is_in_a_secret() {
    let secret = held(ObjectKind::Secret, "cGxhaW4=");
    let text = record("x", "firth", &secret, None);
    assert!(text.contains(r#""kind":"Secret""#) && !text.contains("cGxhaW4="), "{text}");
}

/// A server with one record of another version of the object, and what it says to a write.
fn with_record(object: &Object, there: Option<&Object>, answer: u16) -> Fake {
    let name = record_name(&object.reference());
    let there = there.map(|there| record(&name, "firth", there, Some("41")));
    Fake::new(move |asked| match (asked.method.as_str(), &there) {
        ("GET", Some(there)) => Reply::Text(200, there.clone()),
        ("GET", None) => status(404),
        ("POST", Some(_)) => status(409),
        _ if answer == 200 => Reply::Text(200, "{}".to_owned()),
        _ => status(answer),
    })
}

fn methods(server: &Fake) -> Vec<String> {
    server.asked().iter().map(|asked| asked.method.to_string()).collect()
}

/// Two replicas write two versions: the one that read the older record must not win.
#[tokio::test]
async fn a_record_is_replaced_only_as_it_was_read() {
    for kind in [ObjectKind::Ingress, ObjectKind::Secret] {
        let (object, other) = (held(kind, "new.test"), held(kind, "old.test"));
        let write = HoldRequest::Write(Hold { object: object.clone() });
        let server = with_record(&object, Some(&other), 200);
        fulfil(&server.client(), "firth", &write).await.unwrap();
        assert_eq!(methods(&server), ["POST", "GET", "PUT"]);
        let put = server.asked().pop().unwrap();
        assert_eq!(put.body["metadata"]["resourceVersion"], "41", "{put:?}");
        assert!(put.path.ends_with(&record_name(&object.reference())));

        let server = with_record(&object, Some(&other), 409);
        let refused = fulfil(&server.client(), "firth", &write).await;
        assert_eq!(
            refused.unwrap_err(),
            Unfulfilled::Overtaken,
            "it is tried again, from what is there then"
        );

        let server = with_record(&object, Some(&object), 200);
        fulfil(&server.client(), "firth", &write).await.unwrap();
        assert_eq!(methods(&server), ["POST", "GET"], "it says so already");

        let server = with_record(&object, None, 200);
        fulfil(&server.client(), "firth", &write).await.unwrap();
        assert_eq!(methods(&server), ["POST"]);
        let made = &server.asked()[0];
        assert_eq!(made.body["metadata"].get("resourceVersion"), None, "it is made only where there is none");
        assert_eq!(
            made.body["metadata"]["labels"]["firth.dev/decision"], "hold",
            "or no replica reads it back"
        );
    }
}

#[tokio::test]
async fn a_record_is_erased_only_as_it_was_read() {
    let object = held(ObjectKind::Ingress, "a.test");
    let erase = HoldRequest::Erase(object.reference());
    let server = with_record(&object, Some(&object), 200);
    fulfil(&server.client(), "firth", &erase).await.unwrap();
    assert_eq!(methods(&server), ["GET", "DELETE"]);
    let delete = server.asked().pop().unwrap();
    assert_eq!(delete.body["preconditions"]["resourceVersion"], "41", "{delete:?}");
    let server = with_record(&object, Some(&object), 409);
    fulfil(&server.client(), "firth", &erase).await.expect("a newer decision is judged anew");
    let server = with_record(&object, None, 200);
    fulfil(&server.client(), "firth", &erase).await.expect("there is none");
    assert_eq!(methods(&server), ["GET"]);
}

/// Of two replicas one writes a record that the other one erases: nothing is wrong.
#[tokio::test]
async fn a_record_that_came_and_went_is_no_error() {
    let write = HoldRequest::Write(Hold { object: held(ObjectKind::Ingress, "a.test") });
    let server = Fake::new(|asked| match asked.method.as_str() {
        "POST" => status(409),
        _ => status(404),
    });
    let raced = fulfil(&server.client(), "firth", &write).await;
    assert_eq!(raced, Err(Unfulfilled::Overtaken));
    assert_eq!(methods(&server), ["POST", "GET"]);
}

#[tokio::test]
async fn what_an_api_server_never_takes_is_told_from_what_it_does_not_take_now() {
    let write = HoldRequest::Write(Hold { object: held(ObjectKind::Ingress, "a.test") });
    for (code, is_for_good) in [(413, true), (422, true), (403, false), (429, false), (500, false)] {
        let server = Fake::new(move |_| status(code));
        let failed = fulfil(&server.client(), "firth", &write).await.unwrap_err();
        assert_eq!(matches!(failed, Unfulfilled::Unacceptable(_)), is_for_good, "{code}: {failed}");
        assert_eq!(failed.to_string().contains("it is tried again"), !is_for_good, "{code}: {failed}");
        // What passes by itself is not said on the object.
        let lasts = is_for_good || code == 403;
        assert_eq!(failed.lasts(), lasts.then_some("no"), "{code}: {failed}");
    }
}
