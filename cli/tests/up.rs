//! `firth up` as a newcomer runs it: the example is served, an edit arrives and is reported, Ctrl-C ends it cleanly.
#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this file is a test")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use test_kit::blocking::Client;
use test_kit::ports::refusing;

/// Generous: the planes start in a fraction of a second on an idle machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// A running `firth up` and its lines.
struct Up {
    process: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Up {
    fn start(dir: &Path) -> Self {
        Self::start_with(dir, &[])
    }

    fn start_with(dir: &Path, flags: &[&str]) -> Self {
        Self::run(&mut Command::new(env!("CARGO_BIN_EXE_firth")), dir, flags)
    }

    fn run(command: &mut Command, dir: &Path, flags: &[&str]) -> Self {
        let mut process = command
            .arg("up")
            .arg(dir)
            .args(["--http=127.0.0.1:0", "--https=127.0.0.1:0", "--listen=127.0.0.1:0"])
            .args(flags)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = sync_channel(1024);
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { process, lines, seen: Vec::new() }
    }

    /// The next line that contains `text`.
    fn line(&mut self, text: &str) -> String {
        let end = Instant::now() + DEADLINE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let line =
                line.unwrap_or_else(|_| panic!("no line with {text:?} after:\n{}", self.seen.join("\n")));
            self.seen.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The example with ports of demo backends that are free here.
fn example(dir: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/canary");
    let ports = [(); 3].map(|()| refusing().port().to_string());
    for entry in fs::read_dir(source).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let text = text.replace("19001", &ports[0]).replace("19002", &ports[1]).replace("19011", &ports[2]);
        fs::write(dir.join(path.file_name().unwrap()), text).unwrap();
    }
}

/// An answer, as it came.
fn get(address: &str, headers: &str) -> String {
    ask(address, "canary.test.com", "/cart", headers)
}

fn ask(address: &str, host: &str, path: &str, headers: &str) -> String {
    let mut client = Client::new(address.parse().unwrap());
    client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n"));
    String::from_utf8(client.rest()).unwrap()
}

/// Rewrites a file as editors do: another file, renamed into place.
fn edit(dir: &Path, name: &str, from: &str, to: &str) {
    let path = dir.join(name);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from));
    let other = dir.join(".edited");
    fs::write(&other, text.replace(from, to)).unwrap();
    fs::rename(other, path).unwrap();
}

/// Root can write everywhere, so the home folder is one that the kernel protects.
#[test]
fn a_home_that_cannot_be_written_is_no_reason_to_stop() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    example(dir.path());
    let state = format!("--state-dir={}", state.path().display());
    for flags in [&[][..], &[state.as_str()]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_firth"));
        command.env("HOME", "/proc").env_remove("XDG_STATE_HOME").env_remove("XDG_CONFIG_HOME");
        let mut up = Up::run(&mut command, dir.path(), flags);
        up.line("cannot write /proc/");
        up.line("on 1 proxy");
        let question = up.line(" proxies ");
        let answer = Command::new("sh").args(["-c", question.trim()]).env("HOME", "/proc").output().unwrap();
        assert!(answer.status.success(), "{question}: {answer:?}");
    }
}

/// Whoever tries a folder of somebody who uses ingress-nginx sees what is missing.
#[test]
fn settings_that_are_missing_are_hinted_at() {
    let dir = tempfile::tempdir().unwrap();
    let ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: web\n  annotations:\n    \
                   kubernetes.io/ingress.class: nginx\n    nginx.ingress.kubernetes.io/server-snippet: 'gzip on;'\n\
                   spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}\n";
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: edge, name: nginx-configuration}\ndata: {use-gzip: 'true'}\n";
    fs::write(dir.path().join("all.yaml"), format!("{ingress}---\n{map}")).unwrap();
    let mut up = Up::start_with(dir.path(), &["--no-demo"]);
    up.line("1 Ingress is rejected only because snippets are not allowed");
    let told = up.line("warning: ConfigMap edge/nginx-configuration");
    assert!(told.contains("FIRTH_CONFIGMAP=edge/nginx-configuration"), "{told}");
}

