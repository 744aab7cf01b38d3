//! Scripted origin servers behind a proxy, with one thread per connection.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use socket2::SockRef;

use crate::blocking;
use crate::message::{Reading, Seen};

/// Connections mostly wait on little more than a buffer, and a test may have thousands.
const STACK: usize = 512 * 1024;

/// An origin. It listens until [`Origin::end`], or as long as the process lives.
#[derive(Debug)]
pub struct Origin {
    /// Its address.
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    open: Arc<Open>,
}

/// Its open connections.
#[derive(Debug, Default)]
struct Open {
    has_ended: AtomicBool,
    count: AtomicU64,
    streams: Mutex<Vec<(usize, TcpStream)>>,
}

/// The result of a script for a request: bytes to send, and whether the connection stays open.
pub type Reply = (Vec<u8>, bool);

impl Origin {
    /// Responds to each request by `script`.
    pub fn new(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::listening(loopback(), script)
    }

    /// The same on an existing socket.
    pub fn listening(listener: TcpListener, script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::serving(listener, move |mut stream, number, seen| {
            while let Some(request) = read_request(&mut stream, number) {
                unpoisoned(seen).push(request.clone());
                let (bytes, stays) = script(&request);
                if stream.write_all(&bytes).is_err() || !stays {
                    break;
                }
            }
        })
    }

    /// Responds with 200 and a text.
    pub fn says(text: &'static str) -> Self {
        Self::new(move |_| (ok(text), true))
    }

    /// Runs `serve` for each connection, which records requests as it likes.
    pub fn raw(serve: impl Fn(TcpStream, usize, &Mutex<Vec<Seen>>) + Send + Sync + 'static) -> Self {
        Self::serving(loopback(), serve)
    }

    /// The same on this address and port.
    ///
    /// # Panics
    /// It cannot be bound.
    pub fn raw_at(
        address: IpAddr,
        serve: impl Fn(TcpStream, usize, &Mutex<Vec<Seen>>) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((address, 0));
        let listener = listener.unwrap_or_else(|error| panic!("cannot listen on {address}: {error}"));
        Self::serving(listener, serve)
    }

    fn serving(
        listener: TcpListener,
        serve: impl Fn(TcpStream, usize, &Mutex<Vec<Seen>>) + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let it = Self { address, seen: Arc::default(), open: Arc::default() };
        let (serve, seen, open) = (Arc::new(serve), Arc::clone(&it.seen), Arc::clone(&it.open));
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let Some(stream) = open.take(number, stream.unwrap()) else { break };
                let (serve, seen, open) = (Arc::clone(&serve), Arc::clone(&seen), Arc::clone(&open));
                let connection = thread::Builder::new().stack_size(STACK).spawn(move || {
                    let _left = Left(&open, number);
                    serve(stream, number, &seen);
                });
                connection.unwrap();
            }
        });
        it
    }

    /// Requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        unpoisoned(&self.seen).clone()
    }

    /// Connections that were opened so far.
    pub fn connections(&self) -> u64 {
        self.open.count.load(Ordering::Relaxed)
    }

    /// Closes its connections, and refuses further ones.
    pub fn end(&self) {
        self.open.has_ended.store(true, Ordering::SeqCst);
        for (_, stream) in unpoisoned(&self.open.streams).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // The listener notices the end with the next connection; it may be gone already.
        let _ = TcpStream::connect(self.address);
    }
}

impl Open {
    /// Registers a new connection; `None` if it is the last one, after the end.
    fn take(&self, number: usize, stream: TcpStream) -> Option<TcpStream> {
        let mut streams = unpoisoned(&self.streams);
        if self.has_ended.load(Ordering::SeqCst) {
            return None;
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        streams.push((number, stream.try_clone().unwrap()));
        Some(stream)
    }
}

/// Unregisters a connection, even if its script panicked.
struct Left<'a>(&'a Open, usize);

impl Drop for Left<'_> {
    fn drop(&mut self) {
        unpoisoned(&self.0.streams).retain(|(number, _)| *number != self.1);
    }
}

/// A 200 response with a text.
pub fn ok(text: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()).into_bytes()
}

/// The next request; `None` if the client has closed.
///
/// # Panics
/// What is received is not a request.
pub fn read_request(stream: &mut impl Read, connection: usize) -> Option<Seen> {
    Some(blocking::read(stream, Reading::request())?.into_request(connection))
}

/// Has a connection reset when its stream is dropped.
///
/// # Errors
/// The kernel does not support that.
pub fn resets(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).set_linger(Some(Duration::ZERO))
}

fn loopback() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
}

fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
