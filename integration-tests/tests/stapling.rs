//! OCSP stapling through both planes: `openssl ocsp` responds, `openssl s_client` checks the staple.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "the runtime of the test owns its tasks")]

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use integration_tests::objects::{self, Edit};
use integration_tests::process::Process;
use integration_tests::site::{NAMESPACE, ingress};
use integration_tests::{FolderSite, eventually, eventually::same, ports};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, IsCa, Issuer, KeyPair, SerialNumber,
};
use serde_json::json;
use tempfile::TempDir;

const HOST: &str = "a.test";

/// An authority, a certificate of it that says where its status is known, and the files of `openssl`.
struct Authority {
    folder: TempDir,
    certificate: String,
    key: String,
}

impl Authority {
    fn new(responder: SocketAddr) -> Self {
        let (mut params, pair) = (CertificateParams::new(vec![]).unwrap(), KeyPair::generate().unwrap());
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&pair).unwrap().pem();
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("authority.pem"), &root).unwrap();
        fs::write(folder.path().join("authority.key"), pair.serialize_pem()).unwrap();
        // As `openssl ca` keeps it: valid, until, number, name.
        fs::write(folder.path().join("index.txt"), "V\t991231235959Z\t\t4D\tunknown\t/CN=a.test\n").unwrap();
        let issuer = Issuer::new(params, pair);
        let (mut params, pair) =
            (CertificateParams::new(vec![HOST.to_owned()]).unwrap(), KeyPair::generate().unwrap());
        params.serial_number = Some(SerialNumber::from(0x4d_u64));
        params.custom_extensions.push(access(&format!("http://{responder}/")));
        let leaf = params.signed_by(&pair, &issuer).unwrap().pem();
        Self { folder, certificate: leaf + &root, key: pair.serialize_pem() }
    }

    fn responder(&self, at: SocketAddr) -> Process {
        let mut command = Command::new("openssl");
        command.args(["ocsp", "-port", &at.port().to_string(), "-index", "index.txt", "-ndays", "1"]);
        command.args(["-CA", "authority.pem", "-rsigner", "authority.pem", "-rkey", "authority.key"]);
        command.current_dir(self.folder.path());
        Process::spawn("responder", &mut command, self.folder.path())
    }
}

/// Authority information access (RFC 5280 section 4.2.2.1) with one place for OCSP.
fn access(place: &str) -> CustomExtension {
    let value = |tag: u8, content: &[u8]| [&[tag, u8::try_from(content.len()).unwrap()], content].concat();
    let ocsp = value(0x06, &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01]);
    let one = value(0x30, &[ocsp, value(0x86, place.as_bytes())].concat());
    CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], value(0x30, &one))
}

/// A proxy of `a.test` with staples, and these flags.
async fn site(authority: &Authority, flags: &[&str]) -> FolderSite {
    let secret = objects::tls_secret(NAMESPACE, "secret", &authority.certificate, &authority.key);
    let said =
        objects::config_map("ingress-nginx", "ingress-nginx-controller", json!({"enable-ocsp": "true"}));
    let site = FolderSite::start_with(&[secret, said], &[], flags).await;
    let _origin = site.origin("one").await;
    let listed = json!([{"hosts": [HOST], "secretName": "secret"}]);
    site.folder.apply(&ingress("web", HOST, &[("/", "one")]).with("/spec/tls", listed));
    site.proxy.answers(HOST, "/", 308).await;
    site
}

/// What a client is told of the certificate.
fn told(https: SocketAddr, folder: &Path) -> String {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &https.to_string(), "-servername", HOST, "-status"]);
    command.args(["-CAfile", "authority.pem", "-verify_return_error"]).current_dir(folder);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("Verify return code: 0 (ok)"), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_shown_with_the_word_of_its_authority() {
    let responder = ports::free();
    let authority = Authority::new(responder);
    let process = authority.responder(responder);
    // One that is not there would be asked again a minute later. It serves one after the other: a connection on which
    // nothing is asked would be the last.
    process.logs("waiting for OCSP client connections").await;
    let site = site(&authority, &["--ocsp-networks", "127.0.0.0/8"]).await;
    let (https, folder) = (site.proxy.https(), authority.folder.path());
    eventually("a staple is shown", || async {
        let told = told(https, folder);
        let wanted = ["OCSP Response Status: successful", "Cert Status: good", "Serial Number: 4D"];
        if wanted.iter().all(|line| told.contains(line)) { Ok(()) } else { Err(told) }
    })
    .await;
    eventually("it is counted", || async {
        let metrics = site.proxy.metrics().await;
        same((metrics.sum("firth_ocsp_stapled"), metrics.sum("firth_ocsp_answers")), (1.0, 1.0))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_place_in_a_network_of_ones_own_is_asked_because_a_certificate_says_so() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = Authority::new(listener.local_addr().unwrap());
    let site = site(&authority, &[]).await;
    let (https, folder) = (site.proxy.https(), authority.folder.path());
    eventually("it would have been asked", || async {
        assert!(told(https, folder).contains("OCSP response: no response sent"));
        let failures = site.proxy.metrics().await.sum("firth_ocsp_failures");
        if failures == 1.0 { Ok(()) } else { Err(failures) }
    })
    .await;
    let asked = tokio::time::timeout(std::time::Duration::ZERO, listener.accept()).await;
    assert!(asked.is_err(), "nobody was connected to");
    site.proxy.logs("--ocsp-networks").await;
}
