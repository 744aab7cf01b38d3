use std::future::poll_fn;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::local::pipes::tests::pair;

fn pipes() -> BodyPipes {
    BodyPipes::new(Budget::new(4), Budget::new(100))
}

/// Sends these segments, of which each arrives alone, and adds them to a pipe until it takes no more. Returns what was
/// added, and what was not.
async fn filled(pipe: &mut BodyPipe, segments: &[Vec<u8>]) -> (Vec<u8>, Vec<u8>) {
    let (mut source, mut from) = pair().await;
    source.set_nodelay(true).unwrap();
    let mut added = Vec::new();
    for (number, segment) in segments.iter().enumerate() {
        source.write_all(segment).await.unwrap();
        let mut left = segment.len();
        while left > 0 {
            match poll_fn(|cx| pipe.poll_add(&from, left, cx)).await.unwrap() {
                Added::Bytes(count) => left -= count,
                Added::Nothing => {
                    let (taken, rest) = segment.split_at(segment.len() - left);
                    added.extend_from_slice(taken);
                    let rest: Vec<u8> =
                        rest.iter().chain(segments[number + 1..].iter().flatten()).copied().collect();
                    source.write_all(&segments[number + 1..].concat()).await.unwrap();
                    drop(source);
                    let mut read = Vec::new();
                    from.read_to_end(&mut read).await.unwrap();
                    assert!(read == rest, "what was not added remains in the socket");
                    return (added, rest);
                }
                Added::Unable => panic!("the kernel of this test can do it"),
            }
        }
        added.extend_from_slice(segment);
    }
    (added, Vec::new())
}

fn contents(mut pipe: BodyPipe) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(piece) = pipe.read().unwrap() {
        assert!(!piece.is_empty() && piece.len() <= LARGE);
        all.extend_from_slice(&piece);
    }
    all
}

#[tokio::test]
async fn full_pipe_is_not_taken_for_a_socket_without_data() {
    let pipes = pipes();
    let mut pipe = pipes.make().unwrap();
    let segments: Vec<Vec<u8>> = (0..2_000_u32).map(|number| number.to_be_bytes().to_vec()).collect();
    let (added, rest) = filled(&mut pipe, &segments).await;
    assert!(!rest.is_empty(), "{} bytes are in it, with a slot for each segment", added.len());
    let copy = pipes.copy(&pipe).unwrap();
    assert!(contents(*copy) == added && contents(*pipe) == added);
}

#[tokio::test]
async fn copy_is_sent_and_the_body_stays() {
    let pipes = pipes();
    let mut pipe = pipes.make().unwrap();
    let body: Vec<u8> = (0..900_000_u32).map(|at| (at / 7) as u8).collect();
    let segments: Vec<Vec<u8>> = body.chunks(30_000).map(<[u8]>::to_vec).collect();
    assert!(filled(&mut pipe, &segments).await.0 == body);
    for _ in 0..2 {
        let mut copy = pipes.copy(&pipe).unwrap();
        let (to, mut sink) = pair().await;
        let sending = async {
            poll_fn(|cx| copy.poll_drain(&to, cx)).await.unwrap();
            drop(to);
        };
        let mut seen = Vec::new();
        let ((), read) = tokio::join!(sending, sink.read_to_end(&mut seen));
        read.unwrap();
        assert!(seen == body && copy.held() == 0);
    }
    assert!(contents(*pipe) == body);
}

#[tokio::test]
async fn end_of_a_stream_and_urgent_data_are_noticed() {
    let pipes = pipes();
    let (mut source, mut from) = pair().await;
    let mut pipe = pipes.make().unwrap();
    source.write_all(b"some").await.unwrap();
    assert_eq!(poll_fn(|cx| pipe.poll_add(&from, 100, cx)).await.unwrap(), Added::Bytes(4));
    SockRef::from(&source).send_out_of_band(b"!").unwrap();
    source.write_all(b"more").await.unwrap();
    assert_eq!(poll_fn(|cx| pipe.poll_add(&from, 100, cx)).await.unwrap(), Added::Nothing);
    drop(source);
    let mut more = Vec::new();
    from.read_to_end(&mut more).await.unwrap();
    assert_eq!(more, b"more");
    assert_eq!(poll_fn(|cx| pipe.poll_add(&from, 100, cx)).await.unwrap(), Added::Bytes(0));
    assert_eq!(contents(*pipe), b"some");
}

#[test]
fn there_are_few_and_only_while_descriptors_are_plentiful() {
    let (number, descriptors) = (Budget::new(2), Budget::new(100));
    let pipes = BodyPipes::new(number.clone(), descriptors.clone());
    let two = (pipes.make().unwrap(), pipes.make().unwrap());
    assert_eq!((number.used(), descriptors.used()), (2, 4));
    assert!(pipes.make().is_none() && pipes.copy(&two.0).is_none());
    drop(two);
    assert_eq!((number.used(), descriptors.used()), (0, 0));
    let connections = descriptors.take(80).unwrap();
    assert!(pipes.make().is_none());
    assert_eq!(number.used(), 0);
    drop(connections);
    assert!(pipes.make().is_some());
    pipes.give_up();
    assert!(pipes.make().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn bytes_of_any_segments_are_in_order(lengths in prop::collection::vec(1_usize..6_000, 1..400)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let pipes = pipes();
            let mut pipe = pipes.make().unwrap();
            let segments: Vec<Vec<u8>> =
                lengths.iter().enumerate().map(|(at, length)| vec![at as u8; *length]).collect();
            let (added, rest) = filled(&mut pipe, &segments).await;
            assert!([&added[..], &rest[..]].concat() == segments.concat());
            let copy = pipes.copy(&pipe).unwrap();
            assert!(contents(*copy) == added && contents(*pipe) == added);
        });
    }
}
