//! `firth check` as somebody runs it before a migration.
#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this file is a test")]

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn ingress(annotations: &Value) -> Value {
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": "web", "namespace": "shop", "annotations": annotations},
        "spec": {"ingressClassName": "nginx", "defaultBackend": backend}})
}

/// As `kubectl get` prints it.
fn list(annotations: &Value) -> String {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"ports": [{"port": 80}]}});
    json!({"apiVersion": "v1", "kind": "List", "items": [ingress(annotations), service]}).to_string()
}

fn firth(flags: &[&str], input: &str) -> Output {
    let mut process = Command::new(env!("CARGO_BIN_EXE_firth"))
        .arg("check")
        .args(flags)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    process.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    process.wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn objects_of_a_cluster_are_checked_from_standard_input() {
    let fine = firth(&["-"], &list(&json!({})));
    assert_eq!(fine.status.code(), Some(0), "{fine:?}");
    // The class is not among what was asked for.
    assert!(said(&fine).starts_with("warning: IngressClass nginx\n"), "{fine:?}");
    assert!(said(&fine).ends_with("\n1 Ingress, 1 of a class that is served, 1 warning\n"), "{fine:?}");

    let odd = list(&json!({"nginx.ingress.kubernetes.io/limit-rps": "ten"}));
    let refused = firth(&["-", "-o", "json"], &odd);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let problems: Value = serde_json::from_str(&said(&refused)).unwrap();
    assert_eq!(
        (&problems[0]["object"], &problems[0]["severity"], &problems[0]["location"]),
        (&json!("Ingress shop/web"), &json!("rejected"), &json!("-:1"))
    );
}

/// As with `firth check ... | head`: that nobody reads on says nothing of the objects.
#[test]
fn who_stops_reading_is_not_told_of_an_error() {
    let mut process = Command::new(env!("CARGO_BIN_EXE_firth"))
        .args(["check", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(process.stdout.take());
    process.stdin.take().unwrap().write_all(list(&json!({})).as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{output:?}");
}

/// Secrets are rarely in the same folder.
#[test]
fn a_secret_that_is_not_among_the_manifests_is_a_warning_that_names_it() {
    let (secret, auth) = ("nginx.ingress.kubernetes.io/auth-secret", "nginx.ingress.kubernetes.io/auth-type");
    let guarded = list(&json!({secret: "users", auth: "basic"}));
    let passes = firth(&["-"], &guarded);
    assert_eq!(passes.status.code(), Some(0), "{passes:?}");
    let told = "warning: Ingress shop/web\n  Secret shop/users does not exist: until it does, all paths of this Ingress answer 503\n";
    assert!(said(&passes).contains(told), "{passes:?}");
    assert_eq!(firth(&["-", "--strict"], &guarded).status.code(), Some(1));
}

/// What tunes nginx stood before the Secrets for whose sake paths answer 503.
#[test]
fn what_fails_comes_before_what_has_no_effect() {
    let (secret, auth) = ("nginx.ingress.kubernetes.io/auth-secret", "nginx.ingress.kubernetes.io/auth-type");
    let guarded =
        list(&json!({secret: "users", auth: "basic", "nginx.ingress.kubernetes.io/frobnicate": "1"}));
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "ingress-nginx", "name": "ingress-nginx-controller"},
        "data": {"worker-processes": "4"}});
    let objects = format!("{guarded}\n---\n{map}");
    let told = said(&firth(&["-"], &objects));
    let at = |text: &str| told.find(text).unwrap_or_else(|| panic!("{text}: {told}"));
    assert!(at("Secret shop/users does not exist") < at("at data[worker-processes]"), "{told}");
    assert!(told.starts_with("warning: Ingress shop/web\n  Secret shop/users"), "{told}");
    let all: Value = serde_json::from_str(&said(&firth(&["-", "-o", "json"], &objects))).unwrap();
    let consequences: Vec<_> =
        all.as_array().unwrap().iter().map(|it| it["consequence"].as_str().unwrap()).collect();
    assert!(consequences.starts_with(&["fails"]) && consequences.ends_with(&["no-effect"]), "{all}");
    assert!(
        consequences.is_sorted_by_key(|it| ["fails", "differs", "no-effect"].iter().position(|x| x == it))
    );
}

#[test]
fn folders_and_files_are_checked_with_the_flags_of_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("objects.json");
    fs::write(&file, list(&json!({"nginx.ingress.kubernetes.io/auth-type": "magic"}))).unwrap();
    for (path, place) in [(dir.path(), "in objects.json:1"), (&file, "objects.json:1")] {
        let refused = firth(&[path.to_str().unwrap()], "");
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        assert!(said(&refused).starts_with("rejected: Ingress shop/web\n"), "{refused:?}");
        assert!(said(&refused).contains(place), "{refused:?}");
    }
    let (one, two) = (dir.path().join("one.json"), dir.path().join("two.json"));
    fs::write(&one, list(&json!({}))).unwrap();
    fs::write(&two, ingress(&json!({"nginx.ingress.kubernetes.io/limit-rps": "ten"})).to_string()).unwrap();
    let [one, two] = [&one, &two].map(|it| it.to_str().unwrap());
    let both = firth(&[one, two], "");
    // As in a folder, the first definition counts.
    assert!(said(&both).contains("overridden: Ingress shop/web\n  it is also defined in "), "{both:?}");
    let mixed = firth(&[dir.path().to_str().unwrap(), one], "");
    assert!(String::from_utf8_lossy(&mixed.stderr).contains("expected one folder, or files"), "{mixed:?}");

    let mut other = Command::new(env!("CARGO_BIN_EXE_firth"));
    let other =
        other.args(["check", file.to_str().unwrap()]).env("FIRTH_INGRESS_CLASS", "other").output().unwrap();
    assert_eq!(other.status.code(), Some(0), "{other:?}");
    assert!(said(&other).contains("1 Ingress, 0 of a class that is served"), "{other:?}");
    let nowhere = firth(&[Path::new("no/such/file").to_str().unwrap()], "");
    assert_eq!(nowhere.status.code(), Some(2), "not as if something were refused");
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("no/such/file cannot be read"), "{nowhere:?}");
}

