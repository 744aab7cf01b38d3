//! What is held for an idle client, and for a route without requests, alone and with a Service of its own.

use std::io::Write;

use super::clients::{self, Ask};
use super::proxy::{self, Looked, Scene};

/// The number of connections at first, and then in addition. What the first ones allocate once is shared by all.
const CONNECTIONS: [usize; 2] = [64, 128];

/// What a connection does before it is idle.
type Case = (&'static str, fn(&Looked) -> Ask);

const CASES: [Case; 4] = [
    ("h1", |it| clients::http1(it.http, &["a.test"], "/")),
    ("tls-h1", |it| clients::http1_over_tls(it.https, "tls.test", "/")),
    ("h2-tls", |it| clients::http2_over_tls(it.https, "tls.test", "/")),
    ("half-a-head", |it| {
        let mut stream = clients::connected(it.http);
        Box::new(move |_| stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\nX-Half").unwrap())
    }),
];

/// Bytes held for each.
pub(crate) fn held() -> Vec<(&'static str, i64)> {
    let mut held: Vec<_> = CASES.iter().map(|(name, client)| (*name, connection(*client))).collect();
    held.push(("route", route(Scene::Routes)));
    held.push(("own-service", route(Scene::Services)));
    held
}

fn connection(client: fn(&Looked) -> Ask) -> i64 {
    let endpoint = clients::endpoint();
    let mut proxy = Looked::start(Scene::Plain, endpoint.address);
    let mut open = Vec::new();
    let [before, after] = CONNECTIONS.map(|count| {
        open.extend((0..count).map(|_| {
            let mut ask = client(&proxy);
            ask(0);
            ask
        }));
        proxy.settled()
    });
    (after - before) / CONNECTIONS[1] as i64
}

fn route(scene: Scene) -> i64 {
    let endpoint = clients::endpoint();
    let [none, all] = [Scene::Plain, scene].map(|scene| Looked::start(scene, endpoint.address).settled());
    (all - none) / proxy::ROUTES as i64
}
