use crate::objects::{IngressPathType, IntOrString, Secret};

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
    assert_eq!(names(&yaml), [("Service default/y".to_owned(), 4)], "{yaml:?}");
}

/// The object is used nevertheless, with all its other fields.
#[test]
fn fields_that_there_are_not_are_said_with_their_line() {
    let parsed = parse(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a}\nspec:\n  rulez: []\n  rules:\n  - host: a.test\n    http:\n      \
         paths:\n      - path: /\n        pathtype: Exact\n        backend: {service: {name: web, port: {number: 80}}}\n---\n\
         apiVersion: extensions/v1beta1\nkind: Ingress\nmetadata: {name: old}\nspec: {backend: {serviceName: web, servicePort: 80}}\n",
    );
    assert_eq!(names(&parsed), [("Ingress default/a".to_owned(), 1), ("Ingress default/old".to_owned(), 14)]);
    let said: Vec<_> =
        parsed.remarks.iter().map(|(_, it)| (it.line, it.field.as_str(), it.reason.as_str())).collect();
    let no = "expected a field of Ingress, got an unknown one, which is ignored";
    assert_eq!(
        said[..2],
        [
            (5, "spec.rulez", format!("{no}: did you mean rules?").as_str()),
            (11, "spec.rules[0].http.paths[0].pathtype", format!("{no}: did you mean pathType?").as_str()),
        ]
    );
    assert_eq!((said.len(), said[2].1), (3, "apiVersion"), "what the old version had is no slip: {said:?}");
}

/// As `kubectl get -o yaml` writes them: hundreds of objects in one document.
#[test]
fn what_is_wrong_in_a_list_is_told_with_the_place_of_its_item() {
    let yaml = "# all\n---\napiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Service\n  metadata: {name: good}\n- apiVersion: v1\n  \
                kind: Service\n  metadata: {name: bad}\n  spec:\n    ports:\n    - name: http\n      port: eighty\n- apiVersion: v1\n  kind: Service\n\
                - metadata: {name: x}\n- 7\n- apiVersion: v1\n  metadata: {name: y}\n  kind: service\n";
    let parsed = parse(yaml);
    assert_eq!(names(&parsed), [("Service default/good".to_owned(), 6)]);
    let broken: Vec<_> =
        parsed.broken.iter().map(|(object, it)| (object.to_string(), it.line, it.field.as_str())).collect();
    assert_eq!(
        broken,
        [
            ("Service default/bad".to_owned(), 15, "spec.ports[0].port"),
            ("Service default/y".to_owned(), 22, "kind"),
        ]
    );
    let faults: Vec<_> = parsed.faults.iter().map(|it| (it.line, it.field.as_str())).collect();
    assert_eq!(faults, [(16, "items[2].metadata.name"), (18, "items[3].kind"), (19, "items[4]")]);

    let json = r#"{"kind":"IngressList","apiVersion":"networking.k8s.io/v1","items":[{"metadata":{"name":"a"}},
        {"metadata":{"name":"b"},
         "spec":{"rules":7}},
        {"spec":{}}]}"#;
    let parsed = parse(json);
    let broken: Vec<_> =
        parsed.broken.iter().map(|(object, it)| (object.to_string(), it.line, it.field.as_str())).collect();
    assert_eq!(broken, [("Ingress default/b".to_owned(), 3, "spec.rules")]);
    let faults: Vec<_> = parsed.faults.iter().map(|it| (it.line, it.field.as_str())).collect();
    assert_eq!(faults, [(4, "items[2].metadata.name")]);
}

