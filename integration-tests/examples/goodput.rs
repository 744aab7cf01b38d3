//! What a proxy still does when it is asked three times as much as it can (goal F13), by clients that wait for a second: at its
//! best, then with three times as many requests a second, which wait for nobody.
//!
//!     cargo build --workspace --bins
//!     cargo run -p firth-integration-tests --example goodput
//!
//! The load needs more of the machine than what is asked, so the proxy has one millisecond of each ten. Any other server is asked
//! in the same way: `-- ADDRESS HOST PID`, with the process that serves.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::panic, reason = "a program for people")]
#![allow(clippy::disallowed_methods, reason = "the runtime owns its tasks")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use integration_tests::FolderSite;
use integration_tests::client::Connection;
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

/// Clients that wait for their answers, at its best.
const CLIENTS: usize = 16;
/// How much more than it can.
const OVERLOAD: f64 = 3.0;
/// Of each phase.
const LASTS: Duration = Duration::from_secs(8);
/// Who has no answer by then has gone.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where requests go, and the connections that nobody uses just now.
struct Clients {
    address: SocketAddr,
    host: String,
    keeps: bool,
    idle: Mutex<Vec<Connection<TcpStream>>>,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut site = FolderSite::start_with(&[], &[], &["--workers", "1"]).await;
    let origin = site.origin("one").await;
    site.route("web", "a.test", &origin).await;
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (address, host, process) = match &args[..] {
        [address, host, process] => (address.parse().unwrap(), host.clone(), process.parse().unwrap()),
        _ => (site.proxy.http(), "a.test".to_owned(), site.proxy.process().id()),
    };
    let process = Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
    thread::spawn(move || {
        while kill_process(process, Signal::STOP).is_ok() {
            thread::sleep(Duration::from_millis(9));
            let _ = kill_process(process, Signal::CONT);
            thread::sleep(Duration::from_millis(1));
        }
    });
    for keeps in [true, false] {
        println!("{}", if keeps { "connections are kept" } else { "a connection for each request" });
        let clients = Arc::new(Clients { address, host: host.clone(), keeps, idle: Mutex::default() });
        let best = clients.best().await;
        println!("  at its best: {best:.0} answers a second to {CLIENTS} clients");
        let (offered, outcomes) = clients.overload(best * OVERLOAD).await;
        println!("  offered: {offered:.0} a second, {:.1} times the best", offered / best);
        for (outcome, mut took) in outcomes {
            took.sort();
            let rate = took.len() as f64 / LASTS.as_secs_f64();
            let [half, most] = [50, 99].map(|part| took[(took.len() * part / 100).min(took.len() - 1)]);
            println!(
                "  {outcome}: {rate:.0} a second, {:.2} of the best; p50 {half:?}, p99 {most:?}",
                rate / best
            );
        }
    }
    let _ = kill_process(process, Signal::CONT);
}

impl Clients {
    /// Answers a second to clients that wait for them.
    async fn best(self: &Arc<Self>) -> f64 {
        let begun = Instant::now();
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            let own = Arc::clone(self);
            clients.spawn(async move {
                let mut count = 0_u64;
                while begun.elapsed() < LASTS {
                    count += u64::from(own.ask().await.0 == "served");
                }
                count
            });
        }
        clients.join_all().await.iter().sum::<u64>() as f64 / LASTS.as_secs_f64()
    }

    /// So many requests a second, whatever becomes of those before. Gives how many there were, and what became of them.
    async fn overload(self: &Arc<Self>, rate: f64) -> (f64, BTreeMap<String, Vec<Duration>>) {
        let (begun, mut ticks) = (Instant::now(), interval(Duration::from_millis(1)));
        let (mut sent, mut asking) = (0_u64, JoinSet::new());
        let mut outcomes: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
        while begun.elapsed() < LASTS {
            ticks.tick().await;
            while (sent as f64) < begun.elapsed().as_secs_f64() * rate {
                sent += 1;
                let own = Arc::clone(self);
                asking.spawn(async move { own.ask().await });
            }
        }
        for (outcome, took) in asking.join_all().await {
            outcomes.entry(outcome).or_default().push(took);
        }
        // What lies there for clients that have gone is over before the next phase begins.
        while self.ask().await.0 != "served" {
            sleep(PATIENCE).await;
        }
        (sent as f64 / LASTS.as_secs_f64(), outcomes)
    }

    /// One request. What became of it, and how long that took.
    async fn ask(&self) -> (String, Duration) {
        let begun = Instant::now();
        let asking = async {
            let kept = self.idle.lock().unwrap().pop();
            let mut client = match kept {
                Some(kept) => kept,
                None => Connection::open(self.address).await?,
            };
            let end = if self.keeps { "" } else { "Connection: close\r\n" };
            client.send(format!("GET / HTTP/1.1\r\nHost: {}\r\n{end}\r\n", self.host)).await?;
            let answer = client.answer("GET").await?;
            if self.keeps && answer.all("connection") != ["close"] {
                self.idle.lock().unwrap().push(client);
            }
            Ok::<_, std::io::Error>(answer.status)
        };
        let outcome = match timeout(PATIENCE, asking).await {
            Ok(Ok(200)) => "served".to_owned(),
            Ok(Ok(status)) => format!("{status}"),
            Ok(Err(error)) => format!("no answer ({:?})", error.kind()),
            Err(_) => "late".to_owned(),
        };
        (outcome, begun.elapsed())
    }
}
