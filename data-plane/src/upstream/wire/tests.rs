use std::future::poll_fn;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream as StdStream};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::crypto::cipher::{MessageEncrypter, OutboundPlainMessage};
use rustls::{
    ConnectionTrafficSecrets, ContentType, ProtocolVersion, ServerConfig, ServerConnection,
    SupportedCipherSuite,
};
use rustls_pki_types::ServerName;
use test_kit::certificates::Authority;
use test_kit::client::tls::trusting;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpSocket;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsConnector;

use super::*;

/// Room of both kernels, so that what is sent has arrived before it is looked for.
const ROOM: u32 = 1 << 20;

/// An endpoint after its handshake, which sends whatever records it likes: rustls would send few of them.
struct Endpoint {
    stream: StdStream,
    encrypter: Box<dyn MessageEncrypter>,
    number: u64,
}

/// A NewSessionTicket message (RFC 8446 section 4.6.1), about a kilobyte long.
fn ticket() -> Vec<u8> {
    let ticket = [7; 1000];
    let (lifetime, age_add, nonce, extensions) = (60_u32.to_be_bytes(), [0; 4], [1, 0], [0, 0]);
    let length = (ticket.len() as u16).to_be_bytes();
    let body = [&lifetime[..], &age_add, &nonce, &length, &ticket, &extensions].concat();
    [&(4 << 24 | body.len() as u32).to_be_bytes()[..], &body].concat()
}

impl Endpoint {
    async fn connected() -> (Wire, Self) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpSocket::new_v4().unwrap();
        client.set_recv_buffer_size(ROOM).unwrap();
        let stream = client.connect(listener.local_addr().unwrap()).await.unwrap();
        let shaking = spawn_blocking(move || Self::shake(listener.accept().unwrap().0));
        let name = ServerName::try_from("a.test").unwrap();
        let tls = TlsConnector::from(Arc::new(trusting(&[]))).connect(name, stream).await.unwrap();
        (Wire::Tls(Box::new(tls)), shaking.await.unwrap())
    }

    fn shake(mut stream: StdStream) -> Self {
        let own = Authority::new("authority").leaf("a.test", &["a.test"]);
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(own.certificates(), own.private_key())
            .unwrap();
        config.enable_secret_extraction = true;
        config.send_tls13_tickets = 0;
        let mut session = ServerConnection::new(Arc::new(config)).unwrap();
        session.complete_io(&mut stream).unwrap();
        SockRef::from(&stream).set_send_buffer_size(ROOM as usize).unwrap();
        let Some(SupportedCipherSuite::Tls13(suite)) = session.negotiated_cipher_suite() else {
            panic!("TLS 1.3")
        };
        let (number, secrets) = session.dangerous_extract_secrets().unwrap().tx;
        let ConnectionTrafficSecrets::Aes256Gcm { key, iv } = secrets else { panic!("the usual cipher") };
        Self { stream, encrypter: suite.aead_alg.encrypter(key, iv), number }
    }

    fn record(&mut self, typ: ContentType, payload: &[u8]) -> Vec<u8> {
        let version = ProtocolVersion::TLSv1_2;
        let record = OutboundPlainMessage { typ, version, payload: payload.into() };
        let record = self.encrypter.encrypt(record, self.number).unwrap().encode();
        self.number += 1;
        record
    }

    /// Sends so many tickets, then data. Returns their length on the wire.
    fn send(&mut self, tickets: usize, data: &[u8]) -> usize {
        let ticket = ticket();
        let mut records: Vec<_> =
            (0..tickets).flat_map(|_| self.record(ContentType::Handshake, &ticket)).collect();
        if !data.is_empty() {
            records.extend(self.record(ContentType::ApplicationData, data));
        }
        self.stream.write_all(&records).unwrap();
        records.len()
    }
}

/// Returns when the kernel has this much.
async fn has_come(wire: &Wire, length: usize) {
    let mut all = vec![MaybeUninit::uninit(); length];
    let coming = async {
        while SockRef::from(wire.tcp()).peek(&mut all).unwrap_or_default() < length {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        wire.tcp().readable().await.unwrap();
    };
    tokio::time::timeout(Duration::from_secs(20), coming).await.unwrap();
}

#[tokio::test]
async fn an_endpoint_that_goes_on_sending_tickets_is_not_quiet() {
    let (mut wire, mut endpoint) = Endpoint::connected().await;
    // As endpoints do after a handshake.
    has_come(&wire, endpoint.send(4, b"")).await;
    assert!(wire.is_quiet());
    has_come(&wire, endpoint.send(100, b"")).await;
    assert!(!wire.is_quiet(), "whoever looks is not kept busy");
    // What comes with the last read is not lost.
    for tickets in 55..70 {
        has_come(&wire, endpoint.send(tickets, b"data")).await;
        let mut data = [0; 4];
        let reading = async {
            poll_fn(|cx| wire.poll_arrived(cx)).await;
            wire.read_exact(&mut data).await.unwrap();
        };
        tokio::time::timeout(Duration::from_secs(20), reading).await.unwrap();
        assert_eq!(&data, b"data");
    }
}
