//! The inspection API with the real grpcurl.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::PathBuf;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use integration_tests::client;
use integration_tests::grpc;
use integration_tests::grpcurl::Grpcurl;
use integration_tests::objects::{self, Edit};
use integration_tests::site::{NAMESPACE, ingress};
use integration_tests::{FolderSite, Origin, eventually};
use serde_json::{Value, json};
use test_kit::certificates;
use tonic::Request;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic_prost::ProstCodec;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

const INSPECT: &str = "firth.inspect.v1.Inspect";

/// A site with one route over TLS, and the key of its certificate.
async fn site() -> (FolderSite, Origin, String) {
    let (certificate, key) = certificates::self_signed(&["a.test"]);
    let secret = objects::tls_secret(NAMESPACE, "cert", &certificate, &key);
    let site = FolderSite::start_with(&[secret], &["--state-dir", "state"], &[]).await;
    let one = site.origin("one").await;
    let tls = json!([{"hosts": ["a.test"], "secretName": "cert"}]);
    let web = ingress("web", "a.test", &[("/", "one")]).with("/spec/tls", tls);
    site.folder.apply(&web.annotated("ssl-redirect", "false"));
    site.proxy.serves("a.test", "/", "one").await;
    site.control.inspect().await.in_sync(1).await;
    (site, one, key)
}

#[tokio::test]
async fn grpcurl_lists_and_describes() {
    let (site, _one, _) = site().await;
    let grpcurl = Grpcurl::new(site.control.listen());
    let services = grpcurl.run(&[], &["list"]).await;
    for service in ["firth.config.v1.ConfigStream", INSPECT] {
        assert!(services.lines().any(|line| line == service), "{service} in:\n{services}");
    }
    let described = grpcurl.run(&[], &["describe", INSPECT]).await;
    for method in ["ListProxies", "WatchProxies", "ListResources", "GetResource", "History"] {
        assert!(described.contains(&format!("rpc {method} ")), "{method} in:\n{described}");
    }
    let stream = grpcurl.run(&[], &["describe", "firth.config.v1.Batch"]).await;
    assert!(stream.contains("root_after"), "{stream}");
}

#[tokio::test]
async fn reflection_is_there_in_both_versions() {
    let (site, _one, _) = site().await;
    // grpcurl asks in v1alpha; newer ones, and others, ask in v1.
    let question = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    for version in ["v1", "v1alpha"] {
        let mut client = Grpc::new(grpc::channel(site.control.listen()).await);
        client.ready().await.unwrap();
        let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
        let questions = Request::new(tokio_stream::iter([question.clone()]));
        // The messages of both versions are the same on the wire.
        let codec: ProstCodec<_, ServerReflectionResponse> = ProstCodec::default();
        let answers = client.streaming(questions, PathAndQuery::try_from(path).unwrap(), codec).await;
        let answer = answers.unwrap().into_inner().message().await.unwrap().unwrap();
        let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
            panic!("{version}: {answer:?}");
        };
        assert!(list.service.iter().any(|service| service.name == INSPECT), "{version}: {list:?}");
    }
}

#[tokio::test]
async fn grpcurl_shows_proxies_resources_and_history() {
    let (site, _one, _) = site().await;
    let grpcurl = Grpcurl::new(site.control.listen());
    let method = |name: &str| format!("{INSPECT}/{name}");

    let proxies = grpcurl.call(&method("ListProxies"), &json!({})).await;
    let version = proxies["version"].as_str().unwrap().to_owned();
    assert_eq!(version.len(), 12, "12 hex digits: {version}");
    assert_eq!(proxies["proxies"][0]["acked"], version);
    assert_eq!(proxies["proxies"][0]["inSync"], true);
    assert!(!proxies["proxies"][0]["id"].as_str().unwrap().is_empty());

    let resources = grpcurl.call(&method("ListResources"), &json!({"kind": "route"})).await;
    assert_eq!(resources["resources"][0]["key"], "ingress/default/web/a.test");
    let whole = grpcurl.call(&method("ListResources"), &json!({})).await;
    let kinds = |value: &Value| -> Vec<String> {
        let all = value["resources"].as_array().unwrap().iter();
        all.map(|it| it["kind"].as_str().unwrap().to_owned()).collect()
    };
    for kind in ["settings", "listener", "host", "route", "backend", "endpoints", "certificate"] {
        assert!(kinds(&whole).contains(&kind.to_owned()), "no {kind} in {whole}");
    }

    let route = json!({"kind": "route", "key": "ingress/default/web/a.test"});
    let route = grpcurl.call(&method("GetResource"), &route).await;
    let backends = route["body"]["paths"].to_string();
    assert!(backends.contains("default/one/80"), "{route}");

    site.folder.apply(&ingress("new", "b.test", &[("/", "one")]));
    site.proxy.serves("b.test", "/", "one").await;
    let history = grpcurl.call(&method("History"), &json!({})).await;
    let newest = &history["entries"][0];
    assert!(newest["cause"].as_str().unwrap().contains("default/new"), "{newest}");
    assert_ne!(newest["version"], version);
    assert_eq!(history["entries"][1]["version"], version, "the newest first");

    // What was, is still there; what never was, is said so.
    let old = grpcurl.call(&method("ListResources"), &json!({"kind": "route", "version": version})).await;
    assert_eq!(old["resources"].as_array().unwrap().len(), 1);
    for nothing in [json!({"kind": "route", "key": "no/such/one"}), json!({"kind": "nonsense", "key": "x"})] {
        let method = method("GetResource");
        let output = grpcurl.output(&["-d", &nothing.to_string()], &[&method]).await;
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let named = nothing["kind"].as_str().unwrap();
        assert!(said.contains("NotFound") || said.contains("InvalidArgument"), "{said}");
        assert!(said.contains(named) || said.contains("no/such/one"), "it names what is not there: {said}");
    }
}

