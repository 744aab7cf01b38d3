//! The rest of a streamed request body whose response has begun: it is sent on while the response is relayed, as nginx
//! does without `proxy_request_buffering`. An endpoint may answer as it reads.
//!
//! Unlike nginx, nothing more is sent after an error: the endpoint does not want it, may never read it, and may close
//! before its response was read (RFC 9112 section 9.5).

use std::task::{Context, Poll};

use super::{Sending, State};
use crate::codec::body::RequestBody;
use crate::codec::error::ProxyError;
use crate::local::Local;
use crate::local::quota::Share;
use crate::local::timer::Timer;
use crate::table::Sizes;
use crate::upstream::link::Link;
use crate::upstream::payload::Payload;

/// What is still to be sent.
pub(crate) struct Rest {
    sending: Sending<'static>,
    /// Bytes read so far.
    read: u64,
    sizes: Sizes,
    /// The budget share of what its endpoint does not take.
    untaken: Option<Share>,
    timer: Timer,
    /// Where it comes from, if not from the client's connection itself.
    source: Option<Box<dyn RequestBody>>,
}

impl std::fmt::Debug for Rest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rest after {} bytes", self.read)
    }
}

impl Rest {
    /// What remains of a request to which the response has this status; `None` if that is nothing, is not wanted, or
    /// cannot be sent any more.
    pub(super) fn of<B: RequestBody>(
        sending: Sending<'_>,
        payload: &mut Payload<'_, B>,
        status: u16,
        local: &Local,
    ) -> Option<Self> {
        let Sending { out, writer, place, state, starved, timeouts, mut stall, .. } = sending;
        if status >= 400 || !matches!(state, State::Sending | State::Ending) {
            return None;
        }
        let (read, sizes, untaken) = payload.streamed()?;
        let timer = local.timers.timer();
        match starved {
            true => timer.arm(timeouts.client_body),
            false => stall.begin(&timer, timeouts.send, None),
        }
        let sending = Sending {
            out: out.headless()?,
            rest: None,
            writer,
            place,
            state,
            starved,
            broken: None,
            timeouts,
            stall,
        };
        Some(Self { sending, read, sizes, untaken, timer, source: None })
    }

    /// From here on it is read from this source, which does not need the connection.
    pub(crate) fn comes_from(&mut self, source: Option<Box<dyn RequestBody>>) {
        self.source = source;
    }

    /// Sends what can be sent now, from `client` unless it has a source of its own. Ready when nothing more can be: with
    /// true if all is sent.
    ///
    /// # Errors
    /// The client disconnects, stops sending, sends too much or breaks the framing; or the endpoint takes nothing.
    pub(crate) fn poll(
        &mut self,
        local: &Local,
        link: &mut Link,
        client: Option<&mut dyn RequestBody>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<bool, ProxyError>> {
        let Self { sending, read, sizes, untaken, timer, source } = self;
        let client: &mut dyn RequestBody = match (source, client) {
            (Some(source), _) => &mut **source,
            (None, Some(client)) => client,
            (None, None) => return Poll::Ready(Ok(false)),
        };
        let mut payload = Payload::Streamed { client, read: *read, sizes: *sizes, untaken: untaken.take() };
        let sent = sending.poll(local, timer, link, &mut payload, cx);
        (*read, *untaken) = payload.streamed().map_or((*read, None), |(read, _, untaken)| (read, untaken));
        link.has_sent(sending.out.written());
        match sending.state {
            _ if sent.is_err() => Poll::Ready(sent.map(|()| false)),
            State::Sent => Poll::Ready(Ok(true)),
            State::Broken => Poll::Ready(Ok(false)),
            State::Sending | State::Ending => {
                sending.poll_over(timer, link, cx).map(|()| Err(sending.waits_for().into()))
            }
        }
    }
}
