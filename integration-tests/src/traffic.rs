//! Steady requests while something changes, each on a [`Ledger`].

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use test_kit::Answer;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::client::{Connection, h2};
use crate::eventually::eventually;
use crate::ledger::{FIELD, Ledger, Summary};

/// How long a client waits before it connects again after it could not.
const AGAIN: Duration = Duration::from_millis(20);

/// One client after another asks for a host and path over kept-alive connections until it is told to stop.
#[derive(Debug)]
pub struct Traffic {
    stop: Arc<AtomicBool>,
    ledger: Ledger,
    clients: JoinSet<()>,
    begun: Instant,
}

/// What a client asks for, and who may answer.
#[derive(Clone, Debug)]
pub struct Question {
    /// Value of Host.
    pub host: String,
    /// Target.
    pub path: String,
    /// Sent with POST, where there is one; it must come back.
    pub body: Vec<u8>,
    /// Names of the origins that may answer at any time; none: the ledger's versions say who.
    pub answers: Vec<String>,
}

/// What clients speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// Kept-alive connections, one request after another.
    Http1,
    /// Prior knowledge, one stream after another.
    Http2,
}

impl Question {
    /// Who may answer for a host and path, at any time.
    pub fn new(host: &str, path: &str, answers: &[&str]) -> Self {
        let answers = answers.iter().map(ToString::to_string).collect();
        Self { host: host.to_owned(), path: path.to_owned(), body: Vec::new(), answers }
    }

    /// Who may answer is said by [`Ledger::routes`] and [`Ledger::endpoints`].
    pub fn moving(host: &str, path: &str) -> Self {
        Self::new(host, path, &[])
    }

    /// The same as a POST of so many bytes.
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
    /// As many clients as given, each asking all questions in turn.
    pub fn start(address: SocketAddr, clients: usize, questions: &[Question]) -> Self {
        Self::start_on(Ledger::new(), address, clients, questions)
    }

    /// On a ledger on which it stands already who may answer.
    pub fn start_on(ledger: Ledger, address: SocketAddr, clients: usize, questions: &[Question]) -> Self {
        let mut it = Self { stop: Arc::default(), ledger, clients: JoinSet::new(), begun: Instant::now() };
        it.join(address, clients, Protocol::Http1, questions);
        it
    }

    /// As [`Self::start_on`], so many requests a second in all, whether answers are slow or not.
    pub fn start_at(
        rate: u32,
        ledger: Ledger,
        address: SocketAddr,
        clients: u32,
        questions: &[Question],
    ) -> Self {
        let mut it = Self { stop: Arc::default(), ledger, clients: JoinSet::new(), begun: Instant::now() };
        let pace = Some(Duration::from_secs(1) * clients / rate);
        (0..clients)
            .for_each(|first| it.add(address, Protocol::Http1, questions.into(), first as usize, pace));
        it
    }

    /// Further clients on the same ledger.
    pub fn join(&mut self, address: SocketAddr, clients: usize, protocol: Protocol, questions: &[Question]) {
        let questions: Arc<[Question]> = questions.into();
        (0..clients).for_each(|first| self.add(address, protocol, Arc::clone(&questions), first, None));
    }

    fn add(
        &mut self,
        address: SocketAddr,
        protocol: Protocol,
        questions: Arc<[Question]>,
        first: usize,
        pace: Option<Duration>,
    ) {
        let client = Client { address, protocol, connection: None, ledger: self.ledger.clone(), pace };
        self.clients.spawn(client.run(questions, first, Arc::clone(&self.stop)));
    }

    /// Requests that were answered as they should be, so far.
    pub fn asked(&self) -> u64 {
        self.ledger.summary().answered
    }

    /// Where they stand.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Since when.
    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// Waits until so many more were answered.
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

    /// Stops; what became of each request.
    pub async fn stop(self) -> Summary {
        self.stop.store(true, Ordering::Relaxed);
        self.clients.join_all().await;
        self.ledger.close()
    }
}

struct Client {
    address: SocketAddr,
    protocol: Protocol,
    connection: Option<Open>,
    ledger: Ledger,
    /// From one request to the next; what could not be asked in time is asked afterwards.
    pace: Option<Duration>,
}

enum Open {
    One(Connection<TcpStream>),
    Two(h2::Connection),
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

    /// One request, written once. RFC 9112 9.3.1 lets a server close a kept connection at any time, and lets clients ask
    /// again; a server that means to lose nothing says so in the answer before. So does this ledger: a close after a
    /// request was written is a loss, whatever the connection was before.
    async fn ask(&mut self, question: &Question) {
        let Question { host, path, body, answers } = question;
        let what = format!("{} {host}{path} over {:?}", question.method(), self.protocol);
        let connection = match self.connection().await {
            Ok(connection) => connection,
            Err(error) => {
                let number = self.ledger.send(what, host, body, answers);
                self.ledger.lost(&number, &format_args!("cannot connect: {error}"));
                tokio::time::sleep(AGAIN).await;
                return;
            }
        };
        let number = self.ledger.send(what, host, body, answers);
        let mut answered = exchange(connection, question, &number.to_string()).await;
        // Never written: between the look at the connection and the request the server has said that it goes away.
        if answered.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotConnected) {
            answered = match self.connection().await {
                Ok(connection) => exchange(connection, question, &number.to_string()).await,
                Err(error) => Err(error),
            };
        }
        match answered {
            Ok((answer, kept)) => {
                self.ledger.answered(&number, &answer);
                self.connection = kept;
            }
            Err(error) => self.ledger.lost(&number, &error),
        }
    }

    /// The one that is open, unless the server has said that it goes away.
    async fn connection(&mut self) -> io::Result<Open> {
        match self.connection.take() {
            Some(Open::One(kept)) => Ok(Open::One(kept)),
            Some(Open::Two(kept)) if kept.is_open().await => Ok(Open::Two(kept)),
            _ => match self.protocol {
                Protocol::Http1 => Connection::open(self.address).await.map(Open::One),
                Protocol::Http2 => h2::Connection::plain(self.address).await.map(Open::Two),
            },
        }
    }
}

/// The answer, and the connection if it is kept.
async fn exchange(open: Open, question: &Question, number: &str) -> io::Result<(Answer, Option<Open>)> {
    let Question { host, path, body, .. } = question;
    match open {
        Open::One(mut connection) => {
            let mut head =
                format!("{} {path} HTTP/1.1\r\nHost: {host}\r\n{FIELD}: {number}\r\n", question.method());
            if !body.is_empty() {
                head += &format!("Content-Length: {}\r\n", body.len());
            }
            connection.send([head.as_bytes(), b"\r\n", body].concat()).await?;
            let answer = connection.answer(question.method()).await?;
            let closes = answer.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
            Ok((answer, (!closes).then_some(Open::One(connection))))
        }
        Open::Two(connection) => {
            let field = [(FIELD, number)];
            let answer = connection.request(question.method(), host, path, &field, body).await?;
            Ok((answer, Some(Open::Two(connection))))
        }
    }
}
