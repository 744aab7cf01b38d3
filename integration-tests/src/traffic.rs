//! Steady requests while something changes, and what became of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::task::JoinSet;

use crate::client::{Answer, Connection};

/// One client after another asks for a host and path over kept-alive connections until it is told to stop.
#[derive(Debug)]
pub struct Traffic {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    clients: JoinSet<Vec<String>>,
}

/// What a client asks for, and who may answer.
#[derive(Clone, Debug)]
pub struct Question {
    /// Value of Host.
    pub host: String,
    /// Target.
    pub path: String,
    /// Names of the origins that may answer, at any time.
    pub answers: Vec<String>,
}

impl Question {
    /// Who may answer for a host and path.
    pub fn new(host: &str, path: &str, answers: &[&str]) -> Self {
        Self {
            host: host.to_owned(),
            path: path.to_owned(),
            answers: answers.iter().map(ToString::to_string).collect(),
        }
    }

    fn judge(&self, answer: &Answer) -> Result<(), String> {
        let by = answer.origin().unwrap_or("the proxy itself");
        if answer.status == 200 && self.answers.iter().any(|name| name == by) {
            Ok(())
        } else {
            Err(format!("{}{}: {} by {by}", self.host, self.path, answer.status))
        }
    }
}

impl Traffic {
    /// As many clients as given, each asking all questions in turn.
    pub fn start(address: SocketAddr, clients: usize, questions: &[Question]) -> Self {
        let questions: Arc<[Question]> = questions.into();
        let (stop, asked) = (Arc::default(), Arc::default());
        let mut running = JoinSet::new();
        for client in 0..clients {
            let (questions, stop, asked) = (Arc::clone(&questions), Arc::clone(&stop), Arc::clone(&asked));
            running.spawn(ask(address, questions, client, stop, asked));
        }
        Self { stop, asked, clients: running }
    }

    /// Requests so far.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Stops, and returns what went wrong with which request; nothing, when none was lost or misrouted.
    pub async fn stop(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.clients.join_all().await.concat()
    }
}

/// A keep-alive connection that the proxy closes between two requests is no loss: RFC 9112 9.3.1 lets it, and tells
/// clients to ask again. One that ends after the first byte of an answer is.
async fn ask(
    address: SocketAddr,
    questions: Arc<[Question]>,
    first: usize,
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let mut connection = None;
    for question in questions.iter().cycle().skip(first) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let kept = connection.take();
        let again = kept.is_some();
        let mut current = match kept {
            Some(kept) => kept,
            None => match Connection::open(address).await {
                Ok(opened) => opened,
                Err(error) => {
                    problems.push(format!("cannot connect: {error}"));
                    continue;
                }
            },
        };
        let answer = match current.get(&question.host, &question.path).await {
            Err(_) if again && current.is_untouched() => match Connection::open(address).await {
                Ok(opened) => {
                    current = opened;
                    current.get(&question.host, &question.path).await
                }
                Err(error) => Err(error),
            },
            answer => answer,
        };
        asked.fetch_add(1, Ordering::Relaxed);
        match answer {
            Ok(answer) => {
                problems.extend(question.judge(&answer).err());
                if answer.header("connection") != Some("close") {
                    connection = Some(current);
                }
            }
            Err(error) => problems.push(format!("{}{}: {error}", question.host, question.path)),
        }
    }
    problems
}
