use std::io;

use http_body_util::Empty;
use hyper::client::conn::{http1, http2};
use rustls::pki_types::ServerName;
use test_kit::client::tls::trusting;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;

use super::*;

/// A backend that plays `default/web`, for as long as the test asks it.
async fn beside<T>(test: impl AsyncFnOnce(SocketAddr) -> T) -> T {
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.local_addr().unwrap();
    let (_sender, name) = watch::channel(Arc::from("default/web"));
    tokio::select! {
        done = test(addr) => done,
        () = serve(listener, addr, name, acceptor().unwrap()) => unreachable!(),
    }
}

async fn http1(request: &[&[u8]], addr: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    for piece in request {
        stream.write_all(piece).await?;
        // So that they are read one by one.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[test]
fn only_loopback_is_bound() {
    assert!(bind("0.0.0.0:0".parse().unwrap()).is_err());
}

#[tokio::test]
async fn says_who_it_is_and_what_it_saw() {
    let request = b"POST /cart?x=1 HTTP/1.1\r\nHost: a.test\r\nX-Canary: always\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc";
    for pieces in [&[&request[..]][..], &[&request[..1], &request[1..2], &request[2..]]] {
        let (addr, answer) = beside(async |addr| (addr, http1(pieces, addr).await.unwrap())).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        let expected =
            format!("default/web at {addr} answers POST /cart?x=1\n  host: a.test\n  x-canary: always\n");
        assert!(answer.contains(&expected), "{answer}");
        assert!(answer.ends_with("and a body of 3 bytes\n"), "{answer}");
    }
}

async fn tls(addr: SocketAddr, alpn: &[&[u8]]) -> tokio_rustls::client::TlsStream<TcpStream> {
    let stream = TcpStream::connect(addr).await.unwrap();
    let name = ServerName::try_from("web.default.svc").unwrap();
    TlsConnector::from(Arc::new(trusting(alpn))).connect(name, stream).await.unwrap()
}

fn call(kind: &'static str) -> Request<Empty<Bytes>> {
    let request = Request::post("http://a.test/shop.Prices/100%25").header(CONTENT_TYPE, kind);
    request.body(Empty::new()).unwrap()
}

/// Asks over HTTP/2: for a page, and for a call.
async fn http2(stream: impl protocol::Wire + 'static) -> (String, Response<Incoming>) {
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    let page = sender.send_request(call("text/plain")).await.unwrap();
    let page = page.into_body().collect().await.unwrap().to_bytes();
    let called = sender.send_request(call("application/grpc+proto")).await.unwrap();
    (String::from_utf8(page.to_vec()).unwrap(), called)
}

#[tokio::test]
async fn http2_is_spoken_with_prior_knowledge_and_by_tls() {
    for by_tls in [false, true] {
        beside(async |addr| {
            let (page, called) = match by_tls {
                true => http2(tls(addr, &[b"h2", b"http/1.1"]).await).await,
                false => http2(TcpStream::connect(addr).await.unwrap()).await,
            };
            let line = format!("default/web at {addr} answers POST /shop.Prices/100%25");
            assert!(page.starts_with(&line), "{page}");
            assert_eq!(
                (called.status(), &called.headers()["grpc-status"]),
                (hyper::StatusCode::OK, &"12".parse().unwrap())
            );
            let said = called.headers()["grpc-message"].to_str().unwrap();
            assert_eq!(said.replace("%25", "%"), line, "percent-encoded");
        })
        .await;
    }
}

#[tokio::test]
async fn http1_is_spoken_over_tls_where_nobody_asks_for_more() {
    for alpn in [&[&b"http/1.1"[..]][..], &[]] {
        let answer = beside(async |addr| {
            let stream = TokioIo::new(tls(addr, alpn).await);
            let (mut sender, connection) = http1::handshake(stream).await.unwrap();
            let mut tasks = JoinSet::new();
            tasks.spawn(connection);
            sender.send_request(call("text/plain")).await.unwrap()
        })
        .await;
        assert_eq!((answer.version(), answer.status()), (hyper::Version::HTTP_11, hyper::StatusCode::OK));
    }
}

#[tokio::test]
async fn fastcgi_is_spoken() {
    // BEGIN_REQUEST, PARAMS with one long value, and STDIN with padding.
    let long = "x".repeat(200);
    let mut params = [&[14, 4][..], b"REQUEST_METHODPOST", &[11, 5], b"REQUEST_URI/cart"].concat();
    params.extend([&[1, 0x80, 0, 0, 200][..], b"A", long.as_bytes()].concat());
    let request = [
        &[1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0][..],
        &[1, 4, 0, 1, 0, u8::try_from(params.len()).unwrap(), 0, 0],
        &params,
        &[1, 4, 0, 1, 0, 0, 0, 0],
        &[1, 5, 0, 1, 0, 3, 2, 0],
        b"abc\0\0",
        &[1, 5, 0, 1, 0, 0, 0, 0],
    ];
    let request = request.concat();
    let (addr, answer) = beside(async |addr| (addr, http1(&[&request], addr).await.unwrap())).await;
    assert!(answer.starts_with("\u{1}\u{6}\0\u{1}"), "{answer:?}");
    let expected = format!(
        "default/web at {addr} answers POST /cart over FastCGI\n  REQUEST_METHOD: POST\n  REQUEST_URI: /cart\n  A: {long}\n  \
         and a body of 3 bytes\n"
    );
    assert!(answer.contains(&expected), "{answer:?}");
    let end = [1, 6, 0, 1, 0, 0, 0, 0, 1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert!(answer.as_bytes().ends_with(&end), "{answer:?}");
}