/// No API server takes them, and two of them may be one by the key of what is made of them: `a/b` and `x`, `a` and `b/x`.
#[test]
fn a_name_that_no_object_can_have_is_refused_with_its_field() {
    let long = "a".repeat(254);
    let odd = [
        "a/b",
        "a b",
        "A",
        "a_b",
        "-a",
        "a.",
        "a..b",
        ".",
        "a\\u0000b",
        "\\u001b[31m",
        "\\u202ea",
        "\u{e9}",
        &long,
    ];
    for odd in odd {
        for (field, name, namespace) in [("metadata.name", odd, "n"), ("metadata.namespace", "n", odd)] {
            let parsed = parse(&format!(
                r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"{name}","namespace":"{namespace}"}}}}"#
            ));
            let [(_, fault)] = &parsed.broken[..] else { panic!("{odd}: {parsed:?}") };
            assert_eq!((&*fault.field, parsed.objects.len()), (field, 0), "{odd}");
            assert!(fault.reason.len() < 400 && fault.reason.contains("got \""), "{}", fault.reason);
        }
    }
    let longest = "a".repeat(253);
    for good in ["a", "0", "a.b-c", &longest] {
        only(&format!(
            r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"{good}","namespace":"{good}"}}}}"#
        ));
    }
    // A class is of the whole cluster: whatever stands there for a namespace is nothing.
    only(
        r#"{"apiVersion":"networking.k8s.io/v1","kind":"IngressClass","metadata":{"name":"a","namespace":"A B"}}"#,
    );
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
fn what_is_not_read_is_said() {
    let parsed = parse(
        "apiVersion: v1\nkind: Pod\n---\napiVersion: extensions/v1beta1\nkind: Ingress\n\
         ---\nmetadata: {name: x}\n",
    );
    let ignored: Vec<_> = parsed.ignored.iter().map(String::as_str).collect();
    assert_eq!(ignored, ["v1 Pod"]);
    // Nor has the old Ingress a name.
    assert_eq!(parsed.faults.len(), 2, "no kind is a fault");
}

#[test]
fn a_kustomization_is_known_by_the_name_of_its_file() {
    let ignored = |path: &str, text: &str| parse(text).named(path).ignored.into_iter().collect::<Vec<_>>();
    let text = "resources: [web.yaml]\npatches: []\n";
    for path in ["kustomization.yaml", "base/kustomization.yml"] {
        assert_eq!(ignored(path, text), ["kustomize.config.k8s.io/v1beta1 Kustomization"]);
    }
    assert_eq!(ignored("values.yaml", text), ["none (values of a chart, or settings of another tool)"]);
    assert_eq!(
        ignored("kustomization.yaml", "apiVersion: apps/v1\nkind: Deployment\n"),
        ["apps/v1 Deployment"]
    );
}

#[test]
fn of_a_namespace_the_labels_are_read() {
    let text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: a}}\nspec: {finalizers: [x]}\n";
    let Object::Namespace(shop) = only(text) else { panic!("a Namespace") };
    assert_eq!(shop.metadata.object_name(), ObjectName::new("", "shop"));
    assert_eq!(shop.metadata.labels.get("team").unwrap(), "a");
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

#[test]
fn a_carriage_return_alone_ends_a_line() {
    let text = "kind: Service\r\napiVersion: v1\rmetadata:\r  name: a\r---\rkind: Service\r\rapiVersion: v1\nmetadata: {name: b}\nspec:\n  x}}\n";
    let parsed = parse(text);
    assert_eq!((parsed.objects.len(), parsed.broken.len()), (1, 1), "{parsed:?}");
    assert_eq!(parsed, parse(&text.replace("\r\n", "\n").replace('\r', "\n")));
}

