//! A replica with proxies, and the API server that it follows.

use std::time::Instant;

use control_plane::objects::ObjectKind;
use control_plane::sim::{Came, Happens, Next, Replica, Sent, Stream, WATCHED};
use data_plane::sim::{Follower, States};
use serde_json::{Value, json};
use shared::kind::Lane;
use shared::proto::config::ControlMessage;
use tonic_prost::prost::Message as _;

use super::counted::{self, Allocated};

/// Addresses of each Service.
const ENDPOINTS: usize = 10;

/// What was allocated before and after something.
type Span = (Allocated, Allocated);

/// A replica in which everything is offered, and its proxies, which have that.
pub(crate) struct Plane {
    replica: Replica,
    proxies: Vec<Proxy>,
    states: States,
    revision: u64,
    now: Instant,
}

struct Proxy {
    follower: Follower,
    stream: Stream,
}

impl Plane {
    pub(crate) fn start(services: usize, proxies: usize) -> Self {
        let now = shared::clock::now();
        let mut replica = Replica::new([1; 16], now);
        for kind in WATCHED {
            let objects: Vec<Value> = match kind {
                ObjectKind::Ingress => (0..services).map(|number| ingress(number, 1)).collect(),
                ObjectKind::EndpointSlice => (0..services).map(|number| slice(number, 1)).collect(),
                ObjectKind::Service => (0..services).map(service).collect(),
                _ => Vec::new(),
            };
            list(&mut replica, kind, objects, now);
        }
        assert!(replica.is_ready(), "each kind was listed");
        assert_eq!(replica.offers(Lane::Live).1.len(), services);
        let mut plane = Self { replica, proxies: Vec::new(), states: States::default(), revision: 10, now };
        for number in 0..proxies {
            let mut follower = Follower::new(&format!("proxy-{number}"), "node", "default");
            let mut stream = plane.replica.connect(now);
            let hello = Happens::Message(Box::new(follower.hello()));
            let mut sent = stream.on(hello, now);
            while let Some(more) = answers(&mut follower, &mut stream, &mut plane.states, sent, now).1 {
                sent = more;
            }
            plane.proxies.push(Proxy { follower, stream });
        }
        plane.check();
        plane
    }

    /// An object is changed. Returns what that cost until it was offered, and what it cost for all proxies from there
    /// to their acknowledgements.
    pub(crate) fn update(&mut self, kind: ObjectKind, mut object: Value) -> [Vec<Span>; 2] {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let line = Came::Line(json!({"type": "MODIFIED", "object": object}).to_string() + "\n");
        let before = counted::so_far();
        self.replica.on(kind, &line, self.now);
        let compiled = (before, counted::so_far());
        let mut spans = Vec::new();
        for Proxy { follower, stream } in &mut self.proxies {
            let before = counted::so_far();
            let sent = self.replica.tell(stream, self.now);
            spans.push((before, counted::so_far()));
            assert_eq!(sent.frames.len(), 1, "one resource");
            let (more, rest) = answers(follower, stream, &mut self.states, sent, self.now);
            assert!(rest.is_none_or(|sent| sent.frames.is_empty()), "it is done");
            spans.extend(more);
        }
        self.check();
        [vec![compiled], spans]
    }

    fn check(&self) {
        for (lane, proxy) in
            Lane::ALL.into_iter().flat_map(|lane| self.proxies.iter().map(move |it| (lane, it)))
        {
            assert_eq!(proxy.follower.root(lane), self.replica.offers(lane).1.root(), "{lane:?}");
        }
    }
}

/// A proxy takes what was sent, and its answers arrive. Returns what these cost, and what was sent because of them.
fn answers(
    follower: &mut Follower,
    stream: &mut Stream,
    states: &mut States,
    sent: Sent,
    now: Instant,
) -> (Vec<Span>, Option<Sent>) {
    assert_eq!(sent.end, None);
    let (mut spans, mut all) = (Vec::new(), None::<Sent>);
    for frame in sent.frames {
        let message = ControlMessage::decode(frame).expect("a message");
        let said = follower.on(message, states);
        assert_eq!(said.fault, None);
        for answer in said.answers {
            let answer = Happens::Message(Box::new(answer));
            let before = counted::so_far();
            let sent = stream.on(answer, now);
            spans.push((before, counted::so_far()));
            all.get_or_insert_default().frames.extend(sent.frames);
        }
    }
    if stream.wants_slot() {
        all.get_or_insert_default().frames.extend(stream.give_slot(now).frames);
    }
    (spans, all)
}