#[test]
fn the_example_is_served_and_follows_its_files() {
    let dir = tempfile::tempdir().unwrap();
    example(dir.path());
    let mut up = Up::start(dir.path());

    up.line("on 1 proxy");
    let http = http(&mut up);
    let row = up.line("default/web:80, 2 endpoints");
    assert!(row.contains("canary.test.com"), "{row}");
    up.line("canary default/web-canary:80, 1 endpoint: 10 of 100, header X-Canary: always");
    up.line("Ctrl-C stops");

    let canary = get(&http, "X-Canary: always\r\n");
    assert!(canary.contains("default/web-canary at 127.0.0.1:"), "{canary}");
    let main = get(&http, "X-Canary: never\r\n");
    assert!(main.contains("default/web at 127.0.0.1:"), "{main}");

    edit(dir.path(), "canary.yaml", "canary-weight: \"10\"", "canary-weight: \"100\"");
    let line = up.line("canary-weight 10 -> 100");
    assert!(line.contains(": version ") && line.contains(", acknowledged by 1 of 1 in "), "{line}");
    assert!(get(&http, "").contains("default/web-canary at"));

    edit(dir.path(), "canary.yaml", "apiVersion: networking", "apiVersion: [networking");
    up.line("canary.yaml");
    assert!(get(&http, "").contains("default/web-canary at"));
    edit(dir.path(), "canary.yaml", "apiVersion: [networking", "apiVersion: networking");
    up.line("resolved: ");

    let interrupted = Command::new("kill").args(["-INT", &up.process.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    up.line("stopping");
    assert!(up.process.wait().unwrap().success());
}

/// With a port that the kernel chose, nobody looks for the identity once the process has ended.
#[test]
fn an_identity_for_a_port_that_nobody_chose_ends_with_its_process() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    example(dir.path());
    let identities = || {
        let entries = fs::read_dir(home.path().join("firth")).into_iter().flatten();
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_firth"));
        let mut up = Up::run(command.env("XDG_CONFIG_HOME", home.path()), dir.path(), &["--no-demo"]);
        up.line("Ctrl-C stops");
        up
    };
    let killed = start();
    let first = identities();
    assert_eq!(first.len(), 1, "{first:?}");
    drop(killed);
    assert_eq!(identities(), first, "a killed process leaves it");

    let mut up = start();
    let second = identities();
    assert_eq!(second.len(), 1, "the next one removes it: {first:?} {second:?}");
    let interrupted = Command::new("kill").args(["-INT", &up.process.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    up.line("stopping");
    assert!(up.process.wait().unwrap().success());
    assert_eq!(identities(), [] as [String; 0]);
}

/// What a user has in a cluster: a Deployment, its Service, an Ingress; no class, no endpoints.
const OWN: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec: {selector: {matchLabels: {app: shop}}, template: {metadata: {labels: {app: shop}}, spec: {containers: [{name: shop, image: shop}]}}}
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {type: ClusterIP, clusterIP: null, selector: {app: shop}, ports: [{name: web, port: 8080, targetPort: http}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop}
spec:
  ingressClassName: nginx
  rules:
    - host: canary.test.com
      http:
        paths:
          - {path: /, pathType: Prefix, backend: {service: {name: shop, port: {name: web}}}}
          - {path: /cart, pathType: Exact, backend: {service: {name: SERVICE, port: {number: 80}}}}
"#;

/// Where HTTP is served.
fn http(up: &mut Up) -> String {
    addresses(up).0
}

/// Where HTTP and HTTPS are served.
fn addresses(up: &mut Up) -> (String, String) {
    let line = up.line("http://");
    let mut words = line.split_whitespace();
    let mut next = |scheme| words.next().unwrap().strip_prefix(scheme).unwrap().to_owned();
    (next("http://"), next("https://"))
}

#[test]
fn manifests_of_ones_own_answer_and_what_is_missing_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let write = |service: &str| {
        let text = OWN.replace("SERVICE", service);
        fs::write(dir.path().join(".draft"), text).unwrap();
        fs::rename(dir.path().join(".draft"), dir.path().join("own.yaml")).unwrap();
    };
    write("shop");
    let mut up = Up::start(dir.path());
    let http = http(&mut up);
    let row = up.line("default/shop:web");
    assert!(row.contains("1 endpoint"), "{row}");
    let played = up.line("(it has no EndpointSlice)");
    let address = played.split_whitespace().find(|word| word.starts_with("127.0.0.1:")).unwrap().to_owned();
    // The path with port 80, which the Service does not have, is reported; the other one answers.
    up.line("Service default/shop has no TCP port 80");
    up.line("the manifests have no IngressClass");
    write("nowhere");
    up.line("default/nowhere does not exist");
    assert!(get(&http, "").starts_with("HTTP/1.1 503 "));

    let text = OWN.replace("SERVICE", "shop").replace("number: 80", "name: web");
    fs::write(dir.path().join("own.yaml"), text).unwrap();
    let played = format!("default/shop at {address}");
    let end = Instant::now() + DEADLINE;
    while !get(&http, "").contains(&played) {
        assert!(Instant::now() < end, "{played} does not answer");
    }

    // Demo backends never shadow real endpoints.
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = origin.local_addr().unwrap().port();
    let slice = format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: shop-1, labels: {{kubernetes.io/service-name: shop}}}}\n\
         addressType: IPv4\nports: [{{name: web, port: {port}}}]\nendpoints: [{{addresses: [127.0.0.1]}}]\n"
    );
    fs::write(dir.path().join("slice.yaml"), slice).unwrap();
    up.line(&format!("{address} has ended"));
    let asked = thread::spawn(move || get(&http, ""));
    let (mut stream, _) = origin.accept().unwrap();
    let mut head = [0; 4096];
    assert!(stream.read(&mut head).unwrap() > 0);
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nreal").unwrap();
    assert!(asked.join().unwrap().ends_with("real"));
}

