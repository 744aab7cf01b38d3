//! UDP services: datagrams of a client go to an endpoint, and replies go to the client, from the address that it had
//! sent to.
//!
//! **Invariant:** a session holds a descriptor but no buffer: a datagram is passed on before anything is awaited, so
//! one buffer serves all ports of a worker. When the maximum number of sessions is reached, the oldest of the port that
//! has most is closed.
//!
//! The client of an endpoint that has left, or of a port that is led to another Service, gets another one with its next
//! datagram, however often it sends: somebody else may have its address by then.

mod datagram;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Instant;

use foldhash::quality::RandomState;
use shared::budget::Held;
use socket2::{SockRef, Socket};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::spawn_local;
use tracing::debug;

use crate::http::server::Server;
use crate::local::relay::Moved;
use crate::local::session;
use crate::table::{BackendCell, EndpointSet};
use crate::upstream::{Tried, Turn};
use datagram::Received;

/// Maximum size of a datagram.
const DATAGRAM: usize = 64 * 1024;

/// Maximum number of replies of one session that are passed on before others get a turn.
const ANSWERS: usize = 32;

/// The client's address, and the local address that it sent to.
type Key = (SocketAddr, Option<IpAddr>);

/// A started session with its number: the same client may have started another one since.
type Begun = (Key, u64);

type Sessions = HashMap<Key, Rc<Session>, RandomState>;

/// What all ports of a worker share.
pub(crate) struct Common {
    /// For one datagram at a time.
    buffer: RefCell<Box<[u8]>>,
    ports: RefCell<Vec<Weak<Port>>>,
}

impl Default for Common {
    fn default() -> Self {
        Self { buffer: RefCell::new(vec![0; DATAGRAM].into()), ports: RefCell::default() }
    }
}

impl Common {
    /// The port with most sessions, and more than so many.
    fn fullest(&self, beyond: usize) -> Option<Rc<Port>> {
        let ports = self.ports.borrow();
        let ports = ports.iter().filter_map(Weak::upgrade);
        ports.filter(|port| port.count() > beyond).max_by_key(|port| port.count())
    }
}

/// One port on one worker.
pub(crate) struct Port {
    server: Rc<Server>,
    socket: UdpSocket,
    cell: RefCell<Arc<BackendCell>>,
    sessions: RefCell<Sessions>,
    begun: Cell<u64>,
    /// In the order in which they started; some have ended.
    order: RefCell<VecDeque<Begun>>,
    common: Rc<Common>,
}

/// Which replies of a session its client was sent.
enum Given {
    /// As many as go in one turn.
    Some,
    /// All that have come.
    All,
    /// The last ones: the session has ended.
    Last,
}

/// A client's session and its socket to an endpoint.
struct Session {
    socket: UdpSocket,
    cell: Arc<BackendCell>,
    address: SocketAddr,
    /// The last set in which its endpoint was found.
    set: RefCell<Arc<EndpointSet>>,
    number: u64,
    asked: Cell<u64>,
    answered: Cell<u64>,
    /// Time of the last datagram in either direction.
    heard: Cell<Instant>,
    over: tokio::sync::Notify,
    /// For the log.
    log_entry: session::Session,
    /// A slot among all sessions, until it is for another one.
    slot: RefCell<Option<Held>>,
    _descriptor: Held,
}

impl Session {
    /// Whether its endpoint has left.
    fn is_stale(&self) -> bool {
        let set = self.cell.endpoints();
        if Arc::ptr_eq(&set, &self.set.borrow()) {
            return false;
        }
        let stays = set.list.iter().any(|endpoint| endpoint.address == self.address);
        if stays {
            self.set.replace(Arc::clone(&set));
        }
        !stays
    }
}

