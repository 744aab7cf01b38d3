//! What the connections of one worker share: what the worker lends them, the tables, the endpoints.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::listen::PublicPorts;
use crate::local::Local;
use crate::table::policy::clients::Clients;
use crate::table::policy::kept::Kept;
use crate::table::{HostTable, TableReader, Tables};
use crate::tls::backends::Backends;
use crate::tls::clients::Handshakes;
use crate::upstream::Upstreams;

/// All that serving a connection takes.
///
/// A `RefCell` here is borrowed for one call and never across an await.
pub(crate) struct Server {
    pub(crate) local: Rc<Local>,
    pub(crate) upstreams: RefCell<Upstreams>,
    /// What redirects name.
    pub(crate) ports: PublicPorts,
    tables: RefCell<TableReader>,
    handshakes: Handshakes,
    backends: Backends,
}

impl Server {
    /// Without connections.
    pub(crate) fn new(
        local: Local,
        tables: &Arc<Tables>,
        tls: Arc<rustls::ServerConfig>,
        backends: Backends,
        ports: PublicPorts,
    ) -> Self {
        let upstreams = Upstreams::new(local.limits.idle_upstreams, local.limits.upstream_idle)
            .trying_again(local.limits.retry_budget);
        Self {
            local: Rc::new(local),
            upstreams: RefCell::new(upstreams),
            ports,
            tables: RefCell::new(tables.reader()),
            handshakes: Handshakes::new(tls),
            backends,
        }
    }

    /// Asks the table of this moment; a request asks once. The table cannot leave the closure: were a request to keep
    /// it, the worker might be the one to free it.
    pub(crate) fn with_table<R>(&self, ask: impl FnOnce(&HostTable) -> R) -> R {
        ask(self.tables.borrow_mut().load())
    }

    /// What the fleet says of clients' connections at this moment.
    pub(crate) fn clients(&self) -> Clients {
        self.with_table(|table| table.policy().clients)
    }

    /// Keeps connections to endpoints as the fleet says at this moment.
    pub(crate) fn renew_kept(&self) {
        let Kept { connections, idle, .. } = self.with_table(|table| table.policy().kept);
        let limits = &self.local.limits;
        let connections = connections.unwrap_or(limits.idle_upstreams);
        self.upstreams.borrow_mut().keep(connections, idle.unwrap_or(limits.upstream_idle));
    }

    /// Lets go of a table that is no longer the newest: a worker without requests would otherwise keep it alive.
    pub(crate) fn renew_table(&self) {
        self.tables.borrow_mut().load();
    }

    /// Settings of handshakes with clients.
    pub(crate) fn handshakes(&self) -> &Handshakes {
        &self.handshakes
    }

    /// Makes TLS connections to backends.
    pub(crate) fn backends(&self) -> &Backends {
        &self.backends
    }
}
