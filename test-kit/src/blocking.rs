//! For blocking tests: a client, and polling with a deadline.
//!
//! The client sends bytes exactly as given and reads none that it does not need, so that its stream can be read beside
//! it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::message::{Answer, Next, Reading};

/// No read in a test takes this long unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A client connection.
#[derive(Debug)]
pub struct Client {
    /// The socket; nothing was read ahead.
    pub stream: TcpStream,
}

impl Client {
    /// Connects.
    ///
    /// # Panics
    /// The connection is refused.
    pub fn new(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).unwrap())
    }

    /// Connects from another address of this machine.
    ///
    /// # Panics
    /// The connection is refused, or the machine has no such address.
    pub fn from(source: Ipv4Addr, address: SocketAddr) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
        socket.connect(&address.into()).unwrap();
        Self::over(socket.into())
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream }
    }

    /// Writes bytes unchanged.
    ///
    /// # Panics
    /// The peer is gone.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends a request without a body for `a.test`.
    ///
    /// # Panics
    /// There is no response.
    pub fn get(&mut self, target: &str) -> Answer {
        self.ask(&format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n"))
    }

    /// Sends a request, and returns its response.
    ///
    /// # Panics
    /// There is none.
    pub fn ask(&mut self, request: &str) -> Answer {
        self.send(request);
        self.receive(request.starts_with("HEAD ")).unwrap_or_else(|| panic!("no answer to {request:?}"))
    }

    /// The next response, including interim ones; `None` if the connection ends before it is complete.
    ///
    /// # Panics
    /// What is received is not a response.
    pub fn receive(&mut self, to_head: bool) -> Option<Answer> {
        let answer = read(&mut self.stream, Reading::answer(to_head))?;
        Some(answer.into_answer().unwrap_or_else(|error| panic!("{error}")))
    }

    /// Everything until the connection ends.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A reset is an end, too.
        let _ = self.stream.read_to_end(&mut rest);
        rest
    }

    /// Whether the proxy has closed the connection without sending anything more.
    pub fn ended(&mut self) -> bool {
        self.rest().is_empty()
    }
}

/// Waits until a condition holds.
///
/// # Panics
/// It does not hold after [`PATIENCE`].
pub fn eventually(what: &str, so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < end, "never: {what}");
        thread::yield_now();
    }
}

/// Reads a message; `None` if the stream ends, or is silent, before it is complete.
pub(crate) fn read(stream: &mut impl Read, mut reading: Reading) -> Option<Reading> {
    loop {
        let bytes = match reading.next() {
            Next::Bytes(count) => exactly(stream, count),
            Next::Rest => rest(stream),
            Next::Done => return Some(reading),
        };
        reading.take(&bytes.ok()?).unwrap_or_else(|error| panic!("{error}"));
    }
}

fn exactly(stream: &mut impl Read, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn rest(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    Ok(bytes)
}
