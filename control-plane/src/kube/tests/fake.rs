//! A minimal in-memory API server: it records requests and responds as a test says.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use tonic::codegen::{Bytes, Service};

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// What the query says, as it is meant.
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) body: serde_json::Value,
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// This status with this body.
    Text(u16, String),
    /// A page with a date: seconds since 1970.
    Dated(u64),
    /// A watch on which nothing happens.
    Silence,
    /// This text, after so long.
    Late(Duration, String),
    /// No answer at all.
    Nothing,
}

/// The server.
#[derive(Clone)]
pub(crate) struct Fake {
    asked: Arc<Mutex<Vec<Asked>>>,
    reply: Arc<dyn Fn(&Asked) -> Reply + Send + Sync>,
}

impl Fake {
    /// One that answers like this.
    pub(crate) fn new(reply: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        Self { asked: Arc::default(), reply: Arc::new(reply) }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    /// Everything that it was asked so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

impl Service<Request<Body>> for Fake {
    type Response = Response<UnsyncBoxBody<Bytes, Infallible>>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.expect("a body in memory").to_bytes();
            let query = head.uri.query().unwrap_or_default().split('&').filter_map(|it| it.split_once('='));
            let asked = Asked {
                method: head.method,
                path: head.uri.path().to_owned(),
                query: query.map(|(key, value)| (key.to_owned(), meant(value))).collect(),
                body: serde_json::from_slice(&body).unwrap_or_default(),
            };
            server.asked.lock().unwrap().push(asked.clone());
            let mut response = Response::builder();
            let (status, body) = match (server.reply)(&asked) {
                Reply::Dated(seconds) => {
                    let date = std::time::UNIX_EPOCH + Duration::from_secs(seconds);
                    response = response.header("date", httpdate::fmt_http_date(date));
                    (200, Full::new(Bytes::from("{}")).boxed_unsync())
                }
                Reply::Text(status, text) => (status, Full::new(Bytes::from(text)).boxed_unsync()),
                Reply::Silence => (200, StreamBody::new(futures::stream::pending()).boxed_unsync()),
                Reply::Late(time, text) => {
                    tokio::time::sleep(time).await;
                    (200, Full::new(Bytes::from(text)).boxed_unsync())
                }
                Reply::Nothing => std::future::pending().await,
            };
            Ok(response.status(status).body(body).expect("a status"))
        })
    }
}

/// RFC 3986 2.1.
fn meant(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at(2);
        bytes.push(u8::from_str_radix(code, 16).expect("two digits"));
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8(bytes).expect("text")
}

/// What the API server says where it does not do what it is asked.
pub(crate) fn status(code: u16) -> Reply {
    Reply::Text(
        code,
        format!(r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","code":{code}}}"#),
    )
}
