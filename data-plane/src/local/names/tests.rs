use std::pin::pin;

use futures::poll;
use tokio::task::LocalSet;
use tokio::time;

use super::*;
use crate::dns::tests::{Dns, DnsAnswer};

const OWNER: &str = "shop/web";

/// A resolver that uses a scripted server and no hosts file.
fn names(dns: &Dns) -> Names {
    Names::by(KnownNames::default(), Hosts::of_file("/nonexistent".into()), dns.servers())
}

fn at(last: u8) -> Vec<SocketAddr> {
    vec![SocketAddr::from(([10, 0, 0, last], 80))]
}

impl Names {
    fn known(&self, host: &str) -> Rc<Name> {
        Rc::clone(&self.known.borrow()[host].name)
    }

    /// Ages a cached result.
    fn ages(&self, host: &str, old: Duration) {
        let now = clock::now();
        let name = self.known(host);
        let mut found = name.found.borrow_mut();
        (found.until, found.old) = (now, now + old);
    }
}

/// Polls until the condition holds.
async fn until(is_so: impl Fn() -> bool) {
    let looking = async {
        while !is_so() {
            time::sleep(Duration::from_millis(5)).await;
        }
    };
    time::timeout(Duration::from_secs(60), looking).await.unwrap();
}

#[tokio::test]
async fn names_and_addresses_are_found() {
    LocalSet::new()
        .run_until(async {
            let dns = Dns::start().await;
            dns.script.addresses("auth.test", &[1], 5);
            let names = names(&dns);
            assert_eq!(names.resolve(OWNER, "10.0.0.1", 80).await.unwrap(), at(1));
            let six = names.resolve(OWNER, "::1", 80).await.unwrap();
            assert_eq!(six, ["[::1]:80".parse().unwrap()]);
            let found = names.resolve(OWNER, "localhost", 8080).await.unwrap();
            assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 8080));
            for _ in 0..3 {
                assert_eq!(names.resolve(OWNER, "auth.test", 80).await.unwrap(), at(1));
                assert!(names.resolve(OWNER, "nowhere.test", 80).await.is_err());
            }
            assert_eq!(
                ["auth.test", "nowhere.test"].map(|name| dns.script.asked(name)),
                [1, 1],
                "remembered"
            );
        })
        .await;
}

#[tokio::test]
async fn few_of_many_addresses_are_kept() {
    LocalSet::new()
        .run_until(async {
            let dns = Dns::start().await;
            let many: Vec<_> =
                (0..2000_u16).map(|last| [10, 0, (last >> 8) as u8, last as u8].into()).collect();
            dns.script.set("many.test", DnsAnswer::Addresses(many.clone(), 5));
            dns.script.truncates();
            let names = names(&dns);
            let found = names.resolve(OWNER, "many.test", 80).await.unwrap();
            assert!(
                found.len() == 16 && found.iter().all(|address| many.contains(&address.ip())),
                "{found:?}"
            );
            assert!(names.known("many.test").found.borrow().addresses.capacity() <= 16);
        })
        .await;
}

#[tokio::test]
async fn configured_names_come_before_the_dns() {
    let given = KnownNames::default();
    let names = Names::new(given.clone());
    let auth: SocketAddr = "127.0.0.1:4000".parse().unwrap();
    let ports = HashMap::from([(9000, vec![auth]), (1, vec![])]);
    given.set(HashMap::from([("localhost".into(), ports)]));
    for host in ["localhost", "LocalHost."] {
        assert_eq!(names.resolve(OWNER, host, 9000).await.unwrap(), [auth], "{host}");
    }
    // No lookup for a port that the name does not have: whoever listens there is someone else.
    for port in [1, 80] {
        assert!(names.resolve(OWNER, "localhost", port).await.is_err(), "{port}");
    }
    assert_eq!(names.resolve(OWNER, "127.0.0.1", 80).await.unwrap(), ["127.0.0.1:80".parse().unwrap()]);
    given.set(HashMap::new());
    assert!(names.resolve(OWNER, "localhost", 80).await.unwrap().iter().all(|it| it.ip().is_loopback()));
}