#[test]
fn old_versions_are_converted_and_that_is_said() {
    let paths = "[{path: /, backend: {serviceName: web, servicePort: 80}}, {backend: {serviceName: web, servicePort: http}}, \
                 {path: /x, pathType: Exact, backend: {serviceName: web, servicePort: '81'}}]";
    for version in ["extensions/v1beta1", "networking.k8s.io/v1beta1"] {
        let parsed = parse(&format!(
            "# old\napiVersion: {version}\nkind: Ingress\nmetadata: {{name: a}}\nspec:\n  backend: {{serviceName: rest, servicePort: 8080}}\n  \
             rules: [{{host: a.test, http: {{paths: {paths}}}}}]\n"
        ));
        let Object::Ingress(ingress) = &parsed.objects[0].0 else { panic!("{parsed:?}") };
        let shown = |backend: &crate::objects::IngressBackend| {
            backend.service.as_ref().map(|service| format!("{}:{}", service.name, service.port)).unwrap()
        };
        assert_eq!(ingress.spec.default_backend.as_ref().map(shown).as_deref(), Some("rest:8080"));
        let paths = &ingress.spec.rules[0].http.as_ref().unwrap().paths;
        let paths: Vec<_> = paths.iter().map(|it| (it.path_type.unwrap(), shown(&it.backend))).collect();
        let kinds = [
            IngressPathType::ImplementationSpecific,
            IngressPathType::ImplementationSpecific,
            IngressPathType::Exact,
        ];
        assert_eq!(
            paths,
            kinds.into_iter().zip(["web:80", "web:http", "web:81"].map(str::to_owned)).collect::<Vec<_>>()
        );
        let [(object, fault)] = &parsed.remarks[..] else { panic!("{parsed:?}") };
        assert_eq!(
            (object.to_string().as_str(), fault.line, fault.field.as_str()),
            ("Ingress default/a", 2, "apiVersion")
        );
        assert!(fault.reason.starts_with(&format!("API servers no longer accept {version}")), "{fault:?}");
    }
    let list = parse(
        "{\"apiVersion\":\"extensions/v1beta1\",\"kind\":\"IngressList\",\"items\":[{\"metadata\":{\"name\":\"b\"}}]}",
    );
    assert_eq!((names(&list).len(), list.remarks.len()), (1, 1), "{list:?}");
    let bad = parse("apiVersion: extensions/v1beta1\nkind: Ingress\nmetadata: {name: a}\nspec: {rules: 7}\n");
    assert_eq!((bad.broken.len(), bad.remarks.len()), (1, 0), "{bad:?}");
}

#[test]
fn old_versions_without_old_fields_are_read_as_they_are_and_that_is_said() {
    for (old, kind, more, new) in [
        (
            "networking.k8s.io/v1beta1",
            "IngressClass",
            "spec: {controller: example.com/c}",
            "networking.k8s.io/v1",
        ),
        (
            "discovery.k8s.io/v1beta1",
            "EndpointSlice",
            "addressType: IPv4\nendpoints: []",
            "discovery.k8s.io/v1",
        ),
    ] {
        let text = |version| format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\n{more}\n");
        let parsed = parse(&text(old));
        assert_eq!(parsed.objects[..], parse(&text(new)).objects[..], "{kind}");
        assert_eq!((parsed.objects.len(), &parsed.broken[..]), (1, &[][..]), "{kind}");
        let [(object, fault)] = &parsed.remarks[..] else { panic!("{parsed:?}") };
        let reason = format!("API servers no longer accept {old}: it is read as {new}");
        assert!(object.to_string().starts_with(kind), "{object}");
        assert_eq!((fault.line, &*fault.field, &*fault.reason), (1, "apiVersion", &*reason));
    }
}

#[test]
fn field_names_of_v1beta1_under_v1_are_said() {
    let parsed = parse(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a}\nspec:\n  rules:\n  - http:\n      paths:\n      - path: /\n        \
         backend:\n          serviceName: web\n          servicePort: 80\n",
    );
    let [(object, fault)] = &parsed.broken[..] else { panic!("{parsed:?}") };
    assert_eq!(object.to_string(), "Ingress default/a");
    assert_eq!((fault.line, fault.field.as_str()), (10, "spec.rules[0].http.paths[0].backend"));
    assert!(fault.reason.contains("serviceName") && fault.reason.contains("v1beta1"), "{fault:?}");
    let annotated = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a, annotations: {serviceName: x}}\n";
    assert_eq!(parse(annotated).objects.len(), 1, "elsewhere it is anybody's word");
}

