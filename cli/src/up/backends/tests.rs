use control_plane::objects::json;

use super::*;

/// A free address, which is reserved until this process ends.
fn free() -> SocketAddr {
    let (held, addr) = super::super::ports::hold("127.0.0.1:0".parse().unwrap()).unwrap();
    std::mem::forget(held);
    addr
}

fn applied(kind: ObjectKind, text: &str) -> Event {
    Event::Applied { object: json::decode(kind, text).unwrap(), location: "a.yaml:1".into() }
}

fn slice(service: &str, addr: SocketAddr) -> Event {
    let (ip, port) = (addr.ip(), addr.port());
    let text = format!(
        r#"{{"metadata":{{"name":"{service}-1","namespace":"default","labels":{{"kubernetes.io/service-name":"{service}"}},
            "annotations":{{"firth.dev/demo":"true"}}}},"ports":[{{"port":{port}}}],"endpoints":[{{"addresses":["{ip}"]}}]}}"#
    );
    applied(ObjectKind::EndpointSlice, &text)
}

fn web() -> Vec<Event> {
    let metadata = r#""metadata":{"name":"web","namespace":"default"}"#;
    let backend = r#"{"service":{"name":"web","port":{"number":80}}}"#;
    vec![
        applied(
            ObjectKind::Service,
            &format!(r#"{{{metadata},"spec":{{"ports":[{{"name":"http","port":80}}]}}}}"#),
        ),
        applied(ObjectKind::Ingress, &format!(r#"{{{metadata},"spec":{{"defaultBackend":{backend}}}}}"#)),
    ]
}

#[tokio::test(start_paused = true)]
async fn marked_endpoints_are_played_while_they_are_there() {
    let (mut backends, mut companion) = Backends::new(true).unwrap();
    let (first, second) = (free(), free());
    companion.heard.try_send(vec![slice("web", first)]).unwrap();
    assert!(backends.first().await.is_some());
    assert_eq!(
        backends.render(),
        format!(
            "built-in demo backends, on loopback only:\n  SERVICE      ADDRESSES\n  default/web  {first}\n\n"
        )
    );
    assert_eq!(companion.added.recv().await, Some(vec![]));

    companion.heard.try_send(vec![slice("canary", second)]).unwrap();
    assert_eq!(backends.next().await, format!("demo backend of default/canary: {second} answers"));
    tokio::net::TcpStream::connect(second).await.unwrap();

    let gone = ObjectRef { kind: ObjectKind::EndpointSlice, name: ObjectName::new("default", "canary-1") };
    companion.heard.try_send(vec![Event::Deleted(gone)]).unwrap();
    assert_eq!(backends.next().await, format!("demo backend of default/canary: {second} has ended"));
    tokio::net::TcpStream::connect(first).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_service_that_nobody_runs_is_played_until_somebody_does() {
    let (mut backends, mut companion) = Backends::new(true).unwrap();
    companion.heard.try_send(web()).unwrap();
    assert!(backends.first().await.is_none());
    let added = companion.added.recv().await.unwrap();
    let [Event::Applied { object: Object::EndpointSlice(played), .. }] = &added[..] else {
        panic!("{added:?}")
    };
    let port = u16::try_from(played.ports[0].port.unwrap()).unwrap();
    tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    assert!(backends.render().contains("(it has no EndpointSlice)"), "{}", backends.render());
    companion.heard.try_send(web()).unwrap();
    backends.work().await;
    assert_eq!(companion.added.recv().await, Some(vec![]), "nothing new");

    let real = slice("web", free());
    companion.heard.try_send(vec![real]).unwrap();
    backends.work().await;
    let name = played.metadata.object_name();
    let ended = Event::Deleted(ObjectRef { kind: ObjectKind::EndpointSlice, name });
    assert_eq!(companion.added.recv().await, Some(vec![ended]));
}

#[tokio::test]
async fn without_demos_nothing_is_played() {
    let (mut backends, mut companion) = Backends::new(false).unwrap();
    companion.heard.try_send([web(), vec![slice("other", free())]].concat()).unwrap();
    assert!(backends.first().await.is_none());
    assert_eq!((companion.added.recv().await, backends.render()), (Some(vec![]), String::new()));
}

#[tokio::test]
async fn an_address_in_use_is_said() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut backends, companion) = Backends::new(true).unwrap();
    companion.heard.try_send(vec![slice("web", taken.local_addr().unwrap())]).unwrap();
    backends.first().await;
    assert_eq!(backends.render(), "");
    assert!(backends.next().await.contains("is in use"));
}