#[tokio::test]
async fn problems_are_listed_with_their_object_and_field() {
    let (site, _one, _) = site().await;
    let web = ingress("protected", "p.test", &[("/", "one")]);
    site.folder.apply(&web.annotated("auth-url", "not-a-url"));
    site.proxy.answers("p.test", "/", 503).await;
    let grpcurl = Grpcurl::new(site.control.listen());
    let answer = eventually("the annotation is reported", || async {
        let answer = grpcurl.call(&format!("{INSPECT}/ListProblems"), &json!({})).await;
        if answer["problems"].is_array() { Ok(answer) } else { Err(answer) }
    })
    .await;
    let problems = answer["problems"].as_array().unwrap();
    let found = problems.iter().find(|it| it["object"] == "Ingress default/protected").unwrap();
    assert!(found["field"].as_str().unwrap().contains("auth-url"), "{found}");
    assert!(!found["reason"].as_str().unwrap().is_empty());
}

#[tokio::test]
async fn private_keys_are_shown_nowhere() {
    let (mut site, _one, key) = site().await;
    let grpcurl = Grpcurl::new(site.control.listen());
    let certificate = json!({"kind": "certificate", "key": "default/cert"});
    let shown = grpcurl.call(&format!("{INSPECT}/GetResource"), &certificate).await;
    assert_eq!(shown["body"]["key"], "redacted");
    assert!(shown["body"]["leaf"].is_string(), "what is public is shown: {shown}");

    // The key in any of the forms in which it is around: lines of its PEM, base64 of its DER, of its PEM.
    let mut forms: Vec<String> = key.lines().filter(|line| line.len() > 40).map(str::to_owned).collect();
    forms.push(BASE64_STANDARD.encode(&key)[..60].to_owned());
    let (control, proxy) = (site.control.listen(), site.proxy.http());
    let mut seen = vec![shown.to_string(), site.control.log(), site.proxy.log(), site.proxy.access_log()];
    for method in ["ListProxies", "ListResources", "History", "ListProblems"] {
        seen.push(grpcurl.call(&format!("{INSPECT}/{method}"), &json!({})).await.to_string());
    }
    for page in [
        "/metrics",
        "/debug/table",
        "/configuration/certs",
        "/configuration/backends",
        "/configuration/servers",
    ] {
        for address in [site.proxy.admin(), site.control.admin()] {
            seen.push(
                client::page(&address, page).await.map(|page| page.text().to_owned()).unwrap_or_default(),
            );
        }
    }
    for form in &forms {
        for text in &seen {
            assert!(!text.contains(form.as_str()), "a private key is shown by {control} or {proxy}");
        }
    }
    // Nor is it on a disk: the folders of both planes are their own, and are looked through file by file.
    site.proxy.terminate().await;
    site.control.terminate().await;
    let written = site.control.files();
    let is_history = |file: &PathBuf| file.components().any(|part| part.as_os_str() == "state");
    let history = written.iter().filter(|file| is_history(file)).filter_map(|file| file.metadata().ok());
    assert!(
        history.map(|it| it.len()).sum::<u64>() > 100,
        "the control plane has written something: {written:?}"
    );
    for file in site.proxy.files().into_iter().chain(written) {
        let bytes = std::fs::read(&file).unwrap();
        let der = shared::pem::private_key(key.as_bytes()).unwrap();
        assert!(!bytes.windows(der.len()).any(|part| part == der), "in {}", file.display());
        let content = String::from_utf8_lossy(&bytes).into_owned();
        assert!(forms.iter().all(|form| !content.contains(form.as_str())), "in {}", file.display());
    }
}
