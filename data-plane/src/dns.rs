//! A DNS resolver: uses the servers, the search list and `ndots` of resolv.conf, queries A then AAAA for each
//! candidate name, and takes the first that has addresses. It also reads the hosts file, for callers that look there
//! first.
//!
//! **Invariant:** a caller that gives up leaves nothing behind: no thread waits for a response.

use std::cell::Cell;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use domain::base::iana::Rcode;
use domain::base::{Message, MessageBuilder, Name, Rtype, ToName as _};
use domain::net::client::dgram_stream::{Config, Connection};
use domain::net::client::protocol::{TcpConnect, UdpConnect};
use domain::net::client::request::{RequestMessage, SendRequest as _};
use domain::rdata::{A, Aaaa, Cname};
use domain::resolv::stub::conf::ResolvConf;
use tokio::task::JoinSet;
use tokio::time;
use tracing::warn;

use crate::table::apply::names::Answer;
pub(crate) use hosts::Hosts;

mod hosts;

/// Time limit for all candidates of a name.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);
/// A silent server is asked again after this time; UDP packets may get lost.
const REPEAT: Duration = Duration::from_secs(1);
/// Maximum length of a CNAME chain. A response may contain thousands.
const ALIASES: usize = 16;
/// How often a file is checked for changes, at most.
const LOOK: Duration = Duration::from_secs(5);

/// The result of a lookup, or why there is none.
pub(crate) type Outcome = Result<Answer, String>;

/// Resolves a name, within [`DEADLINE`].
pub(crate) async fn ask(resolver: Result<Rc<Resolver>, Arc<str>>, name: &str) -> Outcome {
    match time::timeout(DEADLINE, resolver.map_err(|reason| reason.to_string())?.ask(name)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("no answer within {DEADLINE:?}")),
    }
}

/// The servers in a configuration file, which is reread when it changes: laptops move, and a pod may start before its
/// network.
#[derive(Debug)]
pub(crate) struct Servers {
    file: Watched,
    resolver: Result<Rc<Resolver>, Arc<str>>,
}

impl Servers {
    /// The servers of this machine.
    pub(crate) fn of_system() -> Self {
        Self::of_file("/etc/resolv.conf".into())
    }

    pub(crate) fn of_file(file: PathBuf) -> Self {
        Self { file: Watched::new(file), resolver: Err("no server is known".into()) }
    }

    /// The current servers, or why there are none.
    pub(crate) fn current(&mut self, now: Instant) -> Result<Rc<Resolver>, Arc<str>> {
        if self.file.is_written(now) {
            let read = self.read().map(Rc::new);
            self.resolver = read.map_err(|error| format!("{}: {error}", self.file.path.display()).into());
        }
        self.resolver.clone()
    }

    fn read(&self) -> io::Result<Resolver> {
        let text = self.file.read()?;
        let mut conf = ResolvConf::new();
        for line in text.lines() {
            // A line that is not understood does not affect the others.
            if let Err(error) = conf.parse(&mut line.as_bytes()) {
                warn!(file = %self.file.path.display(), line, %error, "a line is not used");
            }
        }
        conf.finalize();
        Ok(Resolver::new(&conf))
    }
}

/// A file that is maintained by somebody else.
#[derive(Debug)]
struct Watched {
    path: PathBuf,
    looked: Option<Instant>,
    written: Option<SystemTime>,
}

impl Watched {
    fn new(path: PathBuf) -> Self {
        Self { path, looked: None, written: None }
    }

    /// Whether it has to be read: it was changed, or does not exist.
    fn is_written(&mut self, now: Instant) -> bool {
        if self.looked.is_some_and(|looked| now.duration_since(looked) < LOOK) {
            return false;
        }
        self.looked = Some(now);
        let written = fs::metadata(&self.path).and_then(|it| it.modified()).ok();
        let is_written = written.is_none() || written != self.written;
        self.written = written;
        is_written
    }

    /// Its contents; empty if it does not exist.
    fn read(&self) -> io::Result<String> {
        match fs::read_to_string(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            read => read,
        }
    }
}

/// Queries over UDP, or TCP if the response does not fit.
type Server = Connection<UdpConnect, RequestMessage<Vec<u8>>>;

/// The servers at one time, and the rules for completing names.
#[derive(Debug)]
pub(crate) struct Resolver {
    servers: Vec<Server>,
    /// The server that responded last is asked first.
    first: Cell<usize>,
    /// Timeout of one server.
    patience: Duration,
    search: Vec<String>,
    ndots: usize,
    /// Their TCP connections.
    _tasks: JoinSet<()>,
}

