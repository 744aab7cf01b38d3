use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use tokio::io::{AsyncWrite, AsyncWriteExt, DuplexStream, duplex};

use super::*;
use crate::codec::hpack::blocks::{self, literal, named, numbered};
use crate::codec::hpack::model::{Field, Model, is_valid};

const LIST: u32 = 32 * 1024;

/// The stream that h2 reads.
struct Through {
    stream: DuplexStream,
    inbound: Rc<Inbound>,
    inflow: Rc<Inflow>,
}

impl AsyncRead for Through {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, inbound, inflow } = self.get_mut();
        inbound.poll_read((Pin::new(stream), inflow), cx, into, |_| {})
    }
}

impl AsyncWrite for Through {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[a, b, c, kind, flags][..], &stream.to_be_bytes(), payload].concat()
}

/// A request as it was handed over: its fields, or that it is malformed.
type Request = (u32, Option<Vec<Field>>);

/// The requests that h2 parses from input in pieces of these widths.
fn requests((count, bytes): (usize, &[u8]), widths: &[usize]) -> Vec<Request> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (mut near, far) = duplex(1 << 20);
        let (inbound, inflow) = (Rc::new(Inbound::from_client(LIST)), Rc::default());
        let through = Through { stream: far, inbound: Rc::clone(&inbound), inflow };
        let mut builder = h2::server::Builder::new();
        builder.max_concurrent_streams(1_000).max_header_list_size(LIST);
        let (sending, serving) = tokio::join!(
            async {
                let mut rest = bytes;
                for width in widths.iter().cycle() {
                    let (now, behind) = rest.split_at((*width).min(rest.len()));
                    near.write_all(now).await.unwrap();
                    tokio::task::yield_now().await;
                    rest = behind;
                    if rest.is_empty() {
                        break;
                    }
                }
                near
            },
            async {
                let mut connection = builder.handshake::<_, Bytes>(through).await.unwrap();
                let (mut requests, mut responds) = (Vec::new(), Vec::new());
                while requests.len() < count {
                    let (request, respond) = connection.accept().await.unwrap().unwrap();
                    let stream = u32::from(respond.stream_id());
                    let fields = request.headers().iter();
                    let fields =
                        fields.map(|(name, value)| (name.as_str().into(), value.as_bytes().to_vec()));
                    requests.push((stream, inbound.fault(stream).is_none().then(|| fields.collect())));
                    responds.push(respond);
                }
                requests
            }
        );
        drop(sending);
        serving
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever fields there are, literal or indexed: h2 hands over all requests, the malformed ones are reported, and
    /// the others have their fields.
    #[test]
    fn h2_hands_on_what_was_sent(
        all in prop::collection::vec(prop::collection::vec((0..9_u8, any::<u8>(), any::<bool>(), any::<bool>()), 0..8), 1..20),
        widths in prop::collection::vec(1..60_usize, 1..20),
    ) {
        let (mut model, mut sent, mut expected) = (Model::default(), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), Vec::new());
        sent.extend(frame(4, 0, 0, &[]));
        for (number, fields) in all.into_iter().enumerate() {
            let stream = 2 * number as u32 + 1;
            let mut block = vec![0x82, 0x86, 0x84];
            block.extend(named(1, b"a.test", false, true));
            let mut ahead = model.clone();
            for (what, number, is_kept, is_huffman) in fields {
                let value = [b'0' + number % 10; 40];
                let own = [b'x', b'-', b'a' + number % 20];
                let count = blocks::count(&ahead);
                let field = match what {
                    0 => literal(&[b'X', b'a' + number % 20], &value, is_kept, is_huffman),
                    1 => literal(&own, &[b'a', number, b'\n'], is_kept, is_huffman),
                    2..=4 => literal(&own, &value, is_kept, is_huffman),
                    5..=7 if count > 61 => numbered(0x80, 7, 62 + usize::from(number) % (count - 61)),
                    8 if count > 61 => named(62 + usize::from(number) % (count - 61), &value, is_kept, is_huffman),
                    _ => named(32 + usize::from(number) % 3, &value, is_kept, is_huffman),
                };
                ahead.read(&field).unwrap();
                block.extend(field);
            }
            let fields = model.read(&block).unwrap();
            let mut plain = fields[4..].to_vec();
            // Ordered as by the type, which groups fields of the same name.
            plain.sort_by_key(|(name, _)| name.clone());
            expected.push((stream, fields.iter().all(is_valid).then_some(plain)));
            sent.extend(frame(1, 5, stream, &block));
        }
        let mut requests = requests((expected.len(), &sent), &widths);
        for (_, fields) in &mut requests {
            fields.iter_mut().for_each(|fields| fields.sort_by_key(|(name, _)| name.clone()));
        }
        prop_assert_eq!(requests, expected);
    }
}

#[test]
fn faults_of_unclaimed_streams_are_forgotten() {
    let inbound = Inbound::new(LIST);
    let note = |stream, fault: Option<Fault>| inbound.note(Block { stream, fault, target: None });
    let is_malformed = |stream| inbound.fault(stream) == Some(Fault::Malformed);
    note(1, None);
    note(3, Some(Fault::Malformed));
    inbound.note(Block { stream: 5, fault: None, target: Some(Arc::default()) });
    assert!(!is_malformed(1) && is_malformed(3) && is_malformed(5), "an answer has no target");
    note(1, Some(Fault::Malformed));
    inbound.forget(3);
    inbound.forget(5);
    assert!(is_malformed(1) && !is_malformed(3) && !is_malformed(5));
    inbound.forget(1);
    for stream in 0..MOST as u32 {
        assert!(!inbound.is_over());
        note(2 * stream + 5, Some(Fault::Malformed));
    }
    assert!(inbound.is_over());
}
