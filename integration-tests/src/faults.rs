//! A TCP relay between two programs that cuts, refuses and delays connections, and counts bytes.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::ports;

/// A running relay. Stops when dropped, and closes its connections.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    weather: watch::Sender<Weather>,
    counts: Arc<Counts>,
    _server: JoinSet<()>,
}

/// The relay's settings.
#[derive(Clone, Copy, Debug, Default)]
struct Weather {
    /// Connections opened under an older number are cut.
    generation: u64,
    /// New connections are closed at once.
    refusing: bool,
    /// Delay of bytes.
    delay: Duration,
    /// Bytes a second of each connection to the client.
    rate: Option<u32>,
    /// Nothing is forwarded, and nothing is closed.
    stalled: bool,
    /// The same for so many connections, the first ones. Later ones are forwarded.
    dropped: u64,
    /// What one end closes stays open at the other end, which hears nothing more.
    half_open: bool,
    /// A connection is cut after this many bytes to the client.
    life: Option<usize>,
    /// Nothing more is sent to clients after this many bytes on all connections.
    hold: Option<u64>,
}

/// How many pieces a slow link forwards in a second.
const PIECES: usize = 20;
/// The bit that is flipped in damaged data.
const BIT: u8 = 0x10;

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    /// How many more pieces are to be damaged.
    damages: AtomicU64,
    /// Bytes from the server to the client.
    down: AtomicU64,
    /// How often something was held back.
    held: AtomicU64,
    /// The data in that direction, if it is recorded.
    heard: Mutex<Option<Vec<u8>>>,
}

impl Relay {
    /// Relays to an address.
    ///
    /// # Panics
    /// If no port can be bound.
    pub async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind(ports::free()).await.expect("the port was free");
        let address = listener.local_addr().expect("it is bound");
        let (weather, forecast) = watch::channel(Weather::default());
        let counts = Arc::new(Counts::default());
        let mut server = JoinSet::new();
        server.spawn(serve(listener, target, forecast, Arc::clone(&counts)));
        Self { address, weather, counts, _server: server }
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts all open connections. New ones are accepted.
    pub fn cut(&self) {
        self.weather.send_modify(|weather| weather.generation += 1);
    }

    /// Sets whether new connections are closed at once.
    pub fn refuse(&self, refusing: bool) {
        self.weather.send_modify(|weather| weather.refusing = refusing);
    }

    /// Cuts each connection after this many bytes to the client; `None`: not any more.
    pub fn cut_each_after(&self, life: Option<usize>) {
        self.weather.send_modify(|weather| weather.life = life);
    }

    /// Delays bytes in both directions.
    pub fn delay(&self, delay: Duration) {
        self.weather.send_modify(|weather| weather.delay = delay);
    }

    /// Forwards no more than this many bytes a second to each client; `None`: as fast as they come.
    pub fn rate(&self, rate: Option<u32>) {
        self.weather.send_modify(|weather| weather.rate = rate);
    }

    /// Sets whether data is held back without closing anything.
    pub fn stall(&self, stalled: bool) {
        self.weather.send_modify(|weather| weather.stalled = stalled);
    }

    /// Forwards nothing more on the connections that are open now, without closing anything, as where a firewall has
    /// forgotten them. New ones are forwarded.
    pub fn drop_existing(&self) {
        let dropped = self.connections();
        self.weather.send_modify(|weather| weather.dropped = dropped);
    }

    /// Sets whether the other end of a connection hears nothing when one end closes it, as after a power failure.
    pub fn half_open(&self, half_open: bool) {
        self.weather.send_modify(|weather| weather.half_open = half_open);
    }

    /// Forwards this many more bytes to clients, and then nothing, without closing anything; `None`: everything.
    pub fn hold_after(&self, bytes: Option<u64>) {
        let hold = bytes.map(|bytes| self.bytes_down() + bytes);
        self.counts.held.store(0, Ordering::Relaxed);
        self.weather.send_modify(|weather| weather.hold = hold);
    }

    /// Whether something is held back.
    pub fn holds(&self) -> bool {
        self.counts.held.load(Ordering::Relaxed) > 0
    }