#[test]
fn files_of_other_tools_are_no_manifests() {
    let parsed = parse(
        "image:\n  tag: '1'\ningress: {enabled: true}\n---\nversion: '3'\nservices: {web: {image: x}}\n---\n\
         apiVersion: v2\nname: chart\nversion: 0.1.0\n",
    );
    assert!(parsed.faults.is_empty() && parsed.ignored.len() == 1, "{parsed:?}");
    for text in ["metadata: {name: a}\nspec: {}\n", "apiVersion: v1\nmetadata: {name: a}\n"] {
        assert_eq!(parse(text).faults[0].reason, "expected a kind, got none", "{text}");
    }
}

#[test]
fn an_object_of_no_known_version_is_no_silent_loss() {
    let parsed = parse(
        "kind: Ingress\nmetadata: {name: a, namespace: b}\n---\napiVersion: serving.knative.dev/v1\nkind: Service\n\
         metadata: {name: c}\n",
    );
    let [(object, fault)] = &parsed.broken[..] else { panic!("{parsed:?}") };
    assert_eq!((object.to_string().as_str(), fault.field.as_str()), ("Ingress b/a", "apiVersion"));
    let ignored: Vec<_> = parsed.ignored.iter().map(String::as_str).collect();
    assert_eq!((ignored, parsed.faults.len()), (vec!["serving.knative.dev/v1 Service"], 0));
}

#[test]
fn of_a_key_that_stands_twice_the_last_one_counts_and_that_is_said() {
    let parsed = parse(
        "# a\napiVersion: v1\nkind: Service\nmetadata:\n  name: first\n  name: second\n---\napiVersion: v1\nkind: Service\n\
         metadata: {name: other}\n",
    );
    let names: Vec<_> = parsed.objects.iter().map(|(object, _)| object.reference().to_string()).collect();
    assert_eq!(names, ["Service default/second", "Service default/other"]);
    let [(object, Fault { line, reason, .. })] = &parsed.remarks[..] else { panic!("{parsed:?}") };
    assert_eq!((object.to_string().as_str(), *line), ("Service default/second", 6));
    assert_eq!(reason, "got the key \"name\" twice in one mapping: the last one is used, as with kubectl");
    assert!(parsed.faults.is_empty());
}

/// The cause is the parser's own sentence, without its position: there is one line number, that of the file.
#[test]
fn faults_are_said_in_our_words_with_one_line() {
    let ingress = |spec: &str| {
        format!("apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: a}}\nspec:\n{spec}")
    };
    let table = [
        (ingress("  rules:\n  - host: {{ .Values.host }}\n"), 6, "got a template with `{{`"),
        ("{{- if .Values.on }}\napiVersion: v1\nkind: Service\n{{- end }}\n".to_owned(), 1, "got a template"),
        (
            "# {{ no template }}\napiVersion: [v1\n".to_owned(),
            2,
            "expected YAML, got a syntax error: unclosed bracket '['",
        ),
        ("apiVersion: v1\n\tkind: Service\n".to_owned(), 1, "found a tab"),
        ("apiVersion: v1\nport: .nan\n".to_owned(), 2, "got a number that JSON does not have"),
        (
            "kind: Secret\nstringData: {a: @hunter2}\n".to_owned(),
            2,
            "expected YAML, got a syntax error: unexpected character",
        ),
        ("apiVersion: v1\nmetadata: *gone\n".to_owned(), 2, "an alias (`*name`) of an anchor"),
        (
            "{\"apiVersion\": \"v1\",\n \"kind\" \"Service\"}".to_owned(),
            2,
            "expected JSON, or YAML in braces, got neither: as JSON, expected `:`",
        ),
        (ingress("  defaultBackend:\n    service: web\n"), 6, "expected a mapping, got \"web\""),
        (ingress("  rules: yes\n"), 5, "expected a list"),
        (
            ingress("  rules:\n  - http:\n      paths:\n      - pathType: Regex\n"),
            8,
            "Exact, Prefix, ImplementationSpecific",
        ),
        (
            "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: [a]\n".to_owned(),
            4,
            "expected a mapping, got a list",
        ),
        (ingress("  rules:\n  - http:\n    - path: /\n"), 7, "expected a mapping, got a list"),
        (
            "# a\nkind: Ingress\nmetadata: {name: a}\n".to_owned(),
            2,
            "expected networking.k8s.io/v1, got none",
        ),
        (
            "kind: Ingress\nmetadata: {name: a}\napiVersion: networking/v1\n".to_owned(),
            3,
            "expected networking.k8s.io/v1, got networking/v1",
        ),
        ("apiVersion: v1\nkind: service\n".to_owned(), 2, "expected Service, got service"),
        ("- a\n- b\n".to_owned(), 1, "expected a mapping with apiVersion"),
        ("just words\n".to_owned(), 1, "expected a mapping with apiVersion"),
    ];
    for (text, line, expected) in table {
        let parsed = parse(&text);
        let faults: Vec<_> = parsed.broken.iter().map(|(_, fault)| fault).chain(&parsed.faults).collect();
        let [fault] = faults[..] else { panic!("{text}: {parsed:?}") };
        assert!(fault.reason.contains(expected), "{text}: {fault:?}");
        assert_eq!(fault.line, line, "{text}: {fault:?}");
        for word in ["struct", "enum", "i32", "line ", "column", "Options", "invalid type", "EOF", "sequence"]
        {
            assert!(!fault.reason.contains(word), "{text}: {fault:?}");
        }
    }
}

