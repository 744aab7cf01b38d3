//! No request is lost and none is misrouted while endpoints and routes change under load.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::SocketAddr;

use integration_tests::site::{NAMESPACE, ingress, slice};
use integration_tests::{FolderSite, Origin, Question, Traffic, eventually, objects};

const SERVICES: usize = 8;
const ENDPOINT_CHANGES: usize = 1000;
const ROUTE_CHANGES: usize = 200;
const REQUESTS: u64 = 10_000;

fn service(number: usize) -> String {
    format!("service-{number}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_requests_during_a_thousand_changes() {
    let site = FolderSite::start(&[]).await;
    // Each Service has two origins, and its slice one, the other or both, at any time at least one.
    let mut origins = Vec::new();
    for number in 0..SERVICES {
        let first = site.origin(&service(number)).await;
        let second = Origin::start(&service(number)).await;
        site.route(&format!("fixed-{number}"), &format!("fixed-{number}.test"), &first).await;
        origins.push((first, second));
    }
    // One Ingress of its own for each half: its host goes to either of two Services, and to no third one.
    let moving = |number: usize, to: usize| {
        let target = service(number * 2 + to);
        ingress(&format!("moving-{number}"), &format!("moving-{number}.test"), &[("/", &target)])
    };
    for number in 0..SERVICES / 2 {
        site.folder.apply(&moving(number, 0));
        site.proxy.serves(&format!("moving-{number}.test"), "/", &service(number * 2)).await;
    }
    let mut questions = Vec::new();
    for number in 0..SERVICES {
        questions.push(Question::new(&format!("fixed-{number}.test"), "/", &[&service(number)]));
        let half = number / 2;
        let answers = [service(half * 2), service(half * 2 + 1)];
        let answers = [answers[0].as_str(), answers[1].as_str()];
        questions.push(Question::new(&format!("moving-{half}.test"), "/x", &answers));
    }
    let traffic = Traffic::start(site.proxy.http(), 8, &questions);
    let mut made = 0;
    for round in 0..ENDPOINT_CHANGES {
        let (first, second) = &origins[round % SERVICES];
        let name = service(round % SERVICES);
        // The two listen on different ports, so both at once are two slices.
        let other = |endpoints: &[SocketAddr]| objects::slice(NAMESPACE, &name, "2", endpoints);
        match round / SERVICES % 3 {
            0 => site.folder.apply(&other(&[second.address()])),
            1 => site.folder.apply(&slice(&name, &[])),
            _ => {
                site.folder.apply(&slice(&name, &[first.address()]));
                site.folder.apply(&other(&[]));
            }
        }
        if round % (ENDPOINT_CHANGES / ROUTE_CHANGES) == 0 {
            let half = made % (SERVICES / 2);
            site.folder.apply(&moving(half, 1 - made / (SERVICES / 2) % 2));
            made += 1;
        }
        // Changes are spread over the requests, whichever of the two is faster here.
        let due = REQUESTS * round as u64 / ENDPOINT_CHANGES as u64;
        while traffic.asked() < due {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(made, ROUTE_CHANGES);
    eventually("all requests are made", || async {
        if traffic.asked() >= REQUESTS { Ok(()) } else { Err(traffic.asked()) }
    })
    .await;
    let asked = traffic.asked();
    let problems = traffic.stop().await;
    assert!(
        problems.is_empty(),
        "{} of {asked} requests lost or misrouted: {:?}",
        problems.len(),
        &problems[..problems.len().min(10)]
    );
    site.control.inspect().await.in_sync(1).await;
    let expected = service(0);
    site.proxy.serves("fixed-0.test", "/", &expected).await;
}

#[tokio::test]
async fn an_endpoint_that_left_may_die() {
    let site = FolderSite::start(&[]).await;
    let first = site.origin("one").await;
    site.route("web", "a.test", &first).await;
    let inspect = site.control.inspect().await;
    let traffic = Traffic::start(site.proxy.http(), 1, &[Question::new("a.test", "/", &["one"])]);
    let mut current = first;
    for _ in 0..20 {
        let next = Origin::start("one").await;
        site.folder.apply(&slice("one", &[next.address()]));
        eventually("the new endpoint gets requests", || async {
            if next.connections() > 0 { Ok(()) } else { Err("none yet") }
        })
        .await;
        inspect.in_sync(1).await;
        // There is one client: after its next answer but one, nothing is under way that began before.
        let asked = traffic.asked();
        eventually("the last request of before is answered", || async {
            if traffic.asked() > asked + 1 { Ok(()) } else { Err("not yet") }
        })
        .await;
        drop(std::mem::replace(&mut current, next));
    }
    let problems = traffic.stop().await;
    assert!(problems.is_empty(), "{problems:?}");
}