#[test]
fn without_demos_a_service_without_endpoints_answers_503() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("own.yaml"), OWN.replace("SERVICE", "shop").replace("number: 80", "name: web"))
        .unwrap();
    let mut up = Up::start_with(dir.path(), &["--no-demo"]);
    let http = http(&mut up);
    let row = up.line("default/shop:web");
    assert!(row.contains("no endpoints"), "{row}");
    up.line("Ctrl-C stops");
    assert!(get(&http, "").starts_with("HTTP/1.1 503 "));
    assert!(!up.seen.iter().any(|line| line.contains("demo backend")), "{:?}", up.seen);
}

/// The folder may not be mounted yet: it is read again before anything is reported as served, and the user is told why.
#[test]
fn an_empty_folder_says_what_it_waits_for_before_it_waits() {
    let dir = tempfile::tempdir().unwrap();
    let mut up = Up::start(dir.path());
    up.line("has no Ingress yet: waiting for one in a *.yaml, *.yml or *.json file");
    assert_eq!(up.seen.len(), 1, "it is the first that is said: {:?}", up.seen);
    up.line("it may not be mounted yet: it is read again in 5 s, and nothing is served until then");
    let said = Instant::now();
    up.line("nothing to serve yet");
    assert!(said.elapsed() > Duration::from_secs(3), "what is waited for was said after the wait");
    fs::write(dir.path().join("own.yaml"), OWN.replace("SERVICE", "shop").replace("number: 80", "name: web"))
        .unwrap();
    up.line("Ingress default/shop");
}

#[test]
fn a_folder_that_fills_while_it_is_doubted_is_served_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut up = Up::start(dir.path());
    up.line("has no Ingress yet");
    fs::write(dir.path().join("own.yaml"), OWN.replace("SERVICE", "shop").replace("number: 80", "name: web"))
        .unwrap();
    let http = http(&mut up);
    up.line("Ctrl-C stops");
    assert!(get(&http, "").contains("default/shop at 127.0.0.1:"));
}

