use crate::objects::{IntOrString, Secret};

use super::*;

fn names(parsed: &Parsed) -> Vec<(String, usize)> {
    parsed.objects.iter().map(|(object, line)| (object.reference().to_string(), *line)).collect()
}

fn only(text: &str) -> Object {
    let parsed = parse(text);
    assert_eq!(
        (parsed.objects.len(), &parsed.broken[..], &parsed.faults[..]),
        (1, &[][..], &[][..]),
        "{parsed:?}"
    );
    parsed.objects[0].0.clone()
}

#[test]
fn documents_of_json_and_yaml_with_their_lines() {
    let parsed = parse(
        "# a comment\n%YAML 1.2\n---\n\napiVersion: v1\nkind: Service\nmetadata:\n  name: a\n--- # mark\n\
         {\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\n\"metadata\":{\"name\":\"b\",\"namespace\":\"n\"}}\n\
         {\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"c\"}}\n---\n---\n# nothing\n---\n\
         {apiVersion: v1, kind: Secret, metadata: {name: d}}\n...\n",
    );
    assert_eq!(
        names(&parsed),
        [
            ("Service default/a".to_owned(), 5),
            ("ConfigMap n/b".to_owned(), 10),
            ("ConfigMap default/c".to_owned(), 12),
            ("Secret default/d".to_owned(), 17),
        ]
    );
    assert_eq!((parsed.broken.len(), parsed.faults.len(), parsed.ignored.len()), (0, 0, 0), "{parsed:?}");
}

#[test]
fn lists_are_taken_apart() {
    let parsed = parse(
        r#"{"apiVersion":"v1","kind":"List","items":[
        {"apiVersion":"v1","kind":"Service","metadata":{"name":"a"}},
        {"apiVersion":"networking.k8s.io/v1","kind":"IngressList","items":[
            {"metadata":{"name":"b"}}]}]}"#,
    );
    assert_eq!(names(&parsed), [("Service default/a".to_owned(), 2), ("Ingress default/b".to_owned(), 4)]);
    let deep = "{\"kind\":\"List\",\"items\":[".repeat(6) + &"]}".repeat(6);
    assert_eq!(parse(&deep).faults.len(), 1);
    let yaml = parse(
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Service\n  metadata: {name: y}\n",
    );
    assert_eq!(names(&yaml), [("Service default/y".to_owned(), 1)], "{yaml:?}");
}

#[test]
fn a_bad_document_costs_itself() {
    let parsed = parse(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\nspec:\n  ports:\n  - port: eighty\n---\n\
         {\"apiVersion\":\"v1\",\"kind\":\"Service\",\n\"metadata\":{\"name\":\"b\"},\n\"spec\":{\"ports\":8}}\n---\n\
         kind: [\n---\n{\"apiVersion\": \"v1\",\n \"kind\": \"Serv\n---\nkind: Service\napiVersion: v1\n---\n\
         apiVersion: v1\nkind: Service\nmetadata: {name: good}\n",
    );
    assert_eq!(names(&parsed), [("Service default/good".to_owned(), 21)]);
    let broken: Vec<_> =
        parsed.broken.iter().map(|(object, it)| (object.to_string(), it.line, it.field.as_str())).collect();
    assert_eq!(
        broken,
        [
            ("Service default/a".to_owned(), 7, "spec.ports[0].port"),
            ("Service default/b".to_owned(), 11, "spec.ports")
        ]
    );
    assert!(parsed.broken[0].1.reason.contains("eighty"), "{parsed:?}");
    let faults: Vec<_> = parsed.faults.iter().map(|it| (it.line, it.field.as_str())).collect();
    assert_eq!(faults.len(), 3, "{parsed:?}");
    assert!((13..=14).contains(&faults[0].0), "{faults:?}");
    assert_eq!(faults[2], (18, "metadata.name"));
}

#[test]
fn what_is_not_read_is_said_and_namespaces_are_not() {
    let parsed = parse(
        "apiVersion: v1\nkind: Pod\n---\napiVersion: v1\nkind: Namespace\n---\napiVersion: extensions/v1beta1\nkind: Ingress\n\
         ---\nmetadata: {name: x}\n",
    );
    let ignored: Vec<_> = parsed.ignored.iter().map(String::as_str).collect();
    assert_eq!(ignored, ["extensions/v1beta1 Ingress", "v1 Pod"]);
    assert_eq!(parsed.faults.len(), 1, "no kind is a fault");
}

#[test]
fn defaults_of_the_api_are_filled_in() {
    let Object::Service(service) = only(
        "apiVersion: v1\nkind: Service\nmetadata: {name: a, uid: u, resourceVersion: '7'}\nspec: {ports: [{port: 80}]}\n",
    ) else {
        panic!("a Service")
    };
    let port = &service.spec.ports[0];
    assert_eq!((port.protocol.as_str(), port.target_port.as_ref()), ("TCP", Some(&IntOrString::Int(80))));
    assert_eq!((&*service.metadata.namespace, &*service.metadata.uid), ("default", ""));
    let Object::EndpointSlice(slice) = only(
        r#"{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"s"},"ports":[{"port":80}]}"#,
    ) else {
        panic!("a slice")
    };
    assert_eq!(slice.ports[0].protocol.as_deref(), Some("TCP"));
    let class = only(
        "apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: nginx, namespace: odd}\n",
    );
    assert_eq!(class.metadata().object_name(), ObjectName::new("", "nginx"));
}

#[test]
fn string_data_is_merged_and_wins() {
    let Object::Secret(secret) = only(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: b2xk, b: a2VwdA==}\nstringData:\n  a: |\n    new\n  c: ''\n",
    ) else {
        panic!("a Secret")
    };
    let Secret { data, .. } = &*secret;
    let values: Vec<_> = data.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(values, [("a", "bmV3Cg=="), ("b", "a2VwdA=="), ("c", "")]);
}

#[test]
fn no_fault_of_a_secret_tells_its_values() {
    for text in [
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: hunter2\n",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: [hunter2]}\n",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: {b: hunter2}}\n",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData:\n  a: 'hunter2\n  b: [hunter2\n",
        "{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"metadata\":{\"name\":\"s\"},\"stringData\":{\"a\":[\"hunter2\"]}}",
    ] {
        let parsed = parse(text);
        assert_eq!(parsed.objects.len(), 0, "{text}");
        assert_eq!(parsed.broken.len() + parsed.faults.len(), 1, "{parsed:?}");
        assert!(!format!("{parsed:?}").contains("hunter2"), "{parsed:?}");
    }
}

#[test]
fn a_line_end_of_windows_and_an_empty_file_are_fine() {
    assert_eq!(parse(""), Parsed::default());
    assert_eq!(parse("---\r\n---\r\n"), Parsed::default());
    let parsed = parse(
        "apiVersion: v1\r\nkind: Service\r\nmetadata:\r\n  name: a\r\n---\r\napiVersion: v1\r\nkind: Service\r\nmetadata: {name: b}\r\n",
    );
    assert_eq!(parsed.objects.len(), 2, "{parsed:?}");
}
