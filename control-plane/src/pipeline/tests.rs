use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::event::Inputs;
use crate::index::Options;
use crate::objects::{
    ConfigMap, EndpointSlice, Ingress, IngressBackend, IngressHttp, IngressPath, IngressPathType,
    IngressRule, IngressTls, Metadata, Object, ServicePortRef, ServiceRef, SliceEndpoint,
};
use crate::pin::{How, Pin, Unreadable};
use crate::store::Published;
use shared::kind::Kind;
use shared::name::ObjectName;
use shared::version::Lineage;

struct Bench {
    inputs: Inputs,
    published: Published,
    wants: watch::Receiver<Wants>,
    awaits: watch::Receiver<Option<Awaited>>,
    placed: watch::Receiver<Placements>,
    pipeline: Pipeline,
}

fn bench() -> Bench {
    let (inputs, receivers) = Inputs::channel(64);
    let (store, published) = Store::new(Lineage([1; 16]), clock::now());
    let (wants, wanted) = watch::channel(Wants::default());
    let (holds, _) = mpsc::channel(4);
    let (pins, _) = mpsc::channel(4);
    let (problems, _) = watch::channel(Problems::default());
    let (places, placed) = watch::channel(Placements::default());
    let index = Index::new(Options { folder: true, on_demand: true, ..Options::usual() });
    let (awaited, awaits) = watch::channel(None);
    let outputs = Outputs { wants, awaited, holds, pins, problems, places };
    Bench {
        inputs,
        published,
        wants: wanted,
        awaits,
        placed,
        pipeline: Pipeline::new(index, store, receivers, outputs, Arc::new(Metrics::new())),
    }
}

fn applied(object: Object) -> Event {
    Event::Applied { object, location: "".into() }
}

fn ingress_with_secret() -> Object {
    let mut ingress = Ingress::default();
    ingress.metadata.namespace = "default".into();
    ingress.metadata.name = "web".into();
    ingress.metadata.annotations = [("kubernetes.io/ingress.class".to_owned(), "nginx".to_owned())].into();
    ingress.spec.tls = vec![IngressTls { hosts: vec!["a.test".to_owned()], secret_name: "cert".to_owned() }];
    let service =
        ServiceRef { name: "web".to_owned(), port: ServicePortRef { name: String::new(), number: 80 } };
    let path = IngressPath {
        path: "/".to_owned(),
        path_type: Some(IngressPathType::Prefix),
        backend: IngressBackend { service: Some(service) },
    };
    ingress.spec.rules =
        vec![IngressRule { host: "a.test".to_owned(), http: Some(IngressHttp { paths: vec![path] }) }];
    Object::Ingress(Arc::new(ingress))
}

fn slice(address: &str) -> Object {
    let mut slice = EndpointSlice { address_type: "IPv4".to_owned(), ..EndpointSlice::default() };
    slice.metadata.namespace = "default".into();
    slice.metadata.name = "web-1".into();
    let label = ("kubernetes.io/service-name".to_owned(), "web".to_owned());
    slice.metadata.labels = [label].into();
    slice.endpoints = vec![SliceEndpoint { addresses: vec![address.to_owned()], ..SliceEndpoint::default() }];
    Object::EndpointSlice(Arc::new(slice))
}

type Run<'a, F> = std::pin::Pin<&'a mut F>;

/// Lets the pipeline run until it waits.
fn turn(run: &mut Run<'_, impl Future<Output = Result<Infallible, PipelineError>>>) {
    let mut context = Context::from_waker(Waker::noop());
    // Enough for every yield; a pending pipeline is one that waits for input.
    for _ in 0..1_000 {
        assert!(matches!(run.as_mut().poll(&mut context), Poll::Pending));
    }
}

/// Has it offer an Ingress without its Secret, and a slice of its Service.
async fn offer(inputs: &Inputs, run: &mut Run<'_, impl Future<Output = Result<Infallible, PipelineError>>>) {
    let first = vec![applied(ingress_with_secret()), applied(slice("10.0.0.1"))];
    inputs.objects.send(Input::Events(first)).await.unwrap();
    for kind in ObjectKind::ALL {
        inputs.objects.send(Input::Synced(kind)).await.unwrap();
    }
    turn(run);
    inputs.objects.send(Input::Events(vec![Event::Deleted(secret("cert"))])).await.unwrap();
    turn(run);
}

