//! Health and metrics pages over HTTP: the same few pages in every process, as a plain function from request to
//! response.

mod body;
mod process;
mod serve;
mod text;

use bytes::Bytes;
use http::{Method, StatusCode};

pub use body::{Body, Pieces};
pub use process::Process;
pub use serve::{Bound, Limits, Listener, Local, serve, serve_within};
pub use text::classic;

/// Pages that the kubelet requests: they are answered on the connection's task, and wait for no other page.
const PROBES: [&str; 3] = ["/healthz", "/readyz", "/livez"];

/// Provides the pages of an admin or health address.
pub trait Pages: Send + Sync + 'static {
    /// The page at a path, or `None` for 404. Must not block for a probe's path; other pages are made on threads of
    /// their own, few at once.
    fn page(&self, path: &str, query: Option<&str>) -> Option<Page>;
}

/// A response.
#[derive(Debug)]
pub struct Page {
    /// Status code.
    pub status: StatusCode,
    /// Value of Content-Type.
    pub content_type: &'static str,
    /// The body.
    pub body: Body,
}

impl Page {
    /// Plain text.
    pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: Body::Whole(body.into()) }
    }

    /// JSON.
    pub fn json(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self { status, content_type: "application/json", body: Body::Whole(body.into()) }
    }

    /// Prometheus' text format.
    pub fn prometheus(body: Body) -> Self {
        let content_type = "text/plain; version=0.0.4; charset=utf-8";
        Self { status: StatusCode::OK, content_type, body }
    }

    /// 200 `ok`, or 503 with the problem.
    pub fn health(problem: Option<String>) -> Self {
        match problem {
            None => Self::text(StatusCode::OK, "ok\n"),
            Some(problem) => Self::text(StatusCode::SERVICE_UNAVAILABLE, format!("{problem}\n")),
        }
    }
}

/// The response to a method, path and query.
pub fn respond(pages: &dyn Pages, method: &Method, path: &str, query: Option<&str>) -> Page {
    if method != Method::GET && method != Method::HEAD {
        return Page::text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD: these pages change nothing\n");
    }
    pages.page(path, query).unwrap_or_else(|| Page::text(StatusCode::NOT_FOUND, "not found\n"))
}

#[cfg(test)]
mod tests {
    use http::{Method, StatusCode};

    use super::{Page, Pages, respond};

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
        let posted = respond(&One, &Method::POST, "/one", None);
        assert_eq!(posted.body.into_bytes(), "only GET and HEAD: these pages change nothing\n");
    }

    #[test]
    fn health_is_ok_or_says_what_is_missing() {
        assert_eq!(Page::health(None).status, StatusCode::OK);
        let ill = Page::health(Some("no list of Ingresses yet".to_owned()));
        assert_eq!(ill.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(ill.body.into_bytes(), "no list of Ingresses yet\n");
    }
}