    /// Damages one bit of each of the next pieces to the client.
    pub fn damage(&self, pieces: u64) {
        self.counts.damages.store(pieces, Ordering::Relaxed);
    }

    /// Records the data to clients from now on.
    pub fn listen_in(&self) {
        *self.counts.heard.lock().expect("nobody panics with it") = Some(Vec::new());
    }

    /// The data since [`Self::listen_in`].
    pub fn heard(&self) -> Vec<u8> {
        self.counts.heard.lock().expect("nobody panics with it").clone().unwrap_or_default()
    }

    /// Connections opened so far.
    pub fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::Relaxed)
    }

    /// Bytes so far from the server to clients.
    pub fn bytes_down(&self) -> u64 {
        self.counts.down.load(Ordering::Relaxed)
    }
}

async fn serve(
    listener: TcpListener,
    target: SocketAddr,
    weather: watch::Receiver<Weather>,
    counts: Arc<Counts>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((client, _)) = listener.accept() => {
                if weather.borrow().refusing {
                    continue;
                }
                let number = counts.connections.fetch_add(1, Ordering::Relaxed);
                connections.spawn(relay(client, target, number, weather.clone(), Arc::clone(&counts)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Until one side closes or the weather cuts it.
async fn relay(
    client: TcpStream,
    target: SocketAddr,
    number: u64,
    mut weather: watch::Receiver<Weather>,
    counts: Arc<Counts>,
) {
    let generation = weather.borrow().generation;
    let Ok(server) = TcpStream::connect(target).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut client_read, mut client_write) = client.into_split();
    let (mut server_read, mut server_write) = server.into_split();
    let unheard = Counts::default();
    let (up, down) = (weather.clone(), weather.clone());
    let is_half_open = || up.borrow().half_open;
    let both = async {
        tokio::select! {
            _ = pump(&mut client_read, &mut server_write, number, up.clone(), &unheard, false) => {}
            _ = pump(&mut server_read, &mut client_write, number, down, &counts, true) => {}
        }
        if is_half_open() {
            // Until it is cut: nothing is read any more, and nothing is closed.
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = both => {}
        _ = weather.wait_for(|weather| weather.generation != generation) => {}
    }
}

async fn pump(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    number: u64,
    mut weather: watch::Receiver<Weather>,
    counts: &Counts,
    is_mortal: bool,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    let mut passed = 0;
    loop {
        let rate = weather.borrow().rate.filter(|_| is_mortal);
        // What is not read yet fills the window of the sender, as on a slow link.
        let room = rate.map_or(buffer.len(), |rate| (rate as usize / PIECES).clamp(1, buffer.len()));
        let read = from.read(&mut buffer[..room]).await?;
        if rate.is_some() {
            tokio::time::sleep(Duration::from_secs(1) / PIECES as u32).await;
        }
        if read == 0 {
            if weather.borrow().half_open {
                return Ok(());
            }
            return to.shutdown().await;
        }
        passed += read;
        if weather.borrow().life.is_some_and(|life| is_mortal && passed > life) {
            return Ok(());
        }
        let delay = weather.borrow().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let passes = weather.wait_for(|weather| !weather.stalled && number >= weather.dropped).await;
        passes.map_err(|_| io::ErrorKind::ConnectionAborted)?;
        let before = counts.down.fetch_add(read as u64, Ordering::Relaxed);
        if let Some(heard) = &mut *counts.heard.lock().expect("nobody panics with it") {
            heard.extend_from_slice(&buffer[..read]);
        }
        let due = |left: u64| left.checked_sub(1);
        if counts.damages.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due).is_ok() {
            // Somewhere in the piece, at varying positions.
            buffer[counts.down.load(Ordering::Relaxed) as usize % read] ^= BIT;
        }
        let hold = weather.borrow().hold.filter(|_| is_mortal);
        let first = hold.map_or(read, |hold| read.min(hold.saturating_sub(before) as usize));
        to.write_all(&buffer[..first]).await?;
        if first < read {
            counts.held.fetch_add(1, Ordering::Relaxed);
            let passes = weather.wait_for(|weather| weather.hold.is_none()).await;
            passes.map_err(|_| io::ErrorKind::ConnectionAborted)?;
            to.write_all(&buffer[first..read]).await?;
        }
    }
}
