use std::rc::Rc;
use std::time::Duration;

use super::*;
use crate::codec::body::JOINED;

/// Returns its pieces, then the end or an error, with this delay before each.
struct Script {
    pieces: Vec<Vec<u8>>,
    end: Option<Kind>,
    pause: Duration,
    /// The missing part never arrives.
    stays_away: bool,
    local: Rc<Local>,
}

impl Script {
    fn new(pieces: &[&[u8]], end: Option<Kind>) -> Self {
        let pieces = pieces.iter().map(|piece| piece.to_vec()).collect();
        Self { pieces, end, pause: Duration::ZERO, stays_away: false, local: Rc::new(Local::for_tests()) }
    }
}

impl RequestBody for Script {
    fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ProxyError>> {
        if !self.pieces.is_empty() {
            let timers = &self.local.timers;
            timers.tick(timers.now() + self.pause);
            return Poll::Ready(Ok(Some(self.pieces.remove(0).into())));
        }
        if self.stays_away {
            return Poll::Pending;
        }
        Poll::Ready(self.end.map_or(Ok(None), |kind| Err(kind.into())))
    }

    fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

async fn prepare(
    script: &mut Script,
    framing: Framing,
    sizes: Sizes,
) -> Result<(Payload<'_, Script>, Framing), ProxyError> {
    let local = Rc::clone(&script.local);
    let timer = local.timers.timer();
    Payload::prepare(script, framing, sizes, (Duration::from_secs(60), false), &local, &timer).await
}

fn all(payload: &mut Payload<'_, Script>) -> Vec<u8> {
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let mut seen = Vec::new();
    for place in 0.. {
        match payload.poll_piece(place, &mut cx) {
            Poll::Ready(Ok(Some(piece))) => seen.extend_from_slice(&piece),
            Poll::Ready(Ok(None)) => break,
            Poll::Ready(Err(error)) => panic!("{error}"),
            Poll::Pending => panic!("it waits"),
        }
    }
    seen
}

#[tokio::test]
async fn fully_read_body_has_a_length_and_can_be_resent() {
    for buffer in [6, 5, 0] {
        for framing in [Framing::Length(6), Framing::Chunked] {
            let mut script = Script::new(&[b"abc", b"def"], None);
            let sizes = Sizes { buffer, ..Sizes::default() };
            let (mut payload, framing) = prepare(&mut script, framing, sizes).await.unwrap();
            assert_eq!(framing, Framing::Length(6));
            assert!(matches!(payload, Payload::Whole { .. }), "it is small");
            for _ in 0..2 {
                assert_eq!(all(&mut payload), b"abcdef");
                assert!(payload.is_replayable() && payload.is_kept());
            }
        }
    }
}

#[tokio::test]
async fn a_large_one_stands_in_a_file_and_not_in_memory() {
    let sizes = Sizes { body: 0, ..Sizes::default() };
    let body: Vec<u8> = (0..1_700_001_u32).map(|n| (n % 251) as u8).collect();
    let pieces: Vec<&[u8]> = body.chunks(9_973).collect();
    let mut script = Script::new(&pieces, None);
    let local = Rc::clone(&script.local);
    let (mut payload, framing) = prepare(&mut script, Framing::Chunked, sizes).await.unwrap();
    assert_eq!((framing, local.spill.used()), (Framing::Length(1_700_001), 1_700_001));
    assert!(all(&mut payload) == body && all(&mut payload) == body);
    drop(payload);
    assert_eq!(local.spill.used(), 0);
}

#[tokio::test]
async fn a_streamed_one_cannot_be_sent_again_once_begun() {
    let mut script = Script::new(&[b"abcd", b"efgh"], None);
    let sizes = Sizes { buffering: false, ..Sizes::default() };
    let (mut payload, framing) = prepare(&mut script, Framing::Chunked, sizes).await.unwrap();
    assert_eq!((framing, payload.is_replayable(), payload.is_kept()), (Framing::Chunked, true, false));
    assert_eq!(all(&mut payload), b"abcdefgh");
    assert!(!payload.is_replayable());
}

#[tokio::test]
async fn too_long_body_is_not_read_further() {
    for (body, buffering, refused) in [(7, true, true), (8, true, false), (0, true, false), (7, false, true)]
    {
        let mut script = Script::new(&[b"abcd", b"efgh"], None);
        let sizes = Sizes { body, buffer: 5, buffering, ..Sizes::default() };
        let outcome = match prepare(&mut script, Framing::Chunked, sizes).await {
            Ok((mut payload, _)) => {
                let mut cx = Context::from_waker(std::task::Waker::noop());
                let mut pieces = (0..3).map(|place| payload.poll_piece(place, &mut cx));
                pieces.find_map(|piece| match piece {
                    Poll::Ready(Err(error)) => Some(error.kind),
                    _ => None,
                })
            }
            Err(error) => Some(error.kind),
        };
        assert_eq!(outcome, refused.then_some(Kind::BodyTooLarge), "{body} {buffering}");
    }
}

#[tokio::test]
async fn one_byte_each_25_seconds_is_too_slow_and_240_a_second_are_not() {
    for (size, pause, cut) in [(1, 25, true), (240 * 25, 25, false), (240 * 25 - 25, 25, true), (1, 1, true)]
    {
        let pieces = vec![vec![b'x'; size]; 40];
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let mut script = Script::new(&pieces, None);
        script.pause = Duration::from_secs(pause);
        let outcome = prepare(&mut script, Framing::Chunked, Sizes::default()).await;
        let kind = outcome.err().map(|error| error.kind);
        assert_eq!(kind, cut.then_some(Kind::ClientTimeout), "{size} bytes each {pause} s");
    }
}

#[tokio::test]
async fn a_body_may_stay_away_for_60_seconds() {
    let mut script = Script::new(&[b"a"], None);
    script.stays_away = true;
    let local = Rc::clone(&script.local);
    let (start, timer) = (local.timers.now(), local.timers.timer());
    let limit = crate::table::Timeouts::default().client_body;
    let preparing =
        Payload::prepare(&mut script, Framing::Chunked, Sizes::default(), (limit, false), &local, &timer);
    let mut preparing = std::pin::pin!(preparing);
    for (at, over) in [(0.0, false), (59.9, false), (60.2, true)] {
        local.timers.tick(start + Duration::from_secs_f64(at));
        assert_eq!(futures::poll!(&mut preparing).is_ready(), over, "{at}");
    }
}

/// If no memory is spare, the buffer size decides; with spare memory, the ordinary size; a body with a larger declared
/// length may only use its buffer.
#[tokio::test]
async fn a_body_is_in_memory_to_the_byte() {
    let sizes = Sizes { body: 0, ..Sizes::default() };
    let buffer = sizes.buffer;
    for (spare, said, most) in [
        (0, false, buffer),
        (0, true, buffer),
        (ORDINARY * 2, false, ORDINARY),
        (ORDINARY * 2, true, ORDINARY),
    ] {
        for (length, in_file) in [(most, false), (most + 1, true)] {
            let body = vec![b'x'; length];
            let mut script = Script::new(&[&body], None);
            let spill = Spill::into_dir(std::env::temp_dir()).with_spare(spare);
            Rc::get_mut(&mut script.local).unwrap().spill = spill.clone();
            let framing = if said { Framing::Length(length as u64) } else { Framing::Chunked };
            let (mut payload, _) = prepare(&mut script, framing, sizes).await.unwrap();
            assert_eq!(spill.used(), if in_file { length } else { 0 }, "{spare} {said} {length}");
            assert_eq!(all(&mut payload), body);
            drop(payload);
            assert!(spill.stretch(&mut None, spare.min(1)) == (spare > 0), "given back");
        }
    }
}

/// Has as much data as requested, whenever it is polled.
struct Plenty {
    left: usize,
    most: usize,
    spill: Spill,
    /// The maximum that was read and is not in the file.
    ahead: usize,
    given: usize,
}

impl RequestBody for Plenty {
    fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ProxyError>> {
        let count = self.left.min(self.most);
        self.left -= count;
        self.given += count;
        self.ahead = self.ahead.max(self.given - self.spill.used());
        Poll::Ready(Ok((count > 0).then(|| vec![b'x'; count].into())))
    }

