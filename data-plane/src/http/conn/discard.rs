//! Reads and discards the rest of a request body.

use bytes::BytesMut;

use super::client_body::Unread;
use crate::codec::stream::Stream;
use crate::http::patience::Patience;
use crate::local::Local;
use crate::local::timer::Timer;

/// Reads and discards the rest of a request body; returns whether it ended, so that the connection can be reused.
pub(super) async fn discard<S: Stream>(
    local: &Local,
    timer: &Timer,
    (stream, input): (&mut S, &mut BytesMut),
    unread: &mut Unread,
) -> bool {
    let patience = Patience::new(local, timer);
    let buffers = &local.buffers;
    while !unread.is_over() && patience.hears(|cx| unread.poll_skip(buffers, (stream, input), cx)).await {}
    timer.disarm();
    unread.is_over()
}
