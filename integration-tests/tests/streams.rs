//! TCP and UDP services through both planes: from entries of ConfigMaps to bytes, during unrelated changes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::time::Duration;

use integration_tests::objects::{self, Edit};
use integration_tests::site::{self, NAMESPACE};
use integration_tests::{FolderSite, eventually, ports};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(10);

/// Says its name, then what it hears.
async fn echo(name: &'static str, tasks: &mut JoinSet<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tasks.spawn(async move {
        let mut open = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            open.spawn(async move {
                let (mut read, mut write) = stream.split();
                write.write_all(name.as_bytes()).await.ok()?;
                tokio::io::copy(&mut read, &mut write).await.ok()?;
                write.shutdown().await.ok()
            });
        }
    });
    address
}

/// Answers each datagram with its name before it.
async fn answers(name: &'static str, tasks: &mut JoinSet<()>) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tasks.spawn(async move {
        let mut buffer = vec![0; 2_048];
        while let Ok((count, from)) = socket.recv_from(&mut buffer).await {
            let _ = socket.send_to(&[name.as_bytes(), &buffer[..count]].concat(), from).await;
        }
    });
    address
}

/// A Service with one port of a transport, and its endpoints.
fn service(name: &str, transport: &str, endpoints: &[SocketAddr]) -> [Value; 2] {
    let service = objects::service(NAMESPACE, name).with("/spec/ports/0/protocol", transport.into());
    let slice = site::slice(name, endpoints).with("/ports/0/protocol", transport.into());
    [service, slice]
}

fn entries(transport: &str, data: Value) -> Value {
    objects::config_map("ingress-nginx", &format!("{transport}-services"), data)
}

async fn connect(port: u16) -> std::io::Result<TcpStream> {
    TcpStream::connect(("127.0.0.1", port)).await
}

/// So many bytes.
async fn hear(stream: &mut TcpStream, count: usize) -> String {
    let mut bytes = vec![0; count];
    timeout(PATIENCE, stream.read_exact(&mut bytes)).await.expect("in time").unwrap();
    String::from_utf8(bytes).unwrap()
}

/// A new session is served by this endpoint.
async fn is_served_by(port: u16, name: &str) {
    eventually(&format!("port {port} leads to {name}"), || async {
        let mut stream = connect(port).await.map_err(|error| error.to_string())?;
        let mut said = vec![0; name.len()];
        match timeout(PATIENCE, stream.read_exact(&mut said)).await {
            Ok(Ok(_)) if said == name.as_bytes() => Ok(()),
            other => Err(format!("{other:?}: {said:?}")),
        }
    })
    .await;
}

#[tokio::test]
async fn a_tcp_session_outlives_everything_but_its_own_ends() {
    let mut tasks = JoinSet::new();
    let (one, two) = (echo("one", &mut tasks).await, echo("two", &mut tasks).await);
    let (port, other) = (ports::free().port(), ports::free().port());
    let mut site = FolderSite::start(&[]).await;
    for object in service("db", "TCP", &[one]) {
        site.folder.apply(&object);
    }
    site.folder.apply(&entries("tcp", json!({port.to_string(): "default/db:80"})));
    is_served_by(port, "one").await;
    let mut session = connect(port).await.unwrap();
    assert_eq!(hear(&mut session, 3).await, "one");
    session.write_all(b"first.").await.unwrap();
    assert_eq!(hear(&mut session, 6).await, "first.");

    // Its endpoint changes: new sessions go there, this one stays.
    for object in service("db", "TCP", &[two]) {
        site.folder.apply(&object);
    }
    is_served_by(port, "two").await;
    session.write_all(b"second.").await.unwrap();
    assert_eq!(hear(&mut session, 7).await, "second.");

    // Another port, and requests for hosts, come and go beside it.
    let both = json!({port.to_string(): "default/db:80", other.to_string(): "default/db:http"});
    site.folder.apply(&entries("tcp", both));
    is_served_by(other, "two").await;
    let origin = site.origin("web").await;
    site.route("web", "a.test", &origin).await;
    session.write_all(b"third.").await.unwrap();
    assert_eq!(hear(&mut session, 6).await, "third.");

    // The control plane goes, and comes back.
    site.control.kill();
    is_served_by(port, "two").await;
    session.write_all(b"fourth.").await.unwrap();
    assert_eq!(hear(&mut session, 7).await, "fourth.");
    site.control.resume().await;

    // Its entry is removed: no new sessions are accepted, and this one ends when its client ends it.
    site.folder.apply(&entries("tcp", json!({other.to_string(): "default/db:80"})));
    eventually("the port is closed", || async {
        match connect(port).await {
            Err(_) => Ok(()),
            Ok(_) => Err(()),
        }
    })
    .await;
    session.write_all(b"fifth.").await.unwrap();
    assert_eq!(hear(&mut session, 6).await, "fifth.");
    session.shutdown().await.unwrap();
    assert_eq!(timeout(PATIENCE, session.read(&mut [0])).await.expect("in time").unwrap(), 0);
    eventually("it is a line of the log", || async {
        let log = site.proxy.access_log();
        // one + first. + second. + third. + fourth. + fifth.
        if log.contains(" TCP 200 35 32 ") { Ok(()) } else { Err(log) }
    })
    .await;
}