fn secret(name: &str) -> ObjectRef {
    ObjectRef { kind: ObjectKind::Secret, name: ObjectName::new("default", name) }
}

#[tokio::test]
async fn nothing_is_offered_before_all_that_is_referred_to_was_read() {
    let Bench { inputs, published, wants, awaits, placed: _placed, pipeline } = bench();
    let mut run = pin!(pipeline.run());
    let waits = |what: &str| {
        assert!(!published.head().is_ready());
        let awaited = awaits.borrow().as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(awaited.contains(what), "{awaited:?} has {what:?}");
    };
    inputs.objects.send(Input::Events(vec![applied(ingress_with_secret())])).await.unwrap();
    for kind in ObjectKind::ALL.into_iter().filter(|kind| *kind != ObjectKind::Secret) {
        inputs.objects.send(Input::Synced(kind)).await.unwrap();
    }
    turn(&mut run);
    waits("waiting for Secret");
    assert!(wants.borrow().contains(&secret("cert")));

    inputs.objects.send(Input::Synced(ObjectKind::Secret)).await.unwrap();
    turn(&mut run);
    waits("Secret default/cert");
    let failed = Event::Unreadable { object: secret("cert"), reason: "503: no leader".into() };
    inputs.objects.send(Input::Events(vec![failed])).await.unwrap();
    turn(&mut run);
    waits("Secret default/cert (503: no leader)");

    inputs.objects.send(Input::Events(vec![Event::Deleted(secret("cert"))])).await.unwrap();
    turn(&mut run);
    let head = published.head();
    assert!(head.is_ready() && awaits.borrow().is_none());
    assert_eq!(head.history.len(), 1, "one first version, whatever came before it");
    assert_eq!(head.config.count(Kind::Host), 2);
}

/// A replica that lost the right between two starts would remove from proxies what the others serve.
#[tokio::test]
async fn nothing_is_offered_while_it_hangs_on_classes_that_may_not_be_read_whose_an_ingress_is() {
    let by_field = || {
        let Object::Ingress(mut ingress) = ingress_with_secret() else { panic!("an Ingress") };
        let it = Arc::make_mut(&mut ingress);
        it.metadata.name = "field".into();
        it.spec.tls.clear();
        it.spec.ingress_class_name = Some("ours".to_owned());
        Object::Ingress(ingress)
    };
    for has_one in [false, true] {
        let Bench { inputs, published, wants: _wants, awaits, placed: _placed, pipeline } = bench();
        let mut run = pin!(pipeline.run());
        let mut first = vec![applied(ingress_with_secret())];
        first.extend(has_one.then(|| applied(by_field())));
        inputs.objects.send(Input::Events(first)).await.unwrap();
        inputs.objects.send(Input::Forbidden(ObjectKind::IngressClass)).await.unwrap();
        for kind in ObjectKind::ALL.into_iter().filter(|kind| *kind != ObjectKind::IngressClass) {
            inputs.objects.send(Input::Synced(kind)).await.unwrap();
        }
        turn(&mut run);
        inputs.objects.send(Input::Events(vec![Event::Deleted(secret("cert"))])).await.unwrap();
        turn(&mut run);
        assert_eq!(published.head().is_ready(), !has_one, "by annotation alone it goes on");
        if has_one {
            let said = awaits.borrow().as_ref().map(ToString::to_string);
            let expected = "waiting for permission to read IngressClasses (forbidden): Ingress default/field names class ours. \
                 Grant get, list and watch of ingressclasses.networking.k8s.io, or ignore them (--ignore-ingress-classes)";
            assert_eq!(said.as_deref(), Some(expected));
            inputs.objects.send(Input::Synced(ObjectKind::IngressClass)).await.unwrap();
            turn(&mut run);
            assert!(published.head().is_ready(), "they may be read, and there is none");
        }
    }
}

