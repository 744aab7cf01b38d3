use std::rc::Rc;

use h2::{RecvStream, client, server};

use super::*;
use crate::http::peer::Peer;
use crate::http::pipeline::log::RequestRecord;
use crate::listen::Scheme;

/// A stream to a client that reads ten bytes at a time.
#[allow(clippy::disallowed_methods, reason = "the runtime of the test owns it")]
async fn stream(local: &Rc<Local>) -> (Out, RecvStream) {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let mut builder = client::Builder::new();
    builder.initial_window_size(10);
    let asking = builder.handshake::<_, Bytes>(far);
    let (asking, answering) = tokio::join!(asking, server::handshake(near));
    let ((mut asking, client), mut server) = (asking.unwrap(), answering.unwrap());
    tokio::spawn(client);
    let (answer, _) = asking.send_request(http::Request::new(()), true).unwrap();
    let (_, mut respond) = server.accept().await.unwrap().unwrap();
    tokio::spawn(async move { while server.accept().await.is_some() {} });
    let stream = respond.send_response(http::Response::new(()), false).unwrap();
    let out = Out::new(stream, Turn::new(&Rc::default(), local));
    (out, answer.await.unwrap().into_body())
}

#[tokio::test]
async fn a_slow_client_is_waited_for_as_long_as_it_takes_something() {
    let start = shared::clock::now();
    let local = Rc::new(Local::for_tests());
    let peer = Peer::new(([127, 0, 0, 1], 1).into(), Scheme::Http, 80);
    let timer = local.timers.timer();
    for stops in [false, true] {
        let (mut out, mut taken) = stream(&local).await;
        let mut record = RequestRecord::new(&local, &peer, None);
        let mut body = ReplyBody::Page(Bytes::from_static(&[b'x'; 500]));
        let sending = send((&local, &timer), Duration::from_secs(60), &mut out, &mut body, &mut record.info);
        let reading = async {
            let (mut total, mut clock) = (0, local.timers.now().duration_since(start));
            while let Some(Ok(piece)) = taken.data().await {
                total += piece.len();
                clock += Duration::from_secs(25);
                local.timers.tick(start + clock);
                taken.flow_control().release_capacity(piece.len()).unwrap();
                if stops && total > 100 {
                    // Ten more bytes are in flight; after that the client reads nothing.
                    let _ = taken.data().await;
                    local.timers.tick(start + clock + Duration::from_secs(61));
                    break;
                }
            }
            total
        };
        let (sent, total) = tokio::join!(sending, reading);
        if stops {
            assert_eq!(sent.unwrap_err().kind, Kind::ClientTimeout);
        } else {
            sent.unwrap();
            assert_eq!(total, 500);
        }
    }
}
