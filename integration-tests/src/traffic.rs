//! Steady requests during changes, each recorded on a [`Ledger`].

mod wire;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::eventually::eventually;
use crate::ledger::{Ledger, Summary};
use wire::{Shared, Wire};

/// Delay before a client reconnects after a failure.
const AGAIN: Duration = Duration::from_millis(20);

/// Clients that send requests for a host and path over kept-alive connections until they are stopped.
#[derive(Debug)]
pub struct Traffic {
    stop: Arc<AtomicBool>,
    ledger: Ledger,
    clients: JoinSet<()>,
    begun: Instant,
}

/// What a client requests, and which origins may answer.
#[derive(Clone, Debug)]
pub struct Question {
    /// Value of Host.
    pub host: String,
    /// Target.
    pub path: String,
    /// Sent with POST, if not empty; it must be echoed.
    pub body: Vec<u8>,
    /// Names of the origins that may answer at any time; empty: the ledger's versions define that.
    pub answers: Vec<String>,
}

/// The protocol of clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// Kept-alive connections, one request after another.
    Http1,
    /// A connection for each request.
    Http1Once,
    /// Prior knowledge, one stream after another.
    Http2,
    /// Over TLS. Clients that join together share a connection: each has a stream of it in flight.
    Http2OverTls,
    /// Each request is a message, which the origin echoes. A client closes its socket after some, and opens another.
    WebSocket,
}

impl Question {
    /// These origins may answer for a host and path, at any time.
    pub fn new(host: &str, path: &str, answers: &[&str]) -> Self {
        let answers = answers.iter().map(ToString::to_string).collect();
        Self { host: host.to_owned(), path: path.to_owned(), body: Vec::new(), answers }
    }

    /// [`Ledger::routes`] and [`Ledger::endpoints`] define which origins may answer.
    pub fn moving(host: &str, path: &str) -> Self {
        Self::new(host, path, &[])
    }

    /// The same as a POST with a body of this size.
    #[must_use]
    pub fn posting(mut self, size: usize) -> Self {
        self.body = (0..size).map(|at| b'a' + (at % 26) as u8).collect();
        self
    }

    fn method(&self) -> &'static str {
        if self.body.is_empty() { "GET" } else { "POST" }
    }
}

impl Traffic {
    /// Starts this many clients, each sending all requests in turn.
    pub fn start(address: SocketAddr, clients: usize, questions: &[Question]) -> Self {
        Self::start_on(Ledger::new(), address, clients, questions)
    }

    /// On a ledger that already defines which origins may answer.
    pub fn start_on(ledger: Ledger, address: SocketAddr, clients: usize, questions: &[Question]) -> Self {
        let mut it = Self::on(ledger);
        it.join(address, clients, Protocol::Http1, questions);
        it
    }

    /// Without clients.
    pub fn on(ledger: Ledger) -> Self {
        Self { stop: Arc::default(), ledger, clients: JoinSet::new(), begun: Instant::now() }
    }

    /// As [`Self::start_on`], with this many requests per second in total, whether responses are slow or not.
    pub fn start_at(
        rate: u32,
        ledger: Ledger,
        address: SocketAddr,
        clients: u32,
        questions: &[Question],
    ) -> Self {
        let mut it = Self::on(ledger);
        it.join_at(rate, address, clients, Protocol::Http1, questions);
        it
    }

    /// Further clients on the same ledger.
    pub fn join(&mut self, address: SocketAddr, clients: usize, protocol: Protocol, questions: &[Question]) {
        self.add(address, clients, protocol, questions, None);
    }

    /// The same, with this many requests per second in total.
    pub fn join_at(
        &mut self,
        rate: u32,
        address: SocketAddr,
        clients: u32,
        protocol: Protocol,
        questions: &[Question],
    ) {
        let pace = Duration::from_secs(1) * clients / rate;
        self.add(address, clients as usize, protocol, questions, Some(pace));
    }

