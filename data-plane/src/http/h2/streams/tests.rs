use proptest::prelude::*;
use shared::budget::Budget;

use super::*;

fn quota() -> Rc<Quota> {
    Quota::new(Budget::new(1 << 30))
}

/// How many of a hundred equal requests run concurrently on a connection that has sent this much.
fn at_once(size: u64, received: u64, level: Level) -> usize {
    let (streams, quota) = (Rc::<Streams>::default(), quota());
    let mut begun = Vec::new();
    while begun.len() < 100 && streams.fits(size, received, level) {
        begun.push(streams.begin(size, &quota).unwrap());
    }
    begun.len()
}

#[test]
fn ordinary_requests_all_run_and_large_ones_as_they_were_paid() {
    assert_eq!(at_once(600, 3_000, Level::Calm), 100, "a browser, or a hundred watches over gRPC");
    assert_eq!(at_once(1_500, 10_000, Level::Calm), 81, "each with a token of 1 kB");
    assert_eq!(at_once(2_300, 5_000, Level::Calm), 17, "each with cookies of 2 kB");
    assert_eq!(at_once(4_200, 7_200, Level::Calm), 9, "each 4 kB by reference");
    assert_eq!(at_once(4_200, 7_200, Level::Tight), 7);
    assert_eq!(at_once(30_000, 30_100, Level::Tight), 3);
    assert_eq!(at_once(30_000, 30_100, Level::Full), 3, "the process says whether it is refused");
    assert_eq!(at_once(1 << 20, 100, Level::Tight), 1, "one may always run");
}

#[test]
fn responses_are_not_read_for_a_client_that_takes_none() {
    let (streams, quota) = (Rc::<Streams>::default(), quota());
    assert!(streams.has_room());
    streams.gave(GIVEN - 1);
    assert!(streams.has_room());
    streams.gave(1);
    assert!(!streams.has_room());
    streams.took(GIVEN as u64 / 2, true, &quota);
    assert!(!streams.has_room());
    assert_eq!(quota.held(), GIVEN, "the connection has it");
    streams.took(GIVEN as u64, false, &quota);
    assert!(streams.has_room(), "all is written");
    assert_eq!(quota.held(), 0);
    streams.took(GIVEN as u64, true, &quota);
    assert!(!streams.has_room(), "what is read could go nowhere");
}

#[test]
fn client_that_took_much_may_have_more_untaken() {
    let (streams, quota) = (Rc::<Streams>::default(), quota());
    let mut held: Vec<_> = (0..4).map(|_| streams.untaken(16 * 1024)).collect();
    assert_eq!(streams.most(Level::Calm), AHEAD);
    assert!(streams.has_room(), "it is a matter of windows");
    held[0].shrink(16 * 1024 - 1);
    assert_eq!(streams.most(Level::Calm), usize::MAX);
    assert_eq!(streams.most(Level::Tight), AHEAD, "one in hand is enough");
    let _more = streams.untaken(UNTAKEN);
    assert_eq!(streams.most(Level::Calm), AHEAD);
    streams.took(128 * 1024, false, &quota);
    assert_eq!(streams.most(Level::Calm), usize::MAX);
    let _most = streams.untaken(PAUSED);
    streams.took(u64::MAX, false, &quota);
    assert_eq!(streams.most(Level::Calm), AHEAD);
}

#[test]
fn so_much_waits_and_no_more() {
    let quota = quota();
    assert!(Streams::wait(QUEUED + 70, 0, 7, &quota).is_some());
    assert!(Streams::wait(QUEUED, 71, 7, &quota).is_none());
    assert!(Streams::wait(QUEUED, u64::MAX, u64::MAX, &quota).is_some(), "who sent as much");
    let held = quota.held();
    let _share = Streams::wait(100_000, 0, 0, &quota).unwrap();
    assert!(quota.held() - held >= 100_000, "its text is held");
}

/// How many of a hundred requests can be queued with this many fields, each a one-byte reference to a short field,
/// and what they are charged.
fn waiting(fields: u64) -> (u64, u64) {
    let (quota, mut shares, mut beside) = (quota(), Vec::new(), 0);
    for number in 1..=100_u64 {
        let size = fields * 33;
        let Some(share) = Streams::wait(size, beside, number * (fields + 30), &quota) else { break };
        shares.push(share);
        beside += size;
    }
    (shares.len() as u64, beside)
}

#[test]
fn fields_that_cost_a_byte_wait_for_what_they_take() {
    assert_eq!(waiting(20), (100, 100 * 20 * 33), "those of a browser");
    let (count, bytes) = waiting(95);
    assert!(count < 100 && bytes == count * 95 * 33);
    assert!(bytes <= QUEUED + HEADS_A_BYTE * (count + 1) * 125, "{count} of {bytes}");
}

proptest! {
    /// Whatever starts, responds and ends: the charges match the streams that exist, and end at zero.
    #[test]
    fn nothing_is_lost(steps in prop::collection::vec((0..3_u8, 0..20_000_u64), 0..100)) {
        let (streams, quota) = (Rc::<Streams>::default(), quota());
        let mut begun: Vec<(Counted, u64)> = Vec::new();
        for (step, size) in steps {
            match step {
                0 => begun.extend(streams.begin(size, &quota).map(|it| (it, weight(size)))),
                1 => drop(begun.pop()),
                _ => if let Some((counted, weight)) = begun.last_mut() {
                    counted.forget_head();
                    *weight = 0;
                }
            }
            prop_assert_eq!(streams.heads.get(), begun.iter().map(|(_, weight)| weight).sum::<u64>());
            prop_assert_eq!(streams.count(), begun.len());
        }
        drop(begun);
        prop_assert_eq!((streams.heads.get(), streams.count()), (0, 0));
    }
}
