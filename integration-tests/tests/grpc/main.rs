//! gRPC's own interop cases (grpc/grpc, `doc/interop-test-descriptions.md`) through the real proxy, between tonic's
//! client and tonic's server: each over plaintext HTTP/2 and over TLS, on either side.
//!
//! Left out are the cases about authentication (Google's own credentials) and about compression, which the proxy does
//! not see.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "the runtime of the test owns its tasks")]

mod messages;
mod service;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use integration_tests::client::tls;
use integration_tests::objects::{self, Edit};
use integration_tests::site::{NAMESPACE, ingress, slice};
use integration_tests::{DataPlane, FolderSite, eventually};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use test_kit::certificates;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use messages::*;
use service::{INITIAL, NEVER, Seen, TRAILING, TestService};

/// A client on one way, and what the server behind it saw.
struct Case {
    way: String,
    grpc: Grpc<Channel>,
    seen: Arc<Seen>,
}

/// The proxy between clients and a server in plain and one over TLS.
struct Interop {
    site: FolderSite,
    services: [(&'static str, TestService); 2],
}

const PLAIN: &str = "plain.test";
const SECURE: &str = "secure.test";

fn server_tls() -> rustls::ServerConfig {
    let (certificate, key) = certificates::self_signed(&[SECURE]);
    let certificates = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let mut config = builder.with_single_cert(certificates, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

impl Interop {
    async fn start() -> Self {
        let site = FolderSite::start(&[]).await;
        let services = [
            (PLAIN, "GRPC", TestService::start(None).await),
            (SECURE, "GRPCS", TestService::start(Some(server_tls())).await),
        ];
        let services = services.map(|(host, protocol, service)| {
            let name = host.trim_end_matches(".test");
            site.folder.apply(&objects::service(NAMESPACE, name));
            site.folder.apply(&slice(name, &[service.address]));
            let object = ingress(name, host, &[("/", name)]).annotated("backend-protocol", protocol);
            site.folder.apply(&object);
            (host, service)
        });
        let it = Self { site, services };
        for (host, _) in &it.services {
            let channel = plain(&it.site.proxy, host).await;
            eventually(&format!("{host} is served"), || {
                let mut grpc = Grpc::new(channel.clone());
                async move {
                    unary::<_, Empty>(&mut grpc, "EmptyCall", Empty {}).await.map_err(|it| it.to_string())
                }
            })
            .await;
        }
        it
    }

    /// Each way that a call can take.
    async fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for (host, service) in &self.services {
            for (from, channel) in [
                ("plain", plain(&self.site.proxy, host).await),
                ("TLS", secure(&self.site.proxy, host).await),
            ] {
                let seen = Arc::clone(&service.seen);
                cases.push(Case { way: format!("{from} to {host}"), grpc: Grpc::new(channel), seen });
            }
        }
        cases
    }
}

async fn plain(proxy: &DataPlane, host: &str) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", proxy.http())).unwrap();
    endpoint.origin(format!("http://{host}").parse().unwrap()).connect().await.unwrap()
}

async fn secure(proxy: &DataPlane, host: &'static str) -> Channel {
    let https = proxy.https();
    let connector = tower::service_fn(move |_: http::Uri| async move {
        let secured = tls::open(https, host, &[b"h2"]).await?;
        Ok::<_, std::io::Error>(TokioIo::new(secured.connection.into_parts().0))
    });
    let endpoint = Endpoint::from_shared(format!("http://{host}")).unwrap();
    let endpoint = endpoint.origin(format!("https://{host}").parse().unwrap());
    endpoint.connect_with_connector(connector).await.unwrap()
}

type Answer<T> = Result<Response<T>, Status>;

fn path(method: &str) -> http::uri::PathAndQuery {
    let method =
        if method.contains('/') { method.to_owned() } else { format!("grpc.testing.TestService/{method}") };
    format!("/{method}").parse().unwrap()
}

async fn ready(grpc: &mut Grpc<Channel>) {
    grpc.ready().await.unwrap();
}

async fn unary<Q, A>(grpc: &mut Grpc<Channel>, method: &str, message: Q) -> Answer<A>
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    call(grpc, method, Request::new(message)).await
}

async fn call<Q, A>(grpc: &mut Grpc<Channel>, method: &str, request: Request<Q>) -> Answer<A>
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    ready(grpc).await;
    grpc.unary(request, path(method), ProstCodec::default()).await
}

/// Sends what comes from a channel.
async fn duplex(
    grpc: &mut Grpc<Channel>,
) -> (mpsc::Sender<OutputRequest>, Answer<Streaming<OutputResponse>>) {
    ready(grpc).await;
    let (sender, messages) = mpsc::channel(4);
    // A server need not say anything before it was told something.
    sender.send(wanting(&[31_415], 27_182)).await.unwrap();
    let request = Request::new(ReceiverStream::new(messages));
    (sender, grpc.streaming(request, path("FullDuplexCall"), ProstCodec::default()).await)
}

