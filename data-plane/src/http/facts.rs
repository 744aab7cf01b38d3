//! The values of nginx' connection variables.

use std::io::Write as _;

use shared::template::{OfCertificate, OfConnection};

use super::peer::Peer;
use crate::listen::Scheme;
use crate::tls::negotiated::Negotiated;

/// Appends the value of a connection variable; `false`: it has none.
pub(super) fn append(peer: &Peer, what: OfConnection, out: &mut Vec<u8>) -> bool {
    let tls = peer.negotiated();
    match what {
        OfConnection::ClientPort => number(peer.address().port().into(), out),
        OfConnection::ServerAddr => peer.local().is_some_and(|address| write!(out, "{address}").is_ok()),
        OfConnection::ServerPort => number(peer.port().into(), out),
        OfConnection::Scheme => text(peer.scheme().as_str(), out),
        OfConnection::Https => text(if peer.scheme() == Scheme::Https { "on" } else { "" }, out),
        OfConnection::Number => number(peer.number(), out),
        OfConnection::ToldAddr
        | OfConnection::ToldPort
        | OfConnection::ToldServerAddr
        | OfConnection::ToldServerPort => peer.ends().is_some_and(|ends| ends.tell(what, out)),
        OfConnection::SslProtocol => tls.is_some_and(|tls| text(tls.protocol, out)),
        OfConnection::SslCipher => tls.is_some_and(|tls| text(tls.cipher, out)),
        OfConnection::SslCurve => tls.and_then(|tls| tls.curve).is_some_and(|name| text(name, out)),
        OfConnection::SslServerName => {
            tls.and_then(|tls| tls.name.as_deref()).is_some_and(|name| text(name, out))
        }
        OfConnection::SslAlpn => tls.and_then(|tls| tls.alpn).is_some_and(|name| text(name, out)),
        OfConnection::SslSessionReused => {
            tls.is_some_and(|tls| text(if tls.is_resumed { "r" } else { "." }, out))
        }
        OfConnection::OfCertificate(what) => tls.is_some_and(|tls| certificate(tls, what, out)),
    }
}

/// Appends the value of a connection variable for a host. A certificate that was presented to another host is left
/// out, because its authority may mean nothing to this one.
pub(super) fn append_for(peer: &Peer, host: &str, what: OfConnection, out: &mut Vec<u8>) {
    match what {
        OfConnection::OfCertificate(what) if peer.negotiated().is_some_and(|tls| !tls.is_of(host)) => {
            if what == OfCertificate::Verify {
                text("NONE", out);
            }
        }
        what => {
            append(peer, what, out);
        }
    }
}

fn certificate(tls: &Negotiated, what: OfCertificate, out: &mut Vec<u8>) -> bool {
    match &tls.shown {
        Some(shown) => shown.tell(what, out),
        None => what == OfCertificate::Verify && text("NONE", out),
    }
}

fn text(text: &str, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(text.as_bytes());
    true
}

fn number(number: u64, out: &mut Vec<u8>) -> bool {
    // Writing to memory never fails.
    write!(out, "{number}").is_ok()
}
