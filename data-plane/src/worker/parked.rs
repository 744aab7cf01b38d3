//! A worker's parked (idle) connections: each costs some dozen bytes here and an entry in an epoll set, which is a
//! single descriptor for the runtime. When one becomes readable or its deadline comes, it gets a task again.
//!
//! **Invariant:** nothing is decided here. Whether a connection has timed out, must make room or has a request is for
//! its task to find out, as for one that was never parked.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::yield_now;
use tracing::{debug, warn};

use super::{ConnectionPermit, Worker};
use crate::http::conn::Parked;
use crate::listen;
use crate::local::timer::Timers;

/// Number of connections that get a task at a time. They run before the next ones get one.
const WOKEN: usize = 256;

/// What says that the other end of a connection has closed at least its half.
const END: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

/// The parked connections, and the epoll set that watches them.
pub(super) struct ParkedSet {
    set: AsyncFd<OwnedFd>,
    /// By the numbers of their timers.
    entries: RefCell<Vec<Option<Box<ParkedEntry>>>>,
    count: Cell<u64>,
}

/// A connection and its slot. It does not refer to the worker, because that owns the set, which would be a cycle.
pub(super) type ParkedEntry = (Parked, Option<ConnectionPermit>);

impl ParkedSet {
    /// Without connections.
    ///
    /// # Errors
    /// The kernel's.
    #[expect(
        deprecated,
        reason = "its successor is unsafe, for a type may change its descriptor while it is registered. This one does not"
    )]
    pub(super) fn new() -> io::Result<Self> {
        let set = epoll::create(CreateFlags::CLOEXEC)?;
        let set = AsyncFd::with_interest(set, Interest::READABLE)?;
        Ok(Self { set, entries: RefCell::default(), count: Cell::new(0) })
    }

    /// Parks a connection, or returns it if the kernel has no room for it.
    pub(super) fn park(&self, mut entry: ParkedEntry) -> Result<(), ParkedEntry> {
        let number = entry.0.park();
        // Data that arrived meanwhile is reported at once. So is the end of the connection in any form.
        let data = EventData::new_u64(number as u64);
        let events = EventFlags::IN | EventFlags::RDHUP;
        let watched = entry.0.with_socket(|socket| Ok(epoll::add(&self.set, socket, data, events)?));
        if let Err(error) = watched {
            debug!(%error, "a silent connection cannot be parked");
            return Err(entry);
        }
        let entries = &mut *self.entries.borrow_mut();
        if entries.len() <= number {
            entries.resize_with(number + 1, || None);
        }
        entries[number] = Some(Box::new(entry));
        self.count.set(self.count.get() + 1);
        Ok(())
    }

    /// Number of parked connections.
    pub(super) fn count(&self) -> u64 {
        self.count.get()
    }

    /// Removes a connection, if it is there.
    fn take(&self, number: usize) -> Option<ParkedEntry> {
        let mut entry = *self.entries.borrow_mut().get_mut(number)?.take()?;
        self.count.set(self.count.get() - 1);
        let left = entry.0.with_socket(|socket| Ok(epoll::delete(&self.set, socket)?));
        if let Err(error) = left {
            debug!(%error, "a silent connection cannot be left alone");
        }
        Some(entry)
    }

    /// Connections that need a task again, and whether their clients have closed their half.
    fn poll_woken(
        &self,
        timers: &Timers,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Vec<(ParkedEntry, bool)>>> {
        if let Poll::Ready(numbers) = timers.poll_due(cx, WOKEN) {
            let due = numbers.into_iter().filter_map(|number| Some((self.take(number)?, false)));
            return Poll::Ready(Ok(due.collect()));
        }
        let mut events = Vec::with_capacity(WOKEN);
        loop {
            let mut ready = ready!(self.set.poll_read_ready(cx))?;
            match epoll::wait(&self.set, spare_capacity(&mut events), Some(&Timespec::default())) {
                Ok(0) => ready.clear_ready(),
                Ok(_) => {
                    let woken = events.iter().filter_map(|event| {
                        let saw_end = { event.flags }.intersects(END);
                        Some((self.take(event.data.u64() as usize)?, saw_end))
                    });
                    return Poll::Ready(Ok(woken.collect()));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }
}

/// Gives connections a task when they need one, as long as the worker lives.
pub(super) async fn keep(worker: Rc<Worker>) {
    loop {
        match poll_fn(|cx| worker.parked_set.poll_woken(&worker.server.local.timers, cx)).await {
            Ok(woken) => woken.into_iter().for_each(|(entry, saw_end)| worker.wake(entry, saw_end)),
            Err(error) => {
                warn!(%error, "silent connections cannot be watched");
                tokio::time::sleep(listen::PAUSE).await;
            }
        }
        yield_now().await;
    }
}