/// As from a pipe whose first command failed.
#[test]
fn no_objects_at_all_are_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty.yaml");
    fs::write(&empty, "# nothing\n---\n").unwrap();
    let [folder, file] = [dir.path(), &empty].map(|it| it.to_str().unwrap());
    for (path, input) in [("-", ""), ("-", "---\n"), (file, ""), (folder, "")] {
        let empty = firth(&[path], input);
        assert_eq!((empty.status.code(), said(&empty)), (Some(2), String::new()), "{path}: {empty:?}");
        let told = format!("firth: there is nothing to check in {path}\n");
        assert_eq!(String::from_utf8_lossy(&empty.stderr), told);
    }
    let other = "apiVersion: apps/v1\nkind: Deployment\n";
    assert_eq!(firth(&["-"], other).status.code(), Some(0), "there is something, though no Ingress");
}

#[test]
fn what_names_no_class_is_judged_as_it_is_served_by_up() {
    let classless = |annotations: Value| {
        let mut list: Value = serde_json::from_str(&list(&annotations)).unwrap();
        list["items"][0]["spec"].as_object_mut().unwrap().remove("ingressClassName");
        list.to_string()
    };
    let fine = firth(&["-"], &classless(json!({})));
    assert_eq!(fine.status.code(), Some(0), "{fine:?}");
    assert!(said(&fine).contains("set ingressClassName: nginx so that a cluster serves it"), "{fine:?}");
    let summary = "\n1 Ingress, 0 of a class that is served, 1 of no class (served here; a cluster needs the class), 1 warning\n";
    assert!(said(&fine).ends_with(summary), "{fine:?}");

    let odd = classless(json!({"nginx.ingress.kubernetes.io/limit-rps": "ten"}));
    let refused = firth(&["-", "-o", "json"], &odd);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let problems: Value = serde_json::from_str(&said(&refused)).unwrap();
    assert_eq!(problems[0]["severity"], json!("rejected"));

    let ignored = firth(&["-", "--watch-ingress-without-class=false"], &odd);
    assert_eq!(ignored.status.code(), Some(0), "{ignored:?}");
    assert!(said(&ignored).contains("1 Ingress, 0 of a class that is served, 1 warning"), "{ignored:?}");
}

