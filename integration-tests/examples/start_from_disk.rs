//! How long a proxy takes from exec to its first answer, with what it had on disk and nobody to ask.
//!
//!     cargo build --release --workspace --bins
//!     FIRTH_BIN=target/release cargo run --release -p firth-integration-tests --example start_from_disk -- 10000

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::panic, reason = "a program for people")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use integration_tests::site::{ingress, slice};
use integration_tests::{FolderSite, Origin, eventually, eventually_within, objects};
use serde_json::json;

const STARTS: usize = 11;

#[tokio::main]
async fn main() {
    let routes: usize = std::env::args().nth(1).map_or(10_000, |count| count.parse().unwrap());
    let mut site = FolderSite::start(&[]).await;
    let origin = Origin::start("one");
    let mut items = Vec::new();
    for number in 0..routes {
        // A Service each, as they are in the field.
        let name = format!("s{number}");
        items.push(objects::service("default", &name));
        items.push(slice(&name, &[origin.address()]));
        items.push(ingress(&format!("i{number}"), &format!("h{number}.test"), &[("/", &name)]));
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    site.folder.write("routes.json", list.to_string());
    let last = format!("h{}.test", routes - 1);
    let done = || async { if is_served(site.proxy.http(), &last) { Ok(()) } else { Err("not served yet") } };
    eventually_within(Duration::from_secs(600), "the last route is served", done).await;
    let state = site.proxy.state_dir().join("state");
    eventually("all of it is on disk", || async {
        let bytes = fs::read(&state).map_err(|error| error.to_string())?;
        let names = |name: &str| bytes.windows(name.len()).any(|part| part == name.as_bytes());
        if names(&format!("/{last}")) { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
    site.control.kill();
    site.proxy.kill();
    println!(
        "{routes} hosts with a route and a Service each: {} bytes on disk",
        fs::metadata(&state).unwrap().len()
    );

    let mut took: Vec<Duration> = (0..STARTS)
        .map(|_| {
            let begun = Instant::now();
            site.proxy.start_again();
            while !is_served(site.proxy.http(), &last) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let took = begun.elapsed();
            site.proxy.kill();
            took
        })
        .collect();
    took.sort();
    println!(
        "from exec to the first answer: median {:?}, least {:?}, most {:?}",
        took[STARTS / 2],
        took[0],
        took[STARTS - 1]
    );
}

fn is_served(address: std::net::SocketAddr, host: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let mut answer = String::new();
    let asked = write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
}