#[test]
fn what_a_document_may_cost_is_bounded() {
    // Each level is ten of the one before.
    let mut laughs =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
            .to_owned();
    for level in 1..9 {
        let before = format!("*a{}", level - 1);
        laughs += &format!("a{level}: &a{level} [{}]\n", [before.as_str(); 10].join(", "));
    }
    // One long value, many times.
    let long = format!("data:\n  a: &a {}\n  b: [{}]\n", "x".repeat(80 << 10), ["*a"; 20_000].join(", "));
    for text in [laughs, long] {
        let parsed = parse(&text);
        assert_eq!(parsed.objects.len(), 0);
        assert!(parsed.faults[0].reason.contains("aliases"), "{:?}", parsed.faults);
    }
    let flow = format!("[{}]", "a, ".repeat(MAX_YAML / 2));
    assert!(parse(&flow).faults[0].reason.contains("bytes of YAML"));
    let nodes = format!("a: [{}]", "a,".repeat(yaml::MAX_NODES + 1));
    assert!(parse(&nodes).faults[0].reason.contains("more values"), "{:?}", parse(&nodes).faults);
    // What people really use aliases for.
    let labels = "apiVersion: v1\nkind: Service\nmetadata: {name: a, labels: &l {app: web}}\nspec: {selector: *l, ports: [{port: 80}]}\n";
    assert_eq!(parse(labels).objects.len(), 1);
}

fn remarks(parsed: &Parsed) -> Vec<(String, usize, &str, &str)> {
    let remarks = parsed.remarks.iter();
    remarks.map(|(object, it)| (object.to_string(), it.line, &*it.field, &*it.reason)).collect()
}

/// An annotation that is overridden further down in the same mapping restricts nobody.
#[test]
fn a_key_of_json_that_is_there_twice_is_said() {
    let parsed = parse(
        "{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[\n\
         {\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"},\"data\":{\"x\":\"1\",\"y\":\"1\"}},\n\
         {\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"b\"},\"data\":{\"x\":\"1\",\n\"x\":\"2\"}}]}\n",
    );
    assert_eq!(names(&parsed).len(), 2);
    let said = "got the key \"x\" twice in one mapping: the last one is used, as with kubectl";
    assert_eq!(remarks(&parsed), [("ConfigMap default/b".to_owned(), 4, "data.x", said)]);
    let Object::ConfigMap(b) = &parsed.objects[1].0 else { panic!("a ConfigMap") };
    assert_eq!(b.data["x"], "2");
}

