use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use shared::entry::Entry;
use shared::policy::LocationPolicy;
use shared::resource::{Resource, SETTINGS_KEY, Settings};

use super::log::RequestRecord;
use super::*;
use crate::codec::error::ProxyError;
use crate::codec::guard::Limits as HeadLimits;
use crate::codec::h1::RequestReader;
use crate::http::peer::Peer;
use crate::http::server::Server;
use crate::listen::{PublicPorts, Scheme};
use crate::local::{Budgets, Limits, Local};
use crate::metrics::Metrics;
use crate::table::Writer;
use crate::table::world::{backend, host, route, slice};
use crate::{access_log, tls};

/// Panics when it is read, as a bug would.
struct Broken;

impl RequestBody for Broken {
    fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ProxyError>> {
        panic!("a bug")
    }

    fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

/// A server that routes all of `a.test` to a Service, with these fleet settings.
pub(super) fn server(said: LocationPolicy) -> Rc<Server> {
    let mut writer = Writer::new();
    let settings = Resource::Settings(Settings { defaults: said, ..Settings::default() });
    let config = vec![
        Arc::new(Entry::encode(SETTINGS_KEY, &settings)),
        host("a.test", None),
        route("ingress/ns/i/a.test", &[("/", "ns/s1/80")]),
        backend("ns/s1/80"),
    ];
    writer.apply_config(config, &[]);
    writer.apply_live(vec![slice("ns/s1-1", "ns/s1", &[1])], &[]);
    let metrics = Metrics::new(1).worker(0);
    let (log, _written) = access_log::start(&access_log::Target::Off).unwrap();
    let (budgets, lines) = (Budgets::default(), log.lines(metrics.clone()));
    let local = Local::new(Limits::default(), &budgets, Default::default(), metrics, lines);
    let tables = writer.tables();
    let config = tls::server_config(tables.clone(), None).unwrap();
    let backends = tls::backends::Backends::new().unwrap();
    Rc::new(Server::new(local, tables, config.into(), backends, PublicPorts::default()))
}

#[tokio::test]
async fn a_panic_ends_one_request() {
    let server = server(LocationPolicy::default());
    let metrics = server.local.metrics.clone();
    let mut bytes = BytesMut::from("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n");
    let head = RequestReader::new(HeadLimits::REQUEST).feed(&mut bytes).unwrap().unwrap();
    let peer = Peer::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 7)), Scheme::Http, 80);
    let timer = server.local.timers.timer();
    let mut record = RequestRecord::new(&server.local, &peer, Some(head));
    let call = Call { server: &server, timer: &timer, peer: &peer };
    let mut exchange = Exchange::new(call, &mut record).unwrap();
    let reply = serve(&mut exchange, &mut Broken).await;
    assert_eq!((reply.head.status, reply.close), (500, true));
    assert_eq!(metrics.panics.value(), 1);
    // Like every response.
    assert!(reply.head.fields.has(crate::codec::head::Known::Date));
}
