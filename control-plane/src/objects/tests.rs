use serde_json::{Value, json};

use super::*;

/// An object of each kind in which every field that is read is set.
fn full() -> Vec<(ObjectKind, Value)> {
    let metadata = json!({"name": "a", "namespace": "n", "uid": "u", "creationTimestamp": "2026-03-01T00:00:00Z",
        "resourceVersion": "7", "labels": {"kubernetes.io/service-name": "web"}, "annotations": {"b": "1"}});
    let backend = json!({"service": {"name": "web", "port": {"name": "http", "number": 80}}});
    let path = json!({"path": "/", "pathType": "Prefix", "backend": backend});
    vec![
        (
            ObjectKind::Ingress,
            json!({"metadata": metadata, "spec": {"ingressClassName": "nginx", "defaultBackend": backend,
            "rules": [{"host": "a.test", "http": {"paths": [path]}}], "tls": [{"hosts": ["a.test"], "secretName": "s"}]}}),
        ),
        (
            ObjectKind::IngressClass,
            json!({"metadata": metadata, "spec": {"controller": "k8s.io/ingress-nginx"}}),
        ),
        (
            ObjectKind::Service,
            json!({"metadata": metadata, "spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1",
            "externalName": "x.test", "ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080}]}}),
        ),
        (
            ObjectKind::EndpointSlice,
            json!({"metadata": metadata, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}],
            "ports": [{"name": "http", "protocol": "TCP", "port": 8080}]}),
        ),
        (ObjectKind::Secret, json!({"metadata": metadata, "data": {"tls.key": "a2V5"}})),
        (ObjectKind::ConfigMap, json!({"metadata": metadata, "data": {"k": "v"}})),
        (ObjectKind::Namespace, json!({"metadata": metadata})),
    ]
}

/// JSON pointers of all fields of objects below a value, those of lists' elements included.
fn fields(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                let at = format!("{at}/{}", key.replace('/', "~1"));
                fields(value, &at, found);
                found.push(at);
            }
        }
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                fields(item, &format!("{at}/{place}"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn null_is_absence_for_every_field_of_every_kind() {
    let mut tried = 0;
    for (kind, object) in full() {
        let mut found = Vec::new();
        fields(&object, "", &mut found);
        for at in found {
            let (parent, key) = at.rsplit_once('/').unwrap();
            let key = key.replace("~1", "/");
            let (mut null, mut absent) = (object.clone(), object.clone());
            *null.pointer_mut(&at).unwrap() = Value::Null;
            let members = absent.pointer_mut(parent).unwrap().as_object_mut().unwrap();
            // A map keeps the key, with an empty text: null and absent cannot be distinguished there.
            match parent.rsplit('/').next() {
                Some("labels" | "annotations" | "data") => members[&key] = json!(""),
                _ => drop(members.remove(&key)),
            }
            let read = |value: &Value| json::decode(kind, &value.to_string());
            assert_eq!(read(&null), read(&absent), "{kind:?} {at}");
            assert!(read(&null).is_ok(), "{kind:?} {at}: {:?}", read(&null));
            tried += 1;
        }
    }
    assert!(tried > 60, "{tried}");
}

#[test]
fn who_wrote_an_object_last_is_known_and_not_kept_by_holds() {
    let manager = |fields: Value| {
        let text = json!({"metadata": {"name": "a", "managedFields": fields}}).to_string();
        let object = json::decode(ObjectKind::Ingress, &text).unwrap();
        assert!(!json::source(&object).contains("managedFields"));
        object.metadata().manager.name.to_string()
    };
    let entry = |manager: &str, time: &str, subresource: &str| {
        json!({"manager": manager, "time": time, "subresource": subresource, "operation": "Update",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}})
    };
    let early = entry("helm", "2026-03-01T00:00:00Z", "");
    let late = entry("kubectl-edit", "2026-03-01T00:00:09Z", "");
    let status = entry("controller", "2026-03-02T00:00:00Z", "status");
    assert_eq!(manager(json!([late, early, status])), "kubectl-edit");
    assert_eq!(manager(json!([status])), "");
    assert_eq!(manager(json!([{"manager": "a"}, {"manager": null, "time": null}, {"manager": "b"}])), "b");
    for nothing in [json!(null), json!([])] {
        assert_eq!(manager(nothing), "");
    }
}