/// As in a cluster with two controllers, whose manifests were exported whole.
#[test]
fn where_nothing_is_ours_the_flag_that_is_missing_is_named() {
    let class = json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "nginx"},
        "spec": {"controller": "k8s.io/internal-nginx"}});
    let both = list(&json!({})) + &class.to_string();
    let told = firth(&["-"], &both);
    assert_eq!(told.status.code(), Some(0), "{told:?}");
    let reason = "warning: IngressClass nginx\n  1 Ingress is of this class, whose controller is k8s.io/internal-nginx, not \
                  k8s.io/ingress-nginx: FIRTH_CONTROLLER_CLASS=k8s.io/internal-nginx serves its Ingresses\n  at spec.controller\n";
    assert!(said(&told).starts_with(reason), "{}", said(&told));
    assert!(said(&told).ends_with("1 Ingress, 0 of a class that is served, 1 warning\n"), "{}", said(&told));
    assert_eq!(firth(&["-", "--strict"], &both).status.code(), Some(1));
    // One that is ours shows that the other class is meant for others.
    let ours = class.to_string().replace("internal", "ingress").replace("\"nginx\"", "\"ours\"");
    let mine =
        ingress(&json!({})).to_string().replace("\"nginx\"", "\"ours\"").replace("\"web\"", "\"mine\"");
    let fine = firth(&["-"], &(both + &ours + &mine));
    assert!(!said(&fine).contains("FIRTH_CONTROLLER_CLASS"), "{}", said(&fine));
}

/// A folder rarely has the ConfigMap of the controller, which may allow them.
#[test]
fn who_is_rejected_for_snippets_alone_is_counted_at_the_end() {
    let snippet = json!({"nginx.ingress.kubernetes.io/configuration-snippet": "add_header X-A b;"});
    let refused = firth(&["-"], &list(&snippet));
    let last = said(&refused).lines().last().unwrap_or_default().to_owned();
    assert!(last.starts_with("1 Ingress is rejected only because snippets are not allowed"), "{refused:?}");
    assert!(last.contains("ConfigMap as ingress-nginx/ingress-nginx-controller"), "{last}");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "ingress-nginx", "name": "ingress-nginx-controller"},
        "data": {"annotations-risk-level": "Critical", "allow-snippet-annotations": "true"}});
    let fine = firth(&["-"], &format!("{}\n---\n{map}", list(&snippet)));
    assert!(fine.status.code() == Some(0) && !said(&fine).contains("rejected"), "{fine:?}");
}

/// Without its own ConfigMaps an export of ingress-nginx is checked with the defaults.
#[test]
fn configmaps_of_another_name_are_hinted_at() {
    let map = |name: &str, data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "edge"}, "data": data});
    let maps = [
        map("my-controller", json!({"proxy-body-size": "8m", "Use-Gzip": "true"})),
        map("my-tcp", json!({"5432": "db/sql:5432"})),
        map("my-udp", json!({"53": "dns/dns:53"})),
        map("app", json!({"proxy-body-size": "8m", "color": "blue"})),
        map("none", json!({})),
        map("ports", json!({"5432": "sql"})),
    ];
    let text = maps.map(|map| map.to_string()).join("\n---\n");
    let checked = firth(&["-"], &text);
    let said = said(&checked);
    let found: Vec<_> = said.lines().filter(|line| line.starts_with("warning: ConfigMap")).collect();
    let objects = ["my-controller", "my-tcp", "my-udp"].map(|name| format!("warning: ConfigMap edge/{name}"));
    assert_eq!(found, objects, "{said}");
    for flag in [
        "CONFIGMAP=edge/my-controller",
        "TCP_SERVICES_CONFIGMAP=edge/my-tcp",
        "UDP_SERVICES_CONFIGMAP=edge/my-udp",
    ] {
        assert!(said.contains(&format!("FIRTH_{flag} reads this one")), "{flag}: {said}");
    }
    // The one that is read is among them.
    let read = map("ingress-nginx-controller", json!({"hsts": "false"}));
    let read = read.to_string().replace("edge", "ingress-nginx");
    let both = firth(&["-"], &format!("{text}\n---\n{read}"));
    assert!(!self::said(&both).contains("my-controller"), "{both:?}");
}

