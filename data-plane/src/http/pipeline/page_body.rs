//! The body of a request that is sent for an error page, or for a page in place of what the client requested.

use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::net::TcpStream;

use crate::codec::body::{Outlet, RequestBody};
use crate::codec::error::ProxyError;

/// Where such a body comes from. Its client is watched in any case.
pub(super) struct PageBody<'b, B> {
    pub(super) client: &'b mut B,
    pub(super) source: Source,
}

/// The source of such a body.
pub(super) enum Source {
    /// Nowhere: it was spent or refused.
    Nothing,
    /// What the backend that failed was sent.
    Kept(Box<dyn RequestBody>),
    /// The client: nothing of it was read.
    Client,
}

impl<B: RequestBody> RequestBody for PageBody<'_, B> {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ProxyError>> {
        match &mut self.source {
            Source::Nothing => Poll::Ready(Ok(None)),
            Source::Kept(body) => body.poll_piece(cx),
            Source::Client => self.client.poll_piece(cx),
        }
    }

    fn wants(&mut self, bytes: usize) {
        if self.is_clients() {
            self.client.wants(bytes);
        }
    }

    fn has_arrived(&self) -> bool {
        !self.is_clients() || self.client.has_arrived()
    }

    fn passable(&mut self) -> Option<(&TcpStream, u64)> {
        if self.is_clients() { self.client.passable() } else { None }
    }

    fn passed(&mut self, bytes: usize) {
        self.client.passed(bytes);
    }

    fn held(&self) -> usize {
        if self.is_clients() { self.client.held() } else { 0 }
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.client.poll_gone(cx)
    }

    fn watch(&mut self) {
        self.client.watch();
    }

    fn outlet(&mut self) -> Option<&mut dyn Outlet> {
        self.client.outlet()
    }

    fn detach(&mut self) -> Option<Box<dyn RequestBody>> {
        if self.is_clients() { self.client.detach() } else { None }
    }
}

impl<B> PageBody<'_, B> {
    fn is_clients(&self) -> bool {
        matches!(self.source, Source::Client)
    }
}
