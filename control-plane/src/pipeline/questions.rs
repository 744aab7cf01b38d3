//! Reviews of Ingresses that are not stored yet, for the webhook.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::index::Verdict;
use crate::objects::Ingress;

/// What somebody wants to know of an Ingress. `None` is told where nobody can say: not everything was read yet.
#[derive(Debug)]
pub struct Question {
    ingress: Arc<Ingress>,
    reply: oneshot::Sender<Option<Verdict>>,
}

impl Question {
    /// A question, and its answer.
    pub fn new(ingress: Arc<Ingress>) -> (Self, oneshot::Receiver<Option<Verdict>>) {
        let (reply, answer) = oneshot::channel();
        (Self { ingress, reply }, answer)
    }

    /// Answers it. Nobody may wait for that any more.
    pub fn judge(self, judge: impl FnOnce(&Arc<Ingress>) -> Option<Verdict>) {
        let _ = self.reply.send(judge(&self.ingress));
    }
}

/// The next question; never where nobody asks.
pub(super) async fn next(questions: &mut Option<mpsc::Receiver<Question>>) -> Question {
    if let Some(receiver) = questions
        && let Some(question) = receiver.recv().await
    {
        return question;
    }
    *questions = None;
    std::future::pending().await
}
