//! The bodies of the fuzz targets that the proxy owns: properties that must hold for any bytes at all.
//!
//! Each is run by `cargo test` over its corpus and seeded mutations of it, and by libFuzzer for as long as one likes
//! (`fuzz/`). A body takes only the bytes, and asserts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use shared::delta::Removal;
use shared::entry::Entry;
use shared::kind::{Kind, Lane, ResourceKey};

use crate::codec::guard::Limits;
use crate::codec::h1::{Body, BodyReader, CgiReader, RequestReader, ResponseReader, write_request};
pub use crate::codec::h2::client_fuzz::responses as http2_client;
pub use crate::codec::h2::server_fuzz::connection as http2;
use crate::codec::head::{Framing, RequestHead};
pub use crate::codec::hpack::decode::fuzz::blocks;
use crate::codec::path::{self, Verdict};
use crate::codec::proxy_protocol::{self, Ends, Header};
use crate::dns;
use crate::journal;
pub use crate::staple::fuzz as ocsp;
pub use crate::subscribe::fuzz::stream;
use crate::table::Writer;
use crate::table::apply::names::Answer;

/// One request as the parsers returned it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Message {
    method: String,
    target: Vec<u8>,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    body: Vec<u8>,
}

/// A connection's bytes: however they are split, the same requests are parsed; and what would be sent on for one of
/// them is parsed as the same request again.
pub fn requests(data: &[u8]) {
    let whole = read(&[data]);
    let bytewise: Vec<&[u8]> = data.chunks(1).collect();
    assert_eq!(read(&bytewise), whole);
    let (first, second) = data.split_at(data.first().map_or(0, |at| usize::from(*at) % (data.len() + 1)));
    assert_eq!(read(&[first, second]), whole);
    for (message, head) in whole.0.iter().zip(heads(data)) {
        let mut out = Vec::new();
        let framing = Framing::Length(message.body.len() as u64);
        write_request(&mut out, &head, head.target(), b"a.test", framing);
        out.extend_from_slice(&message.body);
        let (again, end) = read(&[&out]);
        assert_eq!((again.len(), end.as_str()), (1, "idle"), "{message:?}");
        assert_eq!(sent_on(&again[0]), sent_on(message));
        assert_eq!((&again[0].target, &again[0].body), (&message.target, &message.body));
    }
}

/// What an endpoint sends for one request, as the parsers returned it.
#[derive(PartialEq, Eq, Debug, Default)]
struct Answered {
    interim: usize,
    /// Status and fields, whether the connection lives, and what ends the body.
    head: Option<(u16, Pairs, bool, Framing)>,
    body: Vec<u8>,
    /// Whether it is complete when the endpoint closes. Where an error was noticed depends on how much was available.
    end: Option<bool>,
    /// Bytes behind it.
    rest: usize,
}

/// An endpoint's bytes: however they are split, the same response is read. The first byte says how that is, and whether the
/// request was HEAD.
pub fn responses(data: &[u8]) {
    let Some((how, data)) = data.split_first() else { return };
    let to_head = how % 2 == 1;
    let whole = answer(&[data], to_head);
    let bytewise: Vec<&[u8]> = data.chunks(1).collect();
    assert_eq!(answer(&bytewise, to_head), whole);
    let (first, second) = data.split_at(usize::from(*how) % (data.len() + 1));
    assert_eq!(answer(&[first, second], to_head), whole);
}

fn answer(pieces: &[&[u8]], to_head: bool) -> Answered {
    let (mut buffer, mut reader) = (BytesMut::new(), ResponseReader::new(Limits::RESPONSE));
    let mut answer = Answered::default();
    let mut body: Option<BodyReader> = None;
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            let Some(body) = &mut body else {
                match reader.feed(&mut buffer, to_head) {
                    Ok(Some(head)) if head.is_interim() => answer.interim += 1,
                    Ok(Some(head)) => {
                        let fields = head.fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec()));
                        answer.head = Some((head.status, fields.collect(), head.keep_alive, head.framing));
                        body = Some(BodyReader::of_answer(head.framing));
                    }
                    Ok(None) => break,
                    Err(_) => return answer,
                }
                continue;
            };
            match body.next(&mut buffer) {
                Ok(Body::Data(data)) => answer.body.extend_from_slice(&data),
                Ok(Body::Need | Body::End) => break,
                Err(_) => return answer,
            }
        }
    }
    answer.end = Some(body.is_some_and(|mut body| body.close().is_ok() && body.is_done()));
    answer.rest = buffer.len();
    answer
}

