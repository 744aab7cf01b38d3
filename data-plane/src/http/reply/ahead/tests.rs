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

async fn rest(ahead: &mut Ahead) -> Vec<u8> {
    let mut taken = Vec::new();
    loop {
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
            while local.spill.used() < LENGTH - MEMORY - BATCH || arrived.get().is_none() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert!(local.quota.held() <= MEMORY + ROOM, "{}", local.quota.held());
            assert!(rest(&mut ahead).await == text(), "in order");
            assert_eq!(ahead.came(), LENGTH);
            assert_eq!((local.spill.used(), local.quota.held()), (0, 0), "given back before it is dropped");
        })
        .await;
}

#[tokio::test]
async fn what_may_not_be_kept_stays_with_the_backend() {
    for (spill, file) in [
        (Spill::into_dir(std::env::temp_dir()), 0),
        (Spill::into_dir(PathBuf::from("/dev/null/at/all")), 1 << 30),
        // Half of it may be used.
        (Spill::new(std::env::temp_dir(), LENGTH), 1 << 30),
    ] {
        let local = Local { spill, ..Local::for_tests() };
        LocalSet::new()
            .run_until(async {
                let (mut ahead, arrived) = begin(&local, file);
                for _ in 0..1_000 {
                    yield_now().await;
                }
                assert!(arrived.get().is_none(), "{:?}", local.spill);
                assert!(rest(&mut ahead).await == text(), "{:?}", local.spill);
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