fn wanting(sizes: &[i32], own: i32) -> OutputRequest {
    OutputRequest {
        response_parameters: sizes.iter().map(|size| Wanted { size: *size }).collect(),
        payload: payload(own),
        response_status: None,
    }
}

async fn sizes(mut answers: Streaming<OutputResponse>) -> Result<Vec<i32>, Status> {
    let mut sizes = Vec::new();
    while let Some(answer) = answers.message().await? {
        sizes.push(size(answer.payload.as_ref()));
    }
    Ok(sizes)
}

async fn counts(what: &str, count: &AtomicUsize, at_least: usize) {
    eventually(what, || async {
        let now = count.load(Ordering::SeqCst);
        if now >= at_least { Ok(()) } else { Err(format!("{now} of {at_least}")) }
    })
    .await;
}

/// `empty_unary`, `large_unary`, `client_streaming`, `server_streaming`, `ping_pong`, `empty_stream`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_shape_of_a_call_passes() {
    let interop = Interop::start().await;
    for Case { way, mut grpc, .. } in interop.cases().await {
        let empty: Answer<Empty> = unary(&mut grpc, "EmptyCall", Empty {}).await;
        assert_eq!(empty.unwrap().into_inner(), Empty {}, "{way}");

        let large =
            SimpleRequest { response_size: 314_159, payload: payload(271_828), response_status: None };
        let large: Answer<SimpleResponse> = unary(&mut grpc, "UnaryCall", large).await;
        assert_eq!(size(large.unwrap().into_inner().payload.as_ref()), 314_159, "{way}");

        ready(&mut grpc).await;
        let messages = [27_182, 8, 1_828, 45_904].map(|size| InputRequest { payload: payload(size) });
        let request = Request::new(tokio_stream::iter(messages));
        let codec = ProstCodec::<InputRequest, InputResponse>::default();
        let answer = grpc.client_streaming(request, path("StreamingInputCall"), codec).await.unwrap();
        assert_eq!(answer.into_inner().aggregated_payload_size, 74_922, "{way}");

        ready(&mut grpc).await;
        let all = [31_415, 9, 2_653, 58_979];
        let request = Request::new(wanting(&all, 0));
        let answers =
            grpc.server_streaming(request, path("StreamingOutputCall"), ProstCodec::default()).await;
        assert_eq!(sizes(answers.unwrap().into_inner()).await.unwrap(), all, "{way}");

        let (sender, answers) = duplex(&mut grpc).await;
        let mut answers = answers.unwrap().into_inner();
        assert_eq!(size(answers.message().await.unwrap().unwrap().payload.as_ref()), 31_415, "{way}");
        for (wanted, own) in [(9, 8), (2_653, 1_828), (58_979, 45_904)] {
            sender.send(wanting(&[wanted], own)).await.unwrap();
            let answer = answers.message().await.unwrap().expect("an answer before the client's end");
            assert_eq!(size(answer.payload.as_ref()), wanted, "{way}");
        }
        drop(sender);
        assert!(answers.message().await.unwrap().is_none(), "{way}");

        ready(&mut grpc).await;
        let nothing = Request::new(tokio_stream::empty::<OutputRequest>());
        let answers = grpc.streaming(nothing, path("FullDuplexCall"), ProstCodec::default()).await;
        assert_eq!(sizes(answers.unwrap().into_inner()).await.unwrap(), [] as [i32; 0], "{way}");
    }
    // Calls of one worker share a connection to a server, however many there are.
    for (host, service) in &interop.services {
        let connections = service.seen.connections.load(Ordering::SeqCst);
        assert!(connections <= 2, "{connections} connections to {host} from two workers");
    }
}