#[test]
fn what_is_not_read_is_told_to_people_and_programs() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("web.json"), list(&json!({}))).unwrap();
    fs::write(dir.path().join("kustomization.yaml"), "resources: [web.json]\n").unwrap();
    let path = dir.path().to_str().unwrap();
    let line = "not read: kustomize.config.k8s.io/v1beta1 Kustomization (its patches are not applied: kubectl kustomize DIR | firth check -)";
    let told = firth(&[path], "");
    assert!(said(&told).contains(line), "{}", said(&told));
    let told = firth(&[path, "-o", "json"], "");
    assert_eq!(told.status.code(), Some(0), "{told:?}");
    let all: Value = serde_json::from_str(&said(&told)).unwrap();
    let last = all.as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["severity"], &last["object"], &last["reason"]),
        (&json!("ignored"), &json!("kustomize.config.k8s.io/v1beta1 Kustomization"), &json!(line))
    );
}

#[test]
fn files_are_not_counted_among_rejected_objects() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("web.json"), list(&json!({"nginx.ingress.kubernetes.io/limit-rps": "ten"})))
        .unwrap();
    let summary = |dir: &Path| {
        let told = firth(&[dir.to_str().unwrap()], "");
        assert_eq!(told.status.code(), Some(1), "{told:?}");
        said(&told).lines().last().unwrap().to_owned()
    };
    fs::write(dir.path().join("a.yaml"), "a: [\n---\nb: [\n").unwrap();
    assert_eq!(
        summary(dir.path()),
        "1 Ingress, 1 of a class that is served, 1 rejected, 1 warning, 1 file with faults"
    );
    fs::write(dir.path().join("b.yaml"), "a: [\n").unwrap();
    assert!(summary(dir.path()).ends_with(", 1 rejected, 1 warning, 2 files with faults"));
}

/// A control plane bounds those of one Ingress, a proxy those of a host.
#[test]
fn patterns_that_a_host_has_no_room_for_are_told_of_an_ingress() {
    let web = json!({"service": {"name": "web", "port": {"number": 80}}});
    let path = |ingress: usize, number: usize| {
        let text = format!("/{ingress}/{number}/([a-z0-9]{{1,900}})");
        json!({"path": text, "pathType": "ImplementationSpecific", "backend": web})
    };
    let with_patterns = |number: usize| {
        let paths: Vec<Value> = (0..15).map(|i| path(number, i)).collect();
        let mut made = ingress(&json!({"nginx.ingress.kubernetes.io/use-regex": "true"}));
        made["metadata"]["name"] = json!(format!("web-{number:02}"));
        made["spec"] =
            json!({"ingressClassName": "nginx", "rules": [{"host": "a.test", "http": {"paths": paths}}]});
        made
    };
    let check = |count: usize| {
        let mut all: Value = serde_json::from_str(&list(&json!({}))).unwrap();
        all["items"].as_array_mut().unwrap().extend((0..count).map(with_patterns));
        firth(&["-"], &all.to_string())
    };
    assert_eq!(check(8).status.code(), Some(0));
    let beyond = check(12);
    assert_eq!(beyond.status.code(), Some(1), "{beyond:?}");
    let told = said(&beyond);
    assert!(told.starts_with("rejected: Ingress shop/web-"), "{told}");
    assert!(told.contains("\n  proxies cannot compile its path /"), "{told}");
}
