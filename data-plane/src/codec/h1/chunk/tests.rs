use proptest::prelude::*;

use super::*;

/// Feeds the pieces; returns the data, and whether the body ended.
fn decode(pieces: &[&[u8]]) -> Result<(Vec<u8>, bool), BodyError> {
    let mut chunks = Chunks::new();
    let mut buffer = BytesMut::new();
    let mut data = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        while let Body::Data(piece) = chunks.next(&mut buffer)? {
            data.extend_from_slice(&piece);
        }
    }
    Ok((data, chunks.is_done()))
}

#[test]
fn extensions_follow_their_grammar() {
    for good in ["", ";a", ";a=b", " ; a = b\t;c", ";a=\"\"", ";a=\"x;y=\\\"z\"", ";a;b;c=\"d\""] {
        assert!(are_extensions(good.as_bytes()), "{good}");
    }
    for bad in
        [" ", ";", ";=b", ";a=", ";a=\"b", ";a=\"b\\", "a", ";a b", ";a=b c", ";a\"b\"", ";a=\"b\"c", ";a;"]
    {
        assert!(!are_extensions(bad.as_bytes()), "{bad}");
    }
}

#[test]
fn sizes_fit_or_are_refused() {
    assert_eq!(decode(&[b"0000000000000001\r\na\r\n0\r\n\r\n"]), Ok((b"a".to_vec(), true)));
    assert_eq!(decode(&[b"00000000000000001\r\n"]), Err(BodyError::Chunk));
    assert_eq!(decode(&[b"8000000000000000\r\n"]), Err(BodyError::ChunkTooLarge));
    // Each alone would be accepted; together they exceed the maximum length.
    let mut chunks = Chunks::new();
    chunks.total = i64::MAX as u64;
    assert_eq!(chunks.next(&mut BytesMut::from(&b"1\r\na"[..])), Err(BodyError::ChunkTooLarge));
}

#[test]
fn endpoints_may_make_room_behind_a_size() {
    let read = |mut chunks: Chunks, text: &str| {
        let mut buffer = BytesMut::from(text);
        let (mut data, mut next) = (Vec::new(), chunks.next(&mut buffer)?);
        while let Body::Data(piece) = next {
            data.extend_from_slice(&piece);
            next = chunks.next(&mut buffer)?;
        }
        Ok((data, chunks.is_done()))
    };
    for text in ["2  \r\nok\r\n0 \r\n\r\n", "2\t\r\nok\r\n0;a \r\n\r\n"] {
        assert_eq!(read(Chunks::of_answer(), text), Ok((b"ok".to_vec(), true)), "{text:?}");
        assert_eq!(read(Chunks::new(), text), Err(BodyError::Chunk), "of a client it is no size: {text:?}");
    }
    for text in ["2 2\r\nok", " 2\r\nok", "2 \n", "2 \r\r\n", "  \r\n"] {
        assert!(read(Chunks::of_answer(), text).is_err(), "{text:?}");
    }
}

proptest! {
    #[test]
    fn noise_never_panics_and_is_read_alike_however_cut(
        bytes in prop::collection::vec(
            prop_oneof![4 => proptest::sample::select(b"0123aF;=\"\\ \t\r\n:x".to_vec()), 1 => any::<u8>()], 0..80),
    ) {
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(decode(&[&bytes]).ok(), decode(&single).ok());
    }

    #[test]
    fn what_was_chunked_is_read_back(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..8), cut in 1usize..40) {
        let mut coded = Vec::new();
        for piece in &pieces {
            coded.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            coded.extend_from_slice(piece);
            coded.extend_from_slice(b"\r\n");
        }
        coded.extend_from_slice(b"0\r\n\r\n");
        let cuts: Vec<&[u8]> = coded.chunks(cut).collect();
        prop_assert_eq!(decode(&cuts), Ok((pieces.concat(), true)));
    }
}