/// `status_code_and_message`, `special_status_message`, `unimplemented_method`, `unimplemented_service`, `custom_metadata`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statuses_and_metadata_arrive_as_they_were_said() {
    let interop = Interop::start().await;
    for Case { way, mut grpc, .. } in interop.cases().await {
        let special = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n";
        for message in ["test status message", special] {
            let status = EchoStatus { code: Code::Unknown as i32, message: message.to_owned() };
            let request = SimpleRequest { response_status: Some(status.clone()), ..SimpleRequest::default() };
            let answer: Answer<SimpleResponse> = unary(&mut grpc, "UnaryCall", request).await;
            let error = answer.unwrap_err();
            assert_eq!((error.code(), error.message()), (Code::Unknown, message), "{way}");

            // Behind messages it stands in the trailers.
            ready(&mut grpc).await;
            let request = OutputRequest { response_status: Some(status), ..wanting(&[9], 0) };
            let request = Request::new(tokio_stream::iter([request]));
            let answers = grpc.streaming(request, path("FullDuplexCall"), ProstCodec::default()).await;
            let mut answers = answers.unwrap().into_inner();
            let first: OutputResponse = answers.message().await.unwrap().unwrap();
            assert_eq!(size(first.payload.as_ref()), 9);
            let error = answers.message().await.unwrap_err();
            assert_eq!((error.code(), error.message()), (Code::Unknown, message), "{way}");
        }
        for method in ["UnimplementedCall", "grpc.testing.UnimplementedService/UnimplementedCall"] {
            let answer: Answer<Empty> = unary(&mut grpc, method, Empty {}).await;
            assert_eq!(answer.unwrap_err().code(), Code::Unimplemented, "{way}: {method}");
        }

        let mut request = Request::new(SimpleRequest { response_size: 9, ..SimpleRequest::default() });
        let binary = MetadataValue::from_bytes(&[0xab; 3]);
        request.metadata_mut().insert(INITIAL, "test_initial_metadata_value".parse().unwrap());
        request.metadata_mut().insert_bin(TRAILING, binary.clone());
        let answer: Answer<SimpleResponse> = call(&mut grpc, "UnaryCall", request).await;
        // Of a unary call tonic puts both parts into one.
        let said = answer.unwrap();
        assert_eq!(said.metadata().get(INITIAL).unwrap(), "test_initial_metadata_value", "{way}");
        assert_eq!(said.metadata().get_bin(TRAILING).unwrap(), &binary, "{way}");
    }
}

/// `cancel_after_begin`, `cancel_after_first_response`, `timeout_on_sleeping_server`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gives_up_is_heard_by_the_server_and_a_deadline_is_kept() {
    let interop = Interop::start().await;
    for Case { way, mut grpc, seen } in interop.cases().await {
        let (before, waiting) = (seen.cancelled.load(Ordering::SeqCst), seen.waiting.load(Ordering::SeqCst));
        let never = SimpleRequest { response_size: NEVER, ..SimpleRequest::default() };
        let (mut other, asks) = (grpc.clone(), never.clone());
        let call =
            tokio::spawn(async move { unary::<_, SimpleResponse>(&mut other, "UnaryCall", asks).await });
        counts(&format!("{way}: the server has the call"), &seen.waiting, waiting + 1).await;
        call.abort();
        counts(&format!("{way}: the server hears that it was given up"), &seen.cancelled, before + 1).await;

        ready(&mut grpc).await;
        let request = Request::new(OutputRequest {
            response_parameters: [31_415, NEVER].map(|size| Wanted { size }).into(),
            ..OutputRequest::default()
        });
        let answers =
            grpc.server_streaming(request, path("StreamingOutputCall"), ProstCodec::default()).await;
        let mut answers = answers.unwrap().into_inner();
        let first: OutputResponse = answers.message().await.unwrap().unwrap();
        assert_eq!(size(first.payload.as_ref()), 31_415, "{way}");
        counts(&format!("{way}: the server waits"), &seen.waiting, waiting + 2).await;
        drop(answers);
        counts(&format!("{way}: after the first answer, too"), &seen.cancelled, before + 2).await;

        let deadlines = seen.deadlines.load(Ordering::SeqCst);
        let mut request = Request::new(never);
        request.set_timeout(Duration::from_millis(200));
        let answer: Answer<SimpleResponse> = self::call(&mut grpc, "UnaryCall", request).await;
        let error = answer.unwrap_err();
        // Its own clock is the client's, which calls that cancelled.
        assert!(matches!(error.code(), Code::DeadlineExceeded | Code::Cancelled), "{way}: {error}");
        assert_eq!(seen.deadlines.load(Ordering::SeqCst), deadlines + 1, "{way}: the server was told of it");
        counts(&format!("{way}: it hears of the end"), &seen.cancelled, before + 3).await;

        // Nobody else on these connections is harmed.
        let answer: Answer<Empty> = unary(&mut grpc, "EmptyCall", Empty {}).await;
        answer.unwrap();
    }
}

/// A proxy's own answers are HTTP's, as the original's are; a client of gRPC says what it was told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_proxy_answers_itself_is_told_to_its_caller() {
    let interop = Interop::start().await;
    let mut nobody = Grpc::new(plain(&interop.site.proxy, "nobody.test").await);
    let answer: Answer<Empty> = unary(&mut nobody, "EmptyCall", Empty {}).await;
    let error = answer.unwrap_err();
    assert!(error.message().contains("404"), "{error}");
    let mut gone = Grpc::new(plain(&interop.site.proxy, PLAIN).await);
    let Interop { site, services: [(_, service), _] } = interop;
    drop(service);
    let answer: Answer<Empty> = unary(&mut gone, "EmptyCall", Empty {}).await;
    let error = answer.unwrap_err();
    assert!(error.message().contains("502"), "{error}");
    drop(site);
}