    fn wants(&mut self, bytes: usize) {
        self.most = bytes;
    }

    fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

/// However much is available, no more of it is read than fits into the buffer, and later than is written to the file
/// at a time.
#[tokio::test]
async fn a_body_that_abounds_is_read_to_the_byte() {
    for (buffer, whole) in [(0, true), (1024, true), (8 * 1024, true), (100 * 1024, true), (8 * 1024, false)]
    {
        let mut local = Rc::new(Local::for_tests());
        let spill = Spill::into_dir(std::env::temp_dir()).with_spare(0);
        Rc::get_mut(&mut local).unwrap().spill = spill.clone();
        let timer = local.timers.timer();
        let length = if whole { buffer } else { 20 * BATCH };
        let mut body = Plenty { left: length, most: usize::MAX, spill: spill.clone(), ahead: 0, given: 0 };
        let sizes = Sizes { body: 0, buffer, ..Sizes::default() };
        let pause = Duration::from_secs(60);
        let prepared =
            Payload::prepare(&mut body, Framing::Chunked, sizes, (pause, false), &local, &timer).await;
        let (payload, _) = prepared.unwrap();
        assert_eq!(matches!(payload, Payload::Whole { .. }), whole, "{buffer}");
        drop(payload);
        let most = if whole { buffer } else { BATCH };
        assert!(body.given == length && body.ahead <= most, "{} of {buffer}", body.ahead);
    }
}

/// A client that keeps sending for minutes holds only what is on its way to the file, and not its initial buffer.
#[tokio::test]
async fn spilled_body_holds_no_memory() {
    let sizes = Sizes { body: 0, ..Sizes::default() };
    let body = vec![b'x'; ORDINARY + 1];
    let pieces: Vec<&[u8]> = body.chunks(10_000).collect();
    let mut script = Script::new(&pieces, None);
    script.stays_away = true;
    let spill = Spill::into_dir(std::env::temp_dir()).with_spare(ORDINARY * 2);
    Rc::get_mut(&mut script.local).unwrap().spill = spill.clone();
    let local = Rc::clone(&script.local);
    let mut preparing = std::pin::pin!(prepare(&mut script, Framing::Chunked, sizes));
    let waited = async {
        // Most of the spare memory is available for another request.
        while spill.used() <= ORDINARY || !spill.stretch(&mut None, ORDINARY) || local.quota.held() > BATCH {
            assert!(futures::poll!(&mut preparing).is_pending(), "it waits for its client");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waited).await.unwrap();
}

/// What is in memory as a whole was charged when it arrived; of the others there is no more than what is being sent.
#[tokio::test]
async fn body_not_taken_by_the_endpoint_is_charged() {
    let body = vec![b'x'; ORDINARY + 1];
    let in_file = ORDINARY + 1;
    for (length, buffering, charges) in [(1_000, true, false), (in_file, true, true), (in_file, false, true)]
    {
        let mut script = Script::new(&[&body[..length]], None);
        let local = Rc::clone(&script.local);
        let sizes = Sizes { body: 0, buffering, ..Sizes::default() };
        let (mut payload, _) = prepare(&mut script, Framing::Chunked, sizes).await.unwrap();
        let before = local.quota.held();
        for bytes in [20_000, 60_000, 10_000] {
            payload.waits(&local, bytes).unwrap();
            let most = if bytes == 20_000 { bytes } else { 60_000 };
            assert_eq!(local.quota.held() - before, if charges { most } else { 0 }, "{length} {buffering}");
        }
        let outcome = payload.waits(&local, usize::MAX / 2);
        assert_eq!(outcome.err().map(|error| error.kind), charges.then_some(Kind::NoRoom));
        payload.moves();
        assert_eq!(local.quota.held(), before);
    }
}

#[tokio::test]
async fn tiny_pieces_are_kept_together() {
    let pieces = vec![&b"ab"[..]; 5_000];
    let mut script = Script::new(&pieces, None);
    let (payload, _) = prepare(&mut script, Framing::Chunked, Sizes::default()).await.unwrap();
    let Payload::Whole { pieces, .. } = &payload else { panic!("it fits") };
    assert!(pieces.len() <= 2 * 10_000 / JOINED + 1, "{}", pieces.len());
}

#[tokio::test]
async fn a_client_that_goes_is_an_error() {
    let mut script = Script::new(&[b"a"], Some(Kind::ClientGone));
    let outcome = prepare(&mut script, Framing::Chunked, Sizes::default()).await;
    assert_eq!(outcome.err().unwrap().kind, Kind::ClientGone);
}