#[test]
fn a_folder_of_nothing_but_a_broken_file_is_told_so_at_once() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("own.yaml"), OWN.replace("rules:", "  rules: [")).unwrap();
    let mut up = Up::start(dir.path());
    let said = up.line("has no Ingress yet");
    assert!(said.contains("file own.yaml") && said.contains("expected YAML"), "{said}");
    assert_eq!(up.seen.len(), 1, "it is the first that is said: {:?}", up.seen);
}

/// A demo backend supports every protocol.
#[test]
fn demo_backends_speak_what_their_paths_ask_for() {
    let dir = tempfile::tempdir().unwrap();
    for protocol in ["http", "https", "auto_http", "grpc", "grpcs", "fcgi"] {
        let host = protocol.replace('_', "-");
        let text = OWN.replace("SERVICE", "shop").replace("number: 80", "name: web");
        let text = text
            .replace("name: shop", &format!("name: {host}"))
            .replace("canary.test.com", &format!("{host}.test"));
        let annotation = format!("annotations: {{nginx.ingress.kubernetes.io/backend-protocol: {protocol}}}");
        let text = text.replace(
            &format!("metadata: {{name: {host}}}\nspec:\n  ingress"),
            &format!("metadata: {{name: {host}, {annotation}}}\nspec:\n  ingress"),
        );
        assert!(text.contains(&annotation));
        fs::write(dir.path().join(format!("{host}.yaml")), text).unwrap();
    }
    let mut up = Up::start(dir.path());
    let http = http(&mut up);
    up.line("Ctrl-C stops");
    for host in ["http", "https", "auto-http", "grpc", "grpcs", "fcgi"] {
        let answer = ask(&http, &format!("{host}.test"), "/cart", "");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{host}: {answer}");
        assert!(answer.contains(&format!("default/{host} at 127.0.0.1:")), "{host}: {answer}");
    }
}

/// What is outside of the folder may not be there.
#[test]
fn an_external_name_that_leads_nowhere_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: far}\n\
                   spec: {defaultBackend: {service: {name: far, port: {number: 80}}}}\n---\n";
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: far}\n\
                   spec: {type: ExternalName, externalName: nowhere.invalid, ports: [{port: 80}]}\n";
    fs::write(dir.path().join("far.yaml"), ingress.to_owned() + service).unwrap();
    let mut up = Up::start(dir.path());
    let http = http(&mut up);
    let said = up
        .line("Service default/far of Ingress default/far leads nowhere: its external name nowhere.invalid ");
    assert!(said.ends_with("; requests for it answer 503"), "{said}");
    assert!(get(&http, "").starts_with("HTTP/1.1 503 "));
}

/// A folder stands in for the cluster, including DNS names; if it cannot, the missing Service is reported.
#[test]
fn who_is_asked_by_name_is_found_in_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let write = |url: &str| {
        let annotations = format!("{{nginx.ingress.kubernetes.io/auth-url: \"{url}\"}}");
        let text = OWN.replace("SERVICE", "shop").replace("number: 80", "name: web");
        let text = text.replace(
            "metadata: {name: shop}\nspec:\n  ingress",
            &format!("metadata: {{name: shop, annotations: {annotations}}}\nspec:\n  ingress"),
        );
        assert!(text.contains(url));
        fs::write(dir.path().join(".draft"), text).unwrap();
        fs::rename(dir.path().join(".draft"), dir.path().join("own.yaml")).unwrap();
    };
    write("http://auth.sso.svc.cluster.local:9000/verify");
    let mut up = Up::start(dir.path());
    let http = http(&mut up);
    up.line("auth-url of Ingress default/shop leads nowhere: Service sso/auth is not in the folder; its paths answer 500");
    assert!(get(&http, "").starts_with("HTTP/1.1 500 "));
    let auth = "apiVersion: v1\nkind: Service\nmetadata: {name: auth, namespace: sso}\nspec: {ports: [{port: 9000}]}\n";
    fs::write(dir.path().join("auth.yaml"), auth).unwrap();
    up.line("demo backend of sso/auth: 127.0.0.1:");
    let end = Instant::now() + DEADLINE;
    while !get(&http, "").contains("default/shop at 127.0.0.1:") {
        assert!(Instant::now() < end, "the Service is not found by its name");
    }
    write("https://auth.sso.svc.cluster.local/verify");
    up.line("auth-url of Ingress default/shop leads nowhere: Service sso/auth has no port 443");
}

