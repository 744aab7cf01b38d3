//! The request to the auth service, on its own connection: a head without a body, and a response of which only the
//! head is read.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use shared::template::{Overlong, Template};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::codec::guard::Limits;
use crate::codec::h1::ResponseReader;
use crate::codec::head::{Known, ResponseHead, put_field};
use crate::http::pipeline::elsewhere::{self, Url, Word};
use crate::http::pipeline::loops::Purpose;
use crate::http::pipeline::variables::{self, Allowance};
use crate::http::pipeline::{Call, Exchange, certificates, forwarded};
use crate::table::policy::external::External;

/// Maximum number of interim responses before the final one.
const INTERIM: usize = 8;

/// The auth request: the client's headers, and headers that describe its request and cannot be forged.
///
/// # Errors
/// The location's templates expand to too much.
pub(super) fn text(exchange: &Exchange<'_>, external: &External, url: &Url) -> Result<Vec<u8>, Overlong> {
    let head = &*exchange.head;
    let peer = exchange.call.peer;
    let client = exchange.client_text();
    let scheme = peer.scheme().as_str();
    let original = [scheme.as_bytes(), b"://", head.host.raw(), head.target()].concat();
    let is_believed = exchange.claims.as_deref().is_some_and(|claims| claims.is_believed);
    let mut fields = head.fields.clone();
    let is_kept = external.cache.is_some();
    fields.retain(|known, name| {
        let is_of_one = is_kept && is_of_what_it_has(name);
        !is_forged(known, name) && !is_of_one && (is_believed || !is_of_proxies(name))
    });
    fields.add(Known::XOriginalUrl, original);
    fields.add(Known::XOriginalMethod, head.method_name());
    certificates::set_headers(exchange.certificate.as_deref(), &mut fields);
    fields.add(Known::XSentFrom, "nginx-ingress-controller");
    fields.add(Known::XRealIp, &client);
    let whole = exchange.location().is_some_and(|it| it.policy.forwarding.whole_list);
    let list = forwarded::addresses(head, exchange.claims.as_deref(), peer, &client, whole);
    fields.add(Known::XForwardedFor, list);
    let allowance = &mut Allowance::default();
    let redirect = variables::filled(&external.request_redirect, exchange, allowance, |_| &[])?;
    fields.add(Known::XAuthRequestRedirect, redirect);
    if external.method.is_some() {
        fields.add(Known::XOriginalUri, head.target());
        fields.add(Known::XScheme, exchange.scheme());
    }
    let tells = |(name, _): &(Bytes, Template)| forwarded::is_told(Known::of(name), name);
    // An Ingress that sets them says something of its own.
    let purpose = if external.set_headers.iter().any(tells) { Purpose::Other } else { Purpose::Ask };
    let set = external.set_headers.iter();
    let set = set.map(|(name, value)| Ok((&**name, variables::filled(value, exchange, allowance, |_| &[])?)));
    fields.replace_each(&set.collect::<Result<Vec<_>, Overlong>>()?);
    exchange.came.mark(&mut fields, purpose, url.host_field().as_bytes());
    let mut out = Vec::with_capacity(1024);
    out.put_slice(external.method.as_deref().unwrap_or("GET").as_bytes());
    out.put_u8(b' ');
    for &byte in &url.target {
        match byte {
            // Escapes what could end the line: it may contain text from a client.
            0..=b' ' | 0x7f..=0xff => out.put_slice(format!("%{byte:02X}").as_bytes()),
            _ => out.put_u8(byte),
        }
    }
    out.put_slice(b" HTTP/1.1\r\n");
    put_field(&mut out, b"Host", url.host_field().as_bytes());
    fields.write(&mut out, Known::is_framing);
    put_field(&mut out, b"Connection", b"close");
    out.put_slice(b"\r\n");
    Ok(out)
}

/// Whether the auth request may have a header with another value than the client's request: the proxy sets it, or leaves
/// the client's out.
pub(super) fn may_differ(external: &External, name: &[u8]) -> bool {
    let is_set = external.set_headers.iter().any(|(it, _)| name.eq_ignore_ascii_case(it));
    is_set || is_of_what_it_has(name) || is_of_proxies(name) || is_forged(Known::of(name), name)
}

/// Whether a client's header is not passed to the auth service: it is replaced, or describes the body, which is not
/// sent.
fn is_forged(known: Known, name: &[u8]) -> bool {
    forwarded::begins(name, b"ssl-client-")
        || known.is_hop_by_hop()
        || matches!(
            known,
            Known::XOriginalUrl
                | Known::XOriginalMethod
                | Known::XOriginalUri
                | Known::XSentFrom
                | Known::XRealIp
                | Known::XForwardedFor
                | Known::XForwardedProto
                | Known::XAuthRequestRedirect
                | Known::XScheme
                | Known::Expect
        )
}

/// Whether a header makes a request conditional or partial. A cached response is used for other clients as well: nginx
/// requests it without these.
fn is_of_what_it_has(name: &[u8]) -> bool {
    let conditions: [&[u8]; 6] =
        [b"if-match", b"if-modified-since", b"if-none-match", b"if-range", b"if-unmodified-since", b"range"];
    conditions.iter().any(|it| name.eq_ignore_ascii_case(it))
}

/// Whether a header is one with which proxies describe their client. The auth service takes it for ours, the requested
/// host in particular: those of untrusted clients are removed, whereas ingress-nginx passes on what it does not
/// replace.
fn is_of_proxies(name: &[u8]) -> bool {
    let begins = |prefix| forwarded::begins(name, prefix);
    begins(b"x-forwarded-")
        || begins(b"x-original-")
        || name.eq_ignore_ascii_case(b"forwarded")
        || forwarded::is_told(Known::of(name), name)
}

/// Asks once, without retries.
pub(super) async fn ask(
    call: Call<'_>,
    (word, url): (Word<'_>, &Url),
    text: &[u8],
    to_head: bool,
) -> io::Result<Box<ResponseHead>> {
    let mut connection = elsewhere::connect(call.server, word, url).await?;
    exchange_heads(&mut connection.wire, text, to_head).await
}

async fn exchange_heads(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    text: &[u8],
    to_head: bool,
) -> io::Result<Box<ResponseHead>> {
    stream.write_all(text).await?;
    stream.flush().await?;
    let mut reader = ResponseReader::new(Limits::RESPONSE);
    let mut input = BytesMut::with_capacity(4096);
    let mut interim = 0;
    loop {
        match reader.feed(&mut input, to_head) {
            Ok(Some(head)) if head.is_interim() && interim < INTERIM => {
                interim += 1;
                continue;
            }
            // What follows is not read, because the connection is closed.
            Ok(Some(head)) => return Ok(head),
            Ok(None) => {}
            Err(error) => return Err(io::Error::other(format!("malformed response: {error}"))),
        }
        if stream.read_buf(&mut input).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
