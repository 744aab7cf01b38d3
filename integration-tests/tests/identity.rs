//! Both planes over TLS, from outside: a client with a certificate gets what its role permits, any other a TLS alert.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use integration_tests::client::{self, tls};
use integration_tests::eventually::PATIENCE;
use integration_tests::faults::Relay;
use integration_tests::grpc::{Inspect, call};
use integration_tests::identity::{Peer, enrolment, token};
use integration_tests::plane::binary;
use integration_tests::site::ingress;
use integration_tests::{
    ControlPlane, DataPlane, FolderSite, Ledger, Question, Source, Traffic, eventually, eventually_within,
    objects,
};
use shared::clock;
use shared::proto::config::proxy_message::Message;
use shared::proto::config::{ControlMessage, Hello, ProxyMessage};
use shared::proto::identity::{
    EnrolRequest, Issued, RenewRequest, RotateAuthorityRequest, RotateAuthorityResponse,
};
use shared::proto::inspect::{ListProxiesRequest, ListProxiesResponse};
use tempfile::TempDir;
use test_kit::certificates;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

/// A control plane with an authority of its own.
struct Bench {
    control: ControlPlane,
    folder: integration_tests::Folder,
    dir: TempDir,
}

impl Bench {
    async fn start(further: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let folder = FolderSite::folder(&[]);
        let ca = dir.path().join("ca");
        let flags = [&["--ca-dir", ca.to_str().unwrap()], further].concat();
        let control = ControlPlane::start_with(&Source::folder(&folder), &flags).await;
        Self { control, folder, dir }
    }

    fn ca(&self) -> PathBuf {
        self.dir.path().join("ca")
    }

    fn address(&self) -> SocketAddr {
        self.control.listen()
    }

    async fn peer(&self, role: &str, name: &str) -> Peer {
        let token = token(&self.ca(), &["--role", role]).await;
        Peer::join(self.address(), &token, name).await.unwrap()
    }

    /// A proxy that has joined, at this address.
    async fn site_by(self, address: SocketAddr) -> (FolderSite, TempDir) {
        let token = token(&self.ca(), &[]).await;
        let proxy = DataPlane::start_with(address, &["--join", &token]).await;
        (FolderSite { proxy, control: self.control, folder: self.folder }, self.dir)
    }
}

/// Number of trusted roots.
fn roots(ca: &Path) -> usize {
    std::fs::read_to_string(ca.join("ca.pem")).unwrap().matches("BEGIN").count()
}

/// Opens a stream as a proxy with a given name does; returns the first message.
async fn stream(channel: Channel, id: &str, group: &str) -> Result<ControlMessage, Status> {
    let hello = Hello { proxy_id: id.to_owned(), group: group.to_owned(), ..Hello::default() };
    let said = tokio_stream::iter([ProxyMessage { message: Some(Message::Hello(hello)) }]);
    let said = tokio_stream::StreamExt::chain(said, tokio_stream::pending());
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::from_static("/firth.config.v1.ConfigStream/Connect");
    let codec = ProstCodec::<ProxyMessage, ControlMessage>::default();
    let mut heard = grpc.streaming(Request::new(said), path, codec).await?.into_inner();
    heard.message().await.map(|first| first.expect("a first message"))
}