/// Users' manifests are served within seconds of `firth up`, with their annotations.
#[test]
fn examples_of_what_people_have_answer() {
    let mut up = Up::start(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/real"));
    let (http, https) = addresses(&mut up);
    let https = https.rsplit(':').next().unwrap();
    up.line("Ctrl-C stops");
    let users = "Authorization: Basic b2ZmaWNlOmZpcnRo\r\n";
    let origin = "Origin: https://www.store.example.com\r\n";
    let partner = "CF-Connecting-IP: 203.0.113.7\r\n";
    for (host, path, headers, status, parts) in [
        ("chat.example.com", "/socket.io/x", "", 200, &["chat/rooms at", "set-cookie: room="][..]),
        ("chat.example.com", "/", "", 200, &["chat/assets at"]),
        ("observe.example.com", "/grafana/d/1?a=b", "", 200, &["observability/grafana at", "GET /d/1?a=b\n"]),
        ("observe.example.com", "/loki", "", 200, &["observability/loki at", "GET /\n"]),
        ("prices.example.com", "/", "", 200, &["market/prices at"]),
        (
            "grpc.prices.example.com",
            "/",
            "",
            308,
            &[&*format!("location: https://grpc.prices.example.com:{https}\r")],
        ),
        ("store.example.com", "/", "", 200, &["x-frame-options: deny", "permissions-policy: camera=()"]),
        ("store.example.com", "/api/x", origin, 200, &["allow-origin: https://www.store.example.com"]),
        ("backoffice.example.com", "/", "", 401, &["basic realm=\"back office\""]),
        ("backoffice.example.com", "/", users, 200, &["backoffice/backoffice at"]),
        // Services that are called by name get demo backends, too, which allow everybody.
        ("handbook.example.com", "/", "", 200, &["intranet-auth/handbook at"]),
        ("handbook.example.com", "/outpost/start", "", 200, &["intranet-auth/outpost at"]),
        ("shop.example.net", "/x", "", 308, &["location: https://store.example.com\r"]),
        ("archive.example.net", "/sale", "", 302, &["location: https://store.example.com/sale\r"]),
        ("archive.example.net", "/", "", 302, &["location: http://archive.example.net/years\r"]),
        ("archive.example.net", "/x", "", 200, &["moved/archive at"]),
        ("uploads.example.com", "/", "", 200, &["media/uploads at"]),
        ("bulletin.example.com", "/x", "", 200, &["old/bulletin at"]),
        ("orders.example.com", "/x", "", 200, &["answers/orders at", "x-content-type-options: nosniff"]),
        ("orders.example.com", "/metrics", "", 404, &[]),
        ("orders.example.com", "/internal/x", "", 403, &[]),
        ("orders.example.com", "/robots.txt", "", 200, &["content-type: text/plain", "Disallow: /"]),
        ("orders.example.com", "/basket?x=1", "", 301, &["/cart/?x=1\r"]),
        ("landing.example.com", "/", "", 200, &["landing/site at", "x-frame-options: sameorigin"]),
        ("landing.example.com", "/app.JS?v=1", "", 404, &[]),
        ("landing.example.com", "/api/health", "", 404, &[]),
        ("landing.example.com", "/api/healthy", "", 200, &["landing/site at"]),
        ("www.landing.example.com", "/x", "", 301, &["location: https://landing.example.com\r"]),
        ("partners.example.com", "/", "", 403, &[]),
        ("partners.example.com", "/", partner, 200, &["office/tools at"]),
        (
            "deploys.example.com",
            "/a?b",
            "",
            302,
            &["location: https://vpn.example.com/?back=http://deploys.example.com/a?b\r"],
        ),
        ("tools.example.com", "/faults/x", "", 200, &["office/tools at", "GET /x\n"]),
    ] {
        let answer = ask(&http, host, path, headers);
        let found = answer.to_ascii_lowercase();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{host}{path}: {answer}");
        for part in parts {
            assert!(found.contains(&part.to_ascii_lowercase()), "{host}{path}: {part:?} in {answer}");
        }
    }
    // Settings in the wrong place are reported.
    up.line("spec.ingressClassName]: has no effect: the class is set in");
}

#[test]
fn other_flags_of_the_planes_come_from_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let annotation =
        "annotations: {nginx.ingress.kubernetes.io/configuration-snippet: 'more_set_headers \"X-A: b\";'}";
    let text = OWN.replace("SERVICE", "shop").replace("number: 80", "name: web");
    let text = text.replace(
        "metadata: {name: shop}\nspec:\n  ing",
        &format!("metadata: {{name: shop, {annotation}}}\nspec:\n  ing"),
    );
    assert!(text.contains(annotation));
    let settings = "\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: edge}\n\
                    data: {allow-snippet-annotations: \"true\", annotations-risk-level: Critical}\n";
    let moved = "\n---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: moved, annotations: \
                 {nginx.ingress.kubernetes.io/force-ssl-redirect: \"true\"}}\nspec: {ingressClassName: nginx, rules: \
                 [{host: moved.test.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: shop, \
                 port: {name: web}}}}]}}]}\n";
    fs::write(dir.path().join("own.yaml"), text + settings + moved).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_firth"));
    command.env("FIRTH_CONFIGMAP", "edge/settings").env("FIRTH_PUBLIC_HTTPS_PORT", "443");
    let mut up = Up::run(&mut command, dir.path(), &[]);
    let http = http(&mut up);
    up.line("Ctrl-C stops");
    assert!(get(&http, "").to_ascii_lowercase().contains("x-a: b\r"));
    // Also those of which it knows better where nobody says anything.
    let answer = ask(&http, "moved.test.com", "/", "").to_ascii_lowercase();
    assert!(
        answer.contains("location: https://moved.test.com/\r")
            || answer.contains("location: https://moved.test.com\r"),
        "{answer}"
    );
}

