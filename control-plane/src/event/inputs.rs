//! The way from a source to the task that owns the index.

use tokio::sync::mpsc;

use super::Input;

/// Where a source sends what it sees. Endpoints have a channel of their own, which is drained first.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// EndpointSlices alone.
    pub endpoints: mpsc::Sender<Input>,
    /// All other kinds, and decisions.
    pub objects: mpsc::Sender<Input>,
}

/// The receiving ends of [`Inputs`].
#[derive(Debug)]
pub struct Receivers {
    /// EndpointSlices alone.
    pub endpoints: mpsc::Receiver<Input>,
    /// All other kinds, and decisions.
    pub objects: mpsc::Receiver<Input>,
}

impl Inputs {
    /// Both channels. A source waits when `capacity` inputs were not taken yet.
    pub fn channel(capacity: usize) -> (Self, Receivers) {
        let (endpoints, from_endpoints) = mpsc::channel(capacity);
        let (objects, from_objects) = mpsc::channel(capacity);
        let receivers = Receivers { endpoints: from_endpoints, objects: from_objects };
        (Self { endpoints, objects }, receivers)
    }
}
