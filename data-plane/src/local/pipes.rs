//! Kernel pipes that carry long bodies from one socket to another without copying them to user space (splice(2)).
//!
//! **Invariant:** a pipe is only filled when it is empty, and only kept for the next body when it is empty.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_getpipe_size, pipe_with, splice};
use shared::budget::{Budget, Held, Level};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Maximum bytes that are moved in at a time: until the client takes them they occupy kernel memory.
const MOST: usize = 128 * 1024;

/// Number of pipes kept for reuse; each has two descriptors.
const KEPT: usize = 8;

/// Minimum capacity in bytes of a useful pipe. An unprivileged user with many pipes (pipe-user-pages-soft) gets some
/// with only two pages: these cost more calls than reading and writing.
const LEAST: usize = 64 * 1024;

/// Number of requests without a pipe after one that was too small. Asking the kernel each time could cost more than it
/// saves.
const PASSED_OVER: usize = 1_000;

/// The unused pipes of a worker.
pub(crate) struct Pipes {
    descriptors: Budget,
    free: RefCell<Vec<Pipe>>,
    /// Whether the kernel cannot splice from a socket to a pipe. Not every system that claims to be Linux can.
    are_useless: Cell<bool>,
    /// How many further requests get no pipe.
    passed_over: Cell<usize>,
}

impl fmt::Debug for Pipes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pipes", self.free.borrow().len())
    }
}

/// The data in it is passed on unchanged.
#[derive(Debug)]
pub(crate) struct Pipe {
    reads: OwnedFd,
    writes: OwnedFd,
    held: usize,
    /// Whether the last splice yielded nothing, or it is new: then it is uncertain that readable data can be had by
    /// splicing.
    is_doubted: bool,
    _descriptors: Held,
}

/// The result of filling a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Filled {
    /// It contains this many bytes. Zero: the stream has ended.
    With(usize),
    /// It is empty although the socket is reported as readable. The data may be available only by reading: for sockets
    /// in a BPF sockmap, and for urgent data.
    Unsure,
    /// The kernel does not support it.
    Unable,
}

impl Pipes {
    /// Without pipes. `descriptors` is shared with connections.
    pub(crate) fn new(descriptors: Budget) -> Self {
        Self {
            descriptors,
            free: RefCell::default(),
            are_useless: Cell::new(false),
            passed_over: Cell::new(0),
        }
    }

    /// An empty pipe; `None` if there is none and descriptors are not plentiful: connections have precedence.
    pub(crate) fn take(&self) -> Option<Pipe> {
        if self.are_useless.get() {
            return None;
        }
        let made = || self.open(|| pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK));
        self.free.borrow_mut().pop().or_else(made)
    }

    fn open(&self, make: impl FnOnce() -> Result<(OwnedFd, OwnedFd), Errno>) -> Option<Pipe> {
        if let Some(left) = self.passed_over.get().checked_sub(1) {
            self.passed_over.set(left);
            return None;
        }
        if self.descriptors.level() != Level::Calm {
            return None;
        }
        let descriptors = self.descriptors.take(2)?;
        let made = make().and_then(|(reads, writes)| Ok((fcntl_getpipe_size(&writes)?, reads, writes)));
        match made {
            Ok((room, reads, writes)) if room >= LEAST => {
                Some(Pipe { reads, writes, held: 0, is_doubted: true, _descriptors: descriptors })
            }
            _ => {
                self.passed_over.set(PASSED_OVER);
                None
            }
        }
    }

    /// Returns a pipe. One that is not empty is closed.
    pub(crate) fn give(&self, pipe: Pipe) {
        let mut free = self.free.borrow_mut();
        if pipe.held == 0 && free.len() < KEPT {
            free.push(Pipe { is_doubted: true, ..pipe });
        }
    }

    /// Disables pipes, because the kernel does not support splicing.
    pub(crate) fn give_up(&self) {
        self.are_useless.set(true);
    }

    /// Closes the unused pipes.
    pub(crate) fn shed(&self) {
        self.free.borrow_mut().clear();
    }
}