impl Resolver {
    pub(crate) fn new(conf: &ResolvConf) -> Self {
        let options = &conf.options;
        let mut config = Config::new();
        config.dgram_mut().set_read_timeout(REPEAT.min(options.timeout));
        // Without EDNS, which a server may not support: what does not fit comes over TCP.
        config.dgram_mut().set_udp_payload_size(None);
        let mut tasks = JoinSet::new();
        let servers = conf.servers.iter().map(|server| {
            let (udp, tcp) = (UdpConnect::new(server.addr), TcpConnect::new(server.addr));
            let (connection, transport) = Connection::with_config(udp, tcp, config.clone());
            tasks.spawn(transport.run());
            connection
        });
        let servers = servers.collect();
        let domains = options.search.as_slice().iter().filter(|domain| !domain.is_root());
        Self {
            servers,
            first: Cell::new(0),
            patience: options.timeout,
            search: domains.map(ToString::to_string).collect(),
            ndots: options.ndots,
            _tasks: tasks,
        }
    }

    async fn ask(&self, name: &str) -> Outcome {
        let mut failed = None;
        for candidate in candidates(name, &self.search, self.ndots) {
            for kind in [Rtype::A, Rtype::AAAA] {
                match self.question(&candidate, kind).await {
                    Ok(message) if message.header().rcode() == Rcode::NXDOMAIN => break,
                    Ok(message) => match addresses(message.as_slice()) {
                        found @ Answer::Found { .. } => return Ok(found),
                        Answer::Nothing => {}
                        Answer::Failed => {
                            failed = Some(format!("{candidate} {kind}: the answer cannot be read"))
                        }
                    },
                    Err(reason) => failed = Some(format!("{candidate} {kind}: {reason}")),
                }
            }
        }
        // Negative responses do not count while other candidates could not be resolved.
        failed.map_or(Ok(Answer::Nothing), Err)
    }

    /// Asks one server after the other until one responds.
    async fn question(&self, name: &str, kind: Rtype) -> Result<Message<Bytes>, String> {
        let name = Name::vec_from_str(name).map_err(|error| error.to_string())?;
        let mut message = MessageBuilder::new_vec();
        message.header_mut().set_rd(true);
        let mut message = message.question();
        message.push((&name, kind)).map_err(|error| error.to_string())?;
        let message = message.into_message();
        let (first, count) = (self.first.get(), self.servers.len());
        let mut failed = String::new();
        for place in (first..first + count).map(|place| place % count) {
            let request = RequestMessage::new(message.clone()).map_err(|error| error.to_string())?;
            let mut asking = self.servers[place].send_request(request);
            match time::timeout(self.patience, asking.get_response()).await {
                Ok(Ok(answer)) if matches!(answer.header().rcode(), Rcode::NOERROR | Rcode::NXDOMAIN) => {
                    self.first.set(place);
                    return Ok(answer);
                }
                Ok(Ok(answer)) => failed = answer.header().rcode().to_string(),
                Ok(Err(error)) => failed = error.to_string(),
                Err(_) => failed = format!("no answer within {:?}", self.patience),
            }
        }
        Err(failed)
    }
}

/// The full names that a name may stand for, in the order in which they are tried (resolv.conf(5)).
fn candidates(name: &str, search: &[String], ndots: usize) -> Vec<String> {
    if name.ends_with('.') {
        return vec![name.to_owned()];
    }
    let mut all: Vec<_> = search.iter().map(|domain| format!("{name}.{domain}.")).collect();
    let is_first = name.bytes().filter(|byte| *byte == b'.').count() >= ndots;
    all.insert(if is_first { 0 } else { all.len() }, format!("{name}."));
    all
}

/// The addresses of the name at the end of the CNAME chain. An answer that cannot be read does not say that there are
/// none.
pub(crate) fn addresses(message: &[u8]) -> Answer {
    let message = Message::from_slice(message).ok();
    let parts = message.and_then(|it| it.sole_question().ok().zip(it.answer().ok()));
    let Some((question, records)) = parts else {
        return Answer::Failed;
    };
    let mut name = question.into_qname();
    let (mut addresses, mut shortest) = (Vec::new(), Duration::MAX);
    for _ in 0..ALIASES {
        let mut aliases = records.limit_to_in::<Cname<_>>().map_while(Result::ok);
        let Some(alias) = aliases.find(|alias| alias.owner().name_eq(&name)) else {
            break;
        };
        // Its TTL is limited by the CNAME records that led there.
        shortest = shortest.min(alias.ttl().into_duration());
        name = *alias.data().cname();
    }
    let mut is_readable = true;
    for record in records {
        // An unreadable record ends the list.
        let Ok(record) = record else {
            is_readable = false;
            break;
        };
        if !record.owner().name_eq(&name) {
            continue;
        }
        match (record.to_record::<A>(), record.to_record::<Aaaa>()) {
            (Ok(Some(it)), _) => addresses.push(IpAddr::V4(it.data().addr())),
            (_, Ok(Some(it))) => addresses.push(IpAddr::V6(it.data().addr())),
            (Ok(None), Ok(None)) => continue,
            (Err(_), _) | (_, Err(_)) => {
                is_readable = false;
                continue;
            }
        }
        shortest = shortest.min(record.ttl().into_duration());
    }
    match addresses.is_empty() {
        true if is_readable => Answer::Nothing,
        true => Answer::Failed,
        false => Answer::Found { addresses, ttl: shortest },
    }
}

#[cfg(test)]
pub(crate) mod tests;