#[test]
fn a_tcp_service_is_shown_with_its_endpoints() {
    let dir = tempfile::tempdir().unwrap();
    example(dir.path());
    let port = refusing().port();
    let services = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: tcp-services, namespace: ingress-nginx}}\n\
         data: {{\"{port}\": \"default/web:80\"}}\n"
    );
    fs::write(dir.path().join("tcp.yaml"), services).unwrap();
    let mut up = Up::start(dir.path());
    let row = up.line(&format!("tcp {port}"));
    assert!(row.ends_with("  default/web:80, 2 endpoints"), "{row}");
    up.line("Ctrl-C stops");
    assert!(get(&format!("127.0.0.1:{port}"), "").starts_with("HTTP/1.1 200 "));
}

#[test]
fn what_is_not_read_and_whose_class_it_is_are_said() {
    let dir = tempfile::tempdir().unwrap();
    let class = "---\napiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: nginx}\n\
                 spec: {controller: k8s.io/internal-nginx}\n";
    fs::write(dir.path().join("own.yaml"), OWN.replace("SERVICE", "shop") + class).unwrap();
    fs::write(dir.path().join("kustomization.yaml"), "resources: [own.yaml]\n").unwrap();
    let mut up = Up::start(dir.path());
    let said = up.line("nothing to serve yet");
    assert!(
        said.contains(
            "IngressClass nginx: 1 Ingress is of this class, whose controller is k8s.io/internal-nginx"
        ),
        "{said}"
    );
    assert!(said.contains("FIRTH_CONTROLLER_CLASS=k8s.io/internal-nginx"), "{said}");
    up.line("not read: kustomize.config.k8s.io/v1beta1 Kustomization (its patches are not applied: ");
    up.line("Ctrl-C stops");
    let route = "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: a}\n";
    fs::write(dir.path().join("route.yaml"), route).unwrap();
    up.line("not read: gateway.networking.k8s.io/v1 HTTPRoute");
}