/// The fields that the writer does not generate itself.
fn sent_on(message: &Message) -> Vec<(Vec<u8>, Vec<u8>)> {
    let own = ["host", "content-length", "transfer-encoding", "connection", "upgrade", "te"];
    let is_own = |name: &[u8]| own.iter().any(|own| name.eq_ignore_ascii_case(own.as_bytes()));
    message.fields.iter().filter(|(name, _)| !is_own(name)).cloned().collect()
}

fn message(head: &RequestHead, body: Vec<u8>) -> Message {
    Message {
        method: head.method_name().to_owned(),
        target: head.target().to_vec(),
        fields: head.fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect(),
        body,
    }
}

/// All requests of a connection, and how it ends.
fn read(pieces: &[&[u8]]) -> (Vec<Message>, String) {
    let (mut buffer, mut reader) = (BytesMut::new(), RequestReader::new(Limits::REQUEST));
    let mut open: Option<(RequestHead, BodyReader, Vec<u8>)> = None;
    let mut messages = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            let Some((head, body, bytes)) = &mut open else {
                match reader.feed(&mut buffer) {
                    Ok(Some(head)) => {
                        open = Some(((*head).clone(), BodyReader::new(head.framing), Vec::new()))
                    }
                    Ok(None) => break,
                    Err(error) => return (messages, format!("{error:?}")),
                }
                continue;
            };
            match body.next(&mut buffer) {
                Ok(Body::Data(data)) => bytes.extend_from_slice(&data),
                Ok(Body::Need) => break,
                Ok(Body::End) => {
                    messages.push(message(head, std::mem::take(bytes)));
                    open = None;
                }
                Err(error) => return (messages, format!("{error:?}")),
            }
        }
    }
    let end = match (open.is_some(), buffer.is_empty()) {
        (false, true) => "idle",
        (false, false) => "within a head",
        (true, _) => "within a body",
    };
    (messages, end.to_owned())
}

/// The heads of the same requests.
fn heads(data: &[u8]) -> Vec<RequestHead> {
    let (mut buffer, mut reader) = (BytesMut::from(data), RequestReader::new(Limits::REQUEST));
    let mut heads = Vec::new();
    while let Ok(Some(head)) = reader.feed(&mut buffer) {
        let mut body = BodyReader::new(head.framing);
        heads.push(*head);
        while matches!(body.next(&mut buffer), Ok(Body::Data(_))) {}
        if !body.is_done() {
            break;
        }
    }
    heads
}

/// A chunked body: however it is split, the same data results, and the same bytes are left after it.
pub fn chunks(data: &[u8]) {
    let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let (mut buffer, mut reader) = (BytesMut::new(), BodyReader::new(Framing::Chunked));
        let mut body = Vec::new();
        for piece in pieces {
            buffer.extend_from_slice(piece);
            loop {
                match reader.next(&mut buffer) {
                    Ok(Body::Data(data)) => {
                        assert!(!data.is_empty(), "a piece is never empty");
                        body.extend_from_slice(&data);
                    }
                    Ok(Body::Need | Body::End) => break,
                    Err(error) => return (body, Err(format!("{error:?}"))),
                }
            }
        }
        let left = if reader.is_done() { Some(buffer.to_vec()) } else { None };
        (body, Ok(left))
    };
    let whole = read(&mut std::iter::once(data));
    assert_eq!(read(&mut data.chunks(1)), whole);
    assert_eq!(read(&mut data.chunks(7)), whole);
    assert!(whole.0.len() <= data.len(), "no byte is made");
}

