//! A control plane that answers questions as a test says.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

/// Bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Makes the response of a method and a message.
type Reply = dyn Fn(&str, &[u8]) -> Vec<u8> + Send + Sync;

#[derive(Clone)]
struct Fake(Arc<Reply>);

/// Starts one that answers with what `reply` makes of the method and the message that came. Returns its address; it serves as
/// long as the task is kept.
pub(crate) fn start(reply: impl Fn(&str, &[u8]) -> Vec<u8> + Send + Sync + 'static) -> (String, JoinSet<()>) {
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = format!("http://{}", incoming.local_addr().unwrap());
    let mut task = JoinSet::new();
    let server = Server::builder().add_service(Fake(Arc::new(reply))).serve_with_incoming(incoming);
    task.spawn(async { server.await.unwrap() });
    (address, task)
}

impl NamedService for Fake {
    const NAME: &'static str = "firth.inspect.v1.Inspect";
}

impl Service<Request<Body>> for Fake {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self(reply) = self.clone();
        Box::pin(async move {
            let path = request.uri().path().to_owned();
            let asked = request.into_body().collect().await.unwrap().to_bytes();
            let answer = reply(path.rsplit('/').next().unwrap(), &asked[PREFIX..]);
            let length = u32::try_from(answer.len()).unwrap().to_be_bytes();
            let message = Bytes::from([&[0][..], &length, &answer].concat());
            let ok = (HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
            let body = Full::new(message).with_trailers(ready(Some(Ok(HeaderMap::from_iter([ok])))));
            let mut response = Response::new(Body::new(body));
            let grpc = HeaderValue::from_static("application/grpc");
            response.headers_mut().insert("content-type", grpc);
            Ok(response)
        })
    }
}
