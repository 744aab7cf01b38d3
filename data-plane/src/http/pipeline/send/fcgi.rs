//! The same over FastCGI: the parameters that an application gets for a request (as in ingress-nginx; nginx'
//! `fastcgi_params`).

use bytes::Bytes;
use shared::template::Variable;

use crate::codec::error::{Kind, ProxyError};
use crate::codec::fcgi::{Params, begin};
use crate::codec::h1::BodyWriter;
use crate::codec::head::{Framing, Known};
use crate::codec::path;
use crate::http::pipeline::Exchange;
use crate::http::pipeline::variables::{self, Allowance};
use crate::listen::Scheme;
use crate::table::policy::fastcgi::FastCgi;

/// nginx' default root, where no application is; it can be configured.
const DOCUMENT_ROOT: &str = "/usr/local/nginx/html";

/// Some applications check this to determine how paths are passed.
const SOFTWARE: &[u8] = b"nginx";

/// Writes what precedes the body; returns the body's framing.
///
/// # Errors
/// The location's templates expand to too much.
pub(super) fn write(
    exchange: &Exchange<'_>,
    host: &Bytes,
    framing: Framing,
    out: &mut Vec<u8>,
) -> Result<BodyWriter, ProxyError> {
    let location = exchange.location();
    let settings = location.and_then(|location| location.policy.fastcgi.as_deref());
    begin(out);
    let mut params = Params::default();
    usual(exchange, settings, framing, &mut params);
    headers(exchange, host, &mut params);
    let script = script(exchange, settings);
    let (mut allowance, mut value) = (Allowance::USUAL, Vec::new());
    for param in settings.iter().flat_map(|settings| &settings.params) {
        value.clear();
        let filled = param.value.fill(&mut value, allowance, |variable, out| match variable {
            Variable::Named(name) => match &**name {
                "fastcgi_script_name" => out.extend_from_slice(&script),
                "document_root" => out.extend_from_slice(DOCUMENT_ROOT.as_bytes()),
                _ => {}
            },
            variable => variables::append(exchange, variable, out),
        });
        filled.map_err(|overlong| ProxyError::of(Kind::Overlong, overlong))?;
        allowance -= value.len();
        params.push(&param.name, &value);
    }
    params.write(out);
    Ok(BodyWriter::records())
}

/// nginx' own list of parameters.
fn usual(exchange: &Exchange<'_>, settings: Option<&FastCgi>, framing: Framing, params: &mut Params) {
    let Exchange { head, call, .. } = exchange;
    let length = match framing {
        Framing::Length(length) => length.to_string(),
        _ => String::new(),
    };
    let is_tls = call.peer.scheme() == Scheme::Https;
    let (script, uri, client) = (script(exchange, settings), uri(exchange), exchange.client_text());
    let (port, client_port) = (call.peer.port_text(), call.peer.address().port().to_string());
    let address = call.peer.local().map(|it| it.to_string()).unwrap_or_default();
    let all: [(&str, &[u8]); 19] = [
        ("QUERY_STRING", head.query().unwrap_or_default()),
        ("REQUEST_METHOD", head.method_bytes()),
        ("CONTENT_TYPE", head.fields.get(Known::ContentType).unwrap_or_default()),
        ("CONTENT_LENGTH", length.as_bytes()),
        ("SCRIPT_NAME", &script),
        ("REQUEST_URI", head.target()),
        ("DOCUMENT_URI", &uri),
        ("DOCUMENT_ROOT", DOCUMENT_ROOT.as_bytes()),
        ("SERVER_PROTOCOL", head.version.as_str().as_bytes()),
        ("REQUEST_SCHEME", call.peer.scheme().as_str().as_bytes()),
        ("HTTPS", if is_tls { b"on" } else { b"" }),
        ("GATEWAY_INTERFACE", b"CGI/1.1"),
        ("SERVER_SOFTWARE", SOFTWARE),
        ("REMOTE_ADDR", &client),
        ("REMOTE_PORT", client_port.as_bytes()),
        ("SERVER_PORT", &port),
        ("SERVER_ADDR", address.as_bytes()),
        ("SERVER_NAME", variables::server_name(exchange.location()).as_bytes()),
        // PHP requires it.
        ("REDIRECT_STATUS", b"200"),
    ];
    for (name, value) in all {
        if name != "HTTPS" || !value.is_empty() {
            params.push(name.as_bytes(), value);
        }
    }
}

/// The headers that any backend gets, without duplicates.
fn headers(exchange: &Exchange<'_>, host: &Bytes, params: &mut Params) {
    let mut told: Vec<(Vec<u8>, Vec<u8>)> = vec![(b"HTTP_HOST".to_vec(), host.to_vec())];
    for (name, value) in exchange.head.fields.iter() {
        let known = Known::of(name);
        if known.is_framing() || known.is_hop_by_hop() {
            continue;
        }
        let upper = name.iter().map(|byte| if *byte == b'-' { b'_' } else { byte.to_ascii_uppercase() });
        let name: Vec<u8> = b"HTTP_".iter().copied().chain(upper).collect();
        match told.iter_mut().find(|(other, _)| *other == name) {
            Some((_, values)) => {
                values.extend_from_slice(if known == Known::Cookie { b"; " } else { b", " });
                values.extend_from_slice(value);
            }
            None => told.push((name, value.to_vec())),
        }
    }
    told.iter().for_each(|(name, value)| params.push(name, value));
}

/// The decoded path after rewriting.
fn uri(exchange: &Exchange<'_>) -> Vec<u8> {
    let rewritten = exchange.target.as_deref().and_then(|target| path::normalise(target).ok());
    rewritten.map_or_else(|| exchange.path().to_vec(), |normal| normal.path.into_owned())
}

/// The same, with the index appended if it ends in a slash.
fn script(exchange: &Exchange<'_>, settings: Option<&FastCgi>) -> Vec<u8> {
    let mut script = uri(exchange);
    if script.ends_with(b"/")
        && let Some(settings) = settings
    {
        script.extend_from_slice(settings.index.as_bytes());
    }
    script
}
