use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::index::Options;
use crate::objects::{
    ConfigMap, Ingress, IngressBackend, IngressHttp, IngressPath, IngressPathType, IngressRule, IngressTls,
    Metadata, Object, ServicePortRef, ServiceRef,
};
use crate::store::Published;
use shared::version::Lineage;

struct Bench {
    inputs: Inputs,
    published: Published,
    wants: watch::Receiver<Wants>,
    pipeline: Pipeline,
}

fn bench() -> Bench {
    let (inputs, receivers) = Inputs::channel(64);
    let (store, published) = Store::new(Lineage([1; 16]), clock::now());
    let (wants, wanted) = watch::channel(Wants::default());
    let (holds, _) = mpsc::channel(4);
    let (problems, _) = watch::channel(Problems::default());
    let index = Index::new(Options {
        ingress_class: "nginx".to_owned(),
        controller_class: "k8s.io/ingress-nginx".to_owned(),
        default_certificate: None,
        configmap: ObjectName::new("ingress-nginx", "ingress-nginx-controller"),
        folder: true,
    });
    let outputs = Outputs {
        wants,
        holds,
        problems,
    };
    let ports = PortConfigMaps::new(ObjectName::new("a", "tcp"), ObjectName::new("a", "udp"));
    Bench {
        inputs,
        published,
        wants: wanted,
        pipeline: Pipeline::new(index, store, receivers, outputs, ports, Arc::new(Metrics::new())),
    }
}

fn applied(object: Object) -> Event {
    Event::Applied {
        object,
        location: "".into(),
    }
}

fn ingress_with_secret() -> Object {
    let mut ingress = Ingress::default();
    ingress.metadata.namespace = "default".into();
    ingress.metadata.name = "web".into();
    ingress.metadata.annotations = [("kubernetes.io/ingress.class".to_owned(), "nginx".to_owned())].into();
    ingress.spec.tls = vec![IngressTls {
        hosts: vec!["a.test".to_owned()],
        secret_name: "cert".to_owned(),
    }];
    let service = ServiceRef {
        name: "web".to_owned(),
        port: ServicePortRef {
            name: String::new(),
            number: 80,
        },
    };
    let path = IngressPath {
        path: "/".to_owned(),
        path_type: Some(IngressPathType::Prefix),
        backend: IngressBackend {
            service: Some(service),
        },
    };
    ingress.spec.rules = vec![IngressRule {
        host: "a.test".to_owned(),
        http: Some(IngressHttp { paths: vec![path] }),
    }];
    Object::Ingress(Arc::new(ingress))
}

/// Lets the pipeline do all it can do now.
fn turn(run: &mut std::pin::Pin<&mut impl Future<Output = Result<Infallible, PipelineError>>>) {
    let mut context = Context::from_waker(Waker::noop());
    // Enough for every yield; a pending pipeline is one that waits for input.
    for _ in 0..1_000 {
        assert!(matches!(run.as_mut().poll(&mut context), Poll::Pending));
    }
}

#[tokio::test]
async fn nothing_is_offered_before_all_lists_are_in_but_wants_are() {
    let Bench {
        inputs,
        published,
        wants,
        pipeline,
    } = bench();
    let mut run = pin!(pipeline.run());
    inputs
        .objects
        .send(Input::Events(vec![applied(ingress_with_secret())]))
        .await
        .unwrap();
    for kind in ObjectKind::ALL
        .into_iter()
        .filter(|kind| *kind != ObjectKind::Secret)
    {
        inputs.objects.send(Input::Synced(kind)).await.unwrap();
    }
    turn(&mut run);
    assert!(!published.head().is_ready());
    assert!(
        wants
            .borrow()
            .secrets
            .contains(&ObjectName::new("default", "cert"))
    );

    inputs
        .objects
        .send(Input::Synced(ObjectKind::Secret))
        .await
        .unwrap();
    turn(&mut run);
    let head = published.head();
    assert!(head.is_ready());
    assert_eq!(
        head.history.len(),
        1,
        "one first version, whatever came before it"
    );
    assert!(!head.config.snapshot.is_empty());
}

#[tokio::test]
async fn what_waits_becomes_one_commit() {
    let Bench {
        inputs,
        published,
        wants: _wants,
        pipeline,
    } = bench();
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

#[tokio::test]
async fn a_source_that_is_gone_is_an_error() {
    let Bench { inputs, pipeline, .. } = bench();
    drop(inputs);
    assert_eq!(pipeline.run().await.unwrap_err(), PipelineError::SourceGone);
}