impl Pipe {
    /// Bytes that were put in and not taken out yet.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Moves data from a socket into the empty pipe, at most `most` bytes.
    ///
    /// # Errors
    /// The socket's error.
    pub(crate) fn poll_fill(
        &mut self,
        from: &TcpStream,
        most: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Filled>> {
        // A full pipe would look like a socket without data.
        debug_assert_eq!(self.held, 0);
        loop {
            ready!(from.poll_read_ready(cx))?;
            let moves = || match splice(from, None, &self.writes, None, most.min(MOST), SpliceFlags::NONBLOCK)
            {
                // The runtime still considers the socket readable.
                Err(Errno::AGAIN) if self.is_doubted => Ok(Filled::Unsure),
                moved => Ok(Filled::With(moved?)),
            };
            match from.try_io(Interest::READABLE, moves) {
                Ok(Filled::With(count)) => {
                    (self.held, self.is_doubted) = (count, false);
                    return Poll::Ready(Ok(Filled::With(count)));
                }
                Ok(other) => return Poll::Ready(Ok(other)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_doubted = true,
                Err(error) if is_passing(&error) => {}
                Err(error) if is_unable(&error) => return Poll::Ready(Ok(Filled::Unable)),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Sends everything that is in it.
    ///
    /// # Errors
    /// The socket's error.
    pub(crate) fn poll_drain(&mut self, to: &TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.held > 0 {
            ready!(to.poll_write_ready(cx))?;
            let moves = || Ok(splice(&self.reads, None, to, None, self.held, SpliceFlags::NONBLOCK)?);
            match to.try_io(Interest::WRITABLE, moves) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(count) => self.held -= count,
                Err(error) if is_passing(&error) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Whether the kernel does not support it, or a system call filter forbids it.
fn is_unable(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::INVAL | Errno::NOSYS | Errno::PERM))
}

pub(crate) mod bodies;

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use rustix::pipe::fcntl_setpipe_size;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    pub(super) async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    #[tokio::test]
    async fn bytes_go_from_socket_to_socket() {
        let (mut source, from) = pair().await;
        let (to, mut sink) = pair().await;
        let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7) as u8).collect();
        let pipes = Pipes::new(Budget::new(2));
        let passing = async {
            let mut pipe = pipes.take().unwrap();
            assert!(pipes.take().is_none(), "there are descriptors for one");
            let mut total = 0;
            loop {
                let filled = poll_fn(|cx| pipe.poll_fill(&from, sent.len() - total, cx)).await.unwrap();
                let count = match filled {
                    Filled::With(0) => break,
                    Filled::With(count) => count,
                    Filled::Unsure => {
                        // Clears the readiness: everything that was reported was read.
                        let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
                        from.try_io(Interest::READABLE, nothing).unwrap_err();
                        continue;
                    }
                    Filled::Unable => panic!("the kernel of this test can do it"),
                };
                assert!(count <= MOST);
                total += count;
                poll_fn(|cx| pipe.poll_drain(&to, cx)).await.unwrap();
            }
            pipes.give(pipe);
            drop(to);
            total
        };
        let writing = async {
            source.write_all(&sent).await.unwrap();
            drop(source);
        };
        let mut seen = Vec::new();
        let (total, (), read) = tokio::join!(passing, writing, sink.read_to_end(&mut seen));
        read.unwrap();
        assert!(total == sent.len() && seen == sent);
        assert!(pipes.take().is_some(), "it was kept");
    }

    #[test]
    fn a_kernel_that_does_not_or_may_not_is_no_failure_of_a_socket() {
        for (errno, unable) in [
            (Errno::INVAL, true),
            (Errno::NOSYS, true),
            (Errno::PERM, true),
            (Errno::CONNRESET, false),
            (Errno::PIPE, false),
        ] {
            assert_eq!(is_unable(&errno.into()), unable, "{errno}");
        }
    }

    #[test]
    fn one_that_costs_more_than_it_saves_is_not_taken() {
        let descriptors = Budget::new(10);
        let pipes = Pipes::new(descriptors.clone());
        let small = || {
            let (reads, writes) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
            // As the kernel makes them for a user with too many.
            fcntl_setpipe_size(&writes, 2 * 4096)?;
            Ok((reads, writes))
        };
        assert!(pipes.open(small).is_none());
        assert_eq!(descriptors.used(), 0);
        let mut asked = 0..;
        assert!(asked.by_ref().find_map(|_| pipes.take()).is_some(), "it is looked for again");
        assert_eq!(asked.start, PASSED_OVER + 1);
    }

    #[tokio::test]
    async fn one_that_is_not_empty_is_not_kept() {
        let (mut source, from) = pair().await;
        let descriptors = Budget::new(10);
        let pipes = Pipes::new(descriptors.clone());
        let mut pipe = pipes.take().unwrap();
        source.write_all(b"some").await.unwrap();
        assert_eq!(poll_fn(|cx| pipe.poll_fill(&from, 10, cx)).await.unwrap(), Filled::With(4));
        pipes.give(pipe);
        assert_eq!(descriptors.used(), 0);
        pipes.give(pipes.take().unwrap());
        assert_eq!(descriptors.used(), 2);
        pipes.shed();
        assert_eq!(descriptors.used(), 0);
        pipes.give_up();
        assert!(pipes.take().is_none());
    }
}
