//! Connections to URLs from annotations: auth services (`auth-url`) and mirror targets, as opposed to endpoints of
//! Services.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use shared::budget::Held;
use shared::clock;
use tokio::net::TcpStream;
use tokio::time;
use tracing::warn;

use crate::http::server::Server;
use crate::local::Local;
use crate::upstream::dial::dial;
use crate::upstream::wire::Wire;
pub(super) use url::Url;

mod url;

/// Maximum number of addresses of a name that are tried.
const ADDRESSES: usize = 3;
/// Time limit for connecting to one of them if there is another one to try.
const CONNECT: Duration = Duration::from_secs(5);

/// A connection that is closed after one exchange.
pub(super) struct Connection {
    pub(super) wire: Wire,
    _descriptor: Held,
}

/// On whose behalf a connection is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word<'w> {
    /// The Ingress, as `namespace/name`.
    pub(super) owner: &'w str,
    /// The annotation or ConfigMap option with the URL.
    pub(super) field: &'static str,
    pub(super) room: Room,
}

/// Whether idle connections to endpoints are closed when descriptors are short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Room {
    /// They are, because a request waits.
    Made,
    /// They are not.
    Found,
}

/// Connects to the host of a URL, with TLS if it is https.
///
/// # Errors
/// Its host has no address or none that is allowed, nothing listens there, or no descriptor is free.
pub(super) async fn connect(server: &Server, word: Word<'_>, url: &Url) -> io::Result<Connection> {
    let (local, room) = (&server.local, word.room);
    let mut addresses = local.names.resolve(word.owner, &url.host, url.port).await?;
    keep_reachable(local, word, &mut addresses)?;
    local.names.put_unreached_last(&mut addresses);
    addresses.truncate(ADDRESSES);
    let descriptor = match room {
        Room::Made => server.descriptor(),
        Room::Found => local.descriptors.take(1),
    };
    let descriptor = descriptor.ok_or_else(|| io::Error::other("there are no descriptors left"))?;
    let is_out = &Cell::new(false);
    let connect = async |address| match room {
        Room::Found => TcpStream::connect(address).await,
        Room::Made => {
            let make_room = || server.upstreams.borrow_mut().shed();
            dial(&local.reserve, is_out, || TcpStream::connect(address), make_room).await
        }
    };
    let unreached = |address| {
        // A lack of descriptors says nothing about the address.
        if !is_out.get() {
            local.names.is_unreached(address);
        }
    };
    let stream = first(&addresses, connect, unreached).await?;
    stream.set_nodelay(true)?;
    let wire = match url.is_tls {
        true => Wire::Tls(Box::new(server.backends().connect_to(&url.host, stream).await?)),
        false => Wire::Plain(stream),
    };
    Ok(Connection { wire, _descriptor: descriptor })
}

/// Keeps the addresses that a tenant may have this proxy connect to, and logs the others.
///
/// # Errors
/// None are left.
fn keep_reachable(local: &Local, word: Word<'_>, addresses: &mut Vec<SocketAddr>) -> io::Result<()> {
    let mut refused = None;
    addresses.retain(|address| {
        let why = local.reach.refuses(address.ip());
        refused = why.map(|why| (*address, why)).or(refused);
        why.is_none()
    });
    let Some((address, what)) = refused else { return Ok(()) };
    if local.refusals.allows(word.owner, clock::now()) {
        let Word { owner: ingress, field, .. } = word;
        warn!(ingress, field, %address, "a {what} address is not connected to unless --auth-networks allows it");
    }
    match addresses.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{address} is {what}"))),
        false => Ok(()),
    }
}

/// The result for the first address that can be connected to. For the last one there is only the caller's time limit.
async fn first<T>(
    addresses: &[SocketAddr],
    connect: impl AsyncFn(SocketAddr) -> io::Result<T>,
    unreached: impl Fn(SocketAddr),
) -> io::Result<T> {
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for (place, &address) in addresses.iter().enumerate() {
        let connecting = connect(address);
        let connected = match place + 1 == addresses.len() {
            true => connecting.await,
            false => time::timeout(CONNECT, connecting).await.unwrap_or_else(|late| Err(late.into())),
        };
        match connected {
            Ok(connected) => return Ok(connected),
            Err(error) => failed = error,
        }
        unreached(address);
    }
    Err(failed)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_address_that_is_silent_or_refuses_leaves_time_for_the_next() {
        let at = |last: u8| SocketAddr::from(([10, 0, 0, last], 80));
        let connect = async |address: SocketAddr| match address {
            it if it == at(1) => std::future::pending().await,
            it if it == at(2) => Err(io::ErrorKind::ConnectionRefused.into()),
            it => Ok(it),
        };
        let (begun, dead) = (time::Instant::now(), RefCell::new(Vec::new()));
        let unreached = |address| dead.borrow_mut().push(address);
        assert_eq!(first(&[at(1), at(2), at(3), at(4)], connect, unreached).await.unwrap(), at(3));
        assert_eq!((begun.elapsed(), &*dead.borrow()), (CONNECT, &vec![at(1), at(2)]));
        let error = first(&[at(2)], connect, unreached).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        // The last one has only the caller's time limit.
        time::timeout(4 * CONNECT, first(&[at(2), at(1)], connect, unreached)).await.unwrap_err();
    }
}