#[tokio::test]
async fn what_waits_becomes_one_commit() {
    let Bench { inputs, published, wants: _wants, awaits: _awaits, placed: _placed, pipeline } = bench();
    let mut run = pin!(pipeline.run());
    for kind in ObjectKind::ALL {
        inputs.objects.send(Input::Synced(kind)).await.unwrap();
    }
    turn(&mut run);
    let before = published.head().config.seq;
    for value in ["true", "false", "true"] {
        let map = ConfigMap {
            metadata: Metadata {
                namespace: "ingress-nginx".into(),
                name: "ingress-nginx-controller".into(),
                ..Metadata::default()
            },
            data: [("force-ssl-redirect".to_owned(), value.to_owned())].into(),
        };
        let event = applied(Object::ConfigMap(Arc::new(map)));
        inputs.objects.send(Input::Events(vec![event])).await.unwrap();
    }
    turn(&mut run);
    assert_eq!(published.head().config.seq, before.next());
}

/// A turn ends in the middle of a large input, or if the machine is slow.
#[tokio::test]
async fn endpoints_that_are_told_at_once_are_offered_at_once() {
    let Bench { inputs, published, wants: _wants, awaits: _awaits, placed: _placed, pipeline } = bench();
    let mut run = pin!(pipeline.run());
    offer(&inputs, &mut run).await;
    let before = published.head().live.seq;
    // Far more than one turn can take in.
    let many = (0..5_000).map(|i| {
        let Object::EndpointSlice(web) = slice(&format!("10.1.{}.{}", i / 250, i % 250)) else {
            unreachable!()
        };
        let mut web = (*web).clone();
        web.metadata.name = format!("web-{i}").into();
        applied(Object::EndpointSlice(Arc::new(web)))
    });
    inputs.endpoints.send(Input::Events(many.collect())).await.unwrap();
    turn(&mut run);
    assert_eq!(published.head().live.seq, before.next());
}

#[tokio::test]
async fn endpoints_overtake_a_long_compile() {
    let Bench { inputs, published, wants: _wants, awaits: _awaits, placed: _placed, pipeline } = bench();
    let mut run = pin!(pipeline.run());
    offer(&inputs, &mut run).await;
    let before = published.head();
    assert_eq!(before.live.count(Kind::Endpoints), 1);

    // Far more than one turn can compile.
    let many = (0..2_000).map(|i| {
        let Object::Ingress(web) = ingress_with_secret() else { unreachable!() };
        let mut web = (*web).clone();
        web.metadata.name = format!("web-{i}").into();
        web.spec.rules[0].host = format!("h{i}.test");
        applied(Object::Ingress(Arc::new(web)))
    });
    inputs.objects.send(Input::Events(many.collect())).await.unwrap();
    let mut context = Context::from_waker(Waker::noop());
    assert!(run.as_mut().poll(&mut context).is_pending());
    let mut overtaken = 0;
    for i in 2.. {
        let event = applied(slice(&format!("10.0.0.{}", i % 200)));
        inputs.endpoints.try_send(Input::Events(vec![event])).unwrap();
        assert!(run.as_mut().poll(&mut context).is_pending());
        let now = published.head();
        if now.config.seq != before.config.seq {
            break;
        }
        overtaken = now.live.seq.0 - before.live.seq.0;
    }
    assert!(overtaken > 1, "LIVE was committed {overtaken} times meanwhile");
    turn(&mut run);
    let now = published.head();
    assert_eq!(now.config.seq, before.config.seq.next(), "one commit of all");
    assert_eq!(now.config.count(Kind::Host), before.config.count(Kind::Host) + 2_000);
}

