//! HTTP/2 from clients: hyper speaks it, and each stream becomes the head and the body that the pipeline knows.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use bytes::BytesMut;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::spawn_local;
use tracing::{debug, error};

use super::peer::Peer;
use crate::codec::error::Kind;
use crate::codec::stream::{Prefixed, Stream};
use crate::http::server::Server;
use crate::local::isolated::isolated;
use pace::{Pace, Paced};
use stream::{Busy, answer};

mod body;
mod pace;
mod stream;

/// Requests at once on a connection (configmap.md 1.5 has 128; security.md 2 asks for 100).
const STREAMS: u32 = 100;
/// Size of a header list, in bytes; the guard's limit for a whole head.
const HEADER_LIST: u32 = 64 * 1024;
/// Streams that were reset before they were served; more end the connection (CVE-2023-44487).
const PENDING_RESETS: usize = 20;
/// Streams that we had to reset because of the client's own errors (CVE-2025-8671).
const CAUSED_RESETS: usize = 128;
/// Bytes of request body that a client may send ahead, a stream and a connection.
const STREAM_WINDOW: u32 = 128 * 1024;
const CONNECTION_WINDOW: u32 = 512 * 1024;
/// Bytes of response body that wait for the client, a stream.
const SEND_BUFFER: usize = 64 * 1024;

/// Serves a connection to its end. `begun` is what was read of it already.
pub(crate) async fn serve<S: Stream>(server: Rc<Server>, peer: Peer, stream: S, begun: BytesMut) {
    let timer = server.local.timers.timer();
    let busy = Busy::default();
    let pace = Pace::default();
    let peer = Rc::new(peer);
    let service = {
        let (server, busy, peer) = (Rc::clone(&server), busy.clone(), Rc::clone(&peer));
        let pace = pace.clone();
        service_fn(move |request: http::Request<Incoming>| {
            let stream = busy.stream();
            answer(Rc::clone(&server), Rc::clone(&peer), request, pace.clone(), stream)
        })
    };
    let executor = Streams { server: Rc::clone(&server), pace };
    let connection = Builder::new(executor)
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADER_LIST)
        .max_pending_accept_reset_streams(PENDING_RESETS)
        .max_local_error_reset_streams(CAUSED_RESETS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(Prefixed::new(begun, stream)), service);
    let mut connection = pin!(connection);
    let mut leaving = false;
    let mut idle = false;
    let outcome = poll_fn(|cx| {
        if let Poll::Ready(outcome) = connection.as_mut().poll(cx) {
            return Poll::Ready(outcome);
        }
        // The clock of an idle connection runs while it has no stream.
        if idle != (busy.count() == 0) {
            idle = !idle;
            if idle {
                timer.arm(server.local.limits.idle);
            } else {
                timer.disarm();
            }
        }
        let over = timer.poll_elapsed(cx).is_ready();
        if (over || server.local.closing()) && !leaving {
            leaving = true;
            connection.as_mut().graceful_shutdown();
            // GOAWAY goes out, and a connection without streams ends.
            timer.arm(server.local.limits.linger);
            let _ = timer.poll_elapsed(cx);
            return connection.as_mut().poll(cx);
        }
        // A client that does not answer GOAWAY and has no streams is not waited for.
        if leaving && over && busy.count() == 0 {
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    });
    if let Err(failure) = outcome.await {
        debug!(client = %peer.address(), error = %failure, "HTTP/2 connection ended");
    }
}

/// Runs streams on the worker; a panic ends the one, and so does a client that does not take its answer.
#[derive(Clone)]
struct Streams {
    server: Rc<Server>,
    pace: Pace,
}

impl<F: Future<Output = ()> + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let metrics = Arc::clone(&self.server.local.metrics);
        let stream = Paced::new(&self.server.local, self.pace.clone(), stream);
        spawn_local(async move {
            match isolated(stream).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => metrics.failed(Kind::ClientTimeout),
                Err(panic) => {
                    metrics.panics.add(1);
                    error!(%panic, "a stream's task panicked; the stream is closed");
                }
            }
        });
    }
}
