//! The tunnel after a 101: relays bytes in both directions until both ends have finished.

use std::time::Duration;

use bytes::BytesMut;
use tracing::debug;

use crate::codec::stream::Stream;
use crate::http::pipeline::log::RequestInfo;
use crate::local::Local;
use crate::local::relay::{End, Idle, Moved, relay};
use crate::local::timer::Timer;
use crate::upstream::link::Link;
use crate::upstream::wire::Wire;

/// Relays until both directions have ended, one has failed, or both were idle for nginx' timeouts: `proxy-read-timeout`,
/// and `send_timeout` while the client takes nothing. `rest` is what the client sent after its request.
pub(crate) async fn tunnel<S: Stream>(
    worker: (&Local, &Timer),
    client: &mut S,
    rest: BytesMut,
    link: Link,
    read: Duration,
    info: &mut RequestInfo,
) {
    let Link { stream: endpoint, input, .. } = link;
    let client = End { stream: client, input: rest };
    let told = |moved: Moved| {
        let down = usize::try_from(moved.down).unwrap_or(usize::MAX);
        info.relayed(down, down);
    };
    let idle = Idle { silent: read, untaken: worker.0.limits.client_send };
    let relayed = match endpoint {
        // As what it is, so that it is seen to be a socket.
        Wire::Plain(mut socket) => {
            relay(worker, client, End { stream: &mut socket, input }, idle, told).await
        }
        Wire::Tls(mut tls) => relay(worker, client, End { stream: &mut tls, input }, idle, told).await,
    };
    if let Err(error) = relayed {
        debug!(%error, "tunnel was cut");
    }
}
