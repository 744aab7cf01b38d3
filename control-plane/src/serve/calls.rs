//! `ConfigStream` as gRPC over HTTP/2, with frames that are sent without copying.
//!
//! tonic encodes each message into a buffer of its call. That copies the shared frame once per stream, and the buffer keeps the size of the
//! largest message that it ever held: a hundred kilobytes per proxy after its first sync. Here HTTP/2 is given the shared frame itself.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response};
use hyper::body::{Body as HttpBody, Frame as HttpFrame};
use tokio::sync::mpsc;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Code, Status, Streaming};

use super::Service;
use super::limits::Limits;
use super::reader::Reader;
use super::stream::Item;

/// The only method.
const CONNECT: &str = "/firth.config.v1.ConfigStream/Connect";

/// The compression of a call's messages, if any.
const ENCODING: &str = "grpc-encoding";

/// Serves the calls of `ConfigStream`.
#[derive(Clone, Debug)]
pub(super) struct Calls(pub(super) Service);

impl NamedService for Calls {
    const NAME: &'static str = "firth.config.v1.ConfigStream";
}

impl<B> tower_service::Service<Request<B>> for Calls
where
    B: HttpBody + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let answer = answer(&self.0, request).unwrap_or_else(Status::into_http);
        Box::pin(std::future::ready(Ok(answer)))
    }
}

fn answer<B>(service: &Service, request: Request<B>) -> Result<Response<Body>, Status>
where
    B: HttpBody + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
{
    if request.uri().path() != CONNECT {
        return Err(Status::unimplemented("expected Connect, the one call of this service"));
    }
    if request.headers().get(ENCODING).is_some_and(|it| it != "identity") {
        return Err(Status::unimplemented("compressed messages are not supported"));
    }
    let request =
        request.map(|body| Streaming::new_request(Reader::default(), body, None, Some(Limits::MESSAGE)));
    let frames = service.connect(tonic::Request::from_http(request))?;
    let mut response = Response::new(Body::new(Frames { frames, is_over: false }));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(response)
}

/// The frames for a proxy, then the status of the stream.
struct Frames {
    frames: mpsc::Receiver<Item>,
    is_over: bool,
}

impl HttpBody for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<HttpFrame<Bytes>, Infallible>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let end = match ready!(self.frames.poll_recv(cx)) {
            Some(Ok(frame)) => return Poll::Ready(Some(Ok(HttpFrame::data(frame.delimited())))),
            Some(Err(status)) => status,
            None => Status::new(Code::Ok, ""),
        };
        self.is_over = true;
        Poll::Ready(Some(Ok(HttpFrame::trailers(trailers(&end)))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over
    }
}

fn trailers(end: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    if let Err(other) = end.add_header(&mut trailers) {
        // The status message did not fit into a header; this one does.
        trailers.clear();
        let _ = Status::new(other.code(), "").add_header(&mut trailers);
    }
    trailers
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, StreamBody};
    use prost::Message as _;
    use shared::clock;
    use shared::proto::config::control_message::Message;
    use shared::proto::config::proxy_message::Message as MessageBody;
    use shared::proto::config::{Goodbye, Heartbeat, Hello, ProxyMessage};
    use tokio::sync::watch;
    use tokio_stream::wrappers::ReceiverStream;

    use super::super::tests::offering;
    use super::*;
    use crate::store::Frame;

    fn frames(items: impl IntoIterator<Item = Item>) -> Frames {
        let (out, frames) = mpsc::channel(4);
        items.into_iter().for_each(|item| out.try_send(item).unwrap());
        Frames { frames, is_over: false }
    }

    async fn data(frames: &mut Frames) -> Bytes {
        frames.frame().await.unwrap().unwrap().into_data().unwrap()
    }

    #[tokio::test]
    async fn streams_send_the_same_bytes() {
        let frame = Frame::encode(Message::Heartbeat(Heartbeat { lanes: vec![Default::default(); 40] }));
        let [mut one, mut other] = [0, 1].map(|_| frames([Ok(frame.clone())]));
        let (one, other) = (data(&mut one).await, data(&mut other).await);
        assert_eq!(one.as_ptr(), other.as_ptr(), "nothing is copied");
        let (prefix, message) = one.split_at(5);
        assert_eq!(prefix, [0, 0, 0, 0, u8::try_from(frame.len()).unwrap()]);
        assert_eq!(message, frame.message());
    }

    #[tokio::test]
    async fn the_end_is_said_in_trailers() {
        let refused = Status::permission_denied("not \n yours");
        for (items, code, message) in
            [(None, "0", None), (Some(Err(refused)), "7", Some("not%20%0A%20yours"))]
        {
            let mut frames = frames(items);
            let trailers = frames.frame().await.unwrap().unwrap().into_trailers().unwrap();
            assert_eq!(trailers["grpc-status"], code);
            assert_eq!(trailers.get("grpc-message").map(|it| it.to_str().unwrap()), message);
            assert!(frames.is_end_stream() && frames.frame().await.is_none());
        }
    }

    #[tokio::test]
    async fn what_is_no_call_of_ours_is_said_so() {
        let service = super::super::tests::service();
        let call = |path: &str, encoding: &str| {
            let request = Request::post(path).header(ENCODING, encoding).body(Body::empty()).unwrap();
            answer(&service, request).map(|_| ()).map_err(|status| status.code())
        };
        assert_eq!(call("/firth.config.v1.ConfigStream/Other", "identity"), Err(Code::Unimplemented));
        assert_eq!(call(CONNECT, "gzip"), Err(Code::Unimplemented));
        assert_eq!(call(CONNECT, "identity"), Err(Code::Unavailable), "nothing was read yet");
    }

    fn message(message: MessageBody) -> Result<HttpFrame<Bytes>, Status> {
        let message = ProxyMessage { message: Some(message) }.encode_to_vec();
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        Ok(HttpFrame::data([&[0][..], &length, &message].concat().into()))
    }

    /// A proxy that ends says goodbye and closes the connection; this side may hear of both at once.
    #[tokio::test]
    async fn a_goodbye_counts_that_arrives_with_the_end() {
        let (_leaves, leaving) = watch::channel(false);
        let (_store, service) = offering(leaving);
        let (say, request) = mpsc::channel(4);
        let request = Request::post(CONNECT).body(StreamBody::new(ReceiverStream::new(request))).unwrap();
        let response = answer(&service, request).unwrap();
        let mut changes = service.registry.changes();
        let hello = Hello { proxy_id: "a".into(), group: "default".into(), ..Hello::default() };
        say.send(message(MessageBody::Hello(hello))).await.unwrap();
        while service.registry.len() == 0 {
            changes.changed().await.unwrap();
        }
        say.try_send(message(MessageBody::Goodbye(Goodbye {}))).unwrap();
        drop((say, response));
        while service.registry.len() > 0 {
            changes.changed().await.unwrap();
        }
        assert!(service.registry.have_all_left(clock::now()), "{:?}", service.registry.list());
    }
}