async fn ask(peer: &Peer, address: SocketAddr) -> Result<ListProxiesResponse, String> {
    let channel = peer.channel(address).await.map_err(|error| format!("{error:?}"))?;
    Inspect::over(channel).proxies().await.map_err(|status| format!("{status:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_goes_on_through_renewals_and_a_rotation_of_the_authority() {
    let bench = Bench::start(&["--certificate-life", "6s"]).await;
    let operator = bench.peer("operator", "somebody").await;
    let (ca, address) = (bench.ca(), bench.address());
    let (site, _dir) = bench.site_by(address).await;
    let origins = [site.origin("one").await, site.origin("two").await];
    let ledger = Ledger::new();
    origins.iter().for_each(|origin| ledger.endpoints(origin.name(), &[origin.name()]));
    ledger.routes("a.test", "one");
    site.route("web", "a.test", &origins[0]).await;
    let traffic = Traffic::start_on(ledger, site.proxy.http(), 2, &[Question::moving("a.test", "/")]);

    let asked = Grpc::new(operator.channel(address).await.unwrap());
    let method = "firth.identity.v1.Identity/RotateAuthority";
    let rotated: RotateAuthorityResponse = call(asked, method, RotateAuthorityRequest {}).await.unwrap();
    assert_eq!((rotated.signs_in_seconds, roots(&ca)), (9, 2));
    let mut turn = 0;
    eventually_within(Duration::from_secs(90), "the old root is gone, and edits arrive all the time", || {
        turn += 1;
        let origin = &origins[turn % 2];
        let (site, traffic, ca) = (&site, &traffic, &ca);
        async move {
            traffic.ledger().routes("a.test", origin.name());
            site.folder.apply(&ingress("web", "a.test", &[("/", origin.name())]));
            traffic.shows("a.test").await;
            match roots(ca) {
                1 => Ok(()),
                more => Err(more),
            }
        }
    })
    .await;
    let issued = site.control.log().matches("a certificate is issued").count();
    assert!(issued >= 5, "18 s are three lives of 6 s: {issued} certificates");
    let metrics = site.proxy.metrics().await;
    assert_eq!(metrics.sum("firth_streams"), 1.0, "one stream all the time");
    let left = metrics.sum("firth_certificate_until_timestamp_seconds") - clock::unix(clock::wall()) as f64;
    assert!((0.0..7.0).contains(&left), "it was renewed, and that is told: {left} s");
    traffic.stop().await.assert_clean();

    // A proxy that joins now knows only the new root.
    let token = token(&ca, &[]).await;
    let late = DataPlane::start_with(address, &["--join", &token]).await;
    late.serves("a.test", "/", origins[turn % 2].name()).await;
}

#[tokio::test]
async fn who_has_no_certificate_gets_an_alert_and_nothing_else() {
    let bench = Bench::start(&[]).await;
    let address = bench.address();

    // A client without a certificate notices this at the first read (TLS 1.3).
    let secured = tls::open(address, "control-plane.firth", &[b"h2"]).await.unwrap();
    let error = secured.connection.into_parts().0.read_u8().await.unwrap_err().to_string();
    assert!(error.contains("CertificateRequired"), "{error}");

    // Plaintext, and noise: at most one record, which is an alert.
    for bytes in [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        b"GET / HTTP/1.1\r\n\r\n",
        &[0; 64],
        &[0x16, 3, 1, 0, 1, 9],
    ] {
        let mut plain = TcpStream::connect(address).await.unwrap();
        plain.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        // Closed with bytes unread, it may end with a reset.
        let _ = plain.read_to_end(&mut answer).await;
        assert!(answer.is_empty() || (answer.len() <= 7 && answer[0] == 0x15), "{bytes:?}: {answer:?}");
    }

    // TLS 1.2 is not supported, nor is any other protocol.
    let other = tls::open(address, "control-plane.firth", &[b"http/1.1"]).await.unwrap_err().to_string();
    assert!(other.contains("NoApplicationProtocol"), "{other}");
    assert!(!bench.control.log().contains("panicked"));
}

#[tokio::test]
async fn who_enrols_needs_a_proof_and_reaches_nothing_else() {
    let bench = Bench::start(&[]).await;
    let address = bench.address();
    let good = token(&bench.ca(), &[]).await;
    let channel = enrolment(address, &good).await.unwrap();
    let listed: Result<ListProxiesResponse, Status> = call(
        Grpc::new(channel.clone()),
        "firth.inspect.v1.Inspect/ListProxies",
        ListProxiesRequest::default(),
    )
    .await;
    assert_eq!(listed.unwrap_err().code(), Code::Unimplemented);
    assert_eq!(stream(channel.clone(), "edge-00", "default").await.unwrap_err().code(), Code::Unimplemented);
    let renewed: Result<Issued, Status> =
        call(Grpc::new(channel), "firth.identity.v1.Identity/Renew", RenewRequest::default()).await;
    assert_eq!(renewed.unwrap_err().code(), Code::Unimplemented);

    // One letter of the secret is changed.
    let secret = good.split('.').nth(2).unwrap();
    let other: String = secret.chars().map(|c| if c == 'a' { 'b' } else { 'a' }).collect();
    let guessed = Peer::join(address, &good.replace(secret, &other), "edge").await.unwrap_err();
    assert_eq!(guessed.code(), Code::PermissionDenied);
    assert_eq!(Peer::join(address, &good, "a/b").await.unwrap_err().code(), Code::InvalidArgument);
    assert!(Peer::join(address, &good, "edge").await.is_ok(), "neither has used it up");
    assert_eq!(Peer::join(address, &good, "edge").await.unwrap_err().code(), Code::PermissionDenied, "used");
    let late = DataPlane::spawn(address, &["--join", &good]);
    eventually("it says which certificate it lacks, and why", || async {
        let page = client::page(&late.health(), "/readyz").await.map_err(|error| error.to_string())?;
        let told = ["no certificate for proxy ", " of group default: refused: ", "token"];
        let (status, text) = (page.status, page.text());
        if status == 503 && told.iter().all(|it| text.contains(it)) { Ok(()) } else { Err(text.to_owned()) }
    })
    .await;
    let elsewhere = token(&bench.ca(), &["--group", "other"]).await;
    assert_eq!(Peer::join(address, &elsewhere, "edge").await.unwrap_err().code(), Code::PermissionDenied);
    let log = bench.control.log();
    for told in [&good, &elsewhere] {
        assert!(!log.contains(told.split('.').nth(2).unwrap()), "a secret is in the log");
    }
}

#[tokio::test]
async fn a_message_of_enrolment_has_its_size_to_the_byte() {
    const MESSAGE: usize = 32 * 1024;
    let bench = Bench::start(&[]).await;
    let channel = enrolment(bench.address(), &token(&bench.ca(), &[]).await).await.unwrap();
    for (bytes, taken) in [(MESSAGE, true), (MESSAGE + 1, false)] {
        // The field's own tag and length take four of them.
        let asked = EnrolRequest { request: vec![0; bytes - 4].into(), ..EnrolRequest::default() };
        let path = "firth.identity.v1.Enrolment/Enrol";
        let answer: Result<Issued, Status> = call(Grpc::new(channel.clone()), path, asked).await;
        assert_eq!(answer.unwrap_err().code() != Code::OutOfRange, taken, "{bytes}");
    }
}

#[tokio::test]
async fn each_role_may_do_what_is_its_own() {
    let bench = Bench::start(&[]).await;
    let address = bench.address();
    let [proxy, reader, operator] = [
        bench.peer("proxy", "edge").await,
        bench.peer("reader", "somebody").await,
        bench.peer("operator", "somebody").await,
    ];
    for (peer, questions, streams, commands, renewals) in [
        (&proxy, false, true, false, true),
        (&reader, true, false, false, false),
        (&operator, true, false, true, false),
    ] {
        let channel = peer.channel(address).await.unwrap();
        let may = |code: Option<Code>| code != Some(Code::PermissionDenied);
        let listed = Inspect::over(channel.clone()).proxies().await;
        assert_eq!(may(listed.err().map(|status| status.code())), questions);
        let heard = stream(channel.clone(), "edge-0a", "default").await;
        assert_eq!(may(heard.err().map(|status| status.code())), streams);
        let renewed: Result<Issued, Status> =
            call(Grpc::new(channel.clone()), "firth.identity.v1.Identity/Renew", RenewRequest::default())
                .await;
        assert_eq!(may(renewed.err().map(|status| status.code())), renewals);
        let method = "firth.identity.v1.Identity/RotateAuthority";
        let rotated: Result<RotateAuthorityResponse, Status> =
            call(Grpc::new(channel), method, RotateAuthorityRequest {}).await;
        assert_eq!(may(rotated.err().map(|status| status.code())), commands);
    }
    // Not with another proxy's name, and not for another group.
    for (id, group, code) in [
        ("other-0a", "default", Code::PermissionDenied),
        ("edge", "default", Code::PermissionDenied),
        ("edge-0b", "other", Code::FailedPrecondition),
    ] {
        let refused = stream(proxy.channel(address).await.unwrap(), id, group).await.unwrap_err();
        assert_eq!(refused.code(), code, "{id} of {group}");
    }
}

#[tokio::test]
async fn another_authority_another_group_and_the_past_are_refused() {
    let (bench, stranger) = (Bench::start(&[]).await, Bench::start(&[]).await);
    let own = bench.peer("operator", "somebody").await;
    let theirs = stranger.peer("operator", "somebody").await;
    assert!(ask(&own, bench.address()).await.is_ok());
    assert!(
        ask(&own, stranger.address()).await.unwrap_err().contains("UnknownIssuer"),
        "the client looks, too"
    );
    // A client that trusts the right authority and has a certificate of another one.
    let mixed = Peer { roots: own.roots.clone(), ..theirs };
    assert!(ask(&mixed, bench.address()).await.is_err());

    // The same authority, but another group: its certificates are not valid here.
    let ca = bench.ca();
    let flags = ["--ca-dir", ca.to_str().unwrap(), "--group", "other"];
    let neighbour = ControlPlane::start_with(&Source::folder(&bench.folder), &flags).await;
    assert!(ask(&own, neighbour.listen()).await.is_err());
    let proxy = bench.peer("proxy", "edge").await;
    for group in ["other", "default"] {
        let refused = match proxy.channel(neighbour.listen()).await {
            Ok(channel) => stream(channel, "edge-0a", group).await.map(|_| ()),
            Err(error) => Err(Status::unavailable(error.to_string())),
        };
        assert!(refused.is_err(), "{group}");
    }
    neighbour.logs("is of another group").await;

    let brief = Bench::start(&["--certificate-life", "4s"]).await;
    let reader = brief.peer("reader", "somebody").await;
    let open = Inspect::over(reader.channel(brief.address()).await.unwrap());
    assert!(open.proxies().await.is_ok());
    eventually("a certificate ends, and the connection with it", || async {
        match (ask(&reader, brief.address()).await, open.proxies().await) {
            (Err(_), Err(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_handshakes_that_stop_keep_nobody_out() {
    let bench = Bench::start(&[]).await;
    let address = bench.address();
    let mut held = Vec::new();
    for number in 0..1_000 {
        let mut slow = TcpStream::connect(address).await.unwrap();
        if number % 2 == 0 {
            slow.write_all(&[0x16, 3, 1, 1, 0, 1, 0, 0, 0xfc, 3, 3]).await.unwrap();
        }
        held.push(slow);
    }
    let (site, _dir) = bench.site_by(address).await;
    let one = site.origin("one").await;
    site.route("web", "a.test", &one).await;
    let mut left = held.len();
    let all_end = async {
        for mut slow in held {
            // However it ends.
            let _ = slow.read_to_end(&mut Vec::new()).await;
            left -= 1;
        }
    };
    let _ = tokio::time::timeout(2 * PATIENCE, all_end).await;
    assert_eq!(left, 0, "each is closed when its time is over");
}

/// Somebody took the record of the authority away from its folder, and left the roots that are believed there. A process that ended for
/// that would end each time, and nobody would ever have an authority again.
#[tokio::test]
async fn a_folder_without_its_authority_is_waited_for() {
    let dir = TempDir::new().unwrap();
    let ca = dir.path().join("ca");
    let folder = FolderSite::folder(&[]);
    let flags = ["--ca-dir", ca.to_str().unwrap()];
    let mut control = ControlPlane::start_with(&Source::folder(&folder), &flags).await;
    control.terminate().await;
    let (record, aside) = (ca.join("authority-1"), dir.path().join("aside"));
    std::fs::rename(&record, &aside).unwrap();
    control.start_again();
    control.waits_for("its roots are published: another control plane may write it again").await;
    assert!(!record.exists(), "it has made one");
    std::fs::rename(&aside, &record).unwrap();
    control.serves().await;
}

#[tokio::test]
async fn nothing_that_passes_between_the_planes_can_be_read() {
    let (certificate, key) = certificates::self_signed(&["secret-host.test"]);
    let tls = serde_json::json!([{"hosts": ["secret-host.test"], "secretName": "cert"}]);
    let key_der = shared::pem::private_key(key.as_bytes()).unwrap();
    // The same in plaintext first, to prove that the search finds it.
    for encrypted in [false, true] {
        let dir = TempDir::new().unwrap();
        let folder = FolderSite::folder(&[objects::tls_secret("default", "cert", &certificate, &key)]);
        let ca = dir.path().join("ca");
        let flags: &[&str] = if encrypted { &["--ca-dir", ca.to_str().unwrap()] } else { &[] };
        let control = ControlPlane::start_with(&Source::folder(&folder), flags).await;
        let relay = Relay::start(control.listen()).await;
        relay.listen_in();
        let token = if encrypted { token(&ca, &[]).await } else { String::new() };
        let flags: &[&str] = if encrypted { &["--join", &token] } else { &[] };
        let proxy = DataPlane::start_with(relay.address(), flags).await;
        let site = FolderSite { proxy, control, folder };
        let one = site.origin("one").await;
        let mut web = ingress("web", "secret-host.test", &[("/", "one")]);
        web["spec"]["tls"] = tls.clone();
        site.folder.apply(&web);
        eventually("the certificate is shown", || async {
            let (_, names) =
                tls::get(site.proxy.https(), "secret-host.test", "/").await.map_err(|e| e.to_string())?;
            if names == ["secret-host.test"] { Ok(()) } else { Err(format!("{names:?}")) }
        })
        .await;
        drop(one);
        let heard = relay.heard();
        for (what, bytes) in
            [("a host", &b"secret-host.test"[..]), ("a private key", &key_der[key_der.len() - 32..])]
        {
            let found = heard.windows(bytes.len()).any(|window| window == bytes);
            assert_eq!(found, !encrypted, "{what}, encrypted: {encrypted}");
        }
    }
}

#[tokio::test]
async fn a_person_rotates_the_authority_and_sees_each_phase() {
    let bench = Bench::start(&["--certificate-life", "6s"]).await;
    let (server, ca) = (format!("https://{}", bench.address()), bench.ca());
    let home = TempDir::new().unwrap();
    let firth = async |words: &[&str]| {
        let mut command = Command::new(binary("firth"));
        command.args(words).args(["--server", &server]).arg("--identity").arg(home.path());
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        let [said, complaint] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
        if output.status.success() { Ok(said) } else { Err(complaint) }
    };
    // For six seconds each time.
    let login = async |role: &str| firth(&["login", "--ca-dir", ca.to_str().unwrap(), "--role", role]).await;
    let phases = async || {
        login("reader").await?;
        let shown: serde_json::Value =
            serde_json::from_str(&firth(&["authority", "-o", "json"]).await?).unwrap();
        let roots = shown["roots"].as_array().unwrap();
        let phases: Vec<String> =
            roots.iter().map(|root| root["phase"].as_str().unwrap().to_owned()).collect();
        assert_eq!(
            (shown["certificate_seconds"].as_u64(), shown["rotating"] == true),
            (Some(6), phases.len() > 1)
        );
        Ok::<_, String>(phases)
    };
    assert_eq!(phases().await.unwrap(), ["signs"]);
    login("operator").await.unwrap();
    let told = firth(&["authority", "rotate"]).await.unwrap();
    assert!(told.contains("rotation, 1 of 2") && told.contains("believed"), "{told}");
    let again = firth(&["authority", "rotate"]).await.unwrap_err();
    assert!(again.contains("a rotation is under way"), "{again}");
    for expected in [&["signs", "believed"][..], &["leaves", "signs"], &["signs"]] {
        eventually_within(Duration::from_secs(60), &format!("{expected:?}"), || async {
            let seen = phases().await?;
            if seen == expected { Ok(()) } else { Err(format!("{seen:?}")) }
        })
        .await;
    }
    let metrics = bench.control.metrics().await;
    let now = clock::unix(clock::wall()) as f64;
    let left = |name: &str| metrics.sum(name) - now;
    let certificate = left("firth_control_certificate_until_timestamp_seconds");
    assert!((-1.0..7.0).contains(&certificate), "{certificate}");
    assert!(left("firth_control_authority_until_timestamp_seconds") > 2.0 * 365.0 * 86_400.0);
}