#[test]
fn a_folder_that_is_not_there_is_said() {
    let done = Command::new(env!("CARGO_BIN_EXE_firth")).args(["up", "/no/such/folder"]).output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(said, "firth: /no/such/folder: expected a folder of manifests\n");
}

/// A hold that is stored next to a folder whose file was never valid takes effect when it appears.
#[test]
fn a_hold_that_appears_serves_what_was_broken_from_the_start() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let states = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let decisions = states.each_ref().map(|state| state.path().join("control-plane/decisions"));
    let flags = states.each_ref().map(|state| format!("--state-dir={}", state.path().display()));
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let slice = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: shop}}\nspec: {{ports: [{{port: 80}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: shop-1, labels: {{kubernetes.io/service-name: shop}}, annotations: {{firth.dev/demo: \"true\"}}}}\n\
         addressType: IPv4\nports: [{{port: {}}}]\nendpoints: [{{addresses: [127.0.0.1]}}]\n",
        holder.local_addr().unwrap().port()
    );
    drop(holder);
    let backend = "{service: {name: shop, port: {number: 80}}}";
    let web = format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: web}}\n\
         spec: {{ingressClassName: nginx, rules: [{{host: canary.test.com, http: {{paths: [{{path: /, pathType: Prefix, backend: {backend}}}]}}}}]}}\n"
    );
    for dir in [&first, &second] {
        fs::write(dir.path().join("shop.yaml"), &slice).unwrap();
    }
    // The record is made as it always is: of a file that breaks.
    fs::write(first.path().join("web.yaml"), &web).unwrap();
    let mut up = Up::start_with(first.path(), &[&flags[0]]);
    up.line("Ctrl-C stops");
    fs::write(first.path().join("web.yaml"), "{").unwrap();
    up.line("web.yaml");
    let end = Instant::now() + DEADLINE;
    let record = loop {
        // A record has its name once it is complete; what is written until then ends in `.draft`.
        let found = fs::read_dir(&decisions[0]).into_iter().flatten().map(Result::unwrap);
        if let Some(record) = found.into_iter().find(|it| it.path().extension() == Some("json".as_ref())) {
            break record;
        }
        assert!(Instant::now() < end, "no hold is on record");
        thread::sleep(Duration::from_millis(20));
    };
    drop(up);

    fs::write(second.path().join("web.yaml"), "{").unwrap();
    let mut up = Up::start_with(second.path(), &[&flags[1]]);
    let http = http(&mut up);
    up.line("Ctrl-C stops");
    assert!(get(&http, "").starts_with("HTTP/1.1 404 "));
    fs::create_dir_all(&decisions[1]).unwrap();
    let draft = decisions[1].join(".draft");
    // A hold belongs to its folder of manifests.
    let text = fs::read_to_string(record.path()).unwrap();
    let [of_first, of_second] = [&first, &second].map(|dir| dir.path().display().to_string());
    fs::write(&draft, text.replace(&of_first, &of_second)).unwrap();
    fs::rename(draft, decisions[1].join(record.file_name())).unwrap();
    let end = Instant::now() + DEADLINE;
    while !get(&http, "").contains("default/shop at 127.0.0.1:") {
        assert!(Instant::now() < end, "the hold does not act");
        thread::sleep(Duration::from_millis(20));
    }
}
