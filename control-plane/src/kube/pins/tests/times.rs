//! A replica whose clock is wrong: the API server's counts.

use super::failures::{ask, writer};
use super::*;

/// An API server at a time of its own.
fn replica_at(cluster: &Cluster, seconds: u64) -> mpsc::Sender<PinRequest> {
    writer(cluster, move |_, asked| (asked.path == "/version").then_some(Reply::Dated(seconds))).1
}

#[tokio::test]
async fn a_pin_is_ended_when_the_api_server_s_clock_says_so() {
    let cluster = Cluster::default();
    let mut replica = Replica::of(&cluster);
    // From 0 to 60.
    replica.write(&a_pin(1), None).await.unwrap();
    let Some(Event::Pinned(pin)) = replica.read().await else { panic!("it is on record") };
    let expire = || PinChange::Expire { pin: Arc::clone(&pin) };
    for (now, left) in [(0, 60), (29, 31), (58, 2)] {
        let early = ask(&replica_at(&cluster, now), expire()).await;
        assert_eq!(
            early,
            Err(PinRefused::Early { left: Duration::from_secs(left) }),
            "the clock here is fast"
        );
    }
    assert_eq!(replica.read().await, None, "it stays");
    // A record that replaced it is another decision.
    let newer = Arc::new(Pin { revision: "other".into(), ..Pin::clone(&pin) });
    let other = ask(&replica_at(&cluster, 1000), PinChange::Expire { pin: newer }).await;
    assert!(matches!(other, Err(PinRefused::Overtaken { .. })), "{other:?}");
    ask(&replica_at(&cluster, 59), expire()).await.unwrap();
    assert_eq!(replica.read().await, Some(Event::Unpinned));
    assert_eq!(ask(&replica_at(&cluster, 0), expire()).await, Ok("".into()), "it is gone already");
}

#[tokio::test]
async fn a_pin_ends_by_the_clock_here_where_responses_have_no_date_and_stays_where_there_are_none() {
    let cluster = Cluster::default();
    let mut replica = Replica::of(&cluster);
    replica.write(&a_pin(1), None).await.unwrap();
    let Some(Event::Pinned(pin)) = replica.read().await else { panic!("it is on record") };
    tokio::time::pause();
    let (_, silent) = writer(&cluster, |_, asked| (asked.path == "/version").then_some(Reply::Nothing));
    let failed = ask(&silent, PinChange::Expire { pin: Arc::clone(&pin) }).await;
    assert!(matches!(failed, Err(PinRefused::Failed { .. })), "{failed:?}");
    assert_eq!(replica.read().await, None);
    replica.ask(PinChange::Expire { pin }).await.unwrap();
    assert_eq!(replica.read().await, Some(Event::Unpinned));
}

#[tokio::test]
async fn a_pin_lasts_from_the_api_server_s_now() {
    for (now, expected) in [(30, (0, 60)), (31, (31, 91)), (90_000, (90_000, 90_060))] {
        let cluster = Cluster::default();
        let write = PinChange::Write { pin: a_pin(1), replaces: None };
        ask(&replica_at(&cluster, now), write).await.unwrap();
        let Some(Event::Pinned(pin)) = Replica::of(&cluster).read().await else { panic!("it is on record") };
        assert_eq!((pin.at, pin.until), expected, "{now}");
    }
}