impl Port {
    /// With a bound socket.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn new(
        server: Rc<Server>,
        socket: Socket,
        cell: Arc<BackendCell>,
        common: Rc<Common>,
    ) -> io::Result<Rc<Self>> {
        let socket = UdpSocket::from_std(socket.into())?;
        datagram::watch(&socket)?;
        let port = Rc::new(Self {
            server,
            socket,
            cell: RefCell::new(cell),
            sessions: RefCell::default(),
            begun: Cell::new(0),
            order: RefCell::default(),
            common,
        });
        let mut ports = port.common.ports.borrow_mut();
        ports.retain(|port| port.strong_count() > 0);
        ports.push(Rc::downgrade(&port));
        drop(ports);
        Ok(port)
    }

    /// Sets the backend. Sessions with another one get an endpoint of this one with their client's next datagram.
    pub(crate) fn lead_to(&self, cell: &Arc<BackendCell>) {
        self.cell.replace(Arc::clone(cell));
    }

    /// Receives datagrams until aborted. No error ends it.
    pub(crate) async fn run(self: Rc<Self>) {
        loop {
            // Yields now and then, however many arrive.
            let took = self.socket.async_io(Interest::READABLE, || {
                let mut buffer = self.common.buffer.borrow_mut();
                let Received { length, client, asked } = datagram::receive(&self.socket, &mut buffer)?;
                self.take((client, asked), buffer.get(..length).unwrap_or_default());
                Ok(())
            });
            if let Err(error) = took.await {
                // For example an ICMP error from a client that is gone.
                debug!(%error, "a datagram was not received");
                tokio::task::yield_now().await;
            }
        }
    }

    /// Forwards a client's datagram. What cannot be sent is lost, as usual with datagrams.
    fn take(self: &Rc<Self>, key: Key, datagram: &[u8]) {
        let known = self.sessions.borrow().get(&key).map(Rc::clone);
        let known = known.filter(|session| {
            // Another Service may have the port by now, and no table may name the old one any more.
            let is_led_elsewhere = !Arc::ptr_eq(&session.cell, &self.cell.borrow());
            let is_stale = is_led_elsewhere || session.is_stale();
            if is_stale {
                session.slot.take();
                session.over.notify_one();
            }
            !is_stale
        });
        let Some(session) = known.or_else(|| self.begin(key)) else {
            return;
        };
        let Err(error) = self.forward(&session, datagram) else { return };
        debug!(client = %key.0, %error, "a datagram was not sent on");
        if !is_out_of_reach(&error) {
            return;
        }
        // The kernel tells what became of an earlier datagram, in place of sending this one.
        session.slot.take();
        session.over.notify_one();
        let Some(session) = self.begin(key) else { return };
        if let Err(error) = self.forward(&session, datagram) {
            debug!(client = %key.0, %error, "a datagram was not sent on");
        }
    }

    /// Sends a datagram to the endpoint of a session.
    fn forward(&self, session: &Session, datagram: &[u8]) -> io::Result<()> {
        session.asked.set(session.asked.get() + 1);
        session.heard.set(self.server.local.timers.now());
        // Asks the kernel directly: the runtime does not know yet whether a new socket is writable.
        let sent = SockRef::from(&session.socket).send(datagram);
        if let Ok(count) = sent {
            session.log_entry.moves(Moved { up: count as u64, down: 0 });
        }
        if self.is_answered(session) {
            session.over.notify_one();
        }
        sent.map(drop)
    }

    fn is_answered(&self, session: &Session) -> bool {
        let responses = self.server.with_table(|table| table.streams().terms.responses);
        session.answered.get() >= responses.saturating_mul(session.asked.get())
    }

    fn begin(self: &Rc<Self>, key: Key) -> Option<Rc<Session>> {
        if !self.server.listens_at(|| key.1) {
            return None;
        }
        let cell = Arc::clone(&self.cell.borrow());
        // Loaded first: an endpoint that leaves meanwhile is looked for again with the next datagram.
        let set = RefCell::new(Arc::clone(&cell.endpoints()));
        let endpoint =
            self.server.upstreams.borrow_mut().pick(&cell, Turn::Rotation, &mut Tried::default())?;
        self.make_room();
        let (slot, descriptor) = self.slot()?;
        let socket = match connect(endpoint.address) {
            Ok(socket) => socket,
            Err(error) => {
                debug!(backend = %cell.key, endpoint = %endpoint.address, %error, "not reached");
                return None;
            }
        };
        let log_entry = self.log_session(key, &cell);
        log_entry.reached(endpoint.address);
        let number = self.begun.get() + 1;
        self.begun.set(number);
        let session = Rc::new(Session {
            socket,
            address: endpoint.address,
            set,
            cell,
            number,
            asked: Cell::new(0),
            answered: Cell::new(0),
            heard: Cell::new(self.server.local.timers.now()),
            over: tokio::sync::Notify::new(),
            log_entry,
            slot: RefCell::new(Some(slot)),
            _descriptor: descriptor,
        });
        self.sessions.borrow_mut().insert(key, Rc::clone(&session));
        self.order.borrow_mut().push_back((key, number));
        spawn_local(answers(Rc::downgrade(self), Rc::clone(&self.server), key, Rc::clone(&session)));
        Some(session)
    }

    /// Number of sessions.
    fn count(&self) -> usize {
        self.sessions.borrow().len()
    }

    /// A slot among all sessions, and a descriptor. If there is no slot, the oldest session of the port that has most
    /// gives its own, so that a flood of one port closes no other. Of equal ports, that is this one.
    fn slot(&self) -> Option<(Held, Held)> {
        let local = &self.server.local;
        let give_way = || match self.common.fullest(self.count()) {
            Some(port) => port.end_oldest(),
            None => self.end_oldest(),
        };
        let slot = local.sessions.take(1).or_else(|| {
            give_way();
            local.sessions.take(1)
        });
        let descriptor = local.descriptors.take(1);
        if descriptor.is_none() {
            // The client's datagrams are accepted again when it has closed its socket.
            give_way();
        }
        slot.zip(descriptor)
    }

    /// Its log entry.
    fn log_session(&self, (peer, at): Key, cell: &BackendCell) -> session::Session {
        let log = self.server.with_table(|table| table.streams().log.clone());
        let port = self.socket.local_addr().map_or(0, |address| address.port());
        let backend = Arc::clone(&cell.key);
        let begun = session::Begun { transport: "UDP", peer, at, port, backend };
        session::Session::new(&self.server.local, log, begun)
    }

    /// Ends the oldest sessions if there are too many, and drops the order of those that have ended.
    fn make_room(&self) {
        let most = self.server.local.limits.udp_sessions.max(1);
        while self.sessions.borrow().len() >= most {
            self.end_oldest();
        }
        let (sessions, mut order) = (self.sessions.borrow(), self.order.borrow_mut());
        if order.len() >= 2 * most {
            order.retain(|begun| is_newest(&sessions, begun));
        }
    }

    fn end_oldest(&self) {
        let (mut sessions, mut order) = (self.sessions.borrow_mut(), self.order.borrow_mut());
        while let Some(oldest) = order.pop_front() {
            if is_newest(&sessions, &oldest)
                && let Some(session) = sessions.remove(&oldest.0)
            {
                session.slot.take();
                return session.over.notify_one();
            }
        }
    }

    /// Sends replies to their client.
    fn give(&self, (client, asked): Key, session: &Session) -> Given {
        let mut buffer = self.common.buffer.borrow_mut();
        for _ in 0..ANSWERS {
            match session.socket.try_recv(&mut buffer) {
                Ok(count) => {
                    session.answered.set(session.answered.get() + 1);
                    session.heard.set(self.server.local.timers.now());
                    session.log_entry.moves(Moved { up: 0, down: count as u64 });
                    let sent = datagram::answer(&self.socket, &buffer[..count], client, asked);
                    if let Err(error) = sent {
                        debug!(%client, %error, "an answer was lost");
                    }
                    if self.is_answered(session) {
                        return Given::Last;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Given::All,
                Err(error) => {
                    debug!(%client, %error, "the endpoint takes no datagrams");
                    return Given::Last;
                }
            }
        }
        Given::Some
    }

    fn forget(&self, key: Key, session: &Rc<Session>) {
        let mut sessions = self.sessions.borrow_mut();
        if sessions.get(&key).is_some_and(|it| Rc::ptr_eq(it, session)) {
            sessions.remove(&key);
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.sessions.borrow().values().for_each(|session| session.over.notify_one());
    }
}

/// Forwards the replies of a session to its client, until it ends or is idle for too long.
async fn answers(port: Weak<Port>, server: Rc<Server>, key: Key, session: Rc<Session>) {
    let timer = server.local.timers.timer();
    loop {
        let idle = server.with_table(|table| table.streams().terms.idle);
        let silent = server.local.timers.now().saturating_duration_since(session.heard.get());
        let left = idle.saturating_sub(silent);
        let ready = async {
            tokio::select! {
                biased;
                () = session.over.notified() => false,
                // An error alone does not make a socket readable.
                ready = session.socket.ready(Interest::READABLE | Interest::ERROR) => {
                    if ready.as_ref().is_ok_and(|ready| ready.is_error()) && has_failed(&session.socket) {
                        // After the replies that came before.
                        session.over.notify_one();
                    }
                    ready.is_ok()
                }
            }
        };
        let goes_on = match timer.limit(left, ready).await {
            Ok(goes_on) => goes_on,
            // Something may have passed since.
            Err(_) => server.local.timers.now().saturating_duration_since(session.heard.get()) < idle,
        };
        let Some(port) = port.upgrade() else { return };
        let given = if goes_on { port.give(key, &session) } else { Given::Last };
        match given {
            Given::Last => return port.forget(key, &session),
            Given::All => {}
            Given::Some => {
                drop(port);
                // Waiting for a socket that is ready gives nobody a turn, and an endpoint may reply faster than that is
                // passed on.
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Whether the kernel was told that the endpoint takes no datagrams.
fn has_failed(socket: &UdpSocket) -> bool {
    let failed = socket.try_io(Interest::ERROR, || {
        // An error that a failed send has reported is gone.
        socket.take_error()?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    });
    match failed {
        Ok(error) => {
            debug!(%error, "the endpoint takes no datagrams");
            true
        }
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    }
}

/// Whether an error is about the endpoint, not about a datagram.
fn is_out_of_reach(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable)
}

fn is_newest(sessions: &Sessions, (key, number): &Begun) -> bool {
    sessions.get(key).is_some_and(|session| session.number == *number)
}

fn connect(endpoint: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = match endpoint {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = std::net::UdpSocket::bind((any, 0))?;
    socket.connect(endpoint)?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

#[cfg(test)]
mod tests;
