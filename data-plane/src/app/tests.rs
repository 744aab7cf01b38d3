//! A whole data plane in this process, without a control plane.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use clap::Parser as _;

use super::*;

fn args(more: &[&str]) -> Args {
    let base = ["firth-data-plane", "--control-plane=http://127.0.0.1:9", "--access-log=off", "--workers=2"];
    Args::try_parse_from(base.iter().chain(more)).unwrap()
}

/// Status code of a response over a new connection.
fn status(address: SocketAddr, path: &str) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn waits_and_ends_without_a_control_plane() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("made/when/missing");
    let any = "127.0.0.1:0";
    let flags = [
        "--insecure",
        "--drain-grace=3600",
        "--http",
        any,
        "--http",
        any,
        "--https",
        any,
        "--admin",
        any,
        "--health",
        any,
    ];
    let state_flag = format!("--state-dir={}", state.display());
    let flags: Vec<&str> = flags.into_iter().chain([state_flag.as_str()]).collect();
    let running = start(args(&flags)).await.unwrap();
    assert!(state.is_dir());
    assert_eq!((running.http.len(), running.https.len()), (2, 1));
    for address in running.http.iter().chain(&running.https) {
        let refused = TcpStream::connect(address).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "nothing to serve yet");
    }
    let (admin, health) = (running.admin.unwrap(), running.health.unwrap());
    let asked = ["/healthz", "/readyz", "/metrics", "/livez", "/debug/table"].map(|path| {
        let of = |address| status(address, path);
        (path, of(admin), of(health))
    });
    assert_eq!(
        asked,
        [
            ("/healthz", 200, 200),
            ("/readyz", 503, 503),
            ("/metrics", 200, 200),
            ("/livez", 200, 200),
            ("/debug/table", 200, 404),
        ]
    );
    let second = args(&["--insecure", "--https", any, "--admin", &admin.to_string()]);
    let taken = format!("{:#}", start(second).await.unwrap_err());
    assert!(taken.starts_with(&format!("cannot listen on {admin} (--admin): ")), "{taken}");
    // No load balancer has to notice first.
    let ended = running.until(std::future::ready(()));
    timeout(Duration::from_secs(600), ended).await.expect("there is no grace").unwrap();
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_told_of() {
    let told = async |args| format!("{:#}", start(args).await.unwrap_err());
    assert!(told(args(&["--insecure"])).await.starts_with("nothing to serve on"));
    let twice = args(&["--insecure", "--http=127.0.0.1:4000", "--https=[::1]:4000,0.0.0.0:4000"]);
    assert!(told(twice).await.starts_with("--https: 0.0.0.0:4000 is taken by --http 127.0.0.1:4000"));
    let plain = args(&["--http=127.0.0.1:0", "--insecure=false"]);
    assert!(told(plain).await.contains("--insecure allows it"));
}
