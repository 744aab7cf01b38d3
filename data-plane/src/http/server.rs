//! What the connections of one worker share: the worker's resources, the tables, the endpoints.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use shared::budget::Held;
use shared::clock;
use tracing::warn;

use crate::listen::PublicPorts;
use crate::local::Local;
use crate::local::upstream_shares::{Lack, LinkPermit, RequestPermit};
use crate::table::policy::clients::Clients;
use crate::table::policy::upstream_keepalive::UpstreamKeepalive;
use crate::table::{BackendCell, HostTable, TableReader, Tables};
use crate::tls::backends::Backends;
use crate::tls::clients::Handshakes;
use crate::upstream::Upstreams;

/// Everything that is needed to serve a connection.
///
/// A `RefCell` here is borrowed for one call and never across an await.
pub(crate) struct Server {
    pub(crate) local: Rc<Local>,
    pub(crate) upstreams: RefCell<Upstreams>,
    /// The ports that redirects use.
    pub(crate) ports: PublicPorts,
    /// The port on which it listens for HTTPS, if it does.
    pub(crate) https: Option<u16>,
    tables: RefCell<TableReader>,
    handshakes: Handshakes,
    backends: Backends,
}

impl Server {
    /// A server without connections.
    pub(crate) fn new(
        local: Local,
        tables: &Arc<Tables>,
        tls: Arc<rustls::ServerConfig>,
        backends: Backends,
        ports: PublicPorts,
    ) -> Self {
        let upstreams = Upstreams::new(local.limits.idle_upstreams, local.limits.upstream_idle)
            .with_retry_budget(local.limits.retry_budget);
        Self {
            local: Rc::new(local),
            upstreams: RefCell::new(upstreams),
            ports,
            https: None,
            tables: RefCell::new(tables.reader()),
            handshakes: Handshakes::new(tls),
            backends,
        }
    }

    /// Notes the port on which it listens for HTTPS.
    pub(crate) fn with_https(mut self, port: Option<u16>) -> Self {
        self.https = port;
        self
    }

    /// Calls `ask` with the current table; a request does this once. The table must not leave the closure: if a
    /// request kept it, the worker might be the one to free it.
    pub(crate) fn with_table<R>(&self, ask: impl FnOnce(&HostTable) -> R) -> R {
        ask(self.tables.borrow_mut().load())
    }

    /// A permit for a connection to an endpoint of a backend, for one request at a time.
    pub(crate) fn permit(&self, cell: &BackendCell) -> Option<LinkPermit> {
        let request = self.request_permit(cell)?;
        Some(LinkPermit::new(self.descriptor()?, Some(request)))
    }

    /// A permit to ask an endpoint of a backend. It has precedence over idle connections of this backend, and over those
    /// of others unless this one or its namespace has its share.
    pub(crate) fn request_permit(&self, cell: &BackendCell) -> Option<RequestPermit> {
        let take = || self.local.upstream_shares.take(&cell.links, &cell.namespace_links);
        take_or_shed(take, |lack| {
            let mut upstreams = self.upstreams.borrow_mut();
            match lack {
                Lack::Share => upstreams.shed_one(cell.id),
                Lack::Namespace => upstreams.shed_beside(cell),
                Lack::Total => upstreams.shed(),
            }
        })
    }

    /// A descriptor for a connection that this proxy opens. It has precedence over idle connections to endpoints.
    pub(crate) fn descriptor(&self) -> Option<Held> {
        take_or_shed(|| self.local.descriptors.take(1).ok_or(()), |()| self.upstreams.borrow_mut().shed())
    }

    /// Whether clients may connect to this address of the proxy; one that is not known is none of those that are said.
    pub(crate) fn listens_at(&self, local: impl FnOnce() -> Option<IpAddr>) -> bool {
        self.with_table(|table| {
            let addresses = table.addresses();
            if addresses.are_all() {
                return true;
            }
            let local = local();
            let admits = local.is_some_and(|local| addresses.admits(local));
            if !admits && self.local.failures.allows("bind-address", clock::now()) {
                let address = local.map(tracing::field::display);
                warn!(
                    address,
                    "a client was turned away: bind-address or disable-ipv6 of the ConfigMap leaves out the address \
                     that it connected to; addresses of the node need a proxy on the node's network \
                     (dataPlane.expose: hostNetwork). This is logged once a minute"
                );
            }
            admits
        })
    }

    /// The fleet's current settings for client connections.
    pub(crate) fn clients(&self) -> Clients {
        self.with_table(|table| table.policy().clients)
    }

    /// Applies the fleet's current keep-alive settings for connections to endpoints.
    pub(crate) fn renew_kept(&self) {
        let UpstreamKeepalive { connections, idle, .. } =
            self.with_table(|table| table.policy().upstream_keepalive);
        let limits = &self.local.limits;
        let connections = connections.unwrap_or(limits.idle_upstreams);
        self.upstreams.borrow_mut().keep(connections, idle.unwrap_or(limits.upstream_idle));
    }

    /// Releases a table that is no longer the newest: a worker without requests would otherwise keep it alive.
    pub(crate) fn renew_table(&self) {
        self.tables.borrow_mut().load();
    }

    /// The handshake settings for clients.
    pub(crate) fn handshakes(&self) -> &Handshakes {
        &self.handshakes
    }

    /// The TLS connector for backends.
    pub(crate) fn backends(&self) -> &Backends {
        &self.backends
    }
}

/// What `take` acquires, if need be after idle connections are closed.
fn take_or_shed<T, E>(take: impl Fn() -> Result<T, E>, shed: impl Fn(E) -> bool) -> Option<T> {
    match take() {
        Ok(taken) => Some(taken),
        Err(lack) => shed(lack).then(take)?.ok(),
    }
}