#[tokio::test]
async fn names_that_nobody_answers_for_hold_up_no_other_ingress() {
    LocalSet::new()
        .run_until(async {
            let dns = Dns::start().await;
            let names = names(&dns);
            for at in 0..LOOKUPS {
                let host = format!("x{at}.test");
                dns.script.set(&host, DnsAnswer::Silence);
                // The caller does not wait for it.
                let _ = poll!(pin!(names.resolve("evil/any", &host, 80)));
            }
            let error = names.resolve("evil/any", "another.test", 80).await.unwrap_err();
            assert!(error.to_string().contains("too many names"), "{error}");
            dns.script.addresses("auth.test", &[1], 5);
            let mut asking = pin!(names.resolve(OWNER, "auth.test", 80));
            assert!(poll!(&mut asking).is_pending() && names.known("auth.test").is_asked.get(), "at once");
            assert_eq!(asking.await.unwrap(), at(1));
            // Each of them ends and frees its slot.
            until(|| names.shares.borrow_mut().take("evil/any")).await;
        })
        .await;
}

#[tokio::test]
async fn old_addresses_are_used_while_new_ones_are_asked_for() {
    LocalSet::new()
        .run_until(async {
            let dns = Dns::start().await;
            let names = names(&dns);
            dns.script.addresses("auth.test", &[1], 5);
            assert_eq!(names.resolve(OWNER, "auth.test", 80).await.unwrap(), at(1));
            dns.script.addresses("auth.test", &[2], 5);
            names.ages("auth.test", OLD);
            assert_eq!(names.resolve(OWNER, "auth.test", 80).await.unwrap(), at(1), "nobody waits");
            let name = names.known("auth.test");
            until(|| !name.is_asked.get()).await;
            assert_eq!(names.resolve(OWNER, "auth.test", 80).await.unwrap(), at(2));
            names.ages("auth.test", Duration::ZERO);
            dns.script.addresses("auth.test", &[3], 5);
            assert_eq!(names.resolve(OWNER, "auth.test", 80).await.unwrap(), at(3), "too old");
            // No server responds: the old result stays.
            dns.script.set("auth.test", DnsAnswer::Silence);
            names.ages("auth.test", Duration::ZERO);
            assert_eq!(names.resolve(OWNER, "auth.test", 80).await.unwrap(), at(3));
            // An empty result is a result.
            dns.script.set("auth.test", DnsAnswer::Addresses(vec![], 5));
            names.ages("auth.test", Duration::ZERO);
            assert!(names.resolve(OWNER, "auth.test", 80).await.is_err());
        })
        .await;
}

#[test]
fn owner_with_most_names_is_evicted_first() {
    let names = Names::new(KnownNames::default());
    let remembers = |host: &str| names.known.borrow().contains_key(host);
    names.name(OWNER, "auth.test");
    for at in 0..2 * NAMES {
        names.name("evil/any", &format!("x{at}.test"));
    }
    assert_eq!(names.known.borrow().len(), NAMES);
    assert!(remembers("auth.test") && remembers(&format!("x{}.test", 2 * NAMES - 1)));
    assert!(!remembers("x0.test"));
}

#[test]
fn addresses_that_could_not_be_reached_are_tried_last_for_a_while() {
    let names = Names::new(KnownNames::default());
    let mut all: Vec<_> = (1..=4).flat_map(at).collect();
    names.is_unreached(all[0]);
    names.is_unreached(all[2]);
    names.put_unreached_last(&mut all);
    assert_eq!(all, [at(2), at(4), at(1), at(3)].concat());
    names.unreached.borrow_mut().values_mut().for_each(|until| *until = clock::now());
    all.sort_unstable();
    names.put_unreached_last(&mut all);
    assert_eq!(all, (1..=4).flat_map(at).collect::<Vec<_>>());
    for port in 1..=1000 {
        names.is_unreached(([10, 0, 0, 1], port).into());
    }
    assert_eq!(names.unreached.borrow().len(), MOST_UNREACHED);
}