#[test]
fn an_unquoted_annotation_of_an_ingress_is_the_text_that_was_written() {
    let (head, spec) =
        ("apiVersion: networking.k8s.io/v1\nkind: Ingress\n", "spec: {rules: [{host: a.test}]}\n");
    let parsed = parse(&format!(
        "{head}metadata:\n  name: a\n  annotations:\n    nginx.ingress.kubernetes.io/proxy-body-size: 0\n    \
         nginx.ingress.kubernetes.io/ssl-redirect: True\n    plain: 007\n{spec}"
    ));
    let Object::Ingress(ingress) = &parsed.objects[0].0 else { panic!("{parsed:?}") };
    let texts: Vec<_> = ingress.metadata.annotations.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["0", "True", "007"]);
    let told: Vec<_> = remarks(&parsed).into_iter().map(|(_, line, field, _)| (line, field)).collect();
    assert_eq!(
        told,
        [
            (6, "metadata.annotations[nginx.ingress.kubernetes.io/proxy-body-size]"),
            (7, "metadata.annotations[nginx.ingress.kubernetes.io/ssl-redirect]"),
            (8, "metadata.annotations.plain"),
        ]
    );
    let flow = parse(&format!("{head}metadata: {{name: a, annotations: {{a/b.c: 5}}}}\n{spec}"));
    assert_eq!((flow.objects.len(), flow.remarks.len()), (1, 1), "{flow:?}");
    for other in ["1.5", "[1]", "{a: 1}"] {
        let parsed =
            parse(&format!("{head}metadata: {{name: a, annotations: {{a: {other}, b: 1}}}}\n{spec}"));
        assert_eq!((parsed.objects.len(), parsed.broken.len()), (0, 1), "{other}: {parsed:?}");
    }
}

#[test]
fn an_unquoted_value_of_a_configmap_is_the_text_that_was_written() {
    let yaml = parse(
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: a}\n  data:\n    use-gzip: 'true'\n    \
         ssl-redirect: false\n    a.b: True\n    size: 010\n    big: 123456789012345678\n    none:\n",
    );
    let json = parse(
        "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"},\n\
         \"data\":{\"use-gzip\":\"true\",\"ssl-redirect\":false,\"n\":-7}}",
    );
    let data = |parsed: &Parsed| match &parsed.objects[0].0 {
        Object::ConfigMap(map) => map.data.clone().into_iter().collect::<Vec<_>>(),
        _ => panic!("a ConfigMap"),
    };
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    assert_eq!(
        data(&yaml),
        pairs(&[
            ("a.b", "True"),
            ("big", "123456789012345678"),
            ("none", ""),
            ("size", "010"),
            ("ssl-redirect", "false"),
            ("use-gzip", "true")
        ])
    );
    assert_eq!(data(&json), pairs(&[("n", "-7"), ("ssl-redirect", "false"), ("use-gzip", "true")]));
    let told: Vec<_> = remarks(&yaml).into_iter().map(|(_, line, field, _)| (line, field)).collect();
    assert_eq!(told, [(9, "data.ssl-redirect"), (10, "data[a.b]"), (11, "data.size"), (12, "data.big")]);
    let said = "expected text, got false: quote it, an API server refuses this";
    assert!(remarks(&json).contains(&("ConfigMap default/a".to_owned(), 1, "data.ssl-redirect", said)));

    for other in ["1.5", "[true]", "{a: 1}", "!!int '5'", "0.1e3", "&a [1]"] {
        let parsed = parse(&format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata:\n  good: true\n  bad: {other}\n"
        ));
        assert_eq!((parsed.objects.len(), parsed.broken.len()), (0, 1), "{other}: {parsed:?}");
        assert_eq!(parsed.remarks, [], "{other}");
    }
    let secret = parse("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: 12345}\n");
    assert_eq!(secret.broken.len(), 1, "whether a password has a zero in front is not known: {secret:?}");
}