    fn add(
        &mut self,
        address: SocketAddr,
        clients: usize,
        protocol: Protocol,
        questions: &[Question],
        pace: Option<Duration>,
    ) {
        let (questions, together) = (Arc::<[Question]>::from(questions), Shared::default());
        for first in 0..clients {
            let shared = match protocol {
                Protocol::Http2OverTls => Arc::clone(&together),
                _ => Shared::default(),
            };
            let ledger = self.ledger.clone();
            let client = Client { address, protocol, kept: None, shared, ledger, pace };
            self.clients.spawn(client.run(Arc::clone(&questions), first, Arc::clone(&self.stop)));
        }
    }

    /// Number of requests that were answered correctly.
    pub fn asked(&self) -> u64 {
        self.ledger.summary().answered
    }

    /// The ledger.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// When it started.
    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// Waits until this many more were answered.
    pub async fn goes_on(&self, what: &str, more: u64) {
        let asked = self.asked();
        eventually(what, || async {
            if self.asked() > asked + more { Ok(()) } else { Err(self.ledger.summary()) }
        })
        .await;
    }

    /// Waits until the newest version of a host has answered.
    pub async fn shows(&self, host: &str) {
        eventually(&format!("{host} is answered by its newest version"), || async {
            self.ledger.is_newest(host)
        })
        .await;
    }

    /// Stops the clients; returns the statistics.
    pub async fn stop(self) -> Summary {
        self.stop.store(true, Ordering::Relaxed);
        self.clients.join_all().await;
        self.ledger.close()
    }
}

struct Client {
    address: SocketAddr,
    protocol: Protocol,
    /// A connection of its own, if the server has not announced that it closes it.
    kept: Option<Wire>,
    /// Its HTTP/2 connection.
    shared: Shared,
    ledger: Ledger,
    /// Interval of requests; delayed requests are sent later.
    pace: Option<Duration>,
}

impl Client {
    async fn run(mut self, questions: Arc<[Question]>, first: usize, stop: Arc<AtomicBool>) {
        let mut ticks = self.pace.map(tokio::time::interval);
        for question in questions.iter().cycle().skip(first) {
            if let Some(ticks) = &mut ticks {
                ticks.tick().await;
            }
            if stop.load(Ordering::Relaxed) {
                return;
            }
            self.ask(question).await;
        }
    }

    /// Sends one request, once. RFC 9112 9.3.1 lets a server close a kept connection at any time, and lets clients
    /// retry; a server that must not lose requests announces the close in the previous response. So the ledger counts a
    /// close after a request was written as a loss, whatever the connection was used for before.
    async fn ask(&mut self, question: &Question) {
        let Question { host, path, body, answers } = question;
        let what = format!("{} {host}{path} over {:?}", question.method(), self.protocol);
        let wire = match self.wire(host, path).await {
            Ok(wire) => wire,
            Err(error) => {
                let number = self.ledger.send(what, host, body, answers);
                self.ledger.lost(&number, &format_args!("cannot connect: {error}"));
                tokio::time::sleep(AGAIN).await;
                return;
            }
        };
        let number = self.ledger.send(what, host, body, answers);
        let mut answered = wire.exchange(question, &number.to_string()).await;
        // Not served: between the check of the connection and the request the server announced that it closes it. If an
        // origin has seen it all the same, the ledger sees that it is repeated.
        if answered.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotConnected) {
            answered = match self.wire(host, path).await {
                Ok(wire) => wire.exchange(question, &number.to_string()).await,
                Err(error) => Err(error),
            };
        }
        match answered {
            Ok((answer, kept)) => {
                self.ledger.answered(&number, &answer);
                self.kept = kept;
            }
            Err(error) => self.ledger.lost(&number, &error),
        }
    }

    /// An open connection for requests of a host; a WebSocket of this path.
    async fn wire(&mut self, host: &str, path: &str) -> io::Result<Wire> {
        match self.kept.take() {
            Some(kept) => Ok(kept),
            None => Wire::open(self.protocol, self.address, (host, path), &self.shared).await,
        }
    }
}
