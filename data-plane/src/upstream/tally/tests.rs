//! What is counted of frames that are cut anyhow.

use super::*;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[a, b, c, kind, flags][..], &stream.to_be_bytes(), payload].concat()
}

#[test]
fn parts_of_answers_are_counted() {
    let bytes = [frame(4, 0, 0, &[0; 12]), frame(HEADERS, 4, 1, b"x"), frame(DATA, 1, 1, &[1; 700])].concat();
    for cut in [1, 2, 9, 10, 13, bytes.len()] {
        let (tally, mut scan) = (Tally::default(), Scan::default());
        bytes.chunks(cut).for_each(|part| scan.pass(part, |frame| tally.came(frame)));
        assert_eq!(tally.answers(), 2, "{cut}");
    }
}