/// The names and values of a head.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// FastCGI output of an application: however it is split, the same response results, and no byte is invented.
pub fn fastcgi(data: &[u8]) {
    let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let (mut buffer, mut reader) =
            (BytesMut::new(), CgiReader::new(Limits::response(1024), std::rc::Rc::default()));
        let mut open: Option<(Pairs, BodyReader)> = None;
        let mut whole = Vec::new();
        for piece in pieces {
            buffer.extend_from_slice(piece);
            loop {
                let Some((_, body)) = &mut open else {
                    match reader.feed(&mut buffer, false) {
                        Ok(Some((head, body))) => {
                            assert!(head.status >= 200, "an interim answer");
                            let fields =
                                head.fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec()));
                            open = Some((fields.collect(), body));
                            continue;
                        }
                        Ok(None) => break,
                        // Where the error was noticed depends on how much was available.
                        Err(_) => return (None, Vec::new(), Err(())),
                    }
                };
                match body.next(&mut buffer) {
                    Ok(Body::Data(data)) => {
                        assert!(!data.is_empty(), "a piece is never empty");
                        whole.extend_from_slice(&data);
                    }
                    Ok(Body::Need) => break,
                    Ok(Body::End) => return (open.map(|(fields, _)| fields), whole, Ok(true)),
                    Err(_) => return (open.map(|(fields, _)| fields), whole, Err(())),
                }
            }
        }
        (open.map(|(fields, _)| fields), whole, Ok(false))
    };
    let whole = read(&mut std::iter::once(data));
    assert_eq!(read(&mut data.chunks(1)), whole);
    assert_eq!(read(&mut data.chunks(7)), whole);
    assert!(whole.1.len() <= data.len(), "no byte is made");
}

/// A raw path: its normal form is normal, and what a backend gets leads every reader to the chosen route.
pub fn paths(data: &[u8]) {
    // Octets that are not allowed in a request line never get here.
    if data.iter().any(|b| *b <= b' ' || *b == 0x7f || *b == b'?' || *b == b'#') {
        return;
    }
    let Ok(normal) = path::normalise(data) else {
        return;
    };
    let path = normal.path.to_vec();
    assert!(path.starts_with(b"/") && !path.windows(2).any(|pair| pair == b"//"), "{path:?}");
    assert!(!path.split(|b| *b == b'/').any(|segment| segment == b"." || segment == b".."), "{path:?}");
    let written = path::re_encode(&path);
    let again = path::normalise(&written).map(|it| it.path.into_owned());
    assert_eq!(again.as_deref(), Ok(&path[..]), "what was written is read as what it was");
    // Each path its own route, and realistic routes: by the first two letters.
    agree(data, &normal, |path| path.to_vec());
    agree(data, &normal, |path| path.get(..2).map(<[u8]>::to_vec).unwrap_or_default());
}

fn agree(raw: &[u8], normal: &path::Normalised<'_>, route: impl Fn(&[u8]) -> Vec<u8>) {
    let target = match path::forward(raw, normal, |path| route(path), |chosen, read, _| chosen != read) {
        Verdict::Raw => raw.to_vec(),
        Verdict::Normal(target) => target,
        Verdict::Refuse => return,
    };
    if !normal.suspicious {
        return;
    }
    let read = path::readings(&target);
    assert!(read.is_some(), "it was sent");
    for (reading, path) in read.into_iter().flatten() {
        assert_eq!(
            route(&path),
            route(&normal.path),
            "{reading:?} of {:?}",
            String::from_utf8_lossy(&target)
        );
    }
}

/// Resources of any kind with any bodies: nothing panics, roots are computed from what was received, and an unrelated
/// valid host is served.
pub fn resources(data: &[u8]) {
    let good = |writer: &Writer| writer.tables().current().host("good.test").is_some();
    let mut writer = Writer::new();
    let neighbour = ResourceKey::new(Kind::Host, "good.test");
    writer.apply_config(vec![Arc::new(Entry::from_body(neighbour, 1, Bytes::new()))], &[]);
    assert!(good(&writer));
    let (mut config, mut live) = (writer.has(Lane::Config).clone(), writer.has(Lane::Live).clone());
    for (number, part) in data.split(|byte| *byte == 0xff).enumerate() {
        let Some((head, body)) = part.split_first() else {
            continue;
        };
        let kind = Kind::ALL[usize::from(*head) % Kind::ALL.len()];
        let key = ResourceKey::new(kind, ["default", "ns/a/good.test", "ns/a/80", "ns/a"][number % 4]);
        let entry = Arc::new(Entry::from_body(key.clone(), 1, Bytes::copy_from_slice(body)));
        // Applied twice, removed, and applied again: the result must not depend on what was there.
        match kind.lane() {
            Lane::Config => {
                config.insert(Arc::clone(&entry));
                writer.apply_config(vec![Arc::clone(&entry)], &[]);
                writer.apply_config(Vec::new(), &[Removal { key, gone: *head & 0x80 != 0 }]);
                writer.apply_config(vec![entry], &[]);
            }
            Lane::Live => {
                live.insert(Arc::clone(&entry));
                writer.apply_live(vec![Arc::clone(&entry)], &[]);
                writer.apply_live(Vec::new(), &[Removal { key, gone: *head & 0x80 != 0 }]);
                writer.apply_live(vec![entry], &[]);
            }
        }
    }
    assert_eq!((writer.root(Lane::Config), writer.root(Lane::Live)), (config.root(), live.root()));
    assert!(good(&writer));
}