/// A kind is listed, and its watch is open.
fn list(replica: &mut Replica, kind: ObjectKind, objects: Vec<Value>, now: Instant) {
    loop {
        let came = match replica.next(kind, now) {
            Next::List { .. } => vec![Came::Page(page(kind, &objects))],
            Next::Open { from: None } => {
                let lines = objects
                    .iter()
                    .map(|it| Came::Line(json!({"type": "ADDED", "object": it}).to_string() + "\n"));
                let done = json!({"type": "BOOKMARK", "object": {
                    "kind": kind.as_str(), "apiVersion": kind.api_version(),
                    "metadata": {"resourceVersion": "10", "annotations": {"k8s.io/initial-events-end": "true"}},
                }});
                [Came::Opened].into_iter().chain(lines).chain([Came::Line(done.to_string() + "\n")]).collect()
            }
            Next::Open { .. } => vec![Came::Opened],
            Next::Read => return,
            Next::Wait(until) => panic!("{kind:?} waits until {until:?}"),
        };
        for came in came {
            replica.on(kind, &came, now);
        }
    }
}

fn page(kind: ObjectKind, objects: &[Value]) -> String {
    json!({
        "kind": format!("{}List", kind.as_str()), "apiVersion": kind.api_version(),
        "metadata": {"resourceVersion": "10"}, "items": objects,
    })
    .to_string()
}

fn object(kind: ObjectKind, number: usize, rest: &Value) -> Value {
    let mut object = json!({
        "apiVersion": kind.api_version(),
        "kind": kind.as_str(),
        "metadata": {
            "name": format!("web-{number}"), "namespace": "default", "uid": format!("{}-{number}", kind.as_str()),
            "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
        },
    });
    for (key, value) in rest.as_object().expect("fields") {
        match key.as_str() {
            "labels" | "annotations" => object["metadata"][key] = value.clone(),
            _ => object[key] = value.clone(),
        }
    }
    object
}

fn service(number: usize) -> Value {
    let spec = json!({"clusterIP": "10.96.0.1", "ports": [{"port": 80, "targetPort": 8080}]});
    object(ObjectKind::Service, number, &json!({"spec": spec}))
}

/// An EndpointSlice of which one address is of this edit.
pub(crate) fn slice(number: usize, edit: usize) -> Value {
    let last = [200 + edit / 250, edit % 250];
    let addresses = (1..ENDPOINTS).map(|at| format!("10.{}.{}.{at}", number / 250, number % 250));
    let addresses = addresses.chain([format!("10.9.{}.{}", last[0], last[1])]);
    let endpoints: Vec<_> =
        addresses.map(|it| json!({"addresses": [it], "conditions": {"ready": true}})).collect();
    object(
        ObjectKind::EndpointSlice,
        number,
        &json!({
            "labels": {"kubernetes.io/service-name": format!("web-{number}")},
            "addressType": "IPv4",
            "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
            "endpoints": endpoints,
        }),
    )
}

/// An Ingress of which a timeout is of this edit.
pub(crate) fn ingress(number: usize, edit: usize) -> Value {
    let backend = json!({"service": {"name": format!("web-{number}"), "port": {"number": 80}}});
    object(
        ObjectKind::Ingress,
        number,
        &json!({
            "annotations": {
                "kubernetes.io/ingress.class": "nginx",
                "nginx.ingress.kubernetes.io/proxy-read-timeout": edit.to_string(),
            },
            "spec": {"rules": [{"host": format!("h{number}.test"), "http": {"paths": [
                {"path": "/", "pathType": "Prefix", "backend": backend},
            ]}}]},
        }),
    )
}
