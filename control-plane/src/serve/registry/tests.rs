use super::*;
use crate::serve::message::Resume;

fn hello(id: &str, claim: Option<Claim>) -> Hello {
    Hello {
        id: id.into(),
        node: "node".into(),
        zone: "".into(),
        group: String::new(),
        config: Resume::default(),
        live: Resume::default(),
        inventory: false,
        claim,
    }
}

#[tokio::test]
async fn a_second_stream_of_the_same_proxy_replaces_the_first() {
    let registry = Arc::new(Registry::default());
    let now = clock::wall();
    let [one, two] = [Claim::random(), Claim::random()];
    let first = registry.enter(&hello("a", None), one, "1", now).unwrap();
    let second = registry.enter(&hello("a", Some(one)), two, "2", now).unwrap();
    first.replaced().await;
    drop(first);
    assert_eq!(&*registry.list()[0].address, "2", "the second one stays");
    drop(second);
    assert_eq!(registry.len(), 0);
}

#[tokio::test]
async fn who_only_knows_an_id_changes_nothing() {
    let registry = Arc::new(Registry::default());
    let now = clock::wall();
    let [one, two, three] = [Claim::random(), Claim::random(), Claim::random()];
    let first = registry.enter(&hello("a", None), one, "1", now).unwrap();
    for claim in [None, Some(two)] {
        assert_eq!(registry.enter(&hello("a", claim), three, "2", now).err(), Some(Taken));
    }
    assert_eq!(&*registry.list()[0].address, "1");
    let replaced = tokio::time::timeout(Duration::ZERO, first.replaced()).await;
    assert!(replaced.is_err(), "nobody told it to go");
    drop(first);
    assert!(registry.enter(&hello("a", Some(two)), three, "2", now).is_ok(), "the id is free");
}

fn enter(registry: &Arc<Registry>, id: &str) -> Seat {
    registry.enter(&hello(id, None), Claim::random(), "1", clock::wall()).unwrap()
}

fn ids(registry: &Registry) -> Vec<(String, bool)> {
    registry.list().iter().map(|proxy| (proxy.id.to_string(), proxy.is_silent())).collect()
}

#[test]
fn who_says_goodbye_is_not_counted_and_who_does_not_is_silent() {
    let registry = Arc::new(Registry::default());
    let [left, mut vanished, cut] = ["a-1", "b-2", "c-3"].map(|id| enter(&registry, id));
    left.leave();
    vanished.part(Parting::Vanished);
    drop((left, vanished, cut));
    assert_eq!(ids(&registry), [("b-2".to_owned(), true), ("c-3".to_owned(), true)]);
    assert_eq!(registry.len(), 0, "nobody is connected");
    let now = clock::now();
    registry.sweep(now + RETURNS);
    assert_eq!(ids(&registry), [("b-2".to_owned(), true)], "its process is no more");
    registry.sweep(now + VANISHED - Duration::from_secs(1));
    assert_eq!(registry.list().len(), 1);
    registry.sweep(now + VANISHED + Duration::from_secs(1));
    assert_eq!(registry.list().len(), 0);
}

#[test]
fn a_silent_proxy_comes_back_whatever_it_shows() {
    let registry = Arc::new(Registry::default());
    drop(enter(&registry, "a-1"));
    let back = enter(&registry, "a-1");
    assert_eq!(ids(&registry), [("a-1".to_owned(), false)]);
    registry.sweep(clock::now() + VANISHED);
    assert_eq!(registry.len(), 1, "it was silent, and is not");
    drop(back);
}

#[test]
fn a_new_process_takes_the_place_of_the_one_before_where_that_can_be_told() {
    let registry = Arc::new(Registry::default());
    drop(enter(&registry, "pod-x-1"));
    let _again = enter(&registry, "pod-x-2");
    assert_eq!(ids(&registry), [("pod-x-2".to_owned(), false)]);
    // Two at once on one host: either may be the one that began again.
    drop(enter(&registry, "pod-x-3"));
    let _third = enter(&registry, "pod-x-4");
    let silent: Vec<_> = ids(&registry).into_iter().filter(|(_, silent)| *silent).collect();
    assert_eq!(silent, [("pod-x-3".to_owned(), true)]);
}

#[test]
fn silent_proxies_are_so_many_at_most() {
    let registry = Arc::new(Registry::default());
    for at in 0..SILENT_MAX + 10 {
        let mut seat = enter(&registry, &format!("host{at}-1"));
        seat.part(Parting::Vanished);
    }
    registry.sweep(clock::now());
    assert_eq!(registry.list().len(), SILENT_MAX);
    assert!(
        registry.list().iter().all(|proxy| &*proxy.id != "host0-1"),
        "the one that is silent longest went"
    );
}

#[test]
fn after_a_start_others_may_still_come_back() {
    let registry = Arc::new(Registry::new(RETURNS));
    let start = clock::now();
    assert!(!registry.is_settled(start + 10 * RETURNS), "nobody was here");
    let _first = enter(&registry, "a-1");
    assert!(!registry.is_settled(start + RETURNS / 2));
    assert!(registry.is_settled(clock::now() + RETURNS));
}
