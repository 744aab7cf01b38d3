use std::future::poll_fn;
use std::path::PathBuf;

use shared::budget::Budget;
use tokio::task::{LocalSet, yield_now};

use super::*;
use crate::http::reply::{Coded, Replacer};
use crate::local::quota::Quota;
use crate::local::spill::Spill;

/// Bytes of the response.
const LENGTH: usize = 1 << 20;
/// Those that are kept in memory.
const MEMORY: usize = 16 * 1024;

fn text() -> Vec<u8> {
    (0..LENGTH).map(|n| (n % 251) as u8).collect()
}

/// A response that comes in many pieces.
fn pieces() -> ReplyBody {
    let whole = ReplyBody::Page(text().into());
    ReplyBody::Coded(Box::new(Coded::replacing(whole, Replacer::new(Vec::new(), false))))
}

fn limits(file: u64) -> ReadAhead {
    ReadAhead { is_on: true, memory: MEMORY, file }
}

fn begin(local: &Local, file: u64) -> (Box<Ahead>, Rc<Cell<Option<Instant>>>) {
    match Ahead::begin(local, pieces(), limits(file), Duration::from_secs(60)) {
        (ReplyBody::Ahead(ahead), Some(arrived)) => (ahead, arrived),
        (other, _) => panic!("{other:?}"),
    }
}

async fn rest(ahead: &mut Ahead, local: &Local) -> Vec<u8> {
    rest_within(ahead, local, usize::MAX).await
}

/// All of it, while files never take more than this.
async fn rest_within(ahead: &mut Ahead, local: &Local, most: usize) -> Vec<u8> {
    let mut taken = Vec::new();
    loop {
        assert!(local.spill.used() <= most, "{}", local.spill.used());
        match ahead.buffered().unwrap() {
            Some(Some(piece)) => taken.extend_from_slice(&piece),
            Some(None) => return taken,
            None => poll_fn(|cx| ahead.poll_arrived(cx)).await,
        }
    }
}

#[tokio::test]
async fn a_response_is_read_before_anybody_takes_it() {
    let local = Local::for_tests();
    LocalSet::new()
        .run_until(async {
            let (mut ahead, arrived) = begin(&local, 1 << 30);
            assert!(local.quota.held() > ROOM, "what it reads into is charged, and what it has read");
            while local.spill.used() < LENGTH - MEMORY - BATCH || local.quota.held() > MEMORY {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert!(arrived.get().is_some() && local.quota.held() > 0);
            assert!(rest(&mut ahead, &local).await == text(), "in order");
            assert_eq!(ahead.came(), LENGTH);
            assert_eq!((local.spill.used(), local.quota.held()), (0, 0), "given back before it is dropped");
        })
        .await;
}

#[tokio::test]
async fn what_may_not_be_kept_stays_with_the_backend() {
    for (spill, file, most) in [
        (Spill::into_dir(std::env::temp_dir()), 0, 0),
        (Spill::into_dir(std::env::temp_dir()), 2 * BATCH as u64, 2 * BATCH),
        (Spill::into_dir(PathBuf::from("/dev/null/at/all")), 1 << 30, 0),
        // Half of it may be used.
        (Spill::new(std::env::temp_dir(), LENGTH), 1 << 30, LENGTH / 2 + BATCH),
    ] {
        let local = Local { spill, ..Local::for_tests() };
        LocalSet::new()
            .run_until(async {
                let (mut ahead, arrived) = begin(&local, file);
                for _ in 0..1_000 {
                    yield_now().await;
                }
                assert!(arrived.get().is_none(), "{:?}", local.spill);
                assert!(rest_within(&mut ahead, &local, most).await == text(), "{:?}", local.spill);
                assert!(arrived.get().is_some());
                assert_eq!(local.spill.used(), 0);
            })
            .await;
    }
}

#[tokio::test]
async fn without_memory_nothing_is_read_ahead() {
    let local = Local { quota: Quota::new(Budget::new(ROOM - 1)), ..Local::for_tests() };
    let (body, arrived) = Ahead::begin(&local, pieces(), limits(0), Duration::from_secs(60));
    assert!(matches!(body, ReplyBody::Coded(_)) && arrived.is_none());
}

#[tokio::test]
async fn the_rest_is_not_read_for_who_has_left() {
    let local = Local::for_tests();
    LocalSet::new()
        .run_until(async {
            let (ahead, _) = begin(&local, 0);
            yield_now().await;
            drop(ahead);
            while local.quota.held() > 0 {
                yield_now().await;
            }
        })
        .await;
}

/// Somebody has to have what was read: one piece is kept whatever the limits are.
#[test]
fn one_piece_always_has_room_and_what_has_room_is_charged() {
    let piece = |length: usize| Bytes::from(vec![b'x'; length]);
    let short = Store::new(&Quota::new(Budget::new(0)), 10);
    assert!(short.keep(&piece(8)) && !short.keep(&piece(1)));
    assert_eq!(short.uncharged(), 8);
    assert_eq!(short.take().unwrap(), Some(Some(piece(8))));
    let store = Store::new(&Quota::new(Budget::new(1 << 20)), 10);
    assert!(store.keep(&piece(8)) && store.keep(&piece(2)) && !store.keep(&piece(1)));
    assert_eq!(store.uncharged(), 0);
    for length in [8, 2] {
        assert_eq!(store.take().unwrap(), Some(Some(piece(length))));
    }
    assert!(store.keep(&piece(11)));
}

#[tokio::test]
async fn what_is_in_the_file_has_come() {
    let local = Local::for_tests();
    let store = Store::new(&local.quota, 0);
    let is_there = || poll_fn(|cx| Poll::Ready(store.poll_arrived(cx).is_ready()));
    let mut file = local.spill.file().await.unwrap();
    store.continue_in(file.reader());
    assert!(!is_there().await);
    file.append([Bytes::from_static(b"x")]).await.unwrap();
    store.wrote(1);
    assert!(is_there().await && !store.leave_file());
    assert_eq!(store.take().unwrap(), Some(Some(Bytes::from_static(b"x"))));
    assert!(!is_there().await && store.leave_file());
}
