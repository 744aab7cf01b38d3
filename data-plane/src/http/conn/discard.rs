//! Reading the rest of a request's body away.

use std::future::poll_fn;
use std::task::Poll;

use bytes::BytesMut;

use super::client_body::Unread;
use crate::codec::stream::Stream;
use crate::http::patience::Patience;
use crate::local::Local;
use crate::local::timer::Timer;

/// Reads the rest of a request's body away; whether it ended, so that the connection may go on.
pub(super) async fn discard<S: Stream>(
    local: &Local,
    timer: &Timer,
    (stream, input): (&mut S, &mut BytesMut),
    unread: &mut Unread,
) -> bool {
    let mut patience = Patience::new(local, timer);
    while !unread.is_over() {
        let more = patience.arm()
            && poll_fn(|cx| match unread.poll_skip(stream, input, cx) {
                Poll::Pending => timer.poll_elapsed(cx).map(|_| false),
                came => came,
            })
            .await;
        if !more {
            break;
        }
    }
    timer.disarm();
    unread.is_over()
}