/// A journal on disk: the same state is read whatever follows its intact part, and it can be written and read again.
pub fn journal(data: &[u8]) {
    let Some((good, root)) = journal::fuzz::newest(data) else { return };
    assert!(good <= data.len());
    assert_eq!(journal::fuzz::newest(&data[..good]), Some((good, root)));
    let again = journal::fuzz::rewritten(data).unwrap_or_default();
    assert_eq!(journal::fuzz::newest(&again), Some((again.len(), root)));
}

/// A DNS response: the result contains no more than the message does.
pub fn dns(data: &[u8]) {
    if let Answer::Found { addresses, ttl } = dns::addresses(data) {
        assert!(!addresses.is_empty() && addresses.len() * 4 < data.len());
        assert!(ttl <= Duration::from_secs(u32::MAX.into()));
    }
}

/// The beginning of a connection with a PROXY header: however it is split, the same header is parsed, and no more
/// bytes are waited for than a header can have.
pub fn proxy_protocol(data: &[u8]) {
    let whole = proxy_protocol::parse(data);
    let read = |count: usize| proxy_protocol::parse(&data[..count]);
    let done = (0..=data.len()).find(|count| read(*count) != Ok(None));
    match (done, whole) {
        (Some(count), whole) => {
            assert_eq!(read(count), whole, "what comes behind it changes nothing");
            if let Ok(Some(header)) = whole {
                assert_eq!(header.length, count);
            }
            assert!(count <= proxy_protocol::LONGEST);
        }
        (None, whole) => {
            assert_eq!(whole, Ok(None));
            assert!(data.len() < proxy_protocol::LONGEST, "nobody waits for more");
        }
    }
    if let Ok(Some(Header { ends: Some(ends), .. })) = whole {
        let line = proxy_protocol::line(ends);
        let again = proxy_protocol::parse(line.as_bytes()).map(|it| it.and_then(|it| it.ends));
        let canonical = |ends: Ends| {
            let at = |it: SocketAddr| SocketAddr::new(it.ip().to_canonical(), it.port());
            (at(ends.source), at(ends.destination))
        };
        assert_eq!(again.map(|it| it.map(canonical)), Ok(Some(canonical(ends))));
    }
}

#[cfg(test)]
#[path = "../../fuzz/runner.rs"]
mod runner;

#[cfg(test)]
mod tests {
    use super::runner::run;

    #[test]
    fn any_requests() {
        run("requests", super::requests);
    }

    #[test]
    fn any_responses() {
        run("responses", super::responses);
    }

    #[test]
    fn any_chunks() {
        run("chunks", super::chunks);
    }

    #[test]
    fn any_fastcgi() {
        run("fastcgi", super::fastcgi);
    }

    #[test]
    fn any_paths() {
        run("paths", super::paths);
    }

    #[test]
    fn any_blocks() {
        run("blocks", super::blocks);
    }

    #[test]
    fn any_http2() {
        run("http2", super::http2);
    }

    #[test]
    fn any_http2_client() {
        run("http2_client", super::http2_client);
    }

    #[test]
    fn any_ocsp() {
        run("ocsp", super::ocsp);
    }

    #[test]
    fn any_dns() {
        run("dns", super::dns);
    }

    #[test]
    fn any_journal() {
        run("journal", super::journal);
    }

    #[test]
    fn any_proxy_protocol() {
        run("proxy_protocol", super::proxy_protocol);
    }

    #[test]
    fn any_stream() {
        run("stream", super::stream);
    }

    #[test]
    fn any_resources() {
        run("resources", super::resources);
    }
}
