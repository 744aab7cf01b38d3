//! The channel from a source to the task that owns the index. Events are stamped with the time at which they are sent, so that time
//! spent in the queue counts.

use std::time::Instant;

use shared::clock;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::{SendError, TryRecvError, TrySendError};

use super::Input;

/// Where a source sends what it sees. Endpoints have a channel of their own, which is drained first.
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

/// An input, and when its source had it.
type Stamped = (Instant, Input);

/// One of the channels, where a source sends.
#[derive(Clone, Debug)]
pub struct Way(mpsc::Sender<Stamped>);

/// One of the channels, where they arrive.
#[derive(Debug)]
pub struct Arrivals {
    channel: mpsc::Receiver<Stamped>,
    /// When the first of them set out that were taken since somebody asked.
    first: Option<Instant>,
}

impl Inputs {
    /// Both channels. A source waits when `capacity` inputs were not taken yet.
    pub fn channel(capacity: usize) -> (Self, Receivers) {
        let ((endpoints, from_endpoints), (objects, from_objects)) = (channel(capacity), channel(capacity));
        let receivers = Receivers { endpoints: from_endpoints, objects: from_objects };
        (Self { endpoints, objects }, receivers)
    }

    /// Says on both ways that the lists of a round were sent.
    ///
    /// # Errors
    /// Where nobody reads any more.
    pub async fn fresh(&self, round: u64) -> Result<(), SendError<Stamped>> {
        self.endpoints.send(Input::Fresh(round)).await?;
        self.objects.send(Input::Fresh(round)).await
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
    /// Where nobody reads any more.
    pub async fn send(&self, input: Input) -> Result<(), SendError<Stamped>> {
        self.0.send((clock::now(), input)).await
    }

    /// Sends where there is room.
    ///
    /// # Errors
    /// If there is no receiver, or it has gone away.
    pub fn try_send(&self, input: Input) -> Result<(), TrySendError<Stamped>> {
        self.0.try_send((clock::now(), input))
    }
}

impl Arrivals {
    /// The next input; `None` where nobody sends any more.
    pub async fn recv(&mut self) -> Option<Input> {
        let arrived = self.channel.recv().await?;
        Some(self.take(arrived))
    }

    /// The next input that is there.
    ///
    /// # Errors
    /// Where there is none.
    pub fn try_recv(&mut self) -> Result<Input, TryRecvError> {
        let arrived = self.channel.try_recv()?;
        Ok(self.take(arrived))
    }

    /// How many there are.
    pub fn waiting(&self) -> usize {
        self.channel.len()
    }

    /// When the first of those set out that were taken since this was asked; `None`: none was taken.
    pub fn first(&mut self) -> Option<Instant> {
        self.first.take()
    }

    fn take(&mut self, (at, input): Stamped) -> Input {
        self.first = Some(self.first.map_or(at, |first| first.min(at)));
        input
    }
}

impl Receivers {
    /// When the first of all inputs set out that were taken since this was asked.
    pub fn first(&mut self) -> Option<Instant> {
        earlier(self.endpoints.first(), self.objects.first())
    }
}

/// The earlier one of those that there are.
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
