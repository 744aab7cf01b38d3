//! The ports of TCP and UDP services on one worker: those of the newest table are served.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use shared::resource::Transport;
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use super::{Own, Worker, admit_stream};
use crate::listen::Queue;
use crate::listen::ports::Port;
use crate::local::timer::TICK;
use crate::table::streams::Service;
use crate::udp::{self, Common};

/// The TCP and UDP services of a worker.
#[derive(Default)]
pub(super) struct Streams {
    /// The generation of the table that was looked at last.
    generation: Option<u64>,
    /// Whether there is a port of it that could not be begun, for example without descriptors: it is tried again.
    is_incomplete: bool,
    open: HashMap<(Transport, u16), Open>,
    /// What UDP ports share; not allocated before there is one.
    common: OnceCell<Rc<Common>>,
}

struct Open {
    port: Arc<Port>,
    serving: Serving,
}

enum Serving {
    Tcp { queue: Rc<Queue>, to: Rc<RefCell<Service>>, task: JoinHandle<()> },
    Udp { port: Rc<udp::Port>, task: JoinHandle<()> },
}

impl Streams {
    /// Serves the services of the newest table.
    fn renew(&mut self, worker: &Rc<Worker>, own: &Own) {
        let (is_new, newest) = worker.server.with_table(|table| {
            let is_new = self.generation.replace(table.generation()) != Some(table.generation());
            let is_due = std::mem::take(&mut self.is_incomplete) || is_new;
            (is_new, is_due.then(|| Arc::clone(table.streams())))
        });
        let Some(newest) = newest else { return };
        let key = |service: &Service| (service.config.transport, service.config.port);
        let wanted: HashMap<_, _> = newest.services.iter().map(|service| (key(service), service)).collect();
        self.open.retain(|key, open| {
            let stays = wanted.get(key).is_some_and(|service| Arc::ptr_eq(&service.port, &open.port));
            if !stays {
                open.end(worker);
            }
            stays
        });
        for (key, service) in wanted {
            if let Some(open) = self.open.get(&key) {
                open.serving.lead_to(service);
                continue;
            }
            match begin(worker, own, service, &self.common) {
                Ok(open) => {
                    self.open.insert(key, open);
                }
                Err(error) => {
                    self.is_incomplete = true;
                    if is_new {
                        let address = service.port.address();
                        warn!(%address, %error, "a port cannot be served yet; it is tried again");
                    }
                }
            }
        }
    }

    /// Accepts no new clients; existing connections continue. UDP has no end that could be waited for, so it is served
    /// as long as the worker exists.
    pub(super) fn end(&mut self, worker: &Rc<Worker>) {
        self.open.retain(|_, open| {
            let stays = matches!(open.serving, Serving::Udp { .. });
            if !stays {
                open.end(worker);
            }
            stays
        });
    }
}

fn begin(
    worker: &Rc<Worker>,
    own: &Own,
    service: &Service,
    common: &OnceCell<Rc<Common>>,
) -> io::Result<Open> {
    let socket = service.port.open(worker.index)?;
    debug!(worker = worker.index, service = %service.config.key(), "listening");
    let serving = match service.config.transport {
        Transport::Tcp => {
            let queue = Rc::new(Queue::new(socket)?);
            let to = Rc::new(RefCell::new(service.clone()));
            let task = own.spawn("a port", accept(Rc::clone(worker), Rc::clone(&queue), Rc::clone(&to)));
            Serving::Tcp { queue, to, task }
        }
        Transport::Udp => {
            let (server, cell) = (Rc::clone(&worker.server), Arc::clone(&service.cell));
            let common = Rc::clone(common.get_or_init(Rc::default));
            let port = udp::Port::new(server, socket, cell, common)?;
            let task = own.spawn("a port", Rc::clone(&port).run());
            Serving::Udp { port, task }
        }
    };
    Ok(Open { port: Arc::clone(&service.port), serving })
}

impl Serving {
    fn lead_to(&self, service: &Service) {
        match self {
            Self::Tcp { to, .. } => {
                to.replace(service.clone());
            }
            Self::Udp { port, .. } => port.lead_to(&service.cell),
        }
    }
}

impl Open {
    /// Stops accepting; clients in the queue are connected, and are served.
    fn end(&mut self, worker: &Rc<Worker>) {
        match &self.serving {
            Serving::Tcp { queue, to, task } => {
                task.abort();
                for accepted in queue.rest() {
                    admit_stream(worker, accepted, &to.borrow());
                }
                self.port.close(worker.index);
            }
            Serving::Udp { task, .. } => task.abort(),
        }
    }
}

/// Checks for a new table periodically.
pub(super) async fn keep(worker: Rc<Worker>, own: Own, streams: Rc<RefCell<Streams>>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        streams.borrow_mut().renew(&worker, &own);
    }
}

/// Accepts until aborted. That can happen only while it waits, when it holds no connection. No error ends it.
async fn accept(worker: Rc<Worker>, queue: Rc<Queue>, to: Rc<RefCell<Service>>) {
    loop {
        if worker.is_full() {
            // Those that were accepted just before have not reported yet that they are idle.
            tokio::task::yield_now().await;
        }
        let accepted = super::next(&worker, &queue).await;
        admit_stream(&worker, accepted, &to.borrow());
    }
}

#[cfg(test)]
mod tests;