/// A state with endpoints only would remove everything else from proxies that have more.
#[tokio::test]
async fn endpoints_do_not_overtake_what_is_offered_first() {
    let Bench { inputs: _inputs, published, wants: _wants, awaits: _awaits, placed: _placed, mut pipeline } =
        bench();
    let first = vec![applied(ingress_with_secret()), applied(slice("10.0.0.1"))];
    pipeline.take(Input::Events(first)).await;
    for kind in ObjectKind::ALL {
        pipeline.take(Input::Synced(kind)).await;
    }
    pipeline.compile().await;
    pipeline.commit(clock::now());
    assert!(!published.head().is_ready(), "the Secret is not read yet");
    pipeline.take(Input::Events(vec![applied(slice("10.0.0.2"))])).await;
    pipeline.pass_endpoints().await;
    assert!(!published.head().is_ready());
}

/// What depends on an object that was not read yet cannot be judged.
#[tokio::test]
async fn a_question_has_no_verdict_before_anything_is_offered() {
    let Bench { inputs, published, wants: _wants, awaits: _awaits, placed: _placed, pipeline } = bench();
    let (questions, asked) = mpsc::channel(4);
    let mut run = pin!(pipeline.with_questions(Some(asked)).run());
    let Object::Ingress(web) = ingress_with_secret() else { unreachable!() };
    let ask = || {
        let (question, answer) = Question::new(Arc::clone(&web));
        questions.try_send(question).unwrap();
        answer
    };
    let mut answer = ask();
    turn(&mut run);
    assert!(answer.try_recv().unwrap().is_none());
    inputs.objects.send(Input::Events(vec![applied(ingress_with_secret())])).await.unwrap();
    for kind in ObjectKind::ALL {
        inputs.objects.send(Input::Synced(kind)).await.unwrap();
    }
    turn(&mut run);
    let mut answer = ask();
    turn(&mut run);
    assert!(!published.head().is_ready(), "the Secret is not read yet");
    assert!(answer.try_recv().unwrap().is_none());
    inputs.objects.send(Input::Events(vec![Event::Deleted(secret("cert"))])).await.unwrap();
    turn(&mut run);
    let mut answer = ask();
    turn(&mut run);
    assert!(answer.try_recv().unwrap().is_some());
}

#[tokio::test]
async fn a_start_is_as_old_as_what_was_heard_first_and_of_no_object() {
    let Bench { inputs, published, wants: _wants, awaits: _awaits, placed: _placed, pipeline } = bench();
    let mut notes = published.notes();
    let mut run = pin!(pipeline.run());
    inputs.objects.send(Input::Events(vec![applied(ingress_with_secret())])).await.unwrap();
    inputs.objects.send(Input::Synced(ObjectKind::Ingress)).await.unwrap();
    turn(&mut run);
    let later = clock::now();
    for kind in ObjectKind::ALL {
        inputs.objects.send(Input::Synced(kind)).await.unwrap();
    }
    turn(&mut run);
    assert!(notes.try_recv().is_err(), "the Secret is not read yet");
    inputs.objects.send(Input::Events(vec![Event::Deleted(secret("cert"))])).await.unwrap();
    turn(&mut run);
    let note = notes.try_recv().unwrap();
    assert!(note.heard < later, "people wait since then");
    assert!(note.cause.starts_with("start: "), "{}", note.cause);
    let head = published.head();
    let origins: Vec<_> = head.history.newest_first().map(|it| it.origin.clone()).collect();
    assert_eq!(origins, [Origin::default()]);
}

#[tokio::test]
async fn a_hold_of_what_is_in_no_first_list_is_erased_once_all_are_there() {
    let Bench {
        inputs,
        published: _published,
        wants: _wants,
        awaits: _awaits,
        placed: _placed,
        mut pipeline,
    } = bench();
    let (holds, mut asked) = mpsc::channel(4);
    pipeline.outputs.holds = holds;
    let mut run = pin!(pipeline.run());
    let held = Event::Held(crate::event::Hold { object: ingress_with_secret() });
    inputs.objects.send(Input::Events(vec![held])).await.unwrap();
    for kind in ObjectKind::ALL {
        turn(&mut run);
        assert!(asked.try_recv().is_err(), "{kind:?} is not listed yet");
        inputs.objects.send(Input::Synced(kind)).await.unwrap();
    }
    turn(&mut run);
    assert_eq!(asked.try_recv(), Ok(HoldRequest::Erase(ingress_with_secret().reference())));
    assert!(asked.try_recv().is_err());
}

