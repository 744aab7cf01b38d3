//! Hold requests on their way to the source, which stores them. The pipeline never waits for it.
//!
//! **Invariant:** at most one request per object, the newest.

use std::collections::BTreeMap;

use tokio::sync::mpsc;

use crate::event::HoldRequest;
use crate::objects::ObjectRef;

/// Requests that did not fit into the channel yet.
#[derive(Debug, Default)]
pub(super) struct Holds {
    waiting: BTreeMap<ObjectRef, HoldRequest>,
}

impl Holds {
    /// Sends as many as fit; the rest is sent when there is room.
    pub(super) fn ask(&mut self, requests: Vec<HoldRequest>, to: &mpsc::Sender<HoldRequest>) {
        for request in requests {
            self.waiting.insert(object_of(&request), request);
        }
        while let Ok(permit) = to.try_reserve()
            && let Some((_, request)) = self.waiting.pop_first()
        {
            permit.send(request);
        }
    }

    /// Sends a waiting request once there is room; never resolves if none waits, or the receiver was dropped.
    pub(super) async fn room(&mut self, to: &mpsc::Sender<HoldRequest>) {
        if self.waiting.is_empty() {
            return std::future::pending().await;
        }
        let Ok(permit) = to.reserve().await else {
            return std::future::pending().await;
        };
        if let Some((_, request)) = self.waiting.pop_first() {
            permit.send(request);
        }
    }
}

fn object_of(request: &HoldRequest) -> ObjectRef {
    match request {
        HoldRequest::Write(hold) => hold.object.reference(),
        HoldRequest::Erase(object) => object.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::ObjectKind;
    use shared::name::ObjectName;

    fn erase(name: &str) -> HoldRequest {
        HoldRequest::Erase(ObjectRef { kind: ObjectKind::Ingress, name: ObjectName::new("default", name) })
    }

    #[tokio::test]
    async fn what_does_not_fit_is_sent_later_and_once() {
        let (to, mut from) = mpsc::channel(1);
        let mut holds = Holds::default();
        holds.ask(vec![erase("a"), erase("b"), erase("b")], &to);
        assert_eq!(from.recv().await, Some(erase("a")));
        holds.room(&to).await;
        assert_eq!(from.recv().await, Some(erase("b")));
        assert!(holds.waiting.is_empty());
    }
}