#[tokio::test]
async fn datagrams_follow_their_endpoints() {
    let mut tasks = JoinSet::new();
    let (one, two) = (answers("one:", &mut tasks).await, answers("two:", &mut tasks).await);
    let port = ports::free().port();
    let site = FolderSite::start(&[]).await;
    for object in service("dns", "UDP", &[one]) {
        site.folder.apply(&object);
    }
    site.folder.apply(&entries("udp", json!({port.to_string(): "default/dns:80"})));
    let asked = async || -> Result<String, String> {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(("127.0.0.1", port)).await.unwrap();
        socket.send(b"hello").await.map_err(|error| error.to_string())?;
        let mut buffer = vec![0; 2_048];
        let answer = timeout(Duration::from_millis(500), socket.recv(&mut buffer)).await;
        let count = answer.map_err(|_| "no answer".to_owned())?.map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&buffer[..count]).into_owned())
    };
    let becomes = async |expected: &str| {
        eventually(&format!("the answer is {expected}"), || async {
            match asked().await {
                Ok(answer) if answer == expected => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    };
    becomes("one:hello").await;
    for object in service("dns", "UDP", &[two]) {
        site.folder.apply(&object);
    }
    becomes("two:hello").await;
}

#[tokio::test]
async fn an_entry_that_cannot_be_served_harms_no_other_and_says_why() {
    let mut tasks = JoinSet::new();
    let one = echo("one", &mut tasks).await;
    // The port is in use.
    let taken = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let (had, port) = (taken.local_addr().unwrap().port(), ports::free().port());
    let site = FolderSite::start(&[]).await;
    for object in service("db", "TCP", &[one]) {
        site.folder.apply(&object);
    }
    let data = json!({
        port.to_string(): "default/db:80", had.to_string(): "default/db:80", "443": "default/db:80", "7777": "nonsense",
    });
    site.folder.apply(&entries("tcp", data));
    is_served_by(port, "one").await;
    let problems = site.control.inspect().await.problems().await;
    let told = format!("{problems:?}");
    assert!(told.contains("data[443]") && told.contains("data[7777]"), "{told}");
    drop(taken);
    // It is opened once it is free.
    is_served_by(had, "one").await;
}

/// Whatever else happens: nothing may change for days.
#[tokio::test]
async fn a_port_that_becomes_free_is_told_to_the_control_plane() {
    let mut tasks = JoinSet::new();
    let one = echo("one", &mut tasks).await;
    let taken = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = taken.local_addr().unwrap().port();
    let site = FolderSite::start(&[]).await;
    for object in service("db", "TCP", &[one]) {
        site.folder.apply(&object);
    }
    site.folder.apply(&entries("tcp", json!({port.to_string(): "default/db:80"})));
    let inspect = site.control.inspect().await;
    let becomes = async |expected: u32| {
        eventually(&format!("{expected} are refused"), || async {
            let answer = inspect.proxies().await.map_err(|error| error.to_string())?;
            let refused: Vec<_> = answer.proxies.iter().map(|proxy| proxy.refused_total).collect();
            if refused == [expected] { Ok(()) } else { Err(format!("{refused:?}")) }
        })
        .await;
    };
    becomes(1).await;
    drop(taken);
    is_served_by(port, "one").await;
    becomes(0).await;
}