#[tokio::test]
async fn a_damaged_record_of_the_pin_in_force_is_written_again_once() {
    let Bench { inputs, published, wants: _wants, awaits: _awaits, placed: _placed, mut pipeline } = bench();
    let (pins, mut asked) = mpsc::channel(4);
    pipeline.outputs.pins = pins;
    let mut run = pin!(pipeline.run());
    offer(&inputs, &mut run).await;
    let config = published.head().config.snapshot.clone();
    let hour = Duration::from_secs(3_600);
    let pin = Pin::new(How::Pin, config.root(), config, clock::wall(), hour, "");
    let pin = Arc::new(Pin { revision: "1".into(), ..pin });
    inputs.objects.send(Input::Events(vec![Event::Pinned(Arc::clone(&pin))])).await.unwrap();
    turn(&mut run);
    assert!(asked.try_recv().is_err());
    let why = Unreadable::Missing { name: "firth-pin-0".to_owned() };
    let damaged = Event::PinUnreadable { why, revision: "2".into() };
    inputs.objects.send(Input::Events(vec![damaged])).await.unwrap();
    turn(&mut run);
    let change = PinChange::Mend { pin, replaces: "2".into() };
    assert_eq!(asked.try_recv().map(|request| request.change), Ok(change));
    inputs.endpoints.send(Input::Events(vec![applied(slice("10.0.0.2"))])).await.unwrap();
    turn(&mut run);
    assert!(asked.try_recv().is_err());
}

#[tokio::test]
async fn a_source_that_is_gone_is_an_error() {
    let Bench { inputs, pipeline, .. } = bench();
    drop(inputs);
    assert_eq!(pipeline.run().await.unwrap_err(), PipelineError::SourceGone);
}

/// A round's lists arrive on two channels: endpoints overtake everything else. It ends once both have arrived, and what
/// they refer to was read, or cannot be.
#[tokio::test]
async fn a_round_passes_once_both_ways_are_through_and_all_is_read() {
    let Bench { inputs, published: _published, wants: _wants, awaits: _awaits, placed: _placed, pipeline } =
        bench();
    let barrier = Barrier::default();
    let mut run = pin!(pipeline.with_barrier(barrier.clone()).run());
    let begin = || {
        let round = barrier.ask(None);
        assert_eq!(barrier.begin_now(), Some(round));
        round
    };
    let early = begin();
    inputs.objects.send(Input::Fresh { round: early, is_whole: true }).await.unwrap();
    inputs.endpoints.send(Input::Fresh { round: early, is_whole: true }).await.unwrap();
    for kind in ObjectKind::ALL {
        turn(&mut run);
        assert!(!barrier.has_passed(early), "nothing is offered yet");
        inputs.objects.send(Input::Synced(kind)).await.unwrap();
    }
    turn(&mut run);
    assert!(barrier.has_passed(early));

    let round = begin();
    inputs.objects.send(Input::Events(vec![applied(ingress_with_secret())])).await.unwrap();
    inputs.objects.send(Input::Fresh { round, is_whole: true }).await.unwrap();
    turn(&mut run);
    assert!(!barrier.has_passed(round), "the endpoints are on their way");
    inputs.endpoints.send(Input::Fresh { round, is_whole: true }).await.unwrap();
    turn(&mut run);
    assert!(!barrier.has_passed(round), "the certificate was not read");
    let failed = Event::Unreadable { object: secret("cert"), reason: "503: no leader".into() };
    inputs.objects.send(Input::Events(vec![failed])).await.unwrap();
    turn(&mut run);
    assert!(barrier.has_passed(round), "its last version is kept by whoever has it");

    let late = begin();
    inputs.objects.send(Input::Fresh { round: late - 1, is_whole: true }).await.unwrap();
    inputs.objects.send(Input::Fresh { round: late, is_whole: true }).await.unwrap();
    turn(&mut run);
    assert!(!barrier.has_passed(late), "two rounds of one way are none of two ways");
}
