//! Listeners.

use super::{ConvertError, invalid, port};
use crate::proto::config;
use crate::resource::{Listener, StreamService, Transport};

impl From<&Listener> for config::Listener {
    fn from(it: &Listener) -> Self {
        use config::listener::Protocol;
        let of_flags = |protocol: Protocol| Self { protocol: protocol.into(), ..Self::default() };
        match it.clone() {
            Listener::Http => of_flags(Protocol::Http),
            Listener::Https => of_flags(Protocol::Https),
            Listener::Service(service) => {
                let StreamService { transport, port, backend, takes_proxy_header, sends_proxy_header } =
                    service;
                let protocol = match transport {
                    Transport::Tcp => Protocol::Tcp,
                    Transport::Udp => Protocol::Udp,
                };
                Self {
                    protocol: protocol.into(),
                    port: port.into(),
                    backend,
                    takes_proxy_header,
                    sends_proxy_header,
                }
            }
        }
    }
}

impl TryFrom<config::Listener> for Listener {
    type Error = ConvertError;

    fn try_from(it: config::Listener) -> Result<Self, ConvertError> {
        use config::listener::Protocol;
        let transport = match Protocol::try_from(it.protocol) {
            Ok(Protocol::Http) => return Ok(Self::Http),
            Ok(Protocol::Https) => return Ok(Self::Https),
            Ok(Protocol::Tcp) => Transport::Tcp,
            Ok(Protocol::Udp) => Transport::Udp,
            _ => return Err(invalid("protocol", format!("unknown protocol {}", it.protocol))),
        };
        let config::Listener { protocol: _, port: number, backend, takes_proxy_header, sends_proxy_header } =
            it;
        if backend.is_empty() {
            return Err(invalid("backend", "expected the key of a Backend, got nothing"));
        }
        if transport == Transport::Udp && (takes_proxy_header || sends_proxy_header) {
            return Err(invalid("protocol", "datagrams cannot have a header of the PROXY protocol"));
        }
        let port = port(|| "port".to_owned(), number)?;
        Ok(Self::Service(StreamService { transport, port, backend, takes_proxy_header, sends_proxy_header }))
    }
}
