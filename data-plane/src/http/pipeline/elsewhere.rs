//! Connections to places that are no endpoints: URLs that somebody says, of who is asked or gets a copy.

use std::cell::Cell;
use std::io;

use shared::budget::Held;
use tokio::net::TcpStream;

use crate::http::server::Server;
use crate::upstream::dial::dial;
use crate::upstream::wire::Wire;
pub(super) use url::Url;

mod url;

/// Addresses of a name that are tried.
const ADDRESSES: usize = 3;

/// A connection that is closed after one exchange.
pub(super) struct Connection {
    pub(super) wire: Wire,
    _descriptor: Held,
}

/// Whether idle connections to endpoints make room, where descriptors are short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Room {
    /// They do: a request waits.
    Made,
    /// They do not.
    Found,
}

/// Connects to where a URL leads, over TLS where it says so. `owner` is the Ingress that says it.
///
/// # Errors
/// Where its host has no address, nobody listens, or there is no descriptor.
pub(super) async fn connect(server: &Server, owner: &str, url: &Url, room: Room) -> io::Result<Connection> {
    let local = &server.local;
    let mut addresses = local.names.resolve(owner, &url.host, url.port).await?;
    addresses.truncate(ADDRESSES);
    let descriptor = local.descriptors.take(1).or_else(|| {
        if room == Room::Found {
            return None;
        }
        server.upstreams.borrow_mut().shed();
        local.descriptors.take(1)
    });
    let descriptor = descriptor.ok_or_else(|| io::Error::other("there are no descriptors left"))?;
    let stream = match room {
        Room::Found => TcpStream::connect(&*addresses).await?,
        Room::Made => {
            let make_room = || server.upstreams.borrow_mut().shed();
            let connect = || TcpStream::connect(&*addresses);
            dial(&local.reserve, &Cell::new(false), connect, make_room).await?
        }
    };
    stream.set_nodelay(true)?;
    let wire = match url.is_tls {
        true => Wire::Tls(Box::new(server.backends().connect_to(&url.host, stream).await?)),
        false => Wire::Plain(stream),
    };
    Ok(Connection { wire, _descriptor: descriptor })
}
