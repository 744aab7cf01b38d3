//! Health and metrics over HTTP: the same few pages on every process, as a plain function from request to response.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tracing::{debug, warn};

/// Answers one request of an admin or health address.
pub trait Pages: Send + Sync + 'static {
    /// The page of a path, or `None` for 404. Must not block.
    fn page(&self, path: &str, query: Option<&str>) -> Option<Page>;
}

/// One answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// Status code.
    pub status: StatusCode,
    /// Value of Content-Type.
    pub content_type: &'static str,
    /// What is sent.
    pub body: Bytes,
}

impl Page {
    /// Plain text.
    pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: body.into() }
    }

    /// JSON.
    pub fn json(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self { status, content_type: "application/json", body: body.into() }
    }

    /// Prometheus' text format, OpenMetrics flavour.
    pub fn metrics(body: impl Into<Bytes>) -> Self {
        let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        Self { status: StatusCode::OK, content_type, body: body.into() }
    }

    /// 200 `ok` or 503 with what is missing.
    pub fn health(problem: Option<String>) -> Self {
        match problem {
            None => Self::text(StatusCode::OK, "ok\n"),
            Some(problem) => Self::text(StatusCode::SERVICE_UNAVAILABLE, format!("{problem}\n")),
        }
    }
}

/// The answer to a method, path and query.
pub fn respond(pages: &dyn Pages, method: &Method, path: &str, query: Option<&str>) -> Page {
    if method != Method::GET && method != Method::HEAD {
        return Page::text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
    }
    pages.page(path, query).unwrap_or_else(|| Page::text(StatusCode::NOT_FOUND, "not found\n"))
}

/// Serves pages on a listener until dropped. Errors of single connections are logged and harm nobody else.
///
/// # Errors
/// Never; the signature fits [`crate::tasks::Supervisor`].
#[allow(clippy::disallowed_methods, reason = "a connection's task is owned by its connection")]
pub async fn serve(listener: TcpListener, pages: Arc<dyn Pages>) -> Result<(), Infallible> {
    loop {
        let (stream, peer): (_, SocketAddr) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "accept failed on the admin address");
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                continue;
            }
        };
        let pages = Arc::clone(&pages);
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let page = respond(&*pages, request.method(), request.uri().path(), request.uri().query());
                async move { Ok::<_, Infallible>(into_response(page)) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                debug!(%peer, %error, "admin connection ended");
            }
        });
    }
}

fn into_response(page: Page) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(page.body));
    *response.status_mut() = page.status;
    let content_type = header::HeaderValue::from_static(page.content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::{Method, StatusCode};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::{Page, Pages, respond, serve};

    struct One;

    impl Pages for One {
        fn page(&self, path: &str, query: Option<&str>) -> Option<Page> {
            (path == "/one").then(|| Page::text(StatusCode::OK, query.unwrap_or("none").to_owned()))
        }
    }

    #[test]
    fn pages_are_found_by_path_and_only_read() {
        let status = |method, path| respond(&One, &method, path, None).status;
        assert_eq!(status(Method::GET, "/one"), StatusCode::OK);
        assert_eq!(status(Method::HEAD, "/one"), StatusCode::OK);
        assert_eq!(status(Method::GET, "/two"), StatusCode::NOT_FOUND);
        assert_eq!(status(Method::POST, "/one"), StatusCode::METHOD_NOT_ALLOWED);
    }

    #[test]
    fn health_is_ok_or_says_what_is_missing() {
        assert_eq!(Page::health(None).status, StatusCode::OK);
        let ill = Page::health(Some("no list of Ingresses yet".to_owned()));
        assert_eq!(
            (ill.status, &*ill.body),
            (StatusCode::SERVICE_UNAVAILABLE, &b"no list of Ingresses yet\n"[..])
        );
    }

    #[tokio::test]
    async fn a_client_that_talks_nonsense_harms_nobody_else() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let ask = async |request: &str| {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let questions = async {
            assert!(!ask("nonsense\r\n\r\n").await.contains(" 200 "));
            let answer = ask("GET /one?a=b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\na=b"), "{answer}");
        };
        tokio::select! {
            _ = serve(listener, Arc::new(One)) => unreachable!("it serves for ever"),
            () = questions => {}
        }
    }
}
