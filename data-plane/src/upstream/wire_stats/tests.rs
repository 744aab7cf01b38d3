//! What is counted of frames that are split anywhere.

use super::*;

/// Frame types (RFC 9113 section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[a, b, c, kind, flags][..], &stream.to_be_bytes(), payload].concat()
}

fn stats() -> WireStats {
    WireStats::new(&Timers::new(shared::clock::now()))
}

#[test]
fn parts_of_answers_are_counted() {
    let bytes = [frame(4, 0, 0, &[0; 12]), frame(HEADERS, 4, 1, b"x"), frame(DATA, 1, 1, &[1; 700])].concat();
    for cut in [1, 2, 9, 10, 13, bytes.len()] {
        let (stats, mut scan) = (stats(), Cursor::default());
        bytes.chunks(cut).for_each(|part| scan.pass(part, |frame, first| stats.frame_received(frame, first)));
        assert_eq!(stats.answers(), 2, "{cut}");
    }
}

#[test]
fn a_connection_is_worn_by_a_hundred_resets_in_thirty_seconds() {
    let start = shared::clock::now();
    let stats = WireStats::new(&Timers::new(start));
    let reset = frame(RESET, 0, 1, &8_u32.to_be_bytes());
    let mut scan: Cursor<0> = Cursor::of_client();
    scan.pass(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", |_, _| panic!("no frame"));
    let mut at = |time| {
        stats.timers.tick(start + time);
        reset.chunks(5).for_each(|part| scan.pass(part, |frame, []| stats.frame_sent(frame)));
        stats.is_worn()
    };
    let slowly = PERIOD / RESETS as u32;
    assert!((0..300).all(|number| !at(slowly * number * 11 / 10)));
    let later = slowly * 600;
    assert_eq!((0..).take_while(|number| !at(later + slowly / 2 * *number)).count(), RESETS - 1);
    assert!(at(later + 10 * PERIOD), "for good");
}

#[test]
fn bodies_that_are_not_read_use_a_connection_up() {
    let start = shared::clock::now();
    for cut in [1, 2, 9, 10, 13, 20_000] {
        let stats = WireStats::new(&Timers::new(start));
        let (mut written, mut read) = (Cursor::default(), Cursor::default());
        let mut sends = |bytes: usize| {
            let frame = frame(DATA, 0, 1, &vec![8; bytes]);
            frame.chunks(cut).for_each(|part| written.pass(part, |frame, []| stats.frame_sent(frame)));
        };
        let mut allows = |stream, bytes: u32| {
            let update = [frame(6, 0, 0, &[8; 8]), frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())];
            update
                .concat()
                .chunks(cut)
                .for_each(|part| read.pass(part, |frame, first| stats.frame_received(frame, first)));
        };
        (0..3).for_each(|_| sends(16_000));
        assert!(!stats.is_used_up(start + 9 * STUCK), "{cut}: there is room for a frame");
        sends(16_000);
        assert!(!stats.is_used_up(start + STUCK / 2), "{cut}: that may be for a moment");
        assert!(stats.is_used_up(start + STUCK));
        allows(1, 30_000);
        assert!(stats.is_used_up(start + STUCK), "{cut}: that was for a stream");
        stats.timers.tick(start + STUCK);
        allows(0, 1);
        assert!(!stats.is_used_up(start + STUCK), "{cut}: it goes on");
        allows(0, 30_000);
        assert!(!stats.is_used_up(start + 9 * STUCK));
    }
}

#[test]
fn settings_hold_when_they_are_acknowledged() {
    let (stats, mut scan) = (stats(), Cursor::default());
    let mut sends = |flags| scan.pass(&frame(SETTINGS, flags, 0, &[]), |frame, []| stats.frame_sent(frame));
    sends(0);
    assert!(!stats.is_settled());
    sends(ACK);
    assert!(stats.is_settled());
}

#[test]
fn fields_are_too_long_in_one_frame_or_in_several() {
    let stats = stats();
    let part = vec![b'x'; 16_384];
    let mut scan = Cursor::default();
    let mut comes = |stream, parts: usize, rest: usize| {
        let kind = |place| if place == 0 { HEADERS } else { CONTINUATION };
        let mut bytes: Vec<u8> = (0..parts).flat_map(|place| frame(kind(place), 0, stream, &part)).collect();
        bytes.extend(frame(kind(parts), 4, stream, &part[..rest]));
        scan.pass(&bytes, |frame, first| stats.frame_received(frame, first));
    };
    comes(1, 0, 9_000);
    comes(3, LONGEST / part.len(), 0);
    comes(5, LONGEST / part.len(), 1);
    comes(7, 0, 9_000);
    assert_eq!([1, 3, 5, 7].map(|stream| stats.is_overlong(stream)), [false, false, true, false]);
    let mut fields = HeaderMap::new();
    fields.insert("a", "x".repeat(LONGEST - 33).parse().unwrap());
    assert!(!are_overlong(&fields));
    fields.insert("b", "".parse().unwrap());
    assert!(are_overlong(&fields));
}
