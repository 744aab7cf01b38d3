//! The `firth` command against running planes, and both planes in it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use integration_tests::grpcurl::Grpcurl;
use integration_tests::objects::Edit;
use integration_tests::plane::binary;
use integration_tests::process::{Process, Signal};
use integration_tests::site::ingress;
use integration_tests::{FolderSite, client, eventually, objects, ports};
use serde_json::{Value, json};

async fn firth(server: SocketAddr, arguments: &[&str]) -> Output {
    let mut command = Command::new(binary("firth"));
    command.args(arguments).args(["--server", &format!("http://{server}")]);
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

async fn json(server: SocketAddr, arguments: &[&str]) -> Value {
    let output = firth(server, &[arguments, &["-o", "json"]].concat()).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

#[tokio::test]
async fn each_question_has_an_answer_in_json_and_in_text() {
    let site = FolderSite::start(&[]).await;
    let server = site.control.listen();
    let one = site.origin("one").await;
    site.route("web", "a.test", &one).await;
    let protected = ingress("protected", "p.test", &[("/", "one")]).annotated("auth-url", "not-a-url");
    site.folder.apply(&protected);
    site.proxy.answers("p.test", "/", 503).await;
    let version = site.control.inspect().await.in_sync(1).await;

    let proxies = json(server, &["proxies"]).await;
    assert_eq!(proxies.as_array().unwrap().len(), 1);
    assert_eq!(proxies[0]["acked"], version);
    assert!(proxies[0]["id"].is_string() && proxies[0]["node"].is_string(), "{proxies}");

    let resources = json(server, &["resources"]).await;
    let has = |kind: &str, key: &str| {
        let all = resources.as_array().unwrap();
        all.iter().any(|it| it["kind"] == kind && it["key"] == key)
    };
    assert!(
        has("route", "ingress/default/web/a.test")
            && has("host", "a.test")
            && has("endpoints", "default/one-1")
    );

    let route = json(server, &["get", "route", "ingress/default/web/a.test"]).await;
    assert!(route.is_object() && route.to_string().contains("default/one/80"), "{route}");

    let history = json(server, &["history"]).await;
    assert_eq!(history[0]["version"], version, "the newest first");
    assert!(
        history[0]["cause"].is_string() && history[0]["time"].as_str().unwrap().contains('T'),
        "{history}"
    );

    let problems = json(server, &["problems"]).await;
    assert!(problems.to_string().contains("auth-url"), "{problems}");

    for arguments in
        [&["proxies"][..], &["resources"], &["get", "host", "a.test"], &["history"], &["problems"]]
    {
        let output = firth(server, arguments).await;
        assert!(output.status.success() && !output.stdout.is_empty(), "{arguments:?}");
    }
}

#[tokio::test]
async fn what_is_not_there_is_said() {
    let site = FolderSite::start(&[]).await;
    let output = firth(site.control.listen(), &["get", "route", "no/such/one"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no/such/one"));

    let nobody = ports::free();
    let output = firth(nobody, &["proxies"]).await;
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(&nobody.to_string()), "it names the address: {said}");
}

#[tokio::test]
async fn up_serves_a_folder_says_what_changes_and_ends() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/canary");
    let folder = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(&example).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    let logs = tempfile::tempdir().unwrap();
    let [http, https, listen] = [(); 3].map(|()| ports::free());
    let mut command = Command::new(binary("firth"));
    // Its authority and who runs it stand below the home folder.
    command.arg("up").arg(folder.path()).env("HOME", logs.path());
    command.env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME");
    for (flag, address) in [("--http", http), ("--https", https), ("--listen", listen)] {
        command.arg(flag).arg(address.to_string());
    }
    let mut up = Process::spawn("firth-up", &mut command, logs.path());
    eventually("the example is served", || async {
        match client::get(http, "canary.test.com", "/").await {
            Ok(answer) if answer.status == 200 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    eventually("it says what to try", || async {
        let said = up.output();
        if said.contains("curl") && said.contains("canary.test.com") { Ok(()) } else { Err(said) }
    })
    .await;

    // Whoever has that home folder may ask, by firth and by grpcurl; nobody else may.
    for (home, may) in [(logs.path(), true), (folder.path(), false)] {
        let mut ask = Command::new(binary("firth"));
        ask.args(["proxies", "--server", &format!("https://{listen}")]);
        ask.env("HOME", home).env_remove("XDG_CONFIG_HOME").env_remove("FIRTH_IDENTITY");
        let output = tokio::task::spawn_blocking(move || ask.output()).await.unwrap().unwrap();
        assert_eq!(output.status.success(), may, "{}", String::from_utf8_lossy(&output.stderr));
    }
    let said = up.output();
    let line = said.lines().find(|line| line.contains("grpcurl -cacert")).unwrap().trim().to_owned();
    let files: Vec<&str> = line.split_whitespace().skip(1).take(6).collect();
    let listed = Grpcurl::encrypted(listen).run(&files, &["list"]).await;
    assert!(listed.contains("firth.inspect.v1.Inspect"), "{listed}");

    // Whatever file of the example holds the weight, it is edited as a user edits it.
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let file = file.unwrap().path();
        let text = std::fs::read_to_string(&file).unwrap();
        let edited = text.replace("canary-weight: \"10\"", "canary-weight: \"50\"");
        if edited != text {
            let draft = folder.path().join(".draft");
            std::fs::write(&draft, edited).unwrap();
            std::fs::rename(&draft, &file).unwrap();
        }
    }
    eventually("the change is said with its version and who has it", || async {
        let said = up.output();
        let line = said.lines().find(|line| line.contains("10 -> 50")).map(str::to_owned);
        match line {
            Some(line) if line.contains("acknowledged by 1 of 1") => Ok(()),
            _ => Err(said),
        }
    })
    .await;
    up.signal(Signal::Int);
    let ended = up.wait(Duration::from_secs(10)).await;
    assert!(ended.success(), "{ended}: {}", up.tail());
}

/// What the fleet's ConfigMap and a taken port keep from being served.
#[tokio::test]
async fn up_says_what_cannot_be_served() {
    let folder = FolderSite::folder(&[]);
    folder.apply(&objects::service("default", "one"));
    folder.apply(&ingress("web", "a.test", &[("/", "one")]));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let map = |name: &str, data: Value| objects::config_map("ingress-nginx", name, data);
    folder.apply(&map("ingress-nginx-controller", json!({"enable-modsecurity": "true"})));
    folder.apply(&map("tcp-services", json!({port.to_string(): "default/one:80"})));
    let logs = tempfile::tempdir().unwrap();
    let mut command = Command::new(binary("firth"));
    command.arg("up").arg(folder.path()).env("HOME", logs.path());
    command.env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME");
    for flag in ["--http", "--https", "--listen"] {
        command.arg(flag).arg(ports::free().to_string());
    }
    let mut up = Process::spawn("firth-up", &mut command, logs.path());
    for expected in [
        "data[enable-modsecurity]: a restriction that is not enforced",
        &format!("refused: listener tcp-{port}"),
    ] {
        eventually(expected, || async {
            let said = up.output();
            if said.contains(expected) { Ok(()) } else { Err(said) }
        })
        .await;
    }
    up.signal(Signal::Int);
    let ended = up.wait(Duration::from_secs(10)).await;
    assert!(ended.success(), "{ended}: {}", up.tail());
}

/// As an operator reads them: values are not written as Rust writes them.
#[tokio::test]
async fn what_the_planes_log_is_for_people() {
    let flags = ["--log", "debug", "--log-format", "json"];
    let proxy = [&flags[..], &["--drain-grace", "0"]].concat();
    let mut site = FolderSite::start_with(&[], &flags, &proxy).await;
    let one = site.origin("one").await;
    site.route("web", "a.test", &one).await;
    site.control.restart().await;
    site.control.inspect().await.in_sync(1).await;
    assert!(site.proxy.terminate().await.success());
    site.control.logs("proxy left").await;
    let logs = site.control.log() + &site.proxy.log();
    let lines = logs.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_ours = |line: &Value| line["target"].as_str().is_some_and(|it| it.contains("_plane"));
    let lines: Vec<Value> = lines.filter(is_ours).collect();
    for message in
        ["proxy connected", "lane begins", "serving", "waiting for the first configuration before listening"]
    {
        assert!(lines.iter().any(|line| line["message"] == message), "{message}: {logs}");
    }
    for line in lines {
        for (key, value) in line.as_object().unwrap() {
            let text = value.as_str().unwrap_or_default();
            let is_debug = ["Some(", "Ok(", "Err(", "MODE_"].iter().any(|form| text.contains(form));
            assert!(
                !is_debug && !text.starts_with('[') && text != "None" && text != "Gone",
                "{key} of {line}"
            );
        }
    }
}
