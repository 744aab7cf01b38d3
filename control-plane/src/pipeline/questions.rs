//! Reviews of Ingresses that are not stored yet, for the webhook.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::index::Verdict;
use crate::objects::Ingress;

/// A request to review an Ingress. The answer is `None` while not everything was read yet.
#[derive(Debug)]
pub struct Question {
    ingress: Arc<Ingress>,
    reply: oneshot::Sender<Option<Verdict>>,
}

impl Question {
    /// A request, and the receiver of its answer.
    pub fn new(ingress: Arc<Ingress>) -> (Self, oneshot::Receiver<Option<Verdict>>) {
        let (reply, answer) = oneshot::channel();
        (Self { ingress, reply }, answer)
    }

    /// Answers it, if anybody still waits.
    pub fn judge(self, judge: impl FnOnce(&Arc<Ingress>) -> Option<Verdict>) {
        let _ = self.reply.send(judge(&self.ingress));
    }
}

/// The next request; never resolves if there is no channel.
pub(super) async fn next(questions: &mut Option<mpsc::Receiver<Question>>) -> Question {
    if let Some(receiver) = questions
        && let Some(question) = receiver.recv().await
    {
        return question;
    }
    *questions = None;
    std::future::pending().await
}
