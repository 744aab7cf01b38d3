//! The channel from a source to the task that owns the index. Events are stamped with the time at which they are sent, so that time
//! spent in the queue counts.

use std::time::Instant;

use shared::clock;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::{SendError, TryRecvError, TrySendError};

use super::Input;

/// The sending side of a source. Endpoints have a channel of their own, which is drained first.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// EndpointSlices alone.
    pub endpoints: Way,
    /// All other kinds, and decisions.
    pub objects: Way,
}

/// The receiving ends of [`Inputs`].
#[derive(Debug)]
pub struct Receivers {
    /// EndpointSlices alone.
    pub endpoints: Arrivals,
    /// All other kinds, and decisions.
    pub objects: Arrivals,
}

/// An input, and when its source sent it.
type Stamped = (Instant, Input);

/// The sending end of one channel.
#[derive(Clone, Debug)]
pub struct Way(mpsc::Sender<Stamped>);

/// The receiving end of one channel.
#[derive(Debug)]
pub struct Arrivals {
    channel: mpsc::Receiver<Stamped>,
    /// The earliest send time of the inputs that were taken since the last call of `first`.
    first: Option<Instant>,
}

impl Inputs {
    /// Creates both channels. A source waits if `capacity` inputs are pending.
    pub fn channel(capacity: usize) -> (Self, Receivers) {
        let ((endpoints, from_endpoints), (objects, from_objects)) = (channel(capacity), channel(capacity));
        let receivers = Receivers { endpoints: from_endpoints, objects: from_objects };
        (Self { endpoints, objects }, receivers)
    }

    /// Number of channels on which the end of a round is reported.
    pub(crate) const WAYS: usize = 2;

    /// Reports on both channels that the lists of a round were sent; if it is not `whole`, those that may be read.
    ///
    /// # Errors
    /// If the receiver was dropped.
    pub async fn fresh(&self, round: u64, is_whole: bool) -> Result<(), SendError<Stamped>> {
        self.send_both(Input::Fresh { round, is_whole }).await
    }

    /// Reports on both channels that what was in the folder was sent.
    ///
    /// # Errors
    /// If the receiver was dropped.
    pub async fn caught_up(&self, round: u64) -> Result<(), SendError<Stamped>> {
        self.send_both(Input::CaughtUp(round)).await
    }

    async fn send_both(&self, input: Input) -> Result<(), SendError<Stamped>> {
        let ways: [_; Self::WAYS] = [&self.endpoints, &self.objects];
        for way in ways {
            way.send(input.clone()).await?;
        }
        Ok(())
    }
}

fn channel(capacity: usize) -> (Way, Arrivals) {
    let (sender, channel) = mpsc::channel(capacity);
    (Way(sender), Arrivals { channel, first: None })
}

impl Way {
    /// Sends once there is room.
    ///
    /// # Errors
    /// If the receiver was dropped.
    pub async fn send(&self, input: Input) -> Result<(), SendError<Stamped>> {
        self.0.send((clock::now(), input)).await
    }

    /// Sends if there is room.
    ///
    /// # Errors
    /// If there is no room, or the receiver was dropped.
    pub fn try_send(&self, input: Input) -> Result<(), TrySendError<Stamped>> {
        self.0.try_send((clock::now(), input))
    }
}

impl Arrivals {
    /// The next input; `None` if all senders were dropped.
    pub async fn recv(&mut self) -> Option<Input> {
        let arrived = self.channel.recv().await?;
        Some(self.take(arrived))
    }

    /// The next input, if one is pending.
    ///
    /// # Errors
    /// If none is.
    pub fn try_recv(&mut self) -> Result<Input, TryRecvError> {
        let arrived = self.channel.try_recv()?;
        Ok(self.take(arrived))
    }

    /// The number of pending inputs.
    pub fn waiting(&self) -> usize {
        self.channel.len()
    }

    /// The earliest send time of the inputs that were taken since the last call; `None`: none was taken.
    pub fn first(&mut self) -> Option<Instant> {
        self.first.take()
    }

    fn take(&mut self, (at, input): Stamped) -> Input {
        self.first = Some(self.first.map_or(at, |first| first.min(at)));
        input
    }
}

impl Receivers {
    /// The earliest send time over both channels of the inputs that were taken since the last call.
    pub fn first(&mut self) -> Option<Instant> {
        earlier(self.endpoints.first(), self.objects.first())
    }
}

/// The earlier of two optional times.
pub fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::objects::ObjectKind;

    #[tokio::test]
    async fn what_waits_keeps_the_time_at_which_it_set_out() {
        let (inputs, mut receivers) = Inputs::channel(4);
        assert_eq!(receivers.first(), None);
        let before = clock::now();
        inputs.objects.send(Input::Synced(ObjectKind::Ingress)).await.unwrap();
        let between = clock::now();
        while clock::now() < between + Duration::from_millis(2) {
            tokio::task::yield_now().await;
        }
        inputs.endpoints.try_send(Input::Synced(ObjectKind::EndpointSlice)).unwrap();
        assert_eq!(receivers.first(), None, "nobody took it yet");
        assert_eq!(receivers.endpoints.recv().await, Some(Input::Synced(ObjectKind::EndpointSlice)));
        assert_eq!(receivers.objects.try_recv(), Ok(Input::Synced(ObjectKind::Ingress)));
        let first = receivers.first().unwrap();
        assert!((before..=between).contains(&first), "the earlier one, however it was taken");
        assert_eq!(receivers.first(), None, "it is told once");
    }
}
